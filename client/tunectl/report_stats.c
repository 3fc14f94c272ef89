/* What a report counts over a group's times: how much each parameter matters, and what it costs to
 * use one configuration everywhere. See report.h for the terms. */
#include "report_group.h"
#include "print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IMPORTANCE_ROWS_MIN 8 /* fewer times say little of a dozen parameters */
#define LOSS_CONFIGS_MAX 24   /* rows of a matrix that a person still reads */

json_t *report_figure(double value)
{
    char text[32];
    if (!isfinite(value))
        return json_null();
    snprintf(text, sizeof text, "%.6g", value);
    value = strtod(text, NULL);
    bool is_integer = fabs(value) < 1e15 && value == floor(value);
    return is_integer ? json_integer((json_int_t)value) : json_real(value);
}

json_t *report_index(size_t index)
{
    return index == REPORT_NONE ? json_null() : json_integer((json_int_t)index);
}

/* --- importance ------------------------------------------------------------------------------- */

struct observation {
    int64_t value; /* of the parameter at hand */
    double log_time;
};

static int compare_values(const void *left, const void *right)
{
    const struct observation *a = left, *b = right;
    return (a->value > b->value) - (a->value < b->value);
}

static double mean_of(const struct observation *of, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += of[i].log_time;
    return sum / (double)count;
}

/* Sum of squares between the means of the parameter's values, each weighed by its rows. */
static double squares_between(struct observation *of, size_t count, double mean)
{
    double squares = 0;
    qsort(of, count, sizeof *of, compare_values);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && of[end].value == of[first].value;)
            end++;
        double off = mean_of(of + first, end - first) - mean;
        squares += (double)(end - first) * off * off;
    }
    return squares;
}

static double squares_of_all(const struct observation *of, size_t count, double mean)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += (of[i].log_time - mean) * (of[i].log_time - mean);
    return squares;
}

static void observe(struct observation *of, const double *times, const int64_t *values,
    size_t count, size_t param_count)
{
    for (size_t i = 0; i < count; i++)
        of[i] = (struct observation){values[i * param_count], log(times[i])};
}

void report_importance(const double *times, const int64_t *values, size_t count, size_t param_count,
    double *shares, double *rest)
{
    struct observation *of = need(calloc(count + 1, sizeof *of));
    observe(of, times, values, count, param_count);
    double mean = mean_of(of, count), all = squares_of_all(of, count, mean), sum = 0;
    /* Equal times differ by rounding alone, which is no variance. */
    bool has_variance = all > (double)count * 1e-20;
    for (size_t p = 0; p < param_count; p++) {
        observe(of, times, values + p, count, param_count);
        shares[p] = has_variance ? squares_between(of, count, mean) / all : 0;
        sum += shares[p];
    }
    *rest = has_variance && sum < 1 ? 1 - sum : 0;
    free(of);
}

/* Of the cells [first, end); nothing when they are too few. */
static void append_importance(
    json_t *list, const struct report_group *group, size_t shape, size_t first, size_t end)
{
    size_t count = end - first, params = group->param_count;
    if (count < IMPORTANCE_ROWS_MIN || params == 0)
        return;
    double *times = need(calloc(count, sizeof *times)), shares[MANIFEST_MAX_PARAMS], rest;
    int64_t *values = need(calloc(count * params, sizeof *values));
    for (size_t i = 0; i < count; i++) {
        const struct report_cell *cell = &group->cells[first + i];
        times[i] = cell->ns / group->shapes[cell->shape].best_ns;
        memcpy(values + i * params, group->values + cell->config * params, params * sizeof *values);
    }
    report_importance(times, values, count, params, shares, &rest);
    json_t *list_of_shares = json_array();
    for (size_t p = 0; p < params; p++)
        json_array_append_new(list_of_shares, report_figure(shares[p]));
    json_array_append_new(
        list, json_pack("{s:o, s:I, s:o, s:o}", "shape", report_index(shape), "rows",
                  (json_int_t)count, "shares", list_of_shares, "rest", report_figure(rest)));
    free(values);
    free(times);
}

json_t *report_importance_json(const struct report_group *group)
{
    json_t *list = json_array();
    append_importance(list, group, REPORT_NONE, 0, group->cell_count);
    for (size_t first = 0, end; first < group->cell_count; first = end) {
        size_t shape = group->cells[first].shape;
        for (end = first + 1; end < group->cell_count && group->cells[end].shape == shape;)
            end++;
        append_importance(list, group, shape, first, end);
    }
    return list;
}

/* --- loss ------------------------------------------------------------------------------------- */

/* One configuration, used everywhere. */
struct candidate {
    size_t config, shapes; /* shapes: where it has a time */
    bool is_named;         /* best or default of some shape */
    double worst, log_sum; /* of time / best time */
};

/* A search's single measurement may be luckier than the confirmed best: that is no gain. */
static double ratio_of(const struct report_group *group, const struct report_cell *cell)
{
    double ratio = cell->ns / group->shapes[cell->shape].best_ns;
    return ratio > 1 ? ratio : 1;
}

static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->shapes != b->shapes)
        return a->shapes > b->shapes ? -1 : 1;
    if (a->worst != b->worst)
        return a->worst < b->worst ? -1 : 1;
    if (a->log_sum != b->log_sum)
        return a->log_sum < b->log_sum ? -1 : 1;
    return (a->config > b->config) - (a->config < b->config);
}

static int compare_claims(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->is_named != b->is_named ? (a->is_named ? -1 : 1) : compare_candidates(left, right);
}

static size_t timed_shapes(const struct report_group *group)
{
    size_t count = 0;
    for (size_t i = 0; i < group->shape_count; i++)
        count += group->shapes[i].best != REPORT_NONE;
    return count;
}

static struct candidate *rate_all(const struct report_group *group)
{
    struct candidate *all = need(calloc(group->config_count + 1, sizeof *all));
    for (size_t i = 0; i < group->config_count; i++)
        all[i] = (struct candidate){.config = i};
    for (size_t i = 0; i < group->cell_count; i++) {
        struct candidate *candidate = &all[group->cells[i].config];
        double ratio = ratio_of(group, &group->cells[i]);
        candidate->shapes++;
        candidate->log_sum += log(ratio);
        if (ratio > candidate->worst)
            candidate->worst = ratio;
    }
    for (size_t i = 0; i < group->shape_count; i++) {
        const struct report_shape *shape = &group->shapes[i];
        if (shape->best != REPORT_NONE)
            all[shape->best].is_named = true;
        if (shape->standard != REPORT_NONE)
            all[shape->standard].is_named = true;
    }
    return all;
}

/* Puts those that the matrix shows in front, best overall first, and tells how many they are. */
static size_t choose(const struct report_group *group, struct candidate *all)
{
    size_t kept = 0, shapes = timed_shapes(group);
    for (size_t i = 0; i < group->config_count; i++)
        if (all[i].shapes > 0 && (all[i].is_named || all[i].shapes == shapes))
            all[kept++] = all[i];
    qsort(all, kept, sizeof *all, compare_claims);
    if (kept > LOSS_CONFIGS_MAX)
        kept = LOSS_CONFIGS_MAX;
    qsort(all, kept, sizeof *all, compare_candidates);
    return kept;
}

/* One row of the matrix for each of the chosen. */
static json_t *matrix_json(
    const struct report_group *group, const struct candidate *chosen, size_t count)
{
    json_t *matrix = json_array();
    size_t *row_of = need(calloc(group->config_count + 1, sizeof *row_of));
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < group->shape_count; j++)
            json_array_append_new(row, json_null());
        json_array_append_new(matrix, row);
        row_of[chosen[i].config] = i + 1;
    }
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct report_cell *cell = &group->cells[i];
        size_t row = row_of[cell->config];
        if (row > 0)
            json_array_set_new(json_array_get(matrix, row - 1), cell->shape,
                report_figure(ratio_of(group, cell) - 1));
    }
    free(row_of);
    return matrix;
}

json_t *report_loss_json(const struct report_group *group)
{
    struct candidate *all = rate_all(group);
    size_t count = choose(group, all);
    json_t *configs = json_array(), *worst = json_array(), *mean = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(configs, report_index(all[i].config));
        json_array_append_new(worst, report_figure(all[i].worst - 1));
        json_array_append_new(mean, report_figure(expm1(all[i].log_sum / (double)all[i].shapes)));
    }
    json_t *matrix = matrix_json(group, all, count);
    free(all);
    return json_pack(
        "{s:o, s:o, s:o, s:o}", "configs", configs, "matrix", matrix, "worst", worst, "mean", mean);
}
