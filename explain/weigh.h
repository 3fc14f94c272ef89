/* How much of the time each thing that an explanation shows may account for. Pure arithmetic on
 * the JSON of explain.h, for the paragraph (words.c) and the comparison (compare.c).
 *
 * A problem weighs the share of the work that it wastes, times the share of the time that this
 * work's ceiling takes: half of the passes over the banks wasted is half of the time where shared
 * memory is the ceiling, and next to nothing where it is busy for a tenth of it. Weights are not
 * meant to add up to 1, and where neither a time nor an estimate is there they say less. */
#ifndef TUNE_EXPLAIN_WEIGH_H
#define TUNE_EXPLAIN_WEIGH_H

#include "plugins/estimate.h"

#include <jansson.h>
#include <stdbool.h>

/* X(NAME, word): what may waste time. */
#define EXPLAIN_CAUSES(X)                                                                          \
    X(SPILLS, "spills")                                                                            \
    X(CONFLICTS, "bank_conflicts")                                                                 \
    X(SECTORS, "sectors")       /* of global memory that carry what nobody asked for */            \
    X(TRAFFIC, "traffic")       /* operands asked for again and again */                           \
    X(CEILING, "ceiling")       /* one beside arithmetic and device memory, by the estimate */     \
    X(DIVERGENCE, "divergence") /* lanes that idle in branches */                                  \
    X(FEW_BLOCKS, "few_blocks") /* multiprocessors without a block */                              \
    X(TAIL, "tail")             /* of the last wave of blocks */                                   \
    X(WAITS, "waits")           /* for round trips to memory that no other block covers */         \
    X(OCCUPANCY, "occupancy")

enum explain_cause {
#define X(name, word) CAUSE_##name,
    EXPLAIN_CAUSES(X)
#undef X
        CAUSE_COUNT
};

struct weighed {
    double weight[CAUSE_COUNT]; /* 0..1 */
    /* Share of the time that each ceiling takes by the model; 0 where nothing is estimated. */
    double share[ESTIMATE_CEILING_COUNT];
    bool has_estimate;
    enum estimate_ceiling side; /* the highest ceiling beside flops and dram */
    bool is_measured;           /* against limits: `headroom` is from a clock, not from the model */
    bool has_headroom;          /* else 1 */
    double headroom;            /* share of the time that the higher ceiling does not account for */
    /* Of the traced blocks. */
    double shared_requests, wavefronts, wasted_wavefronts;
    double global_requests, sectors, ideal_sectors, wasted_sectors;
    double warps, idle_lanes; /* idle_lanes: share of all lanes that reached a branch */
    double local_share;       /* of the instructions that access memory */
    /* Of the blocks; sms 0: the device is not known, and then none of these. */
    double sms, idle_sms, tail_loss, resident_fraction;
};

void explain_weigh(const json_t *explanation, struct weighed *weighed);

const char *explain_cause_word(enum explain_cause cause);

/* The access that wastes the most by that cause (CONFLICTS, SECTORS) or the branch (DIVERGENCE).
 * Borrowed; NULL: none. */
const json_t *explain_worst(const json_t *explanation, enum explain_cause cause);

/* Wasted passes over the banks, or wasted sectors, of all requests of one access. */
double explain_wasted_wavefronts(const json_t *access);
double explain_wasted_sectors(const json_t *access);

/* Fields that may be null or absent: then 0, or "". */
double explain_number(const json_t *object, const char *key);
const char *explain_text(const json_t *object, const char *key);

#endif
