// y[i] = x[i] + 1 over N floats, with one planted fault per MODE: what a tuner must survive.
//   MODE 0 right   1 illegal address   2 never ends   3 wrong in one element   4 writes past the end
//   5 a failed static_assert would be a compile error; here: does not compile
#ifndef MODE
#define MODE 0
#endif
#ifndef BLOCK
#define BLOCK 128 // threads per block
#endif

#if MODE == 5
#error "planted: this configuration does not compile"
#endif

#if TUNE_REFERENCE
extern "C" __global__ void reference(const float *__restrict__ x, float *__restrict__ y, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + 1.0f;
}
#else
extern "C" __global__ void __launch_bounds__(BLOCK)
    faults(const float *__restrict__ x, float *y, long long n)
{
    long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
    if (i >= n)
        return;
    float value = x[i] + 1.0f;
    if (MODE == 3 && i == n - 1)
        value += 1.0f;
    y[i] = value;
    if (MODE == 1 && i == 0)
        y[1ll << 40] = value;
    if (MODE == 4 && i == 0)
        y[n] = value;
    if (MODE == 2 && i == 0)
        while (*(volatile float *)&y[0] > -1e30f)
            ;
}
#endif
