// Rows in classes by their length, for the variants binned and tiled of spmv.cu: which row is in
// which class is found once for a matrix. Rows of the last class, LONG, have more than CHUNK
// entries and are cut into chunks, whose sums are joined by a further launch.
//
// binned: class c has 2^c lanes for each row, so that a lane has about ITEMS entries; a chunk is a
// block's work.
// tiled: classes by powers of two, so that rows can be dealt to warps which then have alike work; a
// chunk is one more row. A row of n chunks gives each of them every n-th entry: all are in all
// tiles.
#pragma once
#include "spmv.cuh"

#if VARIANT == 3
constexpr int LONG = 6, CHUNK = 8 * BLOCK;
#else
constexpr int LONG = 9, CHUNK = 256;
#endif

struct classes {
    int rows[LONG + 1];  // of each class
    int chunks;          // of all rows of class LONG
    int begin[LONG + 1]; // rows of the classes before, in `order`
    int taken[LONG + 1]; // rows that were placed
    int chunks_taken;    // and their chunks
    int block[LONG + 2]; // of binned: first block of what is served as number ..., long rows
                         // first, then class LONG - 1 and so on
};

__device__ inline int class_of(int length)
{
    if (length > CHUNK)
        return LONG;
    int kind = 0;
    while (kind < LONG - 1 && length > (VARIANT == BINNED ? ITEMS : 1) << kind)
        kind++;
    return kind;
}

extern "C" __global__ void __launch_bounds__(JOIN)
    add_parts(const classes *__restrict__ plan, const int *__restrict__ part_rows,
        const element *__restrict__ parts, element *__restrict__ y, i64 rows)
{
    join_parts(part_rows, parts, y, rows, plan->chunks);
}

// Once, after a memset of the plan.
extern "C" __global__ void __launch_bounds__(256)
    count(const int *__restrict__ offsets, classes *__restrict__ plan, i64 rows)
{
    __shared__ int counts[LONG + 2];
    if (threadIdx.x < LONG + 2)
        counts[threadIdx.x] = 0;
    __syncthreads();
    const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
    if (row < rows) {
        const int length = offsets[row + 1] - offsets[row], kind = class_of(length);
        atomicAdd(counts + kind, 1);
        if (kind == LONG)
            atomicAdd(counts + LONG + 1, (int)ceildiv(length, CHUNK));
    }
    __syncthreads();
    if (threadIdx.x <= LONG)
        atomicAdd(plan->rows + threadIdx.x, counts[threadIdx.x]);
    else if (threadIdx.x == LONG + 1)
        atomicAdd(&plan->chunks, counts[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(32) make_plan(classes *__restrict__ plan)
{
    if (threadIdx.x > 0)
        return;
    for (int c = 0; c < LONG; c++)
        plan->begin[c + 1] = plan->begin[c] + plan->rows[c];
    plan->block[1] = plan->chunks;
    for (int number = 1; number <= LONG; number++) {
        const int c = LONG - number;
        plan->block[number + 1] =
            plan->block[number] + (int)ceildiv((i64)plan->rows[c] << c, BLOCK);
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    place_rows(const int *__restrict__ offsets, classes *__restrict__ plan, int *__restrict__ order,
        int *__restrict__ part_rows, int *__restrict__ part_begins, i64 rows)
{
    const i64 row = (i64)blockIdx.x * 1024 + threadIdx.x;
    const int begin = row < rows ? offsets[row] : 0, end = row < rows ? offsets[row + 1] : 0;
    const int kind = row < rows ? class_of(end - begin) : -1;
    const i64 place = place_of(kind, plan->taken, [&](int c) { return plan->begin[c]; });
    if (kind >= 0)
        order[place] = (int)row;
    if (kind != LONG)
        return;
    const int chunks = (int)ceildiv(end - begin, CHUNK);
    const int first = atomicAdd(&plan->chunks_taken, chunks);
    for (int i = 0; i < chunks; i++) {
        part_rows[first + i] = (int)row;
        part_begins[first + i] = begin + (VARIANT == BINNED ? i * CHUNK : i);
    }
}
