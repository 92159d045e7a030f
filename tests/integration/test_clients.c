/* SPDX-License-Identifier: MIT */
/* What a client may take of foldd, and for how long: waits, lines, replies, turns, descriptors; and
 * who may be one (design.md 3, 10; R23; cases E1, E3, E8, E11, E13, E14, E17). */
#include "suites.h"

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, DAEMON_USER = 1, LONG_WAIT_MS = 600000 };

static void send_awaits(struct conn *conn, int first, int count)
{
    for (int i = first; i < first + count; i++)
        conn_line(conn, "{'request':'await','document':'never','id':'i%d','timeout_ms':%d}", i,
                  LONG_WAIT_MS);
    conn_flush(conn);
}

/* ---- open waits ---- */

/* E17, R23: as many as allowed wait; with a line more, nothing that was read can settle them. */
START_TEST(waits_over_the_limit_end_at_once)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_waits=10", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    struct conn *watch = conn_open(daemon);
    send_awaits(other, 0, 10);
    send_awaits(conn, 0, 10);
    status_wait(watch, "waits", 20);
    ck_assert(!conn_has_reply(conn));
    send_awaits(conn, 10, 1);
    for (int i = 0; i < 10; i++)
        expect(conn_read(conn), "{'ok':true,'outcome':'timeout','state':'unknown'}");
    status_wait(watch, "waits", 11);
    ck_assert(!conn_has_reply(conn) && !conn_has_reply(other));
    expect(ask(watch, "{'document':'never','id':'i10','action':'update','fields':{}}"),
           "{'ok':true}");
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* R23: what is awaited comes later in the same pipeline. */
START_TEST(await_of_a_later_line_behind_the_limit)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "max_waits=5", NULL));
    for (int i = 0; i < 5; i++)
        conn_line(conn, "{'request':'await','document':'d','id':'x','timeout_ms':%d}",
                  LONG_WAIT_MS);
    conn_line(conn, "{'document':'d','id':'x','action':'update','fields':{}}");
    conn_line(conn, "{'request':'await','document':'d','id':'x','timeout_ms':%d}", LONG_WAIT_MS);
    conn_flush(conn);
    expect(conn_read(conn), "{'ok':true,'outcome':'timeout'}");
    /* With half of them ended the operation was read: it may have come in time for the others. */
    for (int i = 1; i < 5; i++)
        expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true,'id':'x'}");
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* Full means that no more is read, for ack folded, for barriers and for awaits of what is in the
 * log; _i says which. */
START_TEST(pipeline_of_waits_goes_on)
{
    enum { LIMIT = 10, LINES = 200 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_waits=10", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *watch = conn_open(daemon);
    gate_make(env, "^d");
    expect(ask(watch, "{'document':'d','id':'first','action':'create','fields':{}}"),
           "{'ok':true}");
    for (int i = 0; i < LINES; i++) {
        if (_i == 0)
            conn_line(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}");
        else
            conn_line(conn, "{'request':'%s,'timeout_ms':%d}",
                      _i == 1 ? "barrier'" : "await','document':'d','id':'first'", LONG_WAIT_MS);
    }
    conn_flush(conn);
    status_wait(watch, "waits", LIMIT);
    sql_stays(env, 300, _i == 0 ? "11" : "1", "select count(*) from foldd.operations");
    ck_assert_int_eq(status_int(watch, "waits"), LIMIT);
    ck_assert(!conn_has_reply(conn));
    gate_open(env);
    for (int i = 0; i < LINES; i++) {
        const json_t *reply = conn_read(conn);
        expect(reply, _i == 1 ? "{'ok':true}" : "{'ok':true,'outcome':'folded'}");
        ck_assert(_i != 1 || json_object_get(reply, "outcome") == NULL);
    }
    status_wait(watch, "waits", 0);
    env_free(env);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__)
enum { WAITERS = 10, CHECK_RSS = 0 };
#else
enum { WAITERS = 100, CHECK_RSS = 1 };
#endif

/* E17: 100,000 waits for what never comes, and their clients go */
START_TEST(waits_of_gone_clients_are_forgotten)
{
    enum { EACH = 1000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_clients_pending=256MiB", NULL);
    struct conn *watch = conn_open(daemon);
    struct conn *conns[WAITERS];
    int64_t before = daemon_proc_status(daemon, "VmRSS");
    for (int i = 0; i < WAITERS; i++) {
        conns[i] = conn_open(daemon);
        send_awaits(conns[i], i * EACH, EACH);
    }
    status_wait(watch, "waits", WAITERS * EACH);
    int64_t full = daemon_proc_status(daemon, "VmRSS");
    for (int i = 0; i < WAITERS; i++) {
        ck_assert(!conn_has_reply(conns[i]));
        conn_close(conns[i]);
    }
    status_wait(watch, "waits", 0);
    status_wait(watch, "clients", 1);
    ck_assert_int_ge(full, before + WAITERS * EACH * 4 / 10);
    int64_t after = full;
    for (int64_t end = now_ms() + TEST_WAIT_MS; CHECK_RSS && after > before + 8 * 1024;) {
        ck_assert_msg(now_ms() < end, "%lld KiB before, %lld with waits, %lld after",
                      (long long)before, (long long)full, (long long)after);
        pause_ms(50);
        after = daemon_proc_status(daemon, "VmRSS");
    }
    env_free(env);
}
END_TEST

/* ---- half lines ---- */

#define UPDATE "{\"document\":\"d\",\"action\":\"update\",\"fields\":{\"a\":1}}"

static void expect_line_timeout(struct conn *conn, int line)
{
    expect_error(conn_read(conn), "invalid", "line_timeout");
    expect(conn->json, "{'line':%d}", line);
    expect_end(conn);
}

/* E1: from the line's first byte on, however it trickles in. Whole lines, and none, cost nothing.
 */
START_TEST(half_line_is_ended)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "line_timeout=300ms", NULL);
    struct conn *silent = conn_open(daemon);
    struct conn *whole = conn_open(daemon);
    struct conn *half = conn_open(daemon);
    struct conn *trickle = conn_open(daemon);
    expect(ask(whole, "{'request':'ping'}"), "{'ok':true}");
    conn_bytes(half, UPDATE "\n" UPDATE, 2 * strlen(UPDATE) + 1);
    conn_flush(half);
    expect(conn_read(half), "{'ok':true}");
    int64_t end = now_ms() + TEST_WAIT_MS;
    for (; !conn_has_reply(trickle); pause_ms(20)) {
        ck_assert_msg(now_ms() < end, "a line that trickles in is never ended");
        conn_bytes(trickle, " ", 1);
        conn_flush(trickle);
    }
    expect_line_timeout(trickle, 1);
    expect_line_timeout(half, 2);
    expect(ask(whole, "{'request':'ping'}"), "{'ok':true}");
    expect(ask(silent, "{'request':'ping'}"), "{'ok':true}");
    expect_sql(env, "1", "select count(*) from foldd.operations");
    daemon_expect_log(daemon, "reason=line_timeout");
    env_free(env);
}
END_TEST

/* The replies that are due come first. */
START_TEST(half_line_behind_a_wait)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "line_timeout=100ms", NULL);
    struct conn *conn = conn_open(daemon);
    gate_make(env, "^d");
    conn_line(conn, "{'document':'d','action':'create','fields':{},'ack':'folded'}");
    conn_bytes(conn, "{\"half", 6);
    conn_flush(conn);
    daemon_wait_log(daemon, "reason=line_timeout");
    ck_assert(!conn_has_reply(conn));
    gate_open(env);
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect_line_timeout(conn, 2);
    env_free(env);
}
END_TEST

/* A client that is not read has not been slow. */
START_TEST(half_line_of_a_full_client_has_time)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "line_timeout=100ms", "max_waits=2", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    gate_make(env, "^d");
    for (int i = 0; i < 2; i++)
        conn_line(conn, "{'document':'d','action':'create','fields':{},'ack':'folded'}");
    conn_bytes(conn, UPDATE, 10);
    conn_flush(conn);
    status_wait(conn_open(daemon), "waits", 2);
    for (int i = 0; i < 3; i++) {
        conn_bytes(other, "{", 1);
        conn_flush(other);
        expect_line_timeout(other, 1);
        other = conn_open(daemon);
    }
    conn_bytes(conn, UPDATE "\n" + 10, strlen(UPDATE) + 1 - 10);
    conn_flush(conn);
    ck_assert(!conn_has_reply(conn));
    gate_open(env);
    for (int i = 0; i < 3; i++)
        expect(conn_read(conn), "{'ok':true}");
    env_free(env);
}
END_TEST

/* ---- memory for lines ---- */

enum { LONG_LINES = 200, LONG_LINE = 1024 * 1024 };

/* A request of exactly the longest line; sent but for its end. */
static void queue_long_line(struct conn *conn, const char *spaces)
{
    static const char head[] = "{\"request\":";
    static const char tail[] = "\"ping\"}";
    conn_bytes(conn, head, sizeof head - 1);
    conn_bytes(conn, spaces, LONG_LINE - (sizeof head - 1) - (sizeof tail - 1));
    conn_bytes(conn, tail, sizeof tail - 1);
}

static int64_t unsent(struct conn *const *conns, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (int64_t)(conns[i]->out.len - conns[i]->out_pos);
    return bytes;
}

/* Send until foldd takes no more, while it answers another. */
static void push_all(struct conn *const *conns, int count, struct conn *other)
{
    int64_t left = -1;
    for (int still = 0; still < 50; still++) {
        int64_t before = left;
        for (int i = 0; i < count; i++)
            conn_push_only(conns[i]);
        expect(ask(other, "{'document':'o','action':'update','fields':{}}"), "{'ok':true}");
        left = unsent(conns, count);
        if (left != before)
            still = 0;
    }
}

static void open_long_lines(struct daemon *daemon, struct conn **conns)
{
    char *spaces = mem_alloc(LONG_LINE);
    memset(spaces, ' ', LONG_LINE);
    for (int i = 0; i < LONG_LINES; i++) {
        conns[i] = conn_open(daemon);
        queue_long_line(conns[i], spaces);
    }
    free(spaces);
}

/* E1: 200 connections in the middle of a line of the longest kind: memory has a limit, others are
 * served, and all lines come in in the end. */
START_TEST(long_lines_come_in_one_by_one)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_input=8MiB", NULL);
    static struct conn *conns[LONG_LINES];
    struct conn *other = conn_open(daemon);
    open_long_lines(daemon, conns);
    push_all(conns, LONG_LINES, other);
    ck_assert_int_gt(unsent(conns, LONG_LINES), (LONG_LINES - 100) * (int64_t)LONG_LINE);
    for (int i = 0; i < LONG_LINES; i++)
        conn_bytes(conns[i], "\n", 1);
    push_all(conns, LONG_LINES, other);
    ck_assert_int_eq(unsent(conns, LONG_LINES), 0);
    for (int i = 0; i < LONG_LINES; i++)
        expect(conn_read(conns[i]), "{'ok':true,'protocol':1}");
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    env_free(env);
}
END_TEST

/* E1: the same when none of them is ever ended */
START_TEST(long_lines_that_never_end)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "line_timeout=5min", NULL);
    static struct conn *conns[LONG_LINES];
    struct conn *other = conn_open(daemon);
    open_long_lines(daemon, conns);
    for (int64_t end = now_ms() + TEST_WAIT_MS; unsent(conns, LONG_LINES) > 0;) {
        ck_assert_msg(now_ms() < end, "%lld bytes are not read",
                      (long long)unsent(conns, LONG_LINES));
        for (int i = 0; i < LONG_LINES; i++)
            conn_push_only(conns[i]);
        expect(ask(other, "{'document':'o','action':'update','fields':{}}"), "{'ok':true}");
    }
    /* Those whose memory nobody wants any more may stay. */
    int ended = 0;
    for (int i = 0; i < LONG_LINES; i++)
        ended += conn_has_reply(conns[i]);
    ck_assert_int_ge(ended, LONG_LINES - 2 * 32);
    expect_error(conn_read(conns[0]), "invalid", "max_input");
    expect_end(conns[0]);
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    env_free(env);
}
END_TEST

/* ---- replies that nobody reads ---- */

static void queue_pings(struct conn *conn, int count)
{
    for (int i = 0; i < count; i++)
        conn_line(conn, "{'request':'ping'}");
}

/* E3: what was committed stays */
START_TEST(client_that_does_not_read_is_dropped)
{
    enum { SLOW = 20 };
    struct env *env = ENV();
    struct daemon *daemon =
        daemon_start(env, "write_timeout=500ms", "max_client_pending=1MiB", NULL);
    struct conn *watch = conn_open(daemon);
    struct conn *slow[SLOW];
    for (int i = 0; i < SLOW; i++) {
        slow[i] = conn_open(daemon);
        conn_line(slow[i], "{'document':'d%d','action':'create','fields':{}}", i);
        queue_pings(slow[i], 50000);
        conn_push_only(slow[i]);
    }
    int64_t end = now_ms() + TEST_WAIT_MS;
    while (status_int(watch, "clients") > 1) {
        ck_assert_msg(now_ms() < end, "clients that do not read stay");
        for (int i = 0; i < SLOW; i++)
            conn_push_only(slow[i]);
        pause_ms(5);
    }
    daemon_expect_log(daemon, "reason=write_timeout");
    expect_sql(env, env_printf(env, "%d", SLOW), "select count(*) from foldd.operations");
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    env_free(env);
}
END_TEST

/* E15: slow is not dead */
START_TEST(client_that_reads_slowly_stays)
{
    enum { LINES = 50000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "write_timeout=1s", "max_client_pending=1MiB", NULL);
    struct conn *slow = conn_open(daemon);
    queue_pings(slow, LINES);
    for (int i = 0; i < 40; i++) {
        conn_push_only(slow);
        pause_ms(100);
        conn_pump(&slow, 1, 0);
    }
    conn_flush(slow);
    for (int i = 0; i < LINES; i++)
        ck_assert_ptr_nonnull(conn_read_raw(slow, TEST_WAIT_MS));
    env_free(env);
}
END_TEST

/* ---- turns ---- */

static void stop_for_now(struct daemon *daemon)
{
    int status;
    daemon_signal(daemon, SIGSTOP);
    ck_assert(waitpid(daemon->pid, &status, WUNTRACED) == daemon->pid && WIFSTOPPED(status));
}

/* E17: one pipelines without end; another is served after a few of its lines. */
START_TEST(endless_pipeline_starves_nobody)
{
    enum { LINES = 3000, ROUNDS = 5, SHARE = 600 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *greedy = conn_open(daemon);
    struct conn *quick = conn_open(daemon);
    for (int64_t before = 0, round = 0; round < ROUNDS; round++) {
        stop_for_now(daemon);
        for (int i = 0; i < LINES; i++)
            conn_line(greedy, "{'document':'d','action':'update','fields':{}}");
        conn_line(quick, "{'document':'q','action':'update','fields':{}}");
        conn_push_only(greedy);
        conn_push_only(quick);
        ck_assert_int_eq(unsent((struct conn *const[]){greedy, quick}, 2), 0);
        daemon_signal(daemon, SIGCONT);
        int64_t seq = reply_int(conn_read(quick), "seq");
        ck_assert_msg(seq - before <= SHARE, "%lld lines went before one",
                      (long long)(seq - before));
        for (int i = 0; i < LINES; i++)
            before = reply_int(conn_read(greedy), "seq");
    }
    env_free(env);
}
END_TEST

/* ---- descriptors and the number of clients ---- */

static struct daemon *start_with_descriptors(struct env *env, rlim_t limit)
{
    struct rlimit before;
    ck_assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const char *socket = env_path(env, "foldd.sock");
    const char *args[] = {"/bin/sh",
                          "-c",
                          env_printf(env, "ulimit -n %d; exec \"$@\"", (int)limit),
                          "sh",
                          foldd_program(),
                          "--set",
                          env_printf(env, "database=%s", env->conninfo),
                          "--set",
                          env_printf(env, "socket=%s", socket),
                          NULL};
    struct daemon *daemon = daemon_run(env, socket, args);
    daemon_wait_leading(daemon);
    return daemon;
}

/* Milliseconds of processor time so far. */
static int64_t cpu_ms(const struct daemon *daemon)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)daemon->pid);
    char *stat = file_read(path);
    char *rest = strrchr(stat, ')');
    ck_assert_ptr_nonnull(rest);
    long long ticks[2] = {0, 0};
    for (int field = 3; field <= 15; field++) {
        rest = strchr(rest + 1, ' ');
        ck_assert_ptr_nonnull(rest);
        if (field >= 14)
            ticks[field - 14] = strtoll(rest, NULL, 10);
    }
    free(stat);
    return (ticks[0] + ticks[1]) * 1000 / sysconf(_SC_CLK_TCK);
}

/* E8: clients take all descriptors that they may; the database can still be reached anew. */
START_TEST(descriptors_are_kept_for_the_database)
{
    enum { CONNS = 100 };
    struct env *env = ENV();
    struct daemon *daemon = start_with_descriptors(env, 64);
    struct conn *first = conn_open(daemon);
    struct conn *conns[CONNS];
    for (int i = 0; i < CONNS; i++) {
        conns[i] = conn_open(daemon);
        conn_line(conns[i], "{'request':'ping'}");
        conn_push_only(conns[i]);
    }
    daemon_wait_log(daemon, "reason=descriptors");
    for (int round = 0; round < 3; round++) {
        sql(env, "select pg_terminate_backend(pid) from pg_stat_activity where pid <>"
                 " pg_backend_pid() and datname = current_database()");
        sql_wait(env, env_printf(env, "%d", round + 2), "select epoch from foldd.leader");
        expect(ask(first, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
               "{'ok':true,'outcome':'folded'}");
    }
    int64_t busy = cpu_ms(daemon);
    pause_ms(1000);
    ck_assert_int_le(cpu_ms(daemon) - busy, 100);
    char *log = file_read(daemon->log);
    ck_assert_msg(strlen(log) < 20000, "foldd logs in a loop");
    free(log);
    for (int i = 0; i < CONNS / 2; i++)
        conn_close(conns[i]);
    for (int i = CONNS / 2; i < CONNS; i++) {
        expect(conn_read(conns[i]), "{'ok':true}");
        conn_close(conns[i]);
    }
    expect(ask(conn_open(daemon), "{'request':'ping'}"), "{'ok':true}");
    env_free(env);
}
END_TEST

/* E8: who is too many is told so, and is let in when somebody has gone. */
START_TEST(clients_over_the_limit_are_refused)
{
    enum { LIMIT = 10 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_clients=10", NULL);
    struct conn *conns[LIMIT];
    for (int i = 0; i < LIMIT; i++) {
        conns[i] = conn_open(daemon);
        status_wait(conns[0], "clients", i + 1);
    }
    for (int i = 0; i < 50; i++) {
        struct conn *late = conn_open(daemon);
        expect_error(conn_read(late), "unavailable", "max_clients");
        expect_end(late);
        conn_close(late);
    }
    conn_close(conns[1]);
    status_wait(conns[0], "clients", LIMIT - 1);
    expect(ask(conn_open(daemon), "{'request':'ping'}"), "{'ok':true}");
    env_free(env);
}
END_TEST

/* ---- who may be a client ---- */

static void expect_in(struct conn *conn)
{
    expect(ask(conn, "{'request':'ping'}"), "{'ok':true}");
}

static void expect_out(struct conn *conn)
{
    expect_error(conn_read(conn), "forbidden", "allow_users");
    expect_end(conn);
}

/* E13: users by name or number, groups of any kind, root always */
START_TEST(only_allowed_users_get_in)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "socket_mode=0666", "allow_users=daemon, 65534",
                                         "allow_groups=60, 100", NULL);
    expect_in(conn_open(daemon));
    expect_in(conn_open_as(daemon, NOBODY, NOBODY, NOBODY));
    expect_in(conn_open_as(daemon, DAEMON_USER, NOBODY, NOBODY));
    expect_in(conn_open_as(daemon, 12345, 60, NOBODY));
    expect_in(conn_open_as(daemon, 12345, NOBODY, 100));
    expect_out(conn_open_as(daemon, 12345, NOBODY, NOBODY));
    expect_out(conn_open_as(daemon, 12345, 61, 101));
    daemon_expect_log(daemon, "peer=uid:12345");
    env_free(env);
}
END_TEST

/* E13: whoever tries again and again does not fill the log */
START_TEST(refused_users_do_not_fill_the_log)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "socket_mode=0666", "allow_users=65534", NULL);
    for (unsigned i = 0; i < 300; i++) {
        struct conn *conn = conn_open_as(daemon, 12345 + i, NOBODY, NOBODY);
        expect_out(conn);
        conn_close(conn);
    }
    char *log = file_read(daemon->log);
    int lines = 0;
    for (const char *at = log; (at = strstr(at, "client_refused")) != NULL; at++)
        lines++;
    ck_assert_msg(lines > 0 && lines <= 60, "%d lines", lines);
    free(log);
    env_free(env);
}
END_TEST

/* _i chooses */
START_TEST(unknown_users_are_named)
{
    static const char *const settings[] = {"allow_users=root,nosuchuser",
                                           "allow_groups=nosuchgroup"};
    static const char *const texts[] = {"allow_users: there is no user \\\"nosuchuser\\\"",
                                        "allow_groups: there is no group \\\"nosuchgroup\\\""};
    struct env *env = ENV();
    const char *socket = env_path(env, "foldd.sock");
    const char *args[] = {"--set", env_printf(env, "database=%s", env->conninfo),
                          "--set", env_printf(env, "socket=%s", socket),
                          "--set", settings[_i],
                          NULL};
    daemon_expect_refusal(daemon_spawn(env, socket, args), texts[_i]);
    env_free(env);
}
END_TEST

/* ---- the socket ---- */

/* Run foldd from system call to system call until the socket has its mode; what it was meanwhile.
 */
static mode_t widest_mode(const char *path, const char *const argv[], mode_t wanted)
{
    mode_t widest = 0;
    struct stat st = {0};
    int status;
    pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid == 0) {
        umask(0);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
            execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while ((st.st_mode & 07777) != wanted) {
        ck_assert(waitpid(pid, &status, 0) == pid);
        ck_assert_msg(WIFSTOPPED(status), "foldd ended before it listened");
        if (lstat(path, &st) == 0)
            widest |= st.st_mode & 07777;
        int number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ck_assert(ptrace(PTRACE_SYSCALL, pid, NULL, number) == 0);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return widest;
}

/* E13: not even between two system calls, with the widest umask */
START_TEST(socket_is_never_wider_than_configured)
{
    struct env *env = ENV();
    const char *socket = env_path(env, "foldd.sock");
    const char *argv[] = {foldd_program(),
                          "--set",
                          env_printf(env, "database=%s", env->conninfo),
                          "--set",
                          env_printf(env, "socket=%s", socket),
                          "--set",
                          "socket_mode=0640",
                          NULL};
    ck_assert_int_eq(widest_mode(socket, argv, 0640), 0640);
    env_free(env);
}
END_TEST

/* E11: also by a user who may not even look at the lock */
START_TEST(second_as_another_user_refuses)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "socket_mode=0666", NULL);
    const char *argv[] = {"setpriv",
                          "--reuid=65534",
                          "--regid=65534",
                          "--clear-groups",
                          foldd_program(),
                          "--set",
                          env_printf(env, "database=%s", env->conninfo),
                          "--set",
                          env_printf(env, "socket=%s", daemon->socket),
                          NULL};
    daemon_expect_refusal(daemon_run(env, daemon->socket, argv), "foldd.sock.lock");
    expect_in(conn_open(daemon));
    env_free(env);
}
END_TEST

/* foldd as systemd would start it: descriptors from 3 on are copies of fd, count of them. */
static struct daemon *start_activated(struct env *env, int fd, int count, const char *pid)
{
    const char *socket = env_path(env, "foldd.sock");
    const char *argv[] = {"/bin/bash",
                          "-c",
                          env_printf(env,
                                     "exec 3<&%d 4<&%d; export LISTEN_FDS=%d LISTEN_PID=%s;"
                                     " exec \"$@\"",
                                     fd, fd, count, pid),
                          "bash",
                          foldd_program(),
                          "--set",
                          env_printf(env, "database=%s", env->conninfo),
                          "--set",
                          env_printf(env, "socket=%s", socket),
                          NULL};
    return daemon_run(env, socket, argv);
}

/* At a number that start_activated does not use itself. */
static int high_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD, 20);
    ck_assert(high >= 0);
    close(fd);
    return high;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = high_fd(socket(AF_UNIX, SOCK_STREAM, 0));
    ck_assert(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 100) == 0);
    return fd;
}

/* E14: the socket is systemd's: it is served and stays, again and again. */
START_TEST(activated_socket_is_left_to_systemd)
{
    struct env *env = ENV();
    const char *path = env_path(env, "foldd.sock");
    int fd = listen_unix(path);
    struct stat before;
    struct stat after;
    ck_assert(lstat(path, &before) == 0);
    for (int i = 0; i < 3; i++) {
        struct daemon *daemon = start_activated(env, fd, 1, "$$");
        daemon_wait_leading(daemon);
        expect(ask(conn_open(daemon), "{'document':'d','action':'update','fields':{}}"),
               "{'ok':true}");
        daemon_stop(daemon);
        ck_assert(lstat(path, &after) == 0 && after.st_ino == before.st_ino);
    }
    close(fd);
    env_free(env);
}
END_TEST

/* E14: _i: two descriptors; a socket of the internet; one that does not listen */
START_TEST(unexpected_descriptors_are_refused)
{
    struct env *env = ENV();
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = _i == 0 ? listen_unix(env_path(env, "given.sock"))
                     : high_fd(socket(_i == 1 ? AF_INET : AF_UNIX, SOCK_STREAM, 0));
    if (_i == 1)
        ck_assert(bind(fd, (struct sockaddr *)&inet, sizeof inet) == 0 && listen(fd, 5) == 0);
    daemon_expect_refusal(start_activated(env, fd, _i == 0 ? 2 : 1, "$$"), "systemd");
    struct stat st;
    ck_assert(lstat(env_path(env, "foldd.sock"), &st) != 0 && errno == ENOENT);
    ck_assert(_i != 0 || lstat(env_path(env, "given.sock"), &st) == 0);
    close(fd);
    env_free(env);
}
END_TEST

/* E14: what is meant for another process is nothing to us. */
START_TEST(descriptors_for_another_process_are_ignored)
{
    struct env *env = ENV();
    int fd = listen_unix(env_path(env, "given.sock"));
    struct daemon *daemon = start_activated(env, fd, 1, "1");
    daemon_wait_ready(daemon);
    expect_in(conn_open(daemon));
    daemon_stop(daemon);
    struct stat st;
    ck_assert(lstat(env_path(env, "given.sock"), &st) == 0);
    ck_assert(lstat(env_path(env, "foldd.sock"), &st) != 0);
    close(fd);
    env_free(env);
}
END_TEST

Suite *clients_suite(void)
{
    Suite *suite = suite_create("clients");
    TCase *waits = tcase_create("waits");
    tcase_set_timeout(waits, 120);
    tcase_add_test(waits, waits_over_the_limit_end_at_once);
    tcase_add_test(waits, await_of_a_later_line_behind_the_limit);
    tcase_add_loop_test(waits, pipeline_of_waits_goes_on, 0, 3);
    tcase_add_test(waits, waits_of_gone_clients_are_forgotten);
    suite_add_tcase(suite, waits);
    TCase *lines = tcase_create("half lines");
    tcase_set_timeout(lines, 120);
    tcase_add_test(lines, half_line_is_ended);
    tcase_add_test(lines, half_line_behind_a_wait);
    tcase_add_test(lines, half_line_of_a_full_client_has_time);
    tcase_add_test(lines, long_lines_come_in_one_by_one);
    tcase_add_test(lines, long_lines_that_never_end);
    suite_add_tcase(suite, lines);
    TCase *turns = tcase_create("readers and turns");
    tcase_set_timeout(turns, 120);
    tcase_add_test(turns, client_that_does_not_read_is_dropped);
    tcase_add_test(turns, client_that_reads_slowly_stays);
    tcase_add_test(turns, endless_pipeline_starves_nobody);
    tcase_add_test(turns, descriptors_are_kept_for_the_database);
    tcase_add_test(turns, clients_over_the_limit_are_refused);
    suite_add_tcase(suite, turns);
    TCase *access = tcase_create("access");
    tcase_set_timeout(access, 120);
    tcase_add_test(access, only_allowed_users_get_in);
    tcase_add_test(access, refused_users_do_not_fill_the_log);
    tcase_add_loop_test(access, unknown_users_are_named, 0, 2);
    tcase_add_test(access, socket_is_never_wider_than_configured);
    tcase_add_test(access, second_as_another_user_refuses);
    tcase_add_test(access, activated_socket_is_left_to_systemd);
    tcase_add_loop_test(access, unexpected_descriptors_are_refused, 0, 3);
    tcase_add_test(access, descriptors_for_another_process_are_ignored);
    suite_add_tcase(suite, access);
    return suite;
}
