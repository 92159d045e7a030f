/* SPDX-License-Identifier: MIT */
/*
 * A ring of the opened numbers in ascending order. Opening appends; settling finds the number by
 * binary search and marks it; settled numbers leave at the low end only, so that the lowest entry
 * is always open and the cursor is one below it.
 */
#include "watermark.h"

#include <assert.h>
#include <stdlib.h>

#include "mem.h"

enum { RING_START = 64 }; /* entries; always a power of two */

struct entry {
    int64_t seq;
    bool done;
};

struct watermark {
    struct entry *ring;
    size_t cap;
    size_t head; /* place of the lowest entry */
    size_t count;
    size_t open_count;
    int64_t last; /* highest number given so far */
};

static struct entry *entry_at(const struct watermark *wm, size_t index)
{
    return &wm->ring[(wm->head + index) & (wm->cap - 1)];
}

/* The entry of an open seq, or NULL. */
static struct entry *find_open(const struct watermark *wm, int64_t seq)
{
    size_t low = 0;
    size_t high = wm->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entry_at(wm, middle)->seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == wm->count)
        return NULL;
    struct entry *entry = entry_at(wm, low);
    return entry->seq == seq && !entry->done ? entry : NULL;
}

static void grow(struct watermark *wm)
{
    size_t cap = wm->cap * 2;
    struct entry *ring = mem_resize(NULL, cap, sizeof(*ring));
    for (size_t i = 0; i < wm->count; i++)
        ring[i] = *entry_at(wm, i);
    free(wm->ring);
    wm->ring = ring;
    wm->cap = cap;
    wm->head = 0;
}

struct watermark *watermark_new(int64_t cursor)
{
    struct watermark *wm = mem_zalloc(sizeof(*wm));
    wm->ring = mem_resize(NULL, RING_START, sizeof(*wm->ring));
    wm->cap = RING_START;
    wm->last = cursor;
    return wm;
}

void watermark_free(struct watermark *wm)
{
    if (wm == NULL)
        return;
    free(wm->ring);
    free(wm);
}

void watermark_open(struct watermark *wm, int64_t seq)
{
    assert(seq > wm->last);
    if (wm->count == wm->cap)
        grow(wm);
    *entry_at(wm, wm->count) = (struct entry){.seq = seq};
    wm->count++;
    wm->open_count++;
    wm->last = seq;
}

void watermark_advance(struct watermark *wm, int64_t seq)
{
    if (seq > wm->last)
        wm->last = seq;
}

bool watermark_settle(struct watermark *wm, int64_t seq)
{
    struct entry *entry = find_open(wm, seq);
    if (entry == NULL)
        return false;
    entry->done = true;
    wm->open_count--;
    while (wm->count > 0 && entry_at(wm, 0)->done) {
        wm->head = (wm->head + 1) & (wm->cap - 1);
        wm->count--;
    }
    return true;
}

bool watermark_is_open(const struct watermark *wm, int64_t seq)
{
    return find_open(wm, seq) != NULL;
}

int64_t watermark_cursor(const struct watermark *wm)
{
    return wm->count > 0 ? entry_at(wm, 0)->seq - 1 : wm->last;
}

size_t watermark_open_count(const struct watermark *wm)
{
    return wm->open_count;
}

size_t watermark_span(const struct watermark *wm)
{
    return wm->count;
}

int64_t watermark_lowest(const struct watermark *wm)
{
    return wm->count > 0 ? entry_at(wm, 0)->seq : 0;
}
