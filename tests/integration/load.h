/* SPDX-License-Identifier: MIT */
/*
 * load: a numbered stream of operations, and what was acknowledged of it.
 *
 * Operation i is a create, update or delete of document L(i mod documents), with the id PREFIX-i.
 * It can be sent again any number of times; its receipt must always be the same.
 */
#ifndef FOLDD_TEST_LOAD_H
#define FOLDD_TEST_LOAD_H

#include "harness.h"

struct load {
    struct env *env;
    const char *prefix;
    int documents;
    int count;
    int64_t *seqs; /* of each operation: its receipt's seq, 0 while there is none */
};

struct load *load_new(struct env *env, const char *prefix, int documents, int count);
void load_free(struct load *load);

/* Queue the operations from..from+count-1. */
void load_queue(const struct load *load, struct conn *conn, int from, int count);

/* Read the replies to them, in order, until all came or the connection ended; each must be a
 * receipt, equal to an earlier one. Returns how many came. */
int load_replies(struct load *load, struct conn *conn, int from, int count);

/* Both: send them and take all receipts. */
void load_send(struct load *load, struct conn *conn, int from, int count);

/* Every receipt's operation is in the log once, with that seq, and nothing else of this load is in
 * it that has no receipt (at_most_unacknowledged of those may be). */
void expect_load(struct load *load, int at_most_unacknowledged);

#endif
