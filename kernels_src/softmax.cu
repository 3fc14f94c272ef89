// y[M][N] = softmax of each row of x[M][N]: exp(x - max) / sum exp(x - max), row-major; f32, f16 or
// bf16. Arithmetic is in f32 whatever the type, rounded once when y is written.
//
// THREADS threads share a row. Each keeps the largest element it has seen and the sum of
// exp(x - that largest one); when it sees a larger one, the sum is scaled down. The threads then
// combine their pairs, first by shuffles within a warp, then through shared memory.
// The VARIANTs are those of rows.cuh: naive, registers, shared, online, split and cluster; a warp's
// pair is what it tells the others.
// Every variant is deterministic.
//
// x and y must be aligned to VEC elements; rows need not be (TAIL: see rows.cuh). An element of
// -inf gives 0. A row that has a NaN or +inf, or nothing but -inf, gives NaN everywhere. Denormals
// are kept in x, and in y where it is f16; results below 2^-126 may be 0.

#include "rows.cuh"

static_assert(MIN_BLOCKS * BLOCK * (ITEMS + 24) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * THREADS * ROWS * "
    "(ITEMS + 24) is at most 65536");

// What is known of some elements of a row: the largest, and the sum of exp(x - max) over them.
struct stats {
    float max, sum;
};

__device__ inline float minus_infinity()
{
    return __uint_as_float(0xff800000u);
}

// What to subtract before exp. Where all elements so far are -inf their terms must become 0, not
// exp(-inf + inf).
__device__ inline float base_of(float max)
{
    return max == minus_infinity() ? 0.0f : max;
}

#if TUNE_REFERENCE

// Combines 256 threads' values by `op`; every thread gets the result.
template <typename F> __device__ inline double block_combine(double v, F op)
{
    __shared__ double at[256];
    __syncthreads(); // the last result has been read
    at[threadIdx.x] = v;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            at[threadIdx.x] = op(at[threadIdx.x], at[threadIdx.x + half]);
    }
    __syncthreads();
    return at[0];
}

// Reference in f64, a block per row. scale is what an element's error is measured by: the value, or
// where y's type is denormal there, its smallest normal number.
extern "C" __global__ void __launch_bounds__(256)
    softmax_reference(const element *__restrict__ x, // [M][N]
        double *__restrict__ value,                  // [M][N]
        double *__restrict__ scale,                  // [M][N]
        i64 M, i64 N)
{
#if TUNE_DTYPE_F16
    const double smallest = 0x1p-14;
#else
    const double smallest = 0x1p-126;
#endif
    for (i64 row = blockIdx.x; row < M; row += gridDim.x) {
        const i64 at = row * N;
        double max = minus_infinity(), sum = 0;
        for (i64 i = threadIdx.x; i < N; i += 256)
            max = value_of(x + at + i) > max ? value_of(x + at + i) : max;
        max = block_combine(max, [](double a, double b) { return a > b ? a : b; });
        for (i64 i = threadIdx.x; i < N; i += 256)
            sum += exp(value_of(x + at + i) - max);
        sum = block_combine(sum, [](double a, double b) { return a + b; });
        for (i64 i = threadIdx.x; i < N; i += 256) {
            const double p = exp(value_of(x + at + i) - max) / sum;
            value[at + i] = p;
            scale[at + i] = p > smallest ? p : smallest;
        }
    }
}

#elif VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK) softmax(const element *__restrict__ x, // [M][N]
    element *__restrict__ y,                                                               // [M][N]
    const float2 *, i64 M, i64 N)
{
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x;
    if (row >= M)
        return;
    x += row * N;
    y += row * N;
    float max = minus_infinity(), sum = 0.0f;
    for (i64 i = 0; i < N; i++)
        max = fmaxf(max, value_of(x + i));
    for (i64 i = 0; i < N; i++)
        sum += __expf(value_of(x + i) - max);
    for (i64 i = 0; i < N; i++) {
        const float p[1] = {__expf(value_of(x + i) - max) / sum};
        store(y + i, p);
    }
}

#else

__device__ inline stats combine(stats a, float2 b)
{
    const float max = fmaxf(a.max, b.x), base = base_of(max);
    return {max, a.sum * __expf(a.max - base) + b.y * __expf(b.x - base)};
}

// Of all threads whose lanes differ in the bits below WIDTH; each of them gets the result.
template <int WIDTH> __device__ inline stats lanes_combine(stats s)
{
    float max = s.max;
#pragma unroll
    for (int bit = WIDTH / 2; bit > 0; bit /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, bit));
    return {max, lanes_sum<WIDTH>(s.sum * __expf(s.max - base_of(max)))};
}

// Of COUNT pairs that all threads of a warp see; each gets the result.
template <int COUNT> __device__ inline stats pairs_combine(const float2 *pairs)
{
    stats s = {minus_infinity(), 0.0f};
    for (int i = threadIdx.x % 32; i < COUNT; i += 32)
        s = combine(s, pairs[i]);
    return lanes_combine<32>(s);
}

// Of all threads that share a row, in all blocks of its cluster; each of them gets the result. All
// threads of the block must call it, once.
__device__ inline stats row_combine(stats s)
{
    if constexpr (THREADS <= 32)
        return lanes_combine<THREADS>(s);
    __shared__ float2 pairs[1][SHARERS];
    s = lanes_combine<32>(s);
    tell(pairs, {{s.max, s.sum}});
    return pairs_combine<SHARERS>(pairs[0]);
}

__device__ inline float largest(float max, const float (&v)[ITEMS])
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        max = fmaxf(max, v[i]);
    return max;
}

#if VARIANT == 1 || VARIANT == 5

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    softmax(const element *__restrict__ x, // [M][N]
        element *__restrict__ y,           // [M][N]
        const float2 *, i64 M, i64 N)
{
    if constexpr (VARIANT == 5)
        cluster_arrive();
    const i64 row = (i64)blockIdx.x / SPLIT * ROWS + threadIdx.x / THREADS;
    const int thread = threadIdx.x % THREADS;
    part part = part_of(row, blockIdx.x % SPLIT, N);
    if (row >= M)
        part.end = part.from; // nobody leaves: shuffles and barriers want all threads
    const step step(part, part.from, thread);
    float v[ITEMS];
    read(v, x + step.at, step, minus_infinity(), true);
    stats mine = {largest(minus_infinity(), v), 0.0f};
    const float base = base_of(mine.max);
#pragma unroll
    for (float &e : v) {
        e = __expf(e - base);
        mine.sum += e;
    }
    const stats all = row_combine(mine);
    // From the thread's own largest element to the row's. Both -inf: NaN, as it should be.
    const float factor = __expf(mine.max - all.max) / all.sum;
#pragma unroll
    for (float &e : v)
        e *= factor;
    write(y + step.at, v, step);
}

#else

// Of the thread's elements of a part; keeps them in `kept` unless it is NULL.
__device__ inline stats walk(const element *x, const part &part, element *kept)
{
    stats s = {minus_infinity(), 0.0f};
    for (i64 place = part.from; place < part.end; place += STEP) {
        const step step(part, place, threadIdx.x);
        float v[ITEMS];
        read(v, x + step.at, step, minus_infinity(), kept != nullptr);
        if (kept)
            keep(kept + step.place, v, step);
        const float max = largest(s.max, v), base = base_of(max);
        s.sum *= __expf(s.max - base);
        s.max = max;
#pragma unroll
        for (float e : v)
            s.sum += __expf(e - base);
    }
    return s;
}

#if VARIANT == 4

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_part(const element *__restrict__ x, // [M][N]
        float2 *__restrict__ parts,             // [M][SPLIT], largest element and sum
        i64 N)
{
    const part part = part_of(blockIdx.x / SPLIT, blockIdx.x % SPLIT, N);
    const stats s = row_combine(walk(x, part, nullptr));
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {s.max, s.sum};
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax(const element *__restrict__ x, // [M][N]
        element *__restrict__ y,           // [M][N]
        const float2 *__restrict__ parts,  // [M][SPLIT], unused unless VARIANT is 4
        i64, i64 N)
{
    extern __shared__ uint4 memory[]; // the row, in VARIANT 2
    element *kept = VARIANT == 2 ? reinterpret_cast<element *>(memory) : nullptr;
    const part part = part_of(blockIdx.x / SPLIT, blockIdx.x % SPLIT, N);
    stats s;
    if constexpr (VARIANT == 4)
        s = pairs_combine<SPLIT>(parts + (i64)blockIdx.x / SPLIT * SPLIT);
    else
        s = row_combine(walk(x, part, kept));
    const float scale = 1.0f / s.sum;
    for (i64 place = last_step(part); place >= part.from; place -= STEP) {
        const step step(part, place, threadIdx.x);
        float v[ITEMS];
        if constexpr (VARIANT == 2)
            recall(v, kept + step.place, step);
        else
            read(v, x + step.at, step, 0.0f, true);
#pragma unroll
        for (float &e : v)
            e = __expf(e - s.max) * scale;
        write(y + step.at, v, step);
    }
}

#endif
#endif

#if !TUNE_REFERENCE && VARIANT != 4

// Not launched: an image has the same entries in every variant.
extern "C" __global__ void softmax_part(const element *, float2 *, i64)
{
}

#endif
