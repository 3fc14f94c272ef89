#include "gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int refuse(
    unsigned result, unsigned *code, struct tune_error *err, const char *doing, enum tune_code kind)
{
    const struct cuda_error *error = cuda_error_find(result);
    *code = result;
    return tune_fail(err, kind, "%s: %s (code %u)%s%s", doing, error->name, result,
        error->hint ? "; " : "", error->hint ? error->hint : "");
}

int gpu_load(struct gpu *gpu, struct libraries *libraries, unsigned *code, struct tune_error *err)
{
    *gpu = (struct gpu){.device = -1};
    *code = 0;
    if (libraries_cuda(libraries, &gpu->api, gpu->path, err) < 0)
        return -1;
    unsigned result = gpu->api.cuInit(0);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuDeviceGetCount(&gpu->device_count);
    if (result == ABI_SUCCESS && gpu->device_count == 0)
        result = ABI_NO_DEVICE;
    if (result == ABI_NO_DEVICE) {
        *code = result;
        return tune_fail(err, TUNE_ENODEVICE,
            "the driver sees no GPU here (CUDA_VISIBLE_DEVICES is %s)",
            getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    }
    if (result != ABI_SUCCESS)
        return refuse(result, code, err, "the CUDA driver does not start", TUNE_ENODEVICE);
    return 0;
}

/* Which driver attribute fills which of ours; what is not listed comes from elsewhere. */
static const struct {
    enum device_attribute slot;
    unsigned attribute;
} attributes[] = {
    {DEVICE_sms, ABI_ATTR_MULTIPROCESSOR_COUNT},
    {DEVICE_warp, ABI_ATTR_WARP_SIZE},
    {DEVICE_max_threads, ABI_ATTR_MAX_THREADS_PER_BLOCK},
    {DEVICE_max_block_x, ABI_ATTR_MAX_BLOCK_DIM_X},
    {DEVICE_max_block_y, ABI_ATTR_MAX_BLOCK_DIM_Y},
    {DEVICE_max_block_z, ABI_ATTR_MAX_BLOCK_DIM_Z},
    {DEVICE_max_grid_x, ABI_ATTR_MAX_GRID_DIM_X},
    {DEVICE_max_grid_y, ABI_ATTR_MAX_GRID_DIM_Y},
    {DEVICE_max_grid_z, ABI_ATTR_MAX_GRID_DIM_Z},
    {DEVICE_smem_block, ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK},
    {DEVICE_smem_optin, ABI_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {DEVICE_smem_sm, ABI_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {DEVICE_regs_block, ABI_ATTR_MAX_REGISTERS_PER_BLOCK},
    {DEVICE_regs_sm, ABI_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {DEVICE_threads_sm, ABI_ATTR_MAX_THREADS_PER_MULTIPROCESSOR},
    {DEVICE_l2_bytes, ABI_ATTR_L2_CACHE_SIZE},
    {DEVICE_clock_khz, ABI_ATTR_CLOCK_RATE},
    {DEVICE_memory_clock_khz, ABI_ATTR_MEMORY_CLOCK_RATE},
    {DEVICE_memory_bus_bits, ABI_ATTR_GLOBAL_MEMORY_BUS_WIDTH},
};

static void describe_uuid(struct gpu *gpu, int device, struct device_info *info)
{
    struct abi_uuid uuid = {{0}};
    gpu->api.cuDeviceGetUuid(&uuid, device);
    /* The driver gives bytes only; a slice of a card carries MIG in its name, and is a device of
     * its own. */
    int used = snprintf(
        info->uuid, sizeof(info->uuid), "%s-", strstr(info->name, " MIG ") ? "MIG" : "GPU");
    for (int i = 0; i < 16; i++)
        used += snprintf(info->uuid + used, sizeof(info->uuid) - (size_t)used, "%s%02x",
            i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
}

int gpu_describe(struct gpu *gpu, int ordinal, struct device_info *info, struct tune_error *err)
{
    int device, major = 0, minor = 0, value;
    size_t bytes = 0;
    unsigned code;
    *info = (struct device_info){.ordinal = ordinal};
    unsigned result = gpu->api.cuDeviceGet(&device, ordinal);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuDeviceGetName(info->name, sizeof(info->name), device);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuDeviceTotalMem(&bytes, device);
    if (result != ABI_SUCCESS)
        return refuse(result, &code, err, "the device cannot be asked what it is", TUNE_ENODEVICE);
    describe_uuid(gpu, device, info);
    gpu->api.cuDriverGetVersion(&info->driver);
    gpu->api.cuDeviceGetAttribute(&major, ABI_ATTR_COMPUTE_CAPABILITY_MAJOR, device);
    gpu->api.cuDeviceGetAttribute(&minor, ABI_ATTR_COMPUTE_CAPABILITY_MINOR, device);
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++) {
        value = 0;
        gpu->api.cuDeviceGetAttribute(&value, attributes[i].attribute, device);
        info->attributes[attributes[i].slot] = value;
    }
    info->attributes[DEVICE_sm] = 10 * major + minor;
    info->attributes[DEVICE_memory_bytes] = (int64_t)bytes;
    if (info->attributes[DEVICE_smem_optin] == 0)
        info->attributes[DEVICE_smem_optin] = info->attributes[DEVICE_smem_block];
    snprintf(info->arch, sizeof(info->arch), major || minor ? "sm_%d" : "cpu", 10 * major + minor);
    return 0;
}

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

static int select_by_uuid(struct gpu *gpu, const char *wanted, struct tune_error *err)
{
    int found = -1;
    for (int ordinal = 0; ordinal < gpu->device_count; ordinal++) {
        struct device_info info;
        if (gpu_describe(gpu, ordinal, &info, err) < 0)
            return -1;
        if (strncasecmp(info.uuid, wanted, strlen(wanted)) != 0)
            continue;
        if (found >= 0)
            return tune_fail(err, TUNE_ENODEVICE, "more than one device begins with %.60s", wanted);
        found = ordinal;
    }
    if (found < 0)
        return tune_fail(err, TUNE_ENODEVICE, "no device is called %.60s; %d are visible", wanted,
            gpu->device_count);
    gpu->device = found;
    return 0;
}

int gpu_select(struct gpu *gpu, const char *wanted, struct tune_error *err)
{
    if (!wanted || is_number(wanted)) {
        long ordinal = wanted ? strtol(wanted, NULL, 10) : 0;
        if (ordinal >= gpu->device_count)
            return tune_fail(err, TUNE_ENODEVICE, "there is no device %ld; %d are visible", ordinal,
                gpu->device_count);
        gpu->device = (int)ordinal;
    } else if (*wanted == '\0' || select_by_uuid(gpu, wanted, err) < 0) {
        return tune_fail(err, TUNE_ENODEVICE, "the device's name is empty");
    }
    return gpu_describe(gpu, gpu->device, &gpu->info, err);
}

bool gpu_is_busy_code(unsigned code)
{
    return code == ABI_OUT_OF_MEMORY || code == 46 || (code >= 805 && code <= 809);
}

int gpu_start(struct gpu *gpu, unsigned *code, struct tune_error *err)
{
    int device;
    *code = 0;
    unsigned result = gpu->api.cuDeviceGet(&device, gpu->device);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuDevicePrimaryCtxRetain(&gpu->context, device);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuCtxSetCurrent(gpu->context);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuStreamCreate(&gpu->stream, ABI_STREAM_NON_BLOCKING);
    if (result != ABI_SUCCESS)
        return refuse(result, code, err, "no context on the device", TUNE_ENODEVICE);
    return 0;
}

void gpu_stop(struct gpu *gpu)
{
    int device;
    if (gpu->stream)
        gpu->api.cuStreamDestroy(gpu->stream);
    if (gpu->context && gpu->api.cuDeviceGet(&device, gpu->device) == ABI_SUCCESS)
        gpu->api.cuDevicePrimaryCtxRelease(device);
    gpu->stream = NULL;
    gpu->context = NULL;
}

int gpu_wait(struct gpu *gpu, const char *doing, struct verdict *verdict)
{
    unsigned result = gpu->api.cuStreamSynchronize(gpu->stream);
    if (result == ABI_SUCCESS)
        result = gpu->api.cuCtxSynchronize();
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "%s", doing);
}

unsigned gpu_upload(struct gpu *gpu, uint64_t to, const void *from, size_t bytes)
{
    unsigned result = gpu->api.cuMemcpyHtoD(to, from, bytes);
    return result == ABI_SUCCESS ? gpu->api.cuStreamSynchronize(NULL) : result;
}
