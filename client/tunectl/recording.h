/* A recorded search space: a table with a row per configuration (CSV, perhaps gzipped: one column
 * per parameter, then time_ms, status, repeats_ms separated by ';', estimate_ms for what a static
 * estimate said of it), and beside it an index of value lists and constraints (JSON) from which the
 * space is built as for a sweep. */
#ifndef TUNECTL_RECORDING_H
#define TUNECTL_RECORDING_H

#include "client/error.h"
#include "plugins/space.h"

struct recording {
    char *name; /* the table's file name up to ".csv" */
    struct manifest *manifest;
    struct space *space;
    size_t row_count, missing; /* rows of the table; configurations of the space without one */
    double best_ms;
    bool has_estimates;
    /* By configuration of the space: */
    struct recorded {
        size_t row;         /* SIZE_MAX: not in the table */
        double time_ms;     /* 0 when it failed */
        double estimate_ms; /* guessed beforehand; 0: not */
        size_t repeats_start, repeats_count;
    } * configs;
    double *repeats_ms;
    size_t repeats_total;
};

/* `index_path` NULL: index.json in the table's folder. The index is a list {"spaces":[{"space" or
 * "file","params","constants","constraints"}]} or one such object. 0, or -1; recording_finish in
 * any case. */
int recording_load(struct recording *recording, const char *table_path, const char *index_path,
    struct tune_error *err);
void recording_finish(struct recording *recording);

#endif
