/* Every kernel run and verified on the CPU: sampled configurations on awkward shapes, through the
 * emulator's libraries and the same bench role that a sweep uses. Also the other way round: a
 * kernel with a planted mistake must be found wrong, or the checks would prove nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels_under_test.h"
#include "sample.h"
#include "worker_link.h"

#include "plugins/plan.h"
#include "plugins/space.h"

#include <string.h>

#define SEED 20240607
#define SHAPE_LIMIT 16
#define COMPILERS 2

static struct worker_link compilers[COMPILERS], bench;
static struct device_info device;
static json_t *harness; /* answer of its compile */
static json_int_t session;

/* Ones, primes, one less and one more than a tile, tall, flat, and whole vectors. */
static const struct {
    const char *kernel;
    int64_t shapes[SHAPE_LIMIT][3];
} awkward[KERNEL_COUNT] = {
    {"gemm", {{1, 1, 1}, {1, 37, 5}, {41, 1, 13}, {31, 33, 8}, {65, 63, 17}, {64, 64, 64},
                 {200, 3, 2}, {2, 200, 40}, {7, 5, 301}, {36, 68, 132}, {129, 132, 20},
                 {300, 260, 68}, {131, 137, 139}}},
    {"transpose",
        {{1, 1}, {1, 67}, {67, 1}, {31, 33}, {65, 63}, {128, 128}, {3, 500}, {516, 4}, {132, 68}}},
    {"reduce", {{1}, {2}, {31}, {257}, {4096}, {10007}, {65537}}},
    {"softmax", {{1, 1}, {129, 1}, {3, 7}, {70, 33}, {37, 300}, {5, 1031}, {2, 3080}, {3, 9216},
                    {1, 65536}, {2, 40000}}},
};

static json_t *headers_of(const struct plugin *plugin)
{
    json_t *headers = json_array();
    for (size_t i = 0; i < plugin->header_count; i++)
        json_array_append_new(headers, json_pack("{s:s,s:s}", "name", plugin->headers[i].name,
                                           "text", plugin->headers[i].text));
    return headers;
}

/* values NULL: the reference. */
static json_t *compile_request(
    const struct plugin *plugin, const char *dtype, const char *source, const int64_t *values)
{
    struct tune_error err = {0};
    json_t *options =
        plan_defines(plugin->manifest, plugin->manifest->shapes[0], dtype, values, &err);
    if (!options)
        fail_msg("%s", err.text);
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:s,s:o,s:b}", "op", "compile", "name",
        plugin->source_name, "source", source, "headers", headers_of(plugin), "options", options,
        "arch", "cpu", "entries", plan_entries(plugin->manifest, values == NULL), "cache", 0);
}

static json_t *check_compiled(json_t *answer)
{
    if (!json_is_true(json_object_get(answer, "ok"))) {
        char *text = json_dumps(answer, 0);
        fail_msg("does not compile: %s", text ? text : "the worker died");
    }
    return answer;
}

/* Allocates inputs and runs the reference for one shape. */
static void set_up(
    const struct plugin *plugin, const char *dtype, const int64_t *dims, json_t *reference_image)
{
    struct tune_error err = {0};
    json_t *buffers = plan_buffers(plugin->manifest, &device, dims, dtype, NULL, &err);
    json_t *reference = plan_reference(plugin->manifest, &device, dims, dtype, &err);
    if (!buffers || !reference)
        fail_msg("%s", err.text);
    json_t *answer = worker_link_call(
        &bench, json_pack("{s:s,s:I,s:O,s:O,s:O,s:o,s:o,s:i,s:n}", "op", "setup", "session",
                    ++session, "harness", json_object_get(harness, "image"), "reference_image",
                    json_object_get(reference_image, "image"), "reference_names",
                    json_object_get(reference_image, "names"), "buffers", buffers, "reference",
                    reference, "seed", SEED, "hooks"));
    if (!json_is_true(json_object_get(answer, "ok"))) {
        char *text = json_dumps(answer, 0);
        fail_msg("%s: %s", plugin->manifest->name, text ? text : "the worker died");
    }
    json_decref(answer);
}

/* Runs one configuration against the reference; the outcome's word, malloc'ed. */
static char *bench_outcome(const struct plugin *plugin, const char *dtype, const int64_t *dims,
    const int64_t *values, json_t *image, char *detail, size_t room)
{
    struct tune_error err = {0};
    json_t *buffers = plan_buffers(plugin->manifest, &device, dims, dtype, values, &err);
    json_t *launches = plan_launches(plugin->manifest, &device, dims, dtype, values, &err);
    if (!buffers || !launches)
        fail_msg("%s", err.text);
    json_t *answer = worker_link_call(
        &bench, json_pack("{s:s,s:I,s:O,s:O,s:o,s:o,s:s,s:s,s:b,s:i,s:i,s:i,s:n}", "op", "bench",
                    "session", session, "image", json_object_get(image, "image"), "names",
                    json_object_get(image, "names"), "buffers", buffers, "launches", launches,
                    "mode", "cold", "method", "event", "verify", 1, "deadline_ms", 60000,
                    "sample_budget_ms", 1, "max_samples", 1, "stop_above_ns"));
    const char *word = json_string_value(json_object_get(answer, "outcome"));
    if (!word)
        fail_msg("the bench worker died");
    const char *sentence = json_string_value(json_object_get(answer, "error"));
    snprintf(detail, room, "%s", sentence ? sentence : "");
    char *outcome = strdup(word);
    json_decref(answer);
    return outcome;
}

/* --- right kernels are found right ------------------------------------------------------------ */

/* Compiles the sample on all compilers at once; answers in the sample's order. */
static json_t **compile_sample(
    const struct plugin *plugin, const char *dtype, const struct sample_set *sample)
{
    json_t **images = calloc(sample->count, sizeof *images);
    assert_non_null(images);
    for (size_t i = 0; i < sample->count + COMPILERS; i++) {
        if (i >= COMPILERS && i - COMPILERS < sample->count)
            images[i - COMPILERS] = check_compiled(worker_link_receive(&compilers[i % COMPILERS]));
        if (i < sample->count)
            assert_int_equal(
                worker_link_send(&compilers[i % COMPILERS],
                    compile_request(plugin, dtype, plugin->source, sample_row(sample, i))),
                0);
    }
    return images;
}

static void verify_shape(const struct plugin *plugin, const char *dtype, const int64_t *dims,
    const struct sample_set *sample, json_t **images, bool *was_run, size_t *runs)
{
    for (size_t i = 0; i < sample->count; i++) {
        int64_t slots[MANIFEST_MAX_SLOTS];
        char detail[240];
        manifest_bind(plugin->manifest, &device, dims, dtype, slots);
        if (space_check(plugin->manifest, sample_row(sample, i), slots, NULL) != 0)
            continue;
        char *outcome = bench_outcome(
            plugin, dtype, dims, sample_row(sample, i), images[i], detail, sizeof detail);
        if (strcmp(outcome, "ok") != 0)
            fail_msg("%s %s %s %s: %s: %s", plugin->manifest->name, dtype,
                manifest_shape_text(plugin->manifest, dims),
                manifest_config_text(plugin->manifest, sample_row(sample, i)), outcome, detail);
        free(outcome);
        was_run[i] = true;
        ++*runs;
    }
}

/* Of all configurations those that are valid for at least one of the shapes. */
static void sample_for_shapes(const struct manifest *manifest, const char *dtype,
    const int64_t (*shapes)[3], struct sample_set *out)
{
    struct sample_set all;
    int64_t slots[SHAPE_LIMIT][MANIFEST_MAX_SLOTS];
    sample_valid(manifest, dtype, &all);
    memset(out, 0, sizeof *out);
    for (size_t s = 0; s < SHAPE_LIMIT && shapes[s][0]; s++)
        manifest_bind(manifest, &device, shapes[s], dtype, slots[s]);
    for (size_t i = 0; i < all.count; i++)
        for (size_t s = 0; s < SHAPE_LIMIT && shapes[s][0]; s++)
            if (space_check(manifest, sample_row(&all, i), slots[s], NULL) == 0) {
                sample_add(out, manifest, sample_row(&all, i));
                break;
            }
    sample_finish_set(&all);
}

static void verify_kernel(
    const struct plugin *plugin, const char *dtype, const int64_t (*shapes)[3])
{
    struct sample_set all, sample;
    size_t runs = 0;
    sample_for_shapes(plugin->manifest, dtype, shapes, &all);
    sample_pairs(plugin->manifest, &all, SEED, &sample);
    json_t *reference = check_compiled(
        worker_link_call(&compilers[0], compile_request(plugin, dtype, plugin->source, NULL)));
    json_t **images = compile_sample(plugin, dtype, &sample);
    bool *was_run = calloc(sample.count, sizeof *was_run);
    assert_non_null(was_run);
    for (size_t s = 0; s < SHAPE_LIMIT && shapes[s][0]; s++) {
        set_up(plugin, dtype, shapes[s], reference);
        verify_shape(plugin, dtype, shapes[s], &sample, images, was_run, &runs);
    }
    for (size_t i = 0; i < sample.count; i++) {
        assert_true(was_run[i]);
        json_decref(images[i]);
    }
    print_message(
        "%s %s: %zu configurations, %zu runs\n", plugin->manifest->name, dtype, sample.count, runs);
    free(was_run);
    free(images);
    json_decref(reference);
    sample_finish_set(&all);
    sample_finish_set(&sample);
}

static void every_kernel_is_right_on_awkward_shapes(void **state)
{
    (void)state;
    for (size_t k = 0; k < KERNEL_COUNT; k++) {
        struct plugin *plugin = kernel_load(awkward[k].kernel);
        for (size_t t = 0; t < plugin->manifest->dtype_count; t++)
            verify_kernel(plugin, plugin->manifest->dtypes[t], awkward[k].shapes);
        plugin_unref(plugin);
    }
}

/* --- wrong kernels are found wrong ------------------------------------------------------------ */

static const struct {
    const char *kernel, *dtype, *what, *right, *wrong;
    int64_t dims[3];
} mistakes[] = {
    {"gemm", "f32", "leaves out the last line of K", "k_end = least(K, ", "k_end = least(K - 1, ",
        {33, 35, 29}},
    {"gemm", "f32", "reads the staged A unswizzled", "SWIZZLE ? m ^ (", "SWIZZLE && m % 2 ? m ^ (",
        {48, 40, 36}},
    {"gemm", "f32", "does not write the last column", "row < M && col < N",
        "row < M && col < N - 1", {48, 39, 36}},
    {"transpose", "f32", "does not write the last row", "m0 + x < M)", "m0 + x < M - 1)", {70, 45}},
    {"transpose", "f32", "writes tiles in place", "(n0 + y + i * STEP) * M + m0 + x",
        "(m0 + y + i * STEP) * M + n0 + x", {128, 128}},
    {"reduce", "f32", "leaves out the last element", "index < N ? ", "index < N - 1 ? ", {10007}},
    {"reduce", "f32", "adds the first warp twice", "t < BLOCK / 32 ? at[t] : 0.0f",
        "t < BLOCK / 32 ? at[t] : at[0]", {10007}},
    {"softmax", "f32", "leaves out the last element of a row", "if (col < end)\n            load",
        "if (col < end - 1)\n            load", {5, 1031}},
    {"softmax", "f32", "forgets a warp's sum", "lane < WARPS ?", "lane < WARPS - 1 ?", {3, 4096}},
    {"softmax", "f32", "does not scale a sum to the row's largest",
        "s.sum * __expf(s.max - base_of(max))", "s.sum", {5, 1031}},
    {"softmax", "f16", "does not scale the elements of a thread",
        "__expf(mine.max - all.max) / all.sum", "1.0f / all.sum", {5, 1031}},
    {"softmax", "f32", "forgets a part of a row", "i < SPLIT; i += 32", "i < SPLIT - 1; i += 32",
        {1, 131072}},
    {"softmax", "f32", "does not scale a sum when a larger element comes",
        "s.sum *= __expf(s.max - base)", "s.sum *= 1.0f", {33, 40000}},
};

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("the source no longer has \"%s\": plant this mistake elsewhere", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void a_planted_mistake_is_found_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct plugin *plugin = kernel_load(mistakes[i].kernel);
        const char *dtype = mistakes[i].dtype;
        struct tune_error err = {0};
        char detail[240];
        int64_t values[MANIFEST_MAX_PARAMS];
        struct space *space =
            space_create(plugin->manifest, &device, mistakes[i].dims, dtype, NULL, &err);
        if (!space)
            fail_msg("%s", err.text);
        space_config(space, space_default(space), values);
        size_t swizzle = manifest_find_param(plugin->manifest, "SWIZZLE");
        if (swizzle != SIZE_MAX && strstr(mistakes[i].right, "SWIZZLE")) {
            values[swizzle] = 1;
            values[manifest_find_param(plugin->manifest, "PAD")] = 0;
        }
        char *source = replaced(plugin->source, mistakes[i].right, mistakes[i].wrong);
        json_t *reference = check_compiled(
            worker_link_call(&compilers[0], compile_request(plugin, dtype, plugin->source, NULL)));
        json_t *image = check_compiled(
            worker_link_call(&compilers[0], compile_request(plugin, dtype, source, values)));
        set_up(plugin, dtype, mistakes[i].dims, reference);
        char *outcome =
            bench_outcome(plugin, dtype, mistakes[i].dims, values, image, detail, sizeof detail);
        if (strcmp(outcome, "wrong_result") != 0)
            fail_msg("%s that %s: %s %s", mistakes[i].kernel, mistakes[i].what, outcome, detail);
        free(outcome);
        free(source);
        json_decref(reference);
        json_decref(image);
        space_destroy(space);
        plugin_unref(plugin);
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

static json_t *compile_harness(void)
{
    char path[1024];
    json_t *headers = json_array();
    const char *root = getenv("TUNE_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/kernels_src/harness.cu", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot read %s", path);
    static char text[1 << 18];
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return check_compiled(worker_link_call(&compilers[0],
        json_pack("{s:s,s:s,s:s,s:o,s:[],s:s,s:[],s:b}", "op", "compile", "name", "harness.cu",
            "source", text, "headers", headers, "options", "arch", "cpu", "entries", "cache", 0)));
}

static int start_workers(void **state)
{
    (void)state;
    char folder[1024];
    struct tune_error err = {0};
    const char *build = getenv("TUNE_BUILD_DIR");
    snprintf(folder, sizeof folder, "%s/lib/tunerd/emulator", build ? build : ".");
    setenv("TUNE_LOCK_DIR", build ? build : ".", 0);
    for (size_t i = 0; i < COMPILERS; i++)
        if (worker_link_start(&compilers[i], "compile", folder, &err) != 0)
            fail_msg("%s", err.text);
    if (worker_link_start(&bench, "bench", folder, &err) != 0 ||
        device_from_json(json_object_get(bench.hello, "device"), &device, &err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(device.arch, "cpu");
    harness = compile_harness();
    return 0;
}

static int stop_workers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMPILERS; i++)
        worker_link_stop(&compilers[i]);
    worker_link_stop(&bench);
    json_decref(harness);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_is_right_on_awkward_shapes),
        cmocka_unit_test(a_planted_mistake_is_found_wrong),
    };
    return cmocka_run_group_tests(tests, start_workers, stop_workers);
}
