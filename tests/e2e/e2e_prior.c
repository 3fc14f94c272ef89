/* Where a search begins: with winners of near shapes and what the static estimate holds best.
 * Budgets are so small that the order of the first evaluations shows in what was evaluated at all.
 */
#include "harness.h"

#define GPU(minor)                                                                                 \
    "{\"device\": {\"major\": 8, \"minor\": " #minor                                               \
    "}, \"nvrtc\": {\"archs\": [80, 86]}, \"rules\": [" FAST
#define FAST                                                                                       \
    "{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"                      \
    "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 23}}, \"do\": \"time_ns\", " \
    "\"value\": 50000}]}"

/* Forty configurations, of which TAG 23 is the fastest; work that tells the estimate nothing. */
static struct harness *start_forty(const char *scenario, const char *more)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 40, .more = more});
    harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

/* A random search of `evals` at shape N = n; prior NULL: the default. */
static json_t *search_params(int n, int evals, const char *prior)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    json_object_set_new(params, "strategy", json_string("random"));
    json_object_set_new(params, "budget", json_pack("{s:i}", "evals", evals));
    if (prior != NULL)
        json_object_set_new(params, "prior", json_string(prior));
    return params;
}

static void sweep_all(struct harness *harness, int n)
{
    json_t *params = search_params(n, 40, NULL);
    json_object_set_new(params, "strategy", json_string("exhaustive"));
    json_t *result = sweep_result(harness, params);
    assert_int_equal(number_at(result, "best.config.TAG"), 23);
    assert_int_equal(number_at(result, "prior.near") + number_at(result, "prior.static"), 0);
    json_decref(result);
}

/* Runs a search; whether it evaluated this TAG. Its result in *result, new. */
static bool search_finds(struct harness *harness, json_t *params, int tag, json_t **result)
{
    struct job_name job = sweep(harness, params);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    *result = json_incref(json_array_get(json_object_get(ended, "results"), 0));
    json_t *rows = records_of(harness, job.text);
    bool is_there = row_of(rows, tag) != NULL;
    json_decref(rows);
    json_decref(ended);
    return is_there;
}

static void the_winner_of_a_near_shape_comes_right_after_the_default(void)
{
    struct harness *harness = start_forty("{\"rules\": [" FAST, NULL);
    json_t *result;
    sweep_all(harness, 64);
    assert_true(search_finds(harness, search_params(96, 2, NULL), 23, &result));
    assert_int_equal(number_at(result, "evaluations"), 2);
    assert_int_equal(number_at(result, "prior.near"), 1);
    assert_int_equal(number_at(result, "prior.static"), 0);
    assert_int_equal(number_at(result, "best.config.TAG"), 23);
    json_decref(result);
    assert_true(search_finds(harness, search_params(128, 2, "near"), 23, &result));
    json_decref(result);
    /* What was begun with is not measured a second time. */
    assert_true(search_finds(harness, search_params(160, 40, NULL), 23, &result));
    assert_int_equal(number_at(result, "evaluations"), 40);
    json_decref(result);
}

static void without_prior_a_search_begins_as_if_nothing_were_known(void)
{
    struct harness *harness = start_forty("{\"rules\": [" FAST, NULL);
    json_t *result;
    sweep_all(harness, 64);
    static const char *const words[] = {"none", "static"};
    for (size_t i = 0; i < 2; i++) {
        assert_false(search_finds(harness, search_params(96 + (int)i, 2, words[i]), 23, &result));
        assert_int_equal(number_at(result, "evaluations"), 2);
        assert_int_equal(number_at(result, "prior.near") + number_at(result, "prior.static"), 0);
        json_decref(result);
    }
    json_t *params = search_params(96, 2, "nearly");
    assert_non_null(
        strstr(ask_fail(harness, "sweep", params, TUNE_EINVAL), "none, static, near, all"));
}

/* Less traffic with every TAG: the last one is the estimate's choice. */
static void the_estimates_choice_comes_right_after_the_default(void)
{
    struct harness *harness =
        start_forty("{\"rules\": [" FAST, ", \"traffic_global\": \"(40 - TAG) * 1000000 * N\"");
    json_t *result;
    assert_true(search_finds(harness, search_params(96, 2, "static"), 39, &result));
    assert_int_equal(number_at(result, "prior.static"), 1);
    json_decref(result);
    assert_true(search_finds(harness, search_params(128, 9, NULL), 32, &result));
    assert_int_equal(number_at(result, "evaluations"), 9);
    assert_int_equal(number_at(result, "prior.static"), 8); /* 39, 38 ... 32 */
    json_decref(result);
    assert_false(search_finds(harness, search_params(160, 2, "none"), 39, &result));
    json_decref(result);
}

static void a_budget_for_the_default_alone_leaves_no_room(void)
{
    struct harness *harness = start_forty("{\"rules\": [" FAST, NULL);
    json_t *result;
    sweep_all(harness, 64);
    assert_false(search_finds(harness, search_params(96, 1, NULL), 23, &result));
    assert_int_equal(number_at(result, "evaluations"), 1);
    assert_int_equal(number_at(result, "prior.near"), 0);
    json_decref(result);
}

/* cpu, then sm_80, then sm_86 on one database. */
static void winners_of_other_gpus_count_and_emulated_ones_do_not(void)
{
    struct harness *harness = start_forty("{\"rules\": [" FAST, NULL);
    json_t *result;
    sweep_all(harness, 64);
    harness_scenario(harness, GPU(0));
    harness_stop(harness);
    harness_start(harness);
    assert_false(search_finds(harness, search_params(64, 2, NULL), 23, &result));
    assert_int_equal(number_at(result, "prior.near"), 0);
    assert_string_equal(text_at(result, "arch"), "sm_80");
    json_decref(result);
    sweep_all(harness, 96);
    harness_scenario(harness, GPU(6));
    harness_stop(harness);
    harness_start(harness);
    assert_true(search_finds(harness, search_params(64, 3, NULL), 23, &result));
    assert_string_equal(text_at(result, "arch"), "sm_86");
    assert_in_range(number_at(result, "prior.near"), 1, 2);
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(the_winner_of_a_near_shape_comes_right_after_the_default),
        HARNESS_TEST(without_prior_a_search_begins_as_if_nothing_were_known),
        HARNESS_TEST(the_estimates_choice_comes_right_after_the_default),
        HARNESS_TEST(a_budget_for_the_default_alone_leaves_no_room),
        HARNESS_TEST(winners_of_other_gpus_count_and_emulated_ones_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
