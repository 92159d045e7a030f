/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include <assert.h>
#include <stdlib.h>

#include "mem.h"

struct batch *batch_new(void)
{
    struct batch *batch = mem_zalloc(sizeof(*batch));
    TAILQ_INIT(&batch->ops);
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch == NULL)
        return;
    struct op *op;
    while ((op = TAILQ_FIRST(&batch->ops)) != NULL) {
        batch_remove(batch, op);
        op_free(op);
    }
    free(batch);
}

bool batch_add(struct batch *batch, struct op *op, const struct batch_limits *limits)
{
    if (batch->count >= limits->max_ops ||
        (batch->count > 0 && batch->bytes + op->size > limits->max_bytes))
        return false;
    struct span key = op_id_key(op);
    unsigned hash;
    struct op *same;
    HASH_VALUE(key.data, key.len, hash);
    HASH_FIND_BYHASHVALUE(hh, batch->ids, key.data, key.len, hash, same);
    if (same != NULL)
        return false;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, batch->ids, key.data, key.len, hash, op);
    TAILQ_INSERT_TAIL(&batch->ops, op, link);
    batch->count++;
    batch->bytes += op->size;
    return true;
}

void batch_remove(struct batch *batch, struct op *op)
{
    HASH_DELETE(hh, batch->ids, op); /* NOLINT: the analyzer loses uthash's links */
    TAILQ_REMOVE(&batch->ops, op, link);
    batch->count--;
    batch->bytes -= op->size;
}

struct batch *batch_split(struct batch *batch)
{
    assert(batch->count >= 2);
    const struct batch_limits none = {SIZE_MAX, SIZE_MAX};
    struct batch *second = batch_new();
    size_t keep = batch->count / 2;
    struct op *op = TAILQ_FIRST(&batch->ops);
    for (size_t i = 0; i < keep; i++)
        op = TAILQ_NEXT(op, link);
    while (op != NULL) {
        struct op *next = TAILQ_NEXT(op, link);
        batch_remove(batch, op);
        bool added = batch_add(second, op, &none);
        assert(added);
        op = next;
    }
    return second;
}
