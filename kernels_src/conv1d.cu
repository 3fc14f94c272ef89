// y[i] = sum over b of filter[b] * x[i + b - K/2], f32 by IEEE fused multiply-add: a filter of K
// elements over a row of N (a correlation: the filter is not turned round). BORDER says what x is
// beyond its ends. An even K has one element more before the middle than after it.
//
// VARIANT 0 (naive): one thread per element of y, the filter in global memory.
// VARIANT 1 (constant): the same, the filter in constant memory.
// VARIANT 2 (tiled): the block first copies its part of x with a halo to shared memory.
// VARIANT 3 (coarsened): as 2, and a thread computes ITEMS neighbouring elements of y from a window
//   of x in registers, which moves on by STEP elements: x is read once for ITEMS products.
// VARIANT 4 (cached): as 3, without a tile: the window comes from global memory, where L1 holds
//   what neighbouring threads share.
//
// Every variant is deterministic. NaN and infinity pass through, a zero beyond an end times an
// infinite tap included; denormals are kept.
#include "conv.cuh"

#ifndef VARIANT
#define VARIANT 4 // 0 naive, 1 constant, 2 tiled, 3 coarsened, 4 cached
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block
#endif
#ifndef ITEMS
#define ITEMS 4 // elements of y per thread
#endif
#ifndef STEP
#define STEP 16 // taps per turn of the loop over the filter
#endif

static_assert(VARIANT >= 3 || (ITEMS == 1 && STEP == 16 && TAPS == 0 && MIN_BLOCKS == 1),
    "naive, constant and tiled compute one element of y per thread");
static_assert(VARIANT < 3 || ITEMS > 1, "coarsened and cached compute several elements per thread");
static_assert(VARIANT != 0 || BLOCK == 256, "naive stands once in the space");
static_assert(
    VEC <= ITEMS, "an access is not wider than a thread's elements: VEC is at most ITEMS");

#if TUNE_REFERENCE

extern "C" __global__ void __launch_bounds__(256)
    conv1d_reference(const float *__restrict__ x, // [N]
        const float *__restrict__ filter,         // [K]
        double *__restrict__ value,               // [N]
        double *__restrict__ scale,               // [N]
        i64 N)
{
    reference_image<1>(
        x, [&](i64, i64 b) { return (double)filter[b]; }, value, scale, 1, N);
}

#else

#if VARIANT != 0
extern "C" {
__constant__ float taps[K]; // the filter, copied here before the launch
}
#endif

#if VARIANT <= 1

extern "C" __global__ void __launch_bounds__(BLOCK) conv1d(const float *__restrict__ x, // [N]
    const float *__restrict__ filter,                                                   // [K]
    float *__restrict__ y,                                                              // [N]
    i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= N)
        return;
#if VARIANT == 1
    filter = taps;
#endif
    float sum = 0.0f;
    for (i64 b = 0; b < K; b++)
        sum += filter[b] * element<BORDER>(x, i + b - BEFORE, N);
    y[i] = sum;
}

#else

constexpr int LEFT = round_up(BEFORE, VEC); // where a thread's window begins, in whole accesses
constexpr int SKEW = LEFT - BEFORE;         // of the window, before the first element used
// The window holds STEP elements and KEEP more, which the next turn uses again.
constexpr int KEEP = round_up(SKEW + ITEMS - 1, VEC), REST = K % STEP;
constexpr int READ = KEEP + K - REST + round_up(REST, VEC); // elements that a thread reads in all

#if VARIANT <= 3

constexpr int SPAN = (BLOCK - 1) * ITEMS + READ; // of x for a block

#endif

#if VARIANT == 2

extern "C" __global__ void __launch_bounds__(BLOCK) conv1d(const float *__restrict__ x, // [N]
    const float *,
    float *__restrict__ y, // [N]
    i64 N)
{
    extern __shared__ float tile[]; // [SPAN]
    const i64 first = (i64)blockIdx.x * BLOCK, i = first + threadIdx.x;
    read_tile<BORDER, 1, BLOCK, 1, SPAN>(tile, x, 0, first - LEFT, 1, N, AFTER);
    __syncthreads();
    float sum = 0.0f;
#pragma unroll 16
    for (int b = 0; b < K; b++)
        sum += taps[b] * tile[threadIdx.x + b];
    if (i < N)
        y[i] = sum;
}

#else

// Adds `count` taps from b0 on.
template <int count>
__device__ inline void add_taps(
    float (&sums)[ITEMS], const float *window, const filter_taps<K> &of_filter, int b0)
{
#pragma unroll
    for (int b = 0; b < count; b++)
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            sums[i] += of_filter.at(b0 + b) * window[SKEW + b + i];
}

// sums[i] = sum over b of taps[b] * from[SKEW + i + b]; from has READ elements.
__device__ inline void convolve(
    float (&sums)[ITEMS], const float *from, const filter_taps<K> &of_filter)
{
    float window[KEEP + STEP];
    copy_floats<VEC, KEEP>(window, from);
    if constexpr (K >= STEP)
#pragma unroll(TAPS == 1 ? K : 1)
        for (int b0 = 0; b0 < K - REST; b0 += STEP) {
            copy_floats<VEC, STEP>(window + KEEP, from + b0 + KEEP);
            add_taps<STEP>(sums, window, of_filter, b0);
#pragma unroll
            for (int j = 0; j < KEEP; j++)
                window[j] = window[j + STEP];
        }
    if constexpr (REST > 0) {
        copy_floats<VEC, round_up(REST, VEC)>(window + KEEP, from + K - REST + KEEP);
        add_taps<REST>(sums, window, of_filter, K - REST);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    conv1d(const float *__restrict__ x,   // [N]
        const float *__restrict__ filter, // [K], read when TAPS is 1, and at the ends
        float *__restrict__ y,            // [N]
        i64 N)
{
    const i64 block_first = (i64)blockIdx.x * BLOCK * ITEMS;
    const i64 first = block_first + threadIdx.x * ITEMS;
#if VARIANT == 3
    extern __shared__ float4 shared[]; // [SPAN]; float4 for its alignment
    float *const tile = reinterpret_cast<float *>(shared);
    read_tile<BORDER, VEC, BLOCK, 1, SPAN>(tile, x, 0, block_first - LEFT, 1, N, AFTER);
    __syncthreads();
#endif
    if (first >= N)
        return;

    const filter_taps<K> of_filter(taps, filter);
    float sums[ITEMS] = {};
#if VARIANT == 3
    convolve(sums, tile + threadIdx.x * ITEMS, of_filter);
#else
    if (first >= LEFT && first - LEFT + READ <= N)
        convolve(sums, x + first - LEFT, of_filter);
    else
#pragma unroll 1
        for (int b = 0; b < K; b++)
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (first + i < N)
                    sums[i] += filter[b] * element<BORDER>(x, first + i + b - BEFORE, N);
#endif
    write_row<VEC>(y, first, N, sums);
}

#endif
#endif
#endif
