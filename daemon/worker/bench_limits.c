/* What the device reaches at most, by kernels_src/limits.cu: the ceilings of the roofline.
 *
 * How much is done follows from how long it takes on the host's clock: from little it grows until a
 * run is long enough to be timed well, so that a fast card gets much, a slow one and the emulator
 * get what they can do in a moment. */
#include "bench_internal.h"
#include "daemon/clock.h"

#include <stdlib.h>

#define BLOCK 256
#define COPY_BLOCKS_PER_SM 32
#define FMA_BLOCKS_PER_SM 8     /* 2,048 threads, as many as fit any SM */
#define FMA_FLOPS_PER_TURN 1024 /* of a thread: 2 * CHAINS * STEPS */
#define COPY_FIRST_BYTES ((uint64_t)1 << 20)
#define COPY_BYTES_MAX ((uint64_t)1 << 30)
#define MEMORY_SHARE 8 /* a copy's two buffers are each at most 1/this of what is free */
#define FMA_TURNS_MAX (1 << 22)
#define ENOUGH_MS 4.0 /* a run that takes the host so long is not made longer by growing */
#define FMA_WANTED_MS 20.0
#define GROWTH 4
#define WARM_UPS 2
#define RUNS 9

struct limits_code {
    struct CUmod_st *module;
    struct CUfunc_st *copy, *read, *fma;
};

/* One way of using the device, again and again the same. */
struct load {
    struct bench *bench;
    const struct limits_code *code;
    struct arena from, to;
    uint64_t bytes; /* copied or read */
    int turns;      /* of the multiply-adds */
    const char *what;
    unsigned (*issue)(struct load *load);
};

/* --- code ------------------------------------------------------------------------------------- */

static int load_code(
    struct limits_code *code, struct bench *bench, const json_t *request, struct verdict *verdict)
{
    const struct {
        const char *name;
        struct CUfunc_st **function;
    } entries[] = {
        {"limits_copy", &code->copy}, {"limits_read", &code->read}, {"limits_fma", &code->fma}};
    const struct cuda_api *api = &bench->gpu.api;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "loading limits.cu");
    int result = program_load_module(
        &code->module, &bench->gpu, json_string_value(json_object_get(request, "image")), verdict);
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries) && result == 0; i++) {
        unsigned code_of =
            api->cuModuleGetFunction(entries[i].function, code->module, entries[i].name);
        if (code_of != ABI_SUCCESS)
            result = verdict_cuda(verdict, code_of, "looking for %s in limits.cu", entries[i].name);
    }
    watchdog_disarm(&bench->watchdog);
    return result;
}

/* --- runs ------------------------------------------------------------------------------------- */

static unsigned grid_of(const struct load *load, unsigned per_sm)
{
    int64_t sms = load->bench->gpu.info.attributes[DEVICE_sms];
    return (unsigned)(sms > 0 ? sms : 1) * per_sm;
}

static unsigned issue_copy(struct load *load)
{
    struct gpu *gpu = &load->bench->gpu;
    int64_t count = (int64_t)(load->bytes / 16);
    void *params[] = {&load->from.base, &load->to.base, &count};
    return gpu->api.cuLaunchKernel(load->code->copy, grid_of(load, COPY_BLOCKS_PER_SM), 1, 1, BLOCK,
        1, 1, 0, gpu->stream, params, NULL);
}

/* Reading alone is faster than copying where memory pays for turning round. */
static unsigned issue_read(struct load *load)
{
    struct gpu *gpu = &load->bench->gpu;
    int64_t count = (int64_t)(load->bytes / 16);
    void *params[] = {&load->from.base, &load->to.base, &count};
    return gpu->api.cuLaunchKernel(load->code->read, grid_of(load, COPY_BLOCKS_PER_SM), 1, 1, BLOCK,
        1, 1, 0, gpu->stream, params, NULL);
}

static unsigned issue_driver_copy(struct load *load)
{
    struct gpu *gpu = &load->bench->gpu;
    return gpu->api.cuMemcpyDtoDAsync(load->to.base, load->from.base, load->bytes, gpu->stream);
}

static unsigned issue_fma(struct load *load)
{
    struct gpu *gpu = &load->bench->gpu;
    float factor = 0.5f, addend = 0.25f;
    void *params[] = {&load->to.base, &factor, &addend, &load->turns};
    return gpu->api.cuLaunchKernel(load->code->fma, grid_of(load, FMA_BLOCKS_PER_SM), 1, 1, BLOCK,
        1, 1, 0, gpu->stream, params, NULL);
}

/* One timed run: on the device's clock, or on the host's with the way there and back. */
static int run_once(struct load *load, double *device_ms, double *host_ms, struct verdict *verdict)
{
    struct bench *bench = load->bench;
    struct gpu *gpu = &bench->gpu;
    float ms = 0;
    double start_ms = clock_ms();
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, load->what);
    unsigned code = gpu->api.cuEventRecord(bench->starts[0], gpu->stream);
    if (code == ABI_SUCCESS)
        code = load->issue(load);
    if (code == ABI_SUCCESS)
        code = gpu->api.cuEventRecord(bench->ends[0], gpu->stream);
    int result = code == ABI_SUCCESS ? 0 : verdict_cuda(verdict, code, "%s", load->what);
    if (gpu_wait(gpu, load->what, verdict) < 0)
        result = -1;
    watchdog_disarm(&bench->watchdog);
    *host_ms = clock_ms() - start_ms;
    if (result == 0)
        code = gpu->api.cuEventElapsedTime(&ms, bench->starts[0], bench->ends[0]);
    if (result == 0 && code != ABI_SUCCESS)
        result = verdict_cuda(verdict, code, "reading the time of %s", load->what);
    *device_ms = (double)ms;
    return result;
}

/* The median on the device's clock. */
static int time_runs(struct load *load, double *median_ms, struct verdict *verdict)
{
    double times_ms[RUNS], scratch[RUNS], ignored_ms;
    for (int i = -WARM_UPS; i < RUNS; i++)
        if (run_once(load, &times_ms[i < 0 ? 0 : i], &ignored_ms, verdict) < 0)
            return -1;
    *median_ms = stats_median(times_ms, RUNS, scratch);
    if (!(*median_ms > 0) || *median_ms > 1e9)
        return verdict_set(
            verdict, "invalid", "%s took %g ms, which is no time", load->what, *median_ms);
    return 0;
}

/* --- the memory ------------------------------------------------------------------------------- */

static int make_room(struct load *load, uint64_t *most_bytes, struct verdict *verdict)
{
    struct bench *bench = load->bench;
    size_t free_bytes = 0, total_bytes = 0;
    bench->gpu.api.cuMemGetInfo(&free_bytes, &total_bytes);
    uint64_t most = free_bytes / MEMORY_SHARE / COPY_FIRST_BYTES * COPY_FIRST_BYTES;
    most = most < COPY_BYTES_MAX ? most : COPY_BYTES_MAX;
    if (most < COPY_FIRST_BYTES)
        return verdict_set(verdict, "over_limits",
            "%zu of %zu MiB of device memory are free, too little to measure a copy: end other "
            "programs that use the GPU",
            free_bytes >> 20, total_bytes >> 20);
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "allocating room for a copy");
    int result = arena_reserve(&bench->gpu, &load->from, most, "the copy's source", verdict);
    if (result == 0)
        result = arena_reserve(&bench->gpu, &load->to, most, "the copy's target", verdict);
    watchdog_disarm(&bench->watchdog);
    *most_bytes = most;
    return result;
}

/* What is read has been written once: pages of memory that nobody wrote may be faster. */
static int write_source(struct load *load, uint64_t bytes, struct verdict *verdict)
{
    struct gpu *gpu = &load->bench->gpu;
    unsigned code = gpu->api.cuMemsetD8Async(load->from.base, 1, bytes, gpu->stream);
    if (code != ABI_SUCCESS)
        return verdict_cuda(verdict, code, "writing the copy's source");
    return bench_wait(load->bench, WATCHDOG_STEP_MS, "writing the copy's source", verdict);
}

/* As much as takes long enough to be timed well. */
static int choose_bytes(struct load *load, struct verdict *verdict)
{
    uint64_t most = 0;
    double device_ms, host_ms;
    load->what = "the copy of limits.cu";
    load->issue = issue_copy;
    load->bytes = COPY_FIRST_BYTES;
    if (make_room(load, &most, verdict) < 0 || run_once(load, &device_ms, &host_ms, verdict) < 0)
        return -1; /* the first run pays for what comes once, so it does not decide */
    for (;;) {
        if (run_once(load, &device_ms, &host_ms, verdict) < 0)
            return -1;
        if (host_ms > ENOUGH_MS || load->bytes == most)
            return write_source(load, load->bytes, verdict);
        load->bytes = load->bytes * GROWTH < most ? load->bytes * GROWTH : most;
    }
}

static int measure_memory(struct load *load, double *bytes_per_s, struct verdict *verdict)
{
    static const struct {
        const char *what;
        unsigned (*issue)(struct load *load);
        double moved; /* bytes per byte of a buffer */
    } ways[] = {{"the copy of limits.cu", issue_copy, 2},
        {"the driver's copy", issue_driver_copy, 2}, {"the reading of limits.cu", issue_read, 1}};
    if (choose_bytes(load, verdict) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        double median_ms;
        load->what = ways[i].what;
        load->issue = ways[i].issue;
        if (time_runs(load, &median_ms, verdict) < 0)
            return -1;
        double rate = ways[i].moved * (double)load->bytes / median_ms * 1e3;
        *bytes_per_s = rate > *bytes_per_s ? rate : *bytes_per_s;
    }
    return 0;
}

/* --- multiply-adds ---------------------------------------------------------------------------- */

static int measure_fma(struct load *load, double *flops, struct verdict *verdict)
{
    double device_ms, host_ms, median_ms;
    load->what = "the multiply-adds of limits.cu";
    load->issue = issue_fma;
    load->turns = 1;
    if (run_once(load, &device_ms, &host_ms, verdict) < 0)
        return -1;
    for (;;) {
        if (run_once(load, &device_ms, &host_ms, verdict) < 0)
            return -1;
        if (host_ms > ENOUGH_MS || load->turns >= FMA_TURNS_MAX)
            break;
        load->turns *= GROWTH;
    }
    double more = FMA_WANTED_MS / host_ms;
    load->turns = more > 1 ? (int)(load->turns * more) : load->turns;
    if (time_runs(load, &median_ms, verdict) < 0)
        return -1;
    double threads = (double)grid_of(load, FMA_BLOCKS_PER_SM) * BLOCK;
    *flops = threads * load->turns * FMA_FLOPS_PER_TURN / median_ms * 1e3;
    return 0;
}

/* --- the request ------------------------------------------------------------------------------ */

json_t *bench_limits(struct bench *bench, const json_t *request)
{
    struct verdict verdict = {.outcome = NULL};
    struct limits_code code = {.module = NULL};
    struct load load = {.bench = bench, .code = &code};
    double bytes_per_s = 0, flops = 0;
    json_t *answer = json_object();
    bench->watchdog.blame = BLAME_DEVICE; /* there is no candidate */
    if (load_code(&code, bench, request, &verdict) == 0 &&
        measure_memory(&load, &bytes_per_s, &verdict) == 0 &&
        measure_fma(&load, &flops, &verdict) == 0) {
        json_object_set_new(answer, "dram_bytes_per_s", json_real(bytes_per_s));
        json_object_set_new(answer, "flops_f32", json_real(flops));
        json_object_set_new(answer, "clocks", bench_clocks(bench));
    }
    bench->is_lost = bench->is_lost || verdict.is_sticky;
    if (!bench->is_lost) {
        arena_release(&bench->gpu, &load.from);
        arena_release(&bench->gpu, &load.to);
        if (code.module)
            bench->gpu.api.cuModuleUnload(code.module);
    }
    bench->watchdog.blame = BLAME_CANDIDATE;
    verdict_to_json(&verdict, answer);
    return answer;
}
