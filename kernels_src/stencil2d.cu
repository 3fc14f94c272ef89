// STEPS Jacobi steps of the 5-point stencil on a grid of H rows and W columns, row-major, f32:
//   next(y, x) = (1 - 4 w) u(y, x) + w (u(y, x-1) + u(y, x+1) + u(y-1, x) + u(y+1, x))
// for inner cells; the cells of the border keep their value (Dirichlet). in holds step 0, out gets
// step STEPS. A launch does STEPS_PER_LAUNCH steps, and STEPS is a multiple of it.
//
// VARIANT 0 (naive): one thread per cell, neighbours from L1 and L2; 256 threads.
// VARIANT 1 (tiled): a block stages its cells and their halo in shared memory: each element is read
//   from global memory once per block. BLOCK threads hold a tile of 32 columns and
//   BLOCK / 32 * ROWS rows.
// VARIANT 2 (march): no shared memory. A warp walks down SLAB rows of a strip, ROWS at a time; the
//   rows above and below are in registers, the columns beside a lane's VEC come by shuffles, and
//   the next ROWS rows are under way meanwhile. The outer lanes carry only the halo.
// VARIANT 3 (temporal): as 2, but the rows that step s completes go on to step s + 1 within the
//   same walk: 2 to 4 steps for one reading and one writing of the grid, paid for with a halo that
//   is as many cells wide, computed twice.
//
// VEC divides W. Every variant adds the same terms in the same order for a cell: results are
// deterministic. NaN and infinity spread to the neighbours as the formula says; denormals are kept.
#include "stencil.cuh"

#ifndef VARIANT
#define VARIANT 2 // 0 naive, 1 tiled, 2 march, 3 temporal
#endif
#ifndef BLOCK
#define BLOCK 128 // threads per block
#endif
#ifndef VEC
#define VEC 4 // neighbouring cells of a row that a thread holds; one access
#endif
#ifndef ROWS
#define ROWS 4 // rows per thread (tiled), or rows read at a time (march, temporal)
#endif
#ifndef SLAB
#define SLAB 64 // rows that a warp walks
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 4 // blocks per multiprocessor that the registers must allow
#endif

static_assert(VARIANT != 0 || (BLOCK == 256 && VEC == 1 && ROWS == 1 && SLAB == 32),
    "the naive variant has 256 threads and one cell per thread: it stands once in the space");
static_assert(VARIANT != 1 || (VEC == 1 && SLAB == 32),
    "the tiled variant moves single floats and walks no slab");
static_assert(
    VARIANT < 2 || ROWS >= 2, "a walk reads at least two rows at a time: ROWS is 2 or more");
static_assert((VARIANT == 3) == (STEPS_PER_LAUNCH > 1),
    "the temporal variant, and no other, does several steps in a launch");
static_assert(
    VARIANT < 2 ? MIN_BLOCKS == 1 : BLOCK * MIN_BLOCKS == 512 || BLOCK * MIN_BLOCKS == 1024,
    "a walk leaves registers for 512 or 1024 threads per multiprocessor: BLOCK * MIN_BLOCKS");
static_assert(VARIANT >= 2 || STREAM == 0, "only walks store with a hint");

#if TUNE_REFERENCE

// One step in f64, one thread per cell.
extern "C" __global__ void __launch_bounds__(256)
    stencil2d_reference(const float *__restrict__ in, // [H][W]
        double *value, double *value_other,           // [H][W] each
        float *scale, float *scale_other,             // [H][W] each
        i64 H, i64 W, double w, int step, int steps)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index >= H * W)
        return;
    const i64 y = index / W, x = index % W;
    const bool is_border = y == 0 || y == H - 1 || x == 0 || x == W - 1;
    const i64 offset[5] = {0, -1, 1, -W, W};
    reference_cell cell(in, value, value_other, scale, scale_other, step, steps);
    for (int i = 0; i < (is_border ? 1 : 5); i++)
        cell.add(is_border ? 1 : i == 0 ? 1 - 4 * w : w, index + offset[i]);
    cell.write(index);
}

#else

__device__ inline float next_value(
    float centre, float left, float right, float up, float down, float w)
{
    return (1.0f - 4.0f * w) * centre + w * ((left + right) + (up + down));
}

#if VARIANT < 2

constexpr int TILE_X = 32, TILE_Y = BLOCK / 32 * ROWS; // cells of a block

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    stencil2d(const float *__restrict__ in, // [H][W]
        float *__restrict__ out,            // [H][W]
        float *__restrict__ other,          // [H][W], unused in a single launch
        i64 H, i64 W, float w, int launch, int launches)
{
    const auto [from, to] = step_buffers_of(in, out, other, launch, launches);
    const i64 tiles = ceildiv(W, TILE_X);
    const i64 x0 = blockIdx.x % tiles * TILE_X, y0 = blockIdx.x / tiles * TILE_Y;
    const i64 x = x0 + threadIdx.x % 32;
#if VARIANT == 1
    constexpr int WIDTH = TILE_X + 2;
    __shared__ float tile[(TILE_Y + 2) * WIDTH];
    for (int i = threadIdx.x; i < (TILE_Y + 2) * WIDTH; i += BLOCK) {
        const i64 row = y0 + i / WIDTH - 1, col = x0 + i % WIDTH - 1;
        if (row >= 0 && row < H && col >= 0 && col < W)
            tile[i] = from[row * W + col];
    }
    __syncthreads();
#endif
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = threadIdx.x / 32 + i * (BLOCK / 32);
        const i64 y = y0 + row;
        if (y >= H || x >= W)
            break;
#if VARIANT == 1
        const float *const u = tile + (row + 1) * WIDTH + threadIdx.x % 32 + 1;
        constexpr int down = WIDTH;
#else
        const float *const u = from + y * W + x;
        const i64 down = W;
#endif
        const bool is_border = y == 0 || y == H - 1 || x == 0 || x == W - 1;
        const float value = is_border ? u[0] : next_value(u[0], u[-1], u[1], u[-down], u[down], w);
        to[y * W + x] = value;
    }
}

#else

constexpr int HALO_LANES = (int)ceildiv(STEPS_PER_LAUNCH, VEC); // on each side of a warp
constexpr int STRIP = (32 - 2 * HALO_LANES) * VEC;              // columns that a warp writes

// What a lane knows of its walk. Rows are counted from the first that it writes.
struct lane_walk {
    const float *from; // the first of the lane's cells in row 0 of the walk
    float *to;
    i64 W;
    int read_begin, read_end; // rows that are there: the lane's, inside the grid
    int count;                // rows that are written; 0 for a lane that carries the halo
    int top, bottom;          // the border rows of the grid, where the walk meets them
    bool is_border[VEC];      // border columns
};

__device__ inline lane_walk walk_of(
    const float *from, float *to, i64 strip, i64 y0, const i64 H, const i64 W)
{
    constexpr int NOWHERE = SLAB + STEPS_PER_LAUNCH + ROWS + 1; // further than a walk reaches
    const int lane = threadIdx.x % 32;
    const i64 x = strip * STRIP + (lane - HALO_LANES) * VEC;
    const bool is_inside = x >= 0 && x < W; // VEC divides W: all of the lane's cells or none
    lane_walk walk;
    walk.from = from + y0 * W + x;
    walk.to = to + y0 * W + x;
    walk.W = W;
    walk.read_begin = y0 == 0 ? 0 : -STEPS_PER_LAUNCH;
    walk.read_end = is_inside ? (int)least(H - y0, SLAB + STEPS_PER_LAUNCH) : -NOWHERE;
    walk.count =
        is_inside && lane >= HALO_LANES && lane < 32 - HALO_LANES ? (int)least(H - y0, SLAB) : 0;
    walk.top = y0 == 0 ? 0 : -NOWHERE;
    walk.bottom = (int)least(H - 1 - y0, NOWHERE);
#pragma unroll
    for (int j = 0; j < VEC; j++)
        walk.is_border[j] = x + j == 0 || x + j == W - 1;
    return walk;
}

// Rows row .. row + ROWS; what lies outside is never used and stays as it is.
__device__ inline void read_rows(float (&rows)[ROWS][VEC], const lane_walk &walk, int row)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (row + i >= walk.read_begin && row + i < walk.read_end)
            load(rows[i], walk.from + (row + i) * walk.W);
}

// One step of a row, from it and the rows above and below. A border cell is copied.
__device__ inline void step_row(float (&next)[VEC], const float (&up)[VEC],
    const float (&centre)[VEC], const float (&down)[VEC], const lane_walk &walk, int row, float w)
{
    const float left = __shfl_up_sync(0xffffffffu, centre[VEC - 1], 1);
    const float right = __shfl_down_sync(0xffffffffu, centre[0], 1);
    const bool is_border_row = row == walk.top || row == walk.bottom;
#pragma unroll
    for (int j = 0; j < VEC; j++) {
        const float value = next_value(centre[j], j > 0 ? centre[j - 1] : left,
            j < VEC - 1 ? centre[j + 1] : right, up[j], down[j], w);
        next[j] = is_border_row || walk.is_border[j] ? centre[j] : value;
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    stencil2d(const float *__restrict__ in, // [H][W]
        float *__restrict__ out,            // [H][W]
        float *__restrict__ other,          // [H][W], unused in a single launch
        i64 H, i64 W, float w, int launch, int launches)
{
    constexpr int S = STEPS_PER_LAUNCH;
    const auto [from, to] = step_buffers_of(in, out, other, launch, launches);
    const i64 strips = ceildiv(W, STRIP);
    const i64 task = (i64)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    const i64 y0 = task / strips * SLAB;
    if (y0 >= H)
        return;
    const lane_walk walk = walk_of(from, to, task % strips, y0, H, W);
    const int end = (int)least(H - y0, SLAB);

    float before[S][2][VEC] = {}; // of each step the two rows before `rows`
    float rows[ROWS][VEC], coming[ROWS][VEC] = {};
    read_rows(coming, walk, -S);
    for (int row = -S; row < end + S; row += ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                rows[i][j] = coming[i][j];
        read_rows(coming, walk, row + ROWS);
#pragma unroll
        for (int s = 0; s < S; s++) { // rows: those from row - s on, after s steps
            float next[ROWS][VEC];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                step_row(next[i], i < 2 ? before[s][i] : rows[i - 2],
                    i < 1 ? before[s][1] : rows[i - 1], rows[i], walk, row - s - 1 + i, w);
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                before[s][0][j] = rows[ROWS - 2][j];
                before[s][1][j] = rows[ROWS - 1][j];
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    rows[i][j] = next[i][j];
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int done = row - S + i;
            if (done < 0 || done >= walk.count)
                continue;
            store_whole<STREAM>(walk.to + done * W, rows[i]);
        }
    }
}

#endif
#endif
