/* Inputs that are made on the host and copied up: sparse matrices and sorted numbers. For the roles
 * bench and trace. */
#ifndef TUNE_WORKER_INPUTS_H
#define TUNE_WORKER_INPUTS_H

#include "buffers.h"
#include "gpu.h"

#include <jansson.h>

/* One matrix for all buffers of a set-up, made when the first of them is filled. */
struct inputs {
    const char *named;  /* the sweep's input, borrowed from the request; NULL: by description */
    int64_t reader_uid; /* who must be allowed to read it, if it is a file; -1: whoever we are */
    struct sparse_matrix matrix; /* without rows: not made yet */
    struct sparse_description description;
};

/* Takes request.input and request.input_reader. */
int inputs_init(struct inputs *inputs, const json_t *request, struct verdict *verdict);
void inputs_finish(struct inputs *inputs);

/* True when it filled the buffer; false when its fill is none of these, or with a verdict. `stream`
 * tells buffers of one seed apart. */
bool inputs_fill(struct inputs *inputs, struct gpu *gpu, const struct buffer *buffer, uint64_t seed,
    uint64_t stream, struct verdict *verdict);

#endif
