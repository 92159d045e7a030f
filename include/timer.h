/* SPDX-License-Identifier: MIT */
/*
 * timer: libevent's timers in milliseconds.
 */
#ifndef FOLDD_TIMER_H
#define FOLDD_TIMER_H

#include <stdint.h>

struct event;

/* Let the timer go off once, ms from now (0 and less: in the next pass of the loop). A pending one
 * is set anew. */
void timer_set(struct event *timer, int64_t ms);

#endif
