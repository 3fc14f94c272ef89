/* Streams, events, graphs and launches of the stand-in libcuda.
 *
 * Work is done when it is submitted, in order, so that a stream is never busy; errors of a kernel
 * still show as they do on a GPU, at the next call. One clock counts the model's nanoseconds for
 * all streams. */
#include "driver.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model. A launch costs as much as a real one with its gaps, so that tuners which treat very
 * short kernels in another way do not do so here; see README.md. */
#define LAUNCH_NS 20000.0
#define MEMORY_OPERATION_NS 1000.0
#define MEMORY_BYTES_PER_NS 100.0
#define GLOBAL_ACCESS_NS 10.0
#define MISS_NS 160.0
#define SHARED_ACCESS_NS 5.0
#define SWITCH_NS 5.0
#define THREAD_NS 20.0
#define LANES 32

static double clock_ns;
static struct CUstream_st default_stream;

/* The default streams: NULL, and the driver's two numbers for it. */
static struct CUstream_st *stream_of(struct CUstream_st *stream)
{
    return (uintptr_t)stream <= 2 ? &default_stream : stream;
}

bool stream_is_capturing(const struct CUstream_st *stream)
{
    return stream->capture != NULL;
}

/* --- the model ----------------------------------------------------------------------------------
 */

int function_blocks_per_sm(
    const struct CUfunc_st *function, uint32_t threads, uint32_t dynamic_shared)
{
    uint32_t warps = (threads + 31) / 32;
    uint32_t shared = function->kernel->static_shared + dynamic_shared + 1024;
    uint32_t blocks = 2048 / (warps * 32);
    uint32_t by_registers = 65536 / (warps * 32 * (function->registers ? function->registers : 1));
    uint32_t by_shared = 100 * 1024 / shared;
    blocks = blocks < by_registers ? blocks : by_registers;
    blocks = blocks < by_shared ? blocks : by_shared;
    return (int)(blocks < 32 ? blocks : 32);
}

static double model_ns(const struct node *node, const struct fibre_result *result)
{
    const uint32_t *block = node->launch.block;
    uint32_t threads = block[0] * block[1] * block[2];
    int sms = current_scenario_device()->sms;
    int per_sm = function_blocks_per_sm(node->function, threads, node->launch.shared_bytes);
    double at_once = (double)(per_sm ? per_sm : 1) * sms;
    double waves = (double)(uint64_t)(((double)result->blocks + at_once - 1) / at_once);
    double idle = 1 - (double)per_sm * threads / 2048;
    double work = GLOBAL_ACCESS_NS * (double)result->global_accesses +
                  MISS_NS * (double)result->misses +
                  SHARED_ACCESS_NS * (double)result->shared_accesses +
                  SWITCH_NS * (double)result->switches + THREAD_NS * (double)result->threads;
    double tail = result->blocks < at_once ? 1 : waves * at_once / (double)result->blocks;
    return LAUNCH_NS + work / (sms * LANES) * tail * (1 + 0.2 * idle);
}

/* --- doing the work -----------------------------------------------------------------------------
 */

static void write_garbage(const struct fibre_launch *launch)
{
    uintptr_t address;
    size_t bytes;
    uint32_t noise = 0x9E3779B9u;
    if (!fibre_first_output(launch, &address, &bytes))
        return;
    for (size_t i = 0; i < bytes; i++) {
        noise = noise * 1664525u + 1013904223u;
        ((unsigned char *)address)[i] ^= (unsigned char)(noise >> 24 | 1);
    }
}

static void do_launch(const struct node *node)
{
    struct fibre_result result;
    fibre_run(&node->launch, &result);
    if (result.error) {
        set_sticky(result.error, false);
        return;
    }
    if (node->effect.has_garbage)
        write_garbage(&node->launch);
    if (node->effect.fault)
        set_sticky(node->effect.fault, false);
    bool is_planned = !(node->effect.time_ns < 0);
    clock_ns += is_planned ? node->effect.time_ns : model_ns(node, &result) * scenario_noise();
}

static void do_node(const struct node *node)
{
    size_t bytes = node->count * node->width;
    if (node->kind == NODE_LAUNCH) {
        do_launch(node);
        return;
    }
    if (node->kind == NODE_MEMSET)
        memory_set(node->to, node->value, node->width, node->count);
    else
        memmove((void *)node->to, (void *)node->from, bytes);
    clock_ns += MEMORY_OPERATION_NS + (double)bytes / MEMORY_BYTES_PER_NS;
}

/* --- graphs -------------------------------------------------------------------------------------
 */

static void node_free(struct node *node)
{
    if (node->kind == NODE_LAUNCH)
        module_drop(node->function->module);
    free(node->param_bytes);
    free(node);
}

/* A copy that owns its parameters and keeps its module loaded. */
static struct node *node_copy(const struct node *node)
{
    size_t bytes = 0, at = 0;
    struct node *copy = malloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *node;
    copy->param_bytes = NULL;
    copy->next = NULL;
    if (node->kind != NODE_LAUNCH)
        return copy;
    const struct image_kernel *kernel = node->function->kernel->image;
    for (uint32_t i = 0; i < kernel->param_count; i++)
        bytes += (kernel->param_bytes[i] + 15) / 16 * 16;
    copy->param_bytes = malloc(bytes + 16);
    if (!copy->param_bytes) {
        free(copy);
        return NULL;
    }
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        copy->params[i] = copy->param_bytes + at;
        memcpy(copy->params[i], node->launch.params[i], kernel->param_bytes[i]);
        at += (kernel->param_bytes[i] + 15) / 16 * 16;
    }
    copy->launch.params = copy->params;
    module_keep(node->function->module);
    return copy;
}

static struct CUgraph_st *graph_create(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (graph)
        graph->end = &graph->first;
    return graph;
}

static unsigned graph_append(struct CUgraph_st *graph, const struct node *node)
{
    struct node *copy = node_copy(node);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *graph->end = copy;
    graph->end = &copy->next;
    return CUDA_SUCCESS;
}

static void graph_clear(struct CUgraph_st *graph)
{
    for (struct node *node = graph->first, *next; node; node = next) {
        next = node->next;
        node_free(node);
    }
    graph->first = NULL;
    graph->end = &graph->first;
}

unsigned stream_submit(struct CUstream_st *stream, struct node *node)
{
    if (stream->capture)
        return graph_append(stream->capture, node);
    do_node(node);
    return CUDA_SUCCESS;
}

EXPORTED unsigned cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode);
unsigned cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode)
{
    unsigned result = begin("cuStreamBeginCapture", NEED_CONTEXT);
    (void)mode;
    if (!result && stream_of(stream) == &default_stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!result && stream->capture)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = (stream->capture = graph_create()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return end_call(result);
}

EXPORTED unsigned cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
unsigned cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph)
{
    unsigned result = begin("cuStreamEndCapture", NEED_CONTEXT);
    if (!result && (!graph || !stream_of(stream)->capture))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        *graph = stream->capture;
        stream->capture = NULL;
    }
    return end_call(result);
}

EXPORTED unsigned cuStreamIsCapturing(struct CUstream_st *stream, int *status);
unsigned cuStreamIsCapturing(struct CUstream_st *stream, int *status)
{
    unsigned result = begin("cuStreamIsCapturing", NEED_CONTEXT);
    if (!result && !status)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *status = stream_is_capturing(stream_of(stream));
    return end_call(result);
}

EXPORTED unsigned cuGraphInstantiateWithFlags(
    struct CUgraphExec_st **exec, struct CUgraph_st *graph, unsigned long long flags);
unsigned cuGraphInstantiateWithFlags(
    struct CUgraphExec_st **exec, struct CUgraph_st *graph, unsigned long long flags)
{
    unsigned result = begin("cuGraphInstantiate", NEED_CONTEXT);
    (void)flags;
    if (!result && (!exec || !graph))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return end_call(result);
    struct CUgraphExec_st *made = calloc(1, sizeof *made);
    if (!made)
        return end_call(CUDA_ERROR_OUT_OF_MEMORY);
    made->graph.end = &made->graph.first;
    for (const struct node *node = graph->first; node && !result; node = node->next)
        result = graph_append(&made->graph, node);
    if (result) {
        graph_clear(&made->graph);
        free(made);
    } else {
        *exec = made;
    }
    return end_call(result);
}

EXPORTED unsigned cuGraphUpload(struct CUgraphExec_st *exec, struct CUstream_st *stream);
unsigned cuGraphUpload(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    unsigned result = begin("cuGraphUpload", NEED_CONTEXT);
    (void)stream;
    return end_call(result || exec ? result : CUDA_ERROR_INVALID_VALUE);
}

EXPORTED unsigned cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream);
unsigned cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    unsigned result = begin("cuGraphLaunch", NEED_CONTEXT);
    if (!result && !exec)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && stream_is_capturing(stream_of(stream)))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (const struct node *node = result ? NULL : exec->graph.first; node && !sticky_error();
         node = node->next)
        do_node(node);
    return end_call(result);
}

EXPORTED unsigned cuGraphExecDestroy(struct CUgraphExec_st *exec);
unsigned cuGraphExecDestroy(struct CUgraphExec_st *exec)
{
    unsigned result = begin("cuGraphExecDestroy", NEED_CONTEXT);
    if (!result && !exec)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        graph_clear(&exec->graph);
        free(exec);
    }
    return end_call(result);
}

EXPORTED unsigned cuGraphDestroy(struct CUgraph_st *graph);
unsigned cuGraphDestroy(struct CUgraph_st *graph)
{
    unsigned result = begin("cuGraphDestroy", NEED_CONTEXT);
    if (!result && !graph)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        graph_clear(graph);
        free(graph);
    }
    return end_call(result);
}

/* --- streams ------------------------------------------------------------------------------------
 */

EXPORTED unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags);
unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
    unsigned result = begin("cuStreamCreate", NEED_CONTEXT);
    if (!result && (!stream || flags > 1))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = (*stream = calloc(1, sizeof **stream)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return end_call(result);
}

EXPORTED unsigned cuStreamDestroy_v2(struct CUstream_st *stream);
unsigned cuStreamDestroy_v2(struct CUstream_st *stream)
{
    unsigned result = begin("cuStreamDestroy", NEED_CONTEXT);
    if (!result && stream_of(stream) == &default_stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result) {
        if (stream->capture)
            graph_clear(stream->capture);
        free(stream->capture);
        free(stream);
    }
    return end_call(result);
}

static unsigned wait_for(const char *name, struct CUstream_st *stream)
{
    unsigned result = begin(name, NEED_CONTEXT);
    if (!result && stream_is_capturing(stream_of(stream)))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return end_call(result);
}

EXPORTED unsigned cuStreamSynchronize(struct CUstream_st *stream);
unsigned cuStreamSynchronize(struct CUstream_st *stream)
{
    return wait_for("cuStreamSynchronize", stream);
}

EXPORTED unsigned cuStreamQuery(struct CUstream_st *stream);
unsigned cuStreamQuery(struct CUstream_st *stream)
{
    return wait_for("cuStreamQuery", stream);
}

EXPORTED unsigned cuStreamWaitEvent(
    struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    unsigned result = begin("cuStreamWaitEvent", NEED_CONTEXT);
    (void)stream;
    (void)flags;
    return end_call(result || event ? result : CUDA_ERROR_INVALID_HANDLE);
}

/* --- events -------------------------------------------------------------------------------------
 */

EXPORTED unsigned cuEventCreate(struct CUevent_st **event, unsigned flags);
unsigned cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    unsigned result = begin("cuEventCreate", NEED_CONTEXT);
    if (!result && (!event || flags > 7))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = (*event = calloc(1, sizeof **event)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        (*event)->has_timing = !(flags & 2);
    return end_call(result);
}

EXPORTED unsigned cuEventDestroy_v2(struct CUevent_st *event);
unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
    unsigned result = begin("cuEventDestroy", NEED_CONTEXT);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        free(event);
    return end_call(result);
}

EXPORTED unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    unsigned result = begin("cuEventRecord", NEED_CONTEXT);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result) { /* in a capture it only marks a dependency, which order gives here */
        event->is_recorded = !stream_is_capturing(stream_of(stream));
        event->time_ns = clock_ns;
    }
    return end_call(result);
}

static unsigned wait_for_event(const char *name, const struct CUevent_st *event)
{
    unsigned result = begin(name, NEED_CONTEXT);
    return end_call(result || event ? result : CUDA_ERROR_INVALID_HANDLE);
}

EXPORTED unsigned cuEventQuery(struct CUevent_st *event);
unsigned cuEventQuery(struct CUevent_st *event)
{
    return wait_for_event("cuEventQuery", event);
}

EXPORTED unsigned cuEventSynchronize(struct CUevent_st *event);
unsigned cuEventSynchronize(struct CUevent_st *event)
{
    return wait_for_event("cuEventSynchronize", event);
}

EXPORTED unsigned cuEventElapsedTime(float *ms, struct CUevent_st *start, struct CUevent_st *end);
unsigned cuEventElapsedTime(float *ms, struct CUevent_st *start, struct CUevent_st *end)
{
    unsigned result = begin("cuEventElapsedTime", NEED_CONTEXT);
    if (!result && !ms)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (!start || !end || !start->is_recorded || !end->is_recorded ||
                       !start->has_timing || !end->has_timing))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        *ms = (float)((end->time_ns - start->time_ns) / 1e6);
    return end_call(result);
}

EXPORTED unsigned cuEventElapsedTime_v2(
    float *ms, struct CUevent_st *start, struct CUevent_st *end);
unsigned cuEventElapsedTime_v2(float *ms, struct CUevent_st *start, struct CUevent_st *end)
{
    return cuEventElapsedTime(ms, start, end);
}

/* --- copies and memsets -------------------------------------------------------------------------
 */

enum copy_kind { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static unsigned copy(const char *name, enum copy_kind kind, unsigned long long to,
    unsigned long long from, size_t bytes, struct CUstream_st *stream, bool waits)
{
    unsigned result = begin(name, NEED_CONTEXT);
    struct node node = {.kind = NODE_COPY,
        .to = (uintptr_t)to,
        .from = (uintptr_t)from,
        .count = bytes,
        .width = 1};
    if (result || bytes == 0)
        return end_call(result);
    if (!to || !from || (kind != DEVICE_TO_HOST && !is_device_range(node.to, bytes)) ||
        (kind != HOST_TO_DEVICE && !is_device_range(node.from, bytes)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && waits && stream_is_capturing(stream_of(stream)))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!result)
        result = stream_submit(stream_of(stream), &node);
    return end_call(result);
}

EXPORTED unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    return copy("cuMemcpyHtoD", HOST_TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    return copy("cuMemcpyDtoH", DEVICE_TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes)
{
    return copy("cuMemcpyDtoD", DEVICE_TO_DEVICE, to, from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyHtoDAsync_v2(
    unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyHtoDAsync_v2(
    unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyHtoDAsync", HOST_TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

EXPORTED unsigned cuMemcpyDtoHAsync_v2(
    void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyDtoHAsync_v2(
    void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyDtoHAsync", DEVICE_TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

EXPORTED unsigned cuMemcpyDtoDAsync_v2(
    unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyDtoDAsync_v2(
    unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyDtoDAsync", DEVICE_TO_DEVICE, to, from, bytes, stream, false);
}

static unsigned set(const char *name, unsigned long long to, uint32_t value, size_t width,
    size_t count, struct CUstream_st *stream)
{
    unsigned result = begin(name, NEED_CONTEXT);
    struct node node = {
        .kind = NODE_MEMSET, .to = (uintptr_t)to, .count = count, .width = width, .value = value};
    if (result || count == 0)
        return end_call(result);
    if (count > SIZE_MAX / width || to % width || !memory_has(node.to, count * width))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = stream_submit(stream_of(stream), &node);
    return end_call(result);
}

#define MEMSET(bits, type)                                                                         \
    EXPORTED unsigned cuMemsetD##bits##_v2(unsigned long long to, type value, size_t count);       \
    unsigned cuMemsetD##bits##_v2(unsigned long long to, type value, size_t count)                 \
    {                                                                                              \
        return set("cuMemsetD" #bits, to, value, sizeof(type), count, NULL);                       \
    }                                                                                              \
    EXPORTED unsigned cuMemsetD##bits##Async(                                                      \
        unsigned long long to, type value, size_t count, struct CUstream_st *stream);              \
    unsigned cuMemsetD##bits##Async(                                                               \
        unsigned long long to, type value, size_t count, struct CUstream_st *stream)               \
    {                                                                                              \
        return set("cuMemsetD" #bits "Async", to, value, sizeof(type), count, stream);             \
    }

MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)

/* --- launches -----------------------------------------------------------------------------------
 */

static bool within(const uint32_t size[3], const uint32_t limit[3])
{
    for (int i = 0; i < 3; i++)
        if (size[i] == 0 || size[i] > limit[i])
            return false;
    return true;
}

/* The driver's answers to what does not fit; it does not say which limit was met. */
static unsigned check_launch(const struct node *node, bool has_params)
{
    static const uint32_t grid_limit[3] = {2147483647, 65535, 65535};
    static const uint32_t block_limit[3] = {1024, 1024, 64};
    const struct fibre_launch *launch = &node->launch;
    const struct CUfunc_st *function = node->function;
    const uint32_t *block = launch->block;
    uint32_t bound = function->kernel->launch_bound;
    if (!within(launch->grid, grid_limit) || !within(block, block_limit) ||
        block[0] * block[1] * block[2] > FIBRE_BLOCK_THREADS ||
        launch->shared_bytes > function->max_dynamic_shared ||
        (!has_params && function->kernel->image->param_count))
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t threads = block[0] * block[1] * block[2];
    if (bound && threads > bound)
        return CUDA_ERROR_INVALID_VALUE;
    int per_sm = function_blocks_per_sm(function, threads, launch->shared_bytes);
    if (per_sm == 0)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (launch->is_cooperative &&
        (blocks > (uint64_t)per_sm * (uint64_t)current_scenario_device()->sms ||
            blocks * threads > FIBRE_GRID_THREADS))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return CUDA_SUCCESS;
}

static unsigned launch(const char *name, struct CUfunc_st *function, const uint32_t grid[3],
    const uint32_t block[3], uint32_t shared_bytes, struct CUstream_st *stream, void **params,
    void **extra, bool is_cooperative)
{
    struct node node = {.kind = NODE_LAUNCH, .function = function};
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    unsigned result = begin_call(name, NEED_CONTEXT, function, &node.effect);
    if (result)
        return end_call(result);
    note_launch(function);
    node.launch = (struct fibre_launch){.loaded = function->module->loaded,
        .kernel = function->kernel,
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .shared_bytes = shared_bytes,
        .is_cooperative = is_cooperative,
        .params = params};
    if (extra)
        return end_call(CUDA_ERROR_NOT_SUPPORTED);
    result = check_launch(&node, params != NULL);
    if (!result)
        result = stream_submit(stream_of(stream), &node);
    return end_call(result);
}

EXPORTED unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params, void **extra);
unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params, void **extra)
{
    const uint32_t grid[3] = {grid_x, grid_y, grid_z};
    const uint32_t block[3] = {block_x, block_y, block_z};
    return launch(
        "cuLaunchKernel", function, grid, block, shared_bytes, stream, params, extra, false);
}

EXPORTED unsigned cuLaunchCooperativeKernel(struct CUfunc_st *function, unsigned grid_x,
    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, struct CUstream_st *stream, void **params);
unsigned cuLaunchCooperativeKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params)
{
    const uint32_t grid[3] = {grid_x, grid_y, grid_z};
    const uint32_t block[3] = {block_x, block_y, block_z};
    return launch("cuLaunchCooperativeKernel", function, grid, block, shared_bytes, stream, params,
        NULL, true);
}

/* CUlaunchConfig and CUlaunchAttribute */
struct launch_attribute {
    int id;
    char pad[4];
    union {
        char room[64];
        int cooperative;
        uint32_t cluster[3];
    } value;
};

struct launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    const struct launch_attribute *attributes;
    uint32_t attribute_count;
};

enum { LAUNCH_COOPERATIVE = 2, LAUNCH_CLUSTER_DIMENSION = 4 };

EXPORTED unsigned cuLaunchKernelEx(
    const struct launch_config *config, struct CUfunc_st *function, void **params, void **extra);
unsigned cuLaunchKernelEx(
    const struct launch_config *config, struct CUfunc_st *function, void **params, void **extra)
{
    bool is_cooperative = false;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < config->attribute_count; i++) {
        const struct launch_attribute *attribute = &config->attributes[i];
        const uint32_t *cluster = attribute->value.cluster;
        if (attribute->id == LAUNCH_COOPERATIVE)
            is_cooperative = attribute->value.cooperative != 0;
        if (attribute->id == LAUNCH_CLUSTER_DIMENSION && cluster[0] * cluster[1] * cluster[2] != 1)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    return launch("cuLaunchKernel", function, config->grid, config->block, config->shared_bytes,
        config->stream, params, extra, is_cooperative);
}
