/* Modules and their functions. */
#include "driver.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- modules ---------------------------------------------------------------------------------- */

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

/* --- functions -------------------------------------------------------------------------------- */

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
        int room = device_shared_bytes() - (int)function->kernel->static_shared;
        if (value < 0 || value > room)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            function->max_dynamic_shared = (uint32_t)value;
    }
    if (!result && attribute == 14)
        function->may_have_large_clusters = value != 0;
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
            dynamic_shared > (size_t)device_shared_bytes()
                ? 0
                : function_blocks_per_sm(function, (uint32_t)threads, (uint32_t)dynamic_shared);
    return end_call(result);
}
