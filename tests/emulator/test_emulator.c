/* The emulator when all goes well, as a program sees it: CUDA source in, results out. What goes
 * wrong is in test_emulator_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL "extern \"C\" __global__ void k"

static void a_kernel_adds_two_vectors_with_a_tail(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL
        "(const float *a, const float *b, float *c, int n)\n"
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }",
        "k", &module);
    float a[1000], b[1000], c[1000];
    for (int i = 0; i < 1000; i++) {
        a[i] = (float)i;
        b[i] = 0.5f;
    }
    device_ptr da = client_buffer(a, sizeof a), db = client_buffer(b, sizeof b);
    device_ptr dc = client_buffer(NULL, sizeof c);
    int n = 1000;
    void *params[] = {&da, &db, &dc, &n};
    MUST(client_launch(k, 8, 128, 0, params));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(c, dc, sizeof c));
    for (int i = 0; i < 1000; i++)
        assert_true(c[i] == (float)i + 0.5f);
    MUST(cuMemFree_v2(da));
    MUST(cuMemFree_v2(db));
    MUST(cuMemFree_v2(dc));
    MUST(cuModuleUnload(module));
}

/* Runs k(out) with one block and gives back `count` ints. */
static void run_block(
    const char *source, unsigned threads, unsigned shared, int *out, unsigned count)
{
    struct module *module;
    struct function *k = client_kernel_in(source, "k", &module);
    device_ptr p = client_buffer(NULL, count * sizeof *out);
    void *params[] = {&p};
    MUST(client_launch(k, 1, threads, shared, params));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(out, p, count * sizeof *out));
    MUST(cuMemFree_v2(p));
    MUST(cuModuleUnload(module));
}

static void barriers_order_static_and_dynamic_shared_memory(void **state)
{
    (void)state;
    int out[256];
    run_block(KERNEL "(int *out)\n"
                     "{\n"
                     "    __shared__ int fixed[256], other[4];\n"
                     "    extern __shared__ __align__(16) int open[];\n"
                     "    int t = threadIdx.x;\n"
                     "    fixed[t] = t;\n"
                     "    if (t < 4) other[t] = 1000;\n"
                     "    __syncthreads();\n"
                     "    open[t] = fixed[255 - t] + other[t & 3];\n"
                     "    __syncthreads();\n"
                     "    out[t] = open[t ^ 1];\n"
                     "}",
        256, 1024, out, 256);
    for (int t = 0; t < 256; t++)
        assert_int_equal(out[t], 1000 + 255 - (t ^ 1));
}

static void barriers_count_predicates(void **state)
{
    (void)state;
    int out[96];
    run_block(KERNEL "(int *out)\n"
                     "{\n"
                     "    int t = threadIdx.x;\n"
                     "    int count = __syncthreads_count(t % 3 == 0);\n"
                     "    int all = __syncthreads_and(t < 96), none = __syncthreads_or(t > 96);\n"
                     "    out[t] = count * 100 + all * 10 + none;\n"
                     "}",
        96, 0, out, 96);
    assert_int_equal(out[0], 3210);
    assert_int_equal(out[95], 3210);
}

static void threads_that_left_are_not_waited_for(void **state)
{
    (void)state;
    int out[64];
    run_block(KERNEL "(int *out)\n"
                     "{ if (threadIdx.x >= 40) { out[threadIdx.x] = 1; return; }\n"
                     "  out[threadIdx.x] = __syncthreads_count(1); }",
        64, 0, out, 64);
    assert_int_equal(out[0], 40);
    assert_int_equal(out[63], 1);
}

static void shuffles_ballots_and_matches_follow_their_masks(void **state)
{
    (void)state;
    int out[40 * 8];
    run_block(KERNEL
        "(int *out)\n"
        "{\n"
        "    int t = threadIdx.x, lane = t % 32, *o = out + 8 * t;\n"
        "    o[0] = __shfl_down_sync(~0u, t, 4);\n"
        "    o[1] = __shfl_xor_sync(~0u, t, 1);\n"
        "    o[2] = __shfl_up_sync(~0u, t, 2, 8);\n"
        "    o[3] = __shfl_sync(~0u, t, 3, 4);\n"
        "    o[4] = __ballot_sync(~0u, lane & 1);\n"
        "    o[5] = (int)__shfl_sync(~0u, 0.5 + t, 2);\n"
        "    o[6] = __match_any_sync(~0u, lane / 4);\n"
        "    unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;\n"
        "    o[7] = t < 32 ? __reduce_add_sync(half, lane) : __any_sync(~0u, t == 39);\n"
        "}",
        40, 0, out, 40 * 8);
    assert_int_equal(out[8 * 3 + 0], 7);
    assert_int_equal(out[8 * 31 + 0], 31); /* past the end: its own */
    assert_int_equal(out[8 * 4 + 1], 5);
    assert_int_equal(out[8 * 9 + 2], 9); /* segment of 8 starts at 8 */
    assert_int_equal(out[8 * 11 + 2], 9);
    assert_int_equal(out[8 * 6 + 3], 7);
    assert_int_equal((unsigned)out[8 * 0 + 4], 0xaaaaaaaau);
    assert_int_equal(out[8 * 35 + 4], 0xaa); /* the second warp has 8 lanes */
    assert_int_equal(out[8 * 9 + 5], 2);
    assert_int_equal(out[8 * 5 + 6], 0xf0);
    assert_int_equal(out[8 * 0 + 7], 120);
    assert_int_equal(out[8 * 20 + 7], 376);
    assert_int_equal(out[8 * 32 + 7], 1);
}

static void atomics_and_volatile_flags_work_between_threads(void **state)
{
    (void)state;
    int out[4];
    run_block(KERNEL "(int *out)\n"
                     "{\n"
                     "    __shared__ volatile int flag;\n"
                     "    if (threadIdx.x == 0) { flag = 0; out[0] = out[2] = 0; out[1] = -1; }\n"
                     "    __syncthreads();\n"
                     "    atomicAdd(out, 2);\n"
                     "    atomicMax(out + 1, (int)threadIdx.x);\n"
                     "    while (atomicCAS(out + 2, 0, 1) != 0) { }\n" /* a lock */
                     "    out[3] = threadIdx.x;\n"
                     "    atomicExch(out + 2, 0);\n"
                     "    if (threadIdx.x == 0) while (!flag) { }\n"
                     "    if (threadIdx.x == 63) flag = 1;\n"
                     "}",
        64, 0, out, 4);
    assert_int_equal(out[0], 128);
    assert_int_equal(out[1], 63);
    assert_int_equal(out[2], 0);
}

static void blocks_run_in_ascending_order(void **state)
{
    (void)state;
    struct module *module;
    struct function *k =
        client_kernel_in(KERNEL "(int *order, int *next) { if (threadIdx.x + threadIdx.y + "
                                "threadIdx.z == 0) order[blockIdx.x + gridDim.x * "
                                "(blockIdx.y + gridDim.y * blockIdx.z)] = atomicAdd(next, 1); }",
            "k", &module);
    int order[24], zero = 0;
    device_ptr p = client_buffer(NULL, sizeof order), next = client_buffer(&zero, sizeof zero);
    void *params[] = {&p, &next};
    MUST(cuLaunchKernel(k, 2, 3, 4, 8, 2, 2, 0, NULL, params, NULL));
    MUST(cuMemcpyDtoH_v2(order, p, sizeof order));
    for (int i = 0; i < 24; i++)
        assert_int_equal(order[i], i);
    MUST(cuMemFree_v2(p));
    MUST(cuMemFree_v2(next));
    MUST(cuModuleUnload(module));
}

static void all_blocks_of_a_cooperative_launch_meet(void **state)
{
    (void)state;
    struct module *module;
    struct function *k =
        client_kernel_in("#include <cooperative_groups.h>\n" KERNEL "(int *data, int *out)\n"
                         "{\n"
                         "    __shared__ int mine;\n"
                         "    extern __shared__ int open[];\n"
                         "    if (threadIdx.x == 0) mine = blockIdx.x + 1;\n"
                         "    open[threadIdx.x] = blockIdx.x;\n"
                         "    data[blockIdx.x] = blockIdx.x * 10;\n"
                         "    cooperative_groups::this_grid().sync();\n"
                         "    int sum = 0;\n"
                         "    for (int i = 0; i < gridDim.x; i++) sum += data[i];\n"
                         "    cooperative_groups::this_grid().sync();\n"
                         "    out[blockIdx.x] = sum * 100 + mine * 10 + open[threadIdx.x];\n"
                         "}",
            "k", &module);
    int out[8];
    device_ptr data = client_buffer(NULL, sizeof out), p = client_buffer(NULL, sizeof out);
    void *params[] = {&data, &p};
    MUST(cuLaunchCooperativeKernel(k, 8, 1, 1, 64, 1, 1, 256, NULL, params));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(out, p, sizeof out));
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i], 28000 + (i + 1) * 10 + i);
    CHECK_RESULT(cuLaunchCooperativeKernel(k, 9, 1, 1, 1024, 1, 1, 0, NULL, params), 720);
    MUST(cuMemFree_v2(data));
    MUST(cuMemFree_v2(p));
    MUST(cuModuleUnload(module));
}

/* Each block leaves numbers in static and dynamic shared memory; all read all, then write to the
 * next block's. */
static void blocks_of_a_cluster_reach_each_others_shared_memory(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(
        "#include <cooperative_groups.h>\n" KERNEL "(int *out)\n"
        "{\n"
        "    __shared__ int mine, given;\n"
        "    extern __shared__ int4 open[];\n"
        "    auto cluster = cooperative_groups::this_cluster();\n"
        "    int rank = cluster.block_rank(), blocks = cluster.num_blocks();\n"
        "    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
        "    if (threadIdx.x == 0) mine = block;\n"
        "    open[threadIdx.x] = int4{0, 0, 0, block * 100 + (int)threadIdx.x};\n"
        "    cluster.sync();\n"
        "    int sum = 0;\n"
        "    for (int i = 0; i < blocks; i++)\n"
        "        sum += *cluster.map_shared_rank(&mine, i) +\n"
        "               cluster.map_shared_rank(open, i)[63 - threadIdx.x].w;\n"
        "    if (threadIdx.x == 0) *cluster.map_shared_rank(&given, (rank + 1) % blocks) = rank;\n"
        "    cluster.sync();\n"
        "    if (threadIdx.x == 5) {\n"
        "        out[3 * block] = sum;\n"
        "        out[3 * block + 1] = given;\n"
        "        out[3 * block + 2] = rank;\n"
        "    }\n"
        "}",
        "k", &module);
    static const unsigned grids[][3] = {{12, 1, 1}, {4, 6, 2}, {16, 1, 1}, {3, 1, 1}};
    static const unsigned clusters[][3] = {{4, 1, 1}, {2, 3, 1}, {16, 1, 1}, {1, 1, 1}};
    int out[48 * 3];
    device_ptr p = client_buffer(NULL, sizeof out);
    void *params[] = {&p};
    MUST(cuFuncSetAttribute(k, 14, 1)); /* clusters of more than 8 blocks */
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        const unsigned *grid = grids[i], *cluster = clusters[i];
        int blocks = (int)(cluster[0] * cluster[1] * cluster[2]);
        MUST(client_launch_clusters(k, grid, cluster, 64, 64 * 16, params));
        MUST(cuMemcpyDtoH_v2(out, p, sizeof out));
        for (unsigned b = 0; b < grid[0] * grid[1] * grid[2]; b++) {
            unsigned x = b % grid[0], y = b / grid[0] % grid[1], z = b / grid[0] / grid[1];
            int rank = (int)(x % cluster[0] + cluster[0] * (y % cluster[1]));
            int sum = 58 * blocks;
            for (unsigned dy = 0; dy < cluster[1]; dy++)
                for (unsigned dx = 0; dx < cluster[0]; dx++)
                    sum += 101 * (int)(x - x % cluster[0] + dx +
                                       grid[0] * (y - y % cluster[1] + dy + grid[1] * z));
            assert_int_equal(out[3 * b], sum);
            assert_int_equal(out[3 * b + 1], (rank + blocks - 1) % blocks);
            assert_int_equal(out[3 * b + 2], rank);
        }
    }
    MUST(cuMemFree_v2(p));
    MUST(cuModuleUnload(module));
}

static void clusters_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL "(int *out) { }", "k", &module);
    device_ptr p = 0;
    void *params[] = {&p};
    const unsigned grid[3] = {32, 1, 1};
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){16, 1, 1}, 32, 0, params), 912);
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){0, 1, 1}, 32, 0, params), 912);
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){3, 1, 1}, 32, 0, params), 1);
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){1, 2, 1}, 32, 0, params), 1);
    MUST(cuFuncSetAttribute(k, 14, 1));
    MUST(client_launch_clusters(k, grid, (unsigned[3]){16, 1, 1}, 32, 0, params));
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){16, 1, 1}, 1024, 0, params), 912);
    CHECK_RESULT(client_launch_clusters(k, grid, (unsigned[3]){32, 1, 1}, 32, 0, params), 912);
    MUST(cuCtxSynchronize());
    MUST(cuModuleUnload(module));
}

static void templates_are_found_by_their_name_expression(void **state)
{
    (void)state;
    const char *options[] = {"--gpu-architecture=cpu", "-DSCALE=3", NULL};
    struct compiled c = client_compile_with(
        "#include \"helper.cuh\"\n"
        "namespace deep { template <typename T, int N> __global__ void __launch_bounds__(N * 2) "
        "scale(T *p) { p[threadIdx.x] *= SCALE * FROM_HEADER; } }",
        "deep::scale<float, 16>", options);
    struct module *module;
    struct function *function;
    float value[2] = {1, 2};
    int bound;
    MUST(c.result);
    MUST(cuModuleLoadData(&module, c.image));
    MUST(cuModuleGetFunction(&function, module, c.lowered));
    CHECK_RESULT(cuModuleGetFunction(&function, module, "scale"), 500);
    MUST(cuFuncGetAttribute(&bound, 0, function));
    assert_int_equal(bound, 32);
    device_ptr p = client_buffer(value, sizeof value);
    void *params[] = {&p};
    MUST(client_launch(function, 1, 2, 0, params));
    MUST(cuMemcpyDtoH_v2(value, p, sizeof value));
    assert_true(value[0] == 15 && value[1] == 30);
    CHECK_RESULT(client_launch(function, 1, 33, 0, params), 1); /* beyond its launch bounds */
    MUST(cuMemFree_v2(p));
    MUST(cuModuleUnload(module));
    compiled_finish(&c);
}

/* g++ forgets what the stand-in compiler says of a variable that a template declares. */
static void templates_have_dynamic_shared_memory(void **state)
{
    (void)state;
    int out[3];
    run_block("namespace deep { namespace {\n"
              "template <int N> __device__ int last(int *open)\n"
              "{\n"
              "    extern __shared__ int hidden[];\n"
              "    return hidden[N] + (hidden == open);\n"
              "} }\n"
              "struct tools {\n"
              "    template <int N> static __device__ void put(int value)\n"
              "    {\n"
              "        extern __shared__ int open[];\n"
              "        open[N] = value;\n"
              "    }\n"
              "}; }\n"
              "template <int N> __device__ void work(int *out)\n"
              "{\n"
              "    extern __shared__ __align__(16) int open[];\n"
              "    open[0] = N;\n"
              "    deep::tools::put<2>(30);\n"
              "    out[0] = open[0];\n"
              "    out[1] = open[2];\n"
              "    out[2] = deep::last<2>(open);\n"
              "}\n" KERNEL "(int *out) { work<7>(out); }",
        1, 64, out, 3);
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 30);
    assert_int_equal(out[2], 31);
}

static void module_variables_can_be_copied_to(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(
        "extern \"C\" { __constant__ int weights[4]; __device__ int total; }\n" KERNEL
        "() { total = weights[0] + weights[3]; }",
        "k", &module);
    device_ptr weights, total;
    size_t bytes;
    int values[4] = {5, 0, 0, 7}, sum;
    MUST(cuModuleGetGlobal_v2(&weights, &bytes, module, "weights"));
    assert_int_equal(bytes, sizeof values);
    MUST(cuModuleGetGlobal_v2(&total, NULL, module, "total"));
    MUST(cuMemcpyHtoD_v2(weights, values, sizeof values));
    MUST(client_launch(k, 1, 1, 0, NULL));
    MUST(cuMemcpyDtoH_v2(&sum, total, sizeof sum));
    assert_int_equal(sum, 12);
    MUST(cuMemsetD8Async(weights, 0xFF, sizeof values, NULL));
    MUST(client_launch(k, 1, 1, 0, NULL));
    MUST(cuMemcpyDtoH_v2(&sum, total, sizeof sum));
    assert_int_equal(sum, -2);
    MUST(cuMemsetD8Async(weights, 0, sizeof values[0], NULL));
    MUST(client_launch(k, 1, 1, 0, NULL));
    MUST(cuMemcpyDtoH_v2(&sum, total, sizeof sum));
    assert_int_equal(sum, -1);
    CHECK_RESULT(cuModuleGetGlobal_v2(&weights, &bytes, module, "absent"), 500);
    MUST(cuModuleUnload(module));
}

static void half_precision_rounds_to_nearest_even(void **state)
{
    (void)state;
    int out[4];
    run_block("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" KERNEL "(int *out)\n"
              "{\n"
              "    out[0] = __half_as_ushort(__float2half(1.0f + 1.0f / 2048));\n"
              "    out[1] = __half_as_ushort(__hadd(__float2half(2048.0f), __float2half(3.0f)));\n"
              "    out[2] = __bfloat16_as_ushort(__float2bfloat16(1.0f + 3.0f / 256));\n"
              "    out[3] = (int)__half2float(__hfma(half(3), half(5), half(-1)));\n"
              "}",
        1, 0, out, 4);
    assert_int_equal(out[0], 0x3c00);
    assert_int_equal(out[1], 0x6802); /* 2051 -> 2052 */
    assert_int_equal(out[2], 0x3f82);
    assert_int_equal(out[3], 14);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void memory_ends_where_the_device_says(void **state)
{
    (void)state;
    size_t free_before, free_after, total;
    device_ptr p, q;
    MUST(cuMemGetInfo_v2(&free_before, &total));
    assert_int_equal(total, (size_t)2 << 30);
    CHECK_RESULT(cuMemAlloc_v2(&p, total + 1), 2);
    CHECK_RESULT(cuMemAlloc_v2(&p, SIZE_MAX), 2);
    CHECK_RESULT(cuMemAlloc_v2(&p, 0), 1);
    MUST(cuMemAlloc_v2(&p, (size_t)1 << 30));
    CHECK_RESULT(cuMemAlloc_v2(&q, ((size_t)1 << 30) + 1), 2);
    MUST(cuMemGetInfo_v2(&free_after, &total));
    assert_int_equal(free_before - free_after, (size_t)1 << 30);
    CHECK_RESULT(cuMemFree_v2(p + 256), 1);
    MUST(cuMemFree_v2(p));
    CHECK_RESULT(cuMemFree_v2(p), 1);
    MUST(cuMemFree_v2(0));
}

static void memsets_and_copies_are_checked_and_take_effect(void **state)
{
    (void)state;
    unsigned char bytes[64];
    device_ptr p = client_buffer(NULL, 64), q = client_buffer(NULL, 64);
    MUST(cuMemcpyDtoH_v2(bytes, p, 64));
    assert_int_equal(bytes[5], 0xFF); /* fresh memory is poisoned */
    MUST(cuMemsetD8Async(p, 0, 64, NULL));
    MUST(cuMemsetD8Async(p + 8, 7, 8, NULL));
    MUST(cuMemsetD32_v2(p + 32, 0x04030201, 2));
    MUST(cuMemcpyDtoDAsync_v2(q + 1, p, 63, NULL));
    MUST(cuMemcpyDtoH_v2(bytes, q, 64));
    assert_int_equal(bytes[0], 0xFF);
    assert_int_equal(bytes[1], 0);
    assert_int_equal(bytes[9], 7);
    assert_int_equal(bytes[17], 0);
    assert_int_equal(bytes[33], 1);
    assert_int_equal(bytes[40], 4);
    MUST(cuMemsetD8Async(q, 9, 64, NULL)); /* the whole buffer: noted, and made when looked at */
    MUST(cuMemcpyDtoH_v2(bytes, q, 64));
    assert_int_equal(bytes[63], 9);
    CHECK_RESULT(cuMemsetD8Async(p, 0, 65, NULL), 1);
    CHECK_RESULT(cuMemcpyHtoD_v2(p + 1, bytes, 64), 1);
    CHECK_RESULT(cuMemcpyDtoH_v2(bytes, p, 65), 1);
    CHECK_RESULT(cuMemcpyDtoH_v2(bytes, (uintptr_t)bytes, 1), 1);
    MUST(cuMemFree_v2(p));
    MUST(cuMemFree_v2(q));
}

/* --- streams, events, graphs
 * ---------------------------------------------------------------------- */

static float time_of_launch(struct function *k, void **params)
{
    struct event *start, *end;
    float ms;
    MUST(cuEventCreate(&start, 0));
    MUST(cuEventCreate(&end, 0));
    CHECK_RESULT(cuEventElapsedTime(&ms, start, end), 400);
    MUST(cuEventRecord(start, NULL));
    MUST(client_launch(k, 4, 256, 0, params));
    MUST(cuEventRecord(end, NULL));
    MUST(cuEventElapsedTime(&ms, start, end));
    MUST(cuEventDestroy_v2(start));
    MUST(cuEventDestroy_v2(end));
    return ms;
}

static void times_repeat_and_grow_with_the_accesses(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL
        "(float *p, int stride, int n) { int t = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "for (int i = 0; i < n; i++) p[(t * stride + i) & 65535] = 1; }",
        "k", &module);
    device_ptr p = client_buffer(NULL, 65536 * 4);
    int stride = 1, far = 64, few = 4, many = 40;
    void *params[] = {&p, &stride, &few}, *more[] = {&p, &stride, &many};
    void *scattered[] = {&p, &far, &few};
    float first = time_of_launch(k, params);
    assert_true(fabsf(first - time_of_launch(k, params)) < 1e-6f);
    assert_true(time_of_launch(k, more) > first * 1.05f);
    assert_true(time_of_launch(k, scattered) > first * 1.05f);
    MUST(cuMemFree_v2(p));
    MUST(cuModuleUnload(module));
}

static void a_graph_replays_what_was_captured(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL "(int *p, int by) { *p += by; }", "k", &module);
    struct stream *stream;
    struct graph *graph;
    struct exec *exec;
    int value, by = 5;
    device_ptr p = client_buffer(NULL, sizeof value);
    void *params[] = {&p, &by};
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamBeginCapture_v2(stream, 2));
    MUST(cuMemsetD8Async(p, 0, sizeof value, stream));
    MUST(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    by = 7; /* parameters are copied at capture */
    MUST(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    CHECK_RESULT(cuStreamSynchronize(stream), 900);
    MUST(cuStreamEndCapture(stream, &graph));
    by = 100;
    MUST(cuMemcpyDtoH_v2(&value, p, sizeof value));
    assert_int_equal(value, -1); /* capturing runs nothing */
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuModuleUnload(module)); /* the graph keeps what it needs */
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&value, p, sizeof value));
    assert_int_equal(value, 12);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuMemFree_v2(p));
}

/* --- limits
 * --------------------------------------------------------------------------------------- */

static void launches_beyond_a_limit_are_refused_and_harm_nothing(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(KERNEL "() { }", "k", &module);
    static const struct {
        unsigned grid[3], block[3], shared, result;
    } cases[] = {
        {{1, 1, 1}, {1024, 1, 1}, 0, 0},
        {{1, 1, 1}, {1025, 1, 1}, 0, 1},
        {{1, 1, 1}, {32, 33, 1}, 0, 1},
        {{1, 1, 1}, {1, 1, 65}, 0, 1},
        {{1, 1, 1}, {0, 1, 1}, 0, 1},
        {{0, 1, 1}, {1, 1, 1}, 0, 1},
        {{1, 65535, 1}, {1, 1, 1}, 0, 0},
        {{1, 65536, 1}, {1, 1, 1}, 0, 1},
        {{1, 1, 65536}, {1, 1, 1}, 0, 1},
        {{2147483648u, 1, 1}, {1, 1, 1}, 0, 1},
        {{1, 1, 1}, {1, 1, 1}, 48 * 1024, 0},
        {{1, 1, 1}, {1, 1, 1}, 48 * 1024 + 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_RESULT(cuLaunchKernel(k, cases[i].grid[0], cases[i].grid[1], cases[i].grid[2],
                         cases[i].block[0], cases[i].block[1], cases[i].block[2], cases[i].shared,
                         NULL, NULL, NULL),
            cases[i].result);
    MUST(cuCtxSynchronize());
    MUST(cuModuleUnload(module));
}

static void more_shared_memory_must_be_asked_for(void **state)
{
    (void)state;
    struct module *module;
    struct function *k = client_kernel_in(
        "__device__ void touch(int t) { __shared__ char mine[512]; mine[t] = 1; }\n" KERNEL
        "() { __shared__ char one[256], two[256]; one[threadIdx.x] = two[threadIdx.x] = 1; "
        "touch(threadIdx.x); }\n"
        "extern \"C\" __global__ void other() { __shared__ char its[64]; its[threadIdx.x] = 1; }",
        "k", &module);
    int value;
    MUST(cuFuncGetAttribute(&value, 1, k));
    assert_int_equal(value, 1024);
    CHECK_RESULT(client_launch(k, 1, 32, 48 * 1024, NULL), 1); /* static use counts */
    MUST(client_launch(k, 1, 32, 47 * 1024, NULL));
    CHECK_RESULT(cuFuncSetAttribute(k, 8, 98 * 1024 + 1), 1);
    MUST(cuFuncSetAttribute(k, 8, 98 * 1024));
    MUST(client_launch(k, 1, 32, 98 * 1024, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuModuleUnload(module));
}

/* --- the compiler
 * --------------------------------------------------------------------------------- */

static void the_same_input_gives_the_same_bytes(void **state)
{
    (void)state;
    const char *source = KERNEL "(int *p) { static_assert(N > 0, \"N\"); *p = __FILE__[0]; }";
    const char *one[] = {"-DN=1", NULL}, *two[] = {"-DN=2", "--ptxas-options=-v", NULL};
    struct compiled a = client_compile_with(source, "k", one);
    struct compiled b = client_compile_with(source, "k", one);
    struct compiled c = client_compile_with(source, "k", two);
    MUST(a.result);
    assert_int_equal(a.image_bytes, b.image_bytes);
    assert_memory_equal(a.image, b.image, a.image_bytes);
    /* a macro that changes no code changes no byte */
    assert_int_equal(a.image_bytes, c.image_bytes);
    assert_memory_equal(a.image, c.image, a.image_bytes);
    assert_string_equal(a.log, "");
    assert_non_null(strstr(c.log, "Compiling entry function 'k' for 'cpu'"));
    assert_non_null(strstr(c.log, " registers, used 1 barriers, 0 bytes smem"));
    compiled_finish(&a);
    compiled_finish(&b);
    compiled_finish(&c);
}

static void errors_come_back_in_the_compilers_form(void **state)
{
    (void)state;
    const char *bad_arch[] = {"--gpu-architecture=sm_90", NULL};
    const char *bad_option[] = {"--no-such-thing", NULL};
    const struct {
        const char *source, *expression;
        const char *const *options;
        unsigned result;
        const char *log;
    } cases[] = {
        {"\n\nextern \"C\" __global__ void k() { int x = y; }", NULL, NULL, 6,
            "test.cu(3): error: 'y' was not declared"},
        {"static_assert(sizeof(int) == 5, \"five\");", NULL, NULL, 6,
            "test.cu(1): error: static assertion failed with \"five\""},
        {"#include \"absent.cuh\"\n", NULL, NULL, 6, "test.cu(1): error: absent.cuh: No such file"},
        {KERNEL "(char *p) { __shared__ char s[49153]; s[0] = 1; *p = s[*p]; }", NULL, NULL, 6,
            "uses too much shared data (0xc010 bytes, 0xc000 max)"},
        {"__device__ void f(); " KERNEL "() { f(); }", NULL, NULL, 6, "undefined reference"},
        {KERNEL "() { }", "absent", NULL, 6, "'absent' was not declared"},
        {KERNEL "() { }", NULL, bad_arch, 5, "invalid value for --gpu-architecture"},
        {KERNEL "() { }", NULL, bad_option, 5, "unrecognized option --no-such-thing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *none[] = {NULL};
        struct compiled c = client_compile_with(
            cases[i].source, cases[i].expression, cases[i].options ? cases[i].options : none);
        if (c.result != cases[i].result || !strstr(c.log, cases[i].log))
            fprintf(stderr, "case %zu: %u: %s\n", i, c.result, c.log);
        assert_int_equal(c.result, cases[i].result);
        assert_non_null(strstr(c.log, cases[i].log));
        compiled_finish(&c);
    }
}

static size_t count_entries(const char *folder)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static void nothing_is_left_in_the_temporary_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-emulator-XXXXXX";
    assert_non_null(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
    struct compiled good = client_compile(KERNEL "() { }"), bad = client_compile("nonsense");
    setenv("TUNE_HOST_CXX", "/no/such/compiler", 1);
    struct compiled none = client_compile(KERNEL "() { }");
    unsetenv("TUNE_HOST_CXX");
    unsetenv("TMPDIR");
    MUST(good.result);
    assert_int_equal(bad.result, 6);
    assert_int_equal(none.result, 7);
    assert_non_null(strstr(none.log, "TUNE_HOST_CXX"));
    assert_int_equal(count_entries(folder), 0);
    rmdir(folder);
    compiled_finish(&good);
    compiled_finish(&bad);
    compiled_finish(&none);
}

static void images_of_another_kind_are_refused(void **state)
{
    (void)state;
    struct module *module;
    char elf[128] = "\177ELF\2\1\1";
    CHECK_RESULT(cuModuleLoadData(&module, ".version 8.8\n.target sm_90\n"), 218);
    CHECK_RESULT(cuModuleLoadData(&module, "\1\2\3\4\5"), 200);
    elf[16] = 2;
    elf[18] = (char)190; /* a real cubin */
    CHECK_RESULT(cuModuleLoadData(&module, elf), 209);
    elf[18] = 62;
    CHECK_RESULT(cuModuleLoadData(&module, elf), 200);
}

static void the_device_is_what_its_readme_says(void **state)
{
    (void)state;
    static const int wanted[][2] = {{75, 0}, {76, 0}, {16, 4}, {10, 32}, {1, 1024}, {8, 49152},
        {97, 101376}, {12, 65536}, {38, 4 << 20}};
    char name[64];
    int count, value, archs[8];
    size_t bytes;
    MUST(cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    MUST(cuDeviceGetName(name, sizeof name, 0));
    assert_string_equal(name, "CPU emulator");
    CHECK_RESULT(cuDeviceGet(&value, 1), 101);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        MUST(cuDeviceGetAttribute(&value, wanted[i][0], 0));
        assert_int_equal(value, wanted[i][1]);
    }
    MUST(cuDeviceTotalMem_v2(&bytes, 0));
    assert_int_equal(bytes, (size_t)2 << 30);
    MUST(nvrtcGetNumSupportedArchs(&count));
    assert_int_equal(count, 1);
    MUST(nvrtcGetSupportedArchs(archs));
    assert_int_equal(archs[0], 0);
}

static void entry_points_are_found_by_their_plain_name(void **state)
{
    (void)state;
    void *found;
    int status;
    MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, &status));
    assert_ptr_equal(found, (void *)cuMemAlloc_v2);
    MUST(cuGetProcAddress_v2("cuInit", &found, 12000, 0, NULL));
    assert_ptr_equal(found, (void *)cuInit);
    CHECK_RESULT(cuGetProcAddress_v2("cuAbsent", &found, 12000, 0, &status), 500);
    assert_int_equal(status, 1);
}

static void a_process_that_does_not_trace_says_so(void **state)
{
    (void)state;
    unsigned (*begin)(const char *);
    *(void **)&begin = client_symbol("tuneTraceBegin");
    assert_int_equal(begin("{}"), 801);
}

int main(void)
{
    client_load();
    client_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_adds_two_vectors_with_a_tail),
        cmocka_unit_test(barriers_order_static_and_dynamic_shared_memory),
        cmocka_unit_test(barriers_count_predicates),
        cmocka_unit_test(threads_that_left_are_not_waited_for),
        cmocka_unit_test(shuffles_ballots_and_matches_follow_their_masks),
        cmocka_unit_test(atomics_and_volatile_flags_work_between_threads),
        cmocka_unit_test(blocks_run_in_ascending_order),
        cmocka_unit_test(all_blocks_of_a_cooperative_launch_meet),
        cmocka_unit_test(blocks_of_a_cluster_reach_each_others_shared_memory),
        cmocka_unit_test(clusters_that_do_not_fit_are_refused),
        cmocka_unit_test(templates_are_found_by_their_name_expression),
        cmocka_unit_test(templates_have_dynamic_shared_memory),
        cmocka_unit_test(module_variables_can_be_copied_to),
        cmocka_unit_test(half_precision_rounds_to_nearest_even),
        cmocka_unit_test(memory_ends_where_the_device_says),
        cmocka_unit_test(memsets_and_copies_are_checked_and_take_effect),
        cmocka_unit_test(times_repeat_and_grow_with_the_accesses),
        cmocka_unit_test(a_graph_replays_what_was_captured),
        cmocka_unit_test(launches_beyond_a_limit_are_refused_and_harm_nothing),
        cmocka_unit_test(more_shared_memory_must_be_asked_for),
        cmocka_unit_test(the_same_input_gives_the_same_bytes),
        cmocka_unit_test(errors_come_back_in_the_compilers_form),
        cmocka_unit_test(nothing_is_left_in_the_temporary_folder),
        cmocka_unit_test(images_of_another_kind_are_refused),
        cmocka_unit_test(the_device_is_what_its_readme_says),
        cmocka_unit_test(entry_points_are_found_by_their_plain_name),
        cmocka_unit_test(a_process_that_does_not_trace_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
