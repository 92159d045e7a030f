/* SPDX-License-Identifier: MIT */
#include "watermark.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

START_TEST(a_new_one_stands_at_its_cursor)
{
    struct watermark *wm = watermark_new(41);
    ck_assert_int_eq(watermark_cursor(wm), 41);
    ck_assert_uint_eq(watermark_open_count(wm), 0);
    ck_assert_uint_eq(watermark_span(wm), 0);
    ck_assert_int_eq(watermark_lowest(wm), 0);
    ck_assert(!watermark_is_open(wm, 41));
    ck_assert(!watermark_settle(wm, 41));
    watermark_free(wm);
    watermark_free(NULL);
}
END_TEST

START_TEST(the_lowest_open_one_holds_the_cursor)
{
    struct watermark *wm = watermark_new(10);
    for (int64_t seq = 11; seq <= 14; seq++)
        watermark_open(wm, seq);
    ck_assert_int_eq(watermark_cursor(wm), 10);
    ck_assert(watermark_settle(wm, 12));
    ck_assert(watermark_settle(wm, 13));
    ck_assert_int_eq(watermark_cursor(wm), 10);
    ck_assert_uint_eq(watermark_open_count(wm), 2);
    ck_assert_uint_eq(watermark_span(wm), 4);
    ck_assert(watermark_settle(wm, 11));
    ck_assert_int_eq(watermark_cursor(wm), 13);
    ck_assert_int_eq(watermark_lowest(wm), 14);
    ck_assert_uint_eq(watermark_span(wm), 1);
    ck_assert(watermark_settle(wm, 14));
    ck_assert_int_eq(watermark_cursor(wm), 14);
    watermark_free(wm);
}
END_TEST

START_TEST(gaps_need_no_settling)
{
    struct watermark *wm = watermark_new(0);
    watermark_open(wm, 5);
    ck_assert_int_eq(watermark_cursor(wm), 4);
    watermark_open(wm, 9);
    watermark_advance(wm, 20);
    ck_assert_int_eq(watermark_cursor(wm), 4);
    ck_assert(watermark_settle(wm, 5));
    ck_assert_int_eq(watermark_cursor(wm), 8);
    ck_assert(watermark_settle(wm, 9));
    ck_assert_int_eq(watermark_cursor(wm), 20);
    watermark_advance(wm, 15);
    ck_assert_int_eq(watermark_cursor(wm), 20);
    watermark_open(wm, 21);
    ck_assert_int_eq(watermark_cursor(wm), 20);
    watermark_free(wm);
}
END_TEST

START_TEST(settling_what_is_not_open_changes_nothing)
{
    struct watermark *wm = watermark_new(0);
    watermark_open(wm, 2);
    watermark_open(wm, 4);
    watermark_open(wm, 6);
    ck_assert(watermark_settle(wm, 4));
    static const int64_t not_open[] = {-1, 0, 1, 3, 4, 5, 7, INT64_MAX};
    for (size_t i = 0; i < sizeof(not_open) / sizeof(not_open[0]); i++) {
        ck_assert(!watermark_is_open(wm, not_open[i]));
        ck_assert(!watermark_settle(wm, not_open[i]));
    }
    ck_assert_uint_eq(watermark_open_count(wm), 2);
    ck_assert_int_eq(watermark_cursor(wm), 1);
    watermark_free(wm);
}
END_TEST

enum { MODEL_MAX = 4000 };

/* The contract, said as slowly as possible. */
struct model {
    bool opened[MODEL_MAX];
    bool settled[MODEL_MAX];
    int64_t last;
};

static void compare(const struct watermark *wm, const struct model *model)
{
    int64_t lowest = 0;
    size_t open_count = 0;
    size_t span = 0;
    for (int64_t seq = 1; seq <= model->last; seq++) {
        bool open = model->opened[seq] && !model->settled[seq];
        if (open && lowest == 0)
            lowest = seq;
        open_count += open ? 1 : 0;
        span += lowest != 0 && model->opened[seq] ? 1 : 0;
        /* An assertion costs Check a write: only a failure asserts. */
        if (watermark_is_open(wm, seq) != open)
            ck_abort_msg("%lld is %sopen", (long long)seq, open ? "" : "not ");
    }
    ck_assert_int_eq(watermark_lowest(wm), lowest);
    ck_assert_int_eq(watermark_cursor(wm), lowest != 0 ? lowest - 1 : model->last);
    ck_assert_uint_eq(watermark_open_count(wm), open_count);
    ck_assert_uint_eq(watermark_span(wm), span);
}

static void random_step(struct watermark *wm, struct model *model, uint32_t *state)
{
    uint32_t random = unit_random(state);
    /* Phases in which opening outruns settling, and the other way round, fill and empty the ring.
     */
    uint32_t opening = model->last / 400 % 2 == 0 ? 8 : 3;
    if (random % 10 < opening) {
        model->last += 1 + (unit_random(state) % 8 == 0 ? unit_random(state) % 5 : 0);
        if (unit_random(state) % 16 == 0) {
            watermark_advance(wm, model->last);
        } else {
            watermark_open(wm, model->last);
            model->opened[model->last] = true;
        }
        return;
    }
    /* Often near the low end, so that the head moves. */
    int64_t range = unit_random(state) % 2 == 0 ? model->last : 8;
    int64_t seq = watermark_cursor(wm) - 2 + (int64_t)(unit_random(state) % (uint32_t)(range + 3));
    bool open = seq >= 1 && seq <= model->last && model->opened[seq] && !model->settled[seq];
    ck_assert_int_eq(watermark_settle(wm, seq), open);
    if (open)
        model->settled[seq] = true;
}

START_TEST(random_schedules_agree_with_the_model)
{
    uint32_t state = (uint32_t)_i + 1;
    static struct model model;
    memset(&model, 0, sizeof(model));
    struct watermark *wm = watermark_new(0);
    int64_t cursor = 0;
    for (unsigned step = 0; model.last < MODEL_MAX - 10; step++) {
        random_step(wm, &model, &state);
        ck_assert_int_ge(watermark_cursor(wm), cursor);
        cursor = watermark_cursor(wm);
        if (step % 16 == 0)
            compare(wm, &model);
    }
    for (int64_t seq = model.last; seq >= 1; seq--)
        ck_assert_int_eq(watermark_settle(wm, seq), model.opened[seq] && !model.settled[seq]);
    ck_assert_int_eq(watermark_cursor(wm), model.last);
    ck_assert_uint_eq(watermark_span(wm), 0);
    watermark_free(wm);
}
END_TEST

Suite *watermark_suite(void)
{
    Suite *suite = suite_create("watermark");
    TCase *tcase = tcase_create("watermark");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_new_one_stands_at_its_cursor);
    tcase_add_test(tcase, the_lowest_open_one_holds_the_cursor);
    tcase_add_test(tcase, gaps_need_no_settling);
    tcase_add_test(tcase, settling_what_is_not_open_changes_nothing);
    tcase_add_loop_test(tcase, random_schedules_agree_with_the_model, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
