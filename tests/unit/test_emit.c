/* SPDX-License-Identifier: MIT */
#include "emit.h"

#include <jansson.h>
#include <string.h>

#include "unit.h"

static void expect(struct buf *out, const char *json)
{
    ck_assert_str_eq(buf_cstr(out), json);
    json_t *object = json_loadb(out->data, out->len, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_is_object(object), "%s", out->data);
    json_decref(object);
    buf_fini(out);
}

START_TEST(members_are_parted_by_commas)
{
    struct buf out = {0};
    emit_begin(&out);
    emit_end(&out);
    expect(&out, "{}");

    emit_begin(&out);
    emit_bool(&out, "ok", true);
    emit_bool(&out, "gone", false);
    emit_int(&out, "seq", 7);
    emit_str(&out, "id", "");
    emit_span(&out, "part", (struct span){"whole", 3});
    emit_raw(&out, "fields", (struct span){"{\"a\":[1,{}]}", 12});
    emit_raw(&out, "empty", (struct span){"{}", 2});
    emit_str(&out, "open", "{");
    emit_int(&out, "last", 0);
    emit_end(&out);
    expect(&out, "{\"ok\":true,\"gone\":false,\"seq\":7,\"id\":\"\",\"part\":\"who\","
                 "\"fields\":{\"a\":[1,{}]},\"empty\":{},\"open\":\"{\",\"last\":0}");
}
END_TEST

START_TEST(an_object_may_follow_another)
{
    struct buf out = {0};
    buf_add_str(&out, "{\"ok\":true}\n");
    emit_begin(&out);
    emit_int(&out, "n", 1);
    emit_end(&out);
    ck_assert_str_eq(buf_cstr(&out), "{\"ok\":true}\n{\"n\":1}");
    buf_fini(&out);
}
END_TEST

START_TEST(integers_are_exact)
{
    static const struct {
        int64_t value;
        const char *json;
    } rows[] = {
        {INT64_MIN, "{\"n\":-9223372036854775808}"},
        {INT64_MAX, "{\"n\":9223372036854775807}"},
        {INT64_C(9007199254740993), "{\"n\":9007199254740993}"},
        {-1, "{\"n\":-1}"},
        {0, "{\"n\":0}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = {0};
        emit_begin(&out);
        emit_int(&out, "n", rows[i].value);
        emit_end(&out);
        expect(&out, rows[i].json);
    }
}
END_TEST

START_TEST(raw_json_goes_in_digit_for_digit)
{
    static const char fields[] = "{\"price\":19.99,\"big\":12345678901234567890123,\"z\":1.10}";
    struct buf out = {0};
    emit_begin(&out);
    emit_raw(&out, "fields", (struct span){fields, strlen(fields)});
    emit_end(&out);
    ck_assert_str_eq(buf_cstr(&out), "{\"fields\":{\"price\":19.99,\"big\":12345678901234567890123,"
                                     "\"z\":1.10}}");
    buf_fini(&out);
}
END_TEST

START_TEST(escapes_are_those_that_must_be)
{
    static const struct {
        const char *text;
        const char *json;
    } rows[] = {
        {"say \"hi\"", "{\"t\":\"say \\\"hi\\\"\"}"},
        {"\\", "{\"t\":\"\\\\\"}"},
        {"a/b", "{\"t\":\"a/b\"}"},
        {"\"", "{\"t\":\"\\\"\"}"},
        {"one\ntwo\t\x01\x1f", "{\"t\":\"one\\u000atwo\\u0009\\u0001\\u001f\"}"},
        {"\x7f", "{\"t\":\"\x7f\"}"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "{\"t\":\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = {0};
        emit_begin(&out);
        emit_str(&out, "t", rows[i].text);
        emit_end(&out);
        expect(&out, rows[i].json);
    }
}
END_TEST

START_TEST(every_ascii_character_survives)
{
    char text[128];
    for (int c = 0; c < 128; c++)
        text[c] = (char)c;
    struct buf out = {0};
    emit_begin(&out);
    emit_span(&out, "t", (struct span){text, sizeof(text)});
    emit_end(&out);
    json_t *object = json_loadb(out.data, out.len, JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(object);
    const json_t *string = json_object_get(object, "t");
    ck_assert_uint_eq(json_string_length(string), sizeof(text));
    ck_assert_mem_eq(json_string_value(string), text, sizeof(text));
    json_decref(object);
    buf_fini(&out);
}
END_TEST

Suite *emit_suite(void)
{
    Suite *suite = suite_create("emit");
    TCase *tcase = tcase_create("emit");
    tcase_add_test(tcase, members_are_parted_by_commas);
    tcase_add_test(tcase, an_object_may_follow_another);
    tcase_add_test(tcase, integers_are_exact);
    tcase_add_test(tcase, raw_json_goes_in_digit_for_digit);
    tcase_add_test(tcase, escapes_are_those_that_must_be);
    tcase_add_test(tcase, every_ascii_character_survives);
    suite_add_tcase(suite, tcase);
    return suite;
}
