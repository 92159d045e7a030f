/* SPDX-License-Identifier: MIT */
/* foldd behind pgbouncer (design.md 4; R4; F6, F7): session mode works, and where sessions do not
 * last foldd refuses to start. Without pgbouncer these tests only say so. */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *find_pgbouncer(void)
{
    static const char *const paths[] = {"/usr/sbin/pgbouncer", "/usr/bin/pgbouncer",
                                        "/usr/local/bin/pgbouncer"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    fprintf(stderr, "skipped: there is no pgbouncer here\n");
    return NULL;
}

struct pooler {
    pid_t pid;
    const char *conninfo;
};

/* Start it with more settings; wait until it lets a session through. */
static struct pooler pooler_start(struct env *env, const char *program, const char *settings)
{
    const char *dir = env_path(env, "pooler");
    const char *config = env_printf(env, "%s/pgbouncer.ini", dir);
    sql(env, "select 1"); /* connect, to know the server's host */
    ck_assert(mkdir(dir, 0777) == 0 && chmod(dir, 0777) == 0);
    file_write(config, env_printf(env,
                                  "[databases]\n* = host=%s port=5432 user=postgres\n[pgbouncer]\n"
                                  "listen_port = 6432\nunix_socket_dir = %s\nauth_type = any\n"
                                  "logfile = %s/pgbouncer.log\n%s\n",
                                  PQhost(env->db), dir, dir, settings));
    struct pooler pooler = {.conninfo = env_printf(env, "host=%s port=6432 user=postgres dbname=%s",
                                                   dir, env->database)};
    pooler.pid = fork();
    ck_assert(pooler.pid >= 0);
    if (pooler.pid == 0) {
        cluster_become_user();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, "-q", config, (char *)NULL);
        _exit(127);
    }
    for (int64_t end = now_ms() + TEST_WAIT_MS; PQping(pooler.conninfo) != PQPING_OK; pause_ms(5))
        ck_assert_msg(now_ms() < end && waitpid(pooler.pid, NULL, WNOHANG) == 0,
                      "pgbouncer does not start");
    return pooler;
}

static void pooler_stop(const struct pooler *pooler)
{
    ck_assert(kill(pooler->pid, SIGTERM) == 0 && waitpid(pooler->pid, NULL, 0) == pooler->pid);
}

static struct daemon *spawn(struct env *env, const struct pooler *pooler, const char *socket)
{
    const char *path = env_path(env, socket);
    const char *args[] = {"--set", env_printf(env, "database=%s", pooler->conninfo),
                          "--set", env_printf(env, "socket=%s", path),
                          "--set", "workers=8",
                          NULL};
    return daemon_spawn(env, path, args);
}

/* F6, F7: sessions do not last: refused at the start, whichever server connection each query gets,
 * also with other users of the pool about. _i: the mode, and how connections are handed out */
START_TEST(pooling_of_transactions_is_refused)
{
    static const char *const settings[] = {
        "pool_mode = transaction\ndefault_pool_size = 2",
        "pool_mode = transaction\ndefault_pool_size = 10\nserver_round_robin = 1",
        "pool_mode = statement\ndefault_pool_size = 10",
    };
    enum { OTHERS = 4 };
    const char *program = find_pgbouncer();
    if (program == NULL)
        return;
    struct env *env = ENV();
    struct pooler pooler = pooler_start(env, program, settings[_i]);
    PGconn *others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = PQconnectdb(pooler.conninfo);
        ck_assert_msg(PQstatus(others[i]) == CONNECTION_OK, "%s", PQerrorMessage(others[i]));
        ck_assert(PQsendQuery(others[i], "select pg_sleep(0.05)") == 1);
    }
    for (int i = 0; i < OTHERS; i++)
        for (PGresult *result; (result = PQgetResult(others[i])) != NULL;)
            PQclear(result);
    for (int round = 0; round < 3; round++) {
        struct daemon *daemon = spawn(env, &pooler, "foldd.sock");
        daemon_expect_refusal(daemon, "pooler");
    }
    for (int i = 0; i < OTHERS; i++)
        PQfinish(others[i]);
    /* Refused before anything was written. */
    expect_sql(env, "0", "select count(*) from pg_namespace where nspname = 'foldd'");
    pooler_stop(&pooler);
    env_free(env);
}
END_TEST

/* F7: in session mode everything holds: kill -9 leaves no lock behind, and of two one leads */
START_TEST(pooling_of_sessions_works)
{
    const char *program = find_pgbouncer();
    if (program == NULL)
        return;
    struct env *env = ENV();
    struct pooler pooler =
        pooler_start(env, program, "pool_mode = session\ndefault_pool_size = 40");
    struct daemon *daemon = spawn(env, &pooler, "foldd.sock");
    daemon_wait_ready(daemon);
    struct load *load = load_new(env, "p", 50, 6000);
    load_send(load, conn_open(daemon), 0, 2000);
    for (int round = 1; round <= 2; round++) {
        daemon_kill(daemon);
        daemon_again(daemon);
        load_send(load, conn_open(daemon), round * 2000, 2000);
    }
    struct daemon *second = spawn(env, &pooler, "second.sock");
    daemon_wait_ready(second);
    struct conn *other = conn_open(second);
    const char *role = "";
    for (int64_t end = now_ms() + TEST_WAIT_MS; strcmp(role, "standby") != 0; pause_ms(5)) {
        role = json_string_value(json_object_get(ask(other, "{'request':'status'}"), "role"));
        ck_assert_msg(now_ms() < end, "the second is %s", role);
    }
    daemon_stop(daemon);
    for (int64_t end = now_ms() + TEST_WAIT_MS; strcmp(role, "leader") != 0; pause_ms(5)) {
        role = json_string_value(json_object_get(ask(other, "{'request':'status'}"), "role"));
        ck_assert_msg(now_ms() < end, "the second is still %s", role);
    }
    load_send(load, other, 0, 6000);
    barrier(other);
    expect_load(load, 0);
    expect_model(env);
    daemon_stop(second);
    pooler_stop(&pooler);
    load_free(load);
    env_free(env);
}
END_TEST

Suite *pooler_suite(void)
{
    Suite *suite = suite_create("pooler");
    TCase *tcase = tcase_create("pooler");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, pooling_of_transactions_is_refused, 0, 3);
    tcase_add_test(tcase, pooling_of_sessions_works);
    suite_add_tcase(suite, tcase);
    return suite;
}
