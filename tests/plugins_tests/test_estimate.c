/* plugins/estimate: how the device is filled, which ceiling is met, and that it costs next to
 * nothing. */
#include "plugins/estimate.h"
#include "plugins/space.h"
#include "support.h"

#include <string.h>
#include <time.h>

/* An H200, as its driver describes it. */
static struct device_info h200(void)
{
    struct device_info device = device_of("sm_90");
    device.attributes[DEVICE_sms] = 132;
    device.attributes[DEVICE_clock_khz] = 1980000;
    device.attributes[DEVICE_memory_clock_khz] = 3201000;
    device.attributes[DEVICE_memory_bus_bits] = 6144;
    device.attributes[DEVICE_l2_bytes] = 60 << 20;
    return device;
}

/* A kernel of `head`: params with values, and whatever else the case is about. Every case has
 * "BLOCK" threads in ceildiv(N, SPAN) blocks. */
static struct manifest *kernel_with(const char *more)
{
    char *text = NULL;
    struct tune_error err = {0};
    assert_true(
        asprintf(&text,
            "{\"tunerd\": 1, \"name\": \"k\", \"summary\": \"s\","
            "\"dims\": [{\"name\": \"N\", \"meaning\": \"m\"}], \"shapes\": [{\"N\": 1}],"
            "\"dtypes\": [\"f32\", \"f16\"], \"params\": ["
            "{\"name\": \"BLOCK\", \"meaning\": \"m\", \"values\": [32, 128, 256, 1024]},"
            "{\"name\": \"SPAN\", \"meaning\": \"m\", \"values\": [1, 2, 1024]}],"
            "\"buffers\": [{\"name\": \"y\", \"dtype\": \"T\", \"count\": \"N\", \"role\": "
            "\"out\"}],"
            "\"reference\": {\"defines\": {}, \"buffers\": [{\"name\": \"r\", \"dtype\": \"T\","
            "\"count\": \"N\", \"role\": \"out\"}], \"launches\": [{\"entry\": \"r\", \"args\": "
            "[]}]},"
            "\"checks\": [{\"buffer\": \"y\", \"reference\": \"r\", \"derivation\": \"d\","
            "\"tolerance\": {\"factor\": 0, \"unit\": \"exact\"}}],"
            "\"default\": {\"BLOCK\": 256, \"SPAN\": 1}, %s}",
            more) > 0);
    struct manifest *manifest = manifest_create(text, strlen(text), "k.json", &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    free(text);
    return manifest;
}

#define ONE_LAUNCH                                                                                 \
    "\"launches\": [{\"entry\": \"k\", \"grid\": [\"ceildiv(N, SPAN)\"], \"block\": [\"BLOCK\"],"  \
    "\"args\": []}]"

static struct estimate estimate_on(const struct device_info *device,
    const struct manifest *manifest, int64_t n, int64_t block, int64_t span, int64_t registers)
{
    struct estimator estimator;
    struct estimate estimate;
    struct tune_error err = {0};
    int64_t dims[MANIFEST_MAX_DIMS] = {n}, values[MANIFEST_MAX_PARAMS] = {block, span};
    if (estimator_init(&estimator, manifest, device, dims, "f32", &err) ||
        estimator_run(&estimator, values, registers, &estimate, &err))
        fail_msg("%s", err.text);
    return estimate;
}

static bool is_near(double value, double expected)
{
    return value > expected * 0.999 && value < expected * 1.001;
}

/* 256 threads: 8 blocks on each of 132 SMs are a wave of 1,056. */
static void waves_count_blocks_that_run_together(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = kernel_with(ONE_LAUNCH ", \"flops\": \"N\"");
    struct estimate two = estimate_on(&device, manifest, 2112, 256, 1, 0);
    assert_int_equal(two.occupancy.blocks_per_sm, 8);
    assert_true(two.waves == 2 && two.tail_fill == 1 && two.sm_fill == 1);
    struct estimate more = estimate_on(&device, manifest, 2112 + 132, 256, 1, 0);
    assert_true(is_near(more.waves, 2.125) && is_near(more.tail_fill, 0.125) && more.sm_fill == 1);
    struct estimate odd = estimate_on(&device, manifest, 133, 256, 1, 0);
    assert_true(is_near(odd.sm_fill, 133 / 264.0));
    manifest_destroy(manifest);
}

/* One block beyond what the SMs share evenly costs the time of one more block on each. */
static void an_sm_with_one_block_more_decides(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = kernel_with(ONE_LAUNCH ", \"flops\": \"N * 1000000\"");
    double even = estimate_on(&device, manifest, 132, 1024, 1, 0).ceiling_ns[ESTIMATE_FLOPS];
    double odd = estimate_on(&device, manifest, 133, 1024, 1, 0).ceiling_ns[ESTIMATE_FLOPS];
    double twice = estimate_on(&device, manifest, 264, 1024, 1, 0).ceiling_ns[ESTIMATE_FLOPS];
    assert_true(odd > 1.9 * even && is_near(odd, twice));
    manifest_destroy(manifest);
}

static void few_warps_leave_schedulers_idle(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = kernel_with(ONE_LAUNCH ", \"flops\": \"1000000000\"");
    /* One block per SM, of one warp for four schedulers: it is ready in 0.8 of the cycles, since it
     * has much to compute between its accesses (none). */
    struct estimate one = estimate_on(&device, manifest, 132, 32, 1, 0);
    struct estimate four = estimate_on(&device, manifest, 132, 128, 1, 0);
    struct estimate many = estimate_on(&device, manifest, 132, 1024, 1, 0);
    double peak_ns = 1e9 / device_peak_flops_f32(&device) * 1e9;
    assert_true(is_near(one.ceiling_ns[ESTIMATE_FLOPS], 5 * peak_ns));
    assert_true(is_near(four.ceiling_ns[ESTIMATE_FLOPS], 1.25 * peak_ns));
    assert_true(many.ceiling_ns[ESTIMATE_FLOPS] < 1.01 * peak_ns);
    manifest_destroy(manifest);
    /* With an access for every instruction it waits most of the time. */
    manifest =
        kernel_with(ONE_LAUNCH ", \"flops\": \"1000000000\", \"traffic_shared\": \"8000000000\"");
    struct estimate waiting = estimate_on(&device, manifest, 132, 128, 1, 0);
    assert_true(waiting.ceiling_ns[ESTIMATE_FLOPS] > 4 * peak_ns);
    manifest_destroy(manifest);
}

/* Blocks of 1,024 threads, two on each SM, 700 ns a round trip. */
static void round_trips_are_waited_for_unless_other_blocks_work_meanwhile(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest =
        kernel_with(ONE_LAUNCH ", \"flops\": \"N\", \"round_trips\": \"10\"");
    struct estimate alone = estimate_on(&device, manifest, 132, 1024, 1, 0);
    struct estimate paired = estimate_on(&device, manifest, 264, 1024, 1, 0);
    struct estimate rounds = estimate_on(&device, manifest, 3 * 264, 1024, 1, 0);
    assert_true(is_near(alone.wait_ns, 7000));
    assert_true(is_near(paired.wait_ns, 3500));
    assert_true(is_near(rounds.wait_ns, 3 * 3500));
    assert_true(alone.time_ns >= alone.launch_ns + alone.wait_ns);
    manifest_destroy(manifest);
}

static void the_slowest_ceiling_decides(void **state)
{
    (void)state;
    static const struct {
        const char *work;
        enum estimate_ceiling limited_by;
    } cases[] = {
        {"\"flops\": \"N\", \"bytes\": \"400 * N\"", ESTIMATE_DRAM},
        {"\"flops\": \"N\", \"bytes\": \"4 * N\", \"traffic_global\": \"400 * N\"", ESTIMATE_L2},
        {"\"flops\": \"N\", \"traffic_shared\": \"400 * N\"", ESTIMATE_PIPE},
        {"\"flops\": \"1000 * N\", \"traffic_shared\": \"40 * N\"", ESTIMATE_ISSUE},
        {"\"flops\": \"N\", \"flops_done\": \"BLOCK * N\", \"bytes\": \"N\"", ESTIMATE_FLOPS},
    };
    struct device_info device = h200();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char more[400];
        snprintf(more, sizeof more, "%s, %s", ONE_LAUNCH, cases[i].work);
        struct manifest *manifest = kernel_with(more);
        struct estimate found = estimate_on(&device, manifest, 1 << 28, 1024, 1024, 0);
        /* Arithmetic takes issue slots too: its two ceilings are one on this device. */
        if (cases[i].limited_by == ESTIMATE_FLOPS)
            assert_true(found.ceiling_ns[ESTIMATE_FLOPS] > 10 * found.ceiling_ns[ESTIMATE_DRAM]);
        else
            assert_string_equal(estimate_ceiling_word(found.limited_by),
                estimate_ceiling_word(cases[i].limited_by));
        assert_true(is_near(found.time_ns, found.launch_ns + found.ceiling_ns[found.limited_by]));
        manifest_destroy(manifest);
    }
}

/* 2^30 bytes at 4.9 TB/s. */
static void a_full_device_reaches_the_bandwidth_and_a_near_empty_one_does_not(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = kernel_with(ONE_LAUNCH ", \"bytes\": \"4 * N\"");
    double floor_ns = 4.0 * (1 << 28) / device_peak_bytes_per_s(&device) * 1e9;
    double full = estimate_on(&device, manifest, 1 << 28, 1024, 1, 0).ceiling_ns[ESTIMATE_DRAM];
    double empty = estimate_on(&device, manifest, 1 << 10, 32, 1024, 0).ceiling_ns[ESTIMATE_DRAM];
    assert_true(full >= floor_ns && full < 1.05 * floor_ns);
    assert_true(empty > 100 * 4.0 * (1 << 10) / device_peak_bytes_per_s(&device) * 1e9);
    manifest_destroy(manifest);
}

static void every_launch_and_memset_costs_its_start(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *plain = kernel_with(ONE_LAUNCH ", \"flops\": \"N\"");
    struct manifest *many = kernel_with(
        "\"launches\": [{\"memset\": \"y\", \"byte\": 0},"
        "{\"entry\": \"no\", \"when\": \"SPAN > 1\", \"grid\": [\"1\"], \"args\": []},"
        "{\"entry\": \"k\", \"grid\": [\"N\"], \"block\": [\"BLOCK\"], \"args\": []},"
        "{\"entry\": \"l\", \"grid\": [\"1\"], \"repeat\": 3, \"args\": []}], \"flops\": \"N\"");
    struct manifest *turns = kernel_with(
        "\"launches\": [{\"entry\": \"no\", \"turns\": 0, \"grid\": [\"1\"], \"args\": []},"
        "{\"entry\": \"k\", \"turns\": 2, \"grid\": [\"N - turn\"], \"block\": [\"BLOCK\"],"
        "\"repeat\": 3, \"args\": []}], \"flops\": \"N\"");
    struct estimate one = estimate_on(&device, plain, 500, 256, 1, 0);
    struct estimate five = estimate_on(&device, many, 500, 256, 1, 0);
    assert_true(is_near(five.launch_ns, 5 * one.launch_ns));
    assert_int_equal(five.blocks, 500); /* of k: the first kernel whose `when` holds */
    struct estimate six = estimate_on(&device, turns, 500, 256, 1, 0);
    assert_true(is_near(six.launch_ns, 6 * one.launch_ns));
    assert_int_equal(six.blocks, 500); /* of its first turn */
    manifest_destroy(plain);
    manifest_destroy(many);
    manifest_destroy(turns);
}

static void registers_come_from_the_compile_and_else_from_the_manifest(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest =
        kernel_with(ONE_LAUNCH ", \"flops\": \"N\", \"registers\": \"BLOCK == 1024 ? 200 : 64\"");
    assert_int_equal(estimate_on(&device, manifest, 9, 256, 1, 0).occupancy.blocks_per_sm, 4);
    assert_int_equal(estimate_on(&device, manifest, 9, 256, 1, 128).occupancy.blocks_per_sm, 2);
    /* A guess that would forbid the launch is no reason to. */
    assert_int_equal(estimate_on(&device, manifest, 9, 1024, 1, 0).occupancy.blocks_per_sm, 2);
    manifest_destroy(manifest);
}

static void without_clocks_there_is_still_an_order(void **state)
{
    (void)state;
    struct device_info device = device_of("sm_80");
    struct manifest *manifest = kernel_with(ONE_LAUNCH ", \"flops\": \"N\", \"bytes\": \"N\"");
    int64_t dims[MANIFEST_MAX_DIMS] = {1};
    struct estimator estimator;
    assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", NULL), 0);
    assert_true(estimator.rates_are_assumed);
    assert_true(estimate_on(&device, manifest, 2048, 32, 1024, 0).time_ns >
                estimate_on(&device, manifest, 2048, 1024, 1024, 0).time_ns);
    device = h200();
    assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", NULL), 0);
    assert_false(estimator.rates_are_assumed);
    manifest_destroy(manifest);
}

static void a_manifest_without_work_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = kernel_with(ONE_LAUNCH);
    struct estimator estimator;
    struct tune_error err = {0};
    int64_t dims[MANIFEST_MAX_DIMS] = {1};
    assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    assert_non_null(strstr(err.text, "flops"));
    manifest_destroy(manifest);
}

static void traffic_is_that_of_the_configuration_or_else_the_calls_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *work;
        double bytes;
    } cases[] = {
        {"\"bytes\": \"4 * N\", \"traffic_global\": \"N * BLOCK + SPAN\"", 100 * 128 + 2},
        {"\"bytes\": \"4 * N\"", 400},
        {"\"flops\": \"N\"", -1},
    };
    struct device_info device = h200();
    const int64_t dims[MANIFEST_MAX_DIMS] = {100}, values[MANIFEST_MAX_PARAMS] = {128, 2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char more[512];
        struct estimator estimator;
        double bytes = -1;
        snprintf(more, sizeof more, "%s, %s", ONE_LAUNCH, cases[i].work);
        struct manifest *manifest = kernel_with(more);
        assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", NULL), 0);
        assert_int_equal(estimator_traffic(&estimator, values, &bytes, NULL), i == 2 ? -1 : 0);
        assert_true(bytes == cases[i].bytes);
        manifest_destroy(manifest);
    }
}

static void a_block_that_fits_nowhere_is_over_the_limits(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest =
        kernel_with("\"launches\": [{\"entry\": \"k\", \"grid\": [\"N\"], \"block\": [\"BLOCK\"],"
                    "\"shared_bytes\": \"1000 * BLOCK\", \"args\": []}], \"flops\": \"N\"");
    struct estimator estimator;
    struct estimate estimate;
    struct tune_error err = {0};
    int64_t dims[MANIFEST_MAX_DIMS] = {1}, values[MANIFEST_MAX_PARAMS] = {256, 1};
    assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", NULL), 0);
    assert_int_equal(estimator_run(&estimator, values, 0, &estimate, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_non_null(strstr(err.text, "shared_memory"));
    values[0] = 128;
    assert_int_equal(estimator_run(&estimator, values, 0, &estimate, NULL), 0);
    manifest_destroy(manifest);
}

static void figures_without_sense_do_no_harm(void **state)
{
    (void)state;
    static const char *const works[] = {"\"flops\": \"-N\", \"bytes\": 0",
        "\"flops\": \"N\", \"traffic_shared\": \"pow2(62)\"",
        "\"flops\": \"N\", \"registers\": \"pow2(62)\"", "\"flops\": \"N\", \"registers\": \"-5\""};
    struct device_info device = h200();
    device.attributes[DEVICE_sms] = 0;
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        char more[400];
        snprintf(more, sizeof more, "%s, %s", ONE_LAUNCH, works[i]);
        struct manifest *manifest = kernel_with(more);
        struct estimate found = estimate_on(&device, manifest, INT64_C(1) << 62, 256, 1, 0);
        assert_true(found.time_ns > 0 && found.time_ns < 1e30);
        manifest_destroy(manifest);
    }
    struct manifest *manifest = kernel_with(
        "\"launches\": [{\"entry\": \"k\", \"grid\": [\"pow2(62)\", \"N\"], \"args\": []},"
        "{\"entry\": \"l\", \"shared_bytes\": \"pow2(62)\", \"args\": []}], \"flops\": \"N\"");
    struct estimator estimator;
    struct estimate estimate;
    int64_t dims[MANIFEST_MAX_DIMS] = {4}, values[MANIFEST_MAX_PARAMS] = {256, 1};
    assert_int_equal(estimator_init(&estimator, manifest, &device, dims, "f32", NULL), 0);
    assert_int_equal(estimator_run(&estimator, values, 0, &estimate, NULL), -1);
    manifest_destroy(manifest);
}

/* --- the kernels that come with tunerd ----------------------------------------------------------
 */

static struct manifest *load_plugin(const char *name)
{
    char path[4096];
    struct tune_error err = {0};
    snprintf(path, sizeof path, "%s/plugins/%s/%s.json", getenv("TUNE_SOURCE_DIR"), name, name);
    char *text = read_text(path);
    struct manifest *manifest = manifest_create(text, strlen(text), path, &err);
    free(text);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    return manifest;
}

static struct estimate estimate_text(struct estimator *estimator, const char *config)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    struct estimate estimate;
    struct tune_error err = {0};
    if (manifest_config_from_text(estimator->manifest, config, values, &err) ||
        estimator_run(estimator, values, 0, &estimate, &err))
        fail_msg("%s: %s", config, err.text);
    return estimate;
}

#define GEMM(variant, bm, bn, bk, tm, tn, split)                                                   \
    "VARIANT=" #variant ",BM=" #bm ",BN=" #bn ",BK=" #bk ",TM=" #tm ",TN=" #tn                     \
    ",PAD=0,SWIZZLE=0,VEC=1,STAGES=1,SPLIT_K=" #split ",UNROLL=8,MIN_BLOCKS=1"

/* What the lessons teach about tiles. */
static void gemm_is_ordered_as_its_lesson_orders_it(void **state)
{
    (void)state;
    struct device_info device = h200();
    struct manifest *manifest = load_plugin("gemm");
    struct estimator large, small, thin;
    int64_t cube[] = {4096, 4096, 4096}, deep[] = {64, 64, 16384}, rows[] = {16, 4096, 4096};
    assert_int_equal(estimator_init(&large, manifest, &device, cube, "f32", NULL), 0);
    assert_int_equal(estimator_init(&small, manifest, &device, deep, "f32", NULL), 0);
    assert_int_equal(estimator_init(&thin, manifest, &device, rows, "f32", NULL), 0);
    struct estimate tiled = estimate_text(&large, GEMM(1, 128, 128, 16, 8, 8, 1));
    struct estimate naive = estimate_text(&large, GEMM(0, 64, 64, 8, 4, 4, 1));
    struct estimate fine = estimate_text(&large, GEMM(1, 32, 32, 8, 4, 4, 1));
    assert_true(tiled.time_ns < fine.time_ns && fine.time_ns < naive.time_ns);
    assert_int_equal(naive.limited_by, ESTIMATE_L2);
    /* 137 GFLOP at 67 TFLOP/s: never below the roofline's floor, nor far above it. */
    assert_true(tiled.time_ns > 2.05e6 && tiled.time_ns < 4.1e6);
    assert_true(estimate_text(&small, GEMM(1, 64, 64, 8, 4, 4, 64)).time_ns <
                estimate_text(&small, GEMM(1, 64, 64, 8, 4, 4, 1)).time_ns / 10);
    assert_true(estimate_text(&thin, GEMM(1, 16, 128, 32, 4, 4, 8)).time_ns <
                estimate_text(&thin, GEMM(1, 128, 128, 32, 8, 8, 8)).time_ns);
    manifest_destroy(manifest);
}

static void each_kernels_whole_space_is_estimated_in_no_time(void **state)
{
    (void)state;
    static const char *const names[] = {"gemm", "transpose", "reduce", "softmax"};
    struct device_info device = h200();
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct manifest *manifest = load_plugin(names[k]);
        const int64_t *dims = manifest->shapes[0];
        struct space *space =
            space_create(manifest, &device, dims, manifest->dtypes[0], NULL, NULL);
        struct estimator estimator;
        assert_non_null(space);
        assert_int_equal(
            estimator_init(&estimator, manifest, &device, dims, manifest->dtypes[0], NULL), 0);
        clock_t begun = clock();
        double floor_ns = 1e9 * estimator.bytes / estimator.rate[ESTIMATE_DRAM];
        for (size_t i = 0; i < space_count(space); i++) {
            int64_t values[MANIFEST_MAX_PARAMS];
            struct estimate estimate;
            struct tune_error err = {0};
            space_config(space, i, values);
            if (estimator_run(&estimator, values, 0, &estimate, &err))
                fail_msg("%s: %s", names[k], err.text);
            assert_true(estimate.time_ns >= floor_ns && estimate.time_ns < 1e9);
        }
        print_message("%s: %zu configurations, %.2f us each\n", names[k], space_count(space),
            (double)(clock() - begun) * 1e6 / CLOCKS_PER_SEC / (double)space_count(space));
        space_destroy(space);
        manifest_destroy(manifest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waves_count_blocks_that_run_together),
        cmocka_unit_test(an_sm_with_one_block_more_decides),
        cmocka_unit_test(few_warps_leave_schedulers_idle),
        cmocka_unit_test(round_trips_are_waited_for_unless_other_blocks_work_meanwhile),
        cmocka_unit_test(the_slowest_ceiling_decides),
        cmocka_unit_test(a_full_device_reaches_the_bandwidth_and_a_near_empty_one_does_not),
        cmocka_unit_test(every_launch_and_memset_costs_its_start),
        cmocka_unit_test(registers_come_from_the_compile_and_else_from_the_manifest),
        cmocka_unit_test(without_clocks_there_is_still_an_order),
        cmocka_unit_test(a_manifest_without_work_is_an_error_that_says_so),
        cmocka_unit_test(traffic_is_that_of_the_configuration_or_else_the_calls_bytes),
        cmocka_unit_test(a_block_that_fits_nowhere_is_over_the_limits),
        cmocka_unit_test(figures_without_sense_do_no_harm),
        cmocka_unit_test(gemm_is_ordered_as_its_lesson_orders_it),
        cmocka_unit_test(each_kernels_whole_space_is_estimated_in_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
