/* SPDX-License-Identifier: MIT */
#include "retry.h"

int64_t retry_delay_ms(int64_t base_ms, int64_t cap_ms, unsigned attempt, uint32_t random)
{
    int64_t delay_ms = base_ms < cap_ms ? base_ms : cap_ms;
    /* Never multiplies past the cap: neither a large attempt nor a large base overflows. */
    for (unsigned n = 1; n < attempt && delay_ms > 0 && delay_ms < cap_ms; n++)
        delay_ms = delay_ms > cap_ms / 2 ? cap_ms : delay_ms * 2;
    if (delay_ms <= 0)
        return 0;
    /* The jitter keeps documents that failed together from coming back together. */
    int64_t least_ms = delay_ms - delay_ms / 2;
    return least_ms + (int64_t)random % (delay_ms - least_ms + 1);
}
