/* SPDX-License-Identifier: MIT */
#include "overdue.h"

#include <event2/event.h>

#include "clock.h"
#include "timer.h"

static void set_timer(struct overdue *overdue)
{
    const struct overdue_node *first = TAILQ_FIRST(&overdue->nodes);
    if (first == NULL)
        evtimer_del(overdue->timer);
    else
        timer_set(overdue->timer, first->since_ms + overdue->timeout_ms - clock_mono_ms());
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct overdue *overdue = arg;
    struct overdue_node *node;
    int64_t before_ms = clock_mono_ms() - overdue->timeout_ms;
    (void)fd;
    (void)what;
    while ((node = TAILQ_FIRST(&overdue->nodes)) != NULL && node->since_ms <= before_ms) {
        overdue_stop(overdue, node);
        overdue->on_overdue(overdue->arg, node);
    }
    set_timer(overdue);
}

void overdue_init(struct overdue *overdue, struct event_base *base, int64_t timeout_ms,
                  overdue_fn on_overdue, void *arg)
{
    TAILQ_INIT(&overdue->nodes);
    overdue->timer = evtimer_new(base, on_timer, overdue);
    overdue->timeout_ms = timeout_ms;
    overdue->on_overdue = on_overdue;
    overdue->arg = arg;
}

void overdue_fini(struct overdue *overdue)
{
    event_free(overdue->timer);
}

void overdue_set_timeout(struct overdue *overdue, int64_t timeout_ms)
{
    overdue->timeout_ms = timeout_ms;
    set_timer(overdue);
}

void overdue_start(struct overdue *overdue, struct overdue_node *node)
{
    if (node->running)
        return;
    node->running = true;
    node->since_ms = clock_mono_ms();
    TAILQ_INSERT_TAIL(&overdue->nodes, node, link);
    if (!evtimer_pending(overdue->timer, NULL))
        set_timer(overdue);
}

void overdue_restart(struct overdue *overdue, struct overdue_node *node)
{
    overdue_stop(overdue, node);
    overdue_start(overdue, node);
}

/* The timer stays: it goes off for the next one at the latest, and finds nobody too late. */
void overdue_stop(struct overdue *overdue, struct overdue_node *node)
{
    if (!node->running)
        return;
    node->running = false;
    TAILQ_REMOVE(&overdue->nodes, node, link);
    if (TAILQ_EMPTY(&overdue->nodes))
        evtimer_del(overdue->timer);
}
