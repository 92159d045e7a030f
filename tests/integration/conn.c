/* SPDX-License-Identifier: MIT */
/* A client of foldd's socket that never blocks for ever and sends and takes in at the same time. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct conn *conn_open_path(struct env *env, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert(strlen(path) < sizeof address.sun_path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    struct conn *conn = mem_zalloc(sizeof *conn);
    conn->env = env;
    conn->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(conn->fd >= 0);
    ck_assert_msg(connect(conn->fd, (struct sockaddr *)&address, sizeof address) == 0, "%s: %s",
                  path, strerror(errno));
    ck_assert(fcntl(conn->fd, F_SETFL, O_NONBLOCK) == 0);
    TAILQ_INSERT_TAIL(&env->conns, conn, link);
    return conn;
}

struct conn *conn_open(struct daemon *daemon)
{
    return conn_open_path(daemon->env, daemon->socket);
}

struct conn *conn_open_as(struct daemon *daemon, uid_t uid, gid_t gid, gid_t extra)
{
    gid_t groups[256];
    int count = getgroups(256, groups);
    ck_assert(count >= 0 && setgroups(1, &extra) == 0 && setegid(gid) == 0 && seteuid(uid) == 0);
    struct conn *conn = conn_open(daemon);
    ck_assert(seteuid(0) == 0 && setegid(0) == 0 && setgroups((size_t)count, groups) == 0);
    /* The change of user has undone this. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return conn;
}

void conn_close(struct conn *conn)
{
    TAILQ_REMOVE(&conn->env->conns, conn, link);
    close(conn->fd);
    buf_fini(&conn->out);
    buf_fini(&conn->in);
    free(conn->raw);
    json_decref(conn->json);
    free(conn);
}

void conn_reset(struct conn *conn)
{
    struct linger now = {1, 0};
    ck_assert(setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    conn_close(conn);
}

void conn_bytes(struct conn *conn, const void *bytes, size_t len)
{
    buf_add(&conn->out, bytes, len);
}

/* Given: the formatted text with double quotes for single ones. */
static char *format_json(const char *format, va_list args) PRINTF(1, 0);

static char *format_json(const char *format, va_list args)
{
    char *text = NULL;
    ck_assert(vasprintf(&text, format, args) >= 0);
    for (char *c = text; *c != '\0'; c++) {
        if (*c == '\'')
            *c = '"';
    }
    return text;
}

static void queue_line(struct conn *conn, const char *format, va_list args) PRINTF(2, 0);

static void queue_line(struct conn *conn, const char *format, va_list args)
{
    char *text = format_json(format, args);
    buf_add_str(&conn->out, text);
    buf_add_char(&conn->out, '\n');
    free(text);
}

void conn_line(struct conn *conn, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    queue_line(conn, format, args);
    va_end(args);
}

static bool unsent(const struct conn *conn)
{
    return conn->out_pos < conn->out.len;
}

/* Returns whether something was sent. A peer that is gone makes the rest pointless: drop it, and
 * let the reading side show the end. */
static bool push(struct conn *conn)
{
    ssize_t sent =
        send(conn->fd, conn->out.data + conn->out_pos, conn->out.len - conn->out_pos, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
        sent = (ssize_t)(conn->out.len - conn->out_pos);
    if (sent <= 0)
        return false;
    conn->out_pos += (size_t)sent;
    if (!unsent(conn))
        conn->out.len = conn->out_pos = 0;
    return true;
}

static bool pull(struct conn *conn)
{
    if (conn->in_pos > 0 && conn->in_pos * 2 > conn->in.len) {
        memmove(conn->in.data, conn->in.data + conn->in_pos, conn->in.len - conn->in_pos);
        conn->in.len -= conn->in_pos;
        conn->in_pos = 0;
    }
    buf_reserve(&conn->in, 65536);
    ssize_t got = recv(conn->fd, conn->in.data + conn->in.len, 65536, 0);
    if (got > 0)
        conn->in.len += (size_t)got;
    else if (got == 0 || errno == ECONNRESET)
        conn->eof = true;
    return got >= 0 || conn->eof;
}

static bool pump_once(struct conn *const *conns, size_t count, int ms)
{
    struct pollfd fds[64];
    ck_assert(count <= 64);
    for (size_t i = 0; i < count; i++) {
        int events = (conns[i]->eof ? 0 : POLLIN) | (unsent(conns[i]) ? POLLOUT : 0);
        fds[i] = (struct pollfd){events == 0 ? -1 : conns[i]->fd, (short)events, 0};
    }
    bool moved = false;
    if (poll(fds, count, ms) <= 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !conns[i]->eof)
            moved = pull(conns[i]) || moved;
        if ((fds[i].revents & POLLOUT) != 0)
            moved = push(conns[i]) || moved;
    }
    return moved;
}

/* A socket may be ready and yet take and give nothing, and a signal may end the waiting. */
bool conn_pump(struct conn *const *conns, size_t count, int ms)
{
    int64_t end = now_ms() + ms;
    int64_t left = ms;
    do {
        if (pump_once(conns, count, (int)left))
            return true;
        left = end - now_ms();
    } while (left > 0);
    return false;
}

void conn_flush(struct conn *conn)
{
    while (unsent(conn))
        ck_assert_msg(conn_pump(&conn, 1, TEST_WAIT_MS), "foldd does not read");
}

void conn_flush_part(struct conn *conn, int percent)
{
    size_t part = conn->out.len / 100 * (size_t)percent;
    while (unsent(conn) && conn->out_pos < part)
        ck_assert_msg(conn_pump(&conn, 1, TEST_WAIT_MS), "foldd does not read");
}

void conn_push_only(struct conn *conn)
{
    while (unsent(conn) && push(conn))
        continue;
}

void conn_shutdown(struct conn *conn)
{
    /* The peer may be gone: the reading side shows that. */
    ck_assert(shutdown(conn->fd, SHUT_WR) == 0 || errno == ENOTCONN);
}

static const char *line_end(const struct conn *conn)
{
    size_t len = conn->in.len - conn->in_pos;
    return len == 0 ? NULL : memchr(conn->in.data + conn->in_pos, '\n', len);
}

bool conn_has_reply(struct conn *conn)
{
    if (line_end(conn) == NULL && !conn->eof)
        conn_pump(&conn, 1, 0);
    return line_end(conn) != NULL;
}

const char *conn_read_raw(struct conn *conn, int ms)
{
    free(conn->raw);
    conn->raw = NULL;
    const char *end;
    int64_t deadline = now_ms() + ms;
    while ((end = line_end(conn)) == NULL && !conn->eof) {
        int64_t left = deadline - now_ms();
        ck_assert_msg(left > 0, "no reply within %d ms", ms);
        conn_pump(&conn, 1, (int)left);
    }
    if (end == NULL)
        return NULL;
    size_t len = (size_t)(end - (conn->in.data + conn->in_pos));
    conn->raw = mem_dup(conn->in.data + conn->in_pos, len);
    conn->in_pos += len + 1;
    return conn->raw;
}

void expect_end(struct conn *conn)
{
    const char *raw = conn_read_raw(conn, TEST_WAIT_MS);
    ck_assert_msg(raw == NULL, "a reply instead of the end: %s", raw);
    ck_assert_msg(conn->in_pos == conn->in.len, "a cut-off reply before the end");
}

json_t *conn_read(struct conn *conn)
{
    json_decref(conn->json);
    conn->json = NULL;
    const char *raw = conn_read_raw(conn, TEST_WAIT_MS);
    if (raw == NULL)
        return NULL;
    json_error_t error;
    conn->json = json_loads(raw, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_object(conn->json), "reply is no JSON object (%s): %s", error.text, raw);
    return conn->json;
}

json_t *ask(struct conn *conn, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    queue_line(conn, format, args);
    va_end(args);
    conn_flush(conn);
    json_t *reply = conn_read(conn);
    ck_assert_msg(reply != NULL, "the connection ended instead of a reply");
    return reply;
}

static void fail_reply(const char *file, int line, const json_t *reply, const char *expected)
{
    char *text = json_dumps(reply, JSON_PRESERVE_ORDER);
    ck_abort_msg("%s:%d: expected %s in the reply %s", file, line, expected, text);
}

void expect_at(const char *file, int line, const json_t *reply, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_json(format, args);
    va_end(args);
    ck_assert_msg(reply != NULL, "%s:%d: end of file instead of %s", file, line, text);
    json_error_t error;
    json_t *expected = json_loads(text, 0, &error);
    ck_assert_msg(json_is_object(expected), "%s:%d: not JSON: %s", file, line, text);
    const char *key;
    json_t *value;
    json_object_foreach(expected, key, value)
    {
        if (!json_equal(json_object_get(reply, key), value))
            fail_reply(file, line, reply, text);
    }
    json_decref(expected);
    free(text);
}

void expect_error_at(const char *file, int line, const json_t *reply, const char *code,
                     const char *text)
{
    expect_at(file, line, reply, "{'ok':false,'error':'%s'}", code);
    const char *message = json_string_value(json_object_get(reply, "message"));
    if (message == NULL || strstr(message, text) == NULL)
        fail_reply(file, line, reply, text);
}

void expect_raw_at(const char *file, int line, const struct conn *conn, const char *key,
                   const char *value)
{
    char *quoted = mem_printf("\"%s\":", key);
    const char *found = strstr(conn->raw, quoted);
    const char *text = found == NULL ? "" : found + strlen(quoted);
    text += strspn(text, " ");
    size_t len = strlen(value);
    ck_assert_msg(strncmp(text, value, len) == 0 && strchr(",}]", text[len]) != NULL,
                  "%s:%d: expected %s %s in the reply %s", file, line, quoted, value, conn->raw);
    free(quoted);
}

int64_t reply_int(const json_t *reply, const char *key)
{
    const json_t *value = json_object_get(reply, key);
    if (!json_is_integer(value))
        fail_reply(__FILE__, __LINE__, reply, key);
    return json_integer_value(value);
}

void barrier(struct conn *conn)
{
    expect(ask(conn, "{'request':'barrier','timeout_ms':600000}"), "{'ok':true}");
}

int64_t status_int(struct conn *conn, const char *key)
{
    return reply_int(ask(conn, "{'request':'status'}"), key);
}

void status_wait_at(const char *file, int line, struct conn *conn, const char *key, int64_t value)
{
    int64_t actual;
    for (int64_t end = now_ms() + TEST_WAIT_MS; (actual = status_int(conn, key)) != value;
         pause_ms(2))
        ck_assert_msg(now_ms() < end, "%s:%d: status still shows %s %lld and not %lld", file, line,
                      key, (long long)actual, (long long)value);
}
