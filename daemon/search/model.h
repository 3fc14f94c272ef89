/* What a search believes of the configurations it has not tried: a Gaussian process (gauss.h) over
 * the logarithms of the times so far, fitted anew as reports come in.
 *
 * A configuration that failed counts as a slow one, so that its surroundings are avoided without
 * being closed. What was guessed of the times beforehand is a trend that the times may follow, as
 * far as they show that they do. Times beyond the median are drawn in: how bad a bad one is says
 * little about where the best is. Weights and noise climb the likelihood by a few random steps per
 * fit, from where they stood. */
#ifndef TUNE_SEARCH_MODEL_H
#define TUNE_SEARCH_MODEL_H

#include "daemon/search/gauss.h"
#include "daemon/search/points.h"
#include "daemon/search/rng.h"

#define MODEL_FIRST 8 /* fewer mislead the model, more cost time before it is used (measured) */

struct model_report {
    size_t index;
    double log_time; /* base 2 */
    bool is_failed;
};

struct model {
    const struct points *points;
    struct rng rng;
    struct model_report *reports; /* in the order in which they came */
    uint32_t *ranking;            /* positions in reports: fastest first, failures last */
    size_t count, room, worked;
    size_t *pending; /* proposed and not reported */
    size_t pending_count, pending_room;
    double weights[MANIFEST_MAX_PARAMS], noise; /* as learnt so far */
    bool is_stale;                              /* reports came since the fit */
    double goal;                                /* the best target, as the model sees it */
    double guess_mean, guess_scale;             /* of the fitted points' guesses */
    struct gauss gauss;
};

void model_init(struct model *model, const struct points *points, uint64_t seed);
void model_finish(struct model *model);

/* A configuration was proposed; a configuration (proposed or not) was tried. */
void model_propose(struct model *model, size_t index);
void model_report(struct model *model, size_t index, bool is_failed, double median_ns);

/* Whether it knows too little to be asked: fewer than MODEL_FIRST were proposed or tried, or fewer
 * than two of them worked. */
bool model_wants_spread(const struct model *model);
/* Index of the n-th fastest so far, n < worked. */
size_t model_best(const struct model *model, size_t n);
/* The n-th of those tried, or else proposed: n < model_known(). For keeping away from them. */
size_t model_known(const struct model *model);
size_t model_known_index(const struct model *model, size_t n);

/* Fits if reports came since and enough is known. Before asking for promises. */
void model_update(struct model *model);
/* For each of `count` configurations: the estimated target (lower is faster), and how much a trial
 * is expected to gain on the best so far. */
void model_promise(
    const struct model *model, const size_t *indices, size_t count, double *means, double *gains);

#endif
