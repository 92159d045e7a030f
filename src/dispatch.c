/* SPDX-License-Identifier: MIT */
/*
 * Happy path: dispatch_committed (or a page of the log) opens operations in the watermark and hands
 * them to docs; dispatch_turn gives the oldest tasks to a free worker; on_folded settles what came
 * back; the cursor moves and is saved now and then.
 *
 * What a worker does when its fold fails stands in worker.c, parking in parking.c. This file owns
 * what they share: the documents, the window, the cursor. Any connection lost ends the term, and
 * all of this is made anew from the database (R1); a worker that cannot even connect is only
 * missed.
 */
#include "dispatch.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dispatch_internal.h"
#include "log.h"
#include "mem.h"
#include "retry.h"
#include "timer.h"

enum {
    PAGE_OPS = 5000,
    SAVE_AFTER_MS = 200,
    SAVE_AFTER_OPS = 20000,
    PAUSE_BASE_MS = 50,
    PAUSE_CAP_MS = 2000,
    RECONNECT_MS = 2000,
    CARRY_AFTER_MS = 1000,
    CARRY_LOOK_MS = 250,
};

static void on_timer(evutil_socket_t fd, short what, void *arg);
static void on_save_timer(evutil_socket_t fd, short what, void *arg);
static void on_poll_timer(evutil_socket_t fd, short what, void *arg);
static void on_reconnect_timer(evutil_socket_t fd, short what, void *arg);

struct dispatch *dispatch_new(struct event_base *base, struct evdns_base *dns,
                              const struct dispatch_options *options,
                              const struct dispatch_events *events)
{
    struct dispatch *dispatch = mem_zalloc(sizeof(*dispatch));
    dispatch->base = base;
    dispatch->options = *options;
    dispatch->events = *events;
    dispatch->timer = evtimer_new(base, on_timer, dispatch);
    dispatch->save_timer = evtimer_new(base, on_save_timer, dispatch);
    dispatch->poll_timer = evtimer_new(base, on_poll_timer, dispatch);
    dispatch->reconnect_timer = evtimer_new(base, on_reconnect_timer, dispatch);
    dispatch->workers = mem_zalloc(options->workers * sizeof(dispatch->workers[0]));
    char *setup = store_setup_worker(options->fold_timeout_ms);
    dispatch->worker_setup = setup;
    for (size_t i = 0; i < options->workers; i++)
        worker_init(&dispatch->workers[i], dispatch, dns);
    return dispatch;
}

void dispatch_free(struct dispatch *dispatch)
{
    if (dispatch == NULL)
        return;
    dispatch_end_term(dispatch);
    for (size_t i = 0; i < dispatch->options.workers; i++)
        worker_fini(&dispatch->workers[i]);
    free(dispatch->workers);
    event_free(dispatch->timer);
    event_free(dispatch->save_timer);
    event_free(dispatch->poll_timer);
    event_free(dispatch->reconnect_timer);
    free(dispatch->worker_setup);
    free(dispatch);
}

/* R11: parked rows are there before the first operation is handed out. */
static void load_parked(struct dispatch *dispatch, const PGresult *parked)
{
    char key[OP_KEY_MAX];
    int64_t now_ms = clock_mono_ms();
    for (int i = 0; i < store_row_count(parked); i++) {
        struct store_parked_row row = store_parked_row(parked, i);
        size_t len = op_make_key(row.collection, row.document, key);
        struct doc *doc = docs_add_parked(dispatch->docs, (struct span){key, len},
                                          now_ms + row.due_in_ms, (unsigned)row.attempts);
        doc->parked_seq = row.seq;
    }
}

void dispatch_begin_term(struct dispatch *dispatch, const struct dispatch_term *term)
{
    dispatch->term = term->term;
    dispatch->conninfo = mem_strdup(term->conninfo);
    dispatch->reader = term->reader;
    dispatch->control = term->control;
    dispatch->halted = term->lead->folding_paused;
    dispatch->head = term->lead->head;
    dispatch->taken = term->lead->cursor;
    dispatch->saved = term->lead->cursor;
    dispatch->cursor = term->lead->cursor;
    dispatch->docs = docs_new(&dispatch->options.docs);
    dispatch->watermark = watermark_new(term->lead->cursor);
    load_parked(dispatch, term->parked);
    for (size_t i = 0; i < dispatch->options.workers; i++)
        worker_open(&dispatch->workers[i]);
    timer_set(dispatch->poll_timer, dispatch->options.safety_poll_ms);
}

void dispatch_end_term(struct dispatch *dispatch)
{
    if (dispatch->term == NULL)
        return;
    for (size_t i = 0; i < dispatch->options.workers; i++)
        worker_close(&dispatch->workers[i]);
    dispatch_forget_parkings(dispatch);
    dispatch->tasks_before += docs_counts(dispatch->docs).tasks;
    docs_free(dispatch->docs);
    watermark_free(dispatch->watermark);
    free(dispatch->conninfo);
    dispatch->docs = NULL;
    dispatch->watermark = NULL;
    dispatch->conninfo = NULL;
    dispatch->term = NULL;
    dispatch->reader = NULL;
    dispatch->control = NULL;
    dispatch->paging = false;
    dispatch->saving = false;
    dispatch->paused = false;
    dispatch->fails = 0;
    dispatch->fails_in_row = 0;
    dispatch->retries = 0;
    evtimer_del(dispatch->timer);
    evtimer_del(dispatch->save_timer);
    evtimer_del(dispatch->poll_timer);
    evtimer_del(dispatch->reconnect_timer);
}

/* One operation is handed out. What a parked row covers needs no settling. */
static void hand_out(struct dispatch *dispatch, struct span key, int64_t seq)
{
    if (docs_add(dispatch->docs, key, seq))
        watermark_open(dispatch->watermark, seq);
    else
        dispatch->events.on_changed(dispatch->events.arg, seq);
}

void dispatch_committed(struct dispatch *dispatch, const struct batch *batch, int64_t old_head,
                        int64_t new_head)
{
    if (dispatch->term == NULL)
        return;
    dispatch->head = new_head;
    /* R15: nothing may have been left out before, or a page would meet it again. */
    if (dispatch->taken != old_head || new_head == old_head || dispatch->paging ||
        watermark_span(dispatch->watermark) + batch->count > dispatch->options.window)
        return;
    const struct op *op;
    TAILQ_FOREACH(op, &batch->ops, link)
        if (op->sent_seq > old_head)
            hand_out(dispatch, op_key(op), op->sent_seq);
    dispatch->taken = new_head;
    watermark_advance(dispatch->watermark, new_head);
}

static void on_page(void *arg, const PGresult *result, const struct err *err)
{
    struct dispatch *dispatch = arg;
    char key[OP_KEY_MAX];
    if (result == NULL) {
        dispatch->events.on_trouble(dispatch->events.arg, err);
        return;
    }
    dispatch->paging = false;
    int rows = store_row_count(result);
    for (int i = 0; i < rows; i++) {
        struct store_log_row row = store_log_row(result, i);
        size_t len = op_make_key(row.collection, row.document, key);
        hand_out(dispatch, (struct span){key, len}, row.seq);
        dispatch->taken = row.seq;
    }
    if (rows < dispatch->page_limit)
        dispatch->taken = dispatch->page_upto;
    watermark_advance(dispatch->watermark, dispatch->taken);
}

static void read_page(struct dispatch *dispatch)
{
    size_t used = watermark_span(dispatch->watermark);
    size_t room = used < dispatch->options.window ? dispatch->options.window - used : 0;
    size_t page = PAGE_OPS < dispatch->options.window ? PAGE_OPS : dispatch->options.window;
    if (dispatch->taken == dispatch->head || dispatch->paging || dispatch->stopping || room < page)
        return;
    dispatch->paging = true;
    dispatch->page_upto = dispatch->head;
    dispatch->page_limit = (int32_t)page;
    store_read_log(dispatch->reader, dispatch->taken, dispatch->head, dispatch->page_limit, on_page,
                   dispatch);
}

/* What has been under way for long while the window is full: a slow reducer, a locked row. */
static void carry_if_stuck(void *arg, struct doc *doc)
{
    struct dispatch *dispatch = arg;
    if (doc->pinned || doc->carried || clock_mono_ms() - doc->taken_ms < CARRY_AFTER_MS)
        return;
    dispatch_carry(dispatch, doc);
}

/* Start is bounded and nobody is held up: a full window is emptied of what stands still in it. */
static void carry_stuck(struct dispatch *dispatch)
{
    dispatch->full = watermark_span(dispatch->watermark) + PAGE_OPS > dispatch->options.window;
    if (!dispatch->full || dispatch->stopping || dispatch->halted)
        return;
    docs_each_aside(dispatch->docs, carry_if_stuck, dispatch);
    for (size_t i = 0; i < dispatch->options.workers; i++) {
        struct doc *doc;
        TAILQ_FOREACH(doc, &dispatch->workers[i].docs, link)
            carry_if_stuck(dispatch, doc);
    }
}

static void give_work(struct dispatch *dispatch)
{
    int64_t now_ms = clock_mono_ms();
    if (dispatch->stopping || dispatch->paused || dispatch->halted)
        return;
    docs_wake(dispatch->docs, now_ms);
    for (size_t i = 0; i < dispatch->options.workers; i++) {
        struct worker *worker = &dispatch->workers[i];
        if (!worker_is_free(worker))
            continue;
        /* One worker at most retries, and between two retries come tasks: what keeps failing shall
         * not keep others waiting. */
        struct doc *parked = docs_next_parked(dispatch->docs);
        bool due = parked != NULL && parked->due_ms <= now_ms && dispatch->retries == 0;
        bool folds = !(due && !dispatch->fold_next) && worker_fold(worker);
        dispatch->fold_next = false;
        if (folds)
            continue;
        if (!due)
            break;
        dispatch->fold_next = true;
        worker_retry(worker, parked);
    }
}

static void on_saved(void *arg, const PGresult *result, const struct err *err)
{
    struct dispatch *dispatch = arg;
    if (result == NULL) {
        dispatch->events.on_trouble(dispatch->events.arg, err);
        return;
    }
    dispatch->saving = false;
    dispatch->saved = dispatch->saving_seq;
}

static void save_cursor(struct dispatch *dispatch)
{
    evtimer_del(dispatch->save_timer);
    dispatch->saving = true;
    dispatch->saving_seq = watermark_cursor(dispatch->watermark);
    store_save_cursor(dispatch->control, dispatch->term, dispatch->saving_seq, on_saved, dispatch);
}

static void on_save_timer(evutil_socket_t fd, short what, void *arg)
{
    struct dispatch *dispatch = arg;
    (void)fd;
    (void)what;
    if (dispatch->term != NULL && !dispatch->saving)
        save_cursor(dispatch);
}

/* Losing a save costs only reading again; so it waits for company. */
static void consider_saving(struct dispatch *dispatch)
{
    int64_t cursor = watermark_cursor(dispatch->watermark);
    if (cursor == dispatch->saved || dispatch->saving)
        return;
    bool idle = docs_counts(dispatch->docs).running == 0;
    if (cursor - dispatch->saved >= SAVE_AFTER_OPS || (dispatch->stopping && idle))
        save_cursor(dispatch);
    else if (!evtimer_pending(dispatch->save_timer, NULL))
        timer_set(dispatch->save_timer, SAVE_AFTER_MS);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct dispatch *dispatch = arg;
    (void)fd;
    (void)what;
    dispatch->paused = false;
}

static bool any_worker_free(const struct dispatch *dispatch)
{
    for (size_t i = 0; i < dispatch->options.workers; i++)
        if (worker_is_free(&dispatch->workers[i]))
            return true;
    return false;
}

/* One timer for what is due next; none when nothing is, or when nobody could take it. */
static void set_due_timer(struct dispatch *dispatch)
{
    if (dispatch->paused || dispatch->stopping)
        return;
    if (dispatch->halted) {
        evtimer_del(dispatch->timer);
        return;
    }
    int64_t due_ms = -1;
    if (any_worker_free(dispatch))
        due_ms = dispatch->retries == 0 ? docs_next_due(dispatch->docs)
                                        : docs_next_aside_due(dispatch->docs);
    int64_t left = due_ms < 0 ? INT64_MAX : due_ms - clock_mono_ms();
    if (dispatch->full && left > CARRY_LOOK_MS)
        left = CARRY_LOOK_MS;
    if (left == INT64_MAX)
        evtimer_del(dispatch->timer);
    else
        timer_set(dispatch->timer, left < 1 ? 1 : left);
}

void dispatch_turn(struct dispatch *dispatch)
{
    if (dispatch->term == NULL)
        return;
    carry_stuck(dispatch);
    read_page(dispatch);
    give_work(dispatch);
    dispatch->cursor = watermark_cursor(dispatch->watermark);
    consider_saving(dispatch);
    set_due_timer(dispatch);
}

/* R16: all fail alike, so it is the database's state: nobody is blamed, folding backs off. */
void dispatch_back_off(struct dispatch *dispatch, const struct err *err)
{
    dispatch->fails++;
    if (dispatch->fails == 1)
        log_warning("folding_backs_off", "sqlstate=%s error=%s", err->sqlstate,
                    log_text(err->message));
    dispatch->paused = true;
    timer_set(dispatch->timer,
              retry_delay_ms(PAUSE_BASE_MS, PAUSE_CAP_MS, dispatch->fails, arc4random()));
}

void dispatch_fold_succeeded(struct dispatch *dispatch)
{
    dispatch->folds_ok++;
    dispatch->fails_in_row = 0;
    if (dispatch->fails > 0)
        log_info("folding_goes_on", "pauses=%u", dispatch->fails);
    dispatch->fails = 0;
}

void dispatch_settle(struct dispatch *dispatch, const struct doc *doc, size_t count, size_t looked,
                     int64_t version)
{
    const int64_t *seqs = doc_waiting(doc);
    for (size_t i = 0; i < count; i++) {
        watermark_settle(dispatch->watermark, seqs[i]);
        if (i < looked)
            dispatch->events.on_changed(dispatch->events.arg, seqs[i]);
        else
            dispatch->events.on_folded(dispatch->events.arg, seqs[i], version);
    }
}

static void on_head(void *arg, const PGresult *result, const struct err *err)
{
    struct dispatch *dispatch = arg;
    if (result == NULL) {
        dispatch->events.on_trouble(dispatch->events.arg, err);
        return;
    }
    int64_t head = store_head_row(result);
    if (head > dispatch->head) {
        log_warning("missed_operations", "head=%lld known=%lld", (long long)head,
                    (long long)dispatch->head);
        dispatch->head = head;
    }
}

static void on_poll_timer(evutil_socket_t fd, short what, void *arg)
{
    struct dispatch *dispatch = arg;
    (void)fd;
    (void)what;
    timer_set(dispatch->poll_timer, dispatch->options.safety_poll_ms);
    if (dispatch->term != NULL)
        store_head(dispatch->control, on_head, dispatch);
}

void dispatch_worker_missing(struct dispatch *dispatch)
{
    if (!evtimer_pending(dispatch->reconnect_timer, NULL))
        timer_set(dispatch->reconnect_timer, RECONNECT_MS);
}

static void on_reconnect_timer(evutil_socket_t fd, short what, void *arg)
{
    struct dispatch *dispatch = arg;
    (void)fd;
    (void)what;
    for (size_t i = 0; dispatch->term != NULL && i < dispatch->options.workers; i++)
        if (!pg_is_open(dispatch->workers[i].pg))
            worker_open(&dispatch->workers[i]);
}

void dispatch_hurry(struct dispatch *dispatch, struct span key)
{
    if (dispatch->term == NULL)
        return;
    if (key.data == NULL) {
        docs_hurry_all(dispatch->docs);
        return;
    }
    struct doc *doc = docs_find(dispatch->docs, key);
    if (doc != NULL)
        docs_hurry(dispatch->docs, doc);
}

void dispatch_set_pause(struct dispatch *dispatch, bool paused)
{
    dispatch->halted = paused;
}

bool dispatch_is_paused(const struct dispatch *dispatch)
{
    return dispatch->halted;
}

void dispatch_stop(struct dispatch *dispatch)
{
    dispatch->stopping = true;
    evtimer_del(dispatch->timer);
}

bool dispatch_stopped(const struct dispatch *dispatch)
{
    return dispatch->term == NULL ||
           (docs_counts(dispatch->docs).running == 0 && !dispatch->saving &&
            watermark_cursor(dispatch->watermark) == dispatch->saved);
}

int64_t dispatch_cursor(const struct dispatch *dispatch)
{
    return dispatch->cursor;
}

bool dispatch_is_open(const struct dispatch *dispatch, int64_t seq)
{
    return dispatch->term == NULL || seq > dispatch->taken ||
           watermark_is_open(dispatch->watermark, seq);
}

struct dispatch_counts dispatch_counts(const struct dispatch *dispatch)
{
    struct dispatch_counts counts = {.docs.tasks = dispatch->tasks_before};
    if (dispatch->term == NULL)
        return counts;
    counts.docs = docs_counts(dispatch->docs);
    counts.docs.tasks += dispatch->tasks_before;
    counts.window = watermark_span(dispatch->watermark);
    counts.catching_up = dispatch->taken != dispatch->head;
    counts.backing_off = dispatch->fails > 0;
    for (size_t i = 0; i < dispatch->options.workers; i++)
        counts.workers += pg_is_ready(dispatch->workers[i].pg);
    return counts;
}
