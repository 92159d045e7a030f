/* SPDX-License-Identifier: MIT */
/*
 * ingest: operations -> batch -> log -> receipts; owns sending again and unknown outcomes.
 *
 * Operations gather while a batch is in flight; the next batch is sealed the moment the connection
 * is free, or was full before. An operation is acknowledged only after its batch has committed.
 * After a lost connection the batch is sent again as it was: its ids tell whether it is in (R7),
 * since ids are looked up before anything is stored and the new term has waited for the old
 * transaction's end.
 */
#ifndef FOLDD_INGEST_H
#define FOLDD_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "client.h"
#include "store.h"

struct event_base;
struct ingest;

struct ingest_limits {
    struct batch_limits batch;
    size_t max_pending; /* bytes of operations accepted and not committed */
    int64_t db_timeout_ms;
};

struct ingest_events {
    /* A batch has committed: op->sent_seq is the seq of each operation that is new, 0 of the
     * others. The log's head was old_head before and is new_head now. */
    void (*on_committed)(void *arg, const struct batch *batch, int64_t old_head, int64_t new_head);
    /* The operation's answer waits for its outcome: the slot is the receiver's. */
    void (*on_stored)(void *arg, struct slot *slot, const struct op *op, int64_t seq,
                      enum receipt_kind kind);
    /* There may be room for operations again. */
    void (*on_room)(void *arg);
    /* The term cannot go on. */
    void (*on_trouble)(void *arg, const struct err *err);
    void *arg;
};

/* Given. */
struct ingest *ingest_new(struct event_base *base, const struct ingest_limits *limits,
                          const struct ingest_events *events);
/* After clients_free: answers that are still owed are dropped. */
void ingest_free(struct ingest *ingest);

/* Other limits from now on. */
void ingest_set_limits(struct ingest *ingest, const struct ingest_limits *limits);

/* Take the operation; its slot gets the answer. False, with nothing changed, when there is no room.
 */
bool ingest_submit(struct ingest *ingest, struct slot *slot, struct op *op);

/* A term has begun on this connection. */
void ingest_begin_term(struct ingest *ingest, struct pg *pg, const struct term *term,
                       const struct store_lead_row *lead);
void ingest_end_term(struct ingest *ingest);

/* Once per turn of the loop: send the next batch if the connection is free. */
void ingest_turn(struct ingest *ingest);

/* Store nothing until told otherwise: operations wait in memory, up to db_timeout. */
void ingest_set_pause(struct ingest *ingest, bool paused);
bool ingest_is_paused(const struct ingest *ingest);

/* seq of the last committed operation, as known from our own commits. */
int64_t ingest_head(const struct ingest *ingest);

/* Tickets count accepted operations: the last one given, and the last one such that it and all
 * before it are decided. */
int64_t ingest_ticket(const struct ingest *ingest);
int64_t ingest_decided(const struct ingest *ingest);

/* The ticket of the last operation of the batch in flight; as ingest_decided when none is. */
int64_t ingest_sent(const struct ingest *ingest);

size_t ingest_pending_bytes(const struct ingest *ingest);
size_t ingest_pending_ops(const struct ingest *ingest);

#endif
