// The variant tiled of spmv.cu: x in shared memory, a tile of COLUMN_TILE columns at a time, so
// that no x is fetched from the L2 by itself.
//
// A warp has 32 * ITEMS rows or chunks of rows, whose sums stay in shared memory while the block
// goes from tile to tile, the next one being on its way. They are dealt to the warps by length:
// each warp has as many long and short ones. What a warp multiplies in a tile stands together,
// first one entry of each of its rows that have one, then a second one ..., so that 32 neighbours
// are in 32 rows and can be added side by side; where two of them are in one row, the later one
// waits for its turn.
#pragma once
#include "spmv_classes.cuh"

constexpr int WARP_ROWS = 32 * ITEMS, WARPS = BLOCK / 32;
constexpr int SUMS_STRIDE = WARP_ROWS + 1; // so that the same row of all warps is in many banks
constexpr int WIDE = 16 / sizeof(element); // elements of a copy

// An entry in a tile: its column there, its row among the warp's, and how many entries of the row
// stand before it among those that the warp takes in one step.
struct tile_entry {
    int code;

    static __device__ inline tile_entry of(int column, int row, int turn)
    {
        return {column | row << 16 | turn << 26};
    }

    __device__ inline int column() const
    {
        return code & 0xffff;
    }

    __device__ inline int row() const
    {
        return code >> 16 & 0x3ff;
    }

    __device__ inline int turn() const
    {
        return (u32)code >> 26;
    }
};

__device__ inline void fetch_tile(
    element *to, const element *__restrict__ x, i64 first, i64 columns)
{
    for (int i = threadIdx.x * WIDE; i < COLUMN_TILE; i += BLOCK * WIDE) {
        if (first + i + WIDE <= columns)
            copy_start<16>(to + i, x + first + i);
        else
            for (int j = 0; j < WIDE && first + i + j < columns; j++)
                to[i + j] = x[first + i + j];
    }
}

// Up to 32 * VEC entries of a warp, which are on their way until they are multiplied.
struct some_of_tile {
    int code[VEC][1];
    element value[VEC][1];

    __device__ inline void read(
        const int *__restrict__ packed, const element *__restrict__ values, int from, int end)
    {
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            const int at = from + 32 * j + threadIdx.x % 32;
            code[j][0] = -1;
            if (at < end) {
                read_entries(code[j], packed + at);
                read_entries(value[j], values + at);
            }
        }
    }

    __device__ inline void multiply(
        element *__restrict__ sums, const element *__restrict__ tile) const
    {
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            const bool is_there = code[j][0] != -1;
            const tile_entry entry = {is_there ? code[j][0] : 0};
            const element product = is_there ? value[j][0] * tile[entry.column()] : 0;
            if (is_there && entry.turn() == 0)
                sums[entry.row()] += product;
            __syncwarp();
            for (int now = 1; __any_sync(ALL, entry.turn() >= now); now++) {
                if (entry.turn() == now)
                    sums[entry.row()] += product;
                __syncwarp();
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ starts, // [tiles + 1][warps]: first entry of a warp in a tile
        const int *__restrict__ packed,      // [entries]
        const element *__restrict__ values,  // [entries]
        const element *__restrict__ x, element *__restrict__ y, const classes *__restrict__ plan,
        const int *__restrict__ order, // order: [rows]
        element *__restrict__ parts,   // [plan->chunks]
        i64 columns)
{
    extern __shared__ float4 shared[]; // two tiles, and the sums of all rows
    element *const tile = reinterpret_cast<element *>(shared);
    element *const all_sums = tile + 2 * COLUMN_TILE;
    element *const sums = all_sums + threadIdx.x / 32 * SUMS_STRIDE;
    const i64 warps = (i64)gridDim.x * WARPS, warp = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    const i64 tiles = ceildiv(columns, COLUMN_TILE);
    for (int r = threadIdx.x % 32; r < WARP_ROWS; r += 32)
        sums[r] = 0;
    fetch_tile(tile, x, 0, columns);
    int from = starts[warp], end = starts[warps + warp];
    int next_end = tiles > 1 ? starts[2 * warps + warp] : end;
    some_of_tile some, next;
    next.read(packed, values, from, end);
    for (i64 t = 0; t < tiles; t++) {
        some = next;
        copies_wait();
        __syncthreads(); // and the tile before has been used
        int end_after = next_end;
        if (t + 1 < tiles) {
            fetch_tile(tile + (t + 1) % 2 * COLUMN_TILE, x, (t + 1) * COLUMN_TILE, columns);
            if (t + 2 < tiles)
                end_after = starts[(t + 3) * warps + warp];
            next.read(packed, values, end, next_end);
        }
        some.multiply(sums, tile + t % 2 * COLUMN_TILE);
        for (from += 32 * VEC; from < end; from += 32 * VEC) {
            some.read(packed, values, from, end);
            some.multiply(sums, tile + t % 2 * COLUMN_TILE);
        }
        from = end;
        end = next_end;
        next_end = end_after;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BLOCK * ITEMS; i += BLOCK) {
        const i64 place = i / WARPS * warps + (i64)blockIdx.x * WARPS + i % WARPS;
        const element sum = all_sums[i % WARPS * SUMS_STRIDE + i / WARPS];
        const int whole = plan->begin[LONG];
        if (place < whole)
            y[order[place]] = sum;
        else if (place < whole + plan->chunks)
            parts[place - whole] = sum;
    }
}

// The entries first, first + step ... before `end` of the CSR: of a row, or of a chunk of one.
struct piece {
    int first, step, end;
};

// That which stands at a place among all whole rows, by class, and then all chunks.
__device__ inline piece piece_at(const int *__restrict__ offsets, const classes *__restrict__ plan,
    const int *__restrict__ order, const int *__restrict__ part_rows,
    const int *__restrict__ part_begins, i64 place)
{
    const i64 chunk = place - plan->begin[LONG];
    if (chunk < 0)
        return {offsets[order[place]], 1, offsets[order[place] + 1]};
    if (chunk >= plan->chunks)
        return {0, 1, 0};
    const int row = part_rows[chunk], end = offsets[row + 1];
    return {part_begins[chunk], (int)ceildiv(end - offsets[row], CHUNK), end};
}

// Once: starts[warp] = how many entries the warp has.
extern "C" __global__ void __launch_bounds__(BLOCK)
    count_entries(const int *__restrict__ offsets, const classes *__restrict__ plan,
        const int *__restrict__ order, const int *__restrict__ part_rows,
        const int *__restrict__ part_begins, int *__restrict__ starts)
{
    const i64 warps = (i64)gridDim.x * WARPS, warp = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    int count = 0;
    for (int r = threadIdx.x % 32; r < WARP_ROWS; r += 32) {
        const piece own = piece_at(offsets, plan, order, part_rows, part_begins, r * warps + warp);
        count += (int)ceildiv(own.end - own.first, own.step);
    }
    for (int bit = 16; bit > 0; bit /= 2)
        count += __shfl_xor_sync(ALL, count, bit);
    if (threadIdx.x % 32 == 0)
        starts[warp] = count;
}

extern "C" __global__ void __launch_bounds__(1024) add_counts(int *__restrict__ starts, i64 warps)
{
    sums_before(starts, warps);
}

// Once: a warp puts the entries of its rows in order.
extern "C" __global__ void __launch_bounds__(BLOCK)
    convert(const int *__restrict__ offsets, const int *__restrict__ columns,
        const element *__restrict__ values, const classes *__restrict__ plan,
        const int *__restrict__ order, const int *__restrict__ part_rows,
        const int *__restrict__ part_begins, int *__restrict__ packed,
        element *__restrict__ other_values, int *__restrict__ starts, i64 tiles)
{
    const i64 warps = (i64)gridDim.x * WARPS, warp = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const u32 lanes_before = (1u << lane) - 1;
    piece own[ITEMS];
    int at = starts[warp];
    for (int r = 0; r < ITEMS; r++)
        own[r] =
            piece_at(offsets, plan, order, part_rows, part_begins, (32 * r + lane) * warps + warp);
    for (i64 t = 0; t < tiles; t++) {
        const int first = at;
        int next[ITEMS], step[ITEMS], turn[ITEMS];
        for (int r = 0; r < ITEMS; r++) {
            next[r] = own[r].first;
            step[r] = -1;
        }
        for (bool has_more = true; has_more;) {
            has_more = false;
            for (int r = 0; r < ITEMS; r++) {
                while (next[r] < own[r].end && columns[next[r]] / COLUMN_TILE != t)
                    next[r] += own[r].step;
                const bool has_one = next[r] < own[r].end;
                const u32 lanes = __ballot_sync(ALL, has_one);
                if (has_one) {
                    const int place = at + __popc(lanes & lanes_before);
                    turn[r] = step[r] == (place - first) / 32 ? turn[r] + 1 : 0;
                    step[r] = (place - first) / 32;
                    packed[place] =
                        tile_entry::of(columns[next[r]] % COLUMN_TILE, 32 * r + lane, turn[r]).code;
                    other_values[place] = values[next[r]];
                    next[r] += own[r].step;
                }
                at += __popc(lanes);
                has_more = has_more || lanes != 0;
            }
        }
        if (lane == 0)
            starts[(t + 1) * warps + warp] = at;
    }
}
