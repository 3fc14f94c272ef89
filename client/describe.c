/* What a program's own matrix is called in a shape: see tune.h. */
#include "client/tune.h"

#include "plugins/sparse.h"

_Static_assert(TUNE_SPARSE_DIMS == SPARSE_DIM_COUNT, "both name all dims of a description");

int tune_sparse_describe_csr(int64_t rows, int64_t columns, const void *offsets, int offset_bytes,
    const int32_t *columns_of, struct tune_dim *dims, struct tune_error *err)
{
    struct sparse_description description;
    if (offset_bytes != 4 && offset_bytes != 8)
        return tune_fail(err, TUNE_EINVAL, "offsets have 4 or 8 bytes, not %d", offset_bytes);
    if (sparse_describe_csr(rows, columns, offsets, offset_bytes, columns_of, &description, err))
        return -1;
    for (int i = 0; i < TUNE_SPARSE_DIMS; i++)
        dims[i] = (struct tune_dim){sparse_dim_names[i], description.dims[i]};
    return 0;
}
