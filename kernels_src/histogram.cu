// counts[b] = how many of x[0..N) equal b, for b in [0, BINS); u8 or u32, exact.
//
// An element of BINS or more is not counted. A count is an u32: exact while it is below 2^32.
//
// A grid of blocks that all run at once walks over x in strides of the whole grid. Each step a
// thread reads ITEMS accesses of BYTES bytes and counts their elements:
// VARIANT 0 (global): one element at a time, one atomic to counts each. Readable, and the slowest.
// VARIANT 1 (block): in a copy of the counters in the block's shared memory.
// VARIANT 2 (warp): in a copy for each warp.
// VARIANT 3 (replicated): in REPLICAS copies for the block. Lane l uses copy l % REPLICAS, and the
//   copies of a counter lie side by side: with 32 copies each lane has a bank of its own, so that
//   no two lanes ever meet, whatever the elements are.
// VARIANT 4 (aggregated): as 3, but a thread counts a run of equal elements in a register and adds
//   it to shared memory when another element comes. A whole access of the run costs a comparison.
// VARIANT 5 (columns, u8): no atomics. Each thread has a column of 256 counters of 8 bits, in its
//   own bank, and the block adds the columns up before they can overflow.
// Blocks then add what is not zero to counts. Integers: every variant is deterministic.
//
// counts must be zero before that. CLEAR 0 (memset) leaves it to a memset before the launch; with 1
// (grid), in a cooperative launch, the blocks clear it themselves and go on: only at the end they
// wait until all have done so.
//
// x must be aligned to BYTES. N need not be a multiple of anything.
#include "common.cuh"

#ifndef VARIANT
#define VARIANT 3 // 0 global, 1 block, 2 warp, 3 replicated, 4 aggregated, 5 columns
#endif
#ifndef BLOCK
#define BLOCK 512 // threads per block
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM 2 // blocks per multiprocessor, all running at once
#endif
#ifndef ITEMS
#define ITEMS 4 // accesses of a thread on their way at once
#endif
#ifndef BYTES
#define BYTES 16 // per access
#endif
#ifndef REPLICAS
#define REPLICAS 32 // copies of the counters that the lanes of a warp share, power of 2
#endif
#ifndef PREFETCH
#define PREFETCH 0 // 1: the accesses of the next step are on their way while a step is counted
#endif
#ifndef CLEAR
#define CLEAR 0 // what sets counts to zero: 0 a memset before, 1 the grid
#endif

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
#if TUNE_DTYPE_U32
typedef u32 element;
#else
typedef u8 element;
#endif

constexpr int WORDS = BYTES / 4;              // of an access
constexpr int PER_WORD = 4 / sizeof(element); // elements
constexpr int PER_ACCESS = PER_WORD * WORDS;  // elements
constexpr int COLUMN_ROWS = 64;               // of four 8-bit counters each

static_assert(VARIANT != 0 || (BLOCK == 256 && BLOCKS_PER_SM == 4 && ITEMS == 1 && BYTES == 4 &&
                                  REPLICAS == 1 && PREFETCH == 0 && CLEAR == 0),
    "the global variant has no choices: it stands once in the space, with 256 threads");
static_assert(VARIANT == 3 || VARIANT == 4 || REPLICAS == 1,
    "lanes have copies of their own in the replicated and the aggregated variant only: REPLICAS is "
    "1 elsewhere");
static_assert(VARIANT != 3 || REPLICAS > 1, "one copy is the block variant: REPLICAS is above 1");
static_assert(VARIANT != 5 || (sizeof(element) == 1 && BLOCK == 256),
    "columns are for u8 and take blocks of 256 threads");
static_assert(VARIANT != 4 || REPLICAS == 1 || REPLICAS == 8 || REPLICAS == 32,
    "runs leave few atomics, so that the aggregated variant has 1, 8 or 32 copies only: REPLICAS");
static_assert(VARIANT == 5 || (BLOCK * BLOCKS_PER_SM >= 512 && BLOCK * BLOCKS_PER_SM <= 2048),
    "a multiprocessor runs 512 to 2048 threads: BLOCK * BLOCKS_PER_SM");
static_assert(VARIANT != 5 || BLOCKS_PER_SM <= 3,
    "no multiprocessor has shared memory for columns of more than 3 blocks: BLOCKS_PER_SM");
static_assert(VARIANT == 0 || BYTES == 16 || ITEMS >= 4,
    "narrow accesses take many at once: ITEMS is 4 or 8 where BYTES is 4");
static_assert(BLOCK * BLOCKS_PER_SM * (ITEMS * (BYTES / 4) * (1 + PREFETCH) + 16) <= 65536,
    "what is on its way must fit the registers: BLOCK * BLOCKS_PER_SM * (ITEMS * (BYTES / 4) * (1 "
    "+ PREFETCH) + 16) is at most 65536");
static_assert(PREFETCH == 0 || BYTES == 16, "only steps of whole vectors are fetched ahead");

#if TUNE_REFERENCE

// A thread adds each run of equal elements that it meets by one atomic. counts must be zero.
extern "C" __global__ void __launch_bounds__(256)
    histogram_reference(const element *__restrict__ x, // [N]
        u32 *__restrict__ counts,                      // [BINS]
        i64 N, i64 BINS)
{
    u32 run = 0, length = 0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < N; i += (i64)gridDim.x * 256) {
        if (x[i] != run && run < BINS)
            atomicAdd(counts + run, length);
        length = x[i] == run ? length + 1 : 1;
        run = x[i];
    }
    if (run < BINS)
        atomicAdd(counts + run, length);
}

#elif VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK) histogram(const element *__restrict__ x, // [N]
    u32 *__restrict__ counts, // [BINS], zero before
    i64 N, i64 BINS)
{
    for (i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x; i < N; i += (i64)gridDim.x * BLOCK)
        if (x[i] < BINS)
            atomicAdd(counts + x[i], 1u);
}

#else

#if CLEAR == 1
#include "grid.cuh"
#else
// Nobody clears: arriving is a barrier of the block alone, and there is nothing to wait for.
struct grid_barrier {
    __device__ inline void arrive()
    {
        __syncthreads();
    }

    __device__ inline void wait()
    {
    }
};
#endif

// v[] = the thread's accesses of the step that begins at access `at`, `stride` apart. What lies
// behind `end` is left as it is.
__device__ inline void read(
    u32 (&v)[ITEMS][WORDS], const element *__restrict__ x, i64 at, i64 end, i64 stride)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const i64 access = at + i * stride;
        if (access >= end)
            continue;
        if constexpr (WORDS == 4) {
            const uint4 four = reinterpret_cast<const uint4 *>(x)[access];
            v[i][0] = four.x;
            v[i][1] = four.y;
            v[i][2] = four.z;
            v[i][3] = four.w;
        } else {
            v[i][0] = reinterpret_cast<const u32 *>(x)[access];
        }
    }
}

#if VARIANT != 5

// log2 of the bytes from a counter to the next one's: the copies of a counter lie side by side.
constexpr int SCALE = REPLICAS == 32   ? 7
                      : REPLICAS == 16 ? 6
                      : REPLICAS == 8  ? 5
                      : REPLICAS == 4  ? 4
                      : REPLICAS == 2  ? 3
                                       : 2;
static_assert(1 << SCALE == 4 * REPLICAS, "REPLICAS is a power of 2, 32 at most");

// The thread's copy of the counters. u8 has 256 of them whatever BINS is, so that no element needs
// a comparison, and `mine` in bytes, in bits that its counters' offsets leave free; u32 has BINS,
// and `mine` in counters.
struct counters {
    u32 *all;
    u32 mine, bins;
    u32 run, run_pattern, run_length; // VARIANT 4: key, a word of nothing else, and how many

    // What element k of a word is found by: for u8 the counter's offset, which two instructions cut
    // out of the word, for u32 the element itself.
    __device__ inline u32 key(u32 word, int k) const
    {
        if constexpr (sizeof(element) == 4)
            return word;
        const int shift = 8 * k - SCALE;
        return ((shift > 0 ? word >> shift : word << -shift) & 0xffu << SCALE) | mine;
    }

    __device__ inline void add(u32 key, u32 number) const
    {
        if constexpr (sizeof(element) == 1)
            atomicAdd(reinterpret_cast<u32 *>(reinterpret_cast<char *>(all) + key), number);
        else if (key < bins)
            atomicAdd(all + key * REPLICAS + mine, number);
    }

    __device__ inline void add_run(u32 next)
    {
        if (next != run) {
            add(run, run_length);
            run = next;
            run_length = 0;
        }
        run_length++;
    }

    // The first COUNT elements of an access.
    template <int COUNT> __device__ inline void count(const u32 *words)
    {
        if constexpr (VARIANT == 4 && COUNT == PER_ACCESS) {
            u32 others = 0;
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                others |= words[w] ^ run_pattern;
            if (others == 0) {
                run_length += PER_ACCESS;
                return;
            }
        }
#pragma unroll
        for (int e = 0; e < COUNT; e++) {
            const u32 next = key(words[e / PER_WORD], e % PER_WORD);
            if constexpr (VARIANT == 4)
                add_run(next);
            else
                add(next, 1);
        }
        if constexpr (VARIANT == 4) {
            const u32 last = words[(COUNT - 1) / PER_WORD];
            constexpr u32 BYTE = (COUNT - 1) % PER_WORD;
            run_pattern = PER_WORD == 1 ? last : __byte_perm(last, 0, 0x1111 * BYTE);
        }
    }

    // Clears all copies; threads of the block share the work.
    __device__ inline void start(uint4 *memory, i64 BINS)
    {
        bins = sizeof(element) == 1 ? 256 : (u32)BINS;
        all = reinterpret_cast<u32 *>(memory);
        constexpr u32 COPIES = VARIANT == 2 ? BLOCK / 32 : REPLICAS;
        for (u32 i = threadIdx.x; i < (bins * COPIES + 3) / 4; i += BLOCK)
            memory[i] = uint4{0, 0, 0, 0};
        mine = VARIANT == 2 ? threadIdx.x / 32 * bins : threadIdx.x % REPLICAS;
        if (sizeof(element) == 1)
            mine *= 4;
        run = key(0, 0);
        run_pattern = run_length = 0;
    }

    __device__ inline void end_step()
    {
    }

    // Of all copies; neighbouring lanes ask for neighbouring bins, and begin in different copies so
    // that they meet no two in a bank.
    __device__ inline u32 total(u32 bin) const
    {
        u32 sum = 0;
        if constexpr (VARIANT == 2) {
#pragma unroll
            for (int i = 0; i < BLOCK / 32; i++)
                sum += all[i * bins + bin];
        } else {
#pragma unroll
            for (int i = 0; i < REPLICAS; i++)
                sum += all[(bin * REPLICAS + bin * REPLICAS / 32 % REPLICAS) ^ i];
        }
        return sum;
    }

    // Adds the block's totals to counts[0..BINS) once all blocks have arrived at the barrier.
    __device__ inline void finish(u32 *counts, i64 BINS, grid_barrier &cleared)
    {
        if constexpr (VARIANT == 4)
            add(run, run_length);
        __syncthreads();
        const u32 used = (u32)least(bins, BINS);
        u32 bin = threadIdx.x;
        u32 sum = bin < used ? total(bin) : 0;
        cleared.wait();
        while (bin < used) {
            if (sum != 0)
                atomicAdd(counts + bin, sum);
            bin += BLOCK;
            sum = bin < used ? total(bin) : 0;
        }
    }
};

#else

// 256 counters of 8 bits in the thread's own column of words: counter b is byte b % 4 of row b / 4.
struct counters {
    static constexpr int BATCH = 254 / (ITEMS * BYTES); // steps before one could overflow
    static constexpr int PARTS = BLOCK / COLUMN_ROWS;   // threads that add up a row together

    u32 *all; // [COLUMN_ROWS][BLOCK]
    u32 steps;
    u32 totals[4]; // of the thread's part of row threadIdx.x / PARTS, as far as added up

    // Of element e: the byte offset of its counter. b + (b << 8) has both parts of it in place, row
    // * 4 * BLOCK and b % 4.
    static __device__ inline u32 offset(const u32 *words, int e)
    {
        const u32 twice = __byte_perm(words[e / 4], 0, 0x4400 + 0x11 * (e % 4));
        return (twice & 0xfc03) | threadIdx.x * 4;
    }

    // Two elements at a time: a load waits for the store before it, as both may be the same
    // counter.
    template <int COUNT> __device__ inline void count(const u32 *words)
    {
        u8 *bytes = reinterpret_cast<u8 *>(all);
#pragma unroll
        for (int e = 0; e + 1 < COUNT; e += 2) {
            const u32 first = offset(words, e), second = offset(words, e + 1);
            const u32 at_first = bytes[first], at_second = bytes[second];
            bytes[first] = at_first + 1;
            bytes[second] = at_second + (first == second ? 2 : 1);
        }
        if constexpr (COUNT % 2 == 1)
            bytes[offset(words, COUNT - 1)]++;
    }

    __device__ inline void start(uint4 *memory, i64)
    {
        all = reinterpret_cast<u32 *>(memory);
        for (int i = threadIdx.x; i < COLUMN_ROWS * BLOCK / 4; i += BLOCK)
            memory[i] = uint4{0, 0, 0, 0};
        steps = 0;
        for (u32 &total : totals)
            total = 0;
    }

    // Adds all columns to the totals and clears them. Lanes begin in different columns, that is,
    // banks. 64 times 255 fits a half of a word, so two counters are added at once.
    __device__ inline void add_up()
    {
        u32 *part = all + threadIdx.x / PARTS * BLOCK + threadIdx.x % PARTS * 64;
        u32 even = 0, odd = 0;
        __syncthreads();
#pragma unroll 16
        for (int i = 0; i < 64; i++) {
            u32 &four = part[(i + threadIdx.x) % 64];
            even += four & 0x00ff00ff;
            odd += four >> 8 & 0x00ff00ff;
            four = 0;
        }
        __syncthreads();
        totals[0] += even & 0xffff;
        totals[1] += odd & 0xffff;
        totals[2] += even >> 16;
        totals[3] += odd >> 16;
        steps = 0;
    }

    __device__ inline void end_step()
    {
        if (++steps == BATCH)
            add_up();
    }

    __device__ inline void finish(u32 *counts, i64 BINS, grid_barrier &cleared)
    {
        add_up();
        u32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 row = totals[i];
#pragma unroll
            for (int bit = 1; bit < PARTS; bit *= 2)
                row += __shfl_xor_sync(0xffffffffu, row, bit);
            if (threadIdx.x % PARTS == i)
                sum = row;
        }
        cleared.wait();
        if (threadIdx.x < BINS && sum != 0)
            atomicAdd(counts + threadIdx.x, sum);
    }
};
static_assert(BLOCK != 256 || counters::PARTS == 4, "a thread ends with the counter of its number");

#endif

// Counts what the step that begins at access `at` has read.
__device__ inline void count(
    counters &counters, const u32 (&v)[ITEMS][WORDS], i64 at, i64 end, i64 stride)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (at + i * stride < end)
            counters.count<PER_ACCESS>(v[i]);
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)
    histogram(const element *__restrict__ x, // [N]
        u32 *__restrict__ counts,            // [BINS], zero before unless CLEAR is 1
        i64 N, i64 BINS)
{
    extern __shared__ uint4 memory[];
    const i64 end = N / PER_ACCESS, stride = (i64)gridDim.x * BLOCK;
    i64 at = (i64)blockIdx.x * BLOCK; // the same for the block: columns are added up by all of it
    u32 v[ITEMS][WORDS];
    counters counters;
    grid_barrier cleared;

    read(v, x, at + threadIdx.x, end, stride);
    const i64 behind = end * PER_ACCESS + threadIdx.x; // elements that fill no access: one a thread
    const bool has_one = blockIdx.x == 0 && behind < N;
    const u32 one = has_one ? x[behind] : 0;
    if constexpr (CLEAR == 1)
        for (i64 bin = at + threadIdx.x; bin < BINS; bin += stride)
            counts[bin] = 0;
    counters.start(memory, BINS);
    cleared.arrive();

    while (at < end) {
        const i64 next = at + ITEMS * stride;
        if constexpr (PREFETCH == 1) {
            u32 ahead[ITEMS][WORDS];
            read(ahead, x, next + threadIdx.x, end, stride);
            count(counters, v, at + threadIdx.x, end, stride);
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
#pragma unroll
                for (int w = 0; w < WORDS; w++)
                    v[i][w] = ahead[i][w];
        } else {
            count(counters, v, at + threadIdx.x, end, stride);
            read(v, x, next + threadIdx.x, end, stride);
        }
        counters.end_step();
        at = next;
    }
    if (has_one)
        counters.count<1>(&one);
    counters.finish(counts, BINS, cleared);
}

#endif
