/* SPDX-License-Identifier: MIT */
/*
 * await: the waits of clients: for the outcome of an operation, or for the cursor.
 *
 * Plainly folded operations are answered from memory as the fold commits; everything else (ignored,
 * rejected, parked, long ago) is looked up in the database, which always knows (R18).
 */
#ifndef FOLDD_AWAIT_H
#define FOLDD_AWAIT_H

#include <stddef.h>
#include <stdint.h>

#include "client.h"
#include "op.h"
#include "pg.h"

struct event_base;
struct await;

struct await_queries {
    /* Whether the operation may still be folded by this term, or has yet to be handed out. */
    bool (*is_open)(void *arg, int64_t seq);
    int64_t (*cursor)(void *arg); /* -1: no term, nothing is known */
    int64_t (*head)(void *arg);
    /* As ingest_decided. */
    int64_t (*decided)(void *arg);
    void *arg;
};

/* Given. */
struct await *await_new(struct event_base *base, const struct await_queries *queries);
void await_free(struct await *await);

/* The database can be asked on this connection; NULL: no more. */
void await_set_reader(struct await *await, struct pg *reader);

/* An "await": the slot's request says for what. */
void await_operation(struct await *await, struct slot *slot);
/* A "barrier". */
void await_barrier(struct await *await, struct slot *slot);
/* A "drain", when ingest is paused: as a barrier behind the last operation that was sent. */
void await_drained(struct await *await, struct slot *slot, int64_t ticket);
/* The slot's operation is stored, and its receipt is due with its outcome. */
void await_stored(struct await *await, struct slot *slot, const struct op *op, int64_t seq,
                  enum receipt_kind kind);
/* Answer the slot's wait now, with what is known. */
void await_end(struct await *await, struct slot *slot);
/* The same if the operation that it is for may not have been read yet. What is in the log, and what
 * was read before a barrier, is settled without anything more being read. */
void await_end_unknown(struct await *await, struct slot *slot);
/* Answer all of them, and all that come, without waiting (a stop). */
void await_end_all(struct await *await);

/* Events. */
void await_on_committed(struct await *await, const struct op *op);
void await_on_folded(struct await *await, int64_t seq, int64_t version);
void await_on_changed(struct await *await, int64_t seq);
/* The cursor, the head or the tickets have moved: once per turn. */
void await_turn(struct await *await);

size_t await_count(const struct await *await);

#endif
