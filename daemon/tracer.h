/* Kernels watched on the emulator: one short run of `tune-worker trace` per request, whatever the
 * daemon times on. For `explain`.
 *
 * Design. A request starts a worker when fewer than TRACER_RUNS_MAX are at work, else it queues.
 * The worker says hello, gets the request, answers, and is stopped; when it is done the asker is
 * told and the next one starts. Who cancels, or whose tracer stops, is not told any more. */
#ifndef TUNE_TRACER_H
#define TUNE_TRACER_H

#include "client/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define TRACER_RUNS_MAX 2 /* each keeps a core busy */
#define TRACER_QUEUE_MAX 64
#define TRACER_DEADLINE_MS 45000 /* for the answer; the worker itself gives up before that */

struct tracer;

/* All borrowed for the tracer's life. */
struct tracer_options {
    const char *worker_path;
    const char *emulator;   /* its folder; NULL: not installed, and every request is refused */
    const char *const *env; /* of the workers, whole, NULL-ended */
    size_t memory_limit_bytes;
    uint64_t deadline_ms; /* 0: as defined above */
};

/* New. */
struct tracer *tracer_create(uv_loop_t *loop, const struct tracer_options *options);
/* Takes it. What runs is killed and nobody is told; it is freed when the last worker has gone. */
void tracer_stop(struct tracer *tracer);

/* launches: "launches" of the trace answer (tests/emulator/trace.h), borrowed during the call; NULL
 * when there is none, and then `why` is a sentence. */
typedef void (*tracer_callback)(const json_t *launches, const char *why, void *context);

/* Takes `request`, of op "trace" in daemon/worker/pipe.h. 0, and the callback comes once, never
 * inside this call; or -1, and it does not come: the emulator is not installed, a worker cannot be
 * started, TUNE_EBUSY when too many wait. */
int tracer_request(struct tracer *tracer, json_t *request, tracer_callback callback, void *context,
    struct tune_error *err);
void tracer_cancel(struct tracer *tracer, const void *context);

#endif
