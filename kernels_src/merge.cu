// out[0..A + B) = the elements of a[0..A) and b[0..B), both ascending, in ascending order; of equal
// ones those of a come first, and each array's stay in their order. u32, i32 or f32.
//
// The output is cut into tiles of BLOCK * ITEMS elements, and each thread merges ITEMS of them one
// after the other. Where it begins says a co-rank: of the first d elements of the output, how many
// are from a. It is the number of k with a[k] <= b[d - 1 - k], which is a binary search.
// VARIANT 0 (naive): no tiles. Each element searches the other array for its own place. Readable.
// VARIANT 1 (direct): each thread searches its co-rank and merges in global memory.
// VARIANT 2 (shared): a warp searches the co-rank of a tile's begin in global memory, 32 places at
//   a time, and another one that of its end. What lies between comes to shared memory by 16-byte
//   accesses; there each thread searches, merges into registers, and hands its warp the elements
//   for 16-byte accesses to the output.
// VARIANT 3 (partitioned): a kernel before finds the tiles' co-ranks, all at once.
// VARIANT 4 (stream): blocks that stay, each with tiles side by side, so that it searches in global
//   memory once: a tile begins where the one before has ended. Both arrays stream through rings in
//   shared memory, filled AHEAD tiles ahead, and each element is read once (sm_80 on).
// Every variant is deterministic.
//
// a, b and out must be aligned to 16 bytes. An f32 array with a NaN is not ascending; -0 and +0 are
// equal.
#ifndef VARIANT
#define VARIANT 4 // 0 to 4, as above
#endif
#ifndef BLOCK
#define BLOCK 512 // threads per block, multiple of 64
#endif
#ifndef ITEMS
#define ITEMS 8 // elements of the output per thread
#endif
#ifndef AHEAD
#define AHEAD 1 // tiles that are on their way to shared memory while one is merged
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 2 // blocks per multiprocessor that the compiler must leave registers for
#endif

#include "scan.cuh"

#if TUNE_DTYPE_F32
typedef float key_type;
#elif TUNE_DTYPE_I32
typedef int key_type;
#else
typedef u32 key_type;
#endif

template <> struct vector_of<u32> {
    typedef uint4 type;
};

static_assert(VARIANT != 0 || (BLOCK == 256 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space, with 256 threads");
static_assert(
    (VARIANT == 0) == (ITEMS == 1), "the naive variant, and no other, has one element per thread");
static_assert(VARIANT == 4 || AHEAD == 1, "only blocks that stay fetch ahead: AHEAD");
static_assert(VARIANT != 1 || MIN_BLOCKS == 1,
    "merging in global memory is a lesson that needs no MIN_BLOCKS: it is 1");
static_assert(MIN_BLOCKS == 1 || MIN_BLOCKS * BLOCK >= 512,
    "MIN_BLOCKS limits registers from 512 threads on: MIN_BLOCKS * BLOCK");
static_assert(MIN_BLOCKS * BLOCK * (ITEMS + 24) <= 65536,
    "the elements of MIN_BLOCKS blocks must fit the registers: MIN_BLOCKS * BLOCK * (ITEMS + 24) "
    "is at most 65536");
static_assert(VARIANT < 2 || BLOCK * ITEMS <= 12288,
    "a tile and what it needs fit shared memory: BLOCK * ITEMS is at most 12288");
static_assert(VARIANT != 4 || MIN_BLOCKS * BLOCK >= 256,
    "blocks that stay are enough to fill a multiprocessor: MIN_BLOCKS * BLOCK is at least 256");

constexpr int TILE = BLOCK * ITEMS;

#if TUNE_REFERENCE

// out[rank] = x[i], one thread per element: before x[i] stand the i elements before it, those of y
// that are smaller, and, if is_second, those that are equal.
extern "C" __global__ void __launch_bounds__(256)
    reference_merge(const key_type *__restrict__ x, // [X]
        const key_type *__restrict__ y,             // [Y]
        key_type *__restrict__ out,                 // [X + Y]
        i64 X, i64 Y, int is_second)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= X)
        return;
    i64 before = 0;
    for (i64 count = Y; count > 0;) {
        const i64 half = count / 2;
        const key_type other = y[before + half];
        const bool is_before = is_second ? !(x[i] < other) : other < x[i];
        before += is_before ? half + 1 : 0;
        count = is_before ? count - half - 1 : half;
    }
    out[i + before] = x[i];
}

#else

// Of the first `diagonal` elements of the output, how many are from a[0..A).
template <typename I, typename P>
__device__ inline I co_rank(const P &a, I A, const P &b, I B, I diagonal)
{
    I low = diagonal > B ? diagonal - B : 0, high = diagonal < A ? diagonal : A;
    while (low < high) {
        const I middle = (low + high) / 2;
        if (a[middle] <= b[diagonal - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// parts[t] = of the output before tile t, how much is from a; for t up to the number of tiles.
extern "C" __global__ void __launch_bounds__(256) find_parts(const key_type *__restrict__ a, // [A]
    const key_type *__restrict__ b,                                                          // [B]
    i64 *__restrict__ parts, // [tiles + 1]
    i64 A, i64 B)
{
    const i64 tile = (i64)blockIdx.x * 256 + threadIdx.x;
    if (tile <= ceildiv(A + B, TILE))
        parts[tile] = co_rank(a, A, b, B, least(tile * TILE, A + B));
}

#if VARIANT == 0

// How many elements of the ascending x[0..count) stand before `value`: those that are smaller, and
// with EQUAL those that are equal.
template <bool EQUAL>
__device__ inline i64 rank_of(key_type value, const key_type *__restrict__ x, i64 count)
{
    i64 low = 0, high = count;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (x[middle] < value || (EQUAL && x[middle] == value))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    merge_tiles(const key_type *__restrict__ a, // [A]
        const key_type *__restrict__ b,         // [B]
        key_type *__restrict__ out,             // [A + B]
        const i64 *, i64 A, i64 B)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i < A)
        out[i + rank_of<false>(a[i], b, B)] = a[i];
    else if (i < A + B)
        out[i - A + rank_of<true>(b[i - A], a, A)] = b[i - A];
}

#elif VARIANT == 1

extern "C" __global__ void __launch_bounds__(BLOCK)
    merge_tiles(const key_type *__restrict__ a, // [A]
        const key_type *__restrict__ b,         // [B]
        key_type *__restrict__ out,             // [A + B]
        const i64 *, i64 A, i64 B)
{
    const i64 first = ((i64)blockIdx.x * BLOCK + threadIdx.x) * ITEMS;
    if (first >= A + B)
        return;
    i64 i = co_rank(a, A, b, B, first), j = first - i;
    key_type v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (j >= B && i >= A)
            break;
        v[k] = j >= B || (i < A && a[i] <= b[j]) ? a[i++] : b[j++];
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k += 4) {
        if (first + k + 4 <= A + B) {
            store4(out + first + k, v + k);
            continue;
        }
#pragma unroll
        for (int n = k; n < k + 4; n++)
            if (first + n < A + B)
                out[first + n] = v[n];
    }
}

#else

typedef tile_layout<TRANSPOSED, BLOCK, ITEMS> layout;

// As co_rank, by all lanes of a warp, which look at 32 places at a time.
__device__ inline i64 co_rank_by_warp(
    const key_type *__restrict__ a, i64 A, const key_type *__restrict__ b, i64 B, i64 diagonal)
{
    i64 low = diagonal > B ? diagonal - B : 0, high = least(diagonal, A);
    while (low < high) {
        const i64 step = ceildiv(high - low, 32);
        const i64 at = low + (threadIdx.x % 32 + 1) * step - 1;
        const bool is_below = at < high && a[at] <= b[diagonal - 1 - at];
        low += __popc(__ballot_sync(ALL, is_below)) * step; // the first lanes are below
        high = least(high, low + step - 1);
    }
    return low;
}

constexpr u32 RING = (AHEAD + 1) * TILE + 8; // elements; 16-byte accesses begin up to 3 earlier

// Where in a ring is what would be at `at`, up to one round behind its begin, if it did not end.
__device__ inline u32 wrapped(u32 at)
{
    return VARIANT == 4 ? min(at, at - RING) : at; // below RING, at - RING is large
}

// A part of an array in shared memory; its element k.
struct part {
    const key_type *data;
    u32 first; // where element 0 is

    __device__ key_type operator[](int k) const
    {
        return data[wrapped(first + k)];
    }
};

// The thread's ITEMS elements of a tile: a has its first na elements from one array, b its first nb
// from the other. Returns how many elements of a precede what comes after the thread's. Elements
// behind the ends are read and not used; those of v that stand behind both ends are undefined.
// GUARDED: comparing alone keeps the thread from taking what is behind an end: it is the array's
// next element, which comes after the tile, or the part is as large as the tile and cannot end.
template <bool GUARDED>
__device__ inline int merge_part(
    key_type (&v)[ITEMS], const part &a, int na, const part &b, int nb, int diagonal)
{
    int i = co_rank(a, na, b, nb, diagonal), j = diagonal - i;
    u32 a_at = wrapped(a.first + i), b_at = wrapped(b.first + j);
    key_type x = a.data[a_at], y = b.data[b_at];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const bool from_a = GUARDED ? x <= y : j >= nb || (i < na && x <= y);
        v[k] = from_a ? x : y;
        if (from_a) {
            i++;
            a_at = wrapped(a_at + 1);
            x = a.data[a_at];
        } else {
            j++;
            b_at = wrapped(b_at + 1);
            y = b.data[b_at];
        }
    }
    return i;
}

// Elements 4 * chunk to 4 * chunk + 3 of x[0..count), as many as there are, on their way.
__device__ inline void fetch(key_type *to, const key_type *__restrict__ x, i64 chunk, i64 count)
{
    if (4 * chunk + 4 <= count) {
        copy_start<16>(to, x + 4 * chunk);
        return;
    }
    for (int k = 0; 4 * chunk + k < count; k++)
        to[k] = x[4 * chunk + k];
}

#if VARIANT == 4

// An array on its way through a ring: elements from next / 4 * 4 on are there or will be.
struct stream {
    const key_type *from;    // [count]
    i64 count, next, filled; // up to the latter it has been sent for
    key_type *ring;
    u32 at, fill_at; // where next and filled are in the ring

    __device__ void begin(const key_type *array, i64 elements, i64 first, key_type *shared)
    {
        from = array;
        count = elements;
        next = first;
        filled = first / 4 * 4;
        ring = shared;
        at = (u32)(first % 4);
        fill_at = 0;
    }

    // What the tile may take of it, up to `elements`.
    __device__ int left(int elements) const
    {
        return (int)least(elements, count - next);
    }

    __device__ part now() const
    {
        return part{ring, at};
    }

    __device__ void take(int elements)
    {
        next += elements;
        at = wrapped(at + elements);
    }

    // Sends for all that has room. Nobody may use what has been taken any more.
    __device__ void fill()
    {
        const i64 end = least(next / 4 * 4 + RING, ceildiv(count, 4) * 4);
        const int chunks = (int)(end - filled) / 4;
        for (int k = (int)threadIdx.x; k < chunks; k += BLOCK)
            fetch(ring + wrapped(fill_at + 4 * k), from, filled / 4 + k, count);
        fill_at = wrapped(fill_at + 4 * chunks);
        filled = end;
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    merge_tiles(const key_type *__restrict__ a, // [A]
        const key_type *__restrict__ b,         // [B]
        key_type *__restrict__ out,             // [A + B]
        const i64 *, i64 A, i64 B)
{
    extern __shared__ float4 shared[]; // two rings, and what leaves
    __shared__ i64 a_first;
    __shared__ int a_taken;
    key_type *const rings = reinterpret_cast<key_type *>(shared), *const stage = rings + 2 * RING;
    const i64 tiles = ceildiv(A + B, TILE);
    const i64 end = tiles * (blockIdx.x + 1) / gridDim.x;
    i64 tile = tiles * blockIdx.x / gridDim.x;
    if (threadIdx.x < 32) {
        const i64 rank = co_rank_by_warp(a, A, b, B, tile * TILE);
        if (threadIdx.x == 0)
            a_first = rank;
    }
    __syncthreads();
    stream of_a, of_b;
    of_a.begin(a, A, a_first, rings);
    of_b.begin(b, B, tile * TILE - a_first, rings + RING);
    of_a.fill();
    of_b.fill();
    copies_wait();
    __syncthreads();
    for (; tile < end; tile++) {
        const int left = (int)least(TILE, A + B - tile * TILE);
        const int diagonal = min((int)threadIdx.x * ITEMS, left);
        key_type v[ITEMS];
        const int na = of_a.left(TILE), nb = of_b.left(TILE);
        const int taken = na == TILE && nb == TILE
                              ? merge_part<true>(v, of_a.now(), TILE, of_b.now(), TILE, diagonal)
                              : merge_part<false>(v, of_a.now(), na, of_b.now(), nb, diagonal);
        if (threadIdx.x == BLOCK - 1)
            a_taken = taken;
        __syncthreads(); // also: the tile's part of the rings has been read
        if (tile + 1 < end) {
            of_a.take(a_taken);
            of_b.take(TILE - a_taken);
            of_a.fill();
            of_b.fill();
            copies_commit();
        }
        write_tile<TRANSPOSED, BLOCK>(out + tile * TILE, v, left, stage);
        copies_wait<AHEAD>();
        __syncthreads();
    }
}

#else

// x[begin..end) on its way; to[begin % 4] is the first.
__device__ inline void fetch_part(
    key_type *to, const key_type *__restrict__ x, i64 begin, i64 end, i64 count)
{
    for (i64 chunk = begin / 4 + threadIdx.x; chunk < ceildiv(end, 4); chunk += BLOCK)
        fetch(to + 4 * (chunk - begin / 4), x, chunk, count);
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    merge_tiles(const key_type *__restrict__ a, // [A]
        const key_type *__restrict__ b,         // [B]
        key_type *__restrict__ out,             // [A + B]
        const i64 *__restrict__ parts,          // [tiles + 1], where a kernel before has found them
        i64 A, i64 B)
{
    extern __shared__ float4 shared[]; // the tile's part of a and that of b, then what leaves
    __shared__ i64 found[2];
    key_type *const stage = reinterpret_cast<key_type *>(shared);
    const i64 first = (i64)blockIdx.x * TILE, end = least(first + TILE, A + B);
    if constexpr (VARIANT == 2) {
        const int warp = threadIdx.x / 32;
        if (warp < 2) {
            const i64 rank = co_rank_by_warp(a, A, b, B, warp ? end : first);
            if (threadIdx.x % 32 == 0)
                found[warp] = rank;
        }
        __syncthreads();
    }
    const i64 a_begin = VARIANT == 2 ? found[0] : parts[blockIdx.x];
    const i64 a_end = VARIANT == 2 ? found[1] : parts[blockIdx.x + 1];
    const i64 b_begin = first - a_begin, b_end = end - a_end;
    const bool has_next = a_end < A && b_end < B; // an element after each part, which comes too
    key_type *const b_stage = stage + 4 * (ceildiv(a_end + has_next, 4) - a_begin / 4);
    fetch_part(stage, a, a_begin, a_end + has_next, A);
    fetch_part(b_stage, b, b_begin, b_end + has_next, B);
    copies_wait();
    __syncthreads();
    const int left = (int)(end - first);
    key_type v[ITEMS];
    const part of_a = {stage, (u32)(a_begin % 4)}, of_b = {b_stage, (u32)(b_begin % 4)};
    const int na = (int)(a_end - a_begin), nb = (int)(b_end - b_begin);
    const int diagonal = min((int)threadIdx.x * ITEMS, left);
    if (has_next)
        merge_part<true>(v, of_a, na, of_b, nb, diagonal);
    else
        merge_part<false>(v, of_a, na, of_b, nb, diagonal);
    __syncthreads(); // the parts have been read
    write_tile<TRANSPOSED, BLOCK>(out + first, v, end - first, stage);
}

#endif
#endif
#endif
