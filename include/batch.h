/* SPDX-License-Identifier: MIT */
/*
 * batch: which operations share one transaction, and how a refused batch is split.
 *
 * Operations enter in the order in which they were read. A batch is full at a cap of operations or
 * bytes. R8: an operation whose answer depends on another one in the batch (the same document and
 * id again) ends the batch instead of joining it, so that each batch is decided against the
 * committed log.
 */
#ifndef FOLDD_BATCH_H
#define FOLDD_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "op.h"

struct batch {
    TAILQ_ENTRY(batch) link;
    struct op_list ops;
    size_t count;
    size_t bytes;
    int64_t number; /* in the ledger; 0 before it was sent */
    int64_t base;   /* seq of its first operation as last sent; 0 before it was sent */
    struct op *ids; /* the set of op_id_key */
};

TAILQ_HEAD(batch_list, batch);

struct batch_limits {
    size_t max_ops;
    size_t max_bytes; /* a single larger operation makes a batch of its own */
};

/* Given. */
struct batch *batch_new(void);

/* Frees the batch and the operations that are still in it. */
void batch_free(struct batch *batch);

/* Take the operation into the batch; false, with nothing changed, if it has to wait for the next.
 */
bool batch_add(struct batch *batch, struct op *op, const struct batch_limits *limits);

/* Remove the operation from the batch: it is the caller's again. */
void batch_remove(struct batch *batch, struct op *op);

/* Given: the second half of a batch of two or more, as a batch that was never sent. */
struct batch *batch_split(struct batch *batch);

#endif
