/* SPDX-License-Identifier: MIT */
#include "line.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "unit.h"

/* Put all the bytes in, as many space calls as it takes, without taking lines. */
static void put(struct line *line, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t room;
        char *space = line_space(line, len, &room);
        ck_assert(room >= 1 && room <= len);
        memcpy(space, bytes, room);
        line_filled(line, room);
        bytes += room;
        len -= room;
    }
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static void put_run(struct line *line, char c, size_t count)
{
    char *run = mem_alloc(count);
    memset(run, c, count);
    put(line, run, count);
    free(run);
}

static void expect_line(struct line *line, const char *text)
{
    struct span span;
    ck_assert_int_eq(line_next(line, &span), LINE_READY);
    ck_assert_uint_eq(span.len, strlen(text));
    ck_assert_mem_eq(span.data, text, span.len);
}

static void expect_status(struct line *line, enum line_status status)
{
    struct span span;
    ck_assert_int_eq(line_next(line, &span), status);
}

START_TEST(lines_come_out_without_their_ends)
{
    struct line line;
    line_init(&line, 100);
    expect_status(&line, LINE_MORE);
    put_text(&line, "one\ntwo\r\n\n\r\n\r\r\na\rb\nrest");
    expect_line(&line, "one");
    expect_line(&line, "two");
    expect_line(&line, "");
    expect_line(&line, "");
    expect_line(&line, "\r");
    expect_line(&line, "a\rb");
    expect_status(&line, LINE_MORE);
    ck_assert_uint_eq(line_pending(&line), 4);
    put_text(&line, " of it\n");
    expect_line(&line, "rest of it");
    ck_assert_uint_eq(line_pending(&line), 0);
    line_fini(&line);
}
END_TEST

START_TEST(nul_is_a_byte_like_any_other)
{
    struct line line;
    struct span span;
    line_init(&line, 100);
    put(&line, "a\0b\n", 4);
    ck_assert_int_eq(line_next(&line, &span), LINE_READY);
    ck_assert_uint_eq(span.len, 3);
    ck_assert_mem_eq(span.data, "a\0b", 3);
    line_fini(&line);
}
END_TEST

START_TEST(the_rest_is_what_has_no_end)
{
    struct line line;
    struct span span;
    line_init(&line, 4);
    ck_assert(!line_rest(&line, &span));
    put_text(&line, "a\nbcde");
    expect_line(&line, "a");
    expect_status(&line, LINE_MORE);
    ck_assert(line_rest(&line, &span));
    ck_assert_uint_eq(span.len, 4);
    ck_assert_mem_eq(span.data, "bcde", 4);
    ck_assert(!line_rest(&line, &span));
    expect_status(&line, LINE_MORE);

    /* Half a line end does not count to the cap, and is not part of the line. */
    put_text(&line, "bcde\r");
    expect_status(&line, LINE_MORE);
    ck_assert(line_rest(&line, &span));
    ck_assert_uint_eq(span.len, 4);

    put_text(&line, "bcdef");
    expect_status(&line, LINE_TOO_LONG);
    ck_assert(!line_rest(&line, &span));
    line_fini(&line);
}
END_TEST

START_TEST(the_cap_is_exact)
{
    static const char *const ends[] = {"\n", "\r\n"};
    enum { MAX = 1000 };
    for (size_t i = 0; i < 2; i++) {
        struct line line;
        struct span span;
        line_init(&line, MAX);
        put_run(&line, 'x', MAX);
        expect_status(&line, LINE_MORE);
        put_text(&line, ends[i]);
        ck_assert_int_eq(line_next(&line, &span), LINE_READY);
        ck_assert_uint_eq(span.len, MAX);
        expect_status(&line, LINE_MORE);

        /* One byte over, seen before its line end comes ... */
        put_run(&line, 'x', MAX + 1);
        expect_status(&line, LINE_TOO_LONG);
        expect_status(&line, LINE_TOO_LONG);
        line_fini(&line);

        /* ... and in one piece with it, behind a line that is still good. */
        line_init(&line, MAX);
        put_text(&line, "a\n");
        expect_line(&line, "a");
        put_run(&line, 'x', MAX + 1);
        put_text(&line, "\n");
        expect_status(&line, LINE_TOO_LONG);
        expect_status(&line, LINE_TOO_LONG);
        line_fini(&line);
    }
}
END_TEST

START_TEST(a_cr_at_the_cap_waits_for_its_lf)
{
    struct line line;
    line_init(&line, 3);
    put_text(&line, "abc\r");
    expect_status(&line, LINE_MORE);
    put_text(&line, "\n");
    expect_line(&line, "abc");
    put_text(&line, "abc\r");
    expect_status(&line, LINE_MORE);
    put_text(&line, "d");
    expect_status(&line, LINE_TOO_LONG);
    line_fini(&line);

    line_init(&line, 3);
    put_text(&line, "abc\r\r");
    expect_status(&line, LINE_TOO_LONG);
    line_fini(&line);
}
END_TEST

START_TEST(nothing_is_looked_at_twice)
{
    enum { MAX = 1 << 20, PIECE = 64 };
    struct line line;
    struct span span;
    line_init(&line, MAX);
    put_text(&line, "before\n");
    expect_line(&line, "before");
    for (size_t done = 0; done < MAX; done += PIECE) {
        put_run(&line, 'x', PIECE);
        expect_status(&line, LINE_MORE);
        ck_assert_uint_eq(line.scanned - line.start, done + PIECE);
        /* An LF that appears behind the scan goes unseen, unless the bytes are looked at again. */
        memset(line.buf.data + line.start + done, '\n', PIECE - 1);
        expect_status(&line, LINE_MORE);
        ck_assert_uint_le(line.buf.cap, MAX + 2);
    }
    put_text(&line, "\n");
    ck_assert_int_eq(line_next(&line, &span), LINE_READY);
    ck_assert_uint_eq(span.len, MAX);
    line_fini(&line);
}
END_TEST

START_TEST(memory_follows_need)
{
    enum { MAX = 1 << 20, READ = 8192 };
    struct line line;
    struct span span;
    size_t room;
    line_init(&line, MAX);
    ck_assert_uint_eq(line.buf.cap, 0);
    put_run(&line, 'x', MAX);
    put_text(&line, "\r\n");
    ck_assert_uint_eq(line.buf.cap, MAX + 2);
    ck_assert_int_eq(line_next(&line, &span), LINE_READY);
    ck_assert_uint_eq(span.len, MAX);
    line_space(&line, READ, &room);
    ck_assert_uint_eq(room, READ);
    ck_assert_uint_eq(line.buf.cap, READ);
    line_fini(&line);
    ck_assert_uint_eq(line.buf.cap, 0);

    /* A small cap bounds the memory, however much is asked for. */
    line_init(&line, 10);
    line_space(&line, READ, &room);
    ck_assert_uint_eq(room, 12);
    ck_assert_uint_eq(line.buf.cap, 12);
    line_fini(&line);
}
END_TEST

enum { STREAM_BYTES = 20000, STREAM_MAX = 300 };

/* Lines of 0 to STREAM_MAX bytes of letters and CRs, ended either way, the last without an end. */
static struct buf random_stream(uint32_t *state)
{
    struct buf stream = {0};
    while (stream.len < STREAM_BYTES) {
        uint32_t most = unit_random(state) % 4 == 0 ? STREAM_MAX : 12;
        for (uint32_t left = unit_random(state) % (most + 1); left > 0; left--)
            buf_add_char(&stream, unit_random(state) % 8 == 0 ? '\r' : 'a');
        buf_add_str(&stream, unit_random(state) % 2 == 0 ? "\n" : "\r\n");
    }
    buf_add_str(&stream, "the rest");
    return stream;
}

/* The line at *pos by a naive split; moves *pos behind it. False when there is no LF. */
static bool naive_next(const struct buf *stream, size_t *pos, struct span *out)
{
    size_t end = *pos;
    while (end < stream->len && stream->data[end] != '\n')
        end++;
    *out = (struct span){stream->data + *pos, end - *pos};
    *pos = end + 1;
    if (out->len > 0 && out->data[out->len - 1] == '\r')
        out->len--;
    return end < stream->len;
}

START_TEST(random_pieces_agree_with_a_naive_split)
{
    uint32_t state = (uint32_t)_i + 1;
    struct buf stream = random_stream(&state);
    uint32_t piece_max = _i == 0 ? 1 : 1u << _i;
    struct line line;
    struct span span;
    struct span expected;
    size_t fed = 0;
    size_t pos = 0;
    line_init(&line, STREAM_MAX);
    while (fed < stream.len) {
        size_t room;
        char *space = line_space(&line, 1 + unit_random(&state) % piece_max, &room);
        size_t count = 1 + unit_random(&state) % room;
        count = count < stream.len - fed ? count : stream.len - fed;
        memcpy(space, stream.data + fed, count);
        line_filled(&line, count);
        fed += count;
        /* Sometimes lines stay behind, as when a client is held back. */
        bool all = line_pending(&line) > STREAM_MAX || unit_random(&state) % 4 != 0;
        while ((all || unit_random(&state) % 2 == 0) && line_next(&line, &span) == LINE_READY) {
            ck_assert(naive_next(&stream, &pos, &expected));
            ck_assert_uint_eq(span.len, expected.len);
            ck_assert_mem_eq(span.data, expected.data, span.len);
        }
        ck_assert_uint_le(line.buf.cap, STREAM_MAX + 2);
    }
    while (line_next(&line, &span) == LINE_READY) {
        ck_assert(naive_next(&stream, &pos, &expected));
        ck_assert_uint_eq(span.len, expected.len);
        ck_assert_mem_eq(span.data, expected.data, span.len);
    }
    ck_assert(!naive_next(&stream, &pos, &expected));
    ck_assert(line_rest(&line, &span));
    ck_assert_uint_eq(span.len, expected.len);
    ck_assert_mem_eq(span.data, expected.data, span.len);
    line_fini(&line);
    buf_fini(&stream);
}
END_TEST

Suite *line_suite(void)
{
    Suite *suite = suite_create("line");
    TCase *tcase = tcase_create("line");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, lines_come_out_without_their_ends);
    tcase_add_test(tcase, nul_is_a_byte_like_any_other);
    tcase_add_test(tcase, the_rest_is_what_has_no_end);
    tcase_add_test(tcase, the_cap_is_exact);
    tcase_add_test(tcase, a_cr_at_the_cap_waits_for_its_lf);
    tcase_add_test(tcase, nothing_is_looked_at_twice);
    tcase_add_test(tcase, memory_follows_need);
    tcase_add_loop_test(tcase, random_pieces_agree_with_a_naive_split, 0, 10);
    suite_add_tcase(suite, tcase);
    return suite;
}
