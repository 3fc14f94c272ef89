/* Candidates for the next proposal, none of them taken and none twice, judged by a model; and the
 * proposals made before a model knows anything. */
#ifndef TUNE_SEARCH_POOL_H
#define TUNE_SEARCH_POOL_H

#include "daemon/search/model.h"

#define POOL_ROOM 640

struct pool {
    const struct points *points;
    size_t count, indices[POOL_ROOM];
    double means[POOL_ROOM], gains[POOL_ROOM]; /* once judged */
};

void pool_init(struct pool *pool, const struct points *points);
/* SIZE_MAX and what is taken are ignored; so is everything once the pool is full. */
void pool_add(struct pool *pool, size_t index);
/* Removes duplicates, then asks the model. */
void pool_judge(struct pool *pool, const struct model *model);
/* The largest expected gain. The pool is judged and not empty. */
size_t pool_winner(const struct pool *pool);
/* Those with the best estimates, at most `room`; returns how many. */
size_t pool_likeliest(const struct pool *pool, size_t *out, size_t room);

/* Of a few drawn, the one farthest from all that is known. Something is not taken yet. */
size_t pool_spread(const struct model *model, struct rng *rng);

#endif
