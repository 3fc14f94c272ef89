/* Our own declarations of CUDA's interface are those of the vendor's headers: checked while
 * compiling. */
#ifdef TUNE_HAS_CUDA_HEADERS
#include <cuda.h>
#include <nvrtc.h>

#include "daemon/worker/cuda_abi.h"

/* The vendor's macros (cuMemAlloc -> cuMemAlloc_v2) rename our members too, so both names agree.
 * Results and enums are unsigned in the ABI, which GCC holds compatible. Three functions take
 * structs of their own and are compared by layout below. */
#define SAME(need, result, name, symbol, params)                                                   \
    _Static_assert(__builtin_types_compatible_p(                                                   \
                       __typeof__(((struct cuda_api *)0)->name), __typeof__(&name)) ||             \
                       IS_BY_LAYOUT(symbol),                                                       \
        symbol " is declared otherwise in cuda.h");
#define IS_BY_LAYOUT(symbol)                                                                       \
    (__builtin_strcmp(symbol, "cuDeviceGetUuid") == 0 ||                                           \
        __builtin_strcmp(symbol, "cuDeviceGetUuid_v2") == 0 ||                                     \
        __builtin_strcmp(symbol, "cuLaunchKernelEx") == 0)
#define SAME_NVRTC(need, result, name, symbol, params)                                             \
    _Static_assert(__builtin_types_compatible_p(                                                   \
                       __typeof__(((struct nvrtc_api *)0)->name), __typeof__(&name)),              \
        symbol " is declared otherwise in nvrtc.h");

CUDA_ENTRIES(SAME)
NVRTC_ENTRIES(SAME_NVRTC)

#define EQUAL(ours, theirs)                                                                        \
    _Static_assert((int)(ours) == (int)(theirs), #ours " differs from " #theirs)

EQUAL(ABI_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(ABI_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(ABI_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(ABI_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
EQUAL(ABI_ATTR_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
EQUAL(ABI_ATTR_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
EQUAL(ABI_ATTR_MAX_BLOCK_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
EQUAL(ABI_ATTR_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
EQUAL(ABI_ATTR_MAX_GRID_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
EQUAL(ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
EQUAL(ABI_ATTR_WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
EQUAL(ABI_ATTR_MAX_REGISTERS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
EQUAL(ABI_ATTR_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
EQUAL(ABI_ATTR_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(ABI_ATTR_MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
EQUAL(ABI_ATTR_GLOBAL_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
EQUAL(ABI_ATTR_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
EQUAL(ABI_ATTR_MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
EQUAL(ABI_ATTR_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(ABI_ATTR_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(ABI_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
EQUAL(ABI_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
EQUAL(ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
EQUAL(ABI_FUNC_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
EQUAL(ABI_FUNC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
EQUAL(ABI_FUNC_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
EQUAL(ABI_FUNC_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
EQUAL(ABI_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
EQUAL(ABI_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
EQUAL(ABI_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
EQUAL(ABI_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
EQUAL(ABI_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
EQUAL(ABI_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
EQUAL(ABI_NVRTC_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION);
EQUAL(ABI_NVRTC_COMPILATION, NVRTC_ERROR_COMPILATION);
EQUAL(sizeof(struct abi_uuid), sizeof(CUuuid));
EQUAL(sizeof(struct abi_launch_attribute), sizeof(CUlaunchAttribute));
EQUAL(offsetof(struct abi_launch_attribute, value), offsetof(CUlaunchAttribute, value));
EQUAL(sizeof(struct abi_launch_config), sizeof(CUlaunchConfig));
EQUAL(offsetof(struct abi_launch_config, block), offsetof(CUlaunchConfig, blockDimX));
EQUAL(offsetof(struct abi_launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
EQUAL(offsetof(struct abi_launch_config, stream), offsetof(CUlaunchConfig, hStream));
EQUAL(offsetof(struct abi_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
EQUAL(offsetof(struct abi_launch_config, attribute_count), offsetof(CUlaunchConfig, numAttrs));

int main(void)
{
    return 0;
}
#else
#include <stdio.h>

int main(void)
{
    puts("skipped: cuda.h and nvrtc.h are not installed");
    return 77;
}
#endif
