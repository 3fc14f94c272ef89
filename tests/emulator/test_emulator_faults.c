/* The emulator when something goes wrong: faults of kernels, and faults that a scenario plans. Each
 * case runs in a process of its own, since both stay with a process for good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL "extern \"C\" __global__ void k"

/* --- faults of kernels
 * ---------------------------------------------------------------------------- */

struct fault {
    const char *source;
    unsigned threads, shared, error;
    const char *message; /* part of it, NULL: any */
};

static const struct fault *fault;
static unsigned fault_cluster; /* blocks of a cluster */

/* k(p) with a buffer of 256 bytes must give the fault's error at the next call, and for ever. */
static void run_fault(void)
{
    client_start();
    fprintf(stderr, "%s\n", fault->source);
    struct function *k = client_kernel(fault->source);
    struct context *context;
    device_ptr p = client_buffer(NULL, 256), q;
    void *params[] = {&p};
    const unsigned grid[3] = {2, 1, 1}, cluster[3] = {fault_cluster, 1, 1};
    MUST(client_launch_clusters(k, grid, cluster, fault->threads, fault->shared, params));
    CHECK_RESULT(cuCtxSynchronize(), fault->error);
    CHECK_RESULT(cuMemAlloc_v2(&q, 16), fault->error);
    CHECK_RESULT(client_launch(k, 1, 1, 0, params), fault->error);
    CHECK_RESULT(cuDevicePrimaryCtxReset_v2(0), fault->error);
    CHECK_RESULT(cuDevicePrimaryCtxRetain(&context, 0), fault->error);
    int count;
    MUST(cuDeviceGetCount(&count)); /* no context needed: still answered */
}

static void expect_faults_in_clusters(const struct fault *faults, size_t count, unsigned cluster)
{
    fault_cluster = cluster;
    for (size_t i = 0; i < count; i++) {
        fault = &faults[i];
        char *text = client_in_child(run_fault, 0);
        if (!strstr(text, faults[i].message))
            fprintf(stderr, "case %zu says: %s\n", i, text);
        assert_non_null(strstr(text, faults[i].message));
        free(text);
    }
}

static void expect_faults(const struct fault *faults, size_t count)
{
    expect_faults_in_clusters(faults, count, 1);
}

static void stray_accesses_end_the_context_and_name_their_line(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"\n" KERNEL "(int *p) {\n p[64 + threadIdx.x] = 1; }", 4, 0, 700,
            "test.cu:3: k: write of 4 bytes"},
        {KERNEL "(int *p) { p[0] = p[-1]; }", 1, 0, 700, "read of 4 bytes"},
        {KERNEL "(char *p) { *(short *)(p + 254) = 1; *(long *)(p + 248) = 1; *(int4 *)(p + 256) = "
                "int4(); }",
            1, 0, 700, "offset 256 of a buffer of 256 bytes"},
        {KERNEL "(int *p) { int *none = (int *)(p[0] & 0); *none = 1; }", 1, 0, 700,
            "in no buffer"},
        {KERNEL "(int **p) { long x; int *q = (int *)((long)p + 1000000000); *q = 1; }", 1, 0, 700,
            "write of 4 bytes"},
        {KERNEL "(int *p) { extern __shared__ int s[]; s[threadIdx.x] = 1; p[0] = s[0]; }", 64, 252,
            700, "offset 252 of dynamic shared memory, which has 252 bytes"},
        {KERNEL "(int *p) { __shared__ int s[8]; s[threadIdx.x * 1024] = 1; p[0] = s[0]; }", 2, 0,
            700, "write of 4 bytes"},
        {"__device__ const int d[4] = {1, 2, 3, 4};" KERNEL
         "(int *p) { int *q = (int *)d; asm(\"\" : \"+r\"(q)); q[p[0] & 3] = 1; }",
            1, 0, 700, "constant"},
        {"struct big { int v[40]; };" KERNEL "(big *p) { p[1] = p[0]; }", 1, 0, 700, "160 bytes"},
    };
    expect_faults(faults, sizeof faults / sizeof *faults);
}

static void misaligned_vectors_are_faults(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {KERNEL "(float *p) { float4 v = *(float4 *)(p + 1); p[8] = v.x + v.w; }", 1, 0, 716,
            "read of 16 bytes"},
        {KERNEL "(float *p) { *(float2 *)(p + 3) = make_float2(p[0], p[1]); }", 1, 0, 716,
            "no multiple of 8"},
        {KERNEL "(char *p) { *(int *)(p + 2) = 1; }", 1, 0, 716, "no multiple of 4"},
    };
    expect_faults(faults, sizeof faults / sizeof *faults);
}

static void threads_that_cannot_meet_are_an_error_and_no_hang(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {KERNEL "(int *p) {\n if (threadIdx.x < 32) __syncthreads();\n else __shfl_sync(1u << "
                "threadIdx.x % 32 | 1, 0, 0); }",
            64, 0, 719, "32 threads wait at a barrier that 31 others do not reach"},
        {KERNEL "(int *p) { if (threadIdx.x != 5) __syncwarp(); else __syncthreads(); }", 32, 0,
            719, "deadlock"},
        {KERNEL "(int *p) { if (threadIdx.x < 16) return; p[0] = __shfl_sync(~0u, 1, 0); }", 32, 0,
            719, "mask 0xffffffff waits for lanes that do not come"},
        {KERNEL "(int *p) { p[threadIdx.x] = __shfl_sync(0xffu, 1, 0); }", 32, 0, 719,
            "lacks its own lane 8"},
        {KERNEL
            "(int *p) { if (threadIdx.x & 1) __ballot_sync(~0u, 1); else __shfl_sync(~0u, 1, 0); "
            "}",
            32, 0, 719, "different masks (0xffffffff, 0xffffffff) or operations"},
        {"#include <cooperative_groups.h>\n" KERNEL
         "(int *p) { cooperative_groups::this_grid().sync(); }",
            32, 0, 719, "not cooperative"},
    };
    expect_faults(faults, sizeof faults / sizeof *faults);
}

#define CLUSTER "auto cluster = cooperative_groups::this_cluster();\n"

static void faults_of_clusters_are_told(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { " CLUSTER
         "if (threadIdx.x < 32) cluster.sync(); else __syncthreads(); }",
            64, 0, 719, "32 threads wait at a barrier that 32 others do not reach"},
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { __shared__ int s; " CLUSTER
         "*cluster.map_shared_rank(&s, 1 - blockIdx.x) = 1; cluster.sync(); p[0] = s; }",
            1, 0, 700,
            "write in the shared memory of a block of the cluster that may not have begun"},
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { __shared__ int s; s = 1; " CLUSTER
         "cluster.sync(); if (cluster.block_rank() == 1) p[0] = *cluster.map_shared_rank(&s, 0); }",
            1, 0, 700, "shared memory of block 0 of the cluster, which has ended"},
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { __shared__ int s; s = 1; " CLUSTER
         "p[0] = *cluster.map_shared_rank(&s, 2); }",
            1, 0, 700, "block 2 in a cluster of 2 blocks"},
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { " CLUSTER
         "p[0] = *cluster.map_shared_rank(p, 1); }",
            1, 0, 700, "is not in shared memory"},
        {"#include <cooperative_groups.h>\n" KERNEL
         "(int *p) { extern __shared__ int s[]; s[0] = 1; " CLUSTER
         "cluster.sync(); p[0] = cluster.map_shared_rank(s, 1 - blockIdx.x)[1 << 20]; }",
            1, 16, 700, "in no buffer"},
    };
    static const struct fault alone[] = {
        {"#include <cooperative_groups.h>\n" KERNEL "(int *p) { __shared__ int s; s = 1; " CLUSTER
         "p[0] = *cluster.map_shared_rank(&s, 1); }",
            1, 0, 700, "block 1 in a cluster of 1 blocks"},
    };
    expect_faults_in_clusters(faults, sizeof faults / sizeof *faults, 2);
    expect_faults(alone, sizeof alone / sizeof *alone);
}

static void traps_and_assertions_end_the_launch(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {KERNEL "(int *p) { if (threadIdx.x == 3) __trap(); }", 8, 0, 719, "thread (3, 0, 0)"},
        {KERNEL "(int *p) {\n assert(p == nullptr); }", 8, 0, 710,
            "test.cu:2: k: assertion failed: p == nullptr"},
    };
    expect_faults(faults, sizeof faults / sizeof *faults);
}

static void read_uninitialised(void)
{
    client_start();
    struct function *k = client_kernel(KERNEL
        "(float *p) { __shared__ float s[4]; extern __shared__ float d[]; if (blockIdx.x == 0) "
        "{ s[0] = d[0] = 1; } p[blockIdx.x * 2] = s[0]; p[blockIdx.x * 2 + 1] = d[0]; }");
    float out[4];
    device_ptr p = client_buffer(NULL, sizeof out);
    void *params[] = {&p};
    MUST(client_launch(k, 2, 1, 16, params));
    MUST(cuMemcpyDtoH_v2(out, p, sizeof out));
    CHECK(out[0] == 1 && out[1] == 1);
    CHECK(out[2] != out[2] && out[3] != out[3]); /* NaN, not what block 0 left */
}

static void shared_memory_is_poisoned_for_each_block(void **state)
{
    (void)state;
    free(client_in_child(read_uninitialised, 0));
}

static void use_after_free(void)
{
    client_start();
    struct function *k = client_kernel(KERNEL "(int *p) { *p = 1; }");
    device_ptr p = client_buffer(NULL, 256);
    void *params[] = {&p};
    MUST(client_launch(k, 1, 1, 0, params));
    MUST(cuMemFree_v2(p));
    MUST(client_launch(k, 1, 1, 0, params));
    CHECK_RESULT(cuCtxSynchronize(), 700);
}

static void host_pointer(void)
{
    client_start();
    struct function *k = client_kernel(KERNEL "(int *p) { *p = 1; }");
    int *host = malloc(64);
    device_ptr p = (uintptr_t)host;
    void *params[] = {&p};
    MUST(client_launch(k, 1, 1, 0, params));
    CHECK_RESULT(cuCtxSynchronize(), 700);
    free(host);
}

static void freed_and_host_memory_is_out_of_reach(void **state)
{
    (void)state;
    free(client_in_child(use_after_free, 0));
    free(client_in_child(host_pointer, 0));
}

static void without_start(void)
{
    int count;
    struct stream *stream;
    CHECK_RESULT(cuDeviceGetCount(&count), 3);
    MUST(cuInit(0));
    CHECK_RESULT(cuStreamCreate(&stream, 0), 201);
}

static void fork_after_start(void)
{
    client_start();
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_RESULT(cuCtxSynchronize(), 3);
        CHECK_RESULT(cuInit(0), 3);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    MUST(cuCtxSynchronize());
}

static void calls_need_a_start_and_do_not_survive_a_fork(void **state)
{
    (void)state;
    free(client_in_child(without_start, 0));
    free(client_in_child(fork_after_start, 0));
}

/* --- scenarios
 * ------------------------------------------------------------------------------------ */

static char folder[] = "/tmp/test-emulator-faults-XXXXXX";
static char scenario_path[128];

static void write_scenario(const char *text)
{
    FILE *file = fopen(scenario_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    setenv("TUNE_SCENARIO", scenario_path, 1);
}

static const char source_of_k[] = KERNEL "(int *p) { p[threadIdx.x] = SIZE; }";

static struct function *kernel_of_size(const char *define)
{
    const char *options[] = {define, NULL};
    struct compiled c = client_compile_with(source_of_k, "k", options);
    struct module *module;
    struct function *k;
    MUST(c.result);
    MUST(cuModuleLoadData(&module, c.image));
    MUST(cuModuleGetFunction(&k, module, "k"));
    compiled_finish(&c);
    return k;
}

static void third_launch_of_one_configuration(void)
{
    client_start();
    struct function *k1 = kernel_of_size("-DSIZE=1"), *k2 = kernel_of_size("-DSIZE=2");
    device_ptr p = client_buffer(NULL, 256);
    void *params[] = {&p};
    for (int i = 0; i < 5; i++)
        MUST(client_launch(k2, 1, 32, 0, params));
    MUST(client_launch(k1, 1, 32, 0, params));
    MUST(client_launch(k1, 1, 32, 0, params));
    CHECK_RESULT(client_launch(k1, 1, 32, 0, params), 701);
    MUST(client_launch(k1, 1, 32, 0, params)); /* once only, and not sticky */
    MUST(cuCtxSynchronize());
}

static void a_rule_fires_for_its_defines_from_the_nth_on_and_so_many_times(void **state)
{
    (void)state;
    write_scenario("{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": \"k\", "
                   "\"defines\": {\"SIZE\": 1}}, \"nth\": 3, \"times\": 1, \"do\": \"error\", "
                   "\"code\": 701}]}");
    free(client_in_child(third_launch_of_one_configuration, 0));
}

static void sticky_everywhere(void)
{
    int count;
    client_start();
    struct function *k = kernel_of_size("-DSIZE=1");
    device_ptr p = client_buffer(NULL, 256);
    void *params[] = {&p};
    CHECK_RESULT(client_launch(k, 1, 32, 0, params), 999);
    CHECK_RESULT(cuDeviceGetCount(&count), 999);
    CHECK_RESULT(cuInit(0), 999);
}

static void fault_later(void)
{
    client_start();
    struct function *k = kernel_of_size("-DSIZE=1");
    device_ptr p = client_buffer(NULL, 256);
    void *params[] = {&p};
    MUST(client_launch(k, 1, 32, 0, params));
    CHECK_RESULT(cuMemFree_v2(p), 715);
    CHECK_RESULT(cuCtxSynchronize(), 715);
}

static void errors_can_be_sticky_or_come_late(void **state)
{
    (void)state;
    write_scenario("{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"error\", \"code\": 999, "
                   "\"sticky\": true}]}");
    free(client_in_child(sticky_everywhere, 0));
    write_scenario(
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"fault\", \"code\": 715}]}");
    free(client_in_child(fault_later, 0));
}

static void launch_and_compare(void)
{
    client_start();
    struct function *k = client_kernel(
        KERNEL "(const int *in, int *out) { out[8 + threadIdx.x] = in[threadIdx.x] + 1; }");
    int in[32] = {0}, out[64];
    device_ptr pin = client_buffer(in, sizeof in), pout = client_buffer(NULL, sizeof out);
    void *params[] = {&pin, &pout};
    MUST(client_launch(k, 1, 32, 0, params));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH_v2(in, pin, sizeof in));
    MUST(cuMemcpyDtoH_v2(out, pout, sizeof out));
    for (int i = 0; i < 32; i++)
        CHECK(in[i] == 0 && out[8 + i] != 1);
    for (int i = 0; i < 64; i++)
        CHECK((i >= 8 && i < 40) || out[i] == -1); /* only what the kernel wrote */
}

static void garbage_replaces_what_the_kernel_wrote(void **state)
{
    (void)state;
    write_scenario("{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"garbage\"}]}");
    free(client_in_child(launch_and_compare, 0));
}

static float time_of(struct function *k)
{
    struct event *start, *end;
    float ms;
    device_ptr p = client_buffer(NULL, 256);
    void *params[] = {&p};
    MUST(cuEventCreate(&start, 0));
    MUST(cuEventCreate(&end, 0));
    MUST(cuEventRecord(start, NULL));
    MUST(client_launch(k, 1, 32, 0, params));
    MUST(cuEventRecord(end, NULL));
    MUST(cuEventElapsedTime(&ms, start, end));
    return ms;
}

static void planned_times(void)
{
    client_start();
    struct function *k = kernel_of_size("-DSIZE=4");
    float first = time_of(k), second = time_of(k);
    CHECK(first > 49.9f && first < 50.1f);
    CHECK(second > 0.99f && second < 1.01f);
}

static void noisy_times(void)
{
    client_start();
    struct function *k = kernel_of_size("-DSIZE=4");
    float low = 1e9f, high = 0;
    for (int i = 0; i < 50; i++) {
        float ms = time_of(k);
        low = ms < low ? ms : low;
        high = ms > high ? ms : high;
    }
    CHECK(high / low > 1.2f && high / low < 1.5f + 1e-3f);
    fprintf(stderr, "%a %a", (double)low, (double)high);
}

static void times_can_be_planned_and_noisy(void **state)
{
    (void)state;
    write_scenario(
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 1e6},"
        "{\"call\": \"cuLaunchKernel\", \"times\": 1, \"do\": \"time_ns\", \"value\": 5e7}]}");
    free(client_in_child(planned_times, 0));
    write_scenario("{\"noise\": {\"seed\": 7, \"relative\": 0.2}}");
    char *one = client_in_child(noisy_times, 0), *two = client_in_child(noisy_times, 0);
    assert_string_equal(one, two);
    free(one);
    free(two);
}

static void hang_at_start(void)
{
    alarm(1); /* ends the wait */
    cuInit(0);
}

static void just_start(void)
{
    cuInit(0);
}

static void compile_once(void)
{
    struct compiled c = client_compile(KERNEL "() { }");
    CHECK_RESULT(c.result, 6);
}

static void processes_can_hang_abort_and_exit(void **state)
{
    (void)state;
    write_scenario("{\"rules\": [{\"call\": \"cuInit\", \"do\": \"hang\"}]}");
    free(client_in_child(hang_at_start, SIGALRM));
    write_scenario("{\"rules\": [{\"call\": \"cuInit\", \"do\": \"abort\"}]}");
    free(client_in_child(just_start, SIGABRT));
    write_scenario("{\"rules\": [{\"call\": \"cuInit\", \"do\": \"exit\", \"code\": 7}]}");
    free(client_in_child(just_start, 7 << 8));
    write_scenario(
        "{\"rules\": [{\"call\": \"nvrtcCompileProgram\", \"do\": \"error\", \"code\": 6}]}");
    free(client_in_child(compile_once, 0));
    write_scenario("{\"rules\": [{\"call\": \"cuInit\", \"do\": \"dance\"}]}");
    char *text = client_in_child(just_start, 78 << 8);
    assert_non_null(strstr(text, "\"dance\" is not one of error,"));
    free(text);
}

static void start_busy(void)
{
    struct context *context;
    MUST(cuInit(0));
    CHECK_RESULT(cuDevicePrimaryCtxRetain(&context, 0), 46);
}

static void start_free(void)
{
    struct context *context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
}

static void counts_are_shared_through_the_state_folder(void **state)
{
    (void)state;
    char text[512];
    snprintf(text, sizeof text,
        "{\"state\": \"%s\", \"rules\": [{\"call\": \"cuDevicePrimaryCtxRetain\", \"times\": 2, "
        "\"do\": "
        "\"error\", \"code\": 46}]}",
        folder);
    write_scenario(text);
    free(client_in_child(start_busy, 0));
    free(client_in_child(start_busy, 0));
    free(client_in_child(start_free, 0));
    snprintf(text, sizeof text, "%s/rule-0", folder);
    assert_int_equal(unlink(text), 0);
}

static void registers_exhausted(void)
{
    client_start();
    struct function *k = kernel_of_size("-DSIZE=4");
    device_ptr p = client_buffer(NULL, 4096);
    void *params[] = {&p};
    int value;
    MUST(cuFuncGetAttribute(&value, 4, k));
    CHECK(value == 156);
    MUST(client_launch(k, 1, 416, 0, params));
    CHECK_RESULT(client_launch(k, 1, 512, 0, params), 701);
    MUST(cuCtxSynchronize());
}

static void registers_can_be_planned(void **state)
{
    (void)state;
    write_scenario("{\"rules\": [{\"call\": \"cuModuleGetFunction\", \"do\": \"registers\", "
                   "\"value\": 156}]}");
    free(client_in_child(registers_exhausted, 0));
}

static void two_real_looking_devices(void)
{
    int count, value;
    char name[64];
    unsigned char uuid[16];
    const char *options[] = {"--gpu-architecture=sm_80", NULL};
    struct module *module;
    struct context *context;
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&count));
    CHECK(count == 2);
    MUST(cuDeviceGetName(name, sizeof name, 1));
    CHECK(strcmp(name, "Other") == 0);
    MUST(cuDeviceGetUuid_v2(uuid, 1));
    CHECK(uuid[0] == 0x01 && uuid[15] == 0xef);
    MUST(cuDeviceGetAttribute(&value, 75, 1));
    CHECK(value == 9);
    struct compiled c = client_compile_with(KERNEL "() { }", "k", options);
    MUST(c.result);
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, c.image));
    MUST(cuDevicePrimaryCtxRetain(&context, 1));
    MUST(cuCtxSetCurrent(context));
    CHECK_RESULT(cuModuleLoadData(&module, c.image), 209); /* sm_80 code on sm_90 */
}

static void devices_and_architectures_can_be_planned(void **state)
{
    (void)state;
    write_scenario("{\"nvrtc\": {\"version\": [12, 4], \"archs\": [75, 80]}, \"device\": ["
                   "{\"name\": \"One\", \"major\": 8, \"minor\": 6},"
                   "{\"name\": \"Other\", \"major\": 9, \"uuid\": "
                   "\"GPU-01234567-89ab-cdef-0123-456789abcdef\"}]}");
    free(client_in_child(two_real_looking_devices, 0));
}

static unsigned visible_count;

static void count_visible(void)
{
    int count;
    CHECK_RESULT(cuInit(0), visible_count ? 0 : 100);
    if (!visible_count)
        return;
    MUST(cuDeviceGetCount(&count));
    CHECK((unsigned)count == visible_count);
}

static void visible_devices_follow_the_variable(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        unsigned count;
    } cases[] = {{"0", 1}, {"1,0", 2}, {"0,99,1", 1}, {"0,0", 1}, {"", 0}, {"-1", 0}, {"abc", 0},
        {"GPU-01234567", 1}, {"gpu-01234567,0", 2}, {"GPU-", 0},
        {"MIG-01234567-89ab-cdef-0123-456789abcdef", 0}};
    write_scenario("{\"device\": [{}, {\"uuid\": \"01234567-89ab-cdef-0123-456789abcdef\"}]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("CUDA_VISIBLE_DEVICES", cases[i].value, 1);
        visible_count = cases[i].count;
        free(client_in_child(count_visible, 0));
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static int after_each(void **state)
{
    (void)state;
    unsetenv("TUNE_SCENARIO");
    return 0;
}

int main(void)
{
    client_load();
    if (!mkdtemp(folder))
        return 1;
    snprintf(scenario_path, sizeof scenario_path, "%s/scenario.json", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stray_accesses_end_the_context_and_name_their_line),
        cmocka_unit_test(misaligned_vectors_are_faults),
        cmocka_unit_test(threads_that_cannot_meet_are_an_error_and_no_hang),
        cmocka_unit_test(faults_of_clusters_are_told),
        cmocka_unit_test(traps_and_assertions_end_the_launch),
        cmocka_unit_test(shared_memory_is_poisoned_for_each_block),
        cmocka_unit_test(freed_and_host_memory_is_out_of_reach),
        cmocka_unit_test(calls_need_a_start_and_do_not_survive_a_fork),
        cmocka_unit_test_teardown(
            a_rule_fires_for_its_defines_from_the_nth_on_and_so_many_times, after_each),
        cmocka_unit_test_teardown(errors_can_be_sticky_or_come_late, after_each),
        cmocka_unit_test_teardown(garbage_replaces_what_the_kernel_wrote, after_each),
        cmocka_unit_test_teardown(times_can_be_planned_and_noisy, after_each),
        cmocka_unit_test_teardown(processes_can_hang_abort_and_exit, after_each),
        cmocka_unit_test_teardown(counts_are_shared_through_the_state_folder, after_each),
        cmocka_unit_test_teardown(registers_can_be_planned, after_each),
        cmocka_unit_test_teardown(devices_and_architectures_can_be_planned, after_each),
        cmocka_unit_test_teardown(visible_devices_follow_the_variable, after_each),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(scenario_path);
    rmdir(folder);
    return failed;
}
