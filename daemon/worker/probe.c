#include "probe.h"
#include "client/proto.h"
#include "compile.h"
#include "gpu.h"
#include "nvml.h"
#include "pipe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE_LIMIT_S 60 /* a driver that never answers must not hang doctor */

static json_t *probe_nvrtc(struct libraries *libraries)
{
    static struct compiler compiler;
    struct tune_error err = {.code = TUNE_OK};
    json_t *nvrtc = json_object();
    bool is_working = compiler_init(&compiler, libraries, &err) == 0;
    json_object_set_new(nvrtc, "found", json_boolean(compiler.path[0] != '\0'));
    json_object_set_new(nvrtc, "works", json_boolean(is_working));
    if (!is_working)
        json_object_set_new(nvrtc, "error", json_string(err.text));
    if (compiler.path[0] == '\0')
        return nvrtc;
    json_t *archs = json_array();
    for (int i = 0; i < compiler.arch_count; i++)
        json_array_append_new(archs, json_integer(compiler.archs[i]));
    json_object_set_new(nvrtc, "version", json_sprintf("%d.%d", compiler.major, compiler.minor));
    json_object_set_new(nvrtc, "path", json_string(compiler.path));
    json_object_set_new(nvrtc, "archs", archs);
    json_object_set_new(nvrtc, "emulated", json_boolean(compiler.is_emulated));
    json_object_set_new(
        nvrtc, "include", compiler.include[0] ? json_string(compiler.include) : json_null());
    if (!compiler.include[0] && !compiler.is_emulated)
        json_object_set_new(nvrtc, "include_hint",
            json_string("no folder with cuda_fp16.h: kernels in f16 and bf16 will not compile; "
                        "install nvidia-cuda-toolkit or the Python wheel nvidia-cuda-runtime"));
    return nvrtc;
}

static json_t *probe_devices(struct gpu *gpu, struct libraries *libraries, json_t *answer)
{
    json_t *devices = json_array();
    bool has_nvml = false;
    for (int ordinal = 0; ordinal < gpu->device_count; ordinal++) {
        struct device_info info;
        struct tune_error err = {.code = TUNE_OK};
        if (gpu_describe(gpu, ordinal, &info, &err) < 0) {
            json_array_append_new(devices, json_pack("{ss}", "error", err.text));
            continue;
        }
        json_t *device = device_to_json(&info);
        static struct nvml nvml;
        bool is_found = nvml_init(&nvml, libraries, &info);
        has_nvml = has_nvml || is_found;
        if (is_found)
            json_object_set_new(device, "clocks", nvml_clocks(&nvml));
        nvml_finish(&nvml);
        json_array_append_new(devices, device);
    }
    json_object_set_new(answer, "nvml", json_boolean(has_nvml));
    return devices;
}

static json_t *probe_driver(struct libraries *libraries, json_t *answer)
{
    static struct gpu gpu;
    struct tune_error err = {.code = TUNE_OK};
    unsigned code = 0;
    int version = 0;
    json_t *driver = json_object();
    bool is_working = gpu_load(&gpu, libraries, &code, &err) == 0;
    json_object_set_new(driver, "found", json_boolean(gpu.path[0] != '\0'));
    json_object_set_new(driver, "works", json_boolean(is_working));
    if (gpu.path[0] != '\0') {
        gpu.api.cuDriverGetVersion(&version);
        json_object_set_new(driver, "path", json_string(gpu.path));
        json_object_set_new(
            driver, "cuda", json_sprintf("%d.%d", version / 1000, version % 1000 / 10));
    }
    if (!is_working) {
        json_object_set_new(driver, "error", json_string(err.text));
        json_object_set_new(driver, "code", json_integer(code));
        gpu.device_count = 0;
    }
    json_object_set_new(answer, "devices", probe_devices(&gpu, libraries, answer));
    return driver;
}

int probe_role(struct libraries *libraries)
{
    json_t *answer = json_pack("{ss}", "probe", TUNE_VERSION);
    /* Libraries and the emulator's compiler may print; the line must stand alone. */
    int output = dup(STDOUT_FILENO);
    if (output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return 1;
    alarm(PROBE_LIMIT_S);
    json_object_set_new(answer, "nvrtc", probe_nvrtc(libraries));
    json_object_set_new(answer, "driver", probe_driver(libraries, answer));
    json_object_set(answer, "tried", libraries->tried);
    size_t length = 0;
    char *line = proto_line(answer, &length);
    bool is_written = line && write(output, line, length) == (ssize_t)length;
    free(line);
    json_decref(answer);
    return is_written ? 0 : 1;
}

int devices_role(struct channel *channel, struct libraries *libraries)
{
    static struct gpu gpu;
    struct tune_error err = {.code = TUNE_OK};
    unsigned code = 0;
    json_t *devices = json_array();
    int result = gpu_load(&gpu, libraries, &code, &err);
    for (int ordinal = 0; result == 0 && ordinal < gpu.device_count; ordinal++) {
        struct device_info info;
        result = gpu_describe(&gpu, ordinal, &info, &err);
        if (result == 0)
            json_array_append_new(devices, device_to_json(&info));
    }
    json_t *hello =
        json_pack("{ss,si,so}", "hello", "devices", "pipe", PIPE_VERSION, "devices", devices);
    if (result < 0) {
        json_object_set_new(hello, "error", json_string(err.text));
        json_object_set_new(hello, "code", json_integer(code));
    }
    return channel_send(channel, hello, NULL) < 0 || result < 0 ? 1 : 0;
}

static json_t *device_load(const struct nvml *nvml, const char *uuid)
{
    struct abi_nvml_utilization utilization = {0};
    struct abi_nvml_memory memory = {0};
    if (nvml->api.nvmlDeviceGetUtilizationRates == NULL ||
        nvml->api.nvmlDeviceGetMemoryInfo == NULL ||
        nvml->api.nvmlDeviceGetUtilizationRates(nvml->device, &utilization) != 0 ||
        nvml->api.nvmlDeviceGetMemoryInfo(nvml->device, &memory) != 0 || memory.total == 0)
        return NULL;
    return json_pack("{ss,si,sf}", "uuid", uuid, "busy_percent", (int)utilization.gpu,
        "memory_percent", 100.0 * (double)memory.used / (double)memory.total);
}

int load_role(struct channel *channel, struct libraries *libraries, const char *uuids)
{
    json_t *devices = json_array();
    for (const char *at = uuids; *at != '\0'; at += *at == ',') {
        static struct nvml nvml;
        struct device_info info = {.arch = ""};
        size_t length = strcspn(at, ",");
        snprintf(info.uuid, sizeof info.uuid, "%.*s", (int)length, at);
        at += length;
        json_t *load = nvml_init(&nvml, libraries, &info) ? device_load(&nvml, info.uuid) : NULL;
        if (load != NULL)
            json_array_append_new(devices, load);
        nvml_finish(&nvml);
    }
    json_t *hello =
        json_pack("{ss,si,so}", "hello", "load", "pipe", PIPE_VERSION, "devices", devices);
    return channel_send(channel, hello, NULL) < 0 ? 1 : 0;
}
