// out_keys[0..N) = keys[0..N) in ascending order, equal ones in the order in which they came; with
// VALUES 2, out_values = values in the order of their keys. Keys are the bits of u32, i32 or f32;
// values are any 4 bytes.
//
// A radix sort from the lowest digit on: PASSES passes, each of which moves all keys to the places
// that their digit of BITS bits gives them and leaves those of a digit in their order. A key goes
// behind all keys of lower digits, and those of its own digit before it. Tiles of BLOCK * ITEMS
// keys each count their digits, learn what tiles before have, and move their keys.
// VARIANT 0 (naive): one key per thread, 4 bits, three kernels for a pass: `count_tiles`,
//   `scan_counts` over the tiles' counts of each digit, `move_tiles`, where a block sorts its keys
//   bit by bit with Kogge-Stone scans. Readable, and the slowest.
// VARIANT 1 (three_kernels): ITEMS keys per thread, ranked at once by warps; they change places in
//   shared memory, so that those of a digit leave side by side.
// VARIANT 2 (onesweep): one kernel counts the digits of all passes, `count_digits`, and each pass
// is
//   one kernel that reads and writes the keys once. A tile learns what is before it by a decoupled
//   look-back as in scan.cuh, one for each digit: a thread has one, and asks for LOOK tiles at
//   once.
// RANK says how the lanes of a warp find those with the same digit: 0 (ballots) a ballot for each
//   bit, 1 (match) the instruction for it, 2 (masks) each lane sets its bit in a word of the digit
//   in shared memory. One of them then counts for all, so that equal digits keep their order.
// Every variant is deterministic.
//
// The order is that of the bits: f32 from -NaN, -inf on over -0 and +0, in this order, to +inf and
// NaN. keys must be aligned to 16 bytes and is left as it was.
#ifndef VARIANT
#define VARIANT 2 // 0 naive, 1 three_kernels, 2 onesweep
#endif
#ifndef BLOCK
#define BLOCK 384 // threads per block, multiple of 32
#endif
#ifndef ITEMS
#define ITEMS 19 // keys per thread
#endif
#ifndef BITS
#define BITS 8 // of a digit
#endif
#ifndef RANK
#define RANK 0 // 0 ballots, 1 match, 2 masks
#endif
#ifndef LOOK
#define LOOK 4 // tiles that a thread asks for at once when it looks back
#endif
#ifndef COPIES
#define COPIES 8 // of the counters of count_digits, which the lanes of a warp share, power of 2
#endif
#ifndef WORD
#define WORD 32 // bits of an offset, and of a word in which a tile tells a count: 32 or 64
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 2 // blocks per multiprocessor that the compiler must leave registers for
#endif
#ifndef VALUES
#define VALUES 1 // 1 keys alone, 2 with values
#endif

#include "grid.cuh"
#include "scan.cuh"

static_assert(VARIANT != 0 || (BLOCK == 256 && BITS == 4 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads and 4 bits");
static_assert(
    (VARIANT == 0) == (ITEMS == 1), "the naive variant, and no other, has one key per thread");
static_assert(VARIANT != 0 || RANK == 0, "the naive variant ranks without warps: RANK");
static_assert(VARIANT == 2 || (LOOK == 1 && COPIES == 1), "only onesweep has LOOK and COPIES");
static_assert(BLOCK >= 1 << BITS, "each digit has a thread: BLOCK is at least 2 to the BITS");
static_assert(VARIANT != 2 || BITS >= 6,
    "each pass costs onesweep a look-back and moves all keys: its digits have 6 bits at least");
static_assert(VARIANT != 2 || BLOCK * ITEMS >= 2048,
    "a tile that looks back has 2048 keys at least, or the chain would be too long");
static_assert(MIN_BLOCKS == 1 || MIN_BLOCKS * BLOCK >= 512,
    "MIN_BLOCKS limits registers from 512 threads on: MIN_BLOCKS * BLOCK");
static_assert(MIN_BLOCKS * BLOCK * (2 * ITEMS + 24) <= 65536,
    "keys and ranks of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (2 * ITEMS + "
    "24) is at most 65536");

constexpr int TILE = BLOCK * ITEMS, WARPS = BLOCK / 32;
constexpr int BINS = 1 << BITS, PASSES = (32 + BITS - 1) / BITS;

#if TUNE_REFERENCE

// The whole sort by one cooperative launch of blocks of 256 threads, 4 bits at a time: each thread
// has neighbouring keys, counts their digits, and moves them one after the other.
extern "C" __global__ void __launch_bounds__(256)
    reference_sort(const u32 *__restrict__ keys, // [N]
        const u32 *__restrict__ values,          // [N], or nothing
        u32 *out_keys,                           // [N]
        u32 *out_values,                         // [N], or nothing
        u32 *other_keys, u32 *other_values,      // the same
        i64 *counts,                             // [16 * threads]: by digit, then thread
        i64 N)
{
    __shared__ i64 own[16][256], share[256];
    const i64 threads = (i64)gridDim.x * 256, thread = (i64)blockIdx.x * 256 + threadIdx.x;
    const i64 first = thread * ceildiv(N, threads), end = least(first + ceildiv(N, threads), N);
    const auto digit_of = [](u32 key, int pass) {
#if TUNE_DTYPE_F32
        key = key >> 31 ? ~key : key | 0x80000000u; // larger ones of negatives are smaller
#elif TUNE_DTYPE_I32
        key += 0x80000000u;
#endif
        return key >> 4 * pass & 15;
    };
    for (int pass = 0; pass < 8; pass++) {
        const u32 *from = pass == 0 ? keys : pass % 2 ? other_keys : out_keys;
        const u32 *from_values = pass == 0 ? values : pass % 2 ? other_values : out_values;
        u32 *to = pass % 2 ? out_keys : other_keys,
            *to_values = pass % 2 ? out_values : other_values;
        for (int digit = 0; digit < 16; digit++)
            own[digit][threadIdx.x] = 0;
        for (i64 i = first; i < end; i++)
            own[digit_of(from[i], pass)][threadIdx.x]++;
        for (int digit = 0; digit < 16; digit++)
            counts[digit * threads + thread] = own[digit][threadIdx.x];
        grid_sync();
        if (blockIdx.x == 0) { // each count becomes the sum of all before it
            const i64 begin = threadIdx.x * (threads / 16); // 16 * threads / 256 of them
            i64 sum = 0;
            for (i64 i = begin; i < begin + threads / 16; i++)
                sum += counts[i];
            share[threadIdx.x] = sum;
            __syncthreads();
            sum = 0;
            for (int i = 0; i < (int)threadIdx.x; i++)
                sum += share[i];
            for (i64 i = begin; i < begin + threads / 16; i++) {
                const i64 count = counts[i];
                counts[i] = sum;
                sum += count;
            }
        }
        grid_sync();
        for (int digit = 0; digit < 16; digit++)
            own[digit][threadIdx.x] = counts[digit * threads + thread];
        for (i64 i = first; i < end; i++) {
            const i64 place = own[digit_of(from[i], pass)][threadIdx.x]++;
            to[place] = from[i];
            if (VALUES == 2)
                to_values[place] = from_values[i];
        }
        grid_sync();
    }
}

#else

#if WORD == 64
typedef u64 word;
#else
typedef u32 word;
#endif

// The key's digit of this pass.
__device__ inline u32 digit_of(u32 key, int pass)
{
#if TUNE_DTYPE_F32
    key ^= (u32)((int)key >> 31) | 0x80000000u; // all bits of a negative one
#elif TUNE_DTYPE_I32
    key ^= 0x80000000u;
#endif
    return key >> pass * BITS & (BINS - 1);
}

// What stands behind the end of the last tile: no key is greater.
#if TUNE_DTYPE_F32 || TUNE_DTYPE_I32
constexpr u32 LAST = 0x7fffffffu;
#else
constexpr u32 LAST = 0xffffffffu;
#endif

// Between the first pass and the last, keys go to and fro between two arrays. The last pass writes
// to `out`.
template <typename T> __device__ inline T *goes_to(T *out, T *other, int pass)
{
    return (PASSES - 1 - pass) % 2 == 0 ? out : other;
}

template <typename T>
__device__ inline const T *comes_from(const T *in, const T *out, const T *other, int pass)
{
    return pass == 0 ? in : goes_to(out, other, pass - 1);
}

// --- counts --------------------------------------------------------------------------------------

// Of the first BINS threads' values, the sum of those before the thread's own. Holds a barrier.
template <typename T> __device__ inline T bins_before(T own)
{
    __shared__ T of_warp[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T sum = warp_running_sum(threadIdx.x < BINS ? own : T(0));
    if (lane == 31)
        of_warp[warp] = sum;
    __syncthreads();
    return warp_sum(lane < warp ? of_warp[lane] : T(0)) + sum - own;
}

// The thread's keys, or values, of a tile of which `left` are there: within the warp's part, i * 32
// + lane.
__device__ inline void read_tile_words(u32 (&v)[ITEMS], const u32 *from, int left)
{
    const int first = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
    from += first;
    if (left >= TILE) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            v[i] = from[i * 32];
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            v[i] = first + i * 32 < left ? from[i * 32] : LAST;
    }
}

// counters[warp][digit] = how many of the warp's keys. The warp waits for its own.
__device__ inline void count_warp(u32 *counters, const u32 (&key)[ITEMS], int pass)
{
    u32 *const own = counters + threadIdx.x / 32 * BINS;
    for (int bin = threadIdx.x % 32; bin < BINS; bin += 32)
        own[bin] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        atomicAdd(own + digit_of(key[i], pass), 1u);
}

// counts[digit][tile]. What stands behind the end counts too: its digit is the greatest and its
// tile the last, so that nothing comes after it.
extern "C" __global__ void __launch_bounds__(BLOCK)
    count_tiles(const u32 *__restrict__ keys, // [N], as out_keys and other_keys
        const u32 *out_keys, const u32 *other_keys,
        i64 *__restrict__ counts, // [BINS][gridDim.x]
        i64 N, int pass)
{
    extern __shared__ uint4 shared[];
    u32 *const counters = reinterpret_cast<u32 *>(shared); // [WARPS][BINS]
    const i64 first = (i64)blockIdx.x * TILE;
    u32 key[ITEMS];
    read_tile_words(
        key, comes_from(keys, out_keys, other_keys, pass) + first, (int)least(N - first, TILE));
    count_warp(counters, key, pass);
    __syncthreads();
    if (threadIdx.x >= BINS)
        return;
    i64 sum = 0;
    for (int warp = 0; warp < WARPS; warp++)
        sum += counters[warp * BINS + threadIdx.x];
    counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

// A digit's counts become those of all tiles before; behind them, how many keys have the digit.
extern "C" __global__ void __launch_bounds__(512)
    scan_counts(i64 *__restrict__ counts, // [gridDim.x][tiles], then [gridDim.x]
        i64 tiles)
{

    const i64 total = scan_in_place<512>(
        counts + blockIdx.x * tiles, tiles, i64(0), [](i64 a, i64 b) { return a + b; });
    if (threadIdx.x == 0)
        counts[gridDim.x * tiles + blockIdx.x] = total;
}

// What the kernels of onesweep tell each other, all zero before the first of them:
// [PASSES] the next tile, [PASSES][BINS] the keys with this digit, and then a word for each pass,
// tile and digit.
__device__ inline u64 *totals_in(u64 *told)
{
    return told + PASSES;
}

__device__ inline word *words_in(u64 *told)
{
    return reinterpret_cast<word *>(totals_in(told) + PASSES * BINS);
}

// How many keys have which digit, for all passes.

extern "C" __global__ void __launch_bounds__(512) count_digits(const u32 *__restrict__ keys, // [N]
    u64 *__restrict__ told, i64 N)
{
    constexpr int COUNTERS = PASSES * BINS, AT_ONCE = 4;
    extern __shared__ uint4 shared[];
    // [COUNTERS][COPIES]: lanes with copies of their own use other banks.
    u32 *const counters = reinterpret_cast<u32 *>(shared);
    u32 *const own = counters + threadIdx.x % COPIES;
    for (int i = threadIdx.x; i < COUNTERS * COPIES; i += 512)
        counters[i] = 0;
    __syncthreads();
    const auto count = [&](u32 key) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            atomicAdd(own + (pass * BINS + digit_of(key, pass)) * COPIES, 1u);
    };
    const i64 stride = (i64)gridDim.x * 512, fours = N / 4;
    i64 at = (i64)blockIdx.x * 512 + threadIdx.x;
    if (at < N % 4)
        count(keys[fours * 4 + at]);
    for (; at < fours; at += AT_ONCE * stride) {
        u32 key[AT_ONCE][4];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (at + i * stride >= fours)
                continue;
            const uint4 four = reinterpret_cast<const uint4 *>(keys)[at + i * stride];
            key[i][0] = four.x;
            key[i][1] = four.y;
            key[i][2] = four.z;
            key[i][3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (at + i * stride >= fours)
                continue;
#pragma unroll
            for (int k = 0; k < 4; k++)
                count(key[i][k]);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < COUNTERS; i += 512) {
        u32 sum = 0;
#pragma unroll
        for (int copy = 0; copy < COPIES; copy++)
            sum += counters[i * COPIES + (copy + threadIdx.x) % COPIES];
        if (sum)
            atomicAdd(totals_in(told) + i, (u64)sum);
    }
}

// --- a pass --------------------------------------------------------------------------------------

#if VARIANT == 0

// The block's keys by one bit, those without it first; each thread has one, and its value.
__device__ inline void split(u32 &key, u32 &value, bool bit)
{
    __shared__ int ones[BLOCK];
    __shared__ u32 keys[BLOCK], values[BLOCK];
    const int t = threadIdx.x;
    ones[t] = bit;
    __syncthreads();
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        const int other = t >= offset ? ones[t - offset] : 0;
        __syncthreads();
        ones[t] += other;
        __syncthreads();
    }
    const int zeros = BLOCK - ones[BLOCK - 1];
    const int place = bit ? zeros + ones[t] - 1 : t - ones[t];
    keys[place] = key;
    values[place] = value;
    __syncthreads();
    key = keys[t];
    value = values[t];
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    move_tiles(const u32 *__restrict__ keys, const u32 *__restrict__ values, // [N] each, as others
        u32 *out_keys, u32 *out_values, u32 *other_keys, u32 *other_values,
        const i64 *__restrict__ counts, // [BINS][gridDim.x] of the tiles before, then [BINS]
        u64 *, i64 N, int pass)
{
    __shared__ i64 start[BINS];
    __shared__ int first_of[BINS];
    const int t = threadIdx.x;
    const i64 i = (i64)blockIdx.x * BLOCK + t;
    u32 key = i < N ? comes_from(keys, out_keys, other_keys, pass)[i] : LAST, value = 0;
    if (VALUES == 2 && i < N)
        value = comes_from(values, out_values, other_values, pass)[i];
    const i64 before = bins_before(t < BINS ? counts[BINS * (i64)gridDim.x + t] : 0);
    if (t < BINS)
        start[t] = before + counts[(i64)t * gridDim.x + blockIdx.x];
    for (int bit = 0; bit < BITS; bit++)
        split(key, value, digit_of(key, pass) >> bit & 1);
    const u32 digit = digit_of(key, pass);
    __shared__ u32 digits[BLOCK];
    digits[t] = digit;
    __syncthreads();
    if (t == 0 || digits[t - 1] != digit)
        first_of[digit] = t;
    __syncthreads();
    if (i >= N) // the keys of the last tile come first, then what stands behind the end
        return;
    const i64 place = start[digit] + t - first_of[digit];
    goes_to(out_keys, other_keys, pass)[place] = key;
    if (VALUES == 2)
        goes_to(out_values, other_values, pass)[place] = value;
}

#else

// The lanes whose bit is as the own one.
__device__ inline u32 lanes_with_bit(u32 digit, int bit)
{
#ifdef TUNE_EMULATOR
    const bool own = digit >> bit & 1;
    const u32 lanes = __ballot_sync(ALL, own);
    return own ? lanes : ~lanes;
#else
    u32 lanes;
    asm volatile("{\n\t.reg .pred own;\n\t"
                 "and.b32 %0, %1, %2;\n\t"
                 "setp.ne.u32 own, %0, 0;\n\t"
                 "vote.sync.ballot.b32 %0, own, 0xffffffff;\n\t"
                 "@!own not.b32 %0, %0;\n\t}"
                 : "=&r"(lanes)
                 : "r"(digit), "r"(1u << bit));
    return lanes;
#endif
}

// The lanes of the warp that have the same digit. `masks` is the warp's, and is zero before and
// after.
__device__ inline u32 lanes_alike(u32 digit, u32 *masks)
{
    if constexpr (RANK == 1)
        return __match_any_sync(ALL, digit);
    if constexpr (RANK == 2) {
        atomicOr(masks + digit, 1u << threadIdx.x % 32);
        __syncwarp();
        const u32 alike = masks[digit];
        __syncwarp();
        if (alike >> threadIdx.x % 32 == 1) // the last of them
            masks[digit] = 0;
        return alike;
    }
    u32 alike = ALL;
#pragma unroll
    for (int bit = 0; bit < BITS; bit++)
        alike &= lanes_with_bit(digit, bit);
    return alike;
}

// place[i] = where key i goes in the tile; own[digit] is where the warp's first one does, and
// becomes where its next one would.
__device__ inline void rank_warp(
    int (&place)[ITEMS], const u32 (&key)[ITEMS], u32 *own, u32 *masks, int pass)
{
    const u32 lanes_before = (1u << threadIdx.x % 32) - 1;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 digit = digit_of(key[i], pass);
        const u32 alike = lanes_alike(digit, masks);
        const u32 first = own[digit], before = __popc(alike & lanes_before);
        __syncwarp();
        if (before == 0)
            own[digit] = first + __popc(alike);
        __syncwarp();
        place[i] = (int)(first + before);
    }
}

// A tile's word: whose keys it counts, in the highest two bits, and how many. 0: not yet told.
constexpr word OF_TILE = word(1) << (WORD - 2); // those of the tile
constexpr word OF_ALL = word(2) << (WORD - 2);  // those that go before the next tile's
constexpr word TELLS = word(3) << (WORD - 2);

__device__ inline void publish(u32 *to, u32 value)
{
#ifdef TUNE_EMULATOR
    *static_cast<volatile u32 *>(to) = value;
#else
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
#endif
}

__device__ inline u32 published(const u32 *from)
{
#ifdef TUNE_EMULATOR
    return *static_cast<const volatile u32 *>(from);
#else
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
#endif
}

// Where the tile's first key of the thread's digit goes: words[tile][digit].
__device__ inline word look_back_for_digit(const word *words, i64 tile)
{
    word sum = 0;
    for (i64 at = tile - 1;;) {
        word told[LOOK];
#pragma unroll
        for (int i = 0; i < LOOK; i++)
            told[i] = at >= i ? published(words + (at - i) * BINS + threadIdx.x) : 0;
        bool is_missing = false;
#pragma unroll
        for (int i = 0; i < LOOK; i++) {
            is_missing = is_missing || (told[i] & TELLS) == 0;
            if (is_missing)
                continue;
            sum += told[i] & ~TELLS;
            if ((told[i] & TELLS) == OF_ALL)
                return sum;
            at--;
        }
    }
}

// What a tile knows of the thread's digit.
struct digit_count {
    int own;    // keys of the tile
    int before; // keys of the tile with lower digits
};

// The counters of the warps become the places of their first keys in the tile. Each digit's thread
// calls tell(how many keys) as soon as that is known. Holds a barrier.
template <typename F> __device__ inline digit_count place_warps(u32 *counters, F tell)
{
    digit_count digit = {0, 0};
    if (threadIdx.x < BINS) {
        for (int warp = 0; warp < WARPS; warp++)
            digit.own += (int)counters[warp * BINS + threadIdx.x];
        tell(digit.own);
    }
    digit.before = bins_before(digit.own);
    if (threadIdx.x < BINS) {
        u32 place = digit.before;
        for (int warp = 0; warp < WARPS; warp++) {
            u32 *const counter = counters + warp * BINS + threadIdx.x;
            const u32 count = *counter;
            *counter = place;
            place += count;
        }
    }
    return digit;
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    move_tiles(const u32 *__restrict__ keys, const u32 *__restrict__ values, // [N] each, as others
        u32 *out_keys, u32 *out_values, u32 *other_keys, u32 *other_values,
        const i64 *__restrict__ counts, // [BINS][tiles] of the tiles before, then [BINS]
        u64 *__restrict__ told, i64 N, int pass)
{
    extern __shared__ uint4 shared[];
    u32 *const stage = reinterpret_cast<u32 *>(shared); // the tile's keys, then its values
    u32 *const counters = stage;                        // before that: [WARPS][BINS]
    u32 *const masks = counters + WARPS * BINS;         // [WARPS][BINS] of RANK 2
    __shared__ word start[BINS]; // where the tile's place 0 would go if it had this digit
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = threadIdx.x;
    const i64 tiles = ceildiv(N, TILE);
    const i64 tile = VARIANT == 2 ? take_tile(told + pass) : blockIdx.x;
    word *const words = words_in(told) + pass * tiles * BINS; // [tiles][BINS]
    const i64 first = tile * TILE;
    const int left = (int)least(N - first, TILE);
    u32 key[ITEMS];
    read_tile_words(key, comes_from(keys, out_keys, other_keys, pass) + first, left);
    count_warp(counters, key, pass);
    if constexpr (RANK == 2) {
        for (int bin = lane; bin < BINS; bin += 32)
            masks[warp * BINS + bin] = 0;
        __syncwarp();
    }
    __syncthreads();
    const digit_count digit = place_warps(counters, [&](int own) {
        if (VARIANT == 2 && tile > 0)
            publish(words + tile * BINS + t, OF_TILE | (word)own);
    });
    i64 lower = 0; // keys of all tiles with lower digits
    if (VARIANT == 1 || tile == 0)
        lower = bins_before(t >= BINS      ? 0
                            : VARIANT == 2 ? (i64)totals_in(told)[pass * BINS + t]
                                           : counts[tiles * BINS + t]);
    if (VARIANT == 2 && tile == 0 && t < BINS)
        publish(words + t, OF_ALL | (word)(lower + digit.own));
    __syncthreads();
    int place[ITEMS];
    rank_warp(place, key, counters + warp * BINS, masks + warp * BINS, pass);
    __syncthreads(); // the counters have been read
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        stage[place[i]] = key[i];
    u32 value[ITEMS];
    if constexpr (VALUES == 2)
        read_tile_words(value, comes_from(values, out_values, other_values, pass) + first, left);
    if (t < BINS) {
        word begin = (word)lower;
        if constexpr (VARIANT == 1)
            begin += (word)counts[t * tiles + tile];
        if (VARIANT == 2 && tile > 0) {
            begin = look_back_for_digit(words, tile);
            publish(words + tile * BINS + t, OF_ALL | (begin + (word)digit.own));
        }
        start[t] = begin - (word)digit.before;
    }
    __syncthreads();
    u32 *const to = goes_to(out_keys, other_keys, pass);
    u32 digits[(ITEMS + 3) / 4]; // four in a word
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int at = i * BLOCK + t;
        const u32 own = stage[at], its = digit_of(own, pass);
        digits[i / 4] = (i % 4 ? digits[i / 4] : 0) | its << i % 4 * 8;
        if (at < left)
            to[(word)(start[its] + (word)at)] = own;
    }
    if constexpr (VALUES == 2) {
        u32 *const to_values = goes_to(out_values, other_values, pass);
        __syncthreads(); // the keys have been read
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            stage[place[i]] = value[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int at = i * BLOCK + t;
            if (at < left)
                to_values[(word)(start[digits[i / 4] >> i % 4 * 8 & 255] + (word)at)] = stage[at];
        }
    }
}

#endif
#endif
