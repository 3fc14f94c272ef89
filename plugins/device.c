/* See device.h. */
#include "device.h"

#include "client/proto.h"

#include <stdio.h>
#include <string.h>

const char *const device_attribute_names[DEVICE_ATTRIBUTE_COUNT] = {
#define X(name, meaning) #name,
    DEVICE_ATTRIBUTES(X)
#undef X
};

json_t *device_to_json(const struct device_info *device)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:i, s:i}", "name", device->name, "uuid",
        device->uuid, "arch", device->arch, "ordinal", device->ordinal, "driver", device->driver);
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++) {
        if (json_object_set_new(
                json, device_attribute_names[i], json_integer(device->attributes[i]))) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static int read_text(
    const json_t *json, const char *key, char *out, size_t size, struct tune_error *err)
{
    const char *text;
    if (proto_string(json, key, &text, err))
        return -1;
    if (text[0] == '\0' || strlen(text) >= size)
        return tune_fail(
            err, TUNE_EINVAL, "device field \"%s\" must have 1 to %zu bytes", key, size - 1);
    strcpy(out, text);
    return 0;
}

int device_from_json(const json_t *json, struct device_info *device, struct tune_error *err)
{
    memset(device, 0, sizeof *device);
    if (!json_is_object(json))
        return tune_fail(err, TUNE_EINVAL, "a device must be a JSON object");
    int64_t ordinal, driver;
    if (read_text(json, "name", device->name, sizeof device->name, err) ||
        read_text(json, "uuid", device->uuid, sizeof device->uuid, err) ||
        read_text(json, "arch", device->arch, sizeof device->arch, err) ||
        proto_int(json, "ordinal", 0, 1 << 16, &ordinal, err) ||
        proto_int(json, "driver", 0, INT32_MAX, &driver, err))
        return -1;
    device->ordinal = (int)ordinal;
    device->driver = (int)driver;
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++)
        if (proto_int(json, device_attribute_names[i], 0, INT64_MAX, &device->attributes[i], err))
            return -1;
    return 0;
}

/* What differs between architectures, from the CUDA programming guide's table of compute
 * capabilities; everything else has been the same since 7.0. */
static const struct {
    int sm, smem_sm_kib, threads_sm, cores_per_sm;
} architectures[] = {
    {70, 96, 2048, 64},
    {72, 96, 2048, 64},
    {75, 64, 1024, 64},
    {80, 164, 2048, 64},
    {86, 100, 1536, 128},
    {87, 164, 1536, 128},
    {88, 100, 1536, 128},
    {89, 100, 1536, 128},
    {90, 228, 2048, 128},
    {100, 228, 2048, 128},
    {103, 228, 2048, 128},
    {110, 228, 1536, 128},
    {120, 100, 1536, 128},
    {121, 100, 1536, 128},
};

static void set_common_limits(int64_t *attributes)
{
    attributes[DEVICE_warp] = 32;
    attributes[DEVICE_max_threads] = 1024;
    attributes[DEVICE_max_block_x] = 1024;
    attributes[DEVICE_max_block_y] = 1024;
    attributes[DEVICE_max_block_z] = 64;
    attributes[DEVICE_max_grid_x] = INT32_MAX;
    attributes[DEVICE_max_grid_y] = 65535;
    attributes[DEVICE_max_grid_z] = 65535;
    attributes[DEVICE_smem_block] = 48 << 10;
    attributes[DEVICE_regs_block] = 65536;
    attributes[DEVICE_regs_sm] = 65536;
}

static int unknown_architecture(const char *arch, struct tune_error *err)
{
    char list[160] = "";
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%ssm_%d", i ? " " : "", architectures[i].sm);
    }
    return tune_fail(
        err, TUNE_ENOTFOUND, "unknown architecture \"%.32s\"; there are: %s", arch, list);
}

int device_generic(const char *arch, struct device_info *device, struct tune_error *err)
{
    memset(device, 0, sizeof *device);
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "sm_%d", architectures[i].sm);
        if (strcmp(name, arch) != 0)
            continue;
        int64_t smem_sm = (int64_t)architectures[i].smem_sm_kib << 10;
        set_common_limits(device->attributes);
        device->attributes[DEVICE_sm] = architectures[i].sm;
        device->attributes[DEVICE_sms] = 1;
        device->attributes[DEVICE_smem_sm] = smem_sm;
        /* The system keeps 1 KiB per block for itself from 8.0 on. */
        device->attributes[DEVICE_smem_optin] = architectures[i].sm < 80 ? smem_sm : smem_sm - 1024;
        device->attributes[DEVICE_threads_sm] = architectures[i].threads_sm;
        strcpy(device->arch, name);
        snprintf(device->name, sizeof device->name, "any %s", name);
        snprintf(device->uuid, sizeof device->uuid, "none-%s", name);
        return 0;
    }
    return unknown_architecture(arch, err);
}

double device_peak_flops_f32(const struct device_info *device)
{
    const int64_t *attributes = device->attributes;
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        if (architectures[i].sm == attributes[DEVICE_sm])
            return 2.0 * architectures[i].cores_per_sm * (double)attributes[DEVICE_sms] *
                   (double)attributes[DEVICE_clock_khz] * 1e3;
    return 0;
}

double device_peak_bytes_per_s(const struct device_info *device)
{
    const int64_t *attributes = device->attributes;
    if (attributes[DEVICE_sm] == 0)
        return 0;
    /* Two transfers per clock: every memory in use is double data rate. */
    return 2.0 * (double)attributes[DEVICE_memory_clock_khz] * 1e3 *
           (double)attributes[DEVICE_memory_bus_bits] / 8;
}
