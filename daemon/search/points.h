/* A space as strategies see it: each configuration a row of value numbers and a point with
 * coordinates in [0, 1], and the set of those that need not be proposed any more. */
#ifndef TUNE_SEARCH_POINTS_H
#define TUNE_SEARCH_POINTS_H

#include "daemon/search/rng.h"
#include "plugins/space.h"

struct points {
    size_t count, width; /* configurations, and params of each */
    uint8_t *rows;       /* a byte per param: the number of its value; rows in rising order */
    size_t value_counts[MANIFEST_MAX_PARAMS];
    /* A value's place in its param's range: halfway between its rank and its logarithm, since
     * either may be what the hardware feels. */
    float places[MANIFEST_MAX_PARAMS][MANIFEST_MAX_VALUES];
    /* Values that are codes (named, or 0, 1, 2, ... up to 7): they differ or not, none is nearer.
     */
    bool is_code[MANIFEST_MAX_PARAMS];
    float *guesses; /* base-2 logarithm of the time guessed beforehand, NAN: none; or NULL */
    uint8_t *taken; /* a bit per configuration: proposed, or excluded */
    size_t taken_count;
};

void points_init(struct points *points, const struct space *space);
void points_finish(struct points *points);

/* One per configuration, copied. */
void points_set_guesses(struct points *points, const float *guesses);

const uint8_t *points_row(const struct points *points, size_t index);
/* Index of a row, or SIZE_MAX. */
size_t points_find(const struct points *points, const uint8_t *row);

bool points_is_taken(const struct points *points, size_t index);
void points_take(struct points *points, size_t index);
/* One that is not taken, drawn uniformly; SIZE_MAX when none is left. */
size_t points_draw(const struct points *points, struct rng *rng);

void points_place(const struct points *points, size_t index, float *place);
/* Sum over the params. */
float points_distance(const struct points *points, size_t a, size_t b);

/* `index` with one param changed at random, or SIZE_MAX if there is no such configuration. The step
 * is to an adjoining value half of the time. Taken ones are returned too. */
size_t points_step(const struct points *points, struct rng *rng, size_t index);

#endif
