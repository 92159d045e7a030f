/* SPDX-License-Identifier: MIT */
/* JSON that is large, deep or wide, and surroundings that could spoil it (design.md 3, 7; R4, R20).
 */
#include "suites.h"

#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* D4, R4: what the environment says to libpq of encodings and settings changes nothing */
START_TEST(environment_changes_nothing)
{
    struct env *env = ENV();
    setenv("PGCLIENTENCODING", "LATIN1", 1);
    setenv("PGOPTIONS",
           "-c default_transaction_isolation=serializable -c synchronous_commit=off"
           " -c search_path=public",
           1);
    setenv("PGTZ", "Asia/Kathmandu", 1);
    struct daemon *daemon = daemon_start(env, NULL);
    unsetenv("PGCLIENTENCODING");
    unsetenv("PGOPTIONS");
    unsetenv("PGTZ");
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'\xe2\x82\xac','id':'x','action':'create','fields':"
                     "{'\xe2\x82\xac':'\xf0\x9f\x98\x80 \xc3\xa9'},'ack':'folded'}"),
           "{'ok':true,'outcome':'folded'}");
    expect(ask(conn, "{'request':'get','document':'\xe2\x82\xac'}"),
           "{'fields':{'\xe2\x82\xac':'\xf0\x9f\x98\x80 \xc3\xa9'}}");
    expect_sql(env, "3|4",
               "select octet_length(document) || '|' || char_length(fields ->> document) + 1"
               " from foldd.operations");
    env_free(env);
}
END_TEST

/* Queue an operation whose fields have arrays or objects that deep. */
static void queue_deep(struct conn *conn, int depth, const char *open, const char *close)
{
    struct buf line = {0};
    buf_add_str(&line, "{\"document\":\"d\",\"action\":\"update\",\"fields\":{\"a\":");
    for (int i = 0; i < depth; i++)
        buf_add_str(&line, open);
    buf_add_char(&line, '1');
    for (int i = 0; i < depth; i++)
        buf_add_str(&line, close);
    buf_add_str(&line, "}}\n");
    conn_bytes(conn, line.data, line.len);
    buf_fini(&line);
}

/* D12: depth costs no stack, whether it is refused or taken, and a document does not grow deeper by
 * patches that each are within the limit */
START_TEST(depth_costs_no_stack)
{
    enum { STACK = 256 * 1024, DEEP = 60000, WITHIN = 120 };
    struct env *env = ENV();
    struct rlimit before;
    ck_assert(getrlimit(RLIMIT_STACK, &before) == 0);
    struct rlimit small = {STACK, before.rlim_max};
    ck_assert(setrlimit(RLIMIT_STACK, &small) == 0);
    struct daemon *daemon = daemon_start(env, NULL);
    ck_assert(setrlimit(RLIMIT_STACK, &before) == 0);
    struct conn *conn = conn_open(daemon);
    queue_deep(conn, DEEP, "[", "]");
    queue_deep(conn, DEEP, "{\"a\":", "}");
    queue_deep(conn, DEEP, "[", "");
    queue_deep(conn, WITHIN, "[", "]");
    queue_deep(conn, WITHIN, "{\"a\":", "}");
    queue_deep(conn, WITHIN, "{\"a\":[", "]}");
    conn_flush(conn);
    for (int i = 0; i < 6; i++) {
        const json_t *reply = conn_read(conn);
        if (i == 3 || i == 4)
            expect(reply, "{'ok':true}");
        else
            expect_error(reply, "invalid", "fields");
    }
    for (int i = 0; i < 5; i++)
        queue_deep(conn, WITHIN, "{\"a\":", "}");
    conn_flush(conn);
    for (int i = 0; i < 5; i++)
        expect(conn_read(conn), "{'ok':true}");
    expect(ask(conn, "{'request':'await','seq':7}"), "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'get','document':'d'}"), "{'ok':true,'revision':7}");
    env_free(env);
}
END_TEST

/* D7: whatever stands in the log can be folded again, or parks its document and no other */
START_TEST(log_changed_by_hand_folds_or_parks)
{
    static const char *const values[] = {"{\"v\":1e400}",  "{\"v\":1e-400}", "{\"v\":1e131071}",
                                         "{\"v\":5e-324}", "null",           "[1]"};
    enum { VALUES = sizeof values / sizeof values[0] };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
    for (int i = 0; i < VALUES; i++)
        expect(ask(conn, "{'document':'d%d','id':'x','action':'update','fields':{}}", i),
               "{'ok':true}");
    expect(ask(conn, "{'document':'fine','action':'update','fields':{'n':1}}"), "{'ok':true}");
    for (int i = 0; i < VALUES; i++)
        sql(env, "update foldd.operations set fields = '%s' where document = 'd%d'", values[i], i);
    sql(env, "update foldd.operations set action = 'explode' where document = 'd0'");
    expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
    /* R16: they are blamed only while others fold. */
    for (int64_t end = now_ms() + TEST_WAIT_MS; status_int(conn, "lag") > 0;) {
        ck_assert(now_ms() < end);
        expect(ask(conn, "{'document':'fine','action':'update','fields':{},'ack':'folded'}"),
               "{'outcome':'folded'}");
    }
    expect_sql(env, "1", "select fields ->> 'n' from foldd.documents where id = 'fine'");
    for (int i = 0; i < VALUES; i++) {
        const json_t *reply = ask(conn, "{'request':'await','document':'d%d','id':'x'}", i);
        const char *outcome = json_string_value(json_object_get(reply, "outcome"));
        ck_assert_msg(strcmp(outcome, "folded") == 0 || strcmp(outcome, "parked") == 0, "%s",
                      conn->raw);
        if (strcmp(outcome, "folded") == 0 && i < 4)
            expect_sql(env, "t", "select fields = '%s' from foldd.documents where id = 'd%d'",
                       values[i], i);
        expect_sql(env, "t",
                   "select coalesce(bool_and(jsonb_typeof(fields) = 'object'), true)"
                   " from foldd.documents where id = 'd%d'",
                   i);
    }
    expect(ask(conn, "{'request':'await','document':'d0','id':'x'}"),
           "{'outcome':'parked','sqlstate':'FD010'}");
    env_free(env);
}
END_TEST

/* A patch with so many members: objects, nulls, or nulls, objects and numbers in turn. */
enum kind { OBJECTS, NULLS, MIXED, KINDS };

static void add_patch(struct buf *out, enum kind kind, int members)
{
    static const char *const mixed[] = {"null", "{\"y\":{\"z\":null}}", "7"};
    buf_add_char(out, '{');
    for (int i = 0; i < members; i++) {
        buf_printf(out, "%s\"m%d\":", i == 0 ? "" : ",", i);
        if (kind == OBJECTS)
            buf_printf(out, "{\"x\":%d}", i);
        else
            buf_add_str(out, kind == NULLS ? "null" : mixed[i % 3]);
    }
    buf_add_char(out, '}');
}

/* Milliseconds that it takes to fold an update of that kind onto a document of that many members.
 */
static int64_t fold_ms(struct env *env, struct conn *conn, enum kind kind, int members)
{
    struct buf patch = {0};
    add_patch(&patch, OBJECTS, members);
    const char *document = env_printf(env, "k%d-%d", (int)kind, members);
    expect(ask(conn, "{'document':'%s','action':'create','fields':%s,'ack':'folded'}", document,
               buf_cstr(&patch)),
           "{'outcome':'folded'}");
    patch.len = 0;
    add_patch(&patch, kind, members);
    expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
    expect(ask(conn, "{'document':'%s','id':'u','action':'update','fields':%s}", document,
               buf_cstr(&patch)),
           "{'ok':true}");
    buf_fini(&patch);
    int64_t start = now_ms();
    conn_line(conn, "{'request':'resume','what':'folding'}");
    conn_line(conn, "{'request':'await','document':'%s','id':'u'}", document);
    conn_flush(conn);
    expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'outcome':'folded'}");
    return now_ms() - start;
}

/* A merge patch costs what its members are, not their square: four times as many, less than eight
 * times the time; _i: all objects, all nulls, mixed */
START_TEST(wide_patches_are_not_quadratic)
{
    enum { MEMBERS = 7500, TIMES = 4, FLOOR_MS = 20 };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "max_line=4MiB", NULL));
    fold_ms(env, conn, (enum kind)_i, 100);
    int64_t few = fold_ms(env, conn, (enum kind)_i, MEMBERS);
    int64_t many = fold_ms(env, conn, (enum kind)_i, MEMBERS * TIMES);
    ck_assert_msg(many < 2 * TIMES * (few + FLOOR_MS), "%lld ms for %d members, %lld ms for %d",
                  (long long)few, MEMBERS, (long long)many, MEMBERS * TIMES);
    expect_sql(env,
               _i == 0   ? "30000"
               : _i == 1 ? "0"
                         : "20000",
               "select count(*) from foldd.documents, jsonb_object_keys(fields)"
               " where id = 'k%d-%d'",
               _i, MEMBERS * TIMES);
    env_free(env);
}
END_TEST

/* D8: a line full of numbers that print a hundred times as long is refused, and what is taken costs
 * a bounded memory, in foldd and for whoever reads the document */
START_TEST(expanding_numbers_are_bounded)
{
    enum { NUMBERS = 100000, TAKEN = 4000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct buf list = {0};
    for (int i = 0; i < TAKEN; i++)
        buf_add_str(&list, i == 0 ? "1e999" : ",1e999");
    conn_line(conn, "{'document':'d','action':'create','fields':{'v':[%s]},'ack':'folded'}",
              buf_cstr(&list));
    for (int i = TAKEN; i < NUMBERS; i++)
        buf_add_str(&list, ",1e999");
    conn_line(conn, "{'document':'d','action':'create','fields':{'v':[%s]}}", buf_cstr(&list));
    conn_line(conn, "{'document':'e','action':'create','fields':{'v':1}}");
    conn_line(conn, "{'request':'get','document':'d'}");
    conn_flush(conn);
    buf_fini(&list);
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect_error(conn_read(conn), "invalid", "fields");
    expect(conn_read(conn), "{'ok':true}");
    ck_assert_uint_gt(strlen(conn_read_raw(conn, TEST_WAIT_MS)), TAKEN * 1000);
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    env_free(env);
}
END_TEST

Suite *json_suite(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, environment_changes_nothing);
    tcase_add_test(tcase, depth_costs_no_stack);
    tcase_add_test(tcase, log_changed_by_hand_folds_or_parks);
    tcase_add_loop_test(tcase, wide_patches_are_not_quadratic, 0, KINDS);
    tcase_add_test(tcase, expanding_numbers_are_bounded);
    suite_add_tcase(suite, tcase);
    return suite;
}
