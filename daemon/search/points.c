/* See points.h. */
#include "daemon/search/points.h"

#include "daemon/search/number.h"
#include "daemon/xmalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CODES_MAX 8  /* values of a param that may be codes rather than amounts */
#define DRAWS_MAX 64 /* before the search for a free one becomes a walk */

static bool are_codes(const struct manifest_param *param)
{
    if (param->value_count < 3 || param->value_count > CODES_MAX)
        return false;
    for (size_t i = 0; i < param->value_count; i++)
        if (param->values[i] != (int64_t)i)
            return param->value_names[0] != NULL;
    return true;
}

static void place_values(struct points *points, size_t p, const struct manifest_param *param)
{
    size_t last = param->value_count - 1;
    bool is_amount = true; /* positive and rising: a logarithm makes sense */
    for (size_t i = 0; i <= last; i++)
        is_amount &= param->values[i] > (i > 0 ? param->values[i - 1] : 0);
    for (size_t i = 0; last > 0 && i <= last; i++) {
        double rank = (double)i / (double)last, place = rank;
        if (is_amount) {
            double low = number_log2((double)param->values[0]);
            double high = number_log2((double)param->values[last]);
            place = (number_log2((double)param->values[i]) - low) / (high - low);
        }
        points->places[p][i] = (float)(0.5 * (rank + place));
    }
}

static uint8_t value_number(const struct manifest_param *param, int64_t value, uint8_t guess)
{
    if (param->values[guess] == value)
        return guess;
    for (size_t i = 0; i < param->value_count; i++)
        if (param->values[i] == value)
            return (uint8_t)i;
    return 0;
}

void points_init(struct points *points, const struct space *space)
{
    const struct manifest *manifest = space_manifest(space);
    memset(points, 0, sizeof *points);
    points->count = space_count(space);
    points->width = manifest->param_count;
    points->taken = xcalloc((points->count + 7) / 8, 1);
    points->rows = xmalloc(points->count * points->width);
    for (size_t p = 0; p < points->width; p++) {
        points->value_counts[p] = manifest->params[p].value_count;
        points->is_code[p] = are_codes(&manifest->params[p]);
        place_values(points, p, &manifest->params[p]);
    }
    uint8_t *row = points->rows, guess[MANIFEST_MAX_PARAMS] = {0};
    for (size_t i = 0; i < points->count; i++, row += points->width) {
        int64_t values[MANIFEST_MAX_PARAMS];
        space_config(space, i, values);
        for (size_t p = 0; p < points->width; p++)
            row[p] = guess[p] = value_number(&manifest->params[p], values[p], guess[p]);
    }
}

void points_finish(struct points *points)
{
    free(points->rows);
    free(points->guesses);
    free(points->taken);
}

void points_set_guesses(struct points *points, const float *guesses)
{
    free(points->guesses);
    points->guesses = xmalloc(points->count * sizeof *guesses);
    memcpy(points->guesses, guesses, points->count * sizeof *guesses);
}

const uint8_t *points_row(const struct points *points, size_t index)
{
    return points->rows + index * points->width;
}

size_t points_find(const struct points *points, const uint8_t *row)
{
    size_t low = 0, high = points->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(points_row(points, middle), row, points->width);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

bool points_is_taken(const struct points *points, size_t index)
{
    return points->taken[index / 8] >> (index % 8) & 1;
}

void points_take(struct points *points, size_t index)
{
    if (points_is_taken(points, index))
        return;
    points->taken[index / 8] |= (uint8_t)(1 << (index % 8));
    points->taken_count++;
}

size_t points_draw(const struct points *points, struct rng *rng)
{
    if (points->taken_count == points->count)
        return SIZE_MAX;
    size_t index = 0;
    for (int i = 0; i < DRAWS_MAX; i++) {
        index = rng_below(rng, points->count);
        if (!points_is_taken(points, index))
            return index;
    }
    while (points_is_taken(points, index))
        index = (index + 1) % points->count;
    return index;
}

void points_place(const struct points *points, size_t index, float *place)
{
    const uint8_t *row = points_row(points, index);
    for (size_t p = 0; p < points->width; p++)
        place[p] = points->places[p][row[p]];
}

float points_distance(const struct points *points, size_t a, size_t b)
{
    const uint8_t *first = points_row(points, a), *second = points_row(points, b);
    float sum = 0;
    for (size_t p = 0; p < points->width; p++)
        if (points->is_code[p])
            sum += first[p] != second[p];
        else
            sum += fabsf(points->places[p][first[p]] - points->places[p][second[p]]);
    return sum;
}

size_t points_step(const struct points *points, struct rng *rng, size_t index)
{
    uint8_t row[MANIFEST_MAX_PARAMS];
    memcpy(row, points_row(points, index), points->width);
    size_t p = rng_below(rng, points->width), count = points->value_counts[p];
    if (rng_below(rng, 2) == 0) {
        row[p] = (uint8_t)rng_below(rng, count);
    } else {
        int other = rng_below(rng, 2) == 0 ? row[p] - 1 : row[p] + 1;
        if (other < 0 || other >= (int)count)
            return SIZE_MAX;
        row[p] = (uint8_t)other;
    }
    size_t found = points_find(points, row);
    return found == index ? SIZE_MAX : found;
}
