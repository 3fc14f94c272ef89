/* The emulator as a program sees it: two libraries found by name, CUDA source in, results out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long device_ptr;
struct program;
struct context;
struct module;
struct function;
struct stream;
struct event;
struct graph;
struct exec;

#define CUDA(X)                                                                                    \
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
    X(cuGetErrorName, (unsigned, const char **))                                                   \
    X(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, int *))

#define NVRTC(X)                                                                                   \
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

#define DECLARE(name, params) static unsigned(*name) params;
CUDA(DECLARE)
NVRTC(DECLARE)

static void *open_library(const char *name)
{
    char path[4096];
    const char *build = getenv("TUNE_BUILD_DIR");
    snprintf(path, sizeof path, "%s/lib/tunerd/emulator/%s", build ? build : ".", name);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void load_libraries(void)
{
    void *library = open_library("libcuda.so.1");
#define LOAD(name, params) *(void **)&name = dlsym(library, #name);
    CUDA(LOAD)
    library = open_library("libnvrtc.so.13");
    NVRTC(LOAD)
}

/* --- helpers ------------------------------------------------------------------------------------
 */

struct compiled {
    unsigned result;
    char *image, *log;
    size_t image_bytes;
    char lowered[256]; /* of the name expression, if one was given */
};

static struct compiled compile_with(
    const char *source, const char *expression, const char *const *options, int option_count)
{
    struct compiled c = {0};
    struct program *program;
    const char *headers[] = {"#pragma once\nconstexpr int FROM_HEADER = 5;\n"};
    const char *names[] = {"helper.cuh"};
    const char *lowered;
    size_t log_bytes;
    assert_int_equal(nvrtcCreateProgram(&program, source, "test.cu", 1, headers, names), 0);
    if (expression)
        assert_int_equal(nvrtcAddNameExpression(program, expression), 0);
    c.result = nvrtcCompileProgram(program, option_count, options);
    assert_int_equal(nvrtcGetProgramLogSize(program, &log_bytes), 0);
    c.log = malloc(log_bytes);
    nvrtcGetProgramLog(program, c.log);
    if (!c.result) {
        assert_int_equal(nvrtcGetCUBINSize(program, &c.image_bytes), 0);
        c.image = malloc(c.image_bytes);
        nvrtcGetCUBIN(program, c.image);
        if (expression) {
            assert_int_equal(nvrtcGetLoweredName(program, expression, &lowered), 0);
            snprintf(c.lowered, sizeof c.lowered, "%s", lowered);
        }
    }
    nvrtcDestroyProgram(&program);
    return c;
}

static struct compiled compile(const char *source)
{
    const char *options[] = {"--gpu-architecture=cpu"};
    return compile_with(source, NULL, options, 1);
}

static void compiled_finish(struct compiled *c)
{
    free(c->image);
    free(c->log);
}

static void start(void)
{
    struct context *context;
    assert_int_equal(cuInit(0), 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(cuCtxSetCurrent(context), 0);
}

/* Compiles and loads a source that must compile; its kernel is named k. */
static struct function *load_named(const char *source, const char *name, struct module **module)
{
    struct function *function;
    struct compiled c = compile(source);
    if (c.result)
        fprintf(stderr, "%s\n", c.log);
    assert_int_equal(c.result, 0);
    assert_int_equal(cuModuleLoadData(module, c.image), 0);
    assert_int_equal(cuModuleGetFunction(&function, *module, name), 0);
    compiled_finish(&c);
    return function;
}

static struct function *load(const char *source)
{
    struct module *module;
    return load_named(source, "k", &module);
}

static device_ptr buffer(const void *data, size_t bytes)
{
    device_ptr p;
    assert_int_equal(cuMemAlloc_v2(&p, bytes), 0);
    if (data)
        assert_int_equal(cuMemcpyHtoD_v2(p, data, bytes), 0);
    return p;
}

static unsigned launch(
    struct function *function, unsigned grid, unsigned block, unsigned shared, void **params)
{
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, NULL, params, NULL);
}

/* Runs a test in a process of its own: a fault or a scenario stays with a process for good. */
static void in_child(void (*body)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        jmp_buf *none = NULL;
        (void)none;
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* For bodies of in_child: cmocka's assertions belong to the parent. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* --- running ------------------------------------------------------------------------------------
 */

static void a_kernel_adds_two_vectors_with_a_tail(void **state)
{
    (void)state;
    start();
    struct function *k =
        load("extern \"C\" __global__ void k(const float *a, const float *b, float *c, int n)\n"
             "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }");
    float a[1000], b[1000], c[1000];
    for (int i = 0; i < 1000; i++) {
        a[i] = (float)i;
        b[i] = 0.5f;
    }
    device_ptr da = buffer(a, sizeof a), db = buffer(b, sizeof b), dc = buffer(NULL, sizeof c);
    int n = 1000;
    void *params[] = {&da, &db, &dc, &n};
    assert_int_equal(launch(k, 8, 128, 0, params), 0);
    assert_int_equal(cuCtxSynchronize(), 0);
    assert_int_equal(cuMemcpyDtoH_v2(c, dc, sizeof c), 0);
    for (int i = 0; i < 1000; i++)
        assert_true(c[i] == (float)i + 0.5f);
    cuMemFree_v2(da);
    cuMemFree_v2(db);
    cuMemFree_v2(dc);
}

int main(void)
{
    load_libraries();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_adds_two_vectors_with_a_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
