/* What `explain` shows to a person: the JSON of explain/explain.h as sections and tables. */
#ifndef TUNECTL_EXPLAIN_VIEW_H
#define TUNECTL_EXPLAIN_VIEW_H

#include <jansson.h>

/* One explanation; sections stand only where something is known. */
void show_explanation(const json_t *explanation);

/* The answer to bare numbers: the blocks that each resource allows. */
void show_resources(const json_t *explanation);

/* The JSON of explain_compare. */
void show_comparison(const json_t *comparison);

/* "gemm f32 M=64 N=64 K=64, sm_90, cold"; malloc'ed. */
char *explain_title(const json_t *explanation);

/* Parts of an explanation. */
void show_accesses(const json_t *explanation);
void show_branches(const json_t *explanation);

/* The items of a list in the order of a function for qsort, which gets json_t *const *. malloc'ed,
 * items borrowed. */
json_t **explain_sorted(const json_t *list, int (*order)(const void *, const void *));

#endif
