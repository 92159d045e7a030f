/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clock.h"
#include "err.h"
#include "log.h"
#include "mem.h"
#include "unit.h"

START_TEST(err_set_fills_everything)
{
    struct err err = {.sqlstate = "40001"};
    ck_assert(!err_set(&err, ERR_CLIENT, "key %s: %d", "id", 7));
    ck_assert_int_eq(err.class, ERR_CLIENT);
    ck_assert_str_eq(err.sqlstate, "");
    ck_assert_str_eq(err.message, "key id: 7");
    ck_assert(!err_set(NULL, ERR_CLIENT, "nobody asked"));
    ck_assert(!err_wrap(NULL, "nobody asked"));
    ck_assert(!err_set_sql(NULL, "40001", "nobody asked"));
}
END_TEST

START_TEST(err_set_cuts_at_a_character)
{
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    struct err err;
    for (size_t i = 0; i < 3; i++) {
        size_t size = strlen(characters[i]);
        for (size_t shift = 0; shift < 4; shift++) {
            struct buf text = {0};
            buf_printf(&text, "%.*s", (int)shift, "xxxx");
            while (text.len < 2 * sizeof(err.message))
                buf_add_str(&text, characters[i]);
            err_set(&err, ERR_DATA, "%s", buf_cstr(&text));
            size_t room = sizeof(err.message) - 1;
            ck_assert_uint_eq(strlen(err.message), room - (room - shift) % size);
            ck_assert_mem_eq(err.message, text.data, strlen(err.message));
            buf_fini(&text);
        }
    }
}
END_TEST

START_TEST(err_wrap_puts_context_in_front)
{
    struct err err;
    err_set_sql(&err, "23505", "duplicate key");
    ck_assert(!err_wrap(&err, "batch %d", 3));
    ck_assert(!err_wrap(&err, "ingest"));
    ck_assert_str_eq(err.message, "ingest: batch 3: duplicate key");
    ck_assert_str_eq(err.sqlstate, "23505");
    ck_assert_int_eq(err.class, ERR_DATA);

    char text[600];
    memset(text, 'm', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    err_set(&err, ERR_FATAL, "%s", text);
    err_wrap(&err, "context");
    ck_assert(strncmp(err.message, "context: mmm", 12) == 0);
    ck_assert_uint_lt(strlen(err.message), sizeof(err.message));
}
END_TEST

START_TEST(err_wrap_cuts_at_a_character)
{
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    struct err err;
    for (size_t i = 0; i < 3; i++) {
        size_t size = strlen(characters[i]);
        for (size_t shift = 0; shift < 4; shift++) {
            struct buf text = {0};
            buf_printf(&text, "%.*s", (int)shift, "xxxx");
            while (text.len < 2 * sizeof(err.message))
                buf_add_str(&text, characters[i]);
            err_set(&err, ERR_DATA, "%s", buf_cstr(&text));
            err_wrap(&err, "%s", buf_cstr(&text));
            /* At most 200 bytes of context and 300 of the message, each in whole characters. */
            size_t front = 200 - (200 - shift) % size;
            size_t back = 300 - (300 - shift) % size;
            ck_assert_uint_eq(strlen(err.message), front + 2 + back);
            ck_assert_mem_eq(err.message, text.data, front);
            ck_assert_mem_eq(err.message + front, ": ", 2);
            ck_assert_mem_eq(err.message + front + 2, text.data, back);
            buf_fini(&text);
        }
    }
}
END_TEST

START_TEST(sqlstates_have_classes)
{
    static const struct {
        const char *sqlstate;
        enum err_class class;
    } rows[] = {
        {"08006", ERR_TRANSIENT}, {"40001", ERR_TRANSIENT}, {"40P01", ERR_TRANSIENT},
        {"53300", ERR_TRANSIENT}, {"55P03", ERR_TRANSIENT}, {"57P01", ERR_TRANSIENT},
        {"25006", ERR_TRANSIENT}, {"42P01", ERR_FATAL},     {"3D000", ERR_FATAL},
        {"28P01", ERR_FATAL},     {"22003", ERR_DATA},      {"23505", ERR_DATA},
        {"P0001", ERR_DATA},      {"40002", ERR_DATA},      {"55000", ERR_DATA},
        {"99999", ERR_DATA},      {"", ERR_DATA},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_msg(err_class_of_sqlstate(rows[i].sqlstate) == rows[i].class, "%s",
                      rows[i].sqlstate);
    struct err err;
    ck_assert(!err_set_sql(&err, "57P01", "100% gone"));
    ck_assert_int_eq(err.class, ERR_TRANSIENT);
    ck_assert_str_eq(err.sqlstate, "57P01");
    ck_assert_str_eq(err.message, "100% gone");
}
END_TEST

START_TEST(buf_grows_and_keeps_what_it_has)
{
    struct buf buf;
    buf_init(&buf);
    ck_assert_ptr_null(buf.data);
    buf_add(&buf, NULL, 0);
    ck_assert_uint_eq(buf.cap, 0);
    for (int i = 0; i < 1000; i++)
        buf_add_char(&buf, (char)('a' + i % 26));
    buf_add_str(&buf, "<end>");
    ck_assert_uint_eq(buf.len, 1005);
    ck_assert_uint_ge(buf.cap, buf.len);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(buf.data[i], 'a' + i % 26);
    ck_assert_mem_eq(buf.data + 1000, "<end>", 5);
    buf_fini(&buf);
    ck_assert_ptr_null(buf.data);
    ck_assert_uint_eq(buf.len, 0);
}
END_TEST

START_TEST(buf_prints_and_hands_over)
{
    struct buf buf = {0};
    buf_printf(&buf, "%s", "");
    ck_assert_str_eq(buf_cstr(&buf), "");
    for (int i = 0; i < 40; i++)
        buf_printf(&buf, "%d,", i);
    const char *text = buf_cstr(&buf);
    ck_assert_uint_eq(strlen(text), buf.len);
    ck_assert(strncmp(text, "0,1,2,3,", 8) == 0);
    ck_assert_str_eq(text + buf.len - 6, "38,39,");
    size_t len = buf.len;
    char *taken = buf_take(&buf);
    ck_assert_uint_eq(strlen(taken), len);
    ck_assert_uint_eq(buf.len, 0);
    ck_assert_ptr_null(buf.data);
    free(taken);
    taken = buf_take(&buf);
    ck_assert_str_eq(taken, "");
    free(taken);
}
END_TEST

START_TEST(buf_prints_at_every_edge_of_its_room)
{
    for (size_t before = 0; before < 130; before++)
        for (int width = 1; width < 130; width++) {
            struct buf buf = {0};
            for (size_t i = 0; i < before; i++)
                buf_add_char(&buf, 'b');
            buf_printf(&buf, "%0*d", width, 7);
            size_t len = before + (size_t)width;
            if (buf.len != len || buf.cap < len || buf.data[len - 1] != '7' ||
                (before > 0 && buf.data[before - 1] != 'b') ||
                (width > 1 && buf.data[before] != '0'))
                ck_abort_msg("%zu bytes behind %d", before, width);
            buf_fini(&buf);
        }
}
END_TEST

START_TEST(buf_writes_network_order)
{
    struct buf buf = {0};
    buf_add_be16(&buf, -2);
    buf_add_be32(&buf, 0x01020304);
    buf_add_be64(&buf, INT64_C(0x0102030405060708));
    ck_assert_uint_eq(buf.len, 14);
    ck_assert_mem_eq(buf.data, "\xff\xfe\1\2\3\4\1\2\3\4\5\6\7\10", 14);
    buf_fini(&buf);
}
END_TEST

START_TEST(the_clock_stands_when_a_test_says_so)
{
    clock_set_for_test(1234567, 1700000000000000);
    ck_assert_int_eq(clock_mono_us(), 1234567);
    ck_assert_int_eq(clock_mono_ms(), 1234);
    ck_assert_int_eq(clock_wall_us(), INT64_C(1700000000000000));
    clock_set_for_test(0, -1);
    ck_assert_int_eq(clock_mono_us(), 0);
    clock_set_for_test(-1, -1);
    int64_t before = clock_mono_us();
    ck_assert_int_gt(before, 0);
    ck_assert_int_ge(clock_mono_us(), before);
    ck_assert_int_gt(clock_wall_us(), INT64_C(1600000000000000));
}
END_TEST

START_TEST(log_text_is_one_quoted_value)
{
    ck_assert_str_eq(log_text(""), "\"\"");
    ck_assert_str_eq(log_text("a b"), "\"a b\"");
    ck_assert_str_eq(log_text("say \"hi\" \\"), "\"say \\\"hi\\\" \\\\\"");
    ck_assert_str_eq(log_text("one\ntwo\tthree\x01"), "\"one two three \"");
    ck_assert_str_eq(log_text("caf\xc3\xa9"), "\"caf\xc3\xa9\"");
}
END_TEST

START_TEST(log_text_is_bounded)
{
    char text[2000];
    for (size_t shift = 0; shift < 2; shift++) {
        memset(text, '"', sizeof(text));
        memset(text, 'x', shift);
        text[sizeof(text) - 1] = '\0';
        const char *quoted = log_text(text);
        size_t len = strlen(quoted);
        ck_assert_uint_ge(len, 400);
        ck_assert_uint_le(len, 404);
        ck_assert_str_eq(quoted + len - 3, "\\\"\"");
    }
}
END_TEST

START_TEST(log_text_cuts_at_a_character)
{
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < 3; i++) {
        size_t size = strlen(characters[i]);
        for (size_t shift = 0; shift < 4; shift++) {
            struct buf text = {0};
            buf_printf(&text, "%.*s", (int)shift, "xxxx");
            while (text.len < 1000)
                buf_add_str(&text, characters[i]);
            const char *quoted = log_text(buf_cstr(&text));
            size_t len = strlen(quoted) - 2;
            ck_assert_uint_ge(len, 399 - (size - 1));
            ck_assert_uint_eq((len - shift) % size, 0);
            ck_assert_mem_eq(quoted + 1, text.data, len);
            ck_assert_str_eq(quoted + 1 + len, "\"");
            buf_fini(&text);
        }
    }
    /* What is no UTF-8 at all must not do harm. */
    char bytes[1000];
    memset(bytes, 0x80, sizeof(bytes));
    bytes[sizeof(bytes) - 1] = '\0';
    ck_assert_str_eq(log_text(bytes), "\"\"");
}
END_TEST

START_TEST(log_text_keeps_four_results)
{
    const char *kept[] = {log_text("a"), log_text("b"), log_text("c"), log_text("d")};
    ck_assert_str_eq(kept[0], "\"a\"");
    ck_assert_str_eq(kept[1], "\"b\"");
    ck_assert_str_eq(kept[2], "\"c\"");
    ck_assert_str_eq(kept[3], "\"d\"");
}
END_TEST

Suite *base_suite(void)
{
    Suite *suite = suite_create("base");
    TCase *tcase = tcase_create("err");
    tcase_add_test(tcase, err_set_fills_everything);
    tcase_add_test(tcase, err_set_cuts_at_a_character);
    tcase_add_test(tcase, err_wrap_puts_context_in_front);
    tcase_add_test(tcase, err_wrap_cuts_at_a_character);
    tcase_add_test(tcase, sqlstates_have_classes);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("buf");
    tcase_add_test(tcase, buf_grows_and_keeps_what_it_has);
    tcase_add_test(tcase, buf_prints_and_hands_over);
    tcase_add_test(tcase, buf_prints_at_every_edge_of_its_room);
    tcase_add_test(tcase, buf_writes_network_order);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("clock");
    tcase_add_test(tcase, the_clock_stands_when_a_test_says_so);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("log_text");
    tcase_add_test(tcase, log_text_is_one_quoted_value);
    tcase_add_test(tcase, log_text_is_bounded);
    tcase_add_test(tcase, log_text_cuts_at_a_character);
    tcase_add_test(tcase, log_text_keeps_four_results);
    suite_add_tcase(suite, tcase);
    return suite;
}
