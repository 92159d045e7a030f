/* SPDX-License-Identifier: MIT */
/* Two daemons on one database: who hangs is succeeded, who lives is not; and sessions that say
 * nothing any more. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "model.h"
#include "suites.h"

/* Another foldd on the env's database; lease_timeout and takeover_timeout are half a second. */
static struct daemon *start_second(struct env *env, const char *name)
{
    const char *socket = env_path(env, name);
    const char *args[] = {"--set", env_printf(env, "database=%s", env->conninfo),
                          "--set", env_printf(env, "socket=%s", socket),
                          "--set", "lease_timeout=500ms",
                          "--set", "takeover_timeout=500ms",
                          NULL};
    struct daemon *daemon = daemon_spawn(env, socket, args);
    daemon_wait_ready(daemon);
    return daemon;
}

static struct daemon *start_first(struct env *env)
{
    return daemon_start(env, "lease_timeout=500ms", "takeover_timeout=500ms", "db_timeout=5s",
                        NULL);
}

static void wait_role(struct daemon *daemon, const char *role)
{
    struct conn *conn = conn_open(daemon);
    int64_t end = now_ms() + TEST_WAIT_MS;
    for (;;) {
        const json_t *status = ask(conn, "{'request':'status'}");
        if (strcmp(json_string_value(json_object_get(status, "role")), role) == 0)
            break;
        ck_assert_msg(now_ms() < end, "it does not become %s", role);
        pause_ms(20);
    }
    conn_close(conn);
}

static int64_t epoch(struct env *env)
{
    return sql_int(env, "select epoch from foldd.leader");
}

/* F8, R5, R2: a leader that is stopped in the middle of its work is succeeded. When it wakes up it
 * writes nothing, and its clients get definite answers. */
START_TEST(leader_that_hangs_is_succeeded)
{
    struct env *env = ENV();
    struct daemon *first = start_first(env);
    struct conn *conn = conn_open(first);
    struct load *load = load_new(env, "h", 50, 2000);
    load_send(load, conn, 0, 1000);
    struct daemon *second = start_second(env, "second.sock");
    wait_role(second, "standby");
    load_queue(load, conn, 1000, 500);
    conn_flush_part(conn, 50);
    daemon_signal(first, SIGSTOP);
    wait_role(second, "leader");
    daemon_expect_log(second, "leader_hangs");
    struct conn *other = conn_open(second);
    load_send(load, other, 0, 2000);
    daemon_signal(first, SIGCONT);
    wait_role(first, "standby");
    expect_error(ask(conn_open(first), "{'document':'x','action':'delete'}"), "standby", "leads");
    expect_sql(env, "2000", "select count(*) from foldd.operations");
    barrier(other);
    expect_load(load, 0);
    expect_model(env);
    /* It has not been harmed: it can succeed in its turn. */
    daemon_kill(second);
    wait_role(first, "leader");
    load_free(load);
    env_free(env);
}
END_TEST

/* What had been sent to the one that hung is answered when it wakes up, whatever became of it. */
START_TEST(clients_of_a_leader_that_hung_are_answered)
{
    struct env *env = ENV();
    struct daemon *first = start_first(env);
    struct conn *conn = conn_open(first);
    PGconn *session = sql_session(env);
    ask(conn, "{'document':'d','id':'a','action':'create','fields':{}}");
    struct daemon *second = start_second(env, "second.sock");
    wait_role(second, "standby");
    /* Its batch waits for the table, its later operations for the batch. */
    sql_in(session, "begin; lock table foldd.operations in share mode");
    conn_line(conn, "{'document':'d','id':'b','action':'update','fields':{'b':1}}");
    conn_flush(conn);
    sql_wait(env, "1",
             "select count(*) from pg_locks where not granted and relation ="
             " 'foldd.operations'::regclass");
    conn_line(conn, "{'document':'d','id':'c','action':'update','fields':{'c':1}}");
    conn_flush(conn);
    daemon_signal(first, SIGSTOP);
    sql_wait(env, "0",
             "select count(*) from pg_locks where not granted and relation ="
             " 'foldd.operations'::regclass");
    sql_in(session, "rollback");
    wait_role(second, "leader");
    daemon_signal(first, SIGCONT);
    expect_error(conn_read(conn), "unavailable", "");
    expect_raw(conn, "stored", "\"unknown\"");
    expect_error(conn_read(conn), "unavailable", "");
    expect_sql(env, "1", "select count(*) from foldd.operations");
    struct conn *other = conn_open(second);
    expect(ask(other, "{'document':'d','id':'b','action':'update','fields':{'b':1}}"),
           "{'ok':true}");
    env_free(env);
}
END_TEST

/* F2: one whose statements all wait for locks is alive, and hears every challenge. */
START_TEST(leader_that_waits_is_not_deposed)
{
    struct env *env = ENV();
    struct daemon *first = daemon_start(env, "lease_timeout=500ms", "takeover_timeout=500ms", NULL);
    struct conn *conn = conn_open(first);
    PGconn *session = sql_session(env);
    ask(conn, "{'document':'d','action':'create','fields':{}}");
    barrier(conn);
    struct daemon *second = start_second(env, "second.sock");
    wait_role(second, "standby");
    int64_t before = epoch(env);
    sql_in(session, "begin; lock table foldd.operations, foldd.documents, foldd.cursor,"
                    " foldd.parked in share mode");
    conn_line(conn, "{'document':'d','action':'update','fields':{'a':1}}");
    conn_flush(conn);
    /* Four challenges are out and answered. */
    for (int i = 0; i < 4; i++) {
        const char *asked = env_keep(
            env, mem_strdup(sql_text(env, "select coalesce(max(asked_at), '-infinity') from"
                                          " foldd.challenges")));
        sql_wait(env, "t", "select bool_or(answered and asked_at > '%s') from foldd.challenges",
                 asked);
    }
    sql_in(session, "rollback");
    expect(conn_read(conn), "{'ok':true}");
    ck_assert_int_eq(epoch(env), before);
    char *log = file_read(second->log);
    ck_assert_ptr_null(strstr(log, "leader_hangs"));
    free(log);
    env_free(env);
}
END_TEST

/* What a term before has left half-sent keeps the writers' lock; here a session that stands for it.
 */
START_TEST(writers_that_hang_are_ended)
{
    struct env *env = ENV();
    daemon_stop(start_first(env));
    PGconn *session = sql_session(env);
    sql_in(session, "begin; select pg_advisory_xact_lock_shared(1718578276, 1)");
    struct daemon *first = start_second(env, "second.sock");
    wait_role(first, "leader");
    daemon_expect_log(first, "writers_hang");
    PGresult *result = PQexec(session, "select 1");
    ck_assert_int_eq(PQstatus(session), CONNECTION_BAD);
    PQclear(result);
    env_free(env);
}
END_TEST

/* foldd.repair() has the leader's lock, too, and takes its time. */
START_TEST(repair_is_not_ended)
{
    struct env *env = ENV();
    daemon_stop(start_first(env));
    PGconn *session = sql_session(env);
    sql_wait(env, "0", "select count(*) from pg_locks where locktype = 'advisory'");
    sql_in(session, "begin; select foldd.repair()");
    struct daemon *daemon = start_second(env, "second.sock");
    daemon_wait_log(daemon, "sessions_ended count=0");
    sql_in(session, "commit");
    wait_role(daemon, "leader");
    env_free(env);
}
END_TEST

/* The leader is killed under load again and again while another stands by: nothing is lost, nothing
 * is there twice. LARGE=1: 50 times. */
START_TEST(leaders_killed_under_load)
{
    const int kills = getenv("LARGE") == NULL ? 6 : 50;
    enum { STEP = 300 };
    struct env *env = ENV();
    struct daemon *leader = start_first(env);
    struct daemon *standby = start_second(env, "second.sock");
    struct load *load = load_new(env, "k", 40, (kills + 1) * STEP);
    for (int i = 0; i < kills; i++) {
        struct conn *conn = conn_open(leader);
        load_queue(load, conn, i * STEP, STEP);
        conn_flush_part(conn, 30 + 70 * i / kills);
        daemon_kill(leader);
        load_replies(load, conn, i * STEP, STEP);
        conn_close(conn);
        wait_role(standby, "leader");
        conn = conn_open(standby);
        load_send(load, conn, i * STEP, STEP);
        conn_close(conn);
        leader = standby;
        standby = start_second(env, i % 2 == 0 ? "foldd.sock" : "second.sock");
    }
    struct conn *conn = conn_open(leader);
    load_send(load, conn, kills * STEP, STEP);
    barrier(conn);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* Stop a process until resume(): a child sends it on its way then, and also if this test dies. */
static int suspend(pid_t process)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        char nothing;
        close(ends[1]);
        while (read(ends[0], &nothing, 1) > 0)
            continue;
        kill(process, SIGCONT);
        _exit(0);
    }
    close(ends[0]);
    ck_assert_int_eq(kill(process, SIGSTOP), 0);
    return ends[1];
}

static void resume(int handle)
{
    close(handle);
}

/* F11: the server, or the network, says nothing any more on one connection; _i chooses which. */
START_TEST(silent_sessions_are_given_up)
{
    static const char *const names[] = {"foldd reader", "foldd control", "foldd worker"};
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "db_timeout=1s", "fold_timeout=500ms", "workers=1",
                                         "lease_timeout=500ms", "takeover_timeout=500ms", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    sql_wait(env, "1", "select seq from foldd.cursor");
    int64_t before = epoch(env);
    pid_t backend = (pid_t)sql_int(env,
                                   "select pid from pg_stat_activity where application_name = '%s'"
                                   " and datname = current_database()",
                                   names[_i]);
    ck_assert_int_gt(backend, 0);
    int stopped = suspend(backend);
    conn_line(conn, "{'document':'d','action':'update','fields':{'a':1},'ack':'folded'}");
    conn_flush(conn);
    struct conn *asking = conn_open(daemon);
    conn_line(asking, "{'request':'get','document':'d'}");
    conn_flush(asking);
    struct conn *other = conn_open(daemon);
    while (epoch(env) == before)
        expect(ask(other, "{'request':'status'}"), "{'ok':true}");
    expect(conn_read(conn), "{'outcome':'folded'}");
    /* Its time may be over with the session's. */
    ck_assert_ptr_nonnull(conn_read(asking));
    expect(ask(asking, "{'request':'get','document':'d'}"), "{'fields':{'a':1}}");
    resume(stopped);
    env_free(env);
}
END_TEST

Suite *takeover_suite(void)
{
    Suite *suite = suite_create("takeover");
    TCase *tcase = tcase_create("takeover");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, leader_that_hangs_is_succeeded);
    tcase_add_test(tcase, clients_of_a_leader_that_hung_are_answered);
    tcase_add_test(tcase, leader_that_waits_is_not_deposed);
    tcase_add_test(tcase, writers_that_hang_are_ended);
    tcase_add_test(tcase, repair_is_not_ended);
    tcase_add_test(tcase, leaders_killed_under_load);
    tcase_add_loop_test(tcase, silent_sessions_are_given_up, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
