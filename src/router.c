/* SPDX-License-Identifier: MIT */
#include "router.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "emit.h"
#include "mem.h"
#include "status.h"
#include "version.h"

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
    void (*start)(struct router *router, struct slot *slot);
};

static void start_ping(struct router *router, struct slot *slot);
static void start_status(struct router *router, struct slot *slot);
static void start_read(struct router *router, struct slot *slot);
static void start_await(struct router *router, struct slot *slot);
static void start_barrier(struct router *router, struct slot *slot);

/* REQUEST_OPERATION acts as it is read and is not here. */
static const struct handler handlers[REQUEST_KINDS] = {
    [REQUEST_PING] = {SLOT_READ, start_ping},   [REQUEST_STATUS] = {SLOT_READ, start_status},
    [REQUEST_GET] = {SLOT_READ, start_read},    [REQUEST_LOOK] = {SLOT_READ, start_read},
    [REQUEST_AWAIT] = {SLOT_WAIT, start_await}, [REQUEST_BARRIER] = {SLOT_WAIT, start_barrier},
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
    slot->ticket = ingest_ticket(router->parts.ingest);
    slot->request = keep(&request);
    return true;
}

bool router_on_start(void *arg, struct slot *slot)
{
    struct router *router = arg;
    if (slot->request->kind == REQUEST_OPERATION)
        return submit(router, slot, slot->request);
    handlers[slot->request->kind].start(router, slot);
    return true;
}

void router_on_end_wait(void *arg, struct slot *slot)
{
    struct router *router = arg;
    await_end(router->parts.await, slot);
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

static void answer_document(struct slot *slot, const PGresult *result)
{
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

static void emit_optional(struct buf *reply, const char *key, struct span text)
{
    if (text.data != NULL)
        emit_span(reply, key, text);
}

static void answer_operation(struct slot *slot, const PGresult *result)
{
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
    if (slot->client == NULL)
        slot_finish(slot);
    else if (result == NULL)
        finish_error(slot, REPLY_UNAVAILABLE, err->message);
    else if (store_row_count(result) == 0)
        finish_error(slot, REPLY_NOT_FOUND,
                     slot->request->kind == REQUEST_GET ? "there is no such document"
                                                        : "there is no such operation");
    else if (slot->request->kind == REQUEST_GET)
        answer_document(slot, result);
    else
        answer_operation(slot, result);
}

static void send_read(struct router *router, struct read *read)
{
    struct pg *reader = leader_reader(router->parts.leader);
    const struct request *request = read->slot->request;
    if (request->kind == REQUEST_GET)
        store_document(reader, request->collection, request->document, on_read, read);
    else
        store_operation(reader, request->collection, request->document, request->id, 0, on_read,
                        read);
}

static void set_timer(struct router *router)
{
    const struct read *first = TAILQ_FIRST(&router->reads);
    if (first == NULL)
        return;
    int64_t left = first->since_ms + router->parts.db_timeout_ms - clock_mono_ms();
    left = left < 1 ? 1 : left;
    struct timeval delay = {left / 1000, (left % 1000) * 1000};
    evtimer_add(router->timer, &delay);
}

static void start_read(struct router *router, struct slot *slot)
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
