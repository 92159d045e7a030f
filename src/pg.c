/* SPDX-License-Identifier: MIT */
/*
 * Happy path: pg_open -> PQconnectStart (after the host's name was looked up through the loop) ->
 * on_connect for each step that PQconnectPoll asks for -> the setup text -> on_ready. Then each
 * request: send, flush until done, consume, read results to NULL, call back, send the next.
 *
 * Failure modes: whatever makes libpq say CONNECTION_BAD ends in lost(): the connection is closed
 * first, then the owner is told, once. So does a server that says nothing for too long. An error of
 * a statement is only that request's. Callbacks may close the connection; whoever calls one looks
 * at the generation afterwards.
 */
#include "pg.h"

#include <arpa/inet.h>
#include <assert.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "conninfo.h"
#include "log.h"
#include "mem.h"
#include "timer.h"

enum pg_state { PG_CLOSED, PG_RESOLVING, PG_CONNECTING, PG_SETTING_UP, PG_READY };

struct request {
    STAILQ_ENTRY(request) link;
    const struct pg_statement *statement; /* NULL: text */
    char *text;
    struct pg_params params;
    pg_result_fn on_result;
    void *arg;
    bool preparing; /* what is under way is its PREPARE */
};

struct pg {
    struct event_base *base;
    struct evdns_base *dns;
    const char *name;
    const char *setup;
    struct pg_events events;
    enum pg_state state;
    unsigned generation; /* raised by every close */
    PGconn *conn;
    struct event *read_event;
    struct event *write_event;
    struct event *lost_event; /* pending: the loss will be told in the next pass of the loop */
    struct event *deadline;   /* pending: of connecting, or of the request under way */
    int64_t connect_ms;
    int64_t request_ms;
    void (*on_notify)(void *arg); /* may be NULL */
    struct conninfo *conninfo;
    struct evdns_getaddrinfo_request *lookup;
    STAILQ_HEAD(, request) queue; /* the first one is under way while sent is true */
    bool sent;
    bool warned; /* the server sent a WARNING for the request under way */
    const struct pg_statement **prepared;
    size_t prepared_count;
    PGresult *result; /* of the request under way: the last one that came */
};

static void on_deadline(evutil_socket_t fd, short what, void *arg);

struct pg *pg_new(struct event_base *base, struct evdns_base *dns, const char *name,
                  const char *setup, const struct pg_events *events)
{
    struct pg *pg = mem_zalloc(sizeof(*pg));
    pg->base = base;
    pg->dns = dns;
    pg->name = name;
    pg->setup = setup;
    pg->events = *events;
    STAILQ_INIT(&pg->queue);
    pg->deadline = evtimer_new(base, on_deadline, pg);
    return pg;
}

void pg_set_deadlines(struct pg *pg, int64_t connect_ms, int64_t request_ms)
{
    pg->connect_ms = connect_ms;
    pg->request_ms = request_ms;
}

void pg_set_notify(struct pg *pg, void (*on_notify)(void *arg))
{
    pg->on_notify = on_notify;
}

static void drop_events(struct pg *pg)
{
    if (pg->read_event != NULL)
        event_free(pg->read_event);
    if (pg->write_event != NULL)
        event_free(pg->write_event);
    if (pg->lost_event != NULL)
        event_free(pg->lost_event);
    pg->read_event = NULL;
    pg->write_event = NULL;
    pg->lost_event = NULL;
}

static void request_free(struct request *request)
{
    pg_params_fini(&request->params);
    free(request->text);
    free(request);
}

void pg_close(struct pg *pg)
{
    pg->generation++;
    pg->state = PG_CLOSED;
    pg->sent = false;
    drop_events(pg);
    evtimer_del(pg->deadline);
    if (pg->lookup != NULL)
        evdns_getaddrinfo_cancel(pg->lookup);
    pg->lookup = NULL;
    PQclear(pg->result);
    pg->result = NULL;
    PQfinish(pg->conn);
    pg->conn = NULL;
    conninfo_free(pg->conninfo);
    pg->conninfo = NULL;
    struct request *request;
    while ((request = STAILQ_FIRST(&pg->queue)) != NULL) {
        STAILQ_REMOVE_HEAD(&pg->queue, link);
        request_free(request);
    }
    free(pg->prepared);
    pg->prepared = NULL;
    pg->prepared_count = 0;
}

void pg_free(struct pg *pg)
{
    if (pg == NULL)
        return;
    pg_close(pg);
    event_free(pg->deadline);
    free(pg);
}

static void lost(struct pg *pg, const struct err *err)
{
    pg_close(pg);
    pg->events.on_lost(pg->events.arg, pg, err);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct pg *pg = arg;
    struct err err;
    (void)fd;
    (void)what;
    bool connecting = pg->state != PG_READY;
    err_set(&err, ERR_TRANSIENT, "no answer for %lld ms",
            (long long)(connecting ? pg->connect_ms : pg->request_ms));
    snprintf(err.sqlstate, sizeof(err.sqlstate), connecting ? "08001" : "08006");
    lost(pg, &err);
}

/* libpq ends its messages with a line end and may put several lines into one. */
static void libpq_message(const char *text, char *out, size_t size)
{
    snprintf(out, size, "%s", text == NULL || text[0] == '\0' ? "connection lost" : text);
    for (size_t len = strlen(out); len > 0 && out[len - 1] == '\n'; len--)
        out[len - 1] = '\0';
    for (char *c = out; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
}

/* What libpq says of a connection that broke or was refused: the SQLSTATE of a refusal is not kept
 * by libpq, so that the class of a refused connection is decided by its text where it matters. */
static void lost_conn(struct pg *pg)
{
    struct err err;
    char text[400];
    libpq_message(PQerrorMessage(pg->conn), text, sizeof(text));
    err_set_sql(&err, "08006", text);
    lost(pg, &err);
}

static void on_connect(evutil_socket_t fd, short what, void *arg);
static void on_io(evutil_socket_t fd, short what, void *arg);
static void send_next(struct pg *pg);

/* libpq may use another socket after each step of connecting. */
static void watch_connect(struct pg *pg, short what)
{
    drop_events(pg);
    pg->read_event = event_new(pg->base, PQsocket(pg->conn), what, on_connect, pg);
    event_add(pg->read_event, NULL);
}

static void on_notice(void *arg, const PGresult *result)
{
    struct pg *pg = arg;
    char text[400];
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity == NULL || strcmp(severity, "WARNING") != 0)
        return;
    pg->warned = true;
    libpq_message(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), text, sizeof(text));
    log_warning("database_warning", "conn=%s message=%s", pg->name, log_text(text));
}

static void on_set_up(void *arg, const PGresult *result, const struct err *err)
{
    struct pg *pg = arg;
    if (result == NULL) {
        struct err copy = *err;
        lost(pg, &copy);
        return;
    }
    pg->state = PG_READY;
    evtimer_del(pg->deadline);
    unsigned generation = pg->generation;
    pg->events.on_ready(pg->events.arg, pg);
    if (pg->generation == generation && !pg->sent)
        send_next(pg);
}

static struct request *request_new(pg_result_fn on_result, void *arg)
{
    struct request *request = mem_zalloc(sizeof(*request));
    request->on_result = on_result;
    request->arg = arg;
    return request;
}

/* The setup runs before everything that was submitted while connecting. */
static void set_up(struct pg *pg)
{
    drop_events(pg);
    PQsetnonblocking(pg->conn, 1);
    PQsetNoticeReceiver(pg->conn, on_notice, pg);
    pg->read_event = event_new(pg->base, PQsocket(pg->conn), EV_READ | EV_PERSIST, on_io, pg);
    pg->write_event = event_new(pg->base, PQsocket(pg->conn), EV_WRITE, on_io, pg);
    event_add(pg->read_event, NULL);
    pg->state = PG_SETTING_UP;
    struct request *request = request_new(on_set_up, pg);
    request->text = mem_strdup(pg->setup);
    STAILQ_INSERT_HEAD(&pg->queue, request, link);
    send_next(pg);
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
    struct pg *pg = arg;
    (void)fd;
    (void)what;
    switch (PQconnectPoll(pg->conn)) {
    case PGRES_POLLING_READING:
        watch_connect(pg, EV_READ);
        return;
    case PGRES_POLLING_WRITING:
        watch_connect(pg, EV_WRITE);
        return;
    case PGRES_POLLING_OK:
        set_up(pg);
        return;
    default:
        lost_conn(pg);
    }
}

static void on_lost_later(evutil_socket_t fd, short what, void *arg)
{
    struct pg *pg = arg;
    (void)fd;
    (void)what;
    lost_conn(pg);
}

/* A failure that is found while the owner is calling us comes back through the loop, so that a
 * submit never ends the term under its caller's feet. */
static void lose_later(struct pg *pg)
{
    if (pg->lost_event != NULL)
        return;
    pg->lost_event = event_new(pg->base, -1, 0, on_lost_later, pg);
    event_active(pg->lost_event, EV_TIMEOUT, 0);
}

static void connect_now(struct pg *pg)
{
    pg->state = PG_CONNECTING;
    conninfo_set(pg->conninfo, "fallback_application_name", pg->name);
    pg->conn =
        PQconnectStartParams(conninfo_keywords(pg->conninfo), conninfo_values(pg->conninfo), 0);
    if (pg->conn != NULL && PQstatus(pg->conn) != CONNECTION_BAD) {
        watch_connect(pg, EV_WRITE);
        return;
    }
    lose_later(pg);
}

static void on_lookup(int result, struct evutil_addrinfo *answer, void *arg)
{
    struct pg *pg = arg;
    if (result == EVUTIL_EAI_CANCEL)
        return;
    pg->lookup = NULL;
    char address[INET6_ADDRSTRLEN];
    if (result == 0 && answer != NULL) {
        const void *ip =
            answer->ai_family == AF_INET6
                ? (const void *)&((const struct sockaddr_in6 *)(void *)answer->ai_addr)->sin6_addr
                : (const void *)&((const struct sockaddr_in *)(void *)answer->ai_addr)->sin_addr;
        inet_ntop(answer->ai_family, ip, address, sizeof(address));
        evutil_freeaddrinfo(answer);
        conninfo_set(pg->conninfo, "hostaddr", address);
        connect_now(pg);
        return;
    }
    struct err err;
    err_set(&err, ERR_TRANSIENT, "cannot look up host \"%s\": %s",
            conninfo_get(pg->conninfo, "host"), evutil_gai_strerror(result));
    snprintf(err.sqlstate, sizeof(err.sqlstate), "08001");
    lost(pg, &err);
}

void pg_open(struct pg *pg, const char *text)
{
    pg_close(pg);
    pg->conninfo = conninfo_new(text);
    if (pg->connect_ms > 0)
        timer_set(pg->deadline, pg->connect_ms);
    const char *host = conninfo_needs_lookup(pg->conninfo);
    if (host == NULL) {
        connect_now(pg);
        return;
    }
    /* R26: libpq would look the name up itself, and block. */
    pg->state = PG_RESOLVING;
    struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    pg->lookup = evdns_getaddrinfo(pg->dns, host, NULL, &hints, on_lookup, pg);
}

static void flush(struct pg *pg)
{
    int left = PQflush(pg->conn);
    if (left > 0)
        event_add(pg->write_event, NULL);
    else if (left < 0)
        lose_later(pg);
}

static bool is_prepared(const struct pg *pg, const struct pg_statement *statement)
{
    for (size_t i = 0; i < pg->prepared_count; i++)
        if (pg->prepared[i] == statement)
            return true;
    return false;
}

static int send_prepare(struct pg *pg, const struct pg_statement *statement)
{
    Oid types[PG_MAX_PARAMS];
    for (int i = 0; i < statement->param_count; i++)
        types[i] = (Oid)statement->types[i];
    return PQsendPrepare(pg->conn, statement->name, statement->sql, statement->param_count, types);
}

static int send_execute(struct pg *pg, const struct request *request)
{
    const struct pg_params *params = &request->params;
    const char *values[PG_MAX_PARAMS];
    int formats[PG_MAX_PARAMS];
    for (int i = 0; i < params->count; i++) {
        values[i] = params->len[i] < 0 ? NULL : params->bytes.data + params->at[i];
        formats[i] = 1;
    }
    return PQsendQueryPrepared(pg->conn, request->statement->name, params->count, values,
                               params->len, formats, 1);
}

static void send_next(struct pg *pg)
{
    struct request *request = STAILQ_FIRST(&pg->queue);
    if (request == NULL)
        return;
    int sent;
    assert(request->text != NULL || request->statement != NULL);
    request->preparing = request->statement != NULL && !is_prepared(pg, request->statement);
    if (request->text != NULL)
        sent = PQsendQuery(pg->conn, request->text);
    else if (request->preparing)
        sent = send_prepare(pg, request->statement);
    else
        sent = send_execute(pg, request);
    if (!sent) {
        lose_later(pg);
        return;
    }
    pg->sent = true;
    pg->warned = false;
    if (pg->request_ms > 0 && pg->state == PG_READY)
        timer_set(pg->deadline, pg->request_ms);
    flush(pg);
}

static void note_prepared(struct pg *pg, const struct pg_statement *statement)
{
    pg->prepared = mem_resize(pg->prepared, pg->prepared_count + 1, sizeof(pg->prepared[0]));
    pg->prepared[pg->prepared_count++] = statement;
}

static bool result_ok(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
}

static void result_err(const PGresult *result, struct err *err)
{
    char text[400];
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    libpq_message(message != NULL ? message : PQresultErrorMessage(result), text, sizeof(text));
    err_set_sql(err, state == NULL ? "08006" : state, text);
}

/* All results of what was sent are in. */
static void complete(struct pg *pg)
{
    struct request *request = STAILQ_FIRST(&pg->queue);
    PGresult *result = pg->result;
    pg->result = NULL;
    pg->sent = false;
    if (pg->state == PG_READY)
        evtimer_del(pg->deadline);
    if (request->preparing && result_ok(result)) {
        PQclear(result);
        note_prepared(pg, request->statement);
        send_next(pg);
        return;
    }
    STAILQ_REMOVE_HEAD(&pg->queue, link);
    unsigned generation = pg->generation;
    if (result_ok(result)) {
        request->on_result(request->arg, result, NULL);
    } else {
        struct err err;
        result_err(result, &err);
        request->on_result(request->arg, NULL, &err);
    }
    PQclear(result);
    request_free(request);
    if (pg->generation == generation && !pg->sent && pg->state >= PG_SETTING_UP)
        send_next(pg);
}

/* Keep the last result, but of several statements the first that failed. */
static void keep_result(struct pg *pg, PGresult *result)
{
    if (pg->result != NULL && !result_ok(pg->result)) {
        PQclear(result);
        return;
    }
    PQclear(pg->result);
    pg->result = result;
}

static void take_notifications(struct pg *pg)
{
    bool any = false;
    PGnotify *note;
    while ((note = PQnotifies(pg->conn)) != NULL) {
        PQfreemem(note);
        any = true;
    }
    if (any && pg->on_notify != NULL)
        pg->on_notify(pg->events.arg);
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    struct pg *pg = arg;
    (void)fd;
    unsigned generation = pg->generation;
    if (what & EV_WRITE)
        flush(pg);
    if (pg->generation != generation || !(what & EV_READ))
        return;
    if (!PQconsumeInput(pg->conn)) {
        lost_conn(pg);
        return;
    }
    while (pg->generation == generation && pg->sent && !PQisBusy(pg->conn)) {
        PGresult *result = PQgetResult(pg->conn);
        if (result != NULL)
            keep_result(pg, result);
        else if (PQstatus(pg->conn) == CONNECTION_BAD || pg->result == NULL)
            lost_conn(pg);
        else
            complete(pg);
    }
    if (pg->generation == generation && PQstatus(pg->conn) == CONNECTION_BAD)
        lost_conn(pg);
    else if (pg->generation == generation)
        take_notifications(pg);
}

static void submit(struct pg *pg, struct request *request)
{
    bool idle = STAILQ_EMPTY(&pg->queue) && !pg->sent;
    STAILQ_INSERT_TAIL(&pg->queue, request, link);
    if (idle && pg->state == PG_READY)
        send_next(pg);
}

static void copy_params(struct pg_params *to, const struct pg_params *from)
{
    *to = *from;
    to->bytes = (struct buf){0};
    buf_reserve(&to->bytes, from->bytes.len + 1);
    buf_add(&to->bytes, from->bytes.data, from->bytes.len);
}

void pg_submit(struct pg *pg, const struct pg_statement *statement, const struct pg_params *params,
               pg_result_fn on_result, void *arg)
{
    struct request *request = request_new(on_result, arg);
    request->statement = statement;
    copy_params(&request->params, params);
    submit(pg, request);
}

void pg_submit_text(struct pg *pg, const char *sql, pg_result_fn on_result, void *arg)
{
    struct request *request = request_new(on_result, arg);
    request->text = mem_strdup(sql);
    submit(pg, request);
}

bool pg_had_warning(const struct pg *pg)
{
    return pg->warned;
}

bool pg_is_ready(const struct pg *pg)
{
    return pg->state == PG_READY;
}

bool pg_is_open(const struct pg *pg)
{
    return pg->state != PG_CLOSED;
}

const char *pg_name(const struct pg *pg)
{
    return pg->name;
}

int pg_server_version(const struct pg *pg)
{
    return pg->conn == NULL ? 0 : PQserverVersion(pg->conn);
}

const char *pg_server_parameter(const struct pg *pg, const char *name)
{
    const char *value = pg->conn == NULL ? NULL : PQparameterStatus(pg->conn, name);
    return value == NULL ? "" : value;
}
