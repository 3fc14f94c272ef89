// nvcc -cubin -lineinfo -arch=sm_XX -o small_XX.cubin small.cu (13.0); test_sass.c names the lines.
__device__ __forceinline__ float twice(const float *x)
{
    return *x + *x;
}
extern "C" __global__ void through_shared(const float *x, float2 *y, const char *z)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = twice(x + threadIdx.x);
    __syncthreads();
    y[threadIdx.x] = make_float2(tile[threadIdx.x ^ 1], z[threadIdx.x]);
}
extern "C" __global__ void add_up(const double2 *x, double *sum, int *count)
{
    asm volatile("red.global.add.f64 [%0], %1;" ::"l"(sum), "d"(x[threadIdx.x].x * x[threadIdx.x].y));
    asm volatile("red.global.add.s32 [%0], %1;" ::"l"(count + threadIdx.x), "r"(1));
}
