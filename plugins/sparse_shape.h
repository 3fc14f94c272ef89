/* Sparse matrices in shapes: which dims of a manifest describe one, and descriptions as JSON. */
#ifndef TUNE_SPARSE_SHAPE_H
#define TUNE_SPARSE_SHAPE_H

#include "plugins/manifest.h"
#include "plugins/sparse.h"

/* Whether the manifest's dims describe a matrix: it has ROWS and NONZEROS, as sizes. */
bool sparse_shape_is_one(const struct manifest *manifest);
/* What a shape says of its matrix; without a dim COLUMNS it is a graph. */
void sparse_shape_describe(
    const struct manifest *manifest, const int64_t *dims, struct sparse_description *description);

/* {"ROWS":4,...}, what is said only; and back, of which other names are left alone. */
json_t *sparse_description_to_json(const struct sparse_description *description);
void sparse_description_from_json(const json_t *json, struct sparse_description *description);

#endif
