/* SPDX-License-Identifier: MIT */
#include "ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int ctl_fail(int code, const char *format, ...)
{
    struct buf text = {0};
    char *message = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&message, format, args) < 0)
        abort();
    va_end(args);
    /* Messages can quote what others wrote: no control characters for the terminal. */
    for (char *at = message; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    buf_printf(&text, "foldctl: %s\n", message);
    fputs(buf_cstr(&text), stderr);
    free(message);
    buf_fini(&text);
    return code;
}

int ctl_connect(const char *socket_path, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(socket_path);
    if (len >= sizeof(address.sun_path)) {
        err_set(err, ERR_CLIENT, "the socket's path is longer than %zu bytes: %s",
                sizeof(address.sun_path) - 1, socket_path);
        return -1;
    }
    memcpy(address.sun_path, socket_path, len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = -1;
    if (fd >= 0)
        do
            rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
        while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return fd;
    err_set(err, ERR_TRANSIENT, "cannot reach foldd at %s: %s", socket_path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

bool ctl_client_open(struct ctl_client *client, const char *socket_path, struct err *err)
{
    line_init(&client->input, CTL_MAX_REPLY_BYTES);
    client->fd = ctl_connect(socket_path, err);
    return client->fd >= 0;
}

void ctl_client_close(struct ctl_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    line_fini(&client->input);
}

/* Stops without complaint when foldd has closed: it may have left a reply that says why. */
static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return;
        bytes += sent;
        len -= (size_t)sent;
    }
}

static bool read_line(struct ctl_client *client, struct span *out, struct err *err)
{
    for (;;) {
        enum line_status status = line_next(&client->input, out);
        if (status == LINE_READY)
            return true;
        if (status == LINE_TOO_LONG)
            return err_set(err, ERR_FATAL, "the reply is too long");
        size_t room = 0;
        char *space = line_space(&client->input, CTL_READ_BYTES, &room);
        ssize_t got = read(client->fd, space, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(err, ERR_TRANSIENT, "lost the connection: %s", strerror(errno));
        if (got == 0)
            return err_set(err, ERR_TRANSIENT, "foldd closed the connection without a reply");
        line_filled(&client->input, (size_t)got);
    }
}

bool ctl_client_call(struct ctl_client *client, const char *line, size_t len,
                     struct ctl_reply *reply, struct err *err)
{
    *reply = (struct ctl_reply){0};
    send_all(client->fd, line, len);
    send_all(client->fd, "\n", 1);
    struct span raw = {0};
    return read_line(client, &raw, err) && ctl_reply_init(reply, raw, err);
}

int ctl_show_error(const struct ctl *ctl, const struct ctl_reply *reply)
{
    struct buf text = {0};
    ctl_reply_add_error(reply, &text);
    if (ctl->json)
        ctl_reply_print_line(ctl, reply, "");
    else
        ctl_fail(CTL_REFUSED, "%s", buf_cstr(&text));
    buf_fini(&text);
    return CTL_REFUSED;
}

int ctl_request(const struct ctl *ctl, struct buf *line, ctl_show_fn show)
{
    struct err err = {0};
    struct ctl_client client;
    struct ctl_reply reply = {0};
    int code = CTL_UNREACHABLE;
    if (!ctl_client_open(&client, ctl->socket_path, &err) ||
        !ctl_client_call(&client, line->data, line->len, &reply, &err))
        ctl_fail(code, "%s", err.message);
    else
        code = reply.ok ? show(ctl, &reply) : ctl_show_error(ctl, &reply);
    ctl_reply_fini(&reply);
    ctl_client_close(&client);
    buf_fini(line);
    return code;
}
