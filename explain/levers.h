/* Which parameters move a quantity of a configuration, and to which value: each parameter alone,
 * to its nearest valid value in either direction (any value, where values have names). What the
 * estimate takes to be slower on the whole is left out, so that no advice heals one thing by
 * breaking another (registers apart: the estimate does not know what spills cost). Pure. */
#ifndef TUNE_EXPLAIN_LEVERS_H
#define TUNE_EXPLAIN_LEVERS_H

#include "plugins/estimate.h"

#include <jansson.h>

enum lever_quantity {
    LEVER_WARPS, /* resident on a multiprocessor */
    LEVER_BLOCKS,
    LEVER_REGISTERS,
    LEVER_TRAFFIC, /* of global memory */
    LEVER_SHARED_TRAFFIC,
    LEVER_ROUND_TRIPS
};

struct levers {
    struct device_info device;
    struct estimator estimator;
    int64_t values[MANIFEST_MAX_PARAMS];
    int64_t registers; /* of the compile; 0: unknown */
    double guessed_registers;
    double time_ns; /* of the configuration as it is, estimated */
};

struct lever {
    const struct manifest_param *param; /* of the manifest */
    int64_t to;
    double time_ns; /* as the estimate expects it there */
};

/* From the configuration, shape, dtype and architecture of an explanation. -1 when the manifest
 * (borrowed) does not fit it or has nothing to estimate: then there are no levers. */
int levers_init(struct levers *levers, const struct manifest *manifest, const json_t *explanation);

/* Levers that make the quantity larger (`direction` 1) or smaller (-1), the best by the estimate
 * first; returns how many were written. */
size_t levers_find(const struct levers *levers, enum lever_quantity quantity, int direction,
    struct lever *found, size_t room);

/* The next smaller valid value of one parameter (of the manifest), whatever it moves. */
bool levers_lower(
    const struct levers *levers, const struct manifest_param *param, struct lever *lever);

#endif
