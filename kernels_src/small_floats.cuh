// f16 and bf16 as kernels meet them: two bytes in memory, floats in registers. In place of the
// toolkit's headers of that purpose, which are long and would be read for each of hundreds of
// compiles.
//
// f16::unpack and bf16::unpack are exact; pack rounds to nearest, ties to even. NaN stays NaN.
#pragma once
#include "common.cuh"

typedef unsigned short u16;
typedef unsigned int u32;

struct f16 {
    u16 bits;

    static __device__ inline float unpack(u16 bits)
    {
#ifdef TUNE_EMULATOR
        return (float)__builtin_bit_cast(_Float16, bits);
#else
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
#endif
    }

    static __device__ inline u16 pack(float value)
    {
#ifdef TUNE_EMULATOR
        return __builtin_bit_cast(u16, (_Float16)value);
#else
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
#endif
    }

    // Two at once, `low` in the lower half of the word, where the lower address is.
    static __device__ inline u32 pack(float low, float high)
    {
#if __CUDA_ARCH__ >= 800
        u32 pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
#else
        return pack(low) | (u32)pack(high) << 16;
#endif
    }
};

struct bf16 {
    u16 bits;

    static __device__ inline float unpack(u16 bits)
    {
        return __uint_as_float((u32)bits << 16);
    }

    static __device__ inline u16 pack(float value)
    {
        const u32 bits = __float_as_uint(value);
        if (value != value)
            return 0x7fff;
        return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }

    static __device__ inline u32 pack(float low, float high)
    {
#if __CUDA_ARCH__ >= 800
        u32 pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
#else
        return pack(low) | (u32)pack(high) << 16;
#endif
    }
};

template <typename H> __device__ inline void unpack_pair(float &low, float &high, u32 pair)
{
    low = H::unpack((u16)pair);
    high = H::unpack((u16)(pair >> 16));
}

// load/store move 1, 2, 4 or 8 elements by one access. `from` and `to` must be aligned to its size.
template <typename H> __device__ inline void load(float (&out)[1], const H *from)
{
    out[0] = H::unpack(from->bits);
}

template <typename H> __device__ inline void load(float (&out)[2], const H *from)
{
    unpack_pair<H>(out[0], out[1], *reinterpret_cast<const u32 *>(from));
}

template <typename H> __device__ inline void load(float (&out)[4], const H *from)
{
    const uint2 v = *reinterpret_cast<const uint2 *>(from);
    unpack_pair<H>(out[0], out[1], v.x);
    unpack_pair<H>(out[2], out[3], v.y);
}

template <typename H> __device__ inline void load(float (&out)[8], const H *from)
{
    const uint4 v = *reinterpret_cast<const uint4 *>(from);
    unpack_pair<H>(out[0], out[1], v.x);
    unpack_pair<H>(out[2], out[3], v.y);
    unpack_pair<H>(out[4], out[5], v.z);
    unpack_pair<H>(out[6], out[7], v.w);
}

template <typename H> __device__ inline void store(H *to, const float (&in)[1])
{
    to->bits = H::pack(in[0]);
}

template <typename H> __device__ inline void store(H *to, const float (&in)[2])
{
    *reinterpret_cast<u32 *>(to) = H::pack(in[0], in[1]);
}

template <typename H> __device__ inline void store(H *to, const float (&in)[4])
{
    uint2 v;
    v.x = H::pack(in[0], in[1]);
    v.y = H::pack(in[2], in[3]);
    *reinterpret_cast<uint2 *>(to) = v;
}

template <typename H> __device__ inline void store(H *to, const float (&in)[8])
{
    uint4 v;
    v.x = H::pack(in[0], in[1]);
    v.y = H::pack(in[2], in[3]);
    v.z = H::pack(in[4], in[5]);
    v.w = H::pack(in[6], in[7]);
    *reinterpret_cast<uint4 *>(to) = v;
}
