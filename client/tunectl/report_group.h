/* One group of a report, put in order: what report_model.c writes down and report_stats.c counts.
 * Texts are borrowed from the samples. */
#ifndef TUNECTL_REPORT_GROUP_H
#define TUNECTL_REPORT_GROUP_H

#include "report.h"

#include <stdbool.h>

#define REPORT_NONE SIZE_MAX /* in place of an index */

struct report_shape {
    const char *text;
    size_t best, standard;   /* configurations; standard: the manifest's default */
    const char *method;      /* of the best, "" without one: the one method whose times are here */
    double best_ns;          /* 0 without one */
    size_t *ties, tie_count; /* configurations; ties is ours */
};

/* The time that stands for a configuration of a shape. */
struct report_cell {
    size_t shape, config;
    double ns;
    const struct sample *sample;
};

struct report_group {
    const struct manifest *manifest; /* or NULL; borrowed */
    size_t param_count;
    char *params[MANIFEST_MAX_PARAMS];
    size_t count; /* of the rows that are used, in order of time */
    const struct sample **rows;
    size_t *row_shape, *row_config;
    size_t config_count, shape_count;
    int64_t *values; /* param_count for each configuration */
    struct report_shape *shapes;
    struct report_cell *cells; /* by shape, then configuration; none twice */
    size_t cell_count;
    size_t set_aside;
    int64_t first_unix_ms; /* of the rows that tell when they were measured; 0: none */
};

/* Puts samples of one group in order; `samples` is reordered. A sample is set aside when it is not
 * final, refused, no possible time, of other parameters than the rest, or of another method than
 * the best of its shape. */
void report_group_init(struct report_group *group, const struct manifest *manifest,
    const struct sample **samples, size_t count);
void report_group_finish(struct report_group *group);

/* Numbers the texts: ids[i] is the place of texts[i] among the different ones, which are put in
 * order (M=64 before M=128) and told in *distinct, malloc'ed. Returns how many they are. */
size_t report_number_texts(
    const char *const *texts, size_t count, size_t *ids, const char ***distinct);

/* --- report_columns.c --- */

/* "rows", and with it "runs"; both new. */
json_t *report_rows_json(
    const struct report_group *group, const struct device_info *device, json_t **runs);
json_t *report_provenance_json(const struct report_group *group);

/* --- report_stats.c --- */

/* The members "importance" and "loss" of a group; new. */
json_t *report_importance_json(const struct report_group *group);
json_t *report_loss_json(const struct report_group *group);

/* A number with six digits, an integer where it is one; null where it is none. New. */
json_t *report_figure(double value);
/* An index, or null for REPORT_NONE. New. */
json_t *report_index(size_t index);

#endif
