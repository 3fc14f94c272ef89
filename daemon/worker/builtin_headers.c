#include "builtin_headers.h"

#include <stddef.h>

/* The 64-bit types are long long as in the toolkit's own <cuda/std/cstdint>: both may be included.
 */
#define STDINT                                                                                     \
    "#pragma once\n"                                                                               \
    "typedef signed char int8_t;\ntypedef short int16_t;\ntypedef int int32_t;\n"                  \
    "typedef long long int64_t;\ntypedef unsigned char uint8_t;\ntypedef unsigned short "          \
    "uint16_t;\n"                                                                                  \
    "typedef unsigned int uint32_t;\ntypedef unsigned long long uint64_t;\n"                       \
    "typedef long long intptr_t;\ntypedef unsigned long long uintptr_t;\n"                         \
    "typedef long long intmax_t;\ntypedef unsigned long long uintmax_t;\n"                         \
    "#define INT8_MIN (-128)\n#define INT8_MAX 127\n#define UINT8_MAX 255\n"                       \
    "#define INT16_MIN (-32768)\n#define INT16_MAX 32767\n#define UINT16_MAX 65535\n"              \
    "#define INT32_MIN (-2147483647 - 1)\n#define INT32_MAX 2147483647\n"                          \
    "#define UINT32_MAX 4294967295u\n"                                                             \
    "#define INT64_MIN (-9223372036854775807ll - 1)\n#define INT64_MAX 9223372036854775807ll\n"    \
    "#define UINT64_MAX 18446744073709551615ull\n"

#define STD(names) "namespace std {\n" names "}\n"

#define STDDEF                                                                                     \
    "#pragma once\n"                                                                               \
    "typedef decltype(sizeof(0)) size_t;\ntypedef long ptrdiff_t;\n"                               \
    "#ifndef NULL\n#define NULL 0\n#endif\n"                                                       \
    "#ifndef offsetof\n#define offsetof(t, m) __builtin_offsetof(t, m)\n#endif\n"

#define LIMITS                                                                                     \
    "#pragma once\n"                                                                               \
    "#define CHAR_BIT 8\n#define SCHAR_MIN (-128)\n#define SCHAR_MAX 127\n#define UCHAR_MAX 255\n" \
    "#define SHRT_MIN (-32768)\n#define SHRT_MAX 32767\n#define USHRT_MAX 65535\n"                 \
    "#define INT_MIN (-2147483647 - 1)\n#define INT_MAX 2147483647\n#define UINT_MAX "             \
    "4294967295u\n"                                                                                \
    "#define LONG_MIN (-9223372036854775807l - 1)\n#define LONG_MAX 9223372036854775807l\n"        \
    "#define ULONG_MAX 18446744073709551615ul\n"                                                   \
    "#define LLONG_MIN (-9223372036854775807ll - 1)\n#define LLONG_MAX 9223372036854775807ll\n"    \
    "#define ULLONG_MAX 18446744073709551615ull\n"

#define FLOAT                                                                                      \
    "#pragma once\n"                                                                               \
    "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n"                         \
    "#define FLT_EPSILON 1.192092896e-07f\n#define DBL_MAX 1.7976931348623158e+308\n"              \
    "#define DBL_MIN 2.2250738585072014e-308\n#define DBL_EPSILON 2.2204460492503131e-016\n"       \
    "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n"

const struct builtin_header builtin_headers[] = {
    {"stdint.h", STDINT},
    {"cstdint",
        STDINT STD("using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;\n"
                   "using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;\n"
                   "using ::intptr_t; using ::uintptr_t;\n")},
    {"stddef.h", STDDEF},
    {"cstddef", STDDEF STD("using ::size_t; using ::ptrdiff_t;\n")},
    {"limits.h", LIMITS},
    {"climits", LIMITS},
    {"float.h", FLOAT},
    {"cfloat", FLOAT},
    {NULL, NULL},
};
