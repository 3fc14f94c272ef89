/* Hand-made explanations: one whole text, and what a case changes of it. */
#ifndef PATCHED_H
#define PATCHED_H

#include <jansson.h>

/* `base` with the fields of `changes`, which go into objects within objects too. Quotes are ' in
 * both. New; the test fails when they are no JSON. */
json_t *patched(const char *base, const char *changes);

#endif
