/* SPDX-License-Identifier: MIT */
/* Many of everything that clients do badly. LARGE=1: as many as an evil week brings. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "suites.h"

enum { EVIL_PROCESSES = 1, EVIL_CLIENTS = 100 /* of each */, SAMPLES = 400 };

static bool is_large(void)
{
    return getenv("LARGE") != NULL;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        if (errno != EAGAIN)
            abort();
        else
            poll(NULL, 0, 1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* One of the things that are wrong; returns how many lines that is. */
static int garbage(char *out, size_t size, uint64_t *random)
{
    static const char *const lines[] = {
        "{\"document\":\"d\",\"action\":\"create\",\"fields\":{\"a\":}}\n",
        "garbage\n",
        "{\"document\":\"d\",\"action\":\"nonsense\",\"fields\":{}}\n",
        "{\"document\":\"\",\"action\":\"delete\"}\n",
        "{\"request\":\"get\",\"document\":\"\xc3\x28\"}\n",
        "[[[[[[[[[[[[[[[[\n",
        "{\"request\":\"await\",\"seq\":-1}\n",
        "{\"document\":\"d\",\"action\":\"create\",\"fields\":{\"a\":\"\\u0000\"}}\n",
    };
    size_t len = 0;
    int count = 0;
    for (; len + 128 < size; count++)
        len += (size_t)snprintf(out + len, size - len, "%s", lines[next_random(random) % 8]);
    return count;
}

struct evil {
    int fd;
    char text[8192];
    size_t len;
    size_t at;
};

/* Replies are read and thrown away; false: foldd has closed the connection. */
static bool swallow(int fd)
{
    char bytes[65536];
    ssize_t count;
    while ((count = read(fd, bytes, sizeof(bytes))) > 0)
        continue;
    return count < 0 && errno == EAGAIN;
}

/* Now and then a line that is too long, or a half one before the connection is cut. */
static void evil_step(struct evil *evil, const char *path, uint64_t *random, long *lines)
{
    bool alive = swallow(evil->fd);
    if (alive && evil->at == evil->len) {
        uint32_t what = next_random(random) % 64;
        evil->at = 0;
        evil->len = sizeof(evil->text);
        memset(evil->text, what == 0 ? 'x' : ' ', sizeof(evil->text));
        if (what > 1)
            *lines += garbage(evil->text, sizeof(evil->text), random);
        else
            ++*lines;
        evil->text[sizeof(evil->text) - 1] = what == 0 ? 'x' : '\n';
        alive = what != 1;
    }
    ssize_t sent =
        alive ? send(evil->fd, evil->text + evil->at, evil->len - evil->at, MSG_NOSIGNAL) : -1;
    if (sent > 0)
        evil->at += (size_t)sent;
    if (sent > 0 || (alive && errno == EAGAIN))
        return;
    close(evil->fd);
    evil->fd = connect_to(path);
    evil->at = evil->len;
}

static void be_evil(const char *path, long target, uint64_t random)
{
    /* What it sends shall be in the way, not the processor's time that sending takes. */
    if (nice(19) < 0)
        _exit(1);
    struct evil clients[EVIL_CLIENTS] = {0};
    struct pollfd fds[EVIL_CLIENTS];
    long lines = 0;
    for (int i = 0; i < EVIL_CLIENTS; i++)
        clients[i].fd = connect_to(path);
    while (lines < target) {
        for (int i = 0; i < EVIL_CLIENTS; i++) {
            evil_step(&clients[i], path, &random, &lines);
            fds[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN | POLLOUT};
        }
        poll(fds, EVIL_CLIENTS, 100);
    }
    _exit(0);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* How long one acknowledgement takes, the slowest of a hundred left out. */
static int64_t p99_us(struct conn *conn, int *number)
{
    int64_t took[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int64_t begun = now_us();
        expect(ask(conn, "{'document':'good','action':'update','fields':{'n':%d}}", ++*number),
               "{'ok':true}");
        took[i] = now_us() - begun;
    }
    qsort(took, SAMPLES, sizeof(took[0]), by_value);
    return took[SAMPLES * 99 / 100];
}

static bool any_child_runs(const pid_t *children)
{
    bool any = false;
    for (int i = 0; i < EVIL_PROCESSES; i++)
        any = any || waitpid(children[i], NULL, WNOHANG) == 0;
    return any;
}

/* E1, E17: a hundred clients send nothing but garbage, too much and half of it. */
START_TEST(garbage_leaves_a_good_client_alone)
{
    const long lines = is_large() ? 10000000 : 40000;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_line=4KiB", NULL);
    struct conn *conn = conn_open(daemon);
    int number = 0;
    p99_us(conn, &number);
    int64_t before = p99_us(conn, &number);
    pid_t children[EVIL_PROCESSES];
    for (int i = 0; i < EVIL_PROCESSES; i++)
        if ((children[i] = fork()) == 0)
            be_evil(daemon->socket, lines / EVIL_PROCESSES, (uint64_t)i + 1);
    int64_t worst = 0;
    int64_t sum = 0;
    int rounds = 0;
    do {
        int64_t p99 = p99_us(conn, &number);
        bool over = !any_child_runs(children);
        if (over && rounds > 0)
            break; /* not all of these samples were disturbed */
        worst = p99 > worst ? p99 : worst;
        sum += p99;
        rounds++;
        ck_assert_int_lt(daemon_proc_status(daemon, "VmRSS"), TEST_RSS_MAX_KIB);
        if (over)
            break;
    } while (true);
    printf("garbage: %ld lines; p99 of a good client's acknowledgements %lld us before, %lld us on "
           "average meanwhile, at worst %lld us; %lld KiB\n",
           lines, (long long)before, (long long)(sum / rounds), (long long)worst,
           (long long)daemon_proc_status(daemon, "VmRSS"));
    fflush(stdout);
    /* A small run is over before it says anything about time. */
    if (is_large())
        ck_assert_int_lt(sum / rounds, 10 * before);
    expect_sql(env, env_printf(env, "%d", number), "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* E5: connections that come and go, with and without a word. */
START_TEST(connections_leave_nothing_behind)
{
    const long connections = is_large() ? 1000000 : 4000;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    int64_t before = 0;
    for (long i = 0; i < connections; i++) {
        int fd = connect_to(daemon->socket);
        if (i % 3 > 0 && write(fd, "{\"request\":\"ping\"}\n", 19) != 19)
            ck_abort_msg("a new connection takes no line");
        if (i % 3 == 2) {
            struct pollfd readable = {.fd = fd, .events = POLLIN};
            ck_assert_int_eq(poll(&readable, 1, TEST_WAIT_MS), 1);
        }
        close(fd);
        if (i == connections / 10)
            before = daemon_proc_status(daemon, "VmRSS");
    }
    expect(ask(conn, "{'request':'ping'}"), "{'ok':true}");
    int64_t end = now_ms() + TEST_WAIT_MS;
    while (status_int(conn, "clients") > 1)
        ck_assert_msg(now_ms() < end, "connections that are gone are still counted");
    int64_t after = daemon_proc_status(daemon, "VmRSS");
    printf(
        "connections: %ld opened and closed; %lld KiB after a tenth of them, %lld KiB at the end\n",
        connections, (long long)before, (long long)after);
    /* The sanitizer's allocator keeps what was freed. */
    ck_assert_int_lt(after, TEST_RSS_MAX_KIB > 100 * 1024 ? TEST_RSS_MAX_KIB : before + 1024);
    env_free(env);
}
END_TEST

Suite *soak_suite(void)
{
    Suite *suite = suite_create("soak");
    TCase *tcase = tcase_create("soak");
    tcase_set_timeout(tcase, is_large() ? 3600 : 120);
    tcase_add_test(tcase, garbage_leaves_a_good_client_alone);
    tcase_add_test(tcase, connections_leave_nothing_behind);
    suite_add_tcase(suite, tcase);
    return suite;
}
