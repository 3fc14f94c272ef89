/* The hook of bfs: levels by a queue on the CPU. */
#include "plugins/tune_plugin.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN_BUFFERS 2
#define NO_MEMORY 3

static const struct tune_plugin_buffer *find(
    const struct tune_plugin_buffer *buffers, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(buffers[i].name, name) == 0)
            return &buffers[i];
    return NULL;
}

/* `queue` has room for every vertex: each comes into it once. */
static void search(const int32_t *offsets, const int32_t *columns, size_t rows, int64_t source,
    int32_t *levels, int32_t *queue)
{
    size_t taken = 0, put = 0;
    memset(levels, 0xff, rows * sizeof *levels); /* -1 */
    levels[source] = 0;
    queue[put++] = (int32_t)source;
    while (taken < put) {
        int32_t u = queue[taken++];
        for (int32_t e = offsets[u]; e < offsets[u + 1]; e++)
            if (levels[columns[e]] < 0) {
                levels[columns[e]] = levels[u] + 1;
                queue[put++] = columns[e];
            }
    }
}

static int reference(const struct tune_plugin_call *call, const struct tune_plugin_buffer *inputs,
    size_t input_count, struct tune_plugin_buffer *outputs, size_t output_count)
{
    (void)call;
    const struct tune_plugin_buffer *offsets = find(inputs, input_count, "offsets");
    const struct tune_plugin_buffer *columns = find(inputs, input_count, "columns");
    const struct tune_plugin_buffer *source = find(inputs, input_count, "source");
    if (!offsets || !columns || !source || output_count != 1 ||
        outputs[0].bytes + sizeof(int32_t) != offsets->bytes)
        return UNKNOWN_BUFFERS;
    int32_t *queue = malloc(outputs[0].bytes);
    if (!queue)
        return NO_MEMORY;
    search(offsets->data, columns->data, outputs[0].bytes / sizeof(int32_t),
        *(const int64_t *)source->data, outputs[0].data, queue);
    free(queue);
    return 0;
}

extern const struct tune_plugin tune_plugin;
const struct tune_plugin tune_plugin = {
    TUNE_PLUGIN_ABI, sizeof(struct tune_plugin), NULL, reference};
