/* What NVRTC knows without an include, for the host's C++ compiler: the header that the emulator's
 * compile step puts in front of every kernel. Kept small and free of other headers, since it is
 * read for each candidate. Qualifiers (__global__, __shared__, __launch_bounds__) are left to the
 * compile step. */
#pragma once
#pragma GCC system_header

#define TUNE_EMULATOR 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __nv_pure__

typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t;

/* --- services of the image (image.c) ---------------------------------------------------------- */

#define TUNE_HIDDEN __attribute__((visibility("hidden")))
extern "C" {
TUNE_HIDDEN unsigned tune_barrier(unsigned predicate, unsigned *count) noexcept;
TUNE_HIDDEN unsigned long tune_warp(
    unsigned op, unsigned mask, unsigned long value, unsigned argument) noexcept;
TUNE_HIDDEN void tune_grid_barrier() noexcept;
TUNE_HIDDEN void tune_cluster_barrier() noexcept;
TUNE_HIDDEN unsigned tune_cluster_rank() noexcept;
TUNE_HIDDEN unsigned tune_cluster_blocks() noexcept;
TUNE_HIDDEN void *tune_cluster_address(const void *shared, unsigned rank) noexcept;
TUNE_HIDDEN void tune_yield() noexcept;
TUNE_HIDDEN void tune_fail(unsigned code, const char *text) noexcept __attribute__((noreturn));
TUNE_HIDDEN long long tune_clock() noexcept;
TUNE_HIDDEN void tune_atomic_begin(void *p, size_t bytes) noexcept;
TUNE_HIDDEN void tune_atomic_end() noexcept;
}
#define TUNE_ORDERED() __asm__ volatile("" ::: "memory")

/* --- vector types ----------------------------------------------------------------------------- */

#define TUNE_VECTORS(T, N, A2, A4)                                                                 \
    struct N##1                                                                                    \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct __attribute__((aligned(A2))) N##2                                                       \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct N##3                                                                                    \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __attribute__((aligned(A4))) N##4                                                       \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline constexpr N##1 make_##N##1(T x)                                                  \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline constexpr N##2 make_##N##2(T x, T y)                                             \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline constexpr N##3 make_##N##3(T x, T y, T z)                                        \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline constexpr N##4 make_##N##4(T x, T y, T z, T w)                                   \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
TUNE_VECTORS(signed char, char, 2, 4)
TUNE_VECTORS(unsigned char, uchar, 2, 4)
TUNE_VECTORS(short, short, 4, 8)
TUNE_VECTORS(unsigned short, ushort, 4, 8)
TUNE_VECTORS(int, int, 8, 16)
TUNE_VECTORS(unsigned, uint, 8, 16)
TUNE_VECTORS(long, long, 16, 16)
TUNE_VECTORS(unsigned long, ulong, 16, 16)
TUNE_VECTORS(long long, longlong, 16, 16)
TUNE_VECTORS(unsigned long long, ulonglong, 16, 16)
TUNE_VECTORS(float, float, 8, 16)
TUNE_VECTORS(double, double, 16, 16)
#undef TUNE_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    constexpr operator uint3() const
    {
        return {x, y, z};
    }
};

/* Constant for a thread, which is what lets the compiler keep them in registers across a barrier.
 */
extern TUNE_HIDDEN const uint3 threadIdx, blockIdx;
extern TUNE_HIDDEN const dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* --- barriers and warps ----------------------------------------------------------------------- */

static inline void __syncthreads()
{
    TUNE_ORDERED();
    tune_barrier(0, 0);
    TUNE_ORDERED();
}

static inline int __syncthreads_count(int predicate)
{
    unsigned count;
    TUNE_ORDERED();
    tune_barrier(predicate != 0, &count);
    TUNE_ORDERED();
    return (int)count;
}

static inline int __syncthreads_and(int predicate)
{
    unsigned count;
    TUNE_ORDERED();
    unsigned all = tune_barrier(predicate != 0, &count);
    TUNE_ORDERED();
    return count == all;
}

static inline int __syncthreads_or(int predicate)
{
    return __syncthreads_count(predicate) != 0;
}

enum { TUNE_EXCHANGE, TUNE_BALLOT, TUNE_MATCH, TUNE_MEMBERS };

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    TUNE_ORDERED();
    tune_warp(TUNE_MEMBERS, mask, 0, 0);
    TUNE_ORDERED();
}

static inline unsigned __activemask()
{
    return 0xffffffffu; /* no divergence is modelled; lanes that do not exist are never waited for
                         */
}

static inline unsigned tune_thread()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static inline unsigned tune_lane()
{
    return tune_thread() & 31;
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)tune_warp(TUNE_BALLOT, mask, predicate != 0, 0);
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

template <typename T> static inline unsigned long tune_bits(T value)
{
    static_assert(sizeof(T) <= 8, "a warp operation moves values of at most 8 bytes");
    unsigned long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T> static inline T tune_exchange(unsigned mask, T value, unsigned lane)
{
    unsigned long bits = tune_warp(TUNE_EXCHANGE, mask, tune_bits(value), lane);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    unsigned lane = tune_lane(), segment = lane & ~(unsigned)(width - 1);
    return tune_exchange(mask, value, segment | ((unsigned)source & (unsigned)(width - 1)));
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    unsigned lane = tune_lane(), at = lane & (unsigned)(width - 1);
    return tune_exchange(mask, value, at < delta ? lane : lane - delta);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    unsigned lane = tune_lane(), at = lane & (unsigned)(width - 1);
    return tune_exchange(mask, value, at + delta >= (unsigned)width ? lane : lane + delta);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    unsigned lane = tune_lane(), other = lane ^ (unsigned)bits;
    unsigned segment = lane & ~(unsigned)(width - 1);
    return tune_exchange(mask, value, other >= segment + (unsigned)width ? lane : other);
}

template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    return (unsigned)tune_warp(TUNE_MATCH, mask, tune_bits(value), 0);
}

template <typename T>
static inline unsigned __match_all_sync(unsigned mask, T value, int *predicate)
{
    unsigned same = __match_any_sync(mask, value);
    unsigned members = (unsigned)tune_warp(TUNE_MEMBERS, mask, 0, 0);
    *predicate = same == members;
    return *predicate ? members : 0;
}

#define TUNE_REDUCE(name, T, expression)                                                           \
    static inline T name(unsigned mask, T value)                                                   \
    {                                                                                              \
        unsigned members = (unsigned)tune_warp(TUNE_MEMBERS, mask, 0, 0);                          \
        T a = 0;                                                                                   \
        bool is_first = true;                                                                      \
        for (unsigned lane = 0; lane < 32; lane++) {                                               \
            if (!(members >> lane & 1))                                                            \
                continue;                                                                          \
            T b = tune_exchange(mask, value, lane);                                                \
            a = is_first ? b : (T)(expression);                                                    \
            is_first = false;                                                                      \
        }                                                                                          \
        return a;                                                                                  \
    }
TUNE_REDUCE(__reduce_add_sync, unsigned, a + b)
TUNE_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
TUNE_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
TUNE_REDUCE(__reduce_and_sync, unsigned, a &b)
TUNE_REDUCE(__reduce_or_sync, unsigned, a | b)
TUNE_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
TUNE_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
TUNE_REDUCE(__reduce_min_sync, int, a < b ? a : b)
TUNE_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef TUNE_REDUCE

static inline void __threadfence()
{
    TUNE_ORDERED();
}

static inline void __threadfence_block()
{
    TUNE_ORDERED();
}

static inline void __threadfence_system()
{
    TUNE_ORDERED();
}

static inline void __nanosleep(unsigned)
{
    tune_yield();
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Fibres give way at barriers only, so that plain code is atomic. TUNE_TRACE: see trace.h. */
#ifdef TUNE_TRACE
#define TUNE_ATOMIC_BEGIN(p) tune_atomic_begin((void *)(p), sizeof *(p))
#define TUNE_ATOMIC_END() tune_atomic_end()
#else
#define TUNE_ATOMIC_BEGIN(p)
#define TUNE_ATOMIC_END()
#endif
template <typename T> struct tune_same {
    typedef T type;
};
#define TUNE_ATOMIC(name, expression)                                                              \
    template <typename T> static inline T name(T *p, typename tune_same<T>::type v)                \
    {                                                                                              \
        TUNE_ATOMIC_BEGIN(p);                                                                      \
        T old = *p;                                                                                \
        *p = (T)(expression);                                                                      \
        TUNE_ATOMIC_END();                                                                         \
        return old;                                                                                \
    }                                                                                              \
    template <typename T> static inline T name##_block(T *p, typename tune_same<T>::type v)        \
    {                                                                                              \
        return name(p, v);                                                                         \
    }                                                                                              \
    template <typename T> static inline T name##_system(T *p, typename tune_same<T>::type v)       \
    {                                                                                              \
        return name(p, v);                                                                         \
    }
TUNE_ATOMIC(atomicAdd, old + v)
TUNE_ATOMIC(atomicSub, old - v)
TUNE_ATOMIC(atomicExch, v)
TUNE_ATOMIC(atomicMin, v < old ? v : old)
TUNE_ATOMIC(atomicMax, v > old ? v : old)
TUNE_ATOMIC(atomicAnd, old &v)
TUNE_ATOMIC(atomicOr, old | v)
TUNE_ATOMIC(atomicXor, old ^ v)
TUNE_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
TUNE_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef TUNE_ATOMIC

template <typename T>
static inline T atomicCAS(T *p, typename tune_same<T>::type compare, typename tune_same<T>::type v)
{
#ifndef TUNE_TRACE
    T old = *p;
#else
    T old;
#endif
    tune_yield(); /* a loop around it may be a lock that another thread holds */
    TUNE_ATOMIC_BEGIN(p);
    old = *p;
    if (old == compare)
        *p = v;
    TUNE_ATOMIC_END();
    return old;
}

#define TUNE_LOAD(name)                                                                            \
    template <typename T> static inline T name(const T *p)                                         \
    {                                                                                              \
        return *p;                                                                                 \
    }
TUNE_LOAD(__ldg)
TUNE_LOAD(__ldca)
TUNE_LOAD(__ldcg)
TUNE_LOAD(__ldcs)
TUNE_LOAD(__ldlu)
TUNE_LOAD(__ldcv)
#undef TUNE_LOAD
#define TUNE_STORE(name)                                                                           \
    template <typename T> static inline void name(T *p, typename tune_same<T>::type v)             \
    {                                                                                              \
        *p = v;                                                                                    \
    }
TUNE_STORE(__stwb)
TUNE_STORE(__stcg)
TUNE_STORE(__stcs)
TUNE_STORE(__stwt)
#undef TUNE_STORE

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return (size_t)p;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

extern "C" {
#define TUNE_MATH1(name)                                                                           \
    double name(double) noexcept;                                                                  \
    float name##f(float) noexcept;
#define TUNE_MATH2(name)                                                                           \
    double name(double, double) noexcept;                                                          \
    float name##f(float, float) noexcept;
#define TUNE_UNARY(X)                                                                              \
    X(sqrt)                                                                                        \
    X(cbrt)                                                                                        \
    X(exp)                                                                                         \
    X(exp2)                                                                                        \
    X(expm1)                                                                                       \
    X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh)  \
        X(tanh) X(asinh) X(acosh) X(atanh) X(erf) X(erfc) X(tgamma) X(lgamma) X(floor) X(ceil)     \
            X(trunc) X(round) X(rint) X(nearbyint) X(fabs) X(logb)
#define TUNE_BINARY(X)                                                                             \
    X(pow) X(atan2) X(fmod) X(remainder) X(hypot) X(fmin) X(fmax) X(fdim) X(copysign) X(nextafter)
TUNE_UNARY(TUNE_MATH1)
TUNE_BINARY(TUNE_MATH2)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double frexp(double, int *) noexcept;
float frexpf(float, int *) noexcept;
double modf(double, double *) noexcept;
float modff(float, float *) noexcept;
void sincos(double, double *, double *) noexcept;
void sincosf(float, float *, float *) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
long lrintf(float) noexcept;
long lrint(double) noexcept;
long lroundf(float) noexcept;
long lround(double) noexcept;
int printf(const char *, ...);
}
#undef TUNE_MATH1
#undef TUNE_MATH2
#define TUNE_OVERLOAD1(name)                                                                       \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return name##f(x);                                                                         \
    }
#define TUNE_OVERLOAD2(name)                                                                       \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return name##f(x, y);                                                                      \
    }
TUNE_UNARY(TUNE_OVERLOAD1)
TUNE_BINARY(TUNE_OVERLOAD2)
#undef TUNE_OVERLOAD1
#undef TUNE_OVERLOAD2
#undef TUNE_UNARY
#undef TUNE_BINARY

static inline float fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float ldexp(float x, int e)
{
    return ldexpf(x, e);
}

static inline float abs(float x)
{
    return fabsf(x);
}

static inline double abs(double x)
{
    return fabs(x);
}

static inline long abs(long x)
{
    return x < 0 ? -x : x;
}

static inline long long abs(long long x)
{
    return x < 0 ? -x : x;
}

#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#define TUNE_CLASSIFY(name)                                                                        \
    static inline constexpr bool name(float x)                                                     \
    {                                                                                              \
        return __builtin_##name(x);                                                                \
    }                                                                                              \
    static inline constexpr bool name(double x)                                                    \
    {                                                                                              \
        return __builtin_##name(x);                                                                \
    }
TUNE_CLASSIFY(isnan)
TUNE_CLASSIFY(isinf)
TUNE_CLASSIFY(isfinite)
TUNE_CLASSIFY(signbit)
#undef TUNE_CLASSIFY

#define TUNE_MINMAX(R, A, B)                                                                       \
    static inline constexpr R min(A a, B b)                                                        \
    {                                                                                              \
        return (R)a < (R)b ? (R)a : (R)b;                                                          \
    }                                                                                              \
    static inline constexpr R max(A a, B b)                                                        \
    {                                                                                              \
        return (R)a < (R)b ? (R)b : (R)a;                                                          \
    }
TUNE_MINMAX(int, int, int)
TUNE_MINMAX(unsigned, unsigned, unsigned)
TUNE_MINMAX(unsigned, int, unsigned)
TUNE_MINMAX(unsigned, unsigned, int)
TUNE_MINMAX(long, long, long)
TUNE_MINMAX(unsigned long, unsigned long, unsigned long)
TUNE_MINMAX(unsigned long, long, unsigned long)
TUNE_MINMAX(unsigned long, unsigned long, long)
TUNE_MINMAX(long long, long long, long long)
TUNE_MINMAX(unsigned long long, unsigned long long, unsigned long long)
TUNE_MINMAX(unsigned long long, long long, unsigned long long)
TUNE_MINMAX(unsigned long long, unsigned long long, long long)
#undef TUNE_MINMAX
/* Of a number and a NaN the number, as on a GPU. */
#define TUNE_MINMAX(R, A, B, S)                                                                    \
    static inline R min(A a, B b)                                                                  \
    {                                                                                              \
        return fmin##S((R)a, (R)b);                                                                \
    }                                                                                              \
    static inline R max(A a, B b)                                                                  \
    {                                                                                              \
        return fmax##S((R)a, (R)b);                                                                \
    }
TUNE_MINMAX(float, float, float, f)
TUNE_MINMAX(double, double, double, )
TUNE_MINMAX(double, float, double, )
TUNE_MINMAX(double, double, float, )
#undef TUNE_MINMAX

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static inline float rsqrt(float x)
{
    return rsqrtf(x);
}

static inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

#define TUNE_ALIAS1(name, R, expression)                                                           \
    static inline R name(R x)                                                                      \
    {                                                                                              \
        return expression;                                                                         \
    }
TUNE_ALIAS1(__expf, float, expf(x))
TUNE_ALIAS1(__exp10f, float, powf(10.0f, x))
TUNE_ALIAS1(exp10f, float, powf(10.0f, x))
TUNE_ALIAS1(__logf, float, logf(x))
TUNE_ALIAS1(__log2f, float, log2f(x))
TUNE_ALIAS1(__log10f, float, log10f(x))
TUNE_ALIAS1(__sinf, float, sinf(x))
TUNE_ALIAS1(__cosf, float, cosf(x))
TUNE_ALIAS1(__tanf, float, tanf(x))
TUNE_ALIAS1(__frcp_rn, float, 1.0f / x)
TUNE_ALIAS1(__fsqrt_rn, float, sqrtf(x))
TUNE_ALIAS1(__frsqrt_rn, float, rsqrtf(x))
TUNE_ALIAS1(__drcp_rn, double, 1.0 / x)
TUNE_ALIAS1(__dsqrt_rn, double, sqrt(x))
#undef TUNE_ALIAS1
#define TUNE_ALIAS2(name, R, expression)                                                           \
    static inline R name(R x, R y)                                                                 \
    {                                                                                              \
        return expression;                                                                         \
    }
TUNE_ALIAS2(__fadd_rn, float, x + y)
TUNE_ALIAS2(__fsub_rn, float, x - y)
TUNE_ALIAS2(__fmul_rn, float, x *y)
TUNE_ALIAS2(__fdiv_rn, float, x / y)
TUNE_ALIAS2(__fdividef, float, x / y)
TUNE_ALIAS2(__powf, float, powf(x, y))
TUNE_ALIAS2(__dadd_rn, double, x + y)
TUNE_ALIAS2(__dsub_rn, double, x - y)
TUNE_ALIAS2(__dmul_rn, double, x *y)
TUNE_ALIAS2(__ddiv_rn, double, x / y)
TUNE_ALIAS2(__mul24, int, (x << 8 >> 8) * (y << 8 >> 8))
TUNE_ALIAS2(__umul24, unsigned, (x & 0xffffff) * (y & 0xffffff))
TUNE_ALIAS2(__mulhi, int, (int)((long long)x *y >> 32))
TUNE_ALIAS2(__umulhi, unsigned, (unsigned)((unsigned long long)x *y >> 32))
TUNE_ALIAS2(__umul64hi, unsigned long long, (unsigned long long)((unsigned __int128)x *y >> 64))
TUNE_ALIAS2(__mul64hi, long long, (long long)((__int128)x *y >> 64))
#undef TUNE_ALIAS2

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

#define TUNE_CONVERT(name, R, A, expression)                                                       \
    static inline R name(A x)                                                                      \
    {                                                                                              \
        return expression;                                                                         \
    }
TUNE_CONVERT(__clz, int, int, x ? __builtin_clz((unsigned)x) : 32)
TUNE_CONVERT(__clzll, int, long long, x ? __builtin_clzll((unsigned long long)x) : 64)
TUNE_CONVERT(__popc, int, unsigned, __builtin_popcount(x))
TUNE_CONVERT(__popcll, int, unsigned long long, __builtin_popcountll(x))
TUNE_CONVERT(__ffs, int, int, __builtin_ffs(x))
TUNE_CONVERT(__ffsll, int, long long, __builtin_ffsll(x))
TUNE_CONVERT(__float2int_rn, int, float, (int)lrintf(x))
TUNE_CONVERT(__float2int_rz, int, float, (int)x)
TUNE_CONVERT(__float2int_rd, int, float, (int)floorf(x))
TUNE_CONVERT(__float2int_ru, int, float, (int)ceilf(x))
TUNE_CONVERT(__float2uint_rn, unsigned, float, (unsigned)lrintf(x))
TUNE_CONVERT(__float2uint_rz, unsigned, float, (unsigned)x)
TUNE_CONVERT(__int2float_rn, float, int, (float)x)
TUNE_CONVERT(__uint2float_rn, float, unsigned, (float)x)
TUNE_CONVERT(__ll2float_rn, float, long long, (float)x)
TUNE_CONVERT(__ull2double_rn, double, unsigned long long, (double)x)
TUNE_CONVERT(__double2float_rn, float, double, (float)x)
TUNE_CONVERT(__double2int_rn, int, double, (int)lrint(x))
TUNE_CONVERT(__float_as_int, int, float, __builtin_bit_cast(int, x))
TUNE_CONVERT(__float_as_uint, unsigned, float, __builtin_bit_cast(unsigned, x))
TUNE_CONVERT(__int_as_float, float, int, __builtin_bit_cast(float, x))
TUNE_CONVERT(__uint_as_float, float, unsigned, __builtin_bit_cast(float, x))
TUNE_CONVERT(__double_as_longlong, long long, double, __builtin_bit_cast(long long, x))
TUNE_CONVERT(__longlong_as_double, double, long long, __builtin_bit_cast(double, x))
#undef TUNE_CONVERT

static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1u) << (31 - i);
    return r;
}

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    unsigned long bytes = (unsigned long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    shift &= 31;
    return shift ? high << shift | low >> (32 - shift) : high;
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    shift &= 31;
    return shift ? low >> shift | high << (32 - shift) : low;
}

/* --- the rest --------------------------------------------------------------------------------- */

static inline long long clock64()
{
    return tune_clock();
}

static inline int clock()
{
    return (int)tune_clock();
}

#define __trap() tune_fail(719, "the kernel called __trap()")
#define __assume(condition) ((void)0)
#define assert(condition) ((condition) ? (void)0 : tune_fail(710, "assertion failed: " #condition))

/* --- how the driver calls a kernel (the compile step writes one tune_kernel_<i> per kernel)
 * --------- */

struct tune_image_kernel {
    const char *name;
    void *function;
    void (*call)(void *const *params);
    unsigned param_count;
    const unsigned *param_bytes;
};

template <typename F, F function> struct tune_caller;
template <typename... A, void (*function)(A...)> struct tune_caller<void (*)(A...), function> {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned bytes[sizeof...(A) + 1] = {sizeof(A)..., 0};

    template <unsigned... I> struct indices {
    };
    template <unsigned N, unsigned... I> struct make : make<N - 1, N - 1, I...> {
    };
    template <unsigned... I> struct make<0, I...> {
        typedef indices<I...> type;
    };

    template <unsigned... I>
    __attribute__((no_sanitize_thread)) static inline void apply(void *const *params, indices<I...>)
    {
        function(*(A *)params[I]...);
    }

    __attribute__((no_sanitize_thread)) static void call(void *const *params)
    {
        (void)params;
        apply(params, typename make<sizeof...(A)>::type());
    }
};
