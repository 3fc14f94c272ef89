// What the stencils share: tunables, stores, the order of a call's launches, and a cell of the
// reference.
#pragma once
#include "copies.cuh"

#ifndef STEPS_PER_LAUNCH
#define STEPS_PER_LAUNCH 1 // time steps in one launch
#endif
#ifndef STREAM
#define STREAM 1 // 1: stores with the hint that nobody reads them soon
#endif

// Stores 1, 2 or 4 floats by one access; a plain assignment may become one for each float.
// STREAMING: they are not read again soon, so L2 gives their line up first and keeps what
// neighbours will read.
template <bool STREAMING, typename T> __device__ inline void store_word(T *to, T v)
{
    if constexpr (STREAMING)
        __stcs(to, v);
    else
        __stwb(to, v);
}

template <bool STREAMING> __device__ inline void store_whole(float *to, const float (&in)[1])
{
    store_word<STREAMING>(to, in[0]);
}

template <bool STREAMING> __device__ inline void store_whole(float *to, const float (&in)[2])
{
    store_word<STREAMING>(reinterpret_cast<float2 *>(to), make_float2(in[0], in[1]));
}

template <bool STREAMING> __device__ inline void store_whole(float *to, const float (&in)[4])
{
    store_word<STREAMING>(reinterpret_cast<float4 *>(to), make_float4(in[0], in[1], in[2], in[3]));
}

// A launch of several reads what the one before it wrote: they alternate between `out` and `other`
// such that the last one writes `out`. `in` is never written.
template <typename T> struct step_buffers {
    const T *from;
    T *to;
};

template <typename T>
__device__ inline step_buffers<T> step_buffers_of(
    const T *in, T *out, T *other, int launch, int launches)
{
    const bool to_out = (launches - launch) % 2 == 1;
    return {launch == 0 ? in : to_out ? other : out, to_out ? out : other};
}

// A cell after one step in f64, and beside it the same step of the magnitudes, the scale of the
// errors. The reference does one step per launch; the first reads in.
class reference_cell {
    const float *in;
    step_buffers<double> values; // from: nullptr in the first step
    step_buffers<float> scales;
    double sum = 0, magnitude = 0;

  public:
    __device__ inline reference_cell(const float *in, double *value, double *value_other,
        float *scale, float *scale_other, int step, int steps)
        : in(in), values(step_buffers_of<double>(nullptr, value, value_other, step, steps)),
          scales(step_buffers_of<float>(nullptr, scale, scale_other, step, steps))
    {
    }
    __device__ inline void add(double weight, i64 cell)
    {
        const bool is_first = values.from == nullptr;
        sum += weight * (is_first ? (double)in[cell] : values.from[cell]);
        magnitude += weight * (is_first ? fabs((double)in[cell]) : (double)scales.from[cell]);
    }
    __device__ inline void write(i64 cell) const
    {
        values.to[cell] = sum;
        scales.to[cell] = (float)magnitude;
    }
};
