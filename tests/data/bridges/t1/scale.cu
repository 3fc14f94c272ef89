// y = FACTOR * x + OFFSET, in the type KIND.
__global__ void scale(float *y, const float *__restrict__ x, int n)
{
    int i = blockIdx.x * block_size_x + threadIdx.x;
    KIND factor = FAST ? (KIND)FACTOR : (KIND)(1 * FACTOR);
    if (i < n)
        y[i] = (float)(factor * x[i]) + OFFSET;
}
