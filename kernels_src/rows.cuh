// What softmax and layernorm share: the tunables, how threads walk over the rows of a matrix, and
// how they tell each other what they know of a row.
//
// Threads share a row, each takes accesses of VEC elements, neighbouring threads neighbouring ones.
// VARIANT 0 (naive): one thread per row, three loops over it. Readable, and the slowest.
// VARIANT 1 (registers): a row is read once and kept in registers, ITEMS elements per thread; for
//   rows of up to THREADS * ITEMS elements. ROWS rows share a block.
// VARIANT 2 (shared): a block per row, which is read once and kept in shared memory.
// VARIANT 3 (online): a block per row of any length, which is read twice.
// VARIANT 4 (split): SPLIT blocks per row, for rows that are long and few. A first launch writes
//   what is known of each part to scratch, a second one combines it and reads the row again.
// VARIANT 5 (cluster): as registers, with a cluster of SPLIT blocks per row: rows of up to
//   SPLIT * THREADS * ITEMS elements are read once. Each warp hands what it knows to all blocks of
//   the cluster through their shared memory.
// Loops take ITEMS elements per thread and step, so that many accesses are on their way at once;
// where a row is read again, the second loop begins at the end that the L2 still holds.
//
// A place in a row is counted from the last address at or before its first element that is aligned
// to VEC elements. TAIL 0 (whole): VEC divides the rows' length, and the first element stands at
// place 0. TAIL 1 (ragged): it stands somewhere below VEC, so that rows of any length are read by
// whole accesses too, but for the first and the last one, which are taken element by element.
#pragma once
#include "cluster.cuh"
#include "small_floats.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 registers, 2 shared, 3 online, 4 split, 5 cluster
#endif
#ifndef THREADS
#define THREADS 256 // threads that share a row, in each of its blocks; power of 2
#endif
#ifndef ROWS
#define ROWS 1 // rows per block
#endif
#ifndef ITEMS
#define ITEMS 16 // elements per thread: of the row in VARIANT 1 and 5, of a step in the others
#endif
#ifndef VEC
#define VEC 4 // elements per access
#endif
#ifndef SPLIT
#define SPLIT 1 // blocks that share a row
#endif
#ifndef TAIL
#define TAIL 0 // 0 whole: VEC divides the rows' length; 1 ragged: it does not
#endif
#ifndef STREAM
#define STREAM 0 // 1: what is not wanted again leaves the caches first
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#if TUNE_DTYPE_F16
typedef f16 element;
#elif TUNE_DTYPE_BF16
typedef bf16 element;
#else
typedef float element;
#endif

constexpr int BLOCK = THREADS * ROWS;    // threads per block
constexpr int STEP = THREADS * ITEMS;    // places of a row per turn of the loops
constexpr int WARPS = (BLOCK + 31) / 32; // per block
constexpr int SHARERS = VARIANT == 5 ? SPLIT * WARPS : WARPS; // warps that have the block's row

static_assert(
    VARIANT != 0 || (THREADS == 1 && ROWS == 128 && ITEMS == 1 && VEC == 1 && STREAM == 0),
    "the naive variant has no choices: it stands once in the space, with 128 threads");
static_assert(VARIANT == 0 || THREADS >= 8, "only the naive variant has one thread per row");
static_assert(BLOCK >= 64 && BLOCK <= 1024, "a block has 64 to 1024 threads: THREADS * ROWS");
static_assert(
    ROWS == 1 || THREADS <= 32, "rows share a block only where each has a warp or less: THREADS");
static_assert(VARIANT <= 1 || ROWS == 1,
    "a row that a block loops over, or several share, has it for itself: ROWS is 1");
static_assert(ITEMS % VEC == 0, "the elements of a thread are a whole number of accesses");
static_assert(VEC * sizeof(element) <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(
    ITEMS <= 8 * VEC || VARIANT <= 1 || VARIANT == 5, "a step has at most 8 accesses per thread");
static_assert(
    ITEMS >= 2 * VEC || VARIANT <= 1 || VARIANT == 5, "a step has at least 2 accesses per thread");
static_assert(MIN_BLOCKS == 1 || VARIANT == 1 || VARIANT == 5,
    "only rows in registers make registers scarce");
static_assert(
    (SPLIT > 1) == (VARIANT >= 4), "the split and cluster variants, and no others, have SPLIT > 1");
static_assert(SPLIT <= 8 || VARIANT != 5, "a cluster has at most 8 blocks: SPLIT");
static_assert(TAIL == 0 || VEC > 1, "single elements leave no tail: TAIL is whole where VEC is 1");

__device__ inline float value_of(const element *at)
{
    float v[1];
    load(v, at);
    return v[0];
}

#if !TUNE_REFERENCE

// What one access moves: 16 bytes, or fewer.
template <int BYTES> struct word {
    typedef uint4 type;
};
template <> struct word<2> {
    typedef u16 type;
};
template <> struct word<4> {
    typedef u32 type;
};
template <> struct word<8> {
    typedef uint2 type;
};
typedef word<VEC * sizeof(element)>::type access_word;

// The part of a row that a block has. Elements stand at places begin to end; `from` is the place of
// the first access.
struct part {
    i64 offset; // of place 0 in the matrix
    i64 from, begin, end;
    int lead; // place of the row's first element
};

__device__ inline part part_of(i64 row, int number, i64 N)
{
    const int lead = TAIL ? (int)(row * N % VEC) : 0;
    const i64 length = SPLIT == 1 ? N + lead : ceildiv(ceildiv(N + lead, SPLIT), VEC) * VEC;
    const i64 from = number * length, end = least(N + lead, from + length);
    return {row * N - lead, from, from < lead ? lead : from, end, lead};
}

// Where the last step of a part begins.
__device__ inline i64 last_step(const part &part)
{
    return part.from + (part.end - part.from - 1) / STEP * STEP;
}

// A thread's share of a step of STEP places, from the place `from` on: access i / VEC is
// i * THREADS places after the first one. Elements begin and end that many places after it.
struct step {
    i64 place; // of the thread's first access, in the row
    i64 at;    // and in the matrix
    int begin, end;

    __device__ inline step(const part &part, i64 from, int thread)
    {
        const int first = thread * VEC;
        place = from + first;
        at = part.offset + place;
        begin = (TAIL && part.begin > from ? (int)(part.begin - from) : 0) - first;
        end = (int)least(part.end - from, STEP) - first;
    }

    // The same in a row that is there, or holds nothing.
    __device__ inline step in_row(bool is_there) const
    {
        step s = *this;
        if (!is_there)
            s.end = s.begin;
        return s;
    }

    // Whether the access that many places after the first one has nothing but elements.
    __device__ inline bool is_whole(int place) const
    {
        return TAIL ? place >= begin && place + VEC <= end : place < end;
    }

    // Whether element j of that access is one.
    __device__ inline bool has(int place, int j) const
    {
        return TAIL ? place + j >= begin && place + j < end : place < end;
    }

    // How many elements LANES neighbouring threads have, of which this is one.
    template <int LANES> __device__ inline int count() const
    {
        const int before = threadIdx.x % LANES * VEC; // places of the access from the first one's
        int count = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i += VEC) {
            count += limited(end + before - i * THREADS, LANES * VEC);
            if (TAIL)
                count -= limited(begin + before - i * THREADS, LANES * VEC);
        }
        return count;
    }

  private:
    static __device__ inline int limited(int count, int most)
    {
        return count < 0 ? 0 : count < most ? count : most;
    }
};

// v[] = the thread's elements of the step, the first access at `from`, `nothing` where there is no
// element. All whole accesses are on their way before the first is looked at. They say that the
// words are not wanted again, if STREAM and `is_last`.
__device__ inline void read(float (&v)[ITEMS], const element *__restrict__ from, const step &step,
    float nothing, bool is_last)
{
    access_word words[ITEMS / VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        const access_word *at = reinterpret_cast<const access_word *>(from + i * THREADS);
        if (step.is_whole(i * THREADS))
            words[i / VEC] = STREAM && is_last ? __ldcs(at) : *at;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        float(&some)[VEC] = reinterpret_cast<float(&)[VEC]>(v[i]);
        if (step.is_whole(i * THREADS))
            load(some, reinterpret_cast<const element *>(&words[i / VEC]));
        else
#pragma unroll
            for (int j = 0; j < VEC; j++)
                some[j] =
                    TAIL && step.has(i * THREADS, j) ? value_of(from + i * THREADS + j) : nothing;
    }
}

// The same in the other direction. Nobody here reads again what was written.
__device__ inline void write(element *__restrict__ to, const float (&v)[ITEMS], const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        const float(&some)[VEC] = reinterpret_cast<const float(&)[VEC]>(v[i]);
        access_word word;
        if (step.is_whole(i * THREADS)) {
            store(reinterpret_cast<element *>(&word), some);
            access_word *at = reinterpret_cast<access_word *>(to + i * THREADS);
            if (STREAM)
                __stcs(at, word);
            else
                *at = word;
        } else if (TAIL) {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (step.has(i * THREADS, j))
                    store(to + i * THREADS + j, reinterpret_cast<const float(&)[1]>(some[j]));
        }
    }
}

// Of a row that a block keeps in shared memory, in whole accesses: what stands beside the row's
// ends is kept with it. A thread recalls what it kept itself.
__device__ inline void keep(element *row, const float (&v)[ITEMS], const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC)
        if (i * THREADS < step.end)
            store(row + i * THREADS, reinterpret_cast<const float(&)[VEC]>(v[i]));
}

__device__ inline void recall(float (&v)[ITEMS], const element *row, const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC)
        if (i * THREADS < step.end)
            load(reinterpret_cast<float(&)[VEC]>(v[i]), row + i * THREADS);
}

// Sums over all threads whose lanes differ in the bits below WIDTH; each of them gets the same
// results.
template <int WIDTH, int COUNT> __device__ inline void lanes_sum(float (&sums)[COUNT])
{
#pragma unroll
    for (int bit = WIDTH / 2; bit > 0; bit /= 2)
#pragma unroll
        for (float &sum : sums)
            sum += __shfl_xor_sync(0xffffffffu, sum, bit);
}

template <int WIDTH> __device__ inline float lanes_sum(float one)
{
    float sum[1] = {one};
    lanes_sum<WIDTH>(sum);
    return sum[0];
}

// all[r] = what each warp that has row r of the block, in all blocks of its cluster, knows of it:
// mine[r]. All threads of the block must call it, once, in VARIANT 5 after cluster_arrive().
template <typename T, int COUNT>
__device__ inline void tell(T (&all)[COUNT][SHARERS], const T (&mine)[COUNT])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (VARIANT == 5)
        cluster_wait(); // the other blocks have begun: their shared memory is there
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        if constexpr (VARIANT == 5) {
            if (lane < SPLIT)
                cluster_store(&all[r][cluster_rank() * WARPS + warp], lane, mine[r]);
        } else {
            if (lane == 0)
                all[r][warp] = mine[r];
        }
    }
    if constexpr (VARIANT == 5)
        cluster_sync();
    else
        __syncthreads();
}

#endif
