/* A candidate loaded on the device: its module and the launches of its plan, ready to be issued on
 * any set of buffers. */
#ifndef TUNE_WORKER_LAUNCH_H
#define TUNE_WORKER_LAUNCH_H

#include "buffers.h"
#include "gpu.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LAUNCH_LIMIT 1024 /* one of a manifest may stand for MANIFEST_MAX_TURNS */
#define LAUNCH_ARG_LIMIT 64

struct launch_arg {
    size_t buffer;  /* index into the buffer list, SIZE_MAX: a scalar */
    uint64_t value; /* the scalar's bytes, first byte first */
};

enum launch_kind { LAUNCH_KERNEL, LAUNCH_MEMSET, LAUNCH_CONSTANT };

struct launch {
    enum launch_kind kind;
    size_t buffer; /* that a memset clears, or that is copied to a constant */
    unsigned char memset_byte;
    char entry[272];   /* of a constant: its variable's name */
    uint64_t constant; /* where that lies on the device */
    size_t constant_bytes;
    struct CUfunc_st *function;
    unsigned grid[3], block[3], cluster[3], shared_bytes;
    bool has_cluster, is_cooperative;
    bool is_once;
    int64_t repeat;
    size_t arg_count;
    struct launch_arg *args;
};

struct program {
    struct CUmod_st *module;
    bool has_once;
    size_t launch_count;
    struct launch *launches;
    /* Of the launches, the largest each. local_bytes: per thread, the stack frame with the spills.
     */
    int registers, local_bytes, static_shared_bytes, dynamic_shared_bytes;
};

/* Loads the image (base64), reads plan_launches against the list, and checks every launch against
 * what the kernel and the device allow: over_limits with the arithmetic. A constant that the image
 * lacks is launch_failed, one that its buffer does not fit into over_limits. `names` maps entries
 * to names in the image. On failure nothing stays loaded. */
int program_load(struct program *program, struct gpu *gpu, const char *image_base64,
    const json_t *names, const json_t *launches, const struct buffer_list *buffers,
    struct verdict *verdict);
/* The image (base64) alone. */
int program_load_module(
    struct CUmod_st **module, struct gpu *gpu, const char *image_base64, struct verdict *verdict);
void program_unload(struct program *program, struct gpu *gpu);

/* Fills the constants that the launches set with a byte, asynchronously: a kernel that reads one
 * before it is set then finds neither zeros nor what the last call has left. */
int program_poison(
    const struct program *program, struct gpu *gpu, unsigned char byte, struct verdict *verdict);

/* What is done once for the inputs at these pointers, and what is done at each call. */
enum { PROGRAM_ONCE = 1, PROGRAM_CALL = 2, PROGRAM_ALL = PROGRAM_ONCE | PROGRAM_CALL };

/* Issues the launches of `parts`, asynchronously, with pointers[i] for buffer i of the list. */
int program_issue(const struct program *program, unsigned parts, struct gpu *gpu,
    const struct buffer_list *buffers, const uint64_t *pointers, struct verdict *verdict);

/* What the watchdog and errors call the program: the first entry of a call. */
const char *program_name(const struct program *program);

#endif
