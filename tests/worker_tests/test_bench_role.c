/* The bench role on the emulator: verifying and timing small kernels that are right or wrong on
 * purpose. */
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

#define N 1000
#define SESSION 7

static struct worker_process compiler, bench;
static json_t *harness, *reference;

static const char reference_source[] =
    "extern \"C\" __global__ void ref(const float *a, const float *b, double *r, double *rb, long "
    "long n)\n"
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < n) { r[i] = a[i] * 2.0; rb[i] = b[i] + 1.0; } }\n";

/* c = 2 a, b += 1, s scratch; BODY comes after the right work. */
#define CANDIDATE(body)                                                                            \
    "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, long long n)\n"        \
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"                          \
    "  if (i < n) { c[i] = a[i] * 2.0f; b[i] += 1.0f; } " body " }\n"

static json_t *buffer(const char *name, const char *dtype, int bytes, const char *role)
{
    return json_pack("{ss,ss,si,si,ss,ss,sf,sb}", "name", name, "dtype", dtype, "count",
        strcmp(role, "scratch") ? N : 100, "bytes", (strcmp(role, "scratch") ? N : 100) * bytes,
        "role", role, "fill", "uniform", "fill_value", 0.0, "zero_before", 0);
}

static json_t *buffers(void)
{
    return json_pack("[o,o,o,o]", buffer("a", "f32", 4, "in"), buffer("b", "f32", 4, "inout"),
        buffer("c", "f32", 4, "out"), buffer("s", "f32", 4, "scratch"));
}

static json_t *arg(const char *name)
{
    return json_pack("{ss,ss}", "kind", "buffer", "name", name);
}

static json_t *launch(
    const char *entry, const char *third, const char *fourth, int block, int shared)
{
    return json_pack("{ss,s[iii],s[iii],si,sn,sb,si,s[o,o,o,o,{ss,ss,si}]}", "entry", entry, "grid",
        (N + 127) / 128, 1, 1, "block", block, 1, 1, "shared_bytes", shared, "cluster",
        "cooperative", 0, "repeat", 1, "args", arg("a"), arg("b"), arg(third), arg(fourth), "kind",
        "scalar", "type", "i64", "value", N);
}

static json_t *reference_plan(void)
{
    return json_pack("{s[o,o],s[o],s[{ss,ss,sn,sf,sf},{ss,ss,sn,sf,sf}]}", "buffers",
        buffer("r", "f64", 8, "out"), buffer("rb", "f64", 8, "out"), "launches",
        launch("ref", "r", "rb", 128, 0), "checks", "buffer", "c", "reference", "r", "scale",
        "relative", 0.0, "absolute", 0.0, "buffer", "b", "reference", "rb", "scale", "relative",
        1e-6, "absolute", 1e-6);
}

static json_t *compile(const char *source, const char *entry)
{
    json_t *answer = compile_text(&compiler, source, "cpu", NULL, entry);
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("%s", text_of(answer, "error"));
    return answer;
}

static json_t *setup_request(void)
{
    json_t *request = json_pack("{ss,si,ss,ss,so,so,si,sn}", "op", "setup", "session", SESSION,
        "harness", text_of(harness, "image"), "reference_image", text_of(reference, "image"),
        "buffers", buffers(), "reference", reference_plan(), "seed", 5, "hooks");
    json_object_set(request, "reference_names", json_object_get(reference, "names"));
    return request;
}

static int start_bench(void **state)
{
    (void)state;
    worker_start(&bench, "bench", NULL);
    json_t *hello = worker_read(&bench);
    assert_string_equal(text_of(hello, "hello"), "bench");
    assert_string_equal(text_of(json_object_get(hello, "device"), "arch"), "cpu");
    json_decref(hello);
    json_t *answer = worker_ask(&bench, setup_request());
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("setup: %s", text_of(answer, "error"));
    json_decref(answer);
    return 0;
}

static int end_bench(void **state)
{
    (void)state;
    worker_end(&bench);
    return 0;
}

static json_t *bench_request(const json_t *compiled)
{
    json_t *request = json_pack("{ss,si,ss,so,s[o],ss,ss,sb,si,si,si,sn}", "op", "bench", "session",
        SESSION, "image", text_of(compiled, "image"), "buffers", buffers(), "launches",
        launch("k", "c", "s", 128, 0), "mode", "cold", "method", "event", "verify", 1,
        "deadline_ms", 1000, "sample_budget_ms", 5000, "max_samples", 20, "stop_above_ns");
    json_object_set(request, "names", json_object_get(compiled, "names"));
    return request;
}

static json_t *run(const char *source)
{
    json_t *compiled = compile(source, "k");
    json_t *answer = worker_ask(&bench, bench_request(compiled));
    json_decref(compiled);
    return answer;
}

static bool is_outcome(const json_t *answer, const char *word)
{
    bool is_it = strcmp(text_of(answer, "outcome"), word) == 0;
    if (!is_it)
        print_error("%s: %s\n", text_of(answer, "outcome"), text_of(answer, "error"));
    return is_it;
}

static double number(const json_t *answer, const char *key)
{
    return json_number_value(json_object_get(answer, key));
}

static void a_right_candidate_is_verified_and_timed_in_every_way(void **state)
{
    (void)state;
    static const char *const modes[] = {"cold", "warm"};
    static const char *const methods[] = {"auto", "event", "graph"};
    json_t *compiled = compile(CANDIDATE(""), "k");
    for (int i = 0; i < 6; i++) {
        json_t *request = bench_request(compiled);
        json_object_set_new(request, "mode", json_string(modes[i / 3]));
        json_object_set_new(request, "method", json_string(methods[i % 3]));
        json_t *answer = worker_ask(&bench, request);
        assert_true(is_outcome(answer, "ok"));
        assert_false(json_is_true(json_object_get(answer, "sticky")));
        assert_true(number(answer, "median_ns") > 0);
        assert_true(number(answer, "max_error") <= 1);
        size_t samples = json_array_size(json_object_get(answer, "samples_ns"));
        assert_in_range(samples, 7, 20);
        json_t *interval = json_object_get(answer, "interval_ns");
        assert_true(json_number_value(json_array_get(interval, 0)) <= number(answer, "median_ns"));
        assert_true(json_number_value(json_array_get(interval, 1)) >= number(answer, "median_ns"));
        if (i % 3)
            assert_string_equal(text_of(answer, "method"), methods[i % 3]);
        json_decref(answer);
    }
    json_decref(compiled);
}

static void each_request_says_once_that_it_has_the_device(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE(""));
    assert_true(is_outcome(answer, "ok"));
    assert_int_equal(bench.locked_events, 1);
    json_decref(answer);
}

/* b += 1 would be far from its reference after dozens of timed calls; graphs run on copies. */
static void an_in_place_kernel_starts_from_fresh_inputs_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *answer = run(CANDIDATE(""));
        assert_true(is_outcome(answer, "ok"));
        json_decref(answer);
    }
}

static void a_wrong_element_is_named_with_both_values(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("if (i == n - 1) c[i] = 0.5f;"));
    assert_true(is_outcome(answer, "wrong_result"));
    assert_true(has_text(answer, "error", "1 of 1000 elements of c"));
    assert_true(has_text(answer, "error", "c[999] is 0.5"));
    assert_true(number(answer, "max_error") > 1);
    assert_false(json_is_true(json_object_get(answer, "sticky")));
    assert_null(json_object_get(answer, "median_ns"));
    json_decref(answer);
}

static void halves_written_by_two_candidates_are_both_wrong_in_both_orders(void **state)
{
    (void)state;
    static const char half[] =
        "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, "
        "long long n) { long long i = blockIdx.x * (long long)blockDim.x + "
        "threadIdx.x; if (i < n) b[i] += 1.0f; if (i < n && (i < n / 2) == %d) "
        "c[i] = a[i] * 2.0f; }";
    static const int orders[] = {0, 1, 1, 0};
    json_decref(run(CANDIDATE(""))); /* leaves a whole, right output behind */
    for (int i = 0; i < 4; i++) {
        char source[sizeof(half) + 8];
        snprintf(source, sizeof(source), half, orders[i]);
        json_t *answer = run(source);
        assert_true(is_outcome(answer, "wrong_result"));
        assert_true(has_text(answer, "error", "500 of 1000"));
        json_decref(answer);
    }
}

static void a_write_past_a_buffer_is_seen_and_ends_the_worker(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("if (i == 3) s[100] = 1.0f;"));
    assert_true(is_outcome(answer, "wrong_result"));
    assert_true(has_text(answer, "error", "outside its buffer s"));
    assert_true(has_text(answer, "error", "past its end"));
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
    assert_null(worker_read(&bench));
}

static void a_write_before_a_buffer_is_seen(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("if (i == 3) ((char *)c)[-1] = 1;"));
    assert_true(is_outcome(answer, "wrong_result"));
    assert_true(has_text(answer, "error", "the first 1 bytes before its start"));
    json_decref(answer);
}

static void a_write_to_an_input_is_seen_even_when_outputs_are_right(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("__syncthreads(); if (i == n - 1) a[i] = 9.0f;"));
    assert_true(is_outcome(answer, "wrong_result"));
    assert_true(has_text(answer, "error", "writes to its input a"));
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
}

/* Right on the first launch only: it counts its launches in scratch that nobody clears. */
static void state_left_in_scratch_is_caught_after_timing(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("if (i == 0) { if (s[0] == 5.0f) c[0] = 7.0f; s[0] = 5.0f; }"));
    assert_true(is_outcome(answer, "wrong_result"));
    json_decref(answer);
}

static void a_fault_is_this_candidates_and_ends_the_worker(void **state)
{
    (void)state;
    json_t *answer = run(CANDIDATE("if (i == 3) c[1ll << 40] = 1.0f;"));
    assert_true(is_outcome(answer, "crashed"));
    assert_int_equal(json_integer_value(json_object_get(answer, "code")), 700);
    assert_string_equal(text_of(answer, "blame"), "candidate");
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
    assert_null(worker_read(&bench));
}

static void an_endless_kernel_is_ended_at_its_deadline(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE("while (i == 5) ((volatile float *)s)[0] = 1.0f;"), "k");
    json_t *request = bench_request(compiled);
    json_object_set_new(request, "deadline_ms", json_integer(200));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "timeout"));
    assert_true(has_text(answer, "error", "k did not end within 200 ms"));
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
    json_decref(compiled);
    int status = worker_end(&bench);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    worker_start(&bench, "compile", NULL); /* for the teardown */
}

static json_t *run_shaped(const json_t *compiled, int block, int shared)
{
    json_t *request = bench_request(compiled);
    json_object_set_new(
        request, "launches", json_pack("[o]", launch("k", "c", "s", block, shared)));
    return worker_ask(&bench, request);
}

/* Right only where taps holds a's elements. */
#define CONSTANT_CANDIDATE(room)                                                                   \
    "extern \"C\" { __constant__ float taps[" room "]; }\n"                                        \
    "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, long long n)\n"        \
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"                          \
    "  if (i < n) { c[i] = taps[i] * 2.0f; b[i] += 1.0f; } }\n"

/* The request for a candidate whose constant `name` is set before its kernel, or after it. */
static json_t *constant_request(const json_t *compiled, const char *name, bool is_before)
{
    json_t *request = bench_request(compiled);
    json_array_insert_new(json_object_get(request, "launches"), is_before ? 0 : 1,
        json_pack("{ss,ss}", "constant", name, "buffer", "a"));
    return request;
}

static void a_constant_is_set_before_its_kernel_in_every_way_of_timing(void **state)
{
    (void)state;
    static const char *const modes[] = {"cold", "warm"};
    static const char *const methods[] = {"event", "graph"};
    json_t *compiled = compile(CONSTANT_CANDIDATE("1003"), "k");
    for (int i = 0; i < 4; i++) {
        json_t *request = constant_request(compiled, "taps", true);
        json_object_set_new(request, "mode", json_string(modes[i / 2]));
        json_object_set_new(request, "method", json_string(methods[i % 2]));
        json_t *answer = worker_ask(&bench, request);
        assert_true(is_outcome(answer, "ok"));
        assert_string_equal(text_of(answer, "method"), methods[i % 2]);
        json_decref(answer);
    }
    json_decref(compiled);
}

/* The second call of such a candidate would be right: its constant holds what the first has left.
 */
static void a_constant_that_is_set_too_late_is_a_wrong_result(void **state)
{
    (void)state;
    json_t *compiled = compile(CONSTANT_CANDIDATE("1000"), "k");
    for (int i = 0; i < 2; i++) {
        json_t *answer = worker_ask(&bench, constant_request(compiled, "taps", false));
        assert_true(is_outcome(answer, "wrong_result"));
        assert_true(has_text(answer, "error", "1000 of 1000 elements of c"));
        json_decref(answer);
    }
    json_t *answer = worker_ask(&bench, bench_request(compiled)); /* and one that never is */
    assert_true(is_outcome(answer, "wrong_result"));
    json_decref(answer);
    json_decref(compiled);
}

static void a_constant_that_is_missing_or_too_small_is_named(void **state)
{
    (void)state;
    json_t *compiled = compile(CONSTANT_CANDIDATE("1000"), "k");
    json_t *answer = worker_ask(&bench, constant_request(compiled, "tips", true));
    assert_true(is_outcome(answer, "launch_failed"));
    assert_true(has_text(answer, "error", "no variable tips"));
    assert_true(has_text(answer, "error", "extern \"C\" __constant__"));
    assert_false(json_is_true(json_object_get(answer, "sticky")));
    json_decref(answer);
    json_decref(compiled);
    compiled = compile(CONSTANT_CANDIDATE("999"), "k");
    answer = worker_ask(&bench, constant_request(compiled, "taps", true));
    assert_true(is_outcome(answer, "over_limits"));
    assert_true(
        has_text(answer, "error", "taps has 3996 bytes, but a, which is copied to it, has 4000"));
    json_decref(answer);
    json_decref(compiled);
}

static json_t *confirm_request(const json_t *compiled, const char *method, size_t count)
{
    json_t *candidates = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *each = json_pack("{ss,so,s[o]}", "image", text_of(compiled, "image"), "buffers",
            buffers(), "launches", launch("k", "c", "s", 128, 0));
        json_object_set(each, "names", json_object_get(compiled, "names"));
        json_array_append_new(candidates, each);
    }
    return json_pack("{ss,si,ss,ss,si,si,si,so}", "op", "confirm", "session", SESSION, "mode",
        "warm", "method", method, "deadline_ms", 1000, "budget_ms", 500, "seed", 3, "candidates",
        candidates);
}

/* `prepare` leaves in s what k needs; a k that does not find it faults. So confirming shows it too,
 * where outputs are not compared. k leaves s as no other k can use it. */
#define PREPARED_CANDIDATE(work)                                                                   \
    "extern \"C\" __global__ void prepare(float *a, float *b, float *c, float *s, long long n)\n"  \
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n" work                     \
    "  if (i < 100) s[i] = a[i]; }\n"                                                              \
    "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, long long n)\n"        \
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"                          \
    "  if (i < 100 && s[i] != a[i]) c[1ll << 40] = 1.0f;\n"                                        \
    "  if (i < n) { c[i] = a[i] * 2.0f; b[i] += 1.0f; } }\n"
#define SPOILER CANDIDATE("if (i < 100) s[i] = 77.0f;")

static json_t *prepared_launches(void)
{
    json_t *once = launch("prepare", "c", "s", 128, 0);
    json_object_set_new(once, "once", json_true());
    return json_pack("[o,o]", once, launch("k", "c", "s", 128, 0));
}

static void what_is_done_once_is_there_in_every_way_of_timing_and_not_timed(void **state)
{
    (void)state;
    static const char *const modes[] = {"cold", "warm"};
    static const char *const methods[] = {"event", "graph"};
    static const char *const sources[] = {PREPARED_CANDIDATE(""),
        PREPARED_CANDIDATE("for (int j = 0; j < 1000; j++) if (i == 0) s[j % 100] = a[j];\n")};
    double median_ns[2][4];
    for (int source = 0; source < 2; source++) {
        json_t *compiled = compile(sources[source], "k");
        for (int i = 0; i < 4; i++) {
            json_t *request = bench_request(compiled);
            json_object_set_new(request, "launches", prepared_launches());
            json_object_set_new(request, "mode", json_string(modes[i / 2]));
            json_object_set_new(request, "method", json_string(methods[i % 2]));
            json_t *answer = worker_ask(&bench, request);
            assert_true(is_outcome(answer, "ok"));
            median_ns[source][i] = number(answer, "median_ns");
            json_decref(answer);
        }
        json_decref(compiled);
    }
    for (int i = 0; i < 4; i++) /* the emulator's time is counted from accesses and repeats */
        assert_true(median_ns[0][i] == median_ns[1][i]);
}

static void what_is_done_once_is_done_again_where_others_used_the_scratch(void **state)
{
    (void)state;
    static const char *const methods[] = {"event", "graph"};
    json_t *prepared = compile(PREPARED_CANDIDATE(""), "k"), *spoiler = compile(SPOILER, "k");
    for (int i = 0; i < 2; i++) {
        json_t *request = confirm_request(spoiler, methods[i], 3);
        json_t *second = json_array_get(json_object_get(request, "candidates"), 1);
        json_object_set(second, "image", json_object_get(prepared, "image"));
        json_object_set_new(second, "launches", prepared_launches());
        json_t *answer = worker_ask(&bench, request);
        assert_true(is_outcome(answer, "ok"));
        json_decref(answer);
    }
    json_decref(prepared);
    json_decref(spoiler);
}

/* Right at the first call, and at each before which `prepare` is done again, as in timing. */
static void what_spoils_what_is_done_once_is_a_wrong_result(void **state)
{
    (void)state;
    json_t *compiled = compile(
        "extern \"C\" __global__ void prepare(float *a, float *b, float *c, float *s, long long "
        "n)\n"
        "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "  if (i < 100) s[i] = a[i]; }\n"
        "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, long long n)\n"
        "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "  if (i < n) { c[i] = 2.0f * (i < 100 ? s[i] : a[i]); b[i] += 1.0f; }\n"
        "  if (i == 7) s[i] = 77.0f; }\n",
        "k");
    json_t *request = bench_request(compiled);
    json_object_set_new(request, "launches", prepared_launches());
    json_object_set_new(request, "method", json_string("event"));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "wrong_result"));
    assert_non_null(strstr(text_of(answer, "error"), "1 of "));
    json_decref(answer);
    json_decref(compiled);
}

/* Right at the first five calls: only where timing calls as a client does, without preparing anew,
 * is it found out. */
static void what_wears_out_what_is_done_once_is_caught_after_timing(void **state)
{
    (void)state;
    json_t *compiled = compile(
        "extern \"C\" __global__ void prepare(float *a, float *b, float *c, float *s, long long "
        "n)\n"
        "{ if (blockIdx.x == 0 && threadIdx.x == 0) s[7] = 0.0f; }\n"
        "extern \"C\" __global__ void k(float *a, float *b, float *c, float *s, long long n)\n"
        "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "  if (i < n) { c[i] = 2.0f * a[i]; b[i] += 1.0f; }\n"
        "  if (i == 7) { if (s[i] > 5.0f) c[i] += 1.0f; s[i] += 1.0f; } }\n",
        "k");
    json_t *request = bench_request(compiled);
    json_object_set_new(request, "launches", prepared_launches());
    json_object_set_new(request, "method", json_string("event"));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "wrong_result"));
    json_decref(answer);
    json_decref(compiled);
}

/* What one launch with 256 turns stands for, and more. */
static void a_plan_may_have_many_launches(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE(""), "k"), *request = bench_request(compiled);
    json_t *launches = json_array();
    for (int i = 0; i < 300; i++)
        json_array_append_new(launches, json_pack("{s:s, s:i}", "memset", "c", "byte", 0));
    json_array_append_new(launches, launch("k", "c", "s", 128, 0));
    json_object_set_new(request, "launches", launches);
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "ok"));
    json_decref(answer);
    json_decref(compiled);
}

static void limits_are_checked_with_the_numbers_before_any_launch(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE(""), "k");
    static const int fit[] = {
        47 << 10, (48 << 10) - 1, 48 << 10, (48 << 10) + 1, 64 << 10, 99 << 10};
    for (size_t i = 0; i < sizeof(fit) / sizeof(*fit); i++) {
        json_t *answer = run_shaped(compiled, 128, fit[i]);
        assert_true(is_outcome(answer, "ok"));
        assert_int_equal(
            json_integer_value(json_object_get(answer, "dynamic_shared_bytes")), fit[i]);
        json_decref(answer);
    }
    json_t *answer = run_shaped(compiled, 128, (99 << 10) + 1);
    assert_true(is_outcome(answer, "over_limits"));
    assert_true(has_text(answer, "error", "101377"));
    assert_true(has_text(answer, "error", "101376 is the most"));
    json_decref(answer);
    answer = run_shaped(compiled, 1025, 0);
    assert_true(is_outcome(answer, "over_limits"));
    json_decref(answer);
    json_decref(compiled);
}

static void a_hopeless_candidate_stops_early(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE(""), "k");
    json_t *request = bench_request(compiled);
    json_object_set_new(request, "stop_above_ns", json_real(1.0));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "ok"));
    assert_true(json_is_true(json_object_get(answer, "stopped_early")));
    assert_int_equal(json_array_size(json_object_get(answer, "samples_ns")), 3);
    json_decref(answer);
    json_decref(compiled);
}

static void confirming_measures_all_equally_often(void **state)
{
    (void)state;
    static const char *const methods[] = {"event", "graph"};
    json_t *compiled = compile(CANDIDATE(""), "k");
    for (int i = 0; i < 2; i++) {
        json_t *answer = worker_ask(&bench, confirm_request(compiled, methods[i], 4));
        json_t *results = json_object_get(answer, "results"), *each;
        size_t index,
            samples = json_array_size(json_object_get(json_array_get(results, 0), "samples_ns"));
        assert_true(is_outcome(answer, "ok"));
        assert_int_equal(json_array_size(results), 4);
        assert_true(samples >= 1);
        json_array_foreach (results, index, each) {
            assert_int_equal(json_array_size(json_object_get(each, "samples_ns")), samples);
            assert_true(number(each, "median_ns") > 0);
            assert_true(number(each, "registers") > 0); /* a confirmed row has its resources too */
        }
        json_decref(answer);
    }
    json_decref(compiled);
}

static void confirming_names_the_one_that_fails(void **state)
{
    (void)state;
    json_t *good = compile(CANDIDATE(""), "k");
    json_t *bad = compile(CANDIDATE("if (i == 3) c[1ll << 40] = 1.0f;"), "k");
    json_t *request = confirm_request(good, "event", 3);
    json_object_set(json_array_get(json_object_get(request, "candidates"), 1), "image",
        json_object_get(bad, "image"));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "crashed"));
    assert_int_equal(json_integer_value(json_object_get(answer, "candidate")), 1);
    json_decref(answer);
    json_decref(good);
    json_decref(bad);
}

static void nonsense_is_answered_and_the_worker_lives(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE(""), "k");
    json_t *request = bench_request(compiled);
    json_object_set_new(request, "session", json_integer(SESSION + 1));
    json_t *answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "invalid"));
    json_decref(answer);
    request = bench_request(compiled);
    json_object_set_new(request, "image", json_string(""));
    answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "launch_failed"));
    json_decref(answer);
    request = bench_request(compiled);
    json_object_set_new(request, "image", json_string("bm8gaW1hZ2U="));
    answer = worker_ask(&bench, request);
    assert_true(is_outcome(answer, "launch_failed"));
    json_decref(answer);
    request = bench_request(compiled);
    json_object_set_new(request, "mode", json_string("tepid"));
    answer = worker_ask(&bench, request);
    assert_true(has_text(answer, "error", "tepid"));
    json_decref(answer);
    answer = worker_ask(&bench, json_pack("{ss}", "op", "dance"));
    assert_true(has_text(answer, "error", "dance"));
    json_decref(answer);
    answer = worker_ask(&bench, bench_request(compiled));
    assert_true(is_outcome(answer, "ok"));
    json_decref(answer);
    json_decref(compiled);
}

static void a_reference_that_fails_is_refused_before_any_candidate(void **state)
{
    (void)state;
    json_t *request = setup_request();
    json_object_set_new(json_object_get(request, "reference_names"), "ref", json_string("nothing"));
    json_t *answer = worker_ask(&bench, request);
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(has_text(answer, "error", "ref"));
    json_decref(answer);
    json_object_set_new(json_object_get(reference, "names"), "ref", json_string("ref"));
    request = setup_request();
    json_object_set_new(json_object_get(request, "reference"), "checks", json_array());
    answer = worker_ask(&bench, request);
    assert_true(has_text(answer, "error", "checks"));
    json_decref(answer);
}

static json_t *setup_with_hooks(const char *path)
{
    json_t *request = setup_request();
    json_object_set_new(request, "hooks", json_string(path));
    json_object_set_new(
        request, "call", json_pack("{ss,ss,s{si}}", "kernel", "k", "dtype", "f32", "dims", "N", N));
    return worker_ask(&bench, request);
}

/* The hook's inputs are 1/2 and its reference is computed from them on the host; a wrong candidate
 * must differ from that reference. */
static void hooks_fill_inputs_and_give_the_reference(void **state)
{
    (void)state;
    json_t *answer = setup_with_hooks(TUNE_HOOKS_GOOD);
    assert_string_equal(text_of(answer, "error"), "");
    json_decref(answer);
    answer = run(CANDIDATE(""));
    assert_true(is_outcome(answer, "ok"));
    json_decref(answer);
    answer = run(CANDIDATE("if (i == 4) c[i] = 0.25f;"));
    assert_true(is_outcome(answer, "wrong_result"));
    assert_true(has_text(answer, "error", "c[4] is 0.25, the reference 1 "));
    json_decref(answer);
}

static void hooks_of_another_version_are_refused_with_both_numbers(void **state)
{
    (void)state;
    json_t *answer = setup_with_hooks(TUNE_HOOKS_OLD);
    assert_true(has_text(answer, "error", "version 99"));
    json_decref(answer);
    answer = setup_with_hooks("/nonexistent/hooks.so");
    assert_true(has_text(answer, "error", "cannot be loaded"));
    json_decref(answer);
    answer = setup_with_hooks(TUNE_HOOKS_BAD);
    assert_true(has_text(answer, "error", "reference hook failed with 7"));
    json_decref(answer);
}

static void a_thousand_candidates_leak_nothing(void **state)
{
    (void)state;
    json_t *compiled = compile(CANDIDATE(""), "k");
    char path[64], line[256];
    long first_kib = 0, kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)bench.pid);
    for (int i = 0; i < 1000; i++) {
        json_t *request = bench_request(compiled);
        json_object_set_new(request, "max_samples", json_integer(1));
        json_t *answer = worker_ask(&bench, request);
        assert_true(is_outcome(answer, "ok"));
        json_decref(answer);
        if (i != 100 && i != 999)
            continue;
        FILE *file = fopen(path, "r");
        while (fgets(line, sizeof(line), file))
            sscanf(line, "VmRSS: %ld", &kib);
        fclose(file);
        first_kib = i == 100 ? kib : first_kib;
    }
    json_decref(compiled);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for a while, and reports leaks itself */
    assert_true(kib - first_kib < 8 << 10);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_right_candidate_is_verified_and_timed_in_every_way, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            each_request_says_once_that_it_has_the_device, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            an_in_place_kernel_starts_from_fresh_inputs_each_time, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_wrong_element_is_named_with_both_values, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            halves_written_by_two_candidates_are_both_wrong_in_both_orders, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_write_past_a_buffer_is_seen_and_ends_the_worker, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(a_write_before_a_buffer_is_seen, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_write_to_an_input_is_seen_even_when_outputs_are_right, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            state_left_in_scratch_is_caught_after_timing, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_fault_is_this_candidates_and_ends_the_worker, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            an_endless_kernel_is_ended_at_its_deadline, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_constant_is_set_before_its_kernel_in_every_way_of_timing, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_constant_that_is_set_too_late_is_a_wrong_result, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_constant_that_is_missing_or_too_small_is_named, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            what_is_done_once_is_there_in_every_way_of_timing_and_not_timed, start_bench,
            end_bench),
        cmocka_unit_test_setup_teardown(
            what_is_done_once_is_done_again_where_others_used_the_scratch, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            what_spoils_what_is_done_once_is_a_wrong_result, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            what_wears_out_what_is_done_once_is_caught_after_timing, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(a_plan_may_have_many_launches, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            limits_are_checked_with_the_numbers_before_any_launch, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(a_hopeless_candidate_stops_early, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            confirming_measures_all_equally_often, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            confirming_names_the_one_that_fails, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            nonsense_is_answered_and_the_worker_lives, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            a_reference_that_fails_is_refused_before_any_candidate, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            hooks_fill_inputs_and_give_the_reference, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(
            hooks_of_another_version_are_refused_with_both_numbers, start_bench, end_bench),
        cmocka_unit_test_setup_teardown(a_thousand_candidates_leak_nothing, start_bench, end_bench),
    };
    use_emulator(true);
    worker_start(&compiler, "compile", NULL);
    json_t *hello = worker_read(&compiler);
    if (!hello || !json_is_true(json_object_get(hello, "emulated"))) {
        printf("skipped: the emulator does not run: %s\n", hello ? text_of(hello, "error") : "");
        return 77;
    }
    json_decref(hello);
    char *source = read_text(TUNE_KERNELS_SRC "/harness.cu");
    harness = compile(source, NULL);
    reference = compile(reference_source, "ref");
    free(source);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(harness);
    json_decref(reference);
    worker_end(&compiler);
    return failed;
}
