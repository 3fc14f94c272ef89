// What a device reaches at most: bytes moved by copying within its memory or by reading alone, whichever is faster,
// and f32 multiply-adds that nothing else slows. The roofline that `tunectl explain` and `report` draw has these two as
// its ceilings, measured and not read off a data sheet.
//
// The worker chooses how much is done and times it (daemon/worker/bench_limits.c); here is no tunable. All kernels take
// any 1-D grid of BLOCK threads.

typedef long long i64;

#define BLOCK 256    // threads per block, fixed: the worker launches with it
#define IN_FLIGHT 4  // loads of a thread that wait for the memory at the same time
#define CHAINS 8     // multiply-adds of a thread that do not wait for each other: more than a unit's latency
#define STEPS 64     // of each chain per turn of the loop, so that its own instructions do not count; the worker knows

// to[n] = from[n]. Neighbouring threads copy neighbouring 16 bytes. n counts them; a tail goes one by one.
extern "C" __global__ void __launch_bounds__(BLOCK)
    limits_copy(const float4 *__restrict__ from, float4 *__restrict__ to, i64 n)
{
    i64 step = (i64)gridDim.x * BLOCK, i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    for (; i + (IN_FLIGHT - 1) * step < n; i += IN_FLIGHT * step) {
        float4 held[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            held[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            to[i + k * step] = held[k];
    }
    for (; i < n; i += step)
        to[i] = from[i];
}

// Reads from[n], n as above. Nothing is written in any case that occurs: the sum is of bytes that the worker has set to
// 1, which are tiny as f32.
extern "C" __global__ void __launch_bounds__(BLOCK) limits_read(const float4 *__restrict__ from, float *out, i64 n)
{
    i64 step = (i64)gridDim.x * BLOCK, i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    float sum = 0.0f;
    for (; i + (IN_FLIGHT - 1) * step < n; i += IN_FLIGHT * step) {
        float4 held[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            held[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            sum += held[k].x + held[k].y + held[k].z + held[k].w;
    }
    for (; i < n; i += step)
        sum += from[i].x;
    if (sum > 1e30f)
        out[0] = sum;
}

// 2 * CHAINS * STEPS * turns operations per thread. out[0] is written in no case that occurs, which the compiler
// cannot know: with |factor| < 1 all chains stay small. factor and addend come from outside, so nothing is folded.
extern "C" __global__ void __launch_bounds__(BLOCK) limits_fma(float *out, float factor, float addend, int turns)
{
    float chain[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; k++)
        chain[k] = (float)(threadIdx.x + k);
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int k = 0; k < CHAINS; k++)
                chain[k] = fmaf(chain[k], factor, addend);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < CHAINS; k++)
        sum += chain[k];
    if (sum > 1e30f)
        out[0] = sum;
}
