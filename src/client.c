/* SPDX-License-Identifier: MIT */
#include "client_internal.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "log.h"
#include "timer.h"

enum {
    SLOT_CHARGE = 512,        /* what a slot weighs besides its text */
    TRIM_BYTES = 1024 * 1024, /* connections that held as much give memory back to the system */
    TRIM_DELAY_MS = 1000,
    HANGUP_CHECK_S = 1,
    GRANT_MS = 1000,            /* for a long line while others wait for its memory */
    SCARCE_PENDING = 64 * 1024, /* what one connection may have under way when memory is scarce */
};

static void on_hangup_timer(evutil_socket_t fd, short what, void *arg);
static void on_trim_timer(evutil_socket_t fd, short what, void *arg);
static void on_unread_overdue(void *arg, struct overdue_node *node);

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
    TAILQ_INIT(&clients->greedy);
    TAILQ_INIT(&clients->granted);
    TAILQ_INIT(&clients->held);
    clients_share_turn(clients);
    overdue_init(&clients->half_lines, base, limits->line_timeout_ms, client_on_line_overdue,
                 clients);
    overdue_init(&clients->wanted, base, GRANT_MS, client_on_grant_overdue, clients);
    overdue_init(&clients->unread, base, limits->write_timeout_ms, on_unread_overdue, clients);
    clients->hangup_timer = evtimer_new(base, on_hangup_timer, clients);
    clients->trim_timer = evtimer_new(base, on_trim_timer, clients);
    return clients;
}

void client_mark_dirty(struct client *client)
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

void client_die(struct client *client)
{
    if (client->dead)
        return;
    client->dead = true;
    client_set_more(client, false);
    event_del(client->read_event);
    event_del(client->write_event);
    if (client->no_room != NULL)
        TAILQ_REMOVE(&client->clients->blocked, client, blocked_link);
    client->no_room = NULL;
    client_mark_dirty(client);
}

static void client_free(struct client *client)
{
    struct clients *clients = client->clients;
    orphan_slots(client);
    client_drop_input(client);
    overdue_stop(&clients->unread, &client->unread);
    TAILQ_REMOVE(&clients->all, client, link);
    clients->load -= client->counted;
    clients->freed += client->peak;
    clients->count--;
    event_free(client->read_event);
    event_free(client->write_event);
    line_fini(&client->input);
    evbuffer_free(client->output);
    close(client->fd);
    free(client);
}

void clients_free(struct clients *clients)
{
    if (clients == NULL)
        return;
    struct client *client;
    while ((client = TAILQ_FIRST(&clients->all)) != NULL)
        client_free(client);
    overdue_fini(&clients->half_lines);
    overdue_fini(&clients->wanted);
    overdue_fini(&clients->unread);
    event_free(clients->hangup_timer);
    event_free(clients->trim_timer);
    free(clients);
}

/* Bytes under way; the sum over all connections follows. */
static size_t load(struct client *client)
{
    size_t now = client->charge + evbuffer_get_length(client->output);
    client->clients->load += now - client->counted;
    client->counted = now;
    size_t held = now + line_pending(&client->input);
    if (held > client->peak)
        client->peak = held;
    return now;
}

static size_t limit(const struct clients *clients)
{
    size_t one = clients->limits.max_pending;
    return clients->load > clients->limits.max_all && one > SCARCE_PENDING ? SCARCE_PENDING : one;
}

bool client_is_full(struct client *client)
{
    return load(client) >= limit(client->clients) ||
           client->waits >= client->clients->limits.max_waits;
}

static bool is_half_empty(struct client *client)
{
    return load(client) < limit(client->clients) / 2 &&
           client->waits <= client->clients->limits.max_waits / 2;
}

struct slot *client_add_slot(struct client *client, size_t bytes)
{
    struct slot *slot = mem_zalloc(sizeof(*slot));
    slot->client = client;
    slot->line = client->lines;
    slot->charge = bytes + SLOT_CHARGE;
    client->charge += slot->charge;
    STAILQ_INSERT_TAIL(&client->slots, slot, link);
    return slot;
}

static void on_client_write(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    client_mark_dirty(arg);
}

/* Without unread input the peer sees an end of file after our last reply, not a reset. */
static void drain(int fd)
{
    char unread[4096];
    shutdown(fd, SHUT_RDWR);
    while (read(fd, unread, sizeof(unread)) > 0)
        continue;
}

static const char not_allowed[] = "this user may not connect (allow_users, allow_groups)";

static void refuse(int fd, enum reply_code code, const char *message)
{
    char name[PEER_NAME_MAX];
    struct buf reply = {0};
    peer_name(fd, name);
    log_warning("client_refused", "peer=%s reason=%s", name, log_text(message));
    proto_error(&reply, code, message, 0);
    if (send(fd, reply.data, reply.len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        drain(fd);
    buf_fini(&reply);
    close(fd);
}

void clients_accept(struct clients *clients, int fd)
{
    enum peer_rank rank = peer_rank(fd, clients->limits.rules);
    if (rank == PEER_REFUSED)
        return refuse(fd, REPLY_FORBIDDEN, not_allowed);
    if (clients->count >= clients->limits.max_clients)
        return refuse(fd, REPLY_UNAVAILABLE, "too many clients (max_clients)");
    struct client *client = mem_zalloc(sizeof(*client));
    client->clients = clients;
    client->fd = fd;
    client->id = ++clients->last_id;
    peer_name(fd, client->actor);
    client->admin = rank == PEER_ADMIN;
    client->read_event = event_new(clients->base, fd, EV_READ | EV_PERSIST, client_on_read, client);
    client->write_event = event_new(clients->base, fd, EV_WRITE, on_client_write, client);
    client->output = evbuffer_new();
    STAILQ_INIT(&client->slots);
    line_init(&client->input, clients->limits.max_line);
    TAILQ_INSERT_TAIL(&clients->all, client, link);
    clients->count++;
    client_set_reading(client);
}

void clients_set_limits(struct clients *clients, const struct client_limits *limits)
{
    struct client *client;
    clients->limits = *limits;
    overdue_set_timeout(&clients->half_lines, limits->line_timeout_ms);
    overdue_set_timeout(&clients->unread, limits->write_timeout_ms);
    TAILQ_FOREACH(client, &clients->all, link) {
        enum peer_rank rank = peer_rank(client->fd, limits->rules);
        client->admin = rank == PEER_ADMIN;
        if (rank == PEER_REFUSED && !client->closing && !client->dead)
            client_end_with_error(client, REPLY_FORBIDDEN, not_allowed);
        client_mark_dirty(client);
    }
    clients_grant(clients);
}

void clients_stop_reading(struct clients *clients)
{
    clients->stopped = true;
    struct client *client;
    TAILQ_FOREACH(client, &clients->all, link) {
        client->closing = true;
        overdue_stop(&clients->half_lines, &client->half_line);
        client_set_reading(client);
        client_mark_dirty(client);
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
        client_take_lines(client);
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

/* R23: a full connection cannot read what its first wait may be waiting for. */
static void end_waits_when_full(struct client *client)
{
    struct slot *slot = STAILQ_FIRST(&client->slots);
    if (!client->paused || slot == NULL || slot->wait == NULL)
        return;
    struct slot *next;
    for (; slot != NULL && slot->state != SLOT_HELD; slot = next) {
        next = STAILQ_NEXT(slot, link);
        if (slot->wait != NULL)
            client->clients->handler.on_full_behind(client->clients->handler.arg, slot);
    }
}

/* How long does the peer leave its replies? */
static void watch_unread(struct client *client, bool moved)
{
    struct overdue *unread = &client->clients->unread;
    if (evbuffer_get_length(client->output) == 0 || moved)
        overdue_stop(unread, &client->unread);
    if (evbuffer_get_length(client->output) == 0 || client->unread.running)
        return;
    ioctl(client->fd, SIOCOUTQ, &client->unsent);
    overdue_start(unread, &client->unread);
}

/* A peer that takes a little at a time may leave us no room to write for long: as long as what the
 * kernel has for it changes, it reads. */
static void on_unread_overdue(void *arg, struct overdue_node *node)
{
    struct clients *clients = arg;
    struct client *client = CONTAINER_OF(node, struct client, unread);
    int unsent = client->unsent;
    ioctl(client->fd, SIOCOUTQ, &unsent);
    if (unsent != client->unsent) {
        client->unsent = unsent;
        overdue_start(&clients->unread, node);
        return;
    }
    log_warning("client_dropped", "conn=%lld peer=%s reason=write_timeout", (long long)client->id,
                client->actor);
    client_die(client);
}

static void send_output(struct client *client)
{
    bool moved = false;
    while (evbuffer_get_length(client->output) > 0) {
        if (evbuffer_write(client->output, client->fd) >= 0) {
            moved = true;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return client_die(client);
        event_add(client->write_event, NULL);
        break;
    }
    watch_unread(client, moved);
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
    if (client->paused && is_half_empty(client)) {
        client->paused = false;
        client_take_lines(client);
    }
    /* Written, and everything that had been read by then has had its answer. */
    if (client->failing && client->refusal == NULL && !client->paused && !client->more &&
        client->no_room == NULL && evbuffer_get_length(client->output) == 0)
        client->failing = false;
    if (STAILQ_EMPTY(&client->slots) && client->closing &&
        evbuffer_get_length(client->output) == 0) {
        drain(client->fd);
        client_die(client);
    } else if (client->eof)
        watch_hangup(client->clients);
}

/* Later, since what was under way for connections that are gone goes after them. */
static void on_trim_timer(evutil_socket_t fd, short what, void *arg)
{
    struct clients *clients = arg;
    (void)fd;
    (void)what;
    clients->freed = 0;
    malloc_trim(0);
}

void clients_turn(struct clients *clients)
{
    struct client *client;
    if (clients->readers > 0 || !TAILQ_EMPTY(&clients->greedy))
        clients_share_turn(clients);
    while ((client = TAILQ_FIRST(&clients->dirty)) != NULL) {
        TAILQ_REMOVE(&clients->dirty, client, dirty_link);
        client->dirty = false;
        if (!client->dead)
            client_turn(client);
        if (client->dead && !client->dirty)
            client_free(client);
    }
    if (clients->freed > TRIM_BYTES && !evtimer_pending(clients->trim_timer, NULL))
        timer_set(clients->trim_timer, TRIM_DELAY_MS);
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
    slot->client->waits -= slot->counted;
    slot->client->charge += slot->reply.len;
    slot->charge += slot->reply.len;
    client_mark_dirty(slot->client);
}

void slot_count_wait(struct slot *slot)
{
    assert(slot->client != NULL && !slot->counted);
    slot->counted = true;
    slot->client->waits++;
}

void slot_stored(struct slot *slot)
{
    slot->state = SLOT_STORED;
    if (slot->client != NULL)
        client_mark_dirty(slot->client);
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
