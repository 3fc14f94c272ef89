/* Streams and events. Work is done when it is submitted, in order, so that a stream is never busy.
 */
#include "driver.h"

#include <stdlib.h>

static struct CUstream_st default_stream;

struct CUstream_st *stream_of(struct CUstream_st *stream)
{
    return (uintptr_t)stream <= 2 ? &default_stream : stream;
}

bool stream_is_default(const struct CUstream_st *stream)
{
    return (uintptr_t)stream <= 2;
}

bool stream_is_capturing(struct CUstream_st *stream)
{
    return stream_of(stream)->capture != NULL;
}

/* --- streams ---------------------------------------------------------------------------------- */

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
    if (!result && stream_is_default(stream))
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
    if (!result && stream_is_capturing(stream))
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

/* --- events ----------------------------------------------------------------------------------- */

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
        event->is_recorded = !stream_is_capturing(stream);
        event->time_ns = clock_now_ns();
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
