/* Configurations for tests: all that the params-only constraints allow or refuse, and a sample of
 * them in which as many pairs of values of two params as possible stand together. Seeded. */
#ifndef TUNE_TESTS_SAMPLE_H
#define TUNE_TESTS_SAMPLE_H

#include "plugins/manifest.h"

/* Rows of params, row i at values[i * param_count]. */
struct sample_set {
    size_t count, room, params;
    int64_t *values;
};

void sample_finish_set(struct sample_set *set);
const int64_t *sample_row(const struct sample_set *set, size_t index);

/* Adds a copy of a row; an empty set takes the manifest's number of params. */
void sample_add(struct sample_set *set, const struct manifest *manifest, const int64_t *values);

/* Every assignment for which all params-only constraints hold for elements of this dtype. */
void sample_valid(const struct manifest *manifest, const char *dtype, struct sample_set *out);

/* Up to `count` assignments that break constraint `constraint` and no other params-only one: its
 * own static_assert must stop them. Chosen by seed. */
void sample_broken(const struct manifest *manifest, const char *dtype, size_t constraint,
    size_t count, uint64_t seed, struct sample_set *out);

/* A subset of `all`: at most `limit` rows, each with as many new pairs of values as can be found,
 * and if `has_every_value` beyond the limit those that are needed so that every value of `all`
 * occurs. */
void sample_pairs(const struct manifest *manifest, const struct sample_set *all, size_t limit,
    bool has_every_value, uint64_t seed, struct sample_set *out);

/* Whether the manifest's "requires" lets this row run on compute capability `sm` (90). */
bool sample_meets(
    const struct manifest *manifest, const char *dtype, const int64_t *values, int64_t sm);

/* splitmix64: the next number of a sequence. */
uint64_t sample_random(uint64_t *state);

#endif
