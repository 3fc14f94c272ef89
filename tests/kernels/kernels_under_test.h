/* The kernels that tests/kernels checks, and how to load one from the source tree. */
#ifndef TUNE_TESTS_KERNELS_UNDER_TEST_H
#define TUNE_TESTS_KERNELS_UNDER_TEST_H

#include "plugins/registry.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kernel_names[] = {"gemm", "transpose", "reduce", "softmax"};
#define KERNEL_COUNT (sizeof kernel_names / sizeof *kernel_names)

/* A new plugin; ends the test program when it cannot be loaded. */
static inline struct plugin *kernel_load(const char *name)
{
    char manifest[1024], sources[1024];
    struct tune_error err = {0};
    const char *root = getenv("TUNE_SOURCE_DIR");
    snprintf(manifest, sizeof manifest, "%s/plugins/%s/%s.json", root ? root : ".", name, name);
    snprintf(sources, sizeof sources, "%s/kernels_src", root ? root : ".");
    struct plugin *plugin = plugin_load(manifest, sources, &err);
    if (!plugin) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return plugin;
}

#endif
