/* The stand-in libcuda: start, devices, contexts, modules, functions and memory. Streams, events,
 * graphs and launches are in stream.c. */
#include "driver.h"
#include "memory.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    bool is_initialized, is_forked;
    int visible[SCENARIO_DEVICES], visible_count; /* ordinals in the scenario */
    struct CUctx_st primary[SCENARIO_DEVICES];
    unsigned sticky; /* error of a kernel: every call on a context fails with it */
    unsigned fatal;  /* the scenario's: every call fails with it */
    char last_entry[256];
    char *last_defines;
} state;

static _Thread_local struct CUctx_st *current;

/* --- what every call does -----------------------------------------------------------------------
 */

void set_sticky(unsigned error, bool in_every_call)
{
    unsigned *kept = in_every_call ? &state.fatal : &state.sticky;
    if (!*kept)
        *kept = error;
}

unsigned sticky_error(void)
{
    return state.fatal ? state.fatal : state.sticky;
}

int current_device(void)
{
    return current ? state.visible[current->device] : -1;
}

const struct scenario_device *current_scenario_device(void)
{
    return scenario_device(current_device());
}

void note_launch(const struct CUfunc_st *function)
{
    snprintf(state.last_entry, sizeof state.last_entry, "%s", function->kernel->image->name);
    free(state.last_defines);
    state.last_defines = strdup(function->module->loaded->image->defines);
}

unsigned begin_call(const char *name, enum need need, const struct CUfunc_st *function,
    struct scenario_effect *effect)
{
    struct scenario_call call = {.call = name, .device = current_device()};
    pthread_mutex_lock(&lock);
    if (function) {
        call.entry = function->kernel->image->name;
        call.defines = function->module->loaded->image->defines;
    } else if (state.last_defines) {
        call.entry = state.last_entry;
        call.defines = state.last_defines;
    }
    if (state.fatal)
        return state.fatal;
    if (need == NEED_CONTEXT && state.sticky)
        return state.sticky;
    if (need != NEED_NOTHING && !state.is_initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (need == NEED_CONTEXT && !current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *effect = scenario_apply(&call);
    if (effect->error && effect->is_sticky)
        set_sticky(effect->error, true);
    return effect->error;
}

unsigned begin(const char *name, enum need need)
{
    struct scenario_effect effect;
    return begin_call(name, need, NULL, &effect);
}

unsigned end_call(unsigned result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- start --------------------------------------------------------------------------------------
 */

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
static void choose_devices(void)
{
    const char *word = getenv("CUDA_VISIBLE_DEVICES");
    if (!word) {
        for (int i = 0; i < scenario_device_count(); i++)
            state.visible[state.visible_count++] = i;
        return;
    }
    while (state.visible_count < SCENARIO_DEVICES) {
        size_t length = strcspn(word, ",");
        int device = named_device(word, length);
        for (int i = 0; i < state.visible_count; i++)
            if (state.visible[i] == device)
                device = -1;
        if (device < 0)
            return;
        state.visible[state.visible_count++] = device;
        if (word[length] == '\0')
            return;
        word += length + 1;
    }
}

/* A real driver does not survive a fork either. */
static void on_fork(void)
{
    state.is_initialized = false;
    state.is_forked = true;
}

EXPORTED unsigned cuInit(unsigned flags);
unsigned cuInit(unsigned flags)
{
    unsigned result = begin("cuInit", NEED_NOTHING);
    if (!result && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && state.is_forked)
        result = CUDA_ERROR_NOT_INITIALIZED;
    if (!result && !state.is_initialized) {
        choose_devices();
        pthread_atfork(NULL, NULL, on_fork);
        state.is_initialized = state.visible_count > 0;
        result = state.is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
    }
    return end_call(result);
}

EXPORTED unsigned cuDriverGetVersion(int *version);
unsigned cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = scenario_driver_version();
    return CUDA_SUCCESS;
}

/* --- devices ------------------------------------------------------------------------------------
 */

static unsigned begin_device(const char *name, const void *out, int device)
{
    unsigned result = begin(name, NEED_INIT);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (device < 0 || device >= state.visible_count))
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
        *bytes = scenario_device(state.visible[device])->memory_bytes;
    return end_call(result);
}

/* CUdevice_attribute -> value. Those that the scenario decides are in device_attribute. */
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
    {81, 100 * 1024},                                        /* shared memory per multiprocessor */
    {82, 65536},                                             /* registers per multiprocessor */
    {95, 1},                                                 /* cooperative launch */
    {97, IMAGE_DYNAMIC_SHARED_BYTES}, /* shared memory per block after opting in */
    {106, 32},                        /* blocks per multiprocessor */
    {111, 1024},                      /* shared memory that the driver keeps per block */
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
        return ordinal; /* PCI device */
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

/* --- contexts -----------------------------------------------------------------------------------
 */

static bool is_context(const struct CUctx_st *context)
{
    return context >= state.primary && context < state.primary + SCENARIO_DEVICES &&
           context->uses > 0;
}

static unsigned retain(const char *name, struct CUctx_st **out, int device)
{
    unsigned result = begin_device(name, out, device);
    if (!result && state.sticky)
        result = state.sticky;
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

/* --- modules ------------------------------------------------------------------------------------
 */

void module_keep(struct CUmod_st *module)
{
    module->uses++;
}

void module_drop(struct CUmod_st *module)
{
    if (--module->uses > 0)
        return;
    loader_close(module->loaded);
    free(module->functions);
    free(module);
}

/* Whether code for `arch` runs on the device: "cpu" on the emulator's own, sm_MN on M.n >= N,
 * sm_MNa on the very one, compute_MN on everything newer. */
static bool arch_runs(const char *arch, const struct scenario_device *device)
{
    int have = 10 * device->major + device->minor;
    if (strcmp(arch, "cpu") == 0)
        return have == 0;
    bool is_virtual = strncmp(arch, "compute_", 8) == 0;
    char *suffix;
    long wants = strtol(arch + (is_virtual ? 8 : 3), &suffix, 10);
    if (*suffix == 'a')
        return wants == have;
    return is_virtual ? wants <= have : wants / 10 == have / 10 && wants <= have;
}

static unsigned check_image(const char *image)
{
    Elf64_Ehdr header;
    if (memcmp(image, ELFMAG, SELFMAG) != 0)
        return isprint((unsigned char)*image) ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, image, sizeof header);
    if (header.e_machine == EM_CUDA)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return loader_image_bytes(image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static unsigned load_module(struct CUmod_st **out, const void *image)
{
    char text[512];
    unsigned result = check_image(image);
    if (result)
        return result;
    struct CUmod_st *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->uses = 1;
    module->loaded = loader_open(image, loader_image_bytes(image), text, sizeof text);
    if (!module->loaded) {
        fprintf(stderr, "emulator: cannot load an image: %s\n", text);
        free(module);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    module->functions = calloc(module->loaded->kernel_count + 1, sizeof *module->functions);
    if (!module->functions || !arch_runs(module->loaded->image->arch, current_scenario_device())) {
        result = module->functions ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_OUT_OF_MEMORY;
        module_drop(module);
        return result;
    }
    for (size_t i = 0; i < module->loaded->kernel_count; i++) {
        const struct loaded_kernel *kernel = &module->loaded->kernels[i];
        module->functions[i] = (struct CUfunc_st){.module = module,
            .kernel = kernel,
            .registers = kernel->registers,
            .max_dynamic_shared = kernel->static_shared < LOADER_STATIC_SHARED_LIMIT
                                      ? LOADER_STATIC_SHARED_LIMIT - kernel->static_shared
                                      : 0};
    }
    *out = module;
    return CUDA_SUCCESS;
}

EXPORTED unsigned cuModuleLoadData(struct CUmod_st **module, const void *image);
unsigned cuModuleLoadData(struct CUmod_st **module, const void *image)
{
    unsigned result = begin("cuModuleLoadData", NEED_CONTEXT);
    if (!result && (!module || !image))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = load_module(module, image);
    return end_call(result);
}

EXPORTED unsigned cuModuleLoadDataEx(
    struct CUmod_st **module, const void *image, unsigned count, int *options, void **values);
unsigned cuModuleLoadDataEx(
    struct CUmod_st **module, const void *image, unsigned count, int *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(module, image);
}

EXPORTED unsigned cuModuleUnload(struct CUmod_st *module);
unsigned cuModuleUnload(struct CUmod_st *module)
{
    unsigned result = begin("cuModuleUnload", NEED_CONTEXT);
    if (!result && !module)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result)
        module_drop(module);
    return end_call(result);
}

EXPORTED unsigned cuModuleGetFunction(
    struct CUfunc_st **function, struct CUmod_st *module, const char *name);
unsigned cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    struct scenario_effect effect;
    struct CUfunc_st *found = NULL;
    for (size_t i = 0; module && name && i < module->loaded->kernel_count; i++)
        if (strcmp(module->loaded->kernels[i].image->name, name) == 0)
            found = &module->functions[i];
    unsigned result = begin_call("cuModuleGetFunction", NEED_CONTEXT, found, &effect);
    if (!result && (!function || !module || !name))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && !found)
        result = CUDA_ERROR_NOT_FOUND;
    if (!result) {
        *function = found;
        found->registers = effect.registers ? effect.registers : found->registers;
    }
    return end_call(result);
}

EXPORTED unsigned cuModuleGetGlobal_v2(
    unsigned long long *pointer, size_t *bytes, struct CUmod_st *module, const char *name);
unsigned cuModuleGetGlobal_v2(
    unsigned long long *pointer, size_t *bytes, struct CUmod_st *module, const char *name)
{
    unsigned result = begin("cuModuleGetGlobal", NEED_CONTEXT);
    if (!result && (!module || !name))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return end_call(result);
    for (size_t i = 0; i < module->loaded->object_count; i++) {
        const struct loaded_object *object = &module->loaded->objects[i];
        if (object->is_shared || strcmp(object->name, name) != 0)
            continue;
        if (pointer)
            *pointer = object->address;
        if (bytes)
            *bytes = object->bytes;
        return end_call(CUDA_SUCCESS);
    }
    return end_call(CUDA_ERROR_NOT_FOUND);
}

/* --- functions ----------------------------------------------------------------------------------
 */

static uint32_t max_threads(const struct CUfunc_st *function)
{
    uint32_t by_registers = 65536 / (function->registers ? function->registers : 1) / 32 * 32;
    uint32_t bound = function->kernel->launch_bound ? function->kernel->launch_bound : 1024;
    return bound < by_registers ? bound : by_registers;
}

EXPORTED unsigned cuFuncGetAttribute(int *value, int attribute, struct CUfunc_st *function);
unsigned cuFuncGetAttribute(int *value, int attribute, struct CUfunc_st *function)
{
    struct scenario_effect effect;
    unsigned result = begin_call("cuFuncGetAttribute", NEED_CONTEXT, function, &effect);
    if (!result && (!value || !function || attribute < 0 || attribute > 15))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return end_call(result);
    switch (attribute) {
    case 0:
        *value = (int)max_threads(function);
        break;
    case 1:
        *value = (int)function->kernel->static_shared;
        break;
    case 4:
        *value = (int)function->registers;
        break;
    case 8:
        *value = (int)function->max_dynamic_shared;
        break;
    case 9:
        *value = -1; /* carve-out: the driver's choice */
        break;
    default:
        *value = 0;
    }
    return end_call(CUDA_SUCCESS);
}

EXPORTED unsigned cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value);
unsigned cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value)
{
    struct scenario_effect effect;
    unsigned result = begin_call("cuFuncSetAttribute", NEED_CONTEXT, function, &effect);
    if (!result && !function)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && (attribute < 8 || attribute > 15))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && attribute == 8) {
        int room = IMAGE_DYNAMIC_SHARED_BYTES - (int)function->kernel->static_shared;
        if (value < 0 || value > room)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            function->max_dynamic_shared = (uint32_t)value;
    }
    return end_call(result);
}

EXPORTED unsigned cuFuncSetCacheConfig(struct CUfunc_st *function, unsigned config);
unsigned cuFuncSetCacheConfig(struct CUfunc_st *function, unsigned config)
{
    (void)function;
    (void)config;
    return end_call(begin("cuFuncSetCacheConfig", NEED_CONTEXT));
}

EXPORTED unsigned cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, struct CUfunc_st *function, int threads, size_t dynamic_shared);
unsigned cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, struct CUfunc_st *function, int threads, size_t dynamic_shared)
{
    unsigned result = begin("cuOccupancyMaxActiveBlocksPerMultiprocessor", NEED_CONTEXT);
    if (!result && (!blocks || !function || threads <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *blocks =
            dynamic_shared > IMAGE_DYNAMIC_SHARED_BYTES
                ? 0
                : function_blocks_per_sm(function, (uint32_t)threads, (uint32_t)dynamic_shared);
    return end_call(result);
}

/* --- memory -------------------------------------------------------------------------------------
 */

bool is_device_range(uintptr_t address, size_t bytes)
{
    Dl_info info;
    if (memory_find(address, bytes))
        return true;
    /* A module's variable: the image is a library with this name (loader.c). */
    return dladdr((void *)address, &info) && strncmp(info.dli_fname, "/proc/self/fd/", 14) == 0;
}

EXPORTED unsigned cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
unsigned cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    unsigned result = begin("cuMemAlloc", NEED_CONTEXT);
    if (!result && (!pointer || bytes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        uintptr_t address =
            memory_allocate(current_device(), bytes, current_scenario_device()->memory_bytes);
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
        *total_bytes = current_scenario_device()->memory_bytes;
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

/* --- entry points by name -----------------------------------------------------------------------
 */

EXPORTED unsigned cuGetProcAddress_v2(
    const char *name, void **out, int version, unsigned long long flags, int *status);
unsigned cuGetProcAddress_v2(
    const char *name, void **out, int version, unsigned long long flags, int *status)
{
    static const char *const suffixes[] = {"_v4", "_v2", ""};
    Dl_info info;
    (void)flags;
    if (!name || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    void *self = dladdr(&lock, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (size_t i = version >= 13000 ? 0 : 1; self && !*out && i < 3; i++) {
        char symbol[128];
        snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[i]);
        *out = dlsym(self, symbol);
    }
    if (self)
        dlclose(self);
    if (status)
        *status = *out ? 0 : 1; /* 1: symbol not found */
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
