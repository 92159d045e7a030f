/* SPDX-License-Identifier: MIT */
#include "retry.h"

#include "unit.h"

START_TEST(doubles_up_to_the_cap)
{
    static const int64_t whole_ms[] = {100, 200, 400, 800, 1000, 1000, 1000};
    for (unsigned i = 0; i < sizeof(whole_ms) / sizeof(whole_ms[0]); i++) {
        int64_t least = INT64_MAX;
        int64_t most = 0;
        for (uint32_t random = 0; random < 2000; random++) {
            int64_t delay = retry_delay_ms(100, 1000, i + 1, random);
            least = delay < least ? delay : least;
            most = delay > most ? delay : most;
        }
        ck_assert_int_eq(least, whole_ms[i] / 2);
        ck_assert_int_eq(most, whole_ms[i]);
    }
}
END_TEST

START_TEST(equal_numbers_give_equal_pauses)
{
    uint32_t state = 7;
    for (unsigned attempt = 1; attempt < 20; attempt++) {
        uint32_t random = unit_random(&state);
        ck_assert_int_eq(retry_delay_ms(50, 60000, attempt, random),
                         retry_delay_ms(50, 60000, attempt, random));
    }
    ck_assert_int_ne(retry_delay_ms(50, 60000, 9, 1), retry_delay_ms(50, 60000, 9, 2));
}
END_TEST

START_TEST(extreme_values_stay_in_range)
{
    static const uint32_t randoms[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX};
    for (unsigned i = 0; i < sizeof(randoms) / sizeof(randoms[0]); i++) {
        int64_t delay = retry_delay_ms(100, 60000, UINT32_MAX, randoms[i]);
        ck_assert(delay >= 30000 && delay <= 60000);
        delay = retry_delay_ms(INT64_MAX - 1, INT64_MAX, 3, randoms[i]);
        ck_assert_int_ge(delay, INT64_MAX / 2);
        delay = retry_delay_ms(3, INT64_MAX, 64, randoms[i]);
        ck_assert_int_ge(delay, INT64_MAX / 2);
        delay = retry_delay_ms(5000, 1000, 1, randoms[i]);
        ck_assert(delay >= 500 && delay <= 1000);
        ck_assert_int_eq(retry_delay_ms(1, 1, 1, randoms[i]), 1);
        ck_assert_int_eq(retry_delay_ms(0, 1000, UINT32_MAX, randoms[i]), 0);
    }
}
END_TEST

Suite *retry_suite(void)
{
    Suite *suite = suite_create("retry");
    TCase *tcase = tcase_create("retry");
    tcase_add_test(tcase, doubles_up_to_the_cap);
    tcase_add_test(tcase, equal_numbers_give_equal_pauses);
    tcase_add_test(tcase, extreme_values_stay_in_range);
    suite_add_tcase(suite, tcase);
    return suite;
}
