// What merge and radix_sort share: the type of their keys, in registers and in vectors.
#pragma once
#include "scan.cuh"

#if TUNE_DTYPE_F32
typedef float key_type;
#elif TUNE_DTYPE_I32
typedef int key_type;
#else
typedef u32 key_type;
#endif

template <> struct vector_of<u32> {
    typedef uint4 type;
};
