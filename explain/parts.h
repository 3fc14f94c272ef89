/* What the files that put an explanation together share: explain.c the whole, traced.c what the
 * emulator saw, roofline.c the ceilings. Not for others. */
#ifndef TUNE_EXPLAIN_PARTS_H
#define TUNE_EXPLAIN_PARTS_H

#include "explain.h"

/* Bytes that the threads of all blocks of a call ask of global memory. */
struct explain_traffic {
    bool is_known;
    double load_bytes, store_bytes;
    /* What that takes: whole sectors of global memory, whole passes over the banks of shared. */
    double sector_bytes, pass_bytes;
};

/* An explanation under construction. */
struct explained {
    const struct explain_facts *facts;
    json_t *launches;
    const json_t *launch;    /* the one that does the work; of launches */
    const json_t *resources; /* of its compile, or NULL */
    struct estimator estimator;
    struct estimate estimate; /* geometry and occupancy always, times only with has_estimate */
    bool has_estimate;
    double flops, bytes; /* of a call; 0: not stated */
    struct explain_traffic traffic;
};

/* resources.c: whether this stands for an architecture, no device of it being attached. */
bool explain_is_architecture(const struct device_info *device);

/* traced.c: sets accesses, branches and traced of the form; fills the traffic. */
void explain_traced(struct explained *explained, json_t *form);

/* roofline.c: null where neither flops nor bytes are stated. New. */
json_t *explain_roofline(const struct explained *explained);

#endif
