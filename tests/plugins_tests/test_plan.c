/* plugins/plan: the JSON of launches, buffers and references, and every limit by its number. */
#include "support.h"

#include "plugins/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t dims[] = {100, 50, 64};
static const int64_t split[] = {1, 32, 16, 2, 2}; /* VARIANT BM BN TM SPLIT */
static const int64_t whole[] = {1, 32, 16, 2, 1};

static void launches_have_the_form_of_the_protocol(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    json_t *expected = parse_json(
        "[{\"memset\":\"parts\",\"byte\":0},"
        "{\"entry\":\"tiled\",\"grid\":[4,4,2],\"block\":[16,16,1],\"shared_bytes\":3072,"
        "\"defines\":{\"VARIANT\":1,\"BM\":32,\"BN\":16,\"TM\":2,\"SPLIT\":2,\"K\":64,"
        "\"TUNE_T\":\"float\",\"TUNE_DTYPE_F32\":1},"
        "\"args\":[{\"kind\":\"buffer\",\"name\":\"A\"},{\"kind\":\"buffer\",\"name\":\"B\"},"
        "{\"kind\":\"buffer\",\"name\":\"C\"},{\"kind\":\"buffer\",\"name\":\"parts\"},"
        "{\"kind\":\"scalar\",\"type\":\"i64\",\"value\":100},"
        "{\"kind\":\"scalar\",\"type\":\"i32\",\"value\":50},"
        "{\"kind\":\"scalar\",\"type\":\"i64\",\"value\":64},"
        "{\"kind\":\"scalar\",\"type\":\"f32\",\"value\":0.5}],"
        "\"cluster\":null,\"cooperative\":false,\"repeat\":1},"
        "{\"entry\":\"sum_parts\",\"grid\":[20,1,1],\"block\":[256,1,1],\"shared_bytes\":0,"
        "\"defines\":{\"VARIANT\":1,\"BM\":32,\"BN\":16,\"TM\":2,\"SPLIT\":2,\"K\":64,"
        "\"TUNE_T\":\"float\",\"TUNE_DTYPE_F32\":1},"
        "\"args\":[{\"kind\":\"buffer\",\"name\":\"parts\"},{\"kind\":\"buffer\",\"name\":\"C\"},"
        "{\"kind\":\"scalar\",\"type\":\"i64\",\"value\":5000}],"
        "\"cluster\":null,\"cooperative\":false,\"repeat\":1}]");
    assert_json_equal(plan_launches(manifest, &device, dims, "f32", split, NULL), expected);

    /* Without parts there is nothing to clear and nothing to sum. */
    json_t *one = plan_launches(manifest, &device, dims, "f32", whole, NULL);
    assert_int_equal(json_array_size(one), 1);
    json_decref(one);
    manifest_destroy(manifest);
}

static void cluster_repeat_memset_and_real_scalars_have_their_form(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("fills");
    struct device_info device = device_of("sm_90");
    int64_t n = 1000, block = 64;
    json_t *expected = parse_json(
        "[{\"memset\":\"space\",\"byte\":0},{\"memset\":\"space\",\"byte\":255},"
        "{\"entry\":\"ns::k<float, 16>\",\"grid\":[32,1,1],\"block\":[64,1,1],\"shared_bytes\":0,"
        "\"defines\":{\"BLOCK\":64,\"TUNE_T\":\"float\",\"TUNE_DTYPE_F32\":1},"
        "\"args\":[{\"kind\":\"buffer\",\"name\":\"x\"},"
        "{\"kind\":\"scalar\",\"type\":\"f64\",\"value\":1000.0},"
        "{\"kind\":\"scalar\",\"type\":\"u64\",\"value\":1000},"
        "{\"kind\":\"scalar\",\"type\":\"i8\",\"value\":-1}],"
        "\"cluster\":[2,1,1],\"cooperative\":true,\"repeat\":3}]");
    assert_json_equal(plan_launches(manifest, &device, &n, "f32", &block, NULL), expected);
    manifest_destroy(manifest);
}

/* Of each launch what tells it: its entry, its constant with the buffer, or its memset. */
static json_t *steps_of(json_t *launches)
{
    static const char *const keys[] = {"entry", "constant", "buffer", "memset"};
    json_t *steps = json_array(), *launch;
    size_t i;
    assert_non_null(launches);
    json_array_foreach (launches, i, launch)
        for (size_t j = 0; j < 4; j++)
            if (json_object_get(launch, keys[j]) != NULL)
                json_array_append(steps, json_object_get(launch, keys[j]));
    json_decref(launches);
    return steps;
}

static void constants_are_set_where_they_stand_and_when_there_is_something_to_copy(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("constants");
    struct device_info device = device_of("sm_90");
    int64_t n = 10, small = 64, large = 128;
    assert_json_equal(steps_of(plan_launches(manifest, &device, &n, "f32", &small, NULL)),
        parse_json("[\"taps\",\"x\",\"small\",\"y\",\"second\"]"));
    assert_json_equal(steps_of(plan_launches(manifest, &device, &n, "f32", &large, NULL)),
        parse_json("[\"small\",\"y\",\"second\"]"));
    assert_json_equal(plan_entries(manifest, false), parse_json("[\"small\",\"second\"]"));
    json_t *reference = plan_reference(manifest, &device, &n, "f32", NULL);
    assert_json_equal(steps_of(json_incref(json_object_get(reference, "launches"))),
        parse_json("[\"ref_taps\",\"x\",\"reference\"]"));
    json_decref(reference);
    manifest_destroy(manifest);
}

static void what_is_done_once_comes_before_the_clearing_of_each_call(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("once");
    struct device_info device = device_of("sm_90");
    int64_t n = 10, small = 64, large = 128;
    json_t *launches = plan_launches(manifest, &device, &n, "f32", &small, NULL);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_is_true(json_object_get(json_array_get(launches, i), "once")), i < 2);
    assert_json_equal(steps_of(launches), parse_json("[\"none\",\"convert\",\"y\",\"call\"]"));
    assert_json_equal(steps_of(plan_launches(manifest, &device, &n, "f32", &large, NULL)),
        parse_json("[\"none\",\"y\",\"call\"]"));
    manifest_destroy(manifest);
}

/* [[entry, grid x, shared bytes, repeat, last argument], ...] */
static json_t *turns_of(json_t *launches)
{
    json_t *turns = json_array(), *launch;
    size_t i;
    assert_non_null(launches);
    json_array_foreach (launches, i, launch) {
        const json_t *args = json_object_get(launch, "args");
        const json_t *last = json_array_get(args, json_array_size(args) - 1);
        json_t *value = json_object_get(last, "value");
        json_array_append_new(
            turns, json_pack("[O,O,O,O,O]", json_object_get(launch, "entry"),
                       json_array_get(json_object_get(launch, "grid"), 0),
                       json_object_get(launch, "shared_bytes"), json_object_get(launch, "repeat"),
                       value ? value : json_object_get(last, "name")));
    }
    json_decref(launches);
    return turns;
}

static void a_launch_with_turns_is_as_many_launches_that_know_their_number(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("turns");
    struct device_info device = device_of("sm_90");
    int64_t three[] = {10, 3}, none[] = {10, 7}, block = 64;
    json_t *launches = plan_launches(manifest, &device, three, "f32", &block, NULL);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(json_is_true(json_object_get(json_array_get(launches, i), "once")), i < 2);
    assert_json_equal(turns_of(launches),
        parse_json("[[\"prepare\",1,0,1,\"y\"],[\"prepare\",1,0,1,\"y\"],[\"step\",1,0,1,3],"
                   "[\"step\",2,16,2,2],[\"step\",3,32,1,1],[\"last\",1,0,1,\"y\"]]"));
    assert_json_equal(turns_of(plan_launches(manifest, &device, none, "f32", &block, NULL)),
        parse_json("[[\"prepare\",1,0,1,\"y\"],[\"prepare\",1,0,1,\"y\"],[\"last\",1,0,1,\"y\"]]"));
    assert_json_equal(plan_entries(manifest, false), parse_json("[\"prepare\",\"step\",\"last\"]"));
    json_t *reference = plan_reference(manifest, &device, three, "f32", NULL);
    assert_json_equal(turns_of(json_incref(json_object_get(reference, "launches"))),
        parse_json("[[\"reference\",1,0,1,0],[\"reference\",1,0,1,1],[\"reference\",1,0,1,2]]"));
    json_decref(reference);
    manifest_destroy(manifest);
}

static void so_many_turns_are_refused(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("turns");
    struct device_info device = device_of("sm_90");
    struct tune_error err = {0};
    int64_t most[] = {10, 256}, more[] = {10, 257}, negative[] = {10, 8}, block = 64;
    json_t *launches = plan_launches(manifest, &device, most, "f32", &block, &err);
    assert_int_equal(json_array_size(launches), 2 + 256 + 1);
    json_decref(launches);
    assert_null(plan_launches(manifest, &device, more, "f32", &block, &err));
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_string_equal(err.text, "launch step: turns is 257; it must be 0 to 256");
    err = (struct tune_error){0};
    assert_null(plan_launches(manifest, &device, negative, "f32", &block, &err));
    assert_string_equal(err.text, "launch step: turns is -1; it must be 0 to 256");
    manifest_destroy(manifest);
}

static void buffers_have_their_bytes_roles_and_fills(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("fills");
    struct device_info device = device_of("sm_90");
    int64_t n = 10, block = 64;
    json_t *expected =
        parse_json("[{\"name\":\"x\",\"dtype\":\"f32\",\"bytes\":40,\"count\":10,\"role\":\"in\","
                   "\"zero_before\":false,\"fill\":\"small_int\",\"fill_value\":0.0},"
                   "{\"name\":\"keys\",\"dtype\":\"u32\",\"bytes\":40,\"count\":10,\"role\":\"in\","
                   "\"zero_before\":false,\"fill\":\"index\",\"fill_value\":0.0},"
                   "{\"name\":\"fixed\",\"dtype\":\"f64\",\"bytes\":8,\"count\":1,\"role\":\"in\","
                   "\"zero_before\":false,\"fill\":\"value\",\"fill_value\":-2.5},"
                   "{\"name\":\"y\",\"dtype\":\"f32\",\"bytes\":40,\"count\":10,\"role\":\"inout\","
                   "\"zero_before\":false,\"fill\":\"zero\",\"fill_value\":0.0}]");
    json_t *without = plan_buffers(manifest, &device, &n, "f32", NULL, NULL);
    json_t *with = plan_buffers(manifest, &device, &n, "f32", &block, NULL);
    json_t *scratch = json_incref(json_array_get(with, 4));
    json_array_remove(with, 4);
    assert_json_equal(with, json_copy(expected));
    assert_json_equal(without, expected);
    assert_json_equal(scratch,
        parse_json("{\"name\":\"space\",\"dtype\":\"u8\",\"bytes\":64,\"count\":64,\"role\":"
                   "\"scratch\",\"zero_before\":true,\"fill\":\"zero\",\"fill_value\":0.0}"));
    manifest_destroy(manifest);
}

/* The plan of the buffers of "choices" with another "below" for x; NULL and *err when refused. */
static json_t *plan_below(
    const char *below, const int64_t *shape, const char *dtype, struct tune_error *err)
{
    char changes[400];
    snprintf(changes, sizeof changes,
        "{\"buffers\":[{\"name\":\"x\",\"dtype\":\"T\",\"count\":\"N\",\"fill\":{\"below\":\"%s\"},"
        "\"role\":\"in\"},{\"name\":\"y\",\"dtype\":\"f64\",\"count\":\"N\",\"role\":\"out\"}]}",
        below);
    struct manifest *manifest = load_changed("choices", changes, NULL);
    assert_non_null(manifest);
    struct device_info device = device_of("sm_90");
    memset(err, 0, sizeof *err);
    json_t *buffers = plan_buffers(manifest, &device, shape, dtype, NULL, err);
    manifest_destroy(manifest);
    return buffers;
}

static void a_fill_below_is_a_number_that_the_dtype_holds(void **state)
{
    (void)state;
    static const struct {
        const char *below, *dtype, *says; /* says NULL: it is taken */
    } cases[] = {{"1", "f32", NULL}, {"0", "f32", "fill below 0: it must be 1 to 16777217 in f32"},
        {"-N", "i32", "below -10"}, {"2049", "f16", NULL},
        {"2050", "f16", "buffer x: fill below 2050: it must be 1 to 2049 in f16"},
        {"16777217", "f32", NULL}, {"16777218", "f32", "1 to 16777217"},
        {"2147483648", "i32", NULL}, {"2147483649", "i32", "1 to 2147483648 in i32"},
        {"1 / (N - 10)", "i32", "buffer x: fill below"}};
    const int64_t shape[] = {10, 1, 3}, max[] = {10, 2, 3};
    struct tune_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *buffers = plan_below(cases[i].below, shape, cases[i].dtype, &err);
        if ((buffers == NULL) != (cases[i].says != NULL) ||
            (cases[i].says && strstr(err.text, cases[i].says) == NULL))
            fail_msg("%s in %s: \"%s\"", cases[i].below, cases[i].dtype, err.text);
        json_decref(buffers);
    }
    json_t *buffers = plan_below("OP == 2 ? N : 8", max, "f16", &err);
    json_t *x = json_incref(json_array_get(buffers, 0));
    json_decref(buffers);
    assert_json_equal(
        x, parse_json("{\"name\":\"x\",\"dtype\":\"f16\",\"bytes\":20,\"count\":10,\"role\":\"in\","
                      "\"zero_before\":false,\"fill\":\"below\",\"fill_value\":10.0}"));
}

static void a_choice_reaches_the_source_of_kernel_and_reference(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("choices");
    const int64_t shape[] = {10, 5, 1}, block = 64;
    assert_json_equal(plan_defines(manifest, shape, "f32", &block, NULL),
        parse_json("[\"-DBLOCK=64\",\"-DOP=5\",\"-DTUNE_T=float\",\"-DTUNE_DTYPE_F32=1\"]"));
    assert_json_equal(plan_defines(manifest, shape, "f32", NULL, NULL),
        parse_json("[\"-DOP=5\",\"-DTUNE_T=float\",\"-DTUNE_DTYPE_F32=1\"]"));
    manifest_destroy(manifest);
}

static void a_buffer_of_no_elements_stays_and_tf32_lives_in_f32(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    json_t *buffers = plan_buffers(manifest, &device, dims, "tf32", whole, NULL);
    json_t *c = json_array_get(buffers, 2), *parts = json_array_get(buffers, 3);
    assert_string_equal(json_string_value(json_object_get(c, "dtype")), "f32");
    assert_int_equal(json_integer_value(json_object_get(c, "bytes")), 100 * 50 * 4);
    assert_int_equal(json_integer_value(json_object_get(parts, "bytes")), 0);
    json_decref(buffers);
    manifest_destroy(manifest);
}

static void the_reference_has_tolerances_with_their_numbers(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    json_t *reference = plan_reference(manifest, &device, dims, "f16", NULL);
    json_t *check = json_array_get(json_object_get(reference, "checks"), 0);
    double relative = json_real_value(json_object_get(check, "relative"));
    assert_true(fabs(relative - 2 * 0x1p-11 * 8) < 1e-15); /* factor, half's unit, sqrt(64) */
    assert_string_equal(json_string_value(json_object_get(check, "scale")), "C_scale");
    assert_string_equal(json_string_value(json_object_get(check, "reference")), "C_ref");
    json_t *launch = json_array_get(json_object_get(reference, "launches"), 0);
    assert_json_equal(json_incref(json_object_get(launch, "defines")),
        parse_json("{\"TUNE_REFERENCE\":1,\"K\":64,\"TUNE_T\":\"__half\",\"TUNE_DTYPE_F16\":1}"));
    json_t *buffers = json_object_get(reference, "buffers");
    assert_int_equal(json_array_size(buffers), 2);
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(buffers, 0), "bytes")), 5000 * 8);
    json_decref(reference);
    manifest_destroy(manifest);

    manifest = load_valid("small");
    reference = plan_reference(manifest, &device, dims, "f32", NULL);
    check = json_array_get(json_object_get(reference, "checks"), 0);
    assert_true(json_is_null(json_object_get(check, "scale")));
    assert_true(json_real_value(json_object_get(check, "relative")) == 0x1p-24);
    json_decref(reference);
    manifest_destroy(manifest);
}

static void a_reference_of_another_size_is_refused(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct device_info device = device_of("sm_90");
    struct manifest *manifest = load_changed("small",
        "{\"reference\":{\"buffers\":[{\"name\":\"y_ref\",\"dtype\":\"f64\",\"count\":\"N + 1\","
        "\"role\":\"out\"}],\"launches\":[{\"entry\":\"reference\"}]}}",
        NULL);
    assert_null(plan_reference(manifest, &device, dims, "f32", &err));
    assert_non_null(strstr(err.text, "y has 100 elements, but y_ref of its check has 101"));
    manifest_destroy(manifest);
}

static void options_stand_in_the_order_of_the_manifest(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    assert_json_equal(plan_defines(manifest, dims, "f32", split, NULL),
        parse_json("[\"-DVARIANT=1\",\"-DBM=32\",\"-DBN=16\",\"-DTM=2\",\"-DSPLIT=2\",\"-DK=64\","
                   "\"-DTUNE_T=float\",\"-DTUNE_DTYPE_F32=1\"]"));
    assert_json_equal(plan_defines(manifest, dims, "tf32", NULL, NULL),
        parse_json(
            "[\"-DTUNE_REFERENCE=1\",\"-DK=64\",\"-DTUNE_T=float\",\"-DTUNE_DTYPE_TF32=1\"]"));
    manifest_destroy(manifest);
}

/* The launch's description keeps the integer, by which programs find the value again. */
static void a_value_may_stand_for_a_text_of_the_source(void **state)
{
    (void)state;
    static const int64_t n[] = {1000}, half[] = {2};
    struct device_info device = device_of("sm_90");
    struct tune_error err = {0};
    struct manifest *manifest = load_changed("small",
        "{\"params\": [{\"name\": \"BLOCK\", \"meaning\": \"a factor\", \"values\": [128,"
        "{\"value\": 2, \"name\": \"half\", \"define\": \"0.5f\"}]}],"
        "\"default\": {\"BLOCK\": \"half\"}, \"constraints\": [], \"derived\": []}",
        &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    json_t *options = plan_defines(manifest, n, "f32", half, NULL);
    assert_string_equal(json_string_value(json_array_get(options, 0)), "-DBLOCK=0.5f");
    json_t *launches = plan_launches(manifest, &device, n, "f32", half, NULL);
    const json_t *defines = json_object_get(json_array_get(launches, 0), "defines");
    assert_int_equal(json_integer_value(json_object_get(defines, "BLOCK")), 2);
    assert_null(manifest_param_define(&manifest->params[0], 128));
    json_decref(options);
    json_decref(launches);
    manifest_destroy(manifest);
}

static void entries_are_named_once(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    assert_json_equal(plan_entries(manifest, false), parse_json("[\"tiled\",\"sum_parts\"]"));
    assert_json_equal(plan_entries(manifest, true), parse_json("[\"reference\"]"));
    manifest_destroy(manifest);
    manifest = load_changed("small",
        "{\"launches\":[{\"entry\":\"a\"},{\"memset\":\"y\"},{\"entry\":\"b\"},{\"entry\":\"a\"}]}",
        NULL);
    assert_json_equal(plan_entries(manifest, false), parse_json("[\"a\",\"b\"]"));
    manifest_destroy(manifest);
}

static void a_variant_may_need_an_arch_of_its_own(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    int64_t wgmma[] = {2, 32, 16, 2, 1};
    assert_string_equal(plan_arch_suffix(manifest, &device, dims, "f32", wgmma), "a");
    assert_string_equal(plan_arch_suffix(manifest, &device, dims, "f32", whole), "");
    device.attributes[DEVICE_sm] = 0;
    assert_string_equal(plan_arch_suffix(manifest, &device, dims, "f32", wgmma), "");
    manifest_destroy(manifest);
}

static void work_is_counted_and_absent_work_is_zero(void **state)
{
    (void)state;
    double flops, bytes;
    struct tune_error err = {0};
    struct device_info device = device_of("sm_90");
    struct manifest *manifest = load_valid("tiled");
    assert_int_equal(plan_work(manifest, &device, dims, "f16", &flops, &bytes, NULL), 0);
    assert_true(flops == 2.0 * 100 * 50 * 64);
    assert_true(bytes == (100 * 64 + 64 * 50 + 100 * 50) * 2.0);
    int64_t vast[] = {INT64_C(1) << 40, INT64_C(1) << 40, 1};
    assert_int_equal(plan_work(manifest, &device, vast, "f32", &flops, &bytes, &err), -1);
    assert_int_equal(err.code, TUNE_EMATH);
    manifest_destroy(manifest);
    manifest = load_valid("small");
    assert_int_equal(plan_work(manifest, &device, dims, "f32", &flops, &bytes, NULL), 0);
    assert_true(flops == 0 && bytes == 0);
    manifest_destroy(manifest);
}

/* --- limits: one launch of `small` with one field changed ------------------------------------- */

/* TUNE_OK or the code of plan_launches, for a launch of these fields and N = n. */
static enum tune_code plan_with(const char *fields, int64_t n, struct tune_error *err)
{
    char changes[512];
    int64_t block = 64;
    struct device_info device = device_of("sm_90");
    snprintf(changes, sizeof changes, "{\"launches\":[{\"entry\":\"small\",%s}]}", fields);
    *err = (struct tune_error){0};
    struct manifest *manifest = load_changed("small", changes, err);
    if (manifest == NULL)
        fail_msg("%s: %s", changes, err->text);
    json_t *launches = plan_launches(manifest, &device, &n, "f32", &block, err);
    assert_int_equal(launches == NULL, err->code != TUNE_OK);
    json_decref(launches);
    manifest_destroy(manifest);
    return err->code;
}

static void each_limit_is_met_exactly_and_named_when_passed(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        int64_t last_good;
        const char *sentence;
    } cases[] = {
        {"\"grid\":[\"N\"]", INT32_MAX,
            "launch small: grid x is 2147483648; the device's limit is 2147483647"},
        {"\"grid\":[1,\"N\"]", 65535, "launch small: grid y is 65536; the device's limit is 65535"},
        {"\"grid\":[1,1,\"N\"]", 65535, "grid z is 65536; the device's limit is 65535"},
        {"\"block\":[\"N\"]", 1024, "block x is 1025; the device's limit is 1024"},
        {"\"block\":[1,\"N\"]", 1024, "block y is 1025; the device's limit is 1024"},
        {"\"block\":[1,1,\"N\"]", 64, "block z is 65; the device's limit is 64"},
        {"\"block\":[32,\"N\"]", 32,
            "a block of 32x33x1 has 1056 threads; the device's limit is 1024"},
        {"\"shared_bytes\":\"N\"", 232448, "shared_bytes is 232449; the device's limit is 232448"},
        {"\"grid\":[\"N\"],\"cluster\":[\"N\"]", 8, "cluster x is 9; the device's limit is 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune_error err;
        if (plan_with(cases[i].fields, cases[i].last_good, &err) != TUNE_OK)
            fail_msg("%s: %s", cases[i].fields, err.text);
        assert_int_equal(plan_with(cases[i].fields, cases[i].last_good + 1, &err), TUNE_ELIMIT);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("got \"%s\", expected \"%s\"", err.text, cases[i].sentence);
    }
}

static void sizes_that_make_no_sense_are_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        enum tune_code code;
        const char *sentence;
    } cases[] = {
        {"\"grid\":[\"N / 100\"]", TUNE_EINVAL, "grid x is 0; it must be at least 1"},
        {"\"block\":[\"-N\"]", TUNE_EINVAL, "block x is -7"},
        {"\"shared_bytes\":\"-N\"", TUNE_EINVAL, "shared_bytes is -7"},
        {"\"repeat\":0", TUNE_EINVAL, "repeat is 0"},
        {"\"repeat\":1000001", TUNE_EINVAL, "repeat is 1000001; at most 1000000"},
        {"\"grid\":[\"N\"],\"cluster\":[2]", TUNE_EINVAL,
            "grid x is 7, no multiple of its cluster's 2"},
        {"\"grid\":[\"N / (BLOCK - 64)\"]", TUNE_EMATH, "grid x: division by zero"},
        {"\"when\":\"N > 7\"", TUNE_EINVAL, "no launch of small has a \"when\" that holds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune_error err;
        assert_int_equal(plan_with(cases[i].fields, 7, &err), cases[i].code);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("got \"%s\", expected \"%s\"", err.text, cases[i].sentence);
    }
}

static void a_scalar_that_does_not_fit_its_type_is_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *type, *value;
        bool fits;
    } cases[] = {
        {"i32", "pow2(31) - 1", true},
        {"i32", "pow2(31)", false},
        {"i32", "-pow2(31)", true},
        {"i32", "-pow2(31) - 1", false},
        {"u32", "pow2(32) - 1", true},
        {"u32", "pow2(32)", false},
        {"u32", "-1", false},
        {"i8", "127", true},
        {"i8", "128", false},
        {"u16", "65535", true},
        {"u16", "65536", false},
        {"i64", "-1", true},
        {"u64", "pow2(62)", true},
        {"u64", "-1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune_error err;
        char fields[128];
        snprintf(fields, sizeof fields, "\"args\":[{\"scalar\":\"%s\",\"value\":\"%s\"}]",
            cases[i].type, cases[i].value);
        enum tune_code code = plan_with(fields, 1, &err);
        if (code != (cases[i].fits ? TUNE_OK : TUNE_EINVAL))
            fail_msg("%s: %s", fields, err.text);
        if (!cases[i].fits)
            assert_non_null(strstr(err.text, "launch small: argument 1 is"));
    }
}

static void buffers_past_the_device_or_past_64_bits_are_refused(void **state)
{
    (void)state;
    struct tune_error err = {0}, overflow = {0};
    struct manifest *manifest = load_valid("small");
    struct device_info device = device_of("sm_90");
    int64_t block = 64, n = 1000, vast = INT64_C(1) << 62;
    device.attributes[DEVICE_memory_bytes] = 8000;
    json_t *buffers = plan_buffers(manifest, &device, &n, "f32", &block, NULL);
    assert_non_null(buffers);
    json_decref(buffers);
    device.attributes[DEVICE_memory_bytes] = 7999;
    assert_null(plan_buffers(manifest, &device, &n, "f32", &block, &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_non_null(strstr(err.text, "take 8000 bytes; the device has 7999"));
    assert_null(plan_buffers(manifest, &device, &vast, "f32", &block, &overflow));
    assert_int_equal(overflow.code, TUNE_EMATH);
    manifest_destroy(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_have_the_form_of_the_protocol),
        cmocka_unit_test(cluster_repeat_memset_and_real_scalars_have_their_form),
        cmocka_unit_test(constants_are_set_where_they_stand_and_when_there_is_something_to_copy),
        cmocka_unit_test(what_is_done_once_comes_before_the_clearing_of_each_call),
        cmocka_unit_test(a_launch_with_turns_is_as_many_launches_that_know_their_number),
        cmocka_unit_test(so_many_turns_are_refused),
        cmocka_unit_test(buffers_have_their_bytes_roles_and_fills),
        cmocka_unit_test(a_fill_below_is_a_number_that_the_dtype_holds),
        cmocka_unit_test(a_choice_reaches_the_source_of_kernel_and_reference),
        cmocka_unit_test(a_buffer_of_no_elements_stays_and_tf32_lives_in_f32),
        cmocka_unit_test(the_reference_has_tolerances_with_their_numbers),
        cmocka_unit_test(a_reference_of_another_size_is_refused),
        cmocka_unit_test(options_stand_in_the_order_of_the_manifest),
        cmocka_unit_test(a_value_may_stand_for_a_text_of_the_source),
        cmocka_unit_test(entries_are_named_once),
        cmocka_unit_test(a_variant_may_need_an_arch_of_its_own),
        cmocka_unit_test(work_is_counted_and_absent_work_is_zero),
        cmocka_unit_test(each_limit_is_met_exactly_and_named_when_passed),
        cmocka_unit_test(sizes_that_make_no_sense_are_invalid),
        cmocka_unit_test(a_scalar_that_does_not_fit_its_type_is_invalid),
        cmocka_unit_test(buffers_past_the_device_or_past_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
