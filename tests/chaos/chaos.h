/* SPDX-License-Identifier: MIT */
/*
 * chaos: foldd under load while everything around it breaks, and what must be true afterwards.
 *
 * A run is drawn from its seed: the operations, the faults and their order, the daemon's settings.
 * The moments at which a fault meets what is going on are not. Three threads share a struct chaos:
 * the first makes the faults (faults.c) and holds the log against the receipts (verify.c), one is
 * all clients (clients.c), one looks at the cursor all along (watch.c). foldd is the first thread's
 * child, since a child dies with the thread that made it.
 *
 * A fault of foldd is noted with chaos_fail and the run goes on; what the harness asserts (foldd
 * ends by itself, the cluster does not start) ends it at once.
 */
#ifndef FOLDD_CHAOS_H
#define FOLDD_CHAOS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "integration/harness.h"

enum invariant {
    RECEIPTS,
    SAME_RECEIPT,
    IN_ORDER,
    STORED,
    AT_MOST_ONCE,
    DOCUMENTS,
    OUTCOMES,
    CURSOR_ON_DISK,
    CURSOR_IN_STATUS,
    SETTLED,
    QUIET,
    INVARIANTS,
};

/* In memory that the program's first process shares, so that it can say how the run ended. */
struct verdict {
    uint64_t seed;
    bool finished;
    atomic_uint failures[INVARIANTS]; /* how often each did not hold */
};

enum { CHAOS_DOCUMENTS = 300, CHAOS_HOT_DOCUMENTS = 10 };

/* What operation i is follows from the seed and i. */
struct spec {
    unsigned document; /* "dN" */
    const char *action;
    char fields[160]; /* with single quotes; empty for a delete */
};

/* What is known of operation i; written by the clients' thread. */
struct record {
    int64_t seq;      /* of its receipt; 0: none came */
    unsigned sent;    /* how often it was sent */
    unsigned refused; /* how often the answer was that it is not stored */
    bool is_new;      /* a receipt that is no duplicate's came */
    char outcome[12]; /* of ack "folded"; empty: not told */
};

enum phase { PHASE_LOAD, PHASE_DRAIN, PHASE_END };

struct chaos {
    struct env *env;
    struct daemon *daemon;
    struct verdict *verdict;
    bool is_long;
    int ops_per_second;
    atomic_int phase;
    atomic_uint cuts;        /* connections that the clients shall lose */
    atomic_uint server_life; /* odd while the server is down or about to be */
    struct record *records;  /* of the clients' thread until it has ended */
    size_t record_count;
    size_t record_room;
    struct {
        unsigned kills;
        unsigned server_kills;
        atomic_uint samples;
        unsigned retries;
        unsigned receipts;
    } counts;
};

/* An invariant does not hold: count it, and print the first few. */
void chaos_fail(struct chaos *chaos, enum invariant invariant, const char *format, ...)
    PRINTF(3, 4);

/* A line for the trace, which is printed when the run fails. First thread only. */
void chaos_trace(struct chaos *chaos, const char *format, ...) PRINTF(2, 3);

void chaos_spec(const struct chaos *chaos, size_t i, struct spec *out);

/* A sequence of random numbers that the seed and the purpose determine. */
uint64_t chaos_random(const struct chaos *chaos, uint64_t purpose);

/* From low to high, both included. */
int chaos_draw(uint64_t *state, int low, int high);

/* The env's database and folder, with belongings of its own, for use in another thread. */
void chaos_side_init(struct env *side, const struct env *env);
void chaos_side_fini(struct env *side);

/* A connection, or NULL while foldd takes none. */
struct conn *chaos_connect(struct env *env, const char *path);

/* Thread functions: clients until the phase is PHASE_DRAIN and every answer came; cursor until
 * PHASE_END. The argument is the struct chaos. */
void *clients_run(void *arg);
void *watch_run(void *arg);

/* The whole schedule of faults, one after the other; foldd and the server run at its end. */
void faults_run(struct chaos *chaos);

/* With the load over: wait until all is folded, then check log, documents, outcomes, cursor. */
void verify_run(struct chaos *chaos);

#endif
