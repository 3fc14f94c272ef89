// Clusters of blocks (sm_90 on): their barrier, and shared memory of the other blocks of the
// cluster. For kernels whose manifest launches them with "cluster" and requires sm >= 90 there.
//
// A block's shared memory is there from its beginning to its end only: the cluster must meet before
// the first write to another block and after the last one.
#pragma once
#include "common.cuh"

// The block's number within its cluster.
__device__ inline unsigned cluster_rank()
{
#ifdef TUNE_EMULATOR
    return tune_cluster_rank();
#else
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#endif
}

// The two halves of a barrier of all threads of the cluster: what was written before one's arrival
// is seen after the others' wait. Every thread calls both, in turn; work that needs no other block
// may stand between them.
__device__ inline void cluster_arrive()
{
#ifndef TUNE_EMULATOR
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ inline void cluster_wait()
{
#ifdef TUNE_EMULATOR
    TUNE_ORDERED();
    tune_cluster_barrier(); // both halves
    TUNE_ORDERED();
#else
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

__device__ inline void cluster_sync()
{
    cluster_arrive();
    cluster_wait();
}

#ifndef TUNE_EMULATOR

// The address, in the cluster's window, of what block `rank` has where `own` is in this block.
__device__ inline unsigned cluster_address(const void *own, unsigned rank)
{
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"((unsigned)__cvta_generic_to_shared(own)), "r"(rank));
    return address;
}

#endif

// Writes what block `rank` has in its shared memory where `own` is in this block's.
__device__ inline void cluster_store(float2 *own, unsigned rank, float2 value)
{
#ifdef TUNE_EMULATOR
    *static_cast<float2 *>(tune_cluster_address(own, rank)) = value;
#else
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(cluster_address(own, rank)),
                 "f"(value.x), "f"(value.y)
                 : "memory");
#endif
}

__device__ inline void cluster_store(float4 *own, unsigned rank, float4 value)
{
#ifdef TUNE_EMULATOR
    *static_cast<float4 *>(tune_cluster_address(own, rank)) = value;
#else
    asm volatile(
        "st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(cluster_address(own, rank)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
#endif
}
