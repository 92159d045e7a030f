/* SPDX-License-Identifier: MIT */
#include "waiters.h"

#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "unit.h"

static struct span key_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* The waits of a topic are exactly these, in this order. */
static void expect(const struct wait_list *list, struct wait *const *waits, size_t count)
{
    ck_assert((list != NULL) == (count > 0));
    const struct wait *wait = list == NULL ? NULL : TAILQ_FIRST(list);
    for (size_t i = 0; i < count; i++) {
        ck_assert_ptr_eq(wait, waits[i]);
        wait = TAILQ_NEXT(wait, link);
    }
    ck_assert_ptr_null(wait);
}

START_TEST(new_waiters_have_nothing)
{
    struct waiters *waiters = waiters_new();
    ck_assert_uint_eq(waiters_count(waiters), 0);
    ck_assert(!waiters_any(waiters));
    ck_assert_ptr_null(waiters_next_deadline(waiters));
    ck_assert_ptr_null(waiters_next_barrier(waiters, WAIT_TICKET, INT64_MAX));
    ck_assert_ptr_null(waiters_next_barrier(waiters, WAIT_CURSOR, INT64_MAX));
    ck_assert_ptr_null(waiters_of_seq(waiters, 0));
    ck_assert_ptr_null(waiters_of_key(waiters, key_of("")));
    waiters_free(waiters);
    waiters_free(NULL);
}
END_TEST

/* Topics */

START_TEST(a_wait_is_found_under_its_topic)
{
    struct waiters *waiters = waiters_new();
    struct wait *w[4];
    for (size_t i = 0; i < 4; i++)
        w[i] = waiters_add(waiters, WAIT_OUTCOME, 1000);
    ck_assert_int_eq(w[0]->kind, WAIT_OUTCOME);
    ck_assert(!waiters_any(waiters));
    waiters_file_seq(waiters, w[0], 7);
    waiters_file_seq(waiters, w[1], 8);
    waiters_file_seq(waiters, w[2], 7);
    waiters_file_key(waiters, w[3], key_of("c1"));
    ck_assert_int_eq(w[1]->number, 8);
    ck_assert(waiters_any(waiters));
    expect(waiters_of_seq(waiters, 7), (struct wait *[]){w[0], w[2]}, 2);
    expect(waiters_of_seq(waiters, 8), &w[1], 1);
    expect(waiters_of_key(waiters, key_of("c1")), &w[3], 1);
    expect(waiters_of_seq(waiters, 9), NULL, 0);
    expect(waiters_of_key(waiters, key_of("c")), NULL, 0);
    ck_assert_uint_eq(waiters_count(waiters), 4);
    waiters_free(waiters);
}
END_TEST

START_TEST(a_seq_and_a_key_of_its_bytes_are_two_topics)
{
    struct waiters *waiters = waiters_new();
    int64_t seq = INT64_C(0x6162636465666768);
    struct span key = {(const char *)&seq, sizeof(seq)};
    struct wait *by_seq = waiters_add(waiters, WAIT_OUTCOME, 1);
    struct wait *by_key = waiters_add(waiters, WAIT_OUTCOME, 1);
    waiters_file_seq(waiters, by_seq, seq);
    expect(waiters_of_key(waiters, key), NULL, 0);
    waiters_file_key(waiters, by_key, key);
    expect(waiters_of_seq(waiters, seq), &by_seq, 1);
    expect(waiters_of_key(waiters, key), &by_key, 1);
    waiters_free(waiters);
}
END_TEST

START_TEST(a_wait_is_filed_in_one_place_at_a_time)
{
    struct waiters *waiters = waiters_new();
    struct wait *wait = waiters_add(waiters, WAIT_STORED, 1);
    waiters_file_key(waiters, wait, key_of("c1"));
    waiters_file_seq(waiters, wait, 7);
    expect(waiters_of_key(waiters, key_of("c1")), NULL, 0);
    waiters_file_seq(waiters, wait, 7);
    expect(waiters_of_seq(waiters, 7), &wait, 1);
    waiters_file_seq(waiters, wait, 8);
    expect(waiters_of_seq(waiters, 7), NULL, 0);
    waiters_file_key(waiters, wait, key_of("c2"));
    expect(waiters_of_seq(waiters, 8), NULL, 0);
    waiters_unfile(waiters, wait);
    waiters_unfile(waiters, wait);
    expect(waiters_of_key(waiters, key_of("c2")), NULL, 0);
    ck_assert(!waiters_any(waiters));
    ck_assert_uint_eq(waiters_count(waiters), 1);
    ck_assert_ptr_eq(waiters_next_deadline(waiters), wait);
    waiters_free(waiters);
}
END_TEST

START_TEST(the_longest_key_has_room)
{
    struct waiters *waiters = waiters_new();
    static char key[OP_KEY_MAX + 1 + OP_ID_MAX];
    memset(key, 'x', sizeof(key));
    struct wait *wait = waiters_add(waiters, WAIT_OUTCOME, 1);
    waiters_file_key(waiters, wait, (struct span){key, sizeof(key)});
    expect(waiters_of_key(waiters, (struct span){key, sizeof(key)}), &wait, 1);
    expect(waiters_of_key(waiters, (struct span){key, sizeof(key) - 1}), NULL, 0);
    waiters_free(waiters);
}
END_TEST

START_TEST(what_is_removed_is_nowhere)
{
    struct waiters *waiters = waiters_new();
    struct wait *w[3];
    for (size_t i = 0; i < 3; i++) {
        w[i] = waiters_add(waiters, WAIT_OUTCOME, (int64_t)i);
        waiters_file_seq(waiters, w[i], 7);
    }
    waiters_remove(waiters, w[1]);
    expect(waiters_of_seq(waiters, 7), (struct wait *[]){w[0], w[2]}, 2);
    waiters_detach(waiters, w[0]);
    expect(waiters_of_seq(waiters, 7), &w[2], 1);
    ck_assert_ptr_eq(waiters_next_deadline(waiters), w[2]);
    waiters_remove(waiters, w[2]);
    ck_assert(!waiters_any(waiters));
    ck_assert_uint_eq(waiters_count(waiters), 0);
    ck_assert_ptr_null(waiters_next_deadline(waiters));
    waiters_free(waiters);
    free(w[0]);
}
END_TEST

/* Barriers */

static struct wait *add_barrier(struct waiters *waiters, enum wait_kind kind, int64_t number)
{
    struct wait *wait = waiters_add(waiters, kind, 1000);
    wait->number = number;
    waiters_file_barrier(waiters, wait);
    return wait;
}

START_TEST(barriers_come_in_the_order_of_their_numbers)
{
    static const enum wait_kind kinds[] = {WAIT_TICKET, WAIT_CURSOR};
    static const int64_t numbers[] = {5, 3, 9, 3, 0, 5};
    /* Equal ones in the order in which they came. */
    static const size_t order[] = {4, 1, 3, 0, 5, 2};
    for (size_t k = 0; k < 2; k++) {
        struct waiters *waiters = waiters_new();
        struct wait *w[6];
        for (size_t i = 0; i < 6; i++)
            w[i] = add_barrier(waiters, kinds[k], numbers[i]);
        ck_assert(!waiters_any(waiters));
        for (size_t i = 0; i < 6; i++) {
            int64_t number = numbers[order[i]];
            ck_assert_ptr_null(waiters_next_barrier(waiters, kinds[k], number - 1));
            ck_assert_ptr_null(waiters_next_barrier(waiters, kinds[1 - k], INT64_MAX));
            struct wait *next = waiters_next_barrier(waiters, kinds[k], number);
            ck_assert_ptr_eq(next, w[order[i]]);
            waiters_remove(waiters, next);
        }
        ck_assert_ptr_null(waiters_next_barrier(waiters, kinds[k], INT64_MAX));
        waiters_free(waiters);
    }
}
END_TEST

START_TEST(a_barrier_goes_from_its_ticket_to_its_seq)
{
    struct waiters *waiters = waiters_new();
    struct wait *first = add_barrier(waiters, WAIT_TICKET, 10);
    struct wait *second = add_barrier(waiters, WAIT_TICKET, 11);
    add_barrier(waiters, WAIT_CURSOR, 99);
    waiters_unfile(waiters, first);
    waiters_unfile(waiters, first);
    first->kind = WAIT_CURSOR;
    first->number = 50;
    waiters_file_barrier(waiters, first);
    ck_assert_ptr_eq(waiters_next_barrier(waiters, WAIT_TICKET, 11), second);
    ck_assert_ptr_null(waiters_next_barrier(waiters, WAIT_CURSOR, 49));
    ck_assert_ptr_eq(waiters_next_barrier(waiters, WAIT_CURSOR, 50), first);
    ck_assert_uint_eq(waiters_count(waiters), 3);
    waiters_free(waiters);
}
END_TEST

START_TEST(a_barrier_in_the_middle_can_go)
{
    struct waiters *waiters = waiters_new();
    struct wait *w[3];
    for (size_t i = 0; i < 3; i++)
        w[i] = add_barrier(waiters, WAIT_CURSOR, (int64_t)i);
    waiters_remove(waiters, w[1]);
    waiters_remove(waiters, w[0]);
    ck_assert_ptr_null(waiters_next_barrier(waiters, WAIT_CURSOR, 1));
    ck_assert_ptr_eq(waiters_next_barrier(waiters, WAIT_CURSOR, 2), w[2]);
    waiters_free(waiters);
}
END_TEST

/* Deadlines and topics against a naive model */

enum { WAITS = 300, STEPS = 6000, TOPICS = 12 };

struct model {
    struct waiters *real;
    struct wait *waits[WAITS]; /* NULL: not there */
    int64_t deadline_ms[WAITS];
    int topic[WAITS];      /* -1: filed nowhere; even: a seq; odd: a key */
    uint64_t filed[WAITS]; /* when */
    uint64_t clock;
    uint32_t random;
};

static struct span model_key(int topic)
{
    static char key[2] = {'k', 0};
    key[1] = (char)('a' + topic);
    return (struct span){key, 2};
}

static struct wait_list *model_list(const struct model *model, int topic)
{
    return topic % 2 == 0 ? waiters_of_seq(model->real, topic)
                          : waiters_of_key(model->real, model_key(topic));
}

/* Of the waits of the topic the one that was filed first after that moment. */
static size_t model_next(const struct model *model, int topic, uint64_t after)
{
    size_t next = WAITS;
    for (size_t i = 0; i < WAITS; i++)
        if (model->waits[i] != NULL && model->topic[i] == topic && model->filed[i] > after &&
            (next == WAITS || model->filed[i] < model->filed[next]))
            next = i;
    return next;
}

static void compare_topic(const struct model *model, int topic)
{
    const struct wait_list *list = model_list(model, topic);
    const struct wait *wait = list == NULL ? NULL : TAILQ_FIRST(list);
    size_t i;
    for (uint64_t after = 0; (i = model_next(model, topic, after)) < WAITS;
         after = model->filed[i]) {
        if (wait != model->waits[i])
            ck_abort_msg("topic %d, wait %zu", topic, i);
        wait = TAILQ_NEXT(wait, link);
    }
    if (wait != NULL || (list != NULL && TAILQ_EMPTY(list)))
        ck_abort_msg("topic %d has one too many", topic);
}

static void compare(const struct model *model)
{
    size_t count = 0;
    size_t filed = 0;
    int64_t first_ms = INT64_MAX;
    for (size_t i = 0; i < WAITS; i++) {
        if (model->waits[i] == NULL)
            continue;
        count++;
        filed += model->topic[i] >= 0;
        if (model->waits[i]->deadline_ms != model->deadline_ms[i])
            ck_abort_msg("wait %zu", i);
        first_ms = model->deadline_ms[i] < first_ms ? model->deadline_ms[i] : first_ms;
    }
    const struct wait *first = waiters_next_deadline(model->real);
    if ((first == NULL) != (count == 0) || (first != NULL && first->deadline_ms != first_ms))
        ck_abort_msg("the first deadline is not %lld", (long long)first_ms);
    if (waiters_count(model->real) != count || waiters_any(model->real) != (filed > 0))
        ck_abort_msg("%zu waits, %zu filed", count, filed);
}

/* waiters_get names each wait once. */
static void compare_members(const struct model *model)
{
    static bool seen[WAITS];
    memset(seen, 0, sizeof(seen));
    for (size_t index = 0; index < waiters_count(model->real); index++) {
        const struct wait *wait = waiters_get(model->real, index);
        size_t i = 0;
        while (i < WAITS && model->waits[i] != wait)
            i++;
        if (i == WAITS || seen[i])
            ck_abort_msg("index %zu", index);
        seen[i] = true;
    }
}

static void step_file(struct model *model, size_t i)
{
    int topic = (int)(unit_random(&model->random) % TOPICS);
    if (topic % 2 == 0)
        waiters_file_seq(model->real, model->waits[i], topic);
    else
        waiters_file_key(model->real, model->waits[i], model_key(topic));
    model->topic[i] = topic;
    model->filed[i] = ++model->clock;
}

static void step(struct model *model)
{
    size_t i = unit_random(&model->random) % WAITS;
    int64_t deadline_ms = unit_random(&model->random) % 500;
    uint32_t random = unit_random(&model->random) % 8;
    if (model->waits[i] == NULL) {
        model->waits[i] = waiters_add(model->real, WAIT_OUTCOME, deadline_ms);
        model->deadline_ms[i] = deadline_ms;
        model->topic[i] = -1;
    } else if (random < 2) {
        waiters_postpone(model->real, model->waits[i], deadline_ms);
        model->deadline_ms[i] = deadline_ms;
    } else if (random < 4) {
        step_file(model, i);
    } else if (random == 4) {
        waiters_unfile(model->real, model->waits[i]);
        model->topic[i] = -1;
    } else if (random == 5) {
        waiters_detach(model->real, model->waits[i]);
        free(model->waits[i]);
        model->waits[i] = NULL;
    } else {
        waiters_remove(model->real, model->waits[i]);
        model->waits[i] = NULL;
    }
}

START_TEST(random_schedules_agree_with_the_model)
{
    static struct model model;
    memset(&model, 0, sizeof(model));
    model.random = (uint32_t)_i + 1;
    model.real = waiters_new();
    for (int n = 0; n < STEPS; n++) {
        step(&model);
        compare(&model);
        compare_topic(&model, n % TOPICS);
        if (n % 64 == 0)
            compare_members(&model);
    }
    /* Whatever is left ends in the order of the deadlines. */
    int64_t last_ms = 0;
    struct wait *wait;
    while ((wait = waiters_next_deadline(model.real)) != NULL) {
        if (wait->deadline_ms < last_ms)
            ck_abort_msg("%lld after %lld", (long long)wait->deadline_ms, (long long)last_ms);
        last_ms = wait->deadline_ms;
        waiters_remove(model.real, wait);
    }
    waiters_free(model.real);
}
END_TEST

START_TEST(ten_thousand_waits_come_and_go)
{
    enum { COUNT = 10000 };
    struct waiters *waiters = waiters_new();
    uint32_t random = 1;
    for (int i = 0; i < COUNT; i++) {
        struct wait *wait = waiters_add(waiters, WAIT_OUTCOME, unit_random(&random) % 1000);
        waiters_file_seq(waiters, wait, unit_random(&random) % 100);
    }
    ck_assert_uint_eq(waiters_count(waiters), COUNT);
    int count = 0;
    for (int64_t seq = 0; seq < 100; seq++) {
        struct wait_list *list;
        while ((list = waiters_of_seq(waiters, seq)) != NULL) {
            waiters_remove(waiters, TAILQ_FIRST(list));
            count++;
        }
    }
    ck_assert_int_eq(count, COUNT);
    ck_assert_uint_eq(waiters_count(waiters), 0);
    waiters_free(waiters);
}
END_TEST

Suite *waiters_suite(void)
{
    Suite *suite = suite_create("waiters");
    TCase *tcase = tcase_create("waiters");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, new_waiters_have_nothing);
    tcase_add_test(tcase, a_wait_is_found_under_its_topic);
    tcase_add_test(tcase, a_seq_and_a_key_of_its_bytes_are_two_topics);
    tcase_add_test(tcase, a_wait_is_filed_in_one_place_at_a_time);
    tcase_add_test(tcase, the_longest_key_has_room);
    tcase_add_test(tcase, what_is_removed_is_nowhere);
    tcase_add_test(tcase, barriers_come_in_the_order_of_their_numbers);
    tcase_add_test(tcase, a_barrier_goes_from_its_ticket_to_its_seq);
    tcase_add_test(tcase, a_barrier_in_the_middle_can_go);
    tcase_add_test(tcase, ten_thousand_waits_come_and_go);
    tcase_add_loop_test(tcase, random_schedules_agree_with_the_model, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
