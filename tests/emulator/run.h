/* Inside of fibre.c and access.c: the launch that is running. The driver's lock admits one at a
 * time. */
#ifndef TUNE_EMULATOR_RUN_H
#define TUNE_EMULATOR_RUN_H

#include "fibre.h"

#define WORDS (FIBRE_BLOCK_THREADS / 64)
#define USES 64 /* ranges of a launch that are told apart; more share the last tag */

enum { ERROR_ILLEGAL_ADDRESS = 700, ERROR_MISALIGNED_ADDRESS = 716, ERROR_LAUNCH_FAILED = 719 };

enum wait { WAIT_NOT, WAIT_BARRIER, WAIT_WARP, WAIT_CLUSTER, WAIT_GRID };

struct fibre {
    void *stack; /* saved context */
    struct image_index index;
    enum wait wait;
    void *pc; /* where it waits */
};

struct warp {
    uint32_t exists, arrived;
    uint32_t op[32], mask[32], argument[32];
    uint64_t value[32], result[32];
};

struct block {
    struct image_index index;
    struct fibre *fibres;
    uint32_t first_fibre; /* its number among those of all blocks that are alive */
    uint32_t live_count;
    uint64_t live[WORDS], ready[WORDS];
    uint32_t waiting, predicates; /* at the barrier so far */
    uint32_t met, met_predicates; /* at the last one */
    uint32_t cluster_waiting, grid_waiting;
    bool has_begun;
    struct warp warps[FIBRE_BLOCK_THREADS / 32];
    char *saved; /* its shared memory while another block runs, where several are alive */
};

struct run {
    const struct fibre_launch *launch;
    struct fibre_result *result;
    struct image_hot *hot;
    struct block *block;
    struct block *alive; /* blocks that are alive together, clusters one after another; or NULL */
    uint64_t alive_count;
    uint32_t thread, thread_count, words;
    void *main_stack;
    struct image_range uses[USES];
    uint32_t use_count, next_slot;
};

extern struct run run;

/* Blocks of a cluster, 1 without clusters. */
uint32_t fibre_cluster_blocks(const struct fibre_launch *launch);
/* The block in whose saved shared memory the address is, with how much that is; or NULL. */
struct block *fibre_saved_block(uintptr_t address, uintptr_t *bytes);

/* Leaves the running fibre for good; what its stack held is dropped. */
void end_launch(void);

/* Reports the fault with its line, thread and block, and leaves the fibre for good. */
void fail_at(unsigned code, void *pc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void fail(uint32_t code, const char *text, void *pc);

/* The hooks' services (image.h) for addresses. */
struct image_range *resolve(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc);
void misaligned(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc);

/* Takes what the hooks noted into run.uses; at the end of a launch. */
void collect_uses(void);

#endif
