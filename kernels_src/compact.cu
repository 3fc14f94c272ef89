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
// VARIANT 4 (cooperative): all of x at once in the registers of one cooperative launch: the blocks
//   count, meet at a barrier of the grid, and add up as in 2. Nothing is read twice, nothing has to
//   be cleared before; N is small.
// VARIANT 5 (persistent): as 3, by blocks that stay, in a pipeline of three tiles: the next one is
//   on its way to shared memory, the present one is counted, and the one before is looked back for
//   and written. A tile's count is published before its block waits for anything (sm_80 on).
// SCATTER says how a tile's elements leave: 0 (direct) each thread writes its own, whose places
// have
//   gaps that other accesses fill; 1 (staged) they close up in shared memory first and leave side
//   by side.
// Every variant is deterministic.
//
// x must be aligned to 16 bytes. A NaN is not above 0 and is left out, +inf is kept; so is a
// denormal above 0.
#ifndef VARIANT
#define VARIANT 3 // 0 to 5, as above
#endif
#ifndef SCATTER
#define SCATTER 1 // 0 direct, 1 staged
#endif

#include "grid.cuh"
#include "scan_tiles.cuh"

static_assert(VARIANT != 0 || (BLOCK == 256 && SCATTER == 0 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads");
static_assert(
    VARIANT == 3 || VARIANT == 5 || (LOOK == 1 && REST == 0), "only look-back has LOOK and REST");
static_assert(VARIANT == 1 || SCATTER == 1 || VARIANT == 0 || BLOCK * ITEMS <= 8192,
    "writing directly is for tiles of up to 8192 elements");
static_assert((VARIANT != 3 && VARIANT != 5) || BLOCK * ITEMS >= 2048,
    "a tile that looks back has 2048 elements at least, or the chain would be too long");
static_assert(VARIANT != 5 || (SCATTER == 1 && MIN_BLOCKS * BLOCK >= 512),
    "blocks that stay are enough to fill a multiprocessor, and a tile waits in shared memory");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + (VARIANT == 5 ? 28 : 20)) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (ITEMS + 20) "
    "is at most 65536, in persistent with 28 for 20");

// Not of 0, which stands beyond the end of x in the last tile.
__device__ inline bool is_kept(element x)
{
    return x > 0;
}

#if TUNE_REFERENCE

struct state {
    i64 count = 0; // that are kept

    __device__ state after(const state &earlier) const
    {
        state both;
        both.count = earlier.count + count;
        return both;
    }
};

#include "scan_reference.cuh"

__device__ inline state state_of(element x)
{
    state own;
    own.count = is_kept(x);
    return own;
}

extern "C" __global__ void reference_strips(const element *__restrict__ x, // [N]
    state *__restrict__ strips,                                            // [ceildiv(N, SPAN)]
    i64 N)
{
    strip_states(strips, N, [&](i64 i) { return state_of(x[i]); });
}

extern "C" __global__ void reference_move(const element *__restrict__ x, // [N]
    const state *__restrict__ strips,
    element *__restrict__ out, // [N], zero before
    i64 *__restrict__ count,   // [1]
    i64 N)
{
    walk_strip(
        strips, N, [&](i64 i) { return state_of(x[i]); },
        [&](i64 i, const state &before, const state &own) {
            if (own.count)
                out[before.count] = x[i];
            if (i == N - 1)
                *count = before.count + own.count;
        });
}

#else

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    count_tiles(const element *__restrict__ x, // [N]
        i64 *__restrict__ counts,              // [gridDim.x]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    int total;
    threads_before((int)(i < N && is_kept(x[i])), total);
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
    const i64 to = counts[blockIdx.x] + threads_before((int)own, total);
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
    const i64 first = (i64)blockIdx.x * TILE;
    element v[ITEMS];
    read_tile<STRIPED, BLOCK>(v, x + first, N - first, (element *)nullptr);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        sum += is_kept(v[i]);
    sum = block_sum(sum);
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

// As scan_warp, and the places from the tile's first on; `whole` is how many the tile has. Holds a
// barrier, before which every thread calls tell().
template <typename F>
__device__ inline void scan_block(
    const element (&v)[ITEMS], int (&place)[layout::ROWS], int &whole, F tell)
{
    __shared__ int of_warp[WARPS];
    const int total = scan_warp(v, place);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = total;
    tell();
    __syncthreads();
    const int start = warps_before(of_warp, whole);
#pragma unroll
    for (int &at : place)
        at += start;
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

// What has closed up in shared memory, to its place in global memory, where each warp's accesses
// begin with a line of 128 bytes.
__device__ inline void leave(element *__restrict__ to, const element *stage, int whole)
{
    const int into_line = (int)(reinterpret_cast<u64>(to) / sizeof(element) % 32);
#pragma unroll 4
    for (int i = (int)threadIdx.x - into_line; i < whole; i += BLOCK)
        if (i >= 0)
            to[i] = stage[i];
}

#if VARIANT == 5

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    move_tiles(const element *__restrict__ x, // [N]
        element *__restrict__ out,            // [N]
        i64 *__restrict__ count,              // [1]
        i64 *,
        u64 *__restrict__ words, // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    extern __shared__ float4 shared[]; // the tile ahead, and the one that closes up
    __shared__ i64 taken, last_start;
    element *ahead = reinterpret_cast<element *>(shared), *stage = ahead + TILE;
    i64 tile = take_tile(words), last = -1;
    int last_whole = 0;
    fetch_tile(ahead, x, N, tile);
    for (;;) {
        const i64 first = tile * TILE;
        element v[ITEMS];
        int place[layout::ROWS], whole = 0;
        i64 next = 0;
        if (first < N) {
            if (threadIdx.x == 0)
                next = (i64)atomicAdd(words, 1ull); // needed no earlier than at the barrier
            read_fetched(v, ahead, x, N, tile);
            scan_block(v, place, whole, [&] {
                if (threadIdx.x == 0)
                    taken = next;
            });
            if (threadIdx.x == 0)
                publish_own(words + 1, tile, (i64)whole, tile == 0);
            next = taken;
            fetch_tile(ahead, x, N, next);
        }
        if (last >= 0) {
            if (threadIdx.x < 32) {
                const i64 before = tiles_before(words + 1, last, (i64)last_whole, last == 0);
                if (threadIdx.x == 0) {
                    last_start = before;
                    if ((last + 1) * TILE >= N)
                        *count = before + last_whole;
                }
            }
            __syncthreads();
            leave(out + last_start, stage, last_whole);
        }
        if (first >= N)
            break;
        __syncthreads(); // the stage has been read, and so has what scan_block shares
        put(stage, v, place);
        last = tile;
        last_whole = whole;
        tile = next;
    }
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    move_tiles(const element *__restrict__ x, // [N]
        element *__restrict__ out,            // [N]
        i64 *__restrict__ count,              // [1]
        i64 *__restrict__ counts,             // [tiles], as the kernels before left them
        u64 *__restrict__ words,              // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    extern __shared__ float4 shared[]; // the tile that closes up
    __shared__ i64 earlier[WARPS], tile_start;
    element *stage = reinterpret_cast<element *>(shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 tile = blockIdx.x;
    if constexpr (VARIANT == 3)
        tile = take_tile(words);
    const i64 first = tile * TILE;
    element v[ITEMS];
    int place[layout::ROWS], whole;
    read_tile<STRIPED, BLOCK>(v, x + first, N - first, stage);
    scan_block(v, place, whole, [&] {
        if constexpr (VARIANT == 2)
            share_earlier(earlier, counts, tile);
    });
    if (VARIANT == 3 && threadIdx.x == 0)
        publish_own(words + 1, tile, (i64)whole, tile == 0);
    if (VARIANT == 4 && threadIdx.x == 0)
        counts[tile] = whole;
    if constexpr (SCATTER == 1)
        put(stage, v, place);
#if VARIANT == 4
    grid_sync();
    share_earlier(earlier, counts, tile);
    __syncthreads();
#endif
    if (warp == 0) {
        i64 before;
        if constexpr (VARIANT == 1)
            before = counts[tile];
        else if constexpr (VARIANT == 3)
            before = tiles_before(words + 1, tile, (i64)whole, tile == 0);
        else
            before = warp_sum(lane < WARPS ? earlier[lane] : 0);
        if (lane == 0)
            tile_start = before;
        if (lane == 0 && first + TILE >= N)
            *count = before + whole;
    }
    __syncthreads();
    if constexpr (SCATTER == 1)
        leave(out + tile_start, stage, whole);
    else
        put(out + tile_start, v, place);
}

#endif
#endif

// Tiles' counts become those of all tiles before.
extern "C" __global__ void __launch_bounds__(512) scan_counts(i64 *__restrict__ counts, // [count]
    i64 count)
{
    scan_in_place<512>(counts, count, i64(0), [](i64 a, i64 b) { return a + b; });
}

#endif
