/* SPDX-License-Identifier: MIT */
/* Tasks that are met, ended or robbed at an awkward point (design.md 6, 7; R11, R12, R16). */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <signal.h>
#include <sys/stat.h>

static void store(struct conn *conn, const char *document, const char *id, int n)
{
    expect(ask(conn, "{'document':'%s','id':'%s','action':'update','fields':{'n':%d}}", document,
               id, n),
           "{'ok':true}");
}

/* The fold of d stands at the point, which the update that is under way has reached. */
enum point { BEFORE_READING, BEFORE_WRITING, AFTER_WRITING, AFTER_COMMIT, POINTS };

static PGconn *stand_at(struct env *env, enum point point)
{
    PGconn *session = sql_session(env);
    if (point == BEFORE_READING)
        sql_in(session, "begin; lock table foldd.skipped in access exclusive mode");
    else
        gate_make(env, "^d$");
    if (point == AFTER_WRITING)
        sql(env, "drop trigger gate on foldd.documents; create trigger gate after insert or update"
                 " on foldd.documents for each row when (new.id = 'd') execute function"
                 " public.gate()");
    return session;
}

static void wait_standing(struct env *env, enum point point)
{
    if (point == BEFORE_READING)
        sql_wait(env, "t",
                 "select count(*) > 0 from pg_locks where not granted and relation ="
                 " 'foldd.skipped'::regclass");
    else
        sql_wait(env, "1",
                 "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and"
                 " application_name = 'foldd worker' and datname = current_database()");
}

/* A2: an update that comes while the task of its document is at any point is not lost */
START_TEST(update_at_each_point_of_a_fold)
{
    enum point point = (enum point)_i;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    store(conn, "d", "before", 0);
    barrier(conn);
    PGconn *session = stand_at(env, point);
    store(conn, "d", "under way", 1);
    wait_standing(env, point);
    if (point == AFTER_COMMIT) {
        daemon_signal(daemon, SIGSTOP);
        gate_open(env);
        sql_wait(env, "1", "select fields ->> 'n' from foldd.documents");
    }
    conn_line(conn, "{'document':'d','id':'late','action':'update','fields':{'n':2}}");
    conn_line(conn, "{'document':'e','id':'late','action':'update','fields':{'n':2}}");
    conn_flush(conn);
    if (point == AFTER_COMMIT)
        daemon_signal(daemon, SIGCONT);
    expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true}");
    if (point == BEFORE_READING)
        sql_in(session, "rollback");
    else if (point != AFTER_COMMIT)
        gate_open(env);
    expect(ask(conn, "{'request':'await','document':'d','id':'late','timeout_ms':5000}"),
           "{'outcome':'folded'}");
    barrier(conn);
    expect_sql(env, "2|3",
               "select (fields ->> 'n') || '|' || revision from foldd.documents"
               " where id = 'd'");
    expect_model(env);
    env_free(env);
}
END_TEST

/* A5: somebody takes the parked row away under a waiting document, or under its retry (_i) */
START_TEST(parked_row_taken_away)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    store(conn, "d", "before", 0);
    store(conn, "e", "before", 0);
    barrier(conn);
    poison_make(env, "d");
    store(conn, "d", "bad", 1);
    sql_wait(env, "1", "select count(*) from foldd.parked");
    PGconn *session = sql_session(env);
    if (_i == 0) {
        sql_in(session, "delete from foldd.parked");
        poison_heal(env);
        expect_error(ask(conn, "{'request':'retry','document':'d'}"), "not_found", "not parked");
    } else {
        poison_heal(env);
        gate_make(env, "^d$");
        expect(ask(conn, "{'request':'retry','document':'d'}"), "{'ok':true}");
        sql_wait(env, "t",
                 "select count(*) > 0 from pg_stat_activity where query like '%%fold_parked%%' and"
                 " state = 'active' and pid <> pg_backend_pid()");
        ck_assert(PQsendQuery(session, "truncate foldd.parked") == 1);
        sql_wait(env, "1",
                 "select count(*) from pg_locks where not granted and relation ="
                 " 'foldd.parked'::regclass");
        store(conn, "e", "meanwhile", 1);
        gate_open(env);
        PGresult *result = PQgetResult(session);
        ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(session));
        PQclear(result);
    }
    store(conn, "d", "after", 2);
    status_wait(conn, "parked", 0);
    barrier(conn);
    expect(ask(conn, "{'request':'await','document':'d','id':'after','timeout_ms':0}"),
           "{'outcome':'folded'}");
    expect_model(env);
    ck_assert(daemon_runs(daemon));
    env_free(env);
}
END_TEST

/* A6: nothing that a killed foldd was at keeps its successor waiting */
START_TEST(killed_with_busy_workers)
{
    enum { WORKERS = 8, QUEUED = 1000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "workers=8", NULL);
    struct conn *conn = conn_open(daemon);
    store(conn, "first", "x", 0);
    barrier(conn);
    status_wait(conn, "workers", WORKERS);
    gate_make(env, "^w");
    for (int i = 0; i < WORKERS; i++) {
        store(conn, env_printf(env, "w%d", i), "x", i);
        status_wait(conn, "running", i + 1);
    }
    struct load *load = load_new(env, "q", QUEUED, QUEUED);
    load_send(load, conn, 0, QUEUED);
    status_wait(conn, "queued", QUEUED);
    daemon_kill(daemon);
    gate_open(env);
    int64_t start = now_ms();
    daemon_again(daemon);
    conn = conn_open(daemon);
    barrier(conn);
    ck_assert_int_lt(now_ms() - start, 5000);
    expect(ask(conn, "{'request':'status'}"), "{'parked':0,'queued':0,'running':0,'lag':0}");
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* A8: a task that ends while foldd stops, well or badly (_i), is applied once or tried again */
START_TEST(terminated_while_a_task_ends)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    store(conn, "d", "before", 0);
    barrier(conn);
    gate_make(env, "^d$");
    if (_i == 1)
        poison_make(env, "d"); /* fires after the gate, by its name */
    store(conn, "d", "under way", 1);
    status_wait(conn, "running", 1);
    daemon_signal(daemon, SIGTERM);
    for (int64_t end = now_ms() + TEST_WAIT_MS; exists(daemon->socket); pause_ms(2))
        ck_assert(now_ms() < end);
    gate_open(env);
    ck_assert_int_eq(daemon_wait_exit(daemon, 10000), 0);
    expect_sql(env, _i == 0 ? "1|2" : "0|1",
               "select (fields ->> 'n') || '|' || revision from foldd.documents");
    daemon_again(daemon);
    conn = conn_open(daemon);
    if (_i == 1) {
        sql_wait(env, "1", "select count(*) from foldd.parked");
        status_wait(conn, "running", 0);
        expect(ask(conn, "{'request':'status'}"), "{'parked':1,'lag':0}");
        poison_heal(env);
        expect(ask(conn, "{'request':'retry'}"), "{'ok':true}");
        sql_wait(env, "0", "select count(*) from foldd.parked");
    }
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* R16: who locks a table that every fold needs, whichever it is, gets nobody parked */
START_TEST(locked_side_table_parks_nobody)
{
    static const char *const locks[] = {
        "begin; lock table foldd.outcomes in share mode",
        "begin; create index on foldd.outcomes (outcome)",
        "begin; lock table foldd.outcomes in access exclusive mode",
        "begin; lock table foldd.skipped in access exclusive mode",
    };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=200ms", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'gone','action':'delete'}"), "{'ok':true}");
    store(conn, "d", "before", 0);
    barrier(conn);
    PGconn *session = sql_session(env);
    sql_in(session, "%s", locks[_i]);
    store(conn, "gone", "ignored", 1);
    store(conn, "d", "folded", 1);
    sql_stays(env, 1000, "0", "select count(*) from foldd.parked");
    sql_in(session, "rollback");
    expect(ask(conn, "{'request':'await','document':'gone','id':'ignored'}"),
           "{'outcome':'ignored'}");
    barrier(conn);
    expect_sql(env, "0", "select count(*) from foldd.parked");
    expect_model(env);
    env_free(env);
}
END_TEST

/* Many documents, parked, whose retries all are due and each take long. */
static void park_slow(struct env *env, struct conn *conn, int count)
{
    sql(env, "create function public.poison() returns trigger language plpgsql as"
             " $$ begin raise exception 'poisoned'; end $$;"
             "create trigger poison before insert or update on foldd.documents for each row"
             " when (new.id like 'p%%') execute function public.poison()");
    for (int i = 0; i < count; i++)
        conn_line(conn, "{'document':'p%d','id':'x','action':'update','fields':{}}", i);
    conn_flush(conn);
    for (int i = 0; i < count; i++)
        expect(conn_read(conn), "{'ok':true}");
    /* R16: they are blamed only while others fold. */
    for (int64_t end = now_ms() + TEST_WAIT_MS;
         sql_int(env, "select count(*) from foldd.parked") < count;) {
        ck_assert(now_ms() < end);
        expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
               "{'outcome':'folded'}");
    }
    sql(env, "create or replace function public.poison() returns trigger language plpgsql as"
             " $$ begin perform pg_sleep(0.03); raise exception 'poisoned'; end $$;"
             "update foldd.parked set attempts = 1");
    expect(ask(conn, "{'request':'retry'}"), "{'ok':true}");
}

/* What keeps failing does not keep others waiting: one worker at most retries, and between two
 * retries come tasks; _i: with one worker, with four */
START_TEST(retries_do_not_go_ahead_of_tasks)
{
    enum { PARKED = 60, FRESH = 15 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, _i == 0 ? "workers=1" : "workers=4", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *fresh = conn_open(daemon);
    store(conn, "d", "before", 0);
    barrier(conn);
    park_slow(env, conn, PARKED);
    for (int i = 0; i < FRESH; i++) {
        expect(ask(fresh, "{'document':'d','action':'update','fields':{'n':%d},'ack':'folded'}", i),
               "{'outcome':'folded'}");
        expect_sql(env, "t",
                   "select count(*) <= 1 from pg_stat_activity where state = 'active' and"
                   " query like '%%fold_parked%%' and pid <> pg_backend_pid()");
    }
    expect_sql(env, "t", "select count(*) filter (where attempts < 2) >= %d from foldd.parked",
               PARKED - 2 * FRESH);
    sql_wait(env, "0", "select count(*) from foldd.parked where attempts < 2");
    poison_heal(env);
    expect(ask(conn, "{'request':'retry'}"), "{'ok':true}");
    sql_wait(env, "0", "select count(*) from foldd.parked");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

Suite *tasks_suite(void)
{
    Suite *suite = suite_create("tasks");
    TCase *ends = tcase_create("ends");
    tcase_set_timeout(ends, 120);
    tcase_add_loop_test(ends, update_at_each_point_of_a_fold, 0, POINTS);
    tcase_add_loop_test(ends, parked_row_taken_away, 0, 2);
    tcase_add_test(ends, killed_with_busy_workers);
    tcase_add_loop_test(ends, terminated_while_a_task_ends, 0, 2);
    suite_add_tcase(suite, ends);
    TCase *fair = tcase_create("fair");
    tcase_set_timeout(fair, 120);
    tcase_add_loop_test(fair, locked_side_table_parks_nobody, 0, 4);
    tcase_add_loop_test(fair, retries_do_not_go_ahead_of_tasks, 0, 2);
    suite_add_tcase(suite, fair);
    return suite;
}
