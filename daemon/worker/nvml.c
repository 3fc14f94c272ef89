#include "nvml.h"

#include <string.h>
#include <time.h>

bool nvml_init(struct nvml *nvml, struct libraries *libraries, const struct device_info *device)
{
    *nvml = (struct nvml){.device = NULL};
    if (strcmp(device->arch, "cpu") == 0) /* a stand-in for the driver has no card to ask about */
        return false;
    if (libraries_nvml(libraries, &nvml->api, nvml->path, NULL) < 0 || nvml->api.nvmlInit() != 0)
        return false;
    if (nvml->api.nvmlDeviceGetHandleByUUID(device->uuid, &nvml->device) != 0) {
        nvml->device = NULL;
        nvml->api.nvmlShutdown();
    }
    return nvml->device != NULL;
}

void nvml_finish(struct nvml *nvml)
{
    if (nvml->device)
        nvml->api.nvmlShutdown();
    nvml->device = NULL;
    json_decref(nvml->clocks);
    nvml->clocks = NULL;
}

static json_t *read_clocks(const struct nvml *nvml)
{
    unsigned sm_mhz = 0, memory_mhz = 0, celsius = 0;
    unsigned long long reasons = 0;
    if (nvml->device) {
        nvml->api.nvmlDeviceGetClockInfo(nvml->device, ABI_NVML_CLOCK_SM, &sm_mhz);
        nvml->api.nvmlDeviceGetClockInfo(nvml->device, ABI_NVML_CLOCK_MEMORY, &memory_mhz);
        nvml->api.nvmlDeviceGetTemperature(nvml->device, ABI_NVML_TEMPERATURE_GPU, &celsius);
        nvml->api.nvmlDeviceGetThrottleReasons(nvml->device, &reasons);
    }
    return json_pack("{sI,sI,sI,sI}", "sm_mhz", (json_int_t)sm_mhz, "memory_mhz",
        (json_int_t)memory_mhz, "temperature_c", (json_int_t)celsius, "throttle_reasons",
        (json_int_t)reasons);
}

json_t *nvml_clocks(struct nvml *nvml)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (!nvml->clocks || now_ms - nvml->read_ms > NVML_FRESH_MS) {
        json_decref(nvml->clocks);
        nvml->clocks = read_clocks(nvml);
        nvml->read_ms = now_ms;
    }
    return json_incref(nvml->clocks);
}
