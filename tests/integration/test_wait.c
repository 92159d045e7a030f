/* SPDX-License-Identifier: MIT */
/* await, ack:"folded", barrier, and reads behind writes (design.md 3; R18, R23, R24). */
#include "suites.h"

#include "harness.h"

#include <string.h>

/* Scenario 35: immediate, and again */
START_TEST(await_after_the_fold)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    long long seq =
        reply_int(ask(conn, "{'document':'d','id':'x','action':'create','fields':{'a':1}}"), "seq");
    for (int round = 0; round < 2; round++) {
        static const char *const names[] = {"'seq':%lld", "'document':'d','seq':%lld",
                                            "'document':'d','id':'x'"};
        const char *const keys[] = {env_printf(env, "'seq':%lld", seq),
                                    env_printf(env, "'document':'d','seq':%lld", seq), names[2]};
        for (int i = 0; i < 3; i++)
            expect(ask(conn, "{'request':'await',%s}", keys[i]),
                   "{'ok':true,'outcome':'folded','seq':%lld,'version':%lld}", seq, seq);
        daemon_stop(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
    }
    env_free(env);
}
END_TEST

/* Scenario 35: before the operation exists */
START_TEST(await_before_the_operation_exists)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *waiter = conn_open(daemon);
    struct conn *writer = conn_open(daemon);
    conn_line(waiter, "{'request':'await','document':'d','id':'x'}");
    conn_flush(waiter);
    expect(ask(writer, "{'document':'d','id':'w','action':'create','fields':{}}"), "{'ok':true}");
    barrier(writer);
    ck_assert(!conn_has_reply(waiter));
    long long seq = reply_int(
        ask(writer, "{'document':'d','id':'x','action':'update','fields':{'a':1}}"), "seq");
    expect(conn_read(waiter), "{'ok':true,'outcome':'folded','seq':%lld}", seq);
    conn_line(waiter, "{'request':'await','seq':%lld}", seq + 1);
    conn_flush(waiter);
    expect(ask(writer, "{'document':'e','id':'x','action':'update','fields':{'a':1}}"),
           "{'ok':true}");
    expect(conn_read(waiter), "{'ok':true,'outcome':'folded','seq':%lld}", seq + 1);
    env_free(env);
}
END_TEST

/* I1, I4, scenario 38 */
START_TEST(await_times_out)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'await','document':'d','id':'x','timeout_ms':0}"),
           "{'ok':true,'outcome':'timeout','state':'unknown'}");
    int64_t start = now_ms();
    expect(ask(conn, "{'request':'await','document':'d','id':'x','timeout_ms':300}"),
           "{'ok':true,'outcome':'timeout','state':'unknown'}");
    ck_assert_int_ge(now_ms() - start, 299);
    ck_assert_int_le(now_ms() - start, 3000);
    expect(ask(conn, "{'document':'warm','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    gate_make(env, "^d$");
    long long seq =
        reply_int(ask(conn, "{'document':'d','id':'x','action':'create','fields':{}}"), "seq");
    for (int ms = 0; ms <= 100; ms += 100)
        expect(ask(conn, "{'request':'await','seq':%lld,'timeout_ms':%d}", seq, ms),
               "{'ok':true,'outcome':'timeout','state':'queued'}");
    expect(ask(conn, "{'request':'await','document':'d','id':'x','timeout_ms':0}"),
           "{'ok':true,'outcome':'timeout','state':'queued'}");
    struct conn *gone = conn_open(daemon);
    conn_line(gone, "{'request':'await','seq':%lld}", seq);
    conn_flush(gone);
    conn_reset(gone);
    gate_open(env);
    expect(ask(conn, "{'request':'await','seq':%lld}", seq), "{'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* Scenario 39: ignored is not folded, for await, ack and long afterwards (R18) */
START_TEST(update_after_delete_is_ignored)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{'a':1}}"), "{'ok':true}");
    long long gone = reply_int(ask(conn, "{'document':'d','action':'delete'}"), "seq");
    const json_t *reply =
        ask(conn, "{'document':'d','id':'u','action':'update','fields':{'a':2},'ack':'folded'}");
    expect(reply, "{'ok':true,'outcome':'ignored'}");
    ck_assert(json_is_string(json_object_get(reply, "reason")));
    long long seq = reply_int(reply, "seq");
    expect(ask(conn, "{'request':'get','document':'d'}"),
           "{'deleted':true,'version':%lld,'revision':2,'fields':{}}", seq);
    for (int round = 0; round < 2; round++) {
        expect(ask(conn, "{'request':'await','seq':%lld}", seq), "{'outcome':'ignored'}");
        ck_assert(json_is_string(json_object_get(conn->json, "reason")));
        expect(ask(conn, "{'request':'await','document':'d','id':'u'}"), "{'outcome':'ignored'}");
        expect(ask(conn, "{'request':'operation','document':'d','id':'u'}"),
               "{'outcome':'ignored'}");
        expect(ask(conn, "{'request':'await','seq':%lld}", gone), "{'outcome':'folded'}");
        daemon_stop(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
    }
    expect_sql(env, env_printf(env, "%lld|default|d|ignored|t", seq),
               "select concat_ws('|', seq, collection, document, outcome, reason <> '')"
               " from foldd.outcomes");
    env_free(env);
}
END_TEST

START_TEST(ack_folded_is_visible_in_sql)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int i = 0; i < 500; i++) {
        const json_t *reply =
            ask(conn, "{'document':'d%d','action':'update','fields':{'n':%d},'ack':'folded'}",
                i % 3, i);
        expect(reply, "{'ok':true,'outcome':'folded'}");
        expect_sql(env, env_printf(env, "%d", i),
                   "select fields ->> 'n' from foldd.documents where id = 'd%d'", i % 3);
    }
    env_free(env);
}
END_TEST

/* I2: a wait made right behind a receipt, on another connection, while all workers are busy, counts
 * what has not begun: SQL always shows the operation when the answer is there */
START_TEST(await_elsewhere_is_visible_in_sql)
{
    enum { ROUNDS = 1500, BACKGROUND = 40 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "workers=2", NULL);
    struct conn *writer = conn_open(daemon);
    struct conn *waiter = conn_open(daemon);
    struct conn *crowd = conn_open(daemon);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < BACKGROUND; k++)
            conn_line(crowd, "{'document':'b%d','action':'update','fields':{'n':%d}}", k, i);
        conn_flush(crowd);
        int64_t seq = reply_int(
            ask(writer, "{'document':'d%d','action':'update','fields':{'n':%d}}", i % 3, i), "seq");
        expect(ask(waiter, "{'request':'await','seq':%lld}", (long long)seq),
               "{'outcome':'folded'}");
        expect_sql(env, env_printf(env, "%d", i),
                   "select fields ->> 'n' from foldd.documents where id = 'd%d'", i % 3);
        while (conn_has_reply(crowd))
            ck_assert_ptr_nonnull(conn_read_raw(crowd, TEST_WAIT_MS));
    }
    env_free(env);
}
END_TEST

/* I4: whatever there is of an operation, a wait for it has an answer of its own, in time */
START_TEST(every_wait_has_an_answer_of_its_own)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    int64_t start = now_ms();
    expect(ask(conn, "{'request':'await','seq':1,'timeout_ms':200}"),
           "{'outcome':'timeout','state':'unknown'}");
    expect(ask(conn, "{'request':'await','document':'d','id':'x','timeout_ms':200}"),
           "{'outcome':'timeout','state':'unknown'}");
    expect(ask(conn, "{'document':'d','id':'c','action':'create','fields':{}}"), "{'ok':true}");
    expect(ask(conn, "{'document':'d','id':'gone','action':'delete'}"), "{'ok':true}");
    expect(ask(conn, "{'document':'d','id':'late','action':'update','fields':{}}"), "{'ok':true}");
    expect(ask(conn, "{'request':'await','document':'d','id':'c'}"), "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'await','document':'d','id':'gone'}"), "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'await','document':'d','id':'late'}"), "{'outcome':'ignored'}");
    expect(ask(conn, "{'request':'await','document':'d','id':'never','timeout_ms':200}"),
           "{'outcome':'timeout','state':'unknown'}");
    expect(ask(conn, "{'request':'await','document':'never','id':'c','timeout_ms':200}"),
           "{'outcome':'timeout','state':'unknown'}");
    poison_make(env, "bad");
    expect(ask(conn, "{'document':'bad','id':'p','action':'create','fields':{}}"), "{'ok':true}");
    expect(ask(conn, "{'request':'await','document':'bad','id':'p'}"),
           "{'outcome':'parked','sqlstate':'P0001'}");
    poison_heal(env);
    gate_make(env, "^slow$");
    expect(ask(conn, "{'document':'slow','id':'q','action':'create','fields':{}}"), "{'ok':true}");
    expect(ask(conn, "{'request':'await','document':'slow','id':'q','timeout_ms':200}"),
           "{'outcome':'timeout','state':'queued'}");
    ck_assert_int_lt(now_ms() - start, 10000);
    gate_open(env);
    expect(ask(conn, "{'request':'await','document':'slow','id':'q','timeout_ms':3600000}"),
           "{'outcome':'folded'}");
    expect_error(ask(conn, "{'request':'await','document':'d','id':'c','timeout_ms':-1}"),
                 "invalid", "timeout_ms");
    expect_error(ask(conn, "{'request':'await','document':'d','id':'c','timeout_ms':0.5}"),
                 "invalid", "timeout_ms");
    env_free(env);
}
END_TEST

/* I1: an operation that could not be stored holds up no wait for another */
START_TEST(failed_operation_holds_up_no_wait)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'document':'e','id':'x','action':'create','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    sql(env, "alter table foldd.operations add constraint c check (document <> 'bad')");
    int64_t start = now_ms();
    conn_line(conn, "{'document':'bad','id':'x','action':'create','fields':{},'ack':'folded'}");
    conn_line(conn, "{'request':'await','document':'bad','id':'x','timeout_ms':300}");
    conn_line(conn, "{'request':'await','document':'e','id':'x','timeout_ms':2000}");
    conn_line(conn, "{'document':'f','id':'x','action':'create','fields':{},'ack':'folded'}");
    conn_flush(conn);
    expect_error(conn_read(conn), "invalid", "23514");
    expect(conn_read(conn), "{'outcome':'timeout','state':'unknown'}");
    ck_assert_int_lt(now_ms() - start, 2000);
    expect(conn_read(conn), "{'outcome':'folded'}");
    expect(conn_read(conn), "{'outcome':'folded'}");
    ck_assert_int_lt(now_ms() - start, 2000);
    barrier(conn);
    env_free(env);
}
END_TEST

/* R23: a wait for an operation that stands behind it in the same pipeline */
START_TEST(wait_does_not_stop_the_writes_behind_it)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int round = 0; round < 50; round++) {
        conn_line(conn, "{'document':'d%d','id':'a','action':'create','fields':{'n':1}}", round);
        conn_line(conn, "{'request':'await','document':'d%d','id':'b'}", round);
        conn_line(conn, "{'request':'await','document':'d%d','id':'c'}", round);
        conn_line(conn, "{'document':'d%d','id':'b','action':'update','fields':{'n':2}}", round);
        conn_line(conn,
                  "{'document':'d%d','id':'c','action':'update','fields':{'n':3},"
                  "'ack':'folded'}",
                  round);
        conn_line(conn, "{'request':'get','document':'d%d'}", round);
        conn_flush(conn);
        expect(conn_read(conn), "{'ok':true,'id':'a'}");
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
        expect(conn_read(conn), "{'ok':true,'id':'b'}");
        expect(conn_read(conn), "{'ok':true,'id':'c','outcome':'folded'}");
        expect(conn_read(conn), "{'ok':true,'revision':3,'fields':{'n':3}}");
    }
    env_free(env);
}
END_TEST

/* R23: a read behind writes sees them */
START_TEST(get_sees_the_writes_before_it)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int i = 0; i < 500; i++) {
        conn_line(conn, "{'document':'d','id':'i%d','action':'update','fields':{'n':%d}}", i, i);
        conn_line(conn, "{'request':'await','document':'d','id':'i%d'}", i);
        conn_line(conn, "{'request':'get','document':'d'}");
        conn_line(conn, "{'request':'operation','document':'d','id':'i%d'}", i);
    }
    conn_flush(conn);
    for (int i = 0; i < 500; i++) {
        expect(conn_read(conn), "{'ok':true}");
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
        int64_t n =
            json_integer_value(json_object_get(json_object_get(conn_read(conn), "fields"), "n"));
        ck_assert_msg(n >= i, "get behind update %d saw %lld", i, (long long)n);
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    }
    env_free(env);
}
END_TEST

/* A wait delays the later replies of its own connection, and only those. */
START_TEST(replies_keep_their_order_behind_a_wait)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    conn_line(conn, "{'request':'await','document':'d','id':'x'}");
    conn_line(conn, "{'request':'ping'}");
    conn_line(conn, "{'document':'e','id':'y','action':'update','fields':{}}");
    conn_line(conn, "{'request':'await','document':'d','id':'x'}");
    conn_line(conn, "nonsense");
    conn_flush(conn);
    expect(ask(other, "{'request':'await','document':'e','id':'y'}"), "{'outcome':'folded'}");
    ck_assert(!conn_has_reply(conn));
    expect(ask(other, "{'request':'status'}"), "{'ok':true}");
    expect(ask(other, "{'document':'d','id':'x','action':'update','fields':{}}"), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true,'id':'y'}");
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect(conn_read(conn), "{'ok':false,'error':'invalid','line':5}");
    env_free(env);
}
END_TEST

/* Many waits on one connection and on one operation (scenario 36's "all waiters at once") */
START_TEST(many_waits)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    for (int i = 0; i < 100; i++)
        conn_line(conn, "{'request':'await','document':'d','id':'i%d'}", i % 10);
    conn_flush(conn);
    for (int i = 9; i >= 0; i--)
        expect(ask(other, "{'document':'d','id':'i%d','action':'update','fields':{}}", i),
               "{'ok':true}");
    for (int i = 0; i < 100; i++)
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* R24, scenario 40: everything read before the barrier, on any connection, is folded */
START_TEST(barrier_waits_for_everything_read_before_it)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *writer = conn_open(daemon);
    struct conn *reader = conn_open(daemon);
    for (int i = 0; i < 2000; i++) {
        expect(ask(writer, "{'document':'d%d','action':'update','fields':{'n':%d}}", i % 5, i),
               "{'ok':true}");
        barrier(i % 2 == 0 ? reader : writer);
        expect(ask(reader, "{'request':'get','document':'d%d'}", i % 5), "{'fields':{'n':%d}}", i);
    }
    env_free(env);
}
END_TEST

/* R24: also what another connection has not had an answer for yet */
START_TEST(barrier_covers_what_is_not_committed_yet)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *writer = conn_open(daemon);
    struct conn *reader = conn_open(daemon);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    conn_line(writer, "{'document':'d','action':'update','fields':{'n':1}}");
    conn_flush(writer);
    sql_wait(env, "1",
             "select count(*) from pg_locks where not granted and"
             " relation = 'foldd.operations'::regclass");
    expect(ask(reader, "{'request':'barrier','timeout_ms':50}"), "{'outcome':'timeout'}");
    conn_line(reader, "{'request':'barrier'}");
    conn_flush(reader);
    sql_in(session, "rollback");
    expect(conn_read(reader), "{'ok':true}");
    expect_sql(env, "{\"n\": 1}", "select fields from foldd.documents where id = 'd'");
    expect(conn_read(writer), "{'ok':true}");
    env_free(env);
}
END_TEST

START_TEST(barrier_on_an_empty_log)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'request':'barrier'}"), "{'ok':true,'seq':0}");
    env_free(env);
}
END_TEST

Suite *wait_suite(void)
{
    Suite *suite = suite_create("wait");
    TCase *await = tcase_create("await");
    tcase_set_timeout(await, 60);
    tcase_add_test(await, await_after_the_fold);
    tcase_add_test(await, await_before_the_operation_exists);
    tcase_add_test(await, await_times_out);
    tcase_add_test(await, update_after_delete_is_ignored);
    tcase_add_test(await, ack_folded_is_visible_in_sql);
    tcase_add_test(await, many_waits);
    tcase_add_test(await, await_elsewhere_is_visible_in_sql);
    tcase_add_test(await, every_wait_has_an_answer_of_its_own);
    tcase_add_test(await, failed_operation_holds_up_no_wait);
    suite_add_tcase(suite, await);
    TCase *order = tcase_create("order");
    tcase_set_timeout(order, 60);
    tcase_add_test(order, wait_does_not_stop_the_writes_behind_it);
    tcase_add_test(order, get_sees_the_writes_before_it);
    tcase_add_test(order, replies_keep_their_order_behind_a_wait);
    suite_add_tcase(suite, order);
    TCase *barriers = tcase_create("barrier");
    tcase_set_timeout(barriers, 60);
    tcase_add_test(barriers, barrier_waits_for_everything_read_before_it);
    tcase_add_test(barriers, barrier_covers_what_is_not_committed_yet);
    tcase_add_test(barriers, barrier_on_an_empty_log);
    suite_add_tcase(suite, barriers);
    return suite;
}
