/* SPDX-License-Identifier: MIT */
/*
 * overdue: who has been at it for too long? Objects that all get the same time, with one timer for
 * all of them; none runs while there are none.
 */
#ifndef FOLDD_OVERDUE_H
#define FOLDD_OVERDUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct event;
struct event_base;

/* Lives inside the object; zero-initialised. */
struct overdue_node {
    TAILQ_ENTRY(overdue_node) link;
    int64_t since_ms;
    bool running;
};

/* The node's time is over; it is stopped. */
typedef void (*overdue_fn)(void *arg, struct overdue_node *node);

struct overdue {
    TAILQ_HEAD(, overdue_node) nodes; /* by since_ms */
    struct event *timer;
    int64_t timeout_ms;
    overdue_fn on_overdue;
    void *arg;
};

void overdue_init(struct overdue *overdue, struct event_base *base, int64_t timeout_ms,
                  overdue_fn on_overdue, void *arg);
/* Every node is stopped. */
void overdue_fini(struct overdue *overdue);

/* Another time for all nodes, also for those that run. */
void overdue_set_timeout(struct overdue *overdue, int64_t timeout_ms);

/* The node's time begins now, unless it is running; begins anew; ends. */
void overdue_start(struct overdue *overdue, struct overdue_node *node);
void overdue_restart(struct overdue *overdue, struct overdue_node *node);
void overdue_stop(struct overdue *overdue, struct overdue_node *node);

#endif
