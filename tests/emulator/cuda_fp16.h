/* The emulator's half precision: what kernels commonly use of the toolkit's header of this name. */
#pragma once
#pragma GCC system_header
#include "tune_small_floats.h"

static inline unsigned short tune_half_bits(float f)
{
    return __builtin_bit_cast(unsigned short, (_Float16)f);
}

static inline float tune_half_float(unsigned short bits)
{
    return (float)__builtin_bit_cast(_Float16, bits);
}

TUNE_SMALL_FLOAT(__half, __half2, tune_half_bits, tune_half_float)
typedef __half half;
typedef __half2 half2;

static inline __half __float2half(float f)
{
    return __half(f);
}

static inline __half __float2half_rn(float f)
{
    return __half(f);
}

static inline float __half2float(__half h)
{
    return h;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}

static inline __half2 __float22half2_rn(float2 v)
{
    return {__half(v.x), __half(v.y)};
}

static inline float2 __half22float2(__half2 v)
{
    return {v.x, v.y};
}

static inline __half2 __half2half2(__half h)
{
    return {h, h};
}

static inline __half2 __float2half2_rn(float f)
{
    return {__half(f), __half(f)};
}

static inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}

static inline __half __low2half(__half2 v)
{
    return v.x;
}

static inline __half __high2half(__half2 v)
{
    return v.y;
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return __builtin_bit_cast(__half, bits);
}
