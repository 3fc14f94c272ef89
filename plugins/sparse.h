/* Sparse matrices (and graphs: row u has u's neighbours) as inputs of kernels: what describes one
 * in a kernel's shape, matrices made by name or from a description alone, and files of them
 * (matrix_market.h). Pure: no CUDA, no threads; the same text or description and seed give the same
 * matrix on every machine.
 *
 * Rows have their columns in ascending order; a column may stand twice in a row (R-MAT has edges
 * twice, and a row of more entries than there are columns must). */
#ifndef TUNE_SPARSE_H
#define TUNE_SPARSE_H

#include "client/error.h"

#include <stdbool.h>
#include <stdint.h>

#define SPARSE_MAX_ROWS INT64_C(0x7fffffff)     /* a column's number is an i32 */
#define SPARSE_MAX_NONZEROS INT64_C(0xffffffff) /* 16 GiB of column numbers */
#define SPARSE_INPUT_BYTES 4096                 /* of an input's text, its end included */

/* The dims of a shape that describe a matrix, each >= 1. Those that are rounded lie in the series
 * 10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82 times powers of ten, so that matrices that are
 * alike are one key. */
enum sparse_dim {
    SPARSE_ROWS,
    SPARSE_COLUMNS,
    SPARSE_NONZEROS,
    SPARSE_SPREAD,    /* 100 x root mean square of the entries per row / their mean, rounded */
    SPARSE_LONGEST,   /* entries of the longest row */
    SPARSE_BANDWIDTH, /* 1 + 2 x mean |column - row * COLUMNS / ROWS|, rounded from 10 on */
    SPARSE_SKEW,      /* as SPREAD, of the entries per column */
    SPARSE_DIM_COUNT
};

/* "ROWS", "COLUMNS", ...: as manifests call them. */
extern const char *const sparse_dim_names[SPARSE_DIM_COUNT];

struct sparse_description {
    int64_t dims[SPARSE_DIM_COUNT]; /* 0: not said */
};

struct sparse_matrix {
    int64_t rows, columns, nonzeros;
    int64_t *offsets;    /* rows + 1 */
    int32_t *columns_of; /* nonzeros */
};

void sparse_finish(struct sparse_matrix *matrix);

/* What an input's text names: random:, banded:, power_law:, rmat:, grid: with their parameters, or
 * a file (a text with a slash, or that ends in .mtx). Every failure is a sentence; on one the
 * matrix is empty. */
int sparse_make(const char *input, struct sparse_matrix *matrix, struct tune_error *err);
bool sparse_is_file(const char *input);

/* A matrix with that description: lengths of rows by a power law that is cut off at LONGEST,
 * columns in a band of that width, as many of them popular as SKEW says. Where COLUMNS is not said
 * it is a graph: square, and each edge stands both ways. ROWS and NONZEROS must be said. */
int sparse_from_description(const struct sparse_description *description, uint64_t seed,
    struct sparse_matrix *matrix, struct tune_error *err);

/* The description of a matrix; fails for one without entries. */
int sparse_describe(const struct sparse_matrix *matrix, struct sparse_description *description,
    struct tune_error *err);
/* The same of any CSR arrays; `offset_bytes` is 4 or 8. They are checked: offsets ascend from 0,
 * columns are 0 to columns - 1. */
int sparse_describe_csr(int64_t rows, int64_t columns, const void *offsets, int offset_bytes,
    const int32_t *columns_of, struct sparse_description *description, struct tune_error *err);

/* Whether the dims that `asked` says are those of `found`; a sentence about the first that is not.
 * Without COLUMNS `found` must be square. */
int sparse_compare(const struct sparse_description *asked, const struct sparse_description *found,
    struct tune_error *err);

/* Whether each entry also stands with row and column exchanged, as often. */
bool sparse_is_symmetric(const struct sparse_matrix *matrix);

/* The first row that has the most entries. */
int64_t sparse_longest_row(const struct sparse_matrix *matrix);

/* Ascending random numbers of a dtype ("f32", "u16", ...), over its whole range in integers, over
 * (-1, 1) in floats. */
int sparse_sorted(
    const char *dtype, int64_t count, uint64_t seed, void *data, struct tune_error *err);

#endif
