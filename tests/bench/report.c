/* SPDX-License-Identifier: MIT */
/*
 * A rate or a time is the median of its rounds. A ratio is the median of the rounds' own ratios,
 * and its spread goes from the lowest to the highest of them: what disturbs the machine for longer
 * than a round meets both sides.
 */
#include "report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "mem.h"
#include "site.h"
#include "version.h"

/* One metric, ready to be shown. */
struct figures {
    const struct bench_metric *metric;
    double sides[SIDE_COUNT]; /* medians; foldd's is the worst if there is no baseline */
    double ratio;             /* these three are 0 if there is no baseline */
    double lowest;
    double highest;
    bool met;
};

static int by_value(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y;
}

double quantile(double *values, size_t count, double part)
{
    qsort(values, count, sizeof *values, by_value);
    return values[(size_t)(part * (double)(count - 1) + 0.5)];
}

static double quantile_of(const double *values, int rounds, double part)
{
    double sorted[BENCH_MAX_ROUNDS];
    memcpy(sorted, values, (size_t)rounds * sizeof sorted[0]);
    return quantile(sorted, (size_t)rounds, part);
}

static bool is_met(const struct figures *figures)
{
    const struct bench_metric *metric = figures->metric;
    if (metric->bar <= 0)
        return true;
    switch (metric->bound) {
    case RATIO_AT_LEAST:
        return figures->ratio >= metric->bar;
    case RATIO_AT_MOST:
        return figures->ratio <= metric->bar;
    default:
        return figures->sides[SIDE_FOLDD] < metric->bar;
    }
}

static struct figures figures_of(const struct bench_case *row, const struct bench_result *result,
                                 size_t index)
{
    struct figures figures = {.metric = &row->metrics[index]};
    const double *foldd = result->values[SIDE_FOLDD][index];
    const double *baseline = result->values[SIDE_BASELINE][index];
    if (figures.metric->bound == WORST_BELOW) {
        figures.sides[SIDE_FOLDD] = quantile_of(foldd, result->rounds, 1);
    } else {
        double ratios[BENCH_MAX_ROUNDS];
        for (int i = 0; i < result->rounds; i++)
            ratios[i] = foldd[i] / baseline[i];
        figures.sides[SIDE_FOLDD] = quantile_of(foldd, result->rounds, 0.5);
        figures.sides[SIDE_BASELINE] = quantile_of(baseline, result->rounds, 0.5);
        figures.ratio = quantile_of(ratios, result->rounds, 0.5);
        figures.lowest = quantile_of(ratios, result->rounds, 0);
        figures.highest = quantile_of(ratios, result->rounds, 1);
    }
    figures.met = is_met(&figures);
    return figures;
}

static const char *bound_text(enum bench_bound bound)
{
    return bound == RATIO_AT_LEAST ? ">=" : bound == RATIO_AT_MOST ? "<=" : "<";
}

/* --- the settings */

static void set_from_server(const struct site *site, json_t *settings)
{
    static const char *const names[] = {"server_version",   "fsync",           "synchronous_commit",
                                        "full_page_writes", "wal_compression", "wal_sync_method",
                                        "shared_buffers",   "max_wal_size"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *query = mem_printf("SHOW %s", names[i]);
        char *value = site_query(site, query);
        json_object_set_new(settings, names[i], json_string(value == NULL ? "unknown" : value));
        free(value);
        free(query);
    }
}

/* Given. */
static json_t *settings_of(const struct site *site)
{
    json_t *settings = json_object();
    struct utsname system;
    json_object_set_new(settings, "foldd", json_string(FOLDD_VERSION));
    set_from_server(site, settings);
    json_object_set_new(settings, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    if (uname(&system) == 0)
        json_object_set_new(settings, "kernel", json_string(system.release));
    json_object_set_new(settings, "folder", json_string(site->root));
    json_object_set_new(settings, "batch_ops", json_integer(BENCH_BATCH_OPS));
    json_object_set_new(settings, "fold_ops", json_integer(BENCH_FOLD_OPS));
    return settings;
}

static void print_settings(const json_t *settings)
{
    const char *key;
    const json_t *value;
    const char *gap = "\n";
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        printf("%s%s=", gap, key);
        if (json_is_string(value))
            fputs(json_string_value(value), stdout);
        else
            printf("%lld", (long long)json_integer_value(value));
        gap = "  ";
    }
    puts("\n");
}

/* --- the table */

static void print_head(void)
{
    printf("%-11s %-18s %-5s %9s %9s %6s %11s %8s\n", "case", "metric", "unit", "foldd", "baseline",
           "ratio", "spread", "bar");
}

static void print_figures(const char *name, const struct figures *figures)
{
    const struct bench_metric *metric = figures->metric;
    int digits = metric->bound == WORST_BELOW ? 1 : 0;
    printf("%-11s %-18s %-5s %9.*f ", name, metric->name, metric->unit, digits,
           figures->sides[SIDE_FOLDD]);
    if (metric->bound == WORST_BELOW)
        printf("%9s %6s %11s", "", "", "");
    else
        printf("%9.0f %6.2f %5.2f-%5.2f", figures->sides[SIDE_BASELINE], figures->ratio,
               figures->lowest, figures->highest);
    if (metric->bar > 0)
        printf(" %2s %5g %s", bound_text(metric->bound), metric->bar,
               figures->met ? "ok" : "MISSED");
    putchar('\n');
}

/* --- JSON */

/* Given. */
static json_t *rounds_of(const double *values, int rounds)
{
    json_t *list = json_array();
    for (int i = 0; i < rounds; i++)
        json_array_append_new(list, json_real(values[i]));
    return list;
}

/* Given. */
static json_t *metric_json(const struct figures *figures, const struct bench_result *result,
                           size_t index)
{
    const struct bench_metric *metric = figures->metric;
    json_t *json = json_pack("{s:s,s:s,s:f,s:o,s:b}", "name", metric->name, "unit", metric->unit,
                             "foldd", figures->sides[SIDE_FOLDD], "foldd_rounds",
                             rounds_of(result->values[SIDE_FOLDD][index], result->rounds), "met",
                             (int)figures->met);
    if (metric->bound != WORST_BELOW) {
        json_t *ratio = json_pack(
            "{s:f,s:o,s:f,s:[f,f]}", "baseline", figures->sides[SIDE_BASELINE], "baseline_rounds",
            rounds_of(result->values[SIDE_BASELINE][index], result->rounds), "ratio",
            figures->ratio, "spread", figures->lowest, figures->highest);
        json_object_update(json, ratio);
        json_decref(ratio);
    }
    if (metric->bar > 0) {
        json_object_set_new(json, "bound", json_string(bound_text(metric->bound)));
        json_object_set_new(json, "bar", json_real(metric->bar));
    }
    return json;
}

/* --- both */

static bool report_case(const struct bench_case *row, const struct bench_result *result,
                        json_t *cases)
{
    json_t *metrics = json_array();
    bool met = true;
    for (size_t i = 0; i < BENCH_MAX_METRICS && row->metrics[i].name != NULL; i++) {
        struct figures figures = figures_of(row, result, i);
        print_figures(row->name, &figures);
        json_array_append_new(metrics, metric_json(&figures, result, i));
        met = met && figures.met;
    }
    json_array_append_new(
        cases, json_pack("{s:s,s:I,s:I,s:I,s:I,s:i,s:o}", "name", row->name, "ops",
                         (json_int_t)row->ops, "documents", (json_int_t)row->documents, "clients",
                         (json_int_t)row->clients, "line_bytes", (json_int_t)result->line_bytes,
                         "rounds", result->rounds, "metrics", metrics));
    return met;
}

bool report(const struct site *site, const struct bench_result *results, const bool *chosen,
            const char *path)
{
    json_t *settings = settings_of(site);
    json_t *cases = json_array();
    bool ok = true;
    print_settings(settings);
    print_head();
    for (size_t i = 0; i < bench_case_count; i++) {
        if (!chosen[i])
            continue;
        if (results[i].rounds == 0)
            printf("%-11s no figures: it failed\n", bench_cases[i].name);
        ok = results[i].rounds > 0 && report_case(&bench_cases[i], &results[i], cases) && ok;
    }
    json_t *all = json_pack("{s:o,s:o}", "settings", settings, "cases", cases);
    if (json_dump_file(all, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        ok = false;
    }
    json_decref(all);
    return ok;
}
