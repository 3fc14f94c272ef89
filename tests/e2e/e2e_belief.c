/* Times that must not be believed, and a device whose speed changes under a sweep. */
#include "harness.h"

static struct harness *start_with(int tags, const char *scenario)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = tags});
    harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

static size_t rows_of_run(const json_t *rows, const char *run)
{
    size_t i, count = 0;
    json_t *row;
    json_array_foreach ((json_t *)rows, i, row)
        count += strstr(text_at(row, "run"), run) != NULL;
    return count;
}

static bool has_message(const json_t *result, const char *text)
{
    char *messages = json_dumps(json_object_get(result, "messages"), 0);
    bool is_there = strstr(messages, text) != NULL;
    free(messages);
    return is_there;
}

static void a_time_below_what_the_timer_can_tell_is_refused_and_never_the_best(void)
{
    struct harness *harness = start_with(4,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"tiny\", \"defines\": "
        "{\"TAG\": 3}}, \"do\": \"time_ns\", \"value\": 100}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(number_at(result, "refused"), 1);
    assert_int_not_equal(number_at(result, "best.config.TAG"), 3);
    assert_true(number_at(result, "best.median_ns") > 500);
    json_t *rows = records_of(harness, NULL);
    const json_t *row = row_of(rows, 3);
    assert_non_null(strstr(text_at(row, "detail"), "refused"));
    assert_non_null(strstr(text_at(row, "detail"), "timer"));
    json_decref(rows);
    json_decref(result);
}

/* Launches become half as fast again from the 150th on. */
static void drift_is_noticed_and_what_could_win_is_measured_again(void)
{
    struct harness *harness = start_with(48, "{\"rules\": [{\"call\": \"cuLaunchKernel\", "
                                             "\"when\": {\"entry\": \"tiny\"}, \"nth\": 150, "
                                             "\"do\": \"time_ns\", \"value\": 32000}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 48);
    assert_true(has_message(result, "drifted"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(rows_of_run(rows, "/search"), 48);
    assert_true(rows_of_run(rows, "/again") > 0);
    json_decref(rows);
    json_decref(result);
}

static void a_steady_device_is_not_said_to_drift(void)
{
    struct harness *harness =
        start_with(48, "{\"noise\": {\"seed\": 3, \"relative\": 0.01}, \"rules\": []}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 48);
    assert_false(has_message(result, "drifted"));
    json_decref(result);
}

static void a_restricted_sweep_is_compared_with_the_default_all_the_same(void)
{
    struct harness *harness = start_with(4,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"tiny\", \"defines\": "
        "{\"TAG\": 0}}, \"do\": \"time_ns\", \"value\": 10000}]}");
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "params", json_pack("{s:[i,i]}", "TAG", 2, 3));
    json_t *result = sweep_result(harness, params);
    assert_int_equal(number_at(result, "evaluations"), 3);
    assert_int_equal(number_at(result, "default.config.TAG"), 0);
    assert_int_equal(number_at(result, "best.config.TAG"), 0); /* never slower than the default */
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_time_below_what_the_timer_can_tell_is_refused_and_never_the_best),
        HARNESS_TEST(drift_is_noticed_and_what_could_win_is_measured_again),
        HARNESS_TEST(a_steady_device_is_not_said_to_drift),
        HARNESS_TEST(a_restricted_sweep_is_compared_with_the_default_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
