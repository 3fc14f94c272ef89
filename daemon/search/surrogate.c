/* The model alone: some random configurations, then the largest expected gain among those drawn
 * anywhere. What guided has beyond it is where its candidates come from. */
#include "daemon/search/model.h"
#include "daemon/search/pool.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>

#define DRAWN 320

struct state {
    struct points points;
    struct model model;
    struct rng rng;
};

static void *create(const struct space *space, uint64_t seed, size_t budget)
{
    (void)budget;
    struct state *state = xcalloc(1, sizeof *state);
    state->rng.state = seed;
    points_init(&state->points, space);
    model_init(&state->model, &state->points, rng_next(&state->rng));
    return state;
}

static size_t most_promising(struct state *state)
{
    struct pool pool;
    pool_init(&pool, &state->points);
    for (size_t i = 0; i < DRAWN; i++)
        pool_add(&pool, points_draw(&state->points, &state->rng));
    pool_judge(&pool, &state->model);
    return pool_winner(&pool);
}

static enum search_step next(void *opaque, size_t *index)
{
    struct state *state = opaque;
    if (state->points.taken_count == state->points.count)
        return SEARCH_DONE;
    model_update(&state->model);
    if (model_wants_spread(&state->model))
        *index = points_draw(&state->points, &state->rng);
    else
        *index = most_promising(state);
    points_take(&state->points, *index);
    model_propose(&state->model, *index);
    return SEARCH_PROPOSED;
}

static void report(void *opaque, size_t index, enum outcome outcome, double median_ns)
{
    struct state *state = opaque;
    points_take(&state->points, index);
    model_report(&state->model, index, outcome != OUTCOME_OK, median_ns);
}

static void exclude(void *opaque, size_t index)
{
    struct state *state = opaque;
    points_take(&state->points, index);
}

static void destroy(void *opaque)
{
    struct state *state = opaque;
    model_finish(&state->model);
    points_finish(&state->points);
    free(state);
}

extern const struct search_strategy search_surrogate;
const struct search_strategy search_surrogate = {
    .name = "surrogate",
    .summary = "what promises most by a model of the times so far, anywhere",
    .create = create,
    .next = next,
    .report = report,
    .exclude = exclude,
    .destroy = destroy,
};
