// out[0] = x[0] op x[1] op ... op x[N-1], where op is +, max or min; f32 and f16 give f32, i32
// gives i32.
//
// A grid of blocks walks over x. Each step a thread reads ITEMS elements by accesses of VEC
// elements, neighbouring threads neighbouring words, combines them and adds that to what it has.
// The threads of a block then combine their results, and the blocks theirs:
// VARIANT 0 (interleaved): in shared memory, thread t adds t + 1, then t + 2, t + 4 ...; every step
//   more lanes of each warp idle and the stride hits fewer banks. Readable, and the slowest.
// VARIANT 1 (sequential): in shared memory, the lower half adds the upper half.
// VARIANT 2 (shuffle): in registers within a warp, then one warp over the warps' results.
//   These three write one partial result per block to scratch, which a second launch,
//   `reduce_final`, combines.
// VARIANT 3 (shuffle_atomic): as 2, then one atomicAdd per block to out, which must be zero before.
//   For plain sums only.
// VARIANT 4 (ticket): as 2, and the block that finishes last, as a counter tells it, combines the
//   partial results. One launch, after a memset of the counter.
// VARIANT 5 (cooperative): as 2, then a barrier of the whole grid, after which block 0 combines
//   them. One launch and no memset, since the driver keeps the barrier; all blocks must be
//   resident at once.
// A grid of one block writes out itself; no second launch, counter or barrier then.
//
// Every variant gives the same bits in every run but shuffle_atomic, whose blocks add in the order
// in which they end.
//
// SUM says how sums of floats are added: 1 plain, in whatever order is quick; 2 pairwise, as a
// tree, so that the error grows as log N; 3 kahan, with the rounding errors of all additions
// carried beside the sum and added at the end, so that the result is as good as one rounded once.
// Integers wrap around.
//
// NaN and infinity pass through as op says: a sum of both infinities is NaN, the largest and the
// smallest element is NaN where there is one. Denormals are kept, but for blocks' sums in
// shuffle_atomic: the adder of global atomics takes them for 0. x must be aligned to VEC elements.
#include "grid.cuh"
#include "small_floats.cuh"
#include "vectors.cuh"

#ifndef OP
#define OP 1 // 1 sum, 2 max, 3 min
#endif
#ifndef SUM
#define SUM 1 // 1 plain, 2 pairwise, 3 kahan; nothing to max, min and integers
#endif
#ifndef VARIANT
#define VARIANT                                                                                    \
    2 // 0 interleaved, 1 sequential, 2 shuffle, 3 shuffle_atomic, 4 ticket, 5 cooperative
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef ITEMS
#define ITEMS 16 // elements that a thread reads before it combines them
#endif
#ifndef VEC
#define VEC 4 // elements per access
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM                                                                              \
    8 // blocks per multiprocessor in the grid, which the manifest computes from it
#endif
#ifndef WALK
#define WALK 0 // 0 strided: the whole grid steps through x; 1 contiguous: a block has a part of x
#endif
#ifndef LOAD
#define LOAD 0 // 0 cached, 1 streaming, 2 evict_first: what the caches are told of x
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#if TUNE_DTYPE_F16
typedef f16 element; // in memory
typedef float value; // in registers
#elif TUNE_DTYPE_I32
typedef int element;
typedef int value;
#else
typedef float element;
typedef float value;
#endif

#if TUNE_DTYPE_I32
#define SUM_OF_FLOATS 0
#else
#define SUM_OF_FLOATS (OP == 1)
#endif
#define PAIRWISE (SUM_OF_FLOATS && SUM == 2)
#define KAHAN (SUM_OF_FLOATS && SUM == 3)

static_assert(BLOCK >= 128 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0,
    "a block has 128 to 1024 threads, a power of 2");
static_assert(BLOCK * BLOCKS_PER_SM >= 1024 && BLOCK * BLOCKS_PER_SM <= 16384,
    "the grid has 1024 to 16384 threads per multiprocessor: BLOCK * BLOCKS_PER_SM");
static_assert(ITEMS * sizeof(element) >= 16 && ITEMS * sizeof(element) <= 128,
    "a thread reads 16 to 128 bytes per step: ITEMS elements");
static_assert(VEC * sizeof(element) <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(VARIANT > 1 || (BLOCK == 256 && ITEMS == 8 && VEC == 4 && BLOCKS_PER_SM == 8 &&
                                 WALK == 0 && LOAD == 0 && MIN_BLOCKS == 1),
    "interleaved and sequential are there to be compared with shuffle: each stands once in the "
    "space");
static_assert(
    VEC * sizeof(element) == 16 || (BLOCK == 256 && WALK == 0 && LOAD == 0 && MIN_BLOCKS == 1),
    "accesses of less than 16 bytes are there to be compared: with the strided walk of cached "
    "loads by blocks of 256 threads only");
static_assert(WALK == 0 ? BLOCK * BLOCKS_PER_SM <= 8192 : BLOCK * BLOCKS_PER_SM >= 2048,
    "the strided walk is for grids of up to 8192 threads per multiprocessor, parts of x for those "
    "of 2048 or more");
static_assert(
    MIN_BLOCKS == 1 || (MIN_BLOCKS * BLOCK == 2048 && BLOCK * BLOCKS_PER_SM >= 2048 && ITEMS <= 16),
    "MIN_BLOCKS is 1, or asks for all 2048 threads of a multiprocessor, with 32 registers each: "
    "where the grid has as many and ITEMS is at most 16");
static_assert(
    VARIANT != 5 || (BLOCK * BLOCKS_PER_SM <= 2048 && BLOCKS_PER_SM <= 16 && MIN_BLOCKS == 1),
    "all blocks of a cooperative launch are resident: at most 2048 threads and 16 blocks per "
    "multiprocessor; MIN_BLOCKS is BLOCKS_PER_SM then and stays 1");
static_assert(VARIANT != 5 || BLOCK * BLOCKS_PER_SM * (ITEMS + 16) <= 65536,
    "the elements of all resident threads must fit the registers");

// A word of elements that add nothing: what combines to the other one.
#if OP == 1
constexpr u32 NEUTRAL = 0;
#elif TUNE_DTYPE_F16
constexpr u32 NEUTRAL = OP == 2 ? 0xfc00fc00u : 0x7c007c00u;
#elif TUNE_DTYPE_I32
constexpr u32 NEUTRAL = OP == 2 ? 0x80000000u : 0x7fffffffu;
#else
constexpr u32 NEUTRAL = OP == 2 ? 0xff800000u : 0x7f800000u;
#endif

// An element by its bits.
__device__ inline value value_of(u32 bits)
{
#if TUNE_DTYPE_F16
    return f16::unpack((u16)bits);
#elif TUNE_DTYPE_I32
    return (int)bits;
#else
    return __uint_as_float(bits);
#endif
}

__device__ inline value neutral()
{
    return value_of(NEUTRAL);
}

#if TUNE_REFERENCE

#if TUNE_DTYPE_I32
typedef u32 wide; // sums wrap around
#else
typedef double wide;
#endif

// op on values, in f64 for floats.
__device__ inline wide apply(wide a, wide b)
{
#if OP == 1
    return a + b;
#elif TUNE_DTYPE_I32
    return ((int)a > (int)b) == (OP == 2) ? a : b;
#else
    return a != a || (b == b && (a > b) == (OP == 2)) ? a : b;
#endif
}

// Combines 256 threads' pairs of a result and a sum of squares; every thread has the result.
__device__ inline void combine(wide &result, double &squares)
{
    __shared__ wide result_of[256];
    __shared__ double squares_of[256];
    result_of[threadIdx.x] = result;
    squares_of[threadIdx.x] = squares;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            result_of[threadIdx.x] = apply(result_of[threadIdx.x], result_of[threadIdx.x + half]);
            squares_of[threadIdx.x] += squares_of[threadIdx.x + half];
        }
    }
    __syncthreads();
    result = result_of[0];
    squares = squares_of[0];
}

// Partial results and sums of x^2, one pair per block.
extern "C" __global__ void __launch_bounds__(256)
    reduce_reference(const element *__restrict__ x, // [N]
        wide *__restrict__ results,                 // [blocks]
        double *__restrict__ squares,               // [blocks]
        i64 N)
{
    wide result = (wide)neutral();
    double square = 0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < N; i += (i64)gridDim.x * 256) {
#if TUNE_DTYPE_F16
        const value v = value_of(x[i].bits);
#else
        const value v = x[i];
#endif
        result = apply(result, (wide)v);
        square += (double)v * v;
    }
    combine(result, square);
    if (threadIdx.x == 0) {
        results[blockIdx.x] = result;
        squares[blockIdx.x] = square;
    }
}

// The total, and what its error is measured by: s = sqrt(sum x^2), the size of a random walk over
// x, for plain and pairwise sums; the sum itself and a little of s for kahan; nothing where the
// result is exact.
extern "C" __global__ void __launch_bounds__(256)
    reduce_reference_final(const wide *__restrict__ results, // [count]
        const double *__restrict__ squares,                  // [count]
        double *__restrict__ total,                          // [1]
        double *__restrict__ scale,                          // [1]
        i64 count)
{
    wide result = (wide)neutral();
    double square = 0;
    for (i64 i = threadIdx.x; i < count; i += 256) {
        result = apply(result, results[i]);
        square += squares[i];
    }
    combine(result, square);
    if (threadIdx.x != 0)
        return;
#if TUNE_DTYPE_I32
    *total = (int)result;
#else
    *total = result;
#endif
    *scale = !SUM_OF_FLOATS ? 0.0
             : KAHAN        ? (fabs((double)result) + sqrt(square) / 16) / 4
                            : sqrt(square);
}

#else

// What is known of some elements.
#if KAHAN
typedef float2 partial; // x the sum, y what rounding took from it
#else
typedef value partial;
#endif

#if !KAHAN

__device__ inline partial partial_of(value v)
{
    return v;
}

__device__ inline value total_of(partial p)
{
    return p;
}

__device__ inline partial combine(partial a, partial b)
{
#if OP == 1 && TUNE_DTYPE_I32
    return (int)((u32)a + (u32)b);
#elif OP == 1
    return a + b;
#elif TUNE_DTYPE_I32
    return OP == 2 ? max(a, b) : min(a, b);
#elif __CUDA_ARCH__ >= 800 && !defined(TUNE_EMULATOR)
    float result;
    if constexpr (OP == 2)
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    else
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
#else
    return a != a || (OP == 2 ? a > b : a < b) ? a : b;
#endif
}

__device__ inline partial lane_below(partial p, int offset)
{
    return __shfl_down_sync(0xffffffffu, p, offset);
}

#else

__device__ inline partial partial_of(value v)
{
    return {v, 0.0f};
}

// Where the sum is infinite or NaN its rounding errors are NaN and mean nothing.
__device__ inline value total_of(partial p)
{
    return p.x - p.x == 0.0f ? p.x + p.y : p.x;
}

// The error of a + b is exact (Knuth's TwoSum): six additions whichever of them is larger.
__device__ inline partial combine(partial a, partial b)
{
    const float sum = a.x + b.x, b_part = sum - a.x, a_part = sum - b_part;
    return {sum, (a.y + b.y) + ((a.x - a_part) + (b.x - b_part))};
}

__device__ inline partial lane_below(partial p, int offset)
{
    return {__shfl_down_sync(0xffffffffu, p.x, offset), __shfl_down_sync(0xffffffffu, p.y, offset)};
}

#endif

// Of v[0..COUNT): a tree, or for kahan one after the other, which needs fewer registers.
template <int COUNT> __device__ inline partial combine_all(const partial *v)
{
    if constexpr (COUNT == 1)
        return v[0];
    else if constexpr (KAHAN)
        return combine(combine_all<COUNT - 1>(v), v[COUNT - 1]);
    else
        return combine(combine_all<COUNT / 2>(v), combine_all<COUNT - COUNT / 2>(v + COUNT / 2));
}

// Takes the partial results of a thread's steps one after the other.
#if !PAIRWISE

class running {
    partial all = partial_of(neutral());

  public:
    __device__ inline void take(partial step)
    {
        all = combine(all, step);
    }
    __device__ inline partial result()
    {
        return all;
    }
};

#else

// level[l] is the sum of 2^l steps where bit l of the count is set: as a binary number counts up,
// sums of equal length are added and carried. From 2^LEVELS steps on the last level just grows.
class running {
    static constexpr int LEVELS = 16;
    partial level[LEVELS] = {};
    u32 count = 0;

  public:
    __device__ inline void take(partial step)
    {
        bool is_carried = true; // the same in all threads: a step is a step of the block
#pragma unroll
        for (int l = 0; l < LEVELS && is_carried; l++) {
            is_carried = count >> l & 1;
            if (is_carried && l < LEVELS - 1) {
                step = combine(level[l], step);
                level[l] = 0.0f;
            } else {
                level[l] = combine(level[l], step);
                is_carried = false;
            }
        }
        count++;
    }
    __device__ inline partial result()
    {
        partial all = level[0];
#pragma unroll
        for (int l = 1; l < LEVELS; l++)
            all = combine(level[l], all);
        return all;
    }
};

#endif

constexpr caching CACHING = LOAD == 0 ? READ_ONLY : LOAD == 1 ? STREAMING : EVICT_FIRST;

// Elements are taken from memory as bits, the small ones by twos where an access has two.
#if TUNE_DTYPE_F16 && VEC == 1
typedef u16 unit;
#else
typedef u32 unit;
#endif
constexpr int UNITS = VEC * sizeof(element) / sizeof(unit); // of an access

constexpr int TILE = BLOCK * ITEMS; // elements of a block's step

// The thread's elements of the tile that begins at `from`: all loads first, so that they are on
// their way together. Of a tile that IS_WHOLE is not, `left` elements are there, a multiple of VEC.
template <bool IS_WHOLE>
__device__ inline void read(partial (&v)[ITEMS], const element *from, int left)
{
    vector<unit, UNITS> raw[ITEMS / VEC];
#pragma unroll
    for (int i = 0; i < ITEMS / VEC; i++) {
        const int index = (i * BLOCK + threadIdx.x) * VEC;
        if (IS_WHOLE || index < left)
            load<CACHING>(raw[i], reinterpret_cast<const unit *>(from + index));
        else
#pragma unroll
            for (int k = 0; k < UNITS; k++)
                raw[i].at[k] = (unit)NEUTRAL;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int byte = i % VEC * (int)sizeof(element);
        v[i] = partial_of(value_of(raw[i / VEC].at[byte / 4] >> byte % 4 * 8));
    }
}

// Of the thread's share of x[0..N): the block's part are `part` tiles, and one more in the first
// `longer` blocks. Block 0 also takes the N % VEC elements after the last whole access.
__device__ inline partial walk(const element *x, i64 N, i64 part, i64 longer)
{
    const i64 block = blockIdx.x, whole = N / VEC * VEC;
    i64 tile = block, end = ceildiv(whole, TILE), step = gridDim.x;
    if constexpr (WALK == 1) {
        tile = block * part + least(block, longer);
        end = tile + part + (block < longer);
        step = 1;
    }
    u32 rest = NEUTRAL;
    if (block == 0 && threadIdx.x < N - whole) {
        vector<element, 1> one;
        load<CACHING>(one, x + whole + threadIdx.x);
        rest = one.word;
    }
    running all;
    for (; tile < end; tile += step) {
        partial v[ITEMS];
        const i64 at = tile * TILE;
        if (at + TILE <= whole)
            read<true>(v, x + at, TILE);
        else
            read<false>(v, x + at, (int)(whole - at));
        all.take(combine_all<ITEMS>(v));
    }
    return combine(all.result(), partial_of(value_of(rest)));
}

// Of a warp, in lane 0.
__device__ inline partial warp_combine(partial p)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        p = combine(p, lane_below(p, offset));
    return p;
}

// Of the block, in thread 0. Between two calls there must be a barrier.
__device__ inline partial block_combine(partial p)
{
    __shared__ partial at[BLOCK];
    const int t = threadIdx.x;
    if constexpr (VARIANT >= 2) {
        p = warp_combine(p);
        if (t % 32 == 0)
            at[t / 32] = p;
        __syncthreads();
        if (t < 32)
            p = warp_combine(t < BLOCK / 32 ? at[t] : partial_of(neutral()));
        return p;
    }
    at[t] = p;
    __syncthreads();
    if constexpr (VARIANT == 0) {
        for (int stride = 1; stride < BLOCK; stride *= 2) {
            if (t % (2 * stride) == 0)
                at[t] = combine(at[t], at[t + stride]);
            __syncthreads();
        }
    } else {
        for (int half = BLOCK / 2; half > 0; half /= 2) {
            if (t < half)
                at[t] = combine(at[t], at[t + half]);
            __syncthreads();
        }
    }
    return at[0];
}

// One block combines the blocks' partial results. They are read from L2, as other blocks of this
// launch may have written them; MANY per thread and step, to wait for them once.
__device__ inline void combine_blocks(const partial *partials, value *out, int count)
{
    constexpr int MANY = 8;
    running all;
    for (int at = 0; at < count; at += MANY * BLOCK) {
        partial v[MANY];
#pragma unroll
        for (int i = 0; i < MANY; i++) {
            const int index = at + i * BLOCK + threadIdx.x;
            v[i] = index < count ? __ldcg(partials + index) : partial_of(neutral());
        }
        all.take(combine_all<MANY>(v));
    }
    const partial p = block_combine(all.result());
    if (threadIdx.x == 0)
        *out = total_of(p);
}

// Whether the block is the last of the grid to come here; what the others wrote before is seen.
__device__ inline bool is_last(u32 *tickets)
{
    __shared__ bool answer;
    if (threadIdx.x == 0) {
        __threadfence();
        answer = atomicAdd(tickets, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return answer;
}

extern "C" __global__ void __launch_bounds__(BLOCK, VARIANT == 5 ? BLOCKS_PER_SM : MIN_BLOCKS)
    reduce(const element *__restrict__ x, // [N]
        value *__restrict__ out,          // [1], zero before when VARIANT is 3
        partial *partials,                // [gridDim.x] unless VARIANT is 3
        u32 *tickets,                     // [1] when VARIANT is 4, zero before
        i64 N,
        i64 part, // tiles of TILE elements per block, gridDim.x * part + longer in all
        i64 longer)
{
    const partial p = block_combine(walk(x, N, part, longer));
    if constexpr (VARIANT == 3) {
        if (threadIdx.x == 0)
            atomicAdd(out, total_of(p));
        return;
    }
    if (gridDim.x == 1) {
        if (threadIdx.x == 0)
            *out = total_of(p);
        return;
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = p;
    if constexpr (VARIANT == 4) {
        if (is_last(tickets))
            combine_blocks(partials, out, gridDim.x);
    }
#if VARIANT == 5
    grid_sync();
    if (blockIdx.x == 0)
        combine_blocks(partials, out, gridDim.x);
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduce_final(const partial *partials, // [count]
    value *__restrict__ out,                                                              // [1]
    int count)
{
    if constexpr (VARIANT <= 2)
        combine_blocks(partials, out, count);
}

#endif
