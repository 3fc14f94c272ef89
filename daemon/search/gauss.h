/* A Gaussian process over points of [0, 1]^width: from some points with known targets to the mean
 * and deviation of the target at others.
 *
 * Two points are alike by the product over the params of 1 / (1 + w d^2), d their distance in that
 * param (0 or 1 for codes), w that param's weight: no exponential, and long tails. The target's
 * mean, its slope along a trend (what was guessed of it beforehand; 0 where nothing was) and its
 * variance are estimated along; the caller chooses weights and noise by likelihood. */
#ifndef TUNE_SEARCH_GAUSS_H
#define TUNE_SEARCH_GAUSS_H

#include "plugins/manifest.h"

#define GAUSS_FITTED_MAX 64 /* points with a target: more cost time and gain nothing (measured) */
#define GAUSS_ROOM 128      /* these, and points whose target is still to come */
#define GAUSS_LANES 16      /* points estimated at once */

struct gauss {
    size_t width, count;
    bool is_code[MANIFEST_MAX_PARAMS];
    float places[MANIFEST_MAX_PARAMS][GAUSS_ROOM];
    double targets[GAUSS_ROOM], trends[GAUSS_ROOM];
    double weights[MANIFEST_MAX_PARAMS], noise;
    /* Filled by fitting: */
    double mean, slope, variance;
    double shares[GAUSS_ROOM]; /* estimate = mean + slope * trend + sum of likeness times share */
    double columns[GAUSS_ROOM][GAUSS_ROOM]; /* Cholesky factor, columns[j][i], i >= j */
    float factor[GAUSS_ROOM][GAUSS_ROOM];   /* the same in rows, for estimating */
    float inverse_diagonal[GAUSS_ROOM];
};

/* Fits count points with these weights and noise; returns the logarithm (base 2) of the likelihood.
 */
double gauss_fit(struct gauss *gauss);

/* Adds a point whose target is unknown: estimates stay, deviations near it shrink. False: no room.
 */
bool gauss_append(struct gauss *gauss, const float *place);

/* Of `count` <= GAUSS_LANES points with these trends. */
void gauss_estimate(const struct gauss *gauss, float (*places)[MANIFEST_MAX_PARAMS],
    const double *trends, size_t count, double *means, double *deviations);

#endif
