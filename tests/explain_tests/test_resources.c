/* explain_resources: the worked values of the lessons, and every architecture of the table. */
#include "explain/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *resources(const char *arch, int64_t threads, int64_t registers, int64_t shared_bytes)
{
    struct device_info device;
    struct tune_error err = {0};
    assert_int_equal(device_generic(arch, &device, &err), 0);
    struct occupancy_use use = {threads, registers, shared_bytes};
    json_t *form = explain_resources(&device, &use, &err);
    if (form == NULL)
        fail_msg("%s", err.text);
    return form;
}

static const char *words_of(const json_t *form)
{
    return json_string_value(json_object_get(form, "words"));
}

static double figure(const json_t *form, const char *key)
{
    return json_number_value(json_object_get(json_object_get(form, "occupancy"), key));
}

static void check(
    const json_t *form, int64_t blocks, int64_t warps, double fraction, const char *by)
{
    assert_int_equal(figure(form, "blocks_per_sm"), blocks);
    assert_int_equal(figure(form, "warps_per_sm"), warps);
    assert_float_equal(figure(form, "fraction"), fraction, 5e-5);
    const json_t *limit = json_object_get(json_object_get(form, "occupancy"), "limited_by");
    assert_string_equal(json_string_value(limit), by);
}

static void worked_values_come_out(void **state)
{
    (void)state;
    json_t *form = resources("sm_80", 256, 64, 49152);
    check(form, 3, 24, 0.375, "shared_memory");
    assert_int_equal(figure(form, "warps_max"), 64);
    json_decref(form);
    form = resources("sm_89", 1024, 0, 0);
    check(form, 1, 32, 0.6667, "threads");
    json_decref(form);
    form = resources("sm_89", 256, 0, 0);
    check(form, 6, 48, 1.0, "threads");
    json_decref(form);
}

static void what_a_block_does_not_take_limits_nothing(void **state)
{
    (void)state;
    json_t *form = resources("sm_75", 128, 0, 0);
    const json_t *by = json_object_get(json_object_get(form, "occupancy"), "blocks_by");
    assert_true(json_is_null(json_object_get(by, "registers")));
    assert_true(json_is_null(json_object_get(by, "shared_memory")));
    assert_int_equal(json_integer_value(json_object_get(by, "threads")), 8);
    assert_true(json_is_null(json_object_get(form, "registers")));
    assert_true(json_is_null(json_object_get(form, "device")));
    assert_non_null(strstr(words_of(form), "Registers were not given"));
    json_decref(form);
}

static void the_words_tell_the_limit_and_how_much_less_lets_one_more_in(void **state)
{
    (void)state;
    json_t *form = resources("sm_80", 256, 64, 49152);
    assert_non_null(strstr(words_of(form), "3 such blocks"));
    assert_non_null(strstr(words_of(form), "37.5 %"));
    assert_non_null(strstr(words_of(form), "the limit is shared memory"));
    /* A quarter of 164 KiB, in units of 128 bytes, less the KiB that the system keeps. */
    assert_non_null(strstr(words_of(form), "at most 40960 bytes per block another one fits"));
    json_decref(form);
    form = resources("sm_80", 256, 64, 40960);
    check(form, 4, 32, 0.5, "registers");
    assert_non_null(strstr(words_of(form), "alone lets no other block in"));
    json_decref(form);
    form = resources("sm_80", 256, 64, 0);
    check(form, 4, 32, 0.5, "registers");
    assert_non_null(strstr(words_of(form), "at most 48 registers per thread another block fits"));
    json_decref(form);
    form = resources("sm_86", 32, 16, 0);
    check(form, 16, 16, 1.0 / 3, "blocks");
    assert_non_null(strstr(words_of(form), "Larger blocks"));
    json_decref(form);
    form = resources("sm_89", 1024, 0, 0);
    assert_non_null(strstr(words_of(form), "1 such block, "));
    assert_non_null(strstr(words_of(form), "another size"));
    json_decref(form);
    form = resources("sm_89", 256, 0, 0);
    assert_null(strstr(words_of(form), "another size"));
    json_decref(form);
}

static void a_block_that_fits_nowhere_is_said_to_and_is_no_failure(void **state)
{
    (void)state;
    json_t *form = resources("sm_75", 256, 32, 70000);
    check(form, 0, 0, 0, "shared_memory");
    assert_non_null(strstr(words_of(form), "does not fit on a multiprocessor of sm_75"));
    assert_non_null(strstr(words_of(form), "at most 65536 bytes per block it fits"));
    json_decref(form);
}

static void what_is_no_block_at_all_is_refused(void **state)
{
    (void)state;
    struct device_info device;
    struct tune_error err = {0};
    assert_int_equal(device_generic("sm_90", &device, &err), 0);
    struct occupancy_use use = {2000, 0, 0};
    assert_null(explain_resources(&device, &use, &err));
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, "1 to 1024"));
}

static void every_architecture_gives_sane_figures(void **state)
{
    (void)state;
    static const int archs[] = {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        char arch[16];
        snprintf(arch, sizeof arch, "sm_%d", archs[i]);
        for (int64_t threads = 32; threads <= 1024; threads *= 2) {
            json_t *form = resources(arch, threads, 32, 8192);
            double blocks = figure(form, "blocks_per_sm");
            assert_true(blocks >= 1 && blocks <= 32);
            assert_int_equal(figure(form, "warps_per_sm"), blocks * (double)threads / 32);
            assert_true(figure(form, "fraction") > 0 && figure(form, "fraction") <= 1);
            double most = figure(form, "warps_max");
            assert_true(most == 32 || most == 48 || most == 64);
            assert_string_equal(json_string_value(json_object_get(form, "arch")), arch);
            assert_true(strlen(words_of(form)) > 40);
            json_decref(form);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_values_come_out),
        cmocka_unit_test(what_a_block_does_not_take_limits_nothing),
        cmocka_unit_test(the_words_tell_the_limit_and_how_much_less_lets_one_more_in),
        cmocka_unit_test(a_block_that_fits_nowhere_is_said_to_and_is_no_failure),
        cmocka_unit_test(what_is_no_block_at_all_is_refused),
        cmocka_unit_test(every_architecture_gives_sane_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
