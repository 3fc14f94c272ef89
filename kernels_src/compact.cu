// The elements of x that are above 0, in their order: out[0..count), and count; f32 or i32. The
// rest of out is left as it was.
//
// Where an element goes is how many are kept before it, a scan of zeros and ones. The array is cut
// into tiles of BLOCK * ITEMS elements.
// VARIANT 0 (naive): one element per thread, a Kogge-Stone scan of the block's ones in shared
// memory,
//   three kernels: `count_tiles`, `scan_counts` over the tiles' counts by one block, `move_tiles`.
//   Readable, and the slowest.
// VARIANT 1 (three_kernels): ITEMS elements per thread in rows of 4. A row's counts in a warp fit a
//   byte, so one scan by shuffles does four rows at once.
// VARIANT 2 (two_kernels): without `scan_counts`: each block adds up the counts before its own,
//   which is the shorter way while tiles are few.
// VARIANT 3 (look_back): one kernel that reads x once. Each tile waits for its predecessors' counts
//   by a decoupled look-back (scan.cuh).
// SCATTER says how a tile's elements leave: 0 (direct) each thread writes its own, whose places
// have
//   gaps that other accesses fill; 1 (staged) they close up in shared memory first and leave side
//   by side.
// Every variant is deterministic.
//
// x must be aligned to 16 bytes. A NaN is not above 0 and is left out, +inf is kept; so is a
// denormal above 0.
#ifndef VARIANT
#define VARIANT 3 // 0 naive, 1 three_kernels, 2 two_kernels, 3 look_back
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef ITEMS
#define ITEMS 16 // elements per thread
#endif
#ifndef SCATTER
#define SCATTER 1 // 0 direct, 1 staged
#endif
#ifndef LOOK
#define LOOK 1 // counts that a lane asks for at once when it looks back
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#include "scan.cuh"

static_assert(VARIANT != 0 || (BLOCK == 256 && SCATTER == 0 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads");
static_assert(
    (VARIANT == 0) == (ITEMS == 1), "the naive variant, and no other, has one element per thread");
static_assert(VARIANT == 3 || LOOK == 1, "only look-back has LOOK");
static_assert(SCATTER == 0 || BLOCK * ITEMS <= 10240,
    "a tile that is staged fits 40 KiB of shared memory: BLOCK * ITEMS is at most 10240");
static_assert(VARIANT != 3 || BLOCK * ITEMS >= 2048,
    "a tile that looks back has 2048 elements at least, or the chain would be too long");
static_assert(MIN_BLOCKS == 1 || MIN_BLOCKS * BLOCK >= 1024,
    "MIN_BLOCKS limits registers from 1024 threads on: MIN_BLOCKS * BLOCK");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + 20) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (ITEMS + 20) "
    "is at most 65536");

constexpr int TILE = BLOCK * ITEMS, WARPS = BLOCK / 32;

// Not of 0, which stands beyond the end of x in the last tile.
__device__ inline bool is_kept(element x)
{
    return x > 0;
}

#if TUNE_REFERENCE

#include "scan_reference.cuh"

struct kept {
    i64 count = 0;

    __device__ kept after(const kept &earlier) const
    {
        kept both;
        both.count = earlier.count + count;
        return both;
    }
};

__device__ inline kept kept_of(element x)
{
    kept own;
    own.count = is_kept(x);
    return own;
}

extern "C" __global__ void reference_strips(const element *__restrict__ x, // [N]
    kept *__restrict__ strips,                                             // [ceildiv(N, SPAN)]
    i64 N)
{
    strip_states(strips, N, [&](i64 i) { return kept_of(x[i]); });
}

extern "C" __global__ void reference_groups(const kept *__restrict__ strips, // [strip_count]
    kept *__restrict__ groups, // [ceildiv(strip_count, SPAN)]
    i64 strip_count)
{
    group_states(strips, groups, strip_count);
}

extern "C" __global__ void reference_top(kept *groups, i64 group_count, i64 *count)
{
    *count = states_before(groups, 0, group_count, kept()).count;
}

extern "C" __global__ void reference_strips_before(kept *__restrict__ strips, // [strip_count]
    const kept *__restrict__ groups, i64 strip_count)
{
    strips_before(strips, groups, strip_count);
}

extern "C" __global__ void reference_move(const element *__restrict__ x, // [N]
    const kept *__restrict__ strips,
    element *__restrict__ out, // [N], zero before
    i64 N)
{
    walk_strip(
        strips, N, [&](i64 i) { return kept_of(x[i]); },
        [&](i64 i, const kept &before, const kept &own) {
            if (own.count)
                out[before.count] = x[i];
        });
}

#else

#if VARIANT == 0

// How many of the block's elements before the thread's own are kept.
__device__ inline int kept_before(int own, int &total)
{
    __shared__ int at[BLOCK];
    const int t = threadIdx.x;
    at[t] = own;
    __syncthreads();
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        const int other = t >= offset ? at[t - offset] : 0;
        __syncthreads();
        at[t] += other;
        __syncthreads();
    }
    total = at[BLOCK - 1];
    return t > 0 ? at[t - 1] : 0;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    count_tiles(const element *__restrict__ x, // [N]
        i64 *__restrict__ counts,              // [gridDim.x]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    int total;
    kept_before(i < N && is_kept(x[i]), total);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(BLOCK) move_tiles(const element *__restrict__ x, // [N]
    element *__restrict__ out,                                                                // [N]
    i64 *__restrict__ count,                                                                  // [1]
    const i64 *__restrict__ counts, // [gridDim.x], of all tiles before
    u64 *, i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    const bool own = i < N && is_kept(x[i]);
    int total;
    const i64 to = counts[blockIdx.x] + kept_before(own, total);
    if (own)
        out[to] = x[i];
    if (i == N - 1)
        *count = to + own;
}

#else

typedef tile_layout<STRIPED, BLOCK, ITEMS> layout;

extern "C" __global__ void __launch_bounds__(BLOCK)
    count_tiles(const element *__restrict__ x, // [N]
        i64 *__restrict__ counts,              // [gridDim.x]
        i64 N)
{
    __shared__ int of_warp[WARPS];
    const i64 first = (i64)blockIdx.x * TILE;
    element v[ITEMS];
    read_tile<STRIPED, BLOCK>(v, x + first, N - first, (element *)nullptr);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        sum += is_kept(v[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    sum = warp_sum(threadIdx.x < WARPS ? of_warp[threadIdx.x] : 0);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = sum;
}

// Where the thread's part of each row goes, from the warp's first place on; returns how many of the
// warp's elements are kept. A row has 128 at most, so four rows' counts share a word.
__device__ inline int scan_warp(const element (&v)[ITEMS], int (&place)[layout::ROWS])
{
    int total = 0;
#pragma unroll
    for (int first = 0; first < layout::ROWS; first += 4) {
        u32 own = 0;
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (first * 4 + i < ITEMS)
                own += (u32)is_kept(v[first * 4 + i]) << i / 4 * 8;
        u32 sum = own;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const u32 other = __shfl_up_sync(ALL, sum, offset);
            if (threadIdx.x % 32 >= offset)
                sum += other;
        }
        const u32 all = __shfl_sync(ALL, sum, 31);
#pragma unroll
        for (int row = first; row < first + 4 && row < layout::ROWS; row++) {
            const int byte = (row - first) * 8;
            place[row] = total + (int)((sum - own) >> byte & 255);
            total += (int)(all >> byte & 255);
        }
    }
    return total;
}

// How many are kept in the tiles before this one, for the first warp; `whole` is the tile's own
// count, `earlier` the lane's share of the result where the block has added it up.
__device__ inline i64 tiles_before(
    const i64 *__restrict__ counts, u64 *__restrict__ words, i64 tile, i64 whole, i64 earlier)
{
    if constexpr (VARIANT == 1)
        return counts[tile];
    if constexpr (VARIANT == 2)
        return warp_sum(earlier);
    if (threadIdx.x == 0)
        publish(words + tile, word_of(tile == 0 ? WHOLE_SUM : OWN_SUM, whole));
    const i64 before = look_back<LOOK, 0, i64>(words, tile);
    if (threadIdx.x == 0 && tile > 0)
        publish(words + tile, word_of(WHOLE_SUM, before + whole));
    return before;
}

// The thread's kept elements to their places.
__device__ inline void put(element *to, const element (&v)[ITEMS], const int (&place)[layout::ROWS])
{
#pragma unroll
    for (int row = 0; row < layout::ROWS; row++) {
        int at = place[row];
#pragma unroll
        for (int i = row * 4; i < row * 4 + 4; i++)
            if (is_kept(v[i]))
                to[at++] = v[i];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    move_tiles(const element *__restrict__ x, // [N]
        element *__restrict__ out,            // [N]
        i64 *__restrict__ count,              // [1]
        const i64 *__restrict__ counts,       // [tiles], as the kernels before left them
        u64 *__restrict__ words,              // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    __shared__ element stage[SCATTER ? TILE : 1];
    __shared__ int of_warp[WARPS];
    __shared__ i64 earlier[WARPS], tile_start;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 tile = blockIdx.x;
    if constexpr (VARIANT == 3)
        tile = take_tile(words);
    const i64 first = tile * TILE;
    element v[ITEMS];
    int place[layout::ROWS];
    read_tile<STRIPED, BLOCK>(v, x + first, N - first, stage);
    const int total = scan_warp(v, place);
    if (lane == 0)
        of_warp[warp] = total;
    if constexpr (VARIANT == 2) {
        i64 sum = 0;
        for (i64 i = threadIdx.x; i < tile; i += BLOCK)
            sum += counts[i];
        sum = warp_sum(sum);
        if (lane == 0)
            earlier[warp] = sum;
    }
    __syncthreads();
    const int sum = warp_running_sum(lane < WARPS ? of_warp[lane] : 0);
    const int whole = __shfl_sync(ALL, sum, 31);
    const int start = warp > 0 ? __shfl_sync(ALL, sum, warp - 1) : 0; // of the warp, in the tile
#pragma unroll
    for (int &at : place)
        at += start;
    if (warp == 0) {
        const i64 before = tiles_before(
            counts, words + 1, tile, whole, VARIANT == 2 && lane < WARPS ? earlier[lane] : 0);
        if (lane == 0)
            tile_start = before;
        if (lane == 0 && first + TILE >= N)
            *count = before + whole;
    }
    if constexpr (SCATTER == 1)
        put(stage, v, place);
    __syncthreads();
    out += tile_start;
    if constexpr (SCATTER == 1) {
        for (int i = threadIdx.x; i < whole; i += BLOCK)
            out[i] = stage[i];
    } else {
        put(out, v, place);
    }
}

#endif

// Tiles' counts become those of all tiles before.
extern "C" __global__ void __launch_bounds__(512) scan_counts(i64 *__restrict__ counts, // [count]
    i64 count)
{
    scan_in_place<512>(counts, count, i64(0), [](i64 a, i64 b) { return a + b; });
}

#endif
