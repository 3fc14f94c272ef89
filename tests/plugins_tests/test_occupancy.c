/* plugins/occupancy: worked values, and the vendor's calculator where its header is there. */
#include "plugins/occupancy.h"
#include "support.h"

#include <string.h>

#ifdef TUNE_HAS_CUDA_OCCUPANCY
#include <cuda_occupancy.h>
#endif

static const char *const archs[] = {"sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89",
    "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"};
#define ARCH_COUNT (sizeof archs / sizeof archs[0])

static struct occupancy occupancy_of(
    const char *arch, int64_t threads, int64_t registers, int64_t shared_bytes)
{
    struct device_info device = device_of(arch);
    struct occupancy_use use = {threads, registers, shared_bytes};
    struct occupancy result;
    struct tune_error err = {0};
    if (occupancy(&device, &use, &result, &err))
        fail_msg("%s: %s", arch, err.text);
    return result;
}

static void shared_memory_limits_with_what_the_system_keeps_of_it(void **state)
{
    (void)state;
    struct occupancy found = occupancy_of("sm_80", 256, 64, 48 << 10);
    assert_int_equal(found.blocks_per_sm, 3);
    assert_int_equal(found.warps_per_sm, 24);
    assert_int_equal(found.warps_max, 64);
    assert_true(found.fraction == 0.375);
    assert_int_equal(found.limited_by, OCCUPANCY_SHARED);
    assert_string_equal(occupancy_resource_word(found.limited_by), "shared_memory");
    /* 164 KiB would hold two blocks of 82 KiB, were it not for 1 KiB each. */
    assert_int_equal(occupancy_of("sm_80", 256, 0, 82 << 10).blocks_per_sm, 1);
    assert_int_equal(occupancy_of("sm_80", 256, 0, 81 << 10).blocks_per_sm, 2);
    assert_int_equal(occupancy_of("sm_75", 256, 0, 32 << 10).blocks_per_sm, 2);
}

static void blocks_of_1024_threads_leave_a_third_of_1536_empty(void **state)
{
    (void)state;
    struct occupancy large = occupancy_of("sm_89", 1024, 0, 0);
    struct occupancy small = occupancy_of("sm_89", 256, 0, 0);
    assert_int_equal(large.blocks_per_sm, 1);
    assert_true(large.fraction > 0.666 && large.fraction < 0.667);
    assert_int_equal(large.limited_by, OCCUPANCY_THREADS);
    assert_int_equal(small.blocks_per_sm, 6);
    assert_true(small.fraction == 1.0);
}

static void registers_are_given_to_warps_in_units(void **state)
{
    (void)state;
    /* 33 registers: 1,056 a warp, in units of 256 1,280: 12 warps in each of 4 partitions. */
    struct occupancy found = occupancy_of("sm_90", 128, 33, 0);
    assert_int_equal(found.blocks_per_sm, 12);
    assert_int_equal(found.limited_by, OCCUPANCY_REGISTERS);
    assert_int_equal(occupancy_of("sm_90", 128, 32, 0).blocks_per_sm, 16);
    assert_int_equal(occupancy_of("sm_90", 1024, 65, 0).blocks_per_sm, 0);
    assert_int_equal(occupancy_of("sm_90", 1024, 64, 0).blocks_per_sm, 1);
    assert_int_equal(occupancy_of("sm_90", 1024, 0, 0).blocks_per_sm, 2);
}

static void small_blocks_are_limited_by_their_number(void **state)
{
    (void)state;
    static const int limits[ARCH_COUNT] = {32, 32, 16, 32, 16, 16, 24, 32, 32, 32, 24, 24, 24};
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        struct occupancy found = occupancy_of(archs[i], 32, 16, 0);
        assert_int_equal(found.blocks_per_sm, limits[i]);
        assert_int_equal(found.limited_by, OCCUPANCY_BLOCKS);
    }
}

static void what_is_no_block_is_refused_with_the_figure(void **state)
{
    (void)state;
    static const struct {
        struct occupancy_use use;
        const char *says;
    } cases[] = {
        {{0, 0, 0}, "0 threads"},
        {{1025, 0, 0}, "1025 threads"},
        {{32, 256, 0}, "256 registers"},
        {{32, -1, 0}, "-1 registers"},
        {{32, 0, -1}, "-1 bytes"},
    };
    struct device_info device = device_of("sm_90");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct occupancy result;
        struct tune_error err = {0};
        assert_int_equal(occupancy(&device, &cases[i].use, &result, &err), -1);
        assert_int_equal(err.code, TUNE_EINVAL);
        assert_non_null(strstr(err.text, cases[i].says));
    }
}

static void figures_without_sense_do_no_harm(void **state)
{
    (void)state;
    struct device_info device = device_of("sm_90");
    struct occupancy result;
    struct occupancy_use use = {32, 0, INT64_MAX};
    assert_int_equal(occupancy(&device, &use, &result, NULL), 0);
    assert_int_equal(result.blocks_per_sm, 0);
    assert_int_equal(result.limited_by, OCCUPANCY_SHARED);
    device.attributes[DEVICE_warp] = 0;
    assert_int_equal(occupancy(&device, &use, &result, NULL), -1);
}

#ifdef TUNE_HAS_CUDA_OCCUPANCY
static int vendors_blocks(const struct device_info *device, const struct occupancy_use *use)
{
    const int64_t *attributes = device->attributes;
    int sm = (int)attributes[DEVICE_sm];
    cudaOccDeviceProp properties = {
        .computeMajor = sm / 10,
        .computeMinor = sm % 10,
        .maxThreadsPerBlock = (int)attributes[DEVICE_max_threads],
        .maxThreadsPerMultiprocessor = (int)attributes[DEVICE_threads_sm],
        .regsPerBlock = (int)attributes[DEVICE_regs_block],
        .regsPerMultiprocessor = (int)attributes[DEVICE_regs_sm],
        .warpSize = (int)attributes[DEVICE_warp],
        .sharedMemPerBlock = (size_t)attributes[DEVICE_smem_block],
        .sharedMemPerMultiprocessor = (size_t)attributes[DEVICE_smem_sm],
        .numSms = 1,
        .sharedMemPerBlockOptin = (size_t)attributes[DEVICE_smem_optin],
        .reservedSharedMemPerBlock = sm < 80 ? 0 : 1024,
    };
    cudaOccFuncAttributes attributes_of_kernel = {
        .maxThreadsPerBlock = 1024,
        .numRegs = (int)use->registers,
        .maxDynamicSharedSizeBytes = (size_t)attributes[DEVICE_smem_optin],
        .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
    };
    cudaOccDeviceState preferences = {.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED};
    cudaOccResult result;
    int code = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes_of_kernel,
        &preferences, (int)use->threads, (size_t)use->shared_bytes);
    return code == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -code;
}
#endif

static void the_vendors_calculator_says_the_same(void **state)
{
    (void)state;
#ifndef TUNE_HAS_CUDA_OCCUPANCY
    skip();
#else
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        struct device_info device = device_of(archs[i]);
        int64_t shared_max = device.attributes[DEVICE_smem_optin];
        for (int64_t threads = 1; threads <= 1024; threads += 31)
            for (int64_t registers = 1; registers <= 255; registers += 7)
                for (int64_t shared = 0; shared <= shared_max; shared += 3001) {
                    struct occupancy_use use = {threads, registers, shared};
                    int ours =
                        (int)occupancy_of(archs[i], threads, registers, shared).blocks_per_sm;
                    int theirs = vendors_blocks(&device, &use);
                    if (ours != theirs)
                        fail_msg("%s, %d threads, %d registers, %d bytes: %d blocks, they say %d",
                            archs[i], (int)threads, (int)registers, (int)shared, ours, theirs);
                }
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_limits_with_what_the_system_keeps_of_it),
        cmocka_unit_test(blocks_of_1024_threads_leave_a_third_of_1536_empty),
        cmocka_unit_test(registers_are_given_to_warps_in_units),
        cmocka_unit_test(small_blocks_are_limited_by_their_number),
        cmocka_unit_test(what_is_no_block_is_refused_with_the_figure),
        cmocka_unit_test(figures_without_sense_do_no_harm),
        cmocka_unit_test(the_vendors_calculator_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
