/* The limits of a GPU, as the method `limits` gives them: measured when somebody asks, once, kept,
 * and never in the way of a sweep. */
#include "harness.h"

#include <sys/stat.h>
#include <unistd.h>

/* Rule 0 counts the runs of the multiply-adds and rule 1 those of the copy. */
#define COUNTED(device, more)                                                                      \
    "{" device "\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": "                 \
    "\"limits_fma\"}, \"do\": \"time_ns\", \"value\": 1000000}, {\"call\": \"cuLaunchKernel\", "   \
    "\"when\": {\"entry\": \"limits_copy\"}, \"do\": \"time_ns\", \"value\": 1000}" more "]}"
#define SLOW_COPY                                                                                  \
    ", {\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"limits_copy\"}, \"times\": 1, "      \
    "\"do\": \"delay_ms\", \"value\": 500}"

static struct harness *start_with(const char *scenario)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 8});
    harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

static json_t *limits(struct harness *harness)
{
    return ask(harness, "limits", NULL);
}

static json_t *fresh(void)
{
    return json_pack("{s:b}", "fresh", 1);
}

/* How often the multiply-adds ran. */
static long runs(const struct harness *harness)
{
    return harness_matches(harness, 0);
}

static bool has_begun(void *context)
{
    return harness_matches(context, 1) > 0;
}

/* Asks and does not wait. */
static int ask_aside(const struct harness *harness)
{
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"limits\"}\n";
    int descriptor = raw_connect(harness);
    raw_send(descriptor, line, sizeof line - 1);
    return descriptor;
}

/* --- measuring -------------------------------------------------------------------------------- */

static void limits_are_measured_once_and_kept_over_a_restart(void)
{
    struct harness *harness = start_with(COUNTED("", ""));
    json_t *first = limits(harness);
    assert_string_equal(text_at(first, "from"), "measured");
    assert_string_equal(text_at(first, "device"), "CPU emulator");
    assert_string_equal(text_at(first, "uuid"), "GPU-e0e01a70-0001-4000-8000-000000000000");
    assert_int_equal(number_at(first, "driver"), 13000);
    assert_true(number_at(first, "time_unix_ms") > 1.6e12);
    assert_true(number_at(first, "dram_bytes_per_s") > 1e12); /* a MiB or more in a microsecond */
    assert_true(number_at(first, "flops_f32") > 8e9);         /* 8.4 million or more in a ms */
    long before = runs(harness);
    json_t *second = limits(harness);
    assert_true(json_equal(first, second));
    harness_stop(harness);
    harness_start(harness);
    json_t *third = limits(harness);
    assert_true(json_equal(first, third));
    assert_int_equal(runs(harness), before);
    assert_true(before > 0);
    json_decref(first);
    json_decref(second);
    json_decref(third);
}

static void fresh_ones_and_those_of_another_driver_are_measured_again(void)
{
    struct harness *harness = start_with(COUNTED("", ""));
    json_decref(limits(harness));
    long once = runs(harness);
    json_decref(ask(harness, "limits", fresh()));
    long twice = runs(harness);
    assert_true(twice > once);
    harness_stop(harness);
    harness_scenario(harness, COUNTED("\"driver\": 13010, ", ""));
    harness_start(harness);
    json_t *later = limits(harness);
    assert_int_equal(number_at(later, "driver"), 13010);
    assert_true(runs(harness) > 0);
    json_decref(later);
}

static bool is_set_up(void *context)
{
    return harness_matches(context, 3) > 0;
}

static json_t *sweep_of(int n)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    return params;
}

/* The worker goes on with the sweep's session, which it still has: inputs are filled as often as in
 * a sweep that nobody disturbs. */
static void a_sweep_goes_on_while_limits_are_measured(void)
{
    struct harness *harness = start_with(COUNTED("",
        ", {\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 50},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"harness_fill\"}, \"do\": "
        "\"delay_ms\", \"value\": 0}"));
    struct job_name job = sweep(harness, sweep_of(64));
    wait_for(is_set_up, harness, LIMIT_MS);
    json_t *result = limits(harness);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(result, "from"), "measured");
    assert_string_equal(text_at(ended, "state"), "done");
    long fills = harness_matches(harness, 3);
    json_decref(sweep_result(harness, sweep_of(96)));
    assert_int_equal(harness_matches(harness, 3), 2 * fills);
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(rows_with(rows, "ok", -1), json_array_size(rows));
    json_decref(rows);
    json_decref(ended);
    json_decref(result);
}

static void all_who_ask_meanwhile_share_one_measurement(void)
{
    struct harness *harness = start_with(COUNTED("", SLOW_COPY));
    int others[3];
    for (size_t i = 0; i < 3; i++)
        others[i] = ask_aside(harness);
    json_t *mine = limits(harness);
    for (size_t i = 0; i < 3; i++) {
        json_t *message = raw_receive(others[i]);
        assert_true(json_equal(json_object_get(message, "result"), mine));
        json_decref(message);
        close(others[i]);
    }
    long once = runs(harness);
    json_decref(ask(harness, "limits", fresh()));
    assert_true(runs(harness) < 2 * once + once / 2); /* not four times */
    json_decref(mine);
}

static void what_a_client_that_left_asked_for_is_kept(void)
{
    struct harness *harness = start_with(COUNTED("", SLOW_COPY));
    int other = ask_aside(harness);
    wait_for(has_begun, harness, LIMIT_MS);
    close(other);
    json_decref(ask(harness, "ping", NULL));
    json_decref(limits(harness));
    long once = runs(harness);
    json_decref(limits(harness));
    assert_int_equal(runs(harness), once);
}

static void a_daemon_that_stops_meanwhile_says_so_and_ends(void)
{
    struct harness *harness = start_with(COUNTED("", SLOW_COPY));
    int other = ask_aside(harness);
    wait_for(has_begun, harness, LIMIT_MS);
    harness_stop(harness);
    json_t *message = raw_receive(other);
    assert_non_null(strstr(text_at(message, "error.message"), "stopping"));
    json_decref(message);
    close(other);
}

static void who_asks_before_the_devices_are_known_is_answered_too(void)
{
    struct harness *harness = harness_new();
    harness_scenario(harness,
        COUNTED("", ", {\"call\": \"nvrtcCompileProgram\", \"do\": \"delay_ms\", \"value\": 200}"));
    harness_launch(harness);
    json_t *result = limits(harness);
    assert_string_equal(text_at(result, "from"), "measured");
    json_decref(result);
}

/* --- failing ---------------------------------------------------------------------------------- */

static void a_crash_while_measuring_is_an_error_and_costs_a_worker(void)
{
    struct harness *harness =
        start_with("{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": "
                   "\"limits_fma\"}, \"times\": 1, \"do\": \"error\", \"code\": 719, \"sticky\": "
                   "true}, {\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"limits_copy\"}, "
                   "\"nth\": 20, \"times\": 1, \"do\": \"abort\"}]}");
    assert_non_null(strstr(ask_fail(harness, "limits", NULL, TUNE_ENODEVICE), "719"));
    json_t *devices = ask(harness, "devices", NULL);
    assert_null(at(json_array_get(devices, 0), "limits"));
    json_decref(devices);
    ask_fail(harness, "limits", NULL, TUNE_ENODEVICE); /* the worker's death */
    json_decref(limits(harness));
    json_decref(sweep_result(harness, sweep_params("tiny")));
}

static void a_device_that_is_offline_is_told_with_its_reason(void)
{
    struct harness *harness =
        start_with("{\"rules\": [{\"call\": \"cuDevicePrimaryCtxRetain\", \"do\": \"error\", "
                   "\"code\": 214}]}");
    assert_non_null(strstr(ask_fail(harness, "limits", NULL, TUNE_ENODEVICE), "214"));
    const char *why = ask_fail(harness, "limits", NULL, TUNE_ENODEVICE);
    assert_non_null(strstr(why, "offline"));
    assert_non_null(strstr(why, "214"));
}

static void what_is_no_device_here_is_refused(void)
{
    struct harness *harness = start_with("{\"device\": {\"count\": 2}}");
    assert_non_null(strstr(
        ask_fail(harness, "limits", json_pack("{s:i}", "device", 2), TUNE_ENODEVICE), "device 2"));
    assert_non_null(strstr(
        ask_fail(harness, "limits", json_pack("{s:s}", "device", "GTX"), TUNE_ENODEVICE), "GTX"));
    ask_fail(harness, "limits", json_pack("{s:[]}", "device"), TUNE_EINVAL);
    ask_fail(harness, "limits", json_pack("{s:i}", "gpu", 0), TUNE_EINVAL);
    json_t *second = ask(harness, "limits", json_pack("{s:i}", "device", 1));
    assert_string_equal(text_at(second, "uuid"), "GPU-e0e01a70-0001-4000-8000-000000000001");
    json_t *same = ask(harness, "limits",
        json_pack("{s:s}", "device", "gpu-E0E01A70-0001-4000-8000-000000000001"));
    assert_true(json_equal(second, same));
    json_decref(second);
    json_decref(same);
}

static void without_a_device_the_reason_is_told(void)
{
    struct harness *harness = start_with("{\"device\": {\"count\": 0}}");
    assert_non_null(strstr(ask_fail(harness, "limits", NULL, TUNE_ENODEVICE), "GPU"));
}

/* --- what came with the program --------------------------------------------------------------- */

#define ENTRY(device, bytes)                                                                       \
    "{\"device\": \"" device "\", \"dram_bytes_per_s\": " bytes                                    \
    ", \"flops_f32\": 2e12, \"driver\": 13000, \"time_unix_ms\": 1700000000000}"

static struct harness *start_shipped(const char *list)
{
    static char folder[128];
    struct harness *harness = harness_new();
    snprintf(folder, sizeof folder, "%s/records", harness->folder);
    mkdir(folder, 0700);
    harness_write(harness, "records/some.limits.json", "%s", list);
    harness->args[0] = "--records";
    harness->args[1] = folder;
    harness_start(harness);
    return harness;
}

static const char *devices_from(struct harness *harness, json_t **devices)
{
    *devices = ask(harness, "devices", NULL);
    return text_at(json_array_get(*devices, 0), "limits.from");
}

static void shipped_ones_stand_in_for_models_that_were_not_measured_here(void)
{
    struct harness *harness =
        start_shipped("[" ENTRY("CPU emulator", "1e9") ", " ENTRY("Far GPU", "3e12") "]");
    json_t *devices;
    assert_string_equal(devices_from(harness, &devices), "shipped");
    json_decref(devices);
    json_t *far = ask(harness, "limits", json_pack("{s:s}", "device", "Far GPU"));
    assert_string_equal(text_at(far, "from"), "shipped");
    assert_true(number_at(far, "dram_bytes_per_s") == 3e12);
    json_t *near = limits(harness);
    assert_string_equal(text_at(near, "from"), "measured");
    assert_string_equal(devices_from(harness, &devices), "measured");
    json_decref(devices);
    json_decref(near);
    json_decref(far);
}

static void wrong_entries_are_left_out_with_a_line_in_the_log(void)
{
    struct harness *harness =
        start_shipped("[" ENTRY("A", "0") ", " ENTRY("B", "1e30") ", 7, " ENTRY("C", "1e9") "]");
    ask_fail(harness, "limits", json_pack("{s:s}", "device", "A"), TUNE_ENODEVICE);
    ask_fail(harness, "limits", json_pack("{s:s}", "device", "B"), TUNE_ENODEVICE);
    json_decref(ask(harness, "limits", json_pack("{s:s}", "device", "C")));
    assert_true(harness_log_has(harness, "entry 1 is left out"));
    assert_true(harness_log_has(harness, "entry 2 is left out"));
    assert_true(harness_log_has(harness, "entry 3 is left out"));
    harness_stop(harness);
    harness_write(harness, "records/some.limits.json", "[{");
    harness_start(harness);
    assert_true(harness_log_has(harness, "some.limits.json are left out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(limits_are_measured_once_and_kept_over_a_restart),
        HARNESS_TEST(fresh_ones_and_those_of_another_driver_are_measured_again),
        HARNESS_TEST(a_sweep_goes_on_while_limits_are_measured),
        HARNESS_TEST(all_who_ask_meanwhile_share_one_measurement),
        HARNESS_TEST(what_a_client_that_left_asked_for_is_kept),
        HARNESS_TEST(a_daemon_that_stops_meanwhile_says_so_and_ends),
        HARNESS_TEST(who_asks_before_the_devices_are_known_is_answered_too),
        HARNESS_TEST(a_crash_while_measuring_is_an_error_and_costs_a_worker),
        HARNESS_TEST(a_device_that_is_offline_is_told_with_its_reason),
        HARNESS_TEST(what_is_no_device_here_is_refused),
        HARNESS_TEST(without_a_device_the_reason_is_told),
        HARNESS_TEST(shipped_ones_stand_in_for_models_that_were_not_measured_here),
        HARNESS_TEST(wrong_entries_are_left_out_with_a_line_in_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
