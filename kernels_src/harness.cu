// What the worker needs on the device beside a candidate: filling inputs, comparing outputs with the reference,
// looking for stray writes, and a checksum that tells whether inputs were written to.
//
// All of it works at the memory's speed, so that checking 2^28 elements costs about a millisecond. Plain C++ only: the
// same text is compiled by NVRTC for every architecture and by the host compiler for the emulator, and must give the
// same inputs on both, so random numbers are a hash of (seed, stream, index) and nothing else.
//
// Letters: n elements in a buffer; i their index, 64 bits everywhere. Each kernel is a grid-stride loop over i and
// takes any 1-D grid of BLOCK threads. The codes of dtypes and fills are those of daemon/worker/harness.h.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define BLOCK 256          // threads per block, fixed: the worker launches with it
#define WORST 1e300        // a ratio that stands for "infinitely wrong"; JSON has no infinity

enum { F64, F32, F16, BF16, TF32, I64, I32, I16, I8, U64, U32, U16, U8 };
enum { FILL_UNIFORM, FILL_SMALL_INT, FILL_INDEX, FILL_ZERO, FILL_VALUE, FILL_BELOW, FILL_SPECIAL };

union float_bits {
    float value;
    u32 bits;
};

union double_bits {
    double value;
    u64 bits;
};

static __device__ double double_of(u64 bits)
{
    double_bits both;
    both.bits = bits;
    return both.value;
}

static __device__ double float_of(u32 bits)
{
    float_bits both;
    both.bits = bits;
    return both.value;
}

// IEEE binary16 by its bits: 1 sign, 5 exponent, 10 fraction.
static __device__ double half_of(u16 bits)
{
    u64 sign = (u64)(bits >> 15) << 63, fraction = bits & 1023;
    int exponent = bits >> 10 & 31;
    if (exponent == 0) {
        double tiny = (double)fraction * 5.9604644775390625e-8; // 2^-24
        return sign ? -tiny : tiny;
    }
    u64 wide = exponent == 31 ? 2047 : (u64)(exponent - 15 + 1023);
    return double_of(sign | wide << 52 | fraction << 42);
}

// Nearest, ties to even; too large becomes infinity.
static __device__ u16 half_from(float value)
{
    float_bits both;
    both.value = value;
    u32 sign = both.bits >> 16 & 0x8000, bits = both.bits & 0x7fffffff;
    if (bits > 0x7f800000)
        return (u16)(sign | 0x7e00);
    if (bits >= 0x477ff000)
        return (u16)(sign | 0x7c00);
    if (bits < 0x38800000) { // below 2^-14: a multiple of 2^-24, rounded by the float adder
        both.bits = bits;
        both.value += 0.5f;
        return (u16)(sign | (both.bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1) - 0x38000000;
    return (u16)(sign | bits >> 13);
}

static __device__ u16 bf16_from(float value)
{
    float_bits both;
    both.value = value;
    if ((both.bits & 0x7fffffff) > 0x7f800000)
        return (u16)(both.bits >> 16 | 64);
    return (u16)((both.bits + 0x7fff + (both.bits >> 16 & 1)) >> 16);
}

// Element i as a double: exact but for 64-bit integers beyond 2^53, which compare_wide handles.
static __device__ double load(const void *from, int dtype, i64 i)
{
    switch (dtype) {
    case F64:
        return ((const double *)from)[i];
    case F32:
    case TF32:
        return ((const float *)from)[i];
    case F16:
        return half_of(((const u16 *)from)[i]);
    case BF16:
        return float_of((u32)((const u16 *)from)[i] << 16);
    case I64:
        return (double)((const i64 *)from)[i];
    case I32:
        return ((const int *)from)[i];
    case I16:
        return ((const short *)from)[i];
    case I8:
        return ((const signed char *)from)[i];
    case U64:
        return (double)((const u64 *)from)[i];
    case U32:
        return ((const u32 *)from)[i];
    case U16:
        return ((const u16 *)from)[i];
    default:
        return ((const u8 *)from)[i];
    }
}

static __device__ int bytes_of(int dtype)
{
    return dtype == F64 || dtype == I64 || dtype == U64 ? 8
        : dtype == F16 || dtype == BF16 || dtype == I16 || dtype == U16 ? 2
        : dtype == I8 || dtype == U8 ? 1
        : 4;
}

static __device__ u64 load_bits(const void *from, int dtype, i64 i)
{
    switch (bytes_of(dtype)) {
    case 8:
        return ((const u64 *)from)[i];
    case 4:
        return ((const u32 *)from)[i];
    case 2:
        return ((const u16 *)from)[i];
    default:
        return ((const u8 *)from)[i];
    }
}

static __device__ void store_float(void *to, int dtype, i64 i, double value)
{
    switch (dtype) {
    case F64:
        ((double *)to)[i] = value;
        break;
    case F16:
        ((u16 *)to)[i] = half_from((float)value);
        break;
    case BF16:
        ((u16 *)to)[i] = bf16_from((float)value);
        break;
    default:
        ((float *)to)[i] = (float)value;
    }
}

static __device__ void store_int(void *to, int dtype, i64 i, u64 value)
{
    switch (bytes_of(dtype)) {
    case 8:
        ((u64 *)to)[i] = value;
        break;
    case 4:
        ((u32 *)to)[i] = (u32)value;
        break;
    case 2:
        ((u16 *)to)[i] = (u16)value;
        break;
    default:
        ((u8 *)to)[i] = (u8)value;
    }
}

// splitmix64's finisher: every bit of the result depends on every bit of the input.
static __device__ u64 mix(u64 z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// How many bits of fraction a type holds exactly below 1: random values use no more, so that nothing is rounded.
static __device__ int fraction_bits(int dtype)
{
    return dtype == F64 ? 52 : dtype == F16 ? 10 : dtype == BF16 ? 7 : dtype == TF32 ? 10 : 23;
}

// One of what arithmetic treats apart: NaN, infinities, zero with a sign, a denormal number, and one beside them.
static __device__ double special(int dtype, u64 which)
{
    const double infinity = double_of(0x7ff0000000000000ull);
    switch (which % 6) {
    case 0:
        return infinity - infinity;
    case 1:
        return infinity;
    case 2:
        return -infinity;
    case 3:
        return -0.0;
    case 4:
        return dtype == F64 ? double_of(3) : dtype == F16 ? 1.9073486328125e-06 : float_of(3u << 16);
    default:
        return 1.0;
    }
}

// "uniform" is between -1 and 1 in floats, odd multiples of half the step of [1/2, 1), so that the mean is 0: with a bias
// sums would grow as their length, not as its root, and rounding with them. In integers it is any bits. "index" counts, in
// floats modulo what they hold exactly; "below" is 0 to value - 1, which the type holds. value is at most 2^53, so no
// remainder is more likely than another by more than one in 2^11. "special" is uniform but for one element of 512; no
// manifest has it, tests ask for it.
static __device__ double float_element(int dtype, int fill, double value, u64 random, i64 i)
{
    int bits = fraction_bits(dtype);
    switch (fill) {
    case FILL_SPECIAL:
        if (random % 512 == 0)
            return special(dtype, random / 512);
        // fall through
    case FILL_UNIFORM:
        return (double)((i64)(2 * (random >> (63 - bits)) + 1 - (2ull << bits))) / (double)(2ull << bits);
    case FILL_SMALL_INT:
        return (double)(random >> 60) - 8.0;
    case FILL_INDEX:
        return (double)(i & ((2ll << bits) - 1));
    case FILL_VALUE:
        return value;
    case FILL_BELOW:
        return (double)(random % (u64)value);
    default:
        return 0.0;
    }
}

static __device__ u64 int_element(int dtype, int fill, double value, u64 random, i64 i)
{
    switch (fill) {
    case FILL_SPECIAL:
    case FILL_UNIFORM:
        return random;
    case FILL_SMALL_INT:
        return dtype >= U64 ? random >> 60 : (random >> 60) - 8;
    case FILL_INDEX:
        return (u64)i;
    case FILL_VALUE:
        return value < 0 ? (u64)(i64)value : (u64)value;
    case FILL_BELOW:
        return random % (u64)value;
    default:
        return 0;
    }
}

// to[n] of `dtype`; `stream` tells buffers of one seed apart.
extern "C" __global__ void __launch_bounds__(BLOCK)
    harness_fill(void *to, i64 n, int dtype, int fill, double value, u64 seed, u64 stream)
{
    u64 base = mix(seed + 0x9e3779b97f4a7c15ull) ^ mix(stream * 0x9e3779b97f4a7c15ull + 1);
    i64 step = (i64)gridDim.x * BLOCK;
    for (i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x; i < n; i += step) {
        u64 random = mix(base + (u64)i * 0x9e3779b97f4a7c15ull);
        if (dtype <= TF32)
            store_float(to, dtype, i, float_element(dtype, fill, value, random, i));
        else
            store_int(to, dtype, i, int_element(dtype, fill, value, random, i));
    }
}

// |x - ref| / allowed: 0 equal, above 1 wrong. NaN equals NaN only, an infinity the same infinity only.
static __device__ double ratio_of(double x, double ref, double scale, double relative, double absolute)
{
    bool x_nan = x != x, ref_nan = ref != ref;
    if (x_nan || ref_nan)
        return x_nan && ref_nan ? 0.0 : WORST;
    if (x == ref)
        return 0.0;
    double difference = x > ref ? x - ref : ref - x;
    double allowed = absolute + relative * (scale < 0 ? -scale : scale);
    bool is_infinite = x - x != 0.0 || ref - ref != 0.0; // inf - inf is NaN
    if (is_infinite || !(allowed > 0.0))
        return WORST;
    double ratio = difference / allowed;
    return ratio < WORST ? ratio : WORST;
}

// 64-bit integers do not fit a double: the difference is taken first.
static __device__ double ratio_wide(u64 x, u64 ref, bool is_signed, double scale, double relative, double absolute)
{
    bool is_above = is_signed ? (i64)x > (i64)ref : x > ref;
    u64 difference = is_above ? x - ref : ref - x;
    return ratio_of((double)difference, 0.0, scale, relative, absolute);
}

// x[n] against ref[n]. result: [0] the largest ratio's bits, [1] how many are above 1, [2] the first of them (all
// ones: none), [3] how many passed although x still holds the poison. scale NULL: |ref|.
extern "C" __global__ void __launch_bounds__(BLOCK) harness_compare(const void *x, int x_dtype, const void *ref,
    int ref_dtype, const void *scale, int scale_dtype, i64 n, double relative, double absolute, u64 poison,
    u64 *result)
{
    __shared__ double worst_of[BLOCK];
    __shared__ u64 bad_of[BLOCK], first_of[BLOCK], shadow_of[BLOCK];
    double worst = 0.0;
    u64 bad = 0, first = ~0ull, shadow = 0;
    u64 mask = ~0ull >> (64 - 8 * bytes_of(x_dtype));
    bool is_wide = x_dtype == ref_dtype && (x_dtype == I64 || x_dtype == U64);
    i64 step = (i64)gridDim.x * BLOCK;
    for (i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x; i < n; i += step) {
        double r = load(ref, ref_dtype, i), s = scale ? load(scale, scale_dtype, i) : r;
        double ratio = is_wide
            ? ratio_wide(((const u64 *)x)[i], ((const u64 *)ref)[i], x_dtype == I64, s, relative, absolute)
            : ratio_of(load(x, x_dtype, i), r, s, relative, absolute);
        worst = ratio > worst ? ratio : worst;
        if (ratio > 1.0) {
            bad++;
            first = first < (u64)i ? first : (u64)i;
        } else if (load_bits(x, x_dtype, i) == (poison & mask)) {
            shadow++;
        }
    }
    int t = threadIdx.x;
    worst_of[t] = worst;
    bad_of[t] = bad;
    first_of[t] = first;
    shadow_of[t] = shadow;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            worst_of[t] = worst_of[t] > worst_of[t + half] ? worst_of[t] : worst_of[t + half];
            bad_of[t] += bad_of[t + half];
            first_of[t] = first_of[t] < first_of[t + half] ? first_of[t] : first_of[t + half];
            shadow_of[t] += shadow_of[t + half];
        }
    }
    if (t == 0) {
        double_bits both;
        both.value = worst_of[0];
        atomicMax(&result[0], both.bits); // doubles >= 0 sort as their bits do
        atomicAdd(&result[1], bad_of[0]);
        atomicMin(&result[2], first_of[0]);
        atomicAdd(&result[3], shadow_of[0]);
    }
}

// One block per range: ranges[2b] its address, ranges[2b+1] its bytes; all must still be `guard`. result[2b] counts
// the bytes that are not, result[2b+1] is the offset of the first (all ones: none).
extern "C" __global__ void __launch_bounds__(BLOCK) harness_guards(const u64 *ranges, u32 guard, u64 *result)
{
    const u8 *from = (const u8 *)ranges[2 * blockIdx.x];
    u64 bytes = ranges[2 * blockIdx.x + 1], bad = 0, first = ~0ull;
    for (u64 i = threadIdx.x; i < bytes; i += BLOCK)
        if (from[i] != guard) {
            bad++;
            first = first < i ? first : i;
        }
    if (bad > 0) {
        atomicAdd(&result[2 * blockIdx.x], bad);
        atomicMin(&result[2 * blockIdx.x + 1], first);
    }
}

// Adds a hash of from[n] to *result: the same bytes give the same sum in any order.
extern "C" __global__ void __launch_bounds__(BLOCK) harness_checksum(const u8 *from, i64 n, u64 *result)
{
    __shared__ u64 sum_of[BLOCK];
    u64 sum = 0;
    i64 words = n / 8, step = (i64)gridDim.x * BLOCK, start = (i64)blockIdx.x * BLOCK + threadIdx.x;
    for (i64 i = start; i < words; i += step)
        sum += mix(((const u64 *)from)[i] + (u64)i * 0x9e3779b97f4a7c15ull);
    for (i64 i = words * 8 + start; i < n; i += step)
        sum += mix(from[i] + (u64)i * 0x9e3779b97f4a7c15ull + 1);
    int t = threadIdx.x;
    sum_of[t] = sum;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            sum_of[t] += sum_of[t + half];
    }
    if (t == 0)
        atomicAdd(&result[0], sum_of[0]);
}
