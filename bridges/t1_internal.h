/* Between t1.c (the space) and t1_launch.c (how the kernel is launched). */
#ifndef TUNE_BRIDGES_T1_INTERNAL_H
#define TUNE_BRIDGES_T1_INTERNAL_H

#include "python_expr.h"
#include "t1.h"
#include "told.h"

#define T1_DIMS 3

struct t1_param {
    const char *name; /* of the description */
    struct python *python;
    size_t count, fallback; /* fallback: index of the default */
    struct python_value values[MANIFEST_MAX_VALUES];
    int64_t numbers[MANIFEST_MAX_VALUES];
    char names[MANIFEST_MAX_VALUES][MANIFEST_MAX_NAME + 1];   /* "": a plain integer */
    char defines[MANIFEST_MAX_VALUES][MANIFEST_MAX_NAME + 1]; /* what the source gets */
    bool is_integer;
};

struct t1_reader {
    const json_t *space, *kernel;
    const struct t1_options *options;
    struct t1_param *params;
    size_t param_count, dim_count;
    int64_t problem[T1_DIMS];
    json_t *manifest, *warnings;
    bool is_quiet; /* everything has been warned of already */
    struct tune_error *err;
};

void t1_warn(struct t1_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A C identifier made of any text, in out[MANIFEST_MAX_NAME + 1]. */
void t1_identifier(const char *text, const char *prefix, char *out);

/* t1_launch.c. Warns when the two halves of a description name different benchmarks. */
void t1_compare_names(struct t1_reader *reader, const json_t *general);

/* Dims, shapes, dtypes, buffers, launches, reference, checks into the manifest. */
int t1_add_launch(struct t1_reader *reader);

#endif
