/* Every configuration, in the order of the space. */
#include "daemon/search/search.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>

struct state {
    size_t next, count;
};

static void *create(const struct space *space, uint64_t seed, size_t budget)
{
    (void)seed;
    (void)budget;
    struct state *state = xcalloc(1, sizeof *state);
    state->count = space_count(space);
    return state;
}

static enum search_step next(void *opaque, size_t *index)
{
    struct state *state = opaque;
    if (state->next == state->count)
        return SEARCH_DONE;
    *index = state->next++;
    return SEARCH_PROPOSED;
}

extern const struct search_strategy search_exhaustive;
const struct search_strategy search_exhaustive = {
    .name = "exhaustive",
    .summary = "every configuration, in order",
    .create = create,
    .next = next,
    .destroy = free,
};
