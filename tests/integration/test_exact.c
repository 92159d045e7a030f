/* SPDX-License-Identifier: MIT */
/* What jsonb can hold arrives exactly, and what it cannot is refused at the door (design.md 3). */
#include "suites.h"

#include "harness.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* The reply to a line that is sent as it is. */
static json_t *ask_bytes(struct conn *conn, const void *bytes, size_t len)
{
    conn_bytes(conn, bytes, len);
    conn_bytes(conn, "\n", 1);
    conn_flush(conn);
    return conn_read(conn);
}

static json_t *ask_text(struct conn *conn, const char *text)
{
    return ask_bytes(conn, text, strlen(text));
}

/* The fields member of a get reply, as the bytes that came. */
static const char *get_fields(struct env *env, struct conn *conn, const char *document)
{
    conn_line(conn, "{'request':'get','document':'%s'}", document);
    conn_flush(conn);
    const char *raw = conn_read_raw(conn, TEST_WAIT_MS);
    const char *fields = raw == NULL ? NULL : strstr(raw, "\"fields\":");
    ck_assert_msg(fields != NULL, "no fields in %s", raw);
    return env_keep(env, mem_strdup(fields + strlen("\"fields\":")));
}

#define PRICE "19.99"
#define LONG_NUMBER "12345678901234567890123"
#define SLASH_TEXT "\\\\u0000 is fine when escaped twice"

static void expect_digits(struct env *env, struct conn *conn)
{
    expect_sql(env, PRICE, "select fields ->> 'price' from foldd.documents");
    expect_sql(env, LONG_NUMBER, "select fields ->> 'n' from foldd.documents");
    expect_sql(env, "\\u0000 is fine when escaped twice",
               "select fields ->> 's' from foldd.documents");
    get_fields(env, conn, "d");
    expect_raw(conn, "price", PRICE);
    expect_raw(conn, "n", LONG_NUMBER);
    expect_raw(conn, "s", "\"" SLASH_TEXT "\"");
}

/* The example, also after ten updates and after a create over it; D6 */
START_TEST(digits_survive)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    const char *create = "{\"document\":\"d\",\"action\":\"create\",\"fields\":{\"price\":" PRICE
                         ",\"n\":" LONG_NUMBER ",\"s\":\"" SLASH_TEXT "\"}}";
    expect(ask_text(conn, create), "{'ok':true}");
    barrier(conn);
    expect_digits(env, conn);
    for (int i = 0; i < 10; i++) {
        expect(ask(conn, "{'document':'d','action':'update','fields':{'i':%d},'ack':'folded'}", i),
               "{'outcome':'folded'}");
        expect_digits(env, conn);
    }
    expect(ask_text(conn, create), "{'ok':true}");
    barrier(conn);
    expect_digits(env, conn);
    expect_sql(env, "t",
               "select bool_and(fields ->> 'price' = '" PRICE "')"
               " from foldd.operations where action = 'create'");
    env_free(env);
}
END_TEST

/* D5, D6, D7: '...'::jsonb is the measure */
START_TEST(numbers_arrive_as_jsonb_prints_them)
{
    static const char *const numbers[] = {
        "1.10",
        "1e400",
        "-0",
        "0.1234567890123456789",
        "100.0",
        "1e2",
        "1E-2",
        "7.6",
        "-0.0",
        "123456789.123456789",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1.8011670033376514e-308",
        "5e-324",
        "1e-400",
        "0e1",
        "[1.10,[2.20,{\"x\":3.30}]]",
    };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        mark_point();
        expect(ask(conn, "{'document':'n%zu','action':'create','fields':{'v':%s},'meta':{'v':%s}}",
                   i, numbers[i], numbers[i]),
               "{'ok':true}");
        barrier(conn);
        expect(ask(conn, "{'document':'n%zu','action':'update','fields':{'w':1}}", i),
               "{'ok':true}");
        barrier(conn);
        expect_sql(env, sql_text(env, "select '%s'::jsonb::text", numbers[i]),
                   "select fields -> 'v' from foldd.documents where id = 'n%zu'", i);
        expect_sql(env, "t",
                   "select (fields -> 'v')::text = '%s'::jsonb::text and (meta -> 'v')::text ="
                   " '%s'::jsonb::text from foldd.operations where document = 'n%zu'"
                   " and action = 'create'",
                   numbers[i], numbers[i], i);
        const char *fields = get_fields(env, conn, env_printf(env, "n%zu", i));
        const char *literal = env_keep(env, PQescapeLiteral(env->db, fields, strlen(fields) - 1));
        expect_sql(env, "t", "select %s::jsonb -> 'v' = '%s'::jsonb", literal, numbers[i]);
    }
    env_free(env);
}
END_TEST

/* D8: numbers that would expand without measure are refused, and batch mates are stored */
START_TEST(huge_exponents_are_refused)
{
    static const char *const numbers[] = {"1e1001",
                                          "1e131071",
                                          "1e131072",
                                          "1e-16384",
                                          "-1e99999",
                                          "1e999999999",
                                          "1e-99999999999999999999"};
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    size_t count = sizeof numbers / sizeof numbers[0];
    for (size_t i = 0; i < count; i++) {
        conn_line(conn, "{'document':'d','action':'update','fields':{'v':[%s]}}", numbers[i]);
        conn_line(conn, "{'document':'d','action':'update','fields':{'v%zu':1}}", i);
    }
    conn_flush(conn);
    for (size_t i = 0; i < count; i++) {
        expect_error(conn_read(conn), "invalid", "fields");
        expect(conn_read(conn), "{'ok':true}");
    }
    expect_sql(env, env_printf(env, "%zu", count), "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* D1, D3, D4: text that jsonb cannot hold, in a value, a key, a name and the whole line */
START_TEST(impossible_text_is_refused)
{
    static const struct {
        const char *text;
        size_t len;
    } texts[] = {
        {"\\u0000", 6},
        {"a\\u0000b", 8},
        {"\\ud83d", 6},
        {"\\udc00", 6},
        {"\\ude00\\ud83d", 12},
        {"\\ud83dabc", 9},
        {"\\ud83d\\n", 8},
        {"\xc3\x28", 2},
        {"\xff", 1},
        {"\xc0\x80", 2},
        {"\xed\xa0\x80", 3},
        {"\xf4\x90\x80\x80", 4},
        {"\xe2\x82", 2},
        {"a\0b", 3},
        {"\t", 1},
        {"\x1f", 1},
    };
    static const char *const places[][3] = {
        {"{\"document\":\"d\",\"action\":\"create\",\"fields\":{\"v\":\"", "\"}}", "fields"},
        {"{\"document\":\"d\",\"action\":\"create\",\"fields\":{\"", "\":1}}", "fields"},
        {"{\"document\":\"d\",\"action\":\"create\",\"fields\":{},\"meta\":{\"v\":\"", "\"}}",
         "meta"},
        {"{\"document\":\"d", "\",\"action\":\"create\",\"fields\":{}}", "document"},
        {"{\"collection\":\"", "\",\"document\":\"d\",\"action\":\"create\",\"fields\":{}}",
         "collection"},
        {"{\"document\":\"d\",\"id\":\"o", "1\",\"action\":\"create\",\"fields\":{}}", "id"},
        {"{\"request\":\"get\",\"document\":\"d", "\"}", "document"},
        {"{\"", "\":1}", ""},
    };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            struct buf line = {0};
            buf_add_str(&line, places[p][0]);
            buf_add(&line, texts[t].text, texts[t].len);
            buf_add_str(&line, places[p][1]);
            mark_point();
            expect_error(ask_bytes(conn, line.data, line.len), "invalid", places[p][2]);
            buf_fini(&line);
        }
    }
    barrier(conn);
    expect_sql(env, "0", "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* D3: what is possible stays as it is, also in names */
START_TEST(possible_text_arrives)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask_text(conn,
                    "{\"document\":\"caf\xc3\xa9 \\ud83d\\ude00\\n\",\"id\":\"\xf0\x9f\x98\x80\","
                    "\"action\":\"create\",\"fields\":{\"pair\":\"\\ud83d\\ude00\",\"raw\":"
                    "\"\xf0\x9f\x98\x80\",\"ffff\":\"\\uffff\",\"\":1,\"a'b\":\"q\\\"\\\\/"
                    "\\b\\f\\n\\r\\t\"}}"),
           "{'ok':true,'id':'\xf0\x9f\x98\x80'}");
    barrier(conn);
    expect_sql(env, "t|t|1|1|q\"\\/\b\f\n\r\t",
               "select concat_ws('|', fields ->> 'pair' = fields ->> 'raw',"
               " octet_length(fields ->> 'raw') = 4, length(fields ->> 'ffff'), fields ->> '',"
               " fields ->> 'a''b') from foldd.documents"
               " where id = e'caf\xc3\xa9 \xf0\x9f\x98\x80\\n'");
    env_free(env);
}
END_TEST

/* D10: inside fields and meta the last one wins, as in jsonb */
START_TEST(duplicate_keys_inside_fields)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'document':'d','action':'create','fields':{'a':1,'a':2,'b':{'x':1,'x':3},"
                     "'\\u0061':4},'meta':{'m':1,'m':2}}"),
           "{'ok':true}");
    barrier(conn);
    expect_sql(env, "{\"a\": 4, \"b\": {\"x\": 3}}|{\"m\": 2}",
               "select concat_ws('|', d.fields, o.meta) from foldd.documents d, foldd.operations o"
               " where o.fields = d.fields");
    env_free(env);
}
END_TEST

/* D12 */
START_TEST(nesting_is_limited_at_the_door)
{
    static const int refused[] = {140, 500, 2048, 100000};
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    struct buf line = {0};
    for (int i = 0; i < 4; i++) {
        line.len = 0;
        buf_add_str(&line, "{\"document\":\"d\",\"action\":\"update\",\"fields\":{\"a\":");
        for (int depth = 0; depth < refused[i]; depth++)
            buf_add_char(&line, '[');
        for (int depth = 0; depth < refused[i] && i % 2 == 0; depth++)
            buf_add_char(&line, ']');
        buf_add_str(&line, "}}");
        expect_error(ask_bytes(conn, line.data, line.len), "invalid", "fields");
    }
    line.len = 0;
    buf_add_str(&line, "{\"document\":\"d\",\"action\":\"update\",\"fields\":");
    for (int depth = 0; depth < 120; depth++)
        buf_add_str(&line, "{\"a\":");
    buf_add_char(&line, '1');
    for (int depth = 0; depth < 121; depth++)
        buf_add_char(&line, '}');
    for (int i = 0; i < 2; i++)
        expect(ask_bytes(conn, line.data, line.len), "{'ok':true}");
    barrier(conn);
    expect_sql(env, "2|0",
               "select revision || '|' || (select count(*) from foldd.parked)"
               " from foldd.documents");
    buf_fini(&line);
    env_free(env);
}
END_TEST

/* Given. */
static DIR *open_parsing_suite(char *path, size_t size)
{
    static const char *const places[] = {"../shared/conformance/json-parsing",
                                         "tests/data/json-parsing"};
    for (int i = 0; i < 2; i++) {
        DIR *dir = opendir(places[i]);
        if (dir == NULL)
            continue;
        snprintf(path, size, "%s", places[i]);
        return dir;
    }
    ck_abort_msg("no json-parsing suite");
    return NULL;
}

static size_t read_bytes(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    ck_assert(file != NULL);
    size_t len = fread(out, 1, size, file);
    fclose(file);
    return len;
}

/* One file as a value of a key: one reply, the right one, and the connection stays. */
static void try_as_value(struct conn *conn, const char *name, const char *text, size_t len)
{
    struct buf line = {0};
    buf_printf(&line, "{\"document\":\"%s\",\"action\":\"create\",\"fields\":{\"v\":", name);
    buf_add(&line, text, len);
    buf_add_str(&line, "}}");
    const json_t *reply = ask_bytes(conn, line.data, line.len);
    buf_fini(&line);
    bool ok = json_is_true(json_object_get(reply, "ok"));
    /* jsonb cannot hold an escaped NUL, valid as it is. */
    bool nul = strcmp(name, "y_object_escaped_null_in_key.json") == 0 ||
               strcmp(name, "y_string_null_escape.json") == 0;
    if (name[0] == 'n' || nul)
        ck_assert_msg(!ok, "%s was accepted", name);
    else if (name[0] == 'y')
        ck_assert_msg(ok, "%s was refused: %s", name,
                      json_string_value(json_object_get(reply, "message")));
    if (!ok)
        expect_error(reply, "invalid", "");
}

/* One file as the whole line: an error, or nothing for a blank one; then the ping's reply. */
static void try_as_line(struct conn *conn, const char *name, const char *text, size_t len)
{
    bool blank = strspn(text, " \t\r") == len;
    conn_bytes(conn, text, len);
    conn_bytes(conn, "\n", 1);
    if (!blank)
        conn_flush(conn);
    if (!blank && len > 0)
        expect_error(conn_read(conn), "invalid", "");
    mark_point();
    const json_t *reply = ask(conn, "{'request':'ping'}");
    ck_assert_msg(json_is_true(json_object_get(reply, "ok")), "%s got a second reply", name);
}

START_TEST(json_parsing_suite)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    char folder[256];
    static char text[300000];
    DIR *dir = open_parsing_suite(folder, sizeof folder);
    int tried = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".json") != 0)
            continue;
        size_t len =
            read_bytes(env_printf(env, "%s/%s", folder, entry->d_name), text, sizeof text - 1);
        text[len] = '\0';
        if (memchr(text, '\n', len) != NULL)
            continue;
        try_as_value(conn, entry->d_name, text, len);
        try_as_line(conn, entry->d_name, text, len);
        tried++;
    }
    closedir(dir);
    ck_assert_int_gt(tried, 300);
    barrier(conn);
    expect_sql(
        env, "t",
        "select count(*) = (select count(*) from foldd.operations) and bool_and(revision = 1)"
        " from foldd.documents");
    env_free(env);
}
END_TEST

START_TEST(merge_patch_suite)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    json_t *tests = json_load_file("tests/data/merge-patch.json", 0, NULL);
    ck_assert_uint_gt(json_array_size(tests), 5);
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        char *original = json_dumps(json_object_get(test, "original"), JSON_COMPACT);
        char *patch = json_dumps(json_object_get(test, "patch"), JSON_COMPACT);
        expect(ask(conn, "{'document':'t%zu','action':'create','fields':%s}", i, original),
               "{'ok':true}");
        expect(
            ask(conn, "{'document':'t%zu','action':'update','fields':%s,'ack':'folded'}", i, patch),
            "{'outcome':'folded'}");
        const json_t *reply = ask(conn, "{'request':'get','document':'t%zu'}", i);
        ck_assert_msg(json_equal(json_object_get(reply, "fields"), json_object_get(test, "result")),
                      "%s patched with %s gave %s", original, patch, conn->raw);
        free(original);
        free(patch);
    }
    json_decref(tests);
    env_free(env);
}
END_TEST

Suite *exact_suite(void)
{
    Suite *suite = suite_create("exact");
    TCase *tcase = tcase_create("exact");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, digits_survive);
    tcase_add_test(tcase, numbers_arrive_as_jsonb_prints_them);
    tcase_add_test(tcase, huge_exponents_are_refused);
    tcase_add_test(tcase, impossible_text_is_refused);
    tcase_add_test(tcase, possible_text_arrives);
    tcase_add_test(tcase, duplicate_keys_inside_fields);
    tcase_add_test(tcase, nesting_is_limited_at_the_door);
    tcase_add_test(tcase, json_parsing_suite);
    tcase_add_test(tcase, merge_patch_suite);
    suite_add_tcase(suite, tcase);
    return suite;
}
