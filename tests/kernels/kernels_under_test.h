/* How tests load a shipped kernel from the source tree, and what tests/kernels/cases/NAME.json says
 * of it: the shapes it is run on and the mistakes that must be found in it.
 *
 *   "awkward":   [{"N":1},...]   shapes for the emulator: ones, primes, neighbours of tiles; a
 *                                choice that one leaves out is the first
 *   "configs":   40              how many configurations are sampled on the emulator for the first
 *                                dtype and the first choice; the others get a quarter, and NVRTC
 *                                compiles half as many
 *   "mistakes":  [{"what","dtype","shape":{...},"config":{...},"right","wrong"}]   text of the
 *                                source and what replaces it: `wrong_result` must come out;
 *                                "config" (optional) is what differs from the default
 *   "gpu", "huge", "sanitizer", "variants"   for tests/gpu/gpu_suite.py */
#ifndef TUNE_TESTS_KERNELS_UNDER_TEST_H
#define TUNE_TESTS_KERNELS_UNDER_TEST_H

#include "plugins/registry.h"

#include <jansson.h>

/* A new plugin; ends the test program when it cannot be loaded. */
struct plugin *kernel_load(const char *name);

/* A text of the source tree, malloc'ed; ends the program when it cannot be read. */
char *kernel_source_text(const char *path);

/* What a compile worker is asked for a configuration, or with `values` NULL for the reference.
 * `source`: the plugin's own text, or a changed one. New; ends the program when it cannot be made.
 */
json_t *kernel_compile_request(const struct plugin *plugin, const char *source, const char *dtype,
    const char *arch, const int64_t *dims, const int64_t *values);

struct kernel_cases {
    struct plugin *plugin;
    json_t *json;
    size_t configs, shape_count;
    int64_t (*shapes)[MANIFEST_MAX_DIMS]; /* "awkward" */
};

/* Ends the program when the file is missing or says something that the manifest does not have. */
void kernel_cases_load(struct kernel_cases *cases, const char *name);
void kernel_cases_finish(struct kernel_cases *cases);

/* Rows of one dtype whose compile dims are alike: they share compiled kernels. From shape `first`
 * on, the index of the first row of the next such group that no earlier row belongs to, or
 * shape_count. */
size_t kernel_cases_next_group(const struct kernel_cases *cases, size_t first);
bool kernel_cases_same_group(const struct kernel_cases *cases, size_t a, size_t b);

#endif
