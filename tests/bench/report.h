/* SPDX-License-Identifier: MIT */
/*
 * report: from the figures of the rounds to a table, a JSON file and a verdict.
 */
#ifndef FOLDD_BENCH_REPORT_H
#define FOLDD_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "bench.h"
#include "mem.h"

/* Sorts the values, which must be at least one: the one that a part (0..1) of them is not above. */
double quantile(double *values, size_t count, double part);

/* Print the settings and the table of the cases that were run, and write both to the file as JSON.
 * False if a bar is missed, a chosen case has no figures, or the file cannot be written. */
MUST_CHECK
bool report(const struct site *site, const struct bench_result *results, const bool *chosen,
            const char *path);

#endif
