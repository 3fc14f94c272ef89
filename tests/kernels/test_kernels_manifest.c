/* What a shipped manifest (argv[1]) promises without compiling anything: a default for every shape
 * on every arch, launches within the device's limits, and the size of a known space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels_under_test.h"
#include "sample.h"

#include "plugins/plan.h"
#include "plugins/space.h"

#include <string.h>

struct arch {
    const char *name;
    int64_t sm, sms, smem_optin, smem_sm;
};

static const struct arch archs[] = {
    {"cpu", 0, 4, 99 << 10, 100 << 10},
    {"sm_75", 75, 40, 64 << 10, 64 << 10},
    {"sm_80", 80, 108, 163 << 10, 164 << 10},
    {"sm_86", 86, 16, 99 << 10, 100 << 10},
    {"sm_89", 89, 128, 99 << 10, 100 << 10},
    {"sm_90", 90, 132, 227 << 10, 228 << 10},
    {"sm_100", 100, 148, 227 << 10, 228 << 10},
    {"sm_120", 120, 188, 99 << 10, 100 << 10},
};
#define ARCH_COUNT (sizeof archs / sizeof *archs)

static struct kernel_cases cases;

static void make_device(const struct arch *arch, struct device_info *device)
{
    int64_t *a = device->attributes;
    memset(device, 0, sizeof *device);
    snprintf(device->arch, sizeof device->arch, "%s", arch->name);
    a[DEVICE_sm] = arch->sm;
    a[DEVICE_sms] = arch->sms;
    a[DEVICE_warp] = 32;
    a[DEVICE_max_threads] = a[DEVICE_max_block_x] = a[DEVICE_max_block_y] = 1024;
    a[DEVICE_max_block_z] = 64;
    a[DEVICE_max_grid_x] = INT32_MAX;
    a[DEVICE_max_grid_y] = a[DEVICE_max_grid_z] = 65535;
    a[DEVICE_smem_block] = 48 << 10;
    a[DEVICE_smem_optin] = arch->smem_optin;
    a[DEVICE_smem_sm] = arch->smem_sm;
    a[DEVICE_regs_block] = a[DEVICE_regs_sm] = 65536;
    a[DEVICE_threads_sm] = arch->sm == 75 ? 1024 : 1536;
    a[DEVICE_l2_bytes] = 4 << 20;
    a[DEVICE_memory_bytes] = (int64_t)16 << 30;
}

/* Each dim alike in every order of magnitude; small and odd ones and neighbours of powers of 2
 * are where tails and empty tiles are. */
static int64_t random_dim(uint64_t *seed, unsigned bits)
{
    int64_t power = (int64_t)1 << sample_random(seed) % bits;
    switch (sample_random(seed) % 4) {
    case 0:
        return power;
    case 1:
        return power + 1;
    case 2:
        return power > 1 ? power - 1 : 1;
    default:
        return power + (int64_t)(sample_random(seed) % (uint64_t)power);
    }
}

static int64_t smallest(const struct manifest_dim *dim)
{
    return dim->value_count > 0 ? dim->values[0] : 1;
}

/* Of a choice one of its values. */
static int64_t random_value(const struct manifest_dim *dim, uint64_t *seed, unsigned bits)
{
    if (dim->value_count > 0)
        return dim->values[sample_random(seed) % dim->value_count];
    return random_dim(seed, bits);
}

/* The first default that is valid has launches within the limits. */
static void check_default(const struct manifest *manifest, const struct device_info *device,
    const char *dtype, const int64_t *dims)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    char *shape = manifest_shape_text(manifest, dims);
    struct tune_error err = {0};
    for (size_t i = 0; i < manifest->default_count; i++) {
        memset(&err, 0, sizeof err);
        manifest_bind(manifest, device, dims, dtype, slots);
        if (space_check(manifest, manifest->defaults[i], slots, &err) != 0)
            continue;
        json_t *launches =
            plan_launches(manifest, device, dims, dtype, manifest->defaults[i], &err);
        if (!launches)
            fail_msg("%s %s %s on %s: %s", manifest->name, dtype, shape, device->arch, err.text);
        json_decref(launches);
        free(shape);
        return;
    }
    fail_msg(
        "%s %s %s on %s has no default: %s", manifest->name, dtype, shape, device->arch, err.text);
}

static size_t count_sizes(const struct manifest *manifest)
{
    size_t count = 0;
    for (size_t d = 0; d < manifest->dim_count; d++)
        count += manifest->dims[d].value_count == 0;
    return count;
}

static void check_defaults(
    const struct manifest *manifest, const struct device_info *device, const char *dtype)
{
    size_t sizes = count_sizes(manifest);
    unsigned bits = sizes == 1 ? 40 : sizes == 2 ? 20 : 16;
    uint64_t seed = 1 + (uint64_t)device->attributes[DEVICE_sm];
    int64_t dims[MANIFEST_MAX_DIMS];
    for (int i = 0; i < 3000; i++) {
        for (size_t d = 0; d < manifest->dim_count; d++)
            dims[d] = i == 0 ? smallest(&manifest->dims[d])
                             : random_value(&manifest->dims[d], &seed, i % 2 ? 7 : bits);
        check_default(manifest, device, dtype, dims);
    }
    /* One dim as large as memory, the others 1. */
    for (size_t large = 0; large < manifest->dim_count; large++) {
        if (manifest->dims[large].value_count > 0)
            continue;
        for (size_t d = 0; d < manifest->dim_count; d++)
            dims[d] = d == large ? ((int64_t)1 << 33) + 3 : smallest(&manifest->dims[d]);
        check_default(manifest, device, dtype, dims);
    }
}

static void every_shape_has_a_valid_default_on_every_arch(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        struct device_info device;
        make_device(&archs[a], &device);
        for (size_t t = 0; t < manifest->dtype_count; t++)
            check_defaults(manifest, &device, manifest->dtypes[t]);
    }
}

static void every_shipped_shape_has_a_space_with_its_default(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    struct device_info device;
    struct tune_error err = {0};
    make_device(&archs[0], &device);
    assert_true(manifest->shape_count >= 1 && manifest->shape_cpu_count >= 1);
    struct space *space =
        space_create(manifest, &device, manifest->shapes_cpu[0], manifest->dtypes[0], NULL, &err);
    if (!space)
        fail_msg("%s", err.text);
    assert_true(space_count(space) > 20);
    assert_true(space_default(space) != SIZE_MAX);
    const char *first = NULL;
    if (space_errors(space, &first) != 0)
        fail_msg("%s", first);
    space_destroy(space);
}

/* The space that the figures of compile speed are given for. */
static void gemm_has_the_270_tiles_of_the_classic_sweep(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    if (strcmp(manifest->name, "gemm") != 0)
        skip();
    struct device_info device;
    struct space_filter filter;
    struct tune_error err = {0};
    const int64_t dims[] = {1024, 1024, 1024};
    json_t *params = json_pack("{s:s,s:[iii],s:[iii],s:[iii],s:[ii],s:[ii],s:[iii],"
                               "s:s,s:i,s:i,s:i,s:i,s:i}",
        "VARIANT", "tiled", "BM", 32, 64, 128, "BN", 32, 64, 128, "BK", 8, 16, 32, "TM", 4, 8, "TN",
        4, 8, "PAD", 0, 1, 4, "SWIZZLE", "none", "VEC", 1, "STAGES", 1, "SPLIT_K", 1, "UNROLL", 8,
        "MIN_BLOCKS", 1);
    assert_non_null(params);
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        make_device(&archs[a], &device);
        assert_int_equal(space_filter_from_json(&filter, manifest, params, &err), 0);
        struct space *space = space_create(manifest, &device, dims, "f32", &filter, &err);
        if (!space)
            fail_msg("%s", err.text);
        assert_int_equal(space_count(space), 270);
        space_destroy(space);
    }
    json_decref(params);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_a_valid_default_on_every_arch),
        cmocka_unit_test(every_shipped_shape_has_a_space_with_its_default),
        cmocka_unit_test(gemm_has_the_270_tiles_of_the_classic_sweep),
    };
    kernel_cases_load(&cases, argc == 2 ? argv[1] : "");
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_cases_finish(&cases);
    return failures;
}
