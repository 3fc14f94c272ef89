/* The numbers of a report, as the JSON of report.h: samples are gathered, of each identity one
 * stands, groups are made and put in order (report_group.c), and written down as columns. */
#include "report_group.h"
#include "print.h"

#include "client/proto.h"
#include "plugins/estimate.h"
#include "plugins/plan.h"
#include "tuning_db/record_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAUTIOUS_ARCH "sm_75" /* stands for the emulated device, as in libtune */

/* --- gathering -------------------------------------------------------------------------------- */

struct report {
    struct sample *samples;
    size_t count, room;
};

struct report *report_create(void)
{
    return need(calloc(1, sizeof(struct report)));
}

void report_destroy(struct report *report)
{
    if (report == NULL)
        return;
    for (size_t i = 0; i < report->count; i++)
        sample_finish(&report->samples[i]);
    free(report->samples);
    free(report);
}

/* The single times of a sample are not shown, and most of its bytes. */
void report_add(struct report *report, const struct sample *sample)
{
    struct sample slim = *sample;
    size_t length;
    slim.samples_ns = NULL;
    slim.sample_count = 0;
    if (report->count == report->room) {
        report->room = 2 * report->room + 256;
        report->samples = need(realloc(report->samples, report->room * sizeof *report->samples));
    }
    void *bytes = need(sample_encode(&slim, &length));
    struct sample *copy = &report->samples[report->count++];
    need(sample_decode(bytes, length, copy, NULL) == 0 ? copy : NULL);
    free(bytes);
}

/* --- groups ----------------------------------------------------------------------------------- */

static int compare_groups(const struct sample *a, const struct sample *b)
{
    int order = strcmp(a->key.kernel, b->key.kernel);
    if (order == 0)
        order = strcmp(a->key.dtype, b->key.dtype);
    if (order == 0)
        order = strcmp(a->key.arch, b->key.arch);
    if (order == 0)
        order = strcmp(a->gpu_name, b->gpu_name);
    if (order == 0)
        order = strcmp(a->key.mode, b->key.mode);
    return order != 0 ? order : strcmp(a->key.fingerprint, b->key.fingerprint);
}

static int compare_identities(const struct sample *a, const struct sample *b)
{
    int order = compare_groups(a, b);
    if (order == 0)
        order = strcmp(a->key.shape, b->key.shape);
    if (order == 0)
        order = strcmp(a->config, b->config);
    if (order == 0)
        order = strcmp(a->gpu_uuid, b->gpu_uuid);
    return order != 0 ? order : strcmp(a->run, b->run);
}

static int compare_samples(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    int order = compare_identities(a, b);
    return order != 0 ? order : sample_precedence(a, b);
}

/* Pointers to the samples that stand, sorted by group; malloc'ed. */
static const struct sample **standing_samples(const struct report *report, size_t *count)
{
    const struct sample **samples = need(calloc(report->count + 1, sizeof *samples));
    for (size_t i = 0; i < report->count; i++)
        samples[i] = &report->samples[i];
    qsort(samples, report->count, sizeof *samples, compare_samples);
    *count = 0;
    for (size_t i = 0; i < report->count; i++)
        if (*count == 0 || compare_identities(samples[*count - 1], samples[i]) != 0)
            samples[(*count)++] = samples[i];
    return samples;
}

static bool is_emulated(const struct sample *sample)
{
    return strcmp(sample->key.arch, "cpu") == 0;
}

/* --- what is known of a group ----------------------------------------------------------------- */

struct known {
    const struct manifest *manifest; /* or NULL */
    struct device_info device;
    json_t *limits; /* or NULL; ours */
};

/* The limits of the architecture: no more is needed for expressions of work and traffic, but for
 * the number of multiprocessors, which the samples tell. False for an arch that is not known. */
static bool fill_device(struct device_info *device, const struct sample *sample)
{
    if (device_generic(is_emulated(sample) ? CAUTIOUS_ARCH : sample->key.arch, device, NULL))
        return false;
    if (is_emulated(sample))
        device->attributes[DEVICE_sm] = 0;
    if (sample->sms > 0)
        device->attributes[DEVICE_sms] = sample->sms;
    return true;
}

/* {"dram_bytes_per_s","flops","from"}: the peak of the dtype follows from that of f32. */
static json_t *limits_json(const struct known *known, const char *dtype)
{
    double bytes = json_number_value(json_object_get(known->limits, "dram_bytes_per_s"));
    double flops = json_number_value(json_object_get(known->limits, "flops_f32"));
    const char *from = json_string_value(json_object_get(known->limits, "from"));
    if (!(bytes > 0) || !(flops > 0))
        return json_null();
    flops *= estimate_dtype_speed(known->device.attributes[DEVICE_sm], dtype);
    return json_pack("{s:o, s:o, s:o}", "dram_bytes_per_s", report_figure(bytes), "flops",
        report_figure(flops), "from", proto_text(from != NULL ? from : "measured"));
}

/* --- parameters, configurations, shapes ------------------------------------------------------- */

static json_t *value_names(const struct manifest_param *param)
{
    json_t *names = json_object();
    for (size_t i = 0; i < param->value_count; i++) {
        char value[32];
        snprintf(value, sizeof value, "%lld", (long long)param->values[i]);
        if (param->value_names[i] != NULL)
            json_object_set_new(names, value, proto_text(param->value_names[i]));
    }
    return names;
}

static json_t *params_json(const struct report_group *group)
{
    json_t *list = json_array();
    for (size_t i = 0; i < group->param_count; i++) {
        const struct manifest_param *param =
            group->manifest != NULL ? &group->manifest->params[i] : NULL;
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:o}", "name", proto_text(group->params[i]), "meaning",
                      param && param->meaning ? proto_text(param->meaning) : json_null(), "names",
                      param ? value_names(param) : json_object()));
    }
    return list;
}

static json_t *configs_json(const struct report_group *group)
{
    json_t *list = json_array();
    for (size_t i = 0; i < group->config_count; i++) {
        json_t *values = json_array();
        for (size_t p = 0; p < group->param_count; p++)
            json_array_append_new(values, json_integer(group->values[i * group->param_count + p]));
        json_array_append_new(list, values);
    }
    return list;
}

/* "M=64,N=32" -> {"M":64,"N":32}. */
static json_t *dims_json(const char *text)
{
    json_t *dims = json_object();
    while (*text != '\0') {
        size_t length = strcspn(text, "=,");
        if (text[length] == '=') {
            char *name = need(strndup(text, length));
            json_object_set_new(dims, name, json_integer(strtoll(text + length + 1, NULL, 10)));
            free(name);
        }
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return dims;
}

/* For people: "M=64 OP=max" where the manifest knows the shape. */
static json_t *label_json(const struct manifest *manifest, const char *text)
{
    int64_t dims[MANIFEST_MAX_DIMS];
    bool is_known = manifest != NULL && manifest_shape_from_text(manifest, text, dims) == 0;
    char *label = need(is_known ? manifest_shape_words(manifest, dims) : strdup(text));
    for (char *at = label; *at != '\0'; at++)
        *at = *at == ',' ? ' ' : *at;
    json_t *json = proto_text(label);
    free(label);
    return json;
}

static json_t *ties_json(const struct report_shape *shape)
{
    json_t *ties = json_array();
    for (size_t i = 0; i < shape->tie_count; i++)
        json_array_append_new(ties, report_index(shape->ties[i]));
    return ties;
}

static json_t *shape_json(
    const struct known *known, const struct report_shape *shape, const char *dtype)
{
    int64_t dims[MANIFEST_MAX_DIMS];
    double flops = 0, bytes = 0;
    const struct manifest *manifest = known->manifest;
    if (manifest != NULL && manifest_shape_from_text(manifest, shape->text, dims) == 0)
        plan_work(manifest, &known->device, dims, dtype, &flops, &bytes, NULL);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "shape", dims_json(shape->text),
        "label", label_json(manifest, shape->text), "flops", report_figure(flops), "bytes",
        report_figure(bytes), "best", report_index(shape->best), "default",
        report_index(shape->standard), "ties", ties_json(shape), "method",
        proto_text(shape->method));
}

static json_t *shapes_json(
    const struct known *known, const struct report_group *group, const char *dtype)
{
    json_t *list = json_array();
    for (size_t i = 0; i < group->shape_count; i++)
        json_array_append_new(list, shape_json(known, &group->shapes[i], dtype));
    return list;
}

/* --- the whole -------------------------------------------------------------------------------- */

static json_t *outcomes_json(void)
{
    json_t *list = json_array();
    for (int i = 0; i < OUTCOME_COUNT; i++)
        json_array_append_new(list, json_string(outcome_word((enum outcome)i)));
    return list;
}

static void set_key(json_t *json, const struct sample *sample)
{
    json_object_set_new(json, "kernel", proto_text(sample->key.kernel));
    json_object_set_new(json, "dtype", proto_text(sample->key.dtype));
    json_object_set_new(json, "arch", proto_text(sample->key.arch));
    json_object_set_new(json, "device", proto_text(sample->gpu_name));
    json_object_set_new(json, "mode", proto_text(sample->key.mode));
    json_object_set_new(json, "fingerprint", proto_text(sample->key.fingerprint));
}

static json_t *group_json(
    const struct known *known, const struct report_group *group, const struct sample *sample)
{
    const struct manifest *manifest = known->manifest;
    json_t *json = json_object(), *runs;
    json_t *rows = report_rows_json(group, &known->device, &runs);
    set_key(json, sample);
    json_object_set_new(json, "summary",
        manifest && manifest->summary ? proto_text(manifest->summary) : json_null());
    json_object_set_new(json, "params", params_json(group));
    json_object_set_new(json, "limits", limits_json(known, sample->key.dtype));
    json_object_set_new(json, "shapes", shapes_json(known, group, sample->key.dtype));
    json_object_set_new(json, "configs", configs_json(group));
    json_object_set_new(json, "outcomes", outcomes_json());
    json_object_set_new(json, "rows", rows);
    json_object_set_new(json, "runs", runs);
    json_object_set_new(json, "importance", report_importance_json(group));
    json_object_set_new(json, "loss", report_loss_json(group));
    json_object_set_new(json, "provenance", report_provenance_json(group));
    return json;
}

/* What is asked about a group. */
struct sources {
    report_manifest_of manifest_of;
    report_limits_of limits_of;
    void *context;
};

/* The samples of one group; NULL when none of them can be used. */
static json_t *make_group(
    const struct sources *sources, const struct sample **samples, size_t count)
{
    const struct sample *first = samples[0];
    struct known known = {0};
    struct report_group group;
    json_t *json = NULL;
    if (fill_device(&known.device, first))
        known.manifest =
            sources->manifest_of(first->key.kernel, first->key.fingerprint, sources->context);
    report_group_init(&group, known.manifest, samples, count);
    if (group.count > 0) {
        known.limits = sources->limits_of(first->gpu_name, sources->context);
        json = group_json(&known, &group, first);
        json_decref(known.limits);
    }
    report_group_finish(&group);
    return json;
}

static size_t row_count(const json_t *group)
{
    return json_array_size(json_object_get(json_object_get(group, "rows"), "shape"));
}

/* Before the first group that has fewer rows: equal ones stay in the order of their names. */
static void insert_group(json_t *groups, json_t *group)
{
    size_t at = 0;
    if (group == NULL)
        return;
    while (
        at < json_array_size(groups) && row_count(json_array_get(groups, at)) >= row_count(group))
        at++;
    json_array_insert_new(groups, at, group);
}

json_t *report_model(const struct report *report, report_manifest_of manifest_of,
    report_limits_of limits_of, void *context)
{
    const struct sources sources = {manifest_of, limits_of, context};
    size_t count;
    bool has_others = false;
    const struct sample **samples = standing_samples(report, &count);
    json_t *groups = json_array();
    for (size_t i = 0; i < count; i++)
        has_others |= !is_emulated(samples[i]);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && compare_groups(samples[first], samples[end]) == 0;)
            end++;
        if (!has_others || !is_emulated(samples[first]))
            insert_group(groups, make_group(&sources, samples + first, end - first));
    }
    free(samples);
    return json_pack("{s:s, s:o}", "tunerd", TUNE_VERSION, "groups", groups);
}
