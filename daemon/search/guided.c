/* The default strategy: a few points spread over the space, then always the configuration that
 * promises the largest gain on the best so far (model.h) among a pool of candidates.
 *
 * The pool is what makes it cheap in a space of a million and quick to close in: what looked good
 * in earlier pools, some drawn anywhere, all that differ from one of the best in one param, and
 * some that differ in a few. Configurations still outstanding count as tried where certainty is
 * concerned, so that a batch does not crowd one spot.
 *
 * surrogate, to compare with: the same model, and candidates from anywhere only. */
#include "daemon/search/model.h"
#include "daemon/search/pool.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define DRAWN 100          /* of each pool, from anywhere */
#define BESTS 3            /* whose surroundings are looked at */
#define NEAR_MAX 96        /* with one param changed, for each of the bests */
#define FARTHER 60         /* with two or three params changed */
#define DRAWN_ANYWHERE 320 /* of the pools of surrogate, which has nothing else */
#define KEPT 100           /* most promising of a pool, by mean, for the next */

struct state {
    struct points points;
    struct model model;
    struct rng rng;
    size_t kept[KEPT], kept_count;
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

/* All that differ from `index` in one param, or a fair part of them where there are many. */
static void add_near(struct state *state, struct pool *pool, size_t index)
{
    const struct points *points = &state->points;
    uint8_t row[MANIFEST_MAX_PARAMS];
    size_t total = 0;
    memcpy(row, points_row(points, index), points->width);
    for (size_t p = 0; p < points->width; p++)
        total += points->value_counts[p] - 1;
    for (size_t p = 0; p < points->width; p++) {
        uint8_t own = row[p];
        for (size_t v = 0; v < points->value_counts[p]; v++) {
            bool is_drawn = total <= NEAR_MAX || rng_below(&state->rng, total) < NEAR_MAX;
            row[p] = (uint8_t)v;
            if (v != own && is_drawn)
                pool_add(pool, points_find(points, row));
        }
        row[p] = own;
    }
}

static void add_farther(struct state *state, struct pool *pool, size_t index)
{
    const struct points *points = &state->points;
    uint8_t row[MANIFEST_MAX_PARAMS];
    memcpy(row, points_row(points, index), points->width);
    for (size_t changes = 2 + rng_below(&state->rng, 2); changes > 0; changes--) {
        size_t p = rng_below(&state->rng, points->width);
        row[p] = (uint8_t)rng_below(&state->rng, points->value_counts[p]);
    }
    pool_add(pool, points_find(points, row));
}

static void fill(struct state *state, struct pool *pool)
{
    size_t bests = state->model.worked < BESTS ? state->model.worked : BESTS;
    for (size_t i = 0; i < state->kept_count; i++)
        pool_add(pool, state->kept[i]);
    for (size_t i = 0; i < DRAWN; i++)
        pool_add(pool, points_draw(&state->points, &state->rng));
    for (size_t i = 0; i < bests; i++)
        add_near(state, pool, model_best(&state->model, i));
    for (size_t i = 0; i < FARTHER; i++)
        add_farther(state, pool, model_best(&state->model, i % bests));
}

static size_t most_promising(struct state *state)
{
    struct pool pool;
    pool_init(&pool, &state->points);
    fill(state, &pool);
    pool_judge(&pool, &state->model);
    state->kept_count = pool_likeliest(&pool, state->kept, KEPT);
    return pool_winner(&pool);
}

/* The model alone: candidates from anywhere. What guided has beyond it is where its candidates
 * come from. */
static size_t most_promising_anywhere(struct state *state)
{
    struct pool pool;
    pool_init(&pool, &state->points);
    for (size_t i = 0; i < DRAWN_ANYWHERE; i++)
        pool_add(&pool, points_draw(&state->points, &state->rng));
    pool_judge(&pool, &state->model);
    return pool_winner(&pool);
}

static size_t spread_apart(struct state *state)
{
    return pool_spread(&state->model, &state->rng);
}

static size_t draw(struct state *state)
{
    return points_draw(&state->points, &state->rng);
}

static enum search_step propose(struct state *state, size_t *index,
    size_t (*first)(struct state *state), size_t (*later)(struct state *state))
{
    if (state->points.taken_count == state->points.count)
        return SEARCH_DONE;
    model_update(&state->model);
    *index = model_wants_spread(&state->model) ? first(state) : later(state);
    points_take(&state->points, *index);
    model_propose(&state->model, *index);
    return SEARCH_PROPOSED;
}

static enum search_step next(void *opaque, size_t *index)
{
    return propose(opaque, index, spread_apart, most_promising);
}

static enum search_step next_anywhere(void *opaque, size_t *index)
{
    return propose(opaque, index, draw, most_promising_anywhere);
}

static void report(void *opaque, size_t index, enum outcome outcome, double median_ns)
{
    struct state *state = opaque;
    points_take(&state->points, index);
    model_report(&state->model, index, outcome != OUTCOME_OK, median_ns);
}

static void guess(void *opaque, const float *log2_times)
{
    struct state *state = opaque;
    points_set_guesses(&state->points, log2_times);
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

extern const struct search_strategy search_guided;
const struct search_strategy search_guided = {
    .name = "guided",
    .summary = "what promises most by a model of the times so far, near the best and anywhere",
    .create = create,
    .next = next,
    .report = report,
    .guess = guess,
    .exclude = exclude,
    .destroy = destroy,
};

extern const struct search_strategy search_surrogate;
const struct search_strategy search_surrogate = {
    .name = "surrogate",
    .summary = "what promises most by a model of the times so far, anywhere",
    .create = create,
    .next = next_anywhere,
    .report = report,
    .guess = guess,
    .exclude = exclude,
    .destroy = destroy,
};
