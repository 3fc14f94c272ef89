// How softmax and layernorm walk over the rows of a matrix: threads share a row, each takes
// accesses of VEC elements, neighbouring threads neighbouring ones. Included after the tunables of
// the kernel: THREADS, ITEMS, VEC, SPLIT, TAIL and STREAM.
//
// A place in a row is counted from the last address at or before its first element that is aligned
// to VEC elements. TAIL 0 (whole): VEC divides the rows' length, and the first element stands at
// place 0. TAIL 1 (ragged): it stands somewhere below VEC, so that rows of any length are read by
// whole accesses too, but for the first and the last one, which are taken element by element.
#pragma once
#include "small_floats.cuh"

#if TUNE_DTYPE_F16
typedef f16 element;
#elif TUNE_DTYPE_BF16
typedef bf16 element;
#else
typedef float element;
#endif

__device__ inline float value_of(const element *at)
{
    float v[1];
    load(v, at);
    return v[0];
}

#if !TUNE_REFERENCE

// What one access moves: 16 bytes, or fewer.
template <int BYTES> struct word {
    typedef uint4 type;
};
template <> struct word<2> {
    typedef u16 type;
};
template <> struct word<4> {
    typedef u32 type;
};
template <> struct word<8> {
    typedef uint2 type;
};
typedef word<VEC * sizeof(element)>::type access_word;

// The part of a row that a block has. Elements stand at places begin to end; `from` is the place of
// the first access.
struct part {
    i64 offset; // of place 0 in the matrix
    i64 from, begin, end;
    int lead; // place of the row's first element
};

__device__ inline part part_of(i64 row, int number, i64 N)
{
    const int lead = TAIL ? (int)(row * N % VEC) : 0;
    const i64 length = SPLIT == 1 ? N + lead : ceildiv(ceildiv(N + lead, SPLIT), VEC) * VEC;
    const i64 from = number * length, end = least(N + lead, from + length);
    return {row * N - lead, from, from < lead ? lead : from, end, lead};
}

// A thread's share of a step of THREADS * ITEMS places, from the place `from` on: access i / VEC is
// i * THREADS places after the first one. Elements begin and end that many places after it.
struct step {
    i64 place; // of the thread's first access, in the row
    i64 at;    // and in the matrix
    int begin, end;

    __device__ inline step(const part &part, i64 from, int thread)
    {
        const int first = thread * VEC;
        place = from + first;
        at = part.offset + place;
        begin = (TAIL && part.begin > from ? (int)(part.begin - from) : 0) - first;
        end = (int)least(part.end - from, THREADS * ITEMS) - first;
    }

    // The same in a row that is there, or holds nothing.
    __device__ inline step in_row(bool is_there) const
    {
        step s = *this;
        if (!is_there)
            s.end = s.begin;
        return s;
    }

    // Whether the access that many places after the first one has nothing but elements.
    __device__ inline bool is_whole(int place) const
    {
        return TAIL ? place >= begin && place + VEC <= end : place < end;
    }

    __device__ inline bool has(int place) const
    {
        return place < end && (!TAIL || place >= begin);
    }
};

// v[] = the thread's elements of the step, the first access at `from`, `nothing` where there is no
// element. All whole accesses are on their way before the first is looked at. They say that the
// words are not wanted again, if STREAM and `is_last`.
__device__ inline void read(float (&v)[ITEMS], const element *__restrict__ from, const step &step,
    float nothing, bool is_last)
{
    access_word words[ITEMS / VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        const access_word *at = reinterpret_cast<const access_word *>(from + i * THREADS);
        if (step.is_whole(i * THREADS))
            words[i / VEC] = STREAM && is_last ? __ldcs(at) : *at;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        float(&some)[VEC] = reinterpret_cast<float(&)[VEC]>(v[i]);
        if (step.is_whole(i * THREADS))
            load(some, reinterpret_cast<const element *>(&words[i / VEC]));
        else
#pragma unroll
            for (int j = 0; j < VEC; j++)
                some[j] =
                    TAIL && step.has(i * THREADS + j) ? value_of(from + i * THREADS + j) : nothing;
    }
}

// The same in the other direction. Nobody here reads again what was written.
__device__ inline void write(element *__restrict__ to, const float (&v)[ITEMS], const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC) {
        const float(&some)[VEC] = reinterpret_cast<const float(&)[VEC]>(v[i]);
        access_word word;
        if (step.is_whole(i * THREADS)) {
            store(reinterpret_cast<element *>(&word), some);
            access_word *at = reinterpret_cast<access_word *>(to + i * THREADS);
            if (STREAM)
                __stcs(at, word);
            else
                *at = word;
        } else if (TAIL) {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (step.has(i * THREADS + j))
                    store(to + i * THREADS + j, reinterpret_cast<const float(&)[1]>(some[j]));
        }
    }
}

// Of a row that a block keeps in shared memory, in whole accesses: what stands beside the row's
// ends is kept with it. A thread recalls what it kept itself.
__device__ inline void keep(element *row, const float (&v)[ITEMS], const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC)
        if (i * THREADS < step.end)
            store(row + i * THREADS, reinterpret_cast<const float(&)[VEC]>(v[i]));
}

__device__ inline void recall(float (&v)[ITEMS], const element *row, const step &step)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i += VEC)
        if (i * THREADS < step.end)
            load(reinterpret_cast<float(&)[VEC]>(v[i]), row + i * THREADS);
}

#endif
