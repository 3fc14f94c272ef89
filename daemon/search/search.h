/* Which configuration to try next: strategies behind one small interface, pure and seeded.
 *
 * A strategy proposes indices of a space and is told what became of them, in any order and with any
 * delay; it may ask to wait for reports before it proposes more. The same seed and the same reports
 * give the same proposals on any machine: no floating-point library call takes part in a decision.
 *
 * To add a strategy: a file beside this one with a `const struct search_strategy`, and a line in
 * the table in search.c. */
#ifndef TUNE_SEARCH_H
#define TUNE_SEARCH_H

#include "plugins/space.h"
#include "tuning_db/record.h"

struct search;

enum search_step {
    SEARCH_PROPOSED, /* *index is the next configuration to try */
    SEARCH_WAIT,     /* nothing until something outstanding is reported */
    SEARCH_DONE,
};

struct search_strategy {
    const char *name, *summary;
    void *(*create)(const struct space *space, uint64_t seed, size_t budget);
    enum search_step (*next)(void *state, size_t *index);
    void (*report)(
        void *state, size_t index, enum outcome outcome, double median_ns); /* may be NULL */
    /* Before the first proposal: what is guessed of each configuration's time, see search_guess.
     * May be NULL. */
    void (*guess)(void *state, const float *log2_times);
    /* Need not be proposed: search_next passes over it anyway. A report may still come. May be
     * NULL. */
    void (*exclude)(void *state, size_t index);
    void (*destroy)(void *state);
};

/* All strategies, ended by one without a name. */
extern const struct search_strategy *const search_strategies[];

/* New, or NULL with TUNE_EINVAL naming the strategies there are. `budget`: evaluations at most. The
 * space is borrowed for the search's life. */
struct search *search_create(const char *strategy, const struct space *space, uint64_t seed,
    size_t budget, struct tune_error *err);
/* Proposes these configurations of the space and no others, in this order; copied. New. */
struct search *search_create_listed(const struct space *space, const size_t *indices, size_t count);
void search_destroy(struct search *search);

/* Whether a strategy of that name exists; otherwise TUNE_EINVAL with the list. */
int search_check_name(const char *strategy, struct tune_error *err);

/* Before the first proposal: the base-2 logarithm of the time that each configuration is guessed to
 * take, in any unit, NAN where there is no guess. Borrowed during the call. */
void search_guess(struct search *search, const float *log2_times);

/* Never proposes an index twice, nor one that was marked as tried. */
enum search_step search_next(struct search *search, size_t *index);
/* The configuration was tried for another reason (the default, an earlier run): it counts against
 * the budget. */
void search_mark_tried(struct search *search, size_t index);
void search_report(struct search *search, size_t index, enum outcome outcome, double median_ns);

/* Whether reports change what it proposes, so that proposals made ahead of them are poorer. */
bool search_learns(const struct search *search);

/* How many evaluations this search will make at most. */
size_t search_total(const struct search *search);

#endif
