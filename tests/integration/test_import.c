/* SPDX-License-Identifier: MIT */
/*
 * foldctl import of real histories (issue 2). The small one is in tests/data; LARGE=1 takes the
 * large one from ../shared/data/git-history as well.
 */
#include "suites.h"

#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct history {
    const char *folder;
    const char *name;
    int operations;
    int documents;
    int seconds; /* an import of it may take */
};

static const struct history histories[] = {
    {"tests/data", "small", 7015, 502, 60},
    {"../shared/data/git-history", "large", 253846, 17752, 600},
};

enum { KILLS = 10 };

/* A history to test with, unpacked, and the daemon that takes it. */
struct import {
    const struct history *history;
    struct env *env;
    struct daemon *daemon;
    const char *operations; /* file */
    pid_t pid;              /* of foldctl */
    int feed;               /* foldctl's standard input, -1: it reads the file */
    FILE *rest;             /* of the operations, to feed */
};

static const char *unpack(struct env *env, const struct history *history, const char *suffix)
{
    const char *path = env_printf(env, "%s/%s.%s", env->dir, history->name, suffix);
    const char *command =
        env_printf(env, "gzip -dc %s/%s.%s.gz >%s", history->folder, history->name, suffix, path);
    const char *argv[] = {"sh", "-c", command, NULL};
    ck_assert_int_eq(run_program(env_path(env, "gzip.log"), argv), 0);
    return path;
}

static void load_expected(struct env *env, const struct history *history)
{
    char *text = file_read(unpack(env, history, "expected.tsv"));
    sql(env, "create table public.expected (collection text, path text, mode text, blob text)");
    PGconn *session = sql_session(env);
    PGresult *result = PQexec(session, "copy public.expected from stdin");
    ck_assert(PQresultStatus(result) == PGRES_COPY_IN);
    PQclear(result);
    ck_assert_int_eq(PQputCopyData(session, text, (int)strlen(text)), 1);
    ck_assert_int_eq(PQputCopyEnd(session, NULL), 1);
    result = PQgetResult(session);
    ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(session));
    PQclear(result);
    free(text);
}

static struct import import_new(struct env *env, int which)
{
    struct import import = {.history = &histories[which], .env = env, .feed = -1};
    load_expected(env, import.history);
    import.operations = unpack(env, import.history, "ndjson");
    import.daemon = daemon_start(env, NULL);
    return import;
}

/* Start foldctl, on the file or (feed) on a pipe that import_feed fills. */
enum source { SOURCE_FILE, SOURCE_FEED };

static void import_start(struct import *import, enum source source, const char *reconnect)
{
    int pipe_fds[2];
    ck_assert(pipe2(pipe_fds, O_CLOEXEC) == 0);
    const char *output = env_path(import->env, "foldctl.log");
    const char *file = source == SOURCE_FEED ? "-" : import->operations;
    import->pid = fork();
    if (import->pid == 0) {
        int out = open(output, O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (out < 0 || dup2(pipe_fds[0], STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
            dup2(out, STDERR_FILENO) < 0)
            _exit(126);
        execlp(foldctl_program(), "foldctl", "--socket", import->daemon->socket, "import",
               "--reconnect", reconnect, file, (char *)NULL);
        _exit(127);
    }
    close(pipe_fds[0]);
    import->feed = pipe_fds[1];
    import->rest = fopen(import->operations, "re");
    if (source == SOURCE_FILE)
        close(import->feed);
}

/* Give foldctl that many more lines. */
static void import_feed(struct import *import, int lines)
{
    char *line = NULL;
    size_t size = 0;
    for (ssize_t len; lines > 0 && (len = getline(&line, &size, import->rest)) > 0; lines--)
        ck_assert(write(import->feed, line, (size_t)len) == len);
    free(line);
}

static bool import_ended(struct import *import, int *code)
{
    int status;
    if (waitpid(import->pid, &status, WNOHANG) != import->pid)
        return false;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

/* Wait for its end; status must answer within 100 ms all the time. */
static int import_wait(struct import *import)
{
    int code;
    struct conn *conn = conn_open(import->daemon);
    int64_t end = now_ms() + import->history->seconds * 1000;
    for (; !import_ended(import, &code); pause_ms(10)) {
        ck_assert_msg(now_ms() < end, "the import takes too long");
        int64_t asked = now_ms();
        expect(ask(conn, "{'request':'status'}"), "{'ok':true}");
        ck_assert_int_le(now_ms() - asked, 100);
    }
    conn_close(conn);
    fclose(import->rest);
    return code;
}

static void expect_import(struct import *import, int code)
{
    char *output = file_read(env_path(import->env, "foldctl.log"));
    ck_assert_msg(code == 0, "foldctl import ended with %d: %s", code, output);
    free(output);
    barrier(conn_open(import->daemon));
    expect_sql(import->env,
               env_printf(import->env, "%d|%d|0|0|0", import->history->operations,
                          import->history->documents),
               "with live as (select collection, id, fields ->> 'mode', fields ->> 'blob'"
               " from foldd.documents where not deleted)"
               " select concat_ws('|', (select count(*) from foldd.operations),"
               " (select count(*) from live),"
               " (select count(*) from (table live except table public.expected) a),"
               " (select count(*) from (table public.expected except table live) b),"
               " (select count(*) from foldd.parked))");
    ck_assert_int_le(daemon_proc_status(import->daemon, "VmHWM"), TEST_RSS_MAX_KIB);
}

static const char *rows_digest(struct env *env)
{
    return sql_text(env, "select md5(string_agg(d::text || d.xmin, ',' order by collection, id))"
                         " from foldd.documents d");
}

/* Exactly the expected documents; again: all duplicates, no row changes */
START_TEST(import_twice)
{
    struct env *env = ENV();
    struct import import = import_new(env, _i);
    import_start(&import, SOURCE_FILE, "0");
    expect_import(&import, import_wait(&import));
    const char *before = rows_digest(env);
    import_start(&import, SOURCE_FILE, "0");
    expect_import(&import, import_wait(&import));
    ck_assert_str_eq(rows_digest(env), before);
    char *output = file_read(env_path(env, "foldctl.log"));
    const char *summary = env_printf(env, "%d lines: 0 stored, %d duplicates, 0 errors",
                                     import.history->operations, import.history->operations);
    ck_assert_msg(strstr(output, summary) != NULL, "not '%s': %s", summary, output);
    free(output);
    env_free(env);
}
END_TEST

static void wait_progress(struct import *import, int operations)
{
    sql_wait(import->env, "t", "select foldd.head() >= %d", operations);
}

/* foldd killed ten times; each time the import ends and is begun again */
START_TEST(import_resumed_after_kills)
{
    struct env *env = ENV();
    struct import import = import_new(env, _i);
    int step = import.history->operations / (KILLS + 1);
    for (int kill_count = 1; kill_count <= KILLS; kill_count++) {
        import_start(&import, SOURCE_FEED, "0");
        import_feed(&import, kill_count * step);
        wait_progress(&import, (kill_count - 1) * step + 1);
        daemon_kill(import.daemon);
        close(import.feed);
        int code = 0;
        for (int64_t end = now_ms() + TEST_WAIT_MS; !import_ended(&import, &code); pause_ms(5))
            ck_assert_msg(now_ms() < end, "foldctl does not notice that foldd is gone");
        /* 0 if everything that it had read was acknowledged before the kill. */
        ck_assert_int_lt(code, 128);
        fclose(import.rest);
        daemon_again(import.daemon);
    }
    import_start(&import, SOURCE_FILE, "0");
    expect_import(&import, import_wait(&import));
    env_free(env);
}
END_TEST

/* The same with one foldctl that waits for foldd to come back */
START_TEST(import_goes_on_after_kills)
{
    struct env *env = ENV();
    struct import import = import_new(env, _i);
    int step = import.history->operations / (KILLS + 1);
    import_start(&import, SOURCE_FEED, "30");
    for (int kill_count = 1; kill_count <= KILLS; kill_count++) {
        import_feed(&import, step);
        wait_progress(&import, (kill_count - 1) * step + 1);
        daemon_kill(import.daemon);
        daemon_again(import.daemon);
    }
    import_feed(&import, import.history->operations);
    close(import.feed);
    expect_import(&import, import_wait(&import));
    env_free(env);
}
END_TEST

START_TEST(import_goes_on_when_postgresql_is_killed)
{
    struct env *env = ENV();
    struct import import = import_new(env, _i);
    import_start(&import, SOURCE_FEED, "0");
    import_feed(&import, import.history->operations / 2);
    wait_progress(&import, import.history->operations / 10);
    cluster_stop(SIGKILL);
    cluster_start();
    import_feed(&import, import.history->operations);
    close(import.feed);
    expect_import(&import, import_wait(&import));
    env_free(env);
}
END_TEST

/* A bad line is an error of the import and of nothing else */
START_TEST(import_reports_errors)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    const char *path = env_path(env, "bad.ndjson");
    file_write(path, "{\"document\":\"a\",\"id\":\"1\",\"action\":\"create\",\"fields\":{}}\n"
                     "{\"document\":\"b\",\"id\":\"1\",\"action\":\"create\"}\n"
                     "{\"document\":\"c\",\"id\":\"1\",\"action\":\"create\",\"fields\":{}}\n");
    const char *argv[] = {foldctl_program(), "--socket", daemon->socket, "import", path, NULL};
    ck_assert_int_ne(run_program(env_path(env, "foldctl.log"), argv), 0);
    char *output = file_read(env_path(env, "foldctl.log"));
    ck_assert_msg(strstr(output, "fields") != NULL && strstr(output, "2") != NULL, "%s", output);
    free(output);
    expect_sql(env, "a c", "select string_agg(document, ' ' order by seq) from foldd.operations");
    env_free(env);
}
END_TEST

Suite *import_suite(void)
{
    Suite *suite = suite_create("import");
    int count = getenv("LARGE") == NULL ? 1 : 2;
    TCase *tcase = tcase_create("import");
    tcase_set_timeout(tcase, count == 1 ? 120 : 1800);
    tcase_add_loop_test(tcase, import_twice, 0, count);
    tcase_add_loop_test(tcase, import_resumed_after_kills, 0, count);
    tcase_add_loop_test(tcase, import_goes_on_after_kills, 0, count);
    tcase_add_loop_test(tcase, import_goes_on_when_postgresql_is_killed, 0, count);
    tcase_add_test(tcase, import_reports_errors);
    suite_add_tcase(suite, tcase);
    return suite;
}
