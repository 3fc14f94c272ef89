/* See estimate.h. */
#include "estimate.h"

#include <string.h>

/* Figures that no attribute tells. They hold within a factor of two for every architecture since
 * 7.0, which is all that an order of candidates needs. */
#define SCHEDULERS 4             /* of a multiprocessor, each issues one warp per clock */
#define PIPE_LATENCY_CLOCKS 30   /* until what was read from shared memory or L1 is there */
#define ACCESSES_IN_FLIGHT 4     /* of a thread: compilers move so many ahead of their use */
#define PIPE_BYTES_PER_CLOCK 128 /* between a multiprocessor's memory pipe and registers */
#define L2_BYTES_PER_CLOCK 32    /* per multiprocessor; 5,120 on the 108 of an A100 */
#define L2_LATENCY_S 250e-9      /* under load */
#define DRAM_LATENCY_S 700e-9
#define ACCESS_BYTES 16 /* per lane and memory instruction: a vector access */
#define LAUNCH_NS 1500  /* start and drain of a launch behind another */
/* Of a device that states no clocks: its balance is that of the others. */
#define ASSUMED_CLOCK_HZ 1.5e9
#define ASSUMED_BYTES_PER_FLOP 0.075

/* --- rates ------------------------------------------------------------------------------------ */

double estimate_dtype_speed(int64_t sm, const char *dtype)
{
    bool is_big = sm == 80 || sm == 90 || sm == 100 || sm == 103; /* the data-centre GPUs */
    if (strcmp(dtype, "f64") == 0)
        return is_big || sm == 70 ? 0.5 : 1.0 / 64;
    bool is_half = strcmp(dtype, "f16") == 0 || strcmp(dtype, "bf16") == 0;
    if (is_half && sm >= 70)
        return is_big ? 16 : sm < 80 ? 8 : 4;
    if (strcmp(dtype, "tf32") == 0 && sm >= 80)
        return is_big ? 8 : 2;
    return 1;
}

static void set_rates(struct estimator *estimator, const char *dtype)
{
    const struct device_info *device = estimator->device;
    const int64_t *attributes = device->attributes;
    double *rate = estimator->rate;
    double sms = (double)estimator->sms;
    double clock_hz = (double)attributes[DEVICE_clock_khz] * 1e3;
    double flops = device_peak_flops_f32(device), bytes = device_peak_bytes_per_s(device);
    estimator->rates_are_assumed = !(clock_hz > 0 && flops > 0 && bytes > 0);
    if (estimator->rates_are_assumed) {
        clock_hz = ASSUMED_CLOCK_HZ;
        flops = 2.0 * SCHEDULERS * 32 * sms * clock_hz;
        bytes = flops * ASSUMED_BYTES_PER_FLOP;
    }
    rate[ESTIMATE_FLOPS] = flops * estimate_dtype_speed(attributes[DEVICE_sm], dtype);
    rate[ESTIMATE_ISSUE] = SCHEDULERS * 32 * sms * clock_hz;
    rate[ESTIMATE_PIPE] = PIPE_BYTES_PER_CLOCK * sms * clock_hz;
    rate[ESTIMATE_L2] = L2_BYTES_PER_CLOCK * sms * clock_hz;
    rate[ESTIMATE_DRAM] = bytes;
}

/* An expression's value, or `absent` where the manifest has none. */
static int evaluate(const struct estimator *estimator, const struct expr *expr, double absent,
    double *result, struct tune_error *err)
{
    int64_t value;
    *result = absent;
    if (expr == NULL)
        return 0;
    if (expr_eval(expr, estimator->slots, &value, err))
        return -1;
    *result = value > 0 ? (double)value : 0;
    return 0;
}

int estimator_init(struct estimator *estimator, const struct manifest *manifest,
    const struct device_info *device, const int64_t *dims, const char *dtype,
    struct tune_error *err)
{
    int64_t sms = device->attributes[DEVICE_sms];
    *estimator =
        (struct estimator){.manifest = manifest, .device = device, .sms = sms > 0 ? sms : 1};
    if (manifest->flops == NULL && manifest->bytes == NULL && manifest->traffic_global == NULL)
        return tune_fail(err, TUNE_ENOTFOUND,
            "the manifest of %s states no flops, bytes or traffic, so nothing can be estimated",
            manifest->name);
    manifest_bind(manifest, device, dims, dtype, estimator->slots);
    set_rates(estimator, dtype);
    return evaluate(estimator, manifest->flops, 0, &estimator->flops, err) ||
                   evaluate(estimator, manifest->bytes, 0, &estimator->bytes, err)
               ? -1
               : 0;
}

/* --- geometry --------------------------------------------------------------------------------- */

static int bind_values(struct estimator *estimator, const int64_t *values, struct tune_error *err)
{
    const struct manifest *manifest = estimator->manifest;
    int64_t *slots = estimator->slots;
    memcpy(
        slots + manifest_param_slot(manifest, 0), values, manifest->param_count * sizeof *values);
    for (size_t i = 0; i < manifest->derived_count; i++)
        if (expr_eval(
                manifest->derived[i].expr, slots, &slots[manifest_derived_slot(manifest, i)], err))
            return -1;
    return 0;
}

/* Product of three sizes, each at least 1. */
static int evaluate_product(const struct estimator *estimator, struct expr *const exprs[3],
    int64_t *product, struct tune_error *err)
{
    *product = 1;
    for (int i = 0; i < 3; i++) {
        int64_t size = 1;
        if (exprs[i] != NULL && expr_eval(exprs[i], estimator->slots, &size, err))
            return -1;
        if (size < 1 || __builtin_mul_overflow(*product, size, product))
            return tune_fail(err, TUNE_EINVAL, "a launch has no size, or one without end");
    }
    return 0;
}

static int take_geometry(const struct estimator *estimator, const struct manifest_launch *launch,
    struct estimate *estimate, struct tune_error *err)
{
    if (evaluate_product(estimator, launch->grid, &estimate->blocks, err) ||
        evaluate_product(estimator, launch->block, &estimate->threads, err) ||
        (launch->shared_bytes != NULL &&
            expr_eval(launch->shared_bytes, estimator->slots, &estimate->shared_bytes, err)))
        return -1;
    estimate->shared_bytes += estimator->static_shared_bytes;
    return 0;
}

/* Counts what the stream carries at each call, and finds the launch that works: the first kernel in
 * it. */
static int walk_launches(
    const struct estimator *estimator, struct estimate *estimate, struct tune_error *err)
{
    const struct manifest *manifest = estimator->manifest;
    double count = 0;
    bool is_found = false;
    for (size_t i = 0; i < manifest->buffer_count; i++)
        count += manifest->buffers[i].zero_before;
    for (size_t i = 0; i < manifest->launch_count; i++) {
        const struct manifest_launch *launch = &manifest->launches[i];
        double is_wanted, repeat, turns;
        if (evaluate(estimator, launch->when, 1, &is_wanted, err))
            return -1;
        if (is_wanted == 0 || launch->is_once)
            continue;
        if (evaluate(estimator, launch->repeat, 1, &repeat, err) ||
            evaluate(estimator, launch->turns, 1, &turns, err))
            return -1;
        if (turns < 1)
            continue;
        count += repeat * turns;
        if (launch->kind != LAUNCH_KERNEL || is_found)
            continue;
        is_found = true;
        if (take_geometry(estimator, launch, estimate, err))
            return -1;
    }
    estimate->launch_ns = count * LAUNCH_NS;
    return is_found ? 0 : tune_fail(err, TUNE_EINVAL, "no launch has a \"when\" that holds");
}

/* --- how the device is filled ------------------------------------------------------------------
 */

/* Registers of the manifest are a guess: where it would keep a block from fitting, it is wrong. */
static int take_occupancy(const struct estimator *estimator, int64_t registers,
    struct estimate *estimate, struct tune_error *err)
{
    double guess;
    if (evaluate(estimator, estimator->manifest->registers, 0, &guess, err))
        return -1;
    struct occupancy_use use = {
        .threads = estimate->threads,
        .registers = registers > 0 ? registers
                     : guess < 255 ? (int64_t)guess
                                   : 255,
        .shared_bytes = estimate->shared_bytes,
    };
    if (occupancy(estimator->device, &use, &estimate->occupancy, err))
        return -1;
    if (estimate->occupancy.blocks_per_sm == 0 && registers == 0) {
        use.registers = 0;
        occupancy(estimator->device, &use, &estimate->occupancy, NULL);
    }
    estimate->registers = use.registers;
    if (estimate->occupancy.blocks_per_sm == 0)
        return tune_fail(err, TUNE_ELIMIT, "a block does not fit on a multiprocessor: %s",
            occupancy_resource_word(estimate->occupancy.limited_by));
    return 0;
}

/* Share of its cycles in which a warp has an instruction to issue: it works through the
 * instructions between two accesses and then waits for what is left of an access's latency. */
static double ready_share(const double work[ESTIMATE_CEILING_COUNT])
{
    double accesses = work[ESTIMATE_PIPE] / ACCESS_BYTES;
    double busy = accesses > 0 ? work[ESTIMATE_ISSUE] / accesses : PIPE_LATENCY_CLOCKS;
    return busy / (busy + (double)PIPE_LATENCY_CLOCKS / ACCESSES_IN_FLIGHT);
}

/* Share of the cycles in which a scheduler finds a ready warp: 1 - (1 - ready)^n, between whole n
 * as a straight line, so that no library function rounds differently elsewhere. */
static double issue_share(double warps, double ready)
{
    double per_scheduler = warps / SCHEDULERS, idle = 1;
    for (; per_scheduler >= 1 && idle > 1e-6; per_scheduler -= 1)
        idle *= 1 - ready;
    return 1 - idle * (1 - ready * (per_scheduler < 1 ? per_scheduler : 1));
}

/* Share of a memory's bandwidth that so many threads keep busy. */
static double flow_share(double threads, double latency_s, double bytes_per_s)
{
    double in_flight = threads * ACCESSES_IN_FLIGHT * ACCESS_BYTES;
    double share = in_flight / (latency_s * bytes_per_s);
    return share < 1 ? share : 1;
}

struct waves {
    double blocks, threads; /* threads: per block */
    double sms, per_sm;     /* per_sm: blocks that an SM holds */
    double full, rest;      /* waves, and blocks in the last one unless it is full */
    double most;            /* blocks of the rest on one SM */
};

void estimate_waves(int64_t sms, struct estimate *estimate)
{
    int64_t blocks = estimate->blocks, per_sm = estimate->occupancy.blocks_per_sm;
    int64_t slots = sms * per_sm, full = blocks / slots, rest = blocks % slots;
    int64_t most = (rest + sms - 1) / sms;
    estimate->waves = (double)blocks / (double)slots;
    estimate->tail_fill = rest == 0 ? 1 : (double)rest / (double)slots;
    estimate->sm_fill = (double)blocks / (double)(sms * (full * per_sm + most));
}

static struct waves waves_of(const struct estimator *estimator, struct estimate *estimate)
{
    struct waves waves = {
        .blocks = (double)estimate->blocks,
        .threads = (double)estimate->threads,
        .sms = (double)estimator->sms,
        .per_sm = (double)estimate->occupancy.blocks_per_sm,
    };
    int64_t sms = estimator->sms;
    int64_t slots = sms * estimate->occupancy.blocks_per_sm;
    int64_t rest = estimate->blocks % slots;
    waves.full = (double)(estimate->blocks / slots);
    waves.rest = (double)rest;
    waves.most = (double)((rest + sms - 1) / sms);
    estimate_waves(sms, estimate);
    return waves;
}

/* How many times longer than at full rate a pipe of the multiprocessors takes. */
static double stretch_of_sm(const struct waves *waves, double ready)
{
    double warps = (double)(((int64_t)waves->threads + 31) / 32);
    double blocks = waves->full * waves->per_sm / issue_share(waves->per_sm * warps, ready);
    if (waves->most > 0)
        blocks += waves->most / issue_share(waves->most * warps, ready);
    return blocks * waves->sms / waves->blocks;
}

/* The same for a memory that all multiprocessors share. */
static double stretch_of_memory(const struct waves *waves, double latency_s, double bytes_per_s)
{
    double slots = waves->sms * waves->per_sm;
    double blocks =
        waves->full * slots / flow_share(slots * waves->threads, latency_s, bytes_per_s);
    if (waves->rest > 0)
        blocks += waves->rest / flow_share(waves->rest * waves->threads, latency_s, bytes_per_s);
    return blocks / waves->blocks;
}

/* Every block goes through its round trips; the blocks that an SM holds wait in turns. */
static int take_waits(const struct estimator *estimator, const struct waves *waves,
    struct estimate *estimate, struct tune_error *err)
{
    double round_trips, rounds = waves->full + (waves->rest > 0);
    if (evaluate(estimator, estimator->manifest->round_trips, 0, &round_trips, err))
        return -1;
    double resident = waves->blocks / (rounds * waves->sms);
    estimate->wait_ns = rounds * round_trips * DRAM_LATENCY_S * 1e9 / (resident > 1 ? resident : 1);
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int take_work(
    const struct estimator *estimator, double work[ESTIMATE_CEILING_COUNT], struct tune_error *err)
{
    const struct manifest *manifest = estimator->manifest;
    double traced = estimator->traced_global_bytes;
    double global_bytes = traced > 0 ? traced : estimator->bytes;
    if (evaluate(estimator, manifest->flops_done, estimator->flops, &work[ESTIMATE_FLOPS], err) ||
        evaluate(estimator, manifest->traffic_shared, estimator->traced_shared_bytes,
            &work[ESTIMATE_PIPE], err) ||
        evaluate(estimator, manifest->traffic_global, global_bytes, &work[ESTIMATE_L2], err))
        return -1;
    work[ESTIMATE_PIPE] += work[ESTIMATE_L2];
    work[ESTIMATE_DRAM] = estimator->bytes;
    double accesses = work[ESTIMATE_PIPE] / ACCESS_BYTES;
    double f32_flops = device_peak_flops_f32(estimator->device);
    /* Instructions of tensor cores are too few to count. */
    bool is_scalar = f32_flops <= 0 || estimator->rate[ESTIMATE_FLOPS] <= f32_flops;
    work[ESTIMATE_ISSUE] = accesses + (is_scalar ? work[ESTIMATE_FLOPS] / 2 : 0);
    return 0;
}

int estimator_run(struct estimator *estimator, const int64_t *values, int64_t registers,
    struct estimate *estimate, struct tune_error *err)
{
    double work[ESTIMATE_CEILING_COUNT];
    const double *rate = estimator->rate;
    *estimate = (struct estimate){0};
    if (bind_values(estimator, values, err) || walk_launches(estimator, estimate, err) ||
        take_occupancy(estimator, registers, estimate, err) || take_work(estimator, work, err))
        return -1;
    struct waves waves = waves_of(estimator, estimate);
    if (take_waits(estimator, &waves, estimate, err))
        return -1;
    double on_sm = stretch_of_sm(&waves, ready_share(work));
    double stretch[ESTIMATE_CEILING_COUNT] = {
        [ESTIMATE_FLOPS] = on_sm,
        [ESTIMATE_ISSUE] = on_sm,
        [ESTIMATE_PIPE] = on_sm,
        [ESTIMATE_L2] = stretch_of_memory(&waves, L2_LATENCY_S, rate[ESTIMATE_L2]),
        [ESTIMATE_DRAM] = stretch_of_memory(&waves, DRAM_LATENCY_S, rate[ESTIMATE_DRAM]),
    };
    for (int i = 0; i < ESTIMATE_CEILING_COUNT; i++) {
        estimate->ceiling_ns[i] = work[i] / rate[i] * stretch[i] * 1e9;
        if (estimate->ceiling_ns[i] > estimate->ceiling_ns[estimate->limited_by])
            estimate->limited_by = (enum estimate_ceiling)i;
    }
    estimate->time_ns =
        estimate->launch_ns + estimate->wait_ns + estimate->ceiling_ns[estimate->limited_by];
    return 0;
}

int estimator_traffic(
    struct estimator *estimator, const int64_t *values, double *bytes, struct tune_error *err)
{
    const struct manifest *manifest = estimator->manifest;
    if (manifest->traffic_global == NULL && manifest->bytes == NULL)
        return tune_fail(
            err, TUNE_ENOTFOUND, "the manifest of %s states no bytes or traffic", manifest->name);
    if (bind_values(estimator, values, err))
        return -1;
    return evaluate(estimator, manifest->traffic_global, estimator->bytes, bytes, err);
}

const char *estimate_ceiling_word(enum estimate_ceiling ceiling)
{
    static const char *const words[] = {
#define X(name, word) word,
        ESTIMATE_CEILINGS(X)
#undef X
    };
    return words[ceiling];
}
