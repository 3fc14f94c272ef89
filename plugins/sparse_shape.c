/* See sparse_shape.h. */
#include "plugins/sparse_shape.h"

static size_t find_size(const struct manifest *manifest, enum sparse_dim which)
{
    size_t dim = manifest_find_dim(manifest, sparse_dim_names[which]);
    return dim != SIZE_MAX && manifest->dims[dim].value_count > 0 ? SIZE_MAX : dim;
}

bool sparse_shape_is_one(const struct manifest *manifest)
{
    return find_size(manifest, SPARSE_ROWS) != SIZE_MAX &&
           find_size(manifest, SPARSE_NONZEROS) != SIZE_MAX;
}

void sparse_shape_describe(
    const struct manifest *manifest, const int64_t *dims, struct sparse_description *description)
{
    for (int i = 0; i < SPARSE_DIM_COUNT; i++) {
        size_t dim = find_size(manifest, (enum sparse_dim)i);
        description->dims[i] = dim == SIZE_MAX ? 0 : dims[dim];
    }
}

json_t *sparse_description_to_json(const struct sparse_description *description)
{
    json_t *json = json_object();
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (description->dims[i] != 0)
            json_object_set_new(json, sparse_dim_names[i], json_integer(description->dims[i]));
    return json;
}

void sparse_description_from_json(const json_t *json, struct sparse_description *description)
{
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        description->dims[i] = json_integer_value(json_object_get(json, sparse_dim_names[i]));
}
