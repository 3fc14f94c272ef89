/* The rows of a group as columns, and where they come from. */
#include "report_group.h"
#include "print.h"

#include "client/proto.h"
#include "plugins/estimate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DETAIL_BYTES 200     /* of a reason: a page is no log */
#define GPU_IDLE UINT64_C(1) /* the one throttle reason that takes nothing from a kernel */

/* --- columns ---------------------------------------------------------------------------------- */

static json_t *shape_of(const struct report_group *group, size_t row)
{
    return report_index(group->row_shape[row]);
}

static json_t *config_of(const struct report_group *group, size_t row)
{
    return report_index(group->row_config[row]);
}

static json_t *outcome_of(const struct report_group *group, size_t row)
{
    return json_integer((json_int_t)group->rows[row]->outcome);
}

static json_t *time_figure(const struct sample *sample, double ns)
{
    return sample->outcome == OUTCOME_OK ? report_figure(ns) : json_null();
}

static json_t *median_of(const struct report_group *group, size_t row)
{
    return time_figure(group->rows[row], group->rows[row]->median_ns);
}

static json_t *lo_of(const struct report_group *group, size_t row)
{
    return time_figure(group->rows[row], group->rows[row]->lo_ns);
}

static json_t *hi_of(const struct report_group *group, size_t row)
{
    return time_figure(group->rows[row], group->rows[row]->hi_ns);
}

static json_t *moment_of(const struct report_group *group, size_t row)
{
    int64_t time_unix_ms = group->rows[row]->time_unix_ms;
    return time_unix_ms > 0 ? json_integer(time_unix_ms - group->first_unix_ms) : json_null();
}

static json_t *confirmed_of(const struct report_group *group, size_t row)
{
    return json_integer(group->rows[row]->is_confirmed);
}

static json_t *registers_of(const struct report_group *group, size_t row)
{
    return json_integer(group->rows[row]->registers);
}

static json_t *spill_of(const struct report_group *group, size_t row)
{
    return json_integer(group->rows[row]->spill_bytes);
}

static json_t *shared_of(const struct report_group *group, size_t row)
{
    const struct sample *sample = group->rows[row];
    return json_integer((json_int_t)sample->static_shared_bytes + sample->dynamic_shared_bytes);
}

/* Why it failed; cut at a character. */
static json_t *detail_of(const struct report_group *group, size_t row)
{
    const struct sample *sample = group->rows[row];
    char text[DETAIL_BYTES + 1];
    size_t length = sample->outcome == OUTCOME_OK ? 0 : strnlen(sample->detail, DETAIL_BYTES);
    bool is_cut = length > 0 && sample->detail[length] != '\0';
    while (is_cut && length > 0 && ((unsigned char)sample->detail[length] & 0xc0) == 0x80)
        length--;
    snprintf(text, sizeof text, "%.*s", (int)length, sample->detail);
    return proto_text(text);
}

static int compare_cells(const void *left, const void *right)
{
    const struct report_cell *a = left, *b = right;
    return a->shape != b->shape ? (a->shape > b->shape) - (a->shape < b->shape)
                                : (a->config > b->config) - (a->config < b->config);
}

/* 1 where importance and loss take the configuration's time from. */
static json_t *stands_of(const struct report_group *group, size_t row)
{
    const struct report_cell wanted = {group->row_shape[row], group->row_config[row], 0, NULL};
    const struct report_cell *cell =
        bsearch(&wanted, group->cells, group->cell_count, sizeof wanted, compare_cells);
    return json_integer(cell != NULL && cell->sample == group->rows[row]);
}

/* The bytes that a configuration asks for, by the manifest. */
static json_t *traffic_json(const struct report_group *group, const struct device_info *device)
{
    json_t *column = json_array();
    const char *dtype = group->count > 0 ? group->rows[0]->key.dtype : "";
    struct estimator *of_shape = need(calloc(group->shape_count + 1, sizeof *of_shape));
    for (size_t i = 0; group->manifest != NULL && i < group->shape_count; i++) {
        int64_t dims[MANIFEST_MAX_DIMS];
        if (manifest_shape_from_text(group->manifest, group->shapes[i].text, dims) ||
            estimator_init(&of_shape[i], group->manifest, device, dims, dtype, NULL))
            of_shape[i].manifest = NULL;
    }
    for (size_t i = 0; i < group->count; i++) {
        struct estimator *estimator = &of_shape[group->row_shape[i]];
        const int64_t *values = group->values + group->row_config[i] * group->param_count;
        double bytes = NAN;
        if (estimator->manifest == NULL || estimator_traffic(estimator, values, &bytes, NULL))
            bytes = NAN;
        json_array_append_new(column, report_figure(bytes));
    }
    free(of_shape);
    return column;
}

static json_t *texts_json(const char *const *texts, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, proto_text(texts[i]));
    return list;
}

/* The column "run", and the names that it counts. */
static json_t *runs_json(const struct report_group *group, json_t **names)
{
    json_t *column = json_array();
    const char **texts = need(calloc(group->count + 1, sizeof *texts)), **distinct;
    size_t *ids = need(calloc(group->count + 1, sizeof *ids));
    for (size_t i = 0; i < group->count; i++)
        texts[i] = group->rows[i]->run;
    *names = texts_json(distinct, report_number_texts(texts, group->count, ids, &distinct));
    for (size_t i = 0; i < group->count; i++)
        json_array_append_new(column, report_index(ids[i]));
    free(ids);
    free(distinct);
    free(texts);
    return column;
}

static const struct column {
    const char *name;
    json_t *(*of)(const struct report_group *group, size_t row);
} columns[] = {
    {"shape", shape_of},
    {"config", config_of},
    {"outcome", outcome_of},
    {"median_ns", median_of},
    {"lo_ns", lo_of},
    {"hi_ns", hi_of},
    {"time_ms", moment_of},
    {"confirmed", confirmed_of},
    {"stands", stands_of},
    {"registers", registers_of},
    {"spill_bytes", spill_of},
    {"shared_bytes", shared_of},
    {"detail", detail_of},
};

json_t *report_rows_json(
    const struct report_group *group, const struct device_info *device, json_t **runs)
{
    json_t *rows = json_object();
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        json_t *column = json_array();
        for (size_t row = 0; row < group->count; row++)
            json_array_append_new(column, columns[i].of(group, row));
        json_object_set_new(rows, columns[i].name, column);
    }
    json_object_set_new(rows, "requested_bytes", traffic_json(group, device));
    json_object_set_new(rows, "run", runs_json(group, runs));
    return rows;
}

/* --- provenance ------------------------------------------------------------------------------- */

static const char *nvrtc_of(const struct sample *sample)
{
    return sample->nvrtc;
}

static const char *host_of(const struct sample *sample)
{
    return sample->host;
}

static const char *uuid_of(const struct sample *sample)
{
    return sample->gpu_uuid;
}

/* The different texts that the rows have, without the empty one. */
static json_t *distinct_json(
    const struct report_group *group, const char *(*text_of_sample)(const struct sample *sample))
{
    const char **texts = need(calloc(group->count + 1, sizeof *texts)), **distinct;
    size_t *ids = need(calloc(group->count + 1, sizeof *ids)), count = 0;
    for (size_t i = 0; i < group->count; i++)
        if (text_of_sample(group->rows[i])[0] != '\0')
            texts[count++] = text_of_sample(group->rows[i]);
    json_t *list = texts_json(distinct, report_number_texts(texts, count, ids, &distinct));
    free(ids);
    free(distinct);
    free(texts);
    return list;
}

static int compare_drivers(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* 13000 -> "13.0": the CUDA version that a driver supports. */
static json_t *drivers_json(const struct report_group *group)
{
    json_t *list = json_array();
    uint32_t *drivers = need(calloc(group->count + 1, sizeof *drivers));
    for (size_t i = 0; i < group->count; i++)
        drivers[i] = group->rows[i]->driver;
    qsort(drivers, group->count, sizeof *drivers, compare_drivers);
    for (size_t i = 0; i < group->count; i++) {
        char text[32];
        if (drivers[i] == 0 || (i > 0 && drivers[i] == drivers[i - 1]))
            continue;
        snprintf(
            text, sizeof text, "%" PRIu32 ".%" PRIu32, drivers[i] / 1000, drivers[i] % 1000 / 10);
        json_array_append_new(list, json_string(text));
    }
    free(drivers);
    return list;
}

json_t *report_provenance_json(const struct report_group *group)
{
    size_t ok = 0, throttled = 0;
    int64_t first = group->first_unix_ms;
    int64_t last = group->count > 0 ? group->rows[group->count - 1]->time_unix_ms : 0;
    for (size_t i = 0; i < group->count; i++) {
        ok += group->rows[i]->outcome == OUTCOME_OK;
        throttled += (group->rows[i]->throttle_reasons & ~GPU_IDLE) != 0;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "drivers",
        drivers_json(group), "nvrtc", distinct_json(group, nvrtc_of), "hosts",
        distinct_json(group, host_of), "uuids", distinct_json(group, uuid_of), "first_unix_ms",
        first > 0 ? json_integer(first) : json_null(), "last_unix_ms",
        last > 0 ? json_integer(last) : json_null(), "rows", (json_int_t)group->count, "ok",
        (json_int_t)ok, "throttled", (json_int_t)throttled, "set_aside",
        (json_int_t)group->set_aside);
}
