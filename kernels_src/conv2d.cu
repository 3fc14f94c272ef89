// y[i][j] = sum over a, b of filter[a][b] * x[i + a - K/2][j + b - K/2], row-major, f32 by IEEE
// fused multiply-add: a K x K filter over an image of one channel (a correlation: the filter is
// not turned round). BORDER says what x is beyond its edges. An even K has one row and column more
// before the middle than after it.
//
// VARIANT 0 (naive): one thread per element of y, the filter in global memory.
// VARIANT 1 (constant): the same, the filter in constant memory.
// VARIANT 2 (tiled): the block first copies its tile of x with a halo to shared memory.
// VARIANT 3 (coarsened): as 2, and a thread computes ROWS x COLS elements of y. It walks down its
//   strip, BATCH rows of x at a time; each is used for all K rows of y that need it, whose sums
//   stand in registers and move on at each step, and for all COLS columns.
// VARIANT 4 (cached): as 3, without a tile: the window of a row comes from global memory, where L1
//   holds what neighbouring threads share.
// 3 and 4 keep K * COLS sums and are bound by the FMA units for a large K; then a filter row that
// reaches no row of the strip is left out (SKIP).
//
// Every variant is deterministic. NaN and infinity pass through, a zero beyond the edge times an
// infinite tap included; denormals are kept.
#include "conv_image.cuh"

#ifndef VARIANT
#define VARIANT 4 // 0 naive, 1 constant, 2 tiled, 3 coarsened, 4 cached
#endif
#ifndef SKIP
#define SKIP 0 // 1: filter rows that reach no row of the strip are left out
#endif

static_assert(VARIANT >= 3 || (COLS == 1 && ROWS == 1 && VEC == 1 && BATCH == 1 && TAPS == 0 &&
                                  SKIP == 0 && MIN_BLOCKS == 1),
    "naive, constant and tiled compute one element of y per thread");
static_assert(VARIANT < 3 || ROWS > 1, "coarsened and cached compute several rows per thread");
static_assert(VARIANT != 0 || (BLOCK_X == 32 && BLOCK_Y == 8), "naive stands once in the space");

#if TUNE_REFERENCE

extern "C" __global__ void __launch_bounds__(256)
    conv2d_reference(const float *__restrict__ x, // [H][W]
        const float *__restrict__ filter,         // [K][K]
        double *__restrict__ value,               // [H][W]
        double *__restrict__ scale,               // [H][W]
        i64 H, i64 W)
{
    reference_image<K>(
        x, [&](i64 a, i64 b) { return (double)filter[a * K + b]; }, value, scale, H, W);
}

#else

#if VARIANT != 0
extern "C" {
__constant__ float taps[K * K]; // the filter, copied here before the launch
}
#endif

#if VARIANT <= 1

extern "C" __global__ void __launch_bounds__(THREADS) conv2d(const float *__restrict__ x, // [H][W]
    const float *__restrict__ filter,                                                     // [K][K]
    float *__restrict__ y,                                                                // [H][W]
    i64 H, i64 W)
{
    const auto [i, j] = strip_of_thread<1, 1>(W);
    if (i >= H || j >= W)
        return;
#if VARIANT == 1
    filter = taps;
#endif
    float sum = 0.0f;
    for (i64 a = 0; a < K; a++) {
        const i64 row = bordered<BORDER>(i + a - BEFORE, H);
        for (i64 b = 0; b < K; b++)
            sum += filter[a * K + b] *
                   (row < 0 ? 0.0f : element<BORDER>(x + row * W, j + b - BEFORE, W));
    }
    y[i * W + j] = sum;
}

#else

// What a thread reads of a row of x: its columns and those around them, in whole vectors. In
// shared memory vectors are as wide as the columns allow, whatever x is aligned to.
constexpr int WIDTH = VARIANT == 4 ? VEC : COLS < 4 ? COLS : 4;
constexpr int LEFT = round_up(BEFORE, WIDTH), RIGHT = round_up(AFTER, WIDTH);

#if VARIANT <= 3

constexpr int SPAN_H = TILE_H + K - 1, SPAN_W = TILE_W + LEFT + RIGHT; // of x, with the halo

#endif

#if VARIANT == 2

extern "C" __global__ void __launch_bounds__(THREADS) conv2d(const float *__restrict__ x, // [H][W]
    const float *,
    float *__restrict__ y, // [H][W]
    i64 H, i64 W)
{
    extern __shared__ float tile[]; // [SPAN_H][SPAN_W]
    const auto [row0, col0] = tile_of_block<1, 1>(W);
    const int r = threadIdx.x / BLOCK_X, c = threadIdx.x % BLOCK_X;
    read_tile<BORDER, VEC, THREADS, SPAN_H, SPAN_W>(
        tile, x, row0 - BEFORE, col0 - LEFT, H, W, AFTER);
    __syncthreads();
    float sum = 0.0f;
    for (int a = 0; a < K; a++)
#pragma unroll
        for (int b = 0; b < K; b++)
            sum += taps[a * K + b] * tile[(r + a) * SPAN_W + c + b];
    if (row0 + r < H && col0 + c < W)
        y[(row0 + r) * W + col0 + c] = sum;
}

#else

constexpr int WINDOW = LEFT + COLS + RIGHT;

// Sums that are under way: of the K - 1 rows of y that earlier rows of x have begun, and of BATCH
// new ones.
constexpr int OPEN = K + BATCH - 1;

// Adds rows r0.. of the strip's rows of x. sums[e] then belongs to row r0 + BATCH - 1 - e of y: it
// takes over what sums[e - BATCH] was, and the last BATCH are complete. Filter row a leads from row
// r0 + i of x to sums[a + BATCH - 1 - i]; each of its elements is loaded once for all of them. The
// first filter row that leads to a sum takes it over, when those below a are still the old ones.
__device__ inline void add_rows(float (&sums)[OPEN][COLS], const float (&x)[BATCH][WINDOW],
    const filter_taps<K * K> &of_filter, int r0)
{
#pragma unroll
    for (int a = K - 1; a >= 0; a--) {
        if (SKIP && (a > r0 + BATCH - 1 || a + ROWS <= r0))
            continue;
#pragma unroll
        for (int e = a == K - 1 ? OPEN - 1 : a; e >= a; e--)
#pragma unroll
            for (int c = 0; c < COLS; c++)
                sums[e][c] = e >= BATCH ? sums[e - BATCH][c] : 0.0f;
#pragma unroll
        for (int b = 0; b < K; b++)
#pragma unroll
            for (int i = 0; i < BATCH; i++)
#pragma unroll
                for (int c = 0; c < COLS; c++)
                    sums[a + BATCH - 1 - i][c] +=
                        of_filter.at(a * K + b) * x[i][LEFT - BEFORE + b + c];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv2d(const float *__restrict__ x,   // [H][W]
        const float *__restrict__ filter, // [K][K], read when TAPS is 1
        float *__restrict__ y,            // [H][W]
        i64 H, i64 W)
{
    const auto [tile_row, tile_col] = tile_of_block<ROWS, COLS>(W);
    const int strip = threadIdx.x / BLOCK_X * ROWS, col = threadIdx.x % BLOCK_X * COLS;
    const i64 row0 = tile_row + strip, col0 = tile_col + col; // the first element of y
#if VARIANT == 3
    extern __shared__ float4 shared[]; // [SPAN_H][SPAN_W]; float4 for its alignment
    float *const tile = reinterpret_cast<float *>(shared);
    read_tile<BORDER, VEC, THREADS, SPAN_H, SPAN_W>(
        tile, x, tile_row - BEFORE, tile_col - LEFT, H, W, AFTER);
    __syncthreads();
#endif
    if (row0 >= H || col0 >= W)
        return;

    const filter_taps<K * K> of_filter(taps, filter);
    // Rows of x until the last row of y that exists is complete.
    const int rows = (int)least(ROWS, H - row0) + K - 1;
    float sums[OPEN][COLS] = {};
#pragma unroll 1
    for (int r0 = 0; r0 < rows; r0 += BATCH) {
        float window[BATCH][WINDOW];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int r = min(r0 + i, rows - 1); // beyond the last one any row will do
#if VARIANT == 3
            copy_floats<WIDTH, WINDOW>(window[i], tile + (strip + r) * SPAN_W + col);
#else
            read_window<BORDER, BORDER, VEC>(window[i], x, row0 + r - BEFORE, col0 - LEFT, H, W);
#endif
        }
        add_rows(sums, window, of_filter, r0);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int r = r0 + i; // completes row r - (K - 1) of y
            if (r >= K - 1 && r < rows)
                write_row<VEC>(y + (row0 + r - (K - 1)) * W, col0, W, sums[OPEN - 1 - i]);
        }
    }
}

#endif
#endif
#endif
