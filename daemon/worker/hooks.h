/* Optional hooks of a plugin (plugins/tune_plugin.h), loaded by the roles bench and trace only. */
#ifndef TUNE_WORKER_HOOKS_H
#define TUNE_WORKER_HOOKS_H

#include "buffers.h"
#include "gpu.h"
#include "plugins/tune_plugin.h"

#include <jansson.h>

struct hooks {
    void *library;
    const struct tune_plugin *plugin; /* NULL: none */
    struct tune_plugin_call call;
};

/* Loads request.hooks unless it is null or absent; request.call says what is being tuned. A library
 * of another version is refused before anything in it is called. */
int hooks_load(struct hooks *hooks, const json_t *request, struct verdict *verdict);
void hooks_unload(struct hooks *hooks);

/* True when the hook filled the buffer; false when the manifest's fill applies, or with a verdict.
 */
bool hooks_fill(const struct hooks *hooks, struct gpu *gpu, const struct buffer *buffer,
    uint64_t seed, struct verdict *verdict);

/* Buffers [0, own) that are inputs go to the hook; what it gives for [own, count) to the device. */
bool hooks_has_reference(const struct hooks *hooks);
int hooks_reference(const struct hooks *hooks, struct gpu *gpu, const struct buffer *buffers,
    size_t own_count, size_t count, struct verdict *verdict);

#endif
