/* A batch of another machine, checked and read; see helping.h. */
#include "daemon/helping.h"

#include "client/proto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_VERSION 1 /* raise when a field is added or changes its meaning */

static const char *const keys[] = {"v", "target", "job", "kernel", "fingerprint", "shape", "dtype",
    "mode", "method", "configs", "input_seed", "deadline_ms", "best_ns", NULL};

/* It becomes part of the names of runs and marks. */
static int check_job(const char *job, struct tune_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t length = strlen(job);
    if (length == 0 || length >= JOB_ID_BYTES || strspn(job, allowed) != length)
        return tune_fail(err, TUNE_EINVAL, "its job's id is not one");
    return 0;
}

static int parse_kernel(const struct registry *registry, const json_t *payload,
    struct tuning_spec *spec, struct tune_error *err)
{
    const char *kernel, *fingerprint;
    json_t *shape;
    if (proto_string(payload, "kernel", &kernel, err) ||
        proto_string(payload, "fingerprint", &fingerprint, err) ||
        proto_object_opt(payload, "shape", &shape, err))
        return -1;
    spec->plugin = registry_find(registry, kernel, err);
    if (spec->plugin == NULL)
        return -1;
    if (strcmp(spec->plugin->fingerprint, fingerprint) != 0)
        return tune_fail(err, TUNE_EINVAL,
            "the kernel %s of that machine differs from the one here: bring both to one version",
            spec->plugin->manifest->name);
    return manifest_shape_from_json(spec->plugin->manifest, shape, spec->dims, err);
}

static int is_one_of(
    const char *word, const char *field, const char *const *words, struct tune_error *err)
{
    for (size_t i = 0; words[i] != NULL; i++)
        if (strcmp(word, words[i]) == 0)
            return 0;
    return tune_fail(err, TUNE_EINVAL, "%s \"%.20s\" is not known", field, word);
}

static int parse_words(const json_t *payload, struct tuning_spec *spec, struct tune_error *err)
{
    static const char *const modes[] = {"cold", "warm", NULL};
    static const char *const methods[] = {"event", "graph", NULL};
    if (proto_string(payload, "job", &spec->job, err) || check_job(spec->job, err) ||
        proto_string(payload, "dtype", &spec->dtype, err) ||
        proto_string(payload, "mode", &spec->mode, err) ||
        proto_string(payload, "method", &spec->help.method, err) ||
        is_one_of(spec->mode, "mode", modes, err) ||
        is_one_of(spec->help.method, "method", methods, err))
        return -1;
    if (!manifest_has_dtype(spec->plugin->manifest, spec->dtype))
        return tune_fail(err, TUNE_EINVAL, "%s has no dtype \"%.20s\"",
            spec->plugin->manifest->name, spec->dtype);
    return 0;
}

static int parse_numbers(const json_t *payload, struct tuning_spec *spec, struct tune_error *err)
{
    int64_t seed, deadline_ms;
    if (proto_int(payload, "input_seed", 0, INT64_MAX, &seed, err) ||
        proto_int(payload, "deadline_ms", 10, TUNING_HELP_DEADLINE_MAX_MS, &deadline_ms, err) ||
        proto_number_opt(payload, "best_ns", &spec->help.best_ns, err))
        return -1;
    if (!(spec->help.best_ns >= 0))
        return tune_fail(err, TUNE_EINVAL, "best_ns is negative");
    spec->seed = spec->input_seed = (uint64_t)seed;
    spec->deadline_ms = (uint64_t)deadline_ms;
    return 0;
}

static int parse_configs(
    const json_t *payload, struct helping_request *request, struct tune_error *err)
{
    const struct manifest *manifest = request->spec.plugin->manifest;
    json_t *list;
    if (proto_array_opt(payload, "configs", &list, err))
        return -1;
    size_t count = json_array_size(list);
    if (count == 0 || count > TUNING_BATCH_MAX)
        return tune_fail(err, TUNE_EINVAL, "it has %zu configurations; there may be 1 to %d", count,
            TUNING_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        int64_t values[MANIFEST_MAX_PARAMS];
        request->configs[i] = json_string_value(json_array_get(list, i));
        if (request->configs[i] == NULL)
            return tune_fail(err, TUNE_EINVAL, "a configuration is not a string");
        if (manifest_config_from_text(manifest, request->configs[i], values, err))
            return -1;
    }
    request->spec.help.configs = request->configs;
    request->spec.help.count = count;
    return 0;
}

int helping_parse(const struct registry *registry, const json_t *payload,
    struct helping_request *request, struct tune_error *err)
{
    int64_t version;
    *request = (struct helping_request){.spec = {.is_local = true}};
    /* The version first: of another one no field is known. */
    if (proto_int(payload, "v", 1, INT64_MAX, &version, err))
        return -1;
    if (version != REQUEST_VERSION)
        return tune_fail(err, TUNE_EVERSION,
            "that machine asks in version %lld, this one knows %d: bring both to one version",
            (long long)version, REQUEST_VERSION);
    if (proto_known_keys(payload, keys, "a batch", err) ||
        proto_string(payload, "target", &request->target, err) ||
        parse_kernel(registry, payload, &request->spec, err) ||
        parse_words(payload, &request->spec, err) || parse_numbers(payload, &request->spec, err))
        return -1;
    return parse_configs(payload, request, err);
}
