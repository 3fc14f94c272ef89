// y[M][N] = softmax of each row of x[M][N]: exp(x - max) / sum exp(x - max), row-major; f32, f16 or
// bf16. Arithmetic is in f32 whatever the type, rounded once when y is written.
//
// THREADS threads share a row. Each keeps the largest element it has seen and the sum of
// exp(x - that largest one); when it sees a larger one, the sum is scaled down. The threads then
// combine their pairs, first by shuffles within a warp, then through shared memory.
// VARIANT 0 (naive): one thread per row, three loops over it. Readable, and the slowest.
// VARIANT 1 (registers): a row is read once and kept in registers, ITEMS elements per thread; for
//   rows of up to THREADS * ITEMS elements. ROWS rows share a block.
// VARIANT 2 (shared): a block per row, which is read once and kept in shared memory.
// VARIANT 3 (online): a block per row of any length, which is read twice.
// VARIANT 4 (split): SPLIT blocks per row, for rows that are long and few. `softmax_part` writes
//   the pair of each part to scratch, `softmax` combines them and reads the row again.
// VARIANT 5 (cluster): as registers, with a cluster of SPLIT blocks per row: rows of up to
//   SPLIT * THREADS * ITEMS elements are read once. Each warp hands its pair to all blocks of the
//   cluster through their shared memory.
// Loops take ITEMS elements per thread and step, so that many accesses are on their way at once;
// where a row is read again, the second loop begins at the end that the L2 still holds.
// Every variant is deterministic.
//
// x and y must be aligned to VEC elements; rows need not be (TAIL: see rows.cuh). An element of
// -inf gives 0. A row that has a NaN or +inf, or nothing but -inf, gives NaN everywhere. Denormals
// are kept in x, and in y where it is f16; results below 2^-126 may be 0.

#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 registers, 2 shared, 3 online, 4 split, 5 cluster
#endif
#ifndef THREADS
#define THREADS 256 // threads that share a row, in each of its blocks; power of 2
#endif
#ifndef ROWS
#define ROWS 1 // rows per block
#endif
#ifndef ITEMS
#define ITEMS 16 // elements per thread: of the row in VARIANT 1 and 5, of a step in the others
#endif
#ifndef VEC
#define VEC 4 // elements per access
#endif
#ifndef SPLIT
#define SPLIT 1 // blocks that share a row
#endif
#ifndef TAIL
#define TAIL 0 // 0 whole: VEC divides the rows' length; 1 ragged: it does not
#endif
#ifndef STREAM
#define STREAM 0 // 1: what is not wanted again leaves the caches first
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#include "cluster.cuh"
#include "rows.cuh"

constexpr int BLOCK = THREADS * ROWS; // threads per block

static_assert(
    VARIANT != 0 || (THREADS == 1 && ROWS == 128 && ITEMS == 1 && VEC == 1 && STREAM == 0),
    "the naive variant has no choices: it stands once in the space, with 128 threads");
static_assert(VARIANT == 0 || THREADS >= 8, "only the naive variant has one thread per row");
static_assert(BLOCK >= 64 && BLOCK <= 1024, "a block has 64 to 1024 threads: THREADS * ROWS");
static_assert(
    ROWS == 1 || THREADS <= 32, "rows share a block only where each has a warp or less: THREADS");
static_assert(VARIANT <= 1 || ROWS == 1,
    "a row that a block loops over, or several share, has it for itself: ROWS is 1");
static_assert(ITEMS % VEC == 0, "the elements of a thread are a whole number of accesses");
static_assert(VEC * sizeof(element) <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(
    ITEMS <= 8 * VEC || VARIANT <= 1 || VARIANT == 5, "a step has at most 8 accesses per thread");
static_assert(
    ITEMS >= 2 * VEC || VARIANT <= 1 || VARIANT == 5, "a step has at least 2 accesses per thread");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + 24) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * THREADS * ROWS * "
    "(ITEMS + 24) is at most 65536");
static_assert(MIN_BLOCKS == 1 || VARIANT == 1 || VARIANT == 5,
    "only rows in registers make registers scarce");
static_assert(
    (SPLIT > 1) == (VARIANT >= 4), "the split and cluster variants, and no others, have SPLIT > 1");
static_assert(SPLIT <= 8 || VARIANT != 5, "a cluster has at most 8 blocks: SPLIT");
static_assert(TAIL == 0 || VEC > 1, "single elements leave no tail: TAIL is whole where VEC is 1");

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
    float sum = s.sum * __expf(s.max - base_of(max));
#pragma unroll
    for (int bit = WIDTH / 2; bit > 0; bit /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    return {max, sum};
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
    constexpr int WARPS = (BLOCK + 31) / 32, BLOCKS = VARIANT == 5 ? SPLIT : 1;
    __shared__ float2 pairs[BLOCKS * WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    s = lanes_combine<32>(s);
    if constexpr (VARIANT == 5) {
        cluster_wait(); // the other blocks have begun: their shared memory is there
        if (lane < BLOCKS)
            cluster_store(&pairs[cluster_rank() * WARPS + warp], lane, {s.max, s.sum});
        cluster_sync();
    } else {
        if (lane == 0)
            pairs[warp] = {s.max, s.sum};
        __syncthreads();
    }
    return pairs_combine<BLOCKS * WARPS>(pairs);
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

constexpr int STEP = THREADS * ITEMS; // places of a row per turn of the loops

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
    for (i64 place = part.from + (part.end - part.from - 1) / STEP * STEP; place >= part.from;
         place -= STEP) {
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
