/* SPDX-License-Identifier: MIT */
/*
 * workload: a fixed stream of operations, and the documents that it must come to.
 *
 * Operation i is for a document drawn at random; the first one creates it, the others are RFC 7396
 * patches: mostly flat ones, one in sixteen removes a member, one in sixteen is nested. The same
 * numbers give the same stream on every machine. The documents are folded here by jansson: no code
 * and no SQL of foldd decides what is right.
 */
#ifndef FOLDD_BENCH_WORKLOAD_H
#define FOLDD_BENCH_WORKLOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "pg.h"

struct work_op {
    uint32_t document;
    bool creates;
    size_t fields_at; /* where its fields are in workload->fields */
    size_t fields_len;
};

struct work_document {
    json_t *fields; /* NULL: no operation touches it */
    size_t op_count;
    size_t last_op;
};

struct workload {
    size_t op_count;
    size_t document_count;
    struct work_op *ops;
    struct work_document *documents;
    struct buf fields;
};

/* Long enough for an id of an operation or a document. */
enum { WORK_ID_MAX = 32 };

/* Given. */
struct workload *workload_new(size_t op_count, size_t document_count);
void workload_free(struct workload *workload);

/* Write the id of an operation or of a document. */
void workload_op_id(size_t op, char id[WORK_ID_MAX]);
void workload_document_id(size_t document, char id[WORK_ID_MAX]);

/* Borrowed: the operation's fields, JSON. */
struct span workload_fields(const struct workload *workload, size_t op);

/* Which of so many clients sends the operation: all of a document come from the same one. */
size_t workload_client(const struct workload *workload, size_t op, size_t client_count);

/* Add the operation as a request line (with LF), with ack:"folded" or without. */
enum work_ack { WORK_ACK_STORED, WORK_ACK_FOLDED };
void workload_line(const struct workload *workload, size_t op, enum work_ack ack, struct buf *line);

/* Mean bytes of a request line. */
size_t workload_line_bytes(const struct workload *workload);

#endif
