// y[i][j] = sum over a, b of column_filter[a] * row_filter[b] * x[i + a - K/2][j + b - K/2],
// row-major, f32 by IEEE fused multiply-add: a K x K filter that is a product of two of K elements
// over an image of one channel, in 2 K products per element in place of K * K (a correlation: no
// filter is turned round). BORDER says what x is beyond its edges. An even K has one row and column
// more before the middle than after it.
//
// VARIANT 0 (naive): a pass along the rows writes to scratch, one along the columns to y; one
//   thread per element, the filters in global memory.
// VARIANT 1 (two_pass): the same two passes with the filters beside the FMA units and COLS columns
//   per thread; in the column pass it walks down ROWS rows, and a value that it reads is used for
//   all K rows of y that need it, whose sums stand in registers and move on by one row at a step.
// VARIANT 2 (tiled): one kernel; the block copies its tile of x with a halo to shared memory, the
//   rows' sums go to shared memory too.
// VARIANT 3 (fused): one kernel without shared memory; a thread walks down its strip, takes the
//   window of a row from global memory (L1 holds what neighbours share), and hands the rows' sums
//   to the columns' in registers.
//
// Every variant is deterministic. NaN and infinity pass through, a zero beyond the edge times an
// infinite tap included, but for rows above and below in naive and two_pass, whose sums are zeros;
// denormals are kept.
#include "conv_image.cuh"

#ifndef VARIANT
#define VARIANT 3 // 0 naive, 1 two_pass, 2 tiled, 3 fused
#endif

static_assert(VARIANT != 0 || (BLOCK_X == 32 && BLOCK_Y == 8 && COLS == 1 && ROWS == 1 &&
                                  VEC == 1 && BATCH == 1 && TAPS == 0 && MIN_BLOCKS == 1),
    "naive stands once in the space");
static_assert(VARIANT == 0 || ROWS > 1, "all but naive compute several rows per thread");
static_assert(VARIANT != 2 || BATCH == 1, "tiled does not wait for global memory at each row");

#if TUNE_REFERENCE

extern "C" __global__ void __launch_bounds__(256)
    conv_separable_reference(const float *__restrict__ x, // [H][W]
        const float *__restrict__ row_filter,             // [K]
        const float *__restrict__ column_filter,          // [K]
        double *__restrict__ value,                       // [H][W]
        double *__restrict__ scale,                       // [H][W]
        i64 H, i64 W)
{
    reference_image<K>(
        x, [&](i64 a, i64 b) { return (double)column_filter[a] * row_filter[b]; }, value, scale, H,
        W);
}

#else

#if VARIANT != 1

// The pass along the rows of naive; others than two_pass do without.
extern "C" __global__ void __launch_bounds__(THREADS)
    conv_separable_rows(const float *__restrict__ x, // [H][W]
        const float *__restrict__ row_filter,        // [K]
        float *__restrict__ sums,                    // [H][W]
        i64 H, i64 W)
{
    const auto [i, j] = strip_of_thread<1, 1>(W);
    if (i >= H || j >= W)
        return;
    float sum = 0.0f;
    for (i64 b = 0; b < K; b++)
        sum += row_filter[b] * element<BORDER>(x + i * W, j + b - BEFORE, W);
    sums[i * W + j] = sum;
}

#endif

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(THREADS)
    conv_separable(const float *__restrict__ sums, // [H][W]
        const float *,
        const float *__restrict__ column_filter, // [K]
        float *__restrict__ y,                   // [H][W]
        i64 H, i64 W)
{
    const auto [i, j] = strip_of_thread<1, 1>(W);
    if (i >= H || j >= W)
        return;
    float sum = 0.0f;
    for (i64 a = 0; a < K; a++) {
        const i64 row = bordered<BORDER>(i + a - BEFORE, H);
        sum += column_filter[a] * (row < 0 ? 0.0f : sums[row * W + j]);
    }
    y[i * W + j] = sum;
}

#else

extern "C" {
__constant__ float row_taps[K]; // the filters, copied here before the launches
__constant__ float column_taps[K];
}

// What a thread reads of a row of x: its columns and those around them, in whole vectors. In
// shared memory vectors are as wide as the columns allow, whatever x is aligned to.
constexpr int WIDTH = VARIANT != 2 ? VEC : COLS < 4 ? COLS : 4;
constexpr int LEFT = round_up(BEFORE, WIDTH), RIGHT = round_up(AFTER, WIDTH);
constexpr int WINDOW = LEFT + COLS + RIGHT;

// sums[c] = the row's sum for column c
__device__ inline void sum_row(
    float (&sums)[COLS], const float (&window)[WINDOW], const filter_taps<K> &taps)
{
#pragma unroll
    for (int b = 0; b < K; b++)
#pragma unroll
        for (int c = 0; c < COLS; c++)
            sums[c] = taps.at(b) * window[LEFT - BEFORE + b + c] + (b > 0 ? sums[c] : 0.0f);
}

// Adds a row to the sums of the columns: sums[a] takes over the sum that filter element a - 1 left
// in the step before, so that sums[K - 1] is complete.
__device__ inline void add_row(
    float (&sums)[K][COLS], const float (&row)[COLS], const filter_taps<K> &taps)
{
#pragma unroll
    for (int a = K - 1; a >= 0; a--)
#pragma unroll
        for (int c = 0; c < COLS; c++)
            sums[a][c] = taps.at(a) * row[c] + (a > 0 ? sums[a - 1][c] : 0.0f);
}

#if VARIANT == 1

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv_separable_rows(const float *__restrict__ x, // [H][W]
        const float *__restrict__ row_filter,        // [K], read when TAPS is 1
        float *__restrict__ sums,                    // [H][W]
        i64 H, i64 W)
{
    const auto [row0, col0] = strip_of_thread<BATCH, COLS>(W);
    if (row0 >= H || col0 >= W)
        return;
    const filter_taps<K> taps(row_taps, row_filter);
    float window[BATCH][WINDOW];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
        if (row0 + i < H)
            read_window<BORDER, VEC>(window[i], x + (row0 + i) * W, col0 - LEFT, W);
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        float row[COLS];
        sum_row(row, window[i], taps);
        if (row0 + i < H)
            write_row<VEC>(sums + (row0 + i) * W, col0, W, row);
    }
}

#endif

// What a thread reads of a row at each step of its walk: the window of x, or its columns of the
// rows' sums where those stand in memory.
constexpr int STEP_FLOATS = VARIANT == 3 ? WINDOW : COLS;

#if VARIANT == 2

constexpr int SPAN_H = TILE_H + K - 1, SPAN_W = TILE_W + LEFT + RIGHT; // of x, with the halo

// of_rows[r][c] = the rows' sums of the tile of x.
__device__ inline void sum_tile(
    float *of_rows, const float *tile, int col, const filter_taps<K> &taps)
{
    for (int r = threadIdx.x / BLOCK_X; r < SPAN_H; r += BLOCK_Y) {
        float window[WINDOW], row[COLS];
        copy_floats<WIDTH, WINDOW>(window, tile + r * SPAN_W + col);
        sum_row(row, window, taps);
#pragma unroll
        for (int j = 0; j < COLS; j += WIDTH)
            store(of_rows + r * TILE_W + col + j, reinterpret_cast<float(&)[WIDTH]>(row[j]));
    }
}

#endif

// Reads what a thread needs of row `row` of x (or of the rows' sums), any row; one that does not
// exist is a zero.
__device__ inline void read_step(
    float (&floats)[STEP_FLOATS], const float *x, i64 row, i64 col0, i64 H, i64 W)
{
    if constexpr (VARIANT == 3)
        read_window<BORDER, BORDER, VEC>(floats, x, row, col0 - LEFT, H, W);
    else
        read_window<BORDER, BORDER_ZERO, VEC>(floats, x, row, col0, H, W);
}

// A block's tile of y: from the rows' sums at x if VARIANT is 1, else from x itself.
__device__ inline void walk(const float *__restrict__ x, const float *__restrict__ row_filter,
    const float *__restrict__ column_filter, float *__restrict__ y, i64 H, i64 W)
{
    const auto [tile_row, tile_col] = tile_of_block<ROWS, COLS>(W);
    const int strip = threadIdx.x / BLOCK_X * ROWS, col = threadIdx.x % BLOCK_X * COLS;
    const i64 row0 = tile_row + strip, col0 = tile_col + col; // the thread's first element of y
    const filter_taps<K> row_of(row_taps, row_filter), column_of(column_taps, column_filter);
#if VARIANT == 2
    extern __shared__ float4 shared[]; // [SPAN_H][SPAN_W] of x, [SPAN_H][TILE_W] of the rows' sums
    float *const tile = reinterpret_cast<float *>(shared), *const of_rows = tile + SPAN_H * SPAN_W;
    read_tile<BORDER, VEC, THREADS, SPAN_H, SPAN_W>(
        tile, x, tile_row - BEFORE, tile_col - LEFT, H, W, AFTER);
    __syncthreads();
    sum_tile(of_rows, tile, col, row_of);
    __syncthreads();
#endif
    if (row0 >= H || col0 >= W)
        return;

    // Rows until the last row of y that exists is complete.
    const int rows = (int)least(ROWS, H - row0) + K - 1;
    float sums[K][COLS] = {};
#pragma unroll 1
    for (int r0 = 0; r0 < rows; r0 += BATCH) {
        float floats[BATCH][STEP_FLOATS];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int r = min(r0 + i, rows - 1); // beyond the last one any row will do
#if VARIANT == 2
            copy_floats<WIDTH, COLS>(floats[i], of_rows + (strip + r) * TILE_W + col);
#else
            read_step(floats[i], x, row0 + r - BEFORE, col0, H, W);
#endif
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int r = r0 + i; // completes row r - (K - 1) of y
#if VARIANT == 3
            float row[COLS];
            sum_row(row, floats[i], row_of);
            add_row(sums, row, column_of);
#else
            add_row(sums, floats[i], column_of);
#endif
            if (r >= K - 1 && r < rows)
                write_row<VEC>(y + (row0 + r - (K - 1)) * W, col0, W, sums[K - 1]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv_separable(const float *__restrict__ x,  // [H][W]; the rows' sums if VARIANT is 1
        const float *__restrict__ row_filter,    // [K], read when TAPS is 1
        const float *__restrict__ column_filter, // [K], read when TAPS is 1
        float *__restrict__ y,                   // [H][W]
        i64 H, i64 W)
{
    walk(x, row_filter, column_filter, y, H, W);
}

#endif
#endif
