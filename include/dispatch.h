/* SPDX-License-Identifier: MIT */
/*
 * dispatch: documents -> workers -> results -> cursor and waits.
 *
 * Caught up, operations come straight from the commit (the tap); behind, they are read from the log
 * in pages as the window has room. At the seam each is handed out exactly once (R15): taken is the
 * highest seq handed out; a commit is tapped only if taken was the head before it.
 */
#ifndef FOLDD_DISPATCH_H
#define FOLDD_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"
#include "docs.h"
#include "store.h"

struct event_base;
struct evdns_base;
struct dispatch;

struct dispatch_options {
    size_t workers;
    size_t window; /* operations handed out and not below the cursor */
    struct docs_limits docs;
    int64_t lock_timeout_ms;
    int64_t fold_timeout_ms;
    int64_t safety_poll_ms;
    int64_t db_timeout_ms; /* how much longer than fold_timeout a worker may be silent */
};

struct dispatch_events {
    /* The operation is folded and visible; version is its document's. */
    void (*on_folded)(void *arg, int64_t seq, int64_t version);
    /* Something else than plain folding became of the operation: look it up. */
    void (*on_changed)(void *arg, int64_t seq);
    /* The term cannot go on. */
    void (*on_trouble)(void *arg, const struct err *err);
    /* Nor can any other. */
    void (*on_fatal)(void *arg, const struct err *err);
    void *arg;
};

/* Given. */
struct dispatch *dispatch_new(struct event_base *base, struct evdns_base *dns,
                              const struct dispatch_options *options,
                              const struct dispatch_events *events);
void dispatch_free(struct dispatch *dispatch);

struct dispatch_term {
    const struct term *term;
    const char *conninfo;
    struct pg *reader;
    struct pg *control;
    const struct store_lead_row *lead;
    const PGresult *parked;
};
void dispatch_begin_term(struct dispatch *dispatch, const struct dispatch_term *term);
void dispatch_end_term(struct dispatch *dispatch);

/* A batch has committed: see ingest_events. */
void dispatch_committed(struct dispatch *dispatch, const struct batch *batch, int64_t old_head,
                        int64_t new_head);

/* Once per turn of the loop: hand out work, read pages, save the cursor. */
void dispatch_turn(struct dispatch *dispatch);

/* An operator has made a parked document due (key.data NULL: all of them). */
void dispatch_hurry(struct dispatch *dispatch, struct span key);

/* Fold nothing until told otherwise; what is running ends. */
void dispatch_set_pause(struct dispatch *dispatch, bool paused);
bool dispatch_is_paused(const struct dispatch *dispatch);

/* Take no more tasks. */
void dispatch_stop(struct dispatch *dispatch);
/* After dispatch_stop: the running tasks have ended and the cursor is saved. */
bool dispatch_stopped(const struct dispatch *dispatch);

int64_t dispatch_cursor(const struct dispatch *dispatch);
/* Whether the operation is handed out and not settled, or not handed out yet. */
bool dispatch_is_open(const struct dispatch *dispatch, int64_t seq);

struct dispatch_counts {
    struct docs_counts docs;
    size_t window;  /* operations in it */
    size_t workers; /* connected */
    bool catching_up;
    bool backing_off; /* every fold fails: the database's state */
};
struct dispatch_counts dispatch_counts(const struct dispatch *dispatch);

#endif
