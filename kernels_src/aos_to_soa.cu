// soa[f][i] = aos[i][f]: an array of N structures of FIELDS f32 each becomes FIELDS arrays; exact.
//
// VARIANT 0 (naive): one thread per structure, a load and a store per field.
// VARIANT 1 (vector), 2 (shared): records.cuh says how a thread gets its structures; it writes a
//   field of VEC of them by one access.
//
// aos and soa must be aligned to 16 bytes, and VEC divides N, so that each array of soa is aligned.
// A copy of bits: NaN payloads and denormals pass through, and the result is deterministic.
#include "records.cuh"

#ifndef FIELDS
#define FIELDS 3 // elements of a structure
#endif

typedef unsigned int element; // the bits of a float

static_assert(VARIANT != 2 || 4 * TILE * sizeof(element) <= 49152,
    "a tile has at most 48 KiB of shared memory, also with 4 fields: BLOCK * ITEMS structures");

#if TUNE_REFERENCE

// Element t of soa by thread t.
extern "C" __global__ void __launch_bounds__(256)
    aos_to_soa_reference(const element *__restrict__ aos, // [N][FIELDS]
        element *__restrict__ soa,                        // [FIELDS][N]
        i64 N)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index < FIELDS * N)
        soa[index] = aos[index % N * FIELDS + index / N];
}

#elif VARIANT == 0

extern "C" __global__ void __launch_bounds__(BLOCK)
    aos_to_soa(const element *__restrict__ aos, // [N][FIELDS]
        element *__restrict__ soa,              // [FIELDS][N]
        i64 N)
{
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i < N)
        for (int field = 0; field < FIELDS; field++)
            soa[field * N + i] = aos[i * FIELDS + field];
}

#else

extern "C" __global__ void __launch_bounds__(BLOCK)
    aos_to_soa(const element *__restrict__ aos, // [N][FIELDS]
        element *__restrict__ soa,              // [FIELDS][N]
        i64 N)
{
    const auto whole = [&](i64 at) {
        records<element, FIELDS> in[VECTORS];
        read(in, aos, at);
#pragma unroll
        for (int field = 0; field < FIELDS; field++)
#pragma unroll
            for (int i = 0; i < VECTORS; i++) {
                vector<element, VEC> out;
#pragma unroll
                for (int j = 0; j < VEC; j++)
                    out.at[j] = in[i].get(j, field);
                store(soa + field * N + at + (i * BLOCK + threadIdx.x) * VEC, out);
            }
    };
    walk(N, whole, [&](i64 i) {
        for (int field = 0; field < FIELDS; field++)
            soa[field * N + i] = aos[i * FIELDS + field];
    });
}

#endif
