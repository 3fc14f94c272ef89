// Device helpers that the kernels share. No host header and no toolkit header: a sweep compiles
// hundreds of configurations, and each header read is read hundreds of times.
//
// Everything here is ordinary CUDA C++, so it also compiles for the emulator (TUNE_EMULATOR).
// Inline PTX, where a kernel needs it, belongs in a wrapper here with a branch for the emulator.
#pragma once

typedef long long i64; // sizes and offsets: arrays may have more than 2^31 elements

__host__ __device__ constexpr i64 ceildiv(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

__device__ inline i64 least(i64 a, i64 b)
{
    return a < b ? a : b;
}

// load/store move 1, 2 or 4 floats by one access. `from` and `to` must be aligned to its size.
__device__ inline void load(float (&out)[1], const float *from)
{
    out[0] = *from;
}

__device__ inline void load(float (&out)[2], const float *from)
{
    const float2 v = *reinterpret_cast<const float2 *>(from);
    out[0] = v.x;
    out[1] = v.y;
}

__device__ inline void load(float (&out)[4], const float *from)
{
    const float4 v = *reinterpret_cast<const float4 *>(from);
    out[0] = v.x;
    out[1] = v.y;
    out[2] = v.z;
    out[3] = v.w;
}

__device__ inline void store(float *to, const float (&in)[1])
{
    *to = in[0];
}

__device__ inline void store(float *to, const float (&in)[2])
{
    float2 v;
    v.x = in[0];
    v.y = in[1];
    *reinterpret_cast<float2 *>(to) = v;
}

__device__ inline void store(float *to, const float (&in)[4])
{
    float4 v;
    v.x = in[0];
    v.y = in[1];
    v.z = in[2];
    v.w = in[3];
    *reinterpret_cast<float4 *>(to) = v;
}
