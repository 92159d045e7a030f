/* SPDX-License-Identifier: MIT */
/*
 * The fuzzers' corpus, replayed: an input that once broke a promise is a test from then on.
 * A broken promise aborts, having said what it is and in which file.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "unit.h"

struct target {
    const char *dir;
    void (*check)(const uint8_t *data, size_t size);
};

static const struct target targets[] = {
    {"tests/fuzz/corpus/line", fuzz_line},
    {"tests/fuzz/corpus/proto", fuzz_proto},
    {"tests/fuzz/corpus/config", fuzz_config},
};

enum { TARGETS = sizeof(targets) / sizeof(targets[0]) };

static void replay_file(const struct target *target, const char *path)
{
    struct buf buf = {0};
    char block[4096];
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "cannot read %s", path);
    for (size_t got; (got = fread(block, 1, sizeof(block), file)) > 0;)
        buf_add(&buf, block, got);
    fclose(file);
    target->check((const uint8_t *)(buf.len == 0 ? "" : buf.data), buf.len);
    buf_fini(&buf);
}

START_TEST(the_corpus_breaks_no_promise)
{
    const struct target *target = &targets[_i];
    int count = 0;
    DIR *dir = opendir(target->dir);
    ck_assert_msg(dir != NULL, "no folder %s", target->dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = mem_printf("%s/%s", target->dir, entry->d_name);
        fuzz_name(path);
        replay_file(target, path);
        fuzz_name("");
        free(path);
        count++;
    }
    closedir(dir);
    ck_assert_msg(count > 0, "nothing in %s", target->dir);
}
END_TEST

/* What the checks themselves stand on. */
START_TEST(the_checks_know_utf8)
{
    static const char *const good[] = {"",
                                       "a\x7f",
                                       "\xc2\x80",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",         "\xc0\xaf",         "\xc3",
                                      "\xe0\x9f\xbf", "\xed\xa0\x80",     "\xf0\x8f\xbf\xbf",
                                      "\xff",         "\xf4\x90\x80\x80", "\xe4\xb8"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert(fuzz_is_utf8((struct span){good[i], strlen(good[i])}));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert(!fuzz_is_utf8((struct span){bad[i], strlen(bad[i])}));
}
END_TEST

Suite *corpus_suite(void)
{
    Suite *suite = suite_create("corpus");
    TCase *tcase = tcase_create("corpus");
    tcase_add_loop_test(tcase, the_corpus_breaks_no_promise, 0, TARGETS);
    tcase_add_test(tcase, the_checks_know_utf8);
    suite_add_tcase(suite, tcase);
    return suite;
}
