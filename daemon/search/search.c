/* See search.h. */
#include "daemon/search/search.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

extern const struct search_strategy search_exhaustive, search_random, search_anneal, search_genetic,
    search_surrogate, search_guided;

const struct search_strategy *const search_strategies[] = {
    &search_exhaustive,
    &search_random,
    &search_anneal,
    &search_genetic,
    &search_surrogate,
    &search_guided,
    NULL,
};

struct search {
    const struct search_strategy *strategy;
    void *state;
    size_t budget, tried_count;
    uint8_t *tried; /* a bit per configuration */
};

static const struct search_strategy *find(const char *name, struct tune_error *err)
{
    char names[160] = "";
    for (size_t i = 0; search_strategies[i] != NULL; i++) {
        if (strcmp(search_strategies[i]->name, name) == 0)
            return search_strategies[i];
        strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, search_strategies[i]->name, sizeof names - strlen(names) - 1);
    }
    tune_fail(err, TUNE_EINVAL, "there is no strategy \"%.40s\"; there are: %s", name, names);
    return NULL;
}

int search_check_name(const char *strategy, struct tune_error *err)
{
    return find(strategy, err) ? 0 : -1;
}

static struct search *make(
    const struct search_strategy *strategy, const struct space *space, size_t budget)
{
    size_t count = space_count(space);
    struct search *search = xcalloc(1, sizeof *search);
    search->strategy = strategy;
    search->budget = budget < count ? budget : count;
    search->tried = xcalloc((count + 7) / 8, 1);
    return search;
}

struct search *search_create(const char *strategy, const struct space *space, uint64_t seed,
    size_t budget, struct tune_error *err)
{
    const struct search_strategy *found = find(strategy, err);
    if (found == NULL)
        return NULL;
    struct search *search = make(found, space, budget);
    search->state = found->create(space, seed, search->budget);
    return search;
}

/* --- a list: not among the strategies to choose from ------------------------------------------ */

struct listed {
    size_t next, count;
    size_t indices[];
};

static enum search_step next_listed(void *state, size_t *index)
{
    struct listed *listed = state;
    if (listed->next == listed->count)
        return SEARCH_DONE;
    *index = listed->indices[listed->next++];
    return SEARCH_PROPOSED;
}

struct search *search_create_listed(const struct space *space, const size_t *indices, size_t count)
{
    static const struct search_strategy strategy = {
        .name = "listed", .next = next_listed, .destroy = free};
    struct listed *listed = xcalloc(1, sizeof *listed + count * sizeof listed->indices[0]);
    listed->count = count;
    for (size_t i = 0; i < count; i++)
        listed->indices[i] = indices[i];
    struct search *search = make(&strategy, space, count);
    search->state = listed;
    return search;
}

/* ---------------------------------------------------------------------------------------------- */

void search_destroy(struct search *search)
{
    if (search == NULL)
        return;
    search->strategy->destroy(search->state);
    free(search->tried);
    free(search);
}

static bool is_tried(const struct search *search, size_t index)
{
    return search->tried[index / 8] >> (index % 8) & 1;
}

static void mark(struct search *search, size_t index)
{
    search->tried[index / 8] |= (uint8_t)(1 << (index % 8));
    search->tried_count++;
}

void search_mark_tried(struct search *search, size_t index)
{
    if (is_tried(search, index))
        return;
    mark(search, index);
    if (search->strategy->exclude != NULL)
        search->strategy->exclude(search->state, index);
}

void search_guess(struct search *search, const float *log2_times)
{
    if (search->strategy->guess != NULL)
        search->strategy->guess(search->state, log2_times);
}

enum search_step search_next(struct search *search, size_t *index)
{
    while (search->tried_count < search->budget) {
        enum search_step step = search->strategy->next(search->state, index);
        if (step != SEARCH_PROPOSED)
            return step;
        if (is_tried(search, *index))
            continue;
        mark(search, *index);
        return SEARCH_PROPOSED;
    }
    return SEARCH_DONE;
}

void search_report(struct search *search, size_t index, enum outcome outcome, double median_ns)
{
    if (search->strategy->report != NULL)
        search->strategy->report(search->state, index, outcome, median_ns);
}

bool search_learns(const struct search *search)
{
    return search->strategy->report != NULL;
}

size_t search_total(const struct search *search)
{
    return search->budget;
}
