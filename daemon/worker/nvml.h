/* Clocks, temperature and throttle reasons of the device at work, where NVML is there. Reads only.
 */
#ifndef TUNE_WORKER_NVML_H
#define TUNE_WORKER_NVML_H

#include "cuda_abi.h"
#include "libraries.h"
#include "plugins/device.h"

#include <jansson.h>
#include <limits.h>

struct nvml {
    struct nvml_api api;
    char path[PATH_MAX];
    struct nvmlDevice_st *device; /* NULL: not available */
    json_t *clocks;               /* as last read, at read_ms */
    int64_t read_ms;
};

/* Finds the card by its UUID: NVML's numbers are not the driver's. Absence is no failure; false
 * then. */
bool nvml_init(struct nvml *nvml, struct libraries *libraries, const struct device_info *device);
void nvml_finish(struct nvml *nvml);

/* {"sm_mhz","memory_mhz","temperature_c","throttle_reasons"}, zeros without NVML, at most
 * NVML_FRESH_MS old: the queries take longer than timing a short candidate. New reference. */
#define NVML_FRESH_MS 50
json_t *nvml_clocks(struct nvml *nvml);

#endif
