/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <string.h>

#include "line.h"

struct feed {
    const char *data;
    size_t len;
    size_t fed;   /* bytes that line has */
    size_t taken; /* bytes of the lines that came out */
    size_t max;
    uint32_t random;
};

static uint32_t draw(struct feed *feed)
{
    feed->random ^= feed->random << 13;
    feed->random ^= feed->random >> 17;
    feed->random ^= feed->random << 5;
    return feed->random;
}

/* The naive reader: the line at taken, up to its LF or the end of the stream, without one CR. */
static struct span naive(const struct feed *feed, bool *ended)
{
    const char *from = feed->data + feed->taken;
    size_t left = feed->len - feed->taken;
    const char *lf = left == 0 ? NULL : memchr(from, '\n', left);
    *ended = lf != NULL;
    struct span span = {from, lf != NULL ? (size_t)(lf - from) : left};
    if (span.len > 0 && span.data[span.len - 1] == '\r')
        span.len--;
    return span;
}

static bool equal(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void put(struct feed *feed, struct line *line)
{
    size_t left = feed->len - feed->fed;
    size_t want = 1 + draw(feed) % 24;
    size_t room;
    char *space = line_space(line, want, &room);
    fuzz_require(room >= 1 && room <= want, "the room is from one byte to what was wanted");
    fuzz_require(line->buf.cap <= feed->max + 2, "the buffer stays within the cap");
    size_t count = room < left ? room : left;
    memcpy(space, feed->data + feed->fed, count);
    line_filled(line, count);
    feed->fed += count;
}

static enum line_status take(struct feed *feed, struct line *line)
{
    bool ended;
    struct span span;
    struct span expected = naive(feed, &ended);
    enum line_status status = line_next(line, &span);
    if (status == LINE_READY) {
        fuzz_require(ended && equal(span, expected), "a line is what a naive reader finds");
        fuzz_require(span.len <= feed->max, "no line is longer than the cap");
        feed->taken = (size_t)(expected.data - feed->data) + expected.len;
        feed->taken += feed->data[feed->taken] == '\r' ? 2 : 1;
    } else if (status == LINE_TOO_LONG) {
        fuzz_require(expected.len > feed->max, "too long is longer than the cap");
        fuzz_require(line_next(line, &span) == LINE_TOO_LONG, "too long is for good");
    } else {
        fuzz_require(feed->fed == feed->taken ||
                         memchr(feed->data + feed->taken, '\n', feed->fed - feed->taken) == NULL,
                     "no line that is there is held back");
    }
    fuzz_require(line_pending(line) == feed->fed - feed->taken, "no byte is lost");
    return status;
}

static void finish(struct feed *feed, struct line *line)
{
    bool ended;
    struct span rest = {NULL, 0};
    struct span expected = naive(feed, &ended);
    bool some = feed->taken < feed->len;
    fuzz_require(!ended, "every line with an end came out");
    fuzz_require(expected.len <= feed->max, "what is longer than the cap was too long");
    fuzz_require(line_rest(line, &rest) == some, "a rest is there if bytes are left");
    fuzz_require(!some || equal(rest, expected), "the rest is what is left");
}

void fuzz_line(const uint8_t *data, size_t size)
{
    if (size < 2)
        return;
    struct feed feed = {(const char *)data + 2, size - 2, 0, 0, (size_t)data[0] + 1, data[1] + 1u};
    struct line line;
    enum line_status status = LINE_MORE;
    line_init(&line, feed.max);
    while (status != LINE_TOO_LONG && (feed.fed < feed.len || status == LINE_READY)) {
        bool full = line_pending(&line) >= feed.max + 2;
        if (feed.fed < feed.len && !full && draw(&feed) % 2 == 0)
            put(&feed, &line);
        status = take(&feed, &line);
        fuzz_require(!full || status != LINE_MORE, "a full buffer has a line or one too long");
    }
    if (status != LINE_TOO_LONG)
        finish(&feed, &line);
    line_fini(&line);
}
