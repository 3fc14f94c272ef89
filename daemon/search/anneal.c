/* Simulated annealing: from a place to one that differs in a param, always if it is faster and
 * sometimes if it is not, less often as the budget goes. Starts over from the best when nothing new
 * is near.
 *
 * With several outstanding, each is a step from the place that held when it was proposed. */
#include "daemon/search/number.h"
#include "daemon/search/points.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>

#define FIRST 8         /* drawn at random; the walk begins at the fastest of them */
#define STEPS_TRIED 64  /* for a neighbour that is not taken, before a fresh draw */
#define START_HEAT 0.1  /* a time this many octaves longer is accepted with probability 1/e ... */
#define END_HEAT 0.005  /* ... at the start, and at the end */
#define RETURN_AFTER 12 /* reports without a gain until the place is the best again */

struct state {
    struct points points;
    struct rng rng;
    size_t budget, proposed, reported, since_gain;
    size_t place, best; /* SIZE_MAX: none worked yet */
    double place_time, best_time;
};

static void *create(const struct space *space, uint64_t seed, size_t budget)
{
    struct state *state = xcalloc(1, sizeof *state);
    state->rng.state = seed;
    state->budget = budget;
    state->place = state->best = SIZE_MAX;
    points_init(&state->points, space);
    return state;
}

static size_t step(struct state *state)
{
    bool is_walking = state->proposed >= FIRST && state->place != SIZE_MAX;
    for (int i = 0; is_walking && i < STEPS_TRIED; i++) {
        size_t index = points_step(&state->points, &state->rng, state->place);
        if (index != SIZE_MAX && !points_is_taken(&state->points, index))
            return index;
    }
    return points_draw(&state->points, &state->rng);
}

static enum search_step next(void *opaque, size_t *index)
{
    struct state *state = opaque;
    if (state->points.taken_count == state->points.count)
        return SEARCH_DONE;
    *index = step(state);
    points_take(&state->points, *index);
    state->proposed++;
    return SEARCH_PROPOSED;
}

static bool accepts(struct state *state, double log_time)
{
    if (state->place == SIZE_MAX || log_time <= state->place_time)
        return true;
    if (state->reported <= FIRST)
        return false;
    double left = 1 - (double)state->reported / (double)(state->budget + 1);
    double heat = END_HEAT + (START_HEAT - END_HEAT) * (left > 0 ? left * left : 0);
    return number_uniform(&state->rng) < number_exp((state->place_time - log_time) / heat);
}

static void report(void *opaque, size_t index, enum outcome outcome, double median_ns)
{
    struct state *state = opaque;
    points_take(&state->points, index);
    state->reported++;
    state->since_gain++;
    if (outcome != OUTCOME_OK || !(median_ns > 0))
        return;
    double log_time = number_log2(median_ns);
    if (accepts(state, log_time)) {
        state->place = index;
        state->place_time = log_time;
    }
    if (state->best == SIZE_MAX || log_time < state->best_time) {
        state->best = index;
        state->best_time = log_time;
        state->since_gain = 0;
    } else if (state->since_gain >= RETURN_AFTER) {
        state->place = state->best;
        state->place_time = state->best_time;
        state->since_gain = 0;
    }
}

static void exclude(void *opaque, size_t index)
{
    struct state *state = opaque;
    points_take(&state->points, index);
}

static void destroy(void *opaque)
{
    struct state *state = opaque;
    points_finish(&state->points);
    free(state);
}

extern const struct search_strategy search_anneal;
const struct search_strategy search_anneal = {
    .name = "anneal",
    .summary = "simulated annealing from neighbour to neighbour",
    .create = create,
    .next = next,
    .report = report,
    .exclude = exclude,
    .destroy = destroy,
};
