// Copies from global to shared memory that leave the thread free: from compute capability 8.0 on
// they run by themselves (cp.async) until one of the waits; before that they are done at once.
#pragma once
#include "common.cuh"

template <int BYTES> struct word_of_bytes;
template <> struct word_of_bytes<4> {
    typedef unsigned type;
};
template <> struct word_of_bytes<8> {
    typedef uint2 type;
};
template <> struct word_of_bytes<16> {
    typedef uint4 type;
};

// Starts a copy of 4, 8 or 16 bytes, to which both addresses are aligned. THROUGH_L1: blocks beside
// it find them in L1; else, with 16 bytes only, in L2.
template <int BYTES, bool THROUGH_L1 = BYTES != 16>
__device__ inline void copy_start(void *to, const void *from)
{
    static_assert(THROUGH_L1 || BYTES == 16, "only 16 bytes can go past L1");
#if __CUDA_ARCH__ >= 800
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (THROUGH_L1)
        asm volatile(
            "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(BYTES)
            : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from)
                     : "memory");
#else
    typedef typename word_of_bytes<BYTES>::type word;
    *static_cast<word *>(to) = *static_cast<const word *>(from);
#endif
}

// Ends a group of copies: what the thread has started since the last group.
__device__ inline void copies_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of the thread's groups are under way. Other threads see the copies
// after a barrier.
template <int PENDING> __device__ inline void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Waits for all of the thread's copies, whether they are in a group or not.
__device__ inline void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
