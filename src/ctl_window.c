/* SPDX-License-Identifier: MIT */
#include "ctl_window.h"

#include <assert.h>
#include <string.h>

void ctl_window_fini(struct ctl_window *window)
{
    buf_fini(&window->bytes);
}

bool ctl_window_has_room(const struct ctl_window *window)
{
    return window->count < CTL_WINDOW_LINES && window->bytes.len - window->start < CTL_WINDOW_BYTES;
}

/* Move the lines to the front once more than half of the bytes are dead: O(1) a byte, amortised. */
static void compact(struct ctl_window *window)
{
    size_t live = window->bytes.len - window->start;
    if (window->start <= live)
        return;
    memmove(window->bytes.data, window->bytes.data + window->start, live);
    window->bytes.len = live;
    window->sent -= window->start;
    window->start = 0;
    if (live == 0 && window->bytes.cap > 2 * (size_t)CTL_WINDOW_BYTES)
        buf_fini(&window->bytes);
}

struct buf *ctl_window_begin(struct ctl_window *window)
{
    assert(window->count < CTL_WINDOW_LINES);
    compact(window);
    window->begun = window->bytes.len;
    return &window->bytes;
}

void ctl_window_end(struct ctl_window *window, uint64_t line_no)
{
    buf_add_char(&window->bytes, '\n');
    size_t slot = (window->first + window->count) % CTL_WINDOW_LINES;
    window->lines[slot].line_no = line_no;
    window->lines[slot].size_bytes = window->bytes.len - window->begun;
    window->count++;
}

struct span ctl_window_unsent(const struct ctl_window *window)
{
    if (window->bytes.len == window->sent)
        return (struct span){0};
    return (struct span){.data = window->bytes.data + window->sent,
                         .len = window->bytes.len - window->sent};
}

void ctl_window_sent(struct ctl_window *window, size_t size_bytes)
{
    window->sent += size_bytes;
}

void ctl_window_rewind(struct ctl_window *window)
{
    window->sent = window->start;
}

bool ctl_window_pop(struct ctl_window *window, uint64_t *line_no)
{
    assert(window->count > 0);
    const struct ctl_window_line *line = &window->lines[window->first];
    *line_no = line->line_no;
    window->start += line->size_bytes;
    window->first = (window->first + 1) % CTL_WINDOW_LINES;
    window->count--;
    bool whole = window->sent >= window->start;
    if (!whole)
        window->sent = window->start;
    return whole;
}
