/* Large spaces: the published hotspot space (22.2 million points, 414,920 valid), walked by brute
 * force beside, and ten params of 10^8 points. */
#include "plugins/space.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_valid(const int64_t *v)
{
    int64_t threads = v[0] * v[1];
    int64_t bytes = (v[0] * v[2] + v[4] * 2) * (v[1] * v[3] + v[4] * 2) * (2 + v[6]) * 4;
    return threads >= 32 && threads <= 1024 && v[4] % v[5] == 0 && bytes <= 49152;
}

static struct space *space_of(const struct manifest *manifest)
{
    struct tune_error err = {0};
    struct device_info device = device_of("sm_90");
    int64_t dims[MANIFEST_MAX_DIMS] = {4096};
    struct space *space = space_create(manifest, &device, dims, "f32", NULL, &err);
    if (space == NULL)
        fail_msg("%s", err.text);
    return space;
}

static void the_hotspot_space_has_its_published_size(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("hotspot");
    struct space *space = space_of(manifest);
    assert_int_equal(space_count(space), 414920);
    space_destroy(space);
    manifest_destroy(manifest);
}

/* The next point of the Cartesian product, in the order of the space; false after the last. */
static bool next_point(const struct manifest *manifest, size_t *at, int64_t *values)
{
    for (size_t i = manifest->param_count; i-- > 0;) {
        at[i] = (at[i] + 1) % manifest->params[i].value_count;
        values[i] = manifest->params[i].values[at[i]];
        if (at[i] != 0)
            return true;
    }
    return false;
}

static void it_holds_every_valid_point_once_and_in_order(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("hotspot");
    struct space *space = space_of(manifest);
    size_t at[MANIFEST_MAX_PARAMS] = {0}, index = 0, points = 0;
    int64_t values[MANIFEST_MAX_PARAMS], found[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < manifest->param_count; i++)
        values[i] = manifest->params[i].values[0];
    do {
        points++;
        if (!is_valid(values))
            continue;
        space_config(space, index, found);
        assert_memory_equal(found, values, manifest->param_count * sizeof values[0]);
        index++;
    } while (next_point(manifest, at, values));
    assert_int_equal(points, 22200000);
    assert_int_equal(index, space_count(space));
    space_destroy(space);
    manifest_destroy(manifest);
}

static void nth_find_and_neighbours_agree(void **state)
{
    (void)state;
    struct manifest *manifest = load_valid("hotspot");
    struct space *space = space_of(manifest);
    int64_t values[MANIFEST_MAX_PARAMS], other[MANIFEST_MAX_PARAMS];
    size_t near[256];
    for (size_t index = 0; index < space_count(space); index += 9973) {
        space_config(space, index, values);
        assert_int_equal(space_find(space, values), index);
        size_t count = space_neighbours(space, index, near, 256);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            space_config(space, near[i], other);
            size_t different = 0;
            for (size_t p = 0; p < manifest->param_count; p++)
                different += other[p] != values[p];
            assert_int_equal(different, 1);
            assert_true(is_valid(other));
        }
    }
    space_destroy(space);
    manifest_destroy(manifest);
}

/* Ten params of 6 or 7 values, 10^8 points; each constraint ties two neighbours, so that whole
 * subtrees go. Each value is its neighbour's or one more: such chains are counted beside, by
 * dynamic programming. */
static void chain_name(char name[8], int i)
{
    if (i == 0)
        strcpy(name, "BLOCK"); /* the launch reads it */
    else
        snprintf(name, 8, "P%d", i);
}

static json_t *chain_manifest(void)
{
    struct manifest *small = load_valid("small");
    json_t *manifest = json_loads(small->canonical, 0, NULL);
    json_t *params = json_array(), *constraints = json_array(), *standard = json_object();
    manifest_destroy(small);
    for (int i = 0; i < 10; i++) {
        char name[8], before[8], expr[64];
        json_t *values = json_array();
        for (int v = 0; v < (i < 4 ? 7 : 6); v++)
            json_array_append_new(values, json_integer(v));
        chain_name(name, i);
        json_array_append_new(
            params, json_pack("{s:s, s:s, s:o}", "name", name, "meaning", "m", "values", values));
        json_object_set_new(standard, name, json_integer(0));
        if (i == 0)
            continue;
        chain_name(before, i - 1);
        snprintf(expr, sizeof expr, "%s == %s || %s == %s + 1", name, before, name, before);
        json_array_append_new(constraints, json_pack("{s:s, s:s}", "expr", expr, "message", "m"));
    }
    json_object_set_new(manifest, "params", params);
    json_object_set_new(manifest, "constraints", constraints);
    json_object_set_new(manifest, "default", standard);
    return manifest;
}

static void ten_params_of_a_hundred_million_points_are_not_walked(void **state)
{
    (void)state;
    struct tune_error err = {0};
    json_t *json = chain_manifest();
    char *text = json_dumps(json, 0);
    struct manifest *manifest = manifest_create(text, strlen(text), "chain", &err);
    free(text);
    json_decref(json);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    struct space *space = space_of(manifest);
    double points = 1, total = 0, chains[7] = {1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < manifest->param_count; i++)
        points *= (double)manifest->params[i].value_count;
    assert_true(points > 1e8);
    for (int i = 1; i < 10; i++) {
        double next[7];
        for (int v = 0; v < 7; v++)
            next[v] = v >= (i < 4 ? 7 : 6) ? 0 : chains[v] + (v > 0 ? chains[v - 1] : 0);
        memcpy(chains, next, sizeof chains);
    }
    for (int v = 0; v < 7; v++)
        total += chains[v];
    assert_int_equal(space_count(space), (size_t)total);
    space_destroy(space);
    manifest_destroy(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hotspot_space_has_its_published_size),
        cmocka_unit_test(it_holds_every_valid_point_once_and_in_order),
        cmocka_unit_test(nth_find_and_neighbours_agree),
        cmocka_unit_test(ten_params_of_a_hundred_million_points_are_not_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
