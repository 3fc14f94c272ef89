/* kernels_src/harness.cu, loaded: fills, comparisons, guards and checksums on the device. The codes
 * here and there are the same. */
#ifndef TUNE_WORKER_HARNESS_H
#define TUNE_WORKER_HARNESS_H

#include "buffers.h"
#include "gpu.h"

#include <stdint.h>

int harness_dtype(const char *word, int *dtype); /* 0, or -1 when unknown */
const char *harness_dtype_word(int dtype);
int64_t harness_dtype_bytes(int dtype);
int harness_fill_kind(const char *word, int *fill); /* 0, or -1 when unknown */
/* The value of one element as a double, for sentences. */
double harness_value(int dtype, const void *element);

struct harness {
    struct CUmod_st *module; /* NULL: not loaded */
    struct CUfunc_st *fill, *compare, *guards, *checksum;
    uint64_t results; /* small device buffer: ranges in, results out */
};

struct comparison {
    double worst;      /* largest |x - ref| / allowed; HARNESS_WORST: infinitely wrong */
    uint64_t bad;      /* elements above 1 */
    uint64_t first;    /* the first of them */
    uint64_t shadowed; /* right elements that still look like the poison */
};

#define HARNESS_WORST 1e300
#define HARNESS_FILL_ZERO 3

/* Fills that harness.cu has not (inputs.h), after those that it has. */
enum { INPUT_SORTED = 7, INPUT_CSR_OFFSETS, INPUT_CSR_COLUMNS, INPUT_CSR_LONGEST_ROW };

int harness_load(
    struct harness *harness, struct gpu *gpu, const char *image_base64, struct verdict *verdict);
void harness_unload(struct harness *harness, struct gpu *gpu);

/* Asynchronous. */
int harness_fill_buffer(struct harness *harness, struct gpu *gpu, const struct buffer *buffer,
    uint64_t seed, uint64_t stream, struct verdict *verdict);

/* These wait for their result. */
int harness_checksum(struct harness *harness, struct gpu *gpu, const struct buffer *buffer,
    uint64_t *sum, struct verdict *verdict);
int harness_compare(struct harness *harness, struct gpu *gpu, const struct buffer *x,
    const struct buffer *reference, const struct buffer *scale, double relative, double absolute,
    unsigned char poison, struct comparison *comparison, struct verdict *verdict);

/* Sets the guard zones of all placed buffers of the list (asynchronous), and looks whether they are
 * untouched: the verdict of a stray write is wrong_result. */
int harness_set_guards(struct gpu *gpu, const struct buffer_list *list, struct verdict *verdict);
int harness_check_guards(struct harness *harness, struct gpu *gpu, const struct buffer_list *list,
    struct verdict *verdict);

#endif
