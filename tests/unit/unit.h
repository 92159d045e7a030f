/* SPDX-License-Identifier: MIT */
/*
 * The unit tests: one suite a file. To add a file, declare its suite here and list it in main.c.
 *
 * Tests run with the root of the repository as the working directory. Randomness comes from
 * unit_random with a fixed seed, so that a failure can be repeated. CK_RUN_SUITE=NAME runs one
 * suite.
 */
#ifndef FOLDD_UNIT_H
#define FOLDD_UNIT_H

#include <check.h>
#include <stdint.h>

Suite *base_suite(void);
Suite *batch_suite(void);
Suite *config_suite(void);
Suite *corpus_suite(void);
Suite *docs_suite(void);
Suite *emit_suite(void);
Suite *hash_suite(void);
Suite *heap_suite(void);
Suite *line_suite(void);
Suite *op_suite(void);
Suite *proto_suite(void);
Suite *retry_suite(void);
Suite *scan_suite(void);
Suite *waiters_suite(void);
Suite *watermark_suite(void);

/* The next number of a sequence that *state, which must not be 0, determines (xorshift32). */
static inline uint32_t unit_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

#endif
