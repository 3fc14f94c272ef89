/* explain_compare: what differs, what of it matters, and whether the clock agrees with the model.
 */
#include "../plugins_tests/support.h"
#include "explain/explain.h"
#include "patched.h"

#include <stdlib.h>
#include <string.h>

/* One side. */
static const char base[] =
    "{'kernel':'gemm','dtype':'f32','arch':'sm_90','device':'NVIDIA H200','mode':'cold',"
    "'config':{'BM':64,'SWIZZLE':'xor'},"
    "'occupancy':{'blocks_per_sm':4,'warps_per_sm':32,'warps_max':64,'fraction':0.5,"
    "'limited_by':'registers'},'blocks':4224,'waves':8.0,'tail_fill':1.0,"
    "'accesses':[{'space':'shared','kind':'load','bytes':4,'conflict_degree':1.0,"
    "'wavefronts_per_request':1.0,'requests':1000},"
    "{'space':'global','kind':'load','bytes':4,'sectors_per_request':4.0,'ideal_sectors':4.0,"
    "'requests':100}],'branches':[{'line':7,'active_fraction':1.0,'warps':100}],"
    "'traced':{'blocks':4,'of':4096},"
    "'roofline':{'ceiling':'compute','share':0.5,'bytes':100,'requested_bytes':1000000},"
    "'registers':64,'spill_bytes':0,'instructions':{'total':100,'by_class':{'fp32':70}},"
    "'estimate':{'time_ns':5000000,'limited_by':'flops','ceilings_ns':{'flops':2500000,"
    "'issue':2600000,'memory_pipe':4000000,'l2':1500000,'dram':100000},'wait_ns':0},"
    "'median_ns':5000000,'interval_ns':[4990000,5010000],'measured_on':'NVIDIA H200'}";

static json_t *compare(const char *changes_of_a, const char *changes_of_b)
{
    json_t *a = patched(base, changes_of_a), *b = patched(base, changes_of_b);
    json_t *result = explain_compare(a, b);
    assert_non_null(result);
    json_decref(a);
    json_decref(b);
    return result;
}

static const char *text(const json_t *object, const char *key)
{
    const char *found = json_string_value(json_object_get(object, key));
    return found ? found : "";
}

static const json_t *difference(const json_t *result, const char *what)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(result, "differences"), i, item)
        if (strcmp(text(item, "what"), what) == 0)
            return item;
    return NULL;
}

static double matters(const json_t *result, const char *what)
{
    return json_number_value(json_object_get(difference(result, what), "matters"));
}

static void assert_says(const json_t *result, const char *words)
{
    if (strstr(text(result, "words"), words) == NULL)
        fail_msg("\"%s\" is missing in: %s", words, text(result, "words"));
}

static const char conflicted[] =
    "{'config':{'SWIZZLE':'none'},'accesses':[{'space':'shared','kind':'load','bytes':4,"
    "'conflict_degree':4.0,'wavefronts_per_request':4.0,'requests':1000}],"
    "'estimate':{'time_ns':7000000},'median_ns':8000000,'interval_ns':[7900000,8100000],"
    "'registers':72}";

static void what_matters_most_comes_first_and_favours_the_better_side(void **state)
{
    (void)state;
    json_t *result = compare("{}", conflicted);
    const json_t *first = json_array_get(json_object_get(result, "differences"), 0);
    assert_string_equal(text(first, "what"), "conflicts");
    assert_string_equal(text(first, "favours"), "a");
    /* Three quarters of the passes, where shared memory takes 0.8 of the time at most. */
    assert_float_equal(matters(result, "conflicts"), 0.75 * 0.8, 1e-9);
    assert_float_equal(matters(result, "registers"), 0, 0);
    assert_true(json_is_null(json_object_get(difference(result, "registers"), "favours")));
    assert_string_equal(text(result, "faster"), "a");
    assert_string_equal(text(result, "by"), "measured");
    assert_float_equal(json_number_value(json_object_get(result, "ratio")), 1.6, 1e-9);
    assert_says(result, "Measured, A is 1.60 x as fast as B. The estimate agrees.");
    assert_says(result, "They differ in SWIZZLE.");
    assert_says(result, "What matters most: passes over the banks per pass without conflicts: 1 in"
                        " A, 4 in B, for A");
    assert_null(strstr(text(result, "words"), "all the same"));
    const json_t *config = json_object_get(result, "config");
    assert_int_equal(json_array_size(config), 1);
    assert_string_equal(text(json_array_get(config, 0), "a"), "xor");
    assert_string_equal(text(json_array_get(config, 0), "b"), "none");
    json_decref(result);
}

static void swapped_sides_give_the_mirrored_answer(void **state)
{
    (void)state;
    json_t *one = compare("{}", conflicted), *other = compare(conflicted, "{}");
    assert_string_equal(text(one, "faster"), "a");
    assert_string_equal(text(other, "faster"), "b");
    assert_true(json_equal(json_object_get(one, "ratio"), json_object_get(other, "ratio")));
    const json_t *of_one = json_object_get(one, "differences");
    const json_t *of_other = json_object_get(other, "differences");
    assert_int_equal(json_array_size(of_one), json_array_size(of_other));
    size_t i;
    json_t *item;
    json_array_foreach (of_one, i, item) {
        const json_t *mirror = json_array_get(of_other, i);
        assert_string_equal(text(item, "what"), text(mirror, "what"));
        assert_true(json_equal(json_object_get(item, "a"), json_object_get(mirror, "b")));
        assert_true(json_equal(json_object_get(item, "b"), json_object_get(mirror, "a")));
        assert_true(
            json_equal(json_object_get(item, "matters"), json_object_get(mirror, "matters")));
        const char *favours = text(item, "favours");
        if (favours[0] != '\0')
            assert_string_equal(text(mirror, "favours"), favours[0] == 'a' ? "b" : "a");
    }
    assert_true(json_equal(json_object_get(one, "a"), json_object_get(other, "b")));
    json_decref(one);
    json_decref(other);
}

static void equal_configurations_have_no_differences(void **state)
{
    (void)state;
    json_t *result = compare("{}", "{}");
    assert_int_equal(json_array_size(json_object_get(result, "config")), 0);
    assert_int_equal(json_array_size(json_object_get(result, "differences")), 0);
    assert_true(json_is_null(json_object_get(result, "faster")));
    assert_says(result, "cannot be told apart");
    assert_says(result, "the same configuration");
    json_decref(result);
}

static void overlapping_intervals_are_a_tie(void **state)
{
    (void)state;
    json_t *result =
        compare("{}", "{'config':{'BM':128},'median_ns':5005000,'interval_ns':[4995000,5020000]}");
    assert_true(json_is_null(json_object_get(result, "faster")));
    assert_says(result, "cannot be told apart");
    assert_string_equal(text(result, "by"), "measured");
    json_decref(result);
}

static void a_side_without_trace_is_compared_in_the_rest(void **state)
{
    (void)state;
    json_t *result = compare("{}", "{'config':{'BM':128},'traced':null,'accesses':[],'branches':[],"
                                   "'spill_bytes':64,'instructions':{'by_class':{'local':10,"
                                   "'global_load':10,'shared_load':20}}}");
    assert_null(difference(result, "conflicts"));
    assert_null(difference(result, "sectors"));
    assert_null(difference(result, "idle_lanes"));
    assert_float_equal(matters(result, "spill_bytes"), 0.25, 1e-9);
    assert_says(result, "The accesses of B were not traced");
    json_decref(result);
}

static void without_times_the_estimate_decides_and_is_called_one(void **state)
{
    (void)state;
    json_t *result = compare("{'median_ns':null,'interval_ns':null,'measured_on':null}",
        "{'estimate':{'time_ns':4000000}}");
    assert_string_equal(text(result, "faster"), "b");
    assert_string_equal(text(result, "by"), "estimate");
    assert_says(
        result, "not both measured. By the estimate, an order and no forecast, B is 1.25 x");
    json_decref(result);
    result = compare("{'median_ns':null,'estimate':null}", "{'median_ns':null,'estimate':null}");
    assert_true(json_is_null(json_object_get(result, "faster")));
    assert_true(json_is_null(json_object_get(result, "ratio")));
    assert_true(json_is_null(json_object_get(result, "by")));
    json_decref(result);
}

static void a_clock_that_contradicts_the_model_is_believed_and_it_is_said(void **state)
{
    (void)state;
    json_t *result =
        compare("{}", "{'estimate':{'time_ns':9000000,'wait_ns':4000000},'median_ns':4000000,"
                      "'interval_ns':[3990000,4010000]}");
    assert_string_equal(text(result, "faster"), "b");
    assert_says(result, "Measured, B is 1.25 x as fast as A.");
    assert_says(result, "says the opposite (A by 1.80 x)");
    assert_says(result, "the clock is right");
    assert_says(result, "speaks for A all the same");
    json_decref(result);
}

static void times_of_different_devices_are_not_compared(void **state)
{
    (void)state;
    json_t *result = compare("{}", "{'median_ns':1000000,'interval_ns':[990000,1010000],"
                                   "'measured_on':'NVIDIA A100'}");
    assert_true(json_is_null(json_object_get(result, "faster")));
    assert_says(result, "measured on different devices");
    json_decref(result);
}

static void occupancy_beyond_what_hides_latencies_matters_not(void **state)
{
    (void)state;
    json_t *result = compare("{}", "{'occupancy':{'fraction':1.0}}");
    assert_float_equal(matters(result, "occupancy"), 0, 1e-12);
    json_decref(result);
    result = compare("{}", "{'occupancy':{'fraction':0.125}}");
    assert_float_equal(matters(result, "occupancy"), 0.75 * 0.5, 1e-9);
    assert_string_equal(text(difference(result, "occupancy"), "favours"), "a");
    json_decref(result);
}

static void the_estimates_traffic_stands_in_for_what_was_not_traced(void **state)
{
    (void)state;
    static const char slow[] = "{'traced':null,'accesses':[],'roofline':{'requested_bytes':null},"
                               "'estimate':{'ceilings_ns':{'l2':4500000}}}";
    json_t *result = compare("{}", slow);
    assert_string_equal(text(difference(result, "l2"), "favours"), "a");
    /* 4.5 ms in place of 1.5 ms, where that is 0.9 of the time. */
    assert_float_equal(matters(result, "l2"), 2.0 / 3 * 0.9, 1e-9);
    assert_says(result, "1.5 ms in A, 4.5 ms in B, for A");
    json_decref(result);
    /* Where the bytes were seen they say the same, once. */
    result = compare("{}", "{'roofline':{'requested_bytes':3000000},"
                           "'estimate':{'ceilings_ns':{'l2':4500000}}}");
    assert_float_equal(matters(result, "requested_bytes"), 2.0 / 3 * 0.9, 1e-9);
    assert_float_equal(matters(result, "l2"), 0, 1e-9);
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_matters_most_comes_first_and_favours_the_better_side),
        cmocka_unit_test(swapped_sides_give_the_mirrored_answer),
        cmocka_unit_test(equal_configurations_have_no_differences),
        cmocka_unit_test(overlapping_intervals_are_a_tie),
        cmocka_unit_test(a_side_without_trace_is_compared_in_the_rest),
        cmocka_unit_test(without_times_the_estimate_decides_and_is_called_one),
        cmocka_unit_test(a_clock_that_contradicts_the_model_is_believed_and_it_is_said),
        cmocka_unit_test(times_of_different_devices_are_not_compared),
        cmocka_unit_test(the_estimates_traffic_stands_in_for_what_was_not_traced),
        cmocka_unit_test(occupancy_beyond_what_hides_latencies_matters_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
