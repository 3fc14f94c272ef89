// y[o][i][j] = sum over c, a, b of filter[o][c][a][b] * x[c][i + a - K/2][j + b - K/2], f32 by IEEE
// fused multiply-add: C_OUT filters of C_IN x K x K over an image of C_IN channels, zero beyond its
// edges, stride 1 (a correlation: the filters are not turned round). All arrays are row-major. An
// even K has one row and column more before the middle than after it.
//
// VARIANT 0 (direct): one thread per element of y.
// VARIANT 1 (im2col): `conv_columns` writes for every element of y the C_IN * K * K elements of x
//   that it needs as a column of a matrix; then y is the product of the filters, which are a matrix
//   of C_OUT rows already, with it: `gemm` of gemm.cu with M = C_OUT, N = H * W and
//   K = C_IN * K * K, whose tunables these are. With a filter of 1 x 1 x is that matrix itself.
//
// Both are deterministic. NaN and infinity pass through, a zero beyond the edge times an infinite
// element of the filter included; denormals are kept.
#include "common.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 direct, 1 im2col
#endif
#ifndef VEC
#define VEC 1 // floats per global access; divides H * W and C_IN * K * K
#endif

#if TUNE_REFERENCE

// Reference in f64, one thread per element: value = sum f*x and scale = sum |f*x|.
extern "C" __global__ void __launch_bounds__(256)
    conv_channels_reference(const float *__restrict__ x, // [C_IN][H][W]
        const float *__restrict__ filter,                // [C_OUT][C_IN][K][K]
        double *__restrict__ value,                      // [C_OUT][H][W]
        double *__restrict__ scale,                      // [C_OUT][H][W]
        i64 C_IN, i64 C_OUT, i64 H, i64 W, i64 K)
{
    for (i64 index = (i64)blockIdx.x * 256 + threadIdx.x; index < C_OUT * H * W;
         index += (i64)gridDim.x * 256) {
        const i64 o = index / W / H, i = index / W % H, j = index % W;
        double sum = 0, sum_abs = 0;
        for (i64 c = 0; c < C_IN; c++)
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < K; b++) {
                    const i64 row = i + a - K / 2, col = j + b - K / 2;
                    const bool is_inside = row >= 0 && row < H && col >= 0 && col < W;
                    const double v = is_inside ? x[(c * H + row) * W + col] : 0.0f;
                    const double p = filter[((o * C_IN + c) * K + a) * K + b] * v;
                    sum += p;
                    sum_abs += p < 0 ? -p : p;
                }
        value[index] = sum;
        scale[index] = sum_abs;
    }
}

#else

#if VARIANT == 0
#define PAD 0 // the product is not used then; gemm.cu's naive one wants this
#endif
#include "gemm.cu"

// Thread t of the grid computes elements t, t + threads of the grid, ... of y.
extern "C" __global__ void __launch_bounds__(256)
    conv_channels(const float *__restrict__ x, // [C_IN][H][W]
        const float *__restrict__ filter,      // [C_OUT][C_IN][K][K]
        float *__restrict__ y,                 // [C_OUT][H][W]
        i64 C_IN, i64 C_OUT, i64 H, i64 W, i64 K)
{
    for (i64 index = (i64)blockIdx.x * 256 + threadIdx.x; index < C_OUT * H * W;
         index += (i64)gridDim.x * 256) {
        const i64 o = index / W / H, i = index / W % H, j = index % W;
        float sum = 0.0f;
        for (i64 c = 0; c < C_IN; c++)
            for (i64 a = 0; a < K; a++)
                for (i64 b = 0; b < K; b++) {
                    const i64 row = i + a - K / 2, col = j + b - K / 2;
                    const bool is_inside = row >= 0 && row < H && col >= 0 && col < W;
                    const float v = is_inside ? x[(c * H + row) * W + col] : 0.0f;
                    sum += filter[((o * C_IN + c) * K + a) * K + b] * v;
                }
        y[index] = sum;
    }
}

// columns[(c * K + a) * K + b][p] = x[c][i + a - K/2][j + b - K/2] for element p = i * W + j of y.
// A thread has VEC neighbouring p of one channel and writes all its K * K rows, so that the part of
// x that it reads again and again stays in L1.
extern "C" __global__ void __launch_bounds__(256)
    conv_columns(const float *__restrict__ x, // [C_IN][H][W]
        float *__restrict__ columns,          // [C_IN * K * K][H * W]
        i64 C_IN, i64 H, i64 W, i64 K)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x, vecs = H * W / VEC;
    if (index >= C_IN * vecs)
        return;
    const i64 c = index / vecs, p = index % vecs * VEC;
    i64 row[VEC], col[VEC];
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        row[v] = (p + v) / W - K / 2;
        col[v] = (p + v) % W - K / 2;
    }
    const float *const channel = x + c * H * W;
    float *to = columns + c * K * K * H * W + p;
    for (i64 a = 0; a < K; a++)
#pragma unroll 4
        for (i64 b = 0; b < K; b++) {
            float part[VEC];
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                const i64 r = row[v] + a, k = col[v] + b;
                const bool is_inside = r >= 0 && r < H && k >= 0 && k < W;
                part[v] = is_inside ? channel[r * W + k] : 0.0f;
            }
            store(to, part);
            to += H * W;
        }
}

#endif
