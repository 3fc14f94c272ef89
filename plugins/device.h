/* What expressions, geometry checks and records know of a device: plain data, no driver.
 *
 * The bench worker fills it from the driver and sends it as JSON in its hello; the daemon keeps it,
 * and tests make their own. The emulated device has sm 0 and arch "cpu". */
#ifndef TUNE_DEVICE_H
#define TUNE_DEVICE_H

#include "client/error.h"

#include <jansson.h>
#include <stdint.h>

/* X(field, meaning): the names are also those of expressions and of the JSON form. */
#define DEVICE_ATTRIBUTES(X)                                                                       \
    X(sm, "compute capability as 10*major+minor; 0 on the emulated device")                        \
    X(sms, "streaming multiprocessors")                                                            \
    X(warp, "threads per warp")                                                                    \
    X(max_threads, "threads per block at most")                                                    \
    X(max_block_x, "block x at most")                                                              \
    X(max_block_y, "block y at most")                                                              \
    X(max_block_z, "block z at most")                                                              \
    X(max_grid_x, "grid x at most")                                                                \
    X(max_grid_y, "grid y at most")                                                                \
    X(max_grid_z, "grid z at most")                                                                \
    X(smem_block, "bytes of static shared memory per block without opting in")                     \
    X(smem_optin, "bytes of shared memory per block after opting in")                              \
    X(smem_sm, "bytes of shared memory per multiprocessor")                                        \
    X(regs_block, "registers per block at most")                                                   \
    X(regs_sm, "registers per multiprocessor")                                                     \
    X(threads_sm, "resident threads per multiprocessor")                                           \
    X(l2_bytes, "bytes of L2 cache")                                                               \
    X(memory_bytes, "bytes of device memory")                                                      \
    X(clock_khz, "peak SM clock")                                                                  \
    X(memory_clock_khz, "peak memory clock")                                                       \
    X(memory_bus_bits, "width of the memory bus")

enum device_attribute {
#define X(name, meaning) DEVICE_##name,
    DEVICE_ATTRIBUTES(X)
#undef X
        DEVICE_ATTRIBUTE_COUNT
};

struct device_info {
    char name[96]; /* "NVIDIA H200" */
    char uuid[64]; /* "GPU-xxxxxxxx-xxxx-..." */
    char arch[16]; /* "sm_90" or "cpu": what keys and protocol say */
    int ordinal;   /* driver ordinal in the worker's view */
    int driver;    /* 13000 for 13.0: the CUDA version that the driver supports */
    int64_t attributes[DEVICE_ATTRIBUTE_COUNT];
};

/* Names of the attributes in slot order, for expr_create. */
extern const char *const device_attribute_names[DEVICE_ATTRIBUTE_COUNT];

json_t *device_to_json(const struct device_info *device); /* new reference */
int device_from_json(const json_t *json, struct device_info *device, struct tune_error *err);

/* What is the same on every device of an architecture ("sm_90"): its limits per block, grid and
 * multiprocessor. sms is 1, and clocks, L2 and memory are 0 (unknown). For answers about an
 * architecture that is not attached. TUNE_ENOTFOUND for one that is not in the table. */
int device_generic(const char *arch, struct device_info *device, struct tune_error *err);

/* Peak rates by data sheet arithmetic, for the roofline; 0 when unknown (the emulated device). */
double device_peak_flops_f32(const struct device_info *device);
double device_peak_bytes_per_s(const struct device_info *device);

#endif
