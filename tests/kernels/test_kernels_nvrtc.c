/* A kernel (argv[1]) through the real NVRTC, as a sweep would compile it (tune-worker compile), on
 * a machine without a GPU: what the manifest calls valid compiles for every arch, and what a
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
#define BROKEN_PER_CONSTRAINT 3 /* of the first dtype; 1 of the others */

/* The first one gets the whole sample of the first dtype; all the rest goes round. */
static const struct {
    const char *name;
    int64_t sm;
} archs[] = {{"sm_90", 90}, {"sm_80", 80}, {"sm_89", 89}, {"sm_100", 100}, {"sm_120", 120}};
#define ARCH_COUNT (sizeof archs / sizeof *archs)

static struct worker_link workers[WORKERS];
static struct kernel_cases cases;

/* What is compiled, and what must come out. */
struct expectation {
    const int64_t *dims, *values; /* values NULL: the reference */
    const char *dtype, *arch;
    bool is_broken; /* a static_assert must fail */
};

static json_t *compile_request(const struct expectation *expected)
{
    return kernel_compile_request(cases.plugin, cases.plugin->source, expected->dtype,
        expected->arch, expected->dims, expected->values);
}

static void check_answer(const struct expectation *expected, json_t *answer)
{
    const struct manifest *manifest = cases.plugin->manifest;
    char *config = expected->values ? manifest_config_text(manifest, expected->values)
                                    : strdup("the reference");
    bool ok = json_is_true(json_object_get(answer, "ok"));
    bool is_assert = json_is_true(json_object_get(answer, "static_assert"));
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (!answer)
        fail_msg("the worker died on %s", config);
    if (expected->is_broken ? ok || !is_assert : !ok)
        fail_msg("%s %s %s for %s: the manifest says %s, the source says %s", manifest->name,
            expected->dtype, config, expected->arch, expected->is_broken ? "invalid" : "valid",
            ok ? "valid" : error);
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

static void add_compile(struct batch *batch, const struct expectation *expected)
{
    size_t slot = batch->next++ % WORKERS;
    finish_slot(batch, slot);
    batch->expected[slot] = *expected;
    batch->busy[slot] = true;
    assert_int_equal(worker_link_send(&workers[slot], compile_request(expected)), 0);
}

static void finish_batch(struct batch *batch)
{
    for (size_t slot = 0; slot < WORKERS; slot++)
        finish_slot(batch, slot);
}

/* A sample for shapes of one kind and one dtype: for the first arch all of it when `is_main`, else
 * each configuration for one arch. */
static void compile_allowed(const char *dtype, const int64_t *dims, size_t limit, bool is_main)
{
    const struct manifest *manifest = cases.plugin->manifest;
    struct sample_set all, sample;
    struct batch batch = {0};
    sample_valid(manifest, dtype, &all);
    sample_pairs(manifest, &all, limit, is_main, SEED, &sample);
    assert_true(sample.count > 0);
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        struct expectation expected = {dims, NULL, dtype, archs[a].name, false};
        if (is_main)
            add_compile(&batch, &expected);
        for (size_t i = 0; i < sample.count; i++) {
            expected.values = sample_row(&sample, i);
            if (((is_main && a == 0) || i % ARCH_COUNT == a) &&
                sample_meets(manifest, dtype, expected.values, archs[a].sm))
                add_compile(&batch, &expected);
        }
    }
    finish_batch(&batch);
    char *shape = manifest_shape_text(manifest, dims);
    print_message("%s %s as %s: %zu of %zu configurations, %zu compiles\n", manifest->name, dtype,
        shape, sample.count, all.count, batch.done);
    free(shape);
    sample_finish_set(&all);
    sample_finish_set(&sample);
}

static void configurations_that_the_manifest_allows_compile_for_every_arch(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    for (size_t t = 0; t < manifest->dtype_count; t++)
        for (size_t first = 0; first < cases.shape_count;
             first = kernel_cases_next_group(&cases, first + 1)) {
            bool is_main = t == 0 && first == 0;
            compile_allowed(manifest->dtypes[t], cases.shapes[first],
                is_main ? (cases.configs + 1) / 2 : (cases.configs + 7) / 8, is_main);
        }
}

/* How many configurations break this constraint alone; each must fail to compile. */
static size_t compile_broken(size_t t, size_t constraint)
{
    const char *dtype = cases.plugin->manifest->dtypes[t];
    struct sample_set broken;
    struct batch batch = {0};
    sample_broken(cases.plugin->manifest, dtype, constraint, BROKEN_PER_CONSTRAINT, SEED, &broken);
    for (size_t i = 0; i < broken.count; i++)
        add_compile(&batch, &(struct expectation){cases.shapes[0], sample_row(&broken, i), dtype,
                                archs[0].name, true});
    finish_batch(&batch);
    sample_finish_set(&broken);
    return batch.done;
}

static void what_a_constraint_over_params_forbids_fails_a_static_assert(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    size_t constraints = 0;
    for (size_t c = 0; c < manifest->constraint_count; c++) {
        size_t count = 0;
        if (!manifest->constraints[c].params_only)
            continue;
        constraints++;
        for (size_t t = 0; t < manifest->dtype_count; t++)
            count += compile_broken(t, c);
        /* A constraint that nothing can break would be a mistake in the manifest. */
        if (count == 0)
            fail_msg("%s: nothing breaks \"%s\"", manifest->name, manifest->constraints[c].message);
    }
    assert_true(constraints > 0);
}

/* A product in f32 is IEEE fused multiply-add: no matrix instruction may come out of a default. */
static void gemm_compiles_to_no_matrix_instruction(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    if (strcmp(manifest->name, "gemm") != 0)
        skip();
    for (size_t i = 0; i < manifest->default_count; i++) {
        json_t *answer =
            worker_link_call(&workers[0], compile_request(&(struct expectation){manifest->shapes[0],
                                              manifest->defaults[i], "f32", "compute_90", false}));
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
}

/* The two lists of constraints are compared by compiling, so a difference must show: a manifest
 * that allows more than the source does is found out. */
static void a_constraint_missing_from_the_manifest_is_found(void **state)
{
    (void)state;
    const struct manifest *manifest = cases.plugin->manifest;
    int64_t values[MANIFEST_MAX_PARAMS];
    if (strcmp(manifest->name, "gemm") != 0)
        skip();
    memcpy(values, manifest->defaults[0], sizeof values);
    values[manifest_find_param(manifest, "BM")] = values[manifest_find_param(manifest, "TM")] / 2;
    json_t *answer = worker_link_call(&workers[0],
        compile_request(&(struct expectation){manifest->shapes[0], values, "f32", "sm_90", false}));
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(json_is_true(json_object_get(answer, "static_assert")));
    json_decref(answer);
}

/* --- what the worker runs itself -------------------------------------------------------------- */

/* A source of the worker's own, as it is: its answer, which must be good. */
static json_t *compile_own(const char *name, const char *arch)
{
    char path[256];
    snprintf(path, sizeof path, "kernels_src/%s", name);
    char *source = kernel_source_text(path);
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
        json_decref(compile_own("harness.cu", archs[a].name));
        json_decref(compile_own("limits.cu", archs[a].name));
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

/* argv[1]: a kernel's name, or "worker" for what the worker runs itself. */
int main(int argc, char **argv)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(what_the_worker_runs_itself_compiles_for_every_arch),
        cmocka_unit_test(limits_are_measured_with_the_instructions_that_are_counted),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_that_the_manifest_allows_compile_for_every_arch),
        cmocka_unit_test(what_a_constraint_over_params_forbids_fails_a_static_assert),
        cmocka_unit_test(gemm_compiles_to_no_matrix_instruction),
        cmocka_unit_test(a_constraint_missing_from_the_manifest_is_found),
    };
    const char *name = argc == 2 ? argv[1] : "";
    if (strcmp(name, "worker") == 0)
        return cmocka_run_group_tests(own, start_workers, stop_workers);
    kernel_cases_load(&cases, name);
    int failures = cmocka_run_group_tests(tests, start_workers, stop_workers);
    kernel_cases_finish(&cases);
    return failures;
}
