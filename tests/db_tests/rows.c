/* See rows.h. */
#include "rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample full_row(void)
{
    static const float some_ns[] = {63213.4375f, 0.1f, 1e9f};
    return (struct sample){
        .key = {"gemm", "0123456789abcdef0123456789abcdef", "M=64,N=48", "f32", "sm_90", "cold"},
        .config = "BM=64,PAD=-1",
        .gpu_uuid = "GPU-1",
        .run = "7/search",
        .outcome = OUTCOME_OK,
        .is_final = true,
        .is_confirmed = true,
        .is_default = true,
        .is_refused = true,
        .attempts = 2,
        .method = "graph",
        .median_ns = 10.5,
        .lo_ns = 10.25,
        .hi_ns = 1e20,
        .sample_count = 3,
        .samples_ns = some_ns,
        .registers = 128,
        .spill_bytes = 16,
        .static_shared_bytes = 1024,
        .dynamic_shared_bytes = 49152,
        .same_as = "BM=32,PAD=0",
        .detail = "12 of 64 \"values\" differ,\n\tZeile \xC3\xBC\x01",
        .log_id = "00112233445566778899aabbccddeeff",
        .gpu_name = "NVIDIA H200",
        .host = "node-1",
        .nvrtc = "13.0",
        .method_note = "note",
        .driver = 13000,
        .sms = 132,
        .via_ptx = true,
        .time_unix_ms = -5,
        .sm_clock_mhz = 1980,
        .memory_clock_mhz = 3201,
        .temperature_c = 40,
        .throttle_reasons = UINT64_MAX,
        .seed = 0x123456789abcdef0u,
        .max_error = 1e-7};
}

static const char *random_text(struct rng *rng, char text[256])
{
    static const char *const pieces[] = {"a", "Z", " ", "\"", "\\", "/", "\n", "\x01", "\x7f",
        "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "{", "]", ",", ":", "0", "-", "e"};
    size_t used = 0;
    for (size_t i = rng_below(rng, 12); i > 0; i--) {
        const char *piece = pieces[rng_below(rng, sizeof pieces / sizeof pieces[0])];
        used += (size_t)snprintf(text + used, 256 - used, "%s", piece);
    }
    text[used] = '\0';
    return text;
}

/* Any bits of a finite number >= 0, or a time of a few decimals. */
static double random_double(struct rng *rng)
{
    double number = NAN;
    if (rng_below(rng, 2) == 0)
        return (double)rng_below(rng, 1000000000) / 1000;
    while (!isfinite(number)) {
        uint64_t bits = rng_next(rng) >> 1;
        memcpy(&number, &bits, sizeof number);
    }
    return number;
}

static float random_float(struct rng *rng)
{
    float number = NAN;
    if (rng_below(rng, 2) == 0)
        return (float)rng_below(rng, 100000000) / 64;
    while (!isfinite(number)) {
        uint32_t bits = (uint32_t)(rng_next(rng) >> 33);
        memcpy(&number, &bits, sizeof number);
    }
    return number;
}

static uint32_t random_count(struct rng *rng)
{
    return rng_below(rng, 3) == 0 ? 0 : (uint32_t)(rng_next(rng) >> rng_below(rng, 64));
}

static bool random_bool(struct rng *rng)
{
    return rng_below(rng, 2) == 0;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void random_times(struct rng *rng, struct sample *sample)
{
    double times[3] = {random_double(rng), random_double(rng), random_double(rng)};
    qsort(times, 3, sizeof times[0], compare_doubles);
    sample->lo_ns = times[0];
    sample->median_ns = times[1] > 0 ? times[1] : 1;
    sample->hi_ns = times[2] > 1 ? times[2] : 1;
    sample->lo_ns = sample->lo_ns < sample->median_ns ? sample->lo_ns : sample->median_ns;
}

struct sample random_row(struct rng *rng, struct row_room *room)
{
    static const char *const shapes[] = {"M=1", "M=64,N=48", "N=4611686018427387904"};
    static const char *const configs[] = {
        "BM=32", "BM=64,PAD=-1", "BM=9223372036854775807,PAD=-9223372036854775808", "_x=0"};
    static const char *const modes[] = {"cold", "warm"};
    static const char *const extras[] = {"", "{\"later\":[1,2.50]}",
        "{\"a.b\":{\"x\":-0},\"power_w\":0.1,\"z\":\"\\u00fc, \\\"}\\\"\"}"};
    struct sample sample = full_row();
    sample.key.kernel = random_bool(rng) ? "gemm" : "reduce";
    sample.key.shape = shapes[rng_below(rng, 3)];
    sample.key.mode = modes[rng_below(rng, 2)];
    sample.config = configs[rng_below(rng, 4)];
    sample.gpu_uuid = random_bool(rng) ? "" : "GPU-\xC3\xBC";
    sample.run = random_bool(rng) ? "1/search" : "1/confirm";
    sample.outcome = (enum outcome)rng_below(rng, OUTCOME_COUNT);
    sample.is_final = random_bool(rng);
    sample.is_confirmed = random_bool(rng);
    sample.is_default = random_bool(rng);
    sample.is_refused = rng_below(rng, 8) == 0;
    sample.attempts = (uint32_t)rng_below(rng, 3);
    sample.method = random_bool(rng) ? "" : "event";
    random_times(rng, &sample);
    if (sample.outcome != OUTCOME_OK)
        sample.median_ns = sample.lo_ns = sample.hi_ns = 0;
    sample.samples_ns = room->floats;
    sample.sample_count = rng_below(rng, 32);
    for (size_t i = 0; i < sample.sample_count; i++)
        room->floats[i] = random_float(rng);
    uint32_t *const counts[] = {&sample.registers, &sample.spill_bytes, &sample.static_shared_bytes,
        &sample.dynamic_shared_bytes, &sample.driver, &sample.sms, &sample.sm_clock_mhz,
        &sample.memory_clock_mhz, &sample.temperature_c};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i] = random_count(rng);
    sample.same_as = random_bool(rng) ? NULL : "BM=32";
    const char **const texts[] = {
        &sample.detail, &sample.gpu_name, &sample.host, &sample.method_note, &sample.nvrtc};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = random_text(rng, room->texts[i]);
    sample.via_ptx = random_bool(rng);
    sample.time_unix_ms = (int64_t)rng_below(rng, 1ull << 54) - (1ll << 53);
    sample.throttle_reasons = rng_next(rng) >> rng_below(rng, 64);
    sample.seed = rng_next(rng);
    const double errors[] = {0, (double)INFINITY, (double)NAN, random_double(rng)};
    sample.max_error = errors[rng_below(rng, 4)];
    sample.extra = extras[rng_below(rng, 3)];
    return sample;
}
