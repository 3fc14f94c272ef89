// out[i] = sum of x from the head of i's segment up to i; f32, or i32, which wraps. Element i is
// the head of a segment where flags[i] is 1; the first element is one in any case.
//
// Sums are joined as pairs (sum since the last head, is there a head): a later pair with a head
// stands alone, else the sums are added and the earlier head counts. So what scans sums scans
// segments too. The array is cut into tiles of BLOCK * ITEMS elements.
// VARIANT 0 (naive): one element per thread, a Kogge-Stone scan of pairs in shared memory, three
//   kernels: `tile_sums`, `scan_sums`, `scan_tiles`. Readable, and the slowest.
// VARIANT 1 (look_back): one kernel that reads x once. Within a warp one ballot tells where heads
//   are, and sums alone are shuffled. A tile that has a head knows its sum since that head without
//   its predecessors, so look-back (scan.cuh) ends there: long chains are waited for only where
//   segments are longer than tiles.
// i32 is exact in both. f32 is deterministic in 0; in 1 the order of additions in segments that
// cross tiles depends on which sums were there first.
//
// x and out must be aligned to 16 bytes, flags to 4. From a NaN to the end of its segment all is
// NaN, from an infinity on as the sum says, and other segments know nothing of it; denormals are
// kept.
#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 look_back
#endif
#ifndef LOAD
#define LOAD 2 // 0 blocked, 2 striped
#endif

#include "scan_tiles.cuh"

static_assert(
    VARIANT != 0 || (BLOCK == 256 && LOAD == 0 && LOOK == 1 && REST == 0 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads");
static_assert(VARIANT == 0 || BLOCK * ITEMS >= 1024,
    "a tile that looks back has 1024 elements at least, or the chain would be too long");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + 20) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (ITEMS + 20) "
    "is at most 65536");

__device__ inline bool is_head(u8 flag)
{
    return flag == 1;
}

#if TUNE_REFERENCE

// Since the last head, or of all where there is none.
struct state {
    exact value = 0;
    double squares = 0;
    i64 length = 0, has_head = 0;

    __device__ state after(const state &earlier) const
    {
        if (has_head)
            return *this;
        state both;
        both.value = earlier.value + value;
        both.squares = earlier.squares + squares;
        both.length = earlier.length + length;
        both.has_head = earlier.has_head;
        return both;
    }
};

#include "scan_reference.cuh"

__device__ inline state state_of(element x, u8 flag)
{
    state own;
    own.value = x;
    own.squares = (double)x * x;
    own.length = 1;
    own.has_head = is_head(flag);
    return own;
}

extern "C" __global__ void reference_strips(const element *__restrict__ x, // [N]
    const u8 *__restrict__ flags,                                          // [N]
    state *__restrict__ strips,                                            // [ceildiv(N, SPAN)]
    i64 N)
{
    strip_states(strips, N, [&](i64 i) { return state_of(x[i], flags[i]); });
}

// value in f64, or an i32 in an f64; scale is what an element's error is measured by.
extern "C" __global__ void reference_values(const element *__restrict__ x, // [N]
    const u8 *__restrict__ flags,                                          // [N]
    const state *__restrict__ strips, double *__restrict__ value, double *__restrict__ scale, i64 N)
{
    walk_strip(
        strips, N, [&](i64 i) { return state_of(x[i], flags[i]); },
        [&](i64 i, const state &before, const state &own) {
            const state at = own.after(before);
            value[i] = value_of(at.value);
            scale[i] = scale_of(at.squares, at.length);
        });
}

#else

struct pair {
    element sum; // since the last head
    u32 has_head;
};

__device__ inline pair join(const pair &earlier, const pair &later)
{
    if (later.has_head)
        return later;
    return {add(earlier.sum, later.sum), earlier.has_head};
}

#if VARIANT == 0

// The thread's element joined with those of the block before it.
__device__ inline pair block_scan(
    const element *__restrict__ x, const u8 *__restrict__ flags, i64 N, pair *at)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    const int t = threadIdx.x;
    at[t] = {i < N ? x[i] : 0, i < N && is_head(flags[i])};
    kogge_stone<BLOCK>(at, pair{0, 0}, join);
    return at[t];
}

extern "C" __global__ void __launch_bounds__(BLOCK) tile_sums(const element *__restrict__ x, // [N]
    const u8 *__restrict__ flags,                                                            // [N]
    pair *__restrict__ sums, // [gridDim.x]
    i64 N)
{
    __shared__ pair at[BLOCK];
    const pair own = block_scan(x, flags, N, at);
    if (threadIdx.x == BLOCK - 1)
        sums[blockIdx.x] = own;
}

extern "C" __global__ void __launch_bounds__(BLOCK) scan_tiles(const element *__restrict__ x, // [N]
    const u8 *__restrict__ flags,                                                             // [N]
    element *__restrict__ out,                                                                // [N]
    const pair *__restrict__ sums, // [gridDim.x], of all tiles before
    u64 *, i64 N)
{
    __shared__ pair at[BLOCK];
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    const pair own = block_scan(x, flags, N, at);
    if (i < N)
        out[i] = join(sums[blockIdx.x], own).sum;
}

#else

typedef tile_layout<LOAD, BLOCK, ITEMS> layout;

// Bit i: v[i] is a head.
__device__ inline u32 read_heads(const u8 *__restrict__ flags, i64 left)
{
    u32 heads = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i += 4) {
        const int at = layout::offset(i);
        u32 four = 0;
        if (left >= TILE)
            four = *reinterpret_cast<const u32 *>(flags + at);
        else
            for (int k = 0; k < 4; k++)
                four |= at + k < left ? (u32)flags[at + k] << 8 * k : 0;
#pragma unroll
        for (int k = 0; k < 4; k++)
            heads |= (u32)is_head((u8)(four >> 8 * k)) << (i + k);
    }
    return heads;
}

// Lanes before the own one.
__device__ inline u32 earlier_lanes()
{
    return (1u << threadIdx.x % 32) - 1;
}

// The sum of the lane and those before it since the last head; `heads` are the lanes that have one,
// and their own sum is since it.
__device__ inline element segment_running_sum(element sum, u32 heads)
{
    const int lane = threadIdx.x % 32;
    const u32 upto = heads & (earlier_lanes() | 1u << lane);
    const int first = upto ? 31 - __clz((int)upto) : 0;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const element other = __shfl_up_sync(ALL, sum, offset);
        if (lane - offset >= first)
            sum = add(other, sum);
    }
    return sum;
}

// The warp's own elements; returns their pair. Bit i of `open`: no head of the warp stands before
// v[i] or at it, so that what stands before the warp is to be added.
__device__ inline pair scan_warp(element (&v)[ITEMS], u32 heads, u32 &open)
{
    pair total = {0, 0};
    open = 0;
#pragma unroll
    for (int row = 0; row < layout::ROWS; row++) {
        const int begin = row * layout::WIDTH, end = begin + layout::WIDTH;
        const u32 own = heads >> begin & ALL >> (32 - layout::WIDTH);
        const int first = own ? __ffs((int)own) - 1 : layout::WIDTH; // head, from `begin` on
#pragma unroll
        for (int i = begin + 1; i < end; i++)
            if (!(heads >> i & 1))
                v[i] = add(v[i - 1], v[i]);
        const u32 lanes = __ballot_sync(ALL, own != 0);
        const element sum = segment_running_sum(v[end - 1], lanes);
        element start = lane_before(sum);
        if (!(lanes & earlier_lanes())) {
            start = add(total.sum, start);
            if (!total.has_head)
                open |= (u32)((1ull << first) - 1) << begin;
        }
#pragma unroll
        for (int i = begin; i < end; i++)
            if (i - begin < first)
                v[i] = add(start, v[i]);
        total = join(total, {__shfl_sync(ALL, sum, 31), lanes != 0});
    }
    return total;
}

__device__ inline void scan_block(element (&v)[ITEMS], u32 heads, u64 *__restrict__ words, i64 tile)
{
    __shared__ pair of_warp[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 open;
    const pair total = scan_warp(v, heads, open);
    if (lane == 0)
        of_warp[warp] = total;
    __syncthreads();
    if (warp == 0) {
        const pair own = lane < WARPS ? of_warp[lane] : pair{0, 0};
        const u32 lanes = __ballot_sync(ALL, own.has_head);
        const element sum = segment_running_sum(own.sum, lanes);
        const element whole = __shfl_sync(ALL, sum, 31);
        const bool is_whole = tile == 0 || lanes != 0;
        if (threadIdx.x == 0)
            publish_own(words, tile, whole, is_whole);
        const element before = tiles_before(words, tile, whole, is_whole);
        const element start = lane_before(sum);
        if (lane < WARPS)
            of_warp[lane].sum = lanes & earlier_lanes() ? start : add(before, start);
    }
    __syncthreads();
    const element start = of_warp[warp].sum;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (open >> i & 1)
            v[i] = add(start, v[i]);
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    scan_tiles(const element *__restrict__ x, // [N]
        const u8 *__restrict__ flags,         // [N]
        element *__restrict__ out,            // [N]
        const pair *,
        u64 *__restrict__ words, // [1 + tiles], zero before: next tile, then look-back
        i64 N)
{
    const i64 tile = take_tile(words), first = tile * TILE;
    element v[ITEMS];
    read_tile<LOAD, BLOCK>(v, x + first, N - first, (element *)nullptr);
    scan_block(v, read_heads(flags + first, N - first), words + 1, tile);
    write_tile<LOAD, BLOCK>(out + first, v, N - first, (element *)nullptr);
}

// Not launched: an image has the same entries in every variant.
extern "C" __global__ void tile_sums(const element *, const u8 *, pair *, i64)
{
}

#endif

// Tiles' pairs become those of all tiles before.
extern "C" __global__ void __launch_bounds__(1024) scan_sums(pair *__restrict__ sums, // [count]
    i64 count)
{
    scan_in_place<1024>(sums, count, pair{0, 0}, join);
}

#endif
