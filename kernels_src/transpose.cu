// out[N][M] = transpose of in[M][N], row-major, f32; exact.
//
// VARIANT 0 (naive): one thread per element, reads along the rows, writes with stride M.
// VARIANT 1 (tiled): a block moves one TILE x TILE tile through shared memory, so that reads run
//   along the rows of `in` and writes along the rows of `out`. TILE / VEC threads lie along a row
//   and each handles ROWS rows, TILE / ROWS apart.
//
// The staged tile is read across its rows. With LAYOUT 0 (none) the lanes then hit few banks;
// 1 (pad) makes the row length odd; 2 (xor) permutes the columns of each row and costs no memory.
//
// Blocks are numbered along x only, since grid y and z end at 65,535. Every variant is a copy of
// bits: NaN payloads and denormals pass through, and the result is deterministic.
#include "common.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 tiled
#endif
#ifndef TILE
#define TILE 64 // rows and columns of a block's tile
#endif
#ifndef ROWS
#define ROWS 8 // rows per thread
#endif
#ifndef VEC
#define VEC 1 // floats per global access; divides M and N
#endif
#ifndef LAYOUT
#define LAYOUT 2 // 0 none, 1 pad, 2 xor
#endif

constexpr int LANES = TILE / VEC; // threads along a row of the tile
constexpr int STEP = TILE / ROWS; // threads along a column, and distance of a thread's rows
constexpr int THREADS = LANES * STEP;

static_assert(THREADS >= 32 && THREADS <= 1024,
    "a block has 32 to 1024 threads: (TILE / VEC) * (TILE / ROWS)");
static_assert(VARIANT != 0 || (TILE == 32 && ROWS == 4 && VEC == 1 && LAYOUT == 0),
    "the naive variant has no tile: it stands once in the space, with 256 threads");

#if TUNE_REFERENCE || VARIANT == 0

#if TUNE_REFERENCE
#define transpose transpose_reference
#endif

// Thread t of the grid copies element t of in, counted along the rows.
extern "C" __global__ void __launch_bounds__(256) transpose(const float *__restrict__ in, // [M][N]
    float *__restrict__ out,                                                              // [N][M]
    i64 M, i64 N)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index < M * N)
        out[index % N * M + index / N] = in[index];
}

#else

constexpr int ROW_FLOATS = TILE + (LAYOUT == 1); // in shared memory

// Where element (row, col) of the tile lies. Lanes that read together differ in row by VEC.
__device__ inline int staged(int row, int col)
{
    constexpr int MASK = TILE < 32 ? TILE - 1 : 31;
    return row * ROW_FLOATS + (LAYOUT == 2 ? col ^ (row / VEC & MASK) : col);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(const float *__restrict__ in, // [M][N]
        float *__restrict__ out,            // [N][M]
        i64 M, i64 N)
{
    extern __shared__ float tile[]; // [TILE][ROW_FLOATS]
    const int x = threadIdx.x % LANES * VEC, y = threadIdx.x / LANES;
    const i64 tiles_n = ceildiv(N, TILE);
    const i64 m0 = blockIdx.x / tiles_n * TILE, n0 = blockIdx.x % tiles_n * TILE;

    float v[ROWS][VEC]; // all loads are issued before the first is used
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (m0 + y + i * STEP < M && n0 + x < N)
            load(v[i], in + (m0 + y + i * STEP) * N + n0 + x);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < VEC; j++)
            tile[staged(y + i * STEP, x + j)] = v[i][j];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v[i][j] = tile[staged(x + j, y + i * STEP)];
        if (n0 + y + i * STEP < N && m0 + x < M)
            store(out + (n0 + y + i * STEP) * M + m0 + x, v[i]);
    }
}

#endif
