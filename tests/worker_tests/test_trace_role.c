/* The trace role: kernels run on the emulator and watched there. What is told of accesses is
 * tested beside the emulator; here: that the plan is carried out, and how it ends when it is not.
 */
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

#define N 4096
#define BLOCK 256

static const char copy_source[] =
    "extern \"C\" __global__ void k(const float *a, float *c, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n)\n"
    "        c[i] = a[i];\n"
    "}\n";

static struct worker_process worker;

/* --- requests --------------------------------------------------------------------------------- */

static json_t *program(const char *name, const char *source)
{
    return json_pack("{ss,ss,s[],s[s],s[],sb}", "name", name, "source", source, "headers",
        "options", "-DTAG=1", "entries", "cache", 0);
}

static json_t *buffer(const char *name, const char *role, json_int_t count)
{
    return json_pack("{ss,ss,sI,sI,ss,ss}", "name", name, "dtype", "f32", "count", count, "bytes",
        count * 4, "role", role, "fill", "uniform");
}

static json_t *launch(json_int_t count)
{
    return json_pack("{ss,s[iii],s[iii],si,s[{ss,ss},{ss,ss},{ss,ss,sI}]}", "entry", "k", "grid",
        (int)((count + BLOCK - 1) / BLOCK), 1, 1, "block", BLOCK, 1, 1, "shared_bytes", 0, "args",
        "kind", "buffer", "name", "a", "kind", "buffer", "name", "c", "kind", "scalar", "type",
        "i32", "value", count);
}

/* k(a, c, count) on buffers of `count` elements. */
static json_t *request_of(const char *source, json_int_t count)
{
    char *harness = read_text(TUNE_KERNELS_SRC "/harness.cu");
    json_t *request = json_pack("{ss,so,so,s[o,o],s[o],s[],si,si}", "op", "trace", "compile",
        program("t.cu", source), "harness", program("harness.cu", harness), "buffers",
        buffer("a", "in", count), buffer("c", "out", count), "launches", launch(count), "widths",
        "seed", 1, "blocks", 4);
    free(harness);
    return request;
}

static json_t *launch_of(const json_t *request)
{
    return json_array_get(json_object_get(request, "launches"), 0);
}

/* Starts a worker, asks it, and sees it end by itself. */
static json_t *trace(json_t *request)
{
    const char *const arguments[] = {"--cuda", TUNE_EMULATOR_DIR, NULL};
    worker_start(&worker, "trace", arguments);
    json_t *hello = worker_read(&worker);
    assert_string_equal(text_of(hello, "error"), "");
    assert_string_equal(text_of(hello, "hello"), "trace");
    assert_int_equal(json_integer_value(json_object_get(hello, "pid")), worker.pid);
    json_decref(hello);
    return worker_ask(&worker, request);
}

static json_t *traced(json_t *request)
{
    json_t *answer = trace(request);
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("%s", text_of(answer, "error"));
    assert_null(worker_read(&worker));
    assert_int_equal(worker_end(&worker), 0);
    return answer;
}

/* The answer must say so, in an answer and not by the process's death. */
static void assert_fails(json_t *request, const char *part)
{
    json_t *answer = trace(request);
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(has_text(answer, "error", part));
    json_decref(answer);
    assert_int_equal(worker_end(&worker), 0);
}

static json_t *launch_at(const json_t *answer, size_t index)
{
    return json_array_get(json_object_get(answer, "launches"), index);
}

/* The row of a line and kind. */
static json_t *access_at(const json_t *launch, int line, const char *kind)
{
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(launch, "accesses"), i, row)
        if (json_integer_value(json_object_get(row, "line")) == line &&
            strcmp(text_of(row, "kind"), kind) == 0)
            return row;
    return NULL;
}

static json_int_t count_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* --- what is right ---------------------------------------------------------------------------- */

static void accesses_are_told_by_line_of_some_blocks(void **state)
{
    (void)state;
    json_t *answer = traced(request_of(copy_source, N));
    const json_t *launch = launch_at(answer, 0), *load = access_at(launch, 5, "load");
    assert_int_equal(json_array_size(json_object_get(answer, "launches")), 1);
    assert_string_equal(text_of(launch, "entry"), "k");
    assert_int_equal(count_of(launch, "blocks"), N / BLOCK);
    assert_int_equal(count_of(launch, "blocks_traced"), 4);
    assert_string_equal(text_of(load, "file"), "t.cu");
    assert_int_equal(count_of(load, "requests"), 4 * BLOCK / 32);
    assert_int_equal(count_of(load, "sectors"), 4 * count_of(load, "requests"));
    json_decref(answer);
}

static void clears_and_repeats_of_the_plan_are_carried_out(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, N);
    json_object_set_new(launch_of(request), "repeat", json_integer(3));
    json_array_insert_new(
        json_object_get(request, "launches"), 0, json_pack("{ss,si}", "memset", "a", "byte", 0));
    json_t *answer = traced(request);
    assert_int_equal(json_array_size(json_object_get(answer, "launches")), 3);
    json_decref(answer);
}

/* Stray where the constant is not what it must be: a's elements. */
static const char constant_source[] =
    "extern \"C\" { __constant__ float taps[4096]; }\n"
    "extern \"C\" __global__ void k(const float *a, float *c, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (taps[i] != a[i])\n"
    "        ((volatile float *)nullptr)[1] = 1;\n"
    "    c[i] = taps[i];\n"
    "}\n";

static void constants_are_set_and_their_reads_are_no_accesses(void **state)
{
    (void)state;
    json_t *request = request_of(constant_source, N);
    json_array_insert_new(json_object_get(request, "launches"), 0,
        json_pack("{ss,ss}", "constant", "taps", "buffer", "a"));
    json_t *answer = traced(request);
    const json_t *launch = launch_at(answer, 0);
    assert_int_equal(json_array_size(json_object_get(answer, "launches")), 1);
    assert_non_null(access_at(launch, 5, "load"));
    assert_null(access_at(launch, 7, "load"));
    assert_non_null(access_at(launch, 7, "store"));
    json_decref(answer);
}

/* Adds 1 to c[0] (of no meaning elsewhere) at elements that are not what they must be. */
static const char filled_source[] =
    "extern \"C\" __global__ void k(const float *a, float *c, int n)\n"
    "{\n"
    "    const int piece = 1 << 20, end = n;\n"
    "    if (threadIdx.x == 0 && blockIdx.x == 0) {\n"
    "        if (a[0] == 0 || a[1] == a[2])\n"
    "            ((volatile float *)nullptr)[1] = 1;\n"
    "        if (a[5] != a[5 + piece] || a[5] != a[5 + 3 * piece] || a[end - 1] == 0)\n"
    "            ((volatile float *)nullptr)[2] = 1;\n"
    "        if (c[0] != 0 || c[end - 1] != 0)\n"
    "            ((volatile float *)nullptr)[3] = 1;\n"
    "    }\n"
    "}\n";

static void inputs_are_random_repeat_after_a_piece_and_outputs_are_zero(void **state)
{
    (void)state;
    json_decref(traced(request_of(filled_source, (4 << 20) + 100)));
}

/* Faults where an input is not what its hook makes of it. */
static const char hooked_source[] =
    "extern \"C\" __global__ void k(const float *a, float *c, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n && a[i] != 0.5f)\n"
    "        ((volatile float *)nullptr)[1] = 1;\n"
    "}\n";

static void hooks_fill_the_inputs_that_they_know(void **state)
{
    (void)state;
    json_t *request = request_of(hooked_source, 1000);
    json_object_set_new(request, "hooks", json_string(TUNE_HOOKS_GOOD));
    json_object_set_new(request, "call",
        json_pack("{s:s, s:s, s:{s:i}}", "kernel", "k", "dtype", "f32", "dims", "N", 1000));
    json_decref(traced(request));
}

static void a_hook_that_fails_is_named(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, 1000);
    json_object_set_new(request, "hooks", json_string(TUNE_HOOKS_GOOD));
    json_object_set_new(request, "call",
        json_pack("{s:s, s:s, s:{s:i}}", "kernel", "other", "dtype", "f32", "dims", "N", 1000));
    assert_fails(request, "fill hook failed with 2 for buffer a");
}

/* 2 x 64 GiB, of which nothing is touched but what the inputs hold. */
static void buffers_larger_than_this_machines_memory_are_no_trouble(void **state)
{
    (void)state;
    json_int_t count = INT64_C(1) << 34;
    json_t *request = request_of(copy_source, N);
    json_object_set_new(request, "buffers",
        json_pack("[o,o]", buffer("a", "in", count), buffer("c", "out", count)));
    json_decref(traced(request));
}

static void a_block_may_have_the_shared_memory_of_the_largest_gpu(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, N);
    json_object_set_new(launch_of(request), "shared_bytes", json_integer(227 * 1024));
    json_decref(traced(request));
}

/* Were TUNE_CUDA_DIR followed, there would be no driver in it. */
static void only_the_given_folder_counts(void **state)
{
    (void)state;
    setenv("TUNE_CUDA_DIR", "/nowhere", 1);
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    json_decref(traced(request_of(copy_source, N)));
    unsetenv("CUDA_VISIBLE_DEVICES");
    use_emulator(true);
}

static void launches_in_clusters_are_traced(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, N);
    json_object_set_new(launch_of(request), "cluster", json_pack("[iii]", 2, 1, 1));
    json_decref(traced(request));
}

/* --- what is wrong ---------------------------------------------------------------------------- */

static void without_the_emulator_the_hello_says_what_to_install(void **state)
{
    (void)state;
    const char *const folders[][3] = {{"--cuda", "/nowhere", NULL}, {NULL}};
    for (size_t i = 0; i < 2; i++) {
        worker_start(&worker, "trace", folders[i]);
        json_t *hello = worker_read(&worker);
        assert_string_equal(text_of(hello, "hello"), "trace");
        assert_true(has_text(hello, "error", "the emulator"));
        assert_true(has_text(hello, "error", "install"));
        json_decref(hello);
        assert_null(worker_read(&worker));
        worker_end(&worker);
    }
}

static void without_a_host_compiler_the_answer_says_to_install_one(void **state)
{
    (void)state;
    setenv("TUNE_HOST_CXX", "/nowhere/g++", 1);
    assert_fails(request_of(copy_source, N), "install g++");
    unsetenv("TUNE_HOST_CXX");
}

static void what_does_not_compile_is_told_by_its_first_error(void **state)
{
    (void)state;
    assert_fails(request_of("extern \"C\" __global__ void k()\n{\n    mad;\n}\n", N), "t.cu(3)");
    json_t *request = request_of(copy_source, N);
    json_object_set_new(json_object_get(request, "harness"), "source", json_string("mad;"));
    assert_fails(request, "harness.cu(1)");
}

static void options_are_those_that_the_compile_role_allows(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, N);
    json_array_append_new(
        json_object_get(json_object_get(request, "compile"), "options"), json_string("-I/etc"));
    assert_fails(request, "-I/etc");
}

static void a_fault_is_told_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) { /* past the end of either: the other one is no room for it */
        json_t *request = request_of(copy_source, N);
        json_t *shorter = json_array_get(json_object_get(request, "buffers"), i);
        json_object_set_new(shorter, "count", json_integer(N / 2));
        json_object_set_new(shorter, "bytes", json_integer(N / 2 * 4));
        json_t *answer = trace(request);
        assert_true(has_text(answer, "error", "code 700"));
        assert_true(has_text(answer, "error", i == 0 ? "read of 4" : "write of 4"));
        assert_true(has_text(answer, "error", "t.cu:5"));
        assert_null(json_object_get(answer, "launches"));
        json_decref(answer);
        assert_int_equal(worker_end(&worker), 0);
    }
}

static void a_request_in_part_is_refused_with_what_it_lacks(void **state)
{
    (void)state;
    json_t *request = request_of(copy_source, N);
    json_object_del(request, "compile");
    assert_fails(request, "\"compile\"");
    request = request_of(copy_source, N);
    json_object_del(request, "harness");
    assert_fails(request, "\"harness\"");
    request = request_of(copy_source, N);
    json_object_del(request, "launches");
    assert_fails(request, "launches");
    request = request_of(copy_source, N);
    json_object_set_new(request, "op", json_string("bench"));
    assert_fails(request, "trace");
}

static void a_kernel_without_end_is_cut_before_the_deadline(void **state)
{
    (void)state;
    json_t *request =
        request_of("extern \"C\" __global__ void k(volatile float *a, float *c, int n)"
                   "\n{ for (;;) a[0] = a[1] + c[1]; }\n",
            N);
    json_object_set_new(request, "deadline_ms", json_integer(10000));
    json_t *answer = traced(request);
    assert_true(json_is_true(json_object_get(launch_at(answer, 0), "is_cut")));
    json_decref(answer);
}

/* Two to the power of 30 templates. */
static void a_compile_without_end_is_ended_by_the_watchdog_with_an_answer(void **state)
{
    (void)state;
    json_t *request = request_of(
        "template <int A, int B> struct f { enum { v = f<A - 1, B * 2>::v + f<A - 1, B * 2 + 1>::v "
        "}; };\n"
        "template <int B> struct f<0, B> { enum { v = B & 1 }; };\n"
        "extern \"C\" __global__ void k(float *a, float *c, int n) { c[0] = f<30, 0>::v; }\n",
        N);
    json_object_set_new(request, "deadline_ms", json_integer(1000));
    json_t *answer = trace(request);
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(has_text(answer, "error", "did not end within 1000 ms"));
    json_decref(answer);
    kill(-worker.pid, SIGKILL); /* as the daemon does: the compiler goes on */
    int status = worker_end(&worker);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static bool has_compiler(void)
{
    struct worker_process compiler;
    worker_start(&compiler, "compile", NULL);
    json_t *hello = worker_read(&compiler);
    bool is_there = hello && json_is_true(json_object_get(hello, "emulated"));
    json_decref(hello);
    worker_end(&compiler);
    return is_there;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accesses_are_told_by_line_of_some_blocks),
        cmocka_unit_test(clears_and_repeats_of_the_plan_are_carried_out),
        cmocka_unit_test(constants_are_set_and_their_reads_are_no_accesses),
        cmocka_unit_test(inputs_are_random_repeat_after_a_piece_and_outputs_are_zero),
        cmocka_unit_test(hooks_fill_the_inputs_that_they_know),
        cmocka_unit_test(a_hook_that_fails_is_named),
        cmocka_unit_test(buffers_larger_than_this_machines_memory_are_no_trouble),
        cmocka_unit_test(a_block_may_have_the_shared_memory_of_the_largest_gpu),
        cmocka_unit_test(launches_in_clusters_are_traced),
        cmocka_unit_test(only_the_given_folder_counts),
        cmocka_unit_test(without_the_emulator_the_hello_says_what_to_install),
        cmocka_unit_test(without_a_host_compiler_the_answer_says_to_install_one),
        cmocka_unit_test(what_does_not_compile_is_told_by_its_first_error),
        cmocka_unit_test(options_are_those_that_the_compile_role_allows),
        cmocka_unit_test(a_fault_is_told_with_its_place),
        cmocka_unit_test(a_request_in_part_is_refused_with_what_it_lacks),
        cmocka_unit_test(a_kernel_without_end_is_cut_before_the_deadline),
        cmocka_unit_test(a_compile_without_end_is_ended_by_the_watchdog_with_an_answer),
    };
    use_emulator(true);
    if (!has_compiler()) {
        puts("skipped: the emulator does not run");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
