/* SPDX-License-Identifier: MIT */
/*
 * op: one operation: its parts, its size, who owns it.
 *
 * An op is one allocation. It is made by proto from a line, taken by ingest, and freed by whoever
 * answers it. Its parts are spans into its own bytes; collection, document and id lie behind one
 * another, each followed by a NUL (which none can contain), so that op_key and op_id_key are spans
 * too.
 */
#ifndef FOLDD_OP_H
#define FOLDD_OP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "scan.h"

enum {
    OP_COLLECTION_MAX = 255, /* bytes */
    OP_DOCUMENT_MAX = 1024,
    OP_ID_MAX = 255,
    OP_ACTION_MAX = 63,
    OP_KEY_MAX = OP_COLLECTION_MAX + 1 + OP_DOCUMENT_MAX,
};

enum op_ack { OP_ACK_STORED, OP_ACK_FOLDED };

struct slot;

struct op {
    TAILQ_ENTRY(op) link; /* in ingest's queue or in a batch */
    UT_hash_handle hh;    /* in a batch's set of ids */
    struct span collection;
    struct span document;
    struct span id;
    struct span action;
    struct span fields; /* raw JSON; data NULL when absent */
    struct span meta;
    enum op_ack ack;
    struct slot *slot;   /* borrowed: where the answer goes */
    int64_t received_us; /* wall clock, never decreasing */
    int64_t ticket;      /* how many operations had been accepted with it */
    int64_t queued_ms;   /* monotonic clock: since when it waits */
    int64_t sent_seq;    /* the seq it was sent with, 0 before; kept while that send may be in */
    int64_t last_seq;    /* the seq of the last send */
    char actor[20];      /* who sent it: "uid:1000" */
    size_t size;         /* bytes that it is charged against the limits */
    char bytes[];
};

TAILQ_HEAD(op_list, op);

/* The parts of an operation, borrowed. collection, document, id and action are decoded text. */
struct op_parts {
    struct span collection;
    struct span document;
    struct span id; /* data NULL: one is made (a UUID version 7, RFC 9562) */
    struct span action;
    struct span fields;
    struct span meta;
    enum op_ack ack;
};

/* Given: an operation with copies of the parts. */
struct op *op_new(const struct op_parts *parts);
void op_free(struct op *op);

/* Borrowed: collection NUL document, the key of the document. */
struct span op_key(const struct op *op);

/* Borrowed: collection NUL document NUL id, the key of the operation. */
struct span op_id_key(const struct op *op);

/* The key of a document from its parts into out[OP_KEY_MAX]; returns its length. */
size_t op_make_key(struct span collection, struct span document, char *out);

/* Borrowed: the parts of a key. */
void op_split_key(struct span key, struct span *collection, struct span *document);

#endif
