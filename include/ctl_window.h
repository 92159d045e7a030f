/* SPDX-License-Identifier: MIT */
/*
 * ctl_window: the lines that have no reply yet, as one run of bytes, oldest first, with a mark up
 * to where they were sent on the present connection.
 */
#ifndef FOLDD_CTL_WINDOW_H
#define FOLDD_CTL_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "scan.h"

enum {
    CTL_WINDOW_LINES = 4096,
    CTL_WINDOW_BYTES = 8 * 1024 * 1024, /* exceeded by the line that reaches it */
};

struct ctl_window_line {
    uint64_t line_no;
    size_t size_bytes; /* with its LF */
};

struct ctl_window {
    struct buf bytes;
    size_t start; /* of the oldest line */
    size_t sent;  /* from here on nothing was sent */
    size_t begun; /* where the line between begin and end starts */
    struct ctl_window_line lines[CTL_WINDOW_LINES];
    size_t first; /* index of the oldest line; the ring goes on from there */
    size_t count;
};

void ctl_window_fini(struct ctl_window *window);

bool ctl_window_has_room(const struct ctl_window *window);

/* Begin a line: append its bytes, without LF, to what this returns, then end it. */
struct buf *ctl_window_begin(struct ctl_window *window);
void ctl_window_end(struct ctl_window *window, uint64_t line_no);

/* Borrowed: what waits to be sent. */
struct span ctl_window_unsent(const struct ctl_window *window);
void ctl_window_sent(struct ctl_window *window, size_t size_bytes);

/* A new connection: everything is to be sent again. */
void ctl_window_rewind(struct ctl_window *window);

/* The oldest line, which must exist, was answered: drop it. Sets *line_no. Returns false when it
 * had not been sent whole: the connection is then out of step. */
bool ctl_window_pop(struct ctl_window *window, uint64_t *line_no);

#endif
