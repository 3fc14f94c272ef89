/* Inside of the stand-in libcuda: its objects and what every entry point does first and last.
 *
 * Each entry point is begin_call, its work, end_call. begin_call takes the one lock and answers
 * what any real call may answer: not initialised, no context, the error of an earlier kernel, or
 * what the scenario plans. Handles are pointers to the structs below. */
#ifndef TUNE_EMULATOR_DRIVER_H
#define TUNE_EMULATOR_DRIVER_H

#include "fibre.h"
#include "loader.h"
#include "scenario.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* CUresult */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912
};

enum need { NEED_NOTHING, NEED_INIT, NEED_CONTEXT };

struct CUfunc_st {
    struct CUmod_st *module;
    const struct loaded_kernel *kernel;
    uint32_t registers, max_dynamic_shared;
    bool may_have_large_clusters; /* than any device with clusters takes */
};

struct CUmod_st {
    struct loaded *loaded;
    struct CUfunc_st *functions; /* one per kernel */
    int uses;                    /* itself and graph nodes */
};

enum node_kind { NODE_LAUNCH, NODE_MEMSET, NODE_COPY };

/* One piece of work for a stream, done at once or kept in a graph. */
struct node {
    enum node_kind kind;
    struct CUfunc_st *function; /* launch */
    struct fibre_launch launch;
    void *params[IMAGE_MAX_PARAMS];
    char *param_bytes;   /* what params point to, in a graph */
    uintptr_t to, from;  /* memset, copy */
    size_t count, width; /* memset: values and their bytes; copy: bytes and 1 */
    uint32_t value;
    struct scenario_effect effect;
    struct node *next;
};

struct CUgraph_st {
    struct node *first, **end;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct CUstream_st {
    struct CUgraph_st *capture;
};

struct CUevent_st {
    bool is_recorded, has_timing;
    double time_ns;
};

/* What the scenario's rules may look at. NULL function: that of the last launch. */
unsigned begin_call(const char *name, enum need need, const struct CUfunc_st *function,
    struct scenario_effect *effect);
unsigned end_call(unsigned result);

/* For the common call that has no use for effects. */
unsigned begin(const char *name, enum need need);
/* A call about a device that need not be the current one: rules see this one. */
unsigned begin_on(const char *name, enum need need, int device);

/* The error that every later call of the process returns: after a kernel's fault. */
void set_sticky(unsigned error, bool in_every_call);
unsigned sticky_error(void);

/* Makes the list of devices that may be seen; their number. */
int devices_choose(void);
/* The current device's ordinal in the scenario (-1 without a context), and what it is. */
int current_device(void);
const struct scenario_device *current_scenario_device(void);
/* What a device may hold, and a block of dynamic shared memory after opting in: when tracing, as
 * much as any GPU (trace.h). */
uint64_t device_memory_bytes(const struct scenario_device *device);
int device_shared_bytes(void);
void note_launch(const struct CUfunc_st *function);

/* The whole of [address, +bytes) in an allocation or a module's variable, ready to be used. */
bool is_device_range(uintptr_t address, size_t bytes);

void module_keep(struct CUmod_st *module);
void module_drop(struct CUmod_st *module);

/* The stream that a handle means: NULL and the driver's small numbers are the default one. */
struct CUstream_st *stream_of(struct CUstream_st *stream);
bool stream_is_default(const struct CUstream_st *stream);
bool stream_is_capturing(struct CUstream_st *stream);

/* graph.c: does the work now, or adds it to the graph that the stream captures. */
unsigned stream_submit(struct CUstream_st *stream, const struct node *node);
void graph_clear(struct CUgraph_st *graph);

/* launch.c: does a piece of work, and the model's clock. */
void do_node(const struct node *node);
double clock_now_ns(void);
int function_blocks_per_sm(
    const struct CUfunc_st *function, uint32_t threads, uint32_t dynamic_shared);

#endif
