/* The contract between a compiled image and the stand-in driver.
 *
 * An image is a shared library: the kernel's object code, compiled with thread-sanitizer hooks, and
 * image.c, which defines those hooks. Nothing in it refers to the driver by name: the driver finds
 * `tune_image` and the `tune_kernel_<i>` descriptors, and puts its services into image.services.
 * The hooks are therefore the image's own, also in a process that carries a real sanitizer.
 *
 * Read by C and C++ (tune_cuda.h repeats the two structs that kernels' code needs; raise
 * TUNE_IMAGE_VERSION with every change of layout). */
#ifndef TUNE_EMULATOR_IMAGE_H
#define TUNE_EMULATOR_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#define TUNE_IMAGE_VERSION 3
#define IMAGE_DYNAMIC_SHARED_BYTES (227 * 1024) /* room for what any GPU allows: see trace.h */
#define IMAGE_RANGES 16                         /* recently used ranges that the hooks know */
#define IMAGE_CACHE_LINES 512                   /* 128-byte lines of the model's cache */
#define IMAGE_MAX_PARAMS 64

enum image_range_kind { IMAGE_GLOBAL, IMAGE_SHARED, IMAGE_STATIC };

/* Valid addresses, with what the model and `garbage` want to know of them. */
struct image_range {
    uintptr_t base, bytes;
    uintptr_t written_low, written_high; /* offsets written in this launch; low > high: none */
    uint32_t kind;
    uint32_t tag; /* order of first use in this launch: makes the model independent of addresses */
    bool read_only;
};

/* What the hooks read and count at every access. */
struct image_hot {
    uintptr_t stack_base, stack_bytes; /* stacks of all fibres */
    uintptr_t shared_bytes;            /* dynamic shared memory of this launch */
    struct image_range ranges[IMAGE_RANGES];
    uint32_t range_count;
    uint64_t global_accesses, shared_accesses, misses;
    uint64_t lines[IMAGE_CACHE_LINES];
};

/* In tracing builds: a basic block's place among the loops (loops.h). */
struct image_block {
    int32_t code;      /* what the block's hook returns to, relative to this field */
    int32_t header;    /* number of the block that begins the innermost loop around this one, except
                        * a loop that this one begins; -1: none */
    int32_t is_header; /* this one begins a loop */
};

enum image_warp_op {
    WARP_EXCHANGE, /* the value of lane `argument` */
    WARP_BALLOT,   /* bit per lane with a value other than 0 */
    WARP_MATCH,    /* bit per lane with this lane's value */
    WARP_MEMBERS   /* the lanes that took part; also a plain __syncwarp */
};

/* An atomic one is told apart in tracing builds only (trace.h), else it is a read and a write. */
enum image_access { ACCESS_READ = 0, ACCESS_WRITE = 1, ACCESS_ATOMIC = 2 };

struct image_services {
    /* Makes [address, +bytes) known as a range of hot, or ends the launch. */
    struct image_range *(*resolve)(
        uintptr_t address, uintptr_t bytes, enum image_access access, void *pc);
    void (*misaligned)(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc);
    /* All threads of the block meet; *count gets the number of those with a predicate. Returns the
     * number of threads that met. */
    uint32_t (*barrier)(uint32_t predicate, uint32_t *count, void *pc);
    uint64_t (*warp)(uint32_t op, uint32_t mask, uint64_t value, uint32_t argument, void *pc);
    void (*grid_barrier)(void *pc);
    void (*cluster_barrier)(void *pc);
    uint32_t (*cluster_rank)(void);
    uint32_t (*cluster_blocks)(void);
    /* Where that block of the cluster has what is at `shared` in the caller's shared memory. */
    uintptr_t (*cluster_address)(uintptr_t shared, uint32_t rank, void *pc);
    void (*yield)(void);
    void (*fail)(uint32_t code, const char *text, void *pc); /* does not return */
    /* Of a launch that is traced, else NULL: accesses to global and shared memory, each basic
     * block, each function that is entered from `site` and its end. `frame` is smaller in a
     * function that was called than in its caller. */
    void (*trace_access)(uintptr_t address, uintptr_t bytes, enum image_access access,
        enum image_range_kind kind, void *pc, void *frame);
    void (*trace_block)(void *pc, void *frame);
    void (*trace_call)(void *site, void *frame);
};

struct image_index {
    uint32_t x, y, z;
};

struct image {
    uint32_t version;
    const char *arch;    /* "cpu" */
    const char *defines; /* "BM=64\nBN=32\n": macros that the scenario asks about */
    struct image_hot *hot;
    struct image_services *services;
    char *dynamic_shared;
    struct image_index *thread, *block, *block_dim, *grid_dim;
    void *const *bounds, *const *bounds_end; /* see image_launch_bound */
    const struct image_block *blocks, *blocks_end;
};

/* One per kernel, exported as tune_kernel_0, tune_kernel_1, ... */
struct image_kernel {
    const char *name; /* lowered name or name expression without blanks */
    void *function;
    void (*call)(void *const *params);
    uint32_t param_count;
    const uint32_t *param_bytes;
};

#endif
