// What the convolutions share: tunables, what stands beyond the edges, how rows are read and
// written, where a thread has its filter, and the reference.
#pragma once
#include "common.cuh"

#ifndef K
#define K 9 // elements of the filter along an axis
#endif
#ifndef BORDER
#define BORDER 1 // 1 zero, 2 clamp, 3 mirror, 4 wrap
#endif
#ifndef VEC
#define VEC 4 // floats per global access
#endif
#ifndef TAPS
#define TAPS 0 // where the filter stands: 0 constant memory, 1 registers
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

constexpr int BEFORE = K / 2, AFTER = K - 1 - BEFORE; // places of x before and after y's own

// Borders, as the address modes of CUDA's textures have them. For the row a b c d:
constexpr int BORDER_ZERO = 1;   // 0 0 | a b c d | 0 0
constexpr int BORDER_CLAMP = 2;  // a a | a b c d | d d
constexpr int BORDER_MIRROR = 3; // b a | a b c d | d c
constexpr int BORDER_WRAP = 4;   // c d | a b c d | a b

// Which of the elements 0..n-1 stands at place i, any i; -1: none, a zero.
template <int mode> __device__ inline i64 bordered(i64 i, i64 n)
{
    if (i >= 0 && i < n)
        return i;
    if constexpr (mode == BORDER_ZERO) {
        return -1;
    } else if constexpr (mode == BORDER_CLAMP) {
        return i < 0 ? 0 : n - 1;
    } else {
        // Steps, not a remainder: few filters are larger than the image, and a division is a call.
        while (i < 0 || i >= n)
            if constexpr (mode == BORDER_MIRROR)
                i = (i < 0 ? 0 : 2 * n) - 1 - i;
            else
                i += i < 0 ? n : -n;
        return i;
    }
}

// Place i, any i, of a row of n elements.
template <int mode> __device__ inline float element(const float *row, i64 i, i64 n)
{
    const i64 at = bordered<mode>(i, n);
    return at < 0 ? 0.0f : row[at];
}

__host__ __device__ constexpr int round_up(int n, int multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

// The compiler forgets how the value was computed: what follows from it is computed where it is
// used. Without this the places of a window at an edge, the same for all rows, would be kept in
// registers through the loop over the rows, in every thread.
__device__ inline i64 forgotten(i64 value)
{
#ifndef TUNE_EMULATOR
    asm volatile("" : "+l"(value));
#endif
    return value;
}

// to[0..count) = from[0..count), by accesses of `width` floats; both are aligned to it.
template <int width, int count> __device__ inline void copy_floats(float *to, const float *from)
{
#pragma unroll
    for (int j = 0; j < count; j += width)
        load(reinterpret_cast<float(&)[width]>(to[j]), from + j);
}

// window[j] = place from + j of the row of n elements that begins at x: by accesses of `width`
// floats where all of them exist (x and from are aligned to it then), else one by one.
template <int mode, int width, int count>
__device__ inline void read_window(float (&window)[count], const float *x, i64 from, i64 n)
{
    if (from >= 0 && from + count <= n) {
        copy_floats<width, count>(window, x + from);
    } else {
        from = forgotten(from);
#pragma unroll
        for (int j = 0; j < count; j++)
            window[j] = element<mode>(x, from + j, n);
    }
}

// The same from row `row`, any row, of the image x of H x W elements.
template <int row_mode, int mode, int width, int count>
__device__ inline void read_window(
    float (&window)[count], const float *x, i64 row, i64 from, i64 H, i64 W)
{
    row = bordered<row_mode>(row, H);
    if (row >= 0)
        read_window<mode, width>(window, x + row * W, from, W);
    else
#pragma unroll
        for (float &zero : window)
            zero = 0.0f;
}

// tile[r][c] = place (row0 + r, col0 + c) of the image x of H x W elements, by all threads of a
// block, by accesses of `width` floats where all of them exist (x, W and col0 are multiples of it
// then). Places more than `after` beyond the last row or column are not used and become zeros.
template <int mode, int width, int threads, int rows, int columns>
__device__ inline void read_tile(
    float *tile, const float *__restrict__ x, i64 row0, i64 col0, i64 H, i64 W, int after)
{
    if (row0 >= 0 && row0 + rows <= H && col0 >= 0 && col0 + columns <= W) {
        const float *const from = x + row0 * W + col0;
        constexpr int row_vecs = columns / width;
#pragma unroll 4
        for (int v = threadIdx.x; v < rows * row_vecs; v += threads) {
            float part[width];
            load(part, from + v / row_vecs * W + v % row_vecs * width);
            store(tile + v * width, part);
        }
        return;
    }
    for (int v = threadIdx.x; v < rows * columns; v += threads) {
        const i64 r = row0 + v / columns, c = col0 + v % columns;
        const i64 row = r < H + after ? bordered<mode>(r, H) : -1;
        tile[v] = row < 0 || c >= W + after ? 0.0f : element<mode>(x + row * W, c, W);
    }
}

// x[at + j] = row[j], as far as the n elements at x go.
template <int width, int count>
__device__ inline void write_row(float *x, i64 at, i64 n, const float (&row)[count])
{
    if (at + count <= n) {
#pragma unroll
        for (int j = 0; j < count; j += width)
            store(x + at + j, reinterpret_cast<const float(&)[width]>(row[j]));
    } else {
#pragma unroll
        for (int j = 0; j < count; j++)
            if (at + j < n)
                x[at + j] = row[j];
    }
}

// A filter of `count` elements as a thread has it: its own copy, read once from global memory, or
// constant memory.
template <int count> struct filter_taps {
    const float *in_constant;
    float held[TAPS == 1 ? count : 1];

    __device__ inline filter_taps(const float *constant, const float *global)
        : in_constant(constant)
    {
        if constexpr (TAPS == 1)
#pragma unroll
            for (int i = 0; i < count; i++)
                held[i] = global[i];
    }
    __device__ inline float at(int i) const
    {
        return TAPS == 1 ? held[i] : in_constant[i];
    }
};

// Reference in f64, one thread per element, for a filter of `rows` rows with K elements each:
// value = sum tap(a, b) * x and scale = sum |tap(a, b) * x|. A row alone is an image with H = 1.
template <int rows, typename Tap>
__device__ inline void reference_image(
    const float *x, const Tap &tap, double *value, double *scale, i64 H, i64 W)
{
    for (i64 index = (i64)blockIdx.x * 256 + threadIdx.x; index < H * W;
         index += (i64)gridDim.x * 256) {
        const i64 i = index / W, j = index % W;
        double sum = 0, sum_abs = 0;
        for (i64 a = 0; a < rows; a++) {
            const i64 row = bordered<BORDER>(i + a - rows / 2, H);
            for (i64 b = 0; b < K; b++) {
                const double v = row < 0 ? 0.0f : element<BORDER>(x + row * W, j + b - BEFORE, W);
                const double p = tap(a, b) * v;
                sum += p;
                sum_abs += p < 0 ? -p : p;
            }
        }
        value[index] = sum;
        scale[index] = sum_abs;
    }
}
