/* The C ABI of hooks: what a plugin's manifest cannot say, in host code.
 *
 * A plugin may have NAME.so beside NAME.json. It exports one symbol,
 *
 *     const struct tune_plugin tune_plugin = { TUNE_PLUGIN_ABI, sizeof(struct tune_plugin), fill,
 * NULL };
 *
 * and is loaded by workers that run kernels, never by the daemon: a hook that crashes costs that
 * worker. The version is read before anything is called; a library of another version is refused.
 * `bytes` lets later versions add members at the end: those past it count as NULL.
 *
 * Every hook returns 0, or another number after which the sweep ends with "the hook failed". Hooks
 * run on one thread; they may allocate and compute, and must not use CUDA, write to descriptors
 * they did not open, or change signal handlers. */
#ifndef TUNE_PLUGIN_H
#define TUNE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define TUNE_PLUGIN_ABI 1 /* raise on any change that is not a new last member */
#define TUNE_PLUGIN_SYMBOL "tune_plugin"

/* What is being tuned; valid during the call only. */
struct tune_plugin_call {
    const char *kernel;
    const char *dtype; /* the swept dtype, "f32" */
    size_t dim_count;
    const char *const *dim_names;
    const int64_t *dims;
};

/* A buffer in host memory; the bytes are those of its dtype, little-endian, without padding. */
struct tune_plugin_buffer {
    const char *name;
    const char *dtype;
    void *data;
    size_t bytes;
};

struct tune_plugin {
    uint32_t abi;   /* TUNE_PLUGIN_ABI */
    uint32_t bytes; /* sizeof(struct tune_plugin) */

    /* Fills an input instead of the manifest's "fill": sorted keys, a sparse matrix' row pointers.
     * The same seed must give the same bytes. Returns 1 to leave this buffer to the manifest. May
     * be NULL. */
    int (*fill)(const struct tune_plugin_call *call, const char *buffer, void *data, size_t bytes,
        uint64_t seed);

    /* Computes the reference's outputs on the host instead of its launches: inputs are filled,
     * outputs (the manifest's reference buffers) are zero. May be NULL. */
    int (*reference)(const struct tune_plugin_call *call, const struct tune_plugin_buffer *inputs,
        size_t input_count, struct tune_plugin_buffer *outputs, size_t output_count);
};

#endif
