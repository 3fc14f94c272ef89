/* Between words.c (which causes are told, in which order) and words_causes.c (what is said of one).
 *
 * Weights come from weigh.c and parameters from levers.c. To add a cause: a line in weigh.h, its
 * weight in weigh.c, and a line in the table of words_causes.c. */
#ifndef TUNE_EXPLAIN_WORDS_H
#define TUNE_EXPLAIN_WORDS_H

#include "levers.h"
#include "weigh.h"

#include <stdio.h>

struct story {
    FILE *text; /* sentences begin with a blank, but for the first one */
    const json_t *explanation;
    struct weighed weighed;
    struct levers levers;
    bool has_levers; /* a manifest is known that fits */
};

/* One sentence. */
void tell_cause(const struct story *story, enum explain_cause cause);

/* What it is called where it weighs little; NULL: nothing. */
const char *cause_name(enum explain_cause cause);

/* "25 %" */
void say_percent(FILE *text, double share);

#endif
