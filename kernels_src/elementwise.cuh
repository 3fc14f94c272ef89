// What the element-wise kernels share: which elements a block and its threads have, and those of
// two arrays that become one.
//
// A tile is BLOCK * ITEMS elements. A thread handles ITEMS of them, VEC at a time: vector i of
// thread t is vector i * BLOCK + t of the tile, so that neighbouring threads access neighbouring
// words. With BLOCKS_PER_SM 0 each tile has a block of its own, else so many blocks per
// multiprocessor walk over the tiles. Elements after the last whole tile go one by one.
#pragma once
#include "vectors.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 naive; the others by kernel
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef ITEMS
#define ITEMS 8 // elements per thread and tile
#endif
#ifndef VEC
#define VEC 4 // elements per access
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM 0 // blocks per multiprocessor in the grid; 0: a block per tile
#endif

constexpr int VECTORS = ITEMS / VEC; // per thread and tile
constexpr int TILE = BLOCK * ITEMS;

static_assert(
    VARIANT != 0 || (BLOCK == 256 && ITEMS == 4 && VEC == 1 && BLOCKS_PER_SM == 0 && STREAM == 0),
    "the naive variant has no choices: it stands once in the space");
static_assert(BLOCK >= 64 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0,
    "a block has 64 to 1024 threads, a power of 2");
static_assert(ITEMS % VEC == 0, "the elements of a thread are a whole number of accesses");
static_assert(BLOCKS_PER_SM == 0 || BLOCK * BLOCKS_PER_SM == 1024 || BLOCK * BLOCKS_PER_SM == 2048,
    "a grid that walks has 1024 or 2048 threads per multiprocessor: BLOCK * BLOCKS_PER_SM");

// whole(at) for each of the block's tiles that begins at element `at` and ends before N, one(i) for
// the thread's share of the elements after them.
template <typename W, typename O> __device__ inline void walk(i64 N, W whole, O one)
{
    i64 at = (i64)blockIdx.x * TILE;
    if constexpr (BLOCKS_PER_SM != 0) {
        for (; at + TILE <= N; at += (i64)gridDim.x * TILE)
            whole(at);
    } else if (at + TILE <= N) {
        whole(at);
        return;
    }
#pragma unroll 1
    for (i64 i = at + threadIdx.x; i < N; i += BLOCK)
        one(i);
}

// z[i] = of(x[i], y[i]) for i in [0..N). z may be y. All loads of a tile are on their way before
// the first element is used.
template <typename T, typename F>
__device__ inline void combine_pairs(const T *x, const T *y, T *z, i64 N, F of)
{
    static_assert(VEC * sizeof(T) <= 16, "an access has at most 16 bytes: VEC elements");
    static_assert(VARIANT == 0 || (ITEMS * sizeof(T) >= 8 && ITEMS * sizeof(T) <= 64),
        "a thread reads 8 to 64 bytes of each array at a time: ITEMS elements");
    const auto one = [&](i64 i) { z[i] = of(x[i], y[i]); };
    if constexpr (VARIANT == 0) {
        const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
        if (i < N)
            one(i);
        return;
    }
    const auto whole = [&](i64 at) {
        vector<T, VEC> v[VECTORS], w[VECTORS];
        at += threadIdx.x * VEC;
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            load(v[i], x + at + i * BLOCK * VEC);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            load(w[i], y + at + i * BLOCK * VEC);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                w[i].at[j] = of(v[i].at[j], w[i].at[j]);
            store(z + at + i * BLOCK * VEC, w[i]);
        }
    };
    walk(N, whole, one);
}
