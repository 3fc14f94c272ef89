/* y[b] = sum of the 256 elements of block b, by the tree of the lessons in two orders. */
#ifndef ORDER
#define ORDER 0 // 0: pairs lie step apart and active lanes 2 * step; 1: active lanes lie together
#endif

#if TUNE_REFERENCE
extern "C" __global__ void tree_reference(const float *x, double *y)
{
    double sum = 0;
    for (int i = 0; i < 256; i++)
        sum += x[blockIdx.x * 256 + i];
    y[blockIdx.x] = sum;
}
#else
extern "C" __global__ void tree(const float *x, float *y)
{
    __shared__ float sums[256];
    unsigned t = threadIdx.x;
    sums[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
#if ORDER == 0
    for (unsigned step = 1; step < 256; step *= 2) {
        if (t % (2 * step) == 0)
            sums[t] += sums[t + step];
        __syncthreads();
    }
#else
    for (unsigned step = 128; step > 0; step /= 2) {
        if (t < step)
            sums[t] += sums[t + step];
        __syncthreads();
    }
#endif
    if (t == 0)
        y[blockIdx.x] = sums[0];
}
#endif
