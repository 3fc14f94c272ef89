/* Launches, the work of streams, and the model of time. Errors of a kernel show as on a GPU: at the
 * next call. */
#include "driver.h"
#include "memory.h"
#include "trace_run.h"

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
#define PORTABLE_CLUSTER_BLOCKS 8

static double clock_ns; /* one for all streams */

double clock_now_ns(void)
{
    return clock_ns;
}

/* --- the model -------------------------------------------------------------------------------- */

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

/* --- doing the work --------------------------------------------------------------------------- */

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

void do_node(const struct node *node)
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

/* --- launches --------------------------------------------------------------------------------- */

static bool within(const uint32_t size[3], const uint32_t limit[3])
{
    for (int i = 0; i < 3; i++)
        if (size[i] == 0 || size[i] > limit[i])
            return false;
    return true;
}

static unsigned check_cluster(const struct node *node, uint32_t threads)
{
    const struct fibre_launch *launch = &node->launch;
    uint64_t in_cluster = 1;
    for (int i = 0; i < 3; i++) {
        if (launch->cluster[i] == 0 || launch->cluster[i] > FIBRE_CLUSTER_BLOCKS)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        if (launch->grid[i] % launch->cluster[i] != 0)
            return CUDA_ERROR_INVALID_VALUE;
        in_cluster *= launch->cluster[i];
    }
    uint64_t limit =
        node->function->may_have_large_clusters ? FIBRE_CLUSTER_BLOCKS : PORTABLE_CLUSTER_BLOCKS;
    if (in_cluster > limit || in_cluster * threads > FIBRE_GRID_THREADS)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return CUDA_SUCCESS;
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
    if (per_sm == 0 && !trace_mode())
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (launch->is_cooperative &&
        ((!trace_mode() && blocks > (uint64_t)per_sm * (uint64_t)current_scenario_device()->sms) ||
            blocks * threads > FIBRE_GRID_THREADS))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return check_cluster(node, threads);
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

static void read_attributes(const struct launch_config *config, struct fibre_launch *launch)
{
    for (uint32_t i = 0; i < config->attribute_count; i++) {
        const struct launch_attribute *attribute = &config->attributes[i];
        if (attribute->id == LAUNCH_COOPERATIVE)
            launch->is_cooperative = attribute->value.cooperative != 0;
        if (attribute->id == LAUNCH_CLUSTER_DIMENSION)
            memcpy(launch->cluster, attribute->value.cluster, sizeof launch->cluster);
    }
}

static unsigned launch(const char *name, struct CUfunc_st *function,
    const struct launch_config *config, void **params, void **extra)
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
        .grid = {config->grid[0], config->grid[1], config->grid[2]},
        .block = {config->block[0], config->block[1], config->block[2]},
        .cluster = {1, 1, 1},
        .shared_bytes = config->shared_bytes,
        .params = params};
    read_attributes(config, &node.launch);
    if (extra)
        return end_call(CUDA_ERROR_NOT_SUPPORTED);
    result = check_launch(&node, params != NULL);
    if (!result)
        result = stream_submit(stream_of(config->stream), &node);
    return end_call(result);
}

EXPORTED unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params, void **extra);
unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params, void **extra)
{
    const struct launch_config config = {.grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
        .shared_bytes = shared_bytes,
        .stream = stream};
    return launch("cuLaunchKernel", function, &config, params, extra);
}

EXPORTED unsigned cuLaunchCooperativeKernel(struct CUfunc_st *function, unsigned grid_x,
    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, struct CUstream_st *stream, void **params);
unsigned cuLaunchCooperativeKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
    struct CUstream_st *stream, void **params)
{
    const struct launch_attribute cooperative = {.id = LAUNCH_COOPERATIVE, .value.cooperative = 1};
    const struct launch_config config = {.grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
        .shared_bytes = shared_bytes,
        .stream = stream,
        .attributes = &cooperative,
        .attribute_count = 1};
    return launch("cuLaunchCooperativeKernel", function, &config, params, NULL);
}

EXPORTED unsigned cuLaunchKernelEx(
    const struct launch_config *config, struct CUfunc_st *function, void **params, void **extra);
unsigned cuLaunchKernelEx(
    const struct launch_config *config, struct CUfunc_st *function, void **params, void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return launch("cuLaunchKernel", function, config, params, extra);
}
