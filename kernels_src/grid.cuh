// The barrier of a cooperative launch's grid, in two halves, so that nobody waits who arrives early
// enough. Each half is a barrier of the block too.
//
// As the toolkit's cooperative_groups.h does it, whose headers take four times as long to compile
// as a kernel here: the driver gives such a grid a workspace, at envreg1:envreg2, whose second word
// is the barrier. Bit 31 of it flips when the last block has arrived. The last thread asks for it,
// as the first ones are often those with something to do meanwhile.
#pragma once

#if TUNE_EMULATOR

struct grid_barrier {
    __device__ inline void arrive()
    {
        __syncthreads();
    }

    __device__ inline void wait()
    {
        tune_grid_barrier(); // has no halves
    }
};

#else

struct grid_barrier {
    unsigned before;

    static __device__ inline unsigned long long address()
    {
        unsigned high, low;
        asm("mov.u32 %0, %%envreg1;" : "=r"(high));
        asm("mov.u32 %0, %%envreg2;" : "=r"(low));
        return ((unsigned long long)high << 32 | low) + 4;
    }

    __device__ inline void arrive()
    {
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) {
            const unsigned step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
            asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;"
                         : "=r"(before)
                         : "l"(address()), "r"(step)
                         : "memory");
        }
    }

    __device__ inline void wait()
    {
        if (threadIdx.x == blockDim.x - 1) {
            unsigned now;
            do {
                asm volatile("ld.acquire.gpu.u32 %0, [%1];"
                             : "=r"(now)
                             : "l"(address())
                             : "memory");
            } while ((now ^ before) >> 31 == 0);
        }
        __syncthreads();
    }
};

#endif

__device__ inline void grid_sync()
{
    grid_barrier barrier;
    barrier.arrive();
    barrier.wait();
}
