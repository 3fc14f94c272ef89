/* The emulator's bfloat16: what kernels commonly use of the toolkit's header of this name. */
#pragma once
#pragma GCC system_header
#include "tune_small_floats.h"

/* To nearest, ties to even; a NaN stays one. */
static inline unsigned short tune_bfloat16_bits(float f)
{
    unsigned bits = __builtin_bit_cast(unsigned, f);
    if (f != f)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float tune_bfloat16_float(unsigned short bits)
{
    return __builtin_bit_cast(float, (unsigned)bits << 16);
}

TUNE_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, tune_bfloat16_bits, tune_bfloat16_float)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __nv_bfloat16(f);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    return __nv_bfloat16(f);
}

static inline float __bfloat162float(__nv_bfloat16 b)
{
    return b;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {v.x, v.y};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __builtin_bit_cast(__nv_bfloat16, bits);
}
