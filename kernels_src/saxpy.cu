// y[i] = a * x[i] + y[i] for i in [0..N), in place, f32.
//
// VARIANT 0 (naive): one thread per element.
// VARIANT 1 (vector): elementwise.cuh says which elements a thread has.
//
// Product and sum are one fused multiply-add, rounded once. x and y must be aligned to VEC elements
// and must not overlap. NaN and infinity as the sum says; denormals are kept; deterministic.
#include "elementwise.cuh"

#if TUNE_REFERENCE

// In f64, to an array of its own.
extern "C" __global__ void __launch_bounds__(256)
    saxpy_reference(float a, const float *__restrict__ x, // [N]
        const float *__restrict__ y,                      // [N]
        double *__restrict__ value,                       // [N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < N)
        value[i] = (double)a * x[i] + y[i];
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK)
    saxpy(float a, const float *__restrict__ x, // [N]
        float *__restrict__ y,                  // [N]
        i64 N)
{
    combine_pairs(x, y, y, N, [a](float x, float y) { return fmaf(a, x, y); });
}

#endif
