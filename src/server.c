/* SPDX-License-Identifier: MIT */
#include "server.h"

#include <event2/dns.h>
#include <event2/event.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "await.h"
#include "client.h"
#include "clock.h"
#include "cluster.h"
#include "conninfo.h"
#include "dispatch.h"
#include "hash.h"
#include "ingest.h"
#include "leader.h"
#include "listener.h"
#include "log.h"
#include "migrate.h"
#include "peer.h"
#include "reload.h"
#include "router.h"
#include "version.h"
#include "timer.h"

/* The stop sequence; each stage waits for the one before. */
enum stage {
    STAGE_RUNNING,
    STAGE_INGEST,   /* nothing is read any more; what was read is committed and acknowledged */
    STAGE_DISPATCH, /* running tasks end, the cursor is saved, replies are sent */
    STAGE_CLUSTER,  /* the private PostgreSQL stops */
    STAGE_OVER,
};

enum {
    /* Descriptors that clients do not get: the connections of the leader, a connection that is made
     * anew, the loop, the log, the socket and its lock, signals, name servers, the cluster. */
    RESERVED_DESCRIPTORS = 24,
};

struct server {
    const struct server_options *options;
    struct config *config;
    struct event_base *base;
    struct evdns_base *dns;
    struct event *sigterm;
    struct event *sigint;
    struct event *sighup;
    struct event *drain_timer;
    struct listener *listener;
    struct clients *clients;
    struct router *router;
    struct await *await;
    struct ingest *ingest;
    struct dispatch *dispatch;
    struct leader *leader;
    struct cluster *cluster; /* NULL unless standalone */
    char *conninfo;
    char *socket;
    struct peer_rules rules;
    size_t max_open; /* clients that there are descriptors for */
    bool ready;      /* systemd has been told */
    enum stage stage;
    int exit_code;
};

static void enter_stage(struct server *server, enum stage stage);

/* --- what the parts tell each other */

static void on_term(void *arg, const struct store_lead_row *lead, const PGresult *parked)
{
    struct server *server = arg;
    const struct term *term = leader_term(server->leader);
    const struct dispatch_term dispatch_term = {.term = term,
                                                .conninfo = server->conninfo,
                                                .reader = leader_reader(server->leader),
                                                .control = leader_control(server->leader),
                                                .lead = lead,
                                                .parked = parked};
    ingest_begin_term(server->ingest, leader_ingest(server->leader), term, lead);
    dispatch_begin_term(server->dispatch, &dispatch_term);
    await_set_reader(server->await, leader_reader(server->leader));
    router_begin_term(server->router);
    server->ready = true;
    sd_notify(0, "READY=1\nSTATUS=leading");
}

static void on_term_end(void *arg)
{
    struct server *server = arg;
    ingest_end_term(server->ingest);
    dispatch_end_term(server->dispatch);
    await_set_reader(server->await, NULL);
    router_end_term(server->router);
    sd_notify(0, "STATUS=no database");
}

static void on_fatal(void *arg, const struct err *err)
{
    struct server *server = arg;
    log_error("fatal", "error=%s", log_text(err->message));
    server->exit_code = 1;
    enter_stage(server, STAGE_CLUSTER);
}

static void on_trouble(void *arg, const struct err *err)
{
    struct server *server = arg;
    leader_end_term(server->leader, err);
}

static void on_committed(void *arg, const struct batch *batch, int64_t old_head, int64_t new_head)
{
    struct server *server = arg;
    const struct op *op;
    TAILQ_FOREACH(op, &batch->ops, link)
        await_on_committed(server->await, op);
    leader_note_head(server->leader, new_head);
    dispatch_committed(server->dispatch, batch, old_head, new_head);
}

static void on_stored(void *arg, struct slot *slot, const struct op *op, int64_t seq,
                      enum receipt_kind kind)
{
    struct server *server = arg;
    await_stored(server->await, slot, op, seq, kind);
}

static void on_room(void *arg)
{
    struct server *server = arg;
    clients_resume(server->clients);
}

static void on_folded(void *arg, int64_t seq, int64_t version)
{
    struct server *server = arg;
    await_on_folded(server->await, seq, version);
}

static void on_changed(void *arg, int64_t seq)
{
    struct server *server = arg;
    await_on_changed(server->await, seq);
}

static bool query_is_open(void *arg, int64_t seq)
{
    const struct server *server = arg;
    return dispatch_is_open(server->dispatch, seq);
}

/* Without a term nothing is known to be settled: a crashed server may have taken folds back (R1).
 */
static int64_t query_cursor(void *arg)
{
    const struct server *server = arg;
    return leader_state(server->leader) == LEADER_LEADING ? dispatch_cursor(server->dispatch) : -1;
}

static int64_t query_head(void *arg)
{
    const struct server *server = arg;
    return ingest_head(server->ingest);
}

static int64_t query_decided(void *arg)
{
    const struct server *server = arg;
    return ingest_decided(server->ingest);
}

/* With the last descriptor that clients may have, the others wait in the socket's backlog. */
static bool on_accept(void *arg, int fd)
{
    struct server *server = arg;
    clients_accept(server->clients, fd);
    if (clients_count(server->clients) < server->max_open)
        return true;
    log_warning("accept_paused", "reason=descriptors clients=%zu", server->max_open);
    return false;
}

static void on_cluster_started(void *arg, const char *conninfo)
{
    struct server *server = arg;
    free(server->conninfo);
    server->conninfo = mem_strdup(conninfo);
    leader_start(server->leader, conninfo);
    leader_hurry(server->leader);
}

static void on_cluster_stopped(void *arg)
{
    enter_stage(arg, STAGE_OVER);
}

/* --- stopping */

static void enter_stage(struct server *server, enum stage stage)
{
    if (stage <= server->stage)
        return;
    server->stage = stage;
    switch (stage) {
    case STAGE_RUNNING:
        break;
    case STAGE_INGEST:
        sd_notify(0, "STOPPING=1");
        listener_stop(server->listener);
        clients_stop_reading(server->clients);
        break;
    case STAGE_DISPATCH:
        dispatch_stop(server->dispatch);
        await_end_all(server->await);
        break;
    case STAGE_CLUSTER:
        leader_stop(server->leader);
        on_term_end(server);
        if (server->cluster != NULL)
            cluster_stop(server->cluster);
        else
            enter_stage(server, STAGE_OVER);
        break;
    case STAGE_OVER:
        break;
    }
}

static void on_drain_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    log_warning("stop_not_drained", "reason=%s", log_text("drain_timeout has passed"));
    enter_stage(arg, STAGE_CLUSTER);
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    struct server *server = arg;
    (void)what;
    if (server->stage != STAGE_RUNNING) {
        log_warning("stopping_now", "signal=%d", (int)number);
        if (server->cluster != NULL)
            cluster_abandon(server->cluster);
        enter_stage(server, STAGE_OVER);
        return;
    }
    log_info("stopping", "signal=%d", (int)number);
    int64_t ms = server->config->drain_timeout_ms;
    timer_set(server->drain_timer, ms);
    enter_stage(server, STAGE_INGEST);
}

/* Without a term nothing more can be committed: what was not acknowledged is the clients' to
 * repeat. */
static void turn_stop(struct server *server)
{
    bool leading = leader_state(server->leader) == LEADER_LEADING;
    if (server->stage == STAGE_INGEST && (!leading || ingest_pending_ops(server->ingest) == 0))
        enter_stage(server, STAGE_DISPATCH);
    if (server->stage == STAGE_DISPATCH && dispatch_stopped(server->dispatch) &&
        (!leading || !clients_busy(server->clients)))
        enter_stage(server, STAGE_CLUSTER);
}

/* After each pass of the loop. Clients first, since lines that they had kept back become work; then
 * the way of an operation: into the log, to a worker, to those who wait; and again while that has
 * made replies. */
static void server_turn(struct server *server)
{
    do {
        clients_turn(server->clients);
        ingest_turn(server->ingest);
        dispatch_turn(server->dispatch);
        await_turn(server->await);
    } while (clients_dirty(server->clients));
    if (server->stage != STAGE_RUNNING)
        turn_stop(server);
    else if (clients_count(server->clients) < server->max_open)
        listener_resume(server->listener);
}

/* --- making and freeing */

static void raise_descriptors(struct server *server)
{
    struct rlimit limit;
    rlim_t kept = RESERVED_DESCRIPTORS + (rlim_t)server->config->workers;
    server->max_open = SIZE_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max == RLIM_INFINITY)
        return;
    server->max_open = limit.rlim_max > kept ? (size_t)(limit.rlim_max - kept) : 1;
    if (server->max_open < (size_t)server->config->max_clients)
        log_warning("few_descriptors", "limit=%llu clients=%zu max_clients=%lld",
                    (unsigned long long)limit.rlim_max, server->max_open,
                    (long long)server->config->max_clients);
}

static struct client_limits client_limits(const struct server *server)
{
    const struct config *config = server->config;
    return (struct client_limits){.max_line = (size_t)config->max_line_bytes,
                                  .max_pending = (size_t)config->max_client_pending_bytes,
                                  .max_all = (size_t)config->max_clients_pending_bytes,
                                  .max_input = (size_t)config->max_input_bytes,
                                  .max_waits = (size_t)config->max_waits,
                                  .max_clients = (size_t)config->max_clients,
                                  .line_timeout_ms = config->line_timeout_ms,
                                  .write_timeout_ms = config->write_timeout_ms,
                                  .rules = &server->rules};
}

static struct ingest_limits ingest_limits(const struct config *config)
{
    return (struct ingest_limits){.batch = {(size_t)config->batch_ops, (size_t)config->batch_bytes},
                                  .max_pending = (size_t)config->max_pending_bytes,
                                  .db_timeout_ms = config->db_timeout_ms};
}

static void set_log_level(const struct config *config)
{
    enum log_level level;
    if (log_find_level(config->log_level, &level))
        log_set_level(level);
}

static bool make_listener(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    const struct listener_options options = {.path = server->socket,
                                             .mode = (unsigned)config->socket_mode,
                                             .group = config->socket_group};
    server->listener = listener_new(server->base, &options, on_accept, server, err);
    return server->listener != NULL;
}

static bool make_cluster(struct server *server, const char *dir, struct err *err)
{
    const struct cluster_events events = {on_cluster_started, on_fatal, on_cluster_stopped, server};
    server->cluster = cluster_new(server->base, dir, server->config->pg_bindir, &events, err);
    if (server->cluster == NULL)
        return false;
    server->socket = mem_printf("%s/foldd.sock", cluster_dir(server->cluster));
    return true;
}

static void make_parts(struct server *server)
{
    const struct config *config = server->config;
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    char *instance = mem_printf("%s:%d:%s", host, (int)getpid(), server->socket);
    const struct leader_events leader_events = {on_term, on_term_end, on_fatal, server};
    const struct ingest_events ingest_events = {on_committed, on_stored, on_room, on_trouble,
                                                server};
    const struct ingest_limits limits_of_ingest = ingest_limits(config);
    const struct dispatch_events dispatch_events = {on_folded, on_changed, on_trouble, on_fatal,
                                                    server};
    const struct dispatch_options dispatch_options = {.workers = (size_t)config->workers,
                                                      .window = (size_t)config->window_ops,
                                                      .docs = {(size_t)config->fold_docs,
                                                               (size_t)config->fold_ops,
                                                               (size_t)config->fold_chunk_ops},
                                                      .lock_timeout_ms = config->lock_timeout_ms,
                                                      .fold_timeout_ms = config->fold_timeout_ms,
                                                      .safety_poll_ms = config->safety_poll_ms,
                                                      .db_timeout_ms = config->db_timeout_ms};
    const struct await_queries queries = {query_is_open, query_cursor, query_head, query_decided,
                                          server};
    const struct leader_options leader_options = {.instance = instance,
                                                  .lease_timeout_ms = config->lease_timeout_ms,
                                                  .takeover_timeout_ms =
                                                      config->takeover_timeout_ms,
                                                  .db_timeout_ms = config->db_timeout_ms};
    server->leader = leader_new(server->base, server->dns, &leader_options, &leader_events);
    server->ingest = ingest_new(server->base, &limits_of_ingest, &ingest_events);
    server->dispatch = dispatch_new(server->base, server->dns, &dispatch_options, &dispatch_events);
    server->await = await_new(server->base, &queries);
    const struct router_parts parts = {.base = server->base,
                                       .ingest = server->ingest,
                                       .dispatch = server->dispatch,
                                       .leader = server->leader,
                                       .await = server->await,
                                       .clients = (const struct clients *const *)&server->clients,
                                       .db_timeout_ms = config->db_timeout_ms,
                                       .workers = (size_t)config->workers};
    server->router = router_new(&parts);
    const struct client_handler handler = {router_on_line, router_on_start, router_on_end_wait,
                                           router_on_full_behind, server->router};
    const struct client_limits limits = client_limits(server);
    server->clients = clients_new(server->base, &limits, &handler);
    free(instance);
}

/* --- SIGHUP */

static void apply(struct server *server)
{
    const struct client_limits limits = client_limits(server);
    const struct ingest_limits limits_of_ingest = ingest_limits(server->config);
    set_log_level(server->config);
    clients_set_limits(server->clients, &limits);
    ingest_set_limits(server->ingest, &limits_of_ingest);
    router_set_db_timeout(server->router, server->config->db_timeout_ms);
}

static void on_sighup(evutil_socket_t number, short what, void *arg)
{
    struct server *server = arg;
    struct err err;
    (void)number;
    (void)what;
    if (server->stage != STAGE_RUNNING || server->clients == NULL)
        return;
    /* READY=1 before the start is over would be a lie. */
    if (server->ready)
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_mono_us());
    if (reload_config(&server->options->source, server->config, &server->rules, &err))
        apply(server);
    else
        log_error("not_reloaded", "error=%s", log_text(err.message));
    if (server->ready)
        sd_notify(0, "READY=1");
}

static void make_base(struct server *server)
{
    hash_seed();
    json_set_alloc_funcs(mem_alloc, free);
    signal(SIGPIPE, SIG_IGN);
    server->base = event_base_new();
    server->dns = evdns_base_new(server->base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    evdns_base_resolv_conf_parse(server->dns, DNS_OPTIONS_ALL, "/etc/resolv.conf");
}

static void watch_signals(struct server *server)
{
    server->sigterm = evsignal_new(server->base, SIGTERM, on_signal, server);
    server->sigint = evsignal_new(server->base, SIGINT, on_signal, server);
    server->sighup = evsignal_new(server->base, SIGHUP, on_sighup, server);
    server->drain_timer = evtimer_new(server->base, on_drain_timer, server);
    event_add(server->sigterm, NULL);
    event_add(server->sigint, NULL);
    event_add(server->sighup, NULL);
}

static void server_fini(struct server *server)
{
    clients_free(server->clients);
    router_free(server->router);
    await_free(server->await);
    dispatch_free(server->dispatch);
    ingest_free(server->ingest);
    leader_free(server->leader);
    listener_free(server->listener);
    cluster_free(server->cluster);
    if (server->sigterm != NULL) {
        event_free(server->sigterm);
        event_free(server->sigint);
        event_free(server->sighup);
        event_free(server->drain_timer);
    }
    evdns_base_free(server->dns, 0);
    event_base_free(server->base);
    free(server->conninfo);
    free(server->socket);
    peer_rules_fini(&server->rules);
}

/* The lock on the socket's path comes before everything that a second foldd could disturb. */
static bool start(struct server *server, const char *standalone, struct err *err)
{
    if (standalone != NULL) {
        if (!make_cluster(server, standalone, err))
            return false;
    } else {
        server->socket = mem_strdup(server->config->socket);
        if (!conninfo_check(server->config->database, err))
            return err_wrap(err, "database");
        server->conninfo = mem_strdup(server->config->database);
    }
    if (!reload_make_rules(server->config, &server->rules, err) || !make_listener(server, err) ||
        !listener_start(server->listener, err))
        return false;
    make_parts(server);
    if (server->cluster != NULL)
        cluster_start(server->cluster);
    else
        leader_start(server->leader, server->conninfo);
    return true;
}

int server_run(const struct server_options *options)
{
    struct server server = {.options = options, .config = options->config};
    struct err err;
    set_log_level(server.config);
    make_base(&server);
    watch_signals(&server);
    log_info("starting", "version=%s pid=%d", FOLDD_VERSION, (int)getpid());
    raise_descriptors(&server);
    if (!start(&server, options->standalone, &err)) {
        log_error("cannot_start", "error=%s", log_text(err.message));
        server_fini(&server);
        return 1;
    }
    while (server.stage != STAGE_OVER) {
        event_base_loop(server.base, EVLOOP_ONCE);
        server_turn(&server);
    }
    log_info("stopped", "exit=%d", server.exit_code);
    server_fini(&server);
    return server.exit_code;
}

/* --- foldd --migrate */

struct migration {
    struct event_base *base;
    int exit_code;
};

static void on_migrated(void *arg, enum migrate_outcome outcome, const struct err *err)
{
    struct migration *migration = arg;
    if (outcome == MIGRATE_FAILED)
        log_error("cannot_migrate", "error=%s", log_text(err->message));
    else
        log_info("schema_ready", "changed=%s", outcome == MIGRATE_DONE ? "yes" : "no");
    migration->exit_code = outcome == MIGRATE_FAILED;
    event_base_loopbreak(migration->base);
}

static void on_migrate_ready(void *arg, struct pg *pg)
{
    migrate_start(pg, MIGRATE_CREATE, on_migrated, arg);
}

static void on_migrate_lost(void *arg, struct pg *pg, const struct err *err)
{
    struct migration *migration = arg;
    (void)pg;
    log_error("cannot_migrate", "error=%s", log_text(err->message));
    migration->exit_code = 1;
    event_base_loopbreak(migration->base);
}

int server_migrate(struct config *config)
{
    struct err err;
    if (!conninfo_check(config->database, &err)) {
        log_error("cannot_migrate", "error=%s", log_text(err.message));
        return 1;
    }
    struct server server = {.config = config};
    set_log_level(config);
    make_base(&server);
    struct migration migration = {.base = server.base, .exit_code = 1};
    const struct pg_events events = {on_migrate_ready, on_migrate_lost, &migration};
    struct pg *pg = pg_new(server.base, server.dns, "foldd migrate", store_setup_control, &events);
    pg_open(pg, config->database);
    event_base_dispatch(server.base);
    pg_free(pg);
    server_fini(&server);
    return migration.exit_code;
}
