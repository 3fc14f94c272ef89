/* Runs a kernel: the threads of a block as fibres of this OS thread, the blocks one after another
 * in ascending order (a single-pass scan waits for its predecessors). The blocks of a cluster, and
 * all blocks of a cooperative launch, are alive together and take turns at the barriers that they
 * share. The shared memory of those that do not run lies saved; other blocks of the cluster reach
 * it there.
 *
 * A fibre runs until it meets a barrier or a warp operation; nothing else makes it give way, so the
 * order of all accesses is the same in every run. When no fibre can go on, the launch ends with an
 * error that says where they wait. */
#ifndef TUNE_EMULATOR_FIBRE_H
#define TUNE_EMULATOR_FIBRE_H

#include "loader.h"

#include <stdbool.h>
#include <stdint.h>

#define FIBRE_BLOCK_THREADS 1024
#define FIBRE_GRID_THREADS 8192 /* of a cooperative launch, or of a cluster */
#define FIBRE_CLUSTER_BLOCKS 16

struct fibre_launch {
    struct loaded *loaded;
    const struct loaded_kernel *kernel;
    uint32_t grid[3], block[3], cluster[3]; /* cluster: in blocks, 1 each without clusters */
    uint32_t shared_bytes;
    bool is_cooperative;
    void *const *params;
};

struct fibre_result {
    unsigned error; /* CUresult; the message went to standard error */
    uint64_t global_accesses, shared_accesses, misses;
    uint64_t threads, blocks, switches;
};

/* Runs to the end or to the first error. */
void fibre_run(const struct fibre_launch *launch, struct fibre_result *result);

/* The first parameter that points into an allocation which this kernel wrote to; the bytes from
 * *address on that it wrote. False when there is none. Valid after fibre_run. */
bool fibre_first_output(const struct fibre_launch *launch, uintptr_t *address, size_t *bytes);

#endif
