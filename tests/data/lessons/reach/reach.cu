/* Each lane hands what it read of x to the lane 31 - lane of its warp, through shared memory, which
 * writes it + 1 to y[N]. STRIDE and BANKS: how far apart lanes reach in the two memories. */
#ifndef STRIDE
#define STRIDE 1 // floats of x between neighbouring lanes
#endif
#ifndef SHIFT
#define SHIFT 0 // floats before the first one that is read
#endif
#ifndef BANKS
#define BANKS 1 // words of shared memory between neighbouring lanes
#endif

#if TUNE_REFERENCE
extern "C" __global__ void reach_reference(const float *x, double *y, int n)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n)
        y[i] = x[i];
}
#else
extern "C" __global__ void reach(const float *x, float *y, int n)
{
    extern __shared__ float staged[];
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i >= n)
        return;
    float value = x[(long long)i * STRIDE + SHIFT];
    staged[threadIdx.x * BANKS] = value;
    __syncthreads();
    float other = staged[(31 - threadIdx.x) * BANKS];
    y[i] = other + 1.0f;
}
#endif
