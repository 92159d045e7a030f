/* SPDX-License-Identifier: MIT */
/* One test's folder, database and belongings; small helpers with files and processes. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct kept {
    SLIST_ENTRY(kept) link;
    char *text;
};

struct session {
    SLIST_ENTRY(session) link;
    PGconn *db;
};

enum { LOG_PRINT_MAX = 64 * 1024 };

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_ms(int ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

char *file_read(const char *path)
{
    struct buf buf = {0};
    FILE *file = fopen(path, "re");
    char block[4096];
    for (size_t got; file != NULL && (got = fread(block, 1, sizeof block, file)) > 0;)
        buf_add(&buf, block, got);
    if (file != NULL)
        fclose(file);
    buf_cstr(&buf);
    return buf_take(&buf);
}

void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ck_assert_msg(file != NULL, "cannot write %s: %s", path, strerror(errno));
    fputs(text, file);
    ck_assert(fclose(file) == 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int processes_under(const char *dir)
{
    int count = 0;
    size_t len = strlen(dir);
    DIR *proc = opendir("/proc");
    ck_assert(proc != NULL);
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        long pid = strtol(entry->d_name, NULL, 10);
        char path[64];
        char cwd[4096];
        snprintf(path, sizeof path, "/proc/%ld/cwd", pid);
        ssize_t got = pid > 0 ? readlink(path, cwd, sizeof cwd - 1) : -1;
        if (got < (ssize_t)len)
            continue;
        cwd[got] = '\0';
        if (strncmp(cwd, dir, len) == 0 && (cwd[len] == '/' || cwd[len] == '\0'))
            count++;
    }
    closedir(proc);
    return count;
}

int run_program(const char *output, const char *const argv[])
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
            _exit(126);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int status;
    ck_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint32_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

const char *env_keep(struct env *env, char *taken)
{
    struct kept *kept = mem_zalloc(sizeof *kept);
    kept->text = taken;
    SLIST_INSERT_HEAD(&env->kept, kept, link);
    return taken;
}

const char *env_printf(struct env *env, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    ck_assert(vasprintf(&text, format, args) >= 0);
    va_end(args);
    return env_keep(env, text);
}

const char *env_path(struct env *env, const char *name)
{
    return env_printf(env, "%s/%s", env->dir, name);
}

PGconn *sql_session(struct env *env)
{
    struct session *session = mem_zalloc(sizeof *session);
    session->db = PQconnectdb(env->conninfo);
    ck_assert_msg(PQstatus(session->db) == CONNECTION_OK, "%s", PQerrorMessage(session->db));
    SLIST_INSERT_HEAD(&env->sessions, session, link);
    return session->db;
}

/* On the database postgres: create and drop cannot run in the database itself. A standby that a
 * failed test left in the settings must not hold it up. */
static void maintain(const char *command)
{
    char *base = cluster_conninfo("postgres");
    char *conninfo = mem_printf("%s options='-c synchronous_commit=local'", base);
    PGconn *db = PQconnectdb(conninfo);
    PGresult *result = PQexec(db, command);
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s",
                  PQerrorMessage(db));
    PQclear(result);
    PQfinish(db);
    free(conninfo);
    free(base);
}

static void print_log(const char *path)
{
    char *text = file_read(path);
    size_t len = strlen(text);
    const char *tail = len > LOG_PRINT_MAX ? text + len - LOG_PRINT_MAX : text;
    fprintf(stderr, "---- %s\n%s", path, tail);
    free(text);
}

static int print_if_log(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    const char *dot = strrchr(path, '.');
    if (type == FTW_F && dot != NULL && strcmp(dot, ".log") == 0)
        print_log(path);
    return 0;
}

void env_print_failed(void)
{
    char *tests = mem_printf("%s/tests", cluster_root());
    DIR *dir = opendir(tests);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = mem_printf("%s/%s", tests, entry->d_name);
        char *start_path = mem_printf("%s/server-log-start", path);
        char *start = file_read(start_path);
        fprintf(stderr, "==== logs of the failed test %s\n", entry->d_name);
        nftw(path, print_if_log, 16, FTW_PHYS);
        fputs("---- the server's log\n", stderr);
        cluster_log_print((off_t)strtoll(start, NULL, 10));
        fprintf(stderr, "==== end of the logs of %s\n", entry->d_name);
        remove_tree(path);
        free(start);
        free(start_path);
        free(path);
    }
    if (dir != NULL)
        closedir(dir);
    free(tests);
}

struct env *env_new(const char *function)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    env_print_failed();
    if (!cluster_is_up())
        cluster_start();
    struct env *env = mem_zalloc(sizeof *env);
    TAILQ_INIT(&env->daemons);
    TAILQ_INIT(&env->conns);
    size_t len = strlen(function);
    size_t suffix = len > 3 && strcmp(function + len - 3, "_fn") == 0 ? 3 : 0;
    env->name = mem_printf("%.40s_%d", env_printf(env, "%.*s", (int)(len - suffix), function),
                           (int)getpid());
    env->dir = mem_printf("%s/tests/%s", cluster_root(), env->name);
    ck_assert_msg(mkdir(env->dir, 0755) == 0, "%s: %s", env->dir, strerror(errno));
    file_write(env_path(env, "server-log-start"),
               env_printf(env, "%lld", (long long)cluster_log_size()));
    maintain("alter system reset all");
    maintain("select pg_reload_conf()");
    env->database = mem_printf("t_%s", env->name);
    env->conninfo = cluster_conninfo(env->database);
    maintain(env_printf(env, "create database \"%s\" template template0 encoding 'UTF8'",
                        env->database));
    return env;
}

static void expect_no_process(const struct env *env)
{
    int64_t end = now_ms() + TEST_WAIT_MS;
    while (processes_under(env->dir) > 0) {
        ck_assert_msg(now_ms() < end, "%d processes left in %s", processes_under(env->dir),
                      env->dir);
        pause_ms(5);
    }
}

void env_free(struct env *env)
{
    while (!TAILQ_EMPTY(&env->conns))
        conn_close(TAILQ_FIRST(&env->conns));
    for (struct session *session; (session = SLIST_FIRST(&env->sessions)) != NULL;) {
        SLIST_REMOVE_HEAD(&env->sessions, link);
        PQfinish(session->db);
        free(session);
    }
    for (struct daemon *daemon; (daemon = TAILQ_FIRST(&env->daemons)) != NULL;) {
        if (daemon->pid != 0)
            daemon_stop(daemon);
        TAILQ_REMOVE(&env->daemons, daemon, link);
        for (char **arg = daemon->argv; *arg != NULL; arg++)
            free(*arg);
        free(daemon->argv);
        free(daemon);
    }
    expect_no_process(env);
    PQfinish(env->db);
    maintain(env_printf(env, "drop database \"%s\" with (force)", env->database));
    remove_tree(env->dir);
    for (struct kept *kept; (kept = SLIST_FIRST(&env->kept)) != NULL;) {
        SLIST_REMOVE_HEAD(&env->kept, link);
        free(kept->text);
        free(kept);
    }
    free(env->name);
    free(env->dir);
    free(env->database);
    free(env->conninfo);
    free(env);
}
