/* SPDX-License-Identifier: MIT */
/* SIGHUP: the options are read again (design.md 11). */
#include "suites.h"

#include "harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static const char *config_path(struct env *env)
{
    return env_path(env, "foldd.conf");
}

/* The file: where database and socket are, and then the text. */
static void write_config(struct env *env, const char *text)
{
    file_write(config_path(env), env_printf(env, "database = %s\nsocket = %s\n%s", env->conninfo,
                                            env_path(env, "foldd.sock"), text));
}

static struct daemon *start_with_file(struct env *env, const char *setting)
{
    const char *args[] = {"--config", config_path(env), setting == NULL ? NULL : "--set", setting,
                          NULL};
    struct daemon *daemon = daemon_spawn(env, env_path(env, "foldd.sock"), args);
    daemon_wait_leading(daemon);
    return daemon;
}

/* How often the log has the text. */
static int log_count(const struct daemon *daemon, const char *text)
{
    char *log = file_read(daemon->log);
    int count = 0;
    for (const char *at = log; (at = strstr(at, text)) != NULL; at++)
        count++;
    free(log);
    return count;
}

/* Send SIGHUP and wait for one line more of this kind. */
static void reload(struct daemon *daemon, const char *event)
{
    char *text = mem_printf("event=%s ", event);
    int before = log_count(daemon, text);
    daemon_signal(daemon, SIGHUP);
    for (int64_t end = now_ms() + TEST_WAIT_MS; log_count(daemon, text) == before; pause_ms(2))
        ck_assert_msg(now_ms() < end, "no %s after SIGHUP", event);
    free(text);
}

/* max_waits shows in how many waits are open: another line ends those over it. */
static void expect_max_waits(struct daemon *daemon, int limit)
{
    struct conn *conn = conn_open(daemon);
    struct conn *watch = conn_open(daemon);
    for (int i = 0; i < limit; i++)
        conn_line(conn, "{'request':'await','document':'never','id':'x','timeout_ms':600000}");
    conn_flush(conn);
    status_wait(watch, "waits", limit);
    ck_assert(!conn_has_reply(conn));
    conn_line(conn, "{'request':'ping'}");
    conn_flush(conn);
    for (int i = 0; i < limit; i++)
        expect(conn_read(conn), "{'outcome':'timeout'}");
    expect(conn_read(conn), "{'ok':true,'protocol':1}");
    conn_close(conn);
    conn_close(watch);
}

START_TEST(sighup_changes_what_can_change)
{
    struct env *env = ENV();
    write_config(env, "max_waits = 3\nworkers = 2\n");
    struct daemon *daemon = start_with_file(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect_max_waits(daemon, 3);
    write_config(env, "max_waits = 7\nworkers = 3\nfold_docs = 10\n");
    reload(daemon, "reloaded");
    daemon_wait_log(daemon, "changed=\"max_waits\"");
    daemon_wait_log(daemon, "options=\"workers fold_docs\"");
    expect_max_waits(daemon, 7);
    ck_assert_int_eq(status_int(conn, "workers"), 2);
    write_config(env, "workers = 2\n");
    reload(daemon, "reloaded");
    expect_max_waits(daemon, 1000);
    ck_assert_int_eq(log_count(daemon, "needs_a_restart"), 1);
    env_free(env);
}
END_TEST

/* Also when the file says something else, before and after */
START_TEST(command_line_wins_after_sighup)
{
    struct env *env = ENV();
    write_config(env, "max_waits = 3\nmax_clients = 50\n");
    struct daemon *daemon = start_with_file(env, "max_waits=5");
    expect_max_waits(daemon, 5);
    write_config(env, "max_waits = 4\nmax_clients = 60\n");
    reload(daemon, "reloaded");
    daemon_wait_log(daemon, "changed=\"max_clients\"");
    expect_max_waits(daemon, 5);
    env_free(env);
}
END_TEST

/* All or nothing, and the log says where */
START_TEST(sighup_with_an_error_changes_nothing)
{
    static const struct {
        const char *text;
        const char *error;
    } rows[] = {
        {"max_waits = 9\ncolour = blue\n", "line 4: unknown option \\\"colour\\\""},
        {"max_waits = 9\nmax_clients = 0\n", "line 4: max_clients: \\\"0\\\" is not a number"},
        {"max_waits = 9\nline_timeout = 5\n", "line 4: line_timeout"},
        {"max_waits = 9\nlog_level = loud\n", "log_level: \\\"loud\\\""},
        {"max_waits = 9\nallow_users = nosuchuser\n", "allow_users: there is no user"},
        {"max_waits = 9\nnonsense\n", "line 4: not KEY = VALUE"},
        {NULL, "cannot open"},
    };
    struct env *env = ENV();
    write_config(env, "max_waits = 3\n");
    struct daemon *daemon = start_with_file(env, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].text == NULL)
            ck_assert(unlink(config_path(env)) == 0);
        else
            write_config(env, rows[i].text);
        reload(daemon, "not_reloaded");
        daemon_wait_log(daemon, rows[i].error);
        expect_max_waits(daemon, 3);
    }
    ck_assert_int_ge(log_count(daemon, config_path(env)), 4);
    ck_assert_int_eq(log_count(daemon, "event=reloaded"), 0);
    write_config(env, "max_waits = 4\n");
    reload(daemon, "reloaded");
    expect_max_waits(daemon, 4);
    env_free(env);
}
END_TEST

/* Who is no longer allowed gets his replies, the error and the end. */
START_TEST(sighup_closes_to_those_who_may_not_be_clients)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    write_config(env, "socket_mode = 0666\n");
    struct daemon *daemon = start_with_file(env, NULL);
    struct conn *root = conn_open(daemon);
    struct conn *nobody = conn_open_as(daemon, NOBODY, NOBODY, NOBODY);
    struct conn *other = conn_open_as(daemon, 12345, NOBODY, NOBODY);
    gate_make(env, "^d");
    conn_line(other, "{'document':'d','action':'create','fields':{},'ack':'folded'}");
    conn_flush(other);
    status_wait(root, "waits", 1);
    expect(ask(nobody, "{'request':'ping'}"), "{'ok':true}");
    write_config(env, "socket_mode = 0666\nallow_users = 65534\n");
    reload(daemon, "reloaded");
    gate_open(env);
    expect(conn_read(other), "{'ok':true,'outcome':'folded'}");
    expect_error(conn_read(other), "forbidden", "allow_users");
    expect_end(other);
    expect(ask(nobody, "{'request':'ping'}"), "{'ok':true}");
    expect(ask(root, "{'request':'ping'}"), "{'ok':true}");
    expect_error(ask(nobody, "{'request':'retry'}"), "forbidden", "admin_groups");
    write_config(env, "socket_mode = 0666\nallow_users = 65534\nadmin_groups = 65534\n");
    reload(daemon, "reloaded");
    expect(ask(nobody, "{'request':'retry'}"), "{'ok':true}");
    env_free(env);
}
END_TEST

/* Also without a file, and whenever it comes: SIGHUP ends nothing. */
START_TEST(sighup_without_a_file)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_waits=3", NULL);
    reload(daemon, "reloaded");
    expect_max_waits(daemon, 3);
    for (int i = 0; i < 100; i++)
        daemon_signal(daemon, SIGHUP);
    expect(ask(conn_open(daemon), "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    env_free(env);
}
END_TEST

static int notify_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {TEST_WAIT_MS / 1000, 0};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    ck_assert(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    return fd;
}

/* The next message must begin with the text; the rest of it. */
static const char *expect_notice(struct env *env, int fd, const char *text)
{
    char message[512];
    ssize_t got = recv(fd, message, sizeof message - 1, 0);
    ck_assert_msg(got > 0, "no notice %s", text);
    message[got] = '\0';
    ck_assert_msg(strncmp(message, text, strlen(text)) == 0, "%s instead of %s", message, text);
    return env_printf(env, "%s", message + strlen(text));
}

/* What systemd is told, also when nothing is reloaded */
START_TEST(systemd_is_told_of_a_reload)
{
    struct env *env = ENV();
    const char *path = env_path(env, "notify.sock");
    int fd = notify_socket(path);
    write_config(env, "max_waits = 3\n");
    ck_assert(setenv("NOTIFY_SOCKET", path, 1) == 0);
    struct daemon *daemon = start_with_file(env, NULL);
    ck_assert(unsetenv("NOTIFY_SOCKET") == 0);
    expect_notice(env, fd, "READY=1");
    for (int i = 0; i < 2; i++) {
        int64_t before = now_ms() * 1000;
        write_config(env, i == 0 ? "max_waits = 4\n" : "colour = blue\n");
        reload(daemon, i == 0 ? "reloaded" : "not_reloaded");
        int64_t us = strtoll(expect_notice(env, fd, "RELOADING=1\nMONOTONIC_USEC="), NULL, 10);
        ck_assert(us >= before && us <= (now_ms() + 1) * 1000);
        expect_notice(env, fd, "READY=1");
    }
    close(fd);
    env_free(env);
}
END_TEST

Suite *reload_suite(void)
{
    Suite *suite = suite_create("reload");
    TCase *tcase = tcase_create("reload");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, sighup_changes_what_can_change);
    tcase_add_test(tcase, command_line_wins_after_sighup);
    tcase_add_test(tcase, sighup_with_an_error_changes_nothing);
    tcase_add_test(tcase, sighup_closes_to_those_who_may_not_be_clients);
    tcase_add_test(tcase, sighup_without_a_file);
    tcase_add_test(tcase, systemd_is_told_of_a_reload);
    suite_add_tcase(suite, tcase);
    return suite;
}
