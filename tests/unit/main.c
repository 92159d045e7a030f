/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static Suite *(*const suites[])(void) = {
    base_suite,  batch_suite, config_suite, corpus_suite,  docs_suite,
    emit_suite,  hash_suite,  heap_suite,   line_suite,    op_suite,
    proto_suite, retry_suite, scan_suite,   waiters_suite, watermark_suite,
};

int main(void)
{
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof(suites) / sizeof(suites[0]); i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    int run = srunner_ntests_run(runner);
    srunner_free(runner);
    /* A misspelt CK_RUN_SUITE must not pass for success. */
    if (run == 0)
        fputs("no tests were run\n", stderr);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
