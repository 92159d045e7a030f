/* SPDX-License-Identifier: MIT */
#include "client_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "log.h"

enum {
    READ_BYTES = 64 * 1024,   /* per connection and turn: nobody starves the others */
    LINES_PER_TURN = 256,     /* the same for requests that are cheap to send and dear to answer */
    SCARCE_INPUT = 16 * 1024, /* what a connection may have of a line when memory is scarce */
};

void client_set_reading(struct client *client)
{
    bool want = !client->paused && !client->held && client->no_room == NULL && !client->eof &&
                !client->closing && !client->dead && !client->clients->stopped;
    if (want)
        event_add(client->read_event, NULL);
    else
        event_del(client->read_event);
}

/* --- memory for lines: beyond max_input a connection gets no more than SCARCE_INPUT for one,
 * except the favoured one until its line is whole. So long lines come in one by one. */

static bool is_input_scarce(const struct clients *clients)
{
    return clients->input >= clients->limits.max_input;
}

static void count_input(struct client *client)
{
    size_t now = line_pending(&client->input);
    client->clients->input += now - client->input_counted;
    client->input_counted = now;
}

/* There may be memory: for all, or for the next favoured one. */
void clients_release_held(struct clients *clients)
{
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->held)) != NULL) {
        bool plenty = clients->input < clients->limits.max_input / 2;
        if (!plenty && clients->favoured != NULL)
            return;
        if (!plenty)
            clients->favoured = client;
        TAILQ_REMOVE(&clients->held, client, held_link);
        client->held = false;
        client_set_reading(client);
    }
}

/* The line that the connection was in is over. */
static void end_favour(struct client *client)
{
    struct clients *clients = client->clients;
    if (clients->favoured == client)
        clients->favoured = NULL;
    if (client->held)
        TAILQ_REMOVE(&clients->held, client, held_link);
    client->held = false;
    clients_release_held(clients);
}

/* In the middle of a line: may it grow? */
static void hold_if_scarce(struct client *client)
{
    struct clients *clients = client->clients;
    if (client->held || client->input_counted < SCARCE_INPUT || !is_input_scarce(clients))
        return;
    if (clients->favoured == NULL)
        clients->favoured = client;
    if (clients->favoured == client)
        return;
    client->held = true;
    TAILQ_INSERT_TAIL(&clients->held, client, held_link);
}

void client_drop_input(struct client *client)
{
    size_t max = client->input.max;
    line_fini(&client->input);
    line_init(&client->input, max);
    count_input(client);
    overdue_stop(&client->clients->half_lines, &client->half_line);
    end_favour(client);
}

static bool is_blank(struct span line)
{
    for (size_t i = 0; i < line.len; i++)
        if (line.data[i] != ' ' && line.data[i] != '\t' && line.data[i] != '\r')
            return false;
    return true;
}

static void take_line(struct client *client, struct span line)
{
    client->lines++;
    if (is_blank(line))
        return;
    struct clients *clients = client->clients;
    struct slot *slot = client_add_slot(client, line.len);
    client_mark_dirty(client);
    if (clients->handler.on_line(clients->handler.arg, slot, line))
        return;
    client->no_room = slot;
    TAILQ_INSERT_TAIL(&clients->blocked, client, blocked_link);
}

/* Answer with an error what cannot be a line, and end the connection behind that. */
void client_end_with_error(struct client *client, enum reply_code code, const char *message)
{
    client->lines++;
    struct slot *slot = client_add_slot(client, 0);
    proto_error(&slot->reply, code, message, slot->line);
    slot_finish(slot);
    client->closing = true;
    client_drop_input(client);
    client_set_reading(client);
}

static void refuse_long_line(struct client *client)
{
    char message[80];
    snprintf(message, sizeof(message), "the line is longer than %zu bytes", client->input.max);
    client_end_with_error(client, REPLY_TOO_LARGE, message);
}

/* With something unread the delay is ours: the line gets its time anew. */
void client_on_line_overdue(void *arg, struct overdue_node *node)
{
    struct clients *clients = arg;
    struct client *client = CONTAINER_OF(node, struct client, half_line);
    char message[80];
    int unread;
    if (ioctl(client->fd, FIONREAD, &unread) == 0 && unread > 0) {
        overdue_start(&clients->half_lines, node);
        return;
    }
    log_warning("client_dropped", "conn=%lld peer=%s reason=line_timeout", (long long)client->id,
                client->actor);
    snprintf(message, sizeof(message), "the line was not ended within %lld ms (line_timeout)",
             (long long)clients->limits.line_timeout_ms);
    client_end_with_error(client, REPLY_INVALID, message);
}

/* What is left in the buffer when no whole line is. */
static void watch_half_line(struct client *client, bool is_new)
{
    struct overdue *half_lines = &client->clients->half_lines;
    if (client->input_counted == 0)
        overdue_stop(half_lines, &client->half_line);
    else if (is_new)
        overdue_restart(half_lines, &client->half_line);
    else
        overdue_start(half_lines, &client->half_line);
    hold_if_scarce(client);
}

/* Lines that are in the buffer, until there are no more or the connection has to wait. */
static enum line_status take_some_lines(struct client *client, int *taken)
{
    enum line_status status = LINE_READY;
    struct span line;
    while (status == LINE_READY && client->no_room == NULL && !client->closing) {
        if (*taken == LINES_PER_TURN) {
            client->more = true;
            break;
        }
        if (line_pending(&client->input) > 0 && client_is_full(client)) {
            client->paused = true;
            break;
        }
        status = line_next(&client->input, &line);
        if (status == LINE_READY)
            take_line(client, line);
        else if (status == LINE_TOO_LONG)
            refuse_long_line(client);
        *taken += status == LINE_READY;
    }
    return status;
}

static void take_last_line(struct client *client)
{
    struct span line;
    if (line_rest(&client->input, &line))
        take_line(client, line);
    client->closing = client->no_room == NULL;
}

void client_take_lines(struct client *client)
{
    int taken = 0;
    enum line_status status = take_some_lines(client, &taken);
    bool waits_for_more = status == LINE_MORE && !client->closing;
    if (waits_for_more && client->eof)
        take_last_line(client);
    count_input(client);
    if (taken > 0)
        end_favour(client);
    if (waits_for_more && !client->eof)
        watch_half_line(client, taken > 0);
    else
        overdue_stop(&client->clients->half_lines, &client->half_line);
    client_set_reading(client);
    if (client->more)
        event_active(client->read_event, EV_READ, 0);
    client_mark_dirty(client);
}

void client_on_read(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    (void)what;
    if (client->more) {
        client->more = false;
        client_take_lines(client);
        return;
    }
    bool scarce = is_input_scarce(client->clients) && client->clients->favoured != client;
    size_t room;
    char *space = line_space(&client->input, scarce ? SCARCE_INPUT : READ_BYTES, &room);
    ssize_t count = read(fd, space, room);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count < 0) {
        client_die(client);
        return;
    }
    client->eof = count == 0;
    line_filled(&client->input, (size_t)count);
    client_take_lines(client);
}
