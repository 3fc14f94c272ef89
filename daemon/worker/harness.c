#include "harness.h"
#include "launch.h"

#include "client/proto.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 256
#define GRID_PER_SM 8
#define RESULT_BYTES (BUFFER_LIMIT * 2 * 4 * sizeof(uint64_t))

static const struct {
    const char *word;
    int bytes;
} dtypes[] = {{"f64", 8}, {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"tf32", 4}, {"i64", 8}, {"i32", 4},
    {"i16", 2}, {"i8", 1}, {"u64", 8}, {"u32", 4}, {"u16", 2}, {"u8", 1}};

static const char *const fills[] = {"uniform", "small_int", "index", "zero", "value", "below",
    "special", "sorted", "csr_offsets", "csr_columns", "csr_longest_row"};

int harness_dtype(const char *word, int *dtype)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (strcmp(word, dtypes[i].word) == 0) {
            *dtype = (int)i;
            return 0;
        }
    return -1;
}

const char *harness_dtype_word(int dtype)
{
    return dtypes[dtype].word;
}

int64_t harness_dtype_bytes(int dtype)
{
    return dtypes[dtype].bytes;
}

int harness_fill_kind(const char *word, int *fill)
{
    for (size_t i = 0; i < sizeof(fills) / sizeof(*fills); i++)
        if (strcmp(word, fills[i]) == 0) {
            *fill = (int)i;
            return 0;
        }
    return -1;
}

static double value_16(bool is_bf16, uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    if (is_bf16) {
        memcpy(&value, &wide, sizeof(value));
        return (double)value;
    }
    int exponent = bits >> 10 & 31;
    double fraction = (double)(bits & 1023) / 1024, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction > 0 ? __builtin_nan("") : sign * __builtin_inf();
    return sign *
           __builtin_ldexp(exponent ? 1 + fraction : fraction, (exponent ? exponent : 1) - 15);
}

double harness_value(int dtype, const void *element)
{
    union {
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint64_t u64;
        uint32_t u32;
        uint16_t u16;
        uint8_t u8;
    } any = {.u64 = 0};
    memcpy(&any, element, (size_t)dtypes[dtype].bytes);
    const double values[] = {any.f64, (double)any.f32, value_16(false, any.u16),
        value_16(true, any.u16), (double)any.f32, (double)any.i64, any.i32, any.i16, any.i8,
        (double)any.u64, any.u32, any.u16, any.u8};
    return values[dtype];
}

int harness_load(
    struct harness *harness, struct gpu *gpu, const char *image_base64, struct verdict *verdict)
{
    const struct {
        const char *name;
        struct CUfunc_st **function;
    } entries[] = {{"harness_fill", &harness->fill}, {"harness_compare", &harness->compare},
        {"harness_guards", &harness->guards}, {"harness_checksum", &harness->checksum}};
    if (program_load_module(&harness->module, gpu, image_base64, verdict) < 0)
        return -1;
    unsigned result = ABI_SUCCESS;
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries) && result == ABI_SUCCESS; i++)
        result =
            gpu->api.cuModuleGetFunction(entries[i].function, harness->module, entries[i].name);
    unsigned long long results = 0;
    if (result == ABI_SUCCESS)
        result = gpu->api.cuMemAlloc(&results, RESULT_BYTES);
    harness->results = results;
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "loading harness.cu");
    return 0;
}

void harness_unload(struct harness *harness, struct gpu *gpu)
{
    if (harness->results)
        gpu->api.cuMemFree(harness->results);
    if (harness->module)
        gpu->api.cuModuleUnload(harness->module);
    *harness = (struct harness){.module = NULL};
}

static unsigned grid_for(const struct gpu *gpu, uint64_t count)
{
    uint64_t most = (uint64_t)gpu->info.attributes[DEVICE_sms] * GRID_PER_SM;
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    return (unsigned)(blocks < 1 ? 1 : blocks > most && most > 0 ? most : blocks);
}

static int launch(struct gpu *gpu, struct CUfunc_st *function, unsigned grid, void **params,
    struct verdict *verdict)
{
    unsigned result =
        gpu->api.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, gpu->stream, params, NULL);
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "launching harness.cu");
}

/* Host words to the small buffer; the stream is idle or the words are not in use. */
static int put_results(struct harness *harness, struct gpu *gpu, const uint64_t *words,
    size_t count, struct verdict *verdict)
{
    unsigned result = gpu_upload(gpu, harness->results, words, count * sizeof(*words));
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "copying to the device");
}

static int get_results(struct harness *harness, struct gpu *gpu, size_t offset, uint64_t *words,
    size_t count, struct verdict *verdict)
{
    if (gpu_wait(gpu, "checking on the device", verdict) < 0)
        return -1;
    unsigned result = gpu->api.cuMemcpyDtoH(
        words, harness->results + offset * sizeof(*words), count * sizeof(*words));
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "copying from the device");
}

int harness_fill_buffer(struct harness *harness, struct gpu *gpu, const struct buffer *buffer,
    uint64_t seed, uint64_t stream, struct verdict *verdict)
{
    uint64_t to = buffer->pointer;
    int64_t count = (int64_t)buffer->count;
    int dtype = buffer->dtype, fill = buffer->fill;
    double value = buffer->fill_value;
    void *params[] = {&to, &count, &dtype, &fill, &value, &seed, &stream};
    if (buffer->bytes == 0)
        return 0;
    return launch(gpu, harness->fill, grid_for(gpu, buffer->count), params, verdict);
}

int harness_checksum(struct harness *harness, struct gpu *gpu, const struct buffer *buffer,
    uint64_t *sum, struct verdict *verdict)
{
    uint64_t from = buffer->pointer, results = harness->results;
    int64_t bytes = (int64_t)buffer->bytes;
    void *params[] = {&from, &bytes, &results};
    *sum = 0;
    if (bytes == 0)
        return 0;
    if (put_results(harness, gpu, sum, 1, verdict) < 0 ||
        launch(gpu, harness->checksum, grid_for(gpu, buffer->bytes / 8), params, verdict) < 0)
        return -1;
    return get_results(harness, gpu, 0, sum, 1, verdict);
}

int harness_compare(struct harness *harness, struct gpu *gpu, const struct buffer *x,
    const struct buffer *reference, const struct buffer *scale, double relative, double absolute,
    unsigned char poison, struct comparison *comparison, struct verdict *verdict)
{
    uint64_t words[4] = {0, 0, UINT64_MAX, 0};
    uint64_t x_at = x->pointer, reference_at = reference->pointer, results = harness->results;
    uint64_t scale_at = scale ? scale->pointer : 0, pattern = poison * 0x0101010101010101ull;
    int x_dtype = x->dtype, reference_dtype = reference->dtype;
    int scale_dtype = scale ? scale->dtype : 0;
    int64_t count = (int64_t)x->count;
    void *params[] = {&x_at, &x_dtype, &reference_at, &reference_dtype, &scale_at, &scale_dtype,
        &count, &relative, &absolute, &pattern, &results};
    if (put_results(harness, gpu, words, 4, verdict) < 0 ||
        launch(gpu, harness->compare, grid_for(gpu, x->count), params, verdict) < 0 ||
        get_results(harness, gpu, 0, words, 4, verdict) < 0)
        return -1;
    memcpy(&comparison->worst, &words[0], sizeof(comparison->worst));
    comparison->bad = words[1];
    comparison->first = words[2];
    comparison->shadowed = words[3];
    return 0;
}

/* The zone behind a buffer begins at its very last byte, so that the rounding is guarded too. */
static uint64_t rear_bytes(const struct buffer *buffer)
{
    return BUFFER_GUARD_BYTES + (BUFFER_ALIGN - buffer->bytes % BUFFER_ALIGN) % BUFFER_ALIGN;
}

int harness_set_guards(struct gpu *gpu, const struct buffer_list *list, struct verdict *verdict)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct buffer *buffer = &list->items[i];
        if (buffer->bytes == 0)
            continue;
        unsigned result = gpu->api.cuMemsetD8Async(buffer->pointer - BUFFER_GUARD_BYTES,
            BUFFER_GUARD_BYTE, BUFFER_GUARD_BYTES, gpu->stream);
        if (result == ABI_SUCCESS)
            result = gpu->api.cuMemsetD8Async(buffer->pointer + buffer->bytes, BUFFER_GUARD_BYTE,
                rear_bytes(buffer), gpu->stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "setting the guards of %s", buffer->name);
    }
    return 0;
}

int harness_check_guards(struct harness *harness, struct gpu *gpu, const struct buffer_list *list,
    struct verdict *verdict)
{
    uint64_t words[BUFFER_LIMIT * 8], *found = words + BUFFER_LIMIT * 4;
    const struct buffer *owners[BUFFER_LIMIT * 2];
    unsigned ranges = 0, guard = BUFFER_GUARD_BYTE;
    for (size_t i = 0; i < list->count; i++) {
        const struct buffer *buffer = &list->items[i];
        if (buffer->bytes == 0)
            continue;
        const uint64_t starts[2] = {
            buffer->pointer - BUFFER_GUARD_BYTES, buffer->pointer + buffer->bytes};
        const uint64_t sizes[2] = {BUFFER_GUARD_BYTES, rear_bytes(buffer)};
        for (int side = 0; side < 2; side++, ranges++) {
            words[2 * ranges] = starts[side];
            words[2 * ranges + 1] = sizes[side];
            found[2 * ranges] = 0;
            found[2 * ranges + 1] = UINT64_MAX;
            owners[ranges] = buffer;
        }
    }
    if (ranges == 0)
        return 0;
    /* One copy carries the ranges and the cleared results behind them. */
    memmove(words + 2 * ranges, found, 2 * ranges * sizeof(*words));
    uint64_t at = harness->results, results = at + 2 * ranges * sizeof(*words);
    void *params[] = {&at, &guard, &results};
    if (put_results(harness, gpu, words, 4 * ranges, verdict) < 0 ||
        launch(gpu, harness->guards, ranges, params, verdict) < 0 ||
        get_results(harness, gpu, 2 * ranges, found, 2 * ranges, verdict) < 0)
        return -1;
    for (unsigned range = 0; range < ranges; range++) {
        if (found[2 * range] == 0)
            continue;
        bool is_front = range % 2 == 0;
        uint64_t first = found[2 * range + 1];
        return verdict_set(verdict, "wrong_result",
            "writes outside its buffer %s: %llu bytes changed, the first %llu bytes %s",
            owners[range]->name, (unsigned long long)found[2 * range],
            (unsigned long long)(is_front ? BUFFER_GUARD_BYTES - first : first + 1),
            is_front ? "before its start" : "past its end");
    }
    return 0;
}
