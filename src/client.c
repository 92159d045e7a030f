/* SPDX-License-Identifier: MIT */
#include "client.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "line.h"
#include "log.h"

enum {
    READ_BYTES = 64 * 1024,   /* per connection and turn: nobody starves the others */
    SLOT_CHARGE = 512,        /* what a slot weighs besides its text */
    TRIM_BYTES = 1024 * 1024, /* a connection that held as much gives memory back to the system */
    LINES_PER_TURN = 256,     /* the same for requests that are cheap to send and dear to answer */
    HANGUP_CHECK_S = 1,
    PEER_GROUPS_MAX = 1024,
    SCARCE_PENDING = 64 * 1024, /* what one connection may have under way when memory is scarce */
};

struct client {
    TAILQ_ENTRY(client) link;
    TAILQ_ENTRY(client) dirty_link;
    TAILQ_ENTRY(client) blocked_link;
    struct clients *clients;
    int fd;
    int64_t id;
    struct event *read_event;
    struct event *write_event;
    struct line input;
    struct evbuffer *output;
    STAILQ_HEAD(, slot) slots;
    struct slot *no_room;       /* the write that found no room; blocks reading */
    bool failing;               /* R9: operations are refused until the first refusal is written */
    const struct slot *refusal; /* that reply, until it is in the output */
    size_t charge;
    size_t counted; /* its part of clients->load */
    int64_t lines;
    bool dirty;
    bool more;    /* lines are left that the others' turns come before */
    bool paused;  /* full: not read until half empty */
    bool eof;     /* the peer sends no more */
    bool closing; /* reads no more: close when everything is sent */
    bool dead;    /* free at the end of the turn */
    bool admin;
    bool heavy; /* it held much memory once */
    char actor[24];
};

TAILQ_HEAD(client_list, client);

struct clients {
    struct event_base *base;
    struct client_limits limits;
    struct client_handler handler;
    struct client_list all;
    struct client_list dirty;
    struct client_list blocked;
    struct event *hangup_timer;
    size_t count;
    size_t load; /* bytes under way of all, as each was counted last */
    int64_t last_id;
    bool stopped;
};

static void on_hangup_timer(evutil_socket_t fd, short what, void *arg);

struct clients *clients_new(struct event_base *base, const struct client_limits *limits,
                            const struct client_handler *handler)
{
    struct clients *clients = mem_zalloc(sizeof(*clients));
    clients->base = base;
    clients->limits = *limits;
    clients->handler = *handler;
    TAILQ_INIT(&clients->all);
    TAILQ_INIT(&clients->dirty);
    TAILQ_INIT(&clients->blocked);
    clients->hangup_timer = evtimer_new(base, on_hangup_timer, clients);
    return clients;
}

static void mark_dirty(struct client *client)
{
    if (client->dirty)
        return;
    client->dirty = true;
    TAILQ_INSERT_TAIL(&client->clients->dirty, client, dirty_link);
}

static void slot_free(struct slot *slot)
{
    if (slot->request != NULL) {
        request_fini(slot->request);
        free(slot->request);
    }
    buf_fini(&slot->reply);
    free(slot);
}

/* Whoever owes a slot an answer frees it with slot_finish; waits are ended at once. */
static void orphan_slots(struct client *client)
{
    struct slot *slot;
    while ((slot = STAILQ_FIRST(&client->slots)) != NULL) {
        STAILQ_REMOVE_HEAD(&client->slots, link);
        slot->client = NULL;
        if (slot->state == SLOT_HELD || slot->state == SLOT_DONE)
            slot_free(slot);
        else if (slot->wait != NULL)
            client->clients->handler.on_end_wait(client->clients->handler.arg, slot);
    }
}

static void client_die(struct client *client)
{
    if (client->dead)
        return;
    client->dead = true;
    event_del(client->read_event);
    event_del(client->write_event);
    if (client->no_room != NULL)
        TAILQ_REMOVE(&client->clients->blocked, client, blocked_link);
    client->no_room = NULL;
    mark_dirty(client);
}

static void client_free(struct client *client)
{
    struct clients *clients = client->clients;
    bool heavy = client->heavy;
    orphan_slots(client);
    TAILQ_REMOVE(&clients->all, client, link);
    clients->load -= client->counted;
    clients->count--;
    event_free(client->read_event);
    event_free(client->write_event);
    line_fini(&client->input);
    evbuffer_free(client->output);
    close(client->fd);
    free(client);
    if (heavy)
        malloc_trim(0);
}

void clients_free(struct clients *clients)
{
    if (clients == NULL)
        return;
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->all)) != NULL)
        client_free(client);
    event_free(clients->hangup_timer);
    free(clients);
}

/* Bytes under way; the sum over all connections follows. */
static size_t load(struct client *client)
{
    size_t now = client->charge + evbuffer_get_length(client->output);
    client->clients->load += now - client->counted;
    client->counted = now;
    if (now > TRIM_BYTES)
        client->heavy = true;
    return now;
}

static size_t limit(const struct clients *clients)
{
    size_t one = clients->limits.max_pending;
    return clients->load > clients->limits.max_all && one > SCARCE_PENDING ? SCARCE_PENDING : one;
}

static void set_reading(struct client *client)
{
    bool want = !client->paused && client->no_room == NULL && !client->eof && !client->closing &&
                !client->dead && !client->clients->stopped;
    if (want)
        event_add(client->read_event, NULL);
    else
        event_del(client->read_event);
}

static struct slot *slot_new(struct client *client, size_t bytes)
{
    struct slot *slot = mem_zalloc(sizeof(*slot));
    slot->client = client;
    slot->line = client->lines;
    slot->charge = bytes + SLOT_CHARGE;
    client->charge += slot->charge;
    STAILQ_INSERT_TAIL(&client->slots, slot, link);
    return slot;
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
    struct slot *slot = slot_new(client, line.len);
    mark_dirty(client);
    if (clients->handler.on_line(clients->handler.arg, slot, line))
        return;
    client->no_room = slot;
    TAILQ_INSERT_TAIL(&clients->blocked, client, blocked_link);
}

static void refuse_long_line(struct client *client)
{
    char message[80];
    client->lines++;
    struct slot *slot = slot_new(client, 0);
    snprintf(message, sizeof(message), "the line is longer than %zu bytes",
             client->clients->limits.max_line);
    proto_error(&slot->reply, REPLY_TOO_LARGE, message, slot->line);
    slot_finish(slot);
    client->closing = true;
}

/* Lines that are in the buffer, until there are no more or the connection has to wait. */
static void take_lines(struct client *client)
{
    enum line_status status = LINE_READY;
    struct span line;
    for (int lines = 0; status == LINE_READY && client->no_room == NULL && !client->closing;
         lines++) {
        if (lines == LINES_PER_TURN) {
            client->more = true;
            break;
        }
        if (load(client) >= limit(client->clients)) {
            client->paused = true;
            break;
        }
        status = line_next(&client->input, &line);
        if (status == LINE_READY)
            take_line(client, line);
        else if (status == LINE_TOO_LONG)
            refuse_long_line(client);
    }
    if (status == LINE_MORE && client->eof && !client->closing) {
        if (line_rest(&client->input, &line))
            take_line(client, line);
        client->closing = client->no_room == NULL;
    }
    set_reading(client);
    if (client->more)
        event_active(client->read_event, EV_READ, 0);
    mark_dirty(client);
}

static void on_client_read(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    (void)what;
    if (client->more) {
        client->more = false;
        take_lines(client);
        return;
    }
    size_t room;
    char *space = line_space(&client->input, READ_BYTES, &room);
    ssize_t count = read(fd, space, room);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count < 0) {
        client_die(client);
        return;
    }
    client->eof = count == 0;
    line_filled(&client->input, (size_t)count);
    take_lines(client);
}

static void on_client_write(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    mark_dirty(arg);
}

static bool is_admin_group(const struct clients *clients, gid_t gid)
{
    for (size_t i = 0; i < clients->limits.admin_group_count; i++)
        if (clients->limits.admin_groups[i] == gid)
            return true;
    return false;
}

static bool is_admin(const struct clients *clients, int fd, const struct ucred *peer)
{
    gid_t groups[PEER_GROUPS_MAX];
    socklen_t len = sizeof(groups);
    if (peer->uid == 0 || peer->uid == geteuid() || is_admin_group(clients, peer->gid))
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) != 0)
        return false;
    for (size_t i = 0; i < len / sizeof(groups[0]); i++)
        if (is_admin_group(clients, groups[i]))
            return true;
    return false;
}

void clients_accept(struct clients *clients, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    socklen_t len = sizeof(peer);
    if (clients->count >= clients->limits.max_clients) {
        struct buf reply = {0};
        proto_error(&reply, REPLY_UNAVAILABLE, "too many clients", 0);
        if (send(fd, reply.data, reply.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            log_debug("refused_client", "reason=max_clients");
        buf_fini(&reply);
        close(fd);
        return;
    }
    struct client *client = mem_zalloc(sizeof(*client));
    client->clients = clients;
    client->fd = fd;
    client->id = ++clients->last_id;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        snprintf(client->actor, sizeof(client->actor), "uid:%u", (unsigned)peer.uid);
    client->admin = is_admin(clients, fd, &peer);
    client->read_event = event_new(clients->base, fd, EV_READ | EV_PERSIST, on_client_read, client);
    client->write_event = event_new(clients->base, fd, EV_WRITE, on_client_write, client);
    client->output = evbuffer_new();
    STAILQ_INIT(&client->slots);
    line_init(&client->input, clients->limits.max_line);
    TAILQ_INSERT_TAIL(&clients->all, client, link);
    clients->count++;
    set_reading(client);
}

void clients_stop_reading(struct clients *clients)
{
    clients->stopped = true;
    struct client *client;
    TAILQ_FOREACH(client, &clients->all, link) {
        client->closing = true;
        set_reading(client);
        mark_dirty(client);
    }
}

void clients_resume(struct clients *clients)
{
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->blocked)) != NULL) {
        struct slot *slot = client->no_room;
        if (!clients->handler.on_start(clients->handler.arg, slot))
            return;
        TAILQ_REMOVE(&clients->blocked, client, blocked_link);
        client->no_room = NULL;
        take_lines(client);
    }
}

/* Move the replies of decided slots, from the front, to the output. */
static void collect_replies(struct client *client)
{
    struct slot *slot;
    while ((slot = STAILQ_FIRST(&client->slots)) != NULL && slot->state == SLOT_DONE) {
        STAILQ_REMOVE_HEAD(&client->slots, link);
        evbuffer_add(client->output, slot->reply.data, slot->reply.len);
        client->charge -= slot->charge;
        if (client->refusal == slot)
            client->refusal = NULL;
        slot_free(slot);
    }
}

/* R23: from the front, over everything that is decided or an unfinished wait. */
static void start_slots(struct client *client)
{
    struct client_handler *handler = &client->clients->handler;
    bool behind_wait = false;
    struct slot *slot;
    struct slot *next;
    for (slot = STAILQ_FIRST(&client->slots); slot != NULL; slot = next) {
        next = STAILQ_NEXT(slot, link);
        if (slot->state == SLOT_HELD) {
            if (slot->kind == SLOT_WRITE || (slot->kind == SLOT_READ && behind_wait))
                return;
            slot->state = SLOT_STARTED;
            handler->on_start(handler->arg, slot);
        }
        if (slot->state == SLOT_STARTED && slot->kind != SLOT_WAIT)
            return;
        if (slot->state != SLOT_DONE)
            behind_wait = true;
    }
}

/* A full connection cannot read what its first wait may be waiting for. */
static void end_waits_when_full(struct client *client)
{
    struct slot *slot = STAILQ_FIRST(&client->slots);
    if (!client->paused || slot == NULL || slot->wait == NULL)
        return;
    struct slot *next;
    for (; slot != NULL && slot->state != SLOT_HELD; slot = next) {
        next = STAILQ_NEXT(slot, link);
        if (slot->wait != NULL)
            client->clients->handler.on_end_wait(client->clients->handler.arg, slot);
    }
}

static void send_output(struct client *client)
{
    while (evbuffer_get_length(client->output) > 0) {
        if (evbuffer_write(client->output, client->fd) >= 0)
            continue;
        if (errno != EAGAIN && errno != EINTR)
            client_die(client);
        else
            event_add(client->write_event, NULL);
        return;
    }
}

/* Without unread input the peer sees an end of file after our last reply, not a reset. */
static void close_politely(struct client *client)
{
    char unread[4096];
    shutdown(client->fd, SHUT_RDWR);
    while (read(client->fd, unread, sizeof(unread)) > 0)
        continue;
    client_die(client);
}

static void watch_hangup(struct clients *clients)
{
    const struct timeval soon = {HANGUP_CHECK_S, 0};
    if (!evtimer_pending(clients->hangup_timer, NULL))
        evtimer_add(clients->hangup_timer, &soon);
}

/* A peer that half-closed is owed its replies; one that has gone altogether is not. The two look
 * alike to read(2), so that as long as there are any of them we look. */
static void on_hangup_timer(evutil_socket_t fd, short what, void *arg)
{
    struct clients *clients = arg;
    struct client *client;
    (void)fd;
    (void)what;
    TAILQ_FOREACH(client, &clients->all, link) {
        struct pollfd peer = {.fd = client->fd};
        if (!client->eof || client->dead)
            continue;
        if (poll(&peer, 1, 0) == 1 && (peer.revents & (POLLHUP | POLLERR)))
            client_die(client);
        else
            watch_hangup(clients);
    }
}

static void client_turn(struct client *client)
{
    collect_replies(client);
    start_slots(client);
    end_waits_when_full(client);
    collect_replies(client);
    send_output(client);
    if (client->dead)
        return;
    if (client->paused && load(client) < limit(client->clients) / 2) {
        client->paused = false;
        take_lines(client);
    }
    /* Written, and everything that had been read by then has had its answer. */
    if (client->failing && client->refusal == NULL && !client->paused && client->no_room == NULL &&
        evbuffer_get_length(client->output) == 0)
        client->failing = false;
    if (STAILQ_EMPTY(&client->slots) && client->closing && evbuffer_get_length(client->output) == 0)
        close_politely(client);
    else if (client->eof)
        watch_hangup(client->clients);
}

void clients_turn(struct clients *clients)
{
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->dirty)) != NULL) {
        TAILQ_REMOVE(&clients->dirty, client, dirty_link);
        client->dirty = false;
        if (!client->dead)
            client_turn(client);
        if (client->dead && !client->dirty)
            client_free(client);
    }
}

bool clients_dirty(const struct clients *clients)
{
    return !TAILQ_EMPTY(&clients->dirty);
}

size_t clients_count(const struct clients *clients)
{
    return clients->count;
}

bool clients_busy(const struct clients *clients)
{
    const struct client *client;
    TAILQ_FOREACH(client, &clients->all, link)
        if (!STAILQ_EMPTY(&client->slots) || evbuffer_get_length(client->output) > 0)
            return true;
    return false;
}

void slot_finish(struct slot *slot)
{
    assert(slot->state != SLOT_DONE && slot->wait == NULL);
    slot->state = SLOT_DONE;
    if (slot->client == NULL) {
        slot_free(slot);
        return;
    }
    slot->client->charge += slot->reply.len;
    slot->charge += slot->reply.len;
    mark_dirty(slot->client);
}

void slot_stored(struct slot *slot)
{
    slot->state = SLOT_STORED;
    if (slot->client != NULL)
        mark_dirty(slot->client);
}

void slot_mark_failing(struct slot *slot)
{
    if (slot->client == NULL || slot->client->failing)
        return;
    slot->client->failing = true;
    slot->client->refusal = slot;
}

bool slot_is_failing(const struct slot *slot)
{
    return slot->client != NULL && slot->client->failing;
}

bool slot_is_admin(const struct slot *slot)
{
    return slot->client != NULL && slot->client->admin;
}

const char *slot_actor(const struct slot *slot)
{
    return slot->client != NULL ? slot->client->actor : "";
}
