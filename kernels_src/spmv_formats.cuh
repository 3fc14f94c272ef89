// The variants ell, hybrid, jds and coo of spmv.cu: entries in another order than CSR's, or with
// their rows beside them, and how they come to it.
#pragma once
#include "spmv.cuh"

#if VARIANT >= 4 && VARIANT <= 6

// Row by row: ITEMS entries of the thread's row are on their way before they are multiplied.
// at(k): where entry k stands; the row has no entry k where k is `length` or column -1 stands.
template <typename F>
__device__ inline element row_sum(const int *__restrict__ columns,
    const element *__restrict__ values, const element *__restrict__ x, int length, F at)
{
    element sum = 0;
    for (int k = 0; k < length; k += ITEMS) {
        int column[ITEMS];
        element value[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            column[j] = -1;
            if (k + j < length) {
                const i64 place = at(k + j);
                int one[1];
                element other[1];
                read_entries(one, columns + place);
                read_entries(other, values + place);
                column[j] = one[0];
                value[j] = other[0];
            }
        }
        if (column[0] < 0)
            break;
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            if (column[j] >= 0)
                sum += value[j] * x[column[j]];
    }
    return sum;
}

#endif
#if VARIANT == 4 || VARIANT == 5

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ columns, // [width][pitch], -1: none
        const element *__restrict__ values,   // [width][pitch]
        const element *__restrict__ x, element *__restrict__ y, i64 rows, i64 pitch, i64 width)
{
    const i64 row = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (row < rows)
        y[row] = row_sum(columns, values, x, (int)width, [&](int k) { return k * pitch + row; });
}

#elif VARIANT == 6

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ offsets, // [rows + 1], of the CSR
        const int *__restrict__ columns,      // [entries]
        const element *__restrict__ values,   // [entries]
        const element *__restrict__ x, element *__restrict__ y,
        const int *__restrict__ order,     // [rows]: row at each place
        const int *__restrict__ diagonals, // [longest + 1]: where the entries k of rows begin
        i64 rows)
{
    const i64 place = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (place >= rows)
        return;
    const int row = order[place];
    y[row] = row_sum(columns, values, x, offsets[row + 1] - offsets[row],
        [&](int k) { return diagonals[k] + place; });
}

// Once, after a memset of `longer`.
extern "C" __global__ void __launch_bounds__(256)
    count(const int *__restrict__ offsets, int *__restrict__ longer, i64 rows)
{
    const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
    if (row < rows)
        atomicAdd(longer + offsets[row + 1] - offsets[row], 1);
}

// longer[k] = how many rows have more than k entries, diagonals[k] = the sum of those before.
extern "C" __global__ void __launch_bounds__(1024)
    make_plan(int *__restrict__ longer, // [longest + 2], rows of each length before
        int *__restrict__ diagonals,    // [longest + 1]
        i64 rows, i64 longest)
{
    sums_before(longer, longest + 1);
    __syncthreads();
    for (i64 k = threadIdx.x; k < longest; k += 1024)
        diagonals[k] = (int)rows - longer[k + 1];
    __syncthreads();
    sums_before(diagonals, longest);
}

extern "C" __global__ void __launch_bounds__(1024)
    place_rows(const int *__restrict__ offsets, const int *__restrict__ shorter, // [longest + 2]
        int *__restrict__ taken, // [longest + 1], zero before
        int *__restrict__ order, int *__restrict__ places, i64 rows)
{
    const i64 row = (i64)blockIdx.x * 1024 + threadIdx.x;
    const int length = row < rows ? offsets[row + 1] - offsets[row] : -1;
    const i64 place = place_of(length, taken, [&](int kind) { return rows - shorter[kind + 1]; });
    if (row >= rows)
        return;
    order[place] = (int)row;
    places[row] = (int)place;
}

#endif
#if VARIANT == 5 || VARIANT == 7

constexpr int SPAN = 32 * ITEMS; // entries of a warp

// Spans of entries, each to y where a row begins and ends in it; of its first and last row the sum
// goes to the span's two slots.
__device__ inline void add_spans(const int *__restrict__ row_numbers,
    const int *__restrict__ columns, const element *__restrict__ values,
    const element *__restrict__ x, element *__restrict__ y, int *__restrict__ part_rows,
    element *__restrict__ parts, i64 entries)
{
    const int lane = threadIdx.x % 32;
    const i64 warps = (i64)gridDim.x * (BLOCK / 32);
    for (i64 span = (i64)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; span * SPAN < entries;
         span += warps) {
        int row[ITEMS], column[ITEMS][1];
        element product[ITEMS][1];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const i64 at = span * SPAN + i * 32 + lane;
            row[i] = row_numbers[least(at, entries - 1)];
            column[i][0] = -1;
            if (at < entries) {
                read_entries(column[i], columns + at);
                read_entries(product[i], values + at);
            }
        }
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            product[i][0] = column[i][0] >= 0 ? product[i][0] * x[column[i][0]] : 0;
        const int first = __shfl_sync(ALL, row[0], 0), last = __shfl_sync(ALL, row[ITEMS - 1], 31);
        auto finish = [&](int of, element sum) {
            if (of == first)
                parts[2 * span] = sum;
            else if constexpr (VARIANT == HYBRID)
                y[of] += sum;
            else
                y[of] = sum;
        };
        int open = first;
        element carried = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            element sum = product[i][0];
            if (lane == 0) {
                if (row[i] == open)
                    sum = carried + sum;
                else
                    finish(open, carried);
            }
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const element other = __shfl_up_sync(ALL, sum, offset);
                const int other_row = __shfl_up_sync(ALL, row[i], offset);
                if (lane >= offset && other_row == row[i])
                    sum = other + sum;
            }
            const int next = __shfl_down_sync(ALL, row[i], 1);
            if (lane < 31 && next != row[i])
                finish(row[i], sum);
            open = __shfl_sync(ALL, row[i], 31);
            carried = __shfl_sync(ALL, sum, 31);
        }
        if (lane == 0) {
            if (first == last)
                parts[2 * span] = carried;
            part_rows[2 * span] = first;
            part_rows[2 * span + 1] = last;
            parts[2 * span + 1] = first == last ? 0 : carried;
        }
    }
}

#endif
#if VARIANT == 7

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply(const int *__restrict__ row_numbers,               // [entries]
        const int *__restrict__ columns,                        // [entries]
        const element *__restrict__ values,                     // [entries]
        const element *__restrict__ x, element *__restrict__ y, // y: zero before
        int *__restrict__ part_rows,                            // [2 * spans]
        element *__restrict__ parts,                            // [2 * spans]
        i64 entries)
{
    add_spans(row_numbers, columns, values, x, y, part_rows, parts, entries);
}

extern "C" __global__ void __launch_bounds__(JOIN) add_parts(const int *__restrict__ part_rows,
    const element *__restrict__ parts, element *__restrict__ y, i64 rows, i64 entries)
{
    join_parts(part_rows, parts, y, rows, 2 * ceildiv(entries, SPAN));
}

#elif VARIANT == 5

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    multiply_rest(const int *__restrict__ row_numbers, // [rest]
        const int *__restrict__ columns,               // [padded + rest]
        const element *__restrict__ values,            // [padded + rest]
        const element *__restrict__ x, element *__restrict__ y,
        const int *__restrict__ rest_offsets, // [rows + 1]
        int *__restrict__ part_rows,          // [2 * spans]
        element *__restrict__ parts,          // [2 * spans]
        i64 rows, i64 padded)
{
    add_spans(
        row_numbers, columns + padded, values + padded, x, y, part_rows, parts, rest_offsets[rows]);
}

extern "C" __global__ void __launch_bounds__(JOIN)
    add_parts(const int *__restrict__ part_rows, const element *__restrict__ parts,
        element *__restrict__ y, const int *__restrict__ rest_offsets, i64 rows)
{
    join_parts(part_rows, parts, y, rows, 2 * ceildiv(rest_offsets[rows], SPAN));
}

// Once: where the entries of each row beyond `width` go.
extern "C" __global__ void __launch_bounds__(256)
    count(const int *__restrict__ offsets, int *__restrict__ rest_offsets, i64 rows, i64 width)
{
    const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
    if (row < rows)
        rest_offsets[row] = (int)(offsets[row + 1] - least(offsets[row] + width, offsets[row + 1]));
}

extern "C" __global__ void __launch_bounds__(1024)
    make_plan(int *__restrict__ rest_offsets, i64 rows)
{
    sums_before(rest_offsets, rows);
}

#endif

#if VARIANT >= 4 && VARIANT <= 7

// Once, a thread per entry: to its place in the other format.
extern "C" __global__ void __launch_bounds__(256)
    convert(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,     // [entries]
        const element *__restrict__ values,  // [entries]
#if VARIANT == 4 || VARIANT == 5
        int *__restrict__ other_columns, element *__restrict__ other_values, i64 pitch, i64 width,
#endif
#if VARIANT == 5
        const int *__restrict__ rest_offsets,
#elif VARIANT == 6
        int *__restrict__ other_columns, element *__restrict__ other_values,
        const int *__restrict__ places, const int *__restrict__ diagonals,
#endif
#if VARIANT == 5 || VARIANT == 7
        int *__restrict__ row_numbers,
#endif
        i64 rows, i64 entries)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= entries)
        return;
    const i64 row = row_of(offsets, rows, i);
#if VARIANT == 7
    row_numbers[i] = (int)row;
#else
    const i64 k = i - offsets[row];
#if VARIANT == 6
    const i64 at = diagonals[k] + places[row];
#elif VARIANT == 4
    const i64 at = k * pitch + row;
#else
    i64 at = k * pitch + row;
    if (k >= width) {
        const i64 in_rest = rest_offsets[row] + k - width;
        row_numbers[in_rest] = (int)row;
        at = pitch * width + in_rest;
    }
#endif
    other_columns[at] = columns[i];
    other_values[at] = values[i];
#endif
}

#endif
