/* SPDX-License-Identifier: MIT */
/*
 * sampler: asks foldd for its status every now and then while it is busy, on a connection of its
 * own, and looks how long the answer took.
 */
#ifndef FOLDD_BENCH_SAMPLER_H
#define FOLDD_BENCH_SAMPLER_H

#include "integration/harness.h"

struct sampler;

/* Given: asks from now on, in a thread of its own. */
struct sampler *sampler_start(struct daemon *daemon);

/* Stop asking, and free. Returns the longest answer in milliseconds; fails if there was none. */
double sampler_stop(struct sampler *sampler);

#endif
