/* SPDX-License-Identifier: MIT */
#include "clock.h"

#include <time.h>

static int64_t test_mono_us = -1;
static int64_t test_wall_us = -1;

static int64_t read_us(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return test_mono_us >= 0 ? test_mono_us : read_us(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t clock_wall_us(void)
{
    return test_wall_us >= 0 ? test_wall_us : read_us(CLOCK_REALTIME);
}

void clock_set_for_test(int64_t mono_us, int64_t wall_us)
{
    test_mono_us = mono_us;
    test_wall_us = wall_us;
}
