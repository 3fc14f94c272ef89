/* Device memory as callers see it: allocations, copies, memsets. */
#include "driver.h"
#include "memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A module's variable: the image is a library with this name (loader.c). */
static bool is_variable(uintptr_t address)
{
    Dl_info info;
    return dladdr((void *)address, &info) && strncmp(info.dli_fname, "/proc/self/fd/", 14) == 0;
}

bool is_device_range(uintptr_t address, size_t bytes)
{
    return memory_find(address, bytes) || is_variable(address);
}

EXPORTED unsigned cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
unsigned cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    unsigned result = begin("cuMemAlloc", NEED_CONTEXT);
    if (!result && (!pointer || bytes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        uintptr_t address = memory_allocate(
            current_device(), bytes, device_memory_bytes(current_scenario_device()));
        result = address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        *pointer = address;
    }
    return end_call(result);
}

EXPORTED unsigned cuMemFree_v2(unsigned long long pointer);
unsigned cuMemFree_v2(unsigned long long pointer)
{
    unsigned result = begin("cuMemFree", NEED_CONTEXT);
    if (!result && pointer && !memory_free((uintptr_t)pointer))
        result = CUDA_ERROR_INVALID_VALUE;
    return end_call(result);
}

EXPORTED unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    unsigned result = begin("cuMemGetInfo", NEED_CONTEXT);
    if (!result && (!free_bytes || !total_bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        *total_bytes = device_memory_bytes(current_scenario_device());
        *free_bytes = *total_bytes - memory_used_bytes(current_device());
    }
    return end_call(result);
}

EXPORTED unsigned cuMemAllocHost_v2(void **pointer, size_t bytes);
unsigned cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    unsigned result = begin("cuMemAllocHost", NEED_CONTEXT);
    if (!result && (!pointer || bytes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = (*pointer = malloc(bytes)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return end_call(result);
}

EXPORTED unsigned cuMemFreeHost(void *pointer);
unsigned cuMemFreeHost(void *pointer)
{
    unsigned result = begin("cuMemFreeHost", NEED_CONTEXT);
    if (!result)
        free(pointer);
    return end_call(result);
}

/* --- copies and memsets ----------------------------------------------------------------------- */

enum copy_kind { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static unsigned copy(const char *name, enum copy_kind kind, unsigned long long to,
    unsigned long long from, size_t bytes, struct CUstream_st *stream, bool waits)
{
    unsigned result = begin(name, NEED_CONTEXT);
    struct node node = {.kind = NODE_COPY,
        .to = (uintptr_t)to,
        .from = (uintptr_t)from,
        .count = bytes,
        .width = 1};
    if (result || bytes == 0)
        return end_call(result);
    if (!to || !from || (kind != DEVICE_TO_HOST && !is_device_range(node.to, bytes)) ||
        (kind != HOST_TO_DEVICE && !is_device_range(node.from, bytes)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && waits && stream_is_capturing(stream))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!result)
        result = stream_submit(stream_of(stream), &node);
    return end_call(result);
}

EXPORTED unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    return copy("cuMemcpyHtoD", HOST_TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    return copy("cuMemcpyDtoH", DEVICE_TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes)
{
    return copy("cuMemcpyDtoD", DEVICE_TO_DEVICE, to, from, bytes, NULL, true);
}

EXPORTED unsigned cuMemcpyHtoDAsync_v2(
    unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyHtoDAsync_v2(
    unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyHtoDAsync", HOST_TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

EXPORTED unsigned cuMemcpyDtoHAsync_v2(
    void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyDtoHAsync_v2(
    void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyDtoHAsync", DEVICE_TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

EXPORTED unsigned cuMemcpyDtoDAsync_v2(
    unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyDtoDAsync_v2(
    unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    return copy("cuMemcpyDtoDAsync", DEVICE_TO_DEVICE, to, from, bytes, stream, false);
}

static unsigned set(const char *name, unsigned long long to, uint32_t value, size_t width,
    size_t count, struct CUstream_st *stream)
{
    unsigned result = begin(name, NEED_CONTEXT);
    struct node node = {
        .kind = NODE_MEMSET, .to = (uintptr_t)to, .count = count, .width = width, .value = value};
    if (result || count == 0)
        return end_call(result);
    if (count > SIZE_MAX / width || to % width ||
        !(memory_has(node.to, count * width) || is_variable(node.to)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = stream_submit(stream_of(stream), &node);
    return end_call(result);
}

#define MEMSET(bits, type)                                                                         \
    EXPORTED unsigned cuMemsetD##bits##_v2(unsigned long long to, type value, size_t count);       \
    unsigned cuMemsetD##bits##_v2(unsigned long long to, type value, size_t count)                 \
    {                                                                                              \
        return set("cuMemsetD" #bits, to, value, sizeof(type), count, NULL);                       \
    }                                                                                              \
    EXPORTED unsigned cuMemsetD##bits##Async(                                                      \
        unsigned long long to, type value, size_t count, struct CUstream_st *stream);              \
    unsigned cuMemsetD##bits##Async(                                                               \
        unsigned long long to, type value, size_t count, struct CUstream_st *stream)               \
    {                                                                                              \
        return set("cuMemsetD" #bits "Async", to, value, sizeof(type), count, stream);             \
    }

MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)
