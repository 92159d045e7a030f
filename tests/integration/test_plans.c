/* SPDX-License-Identifier: MIT */
/* What foldd costs the database: scans, locks, snapshots, notifications (design.md 2, 4, 6; F3, F5,
 * F13, F16, G1). */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdlib.h>

/* Sequential scans of the tables that grow, by sessions that have ended. */
static int64_t scans(struct env *env)
{
    return sql_int(env, "select coalesce(sum(seq_scan), 0) from pg_stat_user_tables where relid in"
                        " ('foldd.operations'::regclass, 'foldd.documents'::regclass,"
                        " 'foldd.outcomes'::regclass)");
}

/* F13: no statement goes through a whole table that grows, whatever the role's timeouts and the
 * statistics say: append, fold, page, look-ups, retry, start */
START_TEST(no_table_is_scanned)
{
    enum { OPS = 6000 };
    struct env *env = ENV();
    sql(env, "alter database \"%s\" set statement_timeout = '100ms'", env->database);
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "s", 1500, OPS);
    load_send(load, conn, 0, OPS / 2);
    barrier(conn);
    daemon_stop(daemon);
    sql(env, "set statement_timeout = 0; analyze foldd.operations; analyze foldd.documents");
    int64_t before = scans(env);
    for (int round = 0; round < 2; round++) {
        daemon_again(daemon);
        conn = conn_open(daemon);
        expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
        load_send(load, conn, OPS / 2, OPS / 2); /* the second time all are duplicates */
        expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
        barrier(conn);
        poison_make(env, "bad");
        expect(ask(conn,
                   "{'document':'bad','id':'%d','action':'update','fields':{},"
                   "'ack':'folded'}",
                   round),
               "{'outcome':'parked'}");
        poison_heal(env);
        expect(ask(conn, "{'request':'retry'}"), "{'ok':true}");
        sql_wait(env, "0", "select count(*) from foldd.parked");
        expect(ask(conn, "{'request':'get','document':'L7'}"), "{'ok':true}");
        expect(ask(conn, "{'request':'await','seq':77}"), "{'ok':true}");
        expect(ask(conn, "{'request':'await','document':'L7','id':'s-7'}"), "{'ok':true}");
        expect(ask(conn, "{'request':'operation','document':'L7','id':'s-7'}"), "{'ok':true}");
        daemon_stop(daemon);
        sql(env, "update foldd.cursor set seq = 100"); /* the next start reads pages */
    }
    sql(env, "select pg_stat_force_next_flush()");
    ck_assert_int_eq(scans(env), before);
    expect_sql(env, "0", "select count(*) from foldd.parked");
    load_free(load);
    env_free(env);
}
END_TEST

/* F16: twenty thousand documents in one batch and one fold take no lock each, and other sessions
 * find room for theirs */
START_TEST(documents_take_no_lock_each)
{
    enum { DOCUMENTS = 20000, LOCKS_MAX = 100 };
    struct env *env = ENV();
    struct daemon *daemon =
        daemon_start(env, "batch_ops=20000", "batch_bytes=16MiB", "fold_docs=20000",
                     "fold_ops=20000", "max_client_pending=64MiB", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    barrier(conn);
    gate_make(env, "^last$");
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    for (int i = 0; i < DOCUMENTS; i++)
        conn_line(conn, "{'document':'d%d','action':'create','fields':{}}", i);
    conn_line(conn, "{'document':'last','action':'create','fields':{}}");
    conn_flush(conn);
    status_wait(conn_open(daemon), "pending_ops", DOCUMENTS + 1);
    sql_in(session, "rollback");
    for (int i = 0; i <= DOCUMENTS; i++)
        expect(conn_read(conn), "{'ok':true}");
    struct conn *watcher = conn_open(daemon);
    for (int64_t end = now_ms() + TEST_WAIT_MS; status_int(watcher, "queued") > 0; pause_ms(5))
        ck_assert(now_ms() < end);
    ck_assert_int_gt(status_int(watcher, "running"), 0);
    expect_sql(env, "t", "select count(*) < %d from pg_locks", LOCKS_MAX);
    gate_open(env);
    barrier(conn);
    expect_sql(env, env_printf(env, "%d", DOCUMENTS + 2), "select count(*) from foldd.documents");
    env_free(env);
}
END_TEST

/* G1: a snapshot that somebody holds makes dead rows pile up, and foldd not much slower: the rows
 * that it looks for are found without going over dead ones */
START_TEST(long_snapshot_costs_little)
{
    enum { ROUNDS = 8, EACH = 3000, DOCUMENTS = 20 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "g", DOCUMENTS, (ROUNDS + 1) * EACH);
    load_send(load, conn, 0, EACH);
    barrier(conn);
    PGconn *session = sql_session(env);
    sql_in(session, "begin isolation level repeatable read; select count(*) from pg_class");
    int64_t took[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = now_ms();
        load_send(load, conn, (round + 1) * EACH, EACH);
        barrier(conn);
        took[round] = now_ms() - start;
    }
    ck_assert_msg(took[ROUNDS - 1] < 3 * (took[0] + took[1]) / 2 + 300,
                  "%lld ms, and %lld at first", (long long)took[ROUNDS - 1], (long long)took[0]);
    /* The row that is written most often is not written once an operation. */
    sql_in(session, "rollback");
    daemon_stop(daemon);
    expect_sql(env, "t",
               "select n_tup_upd between 1 and %d from pg_stat_user_tables where relid ="
               " 'foldd.cursor'::regclass",
               EACH);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* F3, F5: others notify without end while foldd works, stands still, works again: it holds no
 * transaction meanwhile, the queue does not fill for its sake, and no commit waits for it */
START_TEST(notifications_of_others)
{
    enum { NOTES = 20000, OPS = 3000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "n", 50, 2 * OPS);
    PGconn *noisy = sql_session(env);
    const char *notes = env_printf(env,
                                   "select count(pg_notify('foldd', repeat('x', 500) || i))"
                                   " from generate_series(1, %d) i",
                                   NOTES);
    ck_assert(PQsendQuery(noisy, notes) == 1);
    load_send(load, conn, 0, OPS);
    barrier(conn);
    for (PGresult *result; (result = PQgetResult(noisy)) != NULL;)
        PQclear(result);
    sql_wait(env, "0",
             "select count(*) from pg_stat_activity where application_name like 'foldd%%'"
             " and datname = current_database() and state <> 'idle'");
    daemon_signal(daemon, SIGSTOP);
    sql_in(noisy, "%s", notes);
    /* The session that listens passes over what is not for it. */
    sql_wait(env, "0",
             "select count(*) from pg_stat_activity where application_name like 'foldd%%' and"
             " datname = current_database() and (xact_start is not null or backend_xmin is not"
             " null)");
    expect_sql(env, "t", "select pg_notification_queue_usage() < 0.1");
    daemon_signal(daemon, SIGCONT);
    load_send(load, conn, OPS, OPS);
    barrier(conn);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

Suite *plans_suite(void)
{
    Suite *suite = suite_create("plans");
    TCase *tcase = tcase_create("plans");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, no_table_is_scanned);
    tcase_add_test(tcase, documents_take_no_lock_each);
    tcase_add_test(tcase, long_snapshot_costs_little);
    tcase_add_test(tcase, notifications_of_others);
    suite_add_tcase(suite, tcase);
    return suite;
}
