/* SPDX-License-Identifier: MIT */
/* foldd --standalone (design.md 10; R27). The env's own database is not used here. */
#include "suites.h"

#include "load.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number in the first line of DIR/pg/postmaster.pid; 0 if there is none. */
static pid_t postmaster(struct env *env, const char *dir)
{
    char *text = file_read(env_printf(env, "%s/pg/postmaster.pid", dir));
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    free(text);
    return pid;
}

/* Given: a session by DIR/conninfo. */
static PGconn *connect_standalone(struct env *env, const char *dir)
{
    char *conninfo = file_read(env_printf(env, "%s/conninfo", dir));
    conninfo[strcspn(conninfo, "\n")] = '\0';
    PGconn *db = PQconnectdb(conninfo);
    ck_assert_msg(PQstatus(db) == CONNECTION_OK, "%s", PQerrorMessage(db));
    free(conninfo);
    return db;
}

static const char *value(struct env *env, const char *dir, const char *query)
{
    PGconn *db = connect_standalone(env, dir);
    PGresult *result = PQexec(db, query);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(db));
    const char *text = env_keep(env, mem_strdup(PQgetvalue(result, 0, 0)));
    PQclear(result);
    PQfinish(db);
    return text;
}

static void store(struct daemon *daemon, int n)
{
    struct conn *conn = conn_open(daemon);
    expect(ask(conn,
               "{'document':'d','id':'i%d','action':'update','fields':{'n%d':%d},"
               "'ack':'folded'}",
               n, n, n),
           "{'ok':true,'outcome':'folded'}");
    conn_close(conn);
}

static void expect_revision(struct daemon *daemon, int revision)
{
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'get','document':'d'}"), "{'ok':true,'revision':%d}", revision);
    conn_close(conn);
}

static void expect_mode(struct env *env, const char *dir, const char *name, mode_t mode)
{
    struct stat st;
    ck_assert_msg(stat(env_printf(env, "%s/%s", dir, name), &st) == 0, "no %s", name);
    ck_assert_msg((st.st_mode & 0777) == mode, "%s has mode %o", name,
                  (unsigned)(st.st_mode & 0777));
}

START_TEST(folder_is_made_and_kept)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    struct daemon *daemon = daemon_start_standalone(env, dir);
    store(daemon, 1);
    expect_mode(env, dir, "conninfo", 0600);
    expect_mode(env, dir, "foldd.sock", 0660);
    struct stat st;
    ck_assert(stat(env_printf(env, "%s/postgres.log", dir), &st) == 0);
    ck_assert(stat(env_printf(env, "%s/pg/PG_VERSION", dir), &st) == 0);
    ck_assert_msg(geteuid() != 0 || st.st_uid != 0, "PostgreSQL's files belong to root");
    ck_assert_str_eq(value(env, dir, "select fields::text from foldd.documents"), "{\"n1\": 1}");
    ck_assert_str_eq(value(env, dir, "show listen_addresses"), "");
    ck_assert_str_eq(value(env, dir, "show fsync"), "on");
    ck_assert_str_eq(value(env, dir, "show synchronous_commit"), "on");
    ck_assert_str_eq(value(env, dir, "show full_page_writes"), "on");
    for (int i = 2; i < 5; i++) {
        daemon_stop(daemon);
        ck_assert_int_eq(processes_under(dir), 0);
        daemon_again(daemon);
        store(daemon, i);
        expect_revision(daemon, i);
    }
    env_free(env);
}
END_TEST

/* --set works with --standalone too */
START_TEST(settings_apply)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    const char *args[] = {"--standalone", dir, "--set", "workers=2", NULL};
    struct daemon *daemon = daemon_spawn(env, env_printf(env, "%s/foldd.sock", dir), args);
    daemon_wait_ready(daemon);
    status_wait(conn_open(daemon), "workers", 2);
    env_free(env);
}
END_TEST

START_TEST(second_on_the_same_folder_refuses)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    struct daemon *daemon = daemon_start_standalone(env, dir);
    pid_t pid = postmaster(env, dir);
    const char *args[] = {"--standalone", dir, NULL};
    for (int i = 0; i < 3; i++) {
        daemon_expect_refusal(daemon_spawn(env, daemon->socket, args), dir);
        store(daemon, i);
    }
    ck_assert_int_eq(postmaster(env, dir), pid);
    env_free(env);
}
END_TEST

/* R27; _i: foldd killed, the postmaster killed, both */
START_TEST(killed_and_going_on)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    struct daemon *daemon = daemon_start_standalone(env, dir);
    for (int round = 0; round < 4; round++) {
        store(daemon, round);
        pid_t pid = postmaster(env, dir);
        ck_assert_int_gt(pid, 1);
        if (_i != 0)
            ck_assert(kill(pid, SIGKILL) == 0);
        if (_i != 1) {
            daemon_kill(daemon);
            daemon_again(daemon);
        }
        /* The killed one's sessions may still serve this (R27). */
        store(daemon, 100 + round);
        for (int64_t end = now_ms() + TEST_WAIT_MS; _i != 0 && postmaster(env, dir) == pid;
             pause_ms(5))
            ck_assert_msg(now_ms() < end, "PostgreSQL was not started again");
        store(daemon, 200 + round);
        expect_revision(daemon, 3 * (round + 1));
    }
    env_free(env);
}
END_TEST

/* The postmaster killed under load: every acknowledgement holds, one row for each */
START_TEST(postmaster_killed_under_load)
{
    enum { ROUNDS = 3, EACH = 5000 };
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    struct daemon *daemon = daemon_start_standalone(env, dir);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "p", 50, ROUNDS * EACH);
    for (int round = 0; round < ROUNDS; round++) {
        load_queue(load, conn, round * EACH, EACH);
        conn_flush_part(conn, 33);
        ck_assert(kill(postmaster(env, dir), SIGKILL) == 0);
        conn_flush(conn);
        ck_assert_int_eq(load_replies(load, conn, round * EACH, EACH), EACH);
    }
    barrier(conn);
    expect(ask(conn, "{'request':'status'}"), "{'lag':0,'parked':0}");
    ck_assert_str_eq(value(env, dir,
                           "select count(*) || '|' || count(distinct (document, id))"
                           " from foldd.operations"),
                     env_printf(env, "%d|%d", ROUNDS * EACH, ROUNDS * EACH));
    load_free(load);
    env_free(env);
}
END_TEST

/* A cluster that foldd did not make is refused and stays as it is; _i: a folder that is none, too
 */
START_TEST(foreign_cluster_is_left_alone)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    const char *pg = env_printf(env, "%s/pg", dir);
    ck_assert(mkdir(dir, 0777) == 0 && chmod(dir, 0777) == 0);
    if (_i == 0) {
        const char *initdb =
            env_printf(env, "%s/initdb -D %s -U someone --no-sync", cluster_bindir(), pg);
        const char *command =
            geteuid() == 0 ? env_printf(env, "runuser -u postgres -- %s", initdb) : initdb;
        const char *argv[] = {"sh", "-c", command, NULL};
        ck_assert_int_eq(run_program(env_path(env, "initdb.log"), argv), 0);
    } else {
        ck_assert(mkdir(pg, 0700) == 0);
        file_write(env_printf(env, "%s/letter", pg), "precious");
    }
    const char *list = env_printf(env, "find %s -printf '%%p %%s %%T@ %%u %%m\\n' | sort", pg);
    const char *argv[] = {"sh", "-c", list, NULL};
    ck_assert_int_eq(run_program(env_path(env, "before"), argv), 0);
    const char *args[] = {"--standalone", dir, NULL};
    daemon_expect_refusal(daemon_spawn(env, NULL, args), pg);
    ck_assert_int_eq(run_program(env_path(env, "after"), argv), 0);
    char *before = file_read(env_path(env, "before"));
    char *after = file_read(env_path(env, "after"));
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    env_free(env);
}
END_TEST

/* Started by root: a folder that PostgreSQL's user cannot reach is refused by name */
START_TEST(unreachable_folder_is_named)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    const char *closed = env_path(env, "closed");
    ck_assert(mkdir(closed, 0700) == 0);
    const char *args[] = {"--standalone", env_printf(env, "%s/data", closed), NULL};
    struct daemon *daemon = daemon_spawn(env, NULL, args);
    daemon_expect_refusal(daemon, closed);
    daemon_expect_log(daemon, "postgres");
    env_free(env);
}
END_TEST

START_TEST(impossible_folders_are_named)
{
    struct env *env = ENV();
    const char *file = env_path(env, "file");
    file_write(file, "precious");
    const char *args[] = {"--standalone", file, NULL};
    daemon_expect_refusal(daemon_spawn(env, NULL, args), file);
    const char *bindir[] = {"--standalone", env_path(env, "data"), "--set",
                            "pg_bindir=/nonexistent", NULL};
    daemon_expect_refusal(daemon_spawn(env, NULL, bindir), "/nonexistent");
    env_free(env);
}
END_TEST

/* SIGTERM ends both, idle and under load; also while the cluster is being made (_i = 2) */
START_TEST(terminated_with_its_cluster)
{
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    const char *args[] = {"--standalone", dir, NULL};
    struct daemon *daemon = daemon_spawn(env, env_printf(env, "%s/foldd.sock", dir), args);
    struct stat st;
    if (_i == 2) {
        const char *made = env_printf(env, "%s/pg", dir);
        for (int64_t end = now_ms() + TEST_WAIT_MS; stat(made, &st) != 0; pause_ms(1))
            ck_assert(now_ms() < end);
    } else {
        daemon_wait_ready(daemon);
        store(daemon, 0);
    }
    if (_i == 1) {
        struct load *load = load_new(env, "t", 10, 20000);
        struct conn *conn = conn_open(daemon);
        load_queue(load, conn, 0, 20000);
        conn_push_only(conn);
        load_free(load);
    }
    daemon_signal(daemon, SIGTERM);
    int code = daemon_wait_exit(daemon, 25000);
    ck_assert_msg(code == 0 || (_i == 2 && code < 128), "code %d", code);
    for (int64_t end = now_ms() + 5000; processes_under(dir) > 0; pause_ms(5))
        ck_assert_msg(now_ms() < end, "PostgreSQL still runs");
    daemon_again(daemon);
    store(daemon, 1);
    env_free(env);
}
END_TEST

Suite *standalone_suite(void)
{
    Suite *suite = suite_create("standalone");
    TCase *life = tcase_create("life");
    tcase_set_timeout(life, 120);
    tcase_add_test(life, folder_is_made_and_kept);
    tcase_add_test(life, settings_apply);
    tcase_add_loop_test(life, killed_and_going_on, 0, 3);
    tcase_add_test(life, postmaster_killed_under_load);
    tcase_add_loop_test(life, terminated_with_its_cluster, 0, 3);
    suite_add_tcase(suite, life);
    TCase *refusals = tcase_create("refusals");
    tcase_set_timeout(refusals, 120);
    tcase_add_test(refusals, second_on_the_same_folder_refuses);
    tcase_add_loop_test(refusals, foreign_cluster_is_left_alone, 0, 2);
    tcase_add_test(refusals, unreachable_folder_is_named);
    tcase_add_test(refusals, impossible_folders_are_named);
    suite_add_tcase(suite, refusals);
    return suite;
}
