/* Devices, as CUDA_VISIBLE_DEVICES shows them, and contexts. */
#include "driver.h"
#include "trace_run.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPT_IN_SHARED_BYTES (99 * 1024) /* of a block */
#define SM_SHARED_BYTES (100 * 1024)

struct CUctx_st {
    int device; /* as seen through CUDA_VISIBLE_DEVICES */
    int uses;
};

static struct {
    int visible[SCENARIO_DEVICES], visible_count; /* ordinals in the scenario */
    struct CUctx_st primary[SCENARIO_DEVICES];
} state;

static _Thread_local struct CUctx_st *current;

int current_device(void)
{
    return current ? state.visible[current->device] : -1;
}

const struct scenario_device *current_scenario_device(void)
{
    return scenario_device(current_device());
}

uint64_t device_memory_bytes(const struct scenario_device *device)
{
    return trace_mode() ? TRACE_MEMORY_BYTES : device->memory_bytes;
}

int device_shared_bytes(void)
{
    return trace_mode() ? IMAGE_DYNAMIC_SHARED_BYTES : OPT_IN_SHARED_BYTES;
}

static void uuid_text(const unsigned char uuid[16], char text[64])
{
    snprintf(text, 64, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
        uuid[0], uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9],
        uuid[10], uuid[11], uuid[12], uuid[13], uuid[14], uuid[15]);
}

/* The ordinal that one word of CUDA_VISIBLE_DEVICES names, or -1. */
static int named_device(const char *word, size_t length)
{
    int found = -1;
    char *end;
    if (length && isdigit((unsigned char)*word)) {
        long number = strtol(word, &end, 10);
        return end == word + length && number < scenario_device_count() ? (int)number : -1;
    }
    for (int i = 0; length > 4 && i < scenario_device_count(); i++) {
        char uuid[64];
        uuid_text(scenario_device(i)->uuid, uuid);
        if (strncasecmp(word, uuid, length) != 0)
            continue;
        if (found >= 0)
            return -1; /* not unique */
        found = i;
    }
    return found;
}

/* As the driver does: the list ends at the first word that names nothing, or names one again. */
int devices_choose(void)
{
    const char *word = getenv("CUDA_VISIBLE_DEVICES");
    if (!word) {
        for (int i = 0; i < scenario_device_count(); i++)
            state.visible[state.visible_count++] = i;
        return state.visible_count;
    }
    while (state.visible_count < SCENARIO_DEVICES) {
        size_t length = strcspn(word, ",");
        int device = named_device(word, length);
        for (int i = 0; i < state.visible_count; i++)
            if (state.visible[i] == device)
                device = -1;
        if (device < 0)
            break;
        state.visible[state.visible_count++] = device;
        if (word[length] == '\0')
            break;
        word += length + 1;
    }
    return state.visible_count;
}

/* --- devices ---------------------------------------------------------------------------------- */

static unsigned begin_device(const char *name, const void *out, int device)
{
    bool is_there = device >= 0 && device < state.visible_count;
    unsigned result = begin_on(name, NEED_INIT, is_there ? state.visible[device] : -1);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && !is_there)
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

EXPORTED unsigned cuDeviceGetCount(int *count);
unsigned cuDeviceGetCount(int *count)
{
    unsigned result = begin("cuDeviceGetCount", NEED_INIT);
    if (!result && !count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *count = state.visible_count;
    return end_call(result);
}

EXPORTED unsigned cuDeviceGet(int *device, int ordinal);
unsigned cuDeviceGet(int *device, int ordinal)
{
    unsigned result = begin_device("cuDeviceGet", device, ordinal);
    if (!result)
        *device = ordinal;
    return end_call(result);
}

EXPORTED unsigned cuDeviceGetName(char *name, int room, int device);
unsigned cuDeviceGetName(char *name, int room, int device)
{
    unsigned result = begin_device("cuDeviceGetName", name, device);
    if (!result && room <= 0)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        snprintf(name, (size_t)room, "%s", scenario_device(state.visible[device])->name);
    return end_call(result);
}

EXPORTED unsigned cuDeviceGetUuid(void *uuid, int device);
unsigned cuDeviceGetUuid(void *uuid, int device)
{
    unsigned result = begin_device("cuDeviceGetUuid", uuid, device);
    if (!result)
        memcpy(uuid, scenario_device(state.visible[device])->uuid, 16);
    return end_call(result);
}

EXPORTED unsigned cuDeviceGetUuid_v2(void *uuid, int device);
unsigned cuDeviceGetUuid_v2(void *uuid, int device)
{
    return cuDeviceGetUuid(uuid, device);
}

EXPORTED unsigned cuDeviceTotalMem_v2(size_t *bytes, int device);
unsigned cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    unsigned result = begin_device("cuDeviceTotalMem", bytes, device);
    if (!result)
        *bytes = device_memory_bytes(scenario_device(state.visible[device]));
    return end_call(result);
}

/* CUdevice_attribute -> value. Those that the scenario or tracing decides are in
 * device_attribute. */
static const struct {
    int attribute, value;
} attributes[] = {
    {1, 1024},                                               /* threads per block */
    {2, 1024},                                               /* block x, y, z */
    {3, 1024}, {4, 64}, {5, 2147483647},                     /* grid x, y, z */
    {6, 65535}, {7, 65535}, {8, LOADER_STATIC_SHARED_LIMIT}, /* shared memory per block */
    {9, 65536},                                              /* constant memory */
    {10, 32},                                                /* warp */
    {11, 2147483647},                                        /* pitch */
    {12, 65536},                                             /* registers per block */
    {13, 1000000},                                           /* clock, kHz */
    {14, 512},                                               /* alignment of textures */
    {31, 1},                                                 /* concurrent kernels */
    {36, 1000000},                                           /* memory clock, kHz */
    {37, 256},                                               /* bus width, bits */
    {38, 4 << 20},                                           /* L2 cache */
    {39, 2048},                                              /* threads per multiprocessor */
    {40, 1},                                                 /* copy engines */
    {41, 1},                                                 /* unified addressing */
    {78, 1},                                                 /* stream priorities */
    {82, 65536},                                             /* registers per multiprocessor */
    {95, 1},                                                 /* cooperative launch */
    {106, 32},                                               /* blocks per multiprocessor */
    {111, 1024}, /* shared memory that the driver keeps per block */
};

static int device_attribute(int ordinal, int attribute)
{
    const struct scenario_device *device = scenario_device(ordinal);
    if (attribute == 16)
        return device->sms;
    if (attribute == 75)
        return device->major;
    if (attribute == 76)
        return device->minor;
    if (attribute == 34)
        return ordinal;  /* PCI device */
    if (attribute == 81) /* shared memory per multiprocessor */
        return trace_mode() ? TRACE_SHARED_PER_SM_BYTES : SM_SHARED_BYTES;
    if (attribute == 97) /* shared memory per block after opting in */
        return device_shared_bytes();
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

EXPORTED unsigned cuDeviceGetAttribute(int *value, int attribute, int device);
unsigned cuDeviceGetAttribute(int *value, int attribute, int device)
{
    unsigned result = begin_device("cuDeviceGetAttribute", value, device);
    if (!result && (attribute <= 0 || attribute > 200))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *value = device_attribute(state.visible[device], attribute);
    return end_call(result);
}

/* --- contexts --------------------------------------------------------------------------------- */

static bool is_context(const struct CUctx_st *context)
{
    return context >= state.primary && context < state.primary + SCENARIO_DEVICES &&
           context->uses > 0;
}

static unsigned retain(const char *name, struct CUctx_st **out, int device)
{
    unsigned result = begin_device(name, out, device);
    if (!result)
        result = sticky_error();
    if (!result) {
        state.primary[device].device = device;
        state.primary[device].uses++;
        *out = &state.primary[device];
    }
    return result;
}

static void release(struct CUctx_st *context)
{
    if (--context->uses == 0 && current == context)
        current = NULL;
}

EXPORTED unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device);
unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    return end_call(retain("cuDevicePrimaryCtxRetain", context, device));
}

EXPORTED unsigned cuDevicePrimaryCtxRelease_v2(int device);
unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    unsigned result = begin_device("cuDevicePrimaryCtxRelease", &state, device);
    if (!result && state.primary[device].uses == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        release(&state.primary[device]);
    return end_call(result);
}

/* As measured on a real driver: it does not mend a context after a fault. */
EXPORTED unsigned cuDevicePrimaryCtxReset_v2(int device);
unsigned cuDevicePrimaryCtxReset_v2(int device)
{
    unsigned result = begin_device("cuDevicePrimaryCtxReset", &state, device);
    return end_call(result ? result : sticky_error());
}

/* A context of its own is the device's primary one here: the difference does not show. */
static unsigned create(struct CUctx_st **context, int device)
{
    unsigned result = retain("cuCtxCreate", context, device);
    if (!result)
        current = *context;
    return end_call(result);
}

EXPORTED unsigned cuCtxCreate_v2(struct CUctx_st **context, unsigned flags, int device);
unsigned cuCtxCreate_v2(struct CUctx_st **context, unsigned flags, int device)
{
    (void)flags;
    return create(context, device);
}

EXPORTED unsigned cuCtxCreate_v4(
    struct CUctx_st **context, void *params, unsigned flags, int device);
unsigned cuCtxCreate_v4(struct CUctx_st **context, void *params, unsigned flags, int device)
{
    (void)params;
    (void)flags;
    return create(context, device);
}

EXPORTED unsigned cuCtxDestroy_v2(struct CUctx_st *context);
unsigned cuCtxDestroy_v2(struct CUctx_st *context)
{
    unsigned result = begin("cuCtxDestroy", NEED_INIT);
    if (!result && !is_context(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        release(context);
    return end_call(result);
}

EXPORTED unsigned cuCtxSetCurrent(struct CUctx_st *context);
unsigned cuCtxSetCurrent(struct CUctx_st *context)
{
    unsigned result = begin("cuCtxSetCurrent", NEED_INIT);
    if (!result && context && !is_context(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        current = context;
    return end_call(result);
}

EXPORTED unsigned cuCtxGetCurrent(struct CUctx_st **context);
unsigned cuCtxGetCurrent(struct CUctx_st **context)
{
    unsigned result = begin("cuCtxGetCurrent", NEED_INIT);
    if (!result && !context)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *context = current;
    return end_call(result);
}

EXPORTED unsigned cuCtxGetDevice(int *device);
unsigned cuCtxGetDevice(int *device)
{
    unsigned result = begin("cuCtxGetDevice", NEED_CONTEXT);
    if (!result && !device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *device = current->device;
    return end_call(result);
}

EXPORTED unsigned cuCtxSynchronize(void);
unsigned cuCtxSynchronize(void)
{
    return end_call(begin("cuCtxSynchronize", NEED_CONTEXT));
}
