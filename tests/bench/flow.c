/* SPDX-License-Identifier: MIT */
/* The cases that measure how much gets through: many operations at once. */
#include <stdlib.h>

#include "bare.h"
#include "bench.h"
#include "clock.h"
#include "sampler.h"
#include "site.h"
#include "stream.h"
#include "verify.h"

enum { CATCH_UP_LOOPS = 4 }; /* foldd's workers */

static double rate(const struct bench *bench, double seconds)
{
    return (double)bench->workload->op_count / seconds;
}

static double memory_mib(const struct daemon *daemon)
{
    return (double)daemon_proc_status(daemon, "VmHWM") / 1024;
}

/* foldd that leads on a fresh database. */
static struct daemon *start_foldd(struct env *env)
{
    struct daemon *daemon = site_spawn_foldd(env);
    daemon_wait_ready(daemon);
    struct conn *conn = conn_open(daemon);
    site_wait_leading(conn);
    conn_close(conn);
    return daemon;
}

static void verify_bare(struct bench *bench, struct env *env)
{
    int64_t *seqs = bare_seqs(bench->workload);
    verify_log(env, bench->workload, seqs);
    verify_documents(env, bench->workload, seqs);
    free(seqs);
}

/* --- end to end */

void flow_end_to_end_foldd(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    struct daemon *daemon = start_foldd(env);
    struct streams *streams =
        streams_new(bench->workload, daemon, bench->row->clients, STREAM_END_FOLDED);
    struct sampler *sampler = sampler_start(daemon);
    values[0] = rate(bench, streams_run(streams));
    values[1] = sampler_stop(sampler);
    values[2] = memory_mib(daemon);
    verify_documents(env, bench->workload, streams_seqs(streams));
    verify_log(env, bench->workload, streams_seqs(streams));
    streams_free(streams);
    site_env_free(bench->site, env);
}

void flow_end_to_end_bare(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    struct bare_log *log = bare_log_new(bench->workload);
    struct bare_head *head = bare_head_new(0);
    bare_lead(env);
    struct bare_loop *loops[] = {bare_append_new(env, log, head),
                                 bare_fold_new(env, bench->workload, head, 0, 1)};
    values[0] = rate(bench, bare_run(loops, 2));
    verify_bare(bench, env);
    bare_head_free(head);
    bare_log_free(log);
    site_env_free(bench->site, env);
}

/* --- ingest */

void flow_ingest_foldd(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    struct daemon *daemon = start_foldd(env);
    struct streams *streams =
        streams_new(bench->workload, daemon, bench->row->clients, STREAM_END_STORED);
    values[0] = rate(bench, streams_run(streams));
    verify_log(env, bench->workload, streams_seqs(streams));
    barrier(conn_open(daemon));
    verify_documents(env, bench->workload, streams_seqs(streams));
    streams_free(streams);
    site_env_free(bench->site, env);
}

/* Append the whole workload; returns the seconds. */
static double append_all(struct bench *bench, struct env *env)
{
    struct bare_log *log = bare_log_new(bench->workload);
    struct bare_head *head = bare_head_new(0);
    bare_lead(env);
    struct bare_loop *loops[] = {bare_append_new(env, log, head)};
    double seconds = bare_run(loops, 1);
    bare_head_free(head);
    bare_log_free(log);
    return seconds;
}

void flow_ingest_bare(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    values[0] = rate(bench, append_all(bench, env));
    int64_t *seqs = bare_seqs(bench->workload);
    verify_log(env, bench->workload, seqs);
    free(seqs);
    site_env_free(bench->site, env);
}

/* --- catch-up */

/* The backlog is a database that both sides copy. */
void flow_catch_up_prepare(struct bench *bench)
{
    struct env *env = site_env_new(bench->site, bench->source);
    append_all(bench, env);
    sql(env, "VACUUM ANALYZE");
    bench->source = env->database;
    site_env_leave(env);
}

void flow_catch_up_foldd(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    int64_t start_us = clock_mono_us();
    struct daemon *daemon = site_spawn_foldd(env);
    daemon_wait_ready(daemon);
    struct conn *conn = conn_open(daemon);
    site_wait_leading(conn);
    expect(ask(conn, "{'request':'barrier','timeout_ms':600000}"), "{'ok':true,'seq':%zu}",
           bench->workload->op_count);
    values[0] = rate(bench, (double)(clock_mono_us() - start_us) / 1e6);
    values[1] = memory_mib(daemon);
    verify_bare(bench, env);
    site_env_free(bench->site, env);
}

void flow_catch_up_bare(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    struct bare_head *head = bare_head_new((int64_t)bench->workload->op_count);
    struct bare_loop *loops[CATCH_UP_LOOPS];
    for (size_t i = 0; i < CATCH_UP_LOOPS; i++)
        loops[i] = bare_fold_new(env, bench->workload, head, i, CATCH_UP_LOOPS);
    values[0] = rate(bench, bare_run(loops, CATCH_UP_LOOPS));
    verify_bare(bench, env);
    bare_head_free(head);
    site_env_free(bench->site, env);
}
