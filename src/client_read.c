/* SPDX-License-Identifier: MIT */
#include "client_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "log.h"

enum {
    READ_BYTES = 64 * 1024, /* per connection and turn: nobody starves the others */
    LINES_PER_TURN = 256,   /* of all who send much together: others' answers wait for them */
    GREEDY_PER_TURN = 8,    /* connections that go on with what they sent before */
    SHORT_LINE = 16 * 1024, /* what every connection may have of a line */
};

void client_set_reading(struct client *client)
{
    bool want = !client->paused && !client->more && client->input_state != INPUT_HELD &&
                client->no_room == NULL && !client->eof && !client->closing && !client->dead &&
                !client->clients->stopped;
    if (want)
        event_add(client->read_event, NULL);
    else
        event_del(client->read_event);
}

/* --- memory for long lines: who has more than SHORT_LINE of a line needs a grant of max_line, and
 * of those there are as many as go into max_input. */

static void set_input_state(struct client *client, enum input_state state)
{
    struct clients *clients = client->clients;
    if (client->input_state == INPUT_HELD)
        TAILQ_REMOVE(&clients->held, client, long_link);
    if (client->input_state == INPUT_LONG) {
        TAILQ_REMOVE(&clients->granted, client, long_link);
        overdue_stop(&clients->wanted, &client->grant);
        clients->grants--;
    }
    client->input_state = state;
    if (state == INPUT_HELD)
        TAILQ_INSERT_TAIL(&clients->held, client, long_link);
    if (state == INPUT_LONG) {
        TAILQ_INSERT_TAIL(&clients->granted, client, long_link);
        clients->grants++;
    }
}

static bool can_grant(const struct clients *clients)
{
    const struct client_limits *limits = &clients->limits;
    return clients->grants == 0 || clients->grants < limits->max_input / limits->max_line;
}

void clients_grant(struct clients *clients)
{
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->held)) != NULL && can_grant(clients)) {
        set_input_state(client, INPUT_LONG);
        client_set_reading(client);
    }
    if (client == NULL)
        return;
    TAILQ_FOREACH(client, &clients->granted, long_link)
        overdue_start(&clients->wanted, &client->grant);
}

/* The line that the connection was in is over. */
static void end_line(struct client *client)
{
    if (client->input_state == INPUT_SHORT)
        return;
    set_input_state(client, INPUT_SHORT);
    clients_grant(client->clients);
}

void client_drop_input(struct client *client)
{
    size_t max = client->input.max;
    line_fini(&client->input);
    line_init(&client->input, max);
    overdue_stop(&client->clients->half_lines, &client->half_line);
    end_line(client);
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

/* With something unread the delay may be ours. */
static bool has_unread(const struct client *client)
{
    int bytes;
    return ioctl(client->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

static void end_half_line(struct client *client, const char *reason, int64_t ms)
{
    char message[80];
    log_warning("client_dropped", "conn=%lld peer=%s reason=%s", (long long)client->id,
                client->actor, reason);
    snprintf(message, sizeof(message), "the line was not ended within %lld ms (%s)", (long long)ms,
             reason);
    client_end_with_error(client, REPLY_INVALID, message);
}

void client_on_line_overdue(void *arg, struct overdue_node *node)
{
    struct clients *clients = arg;
    struct client *client = CONTAINER_OF(node, struct client, half_line);
    if (has_unread(client))
        overdue_start(&clients->half_lines, node);
    else
        end_half_line(client, "line_timeout", clients->limits.line_timeout_ms);
}

void client_on_grant_overdue(void *arg, struct overdue_node *node)
{
    struct clients *clients = arg;
    struct client *client = CONTAINER_OF(node, struct client, grant);
    if (TAILQ_EMPTY(&clients->held))
        return;
    if (has_unread(client))
        overdue_start(&clients->wanted, node);
    else
        end_half_line(client, "max_input", clients->wanted.timeout_ms);
}

/* What is left in the buffer when no whole line is. */
static void watch_half_line(struct client *client, bool is_new)
{
    struct overdue *half_lines = &client->clients->half_lines;
    size_t pending = line_pending(&client->input);
    if (pending == 0 || is_new)
        overdue_stop(half_lines, &client->half_line);
    if (pending > 0)
        overdue_start(half_lines, &client->half_line);
    if (pending > SHORT_LINE && client->input_state == INPUT_SHORT) {
        set_input_state(client, INPUT_HELD);
        clients_grant(client->clients);
    }
}

void client_set_more(struct client *client, bool more)
{
    if (client->more == more)
        return;
    client->more = more;
    if (more)
        TAILQ_INSERT_TAIL(&client->clients->greedy, client, greedy_link);
    else
        TAILQ_REMOVE(&client->clients->greedy, client, greedy_link);
}

void clients_share_turn(struct clients *clients)
{
    int readers = clients->readers < GREEDY_PER_TURN ? clients->readers : GREEDY_PER_TURN;
    clients->share = LINES_PER_TURN / (readers > 0 ? readers : 1);
    clients->readers = 0;
    /* Not where the lines were left: the loop would come back to them in the same pass. */
    int count = 0;
    struct client *client;
    TAILQ_FOREACH(client, &clients->greedy, greedy_link)
        if (count++ < GREEDY_PER_TURN)
            event_active(client->read_event, EV_READ, 0);
        else
            break;
}

/* Lines that are in the buffer, until there are no more or the connection has to wait. */
static enum line_status take_some_lines(struct client *client, int *taken)
{
    enum line_status status = LINE_READY;
    struct span line;
    client->clients->readers++;
    while (status == LINE_READY && client->no_room == NULL && !client->closing) {
        if (*taken >= client->clients->share) {
            client_set_more(client, true);
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
    line_trim(&client->input, READ_BYTES);
    if (taken > 0)
        end_line(client);
    if (waits_for_more && !client->eof)
        watch_half_line(client, taken > 0);
    else
        overdue_stop(&client->clients->half_lines, &client->half_line);
    client_set_reading(client);
    client_mark_dirty(client);
}

void client_on_read(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    (void)what;
    if (client->more) {
        client_set_more(client, false);
        client_take_lines(client);
        return;
    }
    /* In the middle of a line that has no grant, a little more may complete it. */
    bool little = client->input_state == INPUT_SHORT && line_pending(&client->input) > 0;
    size_t room;
    char *space = line_space(&client->input, little ? SHORT_LINE : READ_BYTES, &room);
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
