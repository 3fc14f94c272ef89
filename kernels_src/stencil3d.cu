// STEPS Jacobi steps of a star stencil on a grid of D planes, H rows and W columns, row-major, f32:
//   next(z, y, x) = (1 - 6 (w1 + ... + wR)) u(z, y, x)
//                 + sum over k = 1 .. R of wk times the 6 cells that are k away along an axis
// with R = 1 for POINTS 7 and R = 4 for POINTS 25. Cells nearer than R to a face keep their value
// (Dirichlet). in holds step 0, out gets step STEPS. A launch does STEPS_PER_LAUNCH steps, and
// STEPS is a multiple of it.
//
// A block of LANES x THREADS_Y threads holds a patch of LANES * VEC columns and THREADS_Y * ROWS
// rows, a thread VEC neighbouring columns of ROWS rows, and handles SLAB planes of it:
// VARIANT 0 (naive): one thread per cell, neighbours from L1 and L2; 32 x 8 threads.
// VARIANT 1 (tiled): SLAB planes and their halo on all sides are staged in shared memory.
// VARIANT 2 (slab): the block walks through the planes. One plane at a time is in shared memory, in
//   two buffers in turn, for the neighbours within it; those before and behind are in registers: a
//   cell's last R values and the sums of its last R planes, to which each new plane adds its part.
//   The next plane is on its way to registers meanwhile.
// VARIANT 3 (async): as 2, but planes go straight to shared memory, AHEAD of them under way.
// VARIANT 4 (temporal): as 3, but the planes that step s completes are kept in shared memory too,
//   and go on to step s + 1 within the same walk. The patch's outer cells then hold only the halo:
//   what is written is STEPS_PER_LAUNCH - 1 cells smaller on each side. POINTS 7 only.
//
// VEC divides W. Every variant is deterministic; they differ in the order of a cell's additions.
// NaN and infinity spread to the neighbours as the formula says; denormals are kept.
#include "stencil.cuh"

#ifndef POINTS
#define POINTS 7 // 7 or 25
#endif
#ifndef VARIANT
#define VARIANT 3 // 0 naive, 1 tiled, 2 slab, 3 async, 4 temporal
#endif
#ifndef LANES
#define LANES 32 // threads along x
#endif
#ifndef THREADS_Y
#define THREADS_Y 8 // threads along y
#endif
#ifndef ROWS
#define ROWS 2 // rows per thread
#endif
#ifndef VEC
#define VEC 4 // columns per thread; one access
#endif
#ifndef SLAB
#define SLAB 64 // planes that a block handles
#endif
#ifndef AHEAD
#define AHEAD 3 // planes that are under way while one is worked on
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 2 // blocks per multiprocessor that the registers must allow
#endif

constexpr int R = POINTS == 7 ? 1 : 4;
constexpr int THREADS = LANES * THREADS_Y;

static_assert(POINTS == 7 || POINTS == 25, "a star of 7 or of 25 points");
static_assert(
    THREADS >= 128 && THREADS <= 512, "a block has 128 to 512 threads: LANES * THREADS_Y");
static_assert(VARIANT != 0 || (LANES == 32 && THREADS_Y == 8 && ROWS == 1 && VEC == 1 && SLAB == 1),
    "the naive variant has 32 x 8 threads and one cell per thread: it stands once in the space");
static_assert(VARIANT != 1 || SLAB == 4 || SLAB == 8,
    "the tiled variant stages all its planes at once: SLAB is 4 or 8");
static_assert(VARIANT < 2 || SLAB >= 32, "a walk is 32 planes long at least");
static_assert(
    VARIANT >= 3 || AHEAD == 1, "only async and temporal choose how many planes are under way");
static_assert((VARIANT == 4) == (STEPS_PER_LAUNCH > 1),
    "the temporal variant, and no other, does several steps in a launch");
static_assert(VARIANT == 0 || (LANES * VEC >= 32 && LANES * VEC <= 256 && THREADS_Y * ROWS >= 8 &&
                                  THREADS_Y * ROWS <= 64),
    "a patch has 32 to 256 columns and 8 to 64 rows: LANES * VEC, THREADS_Y * ROWS");
static_assert(
    VARIANT < 2 ? MIN_BLOCKS == 1 : THREADS * MIN_BLOCKS == 512 || THREADS * MIN_BLOCKS == 1024,
    "a walk leaves registers for 512 or 1024 threads per multiprocessor: LANES * THREADS_Y * "
    "MIN_BLOCKS");
static_assert(VARIANT >= 2 || STREAM == 0, "only walks store with a hint");

#if TUNE_REFERENCE

// One step in f64, one thread per cell.
extern "C" __global__ void __launch_bounds__(256)
    stencil3d_reference(const float *__restrict__ in, // [D][H][W]
        double *value, double *value_other,           // [D][H][W] each
        float *scale, float *scale_other,             // [D][H][W] each
        i64 D, i64 H, i64 W, double w1, double w2, double w3, double w4, int step, int steps)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index >= D * H * W)
        return;
    const i64 at[3] = {index / (H * W), index / W % H, index % W};
    const i64 size[3] = {D, H, W}, stride[3] = {H * W, W, 1};
    const double weights[4] = {w1, w2, w3, w4};
    bool is_border = false;
    for (int axis = 0; axis < 3; axis++)
        is_border = is_border || at[axis] < R || at[axis] >= size[axis] - R;
    reference_cell cell(in, value, value_other, scale, scale_other, step, steps);
    double centre = 1;
    for (int k = 1; k <= R && !is_border; k++) {
        centre -= 6 * weights[k - 1];
        for (int axis = 0; axis < 3; axis++) {
            cell.add(weights[k - 1], index - k * stride[axis]);
            cell.add(weights[k - 1], index + k * stride[axis]);
        }
    }
    cell.add(centre, index);
    cell.write(index);
}

#else

constexpr int S = STEPS_PER_LAUNCH;
constexpr int PATCH_X = LANES * VEC, PATCH_Y = THREADS_Y * ROWS;
constexpr int HALO_X = (int)ceildiv(R, VEC) * VEC; // whole vectors
constexpr int RIM = (S - 1) * R;                   // rows of the patch that only hold the halo
constexpr int RIM_X = (int)ceildiv(RIM, VEC) * VEC;
constexpr int TILE_X = PATCH_X - 2 * RIM_X, TILE_Y = PATCH_Y - 2 * RIM; // what a block writes

struct grid_size {
    i64 D, H, W;
};

struct weights {
    float centre, of[R]; // of the cell, and of those 1 .. R away
};

__device__ inline weights weights_of(float w1, float w2, float w3, float w4)
{
    const float all[4] = {w1, w2, w3, w4};
    weights w;
    w.centre = 1.0f;
#pragma unroll
    for (int k = 0; k < R; k++) {
        w.of[k] = all[k];
        w.centre -= 6.0f * all[k];
    }
    return w;
}

__device__ inline bool is_inner(i64 at, i64 size)
{
    return at >= R && at < size - R;
}

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(THREADS) stencil3d(
    const float *__restrict__ in, // [D][H][W]
    float *__restrict__ out,      // [D][H][W]
    float *__restrict__ other,    // [D][H][W], unused in a single launch
    i64 D, i64 H, i64 W, i64 slab, float w1, float w2, float w3, float w4, int launch, int launches)
{
    const auto [from, to] = step_buffers_of(in, out, other, launch, launches);
    const weights w = weights_of(w1, w2, w3, w4);
    const i64 tiles = ceildiv(W, TILE_X);
    const i64 x = blockIdx.x % tiles * TILE_X + threadIdx.x % LANES;
    const i64 y = blockIdx.x / tiles * TILE_Y + threadIdx.x / LANES;
    if (x >= W || y >= H)
        return;
    for (i64 z = blockIdx.y * slab; z < least(blockIdx.y * slab + slab, D); z++) {
        const i64 at = (z * H + y) * W + x;
        float sum = from[at];
        if (is_inner(z, D) && is_inner(y, H) && is_inner(x, W)) {
            sum *= w.centre;
            for (int k = 1; k <= R; k++)
                sum += w.of[k - 1] *
                       (((from[at - k] + from[at + k]) + (from[at - k * W] + from[at + k * W])) +
                           (from[at - k * H * W] + from[at + k * H * W]));
        }
        to[at] = sum;
    }
}

#else

constexpr int WIDTH = PATCH_X + 2 * HALO_X;               // of a plane in shared memory
constexpr int PLANE = (PATCH_Y + 2 * R) * WIDTH;          // its floats
constexpr int COPIES = (int)ceildiv(PLANE, VEC *THREADS); // accesses of a thread for one plane

// A thread's place: its cells begin at row y, column x of the grid and at `own` of a staged plane.
struct place {
    i64 x, y;
    int own;
    unsigned inner, written; // a bit per row: its cells are not all border; they are written
    bool is_inner_x[VEC], all_inner;
};

__device__ inline place place_of(const grid_size &size)
{
    const int lane = threadIdx.x % LANES, first_row = threadIdx.x / LANES * ROWS;
    const i64 tiles = ceildiv(size.W, TILE_X);
    place at;
    at.x = blockIdx.x % tiles * TILE_X - RIM_X + lane * VEC;
    at.y = blockIdx.x / tiles * TILE_Y - RIM + first_row;
    at.own = (first_row + R) * WIDTH + HALO_X + lane * VEC;
    at.inner = at.written = 0;
    at.all_inner = true;
    const bool writes = lane * VEC >= RIM_X && lane * VEC < PATCH_X - RIM_X && at.x < size.W;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_row + r;
        at.inner |= (unsigned)is_inner(at.y + r, size.H) << r;
        at.written |= (unsigned)(writes && row >= RIM && row < PATCH_Y - RIM && at.y + r < size.H)
                      << r;
        at.all_inner = at.all_inner && is_inner(at.y + r, size.H);
    }
#pragma unroll
    for (int j = 0; j < VEC; j++) {
        at.is_inner_x[j] = is_inner(at.x + j, size.W);
        at.all_inner = at.all_inner && at.is_inner_x[j];
    }
    return at;
}

// What the thread copies of each plane: offsets within it, -1 for none. VEC divides W, so a vector
// is inside or outside as a whole; what is outside stays as it is and is never used.
struct copy_list {
    i64 offset[COPIES];
};

__device__ inline copy_list copies_of(const grid_size &size)
{
    const i64 tiles = ceildiv(size.W, TILE_X);
    const i64 x0 = blockIdx.x % tiles * TILE_X - RIM_X - HALO_X;
    const i64 y0 = blockIdx.x / tiles * TILE_Y - RIM - R;
    copy_list list;
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        const int index = (threadIdx.x + i * THREADS) * VEC;
        const i64 x = x0 + index % WIDTH, y = y0 + index / WIDTH;
        const bool is_inside = index < PLANE && x >= 0 && x < size.W && y >= 0 && y < size.H;
        list.offset[i] = is_inside ? y * size.W + x : -1;
    }
    return list;
}

__device__ inline void start_plane(
    float *plane, const float *from, const copy_list &list, i64 z, const grid_size &size)
{
    if (z < 0 || z >= size.D)
        return;
#pragma unroll
    for (int i = 0; i < COPIES; i++)
        if (list.offset[i] >= 0)
            copy_start<VEC * sizeof(float)>(plane + (threadIdx.x + i * THREADS) * VEC,
                from + z * size.H * size.W + list.offset[i]);
}

// The row that begins at `own` with the HALO_X floats on either side of the thread's `cells`; of
// them the R next to the cells are set.
__device__ inline void load_line(
    float (&line)[VEC + 2 * HALO_X], const float (&cells)[VEC], const float *own)
{
    if constexpr (R == 1) {
        // A neighbouring lane has them, but for the ends of a warp and of a row.
        const int lane = threadIdx.x % 32, x = threadIdx.x % LANES;
        line[HALO_X - 1] = __shfl_up_sync(0xffffffffu, cells[VEC - 1], 1);
        line[HALO_X + VEC] = __shfl_down_sync(0xffffffffu, cells[0], 1);
        if (lane == 0 || x == 0)
            line[HALO_X - 1] = own[-1];
        if (lane == 31 || x == LANES - 1)
            line[HALO_X + VEC] = own[VEC];
    } else {
#pragma unroll
        for (int i = 0; i < HALO_X; i += VEC) {
            load(reinterpret_cast<float(&)[VEC]>(line[i]), own + i - HALO_X);
            load(reinterpret_cast<float(&)[VEC]>(line[HALO_X + VEC + i]), own + VEC + i);
        }
    }
#pragma unroll
    for (int j = 0; j < VEC; j++)
        line[HALO_X + j] = cells[j];
}

// The part of each cell's sum that comes from its own plane, and the cells themselves. Rows are
// read once, and each goes into all sums that it belongs to before the next: few registers.
__device__ inline void planar_sums(float (&sum)[ROWS][VEC], float (&centre)[ROWS][VEC],
    const float *plane, const place &at, const weights &w)
{
    const float *const own = plane + at.own;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float line[VEC + 2 * HALO_X];
        load(centre[r], own + r * WIDTH);
        load_line(line, centre[r], own + r * WIDTH);
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            sum[r][j] = w.centre * centre[r][j];
#pragma unroll
            for (int k = 1; k <= R; k++)
                sum[r][j] += w.of[k - 1] * (line[HALO_X + j - k] + line[HALO_X + j + k]);
        }
    }
#pragma unroll
    for (int row = -R; row < ROWS + R; row++) {
        float cells[VEC];
        if (row < 0 || row >= ROWS)
            load(cells, own + row * WIDTH);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int away = row < r ? r - row : row - r;
            if (away == 0 || away > R)
                continue;
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum[r][j] += w.of[away - 1] * (row < 0 || row >= ROWS ? cells[j] : centre[row][j]);
        }
    }
}

// Border cells keep their value.
__device__ inline void keep_border(
    float (&sum)[ROWS][VEC], const float (&centre)[ROWS][VEC], const place &at, bool is_inner_plane)
{
    if (is_inner_plane && at.all_inner)
        return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < VEC; j++)
            if (!is_inner_plane || !(at.inner >> r & 1) || !at.is_inner_x[j])
                sum[r][j] = centre[r][j];
}

__device__ inline void write_rows(
    float *to, const float (&v)[ROWS][VEC], const place &at, i64 z, const grid_size &size)
{
    float *const cells = to + (z * size.H + at.y) * size.W + at.x;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (at.written >> r & 1)
            store_whole<STREAM>(cells + r * size.W, v[r]);
}

#if VARIANT == 1

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) stencil3d(
    const float *__restrict__ in, // [D][H][W]
    float *__restrict__ out,      // [D][H][W]
    float *__restrict__ other,    // [D][H][W], unused in a single launch
    i64 D, i64 H, i64 W, i64 slab, float w1, float w2, float w3, float w4, int launch, int launches)
{
    extern __shared__ float4 shared[];
    float *const planes = reinterpret_cast<float *>(shared); // [SLAB + 2 R][PLANE]
    const auto [from, to] = step_buffers_of(in, out, other, launch, launches);
    const weights w = weights_of(w1, w2, w3, w4);
    const grid_size size = {D, H, W};
    const place at = place_of(size);
    const copy_list copies = copies_of(size);
    const i64 end = least(blockIdx.y * slab + slab, D);
    for (i64 z0 = blockIdx.y * slab; z0 < end; z0 += SLAB) {
        for (int i = 0; i < SLAB + 2 * R; i++)
            start_plane(planes + i * PLANE, from, copies, z0 + i - R, size);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        for (int i = 0; i < SLAB && z0 + i < end; i++) {
            const float *const plane = planes + (i + R) * PLANE;
            float sum[ROWS][VEC], centre[ROWS][VEC];
            planar_sums(sum, centre, plane, at, w);
#pragma unroll
            for (int k = 1; k <= R; k++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    float before[VEC], behind[VEC];
                    load(before, plane - k * PLANE + at.own + r * WIDTH);
                    load(behind, plane + k * PLANE + at.own + r * WIDTH);
#pragma unroll
                    for (int j = 0; j < VEC; j++)
                        sum[r][j] += w.of[k - 1] * (before[j] + behind[j]);
                }
            keep_border(sum, centre, at, is_inner(z0 + i, D));
            write_rows(to, sum, at, z0 + i, size);
        }
        __syncthreads();
    }
}

#else

// A step's walk along z: the last R planes that came in, and the sums that they still lack planes
// behind them for. Place i holds plane z of the walk where z % R is i.
struct walk {
    float centre[R][ROWS][VEC], sum[R][ROWS][VEC];
};

// Takes the next plane, at place I of the walk, and completes the one R before it: `done`.
template <int I>
__device__ inline void take_plane(walk &walk, float (&done)[ROWS][VEC], const float *plane,
    const place &at, bool is_inner_plane, const weights &w)
{
    float sum[ROWS][VEC], centre[ROWS][VEC];
    planar_sums(sum, centre, plane, at, w);
#pragma unroll
    for (int k = 1; k <= R; k++) {
        constexpr int LAST = I + R;
        const int i = (LAST - k) % R;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                sum[r][j] += w.of[k - 1] * walk.centre[i][r][j];
                walk.sum[i][r][j] += w.of[k - 1] * centre[r][j];
            }
    }
    keep_border(walk.sum[I], walk.centre[I], at, is_inner_plane);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            done[r][j] = walk.sum[I][r][j];
            walk.sum[I][r][j] = sum[r][j];
            walk.centre[I][r][j] = centre[r][j];
        }
}

// Planes of `from` on their way through the block: `take` gives the i-th that the walk reads, after
// a barrier that all threads pass, and starts those that come later.
struct plane_queue {
    static constexpr int COUNT = VARIANT == 2 ? 2 : AHEAD + 1; // buffers
    float *buffers;                                            // [COUNT][PLANE]
    const float *from;
    i64 first, end; // planes first .. end are read
    const grid_size &size;
    const copy_list copies;
    float coming[VARIANT == 2 ? COPIES : 1][VEC]; // VARIANT 2: the next plane

    __device__ void start(int i)
    {
        const i64 z = first + i;
        if constexpr (VARIANT == 2) {
            if (z < 0 || z >= end)
                return;
#pragma unroll
            for (int c = 0; c < COPIES; c++)
                if (copies.offset[c] >= 0)
                    load(coming[c], from + z * size.H * size.W + copies.offset[c]);
        } else {
            if (z < end)
                start_plane(buffers + i % COUNT * PLANE, from, copies, z, size);
            copies_commit();
        }
    }

    __device__ const float *take(int i)
    {
        float *const plane = buffers + i % COUNT * PLANE;
        if constexpr (VARIANT == 2) {
#pragma unroll
            for (int c = 0; c < COPIES; c++)
                if (copies.offset[c] >= 0)
                    store(plane + (threadIdx.x + c * THREADS) * VEC, coming[c]);
        } else {
            copies_wait<AHEAD - 1>();
        }
        __syncthreads();
        start(i + AHEAD); // into the buffer that all had finished with before the barrier
        return plane;
    }
};

struct block_walk {
    plane_queue queue;
    float *kept; // [S - 1][2][PLANE]: planes that steps 1 .. S - 1 completed, for the next step
    float *to;
    i64 z0, z1; // planes that the block writes
    const grid_size &size;
    const place at;
    const weights w;
    walk steps[S];

    // Turn i of the walk, at place I. Step s works one turn behind step s - 1, whose planes it
    // reads after the barrier.
    template <int I> __device__ void turn(int i)
    {
        const float *plane = queue.take(i);
#pragma unroll
        for (int s = 0; s < S; s++) {
            const i64 z = queue.first + i - s - (s + 1) * R; // the plane that step s completes
            float done[ROWS][VEC];
            take_plane<I>(steps[s], done, plane, at, is_inner(z, size.D), w);
            if (s == S - 1) {
                if (z >= z0 && z < z1)
                    write_rows(to, done, at, z, size);
                return;
            }
            float *const mine = kept + (2 * s + i % 2) * PLANE + at.own;
            plane = kept + (2 * s + 1 - i % 2) * PLANE;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                store(mine + r * WIDTH, done[r]);
        }
    }

    template <int I> __device__ void turns(int i, int count)
    {
        if constexpr (I < R) {
            if (i + I < count)
                turn<I>(i + I);
            turns<I + 1>(i, count);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) stencil3d(
    const float *__restrict__ in, // [D][H][W]
    float *__restrict__ out,      // [D][H][W]
    float *__restrict__ other,    // [D][H][W], unused in a single launch
    i64 D, i64 H, i64 W, i64 slab, float w1, float w2, float w3, float w4, int launch, int launches)
{
    extern __shared__ float4 shared[];
    float *const planes = reinterpret_cast<float *>(shared);
    const auto [from, to] = step_buffers_of(in, out, other, launch, launches);
    const grid_size size = {D, H, W};
    const i64 z0 = blockIdx.y * slab, z1 = least(z0 + slab, D);
    block_walk block = {{planes, from, z0 - S * R, least(z1 + S * R, D), size, copies_of(size), {}},
        planes + plane_queue::COUNT * PLANE, to, z0, z1, size, place_of(size),
        weights_of(w1, w2, w3, w4), {}};
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        block.queue.start(i);
    const int count = (int)(z1 - z0) + 2 * S * R + S - 1;
    for (int i = 0; i < count; i += R)
        block.turns<0>(i, count);
}

#endif
#endif
#endif
