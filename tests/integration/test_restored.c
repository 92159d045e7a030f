/* SPDX-License-Identifier: MIT */
/* Databases that are not what they were: restored, mixed up, failed over (R6, R28). */
#include "suites.h"

#include "harness.h"
#include "model.h"

#include <signal.h>

/* 100 operations on 10 documents, all folded. */
static void fill(struct conn *conn)
{
    for (int i = 0; i < 100; i++)
        conn_line(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d}}", i % 10,
                  i, i);
    for (int i = 0; i < 100; i++)
        expect(conn_read(conn), "{'ok':true,'seq':%d}", i + 1);
    barrier(conn);
}

/* What a restore of the log alone, up to seq 50, leaves. */
static void take_log_back(struct env *env)
{
    sql(env, "delete from foldd.operations where seq > 50;"
             " delete from foldd.ledger; insert into foldd.ledger values (1000, 50)");
}

static void expect_fatal(struct daemon *daemon)
{
    ck_assert_int_eq(daemon_wait_exit(daemon, 10000), 1);
    daemon_expect_log(daemon, "foldd.repair()");
}

static void repair_and_go_on(struct env *env, struct daemon *daemon)
{
    sql(env, "select foldd.repair()");
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    barrier(conn);
    expect_model(env);
    /* A number that was acknowledged is never given again. */
    const json_t *reply = ask(conn, "{'document':'d1','action':'update','fields':{'n':1}}");
    ck_assert_int_gt(reply_int(reply, "seq"), INT64_C(4294967296));
    barrier(conn);
    expect_model(env);
}

/* R28: found at start */
START_TEST(cursor_ahead_of_the_log_is_refused)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    fill(conn_open(daemon));
    daemon_stop(daemon);
    take_log_back(env);
    const char *args[] = {"--set", env_printf(env, "database=%s", env->conninfo), "--set",
                          env_printf(env, "socket=%s", daemon->socket), NULL};
    daemon_expect_refusal(daemon_spawn(env, daemon->socket, args), "foldd.repair()");
    repair_and_go_on(env, daemon);
    env_free(env);
}
END_TEST

/* R28: found by the fold; what is acknowledged is never swallowed */
START_TEST(document_ahead_of_the_log_is_fatal)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    fill(conn_open(daemon));
    daemon_stop(daemon);
    take_log_back(env);
    sql(env, "update foldd.cursor set seq = 50");
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    conn_line(conn, "{'document':'d1','id':'again','action':'update','fields':{'n':1}}");
    conn_flush(conn);
    expect_fatal(daemon);
    repair_and_go_on(env, daemon);
    env_free(env);
}
END_TEST

/* Nobody repairs under a running daemon. */
START_TEST(repair_needs_the_lead)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    fill(conn_open(daemon));
    expect_sql(env, "refused",
               "do $$ begin perform foldd.repair(); raise exception 'not refused' using errcode ="
               " 'P0002'; exception when raise_exception then null; end $$; select 'refused'");
    sql_wait(env, "100", "select seq from foldd.cursor");
    env_free(env);
}
END_TEST

/* R6: another timeline, or another cluster (_i): numbering jumps, and the log says so once */
START_TEST(numbering_jumps)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    fill(conn_open(daemon));
    daemon_stop(daemon);
    sql(env, _i == 0 ? "update foldd.leader set timeline = timeline - 1"
                     : "update foldd.leader set system_id = system_id - 1");
    for (int round = 0; round < 2; round++) {
        daemon_again(daemon);
        struct conn *conn = conn_open(daemon);
        const json_t *reply = ask(conn, "{'document':'d','action':'update','fields':{}}");
        ck_assert_int_eq(reply_int(reply, "seq"), INT64_C(4294967296) + 101 + round);
        barrier(conn);
        expect_model(env);
        if (round == 0)
            daemon_expect_log(daemon, "numbering_jumps");
        daemon_stop(daemon);
    }
    env_free(env);
}
END_TEST

/* R6: operations that this daemon has acknowledged are gone when it comes back to the database */
START_TEST(lost_operations_are_noticed)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    fill(conn);
    daemon_signal(daemon, SIGSTOP);
    sql(env, "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname ="
             " current_database() and pid <> pg_backend_pid()");
    take_log_back(env);
    sql(env, "delete from foldd.documents; delete from foldd.outcomes;"
             " update foldd.cursor set seq = 0");
    daemon_signal(daemon, SIGCONT);
    const json_t *reply = ask(conn, "{'document':'d','id':'new','action':'update','fields':{}}");
    ck_assert_int_gt(reply_int(reply, "seq"), INT64_C(4294967296));
    daemon_expect_log(daemon, "numbering_jumps");
    barrier(conn);
    expect_model(env);
    /* A retry of what was lost is stored again, not answered from memory. */
    reply = ask(conn, "{'document':'d9','id':'i99','action':'update','fields':{'n':99}}");
    ck_assert(json_object_get(reply, "duplicate") == NULL);
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

Suite *restored_suite(void)
{
    Suite *suite = suite_create("restored");
    TCase *tcase = tcase_create("restored");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, cursor_ahead_of_the_log_is_refused);
    tcase_add_test(tcase, document_ahead_of_the_log_is_fatal);
    tcase_add_test(tcase, repair_needs_the_lead);
    tcase_add_loop_test(tcase, numbering_jumps, 0, 2);
    tcase_add_test(tcase, lost_operations_are_noticed);
    suite_add_tcase(suite, tcase);
    return suite;
}
