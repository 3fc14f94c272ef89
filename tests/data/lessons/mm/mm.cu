/* C[N][N] = A[N][N] * B[N][N], row-major: as the lessons write it, before and after tiling. */
#ifndef TILED
#define TILED 1 // 0: each thread reads its row and column; 1: tiles are staged in shared memory
#endif
#ifndef TILE
#define TILE 16 // rows and columns of a tile
#endif

#if TUNE_REFERENCE
extern "C" __global__ void mm_reference(
    const float *A, const float *B, double *C, double *scale, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n * n)
        return;
    double sum = 0, squares = 0;
    for (int k = 0; k < n; k++) {
        double product = (double)A[i / n * n + k] * B[k * n + i % n];
        sum += product;
        squares += product * product;
    }
    C[i] = sum;
    scale[i] = sqrt(squares);
}
#elif TILED == 0
extern "C" __global__ void mm(const float *A, const float *B, float *C, int n)
{
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row >= n || column >= n)
        return;
    float sum = 0;
    for (int k = 0; k < n; k++) {
        float a = A[row * n + k];
        float b = B[k * n + column];
        sum += a * b;
    }
    C[row * n + column] = sum;
}
#else
extern "C" __global__ void mm(const float *A, const float *B, float *C, int n)
{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        a[y][x] = row < n && k + x < n ? A[row * n + k + x] : 0.0f;
        b[y][x] = k + y < n && column < n ? B[(k + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += a[y][i] * b[i][x];
        __syncthreads();
    }
    if (row < n && column < n)
        C[row * n + column] = sum;
}
#endif
