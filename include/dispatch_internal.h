/* SPDX-License-Identifier: MIT */
/*
 * dispatch_internal: what dispatch and its workers share. For dispatch.c and worker.c only.
 */
#ifndef FOLDD_DISPATCH_INTERNAL_H
#define FOLDD_DISPATCH_INTERNAL_H

#include "dispatch.h"
#include "pg.h"
#include "watermark.h"

struct event;
struct parking;

enum worker_state {
    WORKER_FREE,
    WORKER_FOLDING,  /* store_fold is under way for docs */
    WORKER_CHECKING, /* store_versions: docs are those missing from the answer (R14) */
    WORKER_LOOKING,  /* store_locked: who holds a row? (R16) */
    WORKER_PROBING,  /* store_probe: can the table be written at all? */
    WORKER_RETRYING, /* store_fold_parked for retry */
};

struct worker {
    struct dispatch *dispatch;
    struct pg *pg;
    bool connected; /* it was, in this term: its loss ends the term */
    enum worker_state state;
    struct doc_list docs; /* running here */
    size_t doc_count;
    struct doc *retry; /* the parked document that is being retried */
    struct err err;    /* of the fold that failed */
};

struct dispatch {
    struct event_base *base;
    struct dispatch_options options;
    struct dispatch_events events;
    const struct term *term; /* NULL: no term, and all of the next group is nothing */
    char *conninfo;
    struct pg *reader;
    struct pg *control;
    struct docs *docs;
    struct watermark *watermark;
    int64_t head;
    int64_t taken;
    int64_t saved;
    int64_t saving_seq;
    bool saving;
    bool paging;
    int64_t page_upto;
    int32_t page_limit;
    int64_t cursor; /* of the last turn; stays when the term ends */
    struct worker *workers;
    LIST_HEAD(, parking) parkings; /* rows that are being written */
    char *worker_setup;
    struct event *timer; /* a pause, or what is due next */
    struct event *save_timer;
    struct event *poll_timer;
    struct event *reconnect_timer;
    bool paused;
    size_t retries; /* workers that retry a parked document */
    bool fold_next; /* a retry was last: a task comes first */
    bool halted;    /* by an operator */
    bool stopping;
    bool full;             /* the window has no room for a page */
    unsigned fails;        /* pauses in a row */
    unsigned fails_in_row; /* documents that failed alone since one folded */
    uint64_t folds_ok;
    uint64_t tasks_before; /* of earlier terms */
};

/* The first count waiting operations of the document are settled; of the first looked ones,
 * somebody who waits must look up what became of them. */
void dispatch_settle(struct dispatch *dispatch, const struct doc *doc, size_t count, size_t looked,
                     int64_t version);
void dispatch_fold_succeeded(struct dispatch *dispatch);
/* Hand out nothing for a while. */
void dispatch_back_off(struct dispatch *dispatch, const struct err *err);
/* A worker is done with the document, and it does not fold from seq on. */
void dispatch_park(struct dispatch *dispatch, struct doc *doc, int64_t seq, const struct err *err);
/* Park a document that holds the cursor back, running or aside. */
void dispatch_carry(struct dispatch *dispatch, struct doc *doc);
/* The term is over: rows that were being written will not be answered for. */
void dispatch_forget_parkings(struct dispatch *dispatch);
/* A worker could not connect: try again later. */
void dispatch_worker_missing(struct dispatch *dispatch);

void worker_init(struct worker *worker, struct dispatch *dispatch, struct evdns_base *dns);
void worker_fini(struct worker *worker);
void worker_open(struct worker *worker);
void worker_close(struct worker *worker);
bool worker_is_free(const struct worker *worker);
/* Take the oldest tasks; false when there are none. */
bool worker_fold(struct worker *worker);
/* Try a parked document again. */
void worker_retry(struct worker *worker, struct doc *doc);

#endif
