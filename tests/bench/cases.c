/* SPDX-License-Identifier: MIT */
/* The table of cases. README.md says what each row means. */
#include "bench.h"

const struct bench_case bench_cases[] = {
    {
        .name = "end-to-end",
        .ops = 200000,
        .documents = 30000,
        .clients = 1,
        .sides = {flow_end_to_end_foldd, flow_end_to_end_bare},
        .metrics = {{"folded", "op/s", RATIO_AT_LEAST, 0.5},
                    {"status reply, max", "ms", WORST_BELOW, 100},
                    {"memory, max", "MiB", WORST_BELOW, 100}},
    },
    {
        .name = "ingest",
        .ops = 200000,
        .documents = 30000,
        .clients = 4,
        .sides = {flow_ingest_foldd, flow_ingest_bare},
        .metrics = {{"stored", "op/s", RATIO_AT_LEAST, 0}},
    },
    {
        .name = "catch-up",
        .ops = 300000,
        .documents = 30000,
        .clients = 1,
        .prepare = flow_catch_up_prepare,
        .sides = {flow_catch_up_foldd, flow_catch_up_bare},
        .metrics = {{"folded", "op/s", RATIO_AT_LEAST, 0}, {"memory, max", "MiB", WORST_BELOW, 0}},
    },
    {
        .name = "ack",
        .ops = 2000,
        .documents = 300,
        .clients = 1,
        .sides = {latency_stored_foldd, latency_insert_bare},
        .metrics = {{"stored, median", "us", RATIO_AT_MOST, 0}},
    },
    {
        .name = "visible",
        .ops = 2000,
        .documents = 300,
        .clients = 1,
        .sides = {latency_folded_foldd, latency_insert_bare},
        .metrics = {{"folded, median", "us", RATIO_AT_MOST, 0},
                    {"folded, p99", "us", RATIO_AT_MOST, 0}},
    },
};

const size_t bench_case_count = sizeof bench_cases / sizeof bench_cases[0];
