/* See pool.h. */
#include "daemon/search/pool.h"

#include <stdlib.h>

#define SPREAD_DRAWS 20
#define SPREAD_KNOWN_MAX 256 /* compared with, so that a large batch stays cheap */

void pool_init(struct pool *pool, const struct points *points)
{
    pool->points = points;
    pool->count = 0;
}

void pool_add(struct pool *pool, size_t index)
{
    if (index != SIZE_MAX && pool->count < POOL_ROOM && !points_is_taken(pool->points, index))
        pool->indices[pool->count++] = index;
}

static int compare_indices(const void *a, const void *b)
{
    size_t first = *(const size_t *)a, second = *(const size_t *)b;
    return (first > second) - (first < second);
}

void pool_judge(struct pool *pool, const struct model *model)
{
    size_t unique = 0;
    qsort(pool->indices, pool->count, sizeof pool->indices[0], compare_indices);
    for (size_t i = 0; i < pool->count; i++)
        if (i == 0 || pool->indices[i] != pool->indices[i - 1])
            pool->indices[unique++] = pool->indices[i];
    pool->count = unique;
    model_promise(model, pool->indices, pool->count, pool->means, pool->gains);
}

size_t pool_winner(const struct pool *pool)
{
    size_t best = 0;
    for (size_t i = 1; i < pool->count; i++)
        if (pool->gains[i] > pool->gains[best])
            best = i;
    return pool->indices[best];
}

struct judged {
    double mean;
    size_t index;
};

static int compare_means(const void *a, const void *b)
{
    const struct judged *first = a, *second = b;
    if (first->mean != second->mean)
        return first->mean < second->mean ? -1 : 1;
    return (first->index > second->index) - (first->index < second->index);
}

size_t pool_likeliest(const struct pool *pool, size_t *out, size_t room)
{
    struct judged judged[POOL_ROOM];
    for (size_t i = 0; i < pool->count; i++)
        judged[i] = (struct judged){pool->means[i], pool->indices[i]};
    qsort(judged, pool->count, sizeof judged[0], compare_means);
    size_t count = pool->count < room ? pool->count : room;
    for (size_t i = 0; i < count; i++)
        out[i] = judged[i].index;
    return count;
}

size_t pool_spread(const struct model *model, struct rng *rng)
{
    size_t best = points_draw(model->points, rng), known = model_known(model);
    float best_distance = -1;
    size_t first = known > SPREAD_KNOWN_MAX ? known - SPREAD_KNOWN_MAX : 0;
    for (int draw = 0; known > 0 && draw < SPREAD_DRAWS; draw++) {
        size_t index = points_draw(model->points, rng);
        float nearest = 1e30f;
        for (size_t i = first; i < known; i++) {
            float distance = points_distance(model->points, index, model_known_index(model, i));
            nearest = distance < nearest ? distance : nearest;
        }
        if (nearest > best_distance) {
            best_distance = nearest;
            best = index;
        }
    }
    return best;
}
