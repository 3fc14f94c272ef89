#include "daemon/worker/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void ranks_are_those_of_the_binomial_table(void **state)
{
    (void)state;
    /* n -> the usual table's ranks (1-based there), e.g. 9: 2 and 8, 20: 6 and 15, 100: 40 and 61
     */
    static const size_t table[][3] = {{6, 0, 5}, {7, 0, 6}, {8, 0, 7}, {9, 1, 7}, {10, 1, 8},
        {12, 2, 9}, {15, 3, 11}, {20, 5, 14}, {50, 17, 32}, {100, 39, 60}};
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        size_t lo, hi;
        stats_ranks(table[i][0], &lo, &hi);
        assert_int_equal(lo, table[i][1]);
        assert_int_equal(hi, table[i][2]);
    }
}

static void few_samples_give_their_extremes(void **state)
{
    (void)state;
    for (size_t count = 1; count < 6; count++) {
        size_t lo, hi;
        stats_ranks(count, &lo, &hi);
        assert_int_equal(lo, 0);
        assert_int_equal(hi, count - 1);
    }
}

static void the_approximation_continues_the_exact_ranks(void **state)
{
    (void)state;
    size_t lo, hi, lo_next, hi_next;
    stats_ranks(2000, &lo, &hi);
    stats_ranks(2001, &lo_next, &hi_next);
    assert_true(lo_next >= lo && lo_next <= lo + 1);
    assert_true(hi_next >= hi && hi_next <= hi + 2);
    stats_ranks(100000, &lo, &hi);
    assert_in_range(lo, 49689, 49691);
    assert_int_equal(lo + hi, 99999);
}

static void median_and_interval_ignore_order_and_outliers(void **state)
{
    (void)state;
    double scratch[9];
    const double samples[9] = {5, 1000000, 3, 4, 6, 2, 7, 8, 1};
    struct stats stats = stats_of(samples, 9, scratch);
    assert_float_equal(stats.median, 5, 0);
    assert_float_equal(stats.lo, 2, 0);
    assert_float_equal(stats.hi, 8, 0);
    stats = stats_of(samples, 2, scratch);
    assert_float_equal(stats.median, 500002.5, 0);
}

/* 4,000 experiments of 25 skewed samples: the true median must lie inside 95 % of the intervals. */
static void the_interval_holds_what_it_promises(void **state)
{
    (void)state;
    uint64_t random = 1;
    int inside = 0;
    for (int experiment = 0; experiment < 4000; experiment++) {
        double samples[25], scratch[25];
        for (int i = 0; i < 25; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            double u = (double)(random >> 11) / 9007199254740992.0;
            samples[i] = u * u * u; /* median 0.125 */
        }
        struct stats stats = stats_of(samples, 25, scratch);
        inside += stats.lo <= 0.125 && 0.125 <= stats.hi;
    }
    assert_in_range(
        inside, 3780, 3920); /* 95.7 % expected of ranks 8 and 18, +- 5 sigma and more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_those_of_the_binomial_table),
        cmocka_unit_test(few_samples_give_their_extremes),
        cmocka_unit_test(the_approximation_continues_the_exact_ranks),
        cmocka_unit_test(median_and_interval_ignore_order_and_outliers),
        cmocka_unit_test(the_interval_holds_what_it_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
