/* plugins/device: JSON both ways, generic limits, peak rates. */
#include "plugins/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_device_survives_the_way_through_json(void **state)
{
    (void)state;
    struct device_info device, back;
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    device.ordinal = 3;
    device.driver = 13000;
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++)
        device.attributes[i] = (int64_t)(1000 + i);
    json_t *json = device_to_json(&device);
    assert_int_equal(device_from_json(json, &back, NULL), 0);
    json_decref(json);
    assert_memory_equal(&device, &back, sizeof device);
}

static void each_field_of_a_device_is_required_and_typed(void **state)
{
    (void)state;
    struct device_info device, back;
    assert_int_equal(device_generic("sm_80", &device, NULL), 0);
    json_t *whole = device_to_json(&device);
    const char *key;
    json_t *value;
    json_object_foreach (whole, key, value) {
        struct tune_error missing = {0}, wrong = {0};
        json_t *without = json_copy(whole), *changed = json_copy(whole);
        json_object_del(without, key);
        json_object_set_new(changed, key, json_true());
        assert_int_equal(device_from_json(without, &back, &missing), -1);
        assert_non_null(strstr(missing.text, key));
        assert_int_equal(device_from_json(changed, &back, &wrong), -1);
        assert_non_null(strstr(wrong.text, key));
        json_decref(without);
        json_decref(changed);
    }
    json_object_set_new(whole, "arch", json_string("sm_90_with_a_long_tail"));
    assert_int_equal(device_from_json(whole, &back, NULL), -1);
    json_decref(whole);
}

static void generic_limits_are_those_of_the_architecture(void **state)
{
    (void)state;
    struct device_info device;
    struct tune_error err = {0};
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    assert_int_equal(device.attributes[DEVICE_smem_optin], 232448);
    assert_int_equal(device.attributes[DEVICE_max_threads], 1024);
    assert_string_equal(device.arch, "sm_90");
    assert_int_equal(device_generic("sm_75", &device, NULL), 0);
    assert_int_equal(device.attributes[DEVICE_smem_optin], 65536);
    assert_int_equal(device_generic("sm_89", &device, NULL), 0);
    assert_int_equal(device.attributes[DEVICE_smem_optin], 101376);
    assert_int_equal(device_generic("sm_42", &device, &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
}

/* An H200: 132 SMs at 1.98 GHz, 6144 bits of memory at 3.201 GHz: 67 TFLOP/s and 4.9 TB/s. */
static void peak_rates_are_those_of_the_data_sheet(void **state)
{
    (void)state;
    struct device_info device;
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    assert_true(device_peak_bytes_per_s(&device) == 0);
    device.attributes[DEVICE_sms] = 132;
    device.attributes[DEVICE_clock_khz] = 1980000;
    device.attributes[DEVICE_memory_clock_khz] = 3201000;
    device.attributes[DEVICE_memory_bus_bits] = 6144;
    assert_in_range((uint64_t)(device_peak_flops_f32(&device) / 1e10), 6680, 6700);
    assert_in_range((uint64_t)(device_peak_bytes_per_s(&device) / 1e10), 490, 493);
    device.attributes[DEVICE_sm] = 0;
    assert_true(device_peak_flops_f32(&device) == 0);
    assert_true(device_peak_bytes_per_s(&device) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_survives_the_way_through_json),
        cmocka_unit_test(each_field_of_a_device_is_required_and_typed),
        cmocka_unit_test(generic_limits_are_those_of_the_architecture),
        cmocka_unit_test(peak_rates_are_those_of_the_data_sheet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
