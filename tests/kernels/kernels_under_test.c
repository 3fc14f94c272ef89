#include "kernels_under_test.h"

#include "client/error.h"
#include "plugins/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *source_root(void)
{
    const char *root = getenv("TUNE_SOURCE_DIR");
    return root ? root : ".";
}

/* The build tree has a kernel's hooks beside its manifest. */
static const char *build_root(void)
{
    const char *root = getenv("TUNE_BUILD_DIR");
    return root ? root : ".";
}

_Noreturn static void give_up(const char *name, const char *why)
{
    fprintf(stderr, "%s: %s\n", name, why);
    exit(1);
}

struct plugin *kernel_load(const char *name)
{
    char manifest[1024], sources[1024];
    struct tune_error err = {0};
    snprintf(
        manifest, sizeof manifest, "%s/share/tunerd/plugins/%s/%s.json", build_root(), name, name);
    snprintf(sources, sizeof sources, "%s/kernels_src", source_root());
    struct plugin *plugin = plugin_load(manifest, sources, &err);
    if (plugin == NULL)
        give_up(name, err.text);
    return plugin;
}

char *kernel_source_text(const char *path)
{
    enum { LIMIT = 1 << 20 };
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", source_root(), path);
    FILE *file = fopen(full, "r");
    char *text = calloc(1, LIMIT);
    if (file == NULL || text == NULL || fread(text, 1, LIMIT - 1, file) == 0)
        give_up(full, "cannot be read");
    fclose(file);
    return text;
}

static json_t *headers_of(const struct plugin *plugin)
{
    json_t *headers = json_array();
    for (size_t i = 0; i < plugin->header_count; i++)
        json_array_append_new(headers, json_pack("{s:s,s:s}", "name", plugin->headers[i].name,
                                           "text", plugin->headers[i].text));
    return headers;
}

json_t *kernel_compile_request(const struct plugin *plugin, const char *source, const char *dtype,
    const char *arch, const int64_t *dims, const int64_t *values)
{
    struct tune_error err = {0};
    json_t *options = plan_defines(plugin->manifest, dims, dtype, values, &err);
    if (options == NULL)
        give_up(plugin->manifest->name, err.text);
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:s,s:o,s:b}", "op", "compile", "name",
        plugin->source_name, "source", source, "headers", headers_of(plugin), "options", options,
        "arch", arch, "entries", plan_entries(plugin->manifest, values == NULL), "cache", 0);
}

void kernel_cases_load(struct kernel_cases *cases, const char *name)
{
    char path[256];
    struct tune_error err = {0};
    json_error_t wrong;
    snprintf(path, sizeof path, "tests/kernels/cases/%s.json", name);
    char *text = kernel_source_text(path);
    *cases = (struct kernel_cases){.plugin = kernel_load(name)};
    cases->json = json_loads(text, JSON_REJECT_DUPLICATES, &wrong);
    free(text);
    if (cases->json == NULL)
        give_up(path, wrong.text);
    const json_t *awkward = json_object_get(cases->json, "awkward");
    cases->configs = (size_t)json_integer_value(json_object_get(cases->json, "configs"));
    cases->shape_count = json_array_size(awkward);
    if (cases->configs == 0 || cases->shape_count == 0)
        give_up(path, "\"configs\" and \"awkward\" must be there");
    cases->shapes = calloc(cases->shape_count, sizeof *cases->shapes);
    for (size_t i = 0; i < cases->shape_count; i++)
        if (manifest_shape_from_json(
                cases->plugin->manifest, json_array_get(awkward, i), cases->shapes[i], &err) != 0)
            give_up(path, err.text);
}

void kernel_cases_finish(struct kernel_cases *cases)
{
    plugin_unref(cases->plugin);
    json_decref(cases->json);
    free(cases->shapes);
}

bool kernel_cases_same_group(const struct kernel_cases *cases, size_t a, size_t b)
{
    const struct manifest *manifest = cases->plugin->manifest;
    for (size_t c = 0; c < manifest->compile_dim_count; c++) {
        size_t dim = manifest->compile_dims[c];
        if (cases->shapes[a][dim] != cases->shapes[b][dim])
            return false;
    }
    return true;
}

size_t kernel_cases_next_group(const struct kernel_cases *cases, size_t first)
{
    for (size_t at = first; at < cases->shape_count; at++) {
        size_t earlier = 0;
        while (earlier < at && !kernel_cases_same_group(cases, earlier, at))
            earlier++;
        if (earlier == at)
            return at;
    }
    return cases->shape_count;
}
