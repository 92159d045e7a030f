/* SPDX-License-Identifier: MIT */
/*
 * retry: when to try again: exponential, capped, jittered.
 */
#ifndef FOLDD_RETRY_H
#define FOLDD_RETRY_H

#include <stdint.h>

/* The pause before attempt number attempt (1 = the first retry): between half of and the whole of
 * min(cap_ms, base_ms * 2^(attempt-1)). random is any number; equal numbers give equal pauses. */
int64_t retry_delay_ms(int64_t base_ms, int64_t cap_ms, unsigned attempt, uint32_t random);

#endif
