/* SPDX-License-Identifier: MIT */
/*
 * watermark: completions out of order in, one cursor out.
 *
 * Operations are opened in ascending seq and settled in any order. The cursor is the highest number
 * such that every opened operation at or below it is settled: one below the lowest open operation,
 * or the last number that was passed to watermark_open or watermark_advance when none is open (seq
 * has gaps: a number that was never opened needs no settling). The cursor never moves back.
 */
#ifndef FOLDD_WATERMARK_H
#define FOLDD_WATERMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watermark;

/* Given. Everything up to and including cursor counts as settled. */
struct watermark *watermark_new(int64_t cursor);
void watermark_free(struct watermark *wm);

/* An operation is on its way. seq must be above every number given before. */
void watermark_open(struct watermark *wm, int64_t seq);

/* Nothing up to seq will be opened any more except what is open (the end of a page with gaps). */
void watermark_advance(struct watermark *wm, int64_t seq);

/* The operation is settled. Returns false (and changes nothing) if it was not open. O(log n). */
bool watermark_settle(struct watermark *wm, int64_t seq);

/* Whether the operation is open. */
bool watermark_is_open(const struct watermark *wm, int64_t seq);

int64_t watermark_cursor(const struct watermark *wm);

/* Operations opened and not settled. */
size_t watermark_open_count(const struct watermark *wm);

/* Numbers kept in memory: those from the lowest open one to the highest, settled ones included. */
size_t watermark_span(const struct watermark *wm);

/* The lowest open seq, or 0 when none is open. */
int64_t watermark_lowest(const struct watermark *wm);

#endif
