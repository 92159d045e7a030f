/* SPDX-License-Identifier: MIT */
/*
 * The bytes of start..len wait to be taken. Lines that were taken stay in front of start until
 * line_space, which alone moves or resizes the buffer. When the reader takes all lines before it
 * asks for space, what is left is the beginning of one line and is moved at most once.
 */
#include "line.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "mem.h"

enum { KEEP_BYTES = 4096 }; /* an empty buffer up to this size is not worth giving back */

/* What the cap needs: the longest line with CR LF. */
static size_t most(const struct line *line)
{
    return line->max + 2;
}

static void resize(struct line *line, size_t cap)
{
    line->buf.data = mem_resize(line->buf.data, cap, 1);
    line->buf.cap = cap;
}

/* Drop the lines that were taken, and the memory that a long one needed. */
static void discard_taken(struct line *line, size_t room)
{
    size_t pending = line_pending(line);
    if (pending > 0)
        memmove(line->buf.data, line->buf.data + line->start, pending);
    line->buf.len = pending;
    line->scanned -= line->start;
    line->start = 0;
    if (pending == 0 && line->buf.cap > KEEP_BYTES && line->buf.cap > room) {
        buf_fini(&line->buf);
        resize(line, room);
    }
}

void line_init(struct line *line, size_t max)
{
    assert(max > 0 && max <= SIZE_MAX / 4);
    *line = (struct line){.max = max};
}

void line_fini(struct line *line)
{
    buf_fini(&line->buf);
    line->start = 0;
    line->scanned = 0;
}

char *line_space(struct line *line, size_t want, size_t *room)
{
    size_t pending = line_pending(line);
    assert(want > 0 && pending < most(line));
    *room = want < most(line) - pending ? want : most(line) - pending;
    if (pending == 0 || line->buf.cap - line->buf.len < *room)
        discard_taken(line, *room);
    size_t need = line->buf.len + *room;
    if (need > line->buf.cap) {
        size_t cap = line->buf.cap * 2 > need ? line->buf.cap * 2 : need;
        resize(line, cap < most(line) ? cap : most(line));
    }
    return line->buf.data + line->buf.len;
}

void line_filled(struct line *line, size_t count)
{
    assert(count <= line->buf.cap - line->buf.len);
    line->buf.len += count;
}

/* The bytes from start up to end, without the CR of a line end. */
static struct span without_cr(const struct line *line, size_t end)
{
    struct span span = {line->buf.data + line->start, end - line->start};
    if (span.len > 0 && span.data[span.len - 1] == '\r')
        span.len--;
    return span;
}

enum line_status line_next(struct line *line, struct span *out)
{
    if (line_pending(line) == 0)
        return LINE_MORE;
    const char *from = line->buf.data + line->scanned;
    const char *lf = memchr(from, '\n', line->buf.len - line->scanned);
    size_t end = lf != NULL ? (size_t)(lf - line->buf.data) : line->buf.len;
    line->scanned = end;
    struct span span = without_cr(line, end);
    if (span.len > line->max)
        return LINE_TOO_LONG;
    if (lf == NULL)
        return LINE_MORE;
    *out = span;
    line->start = end + 1;
    line->scanned = line->start;
    return LINE_READY;
}

bool line_rest(struct line *line, struct span *out)
{
    if (line_pending(line) == 0)
        return false;
    /* A CR at the very end is half a line end; without it the rest obeys the cap like any line. */
    struct span rest = without_cr(line, line->buf.len);
    if (rest.len > line->max)
        return false;
    *out = rest;
    line->start = line->buf.len;
    line->scanned = line->start;
    return true;
}

void line_trim(struct line *line, size_t keep)
{
    if (line_pending(line) > 0 || line->buf.cap <= keep)
        return;
    line_fini(line);
}

size_t line_pending(const struct line *line)
{
    return line->buf.len - line->start;
}
