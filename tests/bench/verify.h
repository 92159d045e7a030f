/* SPDX-License-Identifier: MIT */
/*
 * verify: whether a database holds exactly a workload and the documents that it comes to.
 */
#ifndef FOLDD_BENCH_VERIFY_H
#define FOLDD_BENCH_VERIFY_H

#include <stdint.h>

#include "integration/harness.h"
#include "workload.h"

/* Fails unless the log holds every operation once under the seq that it was acknowledged with. */
void verify_log(struct env *env, const struct workload *workload, const int64_t *seqs);

/* Fails unless foldd.documents is the workload's documents: the same ones, each with the version,
 * the revision and the fields; and nothing is parked, ignored or rejected. */
void verify_documents(struct env *env, const struct workload *workload, const int64_t *seqs);

#endif
