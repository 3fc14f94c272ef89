/* plugins/space: the walk against brute force, finding, neighbours, filters, and what it tells. */
#include "support.h"

#include "plugins/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t tiled_dims[] = {128, 128, 64};

/* Every combination of values, each asked by space_check: the slow way to the same set. */
static size_t brute_force(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, int64_t (*out)[MANIFEST_MAX_PARAMS], size_t room)
{
    size_t index[MANIFEST_MAX_PARAMS] = {0}, count = 0;
    for (;;) {
        int64_t values[MANIFEST_MAX_PARAMS], slots[MANIFEST_MAX_SLOTS];
        for (size_t i = 0; i < manifest->param_count; i++)
            values[i] = manifest->params[i].values[index[i]];
        manifest_bind(manifest, device, dims, "f32", slots);
        if (space_check(manifest, values, slots, NULL) == 0) {
            assert_true(count < room);
            memcpy(out[count++], values, sizeof values);
        }
        size_t at = manifest->param_count;
        while (at > 0 && ++index[at - 1] == manifest->params[at - 1].value_count)
            index[--at] = 0;
        if (at == 0)
            return count;
    }
}

static void compare_with_brute_force(const char *arch)
{
    static int64_t expected[1024][MANIFEST_MAX_PARAMS];
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of(arch);
    struct space *space = space_create(manifest, &device, tiled_dims, "f32", NULL, NULL);
    size_t count = brute_force(manifest, &device, tiled_dims, expected, 1024);
    assert_int_equal(space_count(space), count);
    for (size_t i = 0; i < count; i++) {
        int64_t values[MANIFEST_MAX_PARAMS];
        space_config(space, i, values);
        assert_memory_equal(values, expected[i], manifest->param_count * sizeof values[0]);
        assert_int_equal(space_find(space, values), i);
    }
    assert_ptr_equal(space_manifest(space), manifest);
    space_destroy(space);
    manifest_destroy(manifest);
}

static void the_space_is_what_brute_force_finds_in_the_same_order(void **state)
{
    (void)state;
    compare_with_brute_force("sm_90");
    compare_with_brute_force("sm_80");
}

static void requirements_depend_on_the_device(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info old = device_of("sm_80"), hopper = device_of("sm_90");
    struct space *fewer = space_create(manifest, &old, tiled_dims, "f32", NULL, NULL);
    struct space *more = space_create(manifest, &hopper, tiled_dims, "f32", NULL, NULL);
    /* A third of all 3 * 3 * 3 * 3 * 2 falls with wgmma. */
    assert_int_equal(space_removed(fewer, 5), 54);
    assert_int_equal(space_removed(more, 5), 0);
    assert_true(space_count(fewer) < space_count(more));
    space_destroy(fewer);
    space_destroy(more);
    manifest_destroy(manifest);
}

static void all_configurations_are_valid_or_removed_once(void **state)
{
    (void)state;
    const char *first;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_80");
    struct space *space = space_create(manifest, &device, tiled_dims, "f32", NULL, NULL);
    size_t sum = space_count(space) + space_errors(space, &first);
    for (size_t i = 0; i < manifest->constraint_count + manifest->requirement_count; i++)
        sum += space_removed(space, i);
    assert_int_equal(sum, 3 * 3 * 3 * 3 * 2);
    assert_null(first);
    space_destroy(space);
    manifest_destroy(manifest);
}

static struct space *create_small(
    const char *changes, struct manifest **manifest, int64_t dim, struct tune_error *err)
{
    struct device_info device = device_of("sm_90");
    *manifest = load_changed("small", changes, err);
    return *manifest ? space_create(*manifest, &device, &dim, "f32", NULL, err) : NULL;
}

static void a_peers_favourite_constraint_does_not_empty_the_space(void **state)
{
    (void)state;
    struct manifest *manifest;
    struct space *space = create_small(
        "{\"params\":[{\"name\":\"BM\",\"meaning\":\"m\",\"values\":[64,128]},"
        "{\"name\":\"BN\",\"meaning\":\"m\",\"values\":[64,128]},"
        "{\"name\":\"TM\",\"meaning\":\"m\",\"values\":[4,8]},"
        "{\"name\":\"TN\",\"meaning\":\"m\",\"values\":[4,8]},"
        "{\"name\":\"THREADS\",\"meaning\":\"m\",\"values\":[64,128,256,512,1024]}],"
        "\"launches\":[{\"entry\":\"small\",\"grid\":[1],\"block\":[\"THREADS\"]}],"
        "\"constraints\":[{\"expr\":\"THREADS == (BM/TM)*(BN/TN)\",\"message\":\"m\"}],"
        "\"default\":{\"BM\":64,\"BN\":64,\"TM\":4,\"TN\":4,\"THREADS\":256}}",
        &manifest, 1000, NULL);
    assert_non_null(space);
    assert_int_equal(space_count(space), 16); /* one number of threads for each tile */
    space_destroy(space);
    manifest_destroy(manifest);
}

static void an_empty_space_names_what_removed_the_most(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    assert_null(create_small("{\"constraints\":["
                             "{\"expr\":\"BLOCK > 64\",\"message\":\"the block is small\"},"
                             "{\"expr\":\"BLOCK * N < 128\",\"message\":\"there is too much\"}],"
                             "\"params\":[{\"name\":\"BLOCK\",\"meaning\":\"m\","
                             "\"values\":[64,128,256,512]}]}",
        &manifest, 7, &err));
    assert_int_equal(err.code, TUNE_EEMPTY);
    assert_non_null(strstr(err.text, "3 of 4 removed by \"BLOCK * N < 128\" (there is too much)"));
    manifest_destroy(manifest);
}

static void subtrees_count_by_their_configurations(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    assert_null(
        create_small("{\"params\":[{\"name\":\"A\",\"meaning\":\"m\",\"values\":[1,2,3]},"
                     "{\"name\":\"B\",\"meaning\":\"m\",\"values\":[1,2,3,4,5,6,7,8,9,10]},"
                     "{\"name\":\"BLOCK\",\"meaning\":\"m\",\"values\":[64]}],\"default\":{\"A\":1,"
                     "\"B\":1,\"BLOCK\":64},"
                     "\"constraints\":[{\"expr\":\"A == 1\",\"message\":\"two cuts worth twenty\"},"
                     "{\"expr\":\"B > 10\",\"message\":\"ten cuts worth ten\"}]}",
            &manifest, 1, &err));
    assert_non_null(strstr(err.text, "20 of 30 removed by \"A == 1\""));
    manifest_destroy(manifest);
}

static void a_requirement_can_be_what_empties_a_space(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    assert_null(create_small("{\"requires\":[{\"sm\":\"sm >= 100\"}]}", &manifest, 1, &err));
    assert_int_equal(err.code, TUNE_EEMPTY);
    assert_non_null(strstr(err.text, "\"sm >= 100\" (required of the device)"));
    manifest_destroy(manifest);
}

static void what_cannot_be_evaluated_is_left_out_and_counted_apart(void **state)
{
    (void)state;
    const char *first;
    struct manifest *manifest;
    struct space *space = create_small(
        "{\"derived\":[{\"name\":\"Q\",\"expr\":\"N / (BLOCK - 64)\",\"meaning\":\"m\"}]}",
        &manifest, 1000, NULL);
    assert_non_null(space);
    assert_int_equal(space_count(space), 1);
    assert_int_equal(space_errors(space, &first), 1);
    assert_non_null(strstr(first, "division by zero in \"N / (BLOCK - 64)\""));
    space_destroy(space);
    manifest_destroy(manifest);

    struct tune_error err = {0};
    assert_null(create_small("{\"constraints\":[{\"expr\":\"N * N > BLOCK\",\"message\":\"m\"}]}",
        &manifest, INT64_C(1) << 62, &err));
    assert_int_equal(err.code, TUNE_EEMPTY);
    assert_non_null(strstr(err.text, "2 of 2 could not be evaluated: 64-bit overflow"));
    manifest_destroy(manifest);
}

static void the_default_is_the_first_that_is_valid_for_the_shape(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_80");
    int64_t one[] = {1, 1, 1}, values[MANIFEST_MAX_PARAMS];
    struct space *wide = space_create(manifest, &device, tiled_dims, "f32", NULL, NULL);
    struct space *narrow = space_create(manifest, &device, one, "f32", NULL, NULL);
    space_config(wide, space_default(wide), values);
    assert_memory_equal(values, manifest->defaults[0], 5 * sizeof values[0]);
    space_config(narrow, space_default(narrow), values); /* SPLIT 2 is more than K */
    assert_memory_equal(values, manifest->defaults[1], 5 * sizeof values[0]);
    space_destroy(wide);
    space_destroy(narrow);
    manifest_destroy(manifest);
}

static void a_filter_leaves_the_values_asked_for(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    struct space_filter filter;
    json_t *json = parse_json("{\"BM\":[32,64],\"VARIANT\":\"wgmma\",\"SPLIT\":2}");
    assert_int_equal(space_filter_from_json(&filter, manifest, json, NULL), 0);
    json_decref(json);
    struct space *space = space_create(manifest, &device, tiled_dims, "f32", &filter, NULL);
    assert_true(space_count(space) > 0);
    for (size_t i = 0; i < space_count(space); i++) {
        int64_t values[MANIFEST_MAX_PARAMS];
        space_config(space, i, values);
        assert_int_equal(values[0], 2);
        assert_true(values[1] == 32 || values[1] == 64);
        assert_int_equal(values[4], 2);
    }
    /* The default stays at hand, behind the configurations of the space. */
    int64_t values[MANIFEST_MAX_PARAMS];
    assert_int_equal(space_default(space), space_count(space));
    space_config(space, space_default(space), values);
    assert_memory_equal(values, manifest->defaults[0], manifest->param_count * sizeof values[0]);
    assert_int_equal(space_find(space, manifest->defaults[0]), space_count(space));
    space_destroy(space);
    manifest_destroy(manifest);
}

static void a_filter_of_values_that_are_not_there_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{\"BM\":[17]}", "{\"BM\":\"0x10\"}", "{\"BM\":[]}",
        "{\"PAD\":1}", "{\"BM\":[16,16.0]}", "{\"BM\":{}}", "[1]", "{\"VARIANT\":\"none\"}"};
    struct manifest *manifest = load_valid("tiled");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct space_filter filter;
        struct tune_error err = {0};
        json_t *json = parse_json(wrong[i]);
        if (space_filter_from_json(&filter, manifest, json, &err) == 0)
            fail_msg("%s is taken", wrong[i]);
        assert_int_equal(err.code, TUNE_EINVAL);
        json_decref(json);
    }
    manifest_destroy(manifest);
}

static size_t differing_params(const struct space *space, size_t a, size_t b, size_t *distance)
{
    int64_t first[MANIFEST_MAX_PARAMS], second[MANIFEST_MAX_PARAMS];
    const struct manifest *manifest = space_manifest(space);
    size_t differing = 0;
    space_config(space, a, first);
    space_config(space, b, second);
    for (size_t i = 0; i < manifest->param_count; i++) {
        size_t at[2] = {0, 0};
        while (manifest->params[i].values[at[0]] != first[i])
            at[0]++;
        while (manifest->params[i].values[at[1]] != second[i])
            at[1]++;
        if (at[0] != at[1]) {
            differing++;
            *distance = at[0] > at[1] ? at[0] - at[1] : at[1] - at[0];
        }
    }
    return differing;
}

static void neighbours_are_all_that_differ_in_one_param_nearest_first(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_90");
    struct space *space = space_create(manifest, &device, tiled_dims, "f32", NULL, NULL);
    for (size_t i = 0; i < space_count(space); i++) {
        size_t out[64], expected = 0, before = 0, distance = 0;
        size_t count = space_neighbours(space, i, out, 64);
        for (size_t j = 0; j < space_count(space); j++)
            expected += differing_params(space, i, j, &distance) == 1;
        assert_int_equal(count, expected);
        for (size_t j = 0; j < count; j++) {
            assert_int_equal(differing_params(space, i, out[j], &distance), 1);
            assert_true(distance >= before);
            before = distance;
        }
        assert_int_equal(space_neighbours(space, i, out, 2), count < 2 ? count : 2);
    }
    space_destroy(space);
    manifest_destroy(manifest);
}

static void a_check_tells_why_a_configuration_is_refused(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("tiled");
    struct device_info device = device_of("sm_80");
    int64_t slots[MANIFEST_MAX_SLOTS];
    static const struct {
        int64_t values[5];
        const char *reason;
    } refused[] = {
        {{1, 2048, 16, 1, 1}, "2048 is not one of the values of param BM"},
        {{1, 64, 64, 1, 1}, "a block holds more threads than the device allows (\"THREADS"},
        {{0, 16, 16, 1, 2}, "the naive variant does not split"},
        {{2, 16, 16, 1, 1}, "needs a device with \"sm >= 90\""},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct tune_error err = {0};
        manifest_bind(manifest, &device, tiled_dims, "f32", slots);
        assert_int_equal(space_check(manifest, refused[i].values, slots, &err), -1);
        assert_int_equal(err.code, TUNE_EINVAL);
        if (strstr(err.text, refused[i].reason) == NULL)
            fail_msg("got \"%s\", expected \"%s\"", err.text, refused[i].reason);
    }
    int64_t good[] = {1, 32, 16, 2, 1};
    manifest_bind(manifest, &device, tiled_dims, "f32", slots);
    assert_int_equal(space_check(manifest, good, slots, NULL), 0);
    assert_int_equal(slots[manifest_derived_slot(manifest, 0)], 256); /* 32 / 2 * 16 */
    assert_int_equal(slots[manifest_derived_slot(manifest, 1)], 32);  /* 4 * 8 */
    manifest_destroy(manifest);
}

/* {"params": `count` params of values 0..n-1} and their default */
static char *wide_params(size_t count, int n, const char *constraints)
{
    char *text = malloc(65536);
    size_t used = (size_t)sprintf(text,
        "{\"constraints\":%s,\"launches\":[{\"entry\":\"small\"}],"
        "\"params\":[",
        constraints);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)sprintf(
            text + used, "%s{\"name\":\"P%zu\",\"meaning\":\"m\",\"values\":[0", i ? "," : "", i);
        for (int j = 1; j < n; j++)
            used += (size_t)sprintf(text + used, ",%d", j);
        used += (size_t)sprintf(text + used, "]}");
    }
    used += (size_t)sprintf(text + used, "],\"default\":{");
    for (size_t i = 0; i < count; i++)
        used += (size_t)sprintf(text + used, "%s\"P%zu\":0", i ? "," : "", i);
    sprintf(text + used, "}}");
    return text;
}

static void a_million_configurations_are_the_most(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    char *million = wide_params(6, 10, "[]");
    struct space *space = create_small(million, &manifest, 1, NULL);
    assert_int_equal(space_count(space), SPACE_CONFIG_LIMIT);
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(space, 987654, values);
    assert_int_equal(values[0], 9);
    assert_int_equal(values[5], 4);
    assert_int_equal(space_find(space, values), 987654);
    space_destroy(space);
    manifest_destroy(manifest);
    free(million);

    char *more = wide_params(7, 10, "[{\"expr\":\"P0 < 2\",\"message\":\"m\"}]");
    assert_null(create_small(more, &manifest, 1, &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_non_null(strstr(err.text, "more than 1000000 valid configurations"));
    manifest_destroy(manifest);
    free(more);
}

/* 64^5 leaves, all of them looked at because only the last param decides. */
static void a_walk_without_an_end_in_sight_is_given_up(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    char *late = wide_params(5, 64, "[{\"expr\":\"P4 > 64\",\"message\":\"m\"}]");
    assert_null(create_small(late, &manifest, 1, &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_non_null(strstr(err.text, "200000000 nodes walked; restrict its params"));
    manifest_destroy(manifest);
    free(late);
}

/* 64^32 overflows any counter; one early constraint makes the space small again. */
static void counters_of_an_immense_space_stop_at_their_maximum(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct manifest *manifest;
    char *immense = wide_params(32, 64, "[{\"expr\":\"P0 > 64\",\"message\":\"m\"}]");
    assert_null(create_small(immense, &manifest, 1, &err));
    assert_int_equal(err.code, TUNE_EEMPTY);
    assert_non_null(strstr(err.text, "removed by \"P0 > 64\""));
    manifest_destroy(manifest);
    free(immense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_space_is_what_brute_force_finds_in_the_same_order),
        cmocka_unit_test(requirements_depend_on_the_device),
        cmocka_unit_test(all_configurations_are_valid_or_removed_once),
        cmocka_unit_test(a_peers_favourite_constraint_does_not_empty_the_space),
        cmocka_unit_test(an_empty_space_names_what_removed_the_most),
        cmocka_unit_test(subtrees_count_by_their_configurations),
        cmocka_unit_test(a_requirement_can_be_what_empties_a_space),
        cmocka_unit_test(what_cannot_be_evaluated_is_left_out_and_counted_apart),
        cmocka_unit_test(the_default_is_the_first_that_is_valid_for_the_shape),
        cmocka_unit_test(a_filter_leaves_the_values_asked_for),
        cmocka_unit_test(a_filter_of_values_that_are_not_there_is_refused),
        cmocka_unit_test(neighbours_are_all_that_differ_in_one_param_nearest_first),
        cmocka_unit_test(a_check_tells_why_a_configuration_is_refused),
        cmocka_unit_test(a_million_configurations_are_the_most),
        cmocka_unit_test(a_walk_without_an_end_in_sight_is_given_up),
        cmocka_unit_test(counters_of_an_immense_space_stop_at_their_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
