/* SPDX-License-Identifier: MIT */
/*
 * One worker: a connection that folds, and what it does when a fold fails. A part of dispatch.
 *
 * fold ok       -> what came back is settled; documents missing from the answer are looked up (R14)
 * 55P03         -> one look names the rows that others hold: these documents go aside and are
 * parked after lock_timeout, the rest is folded at once (R16, R17). None named: if the table itself
 * cannot be locked it is the database's state, else split. the term over -> end the term transient
 * -> the tasks go back, folding backs off anything else -> split: first by documents, then by a
 * lone document's operations, until one operation fails alone. Its document goes aside once, and is
 * parked when it fails again although others fold, or when there are no others (R16).
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dispatch_internal.h"
#include "log.h"
#include "mem.h"
#include "retry.h"

enum {
    ASIDE_BASE_MS = 50,
    ASIDE_CAP_MS = 500,
    CROWD_MS = 2, /* more aside for each document that failed alone since one folded */
    CROWD_CAP_MS = 10000,
    CROWD_LOG = 30,
    STUCK_TURNS = 4, /* folds that took no effect, before the document is blamed */
};

static void on_ready(void *arg, struct pg *pg)
{
    struct worker *worker = arg;
    (void)pg;
    worker->connected = true;
}

static void on_lost(void *arg, struct pg *pg, const struct err *err)
{
    struct worker *worker = arg;
    (void)pg;
    if (worker->connected) {
        struct err wrapped = *err;
        err_wrap(&wrapped, "foldd worker");
        worker->dispatch->events.on_trouble(worker->dispatch->events.arg, &wrapped);
        return;
    }
    log_warning("worker_missing", "error=%s", log_text(err->message));
    dispatch_worker_missing(worker->dispatch);
}

void worker_init(struct worker *worker, struct dispatch *dispatch, struct evdns_base *dns)
{
    const struct pg_events events = {on_ready, on_lost, worker};
    worker->dispatch = dispatch;
    worker->pg = pg_new(dispatch->base, dns, "foldd worker", dispatch->worker_setup, &events);
    pg_set_deadlines(worker->pg, dispatch->options.db_timeout_ms,
                     dispatch->options.fold_timeout_ms + dispatch->options.db_timeout_ms);
    TAILQ_INIT(&worker->docs);
}

void worker_fini(struct worker *worker)
{
    pg_free(worker->pg);
}

void worker_open(struct worker *worker)
{
    worker->connected = false;
    worker->state = WORKER_FREE;
    pg_open(worker->pg, worker->dispatch->conninfo);
}

/* The documents themselves go with the term's docs. */
void worker_close(struct worker *worker)
{
    pg_close(worker->pg);
    worker->state = WORKER_FREE;
    worker->connected = false;
    worker->doc_count = 0;
    worker->retry = NULL;
    TAILQ_INIT(&worker->docs);
}

bool worker_is_free(const struct worker *worker)
{
    return worker->state == WORKER_FREE && pg_is_ready(worker->pg);
}

static struct doc *pop(struct worker *worker)
{
    struct doc *doc = TAILQ_FIRST(&worker->docs);
    TAILQ_REMOVE(&worker->docs, doc, link);
    worker->doc_count--;
    return doc;
}

static struct doc *pop_last(struct worker *worker)
{
    struct doc *doc = TAILQ_LAST(&worker->docs, doc_list);
    TAILQ_REMOVE(&worker->docs, doc, link);
    worker->doc_count--;
    return doc;
}

/* Back to the head of the queue, in the order in which they were taken. */
static void requeue_all(struct worker *worker)
{
    worker->state = WORKER_FREE;
    while (worker->doc_count > 0)
        docs_requeue(worker->dispatch->docs, pop_last(worker));
}

/* fold_timeout has stopped a statement; each further try of a runaway costs as much again. */
static bool is_timeout(const struct err *err)
{
    return strcmp(err->sqlstate, "57014") == 0;
}

static void split_all(struct worker *worker)
{
    size_t count = worker->doc_count;
    bool slow = is_timeout(&worker->err);
    worker->state = WORKER_FREE;
    while (worker->doc_count > 0) {
        struct doc *doc = pop_last(worker);
        if (slow)
            docs_split_whole(worker->dispatch->docs, doc, count);
        else
            docs_split(worker->dispatch->docs, doc, count);
    }
}

static void trouble(struct worker *worker, const struct err *err)
{
    worker->dispatch->events.on_trouble(worker->dispatch->events.arg, err);
}

static void note_failure(struct worker *worker, struct doc *doc)
{
    if (doc->failures++ > 0)
        return;
    doc->failing_ms = clock_mono_ms();
    doc->ok_at_fail = worker->dispatch->folds_ok;
}

/* The more documents fail without any that folds, the longer each waits: when all fail alike it is
 * the database's state, and trying them at full speed would help nobody. */
static void set_aside(struct worker *worker, struct doc *doc)
{
    int64_t delay_ms = retry_delay_ms(ASIDE_BASE_MS, ASIDE_CAP_MS, doc->failures, arc4random());
    int64_t crowd_ms = (int64_t)worker->dispatch->fails_in_row * CROWD_MS;
    delay_ms += crowd_ms < CROWD_CAP_MS ? crowd_ms : CROWD_CAP_MS;
    docs_set_aside(worker->dispatch->docs, doc, clock_mono_ms() + delay_ms);
}

/* --- locked rows */

static void aside_or_park_locked(struct worker *worker, struct doc *doc)
{
    note_failure(worker, doc);
    if (clock_mono_ms() - doc->failing_ms >= worker->dispatch->options.lock_timeout_ms)
        dispatch_park(worker->dispatch, doc, doc_chunk(doc)[0], &worker->err);
    else
        set_aside(worker, doc);
}

static void on_probed(void *arg, const PGresult *result, const struct err *err)
{
    struct worker *worker = arg;
    if (result == NULL) {
        (void)err;
        /* R3: the failed transaction must not stay open. */
        store_rollback(worker->pg);
        requeue_all(worker);
        dispatch_back_off(worker->dispatch, &worker->err);
    } else if (worker->doc_count > 1) {
        split_all(worker);
    } else {
        worker->state = WORKER_FREE;
        aside_or_park_locked(worker, pop(worker));
    }
}

static bool is_named(const PGresult *result, int64_t seq)
{
    for (int i = 0; i < store_row_count(result); i++)
        if (store_locked_row(result, i) == seq)
            return true;
    return false;
}

static void on_looked(void *arg, const PGresult *result, const struct err *err)
{
    struct worker *worker = arg;
    if (result == NULL || store_row_count(result) == 0) {
        (void)err;
        worker->state = WORKER_PROBING;
        store_probe(worker->pg, on_probed, worker);
        return;
    }
    worker->state = WORKER_FREE;
    while (worker->doc_count > 0) {
        struct doc *doc = pop_last(worker);
        if (is_named(result, doc_chunk(doc)[0]))
            aside_or_park_locked(worker, doc);
        else
            docs_requeue(worker->dispatch->docs, doc);
    }
}

/* --- folds that fail */

static bool others_have_work(const struct worker *worker)
{
    struct docs_counts counts = docs_counts(worker->dispatch->docs);
    return counts.queued > 0 || counts.aside > 0 || counts.running > 1;
}

/* One operation of one document has failed alone. */
static void on_culprit(struct worker *worker)
{
    struct dispatch *dispatch = worker->dispatch;
    struct doc *doc = pop(worker);
    worker->state = WORKER_FREE;
    note_failure(worker, doc);
    if (++dispatch->fails_in_row == CROWD_LOG)
        log_warning("nothing_folds", "failures=%u sqlstate=%s error=%s", dispatch->fails_in_row,
                    worker->err.sqlstate, log_text(worker->err.message));
    bool neighbours_fold = dispatch->folds_ok > doc->ok_at_fail;
    if (doc->failures > 1 && (neighbours_fold || !others_have_work(worker)))
        dispatch_park(dispatch, doc, doc_chunk(doc)[0], &worker->err);
    else
        set_aside(worker, doc);
}

static void on_data_error(struct worker *worker)
{
    const struct doc *first = TAILQ_FIRST(&worker->docs);
    if (worker->doc_count == 1 && first->chunk == 1)
        on_culprit(worker);
    else
        split_all(worker);
}

static bool is_term_over(const struct err *err)
{
    return strcmp(err->sqlstate, "FD001") == 0;
}

static void on_fold_failed(struct worker *worker, const struct err *err)
{
    worker->err = *err;
    if (is_term_over(err)) {
        trouble(worker, err);
    } else if (strcmp(err->sqlstate, "55P03") == 0) {
        worker->state = WORKER_LOOKING;
        store_locked(worker->pg, &worker->docs, on_looked, worker);
    } else if (err->class == ERR_TRANSIENT && !is_timeout(err)) {
        requeue_all(worker);
        dispatch_back_off(worker->dispatch, err);
    } else {
        on_data_error(worker);
    }
}

/* --- folds that succeed */

static int by_last_seq(const void *a, const void *b)
{
    const struct doc *x = *(struct doc *const *)a;
    const struct doc *y = *(struct doc *const *)b;
    int64_t i = doc_chunk(x)[x->chunk - 1];
    int64_t j = doc_chunk(y)[y->chunk - 1];
    return i < j ? -1 : i > j;
}

/* Given: the worker's documents in the order of their last operations, which are their new
 * versions. */
static struct doc **sort_docs(const struct worker *worker)
{
    struct doc **sorted = mem_alloc(worker->doc_count * sizeof(struct doc *));
    struct doc *doc;
    size_t count = 0;
    TAILQ_FOREACH(doc, &worker->docs, link)
        sorted[count++] = doc;
    qsort(sorted, count, sizeof(struct doc *), by_last_seq);
    return sorted;
}

static struct doc *find_doc(struct doc **sorted, size_t count, int64_t last_seq)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (doc_chunk(sorted[mid])[sorted[mid]->chunk - 1] < last_seq)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && doc_chunk(sorted[low])[sorted[low]->chunk - 1] == last_seq ? sorted[low]
                                                                                     : NULL;
}

/* How many of the chunk the row contains already. */
static size_t covered(const struct doc *doc, int64_t version)
{
    size_t count = 0;
    while (count < doc->chunk && doc_chunk(doc)[count] <= version)
        count++;
    return count;
}

static void on_checked(void *arg, const PGresult *result, const struct err *err);

/* R14: neither done nor failed. */
static void check_missing(struct worker *worker)
{
    if (worker->doc_count == 0) {
        worker->state = WORKER_FREE;
        return;
    }
    int64_t *seqs = mem_alloc(worker->doc_count * sizeof(*seqs));
    const struct doc *doc;
    size_t count = 0;
    TAILQ_FOREACH(doc, &worker->docs, link)
        seqs[count++] = doc_chunk(doc)[doc->chunk - 1];
    worker->state = WORKER_CHECKING;
    store_versions(worker->pg, seqs, count, on_checked, worker);
    free(seqs);
}

static void on_folded(void *arg, const PGresult *result, const struct err *err)
{
    struct worker *worker = arg;
    struct dispatch *dispatch = worker->dispatch;
    if (result == NULL) {
        on_fold_failed(worker, err);
        return;
    }
    dispatch_fold_succeeded(dispatch);
    size_t count = worker->doc_count;
    struct doc **sorted = sort_docs(worker);
    int rows = store_row_count(result);
    for (int i = 0; i < rows; i++) {
        struct store_fold_row row = store_fold_row(result, i);
        struct doc *doc = find_doc(sorted, count, row.version);
        if (doc == NULL)
            continue;
        /* A document of the answer is freed only after the search is over. */
        doc->answered = true;
        dispatch_settle(dispatch, doc, doc->chunk, row.plain ? covered(doc, row.base) : doc->chunk,
                        row.version);
    }
    for (size_t i = 0; i < count; i++) {
        struct doc *doc = sorted[i];
        if (!doc->answered)
            continue;
        doc->answered = false;
        TAILQ_REMOVE(&worker->docs, doc, link);
        worker->doc_count--;
        docs_done(dispatch->docs, doc, doc->chunk);
    }
    free(sorted);
    check_missing(worker);
}

static void on_unchanged(struct worker *worker, struct doc *doc)
{
    note_failure(worker, doc);
    if (doc->failures < STUCK_TURNS) {
        docs_requeue(worker->dispatch->docs, doc);
        return;
    }
    struct err err;
    err_set(&err, ERR_DATA,
            "the document's row is not written: does a trigger or rule of "
            "foldd.documents drop it?");
    memcpy(err.sqlstate, "FD011", sizeof(err.sqlstate));
    dispatch_park(worker->dispatch, doc, doc_chunk(doc)[0], &err);
}

/* R28: a document that is ahead of the log would swallow what is acknowledged from now on. */
static bool is_ahead(struct worker *worker, const PGresult *result)
{
    for (int i = 0; i < store_row_count(result); i++) {
        struct store_version_row row = store_version_row(result, i);
        if (row.version <= worker->dispatch->head)
            continue;
        struct err err;
        err_set(&err, ERR_FATAL,
                "the document of operation %lld has version %lld, ahead of the log (%lld): two "
                "states of this database were mixed by a restore; SELECT foldd.repair() mends it",
                (long long)row.seq, (long long)row.version, (long long)worker->dispatch->head);
        worker->dispatch->events.on_fatal(worker->dispatch->events.arg, &err);
        return true;
    }
    return false;
}

static void on_checked(void *arg, const PGresult *result, const struct err *err)
{
    struct worker *worker = arg;
    struct dispatch *dispatch = worker->dispatch;
    if (result == NULL) {
        trouble(worker, err);
        return;
    }
    if (is_ahead(worker, result))
        return;
    size_t count = worker->doc_count;
    struct doc **sorted = sort_docs(worker);
    for (int i = 0; i < store_row_count(result); i++) {
        struct store_version_row row = store_version_row(result, i);
        struct doc *doc = find_doc(sorted, count, row.seq);
        if (doc == NULL)
            continue;
        doc->answered = true;
        size_t done = covered(doc, row.version);
        TAILQ_REMOVE(&worker->docs, doc, link);
        worker->doc_count--;
        if (done == 0) {
            doc->answered = false;
            on_unchanged(worker, doc);
            /* It may be searched for no more, but stays allocated: it has work. */
            continue;
        }
        dispatch_settle(dispatch, doc, done, done, row.version);
        doc->done = done;
    }
    for (size_t i = 0; i < count; i++) {
        struct doc *doc = sorted[i];
        if (!doc->answered)
            continue;
        doc->answered = false;
        docs_done(dispatch->docs, doc, doc->done);
    }
    free(sorted);
    /* What is not even in the log cannot be folded: somebody has deleted it. */
    while (worker->doc_count > 0) {
        struct doc *doc = pop(worker);
        log_error("operation_gone", "seq=%lld", (long long)doc_chunk(doc)[doc->chunk - 1]);
        dispatch_settle(dispatch, doc, doc->chunk, doc->chunk, 0);
        docs_done(dispatch->docs, doc, doc->chunk);
    }
    worker->state = WORKER_FREE;
}

bool worker_fold(struct worker *worker)
{
    worker->doc_count = docs_take(worker->dispatch->docs, &worker->docs, clock_mono_ms());
    if (worker->doc_count == 0)
        return false;
    worker->state = WORKER_FOLDING;
    store_fold(worker->pg, worker->dispatch->term, &worker->docs, on_folded, worker);
    return true;
}

/* --- parked documents */

static void on_retried(void *arg, const PGresult *result, const struct err *err);

static void send_retry(struct worker *worker)
{
    struct doc *doc = worker->retry;
    size_t max_ops = worker->dispatch->options.docs.chunk_ops;
    if (doc->op_cap > 0 && doc->op_cap < max_ops)
        max_ops = doc->op_cap;
    store_fold_parked(worker->pg, worker->dispatch->term, doc, (int32_t)max_ops, on_retried,
                      worker);
}

void worker_retry(struct worker *worker, struct doc *doc)
{
    worker->dispatch->retries++;
    docs_retry(worker->dispatch->docs, doc, worker->dispatch->taken);
    worker->state = WORKER_RETRYING;
    worker->retry = doc;
    send_retry(worker);
}

static void end_retry(struct worker *worker)
{
    worker->retry = NULL;
    worker->state = WORKER_FREE;
    worker->dispatch->retries--;
}

static void retry_failed(struct worker *worker, const struct err *err)
{
    struct doc *doc = worker->retry;
    if (is_term_over(err)) {
        trouble(worker, err);
        return;
    }
    bool lock = strcmp(err->sqlstate, "55P03") == 0;
    if (!lock && (err->class != ERR_TRANSIENT || is_timeout(err)) && doc->op_cap != 1) {
        doc->op_cap = 1; /* the operations before the culprit shall fold */
        send_retry(worker);
        return;
    }
    end_retry(worker);
    dispatch_park(worker->dispatch, doc, doc->parked_seq, err);
}

static void on_retried(void *arg, const PGresult *result, const struct err *err)
{
    struct worker *worker = arg;
    struct doc *doc = worker->retry;
    if (result == NULL) {
        retry_failed(worker, err);
        return;
    }
    dispatch_fold_succeeded(worker->dispatch);
    struct store_fold_parked_row row = store_fold_parked_row(result);
    if (row.next_seq != 0) {
        doc->parked_seq = row.next_seq;
        if (doc->op_cap > 0)
            doc->op_cap *= 4;
        send_retry(worker);
        return;
    }
    log_info("unparked", "version=%lld attempts=%u", (long long)row.version, doc->attempts);
    end_retry(worker);
    docs_unpark(worker->dispatch->docs, doc);
}
