// Passes over the banks of shared memory for each row of tests/explain_tests/h200_wavefronts.h, for a profiler to
// count: two launches of one warp per row, a load and a store, each of ACCESSES accesses.
//     nvcc -arch=native -I. -o banks tests/bench/counters/banks.cu        from the folder of the repository
#include "tests/explain_tests/h200_wavefronts.h"

#include <cstdio>

#define ACCESSES 64
#define SHARED_BYTES 65536

__device__ unsigned at(const unsigned short *word)
{
    extern __shared__ float4 shared[];
    return (unsigned)__cvta_generic_to_shared(shared) + 4u * word[threadIdx.x];
}

template <int BYTES> __global__ void load(const unsigned short *word, float *out)
{
    unsigned p = at(word);
    float sum = 0, a, b, c, d;
#pragma unroll
    for (int i = 0; i < ACCESSES; i++) {
        if (BYTES == 4)
            asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(a) : "r"(p));
        else if (BYTES == 8)
            asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "r"(p));
        else
            asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                         : "r"(p));
        sum += BYTES == 4 ? a : BYTES == 8 ? a + b : a + b + c + d;
    }
    out[threadIdx.x] = sum;
}

template <int BYTES> __global__ void store(const unsigned short *word, float *out)
{
    unsigned p = at(word);
    float a = out[threadIdx.x];
#pragma unroll
    for (int i = 0; i < ACCESSES; i++) {
        if (BYTES == 4)
            asm volatile("st.volatile.shared.f32 [%1], %0;" ::"f"(a), "r"(p));
        else if (BYTES == 8)
            asm volatile("st.volatile.shared.v2.f32 [%1], {%0, %0};" ::"f"(a), "r"(p));
        else
            asm volatile("st.volatile.shared.v4.f32 [%1], {%0, %0, %0, %0};" ::"f"(a), "r"(p));
    }
}

template <int BYTES> static void count(const unsigned short *word, float *out)
{
    cudaFuncSetAttribute(load<BYTES>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    cudaFuncSetAttribute(store<BYTES>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    load<BYTES><<<1, 32, SHARED_BYTES>>>(word, out);
    store<BYTES><<<1, 32, SHARED_BYTES>>>(word, out);
}

int main()
{
    unsigned short *word;
    float *out;
    cudaMalloc(&word, sizeof h200_wavefronts[0].word);
    cudaMalloc(&out, 32 * sizeof *out);
    cudaMemset(out, 0, 32 * sizeof *out);
    for (const auto &row : h200_wavefronts) {
        cudaMemcpy(word, row.word, sizeof row.word, cudaMemcpyHostToDevice);
        (row.bytes == 4 ? count<4> : row.bytes == 8 ? count<8> : count<16>)(word, out);
    }
    cudaError_t error = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
