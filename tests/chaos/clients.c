/* SPDX-License-Identifier: MIT */
/*
 * The clients: one poll loop over connections that pipeline operations, send old ids again, lose
 * their sockets, connect anew, and check every reply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

enum {
    CLIENTS = 12,
    WINDOW = 600, /* operations without a reply on one connection */
    BURST = 150,
    DRAIN_MS = 90000,
    AGAIN_PERCENT = 8,  /* sent once more, whatever became of them */
    LOST_PERCENT = 75,  /* of those whose reply was lost: sent again */
    FOLDED_PERCENT = 10 /* with ack "folded" */
};

struct client {
    struct conn *conn; /* NULL: not connected */
    bool half_closed;
    int64_t last_seq;       /* of the last receipt of a new operation on this connection */
    size_t waiting[WINDOW]; /* operations sent and not answered, a ring */
    size_t first;
    size_t count;
};

struct clients {
    struct chaos *chaos;
    struct env env;
    struct client client[CLIENTS];
    uint64_t random;
    size_t *lost; /* operations to be sent again */
    size_t lost_count;
    size_t lost_room;
    int64_t started_ms;
    int64_t queued; /* operations so far, for the rate */
};

static void queue_op(struct clients *clients, struct client *client, size_t i)
{
    struct spec spec;
    chaos_spec(clients->chaos, i, &spec);
    bool folded = chaos_draw(&clients->random, 0, 99) < FOLDED_PERCENT;
    conn_line(client->conn, "{'document':'d%u','id':'c-%zu','action':'%s'%s%s%s}", spec.document, i,
              spec.action, spec.fields[0] == '\0' ? "" : ",'fields':", spec.fields,
              folded ? ",'ack':'folded'" : "");
    client->waiting[(client->first + client->count++) % WINDOW] = i;
    clients->chaos->records[i].sent++;
    clients->queued++;
}

static size_t new_op(struct chaos *chaos)
{
    if (chaos->record_count == chaos->record_room) {
        chaos->record_room = chaos->record_room * 2 + 1024;
        chaos->records = mem_resize(chaos->records, chaos->record_room, sizeof *chaos->records);
    }
    chaos->records[chaos->record_count] = (struct record){0};
    return chaos->record_count++;
}

/* One that was lost, any that was ever sent, or a new one. */
static size_t choose_op(struct clients *clients)
{
    struct chaos *chaos = clients->chaos;
    if (clients->lost_count > 0 && chaos_draw(&clients->random, 0, 1) == 0) {
        size_t at = next_random(&clients->random) % clients->lost_count;
        size_t i = clients->lost[at];
        clients->lost[at] = clients->lost[--clients->lost_count];
        chaos->counts.retries++;
        return i;
    }
    if (chaos->record_count == 0 || chaos_draw(&clients->random, 0, 99) >= AGAIN_PERCENT)
        return new_op(chaos);
    chaos->counts.retries++;
    /* The latest are the ones that may still be on their way. */
    size_t reach = chaos_draw(&clients->random, 0, 1) == 0 ? 200 : chaos->record_count;
    reach = reach < chaos->record_count ? reach : chaos->record_count;
    return chaos->record_count - 1 - next_random(&clients->random) % reach;
}

static void queue_burst(struct clients *clients)
{
    struct client *client = &clients->client[chaos_draw(&clients->random, 0, CLIENTS - 1)];
    if (client->conn == NULL || client->half_closed)
        return;
    for (int left = chaos_draw(&clients->random, 1, BURST); left > 0 && client->count < WINDOW;
         left--)
        queue_op(clients, client, choose_op(clients));
}

static void check_receipt(struct clients *clients, struct client *client, size_t i,
                          const json_t *reply)
{
    struct chaos *chaos = clients->chaos;
    struct record *record = &chaos->records[i];
    int64_t seq = json_integer_value(json_object_get(reply, "seq"));
    bool duplicate = json_is_true(json_object_get(reply, "duplicate"));
    const char *outcome = json_string_value(json_object_get(reply, "outcome"));
    char id[32];
    snprintf(id, sizeof id, "c-%zu", i);
    const char *actual = json_string_value(json_object_get(reply, "id"));
    if (seq <= 0 || actual == NULL || strcmp(actual, id) != 0)
        chaos_fail(chaos, RECEIPTS, "%s got %s", id, client->conn->raw);
    if ((record->seq != 0 && record->seq != seq) || (record->is_new && !duplicate))
        chaos_fail(chaos, SAME_RECEIPT, "%s had %lld%s and got %s", id, (long long)record->seq,
                   record->is_new ? " as new" : "", client->conn->raw);
    if (!duplicate && seq <= client->last_seq)
        chaos_fail(chaos, IN_ORDER, "%s got %lld after %lld", id, (long long)seq,
                   (long long)client->last_seq);
    if (!duplicate)
        client->last_seq = seq;
    record->seq = seq;
    record->is_new = record->is_new || !duplicate;
    if (outcome != NULL)
        snprintf(record->outcome, sizeof record->outcome, "%s", outcome);
    chaos->counts.receipts++;
}

static void check_reply(struct clients *clients, struct client *client, const json_t *reply)
{
    struct chaos *chaos = clients->chaos;
    if (client->count == 0) {
        chaos_fail(chaos, RECEIPTS, "nothing was asked, and came %s", client->conn->raw);
        return;
    }
    size_t i = client->waiting[client->first];
    client->first = (client->first + 1) % WINDOW;
    client->count--;
    if (json_is_true(json_object_get(reply, "ok"))) {
        check_receipt(clients, client, i, reply);
        return;
    }
    const char *error = json_string_value(json_object_get(reply, "error"));
    const char *stored = json_string_value(json_object_get(reply, "stored"));
    if (error == NULL || stored == NULL || strcmp(error, "unavailable") != 0)
        chaos_fail(chaos, RECEIPTS, "c-%zu got %s", i, client->conn->raw);
    else if (strcmp(stored, "no") == 0)
        chaos->records[i].refused++;
}

static void note_lost(struct clients *clients, size_t i)
{
    if (clients->lost_count == clients->lost_room) {
        clients->lost_room = clients->lost_room * 2 + 1024;
        clients->lost = mem_resize(clients->lost, clients->lost_room, sizeof *clients->lost);
    }
    clients->lost[clients->lost_count++] = i;
}

static void forget_conn(struct clients *clients, struct client *client)
{
    for (; client->count > 0; client->count--) {
        if (chaos_draw(&clients->random, 0, 99) < LOST_PERCENT)
            note_lost(clients, client->waiting[client->first]);
        client->first = (client->first + 1) % WINDOW;
    }
    client->conn = NULL;
    client->half_closed = false;
}

/* The replies that are there; then the end, if it came. */
static void take_replies(struct clients *clients, struct client *client)
{
    while (conn_has_reply(client->conn))
        check_reply(clients, client, conn_read(client->conn));
    if (!client->conn->eof)
        return;
    conn_close(client->conn);
    forget_conn(clients, client);
}

/* Lose a connection in one of the ways there are. */
static void cut(struct clients *clients, struct client *client)
{
    if (client->conn == NULL || client->half_closed)
        return;
    switch (chaos_draw(&clients->random, 0, 2)) {
    case 0:
        conn_push_only(client->conn);
        conn_shutdown(client->conn);
        client->half_closed = true; /* the replies to what was sent still come */
        return;
    case 1:
        conn_push_only(client->conn);
        conn_reset(client->conn);
        break;
    default:
        conn_close(client->conn);
    }
    forget_conn(clients, client);
}

static void cut_some(struct clients *clients)
{
    for (unsigned count = atomic_exchange(&clients->chaos->cuts, 0); count > 0; count--)
        cut(clients, &clients->client[chaos_draw(&clients->random, 0, CLIENTS - 1)]);
}

static void connect_all(struct clients *clients)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &clients->client[i];
        if (client->conn != NULL)
            continue;
        client->conn = chaos_connect(&clients->env, clients->chaos->daemon->socket);
        client->last_seq = 0;
    }
}

/* One round of sending, taking in and checking. */
static void turn(struct clients *clients)
{
    struct conn *conns[CLIENTS];
    size_t count = 0;
    connect_all(clients);
    for (int i = 0; i < CLIENTS; i++)
        if (clients->client[i].conn != NULL)
            conns[count++] = clients->client[i].conn;
    if (count == 0)
        pause_ms(2);
    else
        conn_pump(conns, count, 2);
    for (int i = 0; i < CLIENTS; i++)
        if (clients->client[i].conn != NULL)
            take_replies(clients, &clients->client[i]);
}

static bool within_rate(const struct clients *clients)
{
    int64_t elapsed = now_ms() - clients->started_ms;
    return clients->queued < elapsed * clients->chaos->ops_per_second / 1000;
}

static bool all_answered(const struct clients *clients)
{
    for (int i = 0; i < CLIENTS; i++)
        if (clients->client[i].count > 0)
            return false;
    return clients->lost_count == 0;
}

static void send_lost(struct clients *clients)
{
    struct client *client = &clients->client[chaos_draw(&clients->random, 0, CLIENTS - 1)];
    if (client->conn == NULL || client->half_closed)
        return;
    while (clients->lost_count > 0 && client->count < WINDOW)
        queue_op(clients, client, clients->lost[--clients->lost_count]);
}

/* The faults are over: what is under way must be answered. */
static void drain(struct clients *clients)
{
    int64_t end = now_ms() + DRAIN_MS;
    while (!all_answered(clients) && now_ms() < end) {
        send_lost(clients);
        turn(clients);
    }
    if (!all_answered(clients))
        chaos_fail(clients->chaos, QUIET, "operations are not answered within %d ms", DRAIN_MS);
}

void *clients_run(void *arg)
{
    struct chaos *chaos = arg;
    struct clients clients = {.chaos = chaos, .random = chaos_random(chaos, 2)};
    chaos_side_init(&clients.env, chaos->env);
    clients.started_ms = now_ms();
    while (chaos->phase == PHASE_LOAD) {
        cut_some(&clients);
        if (within_rate(&clients))
            queue_burst(&clients);
        turn(&clients);
    }
    drain(&clients);
    chaos_side_fini(&clients.env);
    free(clients.lost);
    return NULL;
}
