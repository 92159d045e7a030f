/* SPDX-License-Identifier: MIT */
/*
 * connect -> no pooler in between? -> lock -> schema -> lead -> parked rows -> term.
 * Each arrow is a callback; any failure is leader_end_term.
 *
 * The lock is held by the ingest session, so that a leader which dies is succeeded at once. One
 * that hangs keeps its sessions. So while the lock is taken a standby challenges its holder: a row
 * and a notification, which the leader hears on a connection of its own that does nothing else and
 * can stand behind no other statement; a loop that turns answers. No answer within lease_timeout:
 * the session with the lock is ended, and whoever gets the lock leads (R5). Raising the epoch waits
 * for the writers' lock; sessions that keep it for longer than takeover_timeout are ended as well:
 * what a half-sent request holds would be held for ever.
 */
#include "leader.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "migrate.h"
#include "retry.h"
#include "timer.h"

enum {
    RETRY_BASE_MS = 50,
    RETRY_CAP_MS = 500,
    STANDBY_LOOK_MS = 500,
    LOCK_LOOK_MS = 100,
    LOCK_LOOKS = 10,
    BACKEND_LOOKS = 2,
    LOCK_LOOKS_OWN = 100, /* it led: its own last backend may hold the lock for a moment */
};

struct leader {
    struct event_base *base;
    struct leader_events events;
    enum leader_state state;
    int64_t since_us;
    char error[512];
    struct leader_options options;
    char *instance;
    char *conninfo;
    struct term term;
    struct store_lead_row lead;
    struct pg *ingest;
    struct pg *reader;
    struct pg *control;
    struct pg *lease; /* hears and sends challenges, ends sessions */
    struct migrate *migrate;
    struct event *timer; /* the pause, or a standby's next look */
    int64_t known_head;  /* the highest head of the terms before */
    int64_t backend;     /* of the ingest connection */
    int backend_looks;   /* to come, whether it is still the same */
    unsigned failures;
    unsigned looks;    /* for the lock, on this connection */
    bool known;        /* the schema was there once */
    bool locked;       /* it has the leader's lock */
    bool taking;       /* foldd.lead() is under way */
    bool asking;       /* standby: a challenge is out */
    int64_t asked_ms;  /* when the last one was out, or was answered */
    int64_t looked_ms; /* when the last look for an answer began */
    bool stopped;
};

static void set_state(struct leader *leader, enum leader_state state)
{
    if (leader->state == state)
        return;
    leader->state = state;
    leader->since_us = clock_wall_us();
}

static void on_ready(void *arg, struct pg *pg);
static void on_lost(void *arg, struct pg *pg, const struct err *err);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static void on_notify(void *arg);

struct leader *leader_new(struct event_base *base, struct evdns_base *dns,
                          const struct leader_options *options, const struct leader_events *events)
{
    struct leader *leader = mem_zalloc(sizeof(*leader));
    const struct pg_events pg_events = {on_ready, on_lost, leader};
    leader->base = base;
    leader->events = *events;
    leader->options = *options;
    leader->instance = mem_strdup(options->instance);
    leader->since_us = clock_wall_us();
    leader->ingest = pg_new(base, dns, "foldd ingest", store_setup_ingest, &pg_events);
    leader->reader = pg_new(base, dns, "foldd reader", store_setup_reader, &pg_events);
    leader->control = pg_new(base, dns, "foldd control", store_setup_control, &pg_events);
    leader->lease = pg_new(base, dns, "foldd lease", store_setup_lease, &pg_events);
    /* Ingest waits for a migration, or for the writers' lock, as long as it takes; its batches have
     * a deadline of their own. */
    pg_set_deadlines(leader->ingest, options->db_timeout_ms, 0);
    pg_set_deadlines(leader->reader, options->db_timeout_ms, options->db_timeout_ms);
    pg_set_deadlines(leader->control, options->db_timeout_ms, options->db_timeout_ms);
    pg_set_deadlines(leader->lease, options->db_timeout_ms, options->db_timeout_ms);
    pg_set_notify(leader->lease, on_notify);
    leader->timer = evtimer_new(base, on_timer, leader);
    return leader;
}

void leader_free(struct leader *leader)
{
    if (leader == NULL)
        return;
    migrate_cancel(leader->migrate);
    pg_free(leader->ingest);
    pg_free(leader->reader);
    pg_free(leader->control);
    pg_free(leader->lease);
    event_free(leader->timer);
    free(leader->instance);
    free(leader->conninfo);
    free(leader);
}

static void close_all(struct leader *leader)
{
    migrate_cancel(leader->migrate);
    leader->migrate = NULL;
    pg_close(leader->ingest);
    pg_close(leader->reader);
    pg_close(leader->control);
    pg_close(leader->lease);
    evtimer_del(leader->timer);
    leader->locked = false;
    leader->taking = false;
    leader->asking = false;
}

static void fatal(struct leader *leader, const struct err *err)
{
    struct err copy = *err;
    bool led = leader->state == LEADER_LEADING;
    leader_stop(leader);
    if (led)
        leader->events.on_term_end(leader->events.arg);
    leader->events.on_fatal(leader->events.arg, &copy);
}

static void refuse_pooler(struct leader *leader)
{
    struct err err;
    err_set(&err, ERR_FATAL,
            "the database is behind a pooler in transaction mode, where sessions do not last: "
            "connect directly, or use session mode");
    fatal(leader, &err);
}

/* foldd drops none of its prepared statements: only a pooler can mix them up. */
static bool is_mixed_up(const struct err *err)
{
    return strcmp(err->sqlstate, "26000") == 0 || strcmp(err->sqlstate, "42P05") == 0;
}

void leader_end_term(struct leader *leader, const struct err *err)
{
    if (leader->stopped)
        return;
    if (is_mixed_up(err)) {
        refuse_pooler(leader);
        return;
    }
    bool led = leader->state == LEADER_LEADING;
    /* One line per change: the same failure again and again is said once. */
    if (led || strcmp(leader->error, err->message) != 0)
        log_warning(led ? "term_over" : "database_unavailable", "epoch=%lld sqlstate=%s error=%s",
                    (long long)leader->term.epoch, err->sqlstate, log_text(err->message));
    snprintf(leader->error, sizeof(leader->error), "%s", err->message);
    close_all(leader);
    set_state(leader, LEADER_DOWN);
    leader->failures = led ? 1 : leader->failures + 1;
    timer_set(leader->timer,
              retry_delay_ms(RETRY_BASE_MS, RETRY_CAP_MS, leader->failures, arc4random()));
    if (led)
        leader->events.on_term_end(leader->events.arg);
}

static void on_lost(void *arg, struct pg *pg, const struct err *err)
{
    struct err wrapped = *err;
    err_wrap(&wrapped, "%s", pg_name(pg));
    leader_end_term(arg, &wrapped);
}

/* What must work, though nobody waits for its answer. */
static void on_done(void *arg, const PGresult *result, const struct err *err)
{
    if (result == NULL)
        leader_end_term(arg, err);
}

static void on_answer_refused(void *arg, const PGresult *result, const struct err *err)
{
    (void)arg;
    if (result == NULL) /* the schema is being made */
        log_debug("no_answer", "sqlstate=%s error=%s", err->sqlstate, log_text(err->message));
}

/* R5. Whoever has the lock answers, also while it migrates; a term that is over does not. */
static void on_notify(void *arg)
{
    struct leader *leader = arg;
    if (leader->state == LEADER_LEADING)
        store_answer_challenges(leader->lease, &leader->term, on_done, leader);
    else if (leader->locked)
        store_answer_challenges(leader->lease, NULL, on_answer_refused, leader);
}

static void on_parked(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL) {
        leader_end_term(leader, err);
        return;
    }
    set_state(leader, LEADER_LEADING);
    leader->error[0] = '\0';
    leader->failures = 0;
    log_info("leading", "epoch=%lld head=%lld cursor=%lld parked=%d", (long long)leader->term.epoch,
             (long long)leader->lead.head, (long long)leader->lead.cursor, store_row_count(result));
    leader->events.on_term(leader->events.arg, &leader->lead, result);
    on_notify(leader);
}

static void on_lead(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    leader->taking = false;
    evtimer_del(leader->timer);
    if (result == NULL) {
        leader_end_term(leader, err);
        return;
    }
    leader->lead = store_lead_row(result);
    leader->term.epoch = leader->lead.epoch;
    if (leader->lead.lost.data != NULL)
        log_error("numbering_jumps", "reason=\"%.*s\" known_head=%lld head=%lld floor=%lld",
                  (int)leader->lead.lost.len, leader->lead.lost.data, (long long)leader->known_head,
                  (long long)leader->lead.head, (long long)leader->lead.floor);
    leader->lead.lost = (struct span){NULL, 0};
    if (leader->lead.cursor > leader->lead.head) {
        struct err ahead;
        err_set(&ahead, ERR_FATAL,
                "the cursor (%lld) is ahead of the log (%lld): two states of this database were "
                "mixed by a restore; SELECT foldd.repair() mends it",
                (long long)leader->lead.cursor, (long long)leader->lead.head);
        fatal(leader, &ahead);
        return;
    }
    store_parked(leader->control, on_parked, leader);
}

static void on_migrated(void *arg, enum migrate_outcome outcome, const struct err *err)
{
    struct leader *leader = arg;
    leader->migrate = NULL;
    if (outcome == MIGRATE_FAILED) {
        if (err->class == ERR_FATAL)
            fatal(leader, err);
        else
            leader_end_term(leader, err);
        return;
    }
    leader->known = true;
    snprintf(leader->term.token, sizeof(leader->term.token), "%08x%08x%08x%08x", arc4random(),
             arc4random(), arc4random(), arc4random());
    leader->taking = true;
    timer_set(leader->timer, leader->options.takeover_timeout_ms);
    store_lead(leader->ingest, leader->term.token, leader->instance, leader->known_head, on_lead,
               leader);
}

/* A lack of rights leaves things as they are: whoever may will mend them. */
static void on_holders_ended(void *arg, const PGresult *result, const struct err *err)
{
    (void)arg;
    if (result == NULL)
        log_error("cannot_end_sessions", "sqlstate=%s error=%s", err->sqlstate,
                  log_text(err->message));
    else
        log_warning("sessions_ended", "count=%lld", (long long)store_end_holders_row(result));
}

/* R5: the holder of the lock does not answer. */
static void depose(struct leader *leader)
{
    log_warning("leader_hangs", "silent_ms=%lld", (long long)(clock_mono_ms() - leader->asked_ms));
    leader->asking = false;
    leader->asked_ms = clock_mono_ms();
    store_end_holders(leader->lease, STORE_LOCK_LEADER, on_holders_ended, leader);
}

static void on_answered(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL)
        leader_end_term(leader, err);
    else if (!leader->asking)
        return;
    else if (!store_challenge_answered_row(result)) {
        /* By when the look began: a standby that stood still itself has read an old answer. */
        if (leader->looked_ms - leader->asked_ms >= leader->options.lease_timeout_ms)
            depose(leader);
    } else {
        leader->asking = false;
        leader->asked_ms = clock_mono_ms();
    }
}

static void on_challenged(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL) {
        /* The schema is being made. */
        log_debug("no_challenge", "sqlstate=%s error=%s", err->sqlstate, log_text(err->message));
        leader->asking = false;
        return;
    }
    leader->asked_ms = clock_mono_ms();
    struct span who = store_challenge_row(result);
    if (who.data != NULL)
        snprintf(leader->error, sizeof(leader->error), "another instance leads: %.*s", (int)who.len,
                 who.data);
}

/* Between two challenges lies a lease, so that healthy instances hardly notice each other. */
static void challenge(struct leader *leader)
{
    int64_t now_ms = clock_mono_ms();
    if (leader->asking) {
        leader->looked_ms = now_ms;
        store_challenge_answered(leader->lease, leader->instance, on_answered, leader);
    } else if (leader->asked_ms == 0 ||
               now_ms - leader->asked_ms >= leader->options.lease_timeout_ms) {
        leader->asking = true;
        leader->asked_ms = now_ms;
        store_challenge(leader->lease, leader->instance, on_challenged, leader);
    }
}

static void stand_by(struct leader *leader)
{
    if (++leader->looks < (leader->known ? LOCK_LOOKS_OWN : LOCK_LOOKS)) {
        timer_set(leader->timer, LOCK_LOOK_MS);
        return;
    }
    if (leader->state != LEADER_STANDBY)
        log_info("standing_by", "reason=%s", log_text("another foldd leads this database"));
    set_state(leader, LEADER_STANDBY);
    if (strncmp(leader->error, "another", 7) != 0)
        snprintf(leader->error, sizeof(leader->error), "another instance leads");
    challenge(leader);
    timer_set(leader->timer, STANDBY_LOOK_MS);
}

static void on_try_lock(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL) {
        leader_end_term(leader, err);
        return;
    }
    if (!store_try_lock_row(result)) {
        stand_by(leader);
        return;
    }
    set_state(leader, LEADER_RISING);
    leader->locked = true;
    leader->migrate = migrate_start(leader->ingest, leader->known ? MIGRATE_EXPECT : MIGRATE_CREATE,
                                    on_migrated, leader);
}

/* R4: behind a pooler that lends a connection for one transaction, two idle connections of ours
 * meet on one backend, or, where it takes turns, one of ours wanders; settings, locks and prepared
 * statements of a session do not hold there. Turns between two need a second look. */
static void on_backend_again(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL)
        leader_end_term(leader, err);
    else if (store_backend_row(result) != leader->backend)
        refuse_pooler(leader);
    else if (--leader->backend_looks > 0)
        store_backend(leader->ingest, on_backend_again, leader);
    else
        store_try_lock(leader->ingest, on_try_lock, leader);
}

static void on_second_backend(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL) {
        leader_end_term(leader, err);
    } else if (store_backend_row(result) == leader->backend) {
        refuse_pooler(leader);
    } else {
        leader->backend_looks = BACKEND_LOOKS;
        store_backend(leader->ingest, on_backend_again, leader);
    }
}

static void on_first_backend(void *arg, const PGresult *result, const struct err *err)
{
    struct leader *leader = arg;
    if (result == NULL) {
        leader_end_term(leader, err);
        return;
    }
    leader->backend = store_backend_row(result);
    store_backend(leader->reader, on_second_backend, leader);
}

static void on_ready(void *arg, struct pg *pg)
{
    struct leader *leader = arg;
    (void)pg;
    if (pg_is_ready(leader->ingest) && pg_is_ready(leader->reader) &&
        pg_is_ready(leader->control) && pg_is_ready(leader->lease))
        store_backend(leader->ingest, on_first_backend, leader);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct leader *leader = arg;
    (void)fd;
    (void)what;
    if (leader->taking) {
        log_warning("writers_hang", "waited_ms=%lld",
                    (long long)leader->options.takeover_timeout_ms);
        store_end_holders(leader->lease, STORE_LOCK_WRITERS, on_holders_ended, leader);
        timer_set(leader->timer, leader->options.takeover_timeout_ms);
        return;
    }
    if (pg_is_ready(leader->ingest)) {
        store_try_lock(leader->ingest, on_try_lock, leader);
        return;
    }
    leader->looks = 0;
    set_state(leader, LEADER_RISING);
    pg_open(leader->ingest, leader->conninfo);
    pg_open(leader->reader, leader->conninfo);
    pg_open(leader->control, leader->conninfo);
    pg_open(leader->lease, leader->conninfo);
}

void leader_start(struct leader *leader, const char *conninfo)
{
    bool first = leader->conninfo == NULL;
    free(leader->conninfo);
    leader->conninfo = mem_strdup(conninfo);
    if (first)
        on_timer(-1, 0, leader);
}

void leader_note_head(struct leader *leader, int64_t head)
{
    if (head > leader->known_head)
        leader->known_head = head;
}

void leader_hurry(struct leader *leader)
{
    if (leader->state != LEADER_DOWN || leader->conninfo == NULL || leader->stopped)
        return;
    evtimer_del(leader->timer);
    on_timer(-1, 0, leader);
}

void leader_stop(struct leader *leader)
{
    close_all(leader);
    set_state(leader, LEADER_DOWN);
    leader->stopped = true;
}

enum leader_state leader_state(const struct leader *leader)
{
    return leader->state;
}

const char *leader_error(const struct leader *leader)
{
    return leader->error;
}

int64_t leader_since_us(const struct leader *leader)
{
    return leader->since_us;
}

const struct term *leader_term(const struct leader *leader)
{
    return &leader->term;
}

struct pg *leader_ingest(struct leader *leader)
{
    return leader->ingest;
}

struct pg *leader_reader(struct leader *leader)
{
    return leader->reader;
}

struct pg *leader_control(struct leader *leader)
{
    return leader->control;
}
