/* A kernel (argv[1]) run and verified on the CPU: sampled configurations on awkward shapes, through
 * the emulator's libraries and the same bench role that a sweep uses. Also the other way round: one
 * with a planted mistake must be found wrong, or the checks would prove nothing. */
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
#define COMPILERS 2

static struct worker_link compilers[COMPILERS], bench;
static struct device_info device;
static json_t *harness; /* answer of its compile */
static json_int_t session;
static struct kernel_cases cases;

/* values NULL: the reference. */
static json_t *compile_request(
    const char *dtype, const char *source, const int64_t *dims, const int64_t *values)
{
    return kernel_compile_request(cases.plugin, source, dtype, "cpu", dims, values);
}

static json_t *check_compiled(json_t *answer)
{
    if (!json_is_true(json_object_get(answer, "ok"))) {
        char *text = json_dumps(answer, 0);
        fail_msg("does not compile: %s", text ? text : "the worker died");
    }
    return answer;
}

/* Random inputs with NaN, infinities, -0 and denormal numbers among them (kernels_src/harness.cu).
 */
static void fill_specially(json_t *buffers)
{
    size_t i;
    json_t *buffer;
    json_array_foreach (buffers, i, buffer) {
        const char *fill = json_string_value(json_object_get(buffer, "fill"));
        if (fill && strcmp(fill, "uniform") == 0)
            json_object_set_new(buffer, "fill", json_string("special"));
    }
}

/* Allocates inputs and runs the reference for one shape. */
static void set_up(const char *dtype, const int64_t *dims, json_t *reference_image, bool is_special)
{
    const struct plugin *plugin = cases.plugin;
    struct tune_error err = {0};
    json_t *buffers = plan_buffers(plugin->manifest, &device, dims, dtype, NULL, &err);
    json_t *reference = plan_reference(plugin->manifest, &device, dims, dtype, &err);
    if (!buffers || !reference)
        fail_msg("%s", err.text);
    if (is_special)
        fill_specially(buffers);
    json_t *answer = worker_link_call(&bench,
        json_pack("{s:s,s:I,s:O,s:O,s:O,s:o,s:o,s:i,s:s?,s:{s:s,s:s,s:o}}", "op", "setup",
            "session", ++session, "harness", json_object_get(harness, "image"), "reference_image",
            json_object_get(reference_image, "image"), "reference_names",
            json_object_get(reference_image, "names"), "buffers", buffers, "reference", reference,
            "seed", SEED, "hooks", plugin->hooks, "call", "kernel", plugin->manifest->name, "dtype",
            dtype, "dims", manifest_shape_to_json(plugin->manifest, dims)));
    if (!json_is_true(json_object_get(answer, "ok"))) {
        char *text = json_dumps(answer, 0);
        fail_msg("%s: %s", plugin->manifest->name, text ? text : "the worker died");
    }
    json_decref(answer);
}

/* Runs one configuration against the reference; the outcome's word, malloc'ed. */
static char *bench_outcome(const char *dtype, const int64_t *dims, const int64_t *values,
    json_t *image, char *detail, size_t room)
{
    const struct plugin *plugin = cases.plugin;
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
    const char *dtype, const int64_t *dims, const struct sample_set *sample)
{
    json_t **images = calloc(sample->count, sizeof *images);
    assert_non_null(images);
    for (size_t i = 0; i < sample->count + COMPILERS; i++) {
        if (i >= COMPILERS && i - COMPILERS < sample->count)
            images[i - COMPILERS] = check_compiled(worker_link_receive(&compilers[i % COMPILERS]));
        if (i < sample->count)
            assert_int_equal(
                worker_link_send(&compilers[i % COMPILERS],
                    compile_request(dtype, cases.plugin->source, dims, sample_row(sample, i))),
                0);
    }
    return images;
}

/* A sample that is compiled for one group of shapes. */
struct trial {
    const char *dtype;
    struct sample_set sample;
    json_t **images;
    bool *was_run;
    size_t runs;
};

static void verify_shape(struct trial *trial, const int64_t *dims)
{
    const struct manifest *manifest = cases.plugin->manifest;
    for (size_t i = 0; i < trial->sample.count; i++) {
        const int64_t *values = sample_row(&trial->sample, i);
        int64_t slots[MANIFEST_MAX_SLOTS];
        char detail[240];
        manifest_bind(manifest, &device, dims, trial->dtype, slots);
        if (space_check(manifest, values, slots, NULL) != 0)
            continue;
        char *outcome =
            bench_outcome(trial->dtype, dims, values, trial->images[i], detail, sizeof detail);
        if (strcmp(outcome, "ok") != 0)
            fail_msg("%s %s %s %s: %s: %s", manifest->name, trial->dtype,
                manifest_shape_text(manifest, dims), manifest_config_text(manifest, values),
                outcome, detail);
        free(outcome);
        trial->was_run[i] = true;
        trial->runs++;
    }
}

/* Of all configurations those that are valid for at least one shape of the group of `first`. */
static void sample_for_group(const char *dtype, size_t first, struct sample_set *out)
{
    const struct manifest *manifest = cases.plugin->manifest;
    struct sample_set all;
    int64_t slots[MANIFEST_MAX_SLOTS];
    sample_valid(manifest, dtype, &all);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < all.count; i++)
        for (size_t s = first; s < cases.shape_count; s++) {
            if (!kernel_cases_same_group(&cases, first, s))
                continue;
            manifest_bind(manifest, &device, cases.shapes[s], dtype, slots);
            if (space_check(manifest, sample_row(&all, i), slots, NULL) == 0) {
                sample_add(out, manifest, sample_row(&all, i));
                break;
            }
        }
    sample_finish_set(&all);
}

/* The shape of the group of `first` with the most elements, choices apart. */
static size_t largest_of_group(size_t first)
{
    const struct manifest *manifest = cases.plugin->manifest;
    size_t largest = first;
    double most = 0;
    for (size_t s = first; s < cases.shape_count; s++) {
        double elements = 1;
        for (size_t d = 0; d < manifest->dim_count; d++)
            elements *= manifest->dims[d].value_count ? 1 : (double)cases.shapes[s][d];
        if (kernel_cases_same_group(&cases, first, s) && elements > most) {
            most = elements;
            largest = s;
        }
    }
    return largest;
}

static void verify_group(const char *dtype, size_t first, size_t limit, bool is_main)
{
    const int64_t *dims = cases.shapes[first];
    struct sample_set all;
    struct trial trial = {.dtype = dtype};
    sample_for_group(dtype, first, &all);
    sample_pairs(cases.plugin->manifest, &all, limit, is_main, SEED, &trial.sample);
    assert_true(trial.sample.count > 0);
    json_t *reference = check_compiled(
        worker_link_call(&compilers[0], compile_request(dtype, cases.plugin->source, dims, NULL)));
    trial.images = compile_sample(dtype, dims, &trial.sample);
    trial.was_run = calloc(trial.sample.count, sizeof *trial.was_run);
    assert_non_null(trial.was_run);
    for (size_t s = first; s < cases.shape_count; s++) {
        if (!kernel_cases_same_group(&cases, first, s))
            continue;
        set_up(dtype, cases.shapes[s], reference, false);
        verify_shape(&trial, cases.shapes[s]);
    }
    /* NaN and infinity pass through as the operation says. In a long row one hides the others. */
    for (size_t s = first; s < cases.shape_count && dtype_unit_roundoff(dtype) > 0; s++) {
        if (!kernel_cases_same_group(&cases, first, s) ||
            (!is_main && s != largest_of_group(first)))
            continue;
        set_up(dtype, cases.shapes[s], reference, true);
        verify_shape(&trial, cases.shapes[s]);
    }
    for (size_t i = 0; i < trial.sample.count; i++) {
        assert_true(trial.was_run[i]);
        json_decref(trial.images[i]);
    }
    char *shape = manifest_shape_text(cases.plugin->manifest, dims);
    print_message("%s %s as %s: %zu of %zu configurations, %zu runs\n",
        cases.plugin->manifest->name, dtype, shape, trial.sample.count, all.count, trial.runs);
    free(shape);
    free(trial.was_run);
    free(trial.images);
    json_decref(reference);
    sample_finish_set(&all);
    sample_finish_set(&trial.sample);
}

static void it_is_right_on_awkward_shapes(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    for (size_t t = 0; t < manifest->dtype_count; t++)
        for (size_t first = 0; first < cases.shape_count;
             first = kernel_cases_next_group(&cases, first + 1)) {
            bool is_main = t == 0 && first == 0;
            verify_group(manifest->dtypes[t], first,
                is_main ? cases.configs : (cases.configs + 3) / 4, is_main);
        }
}

/* --- wrong kernels are found wrong ------------------------------------------------------------ */

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

/* The default for these dims with what the mistake asks for instead. */
static void config_of(
    const json_t *mistake, const char *dtype, const int64_t *dims, int64_t *values)
{
    const struct manifest *manifest = cases.plugin->manifest;
    struct tune_error err = {0};
    const char *name;
    json_t *value;
    int64_t slots[MANIFEST_MAX_SLOTS];
    struct space *space = space_create(manifest, &device, dims, dtype, NULL, &err);
    if (!space)
        fail_msg("%s", err.text);
    space_config(space, space_default(space), values);
    space_destroy(space);
    json_object_foreach (json_object_get(mistake, "config"), name, value) {
        size_t param = manifest_find_param(manifest, name);
        assert_true(param != SIZE_MAX);
        if (manifest_param_value(&manifest->params[param], value, &values[param], &err) != 0)
            fail_msg("%s", err.text);
    }
    manifest_bind(manifest, &device, dims, dtype, slots);
    if (space_check(manifest, values, slots, &err) != 0)
        fail_msg("a mistake's configuration is not valid: %s", err.text);
}

static void check_mistake(const json_t *mistake)
{
    const char *what, *dtype, *right, *wrong;
    const json_t *shape;
    int64_t dims[MANIFEST_MAX_DIMS], values[MANIFEST_MAX_PARAMS];
    struct tune_error err = {0};
    char detail[240];
    assert_int_equal(json_unpack((json_t *)mistake, "{s:s,s:s,s:o,s:s,s:s}", "what", &what, "dtype",
                         &dtype, "shape", &shape, "right", &right, "wrong", &wrong),
        0);
    if (manifest_shape_from_json(cases.plugin->manifest, shape, dims, &err) != 0)
        fail_msg("%s", err.text);
    config_of(mistake, dtype, dims, values);
    char *source = replaced(cases.plugin->source, right, wrong);
    json_t *reference = check_compiled(
        worker_link_call(&compilers[0], compile_request(dtype, cases.plugin->source, dims, NULL)));
    json_t *image = check_compiled(
        worker_link_call(&compilers[0], compile_request(dtype, source, dims, values)));
    set_up(dtype, dims, reference, false);
    char *outcome = bench_outcome(dtype, dims, values, image, detail, sizeof detail);
    if (strcmp(outcome, "wrong_result") != 0)
        fail_msg("%s that %s: %s %s", cases.plugin->manifest->name, what, outcome, detail);
    free(outcome);
    free(source);
    json_decref(reference);
    json_decref(image);
}

static void a_planted_mistake_is_found_wrong(void **state)
{
    (void)state;
    const json_t *mistakes = json_object_get(cases.json, "mistakes");
    size_t i;
    json_t *mistake;
    assert_true(json_array_size(mistakes) >= 2);
    json_array_foreach (mistakes, i, mistake)
        check_mistake(mistake);
}

/* --- workers ---------------------------------------------------------------------------------- */

static json_t *compile_harness(void)
{
    char *text = kernel_source_text("kernels_src/harness.cu");
    json_t *answer = check_compiled(worker_link_call(&compilers[0],
        json_pack("{s:s,s:s,s:s,s:[],s:[],s:s,s:[],s:b}", "op", "compile", "name", "harness.cu",
            "source", text, "headers", "options", "arch", "cpu", "entries", "cache", 0)));
    free(text);
    return answer;
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_right_on_awkward_shapes),
        cmocka_unit_test(a_planted_mistake_is_found_wrong),
    };
    kernel_cases_load(&cases, argc == 2 ? argv[1] : "");
    int failures = cmocka_run_group_tests(tests, start_workers, stop_workers);
    kernel_cases_finish(&cases);
    return failures;
}
