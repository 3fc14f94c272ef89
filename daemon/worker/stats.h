/* The statistics of a candidate's samples: distribution-free, because times are skewed. Pure. */
#ifndef TUNE_WORKER_STATS_H
#define TUNE_WORKER_STATS_H

#include <stddef.h>

struct stats {
    double median, lo, hi; /* lo..hi: 95 % interval of the median */
};

/* Ranks (0-based, ascending order) of the order statistics that bound the median with at least 95 %
 * confidence. Below six samples there are none that do: then the extremes. count >= 1. */
void stats_ranks(size_t count, size_t *lo, size_t *hi);

/* Median of samples[0..count) in any order; `scratch` has room for as many and gets them sorted.
 * count >= 1. */
double stats_median(const double *samples, size_t count, double *scratch);

/* Median and interval of samples[0..count) in any order; `scratch` has room for as many. count
 * >= 1. */
struct stats stats_of(const double *samples, size_t count, double *scratch);

#endif
