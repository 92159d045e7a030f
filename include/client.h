/* SPDX-License-Identifier: MIT */
/*
 * client: the connections: read cap, reply order, back-pressure, close.
 *
 * Everything that a client can pile up has a limit, and full means that it is not read until half
 * empty: requests and replies under way, open waits, and the memory for lines that are not whole
 * yet. Who leaves a line unfinished or its replies unread for too long is dropped, so that nothing
 * of this is held for ever.
 *
 * Every request line has a slot; slots keep the order of the lines, so that replies leave in it
 * whatever the order in which they are decided. Writes act as they are read; a read or a wait is
 * started when every earlier line of its connection is decided, except that behind an unfinished
 * wait further writes and waits start (R23).
 *
 * A slot outlives its connection while somebody owes it an answer: slot->client is NULL then, and
 * the answer is dropped. Nothing else may keep a pointer to a client.
 */
#ifndef FOLDD_CLIENT_H
#define FOLDD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "buf.h"
#include "proto.h"

struct event_base;
struct client;
struct clients;
struct peer_rules;
struct wait;

enum slot_kind { SLOT_WRITE, SLOT_WAIT, SLOT_READ };

enum slot_state {
    SLOT_HELD,    /* not started: its turn has not come, or there is no room */
    SLOT_STARTED, /* somebody owes it an answer */
    SLOT_STORED,  /* a write that is durable and waits for its outcome */
    SLOT_DONE,    /* the reply is there */
};

struct slot {
    STAILQ_ENTRY(slot) link;
    struct client *client; /* NULL: the connection is gone */
    enum slot_kind kind;
    enum slot_state state;
    int64_t line;            /* from 1, per connection; blank lines count */
    size_t charge;           /* bytes counted against the connection's limit */
    struct request *request; /* owned; of reads and waits, and of a write without room */
    struct wait *wait;       /* borrowed: the wait that owes the answer */
    bool counted;            /* against the connection's max_waits */
    int64_t ticket;          /* barrier: operations accepted before it, on any connection */
    struct buf reply;
};

struct client_limits {
    size_t max_line;
    size_t max_pending; /* bytes of requests and replies under way of one connection */
    size_t max_all;     /* of all of them together: beyond that each may have SCARCE_PENDING */
    size_t max_input;   /* bytes for lines that are long and not whole yet, of all */
    size_t max_waits;   /* slots of one connection that slot_count_wait has counted */
    size_t max_clients;
    int64_t line_timeout_ms;        /* for the rest of a line that has begun */
    int64_t write_timeout_ms;       /* for taking replies */
    const struct peer_rules *rules; /* borrowed */
};

struct client_handler {
    /* A line has come. Sets slot->kind, and either finishes the slot, starts a write, or leaves
     * slot->request for on_start. Returns false if a write has no room: the connection is not read
     * any further until clients_resume, which calls on_start for it. */
    bool (*on_line)(void *arg, struct slot *slot, struct span line);
    /* The slot's turn has come; slot->request is set. False: still no room. */
    bool (*on_start)(void *arg, struct slot *slot);
    /* The connection of a wait is gone: end the wait now. */
    void (*on_end_wait)(void *arg, struct slot *slot);
    /* The connection is full behind a wait: end it now if it may be for what was not read. */
    void (*on_full_behind)(void *arg, struct slot *slot);
    void *arg;
};

/* Given. */
struct clients *clients_new(struct event_base *base, const struct client_limits *limits,
                            const struct client_handler *handler);
void clients_free(struct clients *clients);

/* Other limits and rules from now on; connections that may not be any more are closed. max_line
 * stays as it was for those that are open. */
void clients_set_limits(struct clients *clients, const struct client_limits *limits);

/* Take over a connected socket. */
void clients_accept(struct clients *clients, int fd);

/* Read no more from anybody (a stop). What was read is still answered. */
void clients_stop_reading(struct clients *clients);

/* There may be room again: start what waits for it, oldest first. */
void clients_resume(struct clients *clients);

/* Once per turn of the loop: start what may start, send what is decided, close and free. */
void clients_turn(struct clients *clients);

/* Whether another clients_turn has something to do. */
bool clients_dirty(const struct clients *clients);

size_t clients_count(const struct clients *clients);
/* Connections that still owe or are owed something. */
bool clients_busy(const struct clients *clients);

/* The answer is in slot->reply (whole lines): the slot is decided, and may be freed. */
void slot_finish(struct slot *slot);
/* The slot is or becomes a wait: it counts as one until it is finished. */
void slot_count_wait(struct slot *slot);
/* The write is durable: what comes behind it may start as behind a wait. */
void slot_stored(struct slot *slot);

/* R9: after an operation of the connection was answered unavailable, all that are read before that
 * answer is written are, too. */
void slot_mark_failing(struct slot *slot);
bool slot_is_failing(const struct slot *slot);

/* Whether the peer may do what changes others' operations (peer.h). */
bool slot_is_admin(const struct slot *slot);

/* Borrowed: who sent it, as the log calls it ("uid:1000"). */
const char *slot_actor(const struct slot *slot);

#endif
