/* Every kernel through the real NVRTC, as a sweep would compile it (tune-worker compile), on a
 * machine without a GPU: what the manifest calls valid compiles for every arch, and what a
 * params-only constraint forbids meets its static_assert. Exits 77, "skipped", where there is no
 * NVRTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels_under_test.h"
#include "sample.h"
#include "worker_link.h"

#include "plugins/plan.h"

#include <string.h>

#define WORKERS 2
#define SKIPPED 77
#define SEED 20240607
#define BROKEN_PER_CONSTRAINT 12

static const char *const archs[] = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"};
#define ARCH_COUNT (sizeof archs / sizeof *archs)

static struct worker_link workers[WORKERS];

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
    const struct plugin *plugin, const char *dtype, const char *arch, const int64_t *values)
{
    const struct manifest *manifest = plugin->manifest;
    struct tune_error err = {0};
    json_t *options = plan_defines(manifest, manifest->shapes[0], dtype, values, &err);
    if (!options)
        fail_msg("%s", err.text);
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:s,s:o,s:b}", "op", "compile", "name",
        plugin->source_name, "source", plugin->source, "headers", headers_of(plugin), "options",
        options, "arch", arch, "entries", plan_entries(manifest, values == NULL), "cache", 0);
}

/* What a compile must give. */
struct expectation {
    const struct plugin *plugin;
    const int64_t *values;
    const char *dtype, *arch;
    bool is_broken; /* a static_assert must fail */
};

static void check_answer(const struct expectation *expected, json_t *answer)
{
    char *config = expected->values
                       ? manifest_config_text(expected->plugin->manifest, expected->values)
                       : strdup("the reference");
    bool ok = json_is_true(json_object_get(answer, "ok"));
    bool is_assert = json_is_true(json_object_get(answer, "static_assert"));
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (!answer)
        fail_msg("the worker died on %s", config);
    if (expected->is_broken ? ok || !is_assert : !ok)
        fail_msg("%s %s %s for %s: the manifest says %s, the source says %s",
            expected->plugin->manifest->name, expected->dtype, config, expected->arch,
            expected->is_broken ? "invalid" : "valid", ok ? "valid" : error);
    free(config);
    json_decref(answer);
}

/* Requests go round the workers; each is asked again once it has answered. */
struct batch {
    struct expectation expected[WORKERS];
    bool busy[WORKERS];
    size_t next, done;
};

static void finish_slot(struct batch *batch, size_t slot)
{
    if (!batch->busy[slot])
        return;
    batch->busy[slot] = false;
    batch->done++;
    check_answer(&batch->expected[slot], worker_link_receive(&workers[slot]));
}

static void add_compile(struct batch *batch, const struct plugin *plugin, const char *dtype,
    const char *arch, const int64_t *values, bool is_broken)
{
    size_t slot = batch->next++ % WORKERS;
    finish_slot(batch, slot);
    batch->expected[slot] = (struct expectation){plugin, values, dtype, arch, is_broken};
    batch->busy[slot] = true;
    assert_int_equal(
        worker_link_send(&workers[slot], compile_request(plugin, dtype, arch, values)), 0);
}

static void finish_batch(struct batch *batch)
{
    for (size_t slot = 0; slot < WORKERS; slot++)
        finish_slot(batch, slot);
}

/* Every configuration of the sample for every arch; with a further dtype they go round the archs.
 */
static void compile_allowed(const struct plugin *plugin, size_t t)
{
    const char *dtype = plugin->manifest->dtypes[t];
    struct sample_set all, sample;
    struct batch batch = {0};
    sample_valid(plugin->manifest, dtype, &all);
    sample_pairs(plugin->manifest, &all, SEED, &sample);
    assert_true(sample.count > 0);
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        add_compile(&batch, plugin, dtype, archs[a], NULL, false);
        for (size_t i = 0; i < sample.count; i++)
            if (t == 0 || i % ARCH_COUNT == a)
                add_compile(&batch, plugin, dtype, archs[a], sample_row(&sample, i), false);
    }
    finish_batch(&batch);
    print_message("%s %s: %zu of %zu configurations, %zu compiles\n", plugin->manifest->name, dtype,
        sample.count, all.count, batch.done);
    sample_finish_set(&all);
    sample_finish_set(&sample);
}

static void configurations_that_the_manifest_allows_compile_for_every_arch(void **state)
{
    (void)state;
    for (size_t k = 0; k < KERNEL_COUNT; k++) {
        struct plugin *plugin = kernel_load(kernel_names[k]);
        for (size_t t = 0; t < plugin->manifest->dtype_count; t++)
            compile_allowed(plugin, t);
        plugin_unref(plugin);
    }
}

/* How many configurations break this constraint alone; each must fail to compile. */
static size_t compile_broken(const struct plugin *plugin, const char *dtype, size_t constraint)
{
    struct sample_set broken;
    struct batch batch = {0};
    sample_broken(plugin->manifest, dtype, constraint, BROKEN_PER_CONSTRAINT, SEED, &broken);
    for (size_t i = 0; i < broken.count; i++)
        add_compile(&batch, plugin, dtype, "sm_90", sample_row(&broken, i), true);
    finish_batch(&batch);
    sample_finish_set(&broken);
    return batch.done;
}

static void what_a_constraint_over_params_forbids_fails_a_static_assert(void **state)
{
    (void)state;
    for (size_t k = 0; k < KERNEL_COUNT; k++) {
        struct plugin *plugin = kernel_load(kernel_names[k]);
        const struct manifest *manifest = plugin->manifest;
        size_t constraints = 0;
        for (size_t c = 0; c < manifest->constraint_count; c++) {
            size_t count = 0;
            if (!manifest->constraints[c].params_only)
                continue;
            constraints++;
            for (size_t t = 0; t < manifest->dtype_count; t++)
                count += compile_broken(plugin, manifest->dtypes[t], c);
            /* A constraint that nothing can break would be a mistake in the manifest. */
            if (count == 0)
                fail_msg(
                    "%s: nothing breaks \"%s\"", kernel_names[k], manifest->constraints[c].message);
        }
        assert_true(constraints > 0);
        plugin_unref(plugin);
    }
}

/* f32 is IEEE fused multiply-add: no matrix instruction may come out of the default. */
static void gemm_compiles_to_no_matrix_instruction(void **state)
{
    (void)state;
    struct plugin *plugin = kernel_load("gemm");
    for (size_t i = 0; i < plugin->manifest->default_count; i++) {
        json_t *answer = worker_link_call(&workers[0],
            compile_request(plugin, "f32", "compute_90", plugin->manifest->defaults[i]));
        assert_true(json_is_true(json_object_get(answer, "ok")));
        assert_true(json_is_true(json_object_get(answer, "is_ptx")));
        size_t length;
        char *ptx =
            proto_base64_decode(json_string_value(json_object_get(answer, "image")), &length, NULL);
        assert_non_null(ptx);
        assert_non_null(memmem(ptx, length, "fma.rn.f32", 10));
        assert_null(memmem(ptx, length, "mma.", 4)); /* also wmma. and wgmma. */
        free(ptx);
        json_decref(answer);
    }
    plugin_unref(plugin);
}

static char *read_source(const char *name)
{
    char path[1024];
    const char *root = getenv("TUNE_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/kernels_src/%s", root ? root : ".", name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot read %s", path);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

/* A source of the worker's own, as it is: its answer, which must be good. */
static json_t *compile_own(const char *name, const char *arch)
{
    char *source = read_source(name);
    json_t *answer = worker_link_call(&workers[0],
        json_pack("{s:s,s:s,s:s,s:[],s:[],s:s,s:[],s:b}", "op", "compile", "name", name, "source",
            source, "headers", "options", "arch", arch, "entries", "cache", 0));
    free(source);
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("%s for %s: %s", name, arch, json_string_value(json_object_get(answer, "error")));
    return answer;
}

static void what_the_worker_runs_itself_compiles_for_every_arch(void **state)
{
    (void)state;
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        json_decref(compile_own("harness.cu", archs[a]));
        json_decref(compile_own("limits.cu", archs[a]));
    }
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* The most 16-byte loads of an entry that come one after another before a store. */
static size_t loads_in_flight(const char *ptx, const char *entry)
{
    size_t count = 0, most = 0;
    const char *begin = strstr(ptx, entry), *end = begin ? strstr(begin, ".entry") : NULL;
    for (const char *at = begin; at && (at = strstr(at, ".global.")) != NULL; at++) {
        if (end && at > end)
            break;
        if (strncmp(at, ".global.nc.v4", 13) == 0)
            count++;
        else if (strncmp(at - 2, "st.global.v4", 12) == 0)
            count = 0;
        most = count > most ? count : most;
    }
    return most;
}

/* What the worker counts in a turn of the loop, 512 multiply-adds, is there and no compiler joined
 * any of it; and four loads of a thread wait for the memory at the same time. */
static void limits_are_measured_with_the_instructions_that_are_counted(void **state)
{
    (void)state;
    size_t length;
    json_t *answer = compile_own("limits.cu", "compute_90");
    char *ptx =
        proto_base64_decode(json_string_value(json_object_get(answer, "image")), &length, NULL);
    assert_non_null(ptx);
    ptx[length - 1] = '\0'; /* a text; NVRTC counts its end too */
    assert_int_equal(count_of(ptx, "fma.rn.f32"), 512);
    assert_int_equal(loads_in_flight(ptx, " limits_copy("), 4);
    free(ptx);
    json_decref(answer);
}

/* The two lists of constraints are compared by compiling, so a difference must show: a manifest
 * that allows more than the source does is found out. */
static void a_constraint_missing_from_the_manifest_is_found(void **state)
{
    (void)state;
    struct plugin *plugin = kernel_load("transpose");
    /* 128 / 1 * 128 / 1 = 16384 threads: only the static_assert stops it. */
    const int64_t values[] = {1, 128, 1, 1, 1};
    json_t *answer = worker_link_call(&workers[0], compile_request(plugin, "f32", "sm_90", values));
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(json_is_true(json_object_get(answer, "static_assert")));
    assert_non_null(
        strstr(json_string_value(json_object_get(answer, "log")), "32 to 1024 threads"));
    json_decref(answer);
    plugin_unref(plugin);
}

static int start_workers(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKERS; i++) {
        struct tune_error err = {0};
        if (worker_link_start(&workers[i], "compile", NULL, &err) == 0)
            continue;
        printf("%s: %s\n", err.code == TUNE_ENOCOMPILER ? "skipped" : "failed", err.text);
        exit(err.code == TUNE_ENOCOMPILER ? SKIPPED : 1);
    }
    return 0;
}

static int stop_workers(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKERS; i++)
        worker_link_stop(&workers[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            configurations_that_the_manifest_allows_compile_for_every_arch, start_workers,
            stop_workers),
        cmocka_unit_test_setup_teardown(what_a_constraint_over_params_forbids_fails_a_static_assert,
            start_workers, stop_workers),
        cmocka_unit_test_setup_teardown(
            gemm_compiles_to_no_matrix_instruction, start_workers, stop_workers),
        cmocka_unit_test_setup_teardown(
            what_the_worker_runs_itself_compiles_for_every_arch, start_workers, stop_workers),
        cmocka_unit_test_setup_teardown(limits_are_measured_with_the_instructions_that_are_counted,
            start_workers, stop_workers),
        cmocka_unit_test_setup_teardown(
            a_constraint_missing_from_the_manifest_is_found, start_workers, stop_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
