// Records of some elements each, one after another in memory, for element-wise kernels that take
// them apart: here an element of elementwise.cuh is a record.
//
// VARIANT 1 (vector): a thread reads VEC records by accesses of up to 16 bytes. They lie next to
//   each other, so the accesses of neighbouring threads have gaps; the caches close them.
// VARIANT 2 (shared): the block copies a tile to shared memory, neighbouring threads neighbouring
//   words, and the threads take their records from there.
#pragma once
#include "elementwise.cuh"

// VEC records of LENGTH elements, in WIDTH elements per access: the widest that divides them.
template <typename T, int LENGTH> struct records {
    static constexpr int COUNT = VEC * LENGTH, BYTES = COUNT * (int)sizeof(T);
    static constexpr int EVEN = BYTES & -BYTES; // largest power of 2 that divides the bytes
    static constexpr int WIDTH = (EVEN < 16 ? EVEN : 16) / (int)sizeof(T);
    static constexpr int CHUNKS = COUNT / WIDTH;
    typedef vector<T, WIDTH> chunk;

    chunk v[CHUNKS];

    __device__ inline T get(int record, int field) const
    {
        const int i = record * LENGTH + field;
        return v[i / WIDTH].at[i % WIDTH];
    }
};

// The thread's records of the tile of `from` that begins at record `at`.
template <typename T, int LENGTH>
__device__ inline void read(records<T, LENGTH> (&out)[VECTORS], const T *__restrict__ from, i64 at)
{
    typedef records<T, LENGTH> group;
    from += at * LENGTH;
    if constexpr (VARIANT == 2) {
        constexpr int LOADS = VECTORS * group::CHUNKS;
        __shared__ typename group::chunk::word_type tile[LOADS * BLOCK];
        typename group::chunk v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            load(v[i], from + (i * BLOCK + threadIdx.x) * group::WIDTH);
        if constexpr (BLOCKS_PER_SM != 0)
            __syncthreads(); // the last tile has been read
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            tile[i * BLOCK + threadIdx.x] = v[i].word;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
#pragma unroll
            for (int k = 0; k < group::CHUNKS; k++)
                out[i].v[k].word = tile[(i * BLOCK + threadIdx.x) * group::CHUNKS + k];
    } else {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
#pragma unroll
            for (int k = 0; k < group::CHUNKS; k++)
                load(out[i].v[k],
                    from + (i * BLOCK + threadIdx.x) * group::COUNT + k * group::WIDTH);
    }
}
