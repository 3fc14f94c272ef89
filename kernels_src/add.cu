// z[i] = x[i] + y[i] for i in [0..N), f32 or f16.
//
// VARIANT 0 (naive): one thread per element.
// VARIANT 1 (vector): elementwise.cuh says which elements a thread has.
//
// f16 is added in f32 and rounded once, which gives the correctly rounded sum. x, y and z must be
// aligned to VEC elements. NaN and infinity as the sum says; denormals are kept; deterministic.
#include "elementwise.cuh"
#include "small_floats.cuh"

#if TUNE_DTYPE_F16
typedef f16 element;
#else
typedef float element;
#endif

__device__ inline element sum(element x, element y)
{
#if TUNE_DTYPE_F16
    return {f16::pack(f16::unpack(x.bits) + f16::unpack(y.bits))};
#else
    return x + y;
#endif
}

#if TUNE_REFERENCE

__device__ inline double value_of(element x)
{
#if TUNE_DTYPE_F16
    return f16::unpack(x.bits);
#else
    return x;
#endif
}

extern "C" __global__ void __launch_bounds__(256)
    add_reference(const element *__restrict__ x, // [N]
        const element *__restrict__ y,           // [N]
        double *__restrict__ z,                  // [N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < N)
        z[i] = value_of(x[i]) + value_of(y[i]);
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK) add(const element *__restrict__ x, // [N]
    const element *__restrict__ y,                                                     // [N]
    element *__restrict__ z,                                                           // [N]
    i64 N)
{
    combine_pairs(x, y, z, N, [](element a, element b) { return sum(a, b); });
}

#endif
