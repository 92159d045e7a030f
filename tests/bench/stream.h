/* SPDX-License-Identifier: MIT */
/*
 * stream: clients that pipeline a workload into foldd as fast as it reads, and check every reply.
 *
 * All of them are driven from one thread, and their lines are made before the clock starts, so that
 * they take little of the processors that foldd and PostgreSQL work on.
 */
#ifndef FOLDD_BENCH_STREAM_H
#define FOLDD_BENCH_STREAM_H

#include <stdint.h>

#include "integration/harness.h"
#include "workload.h"

/* What comes behind the operations of each client. */
enum stream_end {
    STREAM_END_STORED, /* nothing: done with the last receipt */
    STREAM_END_FOLDED, /* a barrier: done when it is answered */
};

struct streams;

/* Given: so many clients, connected to the daemon. Client c sends the operations for which
 * workload_client says so, in order. */
struct streams *streams_new(const struct workload *workload, struct daemon *daemon,
                            size_t client_count, enum stream_end end);

/* Send everything and take every reply. Each must be a receipt of its operation, no duplicate, with
 * a seq above the client's last one. Returns the seconds from the first byte to the last reply. */
double streams_run(struct streams *streams);

/* Borrowed: of each operation, the seq of its receipt. Fails if two are the same. */
const int64_t *streams_seqs(const struct streams *streams);

void streams_free(struct streams *streams);

#endif
