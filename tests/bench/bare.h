/* SPDX-License-Identifier: MIT */
/*
 * bare: PostgreSQL without foldd: loops of plain libpq that send the same statements.
 *
 * They are as good as we know how to make them: prepared statements, binary parameters that were
 * all made before the clock started, the sessions set up like foldd's own. They read no socket,
 * parse no JSON, look up no id, and answer nobody.
 */
#ifndef FOLDD_BENCH_BARE_H
#define FOLDD_BENCH_BARE_H

#include <stdint.h>

#include "integration/harness.h"
#include "workload.h"

/* The appends of a workload, BENCH_BATCH_OPS each, made beforehand: operation i gets seq i + 1. */
struct bare_log;

/* Given. */
struct bare_log *bare_log_new(const struct workload *workload);
void bare_log_free(struct bare_log *log);

/* Take the lead in a database whose log is empty, so that the functions below may write. */
void bare_lead(struct env *env);

/* How far the log goes: the appending loop says it, folding loops wait for it. */
struct bare_head;

/* Given: nothing is appended yet, or everything up to seq was before. */
struct bare_head *bare_head_new(int64_t seq);
void bare_head_free(struct bare_head *head);

/* One loop, run by a thread of its own. */
struct bare_loop;

/* Given: appends the whole log. */
struct bare_loop *bare_append_new(struct env *env, const struct bare_log *log,
                                  struct bare_head *head);

/* Given: loop number part of so many that share the documents between them. Folds its operations in
 * order, BENCH_FOLD_OPS at a time, as soon as the log has them. */
struct bare_loop *bare_fold_new(struct env *env, const struct workload *workload,
                                struct bare_head *head, size_t part, size_t parts);

/* Connect, then run all loops side by side until each has done everything. Returns the seconds,
 * without those for connecting. Frees the loops. */
double bare_run(struct bare_loop *const *loops, size_t count);

/* Insert every operation by a prepared INSERT of one row, one transaction each, and write the
 * microseconds that each took. */
void bare_insert(struct env *env, const struct workload *workload, double *times_us);

/* Given: the seqs that all of these give, for verify. */
int64_t *bare_seqs(const struct workload *workload);

#endif
