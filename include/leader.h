/* SPDX-License-Identifier: MIT */
/*
 * leader: the terms. One daemon writes at a time; it does so in terms (R1, R2).
 *
 * A standby asks the leading daemon now and then whether it is alive; the sessions of one that does
 * not answer are ended (R5), since one that hangs keeps its lock. The epoch fences what it still
 * sends (R2).
 *
 * A term begins when the leader's lock was got, the schema is right, the epoch was raised, and all
 * connections but the workers' are up. It ends at the first loss of any connection, whatever it
 * was: everything is closed and begun anew, with a pause that grows and is jittered.
 */
#ifndef FOLDD_LEADER_H
#define FOLDD_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "store.h"

struct event_base;
struct evdns_base;
struct leader;

enum leader_state {
    LEADER_DOWN,    /* no connection; a pause is running */
    LEADER_RISING,  /* connecting, migrating, taking the lead */
    LEADER_STANDBY, /* another instance leads */
    LEADER_LEADING,
};

struct leader_events {
    /* The term has begun. parked holds the rows of foldd.parked. */
    void (*on_term)(void *arg, const struct store_lead_row *lead, const PGresult *parked);
    /* It is over: forget the connections and all that memory derived from the database. */
    void (*on_term_end)(void *arg);
    /* It cannot work: stop the daemon. */
    void (*on_fatal)(void *arg, const struct err *err);
    void *arg;
};

struct leader_options {
    const char *instance; /* tells people who leads */
    int64_t lease_timeout_ms;
    int64_t takeover_timeout_ms;
    int64_t db_timeout_ms; /* how long a connection may be silent */
};

/* Given. */
struct leader *leader_new(struct event_base *base, struct evdns_base *dns,
                          const struct leader_options *options, const struct leader_events *events);
void leader_free(struct leader *leader);

/* Go for the lead of this database; later calls change where the next term looks for it. */
void leader_start(struct leader *leader, const char *conninfo);

/* End the term, if there is one, and begin anew after a pause. */
void leader_end_term(struct leader *leader, const struct err *err);

/* R6: an operation with this seq was acknowledged. A database that does not know it has lost it. */
void leader_note_head(struct leader *leader, int64_t head);

/* Try at once if a pause is running: something has changed. */
void leader_hurry(struct leader *leader);

/* Close everything; no more terms. */
void leader_stop(struct leader *leader);

enum leader_state leader_state(const struct leader *leader);
/* Borrowed: the last error, "" when leading; and since when (wall clock) the state is what it is.
 */
const char *leader_error(const struct leader *leader);
int64_t leader_since_us(const struct leader *leader);

/* Of the present term, borrowed. */
const struct term *leader_term(const struct leader *leader);
struct pg *leader_ingest(struct leader *leader);  /* holds the leader's lock */
struct pg *leader_reader(struct leader *leader);  /* reads for requests and pages */
struct pg *leader_control(struct leader *leader); /* cursor, parking, polls */

#endif
