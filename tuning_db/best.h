/* The best rows of a key, chosen from its samples: see best.c for the rule. Pure. */
#ifndef TUNE_BEST_H
#define TUNE_BEST_H

#include "record.h"

/* One row for each GPU model, and which of them is the arch's. Texts are borrowed from the samples.
 */
struct best_rows {
    struct best *rows;
    size_t count;
    size_t arch; /* index of the arch's row, when count > 0 */
};

/* Reorders `samples`, which are all of one key. 0, or -1 without memory. */
int best_rows_pick(struct best_rows *rows, const struct sample **samples, size_t count);
void best_rows_finish(struct best_rows *rows);

/* Puts in front the samples that the choice rests on, and tells how many they are: of these alone
 * the same rows are picked. What follows them in the array means nothing. 0, or -1 without memory.
 */
int best_rows_reduce(const struct sample **samples, size_t count, size_t *reduced);

/* Puts in front the samples among which the winners were chosen: those that stand, at most one for
 * each configuration on each GPU, by one method for each GPU model. Returns how many they are; what
 * follows them in the array means nothing. */
size_t best_standing(const struct sample **samples, size_t count);

#endif
