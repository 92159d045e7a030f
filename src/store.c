/* SPDX-License-Identifier: MIT */
/*
 * Long, because every statement stands here and nowhere else: each is its text, its parameters and
 * how its rows are read, and one says nothing about another.
 */
#include "store.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"

/* R3, R4: whatever the role or the database sets, correctness and plans hang on these. */
#define SETUP_COMMON                                                                               \
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"       \
    "SET search_path = pg_catalog, pg_temp;"                                                       \
    "SET client_encoding = 'UTF8';"                                                                \
    "SET standard_conforming_strings = on;"                                                        \
    "SET DateStyle = 'ISO, YMD';"                                                                  \
    "SET TimeZone = 'UTC';"                                                                        \
    "SET bytea_output = 'hex';"                                                                    \
    "SET idle_in_transaction_session_timeout = 0;"                                                 \
    "SET idle_session_timeout = 0;"                                                                \
    "SET client_connection_check_interval = '2s';"                                                 \
    "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings"                   \
    " WHERE name = 'transaction_timeout';"                                                         \
    "SET jit = off;"

/* Cost must not grow with the tables: index look-ups only, whatever the statistics say. */
#define SETUP_PLANS                                                                                \
    "SET plan_cache_mode = force_generic_plan;"                                                    \
    "SET enable_seqscan = off;"                                                                    \
    "SET enable_hashjoin = off;"                                                                   \
    "SET enable_mergejoin = off;"                                                                  \
    "SET enable_hashagg = off;"                                                                    \
    "SET enable_material = off;"                                                                   \
    "SET enable_nestloop = on;"                                                                    \
    "SET enable_indexscan = on;"                                                                   \
    "SET enable_indexonlyscan = on;"                                                               \
    "SET enable_bitmapscan = on;"                                                                  \
    "SET enable_sort = on;"                                                                        \
    "SET max_parallel_workers_per_gather = 0;"

/* Ingest only ever raises synchronous_commit: remote_apply set by an operator stays. */
#define SETUP_DURABLE                                                                              \
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)"                              \
    " WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');"

const char store_setup_ingest[] =
    SETUP_COMMON SETUP_PLANS SETUP_DURABLE "SET statement_timeout = 0; SET lock_timeout = 0;";

const char store_setup_reader[] =
    SETUP_COMMON SETUP_PLANS "SET statement_timeout = '60s'; SET lock_timeout = '30s';";

#define SETUP_CONTROL                                                                              \
    SETUP_COMMON SETUP_PLANS                                                                       \
        "SET synchronous_commit = off; SET statement_timeout = '60s'; SET lock_timeout = '10s';"

const char store_setup_control[] = SETUP_CONTROL;

const char store_setup_lease[] = SETUP_CONTROL "LISTEN foldd_challenge;";

/* A fold lost with the last moments before a server crash is made again from the log (design 7). */
char *store_setup_worker(int64_t fold_timeout_ms)
{
    return mem_printf(SETUP_COMMON SETUP_PLANS
                      "SET synchronous_commit = off; SET statement_timeout = %lld;"
                      "SET lock_timeout = %d;",
                      (long long)fold_timeout_ms, STORE_FOLD_LOCK_WAIT_MS);
}

#define RFC3339(column)                                                                            \
    "to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

int store_row_count(const PGresult *result)
{
    return PQntuples(result);
}

static void param_term(struct pg_params *params, const struct term *term)
{
    pg_param_int8(params, term->epoch);
    pg_param_text(params, (struct span){term->token, strlen(term->token)});
}

static struct span text(const char *string)
{
    return (struct span){string, strlen(string)};
}

static void send(struct pg *pg, const struct pg_statement *statement, struct pg_params *params,
                 pg_result_fn on_result, void *arg)
{
    pg_submit(pg, statement, params, on_result, arg);
    pg_params_fini(params);
}

void store_schema(struct pg *pg, pg_result_fn on_result, void *arg)
{
    /* The table may not be there: query_to_xml runs the inner query only if it is. It is looked for
     * in the catalog itself, since after waiting for a lock to_regclass may still answer from a
     * cache. */
    static const struct pg_statement statement = {
        .name = "schema",
        .sql = "SELECT coalesce((xpath('//version/text()', x))[1]::text::bigint, 0),"
               " (xpath('//code/text()', x))[1]::text FROM (SELECT CASE"
               " WHEN EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
               " WHERE n.nspname = 'foldd' AND c.relname = 'migrations') THEN query_to_xml("
               "'SELECT version, code FROM foldd.migrations ORDER BY version DESC LIMIT 1',"
               " false, false, '') END) AS q(x)"};
    send(pg, &statement, &(struct pg_params){0}, on_result, arg);
}

struct store_schema_row store_schema_row(const PGresult *result)
{
    return (struct store_schema_row){.version = pg_get_int8(result, 0, 0),
                                     .code = pg_get_text(result, 0, 1)};
}

void store_backend(struct pg *pg, pg_result_fn on_result, void *arg)
{
    pg_submit_text(pg, "SELECT pg_backend_pid()", on_result, arg);
}

int64_t store_backend_row(const PGresult *result)
{
    return strtoll(PQgetvalue(result, 0, 0), NULL, 10);
}

void store_try_lock(struct pg *pg, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "try_lock", .sql = "SELECT pg_try_advisory_lock(1718578276, 2)"};
    send(pg, &statement, &(struct pg_params){0}, on_result, arg);
}

bool store_try_lock_row(const PGresult *result)
{
    return pg_get_bool(result, 0, 0);
}

void store_challenge(struct pg *pg, const char *challenger, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {.name = "challenge",
                                                  .sql = "SELECT foldd.challenge($1)",
                                                  .param_count = 1,
                                                  .types = {PG_TEXT}};
    struct pg_params params = {0};
    pg_param_text(&params, text(challenger));
    send(pg, &statement, &params, on_result, arg);
}

struct span store_challenge_row(const PGresult *result)
{
    return pg_get_text(result, 0, 0);
}

void store_challenge_answered(struct pg *pg, const char *challenger, pg_result_fn on_result,
                              void *arg)
{
    static const struct pg_statement statement = {.name = "challenge_answered",
                                                  .sql = "SELECT foldd.challenge_answered($1)",
                                                  .param_count = 1,
                                                  .types = {PG_TEXT}};
    struct pg_params params = {0};
    pg_param_text(&params, text(challenger));
    send(pg, &statement, &params, on_result, arg);
}

bool store_challenge_answered_row(const PGresult *result)
{
    return pg_get_bool(result, 0, 0);
}

void store_answer_challenges(struct pg *pg, const struct term *term, pg_result_fn on_result,
                             void *arg)
{
    static const struct pg_statement statement = {.name = "answer_challenges",
                                                  .sql = "SELECT foldd.answer_challenges($1, $2)",
                                                  .param_count = 2,
                                                  .types = {PG_INT8, PG_TEXT}};
    static const struct term none = {0};
    struct pg_params params = {0};
    param_term(&params, term == NULL ? &none : term);
    send(pg, &statement, &params, on_result, arg);
}

void store_end_holders(struct pg *pg, enum store_lock lock, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {.name = "end_holders",
                                                  .sql = "SELECT foldd.end_holders($1)",
                                                  .param_count = 1,
                                                  .types = {PG_INT4}};
    struct pg_params params = {0};
    pg_param_int4(&params, (int32_t)lock);
    send(pg, &statement, &params, on_result, arg);
}

int64_t store_end_holders_row(const PGresult *result)
{
    return pg_get_int8(result, 0, 0);
}

void store_lead(struct pg *pg, const char *token, const char *instance, int64_t known_head,
                pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "lead",
        .sql = "SELECT epoch, batch, head, cursor, received_us, ingest_paused, folding_paused,"
               " floor, lost FROM foldd.lead($1, $2, $3)",
        .param_count = 3,
        .types = {PG_TEXT, PG_TEXT, PG_INT8}};
    struct pg_params params = {0};
    pg_param_text(&params, text(token));
    pg_param_text(&params, text(instance));
    pg_param_int8(&params, known_head);
    send(pg, &statement, &params, on_result, arg);
}

struct store_lead_row store_lead_row(const PGresult *result)
{
    return (struct store_lead_row){.epoch = pg_get_int8(result, 0, 0),
                                   .batch = pg_get_int8(result, 0, 1),
                                   .head = pg_get_int8(result, 0, 2),
                                   .cursor = pg_get_int8(result, 0, 3),
                                   .received_us = pg_get_int8(result, 0, 4),
                                   .ingest_paused = pg_get_bool(result, 0, 5),
                                   .folding_paused = pg_get_bool(result, 0, 6),
                                   .floor = pg_get_int8(result, 0, 7),
                                   .lost = pg_get_text(result, 0, 8)};
}

void store_parked(struct pg *pg, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "parked",
        .sql = "SELECT collection, document, seq, attempts, greatest(0, "
               "(extract(epoch FROM next_try - clock_timestamp()) * 1000)::bigint)"
               " FROM foldd.parked ORDER BY next_try"};
    send(pg, &statement, &(struct pg_params){0}, on_result, arg);
}

struct store_parked_row store_parked_row(const PGresult *result, int row)
{
    return (struct store_parked_row){.collection = pg_get_text(result, row, 0),
                                     .document = pg_get_text(result, row, 1),
                                     .seq = pg_get_int8(result, row, 2),
                                     .attempts = pg_get_int4(result, row, 3),
                                     .due_in_ms = pg_get_int8(result, row, 4)};
}

#define PARAM_OPS(params, batch, add, value)                                                       \
    do {                                                                                           \
        const struct op *op;                                                                       \
        TAILQ_FOREACH(op, &(batch)->ops, link)                                                     \
            add(&(params), value);                                                                 \
        pg_array_end(&(params));                                                                   \
    } while (0)

void store_append(struct pg *pg, const struct term *term, const struct batch *batch,
                  pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "append",
        .sql = "SELECT n, seq, same FROM foldd.append($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)",
        .param_count = 12,
        .types = {PG_INT8, PG_TEXT, PG_INT8, PG_INT8, PG_TEXT_ARRAY, PG_TEXT_ARRAY, PG_TEXT_ARRAY,
                  PG_TEXT_ARRAY, PG_JSONB_ARRAY, PG_JSONB_ARRAY, PG_TIMESTAMPTZ_ARRAY,
                  PG_TEXT_ARRAY}};
    struct pg_params params = {0};
    buf_reserve(&params.bytes, batch->bytes + batch->count * 64 + 512);
    param_term(&params, term);
    pg_param_int8(&params, batch->number);
    pg_param_int8(&params, batch->base);
    pg_array_begin(&params, PG_TEXT);
    PARAM_OPS(params, batch, pg_array_text, op->document);
    pg_array_begin(&params, PG_TEXT);
    PARAM_OPS(params, batch, pg_array_text, op->collection);
    pg_array_begin(&params, PG_TEXT);
    PARAM_OPS(params, batch, pg_array_text, op->id);
    pg_array_begin(&params, PG_TEXT);
    PARAM_OPS(params, batch, pg_array_text, op->action);
    pg_array_begin(&params, PG_JSONB);
    PARAM_OPS(params, batch, pg_array_jsonb, op->fields);
    pg_array_begin(&params, PG_JSONB);
    PARAM_OPS(params, batch, pg_array_jsonb, op->meta);
    pg_array_begin(&params, PG_TIMESTAMPTZ);
    PARAM_OPS(params, batch, pg_array_time, op->received_us);
    pg_array_begin(&params, PG_TEXT);
    PARAM_OPS(params, batch, pg_array_text, text(op->actor));
    send(pg, &statement, &params, on_result, arg);
}

struct store_append_row store_append_row(const PGresult *result, int row)
{
    return (struct store_append_row){.n = pg_get_int8(result, row, 0),
                                     .seq = pg_get_int8(result, row, 1),
                                     .same = pg_get_bool(result, row, 2)};
}

void store_read_log(struct pg *pg, int64_t after, int64_t upto, int32_t limit,
                    pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "read_log",
        .sql = "SELECT seq, collection, document FROM foldd.operations"
               " WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3",
        .param_count = 3,
        .types = {PG_INT8, PG_INT8, PG_INT4}};
    struct pg_params params = {0};
    pg_param_int8(&params, after);
    pg_param_int8(&params, upto);
    pg_param_int4(&params, limit);
    send(pg, &statement, &params, on_result, arg);
}

struct store_log_row store_log_row(const PGresult *result, int row)
{
    return (struct store_log_row){.seq = pg_get_int8(result, row, 0),
                                  .collection = pg_get_text(result, row, 1),
                                  .document = pg_get_text(result, row, 2)};
}

void store_fold(struct pg *pg, const struct term *term, const struct doc_list *docs,
                pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "fold",
        .sql = "SELECT version, base, outcomes IS NULL FROM foldd.fold($1, $2, $3)",
        .param_count = 3,
        .types = {PG_INT8, PG_TEXT, PG_INT8_ARRAY}};
    struct pg_params params = {0};
    param_term(&params, term);
    pg_array_begin(&params, PG_INT8);
    const struct doc *doc;
    TAILQ_FOREACH(doc, docs, link)
        for (size_t i = 0; i < doc->chunk; i++)
            pg_array_int8(&params, doc_chunk(doc)[i]);
    pg_array_end(&params);
    send(pg, &statement, &params, on_result, arg);
}

struct store_fold_row store_fold_row(const PGresult *result, int row)
{
    return (struct store_fold_row){.version = pg_get_int8(result, row, 0),
                                   .base = pg_get_int8(result, row, 1),
                                   .plain = pg_get_bool(result, row, 2)};
}

void store_fold_parked(struct pg *pg, const struct term *term, const struct doc *doc,
                       int32_t max_ops, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "fold_parked",
        .sql = "SELECT coalesce(version, 0), coalesce(next_seq, 0)"
               " FROM foldd.fold_parked($1, $2, $3, $4, $5, $6)",
        .param_count = 6,
        .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8, PG_INT4}};
    struct pg_params params = {0};
    struct span collection;
    struct span document;
    op_split_key((struct span){doc->key, doc->key_len}, &collection, &document);
    param_term(&params, term);
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    pg_param_int8(&params, doc->upto);
    pg_param_int4(&params, max_ops);
    send(pg, &statement, &params, on_result, arg);
}

struct store_fold_parked_row store_fold_parked_row(const PGresult *result)
{
    return (struct store_fold_parked_row){.version = pg_get_int8(result, 0, 0),
                                          .next_seq = pg_get_int8(result, 0, 1)};
}

void store_versions(struct pg *pg, const int64_t *seqs, size_t count, pg_result_fn on_result,
                    void *arg)
{
    static const struct pg_statement statement = {.name = "versions",
                                                  .sql =
                                                      "SELECT seq, version FROM foldd.versions($1)",
                                                  .param_count = 1,
                                                  .types = {PG_INT8_ARRAY}};
    struct pg_params params = {0};
    pg_array_begin(&params, PG_INT8);
    for (size_t i = 0; i < count; i++)
        pg_array_int8(&params, seqs[i]);
    pg_array_end(&params);
    send(pg, &statement, &params, on_result, arg);
}

struct store_version_row store_version_row(const PGresult *result, int row)
{
    return (struct store_version_row){.seq = pg_get_int8(result, row, 0),
                                      .version = pg_get_int8(result, row, 1)};
}

void store_locked(struct pg *pg, const struct doc_list *docs, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "locked",
        .sql = "SELECT locked FROM foldd.locked($1) AS locked",
        .param_count = 1,
        .types = {PG_INT8_ARRAY}};
    struct pg_params params = {0};
    pg_array_begin(&params, PG_INT8);
    const struct doc *doc;
    TAILQ_FOREACH(doc, docs, link)
        pg_array_int8(&params, doc_chunk(doc)[0]);
    pg_array_end(&params);
    send(pg, &statement, &params, on_result, arg);
}

int64_t store_locked_row(const PGresult *result, int row)
{
    return pg_get_int8(result, row, 0);
}

void store_probe(struct pg *pg, pg_result_fn on_result, void *arg)
{
    pg_submit_text(pg,
                   "BEGIN; SET LOCAL lock_timeout = '20ms';"
                   " LOCK TABLE foldd.documents, foldd.outcomes IN ROW EXCLUSIVE MODE;"
                   " LOCK TABLE foldd.operations, foldd.skipped, foldd.leader IN ACCESS SHARE MODE;"
                   " ROLLBACK",
                   on_result, arg);
}

static void ignore_result(void *arg, const PGresult *result, const struct err *err)
{
    (void)arg;
    (void)result;
    (void)err;
}

void store_rollback(struct pg *pg)
{
    pg_submit_text(pg, "ROLLBACK", ignore_result, NULL);
}

void store_park(struct pg *pg, const struct term *term, const struct store_park *park,
                pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "park",
        .sql = "SELECT foldd.park($1, $2, $3, $4, $5, $6, $7, $8)",
        .param_count = 8,
        .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8, PG_TEXT, PG_TEXT, PG_INT8}};
    struct pg_params params = {0};
    struct span collection;
    struct span document;
    op_split_key(park->key, &collection, &document);
    param_term(&params, term);
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    pg_param_int8(&params, park->seq);
    pg_param_text(&params, text(park->sqlstate));
    pg_param_text(&params, text(park->message));
    pg_param_int8(&params, park->delay_ms);
    send(pg, &statement, &params, on_result, arg);
}

int32_t store_park_row(const PGresult *result)
{
    return pg_get_int4(result, 0, 0);
}

void store_save_cursor(struct pg *pg, const struct term *term, int64_t seq, pg_result_fn on_result,
                       void *arg)
{
    static const struct pg_statement statement = {.name = "save_cursor",
                                                  .sql = "SELECT foldd.save_cursor($1, $2, $3)",
                                                  .param_count = 3,
                                                  .types = {PG_INT8, PG_TEXT, PG_INT8}};
    struct pg_params params = {0};
    param_term(&params, term);
    pg_param_int8(&params, seq);
    send(pg, &statement, &params, on_result, arg);
}

void store_head(struct pg *pg, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {.name = "head", .sql = "SELECT foldd.head()"};
    send(pg, &statement, &(struct pg_params){0}, on_result, arg);
}

int64_t store_head_row(const PGresult *result)
{
    return pg_get_int8(result, 0, 0);
}

void store_document(struct pg *pg, struct span collection, struct span document,
                    pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "document",
        .sql = "SELECT version, revision, deleted, fields::text FROM foldd.documents"
               " WHERE collection = $1 AND id = $2 AND revision > 0",
        .param_count = 2,
        .types = {PG_TEXT, PG_TEXT}};
    struct pg_params params = {0};
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    send(pg, &statement, &params, on_result, arg);
}

struct store_document_row store_document_row(const PGresult *result)
{
    return (struct store_document_row){.version = pg_get_int8(result, 0, 0),
                                       .revision = pg_get_int8(result, 0, 1),
                                       .deleted = pg_get_bool(result, 0, 2),
                                       .fields = pg_get_text(result, 0, 3)};
}

void store_operation(struct pg *pg, struct span collection, struct span document, struct span id,
                     int64_t seq, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "operation",
        .sql = "SELECT seq, collection, document, id, action,"
               " " RFC3339("received_at") ","
                                          " actor, version, outcome, reason, sqlstate"
                                          " FROM foldd.operation_state($1, $2, $3, $4)",
        .param_count = 4,
        .types = {PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8}};
    struct pg_params params = {0};
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    pg_param_text(&params, id);
    pg_param_int8(&params, seq);
    send(pg, &statement, &params, on_result, arg);
}

struct store_operation_row store_operation_row(const PGresult *result)
{
    return (struct store_operation_row){.seq = pg_get_int8(result, 0, 0),
                                        .collection = pg_get_text(result, 0, 1),
                                        .document = pg_get_text(result, 0, 2),
                                        .id = pg_get_text(result, 0, 3),
                                        .action = pg_get_text(result, 0, 4),
                                        .received_at = pg_get_text(result, 0, 5),
                                        .actor = pg_get_text(result, 0, 6),
                                        .version = pg_get_int8(result, 0, 7),
                                        .outcome = pg_get_text(result, 0, 8),
                                        .reason = pg_get_text(result, 0, 9),
                                        .sqlstate = pg_get_text(result, 0, 10)};
}

void store_parked_list(struct pg *pg, struct span collection, struct span document, int32_t limit,
                       pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "parked_list",
        .sql = "SELECT collection, document, seq, sqlstate, message, attempts,"
               " " RFC3339("parked_at") ", " RFC3339(
                   "next_try") " FROM foldd.parked"
                               " WHERE $2 IS NULL OR (document, collection) > ($2, $1)"
                               " ORDER BY document, collection LIMIT $3",
        .param_count = 3,
        .types = {PG_TEXT, PG_TEXT, PG_INT4}};
    struct pg_params params = {0};
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    pg_param_int4(&params, limit);
    send(pg, &statement, &params, on_result, arg);
}

struct store_parked_list_row store_parked_list_row(const PGresult *result, int row)
{
    return (struct store_parked_list_row){.collection = pg_get_text(result, row, 0),
                                          .document = pg_get_text(result, row, 1),
                                          .seq = pg_get_int8(result, row, 2),
                                          .sqlstate = pg_get_text(result, row, 3),
                                          .message = pg_get_text(result, row, 4),
                                          .attempts = pg_get_int4(result, row, 5),
                                          .parked_at = pg_get_text(result, row, 6),
                                          .next_try = pg_get_text(result, row, 7)};
}

void store_retry(struct pg *pg, const struct term *term, struct span collection,
                 struct span document, pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {.name = "retry",
                                                  .sql = "SELECT foldd.retry($1, $2, $3, $4)",
                                                  .param_count = 4,
                                                  .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_TEXT}};
    struct pg_params params = {0};
    param_term(&params, term);
    pg_param_text(&params, collection);
    pg_param_text(&params, document);
    send(pg, &statement, &params, on_result, arg);
}

int64_t store_retry_row(const PGresult *result)
{
    return pg_get_int8(result, 0, 0);
}

void store_skip(struct pg *pg, const struct term *term, const struct store_skip *skip,
                pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "skip",
        .sql = "SELECT foldd.skip($1, $2, $3, $4, $5, $6, $7)",
        .param_count = 7,
        .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8, PG_TEXT, PG_TEXT}};
    struct pg_params params = {0};
    param_term(&params, term);
    pg_param_text(&params, skip->collection);
    pg_param_text(&params, skip->document);
    pg_param_int8(&params, skip->seq);
    pg_param_text(&params, skip->reason);
    pg_param_text(&params, text(skip->actor));
    send(pg, &statement, &params, on_result, arg);
}

struct span store_skip_row(const PGresult *result)
{
    return pg_get_text(result, 0, 0);
}

void store_set_pause(struct pg *pg, const struct term *term, const struct store_pause *pause,
                     pg_result_fn on_result, void *arg)
{
    static const struct pg_statement statement = {
        .name = "set_pause",
        .sql = "SELECT foldd.set_pause($1, $2, $3, $4, $5, $6)",
        .param_count = 6,
        .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_BOOL, PG_TEXT, PG_TEXT}};
    struct pg_params params = {0};
    param_term(&params, term);
    pg_param_text(&params, pause->what);
    pg_param_bool(&params, pause->paused);
    pg_param_text(&params, pause->reason);
    pg_param_text(&params, text(pause->actor));
    send(pg, &statement, &params, on_result, arg);
}
