/* SPDX-License-Identifier: MIT */
/* The process's life: migrations cut short, stops at a bad moment, output that nobody takes
 * (design.md 2, 4, 8, 10; R27; E7, E15, F22, J3, J6). */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Arguments for foldd on the env's database, up to NULL; the socket is env_path(name). */
static const char **arguments(struct env *env, const char *name)
{
    static const char *args[5];
    args[0] = "--set";
    args[1] = env_printf(env, "database=%s", env->conninfo);
    args[2] = "--set";
    args[3] = env_printf(env, "socket=%s", env_path(env, name));
    args[4] = NULL;
    return args;
}

/* Every statement that makes an object of the kind stands still until the lock is released. */
static PGconn *hold_ddl(struct env *env, const char *tag)
{
    PGconn *session = sql_session(env);
    sql_in(session,
           "create function public.hold() returns event_trigger language plpgsql as"
           " $$ begin perform pg_advisory_xact_lock_shared(77); end $$;"
           "create event trigger hold on ddl_command_end when tag in ('%s')"
           " execute function public.hold();"
           "select pg_advisory_lock(77)",
           tag);
    return session;
}

/* F22: killed in the middle of the migration, foldd leaves nothing, or all if its backend goes on
 * by itself (_i / 2), and the next one works; _i % 2: at the first table, at the first function */
START_TEST(killed_in_the_middle_of_a_migration)
{
    static const char *const tags[] = {"CREATE TABLE", "CREATE FUNCTION"};
    struct env *env = ENV();
    bool goes_on = _i / 2 == 1;
    PGconn *session = hold_ddl(env, tags[_i % 2]);
    const char *socket = env_path(env, "foldd.sock");
    struct daemon *daemon = daemon_spawn(env, socket, arguments(env, "foldd.sock"));
    sql_wait(env, "1",
             "select count(*) from pg_locks where locktype = 'advisory' and objid = 77 and"
             " not granted");
    daemon_kill(daemon);
    if (!goes_on)
        sql(env, "select pg_terminate_backend(pid, 5000) from pg_stat_activity where"
                 " application_name like 'foldd%%' and datname = current_database()");
    sql_in(session, "select pg_advisory_unlock(77)");
    sql_wait(env, "0",
             "select count(*) from pg_stat_activity where application_name like 'foldd%%'"
             " and datname = current_database()");
    expect_sql(env, goes_on ? "1" : "0",
               "select count(*) from pg_namespace where nspname = 'foldd'");
    sql(env, "drop event trigger hold");
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect_model(env);
    env_free(env);
}
END_TEST

/* F22: the schema becomes newer than the running foldd knows: it looks when it connects again */
START_TEST(newer_schema_is_noticed_on_reconnecting)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    sql(env, "insert into foldd.migrations values (1000, 'x', now())");
    sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where datname ="
             " current_database() and pid <> pg_backend_pid()");
    daemon_expect_refusal(daemon, "newer");
    expect_sql(env, "1", "select epoch from foldd.leader");
    env_free(env);
}
END_TEST

/* J6: SIGTERM is obeyed in the middle of a long catch-up, which goes on at the next start */
START_TEST(terminated_in_the_middle_of_catching_up)
{
    enum { OPS = 60000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "b", 3000, OPS);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
    load_send(load, conn, 0, OPS);
    daemon_kill(daemon);
    sql(env, "delete from foldd.pauses");
    daemon_again(daemon);
    for (int round = 0; round < 3 && sql_int(env, "select seq from foldd.cursor") < OPS; round++) {
        int64_t before = sql_int(env, "select count(*) from foldd.documents");
        sql_wait(env, "t",
                 "select count(*) > %lld or (select seq = %d from foldd.cursor)"
                 " from foldd.documents",
                 (long long)before, OPS);
        daemon_signal(daemon, SIGTERM);
        ck_assert_int_eq(daemon_wait_exit(daemon, 5000), 0);
        daemon_again(daemon);
    }
    barrier(conn_open(daemon));
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* Whether somebody takes connections there. */
static bool is_open(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return open;
}

/* J3: a client that does not read its replies delays a stop by drain_timeout and no more, and is
 * not told anything else than what is stored; newcomers are refused at once */
START_TEST(terminated_with_a_slow_reader)
{
    enum { PINGS = 30000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "drain_timeout=2s", NULL);
    struct conn *conn = conn_open(daemon);
    conn_line(conn, "{'document':'d','id':'x','action':'update','fields':{'n':1}}");
    for (int i = 0; i < PINGS; i++)
        conn_line(conn, "{'request':'ping'}");
    conn_push_only(conn);
    sql_wait(env, "1", "select count(*) from foldd.operations");
    daemon_signal(daemon, SIGTERM);
    for (int64_t end = now_ms() + 1000; is_open(daemon->socket); pause_ms(2))
        ck_assert_msg(now_ms() < end, "foldd still takes connections");
    ck_assert_int_eq(daemon_wait_exit(daemon, 5000), 0);
    expect(conn_read(conn), "{'ok':true,'id':'x'}");
    env_free(env);
}
END_TEST

/* E15: thousands of receipts are still in the way when a line that is too long ends the connection:
 * a reader that takes 1 kB at a time gets every one, then the error, then the end */
START_TEST(slow_reader_gets_all_before_the_error)
{
    enum { OPS = 5000, LONG = 5000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_line=4096", NULL);
    struct conn *conn = conn_open(daemon);
    for (int i = 0; i < OPS; i++)
        conn_line(conn, "{'document':'d','id':'i%d','action':'update','fields':{'n':%d}}", i, i);
    conn_line(conn, "%0*d", LONG, 0);
    for (int64_t end = now_ms() + TEST_WAIT_MS; conn->out.len > 0; pause_ms(1)) {
        conn_push_only(conn);
        ck_assert(now_ms() < end);
    }
    sql_wait(env, env_printf(env, "%d", OPS), "select count(*) from foldd.operations");
    struct buf all = {0};
    char piece[1024];
    ck_assert(fcntl(conn->fd, F_SETFL, 0) == 0);
    for (ssize_t got; (got = recv(conn->fd, piece, sizeof piece, 0)) != 0;) {
        ck_assert_msg(got > 0, "%s instead of the end", strerror(errno));
        buf_add(&all, piece, (size_t)got);
    }
    int lines = 0;
    const char *last = buf_cstr(&all);
    for (const char *line = last, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        last = line;
        lines++;
        char *id = mem_printf("\"id\":\"i%d\"", lines - 1);
        ck_assert_msg(lines > OPS || (strncmp(line, "{\"ok\":true", 10) == 0 &&
                                      memmem(line, (size_t)(end - line), id, strlen(id)) != NULL),
                      "line %d is %.*s", lines, (int)(end - line), line);
        free(id);
    }
    ck_assert_int_eq(lines, OPS + 1);
    ck_assert_msg(strstr(last, "too_large") != NULL, "%s", last);
    buf_fini(&all);
    env_free(env);
}
END_TEST

/* E7: nobody takes what foldd prints: it goes on */
START_TEST(closed_output_is_no_end)
{
    struct env *env = ENV();
    const char *socket = env_path(env, "foldd.sock");
    const char **args = arguments(env, "foldd.sock");
    int pipes[2];
    ck_assert(pipe(pipes) == 0);
    pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_DFL);
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl(foldd_program(), foldd_program(), args[0], args[1], args[2], args[3], (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    char first[64];
    ck_assert(read(pipes[0], first, sizeof first) > 0);
    close(pipes[0]);
    for (int64_t end = now_ms() + TEST_WAIT_MS; !is_open(socket); pause_ms(2))
        ck_assert(now_ms() < end);
    struct conn *conn = conn_open_path(env, socket);
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    poison_make(env, "d");
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'parked'}");
    sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where datname ="
             " current_database() and pid <> pg_backend_pid()");
    expect(ask(conn, "{'document':'e','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    int status;
    ck_assert(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    env_free(env);
}
END_TEST

/* Whether one of the files that the pattern names is younger than that moment. */
static bool is_made(const char *pattern, const struct timespec *since)
{
    glob_t found;
    bool made = false;
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !made; i++) {
        struct stat st;
        made = stat(found.gl_pathv[i], &st) == 0 &&
               (st.st_ctim.tv_sec > since->tv_sec ||
                (st.st_ctim.tv_sec == since->tv_sec && st.st_ctim.tv_nsec > since->tv_nsec));
    }
    globfree(&found);
    return made;
}

/* R27: killed while it makes its cluster, at another step each round, foldd leaves nothing that the
 * next start does not get over, though what is left of an initdb may still be writing */
START_TEST(killed_while_the_cluster_is_made)
{
    static const char *const steps[] = {
        "pg.new.*", "pg.new.*/base/1/PG_VERSION", "pg.new.*/base/4", "pg.new.*/base/5",
        "pg",       "pg/postmaster.pid"};
    enum { STEPS = sizeof steps / sizeof steps[0] };
    struct env *env = ENV();
    const char *dir = env_path(env, "data");
    const char *args[] = {"--standalone", dir, NULL};
    struct daemon *daemon = NULL;
    for (int step = 0; step < STEPS; step++) {
        const char *path = env_printf(env, "%s/%s", dir, steps[step]);
        struct timespec since;
        clock_gettime(CLOCK_REALTIME_COARSE, &since);
        daemon = daemon_spawn(env, env_printf(env, "%s/foldd.sock", dir), args);
        for (int64_t end = now_ms() + TEST_WAIT_MS; !is_made(path, &since); pause_ms(1))
            ck_assert_msg(now_ms() < end && daemon_runs(daemon), "no %s", path);
        daemon_kill(daemon);
    }
    daemon_again(daemon);
    for (int64_t end = now_ms() + TEST_WAIT_MS;; pause_ms(10)) {
        struct conn *conn = conn_open(daemon);
        const char *role =
            json_string_value(json_object_get(ask(conn, "{'request':'status'}"), "role"));
        bool leads = strcmp(role, "leader") == 0;
        conn_close(conn);
        if (leads)
            break;
        ck_assert_msg(now_ms() < end, "the role is still %s", role);
    }
    expect(ask(conn_open(daemon), "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    glob_t left;
    ck_assert(glob(env_printf(env, "%s/pg.new.*", dir), 0, NULL, &left) == GLOB_NOMATCH);
    env_free(env);
}
END_TEST

Suite *life_suite(void)
{
    Suite *suite = suite_create("life");
    TCase *begin = tcase_create("begin");
    tcase_set_timeout(begin, 120);
    tcase_add_loop_test(begin, killed_in_the_middle_of_a_migration, 0, 4);
    tcase_add_test(begin, newer_schema_is_noticed_on_reconnecting);
    tcase_add_test(begin, killed_while_the_cluster_is_made);
    suite_add_tcase(suite, begin);
    TCase *end = tcase_create("end");
    tcase_set_timeout(end, 120);
    tcase_add_test(end, terminated_in_the_middle_of_catching_up);
    tcase_add_test(end, terminated_with_a_slow_reader);
    tcase_add_test(end, slow_reader_gets_all_before_the_error);
    tcase_add_test(end, closed_output_is_no_end);
    suite_add_tcase(suite, end);
    return suite;
}
