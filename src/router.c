/* SPDX-License-Identifier: MIT */
#include "router.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "emit.h"
#include "log.h"
#include "mem.h"
#include "status.h"
#include "version.h"
#include "timer.h"

/* A request that reads from the database; asked again in the next term if this one ends. */
struct read {
    TAILQ_ENTRY(read) link;
    struct router *router;
    struct slot *slot;
    int64_t since_ms;
};

struct router {
    struct router_parts parts;
    TAILQ_HEAD(, read) reads;
    struct event *timer; /* pending while reads wait without a database */
    int64_t started_ms;
};

struct handler {
    enum slot_kind kind;
    enum { FOR_ALL, FOR_ADMINS } access;
    void (*start)(struct router *router, struct slot *slot);
    /* Of those that start_query starts: ask the database, and answer with its rows. */
    void (*ask)(struct router *router, struct read *read);
    void (*answer)(struct router *router, struct slot *slot, const PGresult *result);
};

static void start_ping(struct router *router, struct slot *slot);
static void start_status(struct router *router, struct slot *slot);
static void start_query(struct router *router, struct slot *slot);
static void start_await(struct router *router, struct slot *slot);
static void start_barrier(struct router *router, struct slot *slot);
static void ask_document(struct router *router, struct read *read);
static void ask_operation(struct router *router, struct read *read);
static void ask_parked(struct router *router, struct read *read);
static void ask_retry(struct router *router, struct read *read);
static void ask_skip(struct router *router, struct read *read);
static void ask_pause(struct router *router, struct read *read);
static void answer_document(struct router *router, struct slot *slot, const PGresult *result);
static void answer_operation(struct router *router, struct slot *slot, const PGresult *result);
static void answer_parked(struct router *router, struct slot *slot, const PGresult *result);
static void answer_retry(struct router *router, struct slot *slot, const PGresult *result);
static void answer_skip(struct router *router, struct slot *slot, const PGresult *result);
static void answer_pause(struct router *router, struct slot *slot, const PGresult *result);

/* REQUEST_OPERATION acts as it is read and is not here. A drain is a wait with a pause before it.
 */
static const struct handler handlers[REQUEST_KINDS] = {
    [REQUEST_PING] = {SLOT_READ, FOR_ALL, start_ping, NULL, NULL},
    [REQUEST_STATUS] = {SLOT_READ, FOR_ALL, start_status, NULL, NULL},
    [REQUEST_GET] = {SLOT_READ, FOR_ALL, start_query, ask_document, answer_document},
    [REQUEST_LOOK] = {SLOT_READ, FOR_ALL, start_query, ask_operation, answer_operation},
    [REQUEST_AWAIT] = {SLOT_WAIT, FOR_ALL, start_await, NULL, NULL},
    [REQUEST_BARRIER] = {SLOT_WAIT, FOR_ALL, start_barrier, NULL, NULL},
    [REQUEST_PARKED] = {SLOT_READ, FOR_ALL, start_query, ask_parked, answer_parked},
    [REQUEST_RETRY] = {SLOT_READ, FOR_ADMINS, start_query, ask_retry, answer_retry},
    [REQUEST_SKIP] = {SLOT_READ, FOR_ADMINS, start_query, ask_skip, answer_skip},
    [REQUEST_PAUSE] = {SLOT_READ, FOR_ADMINS, start_query, ask_pause, answer_pause},
    [REQUEST_RESUME] = {SLOT_READ, FOR_ADMINS, start_query, ask_pause, answer_pause},
    [REQUEST_DRAIN] = {SLOT_WAIT, FOR_ADMINS, start_query, ask_pause, answer_pause},
};

static void on_timer(evutil_socket_t fd, short what, void *arg);

struct router *router_new(const struct router_parts *parts)
{
    struct router *router = mem_zalloc(sizeof(*router));
    router->parts = *parts;
    TAILQ_INIT(&router->reads);
    router->timer = evtimer_new(parts->base, on_timer, router);
    router->started_ms = clock_mono_ms();
    return router;
}

void router_free(struct router *router)
{
    if (router == NULL)
        return;
    struct read *read;
    while ((read = TAILQ_FIRST(&router->reads)) != NULL) {
        TAILQ_REMOVE(&router->reads, read, link);
        slot_finish(read->slot);
        free(read);
    }
    event_free(router->timer);
    free(router);
}

static void finish_error(struct slot *slot, enum reply_code code, const char *message)
{
    proto_error(&slot->reply, code, message, slot->line);
    slot_finish(slot);
}

static bool is_standby(const struct router *router)
{
    return leader_state(router->parts.leader) == LEADER_STANDBY;
}

/* False, with the operation still the request's, when there is no room. */
static bool submit(struct router *router, struct slot *slot, struct request *request)
{
    bool failing = slot_is_failing(slot);
    if (failing || is_standby(router)) {
        if (failing)
            proto_unavailable(&slot->reply, "no", slot->line);
        else
            proto_error(&slot->reply, REPLY_STANDBY, "another instance leads this database",
                        slot->line);
        slot_finish(slot);
        return true;
    }
    if (!ingest_submit(router->parts.ingest, slot, request->op))
        return false;
    slot->state = SLOT_STARTED;
    request->op = NULL;
    return true;
}

static struct request *keep(const struct request *request)
{
    struct request *copy = mem_alloc(sizeof(*copy));
    *copy = *request;
    return copy;
}

/* An operation acts at once; its request is kept only when there is no room for it. */
static bool take_operation(struct router *router, struct slot *slot, struct request *request)
{
    slot->kind = SLOT_WRITE;
    if (request->op->ack == OP_ACK_FOLDED)
        slot_count_wait(slot);
    if (!submit(router, slot, request)) {
        slot->request = keep(request);
        return false;
    }
    request_fini(request);
    return true;
}

bool router_on_line(void *arg, struct slot *slot, struct span line)
{
    struct router *router = arg;
    struct request request;
    struct err err;
    if (!proto_parse(line, &request, &err)) {
        finish_error(slot, REPLY_INVALID, err.message);
        return true;
    }
    if (request.kind == REQUEST_OPERATION)
        return take_operation(router, slot, &request);
    slot->kind = handlers[request.kind].kind;
    if (slot->kind == SLOT_WAIT)
        slot_count_wait(slot);
    slot->ticket = ingest_ticket(router->parts.ingest);
    slot->request = keep(&request);
    return true;
}

bool router_on_start(void *arg, struct slot *slot)
{
    struct router *router = arg;
    if (slot->request->kind == REQUEST_OPERATION)
        return submit(router, slot, slot->request);
    const struct handler *handler = &handlers[slot->request->kind];
    if (handler->access == FOR_ADMINS && !slot_is_admin(slot))
        finish_error(slot, REPLY_FORBIDDEN,
                     "this request is for root, foldd's own user and the admin_groups");
    else
        handler->start(router, slot);
    return true;
}

void router_on_end_wait(void *arg, struct slot *slot)
{
    struct router *router = arg;
    await_end(router->parts.await, slot);
}

void router_on_full_behind(void *arg, struct slot *slot)
{
    struct router *router = arg;
    await_end_unknown(router->parts.await, slot);
}

void router_set_db_timeout(struct router *router, int64_t db_timeout_ms)
{
    router->parts.db_timeout_ms = db_timeout_ms;
}

static void start_ping(struct router *router, struct slot *slot)
{
    (void)router;
    emit_begin(&slot->reply);
    emit_bool(&slot->reply, "ok", true);
    emit_str(&slot->reply, "server", "foldd " FOLDD_VERSION);
    emit_int(&slot->reply, "protocol", PROTO_VERSION);
    proto_end(&slot->reply);
    slot_finish(slot);
}

static void start_status(struct router *router, struct slot *slot)
{
    const struct router_parts *parts = &router->parts;
    const struct status status = {.leader = parts->leader,
                                  .ingest = parts->ingest,
                                  .dispatch = parts->dispatch,
                                  .await = parts->await,
                                  .clients = *parts->clients,
                                  .workers = parts->workers,
                                  .started_ms = router->started_ms};
    status_reply(&status, &slot->reply);
    slot_finish(slot);
}

static void start_await(struct router *router, struct slot *slot)
{
    if (is_standby(router))
        finish_error(slot, REPLY_STANDBY, "another instance leads this database");
    else
        await_operation(router->parts.await, slot);
}

static void start_barrier(struct router *router, struct slot *slot)
{
    if (is_standby(router))
        finish_error(slot, REPLY_STANDBY, "another instance leads this database");
    else
        await_barrier(router->parts.await, slot);
}

/* --- reads */

static void answer_document(struct router *router, struct slot *slot, const PGresult *result)
{
    (void)router;
    if (store_row_count(result) == 0) {
        finish_error(slot, REPLY_NOT_FOUND, "there is no such document");
        return;
    }
    struct store_document_row row = store_document_row(result);
    struct buf *reply = &slot->reply;
    emit_begin(reply);
    emit_bool(reply, "ok", true);
    emit_span(reply, "collection", slot->request->collection);
    emit_span(reply, "document", slot->request->document);
    emit_int(reply, "version", row.version);
    emit_int(reply, "revision", row.revision);
    emit_bool(reply, "deleted", row.deleted);
    emit_raw(reply, "fields", row.fields);
    proto_end(reply);
    slot_finish(slot);
}

static void answer_operation(struct router *router, struct slot *slot, const PGresult *result)
{
    (void)router;
    if (store_row_count(result) == 0) {
        finish_error(slot, REPLY_NOT_FOUND, "there is no such operation");
        return;
    }
    struct store_operation_row row = store_operation_row(result);
    struct buf *reply = &slot->reply;
    emit_begin(reply);
    emit_bool(reply, "ok", true);
    emit_str(reply, "state", row.outcome.data == NULL ? "queued" : "settled");
    emit_optional(reply, "outcome", row.outcome);
    emit_optional(reply, "reason", row.reason);
    emit_optional(reply, "sqlstate", row.sqlstate);
    emit_int(reply, "seq", row.seq);
    emit_span(reply, "collection", row.collection);
    emit_span(reply, "document", row.document);
    emit_span(reply, "id", row.id);
    emit_span(reply, "action", row.action);
    emit_span(reply, "received_at", row.received_at);
    emit_span(reply, "actor", row.actor);
    emit_int(reply, "version", row.version);
    proto_end(reply);
    slot_finish(slot);
}

static void on_read(void *arg, const PGresult *result, const struct err *err)
{
    struct read *read = arg;
    struct router *router = read->router;
    struct slot *slot = read->slot;
    TAILQ_REMOVE(&router->reads, read, link);
    free(read);
    if (result == NULL)
        finish_error(slot, REPLY_UNAVAILABLE, err->message);
    else
        handlers[slot->request->kind].answer(router, slot, result);
}

static void send_read(struct router *router, struct read *read)
{
    handlers[read->slot->request->kind].ask(router, read);
}

static struct pg *reader(struct router *router)
{
    return leader_reader(router->parts.leader);
}

static void ask_document(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    store_document(reader(router), request->collection, request->document, on_read, read);
}

static void ask_operation(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    store_operation(reader(router), request->collection, request->document, request->id, 0, on_read,
                    read);
}

/* --- what operators ask for */

static void ask_parked(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    store_parked_list(reader(router), request->collection, request->document,
                      (int32_t)request->limit, on_read, read);
}

static void emit_parked(struct buf *list, const struct store_parked_list_row *row)
{
    if (list->len > 1)
        buf_add_char(list, ',');
    emit_begin(list);
    emit_span(list, "collection", row->collection);
    emit_span(list, "document", row->document);
    emit_int(list, "seq", row->seq);
    emit_span(list, "sqlstate", row->sqlstate);
    emit_span(list, "message", row->message);
    emit_int(list, "attempts", row->attempts);
    emit_span(list, "parked_at", row->parked_at);
    emit_span(list, "next_try", row->next_try);
    emit_end(list);
}

static void answer_parked(struct router *router, struct slot *slot, const PGresult *result)
{
    struct buf list = {0};
    struct buf next = {0};
    int rows = store_row_count(result);
    (void)router;
    buf_add_char(&list, '[');
    for (int i = 0; i < rows; i++) {
        struct store_parked_list_row row = store_parked_list_row(result, i);
        emit_parked(&list, &row);
        if (i + 1 == slot->request->limit)
            proto_list_key(&next, row.collection, row.document);
    }
    buf_add_char(&list, ']');
    emit_begin(&slot->reply);
    emit_bool(&slot->reply, "ok", true);
    emit_raw(&slot->reply, "parked", (struct span){list.data, list.len});
    if (next.len > 0)
        emit_span(&slot->reply, "next", (struct span){next.data, next.len});
    else
        emit_raw(&slot->reply, "next", (struct span){"null", 4});
    proto_end(&slot->reply);
    buf_fini(&list);
    buf_fini(&next);
    slot_finish(slot);
}

static void ask_retry(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    store_retry(leader_control(router->parts.leader), leader_term(router->parts.leader),
                request->collection, request->document, on_read, read);
}

/* The key of the request's document, or nothing if it names none. */
static struct span request_key(const struct request *request, char *out)
{
    if (request->document.data == NULL)
        return (struct span){NULL, 0};
    return (struct span){out, op_make_key(request->collection, request->document, out)};
}

static void answer_retry(struct router *router, struct slot *slot, const PGresult *result)
{
    char key[OP_KEY_MAX];
    int64_t count = store_retry_row(result);
    if (count == 0 && slot->request->document.data != NULL) {
        finish_error(slot, REPLY_NOT_FOUND, "the document is not parked");
        return;
    }
    dispatch_hurry(router->parts.dispatch, request_key(slot->request, key));
    emit_begin(&slot->reply);
    emit_bool(&slot->reply, "ok", true);
    emit_int(&slot->reply, "retried", count);
    proto_end(&slot->reply);
    slot_finish(slot);
}

static void ask_skip(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    const struct store_skip skip = {.collection = request->collection,
                                    .document = request->document,
                                    .seq = request->seq,
                                    .reason = request->reason,
                                    .actor = slot_actor(read->slot)};
    store_skip(leader_control(router->parts.leader), leader_term(router->parts.leader), &skip,
               on_read, read);
}

static void answer_skip(struct router *router, struct slot *slot, const PGresult *result)
{
    char key[OP_KEY_MAX];
    struct span outcome = store_skip_row(result);
    if (span_is(outcome, "unknown")) {
        finish_error(slot, REPLY_NOT_FOUND, "the document has no such operation");
        return;
    }
    if (!span_is(outcome, "skipped")) {
        finish_error(slot, REPLY_CONFLICT,
                     span_is(outcome, "settled") ? "the operation is folded already"
                                                 : "the document is not parked");
        return;
    }
    dispatch_hurry(router->parts.dispatch, request_key(slot->request, key));
    emit_begin(&slot->reply);
    emit_bool(&slot->reply, "ok", true);
    emit_int(&slot->reply, "seq", slot->request->seq);
    proto_end(&slot->reply);
    slot_finish(slot);
}

static void ask_pause(struct router *router, struct read *read)
{
    const struct request *request = read->slot->request;
    struct span what = request->kind == REQUEST_DRAIN ? (struct span){"ingest", 6} : request->what;
    const struct store_pause pause = {.what = what,
                                      .paused = request->kind != REQUEST_RESUME,
                                      .reason = request->reason,
                                      .actor = slot_actor(read->slot)};
    store_set_pause(leader_control(router->parts.leader), leader_term(router->parts.leader), &pause,
                    on_read, read);
}

static void answer_pause(struct router *router, struct slot *slot, const PGresult *result)
{
    const struct request *request = slot->request;
    bool paused = request->kind != REQUEST_RESUME;
    (void)result;
    if (request->kind == REQUEST_DRAIN || span_is(request->what, "ingest"))
        ingest_set_pause(router->parts.ingest, paused);
    else
        dispatch_set_pause(router->parts.dispatch, paused);
    log_info(paused ? "paused" : "resumed", "what=%.*s by=%s",
             request->kind == REQUEST_DRAIN ? 6 : (int)request->what.len,
             request->kind == REQUEST_DRAIN ? "ingest" : request->what.data, slot_actor(slot));
    if (request->kind == REQUEST_DRAIN) {
        await_drained(router->parts.await, slot, ingest_sent(router->parts.ingest));
        return;
    }
    emit_begin(&slot->reply);
    emit_bool(&slot->reply, "ok", true);
    proto_end(&slot->reply);
    slot_finish(slot);
}

static void set_timer(struct router *router)
{
    const struct read *first = TAILQ_FIRST(&router->reads);
    if (first == NULL)
        return;
    int64_t left = first->since_ms + router->parts.db_timeout_ms - clock_mono_ms();
    timer_set(router->timer, left);
}

static void start_query(struct router *router, struct slot *slot)
{
    if (is_standby(router)) {
        finish_error(slot, REPLY_STANDBY, "another instance leads this database");
        return;
    }
    struct read *read = mem_zalloc(sizeof(*read));
    read->router = router;
    read->slot = slot;
    read->since_ms = clock_mono_ms();
    TAILQ_INSERT_TAIL(&router->reads, read, link);
    if (leader_state(router->parts.leader) == LEADER_LEADING)
        send_read(router, read);
    else if (!evtimer_pending(router->timer, NULL))
        set_timer(router);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct router *router = arg;
    struct read *read;
    int64_t before_ms = clock_mono_ms() - router->parts.db_timeout_ms;
    (void)fd;
    (void)what;
    if (leader_state(router->parts.leader) == LEADER_LEADING)
        return;
    while ((read = TAILQ_FIRST(&router->reads)) != NULL && read->since_ms <= before_ms) {
        TAILQ_REMOVE(&router->reads, read, link);
        finish_error(read->slot, REPLY_UNAVAILABLE, "the database cannot be reached");
        free(read);
    }
    set_timer(router);
}

void router_begin_term(struct router *router)
{
    struct read *read;
    evtimer_del(router->timer);
    TAILQ_FOREACH(read, &router->reads, link)
        send_read(router, read);
}

void router_end_term(struct router *router)
{
    set_timer(router);
}
