/* SPDX-License-Identifier: MIT */
/* What follows from the seed: random numbers, and the operations. */
#include <stdio.h>

#include "chaos.h"

uint64_t chaos_random(const struct chaos *chaos, uint64_t purpose)
{
    /* splitmix64: near seeds give unlike sequences. */
    uint64_t z = chaos->verdict->seed + (purpose + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return z == 0 ? 1 : z;
}

int chaos_draw(uint64_t *state, int low, int high)
{
    return low + (int)(next_random(state) % (uint32_t)(high - low + 1));
}

static unsigned draw_document(uint64_t *random)
{
    int last = chaos_draw(random, 0, 1) == 0 ? CHAOS_HOT_DOCUMENTS : CHAOS_DOCUMENTS;
    return (unsigned)chaos_draw(random, 0, last - 1);
}

void chaos_spec(const struct chaos *chaos, size_t i, struct spec *out)
{
    uint64_t random = chaos_random(chaos, 1000 + i);
    out->document = draw_document(&random);
    int kind = chaos_draw(&random, 0, 99);
    out->action = kind < 12 ? "delete" : kind < 35 ? "create" : "update";
    out->fields[0] = '\0';
    if (kind < 12)
        return;
    char value[32] = "null";
    if (chaos_draw(&random, 0, 3) > 0)
        snprintf(value, sizeof value, "{'v%d':%zu}", chaos_draw(&random, 0, 2), i);
    snprintf(out->fields, sizeof out->fields, "{'n':%zu,'k%d':'t%zu','o%d':%s}", i,
             chaos_draw(&random, 0, 9), i, chaos_draw(&random, 0, 3), value);
}
