/* What the files of sparse.h share: sparse.c describes, sparse_named.c makes what an input's text
 * names, sparse_described.c makes from a description, sparse_graph.c joins a graph's vertices. */
#ifndef TUNE_SPARSE_INTERNAL_H
#define TUNE_SPARSE_INTERNAL_H

#include "plugins/sparse.h"

/* Numbers that depend on their place alone (splitmix64). */
struct sparse_random {
    uint64_t state;
};

static inline uint64_t sparse_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static inline uint64_t sparse_next(struct sparse_random *random)
{
    return sparse_mix(random->state += 0x9e3779b97f4a7c15ull);
}

/* 0 to limit - 1; limit at most 2^32. */
static inline int64_t sparse_below(struct sparse_random *random, int64_t limit)
{
    return (int64_t)((sparse_next(random) >> 32) * (uint64_t)limit >> 32);
}

/* In [0, 1). */
static inline double sparse_share(struct sparse_random *random)
{
    return (double)(sparse_next(random) >> 11) * 0x1p-53;
}

/* To the series of sparse.h, the nearest by ratio; below `exact`, at most 10, to an integer. */
int64_t sparse_round(double value, double exact);

/* Room for `rows` rows; offsets are 0. */
int sparse_begin(
    struct sparse_matrix *matrix, int64_t rows, int64_t columns, struct tune_error *err);
/* offsets[i + 1] holds the length of row i: sums them up and makes room for the columns. */
int sparse_sum_lengths(struct sparse_matrix *matrix, struct tune_error *err);

/* For entries that come in any order: offsets[i], where row i begins, is raised with each that is
 * put there; afterwards sparse_end_placing makes offsets of them again. */
void sparse_end_placing(struct sparse_matrix *matrix);
int sparse_sort_rows(struct sparse_matrix *matrix, struct tune_error *err);
/* Room for the longest row, malloc'ed; NULL with the error. */
int32_t *sparse_row_room(const struct sparse_matrix *matrix, struct tune_error *err);

/* Sorts a row; `room` has as many elements. */
void sparse_sort_row(int32_t *columns, int64_t count, int32_t *room);

/* `count` of `window` columns from `first` on, ascending: each at most once, or, when they are
 * more than the window has, each about as often. */
void sparse_sample(struct sparse_random *random, int64_t first, int64_t window, int64_t count,
    int32_t *columns, int32_t *room);

/* Fills rows of known lengths, so that each edge stands both ways. */
int sparse_join(struct sparse_matrix *matrix, int64_t bandwidth, struct sparse_random *random,
    struct tune_error *err);

/* Where a window of that width lies around row's place on the diagonal. */
int64_t sparse_window_start(const struct sparse_matrix *matrix, int64_t row, int64_t window);

/* Lengths by a power law: of all rows a share of min(1, (c / x)^tail) has more than x - 1/2
 * entries, none more than `most`, so that their sum is `total`. spread_squared: the mean of the
 * squares by the square of the mean, or 0 where `tail` is given. The longest come first. */
int sparse_lengths(int64_t *lengths, int64_t rows, int64_t total, int64_t most,
    double spread_squared, double tail, struct tune_error *err);
void sparse_shuffle(int64_t *values, int64_t count, struct sparse_random *random);

#endif
