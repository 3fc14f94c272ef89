// How the references of scan, segmented_scan and compact walk over an array in order: one thread
// per 256 elements or states, three levels, no shared memory and nothing in common with the
// kernels.
//
// A state S says what is known of some neighbouring elements; S() of none. later.after(earlier)
// joins those of neighbours.
#pragma once
#include "common.cuh"

#define SPAN 256 // elements of a strip, and strips of a group; the manifests have it too

// The thread's number in the grid.
__device__ inline i64 thread_number()
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// strips[thread] = the state of all its elements.
template <typename S, typename F>
__device__ inline void strip_states(S *__restrict__ strips, i64 N, F state_of)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= N)
        return;
    S state = S();
    for (i64 i = begin; i < least(begin + SPAN, N); i++)
        state = state_of(i).after(state);
    strips[thread_number()] = state;
}

// groups[thread] = the state of all its strips.
template <typename S>
__device__ inline void group_states(
    const S *__restrict__ strips, S *__restrict__ groups, i64 strip_count)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= strip_count)
        return;
    S state = S();
    for (i64 i = begin; i < least(begin + SPAN, strip_count); i++)
        state = strips[i].after(state);
    groups[thread_number()] = state;
}

// states[first..end) become what stands before each; returns the state of all.
template <typename S> __device__ inline S states_before(S *states, i64 first, i64 end, S before)
{
    for (i64 i = first; i < end; i++) {
        const S own = states[i];
        states[i] = before;
        before = own.after(before);
    }
    return before;
}

// The same for the strips of the thread's group, from groups[] that have become so.
template <typename S>
__device__ inline void strips_before(
    S *__restrict__ strips, const S *__restrict__ groups, i64 strip_count)
{
    const i64 begin = thread_number() * SPAN;
    if (begin < strip_count)
        states_before(strips, begin, least(begin + SPAN, strip_count), groups[thread_number()]);
}

// use(i, what stands before element i, element i's state) for each element of the thread's strip.
template <typename S, typename F, typename G>
__device__ inline void walk_strip(const S *__restrict__ strips, i64 N, F state_of, G use)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= N)
        return;
    S before = strips[thread_number()];
    for (i64 i = begin; i < least(begin + SPAN, N); i++) {
        const S own = state_of(i);
        use(i, before, own);
        before = own.after(before);
    }
}
