/* client/tune_cuda.h on the emulator: what the daemon answers is loaded, launched and right. The
 * emulator's driver is linked to this program as libcuda would be. */
#include "harness.h"

#include "client/tune_cuda.h"

#include <unistd.h>

/* --- a kernel with everything in it --------------------------------------------------------------
 */

/* y = x + N by way of a memset, a constant that holds x, a scratch buffer that must be zero before,
 * a launch that is repeated and needs more shared memory than is given without asking, and a
 * cooperative one.
 * TAG 1 takes twice the scratch. */
static void write_steps(struct harness *harness)
{
    harness_write(harness, "plugins/steps/steps.cu",
        "#ifndef TAG\n#define TAG 0\n#endif\n"
        "#if TUNE_REFERENCE\n"
        "extern \"C\" __global__ void reference(const float *x, float *y, long long n)\n"
        "{\n    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[i] + (float)n;\n}\n"
        "#else\n"
        "extern \"C\" { __constant__ float held[1000]; }\n"
        "extern \"C\" __global__ void add(float *sum, const float *x, float scale, long long n)\n"
        "{\n    extern __shared__ float staged[];\n"
        "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "    if (i < n) staged[15000 - 1 - threadIdx.x] = (i < 1000 ? held[i] : x[i]) * scale;\n"
        "    if (i < n) sum[i * (TAG + 1)] += staged[15000 - 1 - threadIdx.x];\n}\n"
        "extern \"C\" __global__ void finish(const float *sum, float *y, double one, int n)\n"
        "{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = sum[i * (TAG + 1)] + (float)(one * n);\n}\n"
        "#endif\n");
    harness_write(harness, "plugins/steps/steps.json",
        "{\"tunerd\": 1, \"name\": \"steps\", \"summary\": \"y = x + N\",\n"
        " \"dims\": [{\"name\": \"N\", \"meaning\": \"elements\"}],\n"
        " \"shapes\": [{\"N\": 64}], \"dtypes\": [\"f32\"],\n"
        " \"params\": [{\"name\": \"TAG\", \"meaning\": \"scratch\", \"values\": [0, 1]}],\n"
        " \"derived\": [], \"constraints\": [],\n"
        " \"buffers\": [{\"name\": \"x\", \"dtype\": \"f32\", \"count\": \"N\", \"fill\": "
        "\"small_int\", \"role\": \"in\"},\n"
        "  {\"name\": \"sum\", \"dtype\": \"f32\", \"count\": \"N * (TAG + 1)\", \"role\": "
        "\"scratch\", \"zero_before\": true},\n"
        "  {\"name\": \"y\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": \"out\"}],\n"
        " \"launches\": [{\"memset\": \"y\", \"byte\": 255},\n"
        "  {\"constant\": \"held\", \"buffer\": \"x\"},\n"
        "  {\"entry\": \"add\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": [\"32\"],\n"
        "   \"shared_bytes\": \"60000\", \"repeat\": \"2\", \"args\": [{\"buffer\": \"sum\"},\n"
        "   {\"buffer\": \"x\"}, {\"scalar\": \"f32\", \"number\": 0.5}, {\"scalar\": \"i64\", "
        "\"value\": \"N\"}]},\n"
        "  {\"entry\": \"finish\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": [\"32\"],\n"
        "   \"cooperative\": true, \"args\": [{\"buffer\": \"sum\"}, {\"buffer\": \"y\"},\n"
        "   {\"scalar\": \"f64\", \"number\": 1}, {\"scalar\": \"i32\", \"value\": \"N\"}]}],\n"
        " \"reference\": {\"defines\": {\"TUNE_REFERENCE\": 1},\n"
        "  \"buffers\": [{\"name\": \"y_ref\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": "
        "\"scratch\"}],\n"
        "  \"launches\": [{\"entry\": \"reference\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": "
        "[\"32\"],\n"
        "   \"args\": [{\"buffer\": \"x\"}, {\"buffer\": \"y_ref\"}, {\"scalar\": \"i64\", "
        "\"value\": \"N\"}]}]},\n"
        " \"checks\": [{\"buffer\": \"y\", \"reference\": \"y_ref\", \"derivation\": \"small "
        "integers\", \"tolerance\": {\"factor\": 0, \"unit\": \"exact\"}}],\n"
        " \"default\": {\"TAG\": 0}, \"flops\": \"N\", \"bytes\": \"8 * N\"}\n");
}

/* TAG 1 is the faster one. */
#define TAG_1_WINS                                                                                 \
    "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"         \
    "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 1}}, \"do\": \"time_ns\", "  \
    "\"value\": 50000}]}"

static struct harness *start_steps(void)
{
    struct harness *harness = harness_new();
    write_steps(harness);
    harness_scenario(harness, TAG_1_WINS);
    harness_start(harness);
    return harness;
}

/* --- using it -----------------------------------------------------------------------------------
 */

struct user {
    struct tune *tune;
    struct tune_kernel *kernel;
    CUcontext context;
    CUstream stream;
    struct tune_error err;
};

static void must(CUresult result)
{
    assert_int_equal(result, CUDA_SUCCESS);
}

static void user_start(struct user *user, const char *socket, const char *kernel)
{
    memset(user, 0, sizeof *user);
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&user->context, 0));
    must(cuCtxSetCurrent(user->context));
    must(cuStreamCreate(&user->stream, CU_STREAM_NON_BLOCKING));
    if (tune_open(socket, &user->tune, &user->err) ||
        tune_kernel_open(user->tune, kernel, NULL, &user->kernel, &user->err))
        fail_msg("%s", user->err.text);
}

static void user_finish(struct user *user)
{
    tune_kernel_close(user->kernel);
    tune_close(user->tune);
    must(cuStreamDestroy(user->stream));
    must(cuDevicePrimaryCtxRelease(0));
}

/* Launches steps for N = n on the stream and compares all of y. */
static void expect_right(struct user *user, CUstream stream, int n)
{
    struct tune_dim dim = {"N", n};
    CUdeviceptr buffers[2];
    float *host = malloc((size_t)n * sizeof *host);
    for (int i = 0; i < n; i++)
        host[i] = (float)(i % 17);
    must(cuMemAlloc(&buffers[0], (size_t)n * sizeof *host));
    must(cuMemAlloc(&buffers[1], (size_t)n * sizeof *host));
    must(cuMemcpyHtoD(buffers[0], host, (size_t)n * sizeof *host));
    if (tune_kernel_launch(user->kernel, stream, &dim, 1, buffers, 2, &user->err))
        fail_msg("%s", user->err.text);
    must(cuStreamSynchronize(stream));
    must(cuMemcpyDtoH(host, buffers[1], (size_t)n * sizeof *host));
    for (int i = 0; i < n; i++)
        if (host[i] != (float)(i % 17 + n))
            fail_msg("y[%d] is %g", i, (double)host[i]);
    must(cuMemFree(buffers[0]));
    must(cuMemFree(buffers[1]));
    free(host);
}

static int64_t tag_for(struct user *user, int n)
{
    struct tune_dim dim = {"N", n};
    struct tune_answer answer;
    int64_t tag = -1;
    if (tune_kernel_prepare(user->kernel, user->stream, &dim, 1, &answer, &user->err))
        fail_msg("%s", user->err.text);
    assert_int_equal(tune_answer_param(&answer, "TAG", &tag, NULL), 0);
    return tag;
}

static void a_launch_does_all_that_belongs_to_it(void)
{
    struct user user;
    user_start(&user, start_steps()->socket, "steps");
    expect_right(&user, user.stream, 64);
    expect_right(&user, user.stream, 64); /* the scratch is not zero any more */
    expect_right(&user, user.stream, 1000);
    expect_right(&user, user.stream, 1);
    user_finish(&user);
}

static void each_stream_has_scratch_of_its_own(void)
{
    struct user user;
    CUstream other;
    user_start(&user, start_steps()->socket, "steps");
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    expect_right(&user, user.stream, 64);
    expect_right(&user, other, 96);
    expect_right(&user, NULL, 32);
    size_t count = 0;
    for (struct tune_cuda_scratch *each = user.kernel->scratches; each != NULL; each = each->next)
        for (struct tune_cuda_scratch *more = each->next; more != NULL; more = more->next, count++)
            assert_true(each->base != more->base && each->stream != more->stream);
    assert_int_equal(count, 3);
    must(cuStreamDestroy(other));
    user_finish(&user);
}

struct waiting {
    struct user *user;
    int64_t tag;
};

static bool is_taken_up(void *context)
{
    struct waiting *waiting = context;
    return tag_for(waiting->user, 64) == waiting->tag;
}

static void the_next_launch_takes_a_new_best(void)
{
    struct user user;
    struct harness *harness = start_steps();
    user_start(&user, harness->socket, "steps");
    assert_int_equal(tag_for(&user, 64), 0);
    expect_right(&user, user.stream, 64);
    json_decref(sweep_result(harness, sweep_params("steps")));
    struct waiting waiting = {&user, 1};
    wait_for(is_taken_up, &waiting, LIMIT_MS);
    expect_right(&user, user.stream, 64);
    user_finish(&user);
}

static void how_it_asks_counts_for_shapes_that_are_ready_too(void)
{
    struct user user;
    struct harness *harness = start_steps();
    user_start(&user, harness->socket, "steps");
    assert_int_equal(tune_kernel_ask_by(user.kernel, TUNE_NEAREST, "rank", NULL), 0);
    assert_int_equal(tag_for(&user, 64), 0); /* and so it stays in this session */
    assert_int_equal(tune_kernel_ask_by(user.kernel, TUNE_WAIT, NULL, NULL), 0);
    assert_int_equal(tag_for(&user, 64), 1);
    assert_int_equal(tune_kernel_ask_by(user.kernel, TUNE_NEAREST, "rank", NULL), 0);
    assert_int_equal(tag_for(&user, 64), 0);
    user_finish(&user);
}

static void what_is_loaded_serves_on_without_a_daemon(void)
{
    struct user user;
    struct harness *harness = start_steps();
    user_start(&user, harness->socket, "steps");
    expect_right(&user, user.stream, 64);
    harness_stop(harness);
    expect_right(&user, user.stream, 64);
    tune_set_limit(user.tune, 1); /* nobody comes back */
    struct tune_dim dim = {"N", 65};
    CUdeviceptr buffers[2] = {0, 0};
    assert_int_equal(
        tune_kernel_launch(user.kernel, user.stream, &dim, 1, buffers, 2, &user.err), -1);
    assert_int_equal(user.err.code, TUNE_ENODAEMON);
    assert_non_null(strstr(user.err.text, "does not compile"));
    user_finish(&user);
}

static const char *refused(struct user *user, const char *dim_name, size_t buffer_count)
{
    struct tune_dim dim = {dim_name, 64};
    CUdeviceptr buffers[3] = {0, 0, 0};
    user->err = (struct tune_error){0};
    assert_int_equal(
        tune_kernel_launch(user->kernel, user->stream, &dim, 1, buffers, buffer_count, &user->err),
        -1);
    return user->err.text;
}

static void a_launch_that_makes_no_sense_says_why(void)
{
    struct user user;
    user_start(&user, start_steps()->socket, "steps");
    assert_string_equal(refused(&user, "N", 3), "steps takes 2 buffers (x, y), not 3");
    assert_non_null(strstr(refused(&user, "M", 2), "M"));
    must(cuCtxSetCurrent(NULL));
    assert_non_null(strstr(refused(&user, "N", 2), "cuCtxSetCurrent"));
    must(cuCtxSetCurrent(user.context));
    tune_kernel_close(user.kernel);
    assert_int_equal(tune_kernel_open(user.tune, "no_such", NULL, &user.kernel, NULL), 0);
    assert_non_null(strstr(refused(&user, "N", 2), "no_such"));
    user_finish(&user);
}

/* y = x + 2 a, where 2 a is made once. */
static void write_doubled(struct harness *harness)
{
    harness_write(harness, "plugins/doubled/doubled.cu",
        "extern \"C\" __global__ void reference(const float *a, const float *x, float *y)\n"
        "{\n    y[threadIdx.x] = x[threadIdx.x] + 2 * a[threadIdx.x];\n}\n"
        "#if !TUNE_REFERENCE\n"
        "extern \"C\" __global__ void prepare(const float *a, float *twice)\n"
        "{\n    twice[threadIdx.x] = 2 * a[threadIdx.x];\n}\n"
        "extern \"C\" __global__ void add(const float *x, const float *twice, float *y)\n"
        "{\n    y[threadIdx.x] = x[threadIdx.x] + twice[threadIdx.x];\n}\n"
        "#endif\n");
    harness_write(harness, "plugins/doubled/doubled.json",
        "{\"tunerd\": 1, \"name\": \"doubled\", \"summary\": \"y = x + 2 a\",\n"
        " \"dims\": [{\"name\": \"N\", \"meaning\": \"elements\"}],\n"
        " \"shapes\": [{\"N\": 64}], \"dtypes\": [\"f32\"],\n"
        " \"params\": [{\"name\": \"TAG\", \"meaning\": \"none\", \"values\": [0]}],\n"
        " \"buffers\": [{\"name\": \"a\", \"dtype\": \"f32\", \"count\": \"N\", \"fill\": "
        "\"small_int\", \"role\": \"in\"},\n"
        "  {\"name\": \"x\", \"dtype\": \"f32\", \"count\": \"N\", \"fill\": \"small_int\", "
        "\"role\": \"in\"},\n"
        "  {\"name\": \"y\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": \"out\"},\n"
        "  {\"name\": \"twice\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": \"scratch\"}],\n"
        " \"launches\": [{\"entry\": \"prepare\", \"once\": true, \"block\": [\"N\"], \"args\": "
        "[{\"buffer\": \"a\"}, {\"buffer\": \"twice\"}]},\n"
        "  {\"entry\": \"add\", \"block\": [\"N\"], \"args\": [{\"buffer\": \"x\"}, {\"buffer\": "
        "\"twice\"}, {\"buffer\": \"y\"}]}],\n"
        " \"reference\": {\"defines\": {\"TUNE_REFERENCE\": 1},\n"
        "  \"buffers\": [{\"name\": \"r\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": "
        "\"out\"}],\n"
        "  \"launches\": [{\"entry\": \"reference\", \"block\": [\"N\"], \"args\": [{\"buffer\": "
        "\"a\"}, {\"buffer\": \"x\"}, {\"buffer\": \"r\"}]}]},\n"
        " \"checks\": [{\"buffer\": \"y\", \"reference\": \"r\", \"derivation\": \"small "
        "integers\", \"tolerance\": {\"factor\": 0, \"unit\": \"exact\"}}],\n"
        " \"default\": {\"TAG\": 0}, \"flops\": \"N\", \"bytes\": \"12 * N\"}\n");
}

static void set_all(CUdeviceptr buffer, float value)
{
    float host[64];
    for (int i = 0; i < 64; i++)
        host[i] = value;
    must(cuMemcpyHtoD(buffer, host, sizeof host));
}

/* Of y after a launch for N = n, which must be alike. */
static float launch_doubled(struct user *user, const CUdeviceptr *buffers, int n)
{
    struct tune_dim dim = {"N", n};
    float y[64];
    if (tune_kernel_launch(user->kernel, user->stream, &dim, 1, buffers, 3, &user->err))
        fail_msg("%s", user->err.text);
    must(cuStreamSynchronize(user->stream));
    must(cuMemcpyDtoH(y, buffers[2], (size_t)n * sizeof *y));
    for (int i = 1; i < n; i++)
        assert_true(y[i] == y[0]);
    return y[0];
}

static void what_is_done_once_is_kept_until_the_input_is_another(void)
{
    struct user user;
    struct harness *harness = harness_new();
    CUdeviceptr buffers[4]; /* a, x, y, another a */
    write_doubled(harness);
    harness_start(harness);
    user_start(&user, harness->socket, "doubled");
    for (int i = 0; i < 4; i++)
        must(cuMemAlloc(&buffers[i], 64 * sizeof(float)));
    set_all(buffers[0], 10);
    set_all(buffers[1], 1);
    set_all(buffers[3], 100);
    assert_true(launch_doubled(&user, buffers, 64) == 21);
    set_all(buffers[1], 2); /* x is read each time */
    assert_true(launch_doubled(&user, buffers, 64) == 22);
    set_all(buffers[0], 20); /* what was made of a is kept */
    assert_true(launch_doubled(&user, buffers, 64) == 22);
    tune_kernel_refresh(user.kernel);
    assert_true(launch_doubled(&user, buffers, 64) == 42);
    const CUdeviceptr others[3] = {buffers[3], buffers[1], buffers[2]};
    assert_true(launch_doubled(&user, others, 64) == 202);
    set_all(buffers[0], 30); /* nothing of it is left: another shape and array had the scratch */
    assert_true(launch_doubled(&user, buffers, 32) == 62);
    assert_true(launch_doubled(&user, others, 64) == 202);
    for (int i = 0; i < 4; i++)
        must(cuMemFree(buffers[i]));
    user_finish(&user);
}

static void code_that_does_not_fit_is_not_loaded(void)
{
    struct tune_kernel kernel = {.name = "k"};
    struct tune_cuda_place place = {.name = "GPU", .arch = "sm_86", .sm = 86, .driver = 12040};
    static const struct {
        struct tune_cubin cubin;
        bool fits;
    } cases[] = {
        {{.sm = 86}, true},
        {{.sm = 80}, true}, /* the same family, older */
        {{.sm = 89}, false},
        {{.sm = 90}, false},
        {{.sm = 75}, false}, /* another family */
        {{.sm = 75, .is_ptx = true}, true},
        {{.sm = 90, .is_ptx = true}, false},
        {{.sm = 86, .min_driver = 12080}, true}, /* of the driver's own major version */
        {{.sm = 86, .min_driver = 13000}, false},
        {{.sm = 86, .min_driver = 12040, .is_ptx = true}, true},
        {{.sm = 86, .min_driver = 12080, .is_ptx = true}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune_error err = {0};
        bool fits = tune_cuda_check(&kernel, &place, &cases[i].cubin, &err) == 0;
        if (fits != cases[i].fits)
            fail_msg("case %zu: %s", i, err.text);
    }
}

static void half_precision_scalars_round_as_the_compiler_does(void)
{
    static const struct {
        float number;
        unsigned f16, bf16;
    } cases[] = {{0.0f, 0x0000, 0x0000}, {1.0f, 0x3c00, 0x3f80}, {-2.0f, 0xc000, 0xc000},
        {0.1f, 0x2e66, 0x3dcd}, {65504.0f, 0x7bff, 0x4780}, {65520.0f, 0x7c00, 0x4780},
        {0x1p-24f, 0x0001, 0x3380}, {0x1p-25f, 0x0000, 0x3300}, {0x1.8p-24f, 0x0002, 0x33c0},
        {0x1.004p0f, 0x3c01, 0x3f80}, {0x1.002p0f, 0x3c00, 0x3f80}, {0x1.006p0f, 0x3c02, 0x3f80},
        {0x1.ffep-15f, 0x0400, 0x3880}, {0x1p-14f, 0x0400, 0x3880}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tune_cuda_f16(cases[i].number), cases[i].f16);
        assert_int_equal(tune_cuda_bf16(cases[i].number), cases[i].bf16);
    }
}

/* --- the examples
 * --------------------------------------------------------------------------------- */

/* The output of an example, run on the emulator with this daemon. */
static int run_example(const struct harness *harness, const char *words, char *output, size_t room)
{
    char command[800];
    snprintf(command, sizeof command,
        "TUNE_SOCKET=%s LD_LIBRARY_PATH=%s/lib/tunerd/emulator %s/bin/%s 2>&1", harness->socket,
        build_folder(), build_folder(), words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(output, 1, room - 1, pipe);
    output[used] = '\0';
    return pclose(pipe);
}

/* Where split products are the fastest: the sums go through scratch and a second kernel. */
#define SPLITTING_WINS                                                                             \
    "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"         \
    "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"SPLIT_K\": 4}}, \"do\": "           \
    "\"time_ns\", \"value\": 5000}]}"

static void the_examples_multiply_right(void)
{
    char output[4096];
    struct harness *harness = harness_new();
    harness_scenario(harness, SPLITTING_WINS);
    harness_start(harness);
    json_decref(sweep_result(harness,
        json_pack("{s:s, s:[{s:i,s:i,s:i}], s:{s:[i,i],s:[s]}, s:{s:i}, s:s, s:i}", "kernel",
            "gemm", "shapes", "M", 33, "N", 35, "K", 140, "params", "SPLIT_K", 1, 4, "VARIANT",
            "tiled", "budget", "evals", 12, "strategy", "random", "seed", 1)));
    if (run_example(harness, "tune_gemm 33 35 140", output, sizeof output) != 0 ||
        strstr(output, "right") == NULL || strstr(output, "measured for this shape") == NULL ||
        strstr(output, "SPLIT_K=4") == NULL)
        fail_msg("%s", output);
    if (run_example(harness, "tune_gemm_cublas --json 33,35,140 17,16,8", output, sizeof output) !=
            0 ||
        strstr(output, "\"M\":33,\"N\":35,\"K\":140,\"origin\":\"exact\"") == NULL)
        fail_msg("%s", output);
}

static void an_old_driver_is_told_apart_from_a_fault(void)
{
    char output[4096], words[400];
    struct harness *harness = harness_new();
    harness_start(harness);
    harness_write(harness, "old.json", "{\"driver\": 12040}");
    snprintf(words, sizeof words, "tune_gemm 4 4 4");
    char *was = getenv("TUNE_SCENARIO");
    char path[128];
    snprintf(path, sizeof path, "%s/old.json", harness->folder);
    setenv("TUNE_SCENARIO", path, 1);
    int status = run_example(harness, words, output, sizeof output);
    if (was == NULL)
        unsetenv("TUNE_SCENARIO");
    if (status == 0 || strstr(output, "update the driver") == NULL ||
        strstr(output, "CUDA 12.4") == NULL)
        fail_msg("%s", output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_launch_does_all_that_belongs_to_it),
        HARNESS_TEST(each_stream_has_scratch_of_its_own),
        HARNESS_TEST(the_next_launch_takes_a_new_best),
        HARNESS_TEST(how_it_asks_counts_for_shapes_that_are_ready_too),
        HARNESS_TEST(what_is_loaded_serves_on_without_a_daemon),
        HARNESS_TEST(a_launch_that_makes_no_sense_says_why),
        HARNESS_TEST(what_is_done_once_is_kept_until_the_input_is_another),
        HARNESS_TEST(code_that_does_not_fit_is_not_loaded),
        HARNESS_TEST(half_precision_scalars_round_as_the_compiler_does),
        HARNESS_TEST(the_examples_multiply_right),
        HARNESS_TEST(an_old_driver_is_told_apart_from_a_fault),
    };
    return cmocka_run_group_tests_name("tune_cuda", tests, NULL, NULL);
}
