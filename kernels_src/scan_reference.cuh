// What the references of scan, segmented_scan and compact share: how they walk over an array in
// order, by one thread per 256 elements or states, in three levels, without shared memory and with
// nothing in common with the kernels.
//
// Who includes this has defined a struct `state`, what is known of some neighbouring elements:
// state() of none; later.after(earlier) joins those of neighbours. Its own are the launches before
// and after those here: reference_strips, by strip_states, and what comes of the states before, by
// walk_strip.
#pragma once
#include "scan.cuh"

#define SPAN 256 // elements of a strip, and strips of a group; the manifests have it too

// The thread's number in the grid.
__device__ inline i64 thread_number()
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// strips[thread] = the state of all its elements.
template <typename F>
__device__ inline void strip_states(state *__restrict__ strips, i64 N, F state_of)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= N)
        return;
    state all;
    for (i64 i = begin; i < least(begin + SPAN, N); i++)
        all = state_of(i).after(all);
    strips[thread_number()] = all;
}

// groups[thread] = the state of all its strips.
extern "C" __global__ void reference_groups(const state *__restrict__ strips, // [strip_count]
    state *__restrict__ groups, // [ceildiv(strip_count, SPAN)]
    i64 strip_count)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= strip_count)
        return;
    state all;
    for (i64 i = begin; i < least(begin + SPAN, strip_count); i++)
        all = strips[i].after(all);
    groups[thread_number()] = all;
}

// states[first..end) become what stands before each.
__device__ inline void states_before(state *states, i64 first, i64 end, state before)
{
    for (i64 i = first; i < end; i++) {
        const state own = states[i];
        states[i] = before;
        before = own.after(before);
    }
}

// By one thread.
extern "C" __global__ void reference_top(state *groups, i64 group_count)
{
    states_before(groups, 0, group_count, state());
}

// The same for the strips of the thread's group, from groups[] that have become so.
extern "C" __global__ void reference_strips_before(state *__restrict__ strips, // [strip_count]
    const state *__restrict__ groups, i64 strip_count)
{
    const i64 begin = thread_number() * SPAN;
    if (begin < strip_count)
        states_before(strips, begin, least(begin + SPAN, strip_count), groups[thread_number()]);
}

// use(i, what stands before element i, element i's state) for each element of the thread's strip.
template <typename F, typename G>
__device__ inline void walk_strip(const state *__restrict__ strips, i64 N, F state_of, G use)
{
    const i64 begin = thread_number() * SPAN;
    if (begin >= N)
        return;
    state before = strips[thread_number()];
    for (i64 i = begin; i < least(begin + SPAN, N); i++) {
        const state own = state_of(i);
        use(i, before, own);
        before = own.after(before);
    }
}

// What an output is compared with: the sum, where it wraps as an i32.
__device__ inline double value_of(double sum)
{
    return sum;
}

__device__ inline double value_of(i64 sum)
{
    return (int)(u32)(u64)sum;
}

// What a sum's error is measured by: sqrt of its sum of squares, times sqrt of the additions in a
// row where `length` elements stand before it.
__device__ inline double scale_of(double squares, i64 length)
{
    return sqrt(squares) * sqrt(64.0 + (double)length / 512.0);
}
