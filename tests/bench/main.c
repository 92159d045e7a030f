/* SPDX-License-Identifier: MIT */
/*
 * make bench: run the cases and report. Run from the top folder.
 *
 * The first process keeps the cluster and, however the run ends, stops it and removes its folder.
 * Its child is a Check runner, which runs each case in a process of its own: a case that fails
 * says where, and the others go on. The figures come back in shared memory.
 *
 * Environment: BENCH=case runs one, ROUNDS=n (3) so many rounds, FOLDD names another program than
 * build/foldd, TMPDIR another folder than /tmp.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "report.h"
#include "site.h"
#include "workload.h"

#define REPORT_PATH "build/bench.json"

enum { ROUNDS = 3, EXIT_USAGE = 2 };

/* Check's test functions take no argument but a number, so what a run has one of stands here.
 * Written before the runner is forked. */
static struct {
    struct site site;
    struct bench_result *results; /* shared, one for each case */
    bool *chosen;
    int rounds;
} run;

static void run_side(struct bench *bench, enum bench_side side, int round, double *values)
{
    static const char *const names[] = {"foldd", "baseline"};
    bench->row->sides[side](bench, values);
    fprintf(stderr, "%s, round %d of %d%s, %s: %.0f %s\n", bench->row->name, round, run.rounds,
            round == 0 ? " (warm-up)" : "", names[side], values[0], bench->row->metrics[0].unit);
}

/* Who goes first changes from round to round. */
static void run_round(struct bench *bench, struct bench_result *result, int round)
{
    double values[SIDE_COUNT][BENCH_MAX_METRICS] = {{0}};
    for (int i = 0; i < SIDE_COUNT; i++) {
        enum bench_side side = (enum bench_side)((i + round) % SIDE_COUNT);
        run_side(bench, side, round, values[side]);
    }
    if (round == 0)
        return;
    for (int side = 0; side < SIDE_COUNT; side++)
        for (int i = 0; i < BENCH_MAX_METRICS; i++)
            result->values[side][i][round - 1] = values[side][i];
}

START_TEST(run_case)
{
    const struct bench_case *row = &bench_cases[_i];
    struct bench_result *result = &run.results[_i];
    struct bench bench = {.row = row, .site = &run.site, .source = SITE_EMPTY};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench.workload = workload_new(row->ops, row->documents);
    result->line_bytes = workload_line_bytes(bench.workload);
    if (row->prepare != NULL)
        row->prepare(&bench);
    for (int round = 0; round <= run.rounds; round++)
        run_round(&bench, result, round);
    result->rounds = run.rounds;
    workload_free(bench.workload);
}
END_TEST

static int run_cases(void)
{
    Suite *suite = suite_create("bench");
    TCase *cases = tcase_create("cases");
    tcase_set_timeout(cases, 0);
    for (size_t i = 0; i < bench_case_count; i++)
        if (run.chosen[i])
            tcase_add_loop_test(cases, run_case, (int)i, (int)i + 1);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_SILENT);
    srunner_print(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed;
}

/* Wait for the runner; signals to stop go on to it. Returns whether it came to its end. */
static bool wait_runner(pid_t runner, const sigset_t *signals)
{
    int status = 0;
    for (int sig; waitpid(runner, &status, WNOHANG) == 0;)
        if (sigwait(signals, &sig) == 0 && sig != SIGCHLD)
            kill(runner, sig);
    return WIFEXITED(status);
}

static bool run_all(void)
{
    sigset_t signals;
    sigset_t before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    bool ok = site_start(&run.site);
    pid_t runner = ok ? fork() : -1;
    if (runner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, &before, NULL);
        exit(run_cases());
    }
    ok = runner > 0 && wait_runner(runner, &signals) &&
         report(&run.site, run.results, run.chosen, REPORT_PATH);
    site_stop(&run.site);
    return ok;
}

static bool choose(const char *name)
{
    bool found = false;
    run.chosen = mem_zalloc(bench_case_count * sizeof run.chosen[0]);
    for (size_t i = 0; i < bench_case_count; i++) {
        run.chosen[i] = name == NULL || name[0] == '\0' || strcmp(name, bench_cases[i].name) == 0;
        found = found || run.chosen[i];
    }
    return found;
}

int main(void)
{
    const char *rounds = getenv("ROUNDS");
    char *end = NULL;
    run.rounds = rounds == NULL || rounds[0] == '\0' ? ROUNDS : (int)strtol(rounds, &end, 10);
    if (run.rounds < 1 || run.rounds > BENCH_MAX_ROUNDS || (end != NULL && *end != '\0')) {
        fprintf(stderr, "bench: ROUNDS is a number from 1 to %d\n", BENCH_MAX_ROUNDS);
        return EXIT_USAGE;
    }
    if (!choose(getenv("BENCH"))) {
        fputs("bench: BENCH is one of", stderr);
        for (size_t i = 0; i < bench_case_count; i++)
            fprintf(stderr, " %s", bench_cases[i].name);
        fputc('\n', stderr);
        return EXIT_USAGE;
    }
    run.results = mmap(NULL, bench_case_count * sizeof run.results[0], PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.results == MAP_FAILED)
        return EXIT_FAILURE;
    return run_all() ? EXIT_SUCCESS : EXIT_FAILURE;
}
