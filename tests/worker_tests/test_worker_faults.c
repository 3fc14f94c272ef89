/* Faults of driver and compiler, brought by the emulator's scenarios. */
#include "worker_driver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static json_t *harness, *kernel, *limits;

#define COUNT 64

static json_t *buffer(const char *name, const char *role)
{
    return json_pack("{ss,ss,si,si,ss,ss}", "name", name, "dtype", "f32", "count", COUNT, "bytes",
        COUNT * 4, "role", role, "fill", "uniform");
}

static json_t *launches(const char *entry, const char *to)
{
    return json_pack("[{ss,s[iii],s[iii],si,s[{ss,ss},{ss,ss}]}]", "entry", entry, "grid", 1, 1, 1,
        "block", COUNT, 1, 1, "shared_bytes", strcmp(entry, "k") ? 0 : 60000, "args", "kind",
        "buffer", "name", "a", "kind", "buffer", "name", to);
}

static json_t *setup(struct worker_process *bench)
{
    json_t *request = json_pack("{ss,si,ss,ss,s[o,o],s{s[o],so,s[{ss,ss,sf,sf}]},si}", "op",
        "setup", "session", 1, "harness", text_of(harness, "image"), "reference_image",
        text_of(kernel, "image"), "buffers", buffer("a", "in"), buffer("c", "out"), "reference",
        "buffers", buffer("r", "out"), "launches", launches("ref", "r"), "checks", "buffer", "c",
        "reference", "r", "relative", 0.0, "absolute", 0.0, "seed", 1);
    json_object_set_new(request, "reference_names", json_object());
    return worker_ask(bench, request);
}

static json_t *run(struct worker_process *bench)
{
    json_t *request = json_pack("{ss,si,ss,s[o,o],so,ss,ss,si,si,si}", "op", "bench", "session", 1,
        "image", text_of(kernel, "image"), "buffers", buffer("a", "in"), buffer("c", "out"),
        "launches", launches("k", "c"), "mode", "warm", "method", "event", "deadline_ms", 300,
        "sample_budget_ms", 100, "max_samples", 8);
    json_object_set_new(request, "names", json_object());
    return worker_ask(bench, request);
}

/* Starts a bench worker under a scenario of one rule, sets up, and benches once. */
static json_t *run_under(struct worker_process *bench, const char *rule)
{
    char scenario[600];
    snprintf(scenario, sizeof(scenario), "{\"rules\":[%s]}", rule);
    use_scenario(scenario);
    worker_start(bench, "bench", NULL);
    json_t *hello = worker_read(bench);
    assert_string_equal(text_of(hello, "error"), "");
    json_decref(hello);
    json_t *answer = setup(bench);
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("setup: %s", text_of(answer, "error"));
    json_decref(answer);
    return run(bench);
}

struct expectation {
    unsigned code;
    const char *outcome, *blame;
    bool is_sticky;
};

static void each_code_at_a_launch_is_handled_as_the_table_says(void **state)
{
    (void)state;
    static const struct expectation table[] = {{1, "launch_failed", "candidate", false},
        {2, "over_limits", "candidate", false}, {200, "launch_failed", "candidate", false},
        {209, "launch_failed", "candidate", false}, {222, "launch_failed", "candidate", false},
        {300, "launch_failed", "candidate", false}, {304, "crashed", "device", true},
        {400, "launch_failed", "candidate", false}, {500, "launch_failed", "candidate", false},
        {600, "launch_failed", "candidate", false}, {700, "crashed", "candidate", true},
        {701, "launch_failed", "candidate", false}, {702, "timeout", "candidate", true},
        {709, "crashed", "device", true}, {710, "crashed", "candidate", true},
        {714, "crashed", "candidate", true}, {715, "crashed", "candidate", true},
        {716, "crashed", "candidate", true}, {717, "crashed", "candidate", true},
        {718, "crashed", "candidate", true}, {719, "crashed", "candidate", true},
        {999, "crashed", "device", true}, {4242, "crashed", "candidate", true}};
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char rule[200];
        struct worker_process bench;
        snprintf(rule, sizeof(rule),
            "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"times\":1,\"do\":\"error\","
            "\"code\":%u,\"sticky\":%s}",
            table[i].code, table[i].is_sticky ? "true" : "false");
        json_t *answer = run_under(&bench, rule);
        print_message("%u: %s\n", table[i].code, text_of(answer, "error"));
        assert_string_equal(text_of(answer, "outcome"), table[i].outcome);
        assert_string_equal(text_of(answer, "blame"), table[i].blame);
        assert_int_equal(json_is_true(json_object_get(answer, "sticky")), table[i].is_sticky);
        assert_int_equal(json_integer_value(json_object_get(answer, "code")), table[i].code);
        json_decref(answer);
        if (table[i].is_sticky) {
            assert_null(worker_read(&bench));
        } else { /* the context is whole: the next candidate is measured by the same process */
            answer = run(&bench);
            assert_string_equal(text_of(answer, "outcome"), "ok");
            json_decref(answer);
        }
        worker_end(&bench);
    }
}

static void a_refused_attribute_fails_at_that_step_without_a_launch(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(&bench,
        "{\"call\":\"cuFuncSetAttribute\",\"do\":\"error\",\"code\":1},"
        "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"do\":\"abort\"}");
    assert_string_equal(text_of(answer, "outcome"), "launch_failed");
    assert_true(has_text(answer, "error", "dynamic shared memory"));
    json_decref(answer);
    assert_int_equal(worker_end(&bench), 0);
}

static void a_late_fault_is_still_this_candidates(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(&bench,
        "{\"call\":\"cuModuleUnload\",\"nth\":2,\"do\":\"error\",\"code\":719,\"sticky\":true}");
    assert_string_equal(text_of(answer, "outcome"), "crashed");
    assert_string_equal(text_of(answer, "blame"), "candidate");
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
    worker_end(&bench);
}

static void a_load_that_hangs_is_ended_by_the_watchdog(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(&bench,
        "{\"call\":\"cuEventRecord\",\"do\":\"hang\"}"); /* inside the deadline of a launch */
    assert_string_equal(text_of(answer, "outcome"), "timeout");
    json_decref(answer);
    int status = worker_end(&bench);
    assert_true(WIFSIGNALED(status));
}

static void garbage_in_the_output_is_a_wrong_result(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(
        &bench, "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"do\":\"garbage\"}");
    assert_string_equal(text_of(answer, "outcome"), "wrong_result");
    json_decref(answer);
    worker_end(&bench);
}

static void a_slow_first_launch_is_not_in_the_samples(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(&bench,
        "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"times\":1,\"do\":\"time_ns\","
        "\"time_ns\":50000000},"
        "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"do\":\"time_ns\",\"time_ns\":"
        "1000000}");
    assert_string_equal(text_of(answer, "outcome"), "ok");
    double median_ns = json_number_value(json_object_get(answer, "median_ns"));
    assert_true(median_ns > 900000 && median_ns < 1100000);
    json_decref(answer);
    worker_end(&bench);
}

static void a_busy_device_says_so_and_that_trying_again_helps(void **state)
{
    (void)state;
    struct worker_process bench;
    use_scenario(
        "{\"rules\":[{\"call\":\"cuDevicePrimaryCtxRetain\",\"do\":\"error\",\"code\":46}]}");
    worker_start(&bench, "bench", NULL);
    json_t *hello = worker_read(&bench);
    assert_true(has_text(hello, "error", "another process holds the device"));
    assert_int_equal(json_integer_value(json_object_get(hello, "code")), 46);
    assert_true(json_is_true(json_object_get(hello, "busy")));
    json_decref(hello);
    worker_end(&bench);
}

static void memory_errors_of_the_card_are_not_busy(void **state)
{
    (void)state;
    struct worker_process bench;
    use_scenario(
        "{\"rules\":[{\"call\":\"cuDevicePrimaryCtxRetain\",\"do\":\"error\",\"code\":214}]}");
    worker_start(&bench, "bench", NULL);
    json_t *hello = worker_read(&bench);
    assert_int_equal(json_integer_value(json_object_get(hello, "code")), 214);
    assert_true(json_is_false(json_object_get(hello, "busy")));
    json_decref(hello);
    worker_end(&bench);
}

static void a_compiler_that_aborts_takes_only_its_process(void **state)
{
    (void)state;
    struct worker_process compiler;
    use_scenario("{\"rules\":[{\"call\":\"nvrtcCompileProgram\",\"when\":{\"defines\":{\"BM\":32}},"
                 "\"do\":\"abort\"}]}");
    worker_start(&compiler, "compile", NULL);
    json_decref(worker_read(&compiler));
    const char *text =
        "{\"id\":1,\"op\":\"compile\",\"name\":\"t.cu\",\"source\":\"\",\"arch\":\"cpu\","
        "\"options\":[\"-DBM=32\"]}\n";
    assert_int_equal(write(compiler.fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_null(worker_read(&compiler));
    int status = worker_end(&compiler);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Both candidates fail at their first timed call: the answer names whose turn came first. */
static json_int_t first_in_the_round(struct worker_process *bench, int seed)
{
    static const char *const entries[] = {"k", "k2"};
    json_t *candidates = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(candidates,
            json_pack("{ss,s{},s[o,o],so}", "image", text_of(kernel, "image"), "names", "buffers",
                buffer("a", "in"), buffer("c", "out"), "launches", launches(entries[i], "c")));
    json_t *answer =
        worker_ask(bench, json_pack("{ss,si,ss,ss,si,si,si,so}", "op", "confirm", "session", 1,
                              "mode", "cold", "method", "event", "deadline_ms", 300, "budget_ms",
                              100, "seed", seed, "candidates", candidates));
    assert_string_equal(text_of(answer, "outcome"), "launch_failed");
    json_int_t first = json_integer_value(json_object_get(answer, "candidate"));
    json_decref(answer);
    return first;
}

static void the_order_of_a_confirmation_follows_its_seed(void **state)
{
    (void)state;
    int firsts[2] = {0, 0};
    for (int seed = 0; seed < 12; seed++) {
        struct worker_process bench;
        use_scenario(
            "{\"rules\":[{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"k\"},\"nth\":2,"
            "\"do\":\"error\",\"code\":1},{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":"
            "\"k2\"},\"nth\":2,\"do\":\"error\",\"code\":1}]}");
        worker_start(&bench, "bench", NULL);
        json_decref(worker_read(&bench));
        json_decref(setup(&bench));
        firsts[first_in_the_round(&bench, seed)]++;
        assert_int_equal(worker_end(&bench), 0);
    }
    assert_true(firsts[0] > 0 && firsts[1] > 0); /* by chance 1 in 2,048; the seeds are fixed */
}

/* Starts a bench worker under a scenario and has it measure the device; it stays. */
static json_t *limits_under(struct worker_process *bench, const char *scenario)
{
    use_scenario(scenario);
    worker_start(bench, "bench", NULL);
    json_decref(worker_read(bench));
    json_t *request =
        json_pack("{ss,ss,s{}}", "op", "limits", "image", text_of(limits, "image"), "names");
    return worker_ask(bench, request);
}

static double number_of(const json_t *answer, const char *key)
{
    return json_number_value(json_object_get(answer, key));
}

/* Each run of an entry takes so long on the device, and 30 ms on the host, where that is enough for
 * a copy not to grow beyond its first MiB and for one turn of multiply-adds. */
#define TIMED(entry, ns)                                                                           \
    "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"" entry "\"},\"do\":\"delay_ms\","         \
    "\"value\":30},{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"" entry                      \
    "\"},\"do\":\"time_ns\",\"value\":" ns "}"

static bool is_near(double number, double wanted)
{
    bool is_it = number > wanted * 0.9999 && number < wanted * 1.0001;
    if (!is_it)
        print_error("%g, not %g\n", number, wanted);
    return is_it;
}

/* Bytes are read and written. The driver's copy takes 1 us + 1 ns per 100 bytes here. */
static void the_faster_of_two_ways_to_copy_is_what_the_memory_reaches(void **state)
{
    (void)state;
    static const struct {
        const char *scenario;
        double wanted_ns;
    } cases[] = {{"{\"rules\":[" TIMED("limits_copy", "2000") "]}", 2000},
        {"{\"rules\":[" TIMED("limits_copy", "1000000000") "]}", 1000 + 1048576 / 100.0}};
    for (size_t i = 0; i < 2; i++) {
        struct worker_process bench;
        json_t *answer = limits_under(&bench, cases[i].scenario);
        assert_true(
            is_near(number_of(answer, "dram_bytes_per_s"), 2 * 1048576 / cases[i].wanted_ns * 1e9));
        json_decref(answer);
        assert_int_equal(worker_end(&bench), 0);
    }
}

/* 4 SMs of 8 blocks of 256 threads, 512 multiply-adds in a turn. */
static void multiply_adds_are_counted_as_two_operations_each(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = limits_under(&bench, "{\"rules\":[" TIMED("limits_fma", "1000000") "]}");
    assert_true(is_near(number_of(answer, "flops_f32"), 4.0 * 8 * 256 * 512 * 2 / 1e-3));
    json_decref(answer);
    assert_int_equal(worker_end(&bench), 0);
}

static void a_device_without_free_memory_is_told_so_and_not_measured(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = limits_under(&bench, "{\"device\":{\"memory_bytes\":4194304}}");
    assert_string_equal(text_of(answer, "outcome"), "over_limits");
    assert_true(has_text(answer, "error", "end other programs"));
    json_decref(answer);
    assert_int_equal(worker_end(&bench), 0);
}

static void a_device_that_faults_while_it_is_measured_ends_its_worker_with_an_answer(void **state)
{
    (void)state;
    static const struct {
        const char *scenario, *outcome;
    } cases[] = {{"{\"rules\":[{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":\"limits_fma\"},"
                  "\"do\":\"error\",\"code\":719,\"sticky\":true}]}",
                     "crashed"},
        {"{\"rules\":[{\"call\":\"cuModuleGetFunction\",\"when\":{\"entry\":\"limits_copy\"},"
         "\"do\":\"error\",\"code\":999,\"sticky\":true}]}",
            "crashed"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct worker_process bench;
        json_t *answer = limits_under(&bench, cases[i].scenario);
        assert_string_equal(text_of(answer, "outcome"), cases[i].outcome);
        assert_true(json_is_true(json_object_get(answer, "sticky")));
        assert_null(json_object_get(answer, "flops_f32"));
        json_decref(answer);
        assert_null(worker_read(&bench));
        worker_end(&bench);
    }
}

/* What was set up before is there after it, and a failure that is not sticky costs no worker. */
static void limits_are_measured_between_the_candidates_of_a_session(void **state)
{
    (void)state;
    struct worker_process bench;
    json_t *answer = run_under(&bench, "{\"call\":\"cuLaunchKernel\",\"when\":{\"entry\":"
                                       "\"limits_fma\"},\"times\":1,\"do\":\"error\",\"code\":1}");
    assert_string_equal(text_of(answer, "outcome"), "ok");
    json_decref(answer);
    static const char *const outcomes[] = {"launch_failed", "ok"};
    for (size_t i = 0; i < 2; i++) {
        answer = worker_ask(
            &bench, json_pack("{ss,ss}", "op", "limits", "image", text_of(limits, "image")));
        assert_string_equal(text_of(answer, "outcome"), outcomes[i]);
        json_decref(answer);
        answer = run(&bench);
        assert_string_equal(text_of(answer, "outcome"), "ok");
        json_decref(answer);
    }
    assert_int_equal(worker_end(&bench), 0);
}

static int compile_parts(void)
{
    struct worker_process compiler;
    worker_start(&compiler, "compile", NULL);
    json_t *hello = worker_read(&compiler);
    if (!hello || !json_is_true(json_object_get(hello, "emulated")))
        return -1;
    json_decref(hello);
    char *source = read_text(TUNE_KERNELS_SRC "/harness.cu");
    harness = compile_text(&compiler, source, "cpu", NULL, NULL);
    kernel = compile_text(&compiler,
        "extern \"C\" __global__ void k(const float *a, float *c) { c[threadIdx.x] = "
        "a[threadIdx.x]; }\n"
        "extern \"C\" __global__ void k2(const float *a, float *c) { c[threadIdx.x] = "
        "a[threadIdx.x]; "
        "}\n"
        "extern \"C\" __global__ void ref(const float *a, float *r) { r[threadIdx.x] = "
        "a[threadIdx.x]; }\n",
        "cpu", NULL, "k");
    free(source);
    source = read_text(TUNE_KERNELS_SRC "/limits.cu");
    limits = compile_text(&compiler, source, "cpu", NULL, NULL);
    free(source);
    worker_end(&compiler);
    return json_is_true(json_object_get(kernel, "ok")) ? 0 : -1;
}

static int clear(void **state)
{
    (void)state;
    use_scenario(NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_code_at_a_launch_is_handled_as_the_table_says, clear),
        cmocka_unit_test_teardown(a_refused_attribute_fails_at_that_step_without_a_launch, clear),
        cmocka_unit_test_teardown(a_late_fault_is_still_this_candidates, clear),
        cmocka_unit_test_teardown(a_load_that_hangs_is_ended_by_the_watchdog, clear),
        cmocka_unit_test_teardown(garbage_in_the_output_is_a_wrong_result, clear),
        cmocka_unit_test_teardown(a_slow_first_launch_is_not_in_the_samples, clear),
        cmocka_unit_test_teardown(a_busy_device_says_so_and_that_trying_again_helps, clear),
        cmocka_unit_test_teardown(memory_errors_of_the_card_are_not_busy, clear),
        cmocka_unit_test_teardown(the_order_of_a_confirmation_follows_its_seed, clear),
        cmocka_unit_test_teardown(a_compiler_that_aborts_takes_only_its_process, clear),
        cmocka_unit_test_teardown(the_faster_of_two_ways_to_copy_is_what_the_memory_reaches, clear),
        cmocka_unit_test_teardown(multiply_adds_are_counted_as_two_operations_each, clear),
        cmocka_unit_test_teardown(a_device_without_free_memory_is_told_so_and_not_measured, clear),
        cmocka_unit_test_teardown(
            a_device_that_faults_while_it_is_measured_ends_its_worker_with_an_answer, clear),
        cmocka_unit_test_teardown(limits_are_measured_between_the_candidates_of_a_session, clear),
    };
    use_emulator(true);
    if (compile_parts() < 0) {
        puts("skipped: the emulator does not run");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(harness);
    json_decref(kernel);
    json_decref(limits);
    return failed;
}
