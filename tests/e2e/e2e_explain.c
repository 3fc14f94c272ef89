/* explain on the emulated daemon: what is put together, what is refused, and that nobody is left
 * waiting or working. e2e_explain_nvrtc.c has the real compiler. */
#include "harness.h"

#include <unistd.h>

static json_t *explain_params(int n)
{
    return json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", n);
}

/* With one more field; takes value. */
static json_t *explain_with(const char *key, json_t *value)
{
    json_t *params = explain_params(256);
    json_object_set_new(params, key, value);
    return params;
}

static bool has_note(const json_t *answer, const char *part)
{
    size_t i;
    json_t *note;
    json_array_foreach (at(answer, "notes"), i, note)
        if (strstr(json_string_value(note), part) != NULL)
            return true;
    return false;
}

static const json_t *access_of(const json_t *answer, const char *space, const char *kind)
{
    size_t i;
    json_t *access;
    json_array_foreach (at(answer, "accesses"), i, access)
        if (strcmp(text_at(access, "space"), space) == 0 &&
            strcmp(text_at(access, "kind"), kind) == 0)
            return access;
    return NULL;
}

/* A second parameter, and a rule between the two. */
static const struct tiny two_params = {
    .tags = 4,
    .params = ", {\"name\": \"COST\", \"meaning\": \"m\", \"values\": [1, 2, "
              "{\"value\": 3, \"name\": \"dear\"}]}",
    .defaults = ", \"COST\": 2",
    .constraints = "{\"expr\": \"TAG != 3 || COST == 1\", \"message\": \"TAG 3 costs 1\"}",
};

/* --- what is put together --------------------------------------------------------------------- */

static void the_best_known_configuration_is_explained(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_t *answer = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_int_equal(number_at(answer, "config.TAG"), 0);
    assert_true(json_is_null(at(answer, "median_ns")));
    assert_true(has_note(answer, "was not measured"));
    json_decref(answer);
    tune_shape(harness, 256);
    answer = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_int_equal(number_at(answer, "config.TAG"), 2);
    assert_true(number_at(answer, "median_ns") > 0);
    assert_int_equal(json_array_size(at(answer, "interval_ns")), 2);
    assert_string_equal(text_at(answer, "measured_on"), text_at(answer, "device"));
    assert_false(has_note(answer, "was not measured"));
    json_decref(answer);
}

static void another_configuration_has_its_own_time(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    tune_shape(harness, 256);
    json_t *answer = ask(harness, "explain", explain_with("config", json_pack("{s:i}", "TAG", 1)));
    json_t *best = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "origin"), "given");
    assert_true(number_at(answer, "median_ns") > 1.5 * number_at(best, "median_ns"));
    json_decref(answer);
    json_decref(best);
}

static void the_device_and_the_code_are_told(void)
{
    struct harness *harness =
        start_tiny(&(struct tiny){.tags = 2, .more = ", \"registers\": 20"}, "{}");
    json_t *answer = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "arch"), "cpu");
    assert_true(number_at(answer, "occupancy.blocks_per_sm") >= 1);
    assert_true(number_at(answer, "occupancy.fraction") > 0);
    assert_int_equal(number_at(answer, "occupancy.threads"), 32);
    assert_int_equal(number_at(answer, "blocks"), 8);
    assert_true(number_at(answer, "waves") > 0);
    assert_int_equal(number_at(answer, "registers"), 20);
    assert_string_equal(text_at(answer, "registers_from"), "manifest");
    assert_true(has_note(answer, "the code is the emulator's"));
    assert_int_equal(number_at(answer, "roofline.flops"), 256);
    assert_string_equal(text_at(answer, "roofline.ceiling"), "memory");
    assert_true(number_at(answer, "estimate.time_ns") > 0);
    assert_true(strlen(text_at(answer, "words")) > 20);
    assert_null(at(answer, "cubin"));
    json_decref(answer);
}

static void accesses_have_their_line_and_sectors(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    json_t *answer = ask(harness, "explain", explain_params(256));
    const json_t *load = access_of(answer, "global", "load");
    const json_t *store = access_of(answer, "global", "store");
    assert_non_null(load);
    assert_non_null(store);
    assert_string_equal(text_at(load, "entry"), "tiny");
    assert_string_equal(text_at(load, "file"), "tiny.cu");
    assert_string_equal(text_at(load, "text"), "y[i] = x[i] + 1.0f;");
    assert_int_equal(number_at(load, "bytes"), 4);
    assert_true(number_at(load, "sectors_per_request") == 4);
    assert_true(number_at(store, "sectors_per_request") == 4);
    assert_int_equal(number_at(load, "requests"), 8);
    assert_int_equal(number_at(answer, "traced.of"), 8);
    assert_true(number_at(answer, "intensity") == 0.25);
    assert_int_equal(number_at(answer, "roofline.requested_bytes"), 2 * 4 * 256);
    json_decref(answer);
}

/* Measured once, and of the GPU that the time is of. */
static void the_ceilings_are_measured(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    tune_shape(harness, 256);
    json_t *answer = ask(harness, "explain", explain_params(256));
    json_t *again = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "roofline.limits.from"), "measured");
    assert_string_equal(text_at(answer, "roofline.limits.device"), text_at(answer, "device"));
    assert_true(number_at(answer, "roofline.attainable_ns") > 0);
    assert_true(number_at(answer, "roofline.share") > 0);
    assert_true(json_equal(at(answer, "roofline"), at(again, "roofline")));
    json_decref(answer);
    json_decref(again);
}

static void a_gpu_at_work_is_not_measured(void)
{
    static const char slow[] =
        "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 2000}]}";
    struct harness *harness = start_tiny(&(struct tiny){.tags = 40}, slow);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    json_t *answer = ask(harness, "explain", explain_with("trace", json_false()));
    assert_true(json_is_null(at(answer, "roofline.limits")));
    assert_true(has_note(answer, "a sweep runs or waits"));
    json_decref(answer);
    json_decref(ask(harness, "cancel", json_pack("{s:s}", "job", job.text)));
}

static void the_code_comes_where_it_is_asked_for(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    json_t *answer = ask(harness, "explain", explain_with("cubin", json_true()));
    assert_true(strlen(text_at(answer, "cubin")) > 1000);
    assert_string_equal(text_at(answer, "names.tiny"), "tiny");
    json_decref(answer);
}

static void parameters_not_given_are_those_of_the_best(void)
{
    struct harness *harness = start_tiny(&two_params, NULL);
    json_t *answer = ask(harness, "explain", explain_with("config", json_pack("{s:i}", "TAG", 1)));
    assert_int_equal(number_at(answer, "config.TAG"), 1);
    assert_int_equal(number_at(answer, "config.COST"), 2);
    assert_string_equal(text_at(answer, "origin"), "given");
    assert_true(has_note(answer, "parameters not given"));
    json_decref(answer);
    answer = ask(harness, "explain",
        explain_with("config", json_pack("{s:i, s:s}", "TAG", 1, "COST", "dear")));
    assert_string_equal(text_at(answer, "config.COST"), "dear");
    assert_false(has_note(answer, "parameters not given"));
    json_decref(answer);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void a_wrong_question_is_an_error_that_says_why(void)
{
    struct harness *harness = start_tiny(&two_params, NULL);
    static const struct {
        const char *config, *part;
    } cases[] = {
        {"{\"TAG\": 3}", "TAG 3 costs 1"},
        {"{\"TAG\": 3}", "parameters not given are those of the best"},
        {"{\"TAG\": 3, \"COST\": 2}", "TAG 3 costs 1"},
        {"{\"TAG\": 17}", "TAG"},
        {"{\"TAG\": \"x\"}", "TAG"},
        {"{\"TUG\": 1}", "no parameter \"TUG\"; there are: TAG COST"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *config = json_loads(cases[i].config, 0, NULL);
        const char *sentence =
            ask_fail(harness, "explain", explain_with("config", config), TUNE_EINVAL);
        if (strstr(sentence, cases[i].part) == NULL)
            fail_msg("\"%s\" is not in: %s", cases[i].part, sentence);
    }
    ask_fail(harness, "explain", explain_params(0), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("shape", json_object()), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("shape", json_null()), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("dtype", json_string("f16")), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("mode", json_string("hot")), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("policy", json_string("wait")), TUNE_EINVAL);
    ask_fail(harness, "explain", explain_with("kernel", json_string("huge")), TUNE_ENOTFOUND);
    ask_fail(harness, "explain", explain_with("arch", json_string("sm_33")), TUNE_ENOTFOUND);
}

static void a_launch_past_the_devices_limits_is_an_error(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2, .shared = "1000000"}, NULL);
    json_t *config = json_pack("{s:i}", "TAG", 1);
    const char *sentence =
        ask_fail(harness, "explain", explain_with("config", config), TUNE_ELIMIT);
    assert_non_null(strstr(sentence, "shared_bytes is 1000000"));
    sentence = ask_fail(harness, "explain", explain_params(256), TUNE_ENOTFOUND);
    assert_non_null(strstr(sentence, "no configuration of tiny"));
}

/* --- what is missing -------------------------------------------------------------------------- */

static void an_architecture_that_cannot_be_compiled_for_here_lacks_code_only(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    json_t *answer = ask(harness, "explain", explain_with("arch", json_string("sm_90")));
    assert_true(has_note(answer, "registers, spills and instructions"));
    assert_true(json_is_null(at(answer, "device")));
    assert_true(json_is_null(at(answer, "instructions")));
    assert_true(number_at(answer, "occupancy.blocks_per_sm") == 32);
    assert_string_equal(text_at(answer, "occupancy.limited_by"), "blocks");
    assert_non_null(access_of(answer, "global", "load"));
    json_decref(answer);
}

static void who_wants_no_trace_gets_none(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    json_t *answer = ask(harness, "explain", explain_with("trace", json_false()));
    assert_int_equal(json_array_size(at(answer, "accesses")), 0);
    assert_true(json_is_null(at(answer, "traced")));
    assert_true(has_note(answer, "as asked"));
    json_decref(answer);
}

#define EACH_LAUNCH(what) "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"" what "\"}]}"

static void a_trace_that_dies_costs_the_accesses_alone(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, EACH_LAUNCH("abort"));
    json_t *answer = ask(harness, "explain", explain_params(256));
    assert_int_equal(json_array_size(at(answer, "accesses")), 0);
    assert_true(has_note(answer, "accesses and branches are not known"));
    assert_true(number_at(answer, "occupancy.blocks_per_sm") >= 1);
    assert_true(strlen(text_at(answer, "words")) > 20);
    json_decref(answer);
}

static void use_no_host_compiler(void)
{
    setenv("TUNE_HOST_CXX", "/nonexistent", 1);
}

static void without_a_host_compiler_the_rest_is_there(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness->before_exec = use_no_host_compiler;
    harness_start(harness);
    json_t *answer = ask(harness, "explain", explain_with("arch", json_string("sm_80")));
    assert_int_equal(json_array_size(at(answer, "accesses")), 0);
    assert_true(has_note(answer, "accesses and branches are not known"));
    assert_true(number_at(answer, "occupancy.blocks_per_sm") > 0);
    json_decref(answer);
}

/* --- who leaves, and when --------------------------------------------------------------------- */

static const char request_line[] =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"explain\",\"params\":{\"kernel\":\"tiny\","
    "\"shape\":{\"N\":256}}}\n";

static bool is_tracing(void *context)
{
    pid_t pid;
    return harness_workers(context, "trace", &pid, 1) == 1;
}

static bool has_dropped_it(void *context)
{
    return harness_log_has(context, "nobody wants its trace any more");
}

static void a_client_that_leaves_takes_its_trace_with_it(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_scenario(harness, EACH_LAUNCH("hang"));
    harness->args[0] = "--debug";
    harness_start(harness);
    int client = raw_connect(harness);
    raw_send(client, request_line, sizeof request_line - 1);
    wait_for(is_tracing, harness, LIMIT_MS);
    close(client);
    wait_for(has_dropped_it, harness, LIMIT_MS);
    assert_false(is_tracing(harness));
}

static void askers_are_told_when_the_daemon_stops(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, EACH_LAUNCH("hang"));
    int client = raw_connect(harness);
    raw_send(client, request_line, sizeof request_line - 1);
    wait_for(is_tracing, harness, LIMIT_MS);
    harness_stop(harness);
    json_t *answer = raw_receive(client);
    assert_string_equal(text_at(answer, "error.data.code"), "busy");
    json_decref(answer);
    close(client);
}

static void a_question_that_comes_with_the_start_waits_for_the_devices(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_launch(harness);
    json_t *answer = ask(harness, "explain", explain_params(256));
    assert_string_equal(text_at(answer, "arch"), "cpu");
    assert_true(has_note(answer, "the code is the emulator's"));
    json_decref(answer);
}

/* Stopped in the middle of anything: at start, on the thread pool, at the compiler. */
static void a_daemon_stops_whatever_it_explains(void)
{
    for (int i = 0; i < 5; i++) {
        struct harness *harness = harness_new();
        write_tiny(harness, &(struct tiny){.tags = 2});
        if (i % 2)
            harness_start(harness);
        else
            harness_launch(harness);
        int client = raw_connect(harness);
        for (int j = 0; j < 5; j++)
            raw_send(client, request_line, sizeof request_line - 1);
        if (i == 4)
            close(client);
        harness_stop(harness);
        if (i != 4)
            close(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(the_best_known_configuration_is_explained),
        HARNESS_TEST(another_configuration_has_its_own_time),
        HARNESS_TEST(the_device_and_the_code_are_told),
        HARNESS_TEST(accesses_have_their_line_and_sectors),
        HARNESS_TEST(the_ceilings_are_measured),
        HARNESS_TEST(a_gpu_at_work_is_not_measured),
        HARNESS_TEST(the_code_comes_where_it_is_asked_for),
        HARNESS_TEST(parameters_not_given_are_those_of_the_best),
        HARNESS_TEST(a_wrong_question_is_an_error_that_says_why),
        HARNESS_TEST(a_launch_past_the_devices_limits_is_an_error),
        HARNESS_TEST(an_architecture_that_cannot_be_compiled_for_here_lacks_code_only),
        HARNESS_TEST(who_wants_no_trace_gets_none),
        HARNESS_TEST(a_trace_that_dies_costs_the_accesses_alone),
        HARNESS_TEST(without_a_host_compiler_the_rest_is_there),
        HARNESS_TEST(a_client_that_leaves_takes_its_trace_with_it),
        HARNESS_TEST(askers_are_told_when_the_daemon_stops),
        HARNESS_TEST(a_question_that_comes_with_the_start_waits_for_the_devices),
        HARNESS_TEST(a_daemon_stops_whatever_it_explains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
