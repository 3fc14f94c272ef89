/* One device through the driver API: chosen, described, and with the context and stream that the
 * bench role works on. */
#ifndef TUNE_WORKER_GPU_H
#define TUNE_WORKER_GPU_H

#include "cuda_abi.h"
#include "cuda_errors.h"
#include "libraries.h"
#include "plugins/device.h"

#include <limits.h>

struct gpu {
    struct cuda_api api;
    char path[PATH_MAX];
    int device_count;
    int device;
    struct device_info info;
    struct CUctx_st *context; /* the device's primary one */
    struct CUstream_st *stream;
};

/* Loads and initialises the driver. *code gets the driver's number when it refused, else 0. */
int gpu_load(struct gpu *gpu, struct libraries *libraries, unsigned *code, struct tune_error *err);

/* Describes the device of an ordinal in this process's view. */
int gpu_describe(struct gpu *gpu, int ordinal, struct device_info *info, struct tune_error *err);

/* Picks a device: an ordinal, a UUID or a unique beginning of one; NULL: the first. */
int gpu_select(struct gpu *gpu, const char *wanted, struct tune_error *err);

/* Makes context and stream. *code as above. */
int gpu_start(struct gpu *gpu, unsigned *code, struct tune_error *err);
void gpu_stop(struct gpu *gpu);

/* True when a refusal with this code may pass: another process holds the device. */
bool gpu_is_busy_code(unsigned code);

/* Waits for the stream and reports what went wrong on it as `doing`'s fault. */
int gpu_wait(struct gpu *gpu, const char *doing, struct verdict *verdict);

/* From the host, and there when it returns; the driver's code. The driver's own copy from pageable
 * memory may return before it has ended, and nothing orders that before what the stream does next.
 */
unsigned gpu_upload(struct gpu *gpu, uint64_t to, const void *from, size_t bytes);

#endif
