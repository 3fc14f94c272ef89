/* The part of CUDA's binary interface that tune-worker uses: our own declarations, so that the
 * build needs no toolkit. tests/worker_tests/test_cuda_abi.c holds them against the vendor's
 * headers where these are present.
 *
 * Handles are pointers to the very structs that cuda.h and nvrtc.h leave undefined; results are
 * plain `unsigned`, which is what the vendor's enums are in this ABI. Each table below lists the
 * entry points of one library once: X(need, return type, name, exported symbol, parameters).
 * ABI_OPTIONAL entries may be NULL in older libraries, and their users check. */
#ifndef TUNE_WORKER_CUDA_ABI_H
#define TUNE_WORKER_CUDA_ABI_H

#include <stddef.h>

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct _nvrtcProgram;
struct nvmlDevice_st;

/* CUresult values that the code names; the whole list stands in cuda_errors.c. */
enum {
    ABI_SUCCESS = 0,
    ABI_OUT_OF_MEMORY = 2,
    ABI_NO_DEVICE = 100,
    ABI_NO_BINARY_FOR_GPU = 209,
    ABI_UNSUPPORTED_PTX_VERSION = 222,
    ABI_NOT_FOUND = 500,
    ABI_LAUNCH_TIMEOUT = 702
};

/* CUdevice_attribute */
enum {
    ABI_ATTR_MAX_THREADS_PER_BLOCK = 1,
    ABI_ATTR_MAX_BLOCK_DIM_X = 2,
    ABI_ATTR_MAX_BLOCK_DIM_Y = 3,
    ABI_ATTR_MAX_BLOCK_DIM_Z = 4,
    ABI_ATTR_MAX_GRID_DIM_X = 5,
    ABI_ATTR_MAX_GRID_DIM_Y = 6,
    ABI_ATTR_MAX_GRID_DIM_Z = 7,
    ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    ABI_ATTR_WARP_SIZE = 10,
    ABI_ATTR_MAX_REGISTERS_PER_BLOCK = 12,
    ABI_ATTR_CLOCK_RATE = 13,
    ABI_ATTR_MULTIPROCESSOR_COUNT = 16,
    ABI_ATTR_MEMORY_CLOCK_RATE = 36,
    ABI_ATTR_GLOBAL_MEMORY_BUS_WIDTH = 37,
    ABI_ATTR_L2_CACHE_SIZE = 38,
    ABI_ATTR_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    ABI_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
    ABI_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
    ABI_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    ABI_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

/* CUfunction_attribute */
enum {
    ABI_FUNC_MAX_THREADS_PER_BLOCK = 0,
    ABI_FUNC_SHARED_SIZE_BYTES = 1,
    ABI_FUNC_LOCAL_SIZE_BYTES = 3,
    ABI_FUNC_NUM_REGS = 4,
    ABI_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    ABI_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
};

enum { ABI_STREAM_NON_BLOCKING = 1, ABI_EVENT_DEFAULT = 0, ABI_CAPTURE_THREAD_LOCAL = 1 };

/* CUlaunchAttributeID */
enum { ABI_LAUNCH_COOPERATIVE = 2, ABI_LAUNCH_CLUSTER_DIMENSION = 4 };

struct abi_uuid {
    char bytes[16];
};

struct abi_launch_attribute {
    unsigned id;
    char pad[4];
    union {
        char room[64];
        int cooperative;
        unsigned cluster[3];
    } value;
};

struct abi_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    struct abi_launch_attribute *attributes;
    unsigned attribute_count;
};

#define ABI_REQUIRED 1
#define ABI_OPTIONAL 0

/* libcuda.so.1. Device pointers are unsigned long long, devices int. */
#define CUDA_ENTRIES(X)                                                                            \
    X(ABI_REQUIRED, unsigned, cuInit, "cuInit", (unsigned flags))                                  \
    X(ABI_REQUIRED, unsigned, cuDriverGetVersion, "cuDriverGetVersion", (int *version))            \
    X(ABI_REQUIRED, unsigned, cuGetErrorName, "cuGetErrorName",                                    \
        (unsigned error, const char **text))                                                       \
    X(ABI_REQUIRED, unsigned, cuGetErrorString, "cuGetErrorString",                                \
        (unsigned error, const char **text))                                                       \
    X(ABI_REQUIRED, unsigned, cuDeviceGetCount, "cuDeviceGetCount", (int *count))                  \
    X(ABI_REQUIRED, unsigned, cuDeviceGet, "cuDeviceGet", (int *device, int ordinal))              \
    X(ABI_REQUIRED, unsigned, cuDeviceGetName, "cuDeviceGetName",                                  \
        (char *name, int room, int device))                                                        \
    X(ABI_REQUIRED, unsigned, cuDeviceGetUuid, "cuDeviceGetUuid_v2",                               \
        (struct abi_uuid * uuid, int device))                                                      \
    X(ABI_REQUIRED, unsigned, cuDeviceGetAttribute, "cuDeviceGetAttribute",                        \
        (int *value, unsigned attribute, int device))                                              \
    X(ABI_REQUIRED, unsigned, cuDeviceTotalMem, "cuDeviceTotalMem_v2",                             \
        (size_t * bytes, int device))                                                              \
    X(ABI_REQUIRED, unsigned, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                \
        (struct CUctx_st * *context, int device))                                                  \
    X(ABI_REQUIRED, unsigned, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",           \
        (int device))                                                                              \
    X(ABI_REQUIRED, unsigned, cuCtxSetCurrent, "cuCtxSetCurrent", (struct CUctx_st * context))     \
    X(ABI_REQUIRED, unsigned, cuCtxSynchronize, "cuCtxSynchronize", (void))                        \
    X(ABI_REQUIRED, unsigned, cuModuleLoadData, "cuModuleLoadData",                                \
        (struct CUmod_st * *module, const void *image))                                            \
    X(ABI_REQUIRED, unsigned, cuModuleUnload, "cuModuleUnload", (struct CUmod_st * module))        \
    X(ABI_REQUIRED, unsigned, cuModuleGetFunction, "cuModuleGetFunction",                          \
        (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))                \
    X(ABI_REQUIRED, unsigned, cuModuleGetGlobal, "cuModuleGetGlobal_v2",                           \
        (unsigned long long *pointer, size_t *bytes, struct CUmod_st *module, const char *name))   \
    X(ABI_REQUIRED, unsigned, cuFuncGetAttribute, "cuFuncGetAttribute",                            \
        (int *value, unsigned attribute, struct CUfunc_st *function))                              \
    X(ABI_REQUIRED, unsigned, cuFuncSetAttribute, "cuFuncSetAttribute",                            \
        (struct CUfunc_st * function, unsigned attribute, int value))                              \
    X(ABI_REQUIRED, unsigned, cuMemAlloc, "cuMemAlloc_v2",                                         \
        (unsigned long long *pointer, size_t bytes))                                               \
    X(ABI_REQUIRED, unsigned, cuMemFree, "cuMemFree_v2", (unsigned long long pointer))             \
    X(ABI_REQUIRED, unsigned, cuMemGetInfo, "cuMemGetInfo_v2",                                     \
        (size_t * free_bytes, size_t * total_bytes))                                               \
    X(ABI_REQUIRED, unsigned, cuMemcpyHtoD, "cuMemcpyHtoD_v2",                                     \
        (unsigned long long to, const void *from, size_t bytes))                                   \
    X(ABI_REQUIRED, unsigned, cuMemcpyDtoH, "cuMemcpyDtoH_v2",                                     \
        (void *to, unsigned long long from, size_t bytes))                                         \
    X(ABI_REQUIRED, unsigned, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                           \
        (unsigned long long to, unsigned long long from, size_t bytes,                             \
            struct CUstream_st *stream))                                                           \
    X(ABI_REQUIRED, unsigned, cuMemsetD8Async, "cuMemsetD8Async",                                  \
        (unsigned long long pointer, unsigned char byte, size_t count,                             \
            struct CUstream_st *stream))                                                           \
    X(ABI_REQUIRED, unsigned, cuStreamCreate, "cuStreamCreate",                                    \
        (struct CUstream_st * *stream, unsigned flags))                                            \
    X(ABI_REQUIRED, unsigned, cuStreamDestroy, "cuStreamDestroy_v2",                               \
        (struct CUstream_st * stream))                                                             \
    X(ABI_REQUIRED, unsigned, cuStreamSynchronize, "cuStreamSynchronize",                          \
        (struct CUstream_st * stream))                                                             \
    X(ABI_REQUIRED, unsigned, cuEventCreate, "cuEventCreate",                                      \
        (struct CUevent_st * *event, unsigned flags))                                              \
    X(ABI_REQUIRED, unsigned, cuEventDestroy, "cuEventDestroy_v2", (struct CUevent_st * event))    \
    X(ABI_REQUIRED, unsigned, cuEventRecord, "cuEventRecord",                                      \
        (struct CUevent_st * event, struct CUstream_st * stream))                                  \
    X(ABI_REQUIRED, unsigned, cuEventElapsedTime, "cuEventElapsedTime",                            \
        (float *ms, struct CUevent_st *from, struct CUevent_st *to))                               \
    X(ABI_REQUIRED, unsigned, cuLaunchKernel, "cuLaunchKernel",                                    \
        (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,           \
            struct CUstream_st *stream, void **params, void **extra))                              \
    X(ABI_OPTIONAL, unsigned, cuLaunchKernelEx, "cuLaunchKernelEx",                                \
        (const struct abi_launch_config *config, struct CUfunc_st *function, void **params,        \
            void **extra))                                                                         \
    X(ABI_REQUIRED, unsigned, cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel",              \
        (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,           \
            struct CUstream_st *stream, void **params))                                            \
    X(ABI_OPTIONAL, unsigned, cuStreamBeginCapture, "cuStreamBeginCapture_v2",                     \
        (struct CUstream_st * stream, unsigned mode))                                              \
    X(ABI_OPTIONAL, unsigned, cuStreamEndCapture, "cuStreamEndCapture",                            \
        (struct CUstream_st * stream, struct CUgraph_st * *graph))                                 \
    X(ABI_OPTIONAL, unsigned, cuGraphInstantiate, "cuGraphInstantiateWithFlags",                   \
        (struct CUgraphExec_st * *exec, struct CUgraph_st * graph, unsigned long long flags))      \
    X(ABI_OPTIONAL, unsigned, cuGraphUpload, "cuGraphUpload",                                      \
        (struct CUgraphExec_st * exec, struct CUstream_st * stream))                               \
    X(ABI_OPTIONAL, unsigned, cuGraphLaunch, "cuGraphLaunch",                                      \
        (struct CUgraphExec_st * exec, struct CUstream_st * stream))                               \
    X(ABI_OPTIONAL, unsigned, cuGraphExecDestroy, "cuGraphExecDestroy",                            \
        (struct CUgraphExec_st * exec))                                                            \
    X(ABI_OPTIONAL, unsigned, cuGraphDestroy, "cuGraphDestroy", (struct CUgraph_st * graph))

/* nvrtcResult values that the code names. */
enum { ABI_NVRTC_SUCCESS = 0, ABI_NVRTC_INVALID_OPTION = 5, ABI_NVRTC_COMPILATION = 6 };

/* libnvrtc.so */
#define NVRTC_ENTRIES(X)                                                                           \
    X(ABI_REQUIRED, unsigned, nvrtcVersion, "nvrtcVersion", (int *major, int *minor))              \
    X(ABI_OPTIONAL, unsigned, nvrtcGetNumSupportedArchs, "nvrtcGetNumSupportedArchs",              \
        (int *count))                                                                              \
    X(ABI_OPTIONAL, unsigned, nvrtcGetSupportedArchs, "nvrtcGetSupportedArchs", (int *archs))      \
    X(ABI_REQUIRED, unsigned, nvrtcCreateProgram, "nvrtcCreateProgram",                            \
        (struct _nvrtcProgram * *program, const char *source, const char *name, int header_count,  \
            const char *const *headers, const char *const *header_names))                          \
    X(ABI_REQUIRED, unsigned, nvrtcDestroyProgram, "nvrtcDestroyProgram",                          \
        (struct _nvrtcProgram * *program))                                                         \
    X(ABI_REQUIRED, unsigned, nvrtcAddNameExpression, "nvrtcAddNameExpression",                    \
        (struct _nvrtcProgram * program, const char *expression))                                  \
    X(ABI_REQUIRED, unsigned, nvrtcCompileProgram, "nvrtcCompileProgram",                          \
        (struct _nvrtcProgram * program, int option_count, const char *const *options))            \
    X(ABI_REQUIRED, unsigned, nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize",                    \
        (struct _nvrtcProgram * program, size_t * bytes))                                          \
    X(ABI_REQUIRED, unsigned, nvrtcGetProgramLog, "nvrtcGetProgramLog",                            \
        (struct _nvrtcProgram * program, char *log))                                               \
    X(ABI_REQUIRED, unsigned, nvrtcGetCUBINSize, "nvrtcGetCUBINSize",                              \
        (struct _nvrtcProgram * program, size_t * bytes))                                          \
    X(ABI_REQUIRED, unsigned, nvrtcGetCUBIN, "nvrtcGetCUBIN",                                      \
        (struct _nvrtcProgram * program, char *image))                                             \
    X(ABI_REQUIRED, unsigned, nvrtcGetPTXSize, "nvrtcGetPTXSize",                                  \
        (struct _nvrtcProgram * program, size_t * bytes))                                          \
    X(ABI_REQUIRED, unsigned, nvrtcGetPTX, "nvrtcGetPTX",                                          \
        (struct _nvrtcProgram * program, char *image))                                             \
    X(ABI_REQUIRED, unsigned, nvrtcGetLoweredName, "nvrtcGetLoweredName",                          \
        (struct _nvrtcProgram * program, const char *expression, const char **lowered))            \
    X(ABI_REQUIRED, const char *, nvrtcGetErrorString, "nvrtcGetErrorString", (unsigned result))

enum { ABI_NVML_CLOCK_SM = 1, ABI_NVML_CLOCK_MEMORY = 2, ABI_NVML_TEMPERATURE_GPU = 0 };

struct abi_nvml_utilization {
    unsigned gpu, memory; /* percent of the last moment in which a kernel ran, memory was moved */
};

struct abi_nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

/* libnvidia-ml.so.1: read only, nothing here can change a card. */
#define NVML_ENTRIES(X)                                                                            \
    X(ABI_REQUIRED, unsigned, nvmlInit, "nvmlInit_v2", (void))                                     \
    X(ABI_REQUIRED, unsigned, nvmlShutdown, "nvmlShutdown", (void))                                \
    X(ABI_REQUIRED, unsigned, nvmlDeviceGetHandleByUUID, "nvmlDeviceGetHandleByUUID",              \
        (const char *uuid, struct nvmlDevice_st **device))                                         \
    X(ABI_REQUIRED, unsigned, nvmlDeviceGetClockInfo, "nvmlDeviceGetClockInfo",                    \
        (struct nvmlDevice_st * device, unsigned type, unsigned *mhz))                             \
    X(ABI_REQUIRED, unsigned, nvmlDeviceGetTemperature, "nvmlDeviceGetTemperature",                \
        (struct nvmlDevice_st * device, unsigned sensor, unsigned *celsius))                       \
    X(ABI_REQUIRED, unsigned, nvmlDeviceGetThrottleReasons,                                        \
        "nvmlDeviceGetCurrentClocksThrottleReasons",                                               \
        (struct nvmlDevice_st * device, unsigned long long *reasons))                              \
    X(ABI_OPTIONAL, unsigned, nvmlDeviceGetUtilizationRates, "nvmlDeviceGetUtilizationRates",      \
        (struct nvmlDevice_st * device, struct abi_nvml_utilization * utilization))                \
    X(ABI_OPTIONAL, unsigned, nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo",                  \
        (struct nvmlDevice_st * device, struct abi_nvml_memory * memory))

/* Of the stand-in for libcuda.so.1 alone: tests/emulator/trace.h. */
#define TRACE_ENTRIES(X)                                                                           \
    X(ABI_REQUIRED, unsigned, tuneTraceBegin, "tuneTraceBegin", (const char *options))             \
    X(ABI_REQUIRED, char *, tuneTraceEnd, "tuneTraceEnd", (void))                                  \
    X(ABI_REQUIRED, void, tuneTraceFree, "tuneTraceFree", (char *text))

#define ABI_MEMBER(need, result, name, symbol, params) result(*name) params;

struct cuda_api {
    CUDA_ENTRIES(ABI_MEMBER)
};

struct nvrtc_api {
    NVRTC_ENTRIES(ABI_MEMBER)
};

struct nvml_api {
    NVML_ENTRIES(ABI_MEMBER)
};

struct trace_api {
    TRACE_ENTRIES(ABI_MEMBER)
};

#endif
