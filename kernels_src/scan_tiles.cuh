// What scan, segmented_scan and compact share: the tunables, how a block adds up the sums of its
// threads and warps, how a tile tells the others its sum, and how blocks that stay fetch the next
// tile ahead.
//
// The array is cut into tiles of BLOCK * ITEMS elements. Who includes this has defined VARIANT, of
// which 0 is naive and has one element per thread.
#pragma once

#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef ITEMS
#define ITEMS 16 // elements per thread
#endif
#ifndef LOOK
#define LOOK 1 // sums that a lane asks for at once when it looks back
#endif
#ifndef REST
#define REST 0 // nanoseconds between two looks for a sum that is missing
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#include "scan.cuh"

static_assert(
    (VARIANT == 0) == (ITEMS == 1), "the naive variant, and no other, has one element per thread");
static_assert(MIN_BLOCKS == 1 || MIN_BLOCKS * BLOCK >= 1024,
    "MIN_BLOCKS limits registers from 1024 threads on: MIN_BLOCKS * BLOCK");

constexpr int TILE = BLOCK * ITEMS, WARPS = BLOCK / 32;

#if !TUNE_REFERENCE

// --- sums of a block -----------------------------------------------------------------------------

// The sum of `own` over all threads before this one, and over all of them.
template <typename T> __device__ inline T threads_before(T own, T &total)
{
    __shared__ T at[BLOCK];
    const int t = threadIdx.x;
    at[t] = own;
    kogge_stone<BLOCK>(at, T(0), [](T a, T b) { return add(a, b); });
    total = at[BLOCK - 1];
    return t > 0 ? at[t - 1] : 0;
}

// Of all threads, in every thread.
template <typename T> __device__ inline T block_sum(T sum)
{
    __shared__ T of_warp[WARPS];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < WARPS ? of_warp[threadIdx.x % 32] : T(0));
}

// The sum of all warps before this one, and of all of them, from each warp's of_warp[].
template <typename T> __device__ inline T warps_before(const T *of_warp, T &whole)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T sum = warp_running_sum(lane < WARPS ? of_warp[lane] : T(0));
    whole = __shfl_sync(ALL, sum, 31);
    const T before = __shfl_sync(ALL, sum, warp > 0 ? warp - 1 : 0);
    return warp > 0 ? before : T(0);
}

// of_warp[WARPS] = each warp's share of sums[0..tile), in a block that adds up what stands before
// its tile itself. Other blocks may have written them in the same launch, so no __restrict__.
template <typename T> __device__ inline void share_earlier(T *of_warp, const T *sums, i64 tile)
{
    T sum = 0;
    for (i64 i = threadIdx.x; i < tile; i += BLOCK)
        sum = add(sum, sums[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
}

// --- a tile and those before it ------------------------------------------------------------------

// Before a look-back: by one thread, as early as can be, for others wait for it. is_whole: `own` is
// all that a later tile needs, whatever stands before.
template <typename T>
__device__ inline void publish_own(u64 *__restrict__ words, i64 tile, T own, bool is_whole)
{
    publish(words + tile, word_of(is_whole ? WHOLE_SUM : OWN_SUM, own));
}

// The sum of all tiles before this one, which has published `own`; by the first warp.
template <typename T>
__device__ inline T tiles_before(u64 *__restrict__ words, i64 tile, T own, bool is_whole)
{
    const T before = look_back<LOOK, REST, T>(words, tile);
    if (threadIdx.x == 0 && !is_whole)
        publish(words + tile, word_of(WHOLE_SUM, add(before, own)));
    return before;
}

// --- blocks that stay ----------------------------------------------------------------------------

typedef tile_layout<STRIPED, BLOCK, ITEMS> fetched_layout;

// Where a thread has v[i..i+4) of a striped tile in shared memory: its own places, no other
// thread's.
template <typename T> __device__ inline T *own_four(T *stage, int i)
{
    return stage + i * BLOCK + threadIdx.x * 4;
}

// The thread's elements of tile `tile` of x[N], on their way to its own places in `ahead`; nothing
// where the tile is not whole.
template <typename T>
__device__ inline void fetch_tile(T *ahead, const T *__restrict__ x, i64 N, i64 tile)
{
    if ((tile + 1) * TILE > N)
        return;
#pragma unroll
    for (int i = 0; i < ITEMS; i += 4)
        copy_start<16>(own_four(ahead, i), x + tile * TILE + fetched_layout::offset(i));
}

// The tile that fetch_tile was called for, as read_tile reads it.
template <typename T>
__device__ inline void read_fetched(
    T (&v)[ITEMS], T *ahead, const T *__restrict__ x, i64 N, i64 tile)
{
    const i64 first = tile * TILE;
    if (first + TILE <= N) {
        copies_wait();
#pragma unroll
        for (int i = 0; i < ITEMS; i += 4)
            load4(v + i, own_four(ahead, i));
    } else {
        read_tile<STRIPED, BLOCK>(v, x + first, N - first, ahead);
    }
}

#endif
