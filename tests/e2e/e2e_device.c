/* Devices that are missing, too old, too new, busy, ill or lost. A candidate is never blamed for
 * its device. */
#include "harness.h"

#include <sys/types.h>

static struct harness *start_with(const char *scenario)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

static json_t *failed_sweep(struct harness *harness)
{
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
    return job;
}

static json_t *get_params(void)
{
    return json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", 64);
}

/* F32 */
static void a_device_older_than_the_compiler_is_one_error_that_names_both(void)
{
    struct harness *harness =
        start_with("{\"device\": {\"name\": \"Old card\", \"major\": 7, \"minor\": "
                   "0}, \"nvrtc\": {\"version\": [13, 0], \"archs\": [75, 80]},"
                   "\"rules\": [{\"call\": \"nvrtcCompileProgram\", \"do\": "
                   "\"delay_ms\", \"value\": 0}]}");
    long before = harness_matches(harness, 0); /* the compiler's self-test */
    json_t *job = failed_sweep(harness);
    assert_non_null(strstr(text_at(job, "error"), "sm_70"));
    assert_non_null(strstr(text_at(job, "error"), "75 80"));
    assert_non_null(strstr(text_at(job, "error"), "Old card"));
    assert_int_equal(harness_matches(harness, 0), before);
    json_decref(job);
}

/* F33 */
static void a_device_newer_than_the_compiler_is_served_by_ptx_and_says_so(void)
{
    struct harness *harness = start_with("{\"device\": {\"major\": 13, \"minor\": 7}, "
                                         "\"nvrtc\": {\"version\": [13, 0], \"archs\": [75, 90]}}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    char *messages = json_dumps(json_object_get(result, "messages"), 0);
    assert_int_equal(count_of(result, "ok"), 4);
    assert_string_equal(text_at(result, "arch"), "sm_137");
    assert_non_null(strstr(messages, "newer"));
    free(messages);
    json_decref(result);
}

/* F57 */
static void a_busy_device_is_tried_again_and_no_candidate_is_blamed(void)
{
    struct harness *harness =
        start_with("{\"rules\": [{\"call\": \"cuDevicePrimaryCtxRetain\", \"times\": 3, \"do\": "
                   "\"error\", \"code\": 46}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_int_equal(harness_matches(harness, 0), 4);
    json_decref(result);
}

static bool first_device_is_offline(void *context)
{
    json_t *devices = ask(context, "devices", NULL);
    bool is_offline = strcmp(text_at(json_array_get(devices, 0), "state"), "offline") == 0;
    json_decref(devices);
    return is_offline;
}

/* F58 */
static void an_ill_device_is_set_aside_and_the_sweep_runs_on_another(void)
{
    struct harness *harness = start_with("{\"device\": {\"count\": 2}, \"rules\": [{\"call\": "
                                         "\"cuDevicePrimaryCtxRetain\", \"when\": "
                                         "{\"device\": 0}, \"do\": \"error\", \"code\": 214}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_true(first_device_is_offline(harness));
    assert_int_equal(harness_matches(harness, 0), 1); /* one try */
    harness_scenario(harness, "{\"device\": {\"count\": 2}}");
    json_decref(ask(harness, "devices", json_pack("{s:i}", "revive", 0)));
    assert_false(first_device_is_offline(harness));
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "device", json_integer(0));
    json_decref(sweep_result(harness, params));
    json_decref(result);
}

/* F60 */
static void a_lost_device_goes_offline_after_three_workers_and_get_goes_on(void)
{
    struct harness *harness =
        start_with("{\"rules\": [{\"call\": \"cuDevicePrimaryCtxRetain\", \"do\": \"error\", "
                   "\"code\": 999}]}");
    json_t *job = failed_sweep(harness);
    assert_non_null(strstr(text_at(job, "error"), "999"));
    assert_in_range(harness_matches(harness, 0), 1, 3);
    wait_for(first_device_is_offline, harness, LIMIT_MS);
    json_t *answer = ask(harness, "get", get_params());
    assert_string_equal(text_at(answer, "origin"), "default");
    /* The next sweep is refused at once, with the reason. */
    assert_non_null(
        strstr(ask_fail(harness, "sweep", sweep_params("tiny"), TUNE_ENODEVICE), "offline"));
    json_decref(answer);
    json_decref(job);
}

/* F60, in the middle of a sweep: every call of every process fails from some moment on. */
static void a_device_that_drops_off_in_a_sweep_is_blamed_and_not_the_candidates(void)
{
    struct harness *harness = start_with("{\"rules\": [{\"call\": \"cuModuleLoadData\", \"nth\": "
                                         "5, \"do\": \"error\", \"code\": 999}]}");
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_string_equal(text_at(job, "code"), "no_device");
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(rows_with(rows, "ok", -1), json_array_size(rows));
    json_decref(rows);
    json_decref(job);
}

/* The device's codes of the table: 304, 709 and 999 once cost a worker and nothing else. */
static void a_device_error_that_passes_costs_a_worker_and_no_candidate(void)
{
    static const int codes[] = {304, 709, 999};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char scenario[300];
        snprintf(scenario, sizeof scenario,
            "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 2}}, "
            "\"times\": 1, \"do\": \"error\", \"code\": %d},"
            "{\"call\": \"cuDevicePrimaryCtxRetain\", \"do\": \"delay_ms\", \"value\": 0}]}",
            codes[i]);
        struct harness *harness = start_with(scenario);
        json_t *result = sweep_result(harness, sweep_params("tiny"));
        json_t *rows = records_of(harness, NULL);
        assert_int_equal(count_of(result, "ok"), 4);
        assert_int_equal(rows_with(rows, "ok", -1), json_array_size(rows));
        assert_int_equal(harness_matches(harness, 1), 2);
        json_decref(rows);
        json_decref(result);
    }
}

static void without_a_device_kernels_are_served_and_a_sweep_is_refused(void)
{
    struct harness *harness = start_with("{\"device\": {\"count\": 0}}");
    assert_non_null(
        strstr(ask_fail(harness, "sweep", sweep_params("tiny"), TUNE_ENODEVICE), "GPU"));
    ask_fail(harness, "get", get_params(), TUNE_ENODEVICE);
    json_t *params = get_params();
    json_object_set_new(params, "arch", json_string("sm_90"));
    json_t *answer = ask(harness, "get", params);
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_string_equal(text_at(answer, "arch"), "sm_90");
    json_decref(answer);
}

static json_t *sweep_on(const char *kernel, int device)
{
    json_t *params = sweep_params(kernel);
    json_object_set_new(params, "device", json_integer(device));
    return params;
}

static size_t rows_on(const json_t *rows, const char *run, char device)
{
    size_t i, count = 0;
    json_t *row;
    json_array_foreach ((json_t *)rows, i, row) {
        const char *uuid = text_at(row, "uuid");
        count += strstr(text_at(row, "run"), run) != NULL && uuid[strlen(uuid) - 1] == device;
    }
    return count;
}

/* One sweep is spread over all equal devices; the first of them confirms. */
static void a_sweep_is_spread_over_equal_devices(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 16});
    harness_scenario(harness, "{\"device\": {\"count\": 2}, \"rules\": [{\"call\": "
                              "\"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 100}]}");
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 16);
    json_decref(result);
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(rows_on(rows, "/search", '0') + rows_on(rows, "/search", '1'), 16);
    assert_true(rows_on(rows, "/search", '0') >= 4);
    assert_true(rows_on(rows, "/search", '1') >= 4);
    assert_true(rows_on(rows, "/confirm", '0') > 0);
    assert_int_equal(rows_on(rows, "/confirm", '1'), 0);
    json_decref(rows);
}

/* An answer for one of two models is tuned on that model. */
static void a_wanted_model_is_tuned_on_itself(void)
{
    struct harness *harness =
        start_with("{\"device\": [{\"name\": \"Model A\"}, {\"name\": \"Model B\"}]}");
    json_t *params = get_params();
    json_object_set_new(params, "gpu", json_string("Model B"));
    json_object_set_new(params, "policy", json_string("wait"));
    json_t *answer = ask(harness, "get", params);
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_string_equal(text_at(answer, "measured_on"), "Model B");
    json_decref(answer);
}

/* Two devices work at the same time, each on a sweep of its own. */
static void two_devices_run_two_sweeps_at_once(void)
{
    struct harness *harness = start_with("{\"device\": {\"count\": 2}, \"rules\": [{\"call\": "
                                         "\"cuModuleLoadData\", \"do\": \"delay_ms\", "
                                         "\"value\": 50}]}");
    struct job_name first = sweep(harness, sweep_on("tiny", 0));
    struct job_name second = sweep(harness, sweep_on("tiny", 1));
    json_t *jobs = ask(harness, "jobs", NULL);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(text_at(json_array_get(jobs, i), "state"), "running");
    json_decref(jobs);
    json_decref(wait_job(harness, first));
    json_decref(wait_job(harness, second));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(rows_with(rows, "ok", 3), 4); /* search and confirmation, on both */
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_device_older_than_the_compiler_is_one_error_that_names_both),
        HARNESS_TEST(a_device_newer_than_the_compiler_is_served_by_ptx_and_says_so),
        HARNESS_TEST(a_busy_device_is_tried_again_and_no_candidate_is_blamed),
        HARNESS_TEST(an_ill_device_is_set_aside_and_the_sweep_runs_on_another),
        HARNESS_TEST(a_lost_device_goes_offline_after_three_workers_and_get_goes_on),
        HARNESS_TEST(a_device_that_drops_off_in_a_sweep_is_blamed_and_not_the_candidates),
        HARNESS_TEST(a_device_error_that_passes_costs_a_worker_and_no_candidate),
        HARNESS_TEST(without_a_device_kernels_are_served_and_a_sweep_is_refused),
        HARNESS_TEST(a_sweep_is_spread_over_equal_devices),
        HARNESS_TEST(a_wanted_model_is_tuned_on_itself),
        HARNESS_TEST(two_devices_run_two_sweeps_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
