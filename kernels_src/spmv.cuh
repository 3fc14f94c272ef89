// What the variants of spmv.cu share: its types, reading of entries, sums of lanes and blocks, rows
// that several blocks have a part of, and the conversions from CSR, which are done once for a
// matrix and not at each call. Included after the tunables.
#pragma once
#include "copies.cuh"
#include "vectors.cuh"

typedef unsigned int u32;

#if TUNE_DTYPE_F64
typedef double element;
#else
typedef float element;
#endif

constexpr u32 ALL = 0xffffffffu; // lanes of a warp
enum variant {
    NAIVE,
    CSR_VECTOR,
    MERGE_PATH,
    BINNED,
    ELL,
    HYBRID,
    JDS,
    COO,
    TILED,
};

// --- entries -------------------------------------------------------------------------------------

// A word of what is read once, as HINT says.
#if HINT == 1 && __CUDA_ARCH__ >= 700

__device__ inline u32 read_once(const u32 *at)
{
    u32 v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}

__device__ inline uint2 read_once(const uint2 *at)
{
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

__device__ inline uint4 read_once(const uint4 *at)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(at));
    return v;
}

#else

template <typename W> __device__ inline W read_once(const W *at)
{
    if constexpr (HINT == 2)
        return __ldcs(at);
    return *at;
}

#endif

// COUNT neighbours by accesses of up to 16 bytes, to which `from` must be aligned.
template <typename T, int COUNT> __device__ inline void read_entries(T (&out)[COUNT], const T *from)
{
    constexpr int PART = COUNT * sizeof(T) > 16 ? 16 / sizeof(T) : COUNT;
#pragma unroll
    for (int i = 0; i < COUNT; i += PART) {
        vector<T, PART> part;
        part.word = read_once(reinterpret_cast<const decltype(part.word) *>(from + i));
#pragma unroll
        for (int j = 0; j < PART; j++)
            out[i + j] = part.at[j];
    }
}

// --- rows ---------------------------------------------------------------------------------------

#if VARIANT == 1 || VARIANT == 3

// VEC entries that begin at `at`, a multiple of VEC; of use are those in begin..end - 1.
struct some_entries {
    int column[VEC];
    element value[VEC];

    __device__ inline void read(const int *__restrict__ columns, const element *__restrict__ values,
        int at, int begin, int end, int entries)
    {
        if (at >= end)
            return;
        if (at + VEC <= entries) {
            read_entries(column, columns + at);
            read_entries(value, values + at);
            return;
        }
#pragma unroll
        for (int j = 0; j < VEC; j++)
            if (at + j >= begin && at + j < end) {
                column[j] = columns[at + j];
                value[j] = values[at + j];
            }
    }

    __device__ inline element times(
        const element *__restrict__ x, element sum, int at, int begin, int end) const
    {
#pragma unroll
        for (int j = 0; j < VEC; j++)
            if (at + j >= begin && at + j < end)
                sum += value[j] * x[column[j]];
        return sum;
    }
};

// The lane's share of ROWS rows (or parts of rows), of which LANES lanes share each: the first
// access of all of them is on its way before anything is multiplied.
template <int LANES, int ROWS>
__device__ inline void shares(element (&sum)[ROWS], const int *__restrict__ columns,
    const element *__restrict__ values, const element *__restrict__ x, const int (&begin)[ROWS],
    const int (&end)[ROWS], int entries)
{
    constexpr int STEP = LANES * VEC;
    const int first = threadIdx.x % LANES * VEC;
    some_entries some[ROWS];
    int at[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        at[k] = begin[k] / VEC * VEC + first;
        some[k].read(columns, values, at[k], begin[k], end[k], entries);
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        sum[k] = some[k].times(x, 0, at[k], begin[k], end[k]);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll 2
        for (at[k] += STEP; at[k] < end[k]; at[k] += STEP) {
            some[k].read(columns, values, at[k], begin[k], end[k], entries);
            sum[k] = some[k].times(x, sum[k], at[k], begin[k], end[k]);
        }
}

#endif

// --- sums ----------------------------------------------------------------------------------------

// Of groups of LANES neighbouring lanes, in each of them.
template <int LANES> __device__ inline element group_sum(element sum)
{
#pragma unroll
    for (int bit = LANES / 2; bit > 0; bit /= 2)
        sum += __shfl_xor_sync(ALL, sum, bit);
    return sum;
}

// Of a block of SIZE threads, in its first thread.
template <int SIZE> __device__ inline element block_sum(element sum)
{
    __shared__ element of_warp[SIZE / 32];
    sum = group_sum<32>(sum);
    __syncthreads(); // the last use of it is over
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    return threadIdx.x < 32 ? group_sum<32>(threadIdx.x < SIZE / 32 ? of_warp[threadIdx.x] : 0) : 0;
}

// --- rows in parts -------------------------------------------------------------------------------

// Slots hold parts of sums, those of one row side by side. Adds them up, always in the same order.
// A block of JOIN threads has as many slots: each warp its own 32, and the rest of the last row
// that begins among them up to the block's end; what that row has beyond is added by the whole
// block, for it may have thousands of parts.
constexpr int JOIN = 256;

__device__ inline void join_parts(const int *__restrict__ part_rows, // [slots]
    const element *__restrict__ parts,                               // [slots]
    element *__restrict__ y, i64 rows, i64 slots)
{
    __shared__ element rest;
    const int lane = threadIdx.x % 32;
    const i64 begin = (i64)blockIdx.x * JOIN, end = least(begin + JOIN, slots);
    if (begin >= slots)
        return;
    const i64 slot = begin + threadIdx.x;
    const int row = slot < slots ? part_rows[slot] : -1;
    const bool is_head = slot < slots && (slot == 0 || part_rows[slot - 1] != row);
    element sum = slot < slots ? parts[slot] : 0;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const element other = __shfl_down_sync(ALL, sum, offset);
        if (__shfl_down_sync(ALL, row, offset) == row && lane + offset < 32)
            sum += other;
    }
    const int last = __shfl_sync(ALL, row, 31);
    if (__any_sync(ALL, is_head && row == last && slot < slots)) {
        element beyond = 0;
        for (i64 i = slot + 32; i - lane < end; i += 32)
            if (i < end && part_rows[i] == last)
                beyond += parts[i];
        beyond = group_sum<32>(beyond);
        if (row == last)
            sum += beyond;
    }
    const int last_of_block = part_rows[end - 1];
    const bool has_rest = end < slots && part_rows[end] == last_of_block &&
                          (begin == 0 || part_rows[begin - 1] != last_of_block);
    if (has_rest) {
        element own = 0;
        bool is_same = true;
        for (i64 i = end + threadIdx.x; __syncthreads_and(is_same); i += 4 * JOIN)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                is_same = i + j * JOIN < slots && part_rows[i + j * JOIN] == last_of_block;
                if (is_same)
                    own += parts[i + j * JOIN];
            }
        own = block_sum<JOIN>(own);
        if (threadIdx.x == 0)
            rest = own;
        __syncthreads();
        if (row == last_of_block)
            sum += rest;
    }
    if (is_head && row < rows)
        y[row] = VARIANT == BINNED || VARIANT == TILED ? sum : y[row] + sum;
}

// --- conversions ---------------------------------------------------------------------------------

// How many of the rows before `count` end, of which `before(row)` says that they do: first all that
// do, then all that do not.
template <typename F> __device__ inline i64 rows_before(i64 count, F before)
{
    i64 low = 0, high = count;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (before(middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The row that entry i stands in.
__device__ inline i64 row_of(const int *__restrict__ offsets, i64 rows, i64 i)
{
    return rows_before(rows, [&](i64 row) { return offsets[row + 1] <= i; });
}

// Sums of all before each, in place; the sum of all stands at `count`. By one block of 1024.
__device__ inline void sums_before(int *__restrict__ values, i64 count)
{
    __shared__ int of_thread[1024];
    const i64 share = ceildiv(count, 1024);
    const i64 begin = least(count, threadIdx.x * share), end = least(count, begin + share);
    int sum = 0;
    for (i64 i = begin; i < end; i++)
        sum += values[i];
    of_thread[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int before = 0;
        for (int &own : of_thread) {
            const int after = before + own;
            own = before;
            before = after;
        }
        values[count] = before;
    }
    __syncthreads();
    sum = of_thread[threadIdx.x];
    for (i64 i = begin; i < end; i++) {
        const int after = sum + values[i];
        values[i] = sum;
        sum = after;
    }
}

// Where the block's rows go among all rows of their class, of which class c has begin(c) before it
// and taken[c] placed: those of one block side by side and in order, so that neighbours in the
// matrix stay neighbours. By blocks of 1024; `kind` is -1 where the thread has no row.
template <typename F> __device__ inline i64 place_of(int kind, int *__restrict__ taken, F begin)
{
    __shared__ int kinds[1024], bases[1024];
    kinds[threadIdx.x] = kind;
    __syncthreads();
    int rank = 0, first = threadIdx.x, alike = 0;
    for (int t = 0; t < 1024; t++)
        if (kinds[t] == kind) {
            first = t < first ? t : first;
            rank += t < (int)threadIdx.x;
            alike++;
        }
    if (kind >= 0 && rank == 0)
        bases[threadIdx.x] = atomicAdd(taken + kind, alike);
    __syncthreads();
    return kind < 0 ? -1 : begin(kind) + bases[first] + rank;
}
