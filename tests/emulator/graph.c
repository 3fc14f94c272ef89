/* Captures and graphs: work kept as a list and replayed in order. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

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

void graph_clear(struct CUgraph_st *graph)
{
    for (struct node *node = graph->first, *next; node; node = next) {
        next = node->next;
        node_free(node);
    }
    graph->first = NULL;
    graph->end = &graph->first;
}

unsigned stream_submit(struct CUstream_st *stream, const struct node *node)
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
    if (!result && stream_is_default(stream))
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
        *status = stream_is_capturing(stream);
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
    if (!result && stream_is_capturing(stream))
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
