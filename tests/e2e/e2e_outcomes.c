/* What candidates can do to a tuner. Each outcome is brought about by a scenario or a kernel, is
 * reported as what it is, and the sweep goes on. */
#include "harness.h"

/* A rule without an effect: it counts the bench workers, each of which makes one context. */
#define COUNT_CONTEXTS                                                                             \
    "{\"call\": \"cuDevicePrimaryCtxRetain\", \"do\": \"delay_ms\", \"value\": 0}"

/* The parameters that tell each planted fault by its TAG. */
static json_t *quick_params(void)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "deadline_ms", json_integer(500));
    return params;
}

static json_int_t worker_deaths(struct harness *harness)
{
    json_t *stats = ask(harness, "stats", NULL);
    json_int_t deaths = json_integer_value(at(stats, "workers.deaths"));
    json_decref(stats);
    return deaths;
}

static void each_outcome_is_reported_as_such_and_the_sweep_goes_on(void)
{
    static const char *const expected[] = {"ok", "invalid", "compile_failed", "over_limits",
        "launch_failed", "wrong_result", "timeout", "crashed", "crashed", "ok"};
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 10,
                            .top = "#if TAG == 2\n#error \"planted\"\n#endif",
                            .grid = "\"TAG == 1 ? 1 / (TAG - 1) : ceildiv(N, 32)\"",
                            .shared = "TAG == 3 ? smem_optin + 1 : 0"});
    harness_scenario(harness,
        "{\"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 4}}, \"do\": \"error\", "
        "\"code\": 701},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 5}}, \"do\": "
        "\"garbage\"},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 6}}, \"do\": \"hang\"},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 7}}, \"do\": \"abort\"},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 8}}, \"do\": "
        "\"fault\"}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, quick_params());
    json_t *rows = records_of(harness, NULL);
    for (int tag = 0; tag < 10; tag++) {
        const json_t *row = row_of(rows, tag);
        assert_non_null(row);
        if (strcmp(text_at(row, "outcome"), expected[tag]) != 0)
            fail_msg("TAG %d: %s in place of %s", tag, text_at(row, "outcome"), expected[tag]);
        if (strcmp(expected[tag], "ok") != 0 && text_at(row, "detail")[0] == '\0')
            fail_msg("TAG %d: no reason is given", tag);
    }
    assert_int_equal(number_at(result, "evaluations"), 10);
    assert_int_equal(count_of(result, "ok"), 2);
    assert_int_equal(count_of(result, "crashed"), 2);
    static const char *const once[] = {
        "invalid", "compile_failed", "over_limits", "launch_failed", "wrong_result", "timeout"};
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        assert_int_equal(count_of(result, once[i]), 1);
    assert_int_equal(number_at(row_of(rows, 7), "attempts"), 2);
    assert_int_equal(number_at(row_of(rows, 8), "attempts"), 2);
    json_decref(rows);
    json_decref(result);
}

/* F24 */
static void a_launch_that_failed_and_took_no_time_is_never_the_best(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness,
        "{\"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 3}}, \"do\": "
        "\"time_ns\", "
        "\"value\": 1},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 3}}, \"do\": \"error\", "
        "\"code\": 1}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_int_not_equal(number_at(result, "best.config.TAG"), 3);
    assert_string_equal(text_at(row_of(rows, 3), "outcome"), "launch_failed");
    assert_non_null(strstr(text_at(row_of(rows, 3), "detail"), "code 1"));
    json_decref(rows);
    json_decref(result);
}

/* F28 */
static void a_sweep_in_which_all_are_wrong_ends_and_says_so(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 40, .body = "if (i < n) y[i] += 1.0f;"});
    harness_start(harness);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_non_null(strstr(text_at(job, "error"), "no valid candidate"));
    json_t *result = json_array_get(json_object_get(job, "results"), 0);
    assert_true(json_is_null(json_object_get(result, "best")));
    assert_int_equal(count_of(result, "wrong_result"), 40);
    ask_fail(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "cached"),
        TUNE_ENOTFOUND);
    json_t *rows = records_of(harness, NULL);
    assert_true(number_at(row_of(rows, 5), "max_error") > 1);
    json_decref(rows);
    json_decref(job);
}

/* F29 */
static void a_reference_that_fails_is_refused_before_any_candidate_runs(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"reference\"}, \"do\": "
        "\"error\", \"code\": 1},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"tiny\"}, \"do\": \"delay_ms\"}]}");
    harness_start(harness);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_non_null(strstr(text_at(job, "error"), "tiny"));
    assert_non_null(strstr(text_at(job, "error"), "reference"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(json_array_size(rows), 0);
    assert_int_equal(harness_matches(harness, 1), 0);
    json_decref(rows);
    json_decref(job);
}

static void a_reference_that_does_not_compile_is_refused_with_the_compilers_words(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.top = "#if TUNE_REFERENCE\n#error \"planted\"\n#endif"});
    harness_start(harness);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_non_null(strstr(text_at(job, "error"), "reference"));
    assert_non_null(strstr(text_at(job, "error"), "planted"));
    json_decref(job);
}

/* F30 and F31: `fault` lets the launch succeed and fails every later call on the context. */
static void one_poisoned_context_costs_one_candidate_and_not_its_neighbours(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 30});
    harness_scenario(harness,
        "{\"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 10}}, \"do\": \"error\", "
        "\"code\": 700, \"sticky\": true},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 12}}, \"do\": "
        "\"fault\"}," COUNT_CONTEXTS "]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 28);
    assert_int_equal(count_of(result, "crashed"), 2);
    assert_string_equal(text_at(row_of(rows, 10), "outcome"), "crashed");
    assert_string_equal(text_at(row_of(rows, 12), "outcome"), "crashed");
    assert_non_null(strstr(text_at(row_of(rows, 12), "detail"), "700"));
    assert_int_equal(harness_matches(harness, 2), 5); /* workers: each was tried twice */
    json_decref(rows);
    json_decref(result);
}

static void a_candidate_that_crashes_once_is_tried_again_and_counts(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness, "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": "
                              "{\"TAG\": 2}}, \"do\": "
                              "\"abort\", \"times\": 1}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_int_equal(count_of(result, "crashed"), 0);
    assert_int_equal(worker_deaths(harness), 1);
    json_decref(result);
}

static void what_failed_for_good_is_not_tried_again_by_the_next_sweep(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 6});
    harness_scenario(harness,
        "{\"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 2}}, \"do\": \"abort\"},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 3}}, \"do\": "
        "\"hang\"}]}");
    harness_start(harness);
    json_decref(sweep_result(harness, quick_params()));
    assert_int_equal(harness_matches(harness, 0), 2);
    assert_int_equal(harness_matches(harness, 1), 1);
    json_t *result = sweep_result(harness, quick_params());
    assert_int_equal(count_of(result, "ok"), 4);
    assert_int_equal(count_of(result, "crashed"), 1);
    assert_int_equal(count_of(result, "timeout"), 1);
    assert_int_equal(harness_matches(harness, 0), 2); /* not launched any more */
    assert_int_equal(harness_matches(harness, 1), 1);
    json_decref(result);
}

/* F47: driver code, what becomes of the candidate, whether its worker is replaced. A code that is
 * not in the table counts as fatal. */
static const struct code_case {
    int code;
    const char *outcome;
    int workers; /* that are replaced; 2: it was tried once more */
} candidate_codes[] = {
    {1, "launch_failed", 0},
    {2, "over_limits", 0},
    {200, "launch_failed", 0},
    {209, "launch_failed", 0},
    {222, "launch_failed", 0},
    {300, "launch_failed", 0},
    {400, "launch_failed", 0},
    {500, "launch_failed", 0},
    {600, "launch_failed", 0},
    {700, "crashed", 2},
    {701, "launch_failed", 0},
    {702, "timeout", 1},
    {710, "crashed", 2},
    {714, "crashed", 2},
    {715, "crashed", 2},
    {716, "crashed", 2},
    {717, "crashed", 2},
    {718, "crashed", 2},
    {719, "crashed", 2},
    {4242, "crashed", 2},
};
#define CANDIDATE_CODES (sizeof candidate_codes / sizeof candidate_codes[0])

static void the_table_of_driver_codes_is_kept_to(void)
{
    struct harness *harness = harness_new();
    json_t *rules = json_array();
    long workers = 1;
    write_tiny(harness, &(struct tiny){.tags = CANDIDATE_CODES + 1});
    for (size_t i = 0; i < CANDIDATE_CODES; i++) {
        json_array_append_new(rules,
            json_pack("{s:s, s:{s:{s:i}}, s:s, s:i}", "call", "cuLaunchKernel", "when", "defines",
                "TAG", (int)i + 1, "do", "error", "code", candidate_codes[i].code));
        workers += candidate_codes[i].workers;
    }
    json_array_append_new(rules, json_loads(COUNT_CONTEXTS, 0, NULL));
    json_t *scenario = json_pack("{s:o}", "rules", rules);
    char *text = json_dumps(scenario, 0);
    harness_scenario(harness, text);
    free(text);
    json_decref(scenario);
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 1);
    for (size_t i = 0; i < CANDIDATE_CODES; i++) {
        const json_t *row = row_of(rows, (int)i + 1);
        if (strcmp(text_at(row, "outcome"), candidate_codes[i].outcome) != 0)
            fail_msg("code %d: %s in place of %s", candidate_codes[i].code, text_at(row, "outcome"),
                candidate_codes[i].outcome);
    }
    assert_int_equal(harness_matches(harness, (int)CANDIDATE_CODES), workers);
    json_decref(rows);
    json_decref(result);
}

/* F51 */
static void a_refused_attribute_is_the_failure_and_nothing_is_launched(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.shared = "TAG == 1 ? 60000 : 0"});
    harness_scenario(harness, "{\"rules\": ["
                              "{\"call\": \"cuFuncSetAttribute\", \"when\": {\"defines\": "
                              "{\"TAG\": 1}}, \"do\": \"error\", "
                              "\"code\": 1},"
                              "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": "
                              "1}}, \"do\": \"delay_ms\"}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_string_not_equal(text_at(row_of(rows, 1), "outcome"), "ok");
    assert_non_null(strstr(text_at(row_of(rows, 1), "detail"), "code 1"));
    assert_int_equal(harness_matches(harness, 0), 1);
    assert_int_equal(harness_matches(harness, 1), 0);
    json_decref(rows);
    json_decref(result);
}

/* F53 */
static void grids_at_the_limit_run_and_one_beyond_is_refused_with_the_limit(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 6,
                            .grid = "\"TAG == 5 ? 2147483648 : ceildiv(N, 32)\", "
                                    "\"TAG == 1 ? 65535 : TAG == 2 ? 65536 : 1\", "
                                    "\"TAG == 3 ? 65535 : TAG == 4 ? 65536 : 1\"",
                            .shapes = "{\"N\": 1}"});
    harness_scenario(harness, "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": "
                              "{\"TAG\": 2}}, \"do\": "
                              "\"delay_ms\"}]}");
    harness_start(harness);
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "deadline_ms", json_integer(60000));
    json_t *result = sweep_result(harness, params);
    json_t *rows = records_of(harness, NULL);
    static const char *const expected[] = {
        "ok", "ok", "over_limits", "ok", "over_limits", "over_limits"};
    for (int tag = 0; tag < 6; tag++)
        assert_string_equal(text_at(row_of(rows, tag), "outcome"), expected[tag]);
    assert_non_null(strstr(text_at(row_of(rows, 2), "detail"), "65536"));
    assert_non_null(strstr(text_at(row_of(rows, 2), "detail"), "65535"));
    assert_non_null(strstr(text_at(row_of(rows, 2), "detail"), "y"));
    assert_non_null(strstr(text_at(row_of(rows, 4), "detail"), "z"));
    assert_non_null(strstr(text_at(row_of(rows, 5), "detail"), "2147483647"));
    assert_int_equal(harness_matches(harness, 0), 0);
    json_decref(rows);
    json_decref(result);
}

/* F63 */
static void a_slow_first_launch_is_not_what_is_reported(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_scenario(harness, "{\"rules\": ["
                              "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": "
                              "1}}, \"do\": \"time_ns\", "
                              "\"value\": 1000000},"
                              "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": "
                              "1}}, \"times\": 1, \"do\": "
                              "\"time_ns\", \"value\": 50000000}]}");
    harness_start(harness);
    json_decref(sweep_result(harness, sweep_params("tiny")));
    json_t *rows = records_of(harness, NULL);
    double median_ns = number_at(row_of(rows, 1), "median_ns");
    assert_true(median_ns > 990000 && median_ns < 1010000);
    json_decref(rows);
}

static void times_that_are_no_numbers_are_never_ok(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness, "{\"rules\": ["
                              "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": "
                              "1}}, \"do\": \"time_ns\", "
                              "\"value\": NaN},"
                              "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": "
                              "2}}, \"do\": \"time_ns\", "
                              "\"value\": Infinity}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 2);
    for (int tag = 1; tag <= 2; tag++) {
        assert_string_not_equal(text_at(row_of(rows, tag), "outcome"), "ok");
        assert_non_null(at(row_of(rows, tag), "median_ns")); /* null, not missing */
    }
    json_decref(rows);
    json_decref(result);
}

/* F95 */
static void forty_workers_that_crash_leave_no_zombie(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 21});
    harness_scenario(harness,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"tiny\"}, \"nth\": 20, "
        "\"do\": \"abort\"}]}");
    harness_start(harness);
    size_t before = harness_descriptors(harness);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_true(worker_deaths(harness) >= 38);
    assert_int_equal(harness_zombies(harness), 0);
    assert_in_range(harness_descriptors(harness), 1, before + 6); /* a worker or two live */
    json_decref(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(each_outcome_is_reported_as_such_and_the_sweep_goes_on),
        HARNESS_TEST(a_launch_that_failed_and_took_no_time_is_never_the_best),
        HARNESS_TEST(a_sweep_in_which_all_are_wrong_ends_and_says_so),
        HARNESS_TEST(a_reference_that_fails_is_refused_before_any_candidate_runs),
        HARNESS_TEST(a_reference_that_does_not_compile_is_refused_with_the_compilers_words),
        HARNESS_TEST(one_poisoned_context_costs_one_candidate_and_not_its_neighbours),
        HARNESS_TEST(a_candidate_that_crashes_once_is_tried_again_and_counts),
        HARNESS_TEST(what_failed_for_good_is_not_tried_again_by_the_next_sweep),
        HARNESS_TEST(the_table_of_driver_codes_is_kept_to),
        HARNESS_TEST(a_refused_attribute_is_the_failure_and_nothing_is_launched),
        HARNESS_TEST(grids_at_the_limit_run_and_one_beyond_is_refused_with_the_limit),
        HARNESS_TEST(a_slow_first_launch_is_not_what_is_reported),
        HARNESS_TEST(times_that_are_no_numbers_are_never_ok),
        HARNESS_TEST(forty_workers_that_crash_leave_no_zombie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
