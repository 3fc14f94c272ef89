/* Rows of a foreign file as record lines: configurations by name, times as samples, and what the
 * file does not say from the caller. */
#include "foreign_internal.h"

#include "daemon/worker/stats.h"
#include "tuning_db/record_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What became of a row. */
struct taken {
    struct foreign_row *row;
    char *config, *shape;
    const char *device;
    double median_ns, lo_ns, hi_ns;
    float *samples_ns;
    size_t sample_count;
    bool is_skipped; /* of another GPU or precision, or slower than its like */
};

struct taking {
    struct foreign_file *file;
    const struct foreign_target *target;
    struct taken *rows;
    size_t count;
    bool takes_one_gpu; /* target->gpu is one of several in the file */
    struct tune_error *err;
};

/* --- parameters ------------------------------------------------------------------------------- */

static bool is_number_text(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0';
}

/* Whether a value of a file is this value of the parameter. */
static bool is_value(const struct manifest_param *param, size_t i, const json_t *json)
{
    const char *define = param->value_defines[i], *name = param->value_names[i];
    const char *text = json_string_value(json);
    double number;
    if (text != NULL)
        return (define != NULL && strcmp(define, text) == 0) ||
               (name != NULL && strcmp(name, text) == 0);
    if (json_is_boolean(json) && define != NULL)
        return strcmp(define, json_is_true(json) ? "true" : "false") == 0;
    if (define != NULL)
        return json_is_number(json) && is_number_text(define, &number) &&
               number == json_number_value(json);
    if (json_is_real(json))
        return json_real_value(json) == (double)param->values[i];
    return (json_is_integer(json) ? json_integer_value(json) : json_is_true(json)) ==
               param->values[i] &&
           (json_is_integer(json) || json_is_boolean(json));
}

static void short_text(const json_t *json, char *out, size_t room)
{
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, room, "%s", text ? text : "?");
    free(text);
}

/* The canonical text of a row's configuration; a value that the kernel does not list refuses it. */
static char *config_text(const struct manifest *manifest, struct foreign_row *row)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < manifest->param_count; i++) {
        const struct manifest_param *param = &manifest->params[i];
        const json_t *json = json_object_get(row->config, param->name);
        size_t at = 0;
        while (json != NULL && at < param->value_count && !is_value(param, at, json))
            at++;
        if (at == param->value_count) {
            char given[48];
            short_text(json, given, sizeof given);
            foreign_refuse(row, "%s is no value of the parameter %s", given, param->name);
            return NULL;
        }
        values[i] = param->values[at]; /* of an absent one, the only one there is */
    }
    return manifest_config_text(manifest, values);
}

/* Each parameter of the kernel must be in the file, unless it has one value. */
static int check_missing(struct taking *taking, const struct foreign_row *row)
{
    const struct manifest *manifest = taking->target->manifest;
    for (size_t i = 0; i < manifest->param_count; i++) {
        const struct manifest_param *param = &manifest->params[i];
        if (param->value_count > 1 && json_object_get(row->config, param->name) == NULL)
            return tune_fail(taking->err, TUNE_EINVAL,
                "record %" PRIu64
                " lacks the parameter %s of kernel %s: the file is of another kernel, "
                "or of another version of it",
                row->number, param->name, manifest->name);
    }
    return 0;
}

/* A parameter that the kernel does not have matters only if it was tuned. */
static int check_unknown(struct taking *taking, const struct foreign_row *row, json_t *extra)
{
    const struct manifest *manifest = taking->target->manifest;
    const char *name;
    json_t *value;
    json_object_foreach (row->config, name, value) {
        const json_t *before = json_object_get(extra, name);
        if (manifest_find_param(manifest, name) != SIZE_MAX)
            continue;
        if (before == NULL)
            json_object_set(extra, name, value);
        else if (!json_equal(before, value))
            return tune_fail(taking->err, TUNE_EINVAL,
                "the file tunes a parameter \"%.60s\", which kernel %s does not have", name,
                manifest->name);
    }
    return 0;
}

static int check_params(struct taking *taking)
{
    json_t *extra = json_object(), *value;
    const char *name;
    int status = 0;
    for (size_t i = 0; status == 0 && i < taking->count; i++) {
        const struct foreign_row *row = taking->rows[i].row;
        if (row->refusal == NULL && !taking->rows[i].is_skipped)
            status = check_missing(taking, row) || check_unknown(taking, row, extra) ? -1 : 0;
    }
    if (status == 0)
        json_object_foreach (extra, name, value) {
            char text[48];
            short_text(value, text, sizeof text);
            foreign_warn(taking->file,
                "kernel %s has no parameter %.60s; it is %s throughout the file, and is left out",
                taking->target->manifest->name, name, text);
        }
    json_decref(extra);
    return status;
}

/* --- which rows ------------------------------------------------------------------------------- */

/* A GPU that the file names selects its rows; any other name takes the place of the only one. */
static int choose_gpu(struct taking *taking)
{
    const char *gpu = taking->target->gpu, *first = "";
    bool has_it = false, has_others = false;
    for (size_t i = 0; i < taking->count; i++) {
        const char *device = taking->rows[i].row->device;
        has_it |= gpu != NULL && strcmp(device, gpu) == 0;
        has_others |= first[0] != '\0' && device[0] != '\0' && strcmp(first, device) != 0;
        first = device[0] != '\0' ? device : first;
    }
    if (gpu != NULL && !has_it && has_others)
        return tune_fail(taking->err, TUNE_ENOTFOUND,
            "the file has results of several GPUs, and none is \"%.60s\"; one is \"%.60s\"", gpu,
            first);
    for (size_t i = 0; i < taking->count; i++) {
        struct taken *taken = &taking->rows[i];
        taken->device = gpu != NULL ? gpu : taken->row->device;
        taken->is_skipped |= has_it && strcmp(taken->row->device, gpu) != 0;
    }
    return 0;
}

static void choose_precision(struct taking *taking)
{
    int bits = 8 * (int)dtype_bytes(taking->target->dtype);
    size_t skipped = 0;
    for (size_t i = 0; i < taking->count; i++) {
        const struct foreign_row *row = taking->rows[i].row;
        if (row->precision == 0 || row->precision == bits)
            continue;
        taking->rows[i].is_skipped = true;
        skipped++;
    }
    if (skipped > 0)
        foreign_warn(taking->file, "%zu records of another precision than %s are left out", skipped,
            taking->target->dtype);
}

static int check_arch(struct taking *taking)
{
    for (size_t i = 0; i < taking->count; i++)
        if (taking->target->arch == NULL && taking->rows[i].row->arch[0] == '\0' &&
            !taking->rows[i].is_skipped && taking->rows[i].row->refusal == NULL)
            return tune_fail(taking->err, TUNE_EINVAL,
                "the file does not say which architecture its GPU%s%.60s has: name it with --arch "
                "(sm_80, sm_90, ...)",
                taking->rows[i].row->device[0] ? " " : "", taking->rows[i].row->device);
    return 0;
}

/* --- problem sizes ---------------------------------------------------------------------------- */

static bool same_problem(const struct foreign_row *a, const struct foreign_row *b)
{
    return a->problem_count == b->problem_count &&
           memcmp(a->problem, b->problem, a->problem_count * sizeof a->problem[0]) == 0;
}

static void problem_text(const struct foreign_row *row, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < row->problem_count && used < room; i++)
        used += (size_t)snprintf(
            out + used, room - used, "%s%" PRId64, i > 0 ? "x" : "", row->problem[i]);
}

/* One shape was named, so the file must be of one problem. */
static int check_one_problem(struct taking *taking)
{
    const struct foreign_row *first = NULL;
    for (size_t i = 0; i < taking->count; i++) {
        const struct foreign_row *row = taking->rows[i].row;
        if (taking->rows[i].is_skipped || row->problem_count == 0)
            continue;
        if (first != NULL && !same_problem(first, row)) {
            char a[80], b[80];
            problem_text(first, a, sizeof a);
            problem_text(row, b, sizeof b);
            return tune_fail(taking->err, TUNE_EINVAL,
                "--shape names one shape, but the file has several problem sizes (%s, %s)", a, b);
        }
        first = first ? first : row;
    }
    return 0;
}

/* Without --shape the sizes of the file are the dims, in their order. */
static int check_every_problem(struct taking *taking)
{
    const struct manifest *manifest = taking->target->manifest;
    for (size_t i = 0; i < taking->count; i++) {
        const struct foreign_row *row = taking->rows[i].row;
        if (taking->rows[i].is_skipped || row->refusal != NULL ||
            row->problem_count == manifest->dim_count)
            continue;
        char text[80];
        problem_text(row, text, sizeof text);
        return tune_fail(taking->err, TUNE_EINVAL,
            row->problem_count > 0
                ? "the file's problem size %s has not as many numbers as kernel %s has dimensions: "
                  "name the shape with --shape"
                : "the file%s does not say a problem size of kernel %s: name the shape with "
                  "--shape",
            text, manifest->name);
    }
    if (taking->count > 0)
        foreign_warn(taking->file,
            "the file's problem sizes are taken as the dimensions of %s, in their order",
            manifest->name);
    return 0;
}

/* --- times ------------------------------------------------------------------------------------ */

/* Also as the float that a record keeps. */
static bool is_time(double ns)
{
    return isfinite(ns) && ns < 1e18 && (float)ns > 0;
}

/* The samples, in the order taken, and their median with its interval, as of our own; without any,
 * the one time that is told. */
static int take_times(struct taking *taking, struct taken *taken)
{
    const struct foreign_row *row = taken->row;
    size_t count = json_array_size(row->times), good = 0;
    double ns = row->time_ms * row->unit_ms * 1e6;
    float *samples = malloc((count + 1) * sizeof *samples);
    double *sorted = malloc((2 * count + 1) * sizeof *sorted);
    taken->samples_ns = samples;
    if (samples == NULL || sorted == NULL) {
        free(sorted);
        return tune_fail(taking->err, TUNE_ENOMEM, "no memory for %zu times", count);
    }
    for (size_t i = 0; i < count; i++) {
        double sample = json_number_value(json_array_get(row->times, i)) * row->unit_ms * 1e6;
        if (is_time(sample)) {
            samples[good] = (float)sample;
            sorted[count + good] = (double)samples[good];
            good++;
        }
    }
    if (good > 0) {
        struct stats stats = stats_of(sorted + count, good, sorted);
        taken->median_ns = stats.median;
        taken->lo_ns = stats.lo;
        taken->hi_ns = stats.hi;
    } else if (is_time(ns)) {
        taken->median_ns = taken->lo_ns = taken->hi_ns = ns;
    }
    free(sorted);
    taken->sample_count = good < FOREIGN_SAMPLES_LIMIT ? good : FOREIGN_SAMPLES_LIMIT;
    return 0;
}

/* --- rows ------------------------------------------------------------------------------------- */

static int take_row(struct taking *taking, struct taken *taken)
{
    const struct foreign_target *target = taking->target;
    struct foreign_row *row = taken->row;
    if (taken->is_skipped || row->refusal != NULL)
        return 0;
    taken->config = config_text(target->manifest, row);
    if (row->refusal != NULL)
        return 0;
    taken->shape =
        manifest_shape_text(target->manifest, target->dims ? target->dims : row->problem);
    if (taken->config == NULL || taken->shape == NULL)
        return tune_fail(taking->err, TUNE_ENOMEM, "no memory for a record");
    int64_t dims[MANIFEST_MAX_DIMS];
    if (manifest_shape_from_text(target->manifest, taken->shape, dims)) {
        foreign_refuse(row, "its problem size is no shape of the kernel");
        return 0;
    }
    if (row->outcome != OUTCOME_OK)
        return 0;
    if (take_times(taking, taken))
        return -1;
    if (taken->median_ns == 0)
        foreign_refuse(row, "it neither failed nor has a time");
    return 0;
}

static int compare_taken(const void *left, const void *right)
{
    const struct taken *a = *(struct taken *const *)left, *b = *(struct taken *const *)right;
    bool has_a = a->config != NULL && a->row->refusal == NULL;
    bool has_b = b->config != NULL && b->row->refusal == NULL;
    if (!has_a || !has_b)
        return (int)has_b - (int)has_a;
    int order = strcmp(a->config, b->config);
    order = order ? order : strcmp(a->shape, b->shape);
    order = order ? order : strcmp(a->device, b->device);
    return order ? order : strcmp(a->row->arch, b->row->arch);
}

static bool is_faster(const struct taken *a, const struct taken *b)
{
    if ((a->row->outcome == OUTCOME_OK) != (b->row->outcome == OUTCOME_OK))
        return a->row->outcome == OUTCOME_OK;
    return a->row->outcome == OUTCOME_OK && a->median_ns != b->median_ns
               ? a->median_ns < b->median_ns
               : a->row->number < b->row->number;
}

/* A run has one row of a configuration: the fastest. */
static int drop_repeated(struct taking *taking)
{
    size_t dropped = 0;
    struct taken **order = malloc((taking->count + 1) * sizeof(struct taken *));
    if (order == NULL)
        return tune_fail(taking->err, TUNE_ENOMEM, "no memory for %zu records", taking->count);
    for (size_t i = 0; i < taking->count; i++)
        order[i] = &taking->rows[i];
    qsort(order, taking->count, sizeof(struct taken *), compare_taken);
    for (size_t i = 1; i < taking->count; i++) {
        if (order[i]->config == NULL || order[i]->row->refusal != NULL)
            break;
        if (compare_taken(&order[i - 1], &order[i]) != 0)
            continue;
        struct taken *slower = is_faster(order[i - 1], order[i]) ? order[i] : order[i - 1];
        slower->is_skipped = true;
        order[i] = slower == order[i] ? order[i - 1] : order[i];
        dropped++;
    }
    free(order);
    if (dropped > 0)
        foreign_warn(taking->file,
            "%zu records repeat a configuration of the same GPU and shape; the fastest stays",
            dropped);
    return 0;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void make_line(
    const struct taking *taking, const struct taken *taken, struct foreign_line *line)
{
    const struct foreign_target *target = taking->target;
    const struct foreign_row *row = taken->row;
    struct tune_error why = {0};
    char uuid[128] = "";
    size_t length = strlen(taken->device);
    for (length = length < 100 ? length : 100; (taken->device[length] & 0xC0) == 0x80;)
        length--; /* whole characters: the name may be cut */
    if (length > 0)
        snprintf(uuid, sizeof uuid, "import:%.*s", (int)length, taken->device);
    struct sample sample = {
        .key = {target->manifest->name, target->fingerprint, taken->shape, target->dtype,
            target->arch ? target->arch : row->arch, target->mode},
        .config = taken->config,
        .gpu_uuid = uuid,
        .run = taking->file->run,
        .outcome = row->outcome,
        .is_final = true,
        .attempts = 1,
        .method = foreign_method(taking->file->format),
        .median_ns = taken->median_ns,
        .lo_ns = taken->lo_ns,
        .hi_ns = taken->hi_ns,
        .sample_count = taken->sample_count,
        .samples_ns = taken->samples_ns,
        .detail = row->detail,
        .gpu_name = taken->device,
        .method_note = "imported, unconfirmed",
        .time_unix_ms = row->time_unix_ms,
    };
    line->text = record_line_format(&sample, &length, &why);
    if (line->text == NULL)
        line->refusal = strdup(why.text);
}

static int make_lines(const struct taking *taking, struct foreign_lines *out)
{
    out->lines = calloc(taking->count + 1, sizeof *out->lines);
    if (out->lines == NULL)
        return tune_fail(taking->err, TUNE_ENOMEM, "no memory for %zu lines", taking->count);
    for (size_t i = 0; i < taking->count; i++) {
        const struct taken *taken = &taking->rows[i];
        if (taken->is_skipped)
            continue;
        struct foreign_line *line = &out->lines[out->count++];
        line->number = taken->row->number;
        if (taken->row->refusal != NULL)
            line->refusal = strdup(taken->row->refusal);
        else
            make_line(taking, taken, line);
        if (line->text == NULL && line->refusal == NULL)
            return tune_fail(taking->err, TUNE_ENOMEM, "no memory for a line");
        out->taken += line->text != NULL;
    }
    return 0;
}

static int take(struct taking *taking, struct foreign_lines *out)
{
    if (choose_gpu(taking))
        return -1;
    choose_precision(taking);
    if (check_arch(taking) || check_params(taking) ||
        (taking->target->dims ? check_one_problem(taking) : check_every_problem(taking)))
        return -1;
    for (size_t i = 0; i < taking->count; i++)
        if (take_row(taking, &taking->rows[i]))
            return -1;
    return drop_repeated(taking) ? -1 : make_lines(taking, out);
}

int foreign_lines(struct foreign_file *file, const struct foreign_target *target,
    struct foreign_lines *out, struct tune_error *err)
{
    *out = (struct foreign_lines){0};
    struct taking taking = {.file = file, .target = target, .count = file->count, .err = err};
    taking.rows = calloc(file->count + 1, sizeof *taking.rows);
    if (taking.rows == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu records", file->count);
    for (size_t i = 0; i < file->count; i++)
        taking.rows[i].row = &file->rows[i];
    int status = take(&taking, out);
    for (size_t i = 0; i < file->count; i++) {
        free(taking.rows[i].config);
        free(taking.rows[i].shape);
        free(taking.rows[i].samples_ns);
    }
    free(taking.rows);
    return status;
}

void foreign_lines_finish(struct foreign_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        free(lines->lines[i].text);
        free(lines->lines[i].refusal);
    }
    free(lines->lines);
    *lines = (struct foreign_lines){0};
}
