/* plugins/manifest: every case of tests/data/manifests, and the answers of one that is read. */
#include "support.h"

#include "client/proto.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int list_cases(const char *kind, struct dirent ***cases)
{
    int count = scandir(data_path(kind), cases, is_visible, alphasort);
    if (count < 3)
        fail_msg("only %d cases in %s", count, data_path(kind));
    return count;
}

static void every_valid_case_is_read(void **state)
{
    (void)state;
    struct dirent **cases;
    int count = list_cases("valid", &cases);
    for (int i = 0; i < count; i++) {
        struct manifest *manifest = load_valid(cases[i]->d_name);
        assert_string_equal(manifest->name, cases[i]->d_name);
        manifest_destroy(manifest);
        free(cases[i]);
    }
    free(cases);
}

static void refuse_case(const char *name)
{
    char file[512];
    struct tune_error err = {0};
    snprintf(file, sizeof file, "invalid/%s/manifest.json", name);
    char *text = read_text(data_path(file));
    snprintf(file, sizeof file, "invalid/%s/expected.txt", name);
    char *expected = read_text(data_path(file));
    expected[strcspn(expected, "\n")] = '\0';
    struct manifest *manifest = manifest_create(text, strlen(text), "case.json", &err);
    if (manifest != NULL)
        fail_msg("%s is taken", name);
    if (strstr(err.text, expected) == NULL || strncmp(err.text, "case.json: ", 11) != 0)
        fail_msg("%s: got \"%s\", expected \"%s\"", name, err.text, expected);
    free(text);
    free(expected);
}

static void every_invalid_case_is_refused_with_its_sentence(void **state)
{
    (void)state;
    struct dirent **cases;
    int count = list_cases("invalid", &cases);
    for (int i = 0; i < count; i++) {
        refuse_case(cases[i]->d_name);
        free(cases[i]);
    }
    free(cases);
}

/* A manifest cut anywhere, or with a byte changed, is refused or read, but nothing breaks: the
 * sanitizers look on. */
static void damaged_texts_do_no_harm(void **state)
{
    (void)state;
    char *text = read_text(data_path("valid/tiled/manifest.json"));
    size_t length = strlen(text);
    for (size_t cut = 0; cut < length - 1; cut += 7)
        assert_null(manifest_create(text, cut, "cut.json", NULL));
    for (size_t i = 0; i < length; i += 3) {
        char kept = text[i];
        text[i] = (char)('0' + i % 75);
        manifest_destroy(manifest_create(text, length, "changed.json", NULL));
        text[i] = kept;
    }
    free(text);
}

static void a_manifest_ends_at_one_mebibyte(void **state)
{
    (void)state;
    struct tune_error err = {0};
    char *small = read_text(data_path("valid/small/manifest.json"));
    char *text = malloc(MANIFEST_MAX_BYTES + 1);
    memset(text, ' ', MANIFEST_MAX_BYTES + 1);
    memcpy(text, small, strlen(small));
    struct manifest *manifest = manifest_create(text, MANIFEST_MAX_BYTES, "large.json", NULL);
    assert_non_null(manifest);
    assert_null(manifest_create(text, MANIFEST_MAX_BYTES + 1, "large.json", &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_non_null(strstr(err.text, "1048577 bytes; the limit is 1048576"));
    manifest_destroy(manifest);
    free(text);
    free(small);
}

static void constraints_know_when_they_can_be_checked(void **state)
{
    (void)state;
    struct manifest *manifest = load_changed("tiled",
        "{\"constraints\": ["
        "{\"expr\":\"BM % TM == 0\",\"message\":\"m\"},"
        "{\"expr\":\"THREADS >= 32\",\"message\":\"m\"},"
        "{\"expr\":\"THREADS <= max_threads\",\"message\":\"m\"},"
        "{\"expr\":\"TILES > 0\",\"message\":\"m\"},"
        "{\"expr\":\"M > 0\",\"message\":\"m\"},"
        "{\"expr\":\"BM * dtype_bytes <= 128\",\"message\":\"m\"},"
        "{\"expr\":\"dtype_bytes <= 4\",\"message\":\"m\"}]}",
        NULL);
    assert_non_null(manifest);
    static const size_t last[] = {3, 3, 3, 2, SIZE_MAX, 1, SIZE_MAX};
    static const bool params_only[] = {true, true, false, false, false, true, false};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(manifest->constraints[i].last_param, last[i]);
        assert_int_equal(manifest->constraints[i].params_only, params_only[i]);
    }
    assert_int_equal(manifest->derived[0].last_param, 3);
    assert_int_equal(manifest->derived[1].last_param, 2);
    assert_int_equal(manifest->requirements[0].last_param, 0);
    manifest_destroy(manifest);
}

static void the_fields_of_the_estimate_may_read_everything(void **state)
{
    (void)state;
    static const char *const names[] = {
        "traffic_global", "traffic_shared", "flops_done", "round_trips", "registers"};
    struct manifest *without = load_valid("small");
    assert_null(without->traffic_global);
    assert_null(without->traffic_shared);
    assert_null(without->flops_done);
    assert_null(without->round_trips);
    assert_null(without->registers);
    manifest_destroy(without);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char changes[200];
        struct tune_error err = {0};
        snprintf(changes, sizeof changes, "{\"%s\": \"M * BM * THREADS * sms * dtype_bytes\"}",
            names[i]);
        struct manifest *manifest = load_changed("tiled", changes, &err);
        assert_non_null(manifest);
        const struct expr *const exprs[] = {manifest->traffic_global, manifest->traffic_shared,
            manifest->flops_done, manifest->round_trips, manifest->registers};
        assert_string_equal(expr_text(exprs[i]), "M * BM * THREADS * sms * dtype_bytes");
        manifest_destroy(manifest);
        snprintf(changes, sizeof changes, "{\"%s\": \"nothing\"}", names[i]);
        assert_null(load_changed("tiled", changes, &err));
        assert_int_equal(err.code, TUNE_ENOTFOUND);
    }
}

static void shapes_lie_as_far_apart_as_their_dims_and_ratios_double(void **state)
{
    (void)state;
    static const char *const foreign[] = {"", "M=1,N=2", "M=1,N=2,K=0", "M=1,N=2,K=3,L=4",
        "N=1,M=2,K=3", "M=1,N=2,K=", "M=1;N=2;K=3"};
    struct manifest *manifest = load_valid("tiled");
    int64_t dims[] = {1024, 512, 64};
    assert_true(manifest_shape_distance(manifest, dims, "M=1024,N=512,K=64") == 0);
    assert_true(manifest_shape_distance(manifest, dims, "M=256,N=1024,K=64") == 6);
    /* As many doublings, but of the same aspect ratio: nearer. */
    assert_true(manifest_shape_distance(manifest, dims, "M=2048,N=1024,K=128") == 3);
    /* Products of these dims do not fit 64 bits. */
    int64_t large[] = {INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62};
    assert_true(manifest_shape_distance(manifest, large,
                    "M=2305843009213693952,N=2305843009213693952,K=2305843009213693952") == 3);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (manifest_shape_distance(manifest, dims, foreign[i]) >= 0)
            fail_msg("\"%s\" is no shape", foreign[i]);
    manifest_destroy(manifest);
}

/* Reads a shape into dims[3]; its error's sentence must hold `says`, NULL: it is taken. */
static void read_choices(
    const struct manifest *manifest, const char *text, const char *says, int64_t *dims)
{
    struct tune_error err = {0};
    json_t *shape = parse_json(text);
    int status = manifest_shape_from_json(manifest, shape, dims, &err);
    if (status != (says ? -1 : 0) || (says && strstr(err.text, says) == NULL))
        fail_msg("%s: %d, \"%s\"", text, status, err.text);
    json_decref(shape);
}

static void a_choice_is_given_by_name_by_value_or_not_at_all(void **state)
{
    (void)state;
    static const char *const foreign[] = {"N=7", "N=7,OP=3,WAY=3", "N=7,OP=max,WAY=3", "N=7,OP=1",
        "N=7,OP=0,WAY=3", "N=7,WAY=3,OP=1"};
    struct manifest *manifest = load_valid("choices");
    int64_t dims[MANIFEST_MAX_DIMS];
    read_choices(manifest, "{\"N\":7}", NULL, dims);
    char *text = manifest_shape_text(manifest, dims);
    assert_string_equal(text, "N=7,OP=1,WAY=3");
    assert_json_equal(
        manifest_shape_to_json(manifest, dims), parse_json("{\"N\":7,\"OP\":1,\"WAY\":3}"));
    json_t *named = json_object();
    manifest_name_choices(manifest, dims, named);
    assert_json_equal(named, parse_json("{\"choices\":{\"OP\":\"sum\"}}"));
    char *words = manifest_shape_words(manifest, dims);
    assert_string_equal(words, "N=7 OP=sum WAY=3");
    free(words);
    free(text);
    read_choices(manifest, "{\"WAY\":\"near\",\"N\":7,\"OP\":\"max\"}", NULL, dims);
    assert_true(dims[0] == 7 && dims[1] == 2 && dims[2] == 1);
    read_choices(manifest, "{\"N\":7,\"OP\":5}", NULL, dims);
    assert_true(dims[1] == 5 && dims[2] == 3);
    named = json_object();
    manifest_name_choices(manifest, dims, named);
    assert_json_equal(named, parse_json("{}"));
    read_choices(manifest, "{\"N\":7,\"OP\":\"mean\"}",
        "\"mean\" is not a value of dimension OP; it takes sum, max, 5", dims);
    read_choices(manifest, "{\"N\":7,\"OP\":3}", "it takes sum, max, 5", dims);
    read_choices(manifest, "{\"N\":7,\"OP\":0}", "it takes sum, max, 5", dims);
    read_choices(manifest, "{\"N\":7,\"OP\":\"2\"}", "it takes sum, max, 5", dims);
    read_choices(manifest, "{\"N\":7,\"OP\":1.0}", "or a value's name", dims);
    read_choices(manifest, "{\"OP\":1}", "lacks dimension N", dims);
    read_choices(manifest, "{\"N\":\"max\"}", "dimension N must be an integer", dims);
    assert_int_equal(manifest_shape_from_text(manifest, "N=7,OP=5,WAY=1", dims), 0);
    assert_true(dims[0] == 7 && dims[1] == 5 && dims[2] == 1);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (manifest_shape_from_text(manifest, foreign[i], dims) == 0)
            fail_msg("\"%s\" is taken", foreign[i]);
    /* The list of the manifest itself: names, values, and choices left out. */
    assert_int_equal(manifest->shape_count, 3);
    assert_true(manifest->shapes[0][1] == 1 && manifest->shapes[0][2] == 3);
    assert_true(manifest->shapes[1][1] == 2 && manifest->shapes[2][2] == 1);
    manifest_destroy(manifest);
}

static void shapes_of_other_choices_are_at_no_distance(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("choices");
    int64_t dims[] = {1024, 2, 3}, other[] = {1024, 5, 3}, larger[] = {4096, 2, 3};
    assert_true(manifest_shape_distance(manifest, dims, "N=1024,OP=2,WAY=3") == 0);
    assert_true(manifest_shape_distance(manifest, dims, "N=1024,OP=1,WAY=3") < 0);
    assert_true(manifest_shape_distance(manifest, dims, "N=1024,OP=2,WAY=1") < 0);
    /* A choice is no size: what is apart are the sizes alone. */
    assert_true(manifest_shape_distance(manifest, dims, "N=4096,OP=2,WAY=3") == 2);
    assert_true(manifest_same_choices(manifest, dims, larger));
    assert_false(manifest_same_choices(manifest, dims, other));
    manifest_destroy(manifest);
}

static void a_buffer_may_have_a_dtype_by_the_swept_one(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("choices");
    const struct manifest_buffer *y = &manifest->buffers[1], *x = &manifest->buffers[0];
    assert_string_equal(manifest_buffer_dtype(manifest, y, "f32"), "f32");
    assert_string_equal(manifest_buffer_dtype(manifest, y, "f16"), "f32");
    assert_string_equal(manifest_buffer_dtype(manifest, y, "i32"), "i64");
    assert_string_equal(manifest_buffer_dtype(manifest, x, "f16"), "f16");
    manifest_destroy(manifest);
}

static void slots_hold_device_dims_and_element_size(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    int64_t slots[MANIFEST_MAX_SLOTS], dims[] = {10, 20, 30};
    memset(slots, 0xff, sizeof slots);
    manifest_bind(manifest, &device, dims, "f16", slots);
    assert_int_equal(slots[DEVICE_sm], 90);
    assert_int_equal(slots[DEVICE_warp], 32);
    assert_int_equal(slots[manifest_dim_slot(manifest, 2)], 30);
    assert_int_equal(slots[manifest_param_slot(manifest, 0)], 0);
    assert_int_equal(slots[manifest_derived_slot(manifest, 1)], 0);
    assert_int_equal(slots[manifest_dtype_bytes_slot(manifest)], 2);
    assert_int_equal(slots[manifest_turn_slot(manifest)], 0);
    assert_int_equal(manifest_slot_count(manifest), DEVICE_ATTRIBUTE_COUNT + 3 + 5 + 2 + 2);
    manifest_destroy(manifest);
}

static void a_value_is_an_integer_or_a_name_and_nothing_else(void **state)
{
    (void)state;
    static const char *const refused[] = {"16;}", "16 -DX=1", "16)", "0x10", " 16", "16 ", "16.0",
        "1.6e1", "+16", "016", "--include-path=..", "", "17", "tiled"};
    struct manifest *manifest = load_valid("tiled");
    const struct manifest_param *bm = &manifest->params[1], *variant = &manifest->params[0];
    int64_t value = 0;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct tune_error err = {0};
        json_t *json = json_string(refused[i]);
        assert_int_equal(manifest_param_value_text(bm, refused[i], &value, &err), -1);
        assert_non_null(strstr(err.text, "it takes 16, 32, 64"));
        assert_int_equal(manifest_param_value(bm, json, &value, NULL), -1);
        json_decref(json);
    }
    json_t *whole = json_integer(16), *text = json_string("16"), *real = json_real(16);
    assert_int_equal(manifest_param_value(bm, whole, &value, NULL), 0);
    assert_int_equal(value, 16);
    assert_int_equal(manifest_param_value(bm, text, &value, NULL), -1);
    assert_int_equal(manifest_param_value(bm, real, &value, NULL), -1);
    json_decref(whole);
    json_decref(text);
    json_decref(real);
    assert_int_equal(manifest_param_value_text(bm, "64", &value, NULL), 0);
    assert_int_equal(value, 64);
    assert_int_equal(manifest_param_value_text(variant, "wgmma", &value, NULL), 0);
    assert_int_equal(value, 2);
    assert_int_equal(manifest_param_value_text(variant, "1", &value, NULL), 0);
    assert_int_equal(value, 1);
    manifest_destroy(manifest);
}

static void configurations_and_shapes_go_through_json_and_text(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    int64_t values[MANIFEST_MAX_PARAMS], dims[MANIFEST_MAX_DIMS];
    json_t *config = parse_json("{\"SPLIT\":2,\"TM\":4,\"VARIANT\":\"wgmma\",\"BM\":64,\"BN\":16}");
    assert_int_equal(manifest_config_from_json(manifest, config, values, NULL), 0);
    char *text = manifest_config_text(manifest, values);
    assert_string_equal(text, "VARIANT=2,BM=64,BN=16,TM=4,SPLIT=2");
    free(text);
    assert_json_equal(manifest_config_to_json(manifest, values), config);

    json_t *shape = parse_json("{\"K\":3,\"M\":1,\"N\":4611686018427387904}");
    assert_int_equal(manifest_shape_from_json(manifest, shape, dims, NULL), 0);
    text = manifest_shape_text(manifest, dims);
    assert_string_equal(text, "M=1,N=4611686018427387904,K=3");
    free(text);
    assert_json_equal(manifest_shape_to_json(manifest, dims), shape);
    manifest_destroy(manifest);
}

static void only_the_canonical_text_is_read_back(void **state)
{
    (void)state;
    static const char *const refused[] = {"", "VARIANT=2", "VARIANT=2,BM=64,BN=16,TM=4",
        "VARIANT=2,BM=64,BN=16,TM=4,SPLIT=2,", "VARIANT=2,BM=64,BN=16,TM=4,SPLIT=2,X=1",
        "BM=64,VARIANT=2,BN=16,TM=4,SPLIT=2", "VARIANT=2,BM= 64,BN=16,TM=4,SPLIT=2",
        "VARIANT=2,BM=+64,BN=16,TM=4,SPLIT=2", "VARIANT=2,BM=064,BN=16,TM=4,SPLIT=2",
        "VARIANT=,BM=64,BN=16,TM=4,SPLIT=2", "VARIANT=2,BM=65,BN=16,TM=4,SPLIT=2",
        "VARIANT=wgmma,BM=64,BN=16,TM=4,SPLIT=2", "VARIANT=2,BM=64,,BN=16,TM=4,SPLIT=2"};
    struct manifest *manifest = load_valid("tiled");
    int64_t values[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct tune_error err = {0};
        if (manifest_config_from_text(manifest, refused[i], values, &err) == 0)
            fail_msg("%s is taken", refused[i]);
        assert_int_equal(err.code, TUNE_EINVAL);
    }
    const char *good = "VARIANT=2,BM=64,BN=16,TM=4,SPLIT=2";
    assert_int_equal(manifest_config_from_text(manifest, good, values, NULL), 0);
    char *text = manifest_config_text(manifest, values);
    assert_string_equal(text, good);
    free(text);
    manifest_destroy(manifest);
}

static void a_tolerance_keeps_its_unit(void **state)
{
    (void)state;
    struct manifest *swept = load_valid("tiled"), *fixed = load_valid("small"),
                    *exact = load_valid("fills");
    assert_true(swept->checks[0].unit_is_swept);
    assert_int_equal(swept->checks[0].growth, GROWTH_SQRT);
    assert_true(fixed->checks[0].unit_roundoff == 0x1p-24);
    assert_int_equal(fixed->checks[0].scale, SIZE_MAX);
    assert_true(exact->checks[0].unit_roundoff == 0 && exact->checks[0].absolute == 0.25);
    manifest_destroy(swept);
    manifest_destroy(fixed);
    manifest_destroy(exact);
}

static void the_canonical_form_ignores_order_and_layout_and_nothing_else(void **state)
{
    (void)state;
    struct manifest *one = load_valid("small");
    char *text = read_text(data_path("valid/small/manifest.json"));
    json_t *json = parse_json(text), *turned = json_object();
    const char *keys[32];
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach (json, key, value) {
        keys[count++] = key;
    }
    while (count-- > 0)
        json_object_set(turned, keys[count], json_object_get(json, keys[count]));
    char *other = json_dumps(turned, JSON_INDENT(4));
    struct manifest *two = manifest_create(other, strlen(other), "turned.json", NULL);
    struct manifest *three = load_changed("small", "{\"default\":{\"BLOCK\":64}}", NULL);
    assert_string_equal(one->canonical, two->canonical);
    assert_string_not_equal(one->canonical, three->canonical);
    manifest_destroy(one);
    manifest_destroy(two);
    manifest_destroy(three);
    json_decref(json);
    json_decref(turned);
    free(other);
    free(text);
}

static void describe_shows_the_manifest_with_what_was_left_out(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("small");
    json_t *json = manifest_to_json(manifest);
    assert_string_equal(json_string_value(json_object_get(json, "source")), "small.cu");
    assert_int_equal(json_array_size(json_object_get(json, "default")), 1);
    assert_int_equal(json_array_size(json_object_get(json, "params")), 1);
    json_decref(json);
    manifest_destroy(manifest);
    manifest = load_valid("tiled");
    json = manifest_to_json(manifest);
    json_t *constraints = json_object_get(json, "constraints");
    assert_true(json_is_true(json_object_get(json_array_get(constraints, 0), "params_only")));
    assert_true(json_is_false(json_object_get(json_array_get(constraints, 2), "params_only")));
    json_decref(json);
    manifest_destroy(manifest);
}

static void each_dtype_has_a_size_a_type_and_a_roundoff(void **state)
{
    (void)state;
    assert_int_equal(dtype_bytes("f64"), 8);
    assert_int_equal(dtype_bytes("tf32"), 4);
    assert_int_equal(dtype_bytes("bf16"), 2);
    assert_int_equal(dtype_bytes("u8"), 1);
    assert_int_equal(dtype_bytes("T"), 0);
    assert_string_equal(dtype_c_type("bf16"), "__nv_bfloat16");
    assert_null(dtype_c_type("float"));
    assert_true(dtype_unit_roundoff("f16") == 0x1p-11);
    assert_true(dtype_unit_roundoff("i32") == 0);
    assert_string_equal(dtype_stored("tf32"), "f32");
    assert_string_equal(dtype_stored("f16"), "f16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_valid_case_is_read),
        cmocka_unit_test(every_invalid_case_is_refused_with_its_sentence),
        cmocka_unit_test(damaged_texts_do_no_harm),
        cmocka_unit_test(a_manifest_ends_at_one_mebibyte),
        cmocka_unit_test(constraints_know_when_they_can_be_checked),
        cmocka_unit_test(the_fields_of_the_estimate_may_read_everything),
        cmocka_unit_test(shapes_lie_as_far_apart_as_their_dims_and_ratios_double),
        cmocka_unit_test(a_choice_is_given_by_name_by_value_or_not_at_all),
        cmocka_unit_test(shapes_of_other_choices_are_at_no_distance),
        cmocka_unit_test(a_buffer_may_have_a_dtype_by_the_swept_one),
        cmocka_unit_test(slots_hold_device_dims_and_element_size),
        cmocka_unit_test(a_value_is_an_integer_or_a_name_and_nothing_else),
        cmocka_unit_test(configurations_and_shapes_go_through_json_and_text),
        cmocka_unit_test(only_the_canonical_text_is_read_back),
        cmocka_unit_test(a_tolerance_keeps_its_unit),
        cmocka_unit_test(the_canonical_form_ignores_order_and_layout_and_nothing_else),
        cmocka_unit_test(describe_shows_the_manifest_with_what_was_left_out),
        cmocka_unit_test(each_dtype_has_a_size_a_type_and_a_roundoff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
