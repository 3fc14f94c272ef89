// C[M][N] = A[M][K] * B[K][N], row-major, f32 by IEEE fused multiply-add (no tensor cores).
//
// VARIANT 0 (naive): one thread per element of C walks along K.
// VARIANT 1 (tiled): a block computes a BM x BN tile of C in steps of BK along K. A step of A and B
//   is staged in shared memory, A transposed so that a thread reads its rows as vectors. A thread
//   keeps TM x TN sums in registers, as groups of 4 x 4 that lie 4*BM/TM rows and 4*BN/TN columns
//   apart: the lanes of a warp then read neighbouring 16-byte words, without bank conflicts.
// SPLIT_K > 1: that many blocks share a tile, each over its range of K, and write partial sums to
//   scratch, which `gemm_sum` adds in a fixed order. Every variant is deterministic: the same
//   inputs and configuration give the same bits.
//
// Blocks are numbered along x only, since grid y and z end at 65,535. Tails in M, N and K are read
// as zeros and not written. NaN and infinity pass through; denormals are kept.
#include "common.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 tiled
#endif
#ifndef BM
#define BM 64 // rows of C per block
#endif
#ifndef BN
#define BN 128 // columns of C per block
#endif
#ifndef BK
#define BK 16 // step along K
#endif
#ifndef TM
#define TM 8 // rows of C per thread, multiple of 4
#endif
#ifndef TN
#define TN 8 // columns of C per thread, multiple of 4
#endif
#ifndef PAD
#define PAD 4 // floats added to each row of the staged A
#endif
#ifndef SWIZZLE
#define SWIZZLE 0 // 0 none, 1 xor: spreads the stores of the transposed A over the banks
#endif
#ifndef VEC
#define VEC 1 // floats per global access; divides N and K
#endif
#ifndef STAGES
#define STAGES 2 // 1: load, wait, compute; 2: load the next step while this one is computed
#endif
#ifndef SPLIT_K
#define SPLIT_K 1 // blocks that share one tile of C
#endif
#ifndef UNROLL
#define UNROLL 16 // lines of the staged tiles per turn of the inner loop, at most BK
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 2 // blocks per multiprocessor that the compiler must leave registers for
#endif

constexpr int THREADS_M = BM / TM; // threads along M and N of a tile
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = THREADS_M * THREADS_N;

static_assert(
    THREADS >= 64 && THREADS <= 512, "a block has 64 to 512 threads: (BM / TM) * (BN / TN)");
static_assert(MIN_BLOCKS * THREADS * TM * TN <= 40960,
    "the sums of MIN_BLOCKS blocks must leave registers for the rest: MIN_BLOCKS * threads * TM * "
    "TN is at most 40960");
static_assert(SWIZZLE == 0 || PAD == 0, "the staged tile is padded or swizzled, not both");
static_assert(UNROLL <= BK, "the inner loop has BK turns: UNROLL is at most BK");
static_assert(VARIANT != 0 || (BM == 64 && BN == 64 && BK == 8 && TM == 4 && TN == 4 && PAD == 0 &&
                                  SWIZZLE == 0 && VEC == 1 && STAGES == 1 && SPLIT_K == 1 &&
                                  UNROLL == 8 && MIN_BLOCKS == 1),
    "the naive variant has no tiles: it stands once in the space, with 256 threads");

#if TUNE_REFERENCE

// Reference in f64: value[m][n] = sum a*b and scale[m][n] = sum |a*b|. A block of 16 x 16 threads
// computes 32 x 32 elements, 2 x 2 per thread, one 32-wide step of K at a time.
extern "C" __global__ void __launch_bounds__(256)
    gemm_reference(const float *__restrict__ A, // [M][K]
        const float *__restrict__ B,            // [K][N]
        double *__restrict__ value,             // [M][N]
        double *__restrict__ scale,             // [M][N]
        i64 M, i64 N, i64 K)
{
    __shared__ float a[32][33], b[32][33];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const i64 tiles_n = ceildiv(N, 32);
    const i64 row = blockIdx.x / tiles_n * 32, col = blockIdx.x % tiles_n * 32;
    double sum[2][2] = {}, sum_abs[2][2] = {};
    for (i64 k0 = 0; k0 < K; k0 += 32) {
        for (int i = threadIdx.x; i < 32 * 32; i += 256) {
            const int r = i / 32, c = i % 32;
            a[r][c] = row + r < M && k0 + c < K ? A[(row + r) * K + k0 + c] : 0.0f;
            b[r][c] = k0 + r < K && col + c < N ? B[(k0 + r) * N + col + c] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 32; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) {
                    const double p = (double)a[y + 16 * i][k] * (double)b[k][x + 16 * j];
                    sum[i][j] += p;
                    sum_abs[i][j] += p < 0 ? -p : p;
                }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            const i64 r = row + y + 16 * i, c = col + x + 16 * j;
            if (r < M && c < N) {
                value[r * N + c] = sum[i][j];
                scale[r * N + c] = sum_abs[i][j];
            }
        }
}

#elif VARIANT == 0

// Thread t of the grid computes element t of C, counted along the rows.
extern "C" __global__ void __launch_bounds__(THREADS) gemm(const float *__restrict__ A, // [M][K]
    const float *__restrict__ B,                                                        // [K][N]
    float *__restrict__ C,                                                              // [M][N]
    float *, i64 M, i64 N, i64 K)
{
    const i64 index = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (index >= M * N)
        return;
    const i64 row = index / N, col = index % N;
    float sum = 0.0f;
    for (i64 k = 0; k < K; k++)
        sum += A[row * K + k] * B[k * N + col];
    C[index] = sum;
}

#else

constexpr int LDA = BM + PAD;      // row length of the staged A, which is [BK][BM]
constexpr int A_FLOATS = BK * LDA; // one stage in shared memory: A, then B
constexpr int STAGE_FLOATS = A_FLOATS + BK * BN;
constexpr int STEP_M = 4 * THREADS_M; // distance of a thread's groups of 4 rows
constexpr int STEP_N = 4 * THREADS_N; // and columns
constexpr int A_VECS = BM * BK / VEC; // accesses per stage of the whole block
constexpr int B_VECS = BK * BN / VEC;
constexpr int A_LOADS = (int)ceildiv(A_VECS, THREADS); // and per thread
constexpr int B_LOADS = (int)ceildiv(B_VECS, THREADS);

// A thread's share of a step, on its way from global to shared memory.
struct step {
    float a[A_LOADS][VEC], b[B_LOADS][VEC];
};

// Column of row m in line k of the staged A. Lanes that store together differ in k by VEC; the xor
// sends each to other banks and keeps groups of 4 rows whole.
__device__ inline int swizzled(int k, int m)
{
    return SWIZZLE ? m ^ ((k / VEC * (32 * VEC / BK)) & 28 & (BM - 4)) : m;
}

// Where a thread reads. Its further accesses of a step lie a constant number of rows and columns
// from its first one: of THREADS and the accesses that make a row, one divides the other.
struct source {
    const float *at; // the first access of the current step
    i64 row_floats;  // length of a row of the matrix
    int lines;       // from the first access to the end: rows of A's tile, columns of B's
    int k;           // of the first access within the step
};

constexpr int A_ROW_VECS = BK / VEC, B_ROW_VECS = BN / VEC;

__device__ inline struct source source_a(const float *A, i64 row0, i64 k_begin, i64 M, i64 K)
{
    const int row = threadIdx.x / A_ROW_VECS, k = threadIdx.x % A_ROW_VECS * VEC;
    return {A + (row0 + row) * K + k_begin + k, K, (int)least(M - row0, BM) - row, k};
}

__device__ inline struct source source_b(const float *B, i64 col0, i64 k_begin, i64 N)
{
    const int k = threadIdx.x / B_ROW_VECS, col = threadIdx.x % B_ROW_VECS * VEC;
    return {B + (k_begin + k) * N + col0 + col, N, (int)least(N - col0, BN) - col, k};
}

// Reads a step, of which k_left lines along K exist, and moves on to the next; what lies outside of
// the matrices is zero.
__device__ inline void fetch(struct step &step, struct source &a, struct source &b, int k_left)
{
#pragma unroll
    for (int i = 0; i < A_LOADS; i++) {
        const int row = i * THREADS / A_ROW_VECS;
        const bool is_mine = A_VECS % THREADS == 0 || threadIdx.x + i * THREADS < A_VECS;
        if (is_mine && row < a.lines && a.k < k_left)
            load(step.a[i], a.at + row * a.row_floats);
        else
            for (float &zero : step.a[i])
                zero = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < B_LOADS; i++) {
        const int k = i * THREADS / B_ROW_VECS, col = i * THREADS % B_ROW_VECS * VEC;
        const bool is_mine = B_VECS % THREADS == 0 || threadIdx.x + i * THREADS < B_VECS;
        if (is_mine && col < b.lines && b.k + k < k_left)
            load(step.b[i], b.at + k * b.row_floats + col);
        else
            for (float &zero : step.b[i])
                zero = 0.0f;
    }
    a.at += BK;
    b.at += BK * b.row_floats;
}

// Writes it to a stage of shared memory.
__device__ inline void stash(const struct step &step, float *stage)
{
#pragma unroll
    for (int i = 0; i < A_LOADS; i++) {
        const int v = threadIdx.x + i * THREADS;
        const int m = v / A_ROW_VECS, k = v % A_ROW_VECS * VEC;
        if (A_VECS % THREADS == 0 || v < A_VECS)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                stage[(k + j) * LDA + swizzled(k + j, m)] = step.a[i][j];
    }
#pragma unroll
    for (int i = 0; i < B_LOADS; i++) {
        const int v = threadIdx.x + i * THREADS;
        if (B_VECS % THREADS == 0 || v < B_VECS)
            store(stage + A_FLOATS + v * VEC, step.b[i]);
    }
}

// sums += staged A * staged B, for the thread's rows from m0 and columns from n0.
__device__ inline void multiply(float (&sums)[TM][TN], const float *stage, int m0, int n0)
{
#pragma unroll UNROLL
    for (int k = 0; k < BK; k++) {
        float a[TM / 4][4], b[TN / 4][4];
#pragma unroll
        for (int g = 0; g < TM / 4; g++) {
            const float *from = stage + k * LDA + swizzled(k, m0 + g * STEP_M);
            if constexpr (PAD % 4 == 0)
                load(a[g], from);
            else
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[g][i] = from[i];
        }
#pragma unroll
        for (int g = 0; g < TN / 4; g++)
            load(b[g], stage + A_FLOATS + k * BN + n0 + g * STEP_N);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                sums[i][j] += a[i / 4][i % 4] * b[j / 4][j % 4];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    gemm(const float *__restrict__ A, // [M][K]
        const float *__restrict__ B,  // [K][N]
        float *__restrict__ C,        // [M][N]
        float *__restrict__ partial,  // [SPLIT_K][M][N], unused when SPLIT_K is 1
        i64 M, i64 N, i64 K)
{
    extern __shared__ float4 shared[]; // STAGES stages; float4 for its alignment
    float *const stages = reinterpret_cast<float *>(shared);

    // Block number -> split, then tile, along the rows.
    const i64 tiles_n = ceildiv(N, BN), tiles = ceildiv(M, BM) * tiles_n;
    const i64 split = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const i64 row0 = tile / tiles_n * BM, col0 = tile % tiles_n * BN;
    const i64 span = ceildiv(ceildiv(K, BK), SPLIT_K) * BK; // of K, per split
    const i64 k_begin = split * span, k_end = least(K, k_begin + span);

    // Thread number -> its first row and column in the tile.
    const int m0 = threadIdx.x / THREADS_N * 4, n0 = threadIdx.x % THREADS_N * 4;

    struct source a = source_a(A, row0, k_begin, M, K), b = source_b(B, col0, k_begin, N);
    struct step step;
    float sums[TM][TN] = {};
    if constexpr (STAGES == 1) {
        for (i64 k0 = k_begin; k0 < k_end; k0 += BK) {
            fetch(step, a, b, (int)least(k_end - k0, BK));
            stash(step, stages);
            __syncthreads();
            multiply(sums, stages, m0, n0);
            __syncthreads();
        }
    } else {
        int stage = 0;
        if (k_begin < k_end)
            fetch(step, a, b, (int)least(k_end - k_begin, BK));
        for (i64 k0 = k_begin; k0 < k_end; k0 += BK) {
            // The other stage was last read before the previous step's barrier.
            stash(step, stages + stage);
            __syncthreads();
            if (k0 + BK < k_end)
                fetch(step, a, b, (int)least(k_end - k0 - BK, BK));
            multiply(sums, stages + stage, m0, n0);
            stage ^= STAGE_FLOATS;
        }
    }

    float *const out = SPLIT_K == 1 ? C : partial + split * M * N;
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const i64 row = row0 + m0 + i / 4 * STEP_M + i % 4;
#pragma unroll
        for (int j = 0; j < TN; j += VEC) {
            const i64 col = col0 + n0 + j / 4 * STEP_N + j % 4;
            if (row < M && col < N)
                store(out + row * N + col, reinterpret_cast<float(&)[VEC]>(sums[i][j]));
        }
    }
}

#endif

#if !TUNE_REFERENCE

// C[i] = sum of partial[s][i] over the splits, s ascending.
extern "C" __global__ void __launch_bounds__(256)
    gemm_sum(const float *__restrict__ partial, // [SPLIT_K][count]
        float *__restrict__ C,                  // [count]
        i64 count)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index >= count)
        return;
    float sum = 0.0f;
    for (int s = 0; s < SPLIT_K; s++)
        sum += partial[s * count + index];
    C[index] = sum;
}

#endif
