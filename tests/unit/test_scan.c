/* SPDX-License-Identifier: MIT */
#include "scan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "unit.h"

#define SUITE_DIR "tests/data/json-parsing"

/* Both scans read a copy of the exact size, so that the sanitizers see a step over the end. */
static bool value_ok(const char *text, size_t len, struct scan_error *error)
{
    char *copy = mem_alloc(len);
    memcpy(copy, text, len);
    *error = (struct scan_error){0};
    bool ok = scan_value(copy, len, error);
    ck_assert_msg(ok == (error->reason == NULL), "%.*s", (int)len, text);
    ck_assert_uint_le(error->offset, len);
    free(copy);
    return ok;
}

static bool object_ok(const char *text, size_t len)
{
    static struct scan_object object;
    struct scan_error error = {0};
    char *copy = mem_alloc(len);
    memcpy(copy, text, len);
    bool ok = scan_object(copy, len, &object, &error);
    ck_assert_msg(ok == (error.reason == NULL), "%.*s", (int)len, text);
    free(copy);
    return ok;
}

static bool wrapped_ok(const char *text, size_t len)
{
    struct buf wrapped = {0};
    buf_add_str(&wrapped, "{\"k\":");
    buf_add(&wrapped, text, len);
    buf_add_str(&wrapped, "}");
    bool ok = object_ok(wrapped.data, wrapped.len);
    buf_fini(&wrapped);
    return ok;
}

static void accept_len(const char *text, size_t len)
{
    struct scan_error error;
    bool ok = value_ok(text, len, &error);
    ck_assert_msg(ok, "%.*s: %s at %zu", (int)len, text, error.reason, error.offset);
}

static void accept(const char *text)
{
    accept_len(text, strlen(text));
}

static void refuse_len(const char *text, size_t len, size_t offset, const char *reason)
{
    struct scan_error error;
    ck_assert_msg(!value_ok(text, len, &error), "accepted %.*s", (int)len, text);
    ck_assert_msg(error.offset == offset && strcmp(error.reason, reason) == 0, "%.*s: %s at %zu",
                  (int)len, text, error.reason, error.offset);
}

static void refuse(const char *text, size_t offset, const char *reason)
{
    refuse_len(text, strlen(text), offset, reason);
}

/* The public test suite */

static struct buf read_file(const char *name)
{
    char *path = mem_printf("%s/%s", SUITE_DIR, name);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    struct buf text = {0};
    size_t got;
    do {
        buf_reserve(&text, 4096);
        got = fread(text.data + text.len, 1, 4096, file);
        text.len += got;
    } while (got > 0);
    fclose(file);
    free(path);
    return text;
}

static bool is_case(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return len > 7 && entry->d_name[1] == '_' && strcmp(entry->d_name + len - 5, ".json") == 0;
}

static bool holds_escaped_nul(const char *name)
{
    return strcmp(name, "y_object_escaped_null_in_key.json") == 0 ||
           strcmp(name, "y_string_null_escape.json") == 0;
}

static void check_case(const char *name)
{
    struct buf text = read_file(name);
    struct scan_error error;
    bool ok = value_ok(text.data, text.len, &error);
    if (holds_escaped_nul(name))
        ck_assert_msg(!ok && strcmp(error.reason, "\\u0000 in a string") == 0, "%s", name);
    else if (name[0] != 'i')
        ck_assert_msg(ok == (name[0] == 'y'), "%s: %s", name, ok ? "accepted" : error.reason);
    ck_assert_msg(wrapped_ok(text.data, text.len) == ok, "%s, wrapped", name);
    size_t first = 0;
    while (first < text.len && strchr(" \t\r\n", text.data[first]) != NULL)
        first++;
    bool object = first < text.len && text.data[first] == '{';
    ck_assert_msg(object_ok(text.data, text.len) == (ok && object), "%s, as an object", name);
    /* What a valid text begins with is either valid, too, or wants more. */
    for (size_t len = 0; ok && len < text.len && text.len < 2000; len++)
        if (!value_ok(text.data, len, &error)) {
            ck_assert_msg(strcmp(error.reason, "unexpected end") == 0, "%s: %zu", name, len);
            ck_assert_msg(error.offset == len, "%s: %zu", name, len);
        }
    buf_fini(&text);
}

START_TEST(the_public_suite_passes)
{
    DIR *dir = opendir(SUITE_DIR);
    ck_assert_msg(dir != NULL, "run from the root of the repository");
    const struct dirent *entry;
    int count = 0;
    while ((entry = readdir(dir)) != NULL)
        if (is_case(entry)) {
            check_case(entry->d_name);
            count++;
        }
    closedir(dir);
    ck_assert_int_eq(count, 316);
}
END_TEST

START_TEST(the_largest_cases_of_the_suite_are_refused)
{
    static const char *const pieces[] = {"[", "[{\"\":"};
    static const int counts[] = {100000, 50000};
    for (int i = 0; i < 2; i++) {
        struct buf text = {0};
        struct scan_error error;
        for (int n = 0; n < counts[i]; n++)
            buf_add_str(&text, pieces[i]);
        buf_add_str(&text, i == 1 ? "\n" : "");
        ck_assert(!value_ok(text.data, text.len, &error));
        ck_assert_str_eq(error.reason, "nesting deeper than 128");
        ck_assert(!wrapped_ok(text.data, text.len));
        buf_fini(&text);
    }
}
END_TEST

/* The grammar */

START_TEST(errors_name_the_first_offending_byte)
{
    refuse("", 0, "unexpected end");
    refuse("  ", 2, "unexpected end");
    refuse("x", 0, "expected a value");
    refuse("\xef\xbb\xbf{}", 0, "byte order mark");
    refuse("\xef\xbb", 0, "expected a value");
    refuse_len("\0", 1, 0, "expected a value");
    refuse_len("1\0", 2, 1, "text after the value");
    refuse("[1 2]", 3, "expected ',' or ']'");
    refuse("[1}", 2, "expected ',' or ']'");
    refuse("[1,]", 3, "expected a value");
    refuse("[,1]", 1, "expected a value");
    refuse("[1", 2, "unexpected end");
    refuse("{1:2}", 1, "expected a key in double quotes");
    refuse("{\"a\":1,}", 7, "expected a key in double quotes");
    refuse("{\"a\" 1}", 5, "expected ':'");
    refuse("{\"a\"}", 4, "expected ':'");
    refuse("{\"a\":}", 5, "expected a value");
    refuse("{\"a\":1 \"b\"", 7, "expected ',' or '}'");
    refuse("{\"a\":1]", 6, "expected ',' or '}'");
    refuse("{\"a\":[{}],\"b\":{\"c\":[]", 21, "unexpected end");
    refuse("{} {}", 3, "text after the value");
    refuse("[1]\f", 3, "text after the value");
    refuse("tru", 3, "unexpected end");
    refuse("trve", 2, "expected true, false or null");
    refuse("True", 0, "expected a value");
    refuse("nulll", 4, "text after the value");
    accept(" \t\r\n{ \"a\" : [ true , false , null , { } , [ ] ] } \n");
}
END_TEST

START_TEST(objects_have_errors_of_their_own)
{
    static const struct {
        const char *text;
        size_t offset;
        const char *reason;
        const char *member;
    } rows[] = {
        {"", 0, "unexpected end", NULL},
        {" [1]", 1, "expected an object", NULL},
        {"\"{}\"", 0, "expected an object", NULL},
        {"\xef\xbb\xbf{}", 0, "byte order mark", NULL},
        {"{} x", 3, "text after the object", NULL},
        {"{\"a\":1}}", 7, "text after the object", NULL},
        {"{\"a\x01\":1}", 3, "control character in a string", NULL},
        {"{\"a\":1,b", 7, "expected a key in double quotes", NULL},
        {"{\"a\"=1}", 4, "expected ':'", "a"},
        {"{\"a\":1,\"fields\":{\"x\":[{\"y\":tru}]}}", 30, "expected true, false or null",
         "fields"},
        {"{\"a\":{\"b\":1},\"meta\":\"\\q\"}", 22, "unknown escape in a string", "meta"},
        {"{\"a\":{\"b\":1}", 12, "unexpected end", "a"},
        {"{\"\":", 4, "unexpected end", ""},
        {"{\"a\\n\":[1,]", 10, "expected a value", "a\\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static struct scan_object object;
        struct scan_error error;
        const char *text = rows[i].text;
        ck_assert_msg(!scan_object(text, strlen(text), &object, &error), "%s", text);
        ck_assert_msg(error.offset == rows[i].offset, "%s: %zu", text, error.offset);
        ck_assert_str_eq(error.reason, rows[i].reason);
        if (rows[i].member == NULL) {
            ck_assert_ptr_null(error.member.data);
            continue;
        }
        ck_assert_ptr_nonnull(error.member.data);
        ck_assert_uint_eq(error.member.len, strlen(rows[i].member));
        ck_assert_mem_eq(error.member.data, rows[i].member, error.member.len);
        ck_assert(error.member.data > text && error.member.data < text + strlen(text));
    }
}
END_TEST

static void nest(struct buf *text, int depth, const char *open, const char *inner,
                 const char *close)
{
    for (int i = 0; i < depth; i++)
        buf_add_str(text, open);
    buf_add_str(text, inner);
    for (int i = 0; i < depth; i++)
        buf_add_str(text, close);
}

START_TEST(depth_is_limited)
{
    static const char *const forms[][3] = {{"[", "1", "]"}, {"{\"a\":", "1", "}"}, {"[", "", "]"}};
    for (int i = 0; i < 3; i++) {
        struct buf text = {0};
        nest(&text, SCAN_MAX_DEPTH, forms[i][0], forms[i][1], forms[i][2]);
        accept_len(text.data, text.len);
        ck_assert(!wrapped_ok(text.data, text.len));
        text.len = 0;
        nest(&text, SCAN_MAX_DEPTH + 1, forms[i][0], forms[i][1], forms[i][2]);
        refuse_len(text.data, text.len, SCAN_MAX_DEPTH * strlen(forms[i][0]),
                   "nesting deeper than 128");
        buf_fini(&text);
    }
}
END_TEST

/* Random mixtures of arrays and objects, half of them with one wrong bracket on the way out: a
 * wrong bit of the stack shows here. */
START_TEST(containers_close_in_order)
{
    uint32_t state = 11;
    const size_t opened = SCAN_MAX_DEPTH - 2; /* each holds two more levels that are closed again */
    for (int round = 0; round < 500; round++) {
        char closers[SCAN_MAX_DEPTH];
        struct buf text = {0};
        for (size_t i = 0; i < opened; i++) {
            bool object = unit_random(&state) % 2 == 0;
            buf_add_str(&text, object ? "{\"\":[{}]," : "[{\"\":[]},");
            buf_add_str(&text, object ? "\"k\":" : "");
            closers[i] = object ? '}' : ']';
        }
        buf_add_str(&text, "0");
        size_t wrong = unit_random(&state) % (2 * opened);
        size_t place = 0;
        for (size_t i = opened; i > 0; i--) {
            char closer = closers[i - 1];
            if (i - 1 == wrong) {
                place = text.len;
                closer = closer == '}' ? ']' : '}';
            }
            buf_add_char(&text, closer);
        }
        if (wrong >= opened)
            accept_len(text.data, text.len);
        else
            refuse_len(text.data, text.len, place,
                       closers[wrong] == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        buf_fini(&text);
    }
}
END_TEST

/* Numbers */

START_TEST(numbers_follow_the_grammar)
{
    static const char *const good[] = {"0",    "-0",   "10",    "-1.50", "0.0",  "1e5",
                                       "1E+5", "1e-5", "0e000", "1e007", "0.1e1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        accept(good[i]);
    refuse("-", 1, "unexpected end");
    refuse("-x", 1, "expected a digit");
    refuse("--1", 1, "expected a digit");
    refuse("+1", 0, "expected a value");
    refuse(".5", 0, "expected a value");
    refuse("01", 1, "leading zero in a number");
    refuse("-007", 2, "leading zero in a number");
    refuse("1.", 2, "unexpected end");
    refuse("1.e1", 2, "expected a digit");
    refuse("1.5.1", 3, "text after the value");
    refuse("1e", 2, "unexpected end");
    refuse("1e+", 3, "unexpected end");
    refuse("1e-x", 3, "expected a digit");
    refuse("1e5.2", 3, "text after the value");
    refuse("0x10", 1, "text after the value");
    refuse("1_000", 1, "text after the value");
    refuse("[-]", 2, "expected a digit");
    refuse("NaN", 0, "expected a value");
    refuse("-Infinity", 1, "expected a digit");
}
END_TEST

/* A text of the form PREFIX, count times the digit, SUFFIX. */
static void check_digits(const char *prefix, int count, const char *suffix, bool good)
{
    struct buf text = {0};
    buf_add_str(&text, prefix);
    for (int i = 0; i < count; i++)
        buf_add_char(&text, '7');
    buf_add_str(&text, suffix);
    if (good)
        accept_len(text.data, text.len);
    else
        refuse_len(text.data, text.len, 0, "number of over 1000 digits");
    buf_fini(&text);
}

START_TEST(numbers_expand_to_a_thousand_digits)
{
    static const char *const good[] = {"1e400", "1e999",    "-1e999",    "12e998",  "1e-999",
                                       "0e999", "0.0e-998", "1.5e-998",  "0.1e999", "1e+0999",
                                       "1.5e3", "0e-999",   "0.000e999", "-0e0"};
    static const char *const bad[] = {"1e1000",
                                      "-1e1000",
                                      "12e999",
                                      "1e-1000",
                                      "0e1000",
                                      "0e99999",
                                      "0.0e5000",
                                      "0.0e-999",
                                      "0e-1000",
                                      "1e2147483648",
                                      "1e-2147483648",
                                      "1e4294967296",
                                      "1e-4294967296",
                                      "1e9223372036854775807",
                                      "1e-9223372036854775808",
                                      "1e18446744073709551616",
                                      "1e-18446744073709551617",
                                      "0e340282366920938463463374607431768211456",
                                      "0.1e1000",
                                      "1e1000000",
                                      "1e-1000000"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        accept(good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refuse(bad[i], 0, "number of over 1000 digits");
    check_digits("", 1000, "", true);
    check_digits("", 1001, "", false);
    check_digits("-", 1000, "", true);
    check_digits("0.", 999, "", true);
    check_digits("0.", 1000, "", false);
    check_digits("0.", 999, "e1", true);
    check_digits("0.", 999, "e-1", false);
    check_digits("", 600, "e-599", true);
    check_digits("", 1000, "e-999", true);
    check_digits("", 1000, "e-1000", false);
    check_digits("", 1001, "e-500", false);
    check_digits("", 500000, "e-499999", false);
    refuse("[1, 1e1000]", 4, "number of over 1000 digits");
}
END_TEST

/* "[1e999,1e999,...": each adds 999 digits. */
START_TEST(numbers_together_grow_by_so_much)
{
    const size_t fit = SCAN_MAX_GROWTH / 999;
    struct buf text = {0};
    buf_add_char(&text, '[');
    for (size_t i = 0; i < fit; i++)
        buf_add_str(&text, "1e999,12345678901234567890,0.5,");
    size_t at = text.len;
    buf_add_str(&text, "1]");
    accept_len(text.data, text.len);
    text.len = at;
    buf_add_str(&text, "1e999]");
    refuse_len(text.data, text.len, at, "numbers that add over 4 MiB when they are written out");
    buf_fini(&text);
}
END_TEST

/* Strings */

START_TEST(escapes_are_checked)
{
    accept("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"");
    accept("\"\\u0001\\u00e9\\uABCD\\uffff\\u2028\"");
    refuse("\"\\", 2, "unexpected end");
    refuse("\"abc", 4, "unexpected end");
    refuse("\"a\\x41\"", 3, "unknown escape in a string");
    refuse("\"\\U0041\"", 2, "unknown escape in a string");
    refuse("\"\\'\"", 2, "unknown escape in a string");
    refuse_len("\"\\\0\"", 4, 2, "unknown escape in a string");
    refuse("\"\\u12", 5, "unexpected end");
    refuse("\"\\u12\"", 5, "not a hexadecimal digit in an escape");
    refuse("\"\\u00g0\"", 5, "not a hexadecimal digit in an escape");
    refuse("\"\\u:000\"", 3, "not a hexadecimal digit in an escape");
    refuse("\"\\u\xc3\xa9\"", 3, "not a hexadecimal digit in an escape");
    refuse("\"ab\\u0000\"", 3, "\\u0000 in a string");
    refuse("{\"a\":1,\"\\u0000\":2}", 8, "\\u0000 in a string");
    accept("\"\\\\u0000\"");
    refuse_len("\"a\0b\"", 5, 2, "control character in a string");
    refuse("\"a\nb\"", 2, "control character in a string");
    refuse("\"\x1f\"", 1, "control character in a string");
    accept("\"\x7f \"");
}
END_TEST

START_TEST(surrogates_come_in_pairs)
{
    static const char lone[] = "lone surrogate in an escape";
    accept("\"\\ud800\\udc00\"");
    accept("\"\\uDBFF\\uDFFF\"");
    accept("\"\\ud83d\\ude00\\ud834\\udd1e\"");
    accept("\"\\ud7ff\\ue000\"");
    refuse("\"x\\ud800\"", 2, lone);
    refuse("\"x\\udbff\"", 2, lone);
    refuse("\"x\\udc00\"", 2, lone);
    refuse("\"x\\udfff\"", 2, lone);
    refuse("\"\\ude00\\ud83d\"", 1, lone);
    refuse("\"\\ud800\\ud800\"", 1, lone);
    refuse("\"\\ud800\\ue000\"", 1, lone);
    refuse("\"\\ud800\\u0041\"", 1, lone);
    refuse("\"\\ud800\\u0000\"", 1, lone);
    refuse("\"\\ud800\\n\"", 1, lone);
    refuse("\"\\ud800 \\udc00\"", 1, lone);
    refuse("\"\\ud83d\\ude00\\ude00\"", 13, lone);
    refuse("\"\\ud800\\uzzzz\"", 9, "not a hexadecimal digit in an escape");
    refuse("\"\\ud800", 7, "unexpected end");
    refuse("\"\\ud800\\", 8, "unexpected end");
    refuse("\"\\ud800\\u", 9, "unexpected end");
    refuse("\"\\ud800\\udc0", 12, "unexpected end");
}
END_TEST

static size_t encode(uint32_t code, size_t size, char *out)
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(leads[size] | code);
    return size;
}

/* Every code point in its own length, and in every longer one. */
START_TEST(utf8_is_exactly_what_unicode_says)
{
    for (uint32_t code = 0x80; code < 0x140000; code++) {
        size_t own = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (size_t size = own; size <= 4; size++) {
            char text[6] = "\"";
            struct scan_error error;
            encode(code, size, text + 1);
            text[size + 1] = '"';
            bool good = size == own && (code < 0xd800 || code > 0xdfff) && code <= 0x10ffff;
            bool ok = scan_value(text, size + 2, &error);
            /* Two million assertions would take Check seconds: only a failure asserts. */
            if (ok != good || (!ok && error.offset != 1))
                ck_abort_msg("U+%04X in %zu bytes", (unsigned)code, size);
        }
    }
}
END_TEST

START_TEST(malformed_utf8_is_refused)
{
    static const char *const bad[] = {
        "\x80",             /* a continuation byte alone */
        "\xbf",             /* the last one */
        "\xc0\x80",         /* overlong NUL */
        "\xc1\xbf",         /* overlong, two bytes */
        "\xe0\x9f\xbf",     /* overlong, three bytes */
        "\xf0\x8f\xbf\xbf", /* overlong, four bytes */
        "\xed\xa0\x80",     /* an encoded high surrogate */
        "\xed\xbf\xbf",     /* an encoded low surrogate */
        "\xf4\x90\x80\x80", /* U+110000 */
        "\xf5\x80\x80\x80", /* a lead byte of nothing */
        "\xf8\x88\x80\x80\x80",
        "\xfc\x84\x80\x80\x80\x80",
        "\xfe",
        "\xff",
        "\xc3", /* cut by what follows */
        "\xc3(",
        "\xe2\x82",
        "\xe2(\x82",
        "\xf0\x9f\x98",
        "\xf0\x9f(\x98",
        "\xe2\x82\xc3\xa9", /* cut by the next character */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct buf text = {0};
        buf_printf(&text, "\"\xc3\xa9%s\"", bad[i]);
        refuse_len(text.data, text.len, 3, "invalid UTF-8");
        buf_fini(&text);
    }
    refuse("\"\xc3", 2, "unexpected end");
    refuse("\"\xe2\x82", 3, "unexpected end");
    refuse("\"\xf0\x9f\x98", 4, "unexpected end");
    refuse("\"\xed\xa0", 1, "invalid UTF-8");
    refuse("\xc3\xa9", 0, "expected a value");
}
END_TEST

/* Members */

START_TEST(members_are_exact_spans)
{
    static const struct {
        const char *key;
        bool key_escaped;
        enum scan_kind kind;
        const char *value;
        bool escaped;
    } rows[] = {
        {"document", false, SCAN_STRING, "\"n 1\"", false},
        {"\\u0069d", true, SCAN_STRING, "\"c\\n1\"", true},
        {"", false, SCAN_NUMBER, "-19.990e+2", false},
        {"document", false, SCAN_TRUE, "true", false},
        {"f", false, SCAN_FALSE, "false", false},
        {"\xc3\xa9", false, SCAN_NULL, "null", false},
        {"fields", false, SCAN_OBJECT, "{ \"a\" : [1, {\"b\":\"\\n}\"}], \"k\":{} }", false},
        {"list", false, SCAN_ARRAY, "[ [ ] , { } , \"]\" ]", false},
        {"empty", false, SCAN_OBJECT, "{}", false},
        {"none", false, SCAN_ARRAY, "[]", false},
        {"s", false, SCAN_STRING, "\"\"", false},
    };
    static const char *const spaces[] = {"", " ", "\r\n\t "};
    enum { COUNT = sizeof(rows) / sizeof(rows[0]) };
    for (size_t n = 0; n < 3; n++) {
        const char *gap = spaces[n];
        struct scan_object object;
        struct scan_error error;
        struct buf text = {0};
        for (size_t i = 0; i < COUNT; i++)
            buf_printf(&text, "%s%s%s\"%s\"%s:%s%s", gap, i == 0 ? "{" : ",", gap, rows[i].key, gap,
                       gap, rows[i].value);
        buf_printf(&text, "%s}%s", gap, gap);
        ck_assert(scan_object(text.data, text.len, &object, &error));
        ck_assert_uint_eq(object.count, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const struct scan_member *member = &object.members[i];
            ck_assert_uint_eq(member->key.len, strlen(rows[i].key));
            ck_assert_mem_eq(member->key.data, rows[i].key, member->key.len);
            ck_assert_int_eq(member->key_escaped, rows[i].key_escaped);
            ck_assert_int_eq(member->kind, rows[i].kind);
            ck_assert_uint_eq(member->value.len, strlen(rows[i].value));
            ck_assert_mem_eq(member->value.data, rows[i].value, member->value.len);
            ck_assert_int_eq(member->escaped, rows[i].escaped);
            ck_assert(member->value.data > text.data && member->value.data < text.data + text.len);
        }
        buf_fini(&text);
    }
}
END_TEST

START_TEST(an_object_may_be_empty)
{
    struct scan_object object = {.count = 9};
    struct scan_error error;
    ck_assert(scan_object(" { } ", 5, &object, &error));
    ck_assert_uint_eq(object.count, 0);
}
END_TEST

static size_t add_keys(struct buf *text, int count)
{
    size_t last = 0;
    buf_add_char(text, '{');
    for (int i = 0; i < count; i++) {
        buf_add_str(text, i == 0 ? "" : ",");
        last = text->len;
        buf_printf(text, "\"k%d\":%d", i, i);
    }
    buf_add_char(text, '}');
    return last;
}

START_TEST(members_are_limited)
{
    struct scan_object object;
    struct scan_error error;
    struct buf text = {0};
    add_keys(&text, SCAN_MAX_MEMBERS);
    ck_assert(scan_object(text.data, text.len, &object, &error));
    ck_assert_uint_eq(object.count, SCAN_MAX_MEMBERS);
    ck_assert_mem_eq(object.members[SCAN_MAX_MEMBERS - 1].value.data, "31", 2);
    text.len = 0;
    size_t last = add_keys(&text, SCAN_MAX_MEMBERS + 1);
    ck_assert(!scan_object(text.data, text.len, &object, &error));
    ck_assert_str_eq(error.reason, "more than 32 keys");
    ck_assert_uint_eq(error.offset, last);
    /* The limit is on a request's own keys: inside a value there may be any number. */
    accept_len(text.data, text.len);
    ck_assert(wrapped_ok(text.data, text.len));
    buf_fini(&text);
}
END_TEST

Suite *scan_suite(void)
{
    Suite *suite = suite_create("scan");
    TCase *tcase = tcase_create("scan");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_public_suite_passes);
    tcase_add_test(tcase, the_largest_cases_of_the_suite_are_refused);
    tcase_add_test(tcase, errors_name_the_first_offending_byte);
    tcase_add_test(tcase, objects_have_errors_of_their_own);
    tcase_add_test(tcase, depth_is_limited);
    tcase_add_test(tcase, containers_close_in_order);
    tcase_add_test(tcase, numbers_follow_the_grammar);
    tcase_add_test(tcase, numbers_expand_to_a_thousand_digits);
    tcase_add_test(tcase, numbers_together_grow_by_so_much);
    tcase_add_test(tcase, escapes_are_checked);
    tcase_add_test(tcase, surrogates_come_in_pairs);
    tcase_add_test(tcase, utf8_is_exactly_what_unicode_says);
    tcase_add_test(tcase, malformed_utf8_is_refused);
    tcase_add_test(tcase, members_are_exact_spans);
    tcase_add_test(tcase, an_object_may_be_empty);
    tcase_add_test(tcase, members_are_limited);
    suite_add_tcase(suite, tcase);
    return suite;
}
