/* SPDX-License-Identifier: MIT */
/*
 * line: bytes in, complete lines out, with a hard cap.
 *
 * The reader asks for space, reads into it, says how much came, and takes lines until there are no
 * more. Each byte is looked at once for its LF, however small the pieces are. Lines end with LF;
 * one CR before it is dropped. The buffer grows by need up to the cap and shrinks again when empty.
 */
#ifndef FOLDD_LINE_H
#define FOLDD_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "scan.h"

enum line_status {
    LINE_MORE,     /* no complete line is there */
    LINE_READY,    /* a line was taken */
    LINE_TOO_LONG, /* the next line is longer than the cap; nothing more will be taken */
};

struct line {
    struct buf buf;
    size_t start;   /* first byte that was not taken yet */
    size_t scanned; /* no LF before here */
    size_t max;     /* cap on a line, without its line end, in bytes */
};

void line_init(struct line *line, size_t max);
void line_fini(struct line *line);

/* Borrowed: room for at least one and at most want bytes behind what is there; *room says how many.
 * Never grows beyond what the cap needs (max + 2 bytes), so fewer than that may be waiting: take
 * lines first. Invalidates the lines that were taken. */
char *line_space(struct line *line, size_t want, size_t *room);

/* count bytes were put into the space. */
void line_filled(struct line *line, size_t count);

/* Take the next complete line, borrowed until the next line_space. Blank lines are taken too. */
enum line_status line_next(struct line *line, struct span *out);

/* Take what is left without LF at the end of input; false when nothing is left. */
bool line_rest(struct line *line, struct span *out);

/* Give back the memory of an empty buffer beyond keep bytes. Invalidates the lines that were taken.
 */
void line_trim(struct line *line, size_t keep);

/* Bytes that wait in the buffer. */
size_t line_pending(const struct line *line);

#endif
