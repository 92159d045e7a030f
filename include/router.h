/* SPDX-License-Identifier: MIT */
/*
 * router: request -> handler, a row of a table for each kind.
 */
#ifndef FOLDD_ROUTER_H
#define FOLDD_ROUTER_H

#include <stdint.h>

#include "await.h"
#include "client.h"
#include "dispatch.h"
#include "ingest.h"
#include "leader.h"

struct event_base;
struct router;

/* What requests are about; all borrowed. */
struct router_parts {
    struct event_base *base;
    struct ingest *ingest;
    struct dispatch *dispatch;
    struct leader *leader;
    struct await *await;
    const struct clients *const *clients;
    int64_t db_timeout_ms;
    size_t workers;
};

/* Given. */
struct router *router_new(const struct router_parts *parts);
void router_free(struct router *router);

/* The functions of client_handler; arg is the router. */
bool router_on_line(void *arg, struct slot *slot, struct span line);
bool router_on_start(void *arg, struct slot *slot);
void router_on_end_wait(void *arg, struct slot *slot);
void router_on_full_behind(void *arg, struct slot *slot);

/* How long reads wait for a database from now on. */
void router_set_db_timeout(struct router *router, int64_t db_timeout_ms);

/* Reads that wait for the database: begin of a term, and its end. */
void router_begin_term(struct router *router);
void router_end_term(struct router *router);

#endif
