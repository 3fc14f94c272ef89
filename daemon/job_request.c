/* The params of `sweep`, checked and read into a job. */
#include "daemon/job_internal.h"

#include "client/proto.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"
#include "plugins/sparse_shape.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char *const sweep_keys[] = {"kernel", "shapes", "dtype", "mode", "strategy", "budget",
    "seed", "prior", "device", "params", "deadline_ms", "nvrtc_cache", "background", "local",
    "inputs", NULL};

static int parse_shapes(struct job *job, struct tune_error *err)
{
    const struct manifest *manifest = job->plugin->manifest;
    json_t *list, *shape;
    size_t i;
    if (proto_array_opt(job->request, "shapes", &list, err))
        return -1;
    job->shapes_are_given = json_array_size(list) > 0;
    if (!job->shapes_are_given)
        return 0;
    job->shape_count = json_array_size(list);
    if (job->shape_count > JOB_SHAPES_MAX)
        return tune_fail(err, TUNE_ELIMIT,
            "a sweep takes at most %d shapes; this one has %zu: split it", JOB_SHAPES_MAX,
            job->shape_count);
    job->shapes = xcalloc(job->shape_count, sizeof *job->shapes);
    json_array_foreach (list, i, shape) {
        if (manifest_shape_from_json(manifest, shape, job->shapes[i], err))
            return -1;
    }
    return 0;
}

const char *job_input(const struct job *job, size_t shape)
{
    return json_string_value(json_array_get(json_object_get(job->request, "inputs"), shape));
}

static int check_input(const struct job *job, const json_t *input, struct tune_error *err)
{
    const char *text = json_string_value(input);
    if (json_is_null(input))
        return 0;
    if (text == NULL || text[0] == '\0' || strlen(text) >= SPARSE_INPUT_BYTES)
        return tune_fail(err, TUNE_EINVAL, "an input is null or a text of at most %d bytes",
            SPARSE_INPUT_BYTES - 1);
    if (sparse_is_file(text) && text[0] != '/')
        return tune_fail(err, TUNE_EINVAL,
            "input %.100s: a file's path must begin with / (ours would be another folder)", text);
    if (!sparse_shape_is_one(job->plugin->manifest))
        return tune_fail(err, TUNE_EINVAL, "%s takes no matrix, so it has no input to name",
            job->plugin->manifest->name);
    return 0;
}

/* One for each shape, in their order. */
static int parse_inputs(struct job *job, struct tune_error *err)
{
    json_t *list, *input;
    size_t i;
    if (proto_array_opt(job->request, "inputs", &list, err))
        return -1;
    if (list != NULL && json_array_size(list) != job->shape_count)
        return tune_fail(err, TUNE_EINVAL, "%zu inputs for %zu shapes: there must be one for each",
            json_array_size(list), job->shape_count);
    json_array_foreach (list, i, input) {
        if (check_input(job, input, err))
            return -1;
    }
    job->spec.is_input_checked = job->jobs->deps.is_system;
    job->spec.asker = job->owner;
    return 0;
}

/* The manifest's own list, once the device is known: the emulated one gets small shapes. */
void job_take_manifest_shapes(struct job *job, const struct device_info *device)
{
    const struct manifest *manifest = job->plugin->manifest;
    bool is_cpu = device->attributes[DEVICE_sm] == 0 && manifest->shape_cpu_count > 0;
    job->shape_count = is_cpu ? manifest->shape_cpu_count : manifest->shape_count;
    job->shapes = xcalloc(job->shape_count, sizeof *job->shapes);
    memcpy(job->shapes, is_cpu ? manifest->shapes_cpu : manifest->shapes,
        job->shape_count * sizeof *job->shapes);
    json_t *list = json_array();
    for (size_t i = 0; i < job->shape_count; i++)
        json_array_append_new(list, manifest_shape_to_json(manifest, job->shapes[i]));
    json_object_set_new(job->request, "shapes", list);
    job->shapes_are_given = true;
    job_persist(job);
}

uint64_t job_random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = uv_hrtime();
    return seed & INT64_MAX;
}

static int parse_budget(struct job *job, struct tune_error *err)
{
    static const char *const keys[] = {"evals", "seconds", NULL};
    json_t *budget;
    int64_t evals = 0;
    double seconds = 0;
    if (proto_object_opt(job->request, "budget", &budget, err) ||
        proto_known_keys(budget, keys, "a budget", err) ||
        proto_int_opt(budget, "evals", 1, SPACE_CONFIG_LIMIT, &evals, err) ||
        proto_number_opt(budget, "seconds", &seconds, err))
        return -1;
    if (seconds < 0 || seconds > 1e7)
        return tune_fail(err, TUNE_EINVAL, "budget seconds must be between 0 and 10000000");
    job->spec.budget_evals = (size_t)evals;
    job->spec.budget_seconds = seconds;
    return 0;
}

static int parse_filter(struct job *job, struct tune_error *err)
{
    json_t *params;
    if (proto_object_opt(job->request, "params", &params, err))
        return -1;
    job->spec.has_filter = params != NULL;
    if (params == NULL)
        return 0;
    space_filter_init(&job->spec.filter, job->plugin->manifest);
    return space_filter_from_json(&job->spec.filter, job->plugin->manifest, params, err);
}

static int parse_words(struct job *job, struct tune_error *err)
{
    struct tuning_spec *spec = &job->spec;
    const struct manifest *manifest = job->plugin->manifest;
    spec->dtype = manifest->dtypes[0];
    spec->mode = "cold";
    const char *prior = "all";
    if (proto_string_opt(job->request, "dtype", &spec->dtype, err) ||
        proto_string_opt(job->request, "mode", &spec->mode, err) ||
        proto_string_opt(job->request, "strategy", &spec->strategy, err) ||
        proto_string_opt(job->request, "prior", &prior, err) ||
        tuning_parse_prior(prior, &spec->prior, err))
        return -1;
    if (!manifest_has_dtype(manifest, spec->dtype))
        return tune_fail(err, TUNE_EINVAL, "%s has no dtype \"%.20s\"; see `tunectl describe %s`",
            manifest->name, spec->dtype, manifest->name);
    if (strcmp(spec->mode, "cold") != 0 && strcmp(spec->mode, "warm") != 0)
        return tune_fail(
            err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", spec->mode);
    return spec->strategy ? search_check_name(spec->strategy, err) : 0;
}

/* Devices are named by ordinal, by UUID, or by model ("NVIDIA H200": all that are free). */
static int parse_device(struct job *job, struct tune_error *err)
{
    const json_t *device = json_object_get(job->request, "device");
    if (device == NULL || json_is_null(device) || json_is_integer(device) || json_is_string(device))
        return 0;
    return tune_fail(err, TUNE_EINVAL, "field \"device\" must be a number, a UUID or a model");
}

int job_parse(struct job *job, struct tune_error *err)
{
    const char *kernel;
    int64_t seed = (int64_t)job_random_seed(), deadline_ms = TUNING_DEADLINE_MS;
    bool nvrtc_cache = true;
    if (proto_known_keys(job->request, sweep_keys, "sweep", err) ||
        proto_string(job->request, "kernel", &kernel, err))
        return -1;
    struct plugin *plugin = registry_find(job->jobs->registry, kernel, err);
    if (plugin == NULL)
        return -1;
    job->plugin = plugin_ref(plugin);
    if (parse_shapes(job, err) || parse_inputs(job, err) || parse_words(job, err) ||
        parse_budget(job, err) || parse_filter(job, err) || parse_device(job, err) ||
        proto_int_opt(job->request, "seed", 0, INT64_MAX, &seed, err) ||
        proto_int_opt(job->request, "deadline_ms", 10, 600000, &deadline_ms, err) ||
        proto_bool_opt(job->request, "background", &job->is_background, err) ||
        proto_bool_opt(job->request, "local", &job->is_local, err) ||
        proto_bool_opt(job->request, "nvrtc_cache", &nvrtc_cache, err))
        return -1;
    json_object_set_new(job->request, "seed", json_integer(seed));
    job->spec.plugin = job->plugin;
    job->spec.seed = (uint64_t)seed;
    job->spec.input_seed = (uint64_t)seed;
    job->spec.deadline_ms = (uint64_t)deadline_ms;
    job->spec.no_nvrtc_cache = !nvrtc_cache;
    job->spec.job = job->id;
    return 0;
}
