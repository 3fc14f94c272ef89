// out[i] = x[0] + ... + x[i] (inclusive), or the same without x[i] (exclusive); f32, or i32, which
// wraps.
//
// The array is cut into tiles of BLOCK * ITEMS elements. A tile's threads add up their own elements
// one after another, the block scans the threads' sums, and each thread adds what stands before it.
// The variants differ in how the block scans, and in where the sum of all earlier tiles comes from.
// Reduce-then-scan, which reads x twice: `tile_sums`, then `scan_sums` over the tiles' sums by one
// block, then `scan_tiles`. In it:
// VARIANT 0 (naive): one element per thread, a Kogge-Stone scan in shared memory. Readable, and the
//   slowest.
// VARIANT 1 (kogge_stone): ITEMS elements per thread, then as 0: log2(BLOCK) steps, in each of
// which
//   almost all threads add.
// VARIANT 2 (brent_kung): a tree up and down: twice the steps, but about 2 * BLOCK additions.
// VARIANT 3 (warp): shuffles within a warp, then one warp over the warps' sums: two barriers.
// VARIANT 4 (two_kernels): as 3 without `scan_sums`: each block adds up the sums before its own,
//   which is the shorter way while tiles are few.
// VARIANT 5 (look_back): one kernel that reads x once. Each tile waits for its predecessors' sums
//   by a decoupled look-back (scan.cuh).
// VARIANT 6 (persistent): as 5, by blocks that stay, in a pipeline of three tiles: the next one is
//   on its way to shared memory, the present one is added up, and the one before is looked back for
//   and written. A tile's sum is published before its block waits for anything (sm_80 on).
// i32 is exact in all. f32 is deterministic in all but 5 and 6, where the order of additions
// depends on which sums were there first.
//
// x and out must be aligned to 16 bytes. From a NaN on everything is NaN, from an infinity on as
// the sum says; denormals are kept; a sum of zeros is +0.
#ifndef VARIANT
#define VARIANT 5 // 0 to 6, as above
#endif
#ifndef LOAD
#define LOAD 2 // 0 blocked, 1 transposed, 2 striped
#endif
#ifndef MODE
#define MODE 1 // 1 exclusive, 2 inclusive
#endif

#include "scan_tiles.cuh"

static_assert(VARIANT != 0 || (BLOCK == 256 && LOAD == 0 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads");
static_assert(VARIANT == 0 || VARIANT > 2 || (LOAD != 2 && MIN_BLOCKS == 1),
    "a block scan in shared memory wants each thread's elements side by side, and its lesson needs "
    "no MIN_BLOCKS");
static_assert(VARIANT <= 3 || LOAD != 0,
    "accesses that are far apart are a lesson of reduce-then-scan, and no candidate elsewhere");
static_assert(VARIANT >= 5 || (LOOK == 1 && REST == 0), "only look-back has LOOK and REST");
static_assert(LOAD != 1 || (ITEMS > 4 && BLOCK * (ITEMS + (ITEMS / 4 % 2 == 0 ? 4 : 0)) <= 11776),
    "a tile that is transposed has more than one access per thread, and fits 46 KiB of shared "
    "memory with its padding");
static_assert(VARIANT != 6 || LOAD == 2, "a tile that is fetched ahead is striped");
static_assert(VARIANT != 6 || MIN_BLOCKS * BLOCK >= 512,
    "blocks that stay are enough to fill a multiprocessor: MIN_BLOCKS * BLOCK is at least 512");
static_assert(VARIANT < 5 || BLOCK * ITEMS >= 2048,
    "a tile that looks back has 2048 elements at least, or the chain would be too long");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + (VARIANT == 6 ? 24 : 16)) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (ITEMS + 16) "
    "is at most 65536, in persistent with 24 for 16");

#if TUNE_REFERENCE

struct state {
    exact value = 0;
    double squares = 0;

    __device__ state after(const state &earlier) const
    {
        state both;
        both.value = earlier.value + value;
        both.squares = earlier.squares + squares;
        return both;
    }
};

#include "scan_reference.cuh"

__device__ inline state state_of(element x)
{
    state own;
    own.value = x;
    own.squares = (double)x * x;
    return own;
}

extern "C" __global__ void reference_strips(const element *__restrict__ x, // [N]
    state *__restrict__ strips,                                            // [ceildiv(N, SPAN)]
    i64 N)
{
    strip_states(strips, N, [&](i64 i) { return state_of(x[i]); });
}

// value in f64, or an i32 in an f64; scale is what an element's error is measured by.
extern "C" __global__ void reference_values(const element *__restrict__ x, // [N]
    const state *__restrict__ strips, double *__restrict__ value, double *__restrict__ scale, i64 N)
{
    walk_strip(
        strips, N, [&](i64 i) { return state_of(x[i]); },
        [&](i64 i, const state &before, const state &own) {
            const state at = MODE == 1 ? before : own.after(before);
            value[i] = value_of(at.value);
            scale[i] = scale_of(at.squares, i);
        });
}

#else

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK) tile_sums(const element *__restrict__ x, // [N]
    element *__restrict__ sums, // [gridDim.x]
    i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    element total;
    threads_before(i < N ? x[i] : element(0), total);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(BLOCK) scan_tiles(const element *__restrict__ x, // [N]
    element *__restrict__ out,                                                                // [N]
    const element *__restrict__ sums, // [gridDim.x], of all tiles before
    u64 *, i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    const element own = i < N ? x[i] : 0;
    element total;
    const element before = add(sums[blockIdx.x], threads_before(own, total));
    if (i < N)
        out[i] = MODE == 1 ? before : add(before, own);
}

#else

// Adds up a tile in whatever order it comes.
extern "C" __global__ void __launch_bounds__(BLOCK) tile_sums(const element *__restrict__ x, // [N]
    element *__restrict__ sums, // [gridDim.x]
    i64 N)
{
    const i64 first = (i64)blockIdx.x * TILE;
    element v[ITEMS], sum = 0;
    read_tile<STRIPED, BLOCK>(v, x + first, N - first, (element *)nullptr);
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        sum = add(sum, v[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

typedef tile_layout<LOAD, BLOCK, ITEMS> layout;

// Every v of the row becomes the sum of itself and those before it in the row.
__device__ inline void add_up(element (&v)[ITEMS], int row)
{
#pragma unroll
    for (int i = row * layout::WIDTH + 1; i < (row + 1) * layout::WIDTH; i++)
        v[i] = add(v[i - 1], v[i]);
}

// From that to what MODE says, `start` standing before the row.
__device__ inline void begin_row(element (&v)[ITEMS], int row, element start)
{
    const int first = row * layout::WIDTH;
#pragma unroll
    for (int i = first + layout::WIDTH - 1; i > first; i--)
        v[i] = add(start, v[MODE == 2 ? i : i - 1]);
    v[first] = MODE == 2 ? add(start, v[first]) : start;
}

#if VARIANT <= 2

// The sum of `own` over all threads before this one, by a tree.
__device__ inline element threads_before_by_tree(element own)
{
    __shared__ element at[BLOCK];
    const int t = threadIdx.x;
    at[t] = own;
    __syncthreads();
    // Up: the last of each 2, 4, 8 ... gets their sum. Down: the one in the middle of the next.
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        const int i = (t + 1) * 2 * offset - 1;
        if (i < BLOCK)
            at[i] = add(at[i - offset], at[i]);
        __syncthreads();
    }
    for (int offset = BLOCK / 4; offset > 0; offset /= 2) {
        const int i = (t + 1) * 2 * offset - 1;
        if (i + offset < BLOCK)
            at[i + offset] = add(at[i], at[i + offset]);
        __syncthreads();
    }
    return t > 0 ? at[t - 1] : 0;
}

// A thread has one row. The sum of all tiles before this one is `sums[tile]`.
__device__ inline void scan_block(
    element (&v)[ITEMS], const element *__restrict__ sums, const u64 *, i64 tile)
{
    add_up(v, 0);
    const element tiles = sums[tile]; // on its way while the block scans
    element threads, total;
    if constexpr (VARIANT == 1)
        threads = threads_before(v[ITEMS - 1], total);
    else
        threads = threads_before_by_tree(v[ITEMS - 1]);
    begin_row(v, 0, add(tiles, threads));
}

#else

// The warp's own elements; returns their total.
__device__ inline element scan_warp(element (&v)[ITEMS])
{
    element total = 0;
#pragma unroll
    for (int row = 0; row < layout::ROWS; row++) {
        add_up(v, row);
        const element sum = warp_running_sum(v[(row + 1) * layout::WIDTH - 1]);
        begin_row(v, row, add(total, lane_before(sum)));
        total = add(total, __shfl_sync(ALL, sum, 31));
    }
    return total;
}

// What stands before this tile, for the first warp, of a tile whose own sum is `whole`; `earlier`
// is the lane's share of it where the block has added it up.
__device__ inline element start_of_tile(const element *__restrict__ sums, u64 *__restrict__ words,
    i64 tile, element whole, element earlier)
{
    if constexpr (VARIANT == 3)
        return sums[tile];
    if constexpr (VARIANT == 4)
        return warp_sum(earlier);
    if (threadIdx.x == 0)
        publish_own(words, tile, whole, tile == 0);
    return tiles_before(words, tile, whole, tile == 0);
}

__device__ inline void scan_block(
    element (&v)[ITEMS], const element *__restrict__ sums, u64 *__restrict__ words, i64 tile)
{
    __shared__ element of_warp[WARPS], earlier[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const element total = scan_warp(v);
    if (lane == 0)
        of_warp[warp] = total;
    if constexpr (VARIANT == 4)
        share_earlier(earlier, sums, tile);
    __syncthreads();
    if (warp == 0) {
        const element sum = warp_running_sum(lane < WARPS ? of_warp[lane] : 0);
        const element before = start_of_tile(sums, words, tile, __shfl_sync(ALL, sum, 31),
            VARIANT == 4 && lane < WARPS ? earlier[lane] : 0);
        const element start = add(before, lane_before(sum));
        if (lane < WARPS)
            of_warp[lane] = start;
    }
    __syncthreads();
    const element start = of_warp[warp];
#pragma unroll
    for (element &sum : v)
        sum = add(start, sum);
}

#endif

#if VARIANT == 6

// The thread's elements of tile k, added up within its warp, to its own places in shared memory,
// and those of tile k - 1, which are there, from it to `out` with `start` added. has_next and
// has_last: are there such tiles; `left` elements of the latter.
__device__ inline void exchange(element *waiting, const element (&v)[ITEMS], bool has_next,
    element *__restrict__ out, element start, bool has_last, i64 left)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += 4) {
        element *const own = own_four(waiting, i), four[4];
        if (has_last)
            load4(four, own);
        if (has_next)
            store4(own, v + i);
        if (!has_last)
            continue;
#pragma unroll
        for (element &sum : four)
            sum = add(start, sum);
        if (left >= TILE) {
            store4(out + layout::offset(i), four);
            continue;
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (layout::offset(i) + k < left)
                out[layout::offset(i) + k] = four[k];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    scan_tiles(const element *__restrict__ x, // [N]
        element *__restrict__ out,            // [N]
        const element *,
        u64 *__restrict__ words, // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    extern __shared__ float4 shared[]; // the tile ahead, and the one that waits to be written
    __shared__ element of_warp[WARPS], last_start;
    __shared__ i64 taken;
    element *ahead = reinterpret_cast<element *>(shared), *waiting = ahead + TILE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 tile = take_tile(words), last = -1;
    element last_whole = 0, last_offset = 0; // the latter is what the tile has before the warp
    fetch_tile(ahead, x, N, tile);
    for (;;) {
        const i64 first = tile * TILE;
        const bool has_next = first < N, has_last = last >= 0;
        element v[ITEMS], whole = 0, offset = 0;
        i64 next = 0;
        if (has_next) {
            if (threadIdx.x == 0)
                next = (i64)atomicAdd(words, 1ull); // needed no earlier than at the barrier
            read_fetched(v, ahead, x, N, tile);
            const element total = scan_warp(v);
            if (lane == 0)
                of_warp[warp] = total;
            if (threadIdx.x == 0)
                taken = next;
            __syncthreads();
            offset = warps_before(of_warp, whole);
            if (threadIdx.x == 0)
                publish_own(words + 1, tile, whole, tile == 0);
            next = taken;
            fetch_tile(ahead, x, N, next);
        } else {
            __syncthreads(); // last_start has been read
        }
        if (has_last && warp == 0) {
            const element before = tiles_before(words + 1, last, last_whole, last == 0);
            if (lane == 0)
                last_start = before;
        }
        __syncthreads(); // also: what is shared of this tile has been read
        exchange(waiting, v, has_next, out + last * TILE, add(last_start, last_offset), has_last,
            N - last * TILE);
        if (!has_next)
            break;
        last = tile;
        last_whole = whole;
        last_offset = offset;
        tile = next;
    }
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    scan_tiles(const element *__restrict__ x, // [N]
        element *__restrict__ out,            // [N]
        const element *__restrict__ sums,     // [tiles], as the kernels before left them
        u64 *__restrict__ words,              // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    __shared__ __align__(16) element stage[layout::STAGED];
    i64 tile = blockIdx.x;
    if constexpr (VARIANT == 5)
        tile = take_tile(words);
    const i64 first = tile * TILE;
    element v[ITEMS];
    read_tile<LOAD, BLOCK>(v, x + first, N - first, stage);
    scan_block(v, sums, words + 1, tile);
    write_tile<LOAD, BLOCK>(out + first, v, N - first, stage);
}

#endif
#endif

// Tiles' sums become the sums of all tiles before.
extern "C" __global__ void __launch_bounds__(1024) scan_sums(element *__restrict__ sums, // [count]
    i64 count)
{
    scan_in_place<1024>(sums, count, element(0), [](element a, element b) { return add(a, b); });
}

#endif
