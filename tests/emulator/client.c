#include "client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFINE(name, params) unsigned(*name) params;
CLIENT_CUDA(DEFINE)
CLIENT_NVRTC(DEFINE)

void client_check(bool holds, const char *text, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    _exit(99);
}

void client_check_result(
    unsigned result, unsigned wanted, const char *text, const char *file, int line)
{
    if (result == wanted)
        return;
    fprintf(stderr, "%s:%d: %u, not %u: %s\n", file, line, result, wanted, text);
    _exit(99);
}

static void *open_library(const char *name)
{
    char path[4096];
    const char *build = getenv("TUNE_BUILD_DIR");
    snprintf(path, sizeof path, "%s/lib/tunerd/emulator/%s", build ? build : ".", name);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(99);
    }
    return library;
}

static void *cuda_library;

void *client_symbol(const char *name)
{
    void *symbol = dlsym(cuda_library, name);
    CHECK(symbol != NULL);
    return symbol;
}

void client_load(void)
{
    void *library = cuda_library = open_library("libcuda.so.1");
#define LOAD(name, params)                                                                         \
    *(void **)&name = dlsym(library, #name);                                                       \
    CHECK(name != NULL);
    CLIENT_CUDA(LOAD)
    library = open_library("libnvrtc.so.13");
    CLIENT_NVRTC(LOAD)
}

struct compiled client_compile_with(
    const char *source, const char *expression, const char *const *options)
{
    struct compiled c = {0};
    struct program *program;
    const char *headers[] = {"#pragma once\nconstexpr int FROM_HEADER = 5;\n"};
    const char *names[] = {"helper.cuh"};
    const char *lowered;
    size_t log_bytes;
    int count = 0;
    while (options[count])
        count++;
    MUST(nvrtcCreateProgram(&program, source, "test.cu", 1, headers, names));
    if (expression)
        MUST(nvrtcAddNameExpression(program, expression));
    c.result = nvrtcCompileProgram(program, count, options);
    MUST(nvrtcGetProgramLogSize(program, &log_bytes));
    c.log = malloc(log_bytes);
    MUST(nvrtcGetProgramLog(program, c.log));
    if (!c.result) {
        MUST(nvrtcGetCUBINSize(program, &c.image_bytes));
        c.image = malloc(c.image_bytes + 1);
        MUST(nvrtcGetCUBIN(program, c.image));
    }
    if (!c.result && expression) {
        MUST(nvrtcGetLoweredName(program, expression, &lowered));
        snprintf(c.lowered, sizeof c.lowered, "%s", lowered);
    }
    MUST(nvrtcDestroyProgram(&program));
    return c;
}

struct compiled client_compile(const char *source)
{
    const char *options[] = {"--gpu-architecture=cpu", NULL};
    return client_compile_with(source, NULL, options);
}

void compiled_finish(struct compiled *compiled)
{
    free(compiled->image);
    free(compiled->log);
}

void client_start(void)
{
    struct context *context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

struct function *client_kernel_in(const char *source, const char *name, struct module **module)
{
    struct function *function;
    struct compiled c = client_compile(source);
    if (c.result)
        fprintf(stderr, "%s\n", c.log);
    CHECK(c.result == 0);
    MUST(cuModuleLoadData(module, c.image));
    MUST(cuModuleGetFunction(&function, *module, name));
    compiled_finish(&c);
    return function;
}

struct function *client_kernel(const char *source)
{
    struct module *module;
    return client_kernel_in(source, "k", &module);
}

device_ptr client_buffer(const void *data, size_t bytes)
{
    device_ptr p;
    MUST(cuMemAlloc_v2(&p, bytes));
    if (data)
        MUST(cuMemcpyHtoD_v2(p, data, bytes));
    return p;
}

unsigned client_launch(
    struct function *function, unsigned grid, unsigned block, unsigned shared, void **params)
{
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, NULL, params, NULL);
}

unsigned client_launch_clusters(struct function *function, const unsigned grid[3],
    const unsigned cluster[3], unsigned block, unsigned shared, void **params)
{
    enum { CLUSTER_DIMENSION = 4 };
    struct client_attribute attribute = {.id = CLUSTER_DIMENSION};
    memcpy(attribute.value.cluster, cluster, sizeof attribute.value.cluster);
    const struct client_config config = {.grid = {grid[0], grid[1], grid[2]},
        .block = {block, 1, 1},
        .shared_bytes = shared,
        .attributes = &attribute,
        .attribute_count = 1};
    return cuLaunchKernelEx(&config, function, params, NULL);
}

static char *read_all(int descriptor)
{
    char *text = NULL, chunk[4096];
    size_t length;
    ssize_t n;
    FILE *out = open_memstream(&text, &length);
    while ((n = read(descriptor, chunk, sizeof chunk)) > 0)
        fwrite(chunk, 1, (size_t)n, out);
    fclose(out);
    return text;
}

char *client_in_child(void (*body)(void), int status)
{
    int ends[2], got;
    fflush(NULL);
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    char *text = read_all(ends[0]);
    close(ends[0]);
    CHECK(waitpid(pid, &got, 0) == pid);
    if (got != status) {
        fprintf(stderr, "the child's status is 0x%x, not 0x%x; it said:\n%s", got, status, text);
        _exit(99);
    }
    return text;
}
