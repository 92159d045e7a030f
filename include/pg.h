/* SPDX-License-Identifier: MIT */
/*
 * pg: one connection to PostgreSQL, driven by the event loop; it never blocks.
 *
 * Life: closed -> connecting -> setting up -> ready -> closed. Requests are sent one at a time in
 * the order in which they were submitted; each gets exactly one call of its callback: with the
 * result, or not at all when the connection closes first (the owner throws the term away, R1). A
 * statement is prepared on its first use on each connection. Parameters and results are binary.
 */
#ifndef FOLDD_PG_H
#define FOLDD_PG_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "scan.h"

struct event_base;
struct evdns_base;
struct pg;

enum { PG_MAX_PARAMS = 12 };

/* PostgreSQL's type ids (catalog pg_type) of the parameters that foldd sends. */
enum pg_type {
    PG_INT4 = 23,
    PG_INT8 = 20,
    PG_TEXT = 25,
    PG_BOOL = 16,
    PG_JSONB = 3802,
    PG_TIMESTAMPTZ = 1184,
    PG_INT8_ARRAY = 1016,
    PG_TEXT_ARRAY = 1009,
    PG_JSONB_ARRAY = 3807,
    PG_TIMESTAMPTZ_ARRAY = 1185,
};

/* A statement. Its name is its prepared name; static storage. */
struct pg_statement {
    const char *name;
    const char *sql;
    int param_count;
    enum pg_type types[PG_MAX_PARAMS];
};

/* Parameters of one request, in binary. Zero-initialise; pg_params_reset before use again. */
struct pg_params {
    struct buf bytes;
    int count;
    size_t at[PG_MAX_PARAMS];
    int len[PG_MAX_PARAMS]; /* -1: NULL */
    size_t array_at;        /* where the header of the array under way begins */
    int32_t array_count;
};

void pg_params_reset(struct pg_params *params);
void pg_params_fini(struct pg_params *params);
void pg_param_int8(struct pg_params *params, int64_t value);
void pg_param_int4(struct pg_params *params, int32_t value);
void pg_param_bool(struct pg_params *params, bool value);
void pg_param_text(struct pg_params *params, struct span text); /* data NULL: NULL */
/* An array: begin, its elements, end. */
void pg_array_begin(struct pg_params *params, enum pg_type element);
void pg_array_int8(struct pg_params *params, int64_t value);
void pg_array_text(struct pg_params *params, struct span text);
void pg_array_jsonb(struct pg_params *params, struct span json); /* data NULL: NULL */
void pg_array_time(struct pg_params *params, int64_t unix_us);
void pg_array_end(struct pg_params *params);

/* The result of a request: result is borrowed and NULL when it failed (err says why). The
 * connection still stands. */
typedef void (*pg_result_fn)(void *arg, const PGresult *result, const struct err *err);

struct pg_events {
    void (*on_ready)(void *arg, struct pg *pg);
    /* The connection is gone, or was never made; it is closed already. Never called by pg_close. */
    void (*on_lost)(void *arg, struct pg *pg, const struct err *err);
    void *arg;
};

/* Given: a closed connection. name is for the log and for pg_stat_activity; setup is SQL that runs
 * first on every connection (static storage, statements divided by semicolons). */
struct pg *pg_new(struct event_base *base, struct evdns_base *dns, const char *name,
                  const char *setup, const struct pg_events *events);
void pg_free(struct pg *pg);

/* How long connecting may take, and how long a request may stay without an answer, before the
 * connection counts as lost: the server's own time-outs do not reach a network that stands still
 * (0: for ever, the beginning). */
void pg_set_deadlines(struct pg *pg, int64_t connect_ms, int64_t request_ms);

/* What is called when the server has sent a notification (LISTEN); arg is that of the events. It
 * must not close the connection. */
void pg_set_notify(struct pg *pg, void (*on_notify)(void *arg));

/* Begin to connect. conninfo is a libpq connection string. Failures come through on_lost. */
void pg_open(struct pg *pg, const char *conninfo);

/* Close at once. Nothing is called back; requests are forgotten. */
void pg_close(struct pg *pg);

/* Submit a request; params are copied. The connection must be open; before it is ready it waits. */
void pg_submit(struct pg *pg, const struct pg_statement *statement, const struct pg_params *params,
               pg_result_fn on_result, void *arg);

/* Submit SQL text without parameters, several statements allowed; the result is the last one's. */
void pg_submit_text(struct pg *pg, const char *sql, pg_result_fn on_result, void *arg);

/* In a result callback: whether the server sent a WARNING with the answer. */
bool pg_had_warning(const struct pg *pg);

bool pg_is_ready(const struct pg *pg);
bool pg_is_open(const struct pg *pg);
const char *pg_name(const struct pg *pg);
/* The server's version as PQserverVersion gives it; 0 when not connected. */
int pg_server_version(const struct pg *pg);
/* The server's parameter as PQparameterStatus gives it; "" when unknown. */
const char *pg_server_parameter(const struct pg *pg, const char *name);

/* Values of a binary result. */
int64_t pg_get_int8(const PGresult *result, int row, int column);
int32_t pg_get_int4(const PGresult *result, int row, int column);
bool pg_get_bool(const PGresult *result, int row, int column);
struct span pg_get_text(const PGresult *result, int row, int column); /* data NULL: NULL */

#endif
