#include "sample.h"

#include "plugins/space.h"

#include <stdlib.h>
#include <string.h>

uint64_t sample_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void sample_finish_set(struct sample_set *set)
{
    free(set->values);
    memset(set, 0, sizeof *set);
}

const int64_t *sample_row(const struct sample_set *set, size_t index)
{
    return set->values + index * set->params;
}

void sample_add(struct sample_set *set, const struct manifest *manifest, const int64_t *values)
{
    set->params = manifest->param_count;
    if (set->count == set->room) {
        set->room = set->room ? 2 * set->room : 64;
        set->values = realloc(set->values, set->room * set->params * sizeof *values);
        if (!set->values)
            abort();
    }
    memcpy(set->values + set->count++ * set->params, values, set->params * sizeof *values);
}

/* Fills the slots of params and derived values. Params-only constraints read no others, but a
 * derived value may read dims: those stand at 1. */
static void bind_values(const struct manifest *manifest, const int64_t *values, int64_t *slots)
{
    for (size_t p = 0; p < manifest->param_count; p++)
        slots[manifest_param_slot(manifest, p)] = values[p];
    for (size_t d = 0; d < manifest->derived_count; d++)
        if (expr_eval(manifest->derived[d].expr, slots, &slots[manifest_derived_slot(manifest, d)],
                NULL) != 0)
            slots[manifest_derived_slot(manifest, d)] = 0;
}

static void clear_slots(const struct manifest *manifest, const char *dtype, int64_t *slots)
{
    memset(slots, 0, MANIFEST_MAX_SLOTS * sizeof *slots);
    slots[manifest_dtype_bytes_slot(manifest)] = dtype_bytes(dtype);
    for (size_t d = 0; d < manifest->dim_count; d++)
        slots[manifest_dim_slot(manifest, d)] = 1;
}

static bool holds(const struct manifest *manifest, size_t constraint, const int64_t *slots)
{
    int64_t result;
    return expr_eval(manifest->constraints[constraint].expr, slots, &result, NULL) == 0 && result;
}

void sample_valid(const struct manifest *manifest, const char *dtype, struct sample_set *out)
{
    int64_t slots[MANIFEST_MAX_SLOTS], values[MANIFEST_MAX_PARAMS];
    size_t at[MANIFEST_MAX_PARAMS] = {0};
    memset(out, 0, sizeof *out);
    clear_slots(manifest, dtype, slots);
    for (;;) {
        bool is_valid = true;
        for (size_t p = 0; p < manifest->param_count; p++)
            values[p] = manifest->params[p].values[at[p]];
        bind_values(manifest, values, slots);
        for (size_t c = 0; c < manifest->constraint_count && is_valid; c++)
            if (manifest->constraints[c].params_only)
                is_valid = holds(manifest, c, slots);
        if (is_valid)
            sample_add(out, manifest, values);
        size_t p = manifest->param_count;
        while (p > 0 && ++at[p - 1] == manifest->params[p - 1].value_count)
            at[--p] = 0;
        if (p == 0)
            return;
    }
}

void sample_broken(const struct manifest *manifest, const char *dtype, size_t constraint,
    size_t count, uint64_t seed, struct sample_set *out)
{
    int64_t slots[MANIFEST_MAX_SLOTS], values[MANIFEST_MAX_PARAMS];
    memset(out, 0, sizeof *out);
    clear_slots(manifest, dtype, slots);
    for (size_t tries = 0; tries < 100000 && out->count < count; tries++) {
        for (size_t p = 0; p < manifest->param_count; p++) {
            const struct manifest_param *param = &manifest->params[p];
            values[p] = param->values[sample_random(&seed) % param->value_count];
        }
        bind_values(manifest, values, slots);
        bool is_wanted = !holds(manifest, constraint, slots);
        for (size_t c = 0; c < manifest->constraint_count && is_wanted; c++)
            if (c != constraint && manifest->constraints[c].params_only)
                is_wanted = holds(manifest, c, slots);
        if (is_wanted)
            sample_add(out, manifest, values);
    }
}

/* --- pairs ------------------------------------------------------------------------------------ */

/* seen[(p * 64 + v) * (32 * 64) + q * 64 + w]: value v of param p stood with value w of param q. */
#define PAIR_SPACE                                                                                 \
    ((size_t)MANIFEST_MAX_PARAMS * MANIFEST_MAX_VALUES * MANIFEST_MAX_PARAMS * MANIFEST_MAX_VALUES)

static size_t value_index(const struct manifest_param *param, int64_t value)
{
    size_t v = 0;
    while (param->values[v] != value)
        v++;
    return v;
}

/* How many pairs of this row are new; marks them when `mark`. */
static size_t new_pairs(
    const struct manifest *manifest, const int64_t *row, unsigned char *seen, bool mark)
{
    size_t index[MANIFEST_MAX_PARAMS], count = 0;
    for (size_t p = 0; p < manifest->param_count; p++)
        index[p] = p * MANIFEST_MAX_VALUES + value_index(&manifest->params[p], row[p]);
    for (size_t p = 0; p < manifest->param_count; p++)
        for (size_t q = p + 1; q < manifest->param_count; q++) {
            unsigned char *pair =
                &seen[index[p] * MANIFEST_MAX_PARAMS * MANIFEST_MAX_VALUES + index[q]];
            count += !*pair;
            if (mark)
                *pair = 1;
        }
    return count;
}

/* How many values of this row no row of the sample has. */
static size_t new_values(
    const struct manifest *manifest, const struct sample_set *sample, const int64_t *row)
{
    size_t count = 0;
    for (size_t p = 0; p < manifest->param_count; p++) {
        size_t i = 0;
        while (i < sample->count && sample_row(sample, i)[p] != row[p])
            i++;
        count += i == sample->count;
    }
    return count;
}

void sample_pairs(const struct manifest *manifest, const struct sample_set *all, size_t limit,
    bool has_every_value, uint64_t seed, struct sample_set *out)
{
    unsigned char *seen = calloc(PAIR_SPACE, 1);
    if (!seen)
        abort();
    memset(out, 0, sizeof *out);
    size_t scan = 0; /* rows before it hold nothing new */
    while (scan < all->count && out->count < limit) {
        size_t best = scan, best_new = new_pairs(manifest, sample_row(all, scan), seen, false);
        if (best_new == 0) {
            scan++;
            continue;
        }
        for (int i = 0; i < 200; i++) {
            size_t candidate = sample_random(&seed) % all->count;
            size_t count = new_pairs(manifest, sample_row(all, candidate), seen, false);
            if (count > best_new) {
                best = candidate;
                best_new = count;
            }
        }
        new_pairs(manifest, sample_row(all, best), seen, true);
        sample_add(out, manifest, sample_row(all, best));
    }
    for (; has_every_value && scan < all->count; scan++)
        if (new_values(manifest, out, sample_row(all, scan)) > 0)
            sample_add(out, manifest, sample_row(all, scan));
    free(seen);
}

bool sample_meets(
    const struct manifest *manifest, const char *dtype, const int64_t *values, int64_t sm)
{
    int64_t slots[MANIFEST_MAX_SLOTS], holds;
    clear_slots(manifest, dtype, slots);
    slots[DEVICE_sm] = sm;
    bind_values(manifest, values, slots);
    for (size_t i = 0; i < manifest->requirement_count; i++) {
        const struct manifest_requirement *requirement = &manifest->requirements[i];
        if (requirement->when != NULL &&
            (expr_eval(requirement->when, slots, &holds, NULL) != 0 || !holds))
            continue;
        if (expr_eval(requirement->sm, slots, &holds, NULL) != 0 || !holds)
            return false;
    }
    return true;
}
