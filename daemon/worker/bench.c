/* The bench role: says what device it has, then answers setup, bench, confirm and limits.
 *
 * Design: the device is idle before and after each request, so that a fault is blamed on the
 * candidate whose request it is. What a candidate brought (module, graphs) is unloaded after it;
 * buffers stay. A sticky error loses the context: the answer says so and the process ends. To add a
 * request: pipe.h and the table `operations`. */
#include "bench.h"
#include "bench_internal.h"
#include "pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)256 << 20)
#define FLUSH_MEMORY_SHARE                                                                         \
    128                      /* on small devices at most 1/this of the memory, but 4 x L2 always */
#define START_LIMIT_MS 60000 /* a driver or sharing service that never answers */

json_t *bench_clocks(struct bench *bench)
{
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "reading the clocks");
    json_t *clocks = nvml_clocks(&bench->nvml);
    watchdog_disarm(&bench->watchdog);
    return clocks;
}

/* --- one candidate ---------------------------------------------------------------------------- */

void bench_add_resources(json_t *answer, const struct program *program)
{
    json_object_set_new(answer, "registers", json_integer(program->registers));
    json_object_set_new(answer, "spill_bytes", json_integer(program->local_bytes));
    json_object_set_new(answer, "static_shared_bytes", json_integer(program->static_shared_bytes));
    json_object_set_new(
        answer, "dynamic_shared_bytes", json_integer(program->dynamic_shared_bytes));
}

static int check_session(struct bench *bench, const json_t *request, struct verdict *verdict)
{
    const json_t *number = json_object_get(request, "session");
    if (!bench->session.is_ready || !json_is_integer(number) ||
        json_integer_value(number) != bench->session.number)
        return verdict_set(verdict, "invalid", "the session of this request was not set up here");
    return 0;
}

static int run_candidate(struct candidate *candidate, struct bench *bench, const json_t *request,
    struct measure *measure, json_t *answer, struct verdict *verdict)
{
    const char *method = json_string_value(json_object_get(request, "method"));
    bool is_auto = !method || strcmp(method, "auto") == 0;
    bool is_verified = !json_is_false(json_object_get(request, "verify"));
    double max_error = 0;
    int result = 0;
    if (is_verified)
        result = candidate_verify(candidate, bench, measure->deadline_ms, &max_error, verdict);
    if (result == 0)
        result = measure_candidate(measure, candidate, bench, is_auto, verdict);
    if (result == 0 && is_verified)
        result = candidate_recheck(candidate, bench, &max_error, verdict);
    json_object_set_new(answer, "max_error", json_real(max_error));
    return result;
}

static int bench_candidate(
    struct bench *bench, const json_t *request, json_t *answer, struct verdict *verdict)
{
    struct candidate *candidate = calloc(1, sizeof(*candidate));
    struct measure measure = {.samples_ns = NULL};
    int result = candidate ? 0 : verdict_set(verdict, "invalid", "no memory for a candidate");
    if (result == 0)
        result = check_session(bench, request, verdict);
    if (result == 0)
        result = measure_init(&measure, request, verdict);
    if (result == 0)
        result = candidate_load(candidate, bench, request, verdict);
    if (result == 0) {
        bench_add_resources(answer, &candidate->program);
        result = run_candidate(candidate, bench, request, &measure, answer, verdict);
        if (!verdict->is_sticky || verdict->code == 0)
            candidate_unload(candidate, bench);
    }
    if (result == 0) {
        json_t *samples = measure_to_json(&measure);
        json_object_update(answer, samples);
        json_decref(samples);
        json_object_set_new(answer, "method", json_string(measure.is_graph ? "graph" : "event"));
        json_object_set_new(answer, "stopped_early", json_boolean(measure.is_stopped_early));
        json_object_set_new(answer, "clocks", bench_clocks(bench));
    }
    measure_finish(&measure);
    free(candidate);
    return result;
}

static json_t *answer_bench(struct bench *bench, const json_t *request)
{
    struct verdict verdict = {.outcome = NULL};
    json_t *answer = json_object();
    bench_candidate(bench, request, answer, &verdict);
    bench->is_lost = bench->is_lost || verdict.is_sticky;
    verdict_to_json(&verdict, answer);
    return answer;
}

static json_t *answer_confirm(struct bench *bench, const json_t *request)
{
    struct verdict verdict = {.outcome = NULL};
    if (check_session(bench, request, &verdict) == 0)
        return bench_confirm(bench, request);
    json_t *answer = json_object();
    verdict_to_json(&verdict, answer);
    return answer;
}

/* --- requests --------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    json_t *(*answer)(struct bench *bench, const json_t *request);
} operations[] = {{"setup", bench_setup}, {"bench", answer_bench}, {"confirm", answer_confirm},
    {"limits", bench_limits}};

/* The device must be idle and whole on both sides of a request. */
static bool is_whole(
    struct bench *bench, const char *when, enum cuda_blame blame, struct verdict *verdict)
{
    bench->watchdog.blame = blame;
    int result = bench_wait(bench, WATCHDOG_STEP_MS, when, verdict);
    bench->watchdog.blame = BLAME_CANDIDATE;
    return result == 0;
}

static json_t *failure(struct bench *bench, struct verdict *verdict, enum cuda_blame blame)
{
    json_t *answer = json_pack("{sb}", "ok", 0);
    verdict->blame = blame;
    bench->is_lost = bench->is_lost || verdict->is_sticky;
    verdict_to_json(verdict, answer);
    return answer;
}

static json_t *answer_locked(struct bench *bench, const json_t *request)
{
    const char *op = json_string_value(json_object_get(request, "op"));
    struct verdict verdict = {.outcome = NULL};
    if (!is_whole(bench, "the device before the request", BLAME_DEVICE, &verdict))
        return failure(bench, &verdict, BLAME_DEVICE); /* whatever it was, it came before */
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
        if (!op || strcmp(op, operations[i].op) != 0)
            continue;
        json_t *answer = operations[i].answer(bench, request);
        if (bench->is_lost ||
            is_whole(bench, "the device after the request", BLAME_CANDIDATE, &verdict))
            return answer;
        json_decref(answer); /* a fault that shows late is this request's all the same */
        return failure(bench, &verdict, verdict.blame);
    }
    verdict_set(&verdict, "invalid",
        "a bench worker answers setup, bench, confirm and limits, not \"%s\"", op ? op : "");
    return failure(bench, &verdict, BLAME_CANDIDATE);
}

/* What the daemon's deadlines go by (pipe.h); an error shows at the answer. */
static void say_event(struct bench *bench, const json_t *request, const char *event)
{
    channel_send(bench->channel,
        json_pack("{ss,sO}", "event", event, "id", json_object_get(request, "id")), NULL);
}

static json_t *answer_request(struct bench *bench, const json_t *request)
{
    struct tune_error err = {.code = TUNE_OK};
    struct verdict verdict = {.outcome = NULL};
    say_event(bench, request, "waiting");
    if (gpu_lock_take(&bench->lock, &err) < 0) {
        verdict_set(&verdict, "crashed", "%s", err.text);
        verdict.is_retried = true;
        return failure(bench, &verdict, BLAME_DEVICE);
    }
    say_event(bench, request, "locked");
    json_t *answer = answer_locked(bench, request);
    gpu_lock_release(&bench->lock);
    return answer;
}

/* --- starting and ending ---------------------------------------------------------------------- */

static size_t flush_bytes(const struct device_info *device)
{
    size_t l2 = 4 * (size_t)device->attributes[DEVICE_l2_bytes];
    size_t share = (size_t)device->attributes[DEVICE_memory_bytes] / FLUSH_MEMORY_SHARE;
    size_t most = share > l2 ? share : l2;
    size_t wanted = FLUSH_BYTES > l2 ? FLUSH_BYTES : l2;
    return wanted < most ? wanted : most;
}

static int create_events(struct bench *bench, struct tune_error *err)
{
    for (size_t i = 0; i < BENCH_BATCH_LIMIT; i++) {
        unsigned result = bench->gpu.api.cuEventCreate(&bench->starts[i], ABI_EVENT_DEFAULT);
        if (result == ABI_SUCCESS)
            result = bench->gpu.api.cuEventCreate(&bench->ends[i], ABI_EVENT_DEFAULT);
        if (result != ABI_SUCCESS)
            return tune_fail(err, TUNE_ENODEVICE, "events cannot be made (code %u)", result);
    }
    return 0;
}

static int bench_init(struct bench *bench, struct libraries *libraries, const char *device,
    unsigned *code, struct tune_error *err)
{
    /* Nothing may be loaded between a start event and its end event, and nothing made synchronous.
     */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    if (gpu_load(&bench->gpu, libraries, code, err) < 0 ||
        gpu_select(&bench->gpu, device, err) < 0 ||
        gpu_lock_open(&bench->lock, bench->gpu.info.uuid, err) < 0 ||
        gpu_start(&bench->gpu, code, err) < 0 || create_events(bench, err) < 0)
        return -1;
    bench->flush_bytes = flush_bytes(&bench->gpu.info);
    nvml_init(&bench->nvml, libraries, &bench->gpu.info);
    return 0;
}

/* Only after good requests: a lost context is left to the process's end. */
static void bench_finish(struct bench *bench)
{
    struct gpu *gpu = &bench->gpu;
    session_finish(&bench->session, gpu);
    harness_unload(&bench->harness, gpu);
    arena_release(gpu, &bench->scratch_arena);
    arena_release(gpu, &bench->replica_arena);
    arena_release(gpu, &bench->flush_arena);
    for (size_t i = 0; i < BENCH_BATCH_LIMIT; i++) {
        gpu->api.cuEventDestroy(bench->starts[i]);
        gpu->api.cuEventDestroy(bench->ends[i]);
    }
    gpu_stop(gpu);
    nvml_finish(&bench->nvml);
    gpu_lock_close(&bench->lock);
}

static json_t *hello(const struct bench *bench, unsigned code, const struct tune_error *err)
{
    if (err->code != TUNE_OK)
        return json_pack("{ss,si,ss,si,sb}", "hello", "bench", "pipe", PIPE_VERSION, "error",
            err->text, "code", (int)code, "busy", gpu_is_busy_code(code));
    return json_pack("{ss,si,si,so,sb}", "hello", "bench", "pipe", PIPE_VERSION, "pid",
        (int)getpid(), "device", device_to_json(&bench->gpu.info), "nvml",
        bench->nvml.device != NULL);
}

static int serve(struct bench *bench)
{
    struct tune_error err = {.code = TUNE_OK};
    json_t *request;
    while (!bench->is_lost && (request = channel_next(bench->channel, &err))) {
        json_t *answer = answer_request(bench, request);
        json_decref(request);
        if (channel_answer(bench->channel, answer, &err) < 0)
            break;
    }
    return err.code == TUNE_OK && !bench->is_lost ? 0 : 1;
}

int bench_role(struct channel *channel, struct libraries *libraries, const char *device)
{
    static struct bench bench;
    struct tune_error err = {.code = TUNE_OK};
    unsigned code = 0;
    bench.channel = channel;
    bench.lock.fd = -1;
    if (watchdog_init(&bench.watchdog, channel, &err) == 0) {
        watchdog_arm(&bench.watchdog, START_LIMIT_MS, "starting the driver");
        bench_init(&bench, libraries, device, &code, &err);
        watchdog_disarm(&bench.watchdog);
    }
    bool is_ready = err.code == TUNE_OK;
    if (channel_send(channel, hello(&bench, code, &err), NULL) < 0 || !is_ready)
        return 1;
    int status = serve(&bench);
    if (bench.is_lost)
        _exit(status); /* the driver's exit handlers may hang on a lost context */
    watchdog_arm(&bench.watchdog, WATCHDOG_STEP_MS, "releasing the device");
    bench_finish(&bench);
    watchdog_finish(&bench.watchdog);
    return status;
}
