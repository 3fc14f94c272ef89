// grey[i] = the brightness of pixel i of N, whose red, green and blue lie one after another in rgb;
// u8 or f32, weights of ITU-R BT.601.
//
// u8: (77 red + 150 green + 29 blue + 128) / 256, in integers, exact: 0 to 255.
// f32: 0.299 red + 0.587 green + 0.114 blue, by fused multiply-adds; NaN and infinity as the sum
//   says, denormals are kept.
// VARIANT 0 (naive): one thread per pixel, three loads.
// VARIANT 1 (vector), 2 (shared): records.cuh says how a thread gets its pixels; it writes VEC by
//   one access.
//
// rgb and grey must be aligned to 16 bytes. Deterministic.
#include "records.cuh"

#if TUNE_DTYPE_U8
typedef unsigned char element;
#else
typedef float element;
#endif

constexpr int SIZE = sizeof(element);

static_assert(VEC * SIZE <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(VARIANT == 0 || (ITEMS * SIZE >= 4 && ITEMS * SIZE <= 32),
    "a thread reads 12 to 96 bytes at a time: ITEMS pixels");
static_assert(VARIANT != 2 || 3 * TILE * SIZE <= 49152,
    "a tile has at most 48 KiB of shared memory: BLOCK * ITEMS pixels");

#if TUNE_REFERENCE

// In f64. scale is the sum of the terms' sizes.
extern "C" __global__ void __launch_bounds__(256)
    rgb_to_grey_reference(const element *__restrict__ rgb, // [N][3]
        double *__restrict__ grey,                         // [N]
        double *__restrict__ scale,                        // [N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= N)
        return;
#if TUNE_DTYPE_U8
    grey[i] = (77 * rgb[3 * i] + 150 * rgb[3 * i + 1] + 29 * rgb[3 * i + 2] + 128) / 256;
    scale[i] = grey[i];
#else
    const double red = (double)0.299f * rgb[3 * i], green = (double)0.587f * rgb[3 * i + 1],
                 blue = (double)0.114f * rgb[3 * i + 2];
    grey[i] = red + green + blue;
    scale[i] = fabs(red) + fabs(green) + fabs(blue);
#endif
}

#else

__device__ inline element brightness(element red, element green, element blue)
{
#if TUNE_DTYPE_U8
    return (element)((77 * red + 150 * green + 29 * blue + 128) >> 8);
#else
    return fmaf(0.299f, red, fmaf(0.587f, green, 0.114f * blue));
#endif
}

#if VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    rgb_to_grey(const element *__restrict__ rgb, // [N][3]
        element *__restrict__ grey,              // [N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i < N)
        grey[i] = brightness(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

#else

typedef records<element, 3> pixels;

#if TUNE_DTYPE_U8 && VEC % 4 == 0

// 77 * byte 0 + 150 * byte 1 + 29 * byte 2 + 128 of a pixel's word; its byte 3 does not count.
__device__ inline unsigned weigh(unsigned pixel)
{
#ifdef TUNE_EMULATOR
    return 77 * (pixel & 255) + 150 * (pixel >> 8 & 255) + 29 * (pixel >> 16 & 255) + 128;
#else
    return __dp4a(pixel, 77u | 150u << 8 | 29u << 16, 128u);
#endif
}

// Of four pixels, which are three words. One by one they would take longer than their memory does.
__device__ inline unsigned four(unsigned w0, unsigned w1, unsigned w2)
{
    const unsigned low = __byte_perm(weigh(w0), weigh(__funnelshift_r(w0, w1, 24)), 0x0051);
    const unsigned high = __byte_perm(weigh(__funnelshift_r(w1, w2, 16)), weigh(w2 >> 8), 0x0051);
    return __byte_perm(low, high, 0x5410);
}

__device__ inline vector<element, VEC> brightness(const pixels &in)
{
    union {
        pixels pixel;
        unsigned word[3 * VEC / 4];
    } from = {in};
    union {
        vector<element, VEC> grey;
        unsigned word[VEC / 4];
    } to;
#pragma unroll
    for (int i = 0; i < VEC / 4; i++)
        to.word[i] = four(from.word[3 * i], from.word[3 * i + 1], from.word[3 * i + 2]);
    return to.grey;
}

#else

__device__ inline vector<element, VEC> brightness(const pixels &in)
{
    vector<element, VEC> out;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        out.at[j] = brightness(in.get(j, 0), in.get(j, 1), in.get(j, 2));
    return out;
}

#endif

extern "C" __global__ void __launch_bounds__(BLOCK)
    rgb_to_grey(const element *__restrict__ rgb, // [N][3]
        element *__restrict__ grey,              // [N]
        i64 N)
{
    const auto whole = [&](i64 at) {
        pixels p[VECTORS];
        read(p, rgb, at);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            store(grey + at + (i * BLOCK + threadIdx.x) * VEC, brightness(p[i]));
    };
    walk(
        N, whole, [&](i64 i) { grey[i] = brightness(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]); });
}

#endif
#endif
