/* SPDX-License-Identifier: MIT */
/*
 * store: every SQL statement that foldd sends, one intent-named function each; rows <-> structs.
 *
 * Each store_ function submits one request on a connection; its answer comes to on_result. The row
 * functions read one row of the answer to the function of the same name.
 */
#ifndef FOLDD_STORE_H
#define FOLDD_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "batch.h"
#include "docs.h"
#include "pg.h"

/* The setup of connections (R3, R4). Workers and the others differ in what they pin. */
extern const char store_setup_ingest[];
extern const char store_setup_reader[];
extern const char store_setup_control[];
extern const char store_setup_lease[]; /* hears challenges (R5) */

/* Given: the setup of a worker, with its timeouts. */
char *store_setup_worker(int64_t fold_timeout_ms);

/* How long a fold waits for a row that somebody else holds before it looks who. */
enum { STORE_FOLD_LOCK_WAIT_MS = 200 };

/* A term: what every write transaction proves (R2). */
struct term {
    int64_t epoch;
    char token[40];
};

int store_row_count(const PGresult *result);

/* --- leader */

struct store_schema_row {
    int64_t version;  /* 0: the schema is not there */
    struct span code; /* data NULL: unknown */
};
/* What the database has of the schema. */
void store_schema(struct pg *pg, pg_result_fn on_result, void *arg);
struct store_schema_row store_schema_row(const PGresult *result);

/* The process id of the backend that serves this connection, in plain text: the first question on a
 * connection, before anything that a pooler could break. */
void store_backend(struct pg *pg, pg_result_fn on_result, void *arg);
int64_t store_backend_row(const PGresult *result);

/* Whether this session got the leader's lock: one row with one boolean. */
void store_try_lock(struct pg *pg, pg_result_fn on_result, void *arg);
bool store_try_lock_row(const PGresult *result);

/* R5: ask the leading daemon whether it is alive; answers who that is (data NULL: nobody yet). */
void store_challenge(struct pg *pg, const char *challenger, pg_result_fn on_result, void *arg);
struct span store_challenge_row(const PGresult *result);
/* Whether it has answered. */
void store_challenge_answered(struct pg *pg, const char *challenger, pg_result_fn on_result,
                              void *arg);
bool store_challenge_answered_row(const PGresult *result);
/* The leading daemon's answer to all who ask; term NULL: of one that is about to lead. */
void store_answer_challenges(struct pg *pg, const struct term *term, pg_result_fn on_result,
                             void *arg);
enum store_lock { STORE_LOCK_WRITERS = 1, STORE_LOCK_LEADER = 2 };
/* End the sessions that hold the lock; answers how many. */
void store_end_holders(struct pg *pg, enum store_lock lock, pg_result_fn on_result, void *arg);
int64_t store_end_holders_row(const PGresult *result);

struct store_lead_row {
    int64_t epoch;
    int64_t batch; /* number of the last batch in the ledger */
    int64_t head;
    int64_t cursor;
    int64_t received_us; /* received_at of the operation at the head */
    bool ingest_paused;
    bool folding_paused;
    int64_t floor;    /* no seq up to here is given any more */
    struct span lost; /* data NULL, or why numbering goes on higher (R6) */
};
void store_lead(struct pg *pg, const char *token, const char *instance, int64_t known_head,
                pg_result_fn on_result, void *arg);
struct store_lead_row store_lead_row(const PGresult *result);

struct store_parked_row {
    struct span collection;
    struct span document;
    int64_t seq; /* the operation that does not fold */
    int32_t attempts;
    int64_t due_in_ms;
};
/* All parked documents, the one that is due first in front. */
void store_parked(struct pg *pg, pg_result_fn on_result, void *arg);
struct store_parked_row store_parked_row(const PGresult *result, int row);

/* --- ingest */

struct store_append_row {
    int64_t n;   /* the operation's place in the batch, from 1 */
    int64_t seq; /* of the one that has its id */
    bool same;   /* has it the same content? */
};
/* Store the batch as batch->number from batch->base on; answers the exceptions. */
void store_append(struct pg *pg, const struct term *term, const struct batch *batch,
                  pg_result_fn on_result, void *arg);
struct store_append_row store_append_row(const PGresult *result, int row);

/* --- dispatch */

struct store_log_row {
    int64_t seq;
    struct span collection;
    struct span document;
};
/* Up to limit operations with after < seq <= upto, in order. */
void store_read_log(struct pg *pg, int64_t after, int64_t upto, int32_t limit,
                    pg_result_fn on_result, void *arg);
struct store_log_row store_log_row(const PGresult *result, int row);

struct store_fold_row {
    int64_t version;
    int64_t base; /* what the row contained before: operations up to here were folded earlier */
    bool plain;   /* everything above base was folded: no outcomes */
};
/* Fold the chunks of these documents. */
void store_fold(struct pg *pg, const struct term *term, const struct doc_list *docs,
                pg_result_fn on_result, void *arg);
struct store_fold_row store_fold_row(const PGresult *result, int row);

struct store_fold_parked_row {
    int64_t version;  /* 0: no row */
    int64_t next_seq; /* the operation that waits next; 0: none, parked no more */
};
void store_fold_parked(struct pg *pg, const struct term *term, const struct doc *doc,
                       int32_t max_ops, pg_result_fn on_result, void *arg);
struct store_fold_parked_row store_fold_parked_row(const PGresult *result);

struct store_version_row {
    int64_t seq;
    int64_t version;
};
/* The versions of the documents that these operations belong to. */
void store_versions(struct pg *pg, const int64_t *seqs, size_t count, pg_result_fn on_result,
                    void *arg);
struct store_version_row store_version_row(const PGresult *result, int row);

/* Of the first operations of the documents' chunks, those whose row another session holds. */
void store_locked(struct pg *pg, const struct doc_list *docs, pg_result_fn on_result, void *arg);
int64_t store_locked_row(const PGresult *result, int row);

/* Whether the tables that a fold uses can be used at all: fails with 55P03 if not. */
void store_probe(struct pg *pg, pg_result_fn on_result, void *arg);
/* End the transaction that a failed probe has left. */
void store_rollback(struct pg *pg);

struct store_park {
    struct span key; /* of the document */
    int64_t seq;
    const char *sqlstate;
    const char *message;
    int64_t delay_ms;
};
void store_park(struct pg *pg, const struct term *term, const struct store_park *park,
                pg_result_fn on_result, void *arg);
int32_t store_park_row(const PGresult *result); /* attempts */

void store_save_cursor(struct pg *pg, const struct term *term, int64_t seq, pg_result_fn on_result,
                       void *arg);

/* The head as the database has it: the safety poll. */
void store_head(struct pg *pg, pg_result_fn on_result, void *arg);
int64_t store_head_row(const PGresult *result);

/* --- requests */

struct store_document_row {
    int64_t version;
    int64_t revision;
    bool deleted;
    struct span fields; /* JSON */
};
void store_document(struct pg *pg, struct span collection, struct span document,
                    pg_result_fn on_result, void *arg);
struct store_document_row store_document_row(const PGresult *result);

struct store_operation_row {
    int64_t seq;
    struct span collection;
    struct span document;
    struct span id;
    struct span action;
    struct span received_at; /* RFC 3339 */
    struct span actor;
    int64_t version;
    struct span outcome; /* data NULL: it waits to be folded */
    struct span reason;
    struct span sqlstate;
};
/* One operation by document and id, or by seq (document optional). At most one row. */
void store_operation(struct pg *pg, struct span collection, struct span document, struct span id,
                     int64_t seq, pg_result_fn on_result, void *arg);
struct store_operation_row store_operation_row(const PGresult *result);

/* --- operators */

struct store_parked_list_row {
    struct span collection;
    struct span document;
    int64_t seq;
    struct span sqlstate;
    struct span message;
    int32_t attempts;
    struct span parked_at; /* RFC 3339 */
    struct span next_try;
};
/* Up to limit parked documents behind (document, collection), in that order; data NULL: from the
 * first. */
void store_parked_list(struct pg *pg, struct span collection, struct span document, int32_t limit,
                       pg_result_fn on_result, void *arg);
struct store_parked_list_row store_parked_list_row(const PGresult *result, int row);

/* Make a parked document due now; data NULL: all. */
void store_retry(struct pg *pg, const struct term *term, struct span collection,
                 struct span document, pg_result_fn on_result, void *arg);
int64_t store_retry_row(const PGresult *result); /* how many */

struct store_skip {
    struct span collection;
    struct span document;
    int64_t seq;
    struct span reason;
    const char *actor;
};
void store_skip(struct pg *pg, const struct term *term, const struct store_skip *skip,
                pg_result_fn on_result, void *arg);
struct span store_skip_row(const PGresult *result); /* as foldd.skip() answers */

struct store_pause {
    struct span what;
    bool paused;
    struct span reason;
    const char *actor;
};
void store_set_pause(struct pg *pg, const struct term *term, const struct store_pause *pause,
                     pg_result_fn on_result, void *arg);

#endif
