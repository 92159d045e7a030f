/* SPDX-License-Identifier: MIT */
/*
 * Happy path: adopt the postmaster that a killed foldd has left, or: initdb into a new folder, make
 * the database in single-user mode, write our settings and our mark, rename to DIR/pg, start
 * postgres.
 *
 * Every child is watched through a pidfd, which works for an adopted postmaster, too. A postmaster
 * that ends by itself is started again, with a pause: what is left of a killed one keeps the data
 * folder busy for a moment (R27). postmaster.pid is never touched.
 */
#include "cluster.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "child.h"
#include "log.h"
#include "retry.h"
#include "timer.h"

enum {
    RESTART_BASE_MS = 200,
    RESTART_CAP_MS = 5000,
    READY_LOOK_MS = 20,
    STOP_FAST_S = 60,
};

static const char SERVER_USER[] = "postgres";
static const char MARK[] = "foldd.cluster";
static const char UNFINISHED[] = "pg.new."; /* a data folder of its own for each try to make one */

/* Settings for this load. They stand in the cluster's postgresql.conf, so that they can be changed;
 * what keeps acknowledged operations safe (fsync, full_page_writes, synchronous_commit) is left on.
 */
static const char SETTINGS[] =
    "\n# Added by foldd --standalone when it made this cluster. Change what you like.\n"
    "shared_buffers = 256MB\n"
    "max_connections = 300\n"
    "wal_compression = on\n"
    "wal_buffers = 16MB\n"
    "min_wal_size = 256MB\n"
    "max_wal_size = 4GB\n"
    "checkpoint_timeout = 15min\n"
    "checkpoint_completion_target = 0.9\n"
    "random_page_cost = 1.1\n"
    "autovacuum_vacuum_insert_scale_factor = 0.1\n"
    "autovacuum_vacuum_cost_limit = 2000\n"
    "log_line_prefix = '%m [%p] %q%a '\n"
    "log_timezone = 'UTC'\n"
    "timezone = 'UTC'\n"
    "fsync = on\n"
    "full_page_writes = on\n"
    "synchronous_commit = on\n";

enum step { STEP_INITDB, STEP_DATABASE, STEP_STARTING, STEP_SERVER };

struct cluster {
    struct event_base *base;
    struct cluster_events events;
    char *dir;
    char *data;
    char *fresh; /* the data folder while it is being made */
    char *bindir;
    char *conninfo;
    bool drop; /* run children as SERVER_USER */
    uid_t uid;
    gid_t gid;
    enum step step;
    pid_t pid; /* the child or adopted postmaster under way; 0: none */
    int pidfd;
    struct event *exit_event;
    struct event *timer; /* the pause before a restart, or the patience of a stop */
    unsigned failures;
    bool stopping;
};

static void on_timer(evutil_socket_t fd, short what, void *arg);
static void start_server(struct cluster *cluster);

/* --- looking around */

static int bindir_version(const char *path)
{
    const char *digits = strpbrk(path, "0123456789");
    return digits == NULL ? 0 : (int)strtol(digits, NULL, 10);
}

static bool has_server(const char *bindir)
{
    char *initdb = mem_printf("%s/initdb", bindir);
    char *postgres = mem_printf("%s/postgres", bindir);
    bool ok = access(initdb, X_OK) == 0 && access(postgres, X_OK) == 0;
    free(initdb);
    free(postgres);
    return ok;
}

/* The newest server, or the one that made the data folder. */
static char *find_bindir(const char *data)
{
    static const char *const patterns[] = {"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
                                           "/usr/local/pgsql/bin"};
    char *version_file = mem_printf("%s/PG_VERSION", data);
    int wanted = 0;
    FILE *file = fopen(version_file, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &wanted) != 1)
            wanted = 0;
        fclose(file);
    }
    free(version_file);
    char *best = NULL;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0)
            continue;
        for (size_t j = 0; j < found.gl_pathc; j++) {
            const char *path = found.gl_pathv[j];
            int version = bindir_version(path);
            bool better = best == NULL || version > bindir_version(best);
            if (!has_server(path) || (wanted != 0 ? version != wanted : !better))
                continue;
            free(best);
            best = mem_strdup(path);
        }
        globfree(&found);
    }
    return best;
}

static bool is_foreign(const struct cluster *cluster)
{
    struct stat found;
    char *mark = mem_printf("%s/%s", cluster->data, MARK);
    bool foreign = stat(cluster->data, &found) == 0 && access(mark, F_OK) != 0;
    free(mark);
    return foreign;
}

/* Whether the server's user can get into DIR. */
static bool is_reachable(const struct cluster *cluster)
{
    if (!cluster->drop)
        return access(cluster->dir, X_OK) == 0;
    bool ok = setegid(cluster->gid) == 0 && seteuid(cluster->uid) == 0 &&
              faccessat(AT_FDCWD, cluster->dir, X_OK, AT_EACCESS) == 0;
    if (seteuid(0) != 0 || setegid(0) != 0)
        abort();
    return ok;
}

static bool find_user(struct cluster *cluster, struct err *err)
{
    cluster->uid = geteuid();
    cluster->gid = getegid();
    if (cluster->uid != 0)
        return true;
    const struct passwd *user = getpwnam(SERVER_USER);
    if (user == NULL)
        return err_set(err, ERR_FATAL, "PostgreSQL does not run as root, and there is no user %s",
                       SERVER_USER);
    cluster->drop = true;
    cluster->uid = user->pw_uid;
    cluster->gid = user->pw_gid;
    return true;
}

static bool prepare_dir(struct cluster *cluster, const char *dir, struct err *err)
{
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return err_set(err, ERR_FATAL, "cannot make the folder %s: %s", dir, strerror(errno));
    char path[PATH_MAX];
    if (realpath(dir, path) == NULL)
        return err_set(err, ERR_FATAL, "cannot find the folder %s: %s", dir, strerror(errno));
    cluster->dir = mem_strdup(path);
    cluster->data = mem_printf("%s/pg", path);
    char *version = mem_printf("%s/PG_VERSION", path);
    bool is_data = access(version, F_OK) == 0;
    free(version);
    if (is_data)
        return err_set(err, ERR_FATAL, "%s is itself a PostgreSQL data folder", path);
    if (strlen(path) + sizeof("/pg/.s.PGSQL.5432") > sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(err, ERR_FATAL, "the path of %s is too long for a socket below it", path);
    return true;
}

static bool check_dir(struct cluster *cluster, struct err *err)
{
    if (!is_reachable(cluster))
        return err_set(err, ERR_FATAL,
                       "the user %s, which PostgreSQL runs as, cannot reach %s: choose another "
                       "folder, for instance below /var/lib",
                       cluster->drop ? SERVER_USER : "that runs foldd", cluster->dir);
    if (is_foreign(cluster))
        return err_set(err, ERR_FATAL, "%s was not made by foldd --standalone: it is left alone",
                       cluster->data);
    return true;
}

static char *make_conninfo(const char *data)
{
    struct buf text = {0};
    buf_add_str(&text, "host='");
    for (const char *c = data; *c != '\0'; c++) {
        if (*c == '\'' || *c == '\\')
            buf_add_char(&text, '\\');
        buf_add_char(&text, *c);
    }
    buf_add_str(&text, "' port=5432 dbname=foldd user=foldd");
    return buf_take(&text);
}

struct cluster *cluster_new(struct event_base *base, const char *dir, const char *bindir,
                            const struct cluster_events *events, struct err *err)
{
    struct cluster *cluster = mem_zalloc(sizeof(*cluster));
    cluster->base = base;
    cluster->events = *events;
    cluster->pidfd = -1;
    cluster->timer = evtimer_new(base, on_timer, cluster);
    if (!find_user(cluster, err) || !prepare_dir(cluster, dir, err) || !check_dir(cluster, err)) {
        cluster_free(cluster);
        return NULL;
    }
    cluster->bindir = bindir[0] != '\0' ? mem_strdup(bindir) : find_bindir(cluster->data);
    if (cluster->bindir == NULL || !has_server(cluster->bindir)) {
        err_set(err, ERR_FATAL,
                "no PostgreSQL server found%s%s: install postgresql, or set pg_bindir",
                bindir[0] != '\0' ? " in " : "", bindir);
        cluster_free(cluster);
        return NULL;
    }
    cluster->conninfo = make_conninfo(cluster->data);
    return cluster;
}

const char *cluster_dir(const struct cluster *cluster)
{
    return cluster->dir;
}

static void forget_child(struct cluster *cluster)
{
    if (cluster->exit_event != NULL)
        event_free(cluster->exit_event);
    if (cluster->pidfd >= 0)
        close(cluster->pidfd);
    cluster->exit_event = NULL;
    cluster->pidfd = -1;
    cluster->pid = 0;
}

void cluster_free(struct cluster *cluster)
{
    if (cluster == NULL)
        return;
    forget_child(cluster);
    event_free(cluster->timer);
    free(cluster->dir);
    free(cluster->data);
    free(cluster->fresh);
    free(cluster->bindir);
    free(cluster->conninfo);
    free(cluster);
}

/* --- children */

static void fatal(struct cluster *cluster, const char *what)
{
    struct err err;
    err_set(&err, ERR_FATAL, "%s: see %s/postgres.log", what, cluster->dir);
    cluster->events.on_fatal(cluster->events.arg, &err);
}

static void on_child_exit(evutil_socket_t fd, short what, void *arg);

static bool watch(struct cluster *cluster, pid_t pid)
{
    cluster->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (cluster->pidfd < 0)
        return false;
    cluster->pid = pid;
    cluster->exit_event = event_new(cluster->base, cluster->pidfd, EV_READ, on_child_exit, cluster);
    event_add(cluster->exit_event, NULL);
    return true;
}

/* Run a program as the server's user, with the text as its input and DIR/postgres.log as its
 * output. What only makes the cluster must not go on behind a killed foldd's successor. */
static bool spawn(struct cluster *cluster, char *const argv[], const char *input)
{
    char *log = mem_printf("%s/postgres.log", cluster->dir);
    const struct child_options options = {.argv = argv,
                                          .input = input,
                                          .log = log,
                                          .dir = cluster->dir,
                                          .user = cluster->drop ? SERVER_USER : NULL,
                                          .uid = cluster->uid,
                                          .gid = cluster->gid,
                                          .bond = cluster->step < STEP_STARTING ? CHILD_DIES
                                                                                : CHILD_STAYS};
    pid_t pid = child_start(&options);
    free(log);
    if (pid > 0 && watch(cluster, pid))
        return true;
    fatal(cluster, "cannot start a program of PostgreSQL");
    return false;
}

/* --- making the cluster */

static int remove_entry(const char *path, const struct stat *found, int kind, struct FTW *where)
{
    (void)found;
    (void)kind;
    (void)where;
    return remove(path);
}

/* What killed foldds have begun. The end of a killed initdb may still be writing there; what it
 * leaves behind this goes the next time. */
static void remove_unfinished(const struct cluster *cluster)
{
    DIR *dir = opendir(cluster->dir);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, UNFINISHED, strlen(UNFINISHED)) != 0)
            continue;
        char *path = mem_printf("%s/%s", cluster->dir, entry->d_name);
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        free(path);
    }
    if (dir != NULL)
        closedir(dir);
}

static void run_initdb(struct cluster *cluster)
{
    cluster->step = STEP_INITDB;
    log_info("making_cluster", "folder=%s", log_text(cluster->data));
    free(cluster->fresh);
    cluster->fresh = mem_printf("%s/%sXXXXXX", cluster->dir, UNFINISHED);
    if (mkdtemp(cluster->fresh) == NULL ||
        (cluster->drop && chown(cluster->fresh, cluster->uid, cluster->gid) != 0)) {
        fatal(cluster, "cannot make the data folder");
        return;
    }
    char *program = mem_printf("%s/initdb", cluster->bindir);
    char *const argv[] = {program,
                          (char[]){"-D"},
                          cluster->fresh,
                          (char[]){"--username=foldd"},
                          (char[]){"--auth=trust"},
                          (char[]){"--encoding=UTF8"},
                          (char[]){"--locale=C.UTF-8"},
                          (char[]){"--no-instructions"},
                          NULL};
    spawn(cluster, argv, "");
    free(program);
}

/* Before the rename makes the cluster ours: the database, our settings, our mark. */
static void make_database(struct cluster *cluster)
{
    cluster->step = STEP_DATABASE;
    char *program = mem_printf("%s/postgres", cluster->bindir);
    char *const argv[] = {program,        (char[]){"--single"}, (char[]){"-D"},
                          cluster->fresh, (char[]){"postgres"}, NULL};
    spawn(cluster, argv, "CREATE DATABASE foldd;\n");
    free(program);
}

static bool append_file(const char *folder, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    free(path);
    size_t len = strlen(text);
    bool ok = fd >= 0 && write(fd, text, len) == (ssize_t)len && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static void finish_making(struct cluster *cluster)
{
    if (append_file(cluster->fresh, "postgresql.conf", SETTINGS) &&
        append_file(cluster->fresh, MARK, "made by foldd --standalone\n") &&
        rename(cluster->fresh, cluster->data) == 0) {
        remove_unfinished(cluster);
        start_server(cluster);
    } else {
        fatal(cluster, "cannot finish the data folder");
    }
}

/* --- running it */

/* The postmaster's working folder is its data folder: a process id that was used again is not ours.
 */
static pid_t find_postmaster(const struct cluster *cluster)
{
    char *path = mem_printf("%s/postmaster.pid", cluster->data);
    FILE *file = fopen(path, "re");
    free(path);
    int pid = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    fclose(file);
    if (pid <= 1)
        return 0;
    struct stat data;
    struct stat cwd;
    path = mem_printf("/proc/%d/cwd", pid);
    bool same = stat(cluster->data, &data) == 0 && stat(path, &cwd) == 0 &&
                data.st_dev == cwd.st_dev && data.st_ino == cwd.st_ino;
    free(path);
    return same ? pid : 0;
}

/* The eighth line of postmaster.pid says how far the server is: what pg_ctl goes by, too. */
static bool is_ready(const struct cluster *cluster)
{
    enum { STATUS_LINE = 8 };
    char *path = mem_printf("%s/postmaster.pid", cluster->data);
    FILE *file = fopen(path, "re");
    free(path);
    if (file == NULL)
        return false;
    char line[256] = "";
    int pid = 0;
    for (int i = 1; i <= STATUS_LINE && fgets(line, sizeof(line), file) != NULL; i++)
        if (i == 1)
            pid = (int)strtol(line, NULL, 10);
    fclose(file);
    return pid == cluster->pid && strncmp(line, "ready", 5) == 0;
}

static bool write_conninfo(const struct cluster *cluster)
{
    char *path = mem_printf("%s/conninfo", cluster->dir);
    char *fresh = mem_printf("%s/conninfo.new", cluster->dir);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && dprintf(fd, "%s\n", cluster->conninfo) > 0 && rename(fresh, path) == 0;
    if (fd >= 0)
        close(fd);
    free(path);
    free(fresh);
    return ok;
}

static void start_server(struct cluster *cluster)
{
    cluster->step = STEP_SERVER;
    if (!write_conninfo(cluster)) {
        fatal(cluster, "cannot write the file conninfo");
        return;
    }
    pid_t left = find_postmaster(cluster);
    if (left != 0 && watch(cluster, left)) {
        log_info("postgres_adopted", "pid=%d", (int)left);
        cluster->events.on_started(cluster->events.arg, cluster->conninfo);
        return;
    }
    char *program = mem_printf("%s/postgres", cluster->bindir);
    char *sockets = mem_printf("unix_socket_directories=%s", cluster->data);
    char *const argv[] = {program,
                          (char[]){"-D"},
                          cluster->data,
                          (char[]){"-c"},
                          (char[]){"listen_addresses="},
                          (char[]){"-c"},
                          (char[]){"port=5432"},
                          (char[]){"-c"},
                          sockets,
                          NULL};
    bool started = spawn(cluster, argv, "");
    free(program);
    free(sockets);
    if (!started)
        return;
    cluster->step = STEP_STARTING;
    timer_set(cluster->timer, READY_LOOK_MS);
}

static void look_if_ready(struct cluster *cluster)
{
    if (!is_ready(cluster)) {
        timer_set(cluster->timer, READY_LOOK_MS);
        return;
    }
    log_info("postgres_started", "pid=%d", (int)cluster->pid);
    cluster->step = STEP_SERVER;
    cluster->failures = 0;
    cluster->events.on_started(cluster->events.arg, cluster->conninfo);
}

void cluster_start(struct cluster *cluster)
{
    remove_unfinished(cluster);
    if (access(cluster->data, F_OK) == 0)
        start_server(cluster);
    else
        run_initdb(cluster);
}

static void on_server_exit(struct cluster *cluster, int status)
{
    cluster->failures++;
    evtimer_del(cluster->timer);
    log_error("postgres_ended", "status=%d log=%s/postgres.log", status, cluster->dir);
    timer_set(cluster->timer,
              retry_delay_ms(RESTART_BASE_MS, RESTART_CAP_MS, cluster->failures, arc4random()));
}

static void on_child_exit(evutil_socket_t fd, short what, void *arg)
{
    struct cluster *cluster = arg;
    int status = 0;
    (void)fd;
    (void)what;
    waitpid(cluster->pid, &status, 0); /* fails at once for an adopted one */
    forget_child(cluster);
    if (cluster->stopping) {
        evtimer_del(cluster->timer);
        cluster->events.on_stopped(cluster->events.arg);
    } else if (cluster->step == STEP_SERVER || cluster->step == STEP_STARTING) {
        on_server_exit(cluster, status);
    } else if (status != 0) {
        fatal(cluster,
              cluster->step == STEP_INITDB ? "initdb failed" : "the database could not be made");
    } else if (cluster->step == STEP_INITDB) {
        make_database(cluster);
    } else {
        finish_making(cluster);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct cluster *cluster = arg;
    (void)fd;
    (void)what;
    if (!cluster->stopping && cluster->step == STEP_STARTING && cluster->pid != 0)
        look_if_ready(cluster);
    else if (!cluster->stopping)
        cluster_start(cluster);
    else if (cluster->pid != 0)
        kill(cluster->pid, SIGQUIT);
}

void cluster_abandon(struct cluster *cluster)
{
    if (cluster->pid != 0)
        kill(cluster->pid, cluster->step >= STEP_STARTING ? SIGQUIT : SIGKILL);
}

void cluster_stop(struct cluster *cluster)
{
    cluster->stopping = true;
    evtimer_del(cluster->timer);
    if (cluster->pid == 0) {
        cluster->events.on_stopped(cluster->events.arg);
        return;
    }
    kill(cluster->pid, cluster->step >= STEP_STARTING ? SIGINT : SIGTERM);
    timer_set(cluster->timer, STOP_FAST_S * 1000);
}
