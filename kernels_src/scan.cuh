// What scans are made of: how a tile's elements come to the threads, sums within a warp and before
// a tile, and the decoupled look-back. scan_tiles.cuh puts it together for scan, segmented_scan and
// compact.
//
// A tile is what a block takes at once, and each warp has its own part of it, in order. Elements
// are 4 bytes: float, or int, whose sums wrap.
#pragma once
#include "copies.cuh"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// `exact` is what references add elements up in.
#if TUNE_DTYPE_I32
typedef int element;
typedef i64 exact; // wraps at 2^64, so its lower half is right
#else
typedef float element;
typedef double exact;
#endif

constexpr u32 ALL = 0xffffffffu; // lanes of a warp

__device__ inline float add(float a, float b)
{
    return a + b;
}

// Wraps. In PTX, so that the compiler adds in the order that is written, as it does with floats:
// left to itself it keeps elements beside their sums to add them up in another one, and a tile of
// 1024 * 32 no longer fits the registers.
__device__ inline int add(int a, int b)
{
#ifdef TUNE_EMULATOR
    return (int)((u32)a + (u32)b);
#else
    int sum;
    asm("add.s32 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
#endif
}

__device__ inline i64 add(i64 a, i64 b)
{
    return a + b;
}

// --- a tile's elements ---------------------------------------------------------------------------

enum {
    BLOCKED,    // neighbouring elements by 16-byte accesses: a warp's are far apart
    TRANSPOSED, // 16-byte accesses side by side, then through shared memory to neighbouring
                // elements
    STRIPED // 16-byte accesses side by side: elements stay as they came, in rows of 4 per thread
};

// Who has which element of a tile of THREADS * COUNT: a thread's v[row * WIDTH + column] is, within
// its warp's part, element row * 32 * WIDTH + lane * WIDTH + column.
template <int METHOD, int THREADS, int COUNT> struct tile_layout {
    static constexpr int WIDTH = METHOD == STRIPED ? 4 : COUNT, ROWS = COUNT / WIDTH;
    static constexpr int TILE = THREADS * COUNT;
    // Words after each thread's elements in shared memory, so that the threads' 16-byte accesses
    // begin in different banks.
    static constexpr int PAD = COUNT / 4 % 2 == 0 ? 4 : 0;
    static constexpr int STAGED = METHOD == TRANSPOSED ? THREADS * (COUNT + PAD) : 1;

    static __device__ inline int offset(int i)
    {
        return threadIdx.x / 32 * 32 * COUNT + i / WIDTH * 32 * WIDTH + threadIdx.x % 32 * WIDTH +
               i % WIDTH;
    }

    // The other way round, word i of the 16-byte accesses that are side by side: where in the tile,
    // and where in shared memory.
    static __device__ inline int side_by_side(int i)
    {
        return threadIdx.x / 32 * 32 * COUNT + i * 32 + threadIdx.x % 32 * 4;
    }

    static __device__ inline int staged(int at)
    {
        return at + at / COUNT * PAD;
    }
};

template <typename T> struct vector_of;
template <> struct vector_of<float> {
    typedef float4 type;
};
template <> struct vector_of<int> {
    typedef int4 type;
};

// Four elements by one access; `from` in the first and `to` in the second must be aligned to it.
template <typename T> __device__ inline void load4(T *to, const T *from)
{
    const auto four = *reinterpret_cast<const typename vector_of<T>::type *>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}

template <typename T> __device__ inline void store4(T *to, const T *from)
{
    typename vector_of<T>::type four;
    four.x = from[0];
    four.y = from[1];
    four.z = from[2];
    four.w = from[3];
    *reinterpret_cast<typename vector_of<T>::type *>(to) = four;
}

// The tile that begins at x, of which `left` elements are there; the others become 0. `stage` has
// STAGED elements of shared memory; a warp uses its own part only.
template <int METHOD, int THREADS, int COUNT, typename T>
__device__ inline void read_tile(T (&v)[COUNT], const T *__restrict__ x, i64 left, T *stage)
{
    typedef tile_layout<METHOD, THREADS, COUNT> layout;
    if (left < layout::TILE) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            v[i] = layout::offset(i) < left ? x[layout::offset(i)] : T(0);
    } else if constexpr (METHOD == TRANSPOSED) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            load4(v + i, x + layout::side_by_side(i));
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            store4(stage + layout::staged(layout::side_by_side(i)), v + i);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            load4(v + i, stage + layout::staged(layout::offset(i)));
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            load4(v + i, x + layout::offset(i));
    }
}

template <int METHOD, int THREADS, int COUNT, typename T>
__device__ inline void write_tile(T *__restrict__ out, const T (&v)[COUNT], i64 left, T *stage)
{
    typedef tile_layout<METHOD, THREADS, COUNT> layout;
    if (left < layout::TILE) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (layout::offset(i) < left)
                out[layout::offset(i)] = v[i];
    } else if constexpr (METHOD == TRANSPOSED) {
        __syncwarp(); // the last use of `stage` is over
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            store4(stage + layout::staged(layout::offset(i)), v + i);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            T four[4];
            load4(four, stage + layout::staged(layout::side_by_side(i)));
            store4(out + layout::side_by_side(i), four);
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            store4(out + layout::offset(i), v + i);
    }
}

// --- sums ----------------------------------------------------------------------------------------

// Of all lanes, in every lane.
template <typename T> __device__ inline T warp_sum(T sum)
{
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2)
        sum = add(sum, __shfl_xor_sync(ALL, sum, bit));
    return sum;
}

// Of the lane and those before it.
template <typename T> __device__ inline T warp_running_sum(T sum)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const T other = __shfl_up_sync(ALL, sum, offset);
        if (lane >= offset)
            sum = add(other, sum);
    }
    return sum;
}

// What the lane before has; the first lane gets 0.
template <typename T> __device__ inline T lane_before(T value)
{
    const T other = __shfl_up_sync(ALL, value, 1);
    return threadIdx.x % 32 == 0 ? T(0) : other;
}

// Each of at[0..THREADS) in shared memory, of which each thread has just written its own, becomes
// those up to it, combined by op(earlier, later), which need not commute; every thread may read
// them. Kogge-Stone: log2(THREADS) steps, in each of which almost all threads combine.
template <int THREADS, typename V, typename F>
__device__ inline void kogge_stone(V *at, V zero, F op)
{
    const int t = threadIdx.x;
    __syncthreads();
    for (int offset = 1; offset < THREADS; offset *= 2) {
        const V other = t >= offset ? at[t - offset] : zero;
        __syncthreads();
        at[t] = op(other, at[t]);
        __syncthreads();
    }
}

// Each of sums[0..count) becomes what stands before it, combined by op(earlier, later), which need
// not commute; returns the total. One block of THREADS threads: the middle one of three kernels.
template <int THREADS, typename V, typename F>
__device__ inline V scan_in_place(V *__restrict__ sums, i64 count, V zero, F op)
{
    constexpr int EACH = 8; // sums of a thread and step
    __shared__ V at[THREADS];
    const int t = threadIdx.x;
    V before = zero;
    for (i64 first = 0; first < count; first += THREADS * EACH) {
        const i64 mine = first + t * EACH;
        V v[EACH], sum = zero;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v[i] = mine + i < count ? sums[mine + i] : zero;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            sum = op(sum, v[i]);
        at[t] = sum;
        kogge_stone<THREADS>(at, zero, op);
        sum = t > 0 ? op(before, at[t - 1]) : before;
        before = op(before, at[THREADS - 1]);
        __syncthreads(); // `at` has been read
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (mine + i < count)
                sums[mine + i] = sum;
            sum = op(sum, v[i]);
        }
    }
    return before;
}

// --- decoupled look-back -------------------------------------------------------------------------
//
// A tile publishes its own sum, adds up what the tiles before it have published until one has
// published the sum of all up to itself, and then publishes that too. State and sum are one word
// written by one access, so no order between words matters.
//
// A tile waits for earlier ones only. Blocks take their tile's number from a counter when they
// begin, so all earlier tiles belong to blocks that run or have run, and the wait ends: in which
// order blocks begin, CUDA does not say. A block that takes several does them in their order.

constexpr u64 MISSING = 0;            // as the memset before the launch leaves it
constexpr u64 OWN_SUM = 1ull << 62;   // of the tile alone
constexpr u64 WHOLE_SUM = 2ull << 62; // of the tile and all before it
constexpr u64 STATE = 3ull << 62;

__device__ inline u64 word_of(u64 state, float sum)
{
    return state | __float_as_uint(sum);
}

__device__ inline u64 word_of(u64 state, int sum)
{
    return state | (u32)sum;
}

__device__ inline u64 word_of(u64 state, i64 sum)
{
    return state | (u64)sum; // a count: 62 bits
}

__device__ inline void sum_of(u64 word, float &sum)
{
    sum = __uint_as_float((u32)word);
}

__device__ inline void sum_of(u64 word, int &sum)
{
    sum = (int)(u32)word;
}

__device__ inline void sum_of(u64 word, i64 &sum)
{
    sum = (i64)(word & ~STATE);
}

__device__ inline void publish(u64 *to, u64 word)
{
#ifdef TUNE_EMULATOR
    *static_cast<volatile u64 *>(to) = word;
#else
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
#endif
}

__device__ inline u64 published(const u64 *from)
{
#ifdef TUNE_EMULATOR
    return *static_cast<const volatile u64 *>(from);
#else
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
#endif
}

// The block's tile, for all its threads; next is 0 before the launch. Call it once.
__device__ inline i64 take_tile(u64 *next)
{
    __shared__ i64 tile;
    if (threadIdx.x == 0)
        tile = (i64)atomicAdd(next, 1ull);
    __syncthreads();
    return tile;
}

// The sum of all tiles before `tile`, in every lane, from words[0..tile). All lanes of one warp
// call it. A lane asks for WORDS tiles at once, 32 tiles being side by side; when one of those that
// are needed is missing, the warp rests about WAIT_NS nanoseconds and asks again.
template <int WORDS, int WAIT_NS, typename T>
__device__ inline T look_back(const u64 *__restrict__ words, i64 tile)
{
    const int lane = threadIdx.x % 32;
    T sum = T(0); // the lane's share
    for (i64 end = tile; end > 0;) {
        u64 word[WORDS];
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const i64 at = end - 1 - i * 32 - lane;
            word[i] = at >= 0 ? published(words + at) : WHOLE_SUM;
        }
        bool is_missing = false;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const u32 missing = __ballot_sync(ALL, (word[i] & STATE) == MISSING);
            const u32 whole = __ballot_sync(ALL, (word[i] & STATE) == WHOLE_SUM);
            const u32 needed = whole ? whole ^ (whole - 1) : ALL; // lanes up to the first whole sum
            is_missing = is_missing || (missing & needed);
            if (is_missing)
                continue;
            T other;
            sum_of(word[i], other);
            if (needed >> lane & 1)
                sum = add(other, sum);
            if (whole)
                return warp_sum(sum);
            end -= 32;
        }
        if (WAIT_NS > 0 && is_missing)
            __nanosleep(WAIT_NS);
    }
    return warp_sum(sum);
}
