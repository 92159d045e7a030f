/* SPDX-License-Identifier: MIT */
/* foldd processes: start, watch, end. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

const char *foldd_program(void)
{
    const char *path = getenv("FOLDD");
    return path == NULL ? "build/foldd" : path;
}

const char *foldctl_program(void)
{
    const char *path = getenv("FOLDCTL");
    return path == NULL ? "build/foldctl" : path;
}

static void run(struct daemon *daemon)
{
    pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int in = open("/dev/null", O_RDONLY);
        int out = open(daemon->log, O_WRONLY | O_APPEND | O_CREAT, 0666);
        if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
            dup2(out, STDERR_FILENO) < 0)
            _exit(126);
        execvp(daemon->argv[0], daemon->argv);
        fprintf(stderr, "cannot run %s: %s\n", daemon->argv[0], strerror(errno));
        _exit(127);
    }
    daemon->pid = pid;
}

static struct daemon *spawn(struct env *env, const char *socket, char **argv)
{
    struct daemon *daemon = mem_zalloc(sizeof *daemon);
    daemon->env = env;
    daemon->socket = socket;
    daemon->argv = argv;
    daemon->log = env_path(env, env_printf(env, "foldd-%u.log", ++env->daemon_count));
    TAILQ_INSERT_TAIL(&env->daemons, daemon, link);
    run(daemon);
    return daemon;
}

struct daemon *daemon_run(struct env *env, const char *socket, const char *const args[])
{
    size_t count = 0;
    while (args[count] != NULL)
        count++;
    char **argv = mem_zalloc((count + 1) * sizeof *argv);
    for (size_t i = 0; i < count; i++)
        argv[i] = mem_strdup(args[i]);
    return spawn(env, socket, argv);
}

struct daemon *daemon_spawn(struct env *env, const char *socket, const char *const args[])
{
    const char *argv[64] = {foldd_program()};
    size_t count = 0;
    for (; args[count] != NULL && count < 62; count++)
        argv[count + 1] = args[count];
    return daemon_run(env, socket, argv);
}

/* Whether something accepts connections at the path. */
static bool answers(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return ok;
}

/* Whether the process ended; its exit code then. */
static bool reap(struct daemon *daemon, int *code)
{
    int status;
    if (waitpid(daemon->pid, &status, WNOHANG) != daemon->pid)
        return false;
    daemon->pid = 0;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

void daemon_wait_ready(struct daemon *daemon)
{
    int code;
    for (int64_t end = now_ms() + TEST_WAIT_MS; !answers(daemon->socket); pause_ms(2)) {
        ck_assert_msg(!reap(daemon, &code), "foldd ended with code %d while starting", code);
        ck_assert_msg(now_ms() < end, "foldd does not listen on %s", daemon->socket);
    }
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'ping'}"), "{'ok':true}");
    conn_close(conn);
}

void daemon_wait_leading(struct daemon *daemon)
{
    daemon_wait_ready(daemon);
    if (!cluster_is_up())
        return;
    struct conn *conn = conn_open(daemon);
    const char *role = "";
    for (int64_t end = now_ms() + TEST_WAIT_MS; strcmp(role, "leader") != 0; pause_ms(2)) {
        ck_assert_msg(now_ms() < end, "foldd's role is still %s", role);
        role = json_string_value(json_object_get(ask(conn, "{'request':'status'}"), "role"));
        ck_assert_ptr_nonnull(role);
    }
    conn_close(conn);
}

struct daemon *daemon_start(struct env *env, ...)
{
    const char *args[64];
    size_t count = 0;
    const char *socket = env_path(env, "foldd.sock");
    args[count++] = "--set";
    args[count++] = env_printf(env, "database=%s", env->conninfo);
    args[count++] = "--set";
    args[count++] = env_printf(env, "socket=%s", socket);
    va_list list;
    va_start(list, env);
    for (const char *setting; (setting = va_arg(list, const char *)) != NULL && count < 62;) {
        args[count++] = "--set";
        args[count++] = setting;
    }
    va_end(list);
    args[count] = NULL;
    struct daemon *daemon = daemon_spawn(env, socket, args);
    daemon_wait_leading(daemon);
    return daemon;
}

struct daemon *daemon_start_standalone(struct env *env, const char *dir)
{
    const char *args[] = {"--standalone", dir, NULL};
    struct daemon *daemon = daemon_spawn(env, env_printf(env, "%s/foldd.sock", dir), args);
    daemon_wait_leading(daemon);
    return daemon;
}

void daemon_signal(struct daemon *daemon, int sig)
{
    ck_assert(daemon->pid > 0 && kill(daemon->pid, sig) == 0);
}

int daemon_wait_exit(struct daemon *daemon, int ms)
{
    int code = -1;
    ck_assert(daemon->pid > 0);
    for (int64_t end = now_ms() + ms; !reap(daemon, &code); pause_ms(2))
        ck_assert_msg(now_ms() < end, "foldd did not end within %d ms", ms);
    return code;
}

void daemon_stop(struct daemon *daemon)
{
    daemon_signal(daemon, SIGTERM);
    int code = daemon_wait_exit(daemon, TEST_WAIT_MS);
    ck_assert_msg(code == 0, "foldd ended with code %d", code);
}

void daemon_kill(struct daemon *daemon)
{
    daemon_signal(daemon, SIGKILL);
    int code = daemon_wait_exit(daemon, TEST_WAIT_MS);
    ck_assert_msg(code == 128 + SIGKILL, "foldd had ended by itself with code %d", code);
}

void daemon_again(struct daemon *daemon)
{
    ck_assert(daemon->pid == 0);
    run(daemon);
    daemon_wait_leading(daemon);
}

bool daemon_runs(struct daemon *daemon)
{
    int code;
    return daemon->pid != 0 && !reap(daemon, &code);
}

void daemon_expect_log(const struct daemon *daemon, const char *text)
{
    char *log = file_read(daemon->log);
    ck_assert_msg(strstr(log, text) != NULL, "foldd did not say '%s' but\n%s", text, log);
    free(log);
}

void daemon_wait_log(const struct daemon *daemon, const char *text)
{
    bool found = false;
    for (int64_t end = now_ms() + TEST_WAIT_MS; !found; pause_ms(2)) {
        char *log = file_read(daemon->log);
        found = strstr(log, text) != NULL;
        ck_assert_msg(found || now_ms() < end, "foldd did not say '%s' but\n%s", text, log);
        free(log);
    }
}

void daemon_expect_refusal(struct daemon *daemon, const char *text)
{
    int code = daemon_wait_exit(daemon, TEST_WAIT_MS);
    ck_assert_msg(code > 0 && code < 128, "foldd ended with code %d instead of refusing", code);
    daemon_expect_log(daemon, text);
}

int64_t daemon_proc_status(const struct daemon *daemon, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    char *status = file_read(path);
    char *line = mem_printf("\n%s:", key);
    const char *found = strstr(status, line);
    ck_assert_msg(found != NULL, "no %s in %s", key, path);
    int64_t value = strtoll(found + strlen(line), NULL, 10);
    free(line);
    free(status);
    return value;
}
