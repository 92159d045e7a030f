/* SPDX-License-Identifier: MIT */
/*
 * docs: which documents have work, and whose turn it is.
 *
 * A document that has nothing to do has no entry. One that has is in exactly one state:
 *
 *     queued ---take---> running ---done---> queued (more to do) or gone
 *        ^                  |
 *        +---- due ------ aside <--- locked or suspect: the same task, tried again later
 *                           parked: a row of foldd.parked covers it; retried when due
 *
 * One that holds the cursor back too long is carried: parked although a worker still has it.
 *
 * A task is the operations that waited when the document was queued... up to the moment a worker
 * takes it. Operations that arrive while it runs set the requeue flag (they wait behind the task)
 * and become one further task when it ends, at the back of the queue. A task may take several
 * turns: its chunks, and its re-runs after a failure, are the same task. R11: a task names every
 * operation of its document above the row's version, up to its own last one.
 */
#ifndef FOLDD_DOCS_H
#define FOLDD_DOCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "heap.h"
#include "scan.h"

enum doc_state { DOC_QUEUED, DOC_RUNNING, DOC_ASIDE, DOC_PARKED, DOC_RETRYING };

enum { DOC_INLINE_SEQS = 2 };

struct doc {
    UT_hash_handle hh;
    TAILQ_ENTRY(doc) link; /* in the queue, or in a worker's list */
    struct heap_node due;  /* aside, parked: by due_ms */
    enum doc_state state;
    unsigned failures;   /* of this task in a row */
    size_t cap;          /* documents that may share its next statement; 0: no limit */
    size_t op_cap;       /* operations of its own in its next statement; 0: no limit */
    int64_t due_ms;      /* aside, parked: when to try again (monotonic) */
    int64_t failing_ms;  /* when the present row of failures began */
    uint64_t ok_at_fail; /* folds that had succeeded when it failed first */
    unsigned attempts;   /* parked: as in the row */
    int64_t parked_seq;  /* parked: the operation that does not fold */
    int64_t upto;        /* retrying: it takes operations up to here */
    size_t first; /* seqs[first .. first + count) wait; the first task of them are the task */
    size_t count;
    size_t task;
    size_t chunk;     /* running: so many of the task are under way */
    bool pinned;      /* a row of foldd.parked is being written for it: it must not go away */
    bool released;    /* pinned, and no worker has it any more */
    bool carried;     /* running although a row of foldd.parked covers it */
    int64_t taken_ms; /* when its task was taken first */
    bool answered;    /* running: the worker has found it in an answer */
    size_t done;      /* running: settled of the chunk */
    size_t room;
    int64_t *seqs;
    int64_t own_seqs[DOC_INLINE_SEQS];
    size_t key_len;
    char key[]; /* op_key */
};

TAILQ_HEAD(doc_list, doc);

struct docs_limits {
    size_t max_docs;  /* in one statement */
    size_t max_ops;   /* in one statement */
    size_t chunk_ops; /* of one document in one statement */
};

struct docs;

/* Given. */
struct docs *docs_new(const struct docs_limits *limits);
void docs_free(struct docs *docs);

/* Borrowed: the entry of a document, or NULL. */
struct doc *docs_find(struct docs *docs, struct span key);

/* An operation has come for the document: queue it, or put it behind what runs. Returns false, with
 * nothing changed, if the document is parked: its row covers the operation. seq ascends. */
bool docs_add(struct docs *docs, struct span key, int64_t seq);

/* Take the oldest tasks for one statement, each running afterwards, its chunk set; they are
 * appended to out. Returns how many. Documents with a cap share a statement with their like only.
 */
size_t docs_take(struct docs *docs, struct doc_list *out, int64_t now_ms);

/* Borrowed: the operations of the document that are under way, doc->chunk of them. */
const int64_t *doc_chunk(const struct doc *doc);

/* The document is to be parked, wherever it is, and must not go away until docs_park or docs_carry.
 */
void docs_pin(struct docs *docs, struct doc *doc);

/* The row of a pinned document that a worker still has is written: operations that come now are
 * covered by it, and it is parked as soon as the worker is done with it. */
void docs_carry(struct docs *docs, struct doc *doc, unsigned attempts);

/* For each document aside: call fn, which may pin it. */
void docs_each_aside(struct docs *docs, void (*fn)(void *arg, struct doc *doc), void *arg);

/* The first count operations of the chunk are settled. When that is the whole chunk, the document
 * goes to the back of the queue, or its entry is freed if nothing waits; otherwise what is left of
 * the chunk is run again. The caller has unlinked the document from its own list. */
void docs_done(struct docs *docs, struct doc *doc, size_t count);

/* The statement failed, nothing is folded: halve what the document may share with, or of its own,
 * and put it at the head of the queue. For a batch call in reverse order. */
void docs_split(struct docs *docs, struct doc *doc, size_t batch_docs);

/* The statement ran out of time: as docs_split, but straight to the single document and operation.
 */
void docs_split_whole(struct docs *docs, struct doc *doc, size_t batch_docs);

/* The statement failed for a reason outside the document: to the head of the queue, unchanged. */
void docs_requeue(struct docs *docs, struct doc *doc);

/* Off the queue until due_ms: the same task. */
void docs_set_aside(struct docs *docs, struct doc *doc, int64_t due_ms);

/* A row of foldd.parked covers the document now: everything that waits is dropped from memory. The
 * document may be running, retrying or new (docs_add_parked). */
void docs_park(struct docs *docs, struct doc *doc, int64_t due_ms, unsigned attempts);

/* A parked document is due now. In any other state nothing happens. */
void docs_hurry(struct docs *docs, struct doc *doc);
/* All of them are. */
void docs_hurry_all(struct docs *docs);

/* An entry for a document that is parked in the database. */
struct doc *docs_add_parked(struct docs *docs, struct span key, int64_t due_ms, unsigned attempts);

/* The retry of a parked document is being sent and takes everything up to upto: operations that
 * come from now on wait in memory again (R12). */
void docs_retry(struct docs *docs, struct doc *doc, int64_t upto);

/* The retry has folded everything and deleted the row. */
void docs_unpark(struct docs *docs, struct doc *doc);

/* Put what is due back: documents aside to the back of the queue. Returns how many. */
size_t docs_wake(struct docs *docs, int64_t now_ms);

/* Borrowed: the parked document that is due next, or NULL. */
struct doc *docs_next_parked(struct docs *docs);

/* When the next document aside or parked is due; -1: none. */
int64_t docs_next_due(const struct docs *docs);
/* When the next document aside is; -1: none. */
int64_t docs_next_aside_due(const struct docs *docs);

/* Seqs that wait or run. After docs_park these are no longer the document's. */
const int64_t *doc_waiting(const struct doc *doc);

struct docs_counts {
    size_t queued;
    size_t running; /* retrying included */
    size_t requeue; /* running with more behind */
    size_t aside;
    size_t parked;
    uint64_t tasks; /* taken since docs_new */
};

struct docs_counts docs_counts(const struct docs *docs);

#endif
