/* What the emulator's tests share: the two libraries' entry points as function pointers, found by
 * name as a program would, and short forms of what every test does. A check that fails ends the
 * process with its line, so that checks also work in children. */
#ifndef TUNE_EMULATOR_CLIENT_H
#define TUNE_EMULATOR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long device_ptr;
struct program;
struct context;
struct module;
struct function;
struct stream;
struct event;
struct graph;
struct exec;

#define CLIENT_CUDA(X)                                                                             \
    X(cuInit, (unsigned))                                                                          \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (int *, int))                                                                   \
    X(cuDeviceGetName, (char *, int, int))                                                         \
    X(cuDeviceGetUuid_v2, (void *, int))                                                           \
    X(cuDeviceGetAttribute, (int *, int, int))                                                     \
    X(cuDeviceTotalMem_v2, (size_t *, int))                                                        \
    X(cuDevicePrimaryCtxRetain, (struct context **, int))                                          \
    X(cuDevicePrimaryCtxReset_v2, (int))                                                           \
    X(cuCtxSetCurrent, (struct context *))                                                         \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuModuleLoadData, (struct module **, const void *))                                          \
    X(cuModuleUnload, (struct module *))                                                           \
    X(cuModuleGetFunction, (struct function **, struct module *, const char *))                    \
    X(cuModuleGetGlobal_v2, (device_ptr *, size_t *, struct module *, const char *))               \
    X(cuFuncGetAttribute, (int *, int, struct function *))                                         \
    X(cuFuncSetAttribute, (struct function *, int, int))                                           \
    X(cuMemAlloc_v2, (device_ptr *, size_t))                                                       \
    X(cuMemFree_v2, (device_ptr))                                                                  \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemcpyHtoD_v2, (device_ptr, const void *, size_t))                                         \
    X(cuMemcpyDtoH_v2, (void *, device_ptr, size_t))                                               \
    X(cuMemcpyDtoDAsync_v2, (device_ptr, device_ptr, size_t, struct stream *))                     \
    X(cuMemsetD8Async, (device_ptr, unsigned char, size_t, struct stream *))                       \
    X(cuMemsetD32_v2, (device_ptr, unsigned, size_t))                                              \
    X(cuStreamCreate, (struct stream **, unsigned))                                                \
    X(cuStreamDestroy_v2, (struct stream *))                                                       \
    X(cuStreamSynchronize, (struct stream *))                                                      \
    X(cuStreamBeginCapture_v2, (struct stream *, int))                                             \
    X(cuStreamEndCapture, (struct stream *, struct graph **))                                      \
    X(cuGraphInstantiateWithFlags, (struct exec **, struct graph *, unsigned long long))           \
    X(cuGraphLaunch, (struct exec *, struct stream *))                                             \
    X(cuGraphExecDestroy, (struct exec *))                                                         \
    X(cuGraphDestroy, (struct graph *))                                                            \
    X(cuEventCreate, (struct event **, unsigned))                                                  \
    X(cuEventDestroy_v2, (struct event *))                                                         \
    X(cuEventRecord, (struct event *, struct stream *))                                            \
    X(cuEventElapsedTime, (float *, struct event *, struct event *))                               \
    X(cuLaunchKernel, (struct function *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                          unsigned, unsigned, struct stream *, void **, void **))                  \
    X(cuLaunchCooperativeKernel, (struct function *, unsigned, unsigned, unsigned, unsigned,       \
                                     unsigned, unsigned, unsigned, struct stream *, void **))      \
    X(cuLaunchKernelEx, (const struct client_config *, struct function *, void **, void **))       \
    X(cuGetErrorName, (unsigned, const char **))                                                   \
    X(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, int *))

#define CLIENT_NVRTC(X)                                                                            \
    X(nvrtcGetNumSupportedArchs, (int *))                                                          \
    X(nvrtcGetSupportedArchs, (int *))                                                             \
    X(nvrtcCreateProgram, (struct program **, const char *, const char *, int,                     \
                              const char *const *, const char *const *))                           \
    X(nvrtcDestroyProgram, (struct program **))                                                    \
    X(nvrtcAddNameExpression, (struct program *, const char *))                                    \
    X(nvrtcCompileProgram, (struct program *, int, const char *const *))                           \
    X(nvrtcGetProgramLogSize, (struct program *, size_t *))                                        \
    X(nvrtcGetProgramLog, (struct program *, char *))                                              \
    X(nvrtcGetCUBINSize, (struct program *, size_t *))                                             \
    X(nvrtcGetCUBIN, (struct program *, char *))                                                   \
    X(nvrtcGetLoweredName, (struct program *, const char *, const char **))

/* CUlaunchConfig, CUlaunchAttribute */
struct client_attribute {
    int id;
    char pad[4];
    union {
        char room[64];
        unsigned cluster[3];
    } value;
};

struct client_config {
    unsigned grid[3], block[3], shared_bytes;
    struct stream *stream;
    const struct client_attribute *attributes;
    unsigned attribute_count;
};

#define CLIENT_DECLARE(name, params) extern unsigned(*name) params;
CLIENT_CUDA(CLIENT_DECLARE)
CLIENT_NVRTC(CLIENT_DECLARE)

#define CHECK(condition) client_check(condition, #condition, __FILE__, __LINE__)
#define CHECK_RESULT(call, wanted) client_check_result(call, wanted, #call, __FILE__, __LINE__)
#define MUST(call) CHECK_RESULT(call, 0)

void client_check(bool holds, const char *text, const char *file, int line);
void client_check_result(
    unsigned result, unsigned wanted, const char *text, const char *file, int line);

/* Loads both libraries from the build. */
void client_load(void);
/* An entry point of the stand-in libcuda that is not the driver's. */
void *client_symbol(const char *name);

struct compiled {
    unsigned result;
    char *image, *log;
    size_t image_bytes;
    char lowered[256]; /* of the name expression, if one was given */
};

/* Compiles "test.cu" with the header helper.cuh (FROM_HEADER is 5); options end with NULL. */
struct compiled client_compile_with(
    const char *source, const char *expression, const char *const *options);
struct compiled client_compile(const char *source);
void compiled_finish(struct compiled *compiled);

/* Initialises and makes device 0's context current. */
void client_start(void);
/* Compiles and loads a source that must compile; the kernel k of it. */
struct function *client_kernel(const char *source);
struct function *client_kernel_in(const char *source, const char *name, struct module **module);
device_ptr client_buffer(const void *data, size_t bytes);
/* Along x, on the default stream. */
unsigned client_launch(
    struct function *function, unsigned grid, unsigned block, unsigned shared, void **params);
/* The same in clusters of [x, y, z] blocks, with a grid of three dimensions. */
unsigned client_launch_clusters(struct function *function, const unsigned grid[3],
    const unsigned cluster[3], unsigned block, unsigned shared, void **params);

/* Runs body in a new process, which must end with that status; what it wrote to standard error is
 * returned (malloc'ed). Faults and scenarios stay with a process, and a driver does not survive a
 * fork, so the parent must not have started it. */
char *client_in_child(void (*body)(void), int status);

#endif
