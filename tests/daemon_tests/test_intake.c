/* Which rows from elsewhere come in, judged by the shipped kernels. */
#include "daemon/intake.h"
#include "parts.h"
#include "plugins/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct intake *intake;
static struct tune_error reason;

static int start(void **state)
{
    if (open_parts(state))
        return -1;
    intake = intake_create(parts_registry);
    return 0;
}

static int finish(void **state)
{
    intake_destroy(intake);
    return close_parts(state);
}

#define GOOD "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=1"

/* A sound row of transpose on an H200. */
static struct sample row_of(const char *config)
{
    const struct plugin *plugin = registry_find(parts_registry, "transpose", NULL);
    return (struct sample){
        .key = {.kernel = "transpose",
            .fingerprint = plugin->fingerprint,
            .shape = "M=1024,N=1024",
            .dtype = "f32",
            .arch = "sm_90",
            .mode = "cold"},
        .config = config,
        .gpu_uuid = "GPU-1",
        .gpu_name = "NVIDIA H200",
        .run = "job/search",
        .outcome = OUTCOME_OK,
        .is_final = true,
        .median_ns = 5000,
        .lo_ns = 4900,
        .hi_ns = 5100,
    };
}

static enum intake_verdict judge(const struct sample *sample)
{
    reason = (struct tune_error){0};
    return intake_judge(intake, sample, &reason);
}

static void assert_refused(const struct sample *sample, const char *text)
{
    assert_int_equal(judge(sample), INTAKE_REFUSED);
    if (strstr(reason.text, text) == NULL)
        fail_msg("the reason \"%s\" does not say \"%s\"", reason.text, text);
}

static void assert_config_refused(const char *config, const char *text)
{
    struct sample sample = row_of(config);
    assert_refused(&sample, text);
}

/* --- F11 -------------------------------------------------------------------------------------- */

static void of_five_configurations_the_good_one_is_taken(void **state)
{
    (void)state;
    struct sample good = row_of(GOOD);
    assert_int_equal(judge(&good), INTAKE_TAKEN);
    assert_int_equal(reason.code, TUNE_OK);
    assert_config_refused("", "lacks param VARIANT");
    assert_config_refused("VARIANT=1,TILE=32,ROWS=4,LAYOUT=1", "lacks param VEC");
    assert_config_refused(GOOD ",UNROLL=4", "no param \"UNROLL\"");
    assert_config_refused("VARIANT=1,TILE=48,ROWS=4,VEC=1,LAYOUT=1", "TILE");
}

static void a_configuration_must_be_the_canonical_text(void **state)
{
    (void)state;
    assert_config_refused("TILE=32,VARIANT=1,ROWS=4,VEC=1,LAYOUT=1", "not one of transpose");
    assert_config_refused(GOOD ",TILE=32", "transpose");
    assert_config_refused(GOOD ",", "transpose");
    assert_config_refused("VARIANT=1,TILE=0x20,ROWS=4,VEC=1,LAYOUT=1", "TILE");
    assert_config_refused("VARIANT=tiled,TILE=32,ROWS=4,VEC=1,LAYOUT=1", "transpose");
    assert_config_refused("VARIANT", "VARIANT");
}

/* --- F13, constraints ------------------------------------------------------------------------- */

static void a_block_beyond_the_space_is_refused_with_the_constraints_sentence(void **state)
{
    (void)state;
    assert_config_refused("VARIANT=1,TILE=64,ROWS=2,VEC=1,LAYOUT=1", "32 to 1024 threads");
    struct sample odd = row_of("VARIANT=1,TILE=32,ROWS=4,VEC=4,LAYOUT=1");
    assert_int_equal(judge(&odd), INTAKE_TAKEN);
    odd.key.shape = "M=1023,N=1024"; /* a constraint over the shape */
    assert_refused(&odd, "whole vectors");
}

/* What a device may have is known where it is: such a row is served, or not, when it is asked for.
 */
static void constraints_over_the_device_do_not_refuse(void **state)
{
    (void)state;
    struct sample large = row_of("VARIANT=1,TILE=128,ROWS=32,VEC=4,LAYOUT=1");
    assert_int_equal(judge(&large), INTAKE_TAKEN);
}

/* Each point of each kernel's space, as a sweep would store it, comes in. */
static void no_point_of_a_space_is_refused(void **state)
{
    (void)state;
    struct device_info device;
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    for (size_t k = 0; k < registry_count(parts_registry); k++) {
        const struct plugin *plugin = registry_at(parts_registry, k);
        const struct manifest *manifest = plugin->manifest;
        struct space *space =
            space_create(manifest, &device, manifest->shapes[0], manifest->dtypes[0], NULL, NULL);
        assert_non_null(space);
        char *shape = manifest_shape_text(manifest, manifest->shapes[0]);
        size_t step = space_count(space) / 500 + 1;
        for (size_t i = 0; i < space_count(space); i += step) {
            int64_t values[MANIFEST_MAX_PARAMS];
            space_config(space, i, values);
            char *config = manifest_config_text(manifest, values);
            struct sample sample = row_of(config);
            sample.key.kernel = manifest->name;
            sample.key.fingerprint = plugin->fingerprint;
            sample.key.shape = shape;
            sample.key.dtype = manifest->dtypes[0];
            sample.median_ns = sample.hi_ns = 1e9;
            if (judge(&sample) != INTAKE_TAKEN)
                fail_msg("%s %s: %s", manifest->name, config, reason.text);
            free(config);
        }
        free(shape);
        space_destroy(space);
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

static void shapes_and_dtypes_are_those_of_the_kernel(void **state)
{
    (void)state;
    struct sample sample = row_of(GOOD);
    sample.key.dtype = "f16";
    assert_refused(&sample, "no dtype \"f16\"");
    static const char *const shapes[] = {"M=1024", "M=1024,N=0", "N=1024,M=1024",
        "M=1024,N=1024,K=1", "M=1024,N=+1024", "M=01024,N=1024", "M=1024,N=9223372036854775808"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        sample = row_of(GOOD);
        sample.key.shape = shapes[i];
        assert_refused(&sample, "no shape of transpose");
    }
}

static void rows_of_another_text_or_kernel_are_set_aside(void **state)
{
    (void)state;
    struct sample sample = row_of("VARIANT=9,GONE=1");
    sample.key.fingerprint = "00000000000000000000000000000000";
    assert_int_equal(judge(&sample), INTAKE_ASIDE);
    assert_non_null(strstr(reason.text, "another text of transpose"));
    sample.key.kernel = "elsewhere";
    assert_int_equal(judge(&sample), INTAKE_ASIDE);
    assert_non_null(strstr(reason.text, "no kernel elsewhere"));
}

/* --- times (F100) ----------------------------------------------------------------------------- */

static void times_that_no_gpu_reaches_are_refused(void **state)
{
    (void)state;
    struct sample sample = row_of(GOOD);
    sample.median_ns = sample.lo_ns = sample.hi_ns = 1e-9;
    assert_refused(&sample, "an empty kernel");
    sample.key.kernel = "elsewhere"; /* of any kernel */
    assert_refused(&sample, "an empty kernel");
    sample = row_of(GOOD);
    sample.key.shape = "M=65536,N=65536"; /* 32 GiB in and out in 5 us */
    assert_refused(&sample, "bytes a second");
    sample.median_ns = sample.hi_ns = 2e7;
    assert_int_equal(judge(&sample), INTAKE_TAKEN);
}

static void only_times_that_were_measured_are_judged(void **state)
{
    (void)state;
    struct sample sample = row_of(GOOD);
    sample.outcome = OUTCOME_TIMEOUT;
    sample.median_ns = sample.lo_ns = sample.hi_ns = 0;
    assert_int_equal(judge(&sample), INTAKE_TAKEN);
    sample = row_of(GOOD);
    sample.key.arch = "cpu";
    sample.median_ns = 3;
    assert_int_equal(judge(&sample), INTAKE_TAKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            of_five_configurations_the_good_one_is_taken, start, finish),
        cmocka_unit_test_setup_teardown(a_configuration_must_be_the_canonical_text, start, finish),
        cmocka_unit_test_setup_teardown(
            a_block_beyond_the_space_is_refused_with_the_constraints_sentence, start, finish),
        cmocka_unit_test_setup_teardown(constraints_over_the_device_do_not_refuse, start, finish),
        cmocka_unit_test_setup_teardown(no_point_of_a_space_is_refused, start, finish),
        cmocka_unit_test_setup_teardown(shapes_and_dtypes_are_those_of_the_kernel, start, finish),
        cmocka_unit_test_setup_teardown(
            rows_of_another_text_or_kernel_are_set_aside, start, finish),
        cmocka_unit_test_setup_teardown(times_that_no_gpu_reaches_are_refused, start, finish),
        cmocka_unit_test_setup_teardown(only_times_that_were_measured_are_judged, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
