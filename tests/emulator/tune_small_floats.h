/* Two-byte floating types for the emulator: TUNE_SMALL_FLOAT makes one from its conversions. Each
 * operation works in float and rounds once, which for these widths is the correctly rounded result.
 */
#pragma once
#pragma GCC system_header

#define TUNE_SMALL_FLOAT(T, T2, TO_BITS, FROM_BITS)                                                \
    struct __attribute__((aligned(2))) T {                                                         \
        unsigned short bits;                                                                       \
        T() = default;                                                                             \
        T(float f) : bits(TO_BITS(f))                                                              \
        {                                                                                          \
        }                                                                                          \
        T(double d) : T((float)d)                                                                  \
        {                                                                                          \
        }                                                                                          \
        T(int i) : T((float)i)                                                                     \
        {                                                                                          \
        }                                                                                          \
        operator float() const                                                                     \
        {                                                                                          \
            return FROM_BITS(bits);                                                                \
        }                                                                                          \
        T &operator+=(T b)                                                                         \
        {                                                                                          \
            return *this = T((float)*this + (float)b);                                             \
        }                                                                                          \
        T &operator-=(T b)                                                                         \
        {                                                                                          \
            return *this = T((float)*this - (float)b);                                             \
        }                                                                                          \
        T &operator*=(T b)                                                                         \
        {                                                                                          \
            return *this = T((float)*this * (float)b);                                             \
        }                                                                                          \
        T &operator/=(T b)                                                                         \
        {                                                                                          \
            return *this = T((float)*this / (float)b);                                             \
        }                                                                                          \
    };                                                                                             \
    struct __attribute__((aligned(4))) T2 {                                                        \
        T x, y;                                                                                    \
    };                                                                                             \
    static inline T operator+(T a, T b)                                                            \
    {                                                                                              \
        return T((float)a + (float)b);                                                             \
    }                                                                                              \
    static inline T operator-(T a, T b)                                                            \
    {                                                                                              \
        return T((float)a - (float)b);                                                             \
    }                                                                                              \
    static inline T operator*(T a, T b)                                                            \
    {                                                                                              \
        return T((float)a * (float)b);                                                             \
    }                                                                                              \
    static inline T operator/(T a, T b)                                                            \
    {                                                                                              \
        return T((float)a / (float)b);                                                             \
    }                                                                                              \
    static inline T operator-(T a)                                                                 \
    {                                                                                              \
        return T(-(float)a);                                                                       \
    }                                                                                              \
    static inline T __hadd(T a, T b)                                                               \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    static inline T __hsub(T a, T b)                                                               \
    {                                                                                              \
        return a - b;                                                                              \
    }                                                                                              \
    static inline T __hmul(T a, T b)                                                               \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    static inline T __hdiv(T a, T b)                                                               \
    {                                                                                              \
        return a / b;                                                                              \
    }                                                                                              \
    static inline T __hneg(T a)                                                                    \
    {                                                                                              \
        return -a;                                                                                 \
    }                                                                                              \
    static inline T __hfma(T a, T b, T c)                                                          \
    {                                                                                              \
        return T((float)fma((double)(float)a, (double)(float)b, (double)(float)c));                \
    }                                                                                              \
    static inline T __hmax(T a, T b)                                                               \
    {                                                                                              \
        return T(fmaxf((float)a, (float)b));                                                       \
    }                                                                                              \
    static inline T __hmin(T a, T b)                                                               \
    {                                                                                              \
        return T(fminf((float)a, (float)b));                                                       \
    }                                                                                              \
    static inline bool __hlt(T a, T b)                                                             \
    {                                                                                              \
        return (float)a < (float)b;                                                                \
    }                                                                                              \
    static inline bool __hgt(T a, T b)                                                             \
    {                                                                                              \
        return (float)a > (float)b;                                                                \
    }                                                                                              \
    static inline bool __heq(T a, T b)                                                             \
    {                                                                                              \
        return (float)a == (float)b;                                                               \
    }                                                                                              \
    static inline bool __hisnan(T a)                                                               \
    {                                                                                              \
        return isnan((float)a);                                                                    \
    }                                                                                              \
    static inline T2 __hadd2(T2 a, T2 b)                                                           \
    {                                                                                              \
        return {a.x + b.x, a.y + b.y};                                                             \
    }                                                                                              \
    static inline T2 __hsub2(T2 a, T2 b)                                                           \
    {                                                                                              \
        return {a.x - b.x, a.y - b.y};                                                             \
    }                                                                                              \
    static inline T2 __hmul2(T2 a, T2 b)                                                           \
    {                                                                                              \
        return {a.x * b.x, a.y * b.y};                                                             \
    }                                                                                              \
    static inline T2 __hfma2(T2 a, T2 b, T2 c)                                                     \
    {                                                                                              \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                     \
    }                                                                                              \
    static inline float __low2float(T2 a)                                                          \
    {                                                                                              \
        return a.x;                                                                                \
    }                                                                                              \
    static inline float __high2float(T2 a)                                                         \
    {                                                                                              \
        return a.y;                                                                                \
    }
