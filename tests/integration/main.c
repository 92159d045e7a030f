/* SPDX-License-Identifier: MIT */
/*
 * The integration tests. Run from the top folder. CK_RUN_SUITE and CK_RUN_CASE choose, FOLDD and
 * FOLDCTL name other programs than build/foldd and build/foldctl, LARGE=1 adds the large import.
 */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static int run_suites(void)
{
    static Suite *(*const suites[])(void) = {
        model_suite,    protocol_suite, lines_suite,      ids_suite,     wait_suite,
        exact_suite,    fold_suite,     requeue_suite,    trouble_suite, restart_suite,
        database_suite, start_suite,    standalone_suite, import_suite,  idle_suite,
        operate_suite,  sql_suite,      restored_suite,   tasks_suite,   faults_suite,
        log_suite,      pooler_suite,   disk_suite,       life_suite,    plans_suite,
        json_suite,     takeover_suite, soak_suite,       clients_suite, reload_suite,
    };
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (run == 0)
        fputs("integration: nothing was run\n", stderr);
    return run > 0 && failed == 0 ? 0 : 1;
}

/* Leaks are looked for in the programs under test; a forked test leaves its own to its end. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

int main(void)
{
    return cluster_run(run_suites);
}
