/* SPDX-License-Identifier: MIT */
/*
 * Documents that leave the queue for foldd.parked. A part of dispatch.
 *
 * The row is written first; only when it is on its way to the disk are the document's operations
 * settled (R12). Until then the document stays running, pinned, so that nobody else takes it.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dispatch_internal.h"
#include "log.h"
#include "mem.h"
#include "retry.h"

enum {
    PARK_BASE_MS = 1000,
    PARK_CAP_MS = 300000,
};

/* A row of foldd.parked is being written. Its document stays running, so that nobody else takes it.
 */
struct parking {
    LIST_ENTRY(parking) link;
    struct dispatch *dispatch;
    struct doc *doc;
    int64_t delay_ms;
};

static void on_parked(void *arg, const PGresult *result, const struct err *err)
{
    struct parking *parking = arg;
    struct dispatch *dispatch = parking->dispatch;
    struct doc *doc = parking->doc;
    int64_t due_ms = clock_mono_ms() + parking->delay_ms;
    LIST_REMOVE(parking, link);
    free(parking);
    if (result == NULL) {
        dispatch->events.on_trouble(dispatch->events.arg, err);
        return;
    }
    unsigned attempts = (unsigned)store_park_row(result);
    /* R12: only now is what waits covered by a row. */
    size_t count = doc->count;
    int64_t *seqs = mem_alloc(count * sizeof(*seqs));
    memcpy(seqs, doc_waiting(doc), count * sizeof(*seqs));
    if (doc->released)
        docs_park(dispatch->docs, doc, due_ms, attempts);
    else
        docs_carry(dispatch->docs, doc, attempts);
    for (size_t i = 0; i < count; i++) {
        watermark_settle(dispatch->watermark, seqs[i]);
        dispatch->events.on_changed(dispatch->events.arg, seqs[i]);
    }
    free(seqs);
}

/* Write the row of a pinned document; delay_ms: when to try it again. */
static void write_row(struct dispatch *dispatch, struct doc *doc, int64_t seq, int64_t delay_ms,
                      const struct err *err)
{
    struct parking *parking = mem_zalloc(sizeof(*parking));
    parking->dispatch = dispatch;
    parking->doc = doc;
    parking->delay_ms = delay_ms;
    LIST_INSERT_HEAD(&dispatch->parkings, parking, link);
    doc->parked_seq = seq;
    log_warning("parked", "seq=%lld attempt=%u sqlstate=%s error=%s", (long long)seq,
                doc->attempts + 1, err->sqlstate, log_text(err->message));
    const struct store_park row = {.key = {doc->key, doc->key_len},
                                   .seq = seq,
                                   .sqlstate = err->sqlstate,
                                   .message = err->message,
                                   .delay_ms = delay_ms};
    store_park(dispatch->control, dispatch->term, &row, on_parked, parking);
}

/* The worker is done with the document, and it does not fold. */
void dispatch_park(struct dispatch *dispatch, struct doc *doc, int64_t seq, const struct err *err)
{
    /* Its row is there, or on its way: the retry will say what is wrong. */
    if (doc->pinned || doc->carried) {
        docs_requeue(dispatch->docs, doc);
        return;
    }
    doc->chunk = 0;
    docs_pin(dispatch->docs, doc);
    write_row(dispatch, doc, seq,
              retry_delay_ms(PARK_BASE_MS, PARK_CAP_MS, doc->attempts + 1, arc4random()), err);
}

void dispatch_carry(struct dispatch *dispatch, struct doc *doc)
{
    struct err err;
    err_set(&err, ERR_TRANSIENT, "carried: it held the cursor back; it is tried again at once");
    memcpy(err.sqlstate, "FD012", sizeof(err.sqlstate));
    docs_pin(dispatch->docs, doc);
    write_row(dispatch, doc, doc_waiting(doc)[0], 0, &err);
}

void dispatch_forget_parkings(struct dispatch *dispatch)
{
    struct parking *parking;
    while ((parking = LIST_FIRST(&dispatch->parkings)) != NULL) {
        LIST_REMOVE(parking, link);
        free(parking);
    }
}
