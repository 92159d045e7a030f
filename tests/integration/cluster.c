/* SPDX-License-Identifier: MIT */
/*
 * The run's cluster and the process that keeps it.
 *
 * The keeper is the program's first process and the reaper of all its descendants. Tests are forked
 * by Check from the runner, the keeper's child, and end at any point; so a postmaster that a test
 * wants started again is not the test's child: the test writes a byte to the keeper. A postmaster
 * that dies is reaped at once, since PostgreSQL takes a zombie with its number for a live one.
 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Check's test functions take no argument, so what a run has one of stands here. Written before the
 * runner is forked, read by the tests. */
static struct {
    char *root;
    char *bindir;
    char *data; /* also the folder of its socket */
    char *log;
    int command_fd; /* tests write here */
} cluster = {.command_fd = -1};

const char *cluster_root(void)
{
    return cluster.root;
}

const char *cluster_bindir(void)
{
    return cluster.bindir;
}

char *cluster_conninfo(const char *database)
{
    return mem_printf("host=%s user=postgres dbname=%s", cluster.data, database);
}

void cluster_become_user(void)
{
    if (geteuid() != 0)
        return;
    const struct passwd *user = getpwnam("postgres");
    if (user == NULL || initgroups(user->pw_name, user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
        setuid(user->pw_uid) != 0) {
        fputs("integration: cannot become the user postgres\n", stderr);
        _exit(126);
    }
}

off_t cluster_log_size(void)
{
    struct stat st;
    return stat(cluster.log, &st) == 0 ? st.st_size : 0;
}

void cluster_log_print(off_t from)
{
    FILE *file = fopen(cluster.log, "r");
    if (file == NULL || fseeko(file, from, SEEK_SET) != 0)
        return;
    char block[4096];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        fwrite(block, 1, got, stderr);
    fclose(file);
}

/* Given: the folder of initdb, from pg_config or where Debian puts it; NULL if there is none. */
static char *find_bindir(void)
{
    char path[1024] = "";
    FILE *pipe = popen("dir=$(pg_config --bindir 2>/dev/null);"
                       "for d in \"$dir\" /usr/lib/postgresql/*/bin; do"
                       " [ -x \"$d/initdb\" ] && [ -x \"$d/postgres\" ] && echo \"$d\" && break;"
                       "done",
                       "r");
    if (pipe == NULL)
        return NULL;
    if (fgets(path, sizeof path, pipe) != NULL)
        path[strcspn(path, "\n")] = '\0';
    pclose(pipe);
    return path[0] == '\0' ? NULL : mem_strdup(path);
}

/* In a child: output to the log, exec. */
static void exec_server_program(char *const argv[])
{
    cluster_become_user();
    int fd = open(cluster.log, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], argv);
    _exit(127);
}

static char *text(const char *constant)
{
    return mem_strdup(constant);
}

static bool make_cluster(void)
{
    char *argv[] = {mem_printf("%s/initdb", cluster.bindir),
                    text("-D"),
                    cluster.data,
                    text("--username=postgres"),
                    text("--auth=trust"),
                    text("--encoding=UTF8"),
                    text("--locale=C"),
                    text("--no-sync"),
                    NULL};
    pid_t pid = fork();
    if (pid == 0)
        exec_server_program(argv);
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static pid_t spawn_postmaster(void)
{
    char *argv[] = {mem_printf("%s/postgres", cluster.bindir),
                    text("-D"),
                    cluster.data,
                    text("-k"),
                    cluster.data,
                    text("-clisten_addresses="),
                    text("-cfsync=off"),
                    text("-cmax_connections=100"),
                    text("-cshared_buffers=128MB"),
                    text("-cmax_wal_size=2GB"),
                    text("-clog_line_prefix=%m [%p] %q%a@%d "),
                    NULL};
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        exec_server_program(argv);
    }
    return pid;
}

bool cluster_is_up(void)
{
    char *conninfo = cluster_conninfo("postgres");
    bool up = PQping(conninfo) == PQPING_OK;
    free(conninfo);
    return up;
}

static bool wait_up(void)
{
    for (int64_t end = now_ms() + TEST_WAIT_MS; now_ms() < end; pause_ms(10)) {
        if (cluster_is_up())
            return true;
    }
    return false;
}

void cluster_start(void)
{
    ck_assert_msg(processes_under(cluster.data) == 0, "the cluster still runs");
    ck_assert(write(cluster.command_fd, "s", 1) == 1);
    ck_assert_msg(wait_up(), "the cluster did not start");
}

void cluster_stop(int sig)
{
    char *path = mem_printf("%s/postmaster.pid", cluster.data);
    char *content = file_read(path);
    pid_t pid = (pid_t)strtol(content, NULL, 10);
    ck_assert_msg(pid > 1, "no postmaster to stop");
    ck_assert(kill(pid, sig) == 0);
    int64_t end = now_ms() + TEST_WAIT_MS;
    while (processes_under(cluster.data) > 0) {
        ck_assert_msg(now_ms() < end, "the cluster did not stop");
        pause_ms(5);
    }
    free(content);
    free(path);
}

/* Kill every child but one (whose postmaster gets a chance to stop well). */
static void kill_children(pid_t except)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        char *stat = pid > 0 ? file_read(path) : NULL;
        const char *behind = stat == NULL ? NULL : strrchr(stat, ')');
        if (behind != NULL && strtol(behind + 4, NULL, 10) == getpid() && pid != except)
            kill(pid, SIGKILL);
        free(stat);
    }
    if (proc != NULL)
        closedir(proc);
}

/* Reap until no child is left; ms at most. */
static bool reap_all(int ms)
{
    for (int64_t end = now_ms() + ms; now_ms() < end; pause_ms(5)) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            continue;
        if (pid < 0 && errno == ECHILD)
            return true;
    }
    return false;
}

static void clean_up(pid_t postmaster)
{
    kill_children(postmaster);
    if (postmaster > 0)
        kill(postmaster, SIGINT);
    if (!reap_all(10000)) {
        kill_children(0);
        reap_all(10000);
    }
}

/* The keeper's loop: until the runner ends. Returns its exit code. */
static int keep(pid_t runner, pid_t *postmaster, int signal_fd, int command_fd)
{
    struct pollfd fds[] = {{signal_fd, POLLIN, 0}, {command_fd, POLLIN, 0}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return 1;
        struct signalfd_siginfo info;
        if ((fds[0].revents & POLLIN) != 0 && read(signal_fd, &info, sizeof info) > 0 &&
            info.ssi_signo != SIGCHLD)
            kill(runner, (int)info.ssi_signo);
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (pid == *postmaster)
                *postmaster = 0;
            if (pid == runner)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
        char command;
        if ((fds[1].revents & POLLIN) != 0 && read(command_fd, &command, 1) == 1)
            *postmaster = spawn_postmaster();
    }
}

static bool prepare(void)
{
    cluster.root = mem_strdup("/tmp/foldd-test-XXXXXX");
    cluster.bindir = find_bindir();
    if (cluster.bindir == NULL) {
        fputs("integration: no PostgreSQL programs (initdb, postgres) found\n", stderr);
        return false;
    }
    if (mkdtemp(cluster.root) == NULL || chmod(cluster.root, 0755) != 0)
        return false;
    char *base = mem_printf("%s/cluster", cluster.root);
    cluster.data = mem_printf("%s/data", base);
    cluster.log = mem_printf("%s/postgres.log", base);
    char *tests = mem_printf("%s/tests", cluster.root);
    const struct passwd *user = geteuid() == 0 ? getpwnam("postgres") : NULL;
    bool ok = mkdir(base, 0755) == 0 && mkdir(tests, 0755) == 0 &&
              (user == NULL || chown(base, user->pw_uid, user->pw_gid) == 0);
    free(base);
    free(tests);
    return ok;
}

int cluster_run(int (*run)(void))
{
    sigset_t signals;
    sigset_t before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    int commands[2];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = 1;
    pid_t postmaster = 0;
    if (signal_fd < 0 || pipe2(commands, O_CLOEXEC) != 0 || !prepare())
        goto out;
    cluster.command_fd = commands[1];
    postmaster = make_cluster() ? spawn_postmaster() : 0;
    if (postmaster <= 0 || !wait_up()) {
        fputs("integration: the cluster could not be started\n", stderr);
        cluster_log_print(0);
        goto out;
    }
    pid_t runner = fork();
    if (runner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0); /* Check signals its whole group when it is interrupted */
        sigprocmask(SIG_SETMASK, &before, NULL);
        exit(run());
    }
    signal(SIGPIPE, SIG_IGN); /* what comes now is cleaning up, whoever still reads the output */
    if (runner > 0)
        code = keep(runner, &postmaster, signal_fd, commands[0]);
    env_print_failed();
out:
    clean_up(postmaster);
    if (cluster.data != NULL)
        remove_tree(cluster.root);
    return code;
}
