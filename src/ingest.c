/* SPDX-License-Identifier: MIT */
/*
 * Happy path: ingest_submit queues; ingest_turn seals a batch and sends it; on_appended gives the
 * receipts, tells dispatch, and the next turn sends the next batch.
 *
 * Failure modes. The statement is refused because of an operation (data): the batch is split, and
 * the halves go first, in order (R8). Anything else ends the term; the batch in flight stays first
 * in line and is sent again in the next one. Nothing answered within db_timeout: unavailable (R9).
 */
#include "ingest.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "timer.h"

struct ingest {
    struct event_base *base;
    struct ingest_limits limits;
    struct ingest_events events;
    struct op_list queue;
    struct batch_list again; /* sealed before, to be sent next, in order */
    struct batch *flight;
    struct pg *pg; /* NULL: no term */
    const struct term *term;
    struct event *timeout; /* pending while anything is */
    size_t pending_bytes;
    size_t pending_ops;
    int64_t head;
    int64_t floor; /* no seq up to here is given any more */
    int64_t batch_number;
    int64_t received_us;
    int64_t ticket;
    bool paused; /* by an operator */
};

static void on_timeout(evutil_socket_t fd, short what, void *arg);

struct ingest *ingest_new(struct event_base *base, const struct ingest_limits *limits,
                          const struct ingest_events *events)
{
    struct ingest *ingest = mem_zalloc(sizeof(*ingest));
    ingest->base = base;
    ingest->limits = *limits;
    ingest->events = *events;
    TAILQ_INIT(&ingest->queue);
    TAILQ_INIT(&ingest->again);
    ingest->timeout = evtimer_new(base, on_timeout, ingest);
    return ingest;
}

/* At the end of the process nobody is there any more for the answers. */
static void abandon(struct op *op)
{
    slot_finish(op->slot);
    op_free(op);
}

static void abandon_batch(struct batch *batch)
{
    struct op *op;
    while (batch != NULL && (op = TAILQ_FIRST(&batch->ops)) != NULL) {
        batch_remove(batch, op);
        abandon(op);
    }
    batch_free(batch);
}

void ingest_free(struct ingest *ingest)
{
    if (ingest == NULL)
        return;
    struct op *op;
    struct batch *batch;
    while ((op = TAILQ_FIRST(&ingest->queue)) != NULL) {
        TAILQ_REMOVE(&ingest->queue, op, link);
        abandon(op);
    }
    while ((batch = TAILQ_FIRST(&ingest->again)) != NULL) {
        TAILQ_REMOVE(&ingest->again, batch, link);
        abandon_batch(batch);
    }
    abandon_batch(ingest->flight);
    event_free(ingest->timeout);
    free(ingest);
}

void ingest_set_limits(struct ingest *ingest, const struct ingest_limits *limits)
{
    ingest->limits = *limits;
    if (evtimer_pending(ingest->timeout, NULL))
        timer_set(ingest->timeout, 0);
}

bool ingest_submit(struct ingest *ingest, struct slot *slot, struct op *op)
{
    if (ingest->pending_ops > 0 && ingest->pending_bytes + op->size > ingest->limits.max_pending)
        return false;
    op->slot = slot;
    op->ticket = ++ingest->ticket;
    op->queued_ms = clock_mono_ms();
    snprintf(op->actor, sizeof(op->actor), "%s", slot_actor(slot));
    int64_t now_us = clock_wall_us();
    if (now_us > ingest->received_us)
        ingest->received_us = now_us;
    op->received_us = ingest->received_us;
    TAILQ_INSERT_TAIL(&ingest->queue, op, link);
    ingest->pending_bytes += op->size;
    ingest->pending_ops++;
    if (!evtimer_pending(ingest->timeout, NULL))
        timer_set(ingest->timeout, ingest->limits.db_timeout_ms);
    return true;
}

static void forget(struct ingest *ingest, struct op *op)
{
    ingest->pending_bytes -= op->size;
    ingest->pending_ops--;
    op_free(op);
}

void ingest_begin_term(struct ingest *ingest, struct pg *pg, const struct term *term,
                       const struct store_lead_row *lead)
{
    ingest->pg = pg;
    ingest->term = term;
    ingest->paused = lead->ingest_paused;
    ingest->head = lead->head;
    ingest->floor = lead->floor;
    ingest->batch_number = lead->batch;
    if (lead->received_us > ingest->received_us)
        ingest->received_us = lead->received_us;
}

void ingest_end_term(struct ingest *ingest)
{
    ingest->pg = NULL;
    ingest->term = NULL;
    if (ingest->flight != NULL)
        TAILQ_INSERT_HEAD(&ingest->again, ingest->flight, link);
    ingest->flight = NULL;
}

static struct batch *seal(struct ingest *ingest)
{
    struct batch *batch = TAILQ_FIRST(&ingest->again);
    if (batch != NULL) {
        TAILQ_REMOVE(&ingest->again, batch, link);
        return batch;
    }
    batch = batch_new();
    struct op *op;
    while ((op = TAILQ_FIRST(&ingest->queue)) != NULL) {
        struct op *next = TAILQ_NEXT(op, link);
        TAILQ_REMOVE(&ingest->queue, op, link);
        if (!batch_add(batch, op, &ingest->limits.batch)) {
            if (next == NULL)
                TAILQ_INSERT_TAIL(&ingest->queue, op, link);
            else
                TAILQ_INSERT_BEFORE(next, op, link);
            break;
        }
    }
    return batch;
}

/* The numbers that the batch gets now. A number from a send whose outcome is unknown stays while
 * the log's head says that it may be in: it tells our own operation from a duplicate. */
static void number(struct ingest *ingest, struct batch *batch)
{
    batch->number = ingest->batch_number + 1;
    batch->base = (ingest->head > ingest->floor ? ingest->head : ingest->floor) + 1;
    int64_t seq = batch->base;
    struct op *op;
    TAILQ_FOREACH(op, &batch->ops, link) {
        if (op->sent_seq == 0 || op->sent_seq > ingest->head)
            op->sent_seq = seq;
        op->last_seq = seq++;
    }
}

static void on_appended(void *arg, const PGresult *result, const struct err *err);

void ingest_turn(struct ingest *ingest)
{
    if (ingest->pg == NULL || ingest->flight != NULL || ingest->pending_ops == 0 || ingest->paused)
        return;
    ingest->flight = seal(ingest);
    number(ingest, ingest->flight);
    store_append(ingest->pg, ingest->term, ingest->flight, on_appended, ingest);
}

static void give_receipt(struct ingest *ingest, struct op *op, int64_t seq, enum receipt_kind kind)
{
    struct slot *slot = op->slot;
    if (op->ack == OP_ACK_FOLDED) {
        ingest->events.on_stored(ingest->events.arg, slot, op, seq, kind);
        return;
    }
    if (slot->client != NULL) {
        proto_receipt(&slot->reply, seq, op->id, kind);
        proto_end(&slot->reply);
    }
    slot_finish(slot);
}

/* An operation whose id was in the log: the same one again, or another one with its id; or this
 * very one, stored by a send whose answer was lost. */
static void answer_found(struct ingest *ingest, struct op *op, const struct store_append_row *row)
{
    bool own = row->same && (row->seq == op->sent_seq || row->seq == op->last_seq);
    op->sent_seq = own ? row->seq : 0;
    if (row->same) {
        give_receipt(ingest, op, row->seq, own ? RECEIPT_NEW : RECEIPT_DUPLICATE);
        return;
    }
    proto_conflict(&op->slot->reply, row->seq, op->id, op->slot->line);
    slot_finish(op->slot);
}

/* Rows come in no particular order: spread them over the batch's places. */
static struct store_append_row *exceptions(const PGresult *result, size_t count)
{
    int rows = store_row_count(result);
    if (rows == 0)
        return NULL;
    struct store_append_row *found = mem_zalloc(count * sizeof(*found));
    for (int i = 0; i < rows; i++) {
        struct store_append_row row = store_append_row(result, i);
        found[row.n - 1] = row;
    }
    return found;
}

static void answer_batch(struct ingest *ingest, struct batch *batch, const PGresult *result)
{
    struct store_append_row *found = exceptions(result, batch->count);
    int64_t old_head = ingest->head;
    int64_t seq = batch->base;
    size_t place = 0;
    struct op *op;
    TAILQ_FOREACH(op, &batch->ops, link) {
        if (found != NULL && found[place].n != 0) {
            answer_found(ingest, op, &found[place]);
        } else {
            op->sent_seq = seq;
            ingest->head = seq;
            give_receipt(ingest, op, seq, RECEIPT_NEW);
        }
        place++;
        seq++;
    }
    free(found);
    ingest->batch_number = batch->number;
    ingest->events.on_committed(ingest->events.arg, batch, old_head, ingest->head);
}

static void drop_batch(struct ingest *ingest, struct batch *batch)
{
    struct op *op;
    while ((op = TAILQ_FIRST(&batch->ops)) != NULL) {
        batch_remove(batch, op);
        forget(ingest, op);
    }
    batch_free(batch);
    if (ingest->pending_ops == 0)
        evtimer_del(ingest->timeout);
    ingest->events.on_room(ingest->events.arg);
}

/* R8: what the database refuses is isolated; the halves keep their place in the order. */
static void isolate(struct ingest *ingest, struct batch *batch, const struct err *err)
{
    if (batch->count > 1) {
        struct batch *second = batch_split(batch);
        batch->base = 0;
        TAILQ_INSERT_HEAD(&ingest->again, second, link);
        TAILQ_INSERT_HEAD(&ingest->again, batch, link);
        return;
    }
    struct op *op = TAILQ_FIRST(&batch->ops);
    char message[sizeof(err->message) + 64];
    snprintf(message, sizeof(message), "PostgreSQL refuses it (%s): %s", err->sqlstate,
             err->message);
    proto_error(&op->slot->reply, REPLY_INVALID, message, op->slot->line);
    slot_finish(op->slot);
    drop_batch(ingest, batch);
}

static void on_appended(void *arg, const PGresult *result, const struct err *err)
{
    struct ingest *ingest = arg;
    struct batch *batch = ingest->flight;
    struct err warned;
    if (result != NULL && pg_had_warning(ingest->pg)) {
        /* R7: "canceling wait for synchronous replication" is a commit, but no acknowledgement. */
        err_set(&warned, ERR_TRANSIENT, "a batch was committed with a warning");
        err = &warned;
        result = NULL;
    }
    if (result == NULL && err->class != ERR_DATA) {
        ingest->events.on_trouble(ingest->events.arg, err);
        return;
    }
    ingest->flight = NULL;
    if (result == NULL) {
        isolate(ingest, batch, err);
        return;
    }
    answer_batch(ingest, batch, result);
    drop_batch(ingest, batch);
}

static struct op *oldest(struct ingest *ingest)
{
    if (ingest->flight != NULL)
        return TAILQ_FIRST(&ingest->flight->ops);
    const struct batch *again = TAILQ_FIRST(&ingest->again);
    return again != NULL ? TAILQ_FIRST(&again->ops) : TAILQ_FIRST(&ingest->queue);
}

static void answer_unavailable(struct ingest *ingest, struct op *op, const char *stored)
{
    slot_mark_failing(op->slot);
    proto_unavailable(&op->slot->reply, stored, op->slot->line);
    slot_finish(op->slot);
    forget(ingest, op);
}

/* R9: batches that may have been sent go whole, and are never sent again. */
static void expire_sealed(struct ingest *ingest)
{
    struct batch *batch;
    while ((batch = TAILQ_FIRST(&ingest->again)) != NULL) {
        bool sent = batch->base != 0;
        TAILQ_REMOVE(&ingest->again, batch, link);
        struct op *op;
        while ((op = TAILQ_FIRST(&batch->ops)) != NULL) {
            batch_remove(batch, op);
            answer_unavailable(ingest, op, sent ? "unknown" : "no");
        }
        batch_free(batch);
    }
}

/* Of the queue those go that are too old, and every later one of the same connection, so that a
 * pipeline never has a hole. */
static void expire_queue(struct ingest *ingest, int64_t before_ms)
{
    struct op *op;
    struct op *next;
    for (op = TAILQ_FIRST(&ingest->queue); op != NULL; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->queued_ms > before_ms && !slot_is_failing(op->slot))
            continue;
        TAILQ_REMOVE(&ingest->queue, op, link);
        answer_unavailable(ingest, op, "no");
    }
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct ingest *ingest = arg;
    (void)fd;
    (void)what;
    const struct op *first = oldest(ingest);
    if (first == NULL)
        return;
    int64_t age = clock_mono_ms() - first->queued_ms;
    if (age >= ingest->limits.db_timeout_ms) {
        if (ingest->flight != NULL) {
            /* The connection has stalled: its outcome is unknown as after a loss. */
            struct err err;
            err_set(&err, ERR_TRANSIENT, "no answer to a batch for %lld ms", (long long)age);
            ingest->events.on_trouble(ingest->events.arg, &err);
        }
        expire_sealed(ingest);
        expire_queue(ingest, clock_mono_ms() - ingest->limits.db_timeout_ms);
        ingest->events.on_room(ingest->events.arg);
        first = oldest(ingest);
        age = first == NULL ? 0 : clock_mono_ms() - first->queued_ms;
    }
    if (first != NULL)
        timer_set(ingest->timeout,
                  age >= ingest->limits.db_timeout_ms ? 1 : ingest->limits.db_timeout_ms - age);
}

void ingest_set_pause(struct ingest *ingest, bool paused)
{
    ingest->paused = paused;
}

bool ingest_is_paused(const struct ingest *ingest)
{
    return ingest->paused;
}

int64_t ingest_head(const struct ingest *ingest)
{
    return ingest->head;
}

int64_t ingest_ticket(const struct ingest *ingest)
{
    return ingest->ticket;
}

int64_t ingest_decided(const struct ingest *ingest)
{
    const struct batch *again = TAILQ_FIRST(&ingest->again);
    const struct op *first = ingest->flight != NULL ? TAILQ_FIRST(&ingest->flight->ops)
                             : again != NULL        ? TAILQ_FIRST(&again->ops)
                                                    : TAILQ_FIRST(&ingest->queue);
    return first == NULL ? ingest->ticket : first->ticket - 1;
}

int64_t ingest_sent(const struct ingest *ingest)
{
    if (ingest->flight == NULL)
        return ingest_decided(ingest);
    return TAILQ_LAST(&ingest->flight->ops, op_list)->ticket;
}

size_t ingest_pending_bytes(const struct ingest *ingest)
{
    return ingest->pending_bytes;
}

size_t ingest_pending_ops(const struct ingest *ingest)
{
    return ingest->pending_ops;
}
