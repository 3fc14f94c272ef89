/* Sets of record lines, joined: of all rows of one identity (key, configuration, GPU, run) the one
 * that stands before the others (sample_precedence). What comes out depends on the set of lines
 * that were added, not on their order or how often they came. Pure. */
#ifndef TUNE_RECORD_SET_H
#define TUNE_RECORD_SET_H

#include "client/error.h"

#include <stddef.h>

struct record_set;

struct record_set_counts {
    size_t rows;       /* added */
    size_t equal;      /* of these: the same as another one */
    size_t superseded; /* another row of the identity stands */
    size_t standing;   /* rows - equal - superseded */
};

struct record_set *record_set_create(void); /* new; NULL without memory */
void record_set_destroy(struct record_set *set);

/* Parses and copies one line (not a header). -1: the line is not taken, for the reason that
 * record_line_parse gives, or without memory; the set is as before. */
int record_set_add(struct record_set *set, const char *line, size_t length, struct tune_error *err);

/* The rows that stand, as canonical lines sorted by their bytes, NUL-terminated; borrowed until the
 * set is changed or destroyed. *count of them. NULL without memory. */
const char *const *record_set_join(struct record_set *set, struct record_set_counts *counts);

#endif
