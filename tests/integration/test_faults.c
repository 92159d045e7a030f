/* SPDX-License-Identifier: MIT */
/* Commits that are refused, lost, doubtful or late, and connections that cannot be had (design.md
 * 3, 5; R4, R7, R8, R9). */
#include "suites.h"

#include "hang.h"
#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* R7: a commit that PostgreSQL answers with a WARNING, since somebody cancelled its waiting for the
 * standby, is in and is no acknowledgement; nor is the next term's own first commit */
START_TEST(warned_commit_is_no_receipt)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    barrier(conn);
    PGconn *admin = hang_commits(env);
    conn_line(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1},"
                    "'ack':'folded'}");
    conn_flush(conn);
    hang_wait(env, 1);
    for (int round = 1; round <= 2; round++) {
        const char *pid = sql_text(env, "select pid from pg_stat_activity where wait_event ="
                                        " 'SyncRep' and application_name like 'foldd%%'");
        expect_sql(env, "t", "select pg_cancel_backend(%s)", pid);
        sql_wait(env, "t",
                 "select count(*) = 1 and bool_and(pid <> %s or %d = 2) from pg_stat_activity"
                 " where wait_event = 'SyncRep' and application_name like 'foldd%%'",
                 pid, round);
        ck_assert_msg(!conn_has_reply(conn), "a receipt for what no standby has: round %d", round);
    }
    daemon_expect_log(daemon, "synchronous replication");
    hang_release(admin);
    expect(conn_read(conn), "{'ok':true,'id':'x','outcome':'folded'}");
    barrier(conn);
    expect_sql(env, "1", "select count(*) from foldd.operations where id = 'x'");
    expect_model(env);
    env_free(env);
}
END_TEST

/* C2: the client leaves with the outcome unknown, and comes again while it still is */
START_TEST(retry_while_the_outcome_is_unknown)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    const char *line = "{'document':'d','id':'x','action':'update','fields':{'n':1}}";
    expect(ask(conn, "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    barrier(conn);
    PGconn *admin = hang_commits(env);
    struct conn *gone = conn_open(daemon);
    conn_line(gone, "%s", line);
    conn_flush(gone);
    hang_wait(env, 1);
    conn_reset(gone);
    struct conn *again = conn_open(daemon);
    conn_line(again, "%s", line);
    conn_flush(again);
    status_wait(conn, "pending_ops", 2);
    ck_assert(!conn_has_reply(again));
    hang_lose_answers(admin);
    int64_t seq = reply_int(conn_read(again), "seq");
    expect(again->json, "{'ok':true,'duplicate':true}");
    expect(ask(conn, "%s", line), "{'ok':true,'duplicate':true,'seq':%lld}", (long long)seq);
    expect_sql(env, env_printf(env, "1|%lld", (long long)seq),
               "select count(*) || '|' || max(seq) from foldd.operations where id = 'x'");
    env_free(env);
}
END_TEST

/* C8, R8: what PostgreSQL alone refuses is one error among 600 receipts, at a bounded cost */
START_TEST(row_that_postgresql_refuses_fails_alone)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    struct conn *watcher = conn_open(daemon);
    sql(env, "alter table foldd.operations add constraint c check (document <> 'bad')");
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    for (int i = 0; i < 501; i++)
        conn_line(conn, "{'document':'%s','id':'i%d','action':'update','fields':{'n':%d}}",
                  i == 250 ? "bad" : "d", i, i);
    for (int i = 0; i < 100; i++)
        conn_line(other, "{'document':'o','id':'i%d','action':'update','fields':{'n':%d}}", i, i);
    conn_flush(conn);
    conn_flush(other);
    status_wait(watcher, "pending_ops", 601);
    sql_in(session, "rollback");
    for (int i = 0; i < 501; i++) {
        const json_t *reply = conn_read(conn);
        if (i == 250)
            expect_error(reply, "invalid", "23514");
        else
            expect(reply, "{'ok':true,'id':'i%d'}", i);
    }
    for (int i = 0; i < 100; i++)
        expect(conn_read(other), "{'ok':true,'id':'i%d'}", i);
    expect_sql(env, "600", "select count(*) from foldd.operations");
    expect_sql(env, "t", "select max(batch) < 30 from foldd.ledger");
    expect_sql(env, "1", "select epoch from foldd.leader");
    sql(env, "alter table foldd.operations drop constraint c");
    expect(ask(conn, "{'document':'bad','id':'i250','action':'update','fields':{}}"),
           "{'ok':true}");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* C10: what gathers behind a lock is stored in batches with a cap, and all of it acknowledged */
START_TEST(thirty_thousand_behind_a_lock)
{
    enum { CLIENTS = 50, EACH = 600 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *watcher = conn_open(daemon);
    static struct conn *conns[CLIENTS];
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    for (int c = 0; c < CLIENTS; c++) {
        conns[c] = conn_open(daemon);
        for (int i = 0; i < EACH; i++)
            conn_line(conns[c], "{'document':'d%d','id':'i%d','action':'update','fields':{'n':1}}",
                      c, i);
        conn_flush(conns[c]);
    }
    status_wait(watcher, "pending_ops", CLIENTS * EACH);
    sql_in(session, "rollback");
    for (int c = 0; c < CLIENTS; c++)
        for (int i = 0; i < EACH; i++)
            expect(conn_read(conns[c]), "{'ok':true,'id':'i%d'}", i);
    expect_sql(env, env_printf(env, "%d|%d", CLIENTS * EACH, CLIENTS * EACH),
               "select count(*) || '|' || max(seq) from foldd.operations");
    expect_sql(env, "t",
               "select max(head - before) <= 2000 from (select head, lag(head) over"
               " (order by batch) as before from foldd.ledger) l");
    barrier(watcher);
    expect_sql(env, env_printf(env, "%d", CLIENTS),
               "select count(*) from foldd.documents where revision = %d", EACH);
    env_free(env);
}
END_TEST

/* C13: a receipt outlives the server's crash even where commits are asynchronous by default */
START_TEST(receipts_outlive_a_crash_with_asynchronous_defaults)
{
    enum { ROUNDS = 4, EACH = 200 };
    struct env *env = ENV();
    sql(env, "alter database \"%s\" set synchronous_commit = off", env->database);
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "s", 20, ROUNDS * EACH);
    struct conn *conn = conn_open(daemon);
    for (int round = 0; round < ROUNDS; round++) {
        load_send(load, conn, round * EACH, EACH);
        cluster_stop(SIGKILL);
        cluster_start();
        expect_load(load, 0);
    }
    barrier(conn);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* R9: with an operation too old, every later one of its connection is refused with it, however
 * young: what another connection sends is not */
START_TEST(younger_operations_go_with_the_expired_one)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "db_timeout=2s", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    struct conn *admin = conn_open(daemon);
    expect(ask(admin, "{'request':'pause','what':'ingest'}"), "{'ok':true}");
    int64_t start = now_ms();
    conn_line(conn, "{'document':'d','id':'old','action':'update','fields':{}}");
    conn_flush(conn);
    while (now_ms() < start + 1000)
        expect(ask(admin, "{'request':'status'}"), "{'pending_ops':1}");
    conn_line(conn, "{'document':'d','id':'young','action':'update','fields':{}}");
    conn_flush(conn);
    conn_line(other, "{'document':'d','id':'other','action':'update','fields':{}}");
    conn_flush(other);
    status_wait(admin, "pending_ops", 3);
    expect(conn_read(conn), "{'ok':false,'error':'unavailable','stored':'no','line':1}");
    expect(ask(admin, "{'request':'resume','what':'ingest'}"), "{'ok':true}");
    expect(conn_read(conn), "{'ok':false,'error':'unavailable','stored':'no','line':2}");
    expect(conn_read(other), "{'ok':true,'id':'other'}");
    expect(ask(conn, "{'document':'d','id':'late','action':'update','fields':{}}"), "{'ok':true}");
    expect_sql(env, "other late", "select string_agg(id, ' ' order by seq) from foldd.operations");
    env_free(env);
}
END_TEST

/* R9: as long as the reply "unavailable" is not written, since the client does not read, later
 * operations are refused though the database would take them */
START_TEST(unread_refusal_refuses_what_comes_after)
{
    enum { PINGS = 20000, LATER = 5 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "db_timeout=500ms", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *admin = conn_open(daemon);
    expect(ask(admin, "{'request':'pause','what':'ingest'}"), "{'ok':true}");
    for (int i = 0; i < PINGS; i++)
        conn_line(conn, "{'request':'ping'}");
    conn_line(conn, "{'document':'d','id':'old','action':'update','fields':{}}");
    for (int64_t end = now_ms() + TEST_WAIT_MS; conn->out.len > 0; pause_ms(1)) {
        conn_push_only(conn);
        ck_assert_msg(now_ms() < end, "foldd does not read %d pings", PINGS);
    }
    status_wait(admin, "pending_ops", 1);
    status_wait(admin, "pending_ops", 0);
    expect(ask(admin, "{'request':'resume','what':'ingest'}"), "{'ok':true}");
    for (int i = 0; i < LATER; i++)
        conn_line(conn, "{'document':'d','id':'later%d','action':'update','fields':{}}", i);
    conn_push_only(conn);
    /* What comes behind on another connection is answered: the lines above have been read. */
    for (int i = 0; i < 3; i++)
        expect(ask(admin, "{'document':'d','id':'a%d','action':'update','fields':{}}", i),
               "{'ok':true}");
    for (int i = 0; i < PINGS; i++)
        ck_assert_ptr_nonnull(conn_read_raw(conn, TEST_WAIT_MS));
    for (int i = 0; i <= LATER; i++)
        expect(conn_read(conn), "{'ok':false,'error':'unavailable','stored':'no','line':%d}",
               PINGS + i + 1);
    expect(ask(conn, "{'document':'d','id':'end','action':'update','fields':{}}"), "{'ok':true}");
    expect_sql(env, "a0 a1 a2 end",
               "select string_agg(id, ' ' order by seq) from foldd.operations");
    env_free(env);
}
END_TEST

/* foldd has noticed that it has lost its database; then it says so at every look for so long. */
static void expect_down(struct conn *conn, int ms)
{
    const char *database = "";
    for (int64_t end = now_ms() + TEST_WAIT_MS; strcmp(database, "down") != 0; pause_ms(2)) {
        ck_assert_msg(now_ms() < end, "the database is still %s", database);
        database =
            json_string_value(json_object_get(ask(conn, "{'request':'status'}"), "database"));
    }
    for (int64_t end = now_ms() + ms; now_ms() < end; pause_ms(20))
        expect(ask(conn, "{'request':'status'}"), "{'ok':true,'database':'down'}");
}

/* F14: with fewer connections than workers it works, says so, and takes what comes free; with none
 * it waits, and its log stays short */
START_TEST(too_few_connections)
{
    struct env *env = ENV();
    const char *role = env_printf(env, "r_%s", env->name);
    sql(env, "create role %s login connection limit 6; grant create on database \"%s\" to %s", role,
        env->database, role);
    struct daemon *daemon = daemon_start(
        env,
        env_printf(env, "database=host=%s user=%s dbname=%s", PQhost(env->db), role, env->database),
        "workers=8", NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "c", 40, 4000);
    load_send(load, conn, 0, 1000);
    barrier(conn);
    expect(ask(conn, "{'request':'status'}"), "{'workers':2,'workers_wanted':8,'lag':0}");
    sql(env, "alter role %s connection limit 0", role);
    sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where usename = '%s'", role);
    load_queue(load, conn, 1000, 1000);
    conn_flush(conn);
    struct conn *watcher = conn_open(daemon);
    expect_down(watcher, 1500);
    ck_assert(json_is_string(json_object_get(watcher->json, "database_error")));
    sql(env, "alter role %s connection limit 100", role);
    ck_assert_int_eq(load_replies(load, conn, 1000, 1000), 1000);
    status_wait(conn, "workers", 8);
    load_send(load, conn, 2000, 2000);
    barrier(conn);
    expect_load(load, 0);
    char *log = file_read(daemon->log);
    int lines = 0;
    for (const char *c = log; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_int_lt(lines, 60);
    free(log);
    expect_model(env);
    load_free(load);
    daemon_stop(daemon);
    sql(env, "drop owned by %s; drop role %s", role, role);
    env_free(env);
}
END_TEST

/* F10: the database is dropped under foldd and made anew, empty: that is no state to go on from
 * silently. It ends and says so; started again, it begins */
START_TEST(database_dropped_and_made_anew)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1}}"),
           "{'ok':true}");
    barrier(conn);
    PQfinish(env->db);
    env->db = NULL;
    char *base = cluster_conninfo("postgres");
    PGconn *postgres = PQconnectdb(base);
    sql_in(postgres, "drop database \"%s\" with (force)", env->database);
    conn_line(conn, "{'document':'d','id':'y','action':'update','fields':{'n':2}}");
    conn_flush(conn);
    expect_down(conn_open(daemon), 400);
    sql_in(postgres, "create database \"%s\" template template0 encoding 'UTF8'", env->database);
    PQfinish(postgres);
    free(base);
    daemon_expect_refusal(daemon, "gone");
    daemon_again(daemon);
    expect(ask(conn_open(daemon), "{'document':'d','id':'x','action':'update','fields':{'n':1},"
                                  "'ack':'folded'}"),
           "{'ok':true,'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* F19: 30 MB of large operations in one pipeline; _i: as it is, with one that PostgreSQL refuses,
 * with the connection killed on the way */
START_TEST(large_operations_in_a_pipeline)
{
    enum { OPS = 1500, BYTES = 20000, BAD = 700 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    char *text = mem_alloc(BYTES + 1);
    uint64_t state = 3;
    for (int i = 0; i < BYTES; i++)
        text[i] = (char)('a' + next_random(&state) % 26);
    text[BYTES] = '\0';
    if (_i == 1)
        sql(env, "alter table foldd.operations add constraint c check (id <> 'i%d')", BAD);
    for (int i = 0; i < OPS; i++)
        conn_line(conn, "{'document':'d%d','id':'i%d','action':'create','fields':{'t':'%s'}}",
                  i % 50, i, text);
    if (_i == 2) {
        conn_flush_part(conn, 50);
        expect_sql(env, "1",
                   "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname ="
                   " current_database() and application_name = 'foldd ingest'");
    }
    conn_flush(conn);
    for (int i = 0; i < OPS; i++) {
        const json_t *reply = conn_read(conn);
        if (_i == 1 && i == BAD)
            expect_error(reply, "invalid", "23514");
        else
            expect(reply, "{'ok':true,'id':'i%d'}", i);
    }
    barrier(conn);
    expect_sql(env, env_printf(env, "%d", _i == 1 ? OPS - 1 : OPS),
               "select count(*) from foldd.operations where length(fields ->> 't') = %d", BYTES);
    expect_sql(env, "50|0",
               "select count(*) || '|' || (select count(*) from foldd.parked)"
               " from foldd.documents");
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    free(text);
    env_free(env);
}
END_TEST

Suite *faults_suite(void)
{
    Suite *suite = suite_create("faults");
    TCase *commits = tcase_create("commits");
    tcase_set_timeout(commits, 120);
    tcase_add_test(commits, warned_commit_is_no_receipt);
    tcase_add_test(commits, retry_while_the_outcome_is_unknown);
    tcase_add_test(commits, row_that_postgresql_refuses_fails_alone);
    tcase_add_test(commits, thirty_thousand_behind_a_lock);
    tcase_add_test(commits, receipts_outlive_a_crash_with_asynchronous_defaults);
    tcase_add_loop_test(commits, large_operations_in_a_pipeline, 0, 3);
    suite_add_tcase(suite, commits);
    TCase *unavailable = tcase_create("unavailable");
    tcase_set_timeout(unavailable, 120);
    tcase_add_test(unavailable, younger_operations_go_with_the_expired_one);
    tcase_add_test(unavailable, unread_refusal_refuses_what_comes_after);
    tcase_add_test(unavailable, too_few_connections);
    tcase_add_test(unavailable, database_dropped_and_made_anew);
    suite_add_tcase(suite, unavailable);
    return suite;
}
