/* daemon/search: numbers without libm, and the Gaussian process. */
#include "daemon/search/gauss.h"
#include "daemon/search/number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void logarithm_and_exponential_are_close_to_those_of_libm(void **state)
{
    (void)state;
    for (double x = 1e-9; x < 1e12; x *= 1.37)
        assert_true(fabs(number_log2(x) - log2(x)) < 1e-8);
    for (double x = 0; x > -39; x -= 0.0731)
        assert_true(fabs(number_exp(x) / exp(x) - 1) < 1e-6);
    assert_true(number_exp(-1e9) == 0);
}

static void uniform_numbers_fill_the_unit_interval(void **state)
{
    (void)state;
    struct rng rng = {1};
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double x = number_uniform(&rng);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.02);
}

/* Two params, the second a code; five points on a slope. */
static struct gauss *fitted(void)
{
    static const float places[] = {0, 0.2f, 0.5f, 0.7f, 1};
    struct gauss *gauss = calloc(1, sizeof *gauss);
    gauss->width = 2;
    gauss->is_code[1] = true;
    gauss->weights[0] = gauss->weights[1] = 3;
    gauss->noise = 1e-6;
    for (size_t i = 0; i < 5; i++) {
        gauss->places[0][i] = places[i];
        gauss->targets[i] = 2 * places[i] - 1;
    }
    gauss->count = 5;
    gauss_fit(gauss);
    return gauss;
}

static void estimate(
    const struct gauss *gauss, float x, float code, double *mean, double *deviation)
{
    float places[1][MANIFEST_MAX_PARAMS] = {{x, code}};
    double trend = 0;
    gauss_estimate(gauss, places, &trend, 1, mean, deviation);
}

static void known_points_are_met_and_unknown_ones_are_uncertain(void **state)
{
    (void)state;
    struct gauss *gauss = fitted();
    double mean, deviation, between, far;
    estimate(gauss, 0.5f, 0, &mean, &deviation);
    assert_true(fabs(mean - 0) < 1e-3);
    estimate(gauss, 0.6f, 0, &mean, &between);
    assert_true(fabs(mean - 0.2) < 0.05);
    estimate(gauss, 0.6f, 1, &mean, &far);
    assert_true(deviation < between && between < far);
    free(gauss);
}

static void codes_are_equally_far_from_each_other(void **state)
{
    (void)state;
    struct gauss *gauss = fitted();
    double near_mean, near_deviation, far_mean, far_deviation;
    estimate(gauss, 0.2f, 0.1f, &near_mean, &near_deviation);
    estimate(gauss, 0.2f, 1, &far_mean, &far_deviation);
    assert_true(near_mean == far_mean && near_deviation == far_deviation);
    free(gauss);
}

static void an_outstanding_point_is_less_uncertain_and_changes_no_estimate(void **state)
{
    (void)state;
    struct gauss *gauss = fitted();
    double mean, deviation, mean_after, deviation_after;
    float place[MANIFEST_MAX_PARAMS] = {0.9f, 1};
    estimate(gauss, 0.85f, 1, &mean, &deviation);
    assert_true(gauss_append(gauss, place));
    estimate(gauss, 0.85f, 1, &mean_after, &deviation_after);
    assert_true(mean == mean_after);
    assert_true(deviation_after < 0.5 * deviation);
    free(gauss);
}

static void an_appended_point_is_as_one_that_was_fitted(void **state)
{
    (void)state;
    struct gauss *gauss = fitted(), *other = fitted();
    float place[MANIFEST_MAX_PARAMS] = {0.9f, 0};
    double means[2], deviations[2];
    gauss_append(gauss, place);
    other->places[0][5] = 0.9f;
    other->count = 6;
    estimate(gauss, 0.9f, 0, &other->targets[5], &deviations[0]);
    double variance = gauss->variance;
    gauss_fit(other);
    estimate(gauss, 0.8f, 0, &means[0], &deviations[0]);
    estimate(other, 0.8f, 0, &means[1], &deviations[1]);
    deviations[1] *= sqrt(variance / other->variance);
    assert_true(fabs(deviations[0] - deviations[1]) < 1e-3 * deviations[1]);
    free(gauss);
    free(other);
}

static void appending_ends_where_there_is_no_room(void **state)
{
    (void)state;
    struct gauss *gauss = fitted();
    float place[MANIFEST_MAX_PARAMS] = {
        0.9f, 0}; /* the same again and again: the factor stays real */
    size_t added = 0;
    while (gauss_append(gauss, place))
        added++;
    double mean, deviation;
    estimate(gauss, 0.9f, 0, &mean, &deviation);
    assert_int_equal(added, GAUSS_ROOM - 5);
    assert_true(isfinite(mean) && deviation > 0);
    free(gauss);
}

/* The mean far from all points, where the trend is `trend`. */
static double estimate_by_trend(struct gauss *gauss, double trend)
{
    float places[1][MANIFEST_MAX_PARAMS] = {{0.5f, 1}};
    double mean, deviation;
    gauss->weights[1] = 1e9; /* no point is like this one */
    gauss_fit(gauss);
    gauss_estimate(gauss, places, &trend, 1, &mean, &deviation);
    return mean;
}

static void a_trend_is_followed_as_far_as_the_targets_do(void **state)
{
    (void)state;
    static const double targets[] = {-1.2, -0.6, 0.3, 0.5, 1};
    static const double other[] = {0.9, -0.2, -1.1, 1.3, -0.9};
    struct gauss *gauss = fitted();
    for (size_t i = 0; i < 5; i++) {
        gauss->targets[i] = targets[i];
        gauss->trends[i] = targets[i];
    }
    double followed = estimate_by_trend(gauss, 2);
    assert_true(followed > 1.2 && followed < 2.2);
    for (size_t i = 0; i < 5; i++)
        gauss->trends[i] = -targets[i];
    assert_true(estimate_by_trend(gauss, 2) < 0); /* the guesses were the wrong way round */
    for (size_t i = 0; i < 5; i++)
        gauss->trends[i] = other[i];
    assert_true(fabs(estimate_by_trend(gauss, 2)) < 0.6 * followed);
    free(gauss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithm_and_exponential_are_close_to_those_of_libm),
        cmocka_unit_test(uniform_numbers_fill_the_unit_interval),
        cmocka_unit_test(known_points_are_met_and_unknown_ones_are_uncertain),
        cmocka_unit_test(codes_are_equally_far_from_each_other),
        cmocka_unit_test(an_outstanding_point_is_less_uncertain_and_changes_no_estimate),
        cmocka_unit_test(an_appended_point_is_as_one_that_was_fitted),
        cmocka_unit_test(appending_ends_where_there_is_no_room),
        cmocka_unit_test(a_trend_is_followed_as_far_as_the_targets_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
