// out[0] = sum of x[0..N), f32.
//
// A grid of blocks walks over x in strides of the whole grid. Each step a thread reads ITEMS
// elements by accesses of VEC floats, neighbouring threads neighbouring words, adds them as a tree
// and adds that to its running sum. The threads of a block then combine their sums:
// VARIANT 0 (interleaved): in shared memory, thread t adds t + 1, then t + 2, t + 4 ...; every step
//   more lanes of each warp idle and the stride hits fewer banks. Readable, and the slowest.
// VARIANT 1 (sequential): in shared memory, the lower half adds the upper half.
// VARIANT 2 (shuffle): in registers within a warp, then one warp over the warps' sums.
//   These three write one partial sum per block to scratch, which `reduce_final` adds in a fixed
//   order: deterministic.
// VARIANT 3 (shuffle_atomic): as 2, then one atomicAdd per block to out, which must be zero before.
//   Blocks end in any order, so the last bits differ from run to run.
//
// x must be aligned to VEC floats. NaN and infinity pass through as the sum says (inf - inf is
// NaN); denormals are kept.
#include "common.cuh"

#ifndef VARIANT
#define VARIANT 2 // 0 interleaved, 1 sequential, 2 shuffle, 3 shuffle_atomic
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef ITEMS
#define ITEMS 32 // elements that a thread reads before it adds them
#endif
#ifndef VEC
#define VEC 4 // floats per access
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM                                                                              \
    8 // blocks per multiprocessor in the grid; the manifest computes the grid from it
#endif

static_assert(BLOCK >= 64 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0,
    "a block has 64 to 1024 threads, a power of 2");
static_assert(ITEMS % VEC == 0, "the elements of a step are a whole number of accesses");
static_assert(BLOCK * BLOCKS_PER_SM >= 512 && BLOCK * BLOCKS_PER_SM <= 8192,
    "the grid has 512 to 8192 threads per multiprocessor: BLOCK * BLOCKS_PER_SM");

#if TUNE_REFERENCE

// Combines 256 threads' pairs of sums; thread 0 has the result.
__device__ inline void combine(double &sum, double &squares)
{
    __shared__ double at[2][256];
    at[0][threadIdx.x] = sum;
    at[1][threadIdx.x] = squares;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            at[0][threadIdx.x] += at[0][threadIdx.x + half];
            at[1][threadIdx.x] += at[1][threadIdx.x + half];
        }
    }
    sum = at[0][0];
    squares = at[1][0];
}

// Reference in f64: partial sums of x and of x^2, one pair per block.
extern "C" __global__ void __launch_bounds__(256)
    reduce_reference(const float *__restrict__ x, // [N]
        double *__restrict__ sums,                // [blocks]
        double *__restrict__ squares,             // [blocks]
        i64 N)
{
    double sum = 0, square = 0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < N; i += (i64)gridDim.x * 256) {
        const double v = x[i];
        sum += v;
        square += v * v;
    }
    combine(sum, square);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        squares[blockIdx.x] = square;
    }
}

// Their totals: value = sum x, scale = sqrt(sum x^2), the size of a random walk over x.
extern "C" __global__ void __launch_bounds__(256)
    reduce_reference_final(const double *__restrict__ sums, // [count]
        const double *__restrict__ squares,                 // [count]
        double *__restrict__ value,                         // [1]
        double *__restrict__ scale,                         // [1]
        i64 count)
{
    double sum = 0, square = 0;
    for (i64 i = threadIdx.x; i < count; i += 256) {
        sum += sums[i];
        square += squares[i];
    }
    combine(sum, square);
    if (threadIdx.x == 0) {
        *value = sum;
        *scale = sqrt(square);
    }
}

#else

// Sum of v[0..COUNT) as a tree.
template <int COUNT> __device__ inline float tree(const float *v)
{
    if constexpr (COUNT == 1)
        return v[0];
    else
        return tree<COUNT / 2>(v) + tree<COUNT - COUNT / 2>(v + COUNT / 2);
}

// The thread's share of x[0..N), for thread `thread` of `threads`.
__device__ inline float walk(const float *__restrict__ x, i64 N, i64 block, i64 blocks)
{
    constexpr int TILE = BLOCK * ITEMS;
    float sum = 0.0f, v[ITEMS];
    for (i64 at = block * TILE; at < N; at += blocks * TILE) {
        if (at + TILE <= N) {
#pragma unroll
            for (int i = 0; i < ITEMS; i += VEC)
                load(reinterpret_cast<float(&)[VEC]>(v[i]), x + at + i * BLOCK + threadIdx.x * VEC);
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                const i64 index = at + i * BLOCK + threadIdx.x;
                v[i] = index < N ? x[index] : 0.0f;
            }
        }
        sum += tree<ITEMS>(v);
    }
    return sum;
}

// Sum over a warp, in lane 0.
__device__ inline float warp_sum(float sum)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    return sum;
}

// Sum over the block, in thread 0.
__device__ inline float block_sum(float sum)
{
    __shared__ float at[BLOCK];
    const int t = threadIdx.x;
    if constexpr (VARIANT >= 2) {
        sum = warp_sum(sum);
        if (t % 32 == 0)
            at[t / 32] = sum;
        __syncthreads();
        return t < 32 ? warp_sum(t < BLOCK / 32 ? at[t] : 0.0f) : 0.0f;
    }
    at[t] = sum;
    __syncthreads();
    if constexpr (VARIANT == 0) {
        for (int stride = 1; stride < BLOCK; stride *= 2) {
            if (t % (2 * stride) == 0)
                at[t] += at[t + stride];
            __syncthreads();
        }
    } else {
        for (int half = BLOCK / 2; half > 0; half /= 2) {
            if (t < half)
                at[t] += at[t + half];
            __syncthreads();
        }
    }
    return at[0];
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduce(const float *__restrict__ x, // [N]
    float *__restrict__ out,     // [1], zero before when VARIANT is 3
    float *__restrict__ partial, // [gridDim.x], unused when VARIANT is 3
    i64 N)
{
    const float sum = block_sum(walk(x, N, blockIdx.x, gridDim.x));
    if (threadIdx.x != 0)
        return;
    if constexpr (VARIANT == 3)
        atomicAdd(out, sum);
    else
        partial[blockIdx.x] = sum;
}

// One block adds the partial sums.
extern "C" __global__ void __launch_bounds__(BLOCK)
    reduce_final(const float *__restrict__ partial, // [count]
        float *__restrict__ out,                    // [1]
        i64 count)
{
    const float sum = block_sum(walk(partial, count, 0, 1));
    if (threadIdx.x == 0)
        *out = sum;
}

#endif
