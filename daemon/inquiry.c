/* See inquiry.h. */
#include "daemon/inquiry.h"

#include "plugins/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which configuration ---------------------------------------------------------------------- */

static int unknown_param(const struct manifest *manifest, const char *name, struct tune_error *err)
{
    char names[160] = "";
    for (size_t i = 0; i < manifest->param_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "", manifest->params[i].name);
    }
    return tune_fail(err, TUNE_EINVAL, "%.40s has no parameter \"%.30s\"; there are: %s",
        manifest->name, name, names);
}

int inquiry_config(struct inquiry *inquiry, const json_t *config, struct tune_error *err)
{
    const struct manifest *manifest = inquiry->question.plugin->manifest;
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)config, name, value) {
        size_t param = manifest_find_param(manifest, name);
        if (param == SIZE_MAX)
            return unknown_param(manifest, name, err);
        if (manifest_param_value(&manifest->params[param], value, &inquiry->values[param], err))
            return -1;
        inquiry->is_given[param] = true;
    }
    inquiry->has_config = true;
    return 0;
}

static size_t count_given(const struct inquiry *inquiry)
{
    size_t count = 0;
    for (size_t i = 0; i < inquiry->question.plugin->manifest->param_count; i++)
        count += inquiry->is_given[i];
    return count;
}

/* The parameters not given are those of the best known configuration. */
static int fill(struct inquiry *inquiry, struct tuning_db *db, struct tune_error *err)
{
    struct resolved resolved;
    const struct manifest *manifest = inquiry->question.plugin->manifest;
    if (resolve(db, &inquiry->question, &resolved, err))
        return -1;
    if (resolved.origin == RESOLVE_NONE)
        return tune_fail(err, TUNE_ENOTFOUND,
            "no configuration of %s is known to be valid for this shape on %s: give all "
            "parameters",
            manifest->name, inquiry->question.device.arch);
    for (size_t i = 0; i < manifest->param_count; i++)
        if (!inquiry->is_given[i])
            inquiry->values[i] = resolved.values[i];
    const char *origin = json_string_value(json_object_get(resolved.json, "origin"));
    snprintf(inquiry->filled_from, sizeof inquiry->filled_from, "%s", origin);
    if (!inquiry->has_config)
        snprintf(inquiry->origin, sizeof inquiry->origin, "%s", origin);
    resolved_finish(&resolved);
    return 0;
}

static int check(const struct inquiry *inquiry, struct tune_error *err)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct question *question = &inquiry->question;
    const struct manifest *manifest = question->plugin->manifest;
    struct tune_error cause = {0};
    manifest_bind(manifest, &question->device, question->dims, question->dtype, slots);
    if (space_check(manifest, inquiry->values, slots, &cause) == 0)
        return 0;
    bool is_mixed = inquiry->has_config && inquiry->filled_from[0] != '\0';
    return tune_fail(err, cause.code, "%.150s%s", cause.text,
        is_mixed ? " (parameters not given are those of the best known configuration)" : "");
}

/* --- how long it took ------------------------------------------------------------------------- */

struct measuring {
    struct inquiry *inquiry;
    const char *config; /* canonical text */
    bool is_same_gpu, is_confirmed;
};

/* What one row says of the configuration. */
struct reading {
    const char *config, *gpu_name;
    uint32_t sms;
    bool is_confirmed;
    double median_ns, lo_ns, hi_ns;
};

/* The same GPU model first, then a confirmed time, then the one that is certainly shorter. */
static bool is_better(
    const struct measuring *measuring, const struct reading *reading, bool is_same_gpu)
{
    const struct inquiry *inquiry = measuring->inquiry;
    if (inquiry->measured_on[0] == '\0' || is_same_gpu != measuring->is_same_gpu)
        return inquiry->measured_on[0] == '\0' || is_same_gpu;
    if (reading->is_confirmed != measuring->is_confirmed)
        return reading->is_confirmed;
    return reading->hi_ns < inquiry->hi_ns;
}

static void take_reading(struct measuring *measuring, const struct reading *reading)
{
    struct inquiry *inquiry = measuring->inquiry;
    const struct device_info *device = &inquiry->question.device;
    bool is_same_gpu =
        strcmp(reading->gpu_name, device->name) == 0 && nearest_same_sms(reading->sms, device);
    if (strcmp(reading->config, measuring->config) != 0 ||
        !is_better(measuring, reading, is_same_gpu))
        return;
    measuring->is_same_gpu = is_same_gpu;
    measuring->is_confirmed = reading->is_confirmed;
    snprintf(inquiry->measured_on, sizeof inquiry->measured_on, "%s", reading->gpu_name);
    inquiry->median_ns = reading->median_ns;
    inquiry->lo_ns = reading->lo_ns;
    inquiry->hi_ns = reading->hi_ns;
}

static int on_sample(const struct sample *sample, void *context)
{
    if (sample_is_eligible(sample))
        take_reading(
            context, &(struct reading){sample->config, sample->gpu_name, sample->sms,
                         sample->is_confirmed, sample->median_ns, sample->lo_ns, sample->hi_ns});
    return 0;
}

/* Records that came with the program are among the best rows only. */
static int on_best(const struct best *best, void *context)
{
    take_reading(context, &(struct reading){best->config, best->gpu_name, best->sms,
                              best->is_confirmed, best->median_ns, best->lo_ns, best->hi_ns});
    return 0;
}

static int measure(struct inquiry *inquiry, struct tuning_db *db, struct tune_error *err)
{
    const struct question *question = &inquiry->question;
    const struct manifest *manifest = question->plugin->manifest;
    char *shape = manifest_shape_text(manifest, question->dims);
    char *config = manifest_config_text(manifest, inquiry->values);
    struct measuring measuring = {.inquiry = inquiry, .config = config};
    struct record_key key = {
        .kernel = manifest->name,
        .fingerprint = question->plugin->fingerprint,
        .shape = shape,
        .dtype = question->dtype,
        .arch = question->device.arch,
        .mode = question->mode,
    };
    int status = tuning_db_walk_samples(db, &key, on_sample, &measuring, err) ||
                         tuning_db_walk_best_of(db, &key, on_best, &measuring, err)
                     ? -1
                     : 0;
    free(shape);
    free(config);
    return status;
}

int inquiry_run(struct inquiry *inquiry, struct tuning_db *db, struct tune_error *err)
{
    snprintf(inquiry->origin, sizeof inquiry->origin, "given");
    bool is_whole = count_given(inquiry) == inquiry->question.plugin->manifest->param_count;
    if (!is_whole && fill(inquiry, db, err))
        return -1;
    return check(inquiry, err) || measure(inquiry, db, err) ? -1 : 0;
}
