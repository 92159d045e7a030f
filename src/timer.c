/* SPDX-License-Identifier: MIT */
#include "timer.h"

#include <event2/event.h>

void timer_set(struct event *timer, int64_t ms)
{
    struct timeval delay = {ms > 0 ? ms / 1000 : 0, ms > 0 ? (ms % 1000) * 1000 : 0};
    evtimer_add(timer, &delay);
}
