/* What the benches of serving ask for: gemm f32 on sm_90, one of `count` shapes. The filler of the
 * database and every client count the shapes in the same way. */
#ifndef BENCH_ASKED_H
#define BENCH_ASKED_H

#include <stddef.h>
#include <stdint.h>

#define ASKED_KERNEL "gemm"
#define ASKED_DTYPE "f32"
#define ASKED_ARCH "sm_90"
#define ASKED_MODE "cold"
#define ASKED_DIMS 3
#define ASKED_STEP 16 /* every dim is a multiple of this, so that vector accesses are valid */

static const char *const asked_dim_names[ASKED_DIMS] = {"M", "N", "K"};

/* How many values a dim takes, that `count` shapes need: its smallest cube. */
static inline size_t asked_values_per_dim(size_t count)
{
    size_t values = 1;
    while (values * values * values < count)
        values++;
    return values;
}

/* The shape number `i` of `count`, i < count. */
static inline void asked_shape(size_t i, size_t count, int64_t dims[ASKED_DIMS])
{
    size_t values = asked_values_per_dim(count);
    for (size_t dim = 0; dim < ASKED_DIMS; dim++) {
        dims[dim] = ASKED_STEP * (int64_t)(1 + i % values);
        i /= values;
    }
}

#endif
