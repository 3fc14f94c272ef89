/* What the emulator sees of a launch that it traces (trace.h): requests as a warp would issue them,
 * what they cost, and where lanes part. The expected figures are those that the programming guides
 * give, or can be counted in the few lines of each kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL "extern \"C\" __global__ void k(float *a, float *b, int n)\n"
#define THREAD "    int t = threadIdx.x;\n"
#define AT(line) "\n#line " #line "\n"
#define BUFFER_BYTES (1 << 22)

static unsigned (*trace_begin)(const char *options);
static char *(*trace_end)(void);
static void (*trace_free)(char *text);
static device_ptr buffer_a, buffer_b;

/* --- running and reading ---------------------------------------------------------------------- */

static json_t *end_trace(void)
{
    char *text = trace_end();
    assert_non_null(text);
    json_t *launches = json_loads(text, 0, NULL);
    assert_non_null(launches);
    trace_free(text);
    return launches;
}

/* Launches k(a, b, n) once and gives what was seen of it; new. */
static json_t *trace_with(
    const char *options, const char *source, unsigned grid, unsigned block, unsigned shared, int n)
{
    struct module *module;
    struct function *k = client_kernel_in(source, "k", &module);
    void *params[] = {&buffer_a, &buffer_b, &n};
    if (shared > 48 * 1024)
        MUST(cuFuncSetAttribute(k, 8, (int)shared));
    MUST(trace_begin(options));
    MUST(client_launch(k, grid, block, shared, params));
    MUST(cuCtxSynchronize());
    json_t *launches = end_trace(), *launch = json_array_get(launches, 0);
    assert_int_equal(json_array_size(launches), 1);
    json_incref(launch);
    json_decref(launches);
    MUST(cuModuleUnload(module));
    return launch;
}

static json_t *trace(const char *source, unsigned block, int n)
{
    return trace_with("{}", source, 1, block, 0, n);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* The row of a line; NULL if there is none. bytes 0: any. */
static const json_t *find_row(
    const json_t *launch, int line, const char *space, const char *kind, int bytes)
{
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(launch, "accesses"), i, row)
        if (number(row, "line") == line && (!bytes || number(row, "bytes") == bytes) &&
            strcmp(json_string_value(json_object_get(row, "space")), space) == 0 &&
            strcmp(json_string_value(json_object_get(row, "kind")), kind) == 0)
            return row;
    return NULL;
}

static const json_t *row_of(const json_t *launch, int line, const char *space, const char *kind)
{
    const json_t *row = find_row(launch, line, space, kind, 0);
    if (!row) {
        char *text = json_dumps(launch, JSON_INDENT(1));
        fail_msg("no %s %s in line %d: %s", space, kind, line, text);
    }
    return row;
}

static void expect_requests(const json_t *row, int requests, int lanes)
{
    assert_int_equal(number(row, "requests"), requests);
    assert_int_equal(number(row, "lanes"), lanes);
}

/* Each of the row's requests has that many of `key`. */
static void expect_each(const json_t *row, const char *key, int wanted)
{
    assert_true(number(row, "requests") > 0);
    assert_int_equal(number(row, key), wanted * number(row, "requests"));
}

static void expect_branch(const json_t *launch, int line, int warps, int lanes)
{
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(launch, "branches"), i, row) {
        if (number(row, "line") != line)
            continue;
        assert_int_equal(number(row, "warps"), warps);
        assert_int_equal(number(row, "lanes"), lanes);
        return;
    }
    fail_msg("no branch in line %d", line);
}

static size_t branch_count(const json_t *launch)
{
    return json_array_size(json_object_get(launch, "branches"));
}

/* --- memory ----------------------------------------------------------------------------------- */

static void sectors_are_counted_per_request(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL "{\n" THREAD "    float v = 0;" AT(
                               10) "v += a[t];\n"
                                   "v += a[t + 1];\nv += a[8 * t];\nv += a[16 * t];\nv += a[n];\n"
                                   "{ float2 w = ((float2 *)a)[t]; v += w.x + w.y; }\n"
                                   "{ float4 w = ((float4 *)a)[t]; v += w.x + w.w; }\nb[t] = v; }",
        256, 5);
    static const int sectors[] = {4, 5, 32, 32, 1, 8, 16};
    static const int bytes[] = {4, 4, 4, 4, 4, 8, 16};
    for (int i = 0; i < 7; i++) {
        const json_t *row = row_of(launch, 10 + i, "global", "load");
        expect_requests(row, 8, 256);
        expect_each(row, "sectors", sectors[i]);
        assert_int_equal(number(row, "bytes"), bytes[i]);
        assert_int_equal(number(row, "lane_accesses"), 256);
    }
    expect_each(row_of(launch, 17, "global", "store"), "sectors", 4);
    assert_int_equal(number(launch, "global_load_bytes"), 256 * (5 * 4 + 8 + 16));
    assert_int_equal(number(launch, "global_store_bytes"), 1024);
    assert_int_equal(branch_count(launch), 0);
    json_decref(launch);
}

static int common_divisor(int a, int b)
{
    return b ? common_divisor(b, a % b) : a;
}

static void a_stride_in_shared_memory_conflicts_by_its_common_divisor_with_32(void **state)
{
    (void)state;
    static const int strides[] = {1, 2, 3, 4, 8, 16, 17, 32, 33};
    struct module *module;
    struct function *k = client_kernel_in(KERNEL
        "{\n extern __shared__ float s[];\n" THREAD AT(10) "b[t] = s[t * n]; }",
        "k", &module);
    MUST(trace_begin(NULL));
    for (int i = 0; i < 9; i++) {
        int n = strides[i];
        void *params[] = {&buffer_a, &buffer_b, &n};
        MUST(client_launch(k, 1, 32, 8192, params));
    }
    json_t *launches = end_trace();
    assert_int_equal(json_array_size(launches), 9);
    for (size_t i = 0; i < 9; i++) {
        const json_t *row = row_of(json_array_get(launches, i), 10, "shared", "load");
        expect_requests(row, 1, 32);
        expect_each(row, "degrees", common_divisor(32, strides[i]));
        assert_int_equal(number(row, "degree_max"), common_divisor(32, strides[i]));
    }
    json_decref(launches);
    MUST(cuModuleUnload(module));
}

static void one_word_for_all_lanes_is_a_broadcast(void **state)
{
    (void)state;
    json_t *launch = trace(
        KERNEL "{\n __shared__ float s[64];\n" THREAD AT(10) "s[t] = t;\nb[t] = s[n]; }", 64, 3);
    expect_each(row_of(launch, 11, "shared", "load"), "degrees", 1);
    expect_each(row_of(launch, 10, "shared", "store"), "degrees", 1);
    assert_int_equal(number(launch, "shared_bytes"), 2 * 64 * 4);
    json_decref(launch);
}

static void a_column_of_a_tile_conflicts_unless_its_rows_are_padded(void **state)
{
    (void)state;
    for (int pad = 0; pad < 2; pad++) {
        char source[512];
        snprintf(source, sizeof source,
            KERNEL "{\n __shared__ float tile[32][32 + %d];\n int x = threadIdx.x %% 32, y = "
                   "threadIdx.x / 32;" AT(10) "tile[y][x] = a[y * n + x];\n__syncthreads();\n"
                                              "b[y * n + x] = tile[x][y]; }",
            pad);
        json_t *launch = trace(source, 1024, 32);
        expect_each(row_of(launch, 10, "shared", "store"), "degrees", 1);
        expect_each(row_of(launch, 12, "shared", "load"), "degrees", pad ? 1 : 32);
        json_decref(launch);
    }
}

static void an_atomic_operation_is_one_store(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL "{\n" THREAD AT(10) "atomicAdd(b + t % 8, 1.0f);\n"
                                                      "atomicCAS((int *)a, 0, 1); }",
        32, 0);
    for (int line = 10; line < 12; line++) {
        const json_t *row = row_of(launch, line, "global", "store");
        expect_requests(row, 1, 32);
        expect_each(row, "sectors", 1);
        assert_true(json_is_true(json_object_get(row, "atomic")));
        assert_null(find_row(launch, line, "global", "load", 0));
    }
    assert_int_equal(json_array_size(json_object_get(launch, "accesses")), 2);
    json_decref(launch);
}

static void what_lies_in_registers_on_a_gpu_is_no_access(void **state)
{
    (void)state;
    json_t *launch =
        trace("__constant__ float table[4] = {1, 2, 3, 4};\n" KERNEL "{\n" THREAD
              "    float v[8];\n    for (int i = 0; i < n; i++) v[i] = table[i & 3];\n"
              "    float w = __shfl_xor_sync(0xffffffffu, v[t % 8], 1);" AT(10) "b[t] = w; }",
            32, 8);
    assert_int_equal(json_array_size(json_object_get(launch, "accesses")), 1);
    expect_requests(row_of(launch, 10, "global", "store"), 1, 32);
    json_decref(launch);
}

/* --- control flow ----------------------------------------------------------------------------- */

#define REDUCE(condition, partner)                                                                 \
    KERNEL                                                                                         \
    "{\n __shared__ float s[256];\n" THREAD "    s[t] = a[t];\n"                                   \
    "    for (int i = 1; i < 256; i *= 2) {\n        __syncthreads();\n        if (" condition     \
    ") {" AT(10) "float other = s[" partner "];\ns[t] += other;\n}\n}\n"                           \
                 "if (t == 0) b[0] = s[0]; }"

static void a_tree_reduction_runs_47_warps_interleaved_and_12_sequential(void **state)
{
    (void)state;
    json_t *launch = trace(REDUCE("t % (2 * i) == 0", "t + i"), 256, 0);
    expect_requests(row_of(launch, 10, "shared", "load"), 47, 255);
    expect_branch(launch, 10, 47, 255);
    json_decref(launch);
    launch = trace(REDUCE("t < 128 / i", "t + 128 / i"), 256, 0);
    expect_requests(row_of(launch, 10, "shared", "load"), 12, 255);
    expect_branch(launch, 10, 12, 255);
    json_decref(launch);
}

static void lanes_meet_in_each_turn_of_loops_of_different_lengths(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL
        "{\n" THREAD "    for (int i = 0; i < t % 7; i++)" AT(10) "b[i * 32 + t] = 1;\na[t] = 2; }",
        32, 0);
    const json_t *row = row_of(launch, 10, "global", "store");
    int lanes = 0;
    for (int t = 0; t < 32; t++)
        lanes += t % 7;
    expect_requests(row, 6, lanes);
    expect_branch(launch, 10, 6, lanes);
    expect_requests(row_of(launch, 11, "global", "store"), 1, 32); /* together again */
    json_decref(launch);
}

static void lanes_that_come_in_different_turns_do_not_meet(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL "{\n" THREAD "    for (int i = 0; i < 64; i++)\n"
                                  "        if (i % 32 == t)" AT(10) "b[t] = i; }",
        32, 0);
    expect_requests(row_of(launch, 10, "global", "store"), 64, 64);
    expect_branch(launch, 10, 64, 64);
    json_decref(launch);
}

static void nested_loops_are_told_apart_turn_by_turn(void **state)
{
    (void)state;
    json_t *launch =
        trace(KERNEL "{\n" THREAD "    for (int i = 0; i < n; i++)\n"
                     "        for (int j = 0; j < n + (t & 1); j++)\n"
                     "            for (int l = 0; l < 3; l++)" AT(10) "b[t] += i * j;\na[t] = 1; }",
            32, 4);
    /* 4 x 4 x 3 of all lanes, and 4 x 1 x 3 of the odd ones */
    expect_requests(row_of(launch, 10, "global", "store"), 60, 48 * 32 + 12 * 16);
    expect_requests(row_of(launch, 11, "global", "store"), 1, 32);
    json_decref(launch);
}

static void a_choice_is_a_branch_and_its_lanes_meet_behind_it(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL "{\n" THREAD "    float v;\n    if (t < n)" AT(
                               10) "v = a[t];\nelse\nv = b[4 * t];" AT(20) "a[t] = v; }",
        64, 8);
    expect_requests(row_of(launch, 10, "global", "load"), 1, 8);
    expect_requests(row_of(launch, 12, "global", "load"), 2, 56);
    expect_requests(row_of(launch, 20, "global", "store"), 2, 64);
    expect_branch(launch, 10, 1, 8);
    expect_branch(launch, 12, 2, 56);
    assert_int_equal(branch_count(launch), 2);
    json_decref(launch);
}

static void the_cases_of_a_switch_run_one_after_another(void **state)
{
    (void)state;
    json_t *launch =
        trace(KERNEL "{\n" THREAD "    for (int i = 0; i < n; i++) {\n"
                     "    float v = 0;\n    switch ((t + i) % 8) {" AT(
                         10) "case 0: v = a[t + 32]; break;\ncase 1: v = a[2 * t]; break;\n"
                             "case 2: b[t] = 1; break;\ncase 3: b[t] = v + 2; break;\n"
                             "case 4: v = b[t + 9]; break;\ncase 5: b[t + 1] = 5; break;\n"
                             "case 6: v = b[3 * t]; break;\ncase 7: b[t * 5] = 7; break;\n}" AT(
                                 20) "b[t + 512] = v;\n} }",
            32, 3);
    static const char *const kinds[] = {
        "load", "load", "store", "store", "load", "store", "load", "store"};
    for (int i = 0; i < 8; i++)
        expect_requests(row_of(launch, 10 + i, "global", kinds[i]), 3, 12);
    expect_requests(row_of(launch, 20, "global", "store"), 3, 96);
    json_decref(launch);
}

static void threads_that_return_early_are_missed_from_there_on(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL "{\n" THREAD "    if (t >= n)\n        return;" AT(
                               10) "float v = a[t];\nif (v < 0)\n    v = 1;\nb[t] = v; }",
        128, 70);
    expect_requests(row_of(launch, 10, "global", "load"), 3, 70);
    expect_requests(row_of(launch, 13, "global", "store"), 3, 70);
    expect_branch(launch, 10, 3, 70);
    json_decref(launch);
}

static void functions_are_followed_and_left(void **state)
{
    (void)state;
    json_t *launch = trace(
        "__device__ __noinline__ float inner(const float *p) {" AT(
            40) "return *p; }\n"
                "__device__ __noinline__ float walk(const float *p, int turns) { float v = 0;\n"
                "    for (int i = 0; i < turns; i++)" AT(
                    50) "v += inner(p + i);\nreturn v; }\n" KERNEL "{\n" THREAD
                        "    for (int i = 0; i < n; i++) {\n        float v = walk(a + t, 2);\n"
                        "        v += walk(a + t, t % 3) + a[t + 99];" AT(
                            60) "b[t + i * 32] = v;\n} }",
        32, 5);
    /* Per turn: 2, and then 2 turns of those lanes that have them: 1, 2, 4, ... and 2, 5, 8, ... */
    expect_requests(row_of(launch, 40, "global", "load"), 5 * 4, 5 * (64 + 21 + 10));
    expect_requests(row_of(launch, 60, "global", "store"), 5, 5 * 32);
    json_decref(launch);
}

#define TEN_CALLS                                                                                  \
    "get(a + t) + get(a + t) + get(a + t) + get(a + t) + get(a + t) + get(a + t) + "               \
    "get(a + t) + get(a + t) + get(a + t) + get(a + t)"

static void a_function_called_after_another_is_not_within_it(void **state)
{
    (void)state;
    json_t *launch =
        trace("__device__ __noinline__ float get(const volatile float *p) {" AT(
                  40) "return *p; }\n" KERNEL "{\n" THREAD AT(50) "b[t] = " TEN_CALLS
                                                                  " + " TEN_CALLS " + " TEN_CALLS
                                                                  " + " TEN_CALLS ";\na[t] = 1; }",
            32, 0);
    expect_requests(row_of(launch, 40, "global", "load"), 40, 40 * 32);
    expect_requests(row_of(launch, 50, "global", "store"), 1, 32);
    json_decref(launch);
}

static void turns_are_told_apart_even_below_a_deep_recursion(void **state)
{
    (void)state;
    json_t *launch = trace("__device__ __noinline__ void down(float *p, int depth) {\n"
                           "    for (int i = 0; depth == 0 && i < 5; i++)" AT(
                               40) "p[i] = i;\n"
                                   "    if (depth) down(p, depth - 1);\n    p[9] += 1; }\n" KERNEL
                                   "{\n" THREAD "    down(b + t, n);" AT(50) "a[t] = 1; }",
        32, 30);
    expect_requests(row_of(launch, 40, "global", "store"), 5, 160);
    expect_requests(row_of(launch, 50, "global", "store"), 1, 32);
    json_decref(launch);
}

static void a_way_out_of_two_loops_at_once_belongs_to_the_outer_one(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL
        "{\n" THREAD "    int i = 0, j = 0;\nouter:\n"
        "    if (i == n) goto end;\n    i++;\n    j = 0;\ninner:" AT(
            10) "b[t] = j;\n    if (t & 1) a[t + 64] = j;\n    if (j == t % 4) goto outer;\n"
                "    j++;\n    if (j < n - 3) goto inner;\n    goto outer;\nend:" AT(
                    20) "a[t] = 1; }",
        32, 6);
    /* Of each turn of the outer loop: 32 lanes, those without t % 4 == 0, and half. */
    expect_requests(row_of(launch, 10, "global", "store"), 18, 6 * (32 + 24 + 16));
    expect_requests(row_of(launch, 20, "global", "store"), 1, 32);
    json_decref(launch);
}

static void code_is_neither_doubled_nor_moved_by_the_compiler(void **state)
{
    (void)state;
    json_t *launch = trace(KERNEL
        "{\n" THREAD AT(10) "float v = a[t + 64];\n"
                            "if (t < n) b[t] = v;\na[t] = 2;\nif (t < n) b[t + 64] = 3;\n"
                            "b[t + 128] = 4;\nif (t < n) b[t + 128] = 5;\nint i = 0; do b[t + 256] "
                            "= i; while (++i < n); }",
        32, 8);
    expect_requests(row_of(launch, 10, "global", "load"), 1, 32);
    expect_requests(row_of(launch, 12, "global", "store"), 1, 32);
    expect_requests(row_of(launch, 14, "global", "store"), 1, 32);
    for (int line = 11; line < 17; line += 2)
        expect_requests(row_of(launch, line, "global", "store"), 1, 8);
    expect_requests(row_of(launch, 16, "global", "store"), 8, 256);
    json_decref(launch);
}

/* --- intensity -------------------------------------------------------------------------------- */

static void a_tiled_product_asks_for_a_tileth_of_the_bytes(void **state)
{
    (void)state;
    enum { N = 64 };
    const double flops = 2.0 * N * N * N;
    json_t *launch = trace_with("{}",
        KERNEL "{ int i = blockIdx.x * blockDim.x + threadIdx.x; float v = 0;\n"
               "for (int j = 0; j < n; j++) v += a[i / n * n + j] * b[j * n + i % n];\n"
               "a[n * n + i] = v; }",
        N * N / 256, 256, 0, N);
    assert_true(flops / (double)number(launch, "global_load_bytes") == 0.25);
    json_decref(launch);
    for (int tile = 16; tile <= 32; tile *= 2) {
        char source[1024];
        snprintf(source, sizeof source,
            "constexpr int T = %d;\n" KERNEL "{ __shared__ float A[T][T], B[T][T];\n int x = "
            "threadIdx.x %% T, y = threadIdx.x / T;\n"
            " int row = blockIdx.x / (n / T) * T + y, col = blockIdx.x %% (n / T) * T + x;\n"
            " float v = 0;\n for (int at = 0; at < n; at += T) {\n"
            " A[y][x] = a[row * n + at + x]; B[y][x] = b[(at + y) * n + col];\n __syncthreads();\n"
            " for (int j = 0; j < T; j++) v += A[y][j] * B[j][x];\n __syncthreads(); }\n"
            " a[n * n + row * n + col] = v; }",
            tile);
        launch = trace_with(
            "{}", source, (unsigned)(N / tile * N / tile), (unsigned)(tile * tile), 0, N);
        assert_true(flops / (double)number(launch, "global_load_bytes") == tile / 4.0);
        json_decref(launch);
    }
}

/* --- joined accesses -------------------------------------------------------------------------- */

#define WIDTH(line, bytes)                                                                         \
    "{\"file\":\"test.cu\",\"line\":" #line                                                        \
    ",\"space\":\"shared\",\"kind\":\"load\",\"bytes\":" #bytes "}"

static void neighbouring_accesses_are_joined_where_the_gpu_does(void **state)
{
    (void)state;
    json_t *launch = trace_with(
        "{\"widths\":[" WIDTH(10, 16) "," WIDTH(11, 16) "," WIDTH(12, 16) "," WIDTH(13, 8) "]}",
        KERNEL
        "{\n extern __shared__ float s[];\n" THREAD
        "    float v[4], w = 0;\n for (int r = 0; r < n; r++) {" AT(
            10) "for (int i = 0; i < 4; i++) v[i] = s[4 * t + i];\n"
                "w += s[4 * t + r] * s[4 * t + r + 1] * s[4 * t + r + 2] * s[4 * t + r + 3];\n"
                "for (int i = 0; i < 4; i++) w += s[4 * t + 2 + i];\n"
                "for (int i = 0; i < 4; i++) w += s[4 * t + i];\n"
                "for (int i = 0; i < 4; i++) w += s[4 * t + i];\n"
                "b[t] = w + v[r]; } }",
        1, 32, 4096, 1);
    static const int bytes[] = {16, 16, 8, 8, 4};
    for (int i = 0; i < 5; i++) {
        const json_t *row = row_of(launch, 10 + i, "shared", "load");
        assert_int_equal(number(row, "bytes"), bytes[i]);
        expect_requests(row, 16 / bytes[i], 512 / bytes[i]);
        assert_int_equal(number(row, "lane_accesses"), 512 / bytes[i]);
    }
    expect_each(row_of(launch, 10, "shared", "load"), "wavefronts", 4);
    expect_each(row_of(launch, 14, "shared", "load"), "degrees", 4);
    json_decref(launch);
}

static void accesses_of_different_lanes_are_not_joined(void **state)
{
    (void)state;
    json_t *launch = trace_with("{\"widths\":[" WIDTH(10, 8) "]}",
        KERNEL "{\n extern __shared__ float s[];\n" THREAD "    float w = 0;" AT(
            10) "w += s[4 * t]; if (t < n) w += s[4 * t + 1];\nb[t] = w; }",
        1, 32, 4096, 16);
    expect_requests(row_of(launch, 10, "shared", "load"), 2, 48);
    assert_int_equal(number(row_of(launch, 10, "shared", "load"), "bytes"), 4);
    json_decref(launch);
}

static void two_rows_of_neighbours_on_one_line_are_joined_apart(void **state)
{
    (void)state;
    json_t *launch = trace_with("{\"widths\":[" WIDTH(10, 16) "]}",
        KERNEL "{\n extern __shared__ float4 four[];\n float *s = (float *)four;\n" THREAD
               "    float w = 0;\n for (int i = 0; i < 4; i++)" AT(
                   10) "w += s[4 * t + i] * s[512 + 4 * (t / 8) + i];\nb[t] = w; }",
        1, 32, 4096, 1);
    expect_requests(row_of(launch, 10, "shared", "load"), 2, 64);
    assert_int_equal(number(row_of(launch, 10, "shared", "load"), "bytes"), 16);
    json_decref(launch);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void long_loops_are_recorded_at_their_beginning_only(void **state)
{
    (void)state;
    json_t *launch =
        trace(KERNEL "{\n" THREAD "    float v = 0;\n    for (int i = 0; i < n; i++)" AT(
                  10) "v += a[t + i % 1024];\nb[t] = v; }",
            32, 100000);
    const json_t *row = row_of(launch, 10, "global", "load");
    expect_requests(row, 256, 256 * 32);
    assert_int_equal(number(row, "lane_accesses"), 3200000);
    assert_int_equal(number(launch, "global_load_bytes"), 12800000);
    expect_requests(row_of(launch, 11, "global", "store"), 1, 32);
    json_decref(launch);
}

/* Each block notes its number. */
#define NOTE_BLOCK                                                                                 \
    KERNEL "{\n int *list = (int *)b;\n if (threadIdx.x == 0)\n"                                   \
           "        list[atomicAdd(list + 1000, 1)] = blockIdx.x;" AT(                             \
               10) "a[blockIdx.x % 4096 * 32 + threadIdx.x] = 1; }"

/* The first warp has come to its end by then; the second launch gets what it needs. */
static void a_launch_that_takes_too_long_is_cut(void **state)
{
    (void)state;
    int n = 1 << 30;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL "{\n"
                                                 "b[threadIdx.x] = 1;\n"
                                                 "if (threadIdx.x < 32) return;\n"
                                                 "for (int i = 0; i < n; i++) b[0] += a[i % 8];\n"
                                                 "}",
        "k", &module);
    void *params[] = {&buffer_a, &buffer_b, &n};
    MUST(trace_begin("{\"ms\":1,\"launches\":2}"));
    MUST(client_launch(k, 1, 64, 0, params));
    n = 1;
    MUST(client_launch(k, 1, 64, 0, params));
    json_t *launches = end_trace();
    const json_t *first = json_array_get(launches, 0), *second = json_array_get(launches, 1);
    assert_true(json_is_true(json_object_get(first, "is_cut")));
    assert_true(json_is_false(json_object_get(second, "is_cut")));
    for (size_t i = 0; i < 2; i++) {
        const json_t *store = json_array_get(json_object_get(i ? second : first, "accesses"), 0);
        assert_int_equal(json_integer_value(json_object_get(store, "requests")), i + 1);
        assert_int_equal(json_integer_value(json_object_get(store, "lanes")), 32 * (i + 1));
    }
    json_decref(launches);
    MUST(cuModuleUnload(module));
}

static void some_blocks_of_a_large_grid_run_spread_over_it(void **state)
{
    (void)state;
    int list[64];
    MUST(cuMemsetD32_v2(buffer_b, 0, 1024));
    json_t *launch = trace_with("{\"blocks\":64}", NOTE_BLOCK, 100000, 32, 0, 0);
    assert_int_equal(number(launch, "blocks"), 100000);
    assert_int_equal(number(launch, "blocks_traced"), 64);
    const json_t *row = row_of(launch, 10, "global", "store");
    expect_requests(row, 64, 64 * 32);
    expect_each(row, "sectors", 4);
    MUST(cuMemcpyDtoH_v2(list, buffer_b, sizeof list));
    assert_int_equal(list[0], 0);
    assert_int_equal(list[63], 99999);
    for (int i = 1; i < 64; i++) {
        assert_true(list[i] > list[i - 1]);
        assert_true(list[i] >= i * 100000LL / 64 && list[i] <= (i + 1) * 100000LL / 64);
    }
    assert_true(abs(list[3] - 2 * list[2] + list[1]) > 1); /* at no fixed distance */
    json_decref(launch);
}

static void as_many_blocks_run_as_make_the_accesses_that_were_asked_for(void **state)
{
    (void)state;
    static const char stores[] =
        KERNEL "{\n" THREAD "    a[t] = 1; a[t + 32] = 1; a[t + 64] = 1; a[t + 96] = 1; }";
    static const char turns[] =
        KERNEL "{\n" THREAD "    float v = t;\n    for (int i = 0; i < n; i++) v = v * v + 1;\n"
               "    a[t] = v; }";
    int list[3];
    json_t *launch = trace_with("{\"accesses\":300}", stores, 50, 32, 0, 0);
    assert_int_equal(number(launch, "blocks_traced"), 3); /* of 128 each */
    json_decref(launch);
    MUST(cuMemsetD32_v2(buffer_b, 0, 1024));
    json_decref(trace_with("{\"accesses\":100}", NOTE_BLOCK, 1000, 32, 0, 0));
    MUST(cuMemcpyDtoH_v2(list, buffer_b, sizeof list)); /* also spread over the grid */
    assert_int_equal(list[0], 0);
    assert_in_range(list[1], 333, 666);
    assert_int_equal(list[2], 999);
    launch = trace_with("{\"accesses\":1000}", turns, 50, 32, 0, 1000);
    assert_int_equal(number(launch, "blocks_traced"), 1); /* its loop takes as long */
    json_decref(launch);
}

static void a_traced_device_has_room_for_what_any_gpu_has(void **state)
{
    (void)state;
    size_t bytes;
    int value = 1;
    device_ptr p;
    MUST(cuDeviceTotalMem_v2(&bytes, 0));
    assert_true(bytes == (size_t)1 << 40);
    MUST(cuMemAlloc_v2(&p, (size_t)300 << 30));
    MUST(cuMemcpyDtoH_v2(&value, p + ((size_t)299 << 30), sizeof value));
    assert_int_equal(value, 0);
    MUST(cuMemsetD32_v2(p + 4, 0, (size_t)70 << 30));
    MUST(cuMemFree_v2(p));
    json_t *launch = trace_with("{}",
        KERNEL "{\n extern __shared__ float s[];\n" THREAD AT(10) "b[t] = s[58111 - t]; }", 1, 1024,
        227 * 1024, 0);
    expect_each(row_of(launch, 10, "shared", "load"), "degrees", 1);
    json_decref(launch);
}

static void a_memset_of_zeros_stays_within_its_range(void **state)
{
    (void)state;
    enum { BYTES = 5 * 4096 };
    unsigned char data[BYTES];
    memset(data, 7, sizeof data);
    device_ptr p = client_buffer(data, sizeof data);
    MUST(cuMemsetD8Async(p + 100, 0, 3 * 4096 + 17, NULL));
    MUST(cuMemcpyDtoH_v2(data, p, sizeof data));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(data[i], i < 100 || i >= 100 + 3 * 4096 + 17 ? 7 : 0);
    MUST(cuMemFree_v2(p));
}

static void blocks_of_a_cooperative_launch_are_told_apart(void **state)
{
    (void)state;
    int n = 0;
    struct module *module;
    struct function *k = client_kernel_in(
        "#include <cooperative_groups.h>\n" KERNEL
        "{\n" THREAD AT(10) "b[blockIdx.x * 64 + t] = t;\ncooperative_groups::this_grid().sync();\n"
                            "a[t] = b[blockIdx.x * 64 + 8 * t]; }",
        "k", &module);
    void *params[] = {&buffer_a, &buffer_b, &n};
    MUST(trace_begin("{\"blocks\":1}"));
    MUST(cuLaunchCooperativeKernel(k, 3, 1, 1, 64, 1, 1, 0, NULL, params));
    json_t *launches = end_trace(), *launch = json_array_get(launches, 0);
    assert_int_equal(number(launch, "blocks_traced"), 3);
    expect_requests(row_of(launch, 10, "global", "store"), 6, 192);
    expect_requests(row_of(launch, 12, "global", "load"), 6, 192);
    json_decref(launches);
    MUST(cuModuleUnload(module));
}

/* Whole clusters run, and what lies in another block's shared memory is shared memory, with banks
 * of its own. */
static void blocks_of_a_cluster_are_traced_together(void **state)
{
    (void)state;
    int n = 0;
    struct module *module;
    struct function *k = client_kernel_in(
        "#include <cooperative_groups.h>\n" KERNEL "{\n extern __shared__ float s[];\n" THREAD AT(
            10) "s[t] = t;\ncooperative_groups::this_cluster().sync();\n"
                "a[t] = cooperative_groups::this_cluster().map_shared_rank(s, 1 - blockIdx.x % "
                "2)[2 * t % 64];\n"
                "*cooperative_groups::this_cluster().map_shared_rank(s, t % 2) = 1.0f;\n"
                "cooperative_groups::this_cluster().sync(); }",
        "k", &module);
    void *params[] = {&buffer_a, &buffer_b, &n};
    MUST(trace_begin("{\"blocks\":1}"));
    MUST(
        client_launch_clusters(k, (unsigned[3]){6, 1, 1}, (unsigned[3]){2, 1, 1}, 64, 256, params));
    json_t *launches = end_trace(), *launch = json_array_get(launches, 0);
    assert_int_equal(number(launch, "blocks_traced"), 2);
    expect_requests(row_of(launch, 12, "shared", "load"), 4, 128);
    expect_each(row_of(launch, 12, "shared", "load"), "degrees", 2);
    expect_each(row_of(launch, 13, "shared", "store"), "degrees", 1);
    json_decref(launches);
    MUST(cuModuleUnload(module));
}

static void options_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[]", "{\"blocks\":0}", "{\"accesses\":-1}",
        "{\"widths\":{}}", "{\"widths\":[{\"file\":\"a\",\"line\":1}]}",
        "{\"widths\":[" WIDTH(1, 3) "]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(trace_begin(bad[i]), 1);
    assert_null(trace_end());
}

static void nothing_is_seen_outside_of_a_trace(void **state)
{
    (void)state;
    int n = 0;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL "{ b[threadIdx.x] = 1; }", "k", &module);
    void *params[] = {&buffer_a, &buffer_b, &n};
    MUST(client_launch(k, 1, 32, 0, params));
    MUST(trace_begin(NULL));
    json_t *launches = end_trace();
    assert_int_equal(json_array_size(launches), 0);
    json_decref(launches);
    assert_null(trace_end());
    MUST(cuModuleUnload(module));
}

int main(void)
{
    setenv("TUNE_EMULATOR_TRACE", "1", 1);
    client_load();
    *(void **)&trace_begin = client_symbol("tuneTraceBegin");
    *(void **)&trace_end = client_symbol("tuneTraceEnd");
    *(void **)&trace_free = client_symbol("tuneTraceFree");
    client_start();
    buffer_a = client_buffer(NULL, BUFFER_BYTES);
    buffer_b = client_buffer(NULL, BUFFER_BYTES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sectors_are_counted_per_request),
        cmocka_unit_test(a_stride_in_shared_memory_conflicts_by_its_common_divisor_with_32),
        cmocka_unit_test(one_word_for_all_lanes_is_a_broadcast),
        cmocka_unit_test(a_column_of_a_tile_conflicts_unless_its_rows_are_padded),
        cmocka_unit_test(an_atomic_operation_is_one_store),
        cmocka_unit_test(what_lies_in_registers_on_a_gpu_is_no_access),
        cmocka_unit_test(a_tree_reduction_runs_47_warps_interleaved_and_12_sequential),
        cmocka_unit_test(lanes_meet_in_each_turn_of_loops_of_different_lengths),
        cmocka_unit_test(lanes_that_come_in_different_turns_do_not_meet),
        cmocka_unit_test(nested_loops_are_told_apart_turn_by_turn),
        cmocka_unit_test(a_choice_is_a_branch_and_its_lanes_meet_behind_it),
        cmocka_unit_test(the_cases_of_a_switch_run_one_after_another),
        cmocka_unit_test(threads_that_return_early_are_missed_from_there_on),
        cmocka_unit_test(functions_are_followed_and_left),
        cmocka_unit_test(a_function_called_after_another_is_not_within_it),
        cmocka_unit_test(turns_are_told_apart_even_below_a_deep_recursion),
        cmocka_unit_test(a_way_out_of_two_loops_at_once_belongs_to_the_outer_one),
        cmocka_unit_test(code_is_neither_doubled_nor_moved_by_the_compiler),
        cmocka_unit_test(a_tiled_product_asks_for_a_tileth_of_the_bytes),
        cmocka_unit_test(neighbouring_accesses_are_joined_where_the_gpu_does),
        cmocka_unit_test(accesses_of_different_lanes_are_not_joined),
        cmocka_unit_test(two_rows_of_neighbours_on_one_line_are_joined_apart),
        cmocka_unit_test(long_loops_are_recorded_at_their_beginning_only),
        cmocka_unit_test(a_launch_that_takes_too_long_is_cut),
        cmocka_unit_test(some_blocks_of_a_large_grid_run_spread_over_it),
        cmocka_unit_test(as_many_blocks_run_as_make_the_accesses_that_were_asked_for),
        cmocka_unit_test(a_traced_device_has_room_for_what_any_gpu_has),
        cmocka_unit_test(a_memset_of_zeros_stays_within_its_range),
        cmocka_unit_test(blocks_of_a_cooperative_launch_are_told_apart),
        cmocka_unit_test(blocks_of_a_cluster_are_traced_together),
        cmocka_unit_test(options_that_cannot_be_read_are_refused),
        cmocka_unit_test(nothing_is_seen_outside_of_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
