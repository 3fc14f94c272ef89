/* Samples of one candidate. Two methods, one per key and never mixed:
 *
 *   event   start event, all launches, end event; several such calls are queued before the host
 * waits, so that the host's pauses are not in the span. Cold: a memset larger than the L2 before
 * each. graph   for short calls, whose events would time the launching: a graph of many calls, each
 * on buffers of its own so that none finds the L2 warmed by the one before; a sample is the span's
 * share.
 *
 * What is not the kernel (flush, restoring in-place buffers, what is done once) lies outside the
 * span. */
#include "bench_internal.h"
#include "client/proto.h"
#include "daemon/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SAMPLES 7 /* fewer have no useful 95 % interval of the median */
#define MIN_SAMPLES_TO_STOP 3
#define WANTED_WIDTH 0.01     /* of the interval, relative to the median */
#define GRAPH_BELOW_NS 20000  /* the spread between two events is some 10 us (H200) */
#define BATCH_MS 20           /* queued work between two waits */
#define GRAPH_HOST_MS 100     /* a replay longer than this is no short call */
#define MEMORY_SHARE 2        /* copies for graphs take at most 1/this of the free memory */
#define SETS_L2 4             /* copies are together this many times the L2 */
#define FLUSH_ALLOWANCE_MS 20 /* per flush, when deadlines are made */

int measure_init(struct measure *measure, const json_t *request, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    const char *mode = "cold", *method = "auto";
    int64_t samples = 1000;
    *measure = (struct measure){.deadline_ms = 10000, .budget_ms = 200};
    if (proto_string_opt(request, "mode", &mode, &err) < 0 ||
        proto_string_opt(request, "method", &method, &err) < 0 ||
        proto_number_opt(request, "deadline_ms", &measure->deadline_ms, &err) < 0 ||
        proto_number_opt(request, "sample_budget_ms", &measure->budget_ms, &err) < 0 ||
        proto_number_opt(request, "budget_ms", &measure->budget_ms, &err) < 0 ||
        proto_int_opt(request, "max_samples", 1, BENCH_SAMPLE_LIMIT, &samples, &err) < 0 ||
        proto_number_opt(request, "stop_above_ns", &measure->stop_above_ns, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    if ((strcmp(mode, "cold") != 0 && strcmp(mode, "warm") != 0) ||
        (strcmp(method, "auto") != 0 && strcmp(method, "event") != 0 &&
            strcmp(method, "graph") != 0))
        return verdict_set(verdict, "invalid",
            "mode must be cold or warm, method auto, event or graph; they are %.20s and %.20s",
            mode, method);
    measure->is_cold = mode[0] == 'c';
    measure->is_graph = method[0] == 'g';
    measure->max_samples = (size_t)samples;
    measure->samples_ns = calloc((size_t)samples + BENCH_BATCH_LIMIT, sizeof(double));
    measure->scratch = calloc((size_t)samples + BENCH_BATCH_LIMIT, sizeof(double));
    if (!measure->samples_ns || !measure->scratch)
        return verdict_set(verdict, "invalid", "no memory for %lld samples", (long long)samples);
    return 0;
}

void measure_finish(struct measure *measure)
{
    free(measure->samples_ns);
    free(measure->scratch);
    measure->samples_ns = measure->scratch = NULL;
}

/* --- one sample ------------------------------------------------------------------------------- */

static int flush(struct bench *bench, struct verdict *verdict)
{
    unsigned result = bench->gpu.api.cuMemsetD8Async(
        bench->flush_arena.base, 0, bench->flush_bytes, bench->gpu.stream);
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "flushing the cache");
}

int measure_prepare(const struct measure *measure, struct bench *bench, struct verdict *verdict)
{
    if (!measure->is_cold)
        return 0;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "allocating the flush buffer");
    int result = arena_reserve(
        &bench->gpu, &bench->flush_arena, bench->flush_bytes, "flushing the cache", verdict);
    watchdog_disarm(&bench->watchdog);
    return result;
}

static int record(struct bench *bench, struct CUevent_st *event, struct verdict *verdict)
{
    unsigned result = bench->gpu.api.cuEventRecord(event, bench->gpu.stream);
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "recording an event");
}

static int read_span(struct bench *bench, size_t index, double *ns, struct verdict *verdict)
{
    float ms = 0;
    unsigned result =
        bench->gpu.api.cuEventElapsedTime(&ms, bench->starts[index], bench->ends[index]);
    *ns = (double)ms * 1e6;
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "reading an event");
    if (isfinite(ms) && ms >= 0)
        return 0;
    verdict->is_sticky = verdict->is_retried = true; /* no clock to go on with */
    return verdict_set(
        verdict, "crashed", "the driver says that %g ms passed between two events", (double)ms);
}

static int issue_timed(struct candidate *candidate, struct bench *bench,
    const struct measure *measure, size_t index, struct verdict *verdict)
{
    if (candidate_make_ready(candidate, bench, verdict) < 0 ||
        (measure->is_cold && flush(bench, verdict) < 0) ||
        record(bench, bench->starts[index], verdict) < 0 ||
        program_issue(&candidate->program, PROGRAM_CALL, &bench->gpu, &candidate->buffers,
            candidate->pointers, verdict) < 0)
        return -1;
    return record(bench, bench->ends[index], verdict);
}

int event_samples(struct candidate *candidate, struct bench *bench, const struct measure *measure,
    size_t count, double *ns, struct verdict *verdict)
{
    int result = 0;
    double limit_ms = measure->deadline_ms + (double)count * (FLUSH_ALLOWANCE_MS + BATCH_MS);
    watchdog_arm(&bench->watchdog, limit_ms, program_name(&candidate->program));
    for (size_t i = 0; i < count && result == 0; i++)
        result = issue_timed(candidate, bench, measure, i, verdict);
    int waited = gpu_wait(&bench->gpu, program_name(&candidate->program), verdict);
    watchdog_disarm(&bench->watchdog);
    if (result < 0 || waited < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (read_span(bench, i, &ns[i], verdict) < 0)
            return -1;
    return 0;
}

/* --- graphs ----------------------------------------------------------------------------------- */

uint64_t candidate_set_bytes(struct candidate *candidate)
{
    return buffer_list_place(&candidate->buffers, 0, candidate->buffers.count, ROLES_ALL, 0);
}

static uint64_t place_in_set(
    const struct buffer_list *list, bool scratch, uint64_t at, uint64_t *out)
{
    for (size_t i = 0; i < list->count; i++) {
        uint64_t bytes = list->items[i].bytes;
        if ((list->items[i].role == KIND_SCRATCH) != scratch)
            continue;
        out[i] = bytes > 0 ? at + BUFFER_GUARD_BYTES : 0;
        if (bytes > 0)
            at += 2 * BUFFER_GUARD_BYTES + (bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    }
    return at;
}

/* Pointers of one set. Scratch comes last: what all candidates have in common lies at the same
 * places. */
static void set_pointers(const struct replay *replay, struct candidate *candidate,
    struct bench *bench, size_t set, uint64_t *out)
{
    uint64_t at = bench->replica_arena.base + set * replay->stride;
    at = place_in_set(&candidate->buffers, false, at, out);
    place_in_set(&candidate->buffers, true, at, out);
}

/* Inputs (all: also in, else inout only) of every set, asynchronously. */
static int copy_inputs(struct replay *replay, struct candidate *candidate, struct bench *bench,
    bool all, struct verdict *verdict)
{
    uint64_t pointers[BUFFER_LIMIT];
    for (size_t set = 0; set < replay->sets; set++) {
        set_pointers(replay, candidate, bench, set, pointers);
        for (size_t i = 0; i < candidate->buffers.count; i++) {
            const struct buffer *buffer = &candidate->buffers.items[i];
            uint64_t from = candidate->masters[i]            ? candidate->masters[i]
                            : all && buffer->role == KIND_IN ? buffer->pointer
                                                             : 0;
            if (!from || buffer->bytes == 0)
                continue;
            unsigned result = bench->gpu.api.cuMemcpyDtoDAsync(
                pointers[i], from, buffer->bytes, bench->gpu.stream);
            if (result != ABI_SUCCESS)
                return verdict_cuda(verdict, result, "copying %s", buffer->name);
        }
    }
    return 0;
}

static int capture(struct replay *replay, struct candidate *candidate, struct bench *bench,
    struct verdict *verdict)
{
    struct gpu *gpu = &bench->gpu;
    struct CUgraph_st *graph = NULL;
    uint64_t pointers[BUFFER_LIMIT];
    unsigned result = gpu->api.cuStreamBeginCapture(gpu->stream, ABI_CAPTURE_THREAD_LOCAL);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "capturing a graph");
    int issued = 0;
    for (size_t node = 0; node < replay->nodes && issued == 0; node++) {
        set_pointers(replay, candidate, bench, node % replay->sets, pointers);
        issued = program_issue(
            &candidate->program, PROGRAM_CALL, gpu, &candidate->buffers, pointers, verdict);
    }
    result = gpu->api.cuStreamEndCapture(gpu->stream, &graph);
    if (result == ABI_SUCCESS && issued == 0)
        result = gpu->api.cuGraphInstantiate(&replay->exec, graph, 0);
    if (graph)
        gpu->api.cuGraphDestroy(graph);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "making a graph of %zu calls", replay->nodes);
    return issued;
}

/* Cold: sets that together are several times the L2, so that coming round to the first is as cold
 * as a new one, and the flush before each replay makes the first round cold. In-place kernels never
 * see a set twice in a replay. Warm calls share one set. */
int replay_plan(struct replay *replay, struct bench *bench, const struct measure *measure,
    bool has_inout, uint64_t stride, double call_ms, struct verdict *verdict)
{
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t l2_bytes = (uint64_t)bench->gpu.info.attributes[DEVICE_l2_bytes];
    size_t nodes = call_ms > 0 ? (size_t)(GRAPH_HOST_MS / call_ms) : BENCH_GRAPH_NODES;
    stride = stride > 0 ? stride : 1;
    nodes = nodes < 2 ? 2 : nodes > BENCH_GRAPH_NODES ? BENCH_GRAPH_NODES : nodes;
    uint64_t sets = nodes;
    if (!has_inout)
        sets = measure->is_cold ? 1 + SETS_L2 * l2_bytes / stride : 1;
    bench->gpu.api.cuMemGetInfo(&free_bytes, &total_bytes);
    uint64_t most = (free_bytes + bench->replica_arena.room_bytes) / MEMORY_SHARE / stride;
    sets = sets < nodes ? sets : nodes;
    sets = sets < most ? sets : most > 0 ? most : 1;
    bool is_again_cold = sets * stride >= 2 * l2_bytes || !measure->is_cold;
    *replay = (struct replay){.stride = stride, .sets = sets, .nodes = nodes};
    bench->copies_of = 0; /* they may come to lie elsewhere */
    if (has_inout || !is_again_cold)
        replay->nodes = replay->sets;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "allocating copies of the buffers");
    int result = arena_reserve(
        &bench->gpu, &bench->replica_arena, sets * stride, "copies of the buffers", verdict);
    watchdog_disarm(&bench->watchdog);
    return result;
}

int replay_create(struct replay *replay, struct candidate *candidate, struct bench *bench,
    const struct measure *measure, struct verdict *verdict)
{
    const struct cuda_api *api = &bench->gpu.api;
    if (!api->cuGraphLaunch || !api->cuGraphInstantiate || !api->cuGraphUpload ||
        !api->cuStreamBeginCapture || !api->cuStreamEndCapture)
        return verdict_set(verdict, "launch_failed", "this driver is too old for graphs");
    if (copy_inputs(replay, candidate, bench, true, verdict) < 0 ||
        bench_wait(bench, WATCHDOG_STEP_MS, "copying the inputs", verdict) < 0 ||
        capture(replay, candidate, bench, verdict) < 0)
        return -1;
    double ns;
    unsigned result = api->cuGraphUpload(replay->exec, bench->gpu.stream);
    if (result != ABI_SUCCESS)
        verdict_cuda(verdict, result, "uploading a graph");
    else if (replay_sample(replay, candidate, bench, measure, &ns, verdict) == 0) /* warm-up */
        return 0;
    replay_destroy(replay, bench);
    return -1;
}

void replay_destroy(struct replay *replay, struct bench *bench)
{
    if (replay->exec)
        bench->gpu.api.cuGraphExecDestroy(replay->exec);
    replay->exec = NULL;
}

/* What is done once, for every set, where the graph of another candidate used the sets since. */
static int prepare_sets(struct replay *replay, struct candidate *candidate, struct bench *bench,
    struct verdict *verdict)
{
    uint64_t pointers[BUFFER_LIMIT];
    bool is_ready = bench->copies_of == candidate->serial;
    bench->copies_of = candidate->serial;
    for (size_t set = 0; set < replay->sets && !is_ready; set++) {
        set_pointers(replay, candidate, bench, set, pointers);
        if (program_issue(&candidate->program, PROGRAM_ONCE, &bench->gpu, &candidate->buffers,
                pointers, verdict) < 0)
            return -1;
    }
    return 0;
}

static int issue_replay(struct replay *replay, struct candidate *candidate, struct bench *bench,
    const struct measure *measure, struct verdict *verdict)
{
    if ((candidate->has_inout && copy_inputs(replay, candidate, bench, false, verdict) < 0) ||
        prepare_sets(replay, candidate, bench, verdict) < 0 ||
        (measure->is_cold && flush(bench, verdict) < 0) ||
        record(bench, bench->starts[0], verdict) < 0)
        return -1;
    unsigned result = bench->gpu.api.cuGraphLaunch(replay->exec, bench->gpu.stream);
    if (result != ABI_SUCCESS)
        return verdict_cuda(
            verdict, result, "launching a graph of %s", program_name(&candidate->program));
    return record(bench, bench->ends[0], verdict);
}

int replay_sample(struct replay *replay, struct candidate *candidate, struct bench *bench,
    const struct measure *measure, double *ns, struct verdict *verdict)
{
    double limit_ms = measure->deadline_ms + FLUSH_ALLOWANCE_MS + 10 * GRAPH_HOST_MS;
    watchdog_arm(&bench->watchdog, limit_ms, program_name(&candidate->program));
    int issued = issue_replay(replay, candidate, bench, measure, verdict);
    int waited = gpu_wait(&bench->gpu, program_name(&candidate->program), verdict);
    watchdog_disarm(&bench->watchdog);
    if (issued < 0 || waited < 0 || read_span(bench, 0, ns, verdict) < 0)
        return -1;
    *ns /= (double)replay->nodes;
    return 0;
}

/* --- sampling --------------------------------------------------------------------------------- */

json_t *measure_to_json(const struct measure *measure)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < measure->sample_count; i++)
        json_array_append_new(samples, json_real(measure->samples_ns[i]));
    return json_pack("{so,sf,s[ff]}", "samples_ns", samples, "median_ns", measure->stats.median,
        "interval_ns", measure->stats.lo, measure->stats.hi);
}

static void take_stats(struct measure *measure)
{
    measure->stats = stats_of(measure->samples_ns, measure->sample_count, measure->scratch);
}

/* True when more samples would change nothing: precise enough, hopeless, or out of budget. */
static bool is_done(struct measure *measure, double start_ms)
{
    size_t count = measure->sample_count;
    if (count == 0)
        return false;
    take_stats(measure);
    const struct stats *stats = &measure->stats;
    if (measure->stop_above_ns > 0 && count >= MIN_SAMPLES_TO_STOP &&
        stats->lo > measure->stop_above_ns) { /* of few samples the least is the lower bound */
        measure->is_stopped_early = true;
        return true;
    }
    if (count >= measure->max_samples || clock_ms() - start_ms >= measure->budget_ms)
        return true;
    return count >= MIN_SAMPLES && stats->hi - stats->lo < WANTED_WIDTH * stats->median;
}

/* How many calls to queue: as many as take BATCH_MS, and never near the deadline of one. */
static size_t batch_size(const struct measure *measure, double call_ms)
{
    double most = BATCH_MS < measure->deadline_ms / 4 ? BATCH_MS : measure->deadline_ms / 4;
    size_t count = call_ms > 0 ? (size_t)(most / call_ms) : BENCH_BATCH_LIMIT;
    size_t left = measure->max_samples - measure->sample_count;
    if (measure->stop_above_ns > 0 && measure->sample_count == 0 && count > MIN_SAMPLES_TO_STOP)
        count = MIN_SAMPLES_TO_STOP;
    count = count < 1 ? 1 : count > BENCH_BATCH_LIMIT ? BENCH_BATCH_LIMIT : count;
    return count < left ? count : left;
}

static int sample_events(struct measure *measure, struct candidate *candidate, struct bench *bench,
    double call_ms, double start_ms, struct verdict *verdict)
{
    while (!is_done(measure, start_ms)) {
        size_t count = batch_size(measure, call_ms);
        if (event_samples(candidate, bench, measure, count,
                measure->samples_ns + measure->sample_count, verdict) < 0)
            return -1;
        measure->sample_count += count;
    }
    return 0;
}

static int sample_graph(struct measure *measure, struct candidate *candidate, struct bench *bench,
    double call_ms, double start_ms, struct verdict *verdict)
{
    struct replay replay;
    if (replay_plan(&replay, bench, measure, candidate->has_inout, candidate_set_bytes(candidate),
            call_ms, verdict) < 0 ||
        replay_create(&replay, candidate, bench, measure, verdict) < 0)
        return -1;
    int result = 0;
    while (result == 0 && !is_done(measure, start_ms)) {
        result = replay_sample(&replay, candidate, bench, measure,
            measure->samples_ns + measure->sample_count, verdict);
        measure->sample_count += result == 0;
    }
    replay_destroy(&replay, bench);
    return result;
}

int measure_candidate(struct measure *measure, struct candidate *candidate, struct bench *bench,
    bool is_auto, struct verdict *verdict)
{
    double first_ns[3], scratch[3];
    if (measure_prepare(measure, bench, verdict) < 0)
        return -1;
    double start_ms = clock_ms();
    /* Untimed: the warm-up, and how long one call and its preparation take the host. */
    if (event_samples(candidate, bench, measure, 1, first_ns, verdict) < 0)
        return -1;
    double call_ms = clock_ms() - start_ms;
    if (is_auto) {
        for (int i = 0; i < 3; i++)
            if (event_samples(candidate, bench, measure, 1, &first_ns[i], verdict) < 0)
                return -1;
        measure->is_graph =
            bench->gpu.api.cuGraphLaunch && stats_of(first_ns, 3, scratch).median < GRAPH_BELOW_NS;
    }
    start_ms = clock_ms();
    return measure->is_graph ? sample_graph(measure, candidate, bench, call_ms, start_ms, verdict)
                             : sample_events(measure, candidate, bench, call_ms, start_ms, verdict);
}
