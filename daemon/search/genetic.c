/* A genetic algorithm in steady state: each proposal is a child of two of the fastest so far, its
 * params taken from either, some of them changed; there are no generations to wait for. */
#include "daemon/search/points.h"
#include "daemon/search/number.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define POPULATION 20
#define FIRST 20          /* drawn at random before there are children */
#define CHILDREN_TRIED 64 /* for one that is valid and not taken, before a fresh draw */

struct parent {
    size_t index;
    double median_ns;
};

struct state {
    struct points points;
    struct rng rng;
    size_t proposed, parent_count;
    struct parent parents[POPULATION]; /* fastest first */
};

static void *create(const struct space *space, uint64_t seed, size_t budget)
{
    (void)budget;
    struct state *state = xcalloc(1, sizeof *state);
    state->rng.state = seed;
    points_init(&state->points, space);
    return state;
}

/* The better of two by lot. */
static const uint8_t *choose_parent(struct state *state)
{
    size_t a = rng_below(&state->rng, state->parent_count);
    size_t b = rng_below(&state->rng, state->parent_count);
    return points_row(&state->points, state->parents[a < b ? a : b].index);
}

/* A child's index, or SIZE_MAX if it is not valid. One param in `width` changes, on average. */
static size_t breed(struct state *state)
{
    const struct points *points = &state->points;
    const uint8_t *mother = choose_parent(state), *father = choose_parent(state);
    uint8_t row[MANIFEST_MAX_PARAMS];
    for (size_t p = 0; p < points->width; p++) {
        row[p] = rng_below(&state->rng, 2) ? mother[p] : father[p];
        if (rng_below(&state->rng, points->width) == 0)
            row[p] = (uint8_t)rng_below(&state->rng, points->value_counts[p]);
    }
    return points_find(points, row);
}

static size_t choose(struct state *state)
{
    bool has_parents = state->parent_count >= 2 && state->proposed >= FIRST;
    for (int i = 0; has_parents && i < CHILDREN_TRIED; i++) {
        size_t index = breed(state);
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
    *index = choose(state);
    points_take(&state->points, *index);
    state->proposed++;
    return SEARCH_PROPOSED;
}

static void report(void *opaque, size_t index, enum outcome outcome, double median_ns)
{
    struct state *state = opaque;
    points_take(&state->points, index);
    if (outcome != OUTCOME_OK || !(median_ns > 0))
        return;
    size_t at = state->parent_count;
    while (at > 0 && state->parents[at - 1].median_ns > median_ns)
        at--;
    if (at == POPULATION)
        return;
    if (state->parent_count < POPULATION)
        state->parent_count++;
    memmove(&state->parents[at + 1], &state->parents[at],
        (state->parent_count - 1 - at) * sizeof state->parents[0]);
    state->parents[at] = (struct parent){index, median_ns};
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

extern const struct search_strategy search_genetic;
const struct search_strategy search_genetic = {
    .name = "genetic",
    .summary = "children of the fastest so far",
    .create = create,
    .next = next,
    .report = report,
    .exclude = exclude,
    .destroy = destroy,
};
