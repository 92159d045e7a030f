/* SPDX-License-Identifier: MIT */
#include "bare.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "clock.h"
#include "mem.h"
#include "store.h"

/* bare_lead leads with these. */
#define TOKEN "bench"
enum { EPOCH = 1, FOLD_TIMEOUT_MS = 60000 };

struct bare_log {
    struct pg_params *batches;
    size_t count;
    size_t op_count;
};

struct bare_head {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t seq;
};

struct bare_loop {
    void (*run)(struct bare_loop *loop);
    PGconn *db;
    pthread_t thread;
    struct bare_head *head;
    const struct bare_log *log; /* appending */
    int64_t *seqs;              /* folding: what it has to fold, in order */
    size_t seq_count;
};

static const struct pg_statement append_statement = {
    .name = "append",
    .sql = "SELECT n, seq, same FROM foldd.append($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)",
    .param_count = 12,
    .types = {PG_INT8, PG_TEXT, PG_INT8, PG_INT8, PG_TEXT_ARRAY, PG_TEXT_ARRAY, PG_TEXT_ARRAY,
              PG_TEXT_ARRAY, PG_JSONB_ARRAY, PG_JSONB_ARRAY, PG_TIMESTAMPTZ_ARRAY, PG_TEXT_ARRAY}};

static const struct pg_statement fold_statement = {
    .name = "fold",
    .sql = "SELECT version, outcomes IS NULL FROM foldd.fold($1, $2, $3)",
    .param_count = 3,
    .types = {PG_INT8, PG_TEXT, PG_INT8_ARRAY}};

/* The digest is as long as a real one, and costs nothing here. */
static const struct pg_statement insert_statement = {
    .name = "insert",
    .sql = "INSERT INTO foldd.operations (seq, collection, document, id, action, fields, meta,"
           " received_at, actor, digest) VALUES ($1, 'default', $2, $3, $4, $5::text::jsonb, NULL,"
           " now(), $6, '\\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff')",
    .param_count = 6,
    .types = {PG_INT8, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT}};

static struct span text(const char *string)
{
    return (struct span){string, strlen(string)};
}

/* --- statements */

static void must(PGconn *db, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s",
                  PQerrorMessage(db));
    PQclear(result);
}

static PGconn *connect_with(struct env *env, const char *setup,
                            const struct pg_statement *statement)
{
    Oid types[PG_MAX_PARAMS];
    for (int i = 0; i < statement->param_count; i++)
        types[i] = (Oid)statement->types[i];
    PGconn *db = PQconnectdb(env->conninfo);
    ck_assert_msg(PQstatus(db) == CONNECTION_OK, "%s", PQerrorMessage(db));
    must(db, PQexec(db, setup));
    must(db, PQprepare(db, statement->name, statement->sql, statement->param_count, types));
    return db;
}

/* Given: the result, which is not an error. */
static PGresult *run_statement(PGconn *db, const struct pg_statement *statement,
                               const struct pg_params *params)
{
    static const int binary[PG_MAX_PARAMS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *values[PG_MAX_PARAMS];
    for (int i = 0; i < params->count; i++)
        values[i] = params->bytes.data + params->at[i];
    PGresult *result =
        PQexecPrepared(db, statement->name, params->count, values, params->len, binary, 1);
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s",
                  PQerrorMessage(db));
    return result;
}

/* --- the log */

static void add_ids(struct pg_params *params, const struct workload *workload, size_t from,
                    size_t upto)
{
    char id[WORK_ID_MAX];
    pg_array_begin(params, PG_TEXT);
    for (size_t i = from; i < upto; i++) {
        workload_document_id(workload->ops[i].document, id);
        pg_array_text(params, text(id));
    }
    pg_array_end(params);
    pg_array_begin(params, PG_TEXT);
    for (size_t i = from; i < upto; i++)
        pg_array_text(params, text("default"));
    pg_array_end(params);
    pg_array_begin(params, PG_TEXT);
    for (size_t i = from; i < upto; i++) {
        workload_op_id(i, id);
        pg_array_text(params, text(id));
    }
    pg_array_end(params);
}

static void add_contents(struct pg_params *params, const struct workload *workload, size_t from,
                         size_t upto)
{
    pg_array_begin(params, PG_TEXT);
    for (size_t i = from; i < upto; i++)
        pg_array_text(params, text(workload->ops[i].creates ? "create" : "update"));
    pg_array_end(params);
    pg_array_begin(params, PG_JSONB);
    for (size_t i = from; i < upto; i++)
        pg_array_jsonb(params, workload_fields(workload, i));
    pg_array_end(params);
    pg_array_begin(params, PG_JSONB);
    for (size_t i = from; i < upto; i++)
        pg_array_jsonb(params, (struct span){NULL, 0});
    pg_array_end(params);
}

static void add_origins(struct pg_params *params, size_t count)
{
    int64_t now_us = clock_wall_us();
    pg_array_begin(params, PG_TIMESTAMPTZ);
    for (size_t i = 0; i < count; i++)
        pg_array_time(params, now_us);
    pg_array_end(params);
    pg_array_begin(params, PG_TEXT);
    for (size_t i = 0; i < count; i++)
        pg_array_text(params, text("uid:1000"));
    pg_array_end(params);
}

struct bare_log *bare_log_new(const struct workload *workload)
{
    struct bare_log *log = mem_zalloc(sizeof *log);
    log->op_count = workload->op_count;
    log->count = (workload->op_count + BENCH_BATCH_OPS - 1) / BENCH_BATCH_OPS;
    log->batches = mem_zalloc(log->count * sizeof log->batches[0]);
    for (size_t i = 0; i < log->count; i++) {
        struct pg_params *params = &log->batches[i];
        size_t from = i * BENCH_BATCH_OPS;
        size_t left = workload->op_count - from;
        size_t upto = from + (left < BENCH_BATCH_OPS ? left : BENCH_BATCH_OPS);
        pg_param_int8(params, EPOCH);
        pg_param_text(params, text(TOKEN));
        pg_param_int8(params, (int64_t)i + 1);
        pg_param_int8(params, (int64_t)from + 1);
        add_ids(params, workload, from, upto);
        add_contents(params, workload, from, upto);
        add_origins(params, upto - from);
    }
    return log;
}

void bare_log_free(struct bare_log *log)
{
    if (log == NULL)
        return;
    for (size_t i = 0; i < log->count; i++)
        pg_params_fini(&log->batches[i]);
    free(log->batches);
    free(log);
}

void bare_lead(struct env *env)
{
    int64_t epoch = sql_int(env, "SELECT epoch FROM foldd.lead('" TOKEN "', 'bench', 0)");
    ck_assert_msg(epoch == EPOCH, "the database has had %lld leaders before", (long long)epoch);
}

/* --- the head */

struct bare_head *bare_head_new(int64_t seq)
{
    struct bare_head *head = mem_zalloc(sizeof *head);
    pthread_mutex_init(&head->lock, NULL);
    pthread_cond_init(&head->moved, NULL);
    head->seq = seq;
    return head;
}

void bare_head_free(struct bare_head *head)
{
    pthread_mutex_destroy(&head->lock);
    pthread_cond_destroy(&head->moved);
    free(head);
}

static void move_head(struct bare_head *head, int64_t seq)
{
    pthread_mutex_lock(&head->lock);
    head->seq = seq;
    pthread_cond_broadcast(&head->moved);
    pthread_mutex_unlock(&head->lock);
}

/* Wait until it is at seq or further, and return it. */
static int64_t await_head(struct bare_head *head, int64_t seq)
{
    pthread_mutex_lock(&head->lock);
    while (head->seq < seq)
        pthread_cond_wait(&head->moved, &head->lock);
    int64_t now = head->seq;
    pthread_mutex_unlock(&head->lock);
    return now;
}

/* --- the loops */

static void run_append(struct bare_loop *loop)
{
    const struct bare_log *log = loop->log;
    for (size_t i = 0; i < log->count; i++) {
        PGresult *result = run_statement(loop->db, &append_statement, &log->batches[i]);
        ck_assert_msg(PQntuples(result) == 0, "an id was in the log already");
        PQclear(result);
        size_t done = (i + 1) * BENCH_BATCH_OPS;
        move_head(loop->head, (int64_t)(done < log->op_count ? done : log->op_count));
    }
}

/* One statement: the operations from..upto-1 of the loop. */
static void fold_some(struct bare_loop *loop, size_t from, size_t upto)
{
    struct pg_params params = {0};
    pg_param_int8(&params, EPOCH);
    pg_param_text(&params, text(TOKEN));
    pg_array_begin(&params, PG_INT8);
    for (size_t i = from; i < upto; i++)
        pg_array_int8(&params, loop->seqs[i]);
    pg_array_end(&params);
    PQclear(run_statement(loop->db, &fold_statement, &params));
    pg_params_fini(&params);
}

static void run_fold(struct bare_loop *loop)
{
    for (size_t from = 0; from < loop->seq_count;) {
        int64_t head = await_head(loop->head, loop->seqs[from]);
        size_t upto = from;
        while (upto < loop->seq_count && upto - from < BENCH_FOLD_OPS && loop->seqs[upto] <= head)
            upto++;
        fold_some(loop, from, upto);
        from = upto;
    }
}

struct bare_loop *bare_append_new(struct env *env, const struct bare_log *log,
                                  struct bare_head *head)
{
    struct bare_loop *loop = mem_zalloc(sizeof *loop);
    loop->run = run_append;
    loop->log = log;
    loop->head = head;
    loop->db = connect_with(env, store_setup_ingest, &append_statement);
    return loop;
}

struct bare_loop *bare_fold_new(struct env *env, const struct workload *workload,
                                struct bare_head *head, size_t part, size_t parts)
{
    struct bare_loop *loop = mem_zalloc(sizeof *loop);
    char *setup = store_setup_worker(FOLD_TIMEOUT_MS);
    loop->run = run_fold;
    loop->head = head;
    loop->db = connect_with(env, setup, &fold_statement);
    loop->seqs = mem_alloc(workload->op_count * sizeof loop->seqs[0]);
    for (size_t i = 0; i < workload->op_count; i++)
        if (workload_client(workload, i, parts) == part)
            loop->seqs[loop->seq_count++] = (int64_t)i + 1;
    free(setup);
    return loop;
}

static void *run_thread(void *arg)
{
    struct bare_loop *loop = arg;
    loop->run(loop);
    return NULL;
}

double bare_run(struct bare_loop *const *loops, size_t count)
{
    int64_t start_us = clock_mono_us();
    for (size_t i = 0; i < count; i++)
        ck_assert(pthread_create(&loops[i]->thread, NULL, run_thread, loops[i]) == 0);
    for (size_t i = 0; i < count; i++)
        ck_assert(pthread_join(loops[i]->thread, NULL) == 0);
    double seconds = (double)(clock_mono_us() - start_us) / 1e6;
    for (size_t i = 0; i < count; i++) {
        PQfinish(loops[i]->db);
        free(loops[i]->seqs);
        free(loops[i]);
    }
    return seconds;
}

/* --- one row at a time */

void bare_insert(struct env *env, const struct workload *workload, double *times_us)
{
    char id[WORK_ID_MAX];
    char document[WORK_ID_MAX];
    PGconn *db = connect_with(env, store_setup_ingest, &insert_statement);
    struct pg_params params = {0};
    for (size_t i = 0; i < workload->op_count; i++) {
        pg_params_reset(&params);
        workload_op_id(i, id);
        workload_document_id(workload->ops[i].document, document);
        pg_param_int8(&params, (int64_t)i + 1);
        pg_param_text(&params, text(document));
        pg_param_text(&params, text(id));
        pg_param_text(&params, text(workload->ops[i].creates ? "create" : "update"));
        pg_param_text(&params, workload_fields(workload, i));
        pg_param_text(&params, text("uid:1000"));
        int64_t start_us = clock_mono_us();
        PQclear(run_statement(db, &insert_statement, &params));
        times_us[i] = (double)(clock_mono_us() - start_us);
    }
    pg_params_fini(&params);
    PQfinish(db);
}

int64_t *bare_seqs(const struct workload *workload)
{
    int64_t *seqs = mem_alloc(workload->op_count * sizeof *seqs);
    for (size_t i = 0; i < workload->op_count; i++)
        seqs[i] = (int64_t)i + 1;
    return seqs;
}
