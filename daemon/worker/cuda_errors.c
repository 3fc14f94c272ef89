#include "cuda_errors.h"
#include "client/proto.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define KEEP false
#define LOST true
#define CANDIDATE BLAME_CANDIDATE
#define DEVICE BLAME_DEVICE
#define FINAL false
#define RETRY true

/* code, name, context, blame, outcome, another try, hint */
static const struct cuda_error errors[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", KEEP, CANDIDATE, "over_limits", FINAL,
        "the device has not that much free memory: take a smaller shape, or end what else uses it"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", LOST, DEVICE, "crashed", RETRY, NULL},
    {4, "CUDA_ERROR_DEINITIALIZED", LOST, DEVICE, "crashed", RETRY, NULL},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", LOST, DEVICE, "crashed", RETRY,
        "another process holds the device (exclusive mode)"},
    {100, "CUDA_ERROR_NO_DEVICE", LOST, DEVICE, "crashed", FINAL, NULL},
    {101, "CUDA_ERROR_INVALID_DEVICE", LOST, DEVICE, "crashed", FINAL, NULL},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", LOST, DEVICE, "crashed", FINAL, NULL},
    {200, "CUDA_ERROR_INVALID_IMAGE", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {201, "CUDA_ERROR_INVALID_CONTEXT", LOST, DEVICE, "crashed", RETRY, NULL},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", KEEP, CANDIDATE, "launch_failed", FINAL,
        "the image was compiled for another architecture"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", LOST, DEVICE, "crashed", FINAL,
        "the card has uncorrectable memory errors: reset or replace it"},
    {218, "CUDA_ERROR_INVALID_PTX", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", LOST, DEVICE, "crashed", FINAL, NULL},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", KEEP, CANDIDATE, "launch_failed", FINAL,
        "the driver's libnvidia-ptxjitcompiler is missing"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", KEEP, CANDIDATE, "launch_failed", FINAL,
        "the compiler is newer than the driver: update the driver, or compile for the exact sm_NN"},
    {300, "CUDA_ERROR_INVALID_SOURCE", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", KEEP, CANDIDATE, "launch_failed", FINAL,
        NULL},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", LOST, DEVICE, "crashed", RETRY, NULL},
    {400, "CUDA_ERROR_INVALID_HANDLE", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {500, "CUDA_ERROR_NOT_FOUND", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {600, "CUDA_ERROR_NOT_READY", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", LOST, CANDIDATE, "crashed", RETRY,
        "the kernel reads or writes outside its buffers"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", KEEP, CANDIDATE, "launch_failed", FINAL,
        "too many registers or threads per block"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", LOST, CANDIDATE, "timeout", FINAL,
        "the system ends long kernels on a card that drives a screen: use smaller shapes, or "
        "another "
        "card"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", LOST, DEVICE, "crashed", RETRY, NULL},
    {710, "CUDA_ERROR_ASSERT", LOST, CANDIDATE, "crashed", RETRY,
        "an assert() in the kernel failed"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", LOST, CANDIDATE, "crashed", RETRY, NULL},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", LOST, CANDIDATE, "crashed", RETRY, NULL},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", LOST, CANDIDATE, "crashed", RETRY,
        "an access is not aligned to its size"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", LOST, CANDIDATE, "crashed", RETRY, NULL},
    {718, "CUDA_ERROR_INVALID_PC", LOST, CANDIDATE, "crashed", RETRY, NULL},
    {719, "CUDA_ERROR_LAUNCH_FAILED", LOST, CANDIDATE, "crashed", RETRY, NULL},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", KEEP, CANDIDATE, "over_limits", FINAL,
        "a cooperative launch needs all its blocks on the device at once"},
    {800, "CUDA_ERROR_NOT_PERMITTED", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {801, "CUDA_ERROR_NOT_SUPPORTED", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", LOST, DEVICE, "crashed", RETRY,
        "the fabric manager may not be running"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", LOST, DEVICE, "crashed", FINAL,
        "driver and library differ in version: restart the machine after the driver's update"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", LOST, DEVICE, "crashed", FINAL, NULL},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", LOST, DEVICE, "crashed", RETRY, NULL},
    {806, "CUDA_ERROR_MPS_RPC_FAILURE", LOST, DEVICE, "crashed", RETRY, NULL},
    {807, "CUDA_ERROR_MPS_SERVER_NOT_READY", LOST, DEVICE, "crashed", RETRY, NULL},
    {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", LOST, DEVICE, "crashed", RETRY, NULL},
    {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", LOST, DEVICE, "crashed", RETRY, NULL},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {907, "CUDA_ERROR_CAPTURED_EVENT", KEEP, CANDIDATE, "launch_failed", FINAL, NULL},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", KEEP, CANDIDATE, "over_limits", FINAL, NULL},
    {999, "CUDA_ERROR_UNKNOWN", LOST, DEVICE, "crashed", RETRY,
        "the card may have dropped off the bus: see the kernel's log"},
};

static const struct cuda_error unknown = {
    0, "an unknown driver error", LOST, CANDIDATE, "crashed", RETRY, NULL};

const struct cuda_error *cuda_error_find(unsigned code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].code == code)
            return &errors[i];
    return &unknown;
}

int verdict_set(struct verdict *verdict, const char *outcome, const char *format, ...)
{
    if (verdict->outcome)
        return -1;
    va_list list;
    va_start(list, format);
    vsnprintf(verdict->text, sizeof(verdict->text), format, list);
    va_end(list);
    verdict->outcome = outcome;
    return -1;
}

int verdict_cuda(struct verdict *verdict, unsigned code, const char *format, ...)
{
    if (verdict->outcome)
        return -1;
    const struct cuda_error *error = cuda_error_find(code);
    char doing[200];
    va_list list;
    va_start(list, format);
    vsnprintf(doing, sizeof(doing), format, list);
    va_end(list);
    verdict_set(verdict, error->outcome, "%s: %s (code %u)%s%s", doing, error->name, code,
        error->hint ? "; " : "", error->hint ? error->hint : "");
    verdict->code = code;
    verdict->is_sticky = error->is_sticky;
    verdict->is_retried = error->is_retried;
    verdict->blame = error->blame;
    return -1;
}

void verdict_to_json(const struct verdict *verdict, json_t *answer)
{
    json_object_set_new(answer, "outcome", json_string(verdict->outcome ? verdict->outcome : "ok"));
    json_object_set_new(answer, "sticky", json_boolean(verdict->is_sticky));
    if (!verdict->outcome)
        return;
    /* Names come from requests, which are UTF-8, but a cut may have split a character. */
    json_object_set_new(answer, "error", proto_text(verdict->text));
    json_object_set_new(answer, "code", json_integer(verdict->code));
    json_object_set_new(
        answer, "blame", json_string(verdict->blame == BLAME_DEVICE ? "device" : "candidate"));
    json_object_set_new(answer, "retry", json_boolean(verdict->is_retried));
}
