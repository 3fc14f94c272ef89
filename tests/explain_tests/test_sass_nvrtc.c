/* A shipped kernel (argv[1]) as NVRTC compiles it for every generation: each instruction is known,
 * and each access has a line of the source. Exits 77, "skipped", where there is no NVRTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/kernels/kernels_under_test.h"
#include "tests/kernels/sample.h"
#include "tests/kernels/worker_link.h"

#include "explain/explain.h"
#include "explain/sass.h"
#include "plugins/plan.h"

#include <string.h>

#define SKIPPED 77

static const char *const archs[] = {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120"};
#define ARCH_COUNT (sizeof archs / sizeof *archs)
#define DEFAULTS (2 * ARCH_COUNT) /* of a long list, these */

static struct worker_link worker;
static const char *kernel_name;

/* A cubin of the configuration; values NULL: of the reference. */
struct compiled {
    const struct plugin *plugin;
    const char *dtype, *arch;
    char *image;
    size_t count;
};

static void compile(struct compiled *compiled, const int64_t *values)
{
    const struct plugin *plugin = compiled->plugin;
    const struct manifest *manifest = plugin->manifest;
    json_t *request = kernel_compile_request(
        plugin, plugin->source, compiled->dtype, compiled->arch, manifest->shapes[0], values);
    json_array_append_new(json_object_get(request, "options"), json_string("-lineinfo"));
    json_t *answer = worker_link_call(&worker, request);
    if (!json_is_true(json_object_get(answer, "ok")))
        fail_msg("%s for %s: %s", manifest->name, compiled->arch,
            json_string_value(json_object_get(answer, "error")));
    compiled->image = proto_base64_decode(
        json_string_value(json_object_get(answer, "image")), &compiled->count, NULL);
    assert_non_null(compiled->image);
    json_decref(answer);
}

static uint32_t lines_in(const char *text)
{
    uint32_t lines = 1;
    while ((text = strchr(text, '\n')) != NULL) {
        lines++;
        text++;
    }
    return lines;
}

/* How many lines the file has; 0 for files of the toolkit. */
static uint32_t lines_of(const struct plugin *plugin, const char *file)
{
    if (strcmp(file, plugin->source_name) == 0)
        return lines_in(plugin->source);
    for (size_t i = 0; i < plugin->header_count; i++)
        if (strcmp(file, plugin->headers[i].name) == 0)
            return lines_in(plugin->headers[i].text);
    return 0;
}

static void check_access(const struct compiled *compiled, const struct sass_access *access)
{
    uint32_t lines = lines_of(compiled->plugin, access->file);
    if (access->line == 0 || access->file[0] == '\0' || (lines != 0 && access->line > lines))
        fail_msg("%s %s for %s: an access in line %u of \"%s\"", compiled->plugin->manifest->name,
            compiled->dtype, compiled->arch, access->line, access->file);
}

/* How many accesses are of the plugin's own files: none where a configuration has no use for this
 * kernel. */
static size_t check_kernel(const struct compiled *compiled, const struct sass_kernel *kernel)
{
    size_t own = 0;
    if (kernel->unknown > 0)
        fail_msg("%s %s for %s: %u instructions are unknown", kernel->name, compiled->dtype,
            compiled->arch, kernel->unknown);
    for (size_t i = 0; i < kernel->access_count; i++) {
        check_access(compiled, &kernel->accesses[i]);
        own += lines_of(compiled->plugin, kernel->accesses[i].file) > 0;
    }
    assert_true(kernel->by_class[SASS_BRANCH] > 0); /* EXIT */
    return own;
}

static uint32_t check_cubin(const struct compiled *compiled)
{
    struct sass sass;
    struct tune_error err = {0};
    uint32_t instructions = 0;
    size_t own = 0;
    if (sass_read(compiled->image, compiled->count, &sass, &err))
        fail_msg("%s", err.text);
    assert_int_equal(sass.sm, atoi(compiled->arch + strlen("sm_")));
    assert_true(sass.kernel_count > 0);
    for (size_t i = 0; i < sass.kernel_count; i++) {
        own += check_kernel(compiled, &sass.kernels[i]);
        instructions += sass.kernels[i].instructions;
    }
    assert_true(own >= 2); /* a load and a store at least */
    sass_finish(&sass);
    return instructions;
}

static void check_configuration(
    const struct plugin *plugin, const char *dtype, const char *arch, const int64_t *values)
{
    struct compiled compiled = {.plugin = plugin, .dtype = dtype, .arch = arch};
    compile(&compiled, values);
    uint32_t instructions = check_cubin(&compiled);
    print_message("%s %s %s: %u instructions\n", plugin->manifest->name, dtype, arch, instructions);
    free(compiled.image);
}

static bool is_in(const struct sample_set *valid, const int64_t *values)
{
    size_t bytes = valid->params * sizeof *values;
    for (size_t i = 0; i < valid->count; i++)
        if (memcmp(sample_row(valid, i), values, bytes) == 0)
            return true;
    return false;
}

/* Whether the configuration is for the type that `valid` is of, and for the arch. */
static bool is_for(const struct plugin *plugin, const char *dtype, const char *arch,
    const struct sample_set *valid, const int64_t *values)
{
    return is_in(valid, values) &&
           sample_meets(plugin->manifest, dtype, values, atoi(strchr(arch, '_') + 1));
}

/* Of the first type the reference and the first default for each arch, further defaults going
 * round; of the other types the reference and the first default for one arch each. */
static void check_type(const struct plugin *plugin, size_t t)
{
    const struct manifest *manifest = plugin->manifest;
    const char *dtype = manifest->dtypes[t];
    struct sample_set valid;
    sample_valid(manifest, dtype, &valid);
    for (size_t a = 0; a < ARCH_COUNT; a++) {
        if (t > 0 && a != t % ARCH_COUNT)
            continue;
        check_configuration(plugin, dtype, archs[a], NULL);
        for (size_t i = 0; i < manifest->default_count && i < DEFAULTS; i++)
            if ((i == 0 || i % ARCH_COUNT == a) &&
                is_for(plugin, dtype, archs[a], &valid, manifest->defaults[i]))
                check_configuration(plugin, dtype, archs[a], manifest->defaults[i]);
    }
    sample_finish_set(&valid);
}

static void every_instruction_of_a_shipped_kernel_is_known_and_has_its_line(void **state)
{
    (void)state;
    struct plugin *plugin = kernel_load(kernel_name);
    for (size_t t = 0; t < plugin->manifest->dtype_count; t++)
        check_type(plugin, t);
    plugin_unref(plugin);
}

static void ptx_is_refused_with_what_to_do(void **state)
{
    (void)state;
    struct plugin *plugin = kernel_load(kernel_name);
    const char *dtype = plugin->manifest->dtypes[0];
    struct compiled compiled = {.plugin = plugin, .dtype = dtype, .arch = "compute_90"};
    struct sample_set valid;
    size_t i = 0;
    sample_valid(plugin->manifest, dtype, &valid);
    while (!is_for(plugin, dtype, compiled.arch, &valid, plugin->manifest->defaults[i]))
        assert_true(++i < plugin->manifest->default_count);
    compile(&compiled, plugin->manifest->defaults[i]);
    sample_finish_set(&valid);
    struct sass sass;
    struct tune_error err = {0};
    assert_int_equal(sass_read(compiled.image, compiled.count, &sass, &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    sass_finish(&sass);
    free(compiled.image);
    plugin_unref(plugin);
}

static int start_worker(void **state)
{
    (void)state;
    struct tune_error err = {0};
    if (worker_link_start(&worker, "compile", NULL, &err) == 0)
        return 0;
    printf("%s: %s\n", err.code == TUNE_ENOCOMPILER ? "skipped" : "failed", err.text);
    exit(err.code == TUNE_ENOCOMPILER ? SKIPPED : 1);
}

static int stop_worker(void **state)
{
    (void)state;
    worker_link_stop(&worker);
    return 0;
}

int main(int argc, char **argv)
{
    kernel_name = argc == 2 ? argv[1] : "";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_of_a_shipped_kernel_is_known_and_has_its_line),
        cmocka_unit_test(ptx_is_refused_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, start_worker, stop_worker);
}
