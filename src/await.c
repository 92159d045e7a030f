/* SPDX-License-Identifier: MIT */
/*
 * A wait for an operation is filed first and looked up then, so that nothing that happens in
 * between is missed: an event that meets a wait which is being looked up marks it, and it is looked
 * up again.
 */
#include "await.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "emit.h"
#include "log.h"
#include "mem.h"
#include "store.h"
#include "waiters.h"
#include "timer.h"

enum {
    LOOK_GRACE_MS = 5000, /* a look-up under way may answer a wait that is over */
    VAIN_LOOKS_MAX = 3,
    LOOKS_MAX = 256, /* under way at a time: what is sent ahead is memory that libpq keeps */
};

/* A look-up under way, or to be sent when there are fewer of those. */
struct look {
    TAILQ_ENTRY(look) link;
    struct await *await;
    struct wait *wait;
};

TAILQ_HEAD(look_list, look);

struct await {
    struct event_base *base;
    struct await_queries queries;
    struct waiters *waiters;
    struct pg *reader;
    struct event *timer;
    int64_t timer_ms; /* what it is set to; -1: not */
    struct look_list looks;
    struct look_list unsent;
    size_t look_count;       /* of looks */
    struct wait_list future; /* awaits for a seq that the log has not reached */
    int64_t head;            /* as last seen by await_turn */
    bool stopping;
};

static void on_timer(evutil_socket_t fd, short what, void *arg);

struct await *await_new(struct event_base *base, const struct await_queries *queries)
{
    struct await *await = mem_zalloc(sizeof(*await));
    await->base = base;
    await->queries = *queries;
    await->waiters = waiters_new();
    await->timer = evtimer_new(base, on_timer, await);
    await->timer_ms = -1;
    TAILQ_INIT(&await->looks);
    TAILQ_INIT(&await->unsent);
    TAILQ_INIT(&await->future);
    return await;
}

/* Nobody looks any more: a wait that was answered meanwhile goes, too. */
static void end_look(struct look_list *list, struct look *look)
{
    TAILQ_REMOVE(list, look, link);
    look->wait->looking = false;
    if (look->wait->ended)
        free(look->wait);
    free(look);
}

/* The connection is gone: nobody will answer what was asked. */
static void forget_looks(struct await *await)
{
    struct look *look;
    while ((look = TAILQ_FIRST(&await->looks)) != NULL)
        end_look(&await->looks, look);
    while ((look = TAILQ_FIRST(&await->unsent)) != NULL)
        end_look(&await->unsent, look);
    await->look_count = 0;
}

void await_free(struct await *await)
{
    if (await == NULL)
        return;
    forget_looks(await);
    waiters_free(await->waiters);
    event_free(await->timer);
    free(await);
}

static void set_timer(struct await *await)
{
    const struct wait *first = waiters_next_deadline(await->waiters);
    if (first == NULL) {
        evtimer_del(await->timer);
        await->timer_ms = -1;
        return;
    }
    if (first->deadline_ms == await->timer_ms)
        return;
    int64_t left = first->deadline_ms - clock_mono_ms();
    await->timer_ms = first->deadline_ms;
    timer_set(await->timer, left);
}

static void set_future(struct await *await, struct wait *wait, bool future)
{
    if (wait->future == future)
        return;
    wait->future = future;
    if (future)
        TAILQ_INSERT_TAIL(&await->future, wait, future_link);
    else
        TAILQ_REMOVE(&await->future, wait, future_link);
}

/* The wait's slot gets its answer; a wait that is being looked up lives on until that returns. */
static void finish(struct await *await, struct wait *wait)
{
    struct slot *slot = wait->slot;
    slot->wait = NULL;
    wait->slot = NULL;
    set_future(await, wait, false);
    if (wait->looking) {
        waiters_detach(await->waiters, wait);
        wait->ended = true;
    } else {
        waiters_remove(await->waiters, wait);
    }
    set_timer(await);
    slot_finish(slot);
}

/* The reply of a wait up to its outcome. */
static struct buf *begin_reply(struct wait *wait, const char *outcome)
{
    struct buf *reply = &wait->slot->reply;
    if (wait->kind != WAIT_STORED) {
        emit_begin(reply);
        emit_bool(reply, "ok", true);
    }
    emit_str(reply, "outcome", outcome);
    return reply;
}

static void end_reply(struct wait *wait, struct buf *reply)
{
    if (wait->kind == WAIT_OUTCOME && wait->number != 0)
        emit_int(reply, "seq", wait->number);
}

static void answer_timeout(struct await *await, struct wait *wait)
{
    struct buf *reply = begin_reply(wait, "timeout");
    bool barrier = wait->kind == WAIT_TICKET || wait->kind == WAIT_CURSOR;
    emit_str(reply, "state", wait->known || barrier ? "queued" : "unknown");
    end_reply(wait, reply);
    proto_end(reply);
    finish(await, wait);
}

static void answer_folded(struct await *await, struct wait *wait, int64_t version)
{
    struct buf *reply = begin_reply(wait, "folded");
    end_reply(wait, reply);
    emit_int(reply, "version", version);
    proto_end(reply);
    finish(await, wait);
}

static void answer_row(struct await *await, struct wait *wait,
                       const struct store_operation_row *row)
{
    char outcome[32];
    snprintf(outcome, sizeof(outcome), "%.*s", (int)row->outcome.len, row->outcome.data);
    struct buf *reply = begin_reply(wait, outcome);
    end_reply(wait, reply);
    emit_int(reply, "version", row->version);
    emit_optional(reply, "reason", row->reason);
    emit_optional(reply, "sqlstate", row->sqlstate);
    proto_end(reply);
    finish(await, wait);
}

static void answer_not_found(struct await *await, struct wait *wait)
{
    wait->slot->reply.len = 0; /* a receipt that was to go with the outcome */
    proto_error(&wait->slot->reply, REPLY_NOT_FOUND, "there is no such operation",
                wait->slot->line);
    finish(await, wait);
}

static void look_up(struct await *await, struct wait *wait);
static void send_looks(struct await *await);

/* The operation is not in the log. A number that the log has passed will never be. */
static bool on_unknown(struct await *await, struct wait *wait)
{
    if (wait->again) {
        look_up(await, wait);
        return true;
    }
    if (wait->number == 0)
        return true;
    /* What was known and is no more was lost by a failover (R6). */
    if (wait->known || wait->number <= await->queries.head(await->queries.arg)) {
        answer_not_found(await, wait);
        return false;
    }
    set_future(await, wait, true);
    return true;
}

static bool on_known(struct await *await, struct wait *wait, const struct store_operation_row *row)
{
    wait->known = true;
    if (row->outcome.data != NULL) {
        wait->number = row->seq;
        answer_row(await, wait, row);
        return false;
    }
    if (wait->number != row->seq)
        waiters_file_seq(await->waiters, wait, row->seq);
    /* Settled since the look-up read: the event found nobody under this seq. */
    if (!await->queries.is_open(await->queries.arg, row->seq) &&
        wait->vain_looks++ < VAIN_LOOKS_MAX)
        look_up(await, wait);
    return true;
}

static void on_looked(void *arg, const PGresult *result, const struct err *err)
{
    struct look *look = arg;
    struct await *await = look->await;
    struct wait *wait = look->wait;
    bool ended = wait->ended;
    end_look(&await->looks, look);
    await->look_count--;
    send_looks(await);
    if (ended)
        return;
    bool waits = true;
    if (result != NULL && store_row_count(result) > 0) {
        struct store_operation_row row = store_operation_row(result);
        waits = on_known(await, wait, &row);
    } else if (result != NULL) {
        waits = on_unknown(await, wait);
    } else {
        /* The wait goes on: its deadline answers it if nothing else does. */
        log_warning("look_up_failed", "sqlstate=%s error=%s", err->sqlstate,
                    log_text(err->message));
    }
    if (waits && !wait->looking && (wait->overdue || (wait->vain && !wait->known)))
        answer_timeout(await, wait);
}

static void send_look(struct await *await, struct look *look)
{
    const struct wait *wait = look->wait;
    const struct request *request = wait->slot->request;
    struct span none = {NULL, 0};
    struct span collection = request == NULL ? none : request->collection;
    struct span document = request == NULL ? none : request->document;
    struct span id = request == NULL || wait->number != 0 ? none : request->id;
    TAILQ_REMOVE(&await->unsent, look, link);
    TAILQ_INSERT_TAIL(&await->looks, look, link);
    await->look_count++;
    store_operation(await->reader, collection, document, id, wait->number, on_looked, look);
}

static void send_looks(struct await *await)
{
    struct look *look;
    while (await->look_count < LOOKS_MAX && (look = TAILQ_FIRST(&await->unsent)) != NULL) {
        if (look->wait->ended)
            end_look(&await->unsent, look);
        else
            send_look(await, look);
    }
}

static void look_up(struct await *await, struct wait *wait)
{
    wait->again = wait->looking;
    if (wait->looking || await->reader == NULL)
        return;
    struct look *look = mem_zalloc(sizeof(*look));
    look->await = await;
    look->wait = wait;
    wait->looking = true;
    TAILQ_INSERT_TAIL(&await->unsent, look, link);
    send_looks(await);
}

static struct wait *begin(struct await *await, struct slot *slot, enum wait_kind kind,
                          int64_t timeout_ms)
{
    if (await->stopping)
        timeout_ms = 0;
    struct wait *wait = waiters_add(await->waiters, kind, clock_mono_ms() + timeout_ms);
    wait->slot = slot;
    slot->wait = wait;
    set_timer(await);
    return wait;
}

void await_operation(struct await *await, struct slot *slot)
{
    const struct request *request = slot->request;
    struct wait *wait = begin(await, slot, WAIT_OUTCOME, request->timeout_ms);
    if (request->seq != 0) {
        waiters_file_seq(await->waiters, wait, request->seq);
    } else {
        char key[OP_KEY_MAX + 1 + OP_ID_MAX];
        size_t len = op_make_key(request->collection, request->document, key);
        key[len++] = '\0';
        memcpy(key + len, request->id.data, request->id.len);
        waiters_file_key(await->waiters, wait, (struct span){key, len + request->id.len});
    }
    look_up(await, wait);
}

void await_barrier(struct await *await, struct slot *slot)
{
    struct wait *wait = begin(await, slot, WAIT_TICKET, slot->request->timeout_ms);
    wait->number = slot->ticket;
    waiters_file_barrier(await->waiters, wait);
}

void await_drained(struct await *await, struct slot *slot, int64_t ticket)
{
    struct wait *wait = begin(await, slot, WAIT_TICKET, slot->request->timeout_ms);
    wait->number = ticket;
    waiters_file_barrier(await->waiters, wait);
}

void await_stored(struct await *await, struct slot *slot, const struct op *op, int64_t seq,
                  enum receipt_kind kind)
{
    struct wait *wait = begin(await, slot, WAIT_STORED, PROTO_TIMEOUT_DEFAULT_MS);
    wait->known = true;
    proto_receipt(&slot->reply, seq, op->id, kind);
    waiters_file_seq(await->waiters, wait, seq);
    slot_stored(slot);
    /* After a resend a page of the log may have been faster than this receipt. */
    if (kind == RECEIPT_DUPLICATE || !await->queries.is_open(await->queries.arg, seq))
        look_up(await, wait);
}

void await_end(struct await *await, struct slot *slot)
{
    answer_timeout(await, slot->wait);
}

void await_end_unknown(struct await *await, struct slot *slot)
{
    struct wait *wait = slot->wait;
    if (wait->kind != WAIT_OUTCOME || wait->known)
        return;
    if (wait->looking)
        wait->vain = true;
    else
        answer_timeout(await, wait);
}

void await_end_all(struct await *await)
{
    struct wait *wait;
    await->stopping = true;
    while ((wait = waiters_next_deadline(await->waiters)) != NULL)
        answer_timeout(await, wait);
}

static void look_up_all(struct await *await, struct wait_list *waits)
{
    struct wait *wait;
    if (waits == NULL)
        return;
    TAILQ_FOREACH(wait, waits, link)
        look_up(await, wait);
}

void await_on_committed(struct await *await, const struct op *op)
{
    if (!waiters_any(await->waiters))
        return;
    look_up_all(await, waiters_of_key(await->waiters, op_id_key(op)));
}

void await_on_folded(struct await *await, int64_t seq, int64_t version)
{
    if (!waiters_any(await->waiters))
        return;
    struct wait_list *waits;
    /* A wait that is being looked up is answered by that; one whose document was not compared with
     * the operation's has to be looked up. */
    while ((waits = waiters_of_seq(await->waiters, seq)) != NULL) {
        struct wait *wait = TAILQ_FIRST(waits);
        if (!wait->known) {
            look_up_all(await, waits);
            return;
        }
        answer_folded(await, wait, version);
    }
}

void await_on_changed(struct await *await, int64_t seq)
{
    if (waiters_any(await->waiters))
        look_up_all(await, waiters_of_seq(await->waiters, seq));
}

void await_set_reader(struct await *await, struct pg *reader)
{
    forget_looks(await);
    await->reader = reader;
    for (size_t i = 0; reader != NULL && i < waiters_count(await->waiters); i++) {
        struct wait *wait = waiters_get(await->waiters, i);
        if (wait->kind == WAIT_STORED || wait->kind == WAIT_OUTCOME)
            look_up(await, wait);
    }
}

/* The log has moved: what was waited for by its number may be there now. */
static void turn_future(struct await *await)
{
    int64_t head = await->queries.head(await->queries.arg);
    if (head == await->head)
        return;
    await->head = head;
    struct wait *wait;
    struct wait *next;
    for (wait = TAILQ_FIRST(&await->future); wait != NULL; wait = next) {
        next = TAILQ_NEXT(wait, future_link);
        if (wait->number > head)
            continue;
        set_future(await, wait, false);
        look_up(await, wait);
    }
}

/* R24: what was read before the barrier is decided; its seqs are at most the head. */
static void turn_barriers(struct await *await)
{
    struct wait *wait;
    int64_t cursor = await->queries.cursor(await->queries.arg);
    int64_t decided = await->queries.decided(await->queries.arg);
    if (cursor < 0)
        return; /* no term: neither is known */
    while ((wait = waiters_next_barrier(await->waiters, WAIT_TICKET, decided)) != NULL) {
        waiters_unfile(await->waiters, wait);
        wait->kind = WAIT_CURSOR;
        wait->number = await->queries.head(await->queries.arg);
        waiters_file_barrier(await->waiters, wait);
    }
    while ((wait = waiters_next_barrier(await->waiters, WAIT_CURSOR, cursor)) != NULL) {
        struct buf *reply = &wait->slot->reply;
        emit_begin(reply);
        emit_bool(reply, "ok", true);
        emit_int(reply, "seq", wait->number);
        proto_end(reply);
        finish(await, wait);
    }
}

void await_turn(struct await *await)
{
    if (waiters_count(await->waiters) == 0)
        return;
    turn_barriers(await);
    turn_future(await);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct await *await = arg;
    struct wait *wait;
    int64_t now_ms = clock_mono_ms();
    (void)fd;
    (void)what;
    await->timer_ms = -1;
    while ((wait = waiters_next_deadline(await->waiters)) != NULL && wait->deadline_ms <= now_ms) {
        /* "Look now" means that the database is asked once. */
        if (wait->looking && !wait->overdue) {
            waiters_postpone(await->waiters, wait, now_ms + LOOK_GRACE_MS);
            wait->overdue = true;
        } else {
            answer_timeout(await, wait);
        }
    }
    set_timer(await);
}

size_t await_count(const struct await *await)
{
    return waiters_count(await->waiters);
}
