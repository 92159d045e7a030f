/* SPDX-License-Identifier: MIT */
/* The cases that measure how long one operation takes: each waits for the one before. */
#include <stdlib.h>

#include "bare.h"
#include "bench.h"
#include "clock.h"
#include "report.h"
#include "site.h"
#include "verify.h"

/* Send one operation and take its reply; returns the microseconds between. */
static double send_one(struct bench *bench, struct conn *conn, size_t op, enum work_ack ack,
                       int64_t *seq)
{
    struct buf line = {0};
    workload_line(bench->workload, op, ack, &line);
    conn_bytes(conn, line.data, line.len);
    int64_t start_us = clock_mono_us();
    conn_flush(conn);
    const char *raw = conn_read_raw(conn, TEST_WAIT_MS);
    double took_us = (double)(clock_mono_us() - start_us);
    json_t *reply = raw == NULL ? NULL : json_loads(raw, JSON_REJECT_DUPLICATES, NULL);
    expect(reply,
           ack == WORK_ACK_FOLDED ? "{'ok':true,'id':'op-%07zu','outcome':'folded'}"
                                  : "{'ok':true,'id':'op-%07zu'}",
           op);
    int64_t now = reply_int(reply, "seq");
    ck_assert_msg(now > *seq && json_object_get(reply, "duplicate") == NULL,
                  "seq %lld after %lld: %s", (long long)now, (long long)*seq, raw);
    *seq = now;
    json_decref(reply);
    buf_fini(&line);
    return took_us;
}

/* The first part of the operations only warms up. */
static size_t skipped(const struct bench *bench)
{
    return bench->workload->op_count / 10;
}

static void take_values(struct bench *bench, double *times_us, double *values)
{
    size_t skip = skipped(bench);
    values[0] = quantile(times_us + skip, bench->workload->op_count - skip, 0.5);
    values[1] = quantile(times_us + skip, bench->workload->op_count - skip, 0.99);
}

static void run_foldd(struct bench *bench, enum work_ack ack, double *values)
{
    size_t count = bench->workload->op_count;
    struct env *env = site_env_new(bench->site, bench->source);
    struct daemon *daemon = site_spawn_foldd(env);
    daemon_wait_ready(daemon);
    struct conn *conn = conn_open(daemon);
    site_wait_leading(conn);
    double *times_us = mem_alloc(count * sizeof *times_us);
    int64_t *seqs = mem_zalloc(count * sizeof *seqs);
    int64_t seq = 0;
    for (size_t i = 0; i < count; i++) {
        times_us[i] = send_one(bench, conn, i, ack, &seq);
        seqs[i] = seq;
    }
    if (ack == WORK_ACK_STORED)
        barrier(conn);
    verify_documents(env, bench->workload, seqs);
    take_values(bench, times_us, values);
    free(times_us);
    free(seqs);
    site_env_free(bench->site, env);
}

void latency_stored_foldd(struct bench *bench, double *values)
{
    run_foldd(bench, WORK_ACK_STORED, values);
}

void latency_folded_foldd(struct bench *bench, double *values)
{
    run_foldd(bench, WORK_ACK_FOLDED, values);
}

/* Every figure of foldd is held against the INSERT's median. */
void latency_insert_bare(struct bench *bench, double *values)
{
    struct env *env = site_env_new(bench->site, bench->source);
    double *times_us = mem_alloc(bench->workload->op_count * sizeof *times_us);
    int64_t *seqs = bare_seqs(bench->workload);
    bare_insert(env, bench->workload, times_us);
    verify_log(env, bench->workload, seqs);
    take_values(bench, times_us, values);
    values[1] = values[0];
    free(seqs);
    free(times_us);
    site_env_free(bench->site, env);
}
