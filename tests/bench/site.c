/* SPDX-License-Identifier: MIT */
#include "site.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 60000 };

char *site_conninfo(const struct site *site, const char *database)
{
    return mem_printf("%s dbname=%s", site->conninfo, database); /* libpq takes the last dbname */
}

char *site_query(const struct site *site, const char *query)
{
    char *conninfo = site_conninfo(site, "postgres");
    PGconn *db = PQconnectdb(conninfo);
    PGresult *result = PQexec(db, query);
    ExecStatusType status = PQresultStatus(result);
    char *value = NULL;
    if (status == PGRES_COMMAND_OK)
        value = mem_strdup("");
    else if (status == PGRES_TUPLES_OK)
        value = mem_strdup(PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    else
        fprintf(stderr, "bench: %sin: %s\n", PQerrorMessage(db), query);
    PQclear(result);
    PQfinish(db);
    free(conninfo);
    return value;
}

/* --- the cluster */

/* Start foldd with these arguments, its output in the file; it stops when this process ends. */
static pid_t spawn(char *const argv[], const char *log)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setsid(); /* a terminal's interrupt ends the run, and the run ends the cluster */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(126);
    execv(foldd_program(), argv);
    _exit(127);
}

static bool is_up(const char *conninfo)
{
    return conninfo[0] != '\0' && PQping(conninfo) == PQPING_OK;
}

/* Wait until the cluster accepts connections, and take its connection string. */
static bool wait_cluster(struct site *site, const char *dir)
{
    char *path = mem_printf("%s/conninfo", dir);
    bool up = false;
    for (int64_t end = now_ms() + START_MS; !up && now_ms() < end; pause_ms(20)) {
        free(site->conninfo);
        site->conninfo = file_read(path);
        site->conninfo[strcspn(site->conninfo, "\n")] = '\0';
        up = is_up(site->conninfo);
        if (waitpid(site->keeper, NULL, WNOHANG) == site->keeper) {
            site->keeper = 0;
            break;
        }
    }
    free(path);
    return up && site->keeper != 0;
}

static bool make_root(struct site *site)
{
    const char *tmp = getenv("TMPDIR");
    struct statfs fs;
    site->root = mem_printf("%s/foldd-bench-XXXXXX", tmp == NULL ? "/tmp" : tmp);
    if (mkdtemp(site->root) == NULL || chmod(site->root, 0755) != 0 ||
        statfs(site->root, &fs) != 0) {
        fprintf(stderr, "bench: %s: %s\n", site->root, strerror(errno));
        return false;
    }
    if (fs.f_type == TMPFS_MAGIC)
        fprintf(stderr, "bench: %s is in memory: name a folder on a disk in TMPDIR\n", site->root);
    return fs.f_type != TMPFS_MAGIC;
}

static bool make_empty(const struct site *site, const char *log)
{
    char *conninfo = site_conninfo(site, SITE_EMPTY);
    char *setting = mem_printf("database=%s", conninfo);
    char *const argv[] = {(char[]){"foldd"}, (char[]){"--migrate"}, (char[]){"--set"}, setting,
                          NULL};
    char *made = site_query(site, "CREATE DATABASE " SITE_EMPTY " TEMPLATE template0");
    pid_t pid = made == NULL ? -1 : spawn(argv, log);
    int status = 1;
    bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    free(made);
    free(setting);
    free(conninfo);
    return ok;
}

bool site_start(struct site *site)
{
    if (!make_root(site))
        return false;
    char *dir = mem_printf("%s/server", site->root);
    char *log = mem_printf("%s/foldd.log", site->root);
    char *const argv[] = {(char[]){"foldd"}, (char[]){"--standalone"}, dir, NULL};
    site->keeper = spawn(argv, log);
    bool ok = site->keeper > 0 && wait_cluster(site, dir) && make_empty(site, log);
    if (!ok) {
        char *said = file_read(log);
        fprintf(stderr, "bench: %s made no cluster:\n%s", foldd_program(), said);
        free(said);
    }
    free(log);
    free(dir);
    return ok;
}

void site_stop(struct site *site)
{
    if (site->keeper > 0) {
        kill(site->keeper, SIGTERM);
        waitpid(site->keeper, NULL, 0);
    }
    remove_tree(site->root);
    free(site->conninfo);
    free(site->root);
}

/* --- one side of one round */

static void execute(const struct site *site, const char *query)
{
    char *value = site_query(site, query);
    ck_assert_msg(value != NULL, "the query failed: %s", query);
    free(value);
}

struct env *site_env_new(const struct site *site, const char *source)
{
    struct env *env = mem_zalloc(sizeof *env);
    TAILQ_INIT(&env->daemons);
    TAILQ_INIT(&env->conns);
    env->name = mem_printf("bench_%d_%llx", (int)getpid(), (unsigned long long)now_ms());
    env->dir = mem_printf("%s/%s", site->root, env->name);
    env->database = mem_strdup(env->name);
    env->conninfo = site_conninfo(site, env->database);
    ck_assert_msg(mkdir(env->dir, 0755) == 0, "%s: %s", env->dir, strerror(errno));
    execute(site, env_printf(env, "CREATE DATABASE %s TEMPLATE %s", env->database, source));
    execute(site, "CHECKPOINT");
    return env;
}

void site_env_leave(struct env *env)
{
    while (!TAILQ_EMPTY(&env->conns))
        conn_close(TAILQ_FIRST(&env->conns));
    struct daemon *daemon;
    TAILQ_FOREACH(daemon, &env->daemons, link)
        if (daemon->pid != 0)
            daemon_stop(daemon);
    PQfinish(env->db);
    env->db = NULL;
}

/* Strings that the env keeps go with the process of the case. */
void site_env_free(const struct site *site, struct env *env)
{
    site_env_leave(env);
    execute(site, env_printf(env, "DROP DATABASE %s WITH (FORCE)", env->database));
    remove_tree(env->dir);
    free(env->name);
    free(env->dir);
    free(env->database);
    free(env->conninfo);
    free(env);
}

struct daemon *site_spawn_foldd(struct env *env)
{
    const char *socket = env_path(env, "foldd.sock");
    const char *args[] = {"--set", env_printf(env, "database=%s", env->conninfo), "--set",
                          env_printf(env, "socket=%s", socket), NULL};
    return daemon_spawn(env, socket, args);
}

void site_wait_leading(struct conn *conn)
{
    const char *role = "";
    for (int64_t end = now_ms() + TEST_WAIT_MS; strcmp(role, "leader") != 0; pause_ms(1)) {
        ck_assert_msg(now_ms() < end, "foldd's role is still %s", role);
        role = json_string_value(json_object_get(ask(conn, "{'request':'status'}"), "role"));
        ck_assert_ptr_nonnull(role);
    }
}
