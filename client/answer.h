/* Answers of `get` as compact bytes: what libtune hands out, what the published snapshot stores,
 * made from the JSON of the protocol. Pure.
 *
 * The bytes are little-endian and position-independent: a fixed head with counts and offsets, then
 * tables and NUL-terminated strings. tune.h reads them where they lie. `defines` of launches are
 * left out: they say how the code was compiled. */
#ifndef TUNE_ANSWER_H
#define TUNE_ANSWER_H

#include "tune.h"

#include <jansson.h>

#define ANSWER_VERSION 1 /* raise it with any change of the bytes: readers refuse others */

/* From the result of `get` (borrowed). TUNE_EPARSE where a field is missing or of the wrong type,
 * TUNE_ELIMIT where it does not fit. is_offline becomes false. */
int answer_from_json(const json_t *json, struct tune_answer *answer, struct tune_error *err);

/* Takes bytes from outside (a snapshot): checks version, every offset, count and string end, so
 * that the readers of tune.h need not. TUNE_EDAMAGED, TUNE_EVERSION. About 100 ns. */
int answer_from_bytes(
    const void *bytes, size_t length, struct tune_answer *answer, struct tune_error *err);

#endif
