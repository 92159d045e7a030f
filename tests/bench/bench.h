/* SPDX-License-Identifier: MIT */
/*
 * bench: what a case is, and what a run measures.
 *
 * A case is a row of the table in cases.c: a workload, two sides (foldd, and bare PostgreSQL doing
 * the same) and the metrics that each side yields. Each side runs once a round on a fresh database,
 * the two in turn, so that a ratio compares what the machine did within the same seconds.
 *
 * A side that finds anything wrong (a refused operation, a wrong document) fails by ck_assert, and
 * its case has no figures.
 */
#ifndef FOLDD_BENCH_H
#define FOLDD_BENCH_H

#include <stddef.h>

struct site;
struct workload;

enum {
    BENCH_MAX_METRICS = 3,
    BENCH_MAX_ROUNDS = 99,
    BENCH_BATCH_OPS = 2000, /* operations in one append of the bare loop: foldd's batch_ops */
    BENCH_FOLD_OPS = 4000,  /* operations in one fold of the bare loop: foldd's fold_ops */
};

enum bench_side { SIDE_FOLDD, SIDE_BASELINE, SIDE_COUNT };

/* What the bar of a metric holds against it. */
enum bench_bound {
    RATIO_AT_LEAST, /* foldd / baseline: rates */
    RATIO_AT_MOST,  /* foldd / baseline: times */
    WORST_BELOW,    /* the worst round of foldd; there is no baseline */
};

struct bench_metric {
    const char *name; /* NULL: no metric */
    const char *unit;
    enum bench_bound bound;
    double bar; /* 0: only reported */
};

/* One case under way. */
struct bench {
    const struct bench_case *row;
    struct site *site;
    struct workload *workload;
    const char *source; /* the database that each side's database is a copy of */
};

/* Runs one side once, and writes one value for each metric of the case. */
typedef void (*bench_side_fn)(struct bench *bench, double *values);

struct bench_case {
    const char *name;
    size_t ops;
    size_t documents;
    size_t clients;
    /* Once, before the rounds; may be NULL. */
    void (*prepare)(struct bench *bench);
    bench_side_fn sides[SIDE_COUNT];
    struct bench_metric metrics[BENCH_MAX_METRICS];
};

/* The table, and how many rows it has. */
extern const struct bench_case bench_cases[];
extern const size_t bench_case_count;

/* The figures of a case. In memory that the processes of a run share. */
struct bench_result {
    int rounds;        /* complete ones, without the warm-up; 0: the case was not run, or failed */
    size_t line_bytes; /* mean length of a request line */
    double values[SIDE_COUNT][BENCH_MAX_METRICS][BENCH_MAX_ROUNDS];
};

/* The sides. flow: many operations at once; latency: one after the other. */
void flow_end_to_end_foldd(struct bench *bench, double *values);
void flow_end_to_end_bare(struct bench *bench, double *values);
void flow_ingest_foldd(struct bench *bench, double *values);
void flow_ingest_bare(struct bench *bench, double *values);
void flow_catch_up_prepare(struct bench *bench);
void flow_catch_up_foldd(struct bench *bench, double *values);
void flow_catch_up_bare(struct bench *bench, double *values);
void latency_stored_foldd(struct bench *bench, double *values);
void latency_folded_foldd(struct bench *bench, double *values);
void latency_insert_bare(struct bench *bench, double *values);

#endif
