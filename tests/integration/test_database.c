/* SPDX-License-Identifier: MIT */
/* PostgreSQL going away in every way (design.md 5; R1, R7, R9; F1, F10, F20). */
#include "suites.h"

#include "hang.h"
#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdlib.h>

/* Scenario 56, F10: _i: fast, immediate, kill -9 */
START_TEST(server_restarted_under_load)
{
    static const int signals[] = {SIGINT, SIGQUIT, SIGKILL};
    enum { ROUNDS = 3, EACH = 8000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "p", 100, ROUNDS * EACH);
    struct conn *conn = conn_open(daemon);
    for (int round = 0; round < ROUNDS; round++) {
        load_queue(load, conn, round * EACH, EACH);
        conn_flush_part(conn, 33);
        cluster_stop(signals[_i]);
        expect(ask(conn_open(daemon), "{'request':'ping'}"), "{'ok':true}");
        cluster_start();
        conn_flush(conn);
        ck_assert_int_eq(load_replies(load, conn, round * EACH, EACH), EACH);
    }
    barrier(conn);
    expect_load(load, 0);
    expect_model(env);
    env_free(env);
    load_free(load);
}
END_TEST

/* Exactly once also for operations without an id of the client's */
START_TEST(operations_without_ids_across_a_restart)
{
    enum { OPS = 20000 };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int i = 0; i < OPS; i++)
        conn_line(conn, "{'document':'d%d','action':'update','fields':{'n':%d}}", i % 10, i);
    conn_flush_part(conn, 50);
    cluster_stop(SIGQUIT);
    cluster_start();
    conn_flush(conn);
    for (int i = 0; i < OPS; i++)
        expect(conn_read(conn), "{'ok':true}");
    barrier(conn);
    expect_sql(env, env_printf(env, "%d|%d", OPS, OPS),
               "select count(*) || '|' || count(distinct (document, fields ->> 'n'))"
               " from foldd.operations");
    expect_model(env);
    env_free(env);
}
END_TEST

/* R1: folds that a crash of the server took back are folded again */
START_TEST(server_crash_takes_folds_back)
{
    enum { ROUNDS = 5, EACH = 3000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "a", 40, ROUNDS * EACH);
    for (int round = 0; round < ROUNDS; round++) {
        struct conn *conn = conn_open(daemon);
        load_send(load, conn, round * EACH, EACH);
        barrier(conn);
        cluster_stop(SIGKILL);
        cluster_start();
        barrier(conn);
        expect_model(env);
    }
    expect_load(load, 0);
    load_free(load);
    env_free(env);
}
END_TEST

/* F1: each connection in turn is lost, idle and under load (_i) */
START_TEST(each_connection_is_lost)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "f", 100, 200000);
    int next = 0;
    load_send(load, conn, next, 100);
    next += 100;
    barrier(conn);
    status_wait(conn, "workers", 4);
    int64_t count = sql_int(env, "select count(*) from pg_stat_activity where datname ="
                                 " current_database() and pid <> pg_backend_pid()");
    ck_assert_int_ge(count, 2);
    for (int64_t i = 0; i < count; i++) {
        int step = _i == 0 ? 1 : 5000;
        if (_i == 1) {
            load_queue(load, conn, next, step);
            conn_flush_part(conn, 50);
        }
        expect_sql(env, "t",
                   "select pg_terminate_backend((select pid from pg_stat_activity where datname ="
                   " current_database() and pid <> pg_backend_pid() order by backend_start, pid"
                   " offset %lld limit 1), 5000)",
                   (long long)i);
        if (_i == 0)
            load_queue(load, conn, next, step);
        conn_flush(conn);
        ck_assert_int_eq(load_replies(load, conn, next, step), step);
        next += step;
        barrier(conn);
        status_wait(conn, "workers", 4);
        sql_wait(env, env_printf(env, "%lld", (long long)count),
                 "select count(*) from pg_stat_activity where datname = current_database() and"
                 " pid <> pg_backend_pid()");
    }
    expect(ask(conn, "{'request':'status'}"), "{'role':'leader','database':'up','lag':0}");
    load->count = next;
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* All connections lost at once, again and again under load */
START_TEST(all_connections_are_lost)
{
    enum { ROUNDS = 10, EACH = 3000 };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    struct load *load = load_new(env, "f", 100, ROUNDS * EACH);
    for (int round = 0; round < ROUNDS; round++) {
        load_queue(load, conn, round * EACH, EACH);
        conn_flush_part(conn, (round + 1) * 8);
        sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where datname ="
                 " current_database() and pid <> pg_backend_pid()");
        conn_flush(conn);
        ck_assert_int_eq(load_replies(load, conn, round * EACH, EACH), EACH);
    }
    barrier(conn);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* R1, R18: whoever waits for an outcome when the connections are lost gets it from the next term,
 * wherever the operation was on its way */
START_TEST(waits_outlive_the_term)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    uint64_t state = 5;
    for (int round = 0; round < 60; round++) {
        conn_line(conn,
                  "{'document':'d','id':'i%d','action':'update','fields':{'n':%d},"
                  "'ack':'folded'}",
                  round, round);
        conn_line(conn, "{'request':'await','document':'d','id':'i%d'}", round);
        conn_line(conn, "{'request':'get','document':'d'}");
        conn_line(conn, "{'request':'barrier'}");
        conn_flush(conn);
        int64_t end = now_ms() + next_random(&state) % 6;
        while (now_ms() < end)
            conn_pump(&conn, 1, 1);
        sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where datname ="
                 " current_database() and pid <> pg_backend_pid()");
        expect(conn_read(conn), "{'ok':true,'id':'i%d','outcome':'folded'}", round);
        expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
        expect(conn_read(conn), "{'ok':true,'fields':{'n':%d}}", round);
        expect(conn_read(conn), "{'ok':true,'seq':%d}", round + 1);
    }
    expect_model(env);
    env_free(env);
}
END_TEST

/* C1, R7: the commit is in and its answer is lost: one row, and a positive receipt */
START_TEST(answer_of_a_commit_is_lost)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    for (int round = 0; round < 5; round++) {
        PGconn *admin = hang_commits(env);
        conn_line(conn, "{'document':'d','id':'x%d','action':'update','fields':{'n':%d}}", round,
                  round);
        conn_line(conn, "{'document':'e','action':'update','fields':{'n':%d}}", round);
        conn_flush(conn);
        hang_wait(env, 1);
        ck_assert(!conn_has_reply(conn));
        hang_lose_answers(admin);
        expect(conn_read(conn), "{'ok':true,'id':'x%d'}", round);
        expect(conn_read(conn), "{'ok':true}");
    }
    barrier(conn);
    expect_sql(env, "11", "select count(*) from foldd.operations");
    expect_model(env);
    env_free(env);
}
END_TEST

/* The same, and the next term folds the operation before its receipt is found out: a lock that
 * keeps writers out of the log, and not readers, holds the receipt back */
START_TEST(folded_before_the_receipt_is_known)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    PGconn *holder = sql_session(env);
    PGconn *admin = hang_commits(env);
    conn_line(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1},"
                    "'ack':'folded'}");
    conn_flush(conn);
    hang_wait(env, 1);
    ck_assert(PQsendQuery(holder, "begin; lock table foldd.operations in share mode") == 1);
    sql_wait(env, "1", "select count(*) from pg_locks where not granted and mode = 'ShareLock'");
    hang_lose_answers(admin);
    sql_wait(env, "{\"n\": 1}", "select fields from foldd.documents");
    for (PGresult *result; (result = PQgetResult(holder)) != NULL;)
        PQclear(result);
    sql_in(holder, "rollback");
    expect(conn_read(conn), "{'ok':true,'id':'x','outcome':'folded'}");
    env_free(env);
}
END_TEST

/* F10: started while the server is down, foldd answers and takes up work when it comes */
START_TEST(started_before_the_server)
{
    struct env *env = ENV();
    daemon_stop(daemon_start(env, NULL));
    cluster_stop(SIGINT);
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'status'}"), "{'ok':true,'database':'down'}");
    conn_line(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1},"
                    "'ack':'folded'}");
    conn_flush(conn);
    expect(ask(conn_open(daemon), "{'request':'ping'}"), "{'ok':true}");
    cluster_start();
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect(ask(conn, "{'request':'status'}"), "{'role':'leader','database':'up'}");
    env_free(env);
}
END_TEST

/* F10, J3: SIGTERM is obeyed while the server is down; _i: with operations waiting or not */
START_TEST(terminated_while_the_server_is_down)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "drain_timeout=1s", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1}}"),
           "{'ok':true}");
    cluster_stop(SIGINT);
    if (_i == 1) {
        conn_line(conn, "{'document':'d','id':'y','action':'update','fields':{'n':2}}");
        conn_flush(conn);
        expect(ask(conn_open(daemon), "{'request':'status'}"), "{'ok':true}");
    }
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(daemon, 10000), 0);
    if (_i == 1) {
        const json_t *reply = conn_read(conn);
        ck_assert(reply == NULL || json_is_false(json_object_get(reply, "ok")));
    }
    cluster_start();
    daemon_again(daemon);
    conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1}}"),
           "{'duplicate':true}");
    expect(ask(conn, "{'document':'d','id':'y','action':'update','fields':{'n':2}}"),
           "{'ok':true}");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* R9: unavailable after db_timeout, and the pipeline has no hole */
START_TEST(unavailable_leaves_no_hole)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "db_timeout=1s", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'i0','action':'update','fields':{'n':0}}"),
           "{'ok':true}");
    barrier(conn);
    cluster_stop(SIGINT);
    for (int i = 1; i <= 50; i++)
        conn_line(conn, "{'document':'d','id':'i%d','action':'update','fields':{'n':%d}}", i, i);
    conn_flush(conn);
    for (int i = 1; i <= 50; i++)
        expect(conn_read(conn), "{'ok':false,'error':'unavailable','stored':'no'}");
    cluster_start();
    expect(ask(conn, "{'document':'d','id':'late','action':'update','fields':{'n':51}}"),
           "{'ok':true}");
    barrier(conn);
    expect_sql(env, "i0 late", "select string_agg(id, ' ' order by seq) from foldd.operations");
    env_free(env);
}
END_TEST

/* F20: a long absence is a few lines in the log, and waiting clients are served in the end */
START_TEST(long_absence_is_quiet)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "q", 10, 2000);
    struct conn *conn = conn_open(daemon);
    cluster_stop(SIGINT);
    load_queue(load, conn, 0, 2000);
    conn_flush(conn);
    struct conn *watcher = conn_open(daemon);
    for (int64_t end = now_ms() + 4000; now_ms() < end; pause_ms(50)) {
        int64_t asked = now_ms();
        expect(ask(watcher, "{'request':'status'}"), "{'ok':true,'database':'down'}");
        ck_assert_int_le(now_ms() - asked, 100);
    }
    cluster_start();
    ck_assert_int_eq(load_replies(load, conn, 0, 2000), 2000);
    barrier(conn);
    expect_load(load, 0);
    char *log = file_read(daemon->log);
    int lines = 0;
    for (const char *c = log; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_int_lt(lines, 50);
    free(log);
    load_free(load);
    env_free(env);
}
END_TEST

/* F13, F21, R4, C13: defaults of the role and the database that would break the promises do not */
START_TEST(hostile_defaults_do_no_harm)
{
    struct env *env = ENV();
    sql(env,
        "alter database \"%s\" set default_transaction_isolation = 'repeatable read';"
        "alter database \"%s\" set synchronous_commit = off;"
        "alter database \"%s\" set statement_timeout = '1ms';"
        "alter database \"%s\" set lock_timeout = '1ms';"
        "alter database \"%s\" set default_transaction_read_only = on;"
        "alter database \"%s\" set search_path = nowhere;"
        "alter database \"%s\" set client_encoding = 'LATIN1';"
        "alter database \"%s\" set datestyle = 'German, DMY';"
        "alter database \"%s\" set timezone = 'Asia/Kathmandu';"
        "alter database \"%s\" set enable_indexscan = off",
        env->database, env->database, env->database, env->database, env->database, env->database,
        env->database, env->database, env->database, env->database);
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "h", 50, 5000);
    load_send(load, conn, 0, 5000);
    expect(ask(conn, "{'document':'\xe2\x82\xac','action':'update','fields':{'\xe2\x82\xac':"
                     "'\xf0\x9f\x98\x80'},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'get','document':'\xe2\x82\xac'}"),
           "{'fields':{'\xe2\x82\xac':'\xf0\x9f\x98\x80'}}");
    barrier(conn);
    daemon_stop(daemon);
    daemon_again(daemon);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

Suite *database_suite(void)
{
    Suite *suite = suite_create("database");
    TCase *server = tcase_create("server");
    tcase_set_timeout(server, 300);
    tcase_add_loop_test(server, server_restarted_under_load, 0, 3);
    tcase_add_test(server, operations_without_ids_across_a_restart);
    tcase_add_test(server, server_crash_takes_folds_back);
    tcase_add_test(server, started_before_the_server);
    tcase_add_loop_test(server, terminated_while_the_server_is_down, 0, 2);
    tcase_add_test(server, unavailable_leaves_no_hole);
    tcase_add_test(server, long_absence_is_quiet);
    suite_add_tcase(suite, server);
    TCase *connections = tcase_create("connections");
    tcase_set_timeout(connections, 300);
    tcase_add_loop_test(connections, each_connection_is_lost, 0, 2);
    tcase_add_test(connections, all_connections_are_lost);
    tcase_add_test(connections, waits_outlive_the_term);
    tcase_add_test(connections, answer_of_a_commit_is_lost);
    tcase_add_test(connections, folded_before_the_receipt_is_known);
    tcase_add_test(connections, hostile_defaults_do_no_harm);
    suite_add_tcase(suite, connections);
    return suite;
}
