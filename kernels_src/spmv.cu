// y = A x for a sparse matrix A [ROWS][COLUMNS] in CSR: the entries of row r are values[i] in
// column columns[i] for offsets[r] <= i < offsets[r + 1]. f32 and f64, sums in the same type.
//
// What takes the time is x[columns[i]]: a sector of 32 bytes from the L1 or L2 for 4 or 8 of them,
// unless neighbouring lanes want neighbours. Entries themselves are read once. The variants differ
// in which lanes have which entries:
// VARIANT 0 (naive): a thread per row, straight from CSR. Readable; its accesses are far apart.
// VARIANT 1 (csr_vector): THREADS lanes, or the block, per row; a lane reads VEC entries at a time,
//   and has ITEMS rows on their way at once.
// VARIANT 2 (merge_path): rows' ends and entries are merged to one list, of which each thread has
//   ITEMS, however long rows are. The row that a block ends within is completed by `add_parts`.
// VARIANT 3 (binned): rows are sorted by length into classes of 1, 2, 4 ... 32 lanes per row, so
//   that a lane has about ITEMS entries, and of several blocks per row, each with a chunk of it.
// VARIANT 4 (ell): rows are padded to the longest and stored by columns of that table; a thread per
//   row.
// VARIANT 5 (hybrid): as 4 up to SHARE percent of the mean length, what is beyond as in 7.
// VARIANT 6 (jds): rows are sorted by length, the longest first; the first entries of all rows
//   stand side by side, then the second ones ... A thread per row, and no padding.
// VARIANT 7 (coo): each entry has its row; a warp takes 32 * ITEMS entries and adds up those of a
//   row by a segmented scan.
// VARIANT 8 (tiled): x is brought to shared memory by tiles of COLUMN_TILE columns, and each warp's
//   entries stand tile by tile. Long rows are cut; `add_parts` adds their parts.
// 2 to 8 keep what they need in scratch, where launches that are done once for a matrix put it:
// 2, 3 and 7 beside the CSR, which is still read, the others a copy of the entries in another
// order. Changed values want these launches again.
//
// No variant adds by atomics, and each gives the same bits at every call; in 3 and 8 the order of a
// cut row's parts is chosen by what is done once, so that doing that again may change last bits. An
// entry that is not there is not multiplied, so that NaN and infinity in x reach the rows that have
// that column and no others. Denormals are kept. columns, values and x must be aligned to 16 bytes.
// 0 <= columns[i] < COLUMNS, ROWS + NONZEROS < 2^31.
#ifndef VARIANT
#define VARIANT 1 // 0 to 8, as above
#endif
#ifndef BLOCK
#define BLOCK 256 // threads per block, power of 2
#endif
#ifndef THREADS
#define THREADS 8 // lanes per row, or BLOCK
#endif
#ifndef VEC
#define VEC 4 // entries per access; in tiled, per lane and step
#endif
#ifndef ITEMS
#define ITEMS 1 // rows on their way, entries or rows per thread, as above
#endif
#ifndef SHARE
#define SHARE 100 // percent of the mean length that rows of the padded part have
#endif
#ifndef COLUMN_TILE
#define COLUMN_TILE 16384 // columns whose x are in shared memory at once
#endif
#ifndef HINT
#define HINT 0 // 0 cached, 1 no_allocate, 2 evict_first: what the caches are told of entries
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#include "spmv.cuh"

static_assert(
    VARIANT != 0 || (BLOCK == 256 && VEC == 1 && ITEMS == 1 && HINT == 0 && MIN_BLOCKS == 1),
    "the naive variant has no choices: it stands once in the space");
static_assert(VARIANT == 1 || THREADS == 8, "only csr_vector has THREADS: it is 8");
static_assert(VARIANT == 5 || SHARE == 100, "only hybrid has SHARE: it is 100");
static_assert(VARIANT == 8 || COLUMN_TILE == 16384, "only tiled has COLUMN_TILE: it is 16384");
static_assert(
    VARIANT != 1 || ITEMS <= 4, "a group of lanes has 1, 2 or 4 rows on their way: ITEMS");
static_assert(VARIANT != 1 || THREADS <= 32 || (THREADS == BLOCK && ITEMS == 1),
    "the lanes of a row are a part of a warp, or the block, which has one row: THREADS and ITEMS");
static_assert(VARIANT != 2 || ITEMS % 4 == 3,
    "threads that walk side by side over shared memory want an odd distance: ITEMS is 7, 11 or 15");
static_assert(VARIANT != 2 || BLOCK * ITEMS * sizeof(element) <= 45056,
    "the products of a block fit 44 KiB of shared memory: BLOCK * ITEMS elements");
static_assert(VARIANT < 3 || VARIANT > 7 || ITEMS == 4 || ITEMS == 8 || ITEMS == 16,
    "a lane has 4, 8 or 16 entries on their way, or for its row: ITEMS");
static_assert(VARIANT < 4 || VARIANT > 7 || VEC == 1,
    "neighbouring lanes have neighbouring entries: VEC is 1 in ell, hybrid, jds and coo");
static_assert(VARIANT == 8 ? VEC >= 4 : VEC <= 4,
    "an access has at most 4 entries; a step of tiled has 4 or 8 per lane: VEC");
static_assert(VARIANT != 8 || (BLOCK >= 512 && MIN_BLOCKS == 1),
    "tiles leave room for one block per multiprocessor: BLOCK is at least 512 and MIN_BLOCKS 1");
static_assert(
    VARIANT != 8 || ITEMS == 8 || ITEMS == 12, "a thread of tiled has 8 or 12 rows: ITEMS");
static_assert(MIN_BLOCKS == 1 || (MIN_BLOCKS * BLOCK >= 1024 && MIN_BLOCKS * BLOCK <= 2048),
    "MIN_BLOCKS is 1, or asks for 1024 to 2048 threads per multiprocessor: MIN_BLOCKS * BLOCK");

#if TUNE_REFERENCE

// A warp per row; y_scale is what an error grows with: the root of the sum of squares of the
// products, and of the number of additions.
extern "C" __global__ void reference(const int *__restrict__ offsets, // [rows + 1]
    const int *__restrict__ columns,                                  // [offsets[rows]]
    const element *__restrict__ values,                               // [offsets[rows]]
    const element *__restrict__ x, double *__restrict__ y,            // y: [rows]
    double *__restrict__ y_scale, i64 rows)
{
    const i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows)
        return;
    double sum = 0, squares = 0;
    for (i64 i = offsets[row] + (i64)threadIdx.x % 32; i < offsets[row + 1]; i += 32) {
        const double product = (double)values[i] * (double)x[columns[i]];
        sum += product;
        squares += product * product;
    }
    for (int bit = 16; bit > 0; bit /= 2) {
        sum += __shfl_xor_sync(ALL, sum, bit);
        squares += __shfl_xor_sync(ALL, squares, bit);
    }
    if (threadIdx.x % 32 == 0) {
        y[row] = sum;
        y_scale[row] = sqrt(squares * (double)(offsets[row + 1] - offsets[row] + 1));
    }
}

#else

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,      // [entries]
        const element *__restrict__ values,   // [entries]
        const element *__restrict__ x, element *__restrict__ y, i64 rows, i64)
{
    const i64 row = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (row >= rows)
        return;
    element sum = 0;
    for (int i = offsets[row]; i < offsets[row + 1]; i++)
        sum += values[i] * x[columns[i]];
    y[row] = sum;
}

#endif

#if VARIANT == 1

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,      // [entries]
        const element *__restrict__ values,   // [entries]
        const element *__restrict__ x, element *__restrict__ y, i64 rows, i64 entries)
{
    constexpr int GROUPS = BLOCK / THREADS;
    const i64 first = (i64)blockIdx.x * GROUPS * ITEMS + threadIdx.x / THREADS;
    int begin[ITEMS], end[ITEMS];
    element sum[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const i64 row = first + k * GROUPS;
        begin[k] = row < rows ? offsets[row] : 0;
        end[k] = row < rows ? offsets[row + 1] : 0;
    }
    shares<THREADS>(sum, columns, values, x, begin, end, (int)entries);
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const i64 row = first + k * GROUPS;
        if constexpr (THREADS <= 32)
            sum[k] = group_sum<THREADS>(sum[k]);
        else
            sum[k] = block_sum<THREADS>(sum[k]);
        if (threadIdx.x % THREADS == 0 && row < rows)
            y[row] = sum[k];
    }
}

#elif VARIANT == 2

constexpr int TILE = BLOCK * ITEMS; // ends of rows and entries of a block

// A sum that begins with the last end of a row in what was walked over, if there was one.
struct open_sum {
    bool has_end;
    element sum;

    __device__ inline open_sum after(const open_sum &earlier) const
    {
        return {has_end || earlier.has_end, has_end ? sum : earlier.sum + sum};
    }
};

__device__ inline open_sum running_sum(open_sum own)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const open_sum other = {__shfl_up_sync(ALL, (int)own.has_end, offset) != 0,
            __shfl_up_sync(ALL, own.sum, offset)};
        if (lane >= offset)
            own = own.after(other);
    }
    return own;
}

// That of all threads before, in each thread; of all, in `whole`.
__device__ inline element sum_before(open_sum own, element &whole)
{
    constexpr int WARPS = BLOCK / 32;
    __shared__ element of_warp[WARPS];
    __shared__ int has_end[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const open_sum running = running_sum(own);
    if (lane == 31) {
        of_warp[warp] = running.sum;
        has_end[warp] = running.has_end;
    }
    __syncthreads();
    open_sum warps = {false, 0};
    if (lane < WARPS)
        warps = {has_end[lane] != 0, of_warp[lane]};
    warps = running_sum(warps);
    whole = __shfl_sync(ALL, warps.sum, WARPS - 1);
    const element earlier = __shfl_sync(ALL, warps.sum, warp > 0 ? warp - 1 : 0);
    open_sum before = {
        __shfl_up_sync(ALL, (int)running.has_end, 1) != 0, __shfl_up_sync(ALL, running.sum, 1)};
    if (lane == 0)
        before = {false, 0};
    return warp > 0 ? before.after({false, earlier}).sum : before.sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,      // [entries]
        const element *__restrict__ values,   // [entries]
        const element *__restrict__ x, element *__restrict__ y,
        const int *__restrict__ starts, // [gridDim.x + 1]: row that each tile begins within
        int *__restrict__ part_rows,    // [gridDim.x]: row that each tile ends within, and
        element *__restrict__ parts,    // [gridDim.x]: the sum of what the tile has of it
        i64 rows, i64 entries)
{
    // Products, and from the end of the room down the ends of rows, counted from the tile's first
    // entry.
    __shared__ element products[TILE + 1];
    const i64 tile_begin = (i64)blockIdx.x * TILE,
              tile_end = least(tile_begin + TILE, rows + entries);
    const int first_row = starts[blockIdx.x], row_count = starts[blockIdx.x + 1] - first_row;
    const int first = (int)(tile_begin - first_row);
    const int count = (int)(tile_end - tile_begin) - row_count;
    int *const ends = reinterpret_cast<int *>(products + TILE + 1) - row_count;

    constexpr int STEPS = (int)ceildiv(TILE + VEC - 1, VEC * BLOCK);
    const int from = first / VEC * VEC + threadIdx.x * VEC, end = first + count;
    int column[STEPS][VEC];
    element value[STEPS][VEC];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int at = from + s * VEC * BLOCK;
        if (at < end && at + VEC <= entries) {
            read_entries(column[s], columns + at);
            read_entries(value[s], values + at);
        } else {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (at + j >= first && at + j < end) {
                    column[s][j] = columns[at + j];
                    value[s][j] = values[at + j];
                }
        }
    }
    for (int r = threadIdx.x; r < row_count; r += BLOCK)
        ends[r] = offsets[first_row + r + 1] - first;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            const int at = from + s * VEC * BLOCK + j;
            if (at >= first && at < end)
                products[at - first] = value[s][j] * x[column[s][j]];
        }
    __syncthreads();

    const int begin = least(threadIdx.x * ITEMS, row_count + count);
    const int stop = least(begin + ITEMS, row_count + count);
    int row = (int)rows_before(row_count, [&](i64 r) { return ends[r] + r < begin; });
    int at = begin - row, ended = -1;
    element first_sum = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        if (begin + i >= stop)
            break;
        if (row < row_count && ends[row] == at) {
            if (ended < 0) {
                ended = first_row + row;
                first_sum = sum;
            } else {
                y[first_row + row] = sum;
            }
            sum = 0;
            row++;
        } else {
            sum += products[at++];
        }
    }
    element whole;
    const element before = sum_before({ended >= 0, sum}, whole);
    if (ended >= 0)
        y[ended] = before + first_sum;
    if (threadIdx.x == 0) {
        part_rows[blockIdx.x] = first_row + row_count;
        parts[blockIdx.x] = whole;
    }
}

extern "C" __global__ void __launch_bounds__(JOIN) add_parts(const int *__restrict__ part_rows,
    const element *__restrict__ parts, element *__restrict__ y, i64 rows, i64 slots)
{
    join_parts(part_rows, parts, y, rows, slots);
}

// Once: starts[tile] = the row that the tile's first item belongs to.
extern "C" __global__ void __launch_bounds__(256) count(const int *__restrict__ offsets,
    int *__restrict__ starts, // [tiles + 1]
    i64 rows, i64 entries, i64 tiles)
{
    const i64 tile = (i64)blockIdx.x * 256 + threadIdx.x;
    if (tile > tiles)
        return;
    const i64 before = least(tile * TILE, rows + entries);
    starts[tile] = (int)rows_before(rows, [&](i64 row) { return offsets[row + 1] + row < before; });
}

#elif VARIANT == 3

#include "spmv_classes.cuh"

// Chunks `block`, block + gridDim.x ... of all, each to its part.
__device__ inline void add_chunks(const int *__restrict__ offsets, const int *__restrict__ columns,
    const element *__restrict__ values, const element *__restrict__ x, const classes &plan,
    const int *__restrict__ part_rows, const int *__restrict__ part_begins,
    element *__restrict__ parts, int &block, int entries)
{
    for (; block < plan.chunks; block += gridDim.x) {
        const int begin[1] = {part_begins[block]};
        const int end[1] = {(int)least(offsets[part_rows[block] + 1], begin[0] + CHUNK)};
        element sum[1];
        shares<BLOCK>(sum, columns, values, x, begin, end, entries);
        sum[0] = block_sum<BLOCK>(sum[0]);
        if (threadIdx.x == 0)
            parts[block] = sum[0];
    }
}

// The same for the blocks of a class, which follow.
template <int POWER>
__device__ inline void add_class(const int *__restrict__ offsets, const int *__restrict__ columns,
    const element *__restrict__ values, const element *__restrict__ x, element *__restrict__ y,
    const int *__restrict__ order, const classes &plan, int &block, int entries)
{
    constexpr int LANES = 1 << POWER, GROUPS = BLOCK / LANES, NUMBER = LONG - POWER;
    for (; block < plan.block[NUMBER + 1]; block += gridDim.x) {
        const int number = (block - plan.block[NUMBER]) * GROUPS + (int)threadIdx.x / LANES;
        const int row = number < plan.rows[POWER] ? order[plan.begin[POWER] + number] : -1;
        const int begin[1] = {row < 0 ? 0 : offsets[row]};
        const int end[1] = {row < 0 ? 0 : offsets[row + 1]};
        element sum[1];
        shares<LANES>(sum, columns, values, x, begin, end, entries);
        sum[0] = group_sum<LANES>(sum[0]);
        if (threadIdx.x % LANES == 0 && row >= 0)
            y[row] = sum[0];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) multiply(
    const int *__restrict__ offsets,    // [rows + 1]
    const int *__restrict__ columns,    // [entries]
    const element *__restrict__ values, // [entries]
    const element *__restrict__ x, element *__restrict__ y, const classes *__restrict__ plan_of_all,
    const int *__restrict__ order,       // [rows]: rows by class
    const int *__restrict__ part_rows,   // [plan.chunks]
    const int *__restrict__ part_begins, // [plan.chunks]
    element *__restrict__ parts,         // [plan.chunks]
    i64 entries)
{
    __shared__ classes plan;
    if (threadIdx.x < sizeof plan / 4)
        reinterpret_cast<int *>(&plan)[threadIdx.x] =
            reinterpret_cast<const int *>(plan_of_all)[threadIdx.x];
    __syncthreads();
    int block = blockIdx.x;
    const int count = (int)entries;
    add_chunks(offsets, columns, values, x, plan, part_rows, part_begins, parts, block, count);
    add_class<5>(offsets, columns, values, x, y, order, plan, block, count);
    add_class<4>(offsets, columns, values, x, y, order, plan, block, count);
    add_class<3>(offsets, columns, values, x, y, order, plan, block, count);
    add_class<2>(offsets, columns, values, x, y, order, plan, block, count);
    add_class<1>(offsets, columns, values, x, y, order, plan, block, count);
    add_class<0>(offsets, columns, values, x, y, order, plan, block, count);
}

#endif

#if VARIANT >= 4 && VARIANT <= 7
#include "spmv_formats.cuh"
#elif VARIANT == 8
#include "spmv_tiled.cuh"
#endif

// A module has every entry that the manifest names; those that the variant has no use for are
// empty.
#define WITHOUT(entry)                                                                             \
    extern "C" __global__ void entry()                                                             \
    {                                                                                              \
    }

#if VARIANT <= 1 || VARIANT == 4 || VARIANT == 7
WITHOUT(count)
#endif
#if VARIANT <= 2 || VARIANT == 4 || VARIANT == 7
WITHOUT(make_plan)
#endif
#if VARIANT != 3 && VARIANT != 6 && VARIANT != 8
WITHOUT(place_rows)
#endif
#if VARIANT != 8
WITHOUT(count_entries)
WITHOUT(add_counts)
#endif
#if VARIANT <= 3
WITHOUT(convert)
#endif
#if VARIANT != 5
WITHOUT(multiply_rest)
#endif
#if VARIANT <= 1 || VARIANT == 4 || VARIANT == 6
WITHOUT(add_parts)
#endif
#endif
