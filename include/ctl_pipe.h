/* SPDX-License-Identifier: MIT */
/*
 * ctl_pipe: lines from a file descriptor to foldd and the replies back, reading and writing at
 * once.
 *
 * A window (ctl_window.h) holds every line that has no reply yet; while it is full no input is
 * read. Replies come in the order of the lines. When the connection breaks, the pipe connects again
 * with back-off and sends the whole window again, so whoever allows that (reconnect_ms) must see to
 * it that each line can be sent twice.
 */
#ifndef FOLDD_CTL_PIPE_H
#define FOLDD_CTL_PIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "ctl.h"

struct ctl_pipe;

/* Append to out what is to be sent for an input line. line_no counts all input lines from 1. */
typedef void (*ctl_pipe_prepare_fn)(void *arg, uint64_t line_no, struct span line, struct buf *out);

/* A line has its reply. Both pointers are borrowed for the call. */
typedef void (*ctl_pipe_reply_fn)(void *arg, uint64_t line_no, const struct ctl_reply *reply);

/* Called several times a second while the pipe runs. */
typedef void (*ctl_pipe_tick_fn)(void *arg);

struct ctl_pipe_options {
    const char *socket_path;
    int input_fd;         /* borrowed */
    int64_t reconnect_ms; /* how long to try without a single reply; 0 = never reconnect */
    ctl_pipe_prepare_fn prepare;
    ctl_pipe_reply_fn on_reply;
    ctl_pipe_tick_fn on_tick; /* may be NULL */
    void *arg;
};

struct ctl_pipe_counts {
    uint64_t lines_read;
    uint64_t bytes_read;
    uint64_t reconnects;
};

/* Given: a pipe that is connected; NULL and err when foldd cannot be reached. */
struct ctl_pipe *ctl_pipe_new(const struct ctl_pipe_options *options, struct err *err) MUST_CHECK;
void ctl_pipe_free(struct ctl_pipe *pipe);

/* Add a line of one's own behind the input's; it is answered with line_no 0. */
void ctl_pipe_push(struct ctl_pipe *pipe, const char *line);

/* Run until the input has ended and every line has its reply. False and err when the connection is
 * lost for good (lines may then lack a reply), or the input cannot be read (class ERR_CLIENT; the
 * lines in front of that place have their replies). */
bool ctl_pipe_run(struct ctl_pipe *pipe, struct err *err) MUST_CHECK;

struct ctl_pipe_counts ctl_pipe_counts(const struct ctl_pipe *pipe);

/* Lines that were read and have no reply. */
size_t ctl_pipe_unanswered(const struct ctl_pipe *pipe);

#endif
