/* Configurations drawn without replacement: a Fisher-Yates shuffle, made as far as it is asked for.
 */
#include "daemon/search/search.h"

#include "daemon/search/rng.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>

struct state {
    struct rng rng;
    size_t next, count;
    uint32_t *order; /* order[0..next) is what was drawn */
};

static void *create(const struct space *space, uint64_t seed, size_t budget)
{
    (void)budget;
    struct state *state = xcalloc(1, sizeof *state);
    state->rng.state = seed;
    state->count = space_count(space);
    state->order = xcalloc(state->count, sizeof *state->order);
    for (size_t i = 0; i < state->count; i++)
        state->order[i] = (uint32_t)i;
    return state;
}

static enum search_step next(void *opaque, size_t *index)
{
    struct state *state = opaque;
    if (state->next == state->count)
        return SEARCH_DONE;
    size_t pick = state->next + rng_below(&state->rng, state->count - state->next);
    uint32_t drawn = state->order[pick];
    state->order[pick] = state->order[state->next];
    state->order[state->next++] = drawn;
    *index = drawn;
    return SEARCH_PROPOSED;
}

static void destroy(void *opaque)
{
    struct state *state = opaque;
    free(state->order);
    free(state);
}

extern const struct search_strategy search_random;
const struct search_strategy search_random = {
    .name = "random",
    .summary = "drawn without replacement",
    .create = create,
    .next = next,
    .destroy = destroy,
};
