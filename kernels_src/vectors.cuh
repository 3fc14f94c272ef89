// Accesses of 1 to 16 bytes whatever the elements' type, for kernels that are as fast as memory
// lets them be. STREAM is the kernel's own tunable:
// 0 (none): as the hardware does by itself.
// 1 (stores): what is written will not be read soon, so it leaves the caches first.
// 2 (both): nor will what was read be read again.
#pragma once
#include "common.cuh"

#ifndef STREAM
#define STREAM 0 // 0 none, 1 stores, 2 both
#endif

template <int BYTES> struct access;
template <> struct access<1> {
    typedef unsigned char word;
};
template <> struct access<2> {
    typedef unsigned short word;
};
template <> struct access<4> {
    typedef unsigned int word;
};
template <> struct access<8> {
    typedef uint2 word;
};
template <> struct access<16> {
    typedef uint4 word;
};

// COUNT elements that one access moves.
template <typename T, int COUNT> union vector {
    typedef typename access<COUNT * sizeof(T)>::word word_type;
    word_type word;
    T at[COUNT];
};

// What the caches are told of what is read.
enum caching {
    CACHED,     // nothing
    READ_ONLY,  // that nobody writes it meanwhile
    STREAMING,  // that it is read once
    EVICT_FIRST // that it leaves L2 before all else; nobody may write it meanwhile
};

// Lines do not enter L1: what others left in L2 stays, and what they wrote need not go to memory
// now.
template <typename W> __device__ inline W fetch_evict_first(const W *from)
{
#if __CUDA_ARCH__ >= 800 && !defined(TUNE_EMULATOR)
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    W w;
    if constexpr (sizeof(W) == 2)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.u16 %0, [%1], %2;"
            : "=h"(w)
            : "l"(from), "l"(policy));
    else if constexpr (sizeof(W) == 4)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
            : "=r"(w)
            : "l"(from), "l"(policy));
    else if constexpr (sizeof(W) == 8)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
            : "=r"(w.x), "=r"(w.y)
            : "l"(from), "l"(policy));
    else
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
            : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
            : "l"(from), "l"(policy));
    return w;
#else
    return __ldcs(from);
#endif
}

// `from` and `to` must be aligned to the whole vector.
template <caching CACHING = STREAM == 2 ? STREAMING : CACHED, typename T, int COUNT>
__device__ inline void load(vector<T, COUNT> &out, const T *__restrict__ from)
{
    const auto *at = reinterpret_cast<const typename vector<T, COUNT>::word_type *>(from);
    if constexpr (CACHING == EVICT_FIRST)
        out.word = fetch_evict_first(at);
    else if constexpr (CACHING == STREAMING)
        out.word = __ldcs(at);
    else if constexpr (CACHING == READ_ONLY)
        out.word = __ldg(at);
    else
        out.word = *at;
}

template <typename T, int COUNT> __device__ inline void store(T *to, const vector<T, COUNT> &in)
{
    auto *at = reinterpret_cast<typename vector<T, COUNT>::word_type *>(to);
    if constexpr (STREAM >= 1)
        __stcs(at, in.word);
    else
        __stwb(at, in.word);
}
