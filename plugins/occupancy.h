/* How many blocks of a kernel a multiprocessor holds, and what keeps it from holding more. Pure.
 *
 * Limits come from the device where it states them; what no attribute tells (blocks per
 * multiprocessor, granularities, what the system keeps of shared memory) stands in a table by
 * architecture, from the "technical specifications per compute capability" of the CUDA programming
 * guide and the allocation rules of the toolkit's occupancy calculator (cuda_occupancy.h), with
 * which a test compares it. */
#ifndef TUNE_OCCUPANCY_H
#define TUNE_OCCUPANCY_H

#include "device.h"

/* X(name, word): in this order the first that is as tight as any is the one named. */
#define OCCUPANCY_RESOURCES(X)                                                                     \
    X(THREADS, "threads")                                                                          \
    X(BLOCKS, "blocks")                                                                            \
    X(REGISTERS, "registers")                                                                      \
    X(SHARED, "shared_memory")

enum occupancy_resource {
#define X(name, word) OCCUPANCY_##name,
    OCCUPANCY_RESOURCES(X)
#undef X
        OCCUPANCY_RESOURCE_COUNT
};

/* Blocks that fit by a resource of which a block takes nothing, or an unknown amount. */
#define OCCUPANCY_UNLIMITED (INT64_C(1) << 40)

/* What one block takes. */
struct occupancy_use {
    int64_t threads;
    int64_t registers;    /* per thread; 0: unknown, and then they never limit */
    int64_t shared_bytes; /* static and dynamic */
};

struct occupancy {
    int64_t blocks_per_sm; /* 0: a block does not fit at all */
    int64_t warps_per_sm, warps_max;
    double fraction; /* warps_per_sm / warps_max */
    enum occupancy_resource limited_by;
    int64_t blocks_by[OCCUPANCY_RESOURCE_COUNT]; /* what each resource alone would allow */
};

/* Fails with TUNE_EINVAL where `use` is no block of this device at all: threads outside of 1 to the
 * device's limit, negative figures, more than 255 registers. Too much shared memory or too many
 * registers for one block is no failure but 0 blocks. */
int occupancy(const struct device_info *device, const struct occupancy_use *use,
    struct occupancy *result, struct tune_error *err);

const char *occupancy_resource_word(enum occupancy_resource resource);

#endif
