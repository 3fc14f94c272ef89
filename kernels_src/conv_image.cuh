// What the convolutions of an image share beside conv.cuh: a block has a tile of y, a thread a
// strip of COLS columns and ROWS rows of it, which it walks down.
#pragma once
#include "conv.cuh"

#ifndef BLOCK_X
#define BLOCK_X 32 // threads along a row
#endif
#ifndef BLOCK_Y
#define BLOCK_Y 4 // threads along a column
#endif
#ifndef COLS
#define COLS 4 // columns of y per thread
#endif
#ifndef ROWS
#define ROWS 16 // rows of y per thread
#endif
#ifndef BATCH
#define BATCH 2 // rows that a thread reads before it uses them
#endif

constexpr int THREADS = BLOCK_X * BLOCK_Y;
constexpr int TILE_H = BLOCK_Y * ROWS, TILE_W = BLOCK_X * COLS; // of y, for a block

static_assert(
    THREADS >= 128 && THREADS <= 256, "a block has 128 to 256 threads: BLOCK_X * BLOCK_Y");
static_assert(VEC <= COLS, "an access is not wider than a thread's columns: VEC is at most COLS");

struct image_place {
    i64 row, col;
};

// Where the block's tile begins, if a thread has `rows` x `cols` elements: tiles are numbered along
// the rows.
template <int rows, int cols> __device__ inline image_place tile_of_block(i64 W)
{
    const i64 tiles_w = ceildiv(W, BLOCK_X * cols);
    return {blockIdx.x / tiles_w * (BLOCK_Y * rows), blockIdx.x % tiles_w * (BLOCK_X * cols)};
}

// Where the thread's elements of it begin. Rows are added up before they are multiplied: the other
// way round the pass along the rows takes two registers more.
template <int rows, int cols> __device__ inline image_place strip_of_thread(i64 W)
{
    const image_place thread = tile_of_block<1, cols>(W);
    return {(thread.row + threadIdx.x / BLOCK_X) * rows, thread.col + threadIdx.x % BLOCK_X * cols};
}
