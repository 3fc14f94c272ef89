/* See report_group.h. What is best, what ties with it and what stands is decided by
 * tuning_db/best.c, as for the answers of the daemon. */
#include "report_group.h"
#include "print.h"

#include "tuning_db/best.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *room_for(size_t count, size_t bytes)
{
    return need(calloc(count + 1, bytes));
}

/* --- texts ------------------------------------------------------------------------------------ */

struct numbered {
    const char *text;
    size_t at;
};

static int compare_numbered(const void *left, const void *right)
{
    const struct numbered *a = left, *b = right;
    return strverscmp(a->text, b->text);
}

size_t report_number_texts(
    const char *const *texts, size_t count, size_t *ids, const char ***distinct)
{
    struct numbered *sorted = room_for(count, sizeof *sorted);
    size_t distinct_count = 0;
    *distinct = room_for(count, sizeof **distinct);
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct numbered){texts[i], i};
    qsort(sorted, count, sizeof *sorted, compare_numbered);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(sorted[i - 1].text, sorted[i].text) != 0)
            (*distinct)[distinct_count++] = sorted[i].text;
        ids[sorted[i].at] = distinct_count - 1;
    }
    free(sorted);
    return distinct_count;
}

/* The place of a text among those that report_number_texts told, or REPORT_NONE. */
static size_t find_text(const char *const *distinct, size_t count, const char *text)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strverscmp(distinct[middle], text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && strcmp(distinct[low], text) == 0 ? low : REPORT_NONE;
}

/* --- configurations --------------------------------------------------------------------------- */

static bool read_value(const char **at, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (end == *at || errno != 0 || (*end != ',' && *end != '\0'))
        return false;
    *at = *end == ',' ? end + 1 : end;
    return true;
}

/* "BM=64,BN=32" -> 64, 32; false unless these are the group's parameters in their order. */
static bool read_config(const struct report_group *group, const char *text, int64_t *values)
{
    for (size_t i = 0; i < group->param_count; i++) {
        size_t length = strlen(group->params[i]);
        if (strncmp(text, group->params[i], length) != 0 || text[length] != '=')
            return false;
        text += length + 1;
        if (!read_value(&text, &values[i]))
            return false;
    }
    return *text == '\0';
}

/* Names of the manifest, or else of a configuration as it is written. */
static void take_params(struct report_group *group, const char *config)
{
    const struct manifest *manifest = group->manifest;
    for (size_t i = 0; manifest != NULL && i < manifest->param_count; i++)
        group->params[group->param_count++] = need(strdup(manifest->params[i].name));
    if (manifest != NULL)
        return;
    while (*config != '\0' && group->param_count < MANIFEST_MAX_PARAMS) {
        size_t length = strcspn(config, "=,");
        group->params[group->param_count++] = need(strndup(config, length));
        config += strcspn(config, ",");
        config += *config == ',';
    }
}

/* --- what is set aside ------------------------------------------------------------------------ */

static bool is_usable(const struct report_group *group, const struct sample *sample)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    bool is_told = sample->outcome != OUTCOME_OK ? sample->is_final && !sample->is_refused
                                                 : sample_is_eligible(sample);
    return is_told && read_config(group, sample->config, values);
}

/* Moves the usable ones to the front, and tells how many they are. */
static size_t keep_usable(struct report_group *group, const struct sample **samples, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (is_usable(group, samples[i]))
            samples[kept++] = samples[i];
    group->set_aside += count - kept;
    return kept;
}

/* --- one shape -------------------------------------------------------------------------------- */

/* What is at hand while the shapes are gone through. */
struct making {
    struct report_group *group;
    const char *const *configs; /* of the whole group, in order */
};

static size_t config_of(const struct making *making, const char *text)
{
    return find_text(making->configs, making->group->config_count, text);
}

/* The default of the winner's run, or else any other that says that it is the default. */
static const char *find_standard(
    const struct best *best, const struct sample *const *samples, size_t count)
{
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!samples[i]->is_default)
            continue;
        if (best != NULL && strcmp(samples[i]->run, best->run) == 0)
            return samples[i]->config;
        found = samples[i]->config;
    }
    return found;
}

static void take_best(
    const struct making *making, struct report_shape *shape, const struct best *best)
{
    shape->best = config_of(making, best->config);
    shape->best_ns = best->median_ns;
    shape->method = best->method;
    shape->ties = room_for(best->tie_count, sizeof *shape->ties);
    for (size_t i = 0; i < best->tie_count; i++)
        shape->ties[shape->tie_count++] = config_of(making, best->ties[i]);
}

struct standing {
    const struct sample *sample;
    size_t config;
};

static int compare_standing(const void *left, const void *right)
{
    const struct standing *a = left, *b = right;
    return a->config != b->config ? (a->config > b->config) - (a->config < b->config)
                                  : sample_compare(a->sample, b->sample);
}

/* Of each configuration the time of the GPU on which it is best; those of another method than the
 * winner's (another model under the same name has chosen it) are left out. */
static void take_cells(const struct making *making, const struct report_shape *shape,
    const struct sample **samples, size_t count)
{
    struct report_group *group = making->group;
    struct standing *standing = room_for(count, sizeof *standing);
    size_t standing_count = 0;
    count = best_standing(samples, count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(samples[i]->method, shape->method) == 0)
            standing[standing_count++] =
                (struct standing){samples[i], config_of(making, samples[i]->config)};
    qsort(standing, standing_count, sizeof *standing, compare_standing);
    for (size_t i = 0; i < standing_count; i++)
        if (i == 0 || standing[i - 1].config != standing[i].config)
            group->cells[group->cell_count++] =
                (struct report_cell){(size_t)(shape - group->shapes), standing[i].config,
                    standing[i].sample->median_ns, standing[i].sample};
    free(standing);
}

/* Samples of one shape; keeps those that are of its method, or failed. */
static void add_shape(const struct making *making, const struct sample **samples, size_t count)
{
    struct report_group *group = making->group;
    struct report_shape *shape = &group->shapes[group->shape_count++];
    const struct sample **copy = room_for(count, sizeof *copy);
    struct best_rows rows;
    memcpy(copy, samples, count * sizeof *copy);
    need(best_rows_pick(&rows, copy, count) == 0 ? &rows : NULL);
    const struct best *best = rows.count > 0 ? &rows.rows[rows.arch] : NULL;
    const char *standard = find_standard(best, samples, count);
    *shape = (struct report_shape){samples[0]->key.shape, REPORT_NONE, REPORT_NONE, "", 0, NULL, 0};
    if (standard != NULL)
        shape->standard = config_of(making, standard);
    if (best != NULL) {
        take_best(making, shape, best);
        take_cells(making, shape, copy, count);
    }
    for (size_t i = 0; i < count; i++) {
        bool is_other = samples[i]->outcome == OUTCOME_OK && best != NULL &&
                        strcmp(samples[i]->method, shape->method) != 0;
        if (is_other)
            group->set_aside++;
        else
            group->rows[group->count++] = samples[i];
    }
    best_rows_finish(&rows);
    free(copy);
}

/* --- the group -------------------------------------------------------------------------------- */

static int compare_shapes(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    return strverscmp(a->key.shape, b->key.shape);
}

static void add_shapes(const struct making *making, const struct sample **samples, size_t count)
{
    struct report_group *group = making->group;
    group->rows = room_for(count, sizeof *group->rows);
    group->cells = room_for(count, sizeof *group->cells);
    group->shapes = room_for(count, sizeof *group->shapes);
    qsort(samples, count, sizeof *samples, compare_shapes);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1;
             end < count && strcmp(samples[first]->key.shape, samples[end]->key.shape) == 0;)
            end++;
        add_shape(making, samples + first, end - first);
    }
}

static int compare_moments(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    if (a->time_unix_ms != b->time_unix_ms)
        return a->time_unix_ms < b->time_unix_ms ? -1 : 1;
    int order = strcmp(a->run, b->run);
    if (order == 0)
        order = strverscmp(a->key.shape, b->key.shape);
    if (order == 0)
        order = strverscmp(a->config, b->config);
    return order != 0 ? order : strcmp(a->gpu_uuid, b->gpu_uuid);
}

/* Where each row belongs, by the columns of the report. */
static void number_rows(const struct making *making)
{
    struct report_group *group = making->group;
    const char **shapes = room_for(group->shape_count, sizeof *shapes);
    for (size_t i = 0; i < group->shape_count; i++)
        shapes[i] = group->shapes[i].text;
    group->row_shape = room_for(group->count, sizeof *group->row_shape);
    group->row_config = room_for(group->count, sizeof *group->row_config);
    for (size_t i = 0; i < group->count; i++) {
        group->row_shape[i] = find_text(shapes, group->shape_count, group->rows[i]->key.shape);
        group->row_config[i] = config_of(making, group->rows[i]->config);
    }
    free(shapes);
}

static int64_t find_first_moment(const struct report_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->rows[i]->time_unix_ms > 0)
            return group->rows[i]->time_unix_ms;
    return 0;
}

static const char **number_configs(
    struct report_group *group, const struct sample *const *samples, size_t count)
{
    const char **texts = room_for(count, sizeof *texts), **distinct;
    size_t *ids = room_for(count, sizeof *ids);
    for (size_t i = 0; i < count; i++)
        texts[i] = samples[i]->config;
    group->config_count = report_number_texts(texts, count, ids, &distinct);
    group->values = room_for(group->config_count * group->param_count, sizeof *group->values);
    for (size_t i = 0; i < group->config_count; i++)
        read_config(group, distinct[i], group->values + i * group->param_count);
    free(ids);
    free(texts);
    return distinct;
}

void report_group_init(struct report_group *group, const struct manifest *manifest,
    const struct sample **samples, size_t count)
{
    *group = (struct report_group){.manifest = manifest};
    take_params(group, samples[0]->config);
    count = keep_usable(group, samples, count);
    const char **configs = number_configs(group, samples, count);
    struct making making = {group, configs};
    add_shapes(&making, samples, count);
    qsort(group->rows, group->count, sizeof *group->rows, compare_moments);
    group->first_unix_ms = find_first_moment(group);
    number_rows(&making);
    free(configs);
}

void report_group_finish(struct report_group *group)
{
    for (size_t i = 0; i < group->param_count; i++)
        free(group->params[i]);
    for (size_t i = 0; i < group->shape_count; i++)
        free(group->shapes[i].ties);
    free(group->rows);
    free(group->row_shape);
    free(group->row_config);
    free(group->values);
    free(group->shapes);
    free(group->cells);
    *group = (struct report_group){0};
}
