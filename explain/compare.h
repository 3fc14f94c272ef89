/* Between compare.c (which is faster) and compare_values.c (what differs). */
#ifndef TUNE_EXPLAIN_COMPARE_H
#define TUNE_EXPLAIN_COMPARE_H

#include "weigh.h"

struct side {
    const json_t *explanation;
    struct weighed weighed; /* of it */
};

/* A field of the explanation; borrowed. */
const json_t *side_part(const struct side *side, const char *key);

/* The "differences" of explain_compare, what matters most first. New. */
json_t *compare_differences(const struct side *a, const struct side *b);

#endif
