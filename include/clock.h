/* SPDX-License-Identifier: MIT */
/*
 * clock: monotonic time for intervals, wall time for what people read. A test can set both.
 */
#ifndef FOLDD_CLOCK_H
#define FOLDD_CLOCK_H

#include <stdint.h>

/* Monotonic time. Never goes back, says nothing about the date. */
int64_t clock_mono_us(void);
int64_t clock_mono_ms(void);

/* Microseconds since 1970-01-01 00:00:00 UTC. May jump. */
int64_t clock_wall_us(void);

/* Tests only: from now on both clocks stand at these values (microseconds); -1 sets them going. */
void clock_set_for_test(int64_t mono_us, int64_t wall_us);

#endif
