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

// `from` and `to` must be aligned to the whole vector.
template <typename T, int COUNT>
__device__ inline void load(vector<T, COUNT> &out, const T *__restrict__ from)
{
    const auto *at = reinterpret_cast<const typename vector<T, COUNT>::word_type *>(from);
    if constexpr (STREAM == 2)
        out.word = __ldcs(at);
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
