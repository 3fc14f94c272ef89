// y[i] = a * x[i] + y[i] for i in [0..N), in place, f32.
//
// VARIANT 0 (naive): one thread per element.
// VARIANT 1 (vector): elementwise.cuh says which elements a thread has. All its loads are on their
//   way before the first is used.
//
// Product and sum are one fused multiply-add, rounded once. x and y must be aligned to VEC elements
// and must not overlap. NaN and infinity as the sum says; denormals are kept; deterministic.
#include "elementwise.cuh"

static_assert(VEC * sizeof(float) <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(VARIANT == 0 || (ITEMS * sizeof(float) >= 8 && ITEMS * sizeof(float) <= 64),
    "a thread reads 8 to 64 bytes of each array at a time: ITEMS elements");

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

#elif VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    saxpy(float a, const float *__restrict__ x, // [N]
        float *__restrict__ y,                  // [N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i < N)
        y[i] = fmaf(a, x[i], y[i]);
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK)
    saxpy(float a, const float *__restrict__ x, // [N]
        float *__restrict__ y,                  // [N]
        i64 N)
{
    const auto whole = [&](i64 at) {
        vector<float, VEC> v[VECTORS], w[VECTORS];
        at += threadIdx.x * VEC;
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            load(v[i], x + at + i * BLOCK * VEC);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            load(w[i], y + at + i * BLOCK * VEC);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                w[i].at[j] = fmaf(a, v[i].at[j], w[i].at[j]);
            store(y + at + i * BLOCK * VEC, w[i]);
        }
    };
    walk(N, whole, [&](i64 i) { y[i] = fmaf(a, x[i], y[i]); });
}

#endif
