// y[M][N] = layer norm of each row of x[M][N]: (x - mean) / sqrt(variance + eps) * weight + bias,
// with the mean and the variance (sum of squares by N) of the row, weight[N] and bias[N];
// row-major; f32, f16 or bf16. Arithmetic is in f32 whatever the type, rounded once when y is
// written.
//
// THREADS threads share a row. Of what a warp holds in registers it works out the mean and, in a
// second pass, the sum of squared differences from it; triples of count, mean and that sum are then
// combined through shared memory by the differences of their means (Chan), so that no large squares
// cancel. Loops do the same with triples of threads.
// The VARIANTs are those of rows.cuh: naive, registers, shared, online, split and cluster; a warp's
// triple is what it tells the others.
// A thread of VARIANT 1 and 5 may hold the same columns of HELD rows, for which weight and bias are
// read once; AHEAD of the mean and variance, which would else be a second wait for memory.
// Every variant is deterministic.
//
// All arrays must be aligned to VEC elements; rows need not be (TAIL: see rows.cuh). A row that has
// a NaN or an infinity gives NaN everywhere; one whose squared differences pass 2^128 gives the
// bias, or NaN where its sums pass that too. Denormals are kept.

#ifndef HELD
#define HELD 1 // rows that a thread holds at once, in VARIANT 1 and 5
#endif
#ifndef AHEAD
#define AHEAD 0 // 1: weight and bias go to shared memory while x is on its way
#endif

#include "copies.cuh"
#include "rows.cuh"

static_assert(MIN_BLOCKS * BLOCK * (HELD * ITEMS + 24) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * THREADS * ROWS * "
    "(HELD * ITEMS + 24) is at most 65536");
static_assert(
    HELD == 1 || ((VARIANT == 1 || VARIANT == 5) && TAIL == 0 && VEC * sizeof(element) == 16),
    "several rows are held in registers only, and where they are whole accesses of 16 bytes: HELD "
    "is 1 elsewhere");
static_assert(
    AHEAD == 0 || ((VARIANT == 1 || VARIANT == 5) && TAIL == 0 && VEC * sizeof(element) == 16),
    "weight and bias are read ahead only for rows in registers, and where they are whole accesses "
    "of 16 bytes: AHEAD is no elsewhere");

// Of some elements of a row: how many, their mean, and the sum of squared differences from it.
struct moments {
    float count, mean, squares;
};

#if TUNE_REFERENCE

// Sum of 256 threads' values; every thread gets it.
__device__ inline double block_sum(double v)
{
    __shared__ double at[256];
    __syncthreads(); // the last result has been read
    at[threadIdx.x] = v;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            at[threadIdx.x] += at[threadIdx.x + half];
    }
    __syncthreads();
    return at[0];
}

// Reference in f64, a block per row. scale is what an element's error is measured by: see the
// manifest's derivation.
extern "C" __global__ void __launch_bounds__(256)
    layernorm_reference(const element *__restrict__ x, // [M][N]
        const element *__restrict__ weight,            // [N]
        const element *__restrict__ bias,              // [N]
        double *__restrict__ value,                    // [M][N]
        double *__restrict__ scale,                    // [M][N]
        i64 M, i64 N, float eps)
{
    const double smallest = 0x1p-14; // normal number of f16
    for (i64 row = blockIdx.x; row < M; row += gridDim.x) {
        const i64 at = row * N;
        double sum = 0, squares = 0, plain_squares = 0;
        for (i64 i = threadIdx.x; i < N; i += 256)
            sum += value_of(x + at + i);
        const double mean = block_sum(sum) / N;
        for (i64 i = threadIdx.x; i < N; i += 256) {
            const double v = value_of(x + at + i);
            squares += (v - mean) * (v - mean);
            plain_squares += v * v;
        }
        const double factor = 1 / sqrt(block_sum(squares) / N + eps);
        const double size = sqrt(block_sum(plain_squares) / N) * factor;
        for (i64 i = threadIdx.x; i < N; i += 256) {
            const double v = (value_of(x + at + i) - mean) * factor;
            const double w = value_of(weight + i), b = value_of(bias + i);
            value[at + i] = v * w + b;
            scale[at + i] = fmax(smallest, fabs(w) * (1 + fabs(v)) * (1 + size) + fabs(b));
        }
    }
}

#elif VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    layernorm(const element *__restrict__ x, // [M][N]
        const element *__restrict__ weight,  // [N]
        const element *__restrict__ bias,    // [N]
        element *__restrict__ y,             // [M][N]
        const float4 *, i64 M, i64 N, float eps)
{
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x;
    if (row >= M)
        return;
    x += row * N;
    y += row * N;
    float sum = 0.0f, squares = 0.0f;
    for (i64 i = 0; i < N; i++)
        sum += value_of(x + i);
    const float mean = sum / N;
    for (i64 i = 0; i < N; i++)
        squares += (value_of(x + i) - mean) * (value_of(x + i) - mean);
    const float factor = rsqrtf(squares / N + eps);
    for (i64 i = 0; i < N; i++) {
        const float v[1] = {
            (value_of(x + i) - mean) * factor * value_of(weight + i) + value_of(bias + i)};
        store(y + i, v);
    }
}

#else

__device__ inline float inverse(float count)
{
    return count > 0.0f ? __fdividef(1.0f, count) : 0.0f;
}

__device__ inline moments combine(moments a, moments b)
{
    const float count = a.count + b.count, delta = b.mean - a.mean;
    const float share = b.count * inverse(count);
    return {
        count, a.mean + delta * share, a.squares + b.squares + (delta * share) * (delta * a.count)};
}

// Of the elements that all threads whose lanes differ in the bits below WIDTH have of a step in
// COUNT rows; each of them gets the same results. count: how many they have of each. v is 0 where
// there is none.
template <int WIDTH, int COUNT>
__device__ inline void moments_of(
    moments (&s)[COUNT], const float (&v)[COUNT][ITEMS], const step &step, float count)
{
    float mean[COUNT], squares[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        mean[r] = squares[r] = 0.0f;
#pragma unroll
        for (float e : v[r])
            mean[r] += e;
    }
    lanes_sum<WIDTH>(mean);
    const float part = inverse(count);
#pragma unroll
    for (float &m : mean)
        m *= part;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (step.has(i / VEC * VEC * THREADS, i % VEC))
#pragma unroll
            for (int r = 0; r < COUNT; r++)
                squares[r] += (v[r][i] - mean[r]) * (v[r][i] - mean[r]);
    lanes_sum<WIDTH>(squares);
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        s[r] = {count, mean[r], squares[r]};
}

// Each of s[] of all threads whose lanes differ in the bits below WIDTH; each of them gets the same
// results.
template <int WIDTH, int COUNT> __device__ inline void lanes_combine(moments (&s)[COUNT])
{
    float count[COUNT], mean[COUNT], squares[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        count[r] = s[r].count;
        mean[r] = s[r].count * s[r].mean;
    }
    lanes_sum<WIDTH>(count);
    lanes_sum<WIDTH>(mean);
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        mean[r] *= inverse(count[r]);
        const float delta = s[r].count > 0.0f ? s[r].mean - mean[r] : 0.0f;
        squares[r] = s[r].squares + s[r].count * delta * delta;
    }
    lanes_sum<WIDTH>(squares);
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        s[r] = {count[r], mean[r], squares[r]};
}

// Of TRIPLES triples of each of COUNT rows, a power of 2, that all threads of a warp see; each gets
// the results.
template <int TRIPLES, int COUNT>
__device__ inline void triples_combine(
    moments (&s)[COUNT], const float4 (*__restrict__ triples)[TRIPLES])
{
    constexpr int WIDTH = TRIPLES < 32 ? TRIPLES : 32;
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        for (int i = threadIdx.x % WIDTH; i < TRIPLES; i += WIDTH) {
            const float4 t = triples[r][i];
            const moments some = {t.x, t.y, t.z};
            s[r] = i < WIDTH ? some : combine(s[r], some);
        }
    lanes_combine<WIDTH>(s);
}

// Each of s[] of all warps that share its row, in all blocks of their cluster. All threads of the
// block must call it, once.
template <int COUNT> __device__ inline void warps_combine(moments (&s)[COUNT])
{
    if constexpr (THREADS <= 32)
        return;
    __shared__ float4 triples[COUNT][SHARERS];
    float4 mine[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        mine[r] = {s[r].count, s[r].mean, s[r].squares, 0.0f};
    tell(triples, mine);
    triples_combine<SHARERS>(s, triples);
}

// From x to y, for the thread's elements of a step in COUNT rows. weight and bias: those of its
// first place.
template <int COUNT>
__device__ inline void normalise(float (&v)[COUNT][ITEMS], const step &step,
    const moments (&rows)[COUNT], float eps, const element *__restrict__ weight,
    const element *__restrict__ bias)
{
    float factor[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        factor[r] = rsqrtf(__fdividef(rows[r].squares, rows[r].count) + eps);
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        float w[VEC], b[VEC];
        if constexpr (TAIL) {
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                const bool has = step.has(i * THREADS, j);
                w[j] = has ? value_of(weight + i * THREADS + j) : 0.0f;
                b[j] = has ? value_of(bias + i * THREADS + j) : 0.0f;
            }
        } else if (step.is_whole(i * THREADS)) {
            load(w, weight + i * THREADS);
            load(b, bias + i * THREADS);
        }
#pragma unroll
        for (int r = 0; r < COUNT; r++)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                v[r][i + j] = (v[r][i + j] - rows[r].mean) * factor[r] * w[j] + b[j];
    }
}

#if VARIANT == 1 || VARIANT == 5

// Starts the copies of the block's columns of weight and bias; where a row has the block for
// itself, each thread copies its own. A loop, since the compiler would put straight copies off
// until x is there.
__device__ inline void copy_columns(element *weights, element *biases,
    const element *__restrict__ weight, const element *__restrict__ bias, const part &part)
{
    const int length = (int)least(part.end - part.from, STEP);
#pragma unroll 1
    for (int at = threadIdx.x * VEC; at < length; at += BLOCK * VEC) {
        copy_start<sizeof(access_word), true>(weights + at, weight + part.from + at);
        copy_start<sizeof(access_word), true>(biases + at, bias + part.from + at);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    layernorm(const element *__restrict__ x, // [M][N]
        const element *__restrict__ weight,  // [N]
        const element *__restrict__ bias,    // [N]
        element *__restrict__ y,             // [M][N]
        const float4 *, i64 M, i64 N, float eps)
{
    if constexpr (VARIANT == 5)
        cluster_arrive();
    const i64 row = ((i64)blockIdx.x / SPLIT * ROWS + threadIdx.x / THREADS) * HELD;
    const int thread = threadIdx.x % THREADS;
    const part part = part_of(row, blockIdx.x % SPLIT, N);
    const step first(part, part.from, thread);
    const i64 column = first.place - part.lead;
    extern __shared__ uint4 memory[]; // STEP weights and STEP biases, in AHEAD 1
    element *const weights = reinterpret_cast<element *>(memory), *const biases = weights + STEP;
    if constexpr (AHEAD)
        copy_columns(weights, biases, weight, bias, part);
    float v[HELD][ITEMS];
    moments all[HELD];
#pragma unroll
    for (int r = 0; r < HELD; r++)
        read(v[r], x + first.at + r * N, first.in_row(row + r < M), 0.0f, true);
    if constexpr (THREADS <= 32)
        moments_of<THREADS>(all, v, first, (float)N);
    else
        moments_of<32>(all, v, first, (float)first.count<32>());
    warps_combine(all);
    if constexpr (AHEAD) {
        copies_wait();
        if constexpr (ROWS > 1)
            __syncthreads(); // a thread's columns were copied by others
        normalise(v, first, all, eps, weights + thread * VEC, biases + thread * VEC);
    } else {
        normalise(v, first, all, eps, weight + column, bias + column);
    }
#pragma unroll
    for (int r = 0; r < HELD; r++)
        write(y + first.at + r * N, v[r], first.in_row(row + r < M));
}

#else

// Of the block's elements of a part; keeps them in `kept` unless it is NULL. All threads of the
// block must call it, once, and get the result.
__device__ inline void walk(moments (&s)[1], const element *x, const part &part, element *kept)
{
    s[0] = {0.0f, 0.0f, 0.0f};
    for (i64 place = part.from; place < part.end; place += STEP) {
        const step step(part, place, threadIdx.x);
        float v[1][ITEMS];
        moments some[1];
        read(v[0], x + step.at, step, 0.0f, kept != nullptr);
        if (kept)
            keep(kept + step.place, v[0], step);
        moments_of<1>(some, v, step, (float)step.count<1>());
        s[0] = combine(s[0], some[0]);
    }
    lanes_combine<32>(s);
    warps_combine(s);
}

#if VARIANT == 4

extern "C" __global__ void __launch_bounds__(THREADS)
    layernorm_part(const element *__restrict__ x, // [M][N]
        float4 *__restrict__ parts,               // [M][SPLIT], triples
        i64 N)
{
    const part part = part_of(blockIdx.x / SPLIT, blockIdx.x % SPLIT, N);
    moments s[1];
    walk(s, x, part, nullptr);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {s[0].count, s[0].mean, s[0].squares, 0.0f};
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    layernorm(const element *__restrict__ x, // [M][N]
        const element *__restrict__ weight,  // [N]
        const element *__restrict__ bias,    // [N]
        element *__restrict__ y,             // [M][N]
        const float4 *__restrict__ parts,    // [M][SPLIT], unused unless VARIANT is 4
        i64, i64 N, float eps)
{
    extern __shared__ uint4 memory[]; // the row, in VARIANT 2
    element *kept = VARIANT == 2 ? reinterpret_cast<element *>(memory) : nullptr;
    const part part = part_of(blockIdx.x / SPLIT, blockIdx.x % SPLIT, N);
    moments all[1];
    if constexpr (VARIANT == 4)
        triples_combine(all, reinterpret_cast<const float4(*)[SPLIT]>(parts) + blockIdx.x / SPLIT);
    else
        walk(all, x, part, kept);
    for (i64 place = last_step(part); place >= part.from; place -= STEP) {
        const step step(part, place, threadIdx.x);
        const i64 column = step.place - part.lead;
        float v[1][ITEMS];
        if constexpr (VARIANT == 2)
            recall(v[0], kept + step.place, step);
        else
            read(v[0], x + step.at, step, 0.0f, true);
        normalise(v, step, all, eps, weight + column, bias + column);
        write(y + step.at, v[0], step);
    }
}

#endif
#endif

#if !TUNE_REFERENCE && VARIANT != 4

// Not launched: an image has the same entries in every variant.
extern "C" __global__ void layernorm_part(const element *, float4 *, i64)
{
}

#endif
