/* SPDX-License-Identifier: MIT */
/*
 * waiters: who waits for what.
 *
 * A wait is filed under one topic: a seq, or the key of an operation that is not in the log yet
 * (op_id_key). Barriers are filed by a number that only grows: first the ticket of the last
 * operation read before them, then the seq that the cursor must reach. Every wait has a deadline.
 */
#ifndef FOLDD_WAITERS_H
#define FOLDD_WAITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "heap.h"
#include "scan.h"

struct slot;
struct topic;

enum wait_kind {
    WAIT_STORED,  /* the outcome of an operation whose receipt is due with it */
    WAIT_OUTCOME, /* an await */
    WAIT_TICKET,  /* a barrier, before what it covers is committed */
    WAIT_CURSOR,  /* a barrier, after */
};

struct wait {
    TAILQ_ENTRY(wait) link; /* in its topic or in a list of barriers */
    struct topic *topic;
    TAILQ_ENTRY(wait) future_link; /* the owner's own list */
    struct heap_node deadline;
    enum wait_kind kind;
    struct slot *slot; /* borrowed: where the answer goes */
    int64_t number;    /* the operation's seq (0: not known), a barrier's ticket or its seq */
    int64_t deadline_ms;
    bool looking;        /* a look-up for it is under way */
    bool again;          /* something changed since that was sent */
    bool ended;          /* answered while looking: freed when the look-up comes back */
    bool known;          /* its operation is in the log */
    bool overdue;        /* its deadline has passed while it is being looked up */
    bool vain;           /* to be answered unless the look-up under way finds its operation */
    bool future;         /* in the owner's list */
    unsigned vain_looks; /* that found nothing although something had changed */
};

TAILQ_HEAD(wait_list, wait);

struct waiters;

/* Given. */
struct waiters *waiters_new(void);
/* Frees the waits, too. */
void waiters_free(struct waiters *waiters);

/* Given: a wait with a deadline, filed nowhere. */
struct wait *waiters_add(struct waiters *waiters, enum wait_kind kind, int64_t deadline_ms);
/* Take the wait out of everything and free it. */
void waiters_remove(struct waiters *waiters, struct wait *wait);
/* Take the wait out of everything; the caller frees it. */
void waiters_detach(struct waiters *waiters, struct wait *wait);

/* Another deadline. */
void waiters_postpone(struct waiters *waiters, struct wait *wait, int64_t deadline_ms);
/* Take the wait out of its topic or list only. */
void waiters_unfile(struct waiters *waiters, struct wait *wait);

/* File the wait under a seq, or under an operation's key; it leaves where it was. */
void waiters_file_seq(struct waiters *waiters, struct wait *wait, int64_t seq);
void waiters_file_key(struct waiters *waiters, struct wait *wait, struct span id_key);
/* File a barrier by its kind and number. */
void waiters_file_barrier(struct waiters *waiters, struct wait *wait);

/* Borrowed: the waits filed under a seq or key, NULL when none is. */
struct wait_list *waiters_of_seq(struct waiters *waiters, int64_t seq);
struct wait_list *waiters_of_key(struct waiters *waiters, struct span id_key);

/* Borrowed: the barrier of that kind with the lowest number if that is at most upto, or NULL. */
struct wait *waiters_next_barrier(struct waiters *waiters, enum wait_kind kind, int64_t upto);

/* Borrowed: the wait that ends first, or NULL. */
struct wait *waiters_next_deadline(struct waiters *waiters);

/* Borrowed: the waits in no particular order; index is below waiters_count. */
struct wait *waiters_get(struct waiters *waiters, size_t index);

/* Any wait under a seq or key? */
bool waiters_any(const struct waiters *waiters);
size_t waiters_count(const struct waiters *waiters);

#endif
