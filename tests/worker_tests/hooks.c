/* Hooks for test_bench_role, built in three kinds. */
#include "plugins/tune_plugin.h"

#include <string.h>

#ifdef HOOKS_OLD
#define ABI 99
#else
#define ABI TUNE_PLUGIN_ABI
#endif

static int fill(const struct tune_plugin_call *call, const char *buffer, void *data, size_t bytes,
    uint64_t seed)
{
    (void)seed;
    if (strcmp(call->kernel, "k") || call->dim_count != 1 || call->dims[0] != 1000)
        return 2;
    if (strcmp(buffer, "a") != 0)
        return 1; /* the manifest's fill */
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        ((float *)data)[i] = 0.5f;
    return 0;
}

static int reference(const struct tune_plugin_call *call, const struct tune_plugin_buffer *inputs,
    size_t input_count, struct tune_plugin_buffer *outputs, size_t output_count)
{
    (void)call;
#ifdef HOOKS_BAD
    return 7;
#endif
    if (input_count != 2 || output_count != 2)
        return 3;
    const float *a = inputs[0].data, *b = inputs[1].data;
    double *r = outputs[0].data, *rb = outputs[1].data;
    for (size_t i = 0; i < outputs[0].bytes / sizeof(double); i++) {
        r[i] = 2 * (double)a[i];
        rb[i] = (double)b[i] + 1;
    }
    return 0;
}

extern const struct tune_plugin tune_plugin;
const struct tune_plugin tune_plugin = {ABI, sizeof(struct tune_plugin), fill, reference};
