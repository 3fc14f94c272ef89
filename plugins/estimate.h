/* What a configuration may cost before it is compiled: its launches, how they fill the device, and
 * which ceiling of the roofline they meet. Pure; about a microsecond per configuration.
 *
 * An estimate orders candidates; it is no forecast of a time. It knows the manifest's geometry and
 * work, nothing of the code. The model, the same for every kernel:
 *  - Blocks run in waves of sms * blocks_per_sm. The last wave may be short, and an SM that has one
 *    block more than another decides.
 *  - A scheduler issues when one of its warps is ready; a warp waits for what it reads, so few
 * warps with little arithmetic leave it idle.
 *  - A memory level delivers its bandwidth only while enough bytes are on their way (Little's law).
 *  - While a block waits for a round trip to memory, the other blocks of its SM work; what they do
 *    not cover is waited for.
 *  - The call takes as long as its slowest ceiling, all else overlapping, the waits, and a little
 *    per launch.
 * The first launch whose `when` holds is taken to do the work; the others cost their start. */
#ifndef TUNE_ESTIMATE_H
#define TUNE_ESTIMATE_H

#include "manifest.h"
#include "occupancy.h"

/* X(name, word): the ceilings of a multiprocessor and of the device. */
#define ESTIMATE_CEILINGS(X)                                                                       \
    X(FLOPS, "flops")                                                                              \
    X(ISSUE, "issue")      /* instructions: arithmetic, and 16 bytes of memory at a time */        \
    X(PIPE, "memory_pipe") /* from shared memory and L1 to registers, and back */                  \
    X(L2, "l2")            /* what moves between L2 and the multiprocessors */                     \
    X(DRAM, "dram")

enum estimate_ceiling {
#define X(name, word) ESTIMATE_##name,
    ESTIMATE_CEILINGS(X)
#undef X
        ESTIMATE_CEILING_COUNT
};

struct estimate {
    double time_ns;
    double ceiling_ns[ESTIMATE_CEILING_COUNT]; /* each alone, as this configuration would meet it */
    enum estimate_ceiling limited_by;
    double launch_ns; /* of all launches, part of time_ns */
    double wait_ns;   /* for round trips to memory that no other block covers, part of time_ns */
    /* of the launch that does the work */
    int64_t blocks, threads, registers;
    int64_t shared_bytes; /* static (where it is known) and dynamic */
    struct occupancy occupancy;
    double waves;     /* of blocks; 2.25: two full ones and a quarter */
    double tail_fill; /* of the slots in the last wave; 1 when it is full */
    double sm_fill;   /* blocks / (sms * the most that one SM runs) */
};

/* Prepared for many configurations of one (manifest, device, shape, dtype). */
struct estimator {
    const struct manifest *manifest;
    const struct device_info *device;
    int64_t slots[MANIFEST_MAX_SLOTS];
    int64_t sms;
    double flops, bytes;
    double rate[ESTIMATE_CEILING_COUNT]; /* per second, of the whole device */
    bool rates_are_assumed; /* the device states no clocks: an order is meant, no time */
    /* Of a block, where it is known from a compile: set it after estimator_init. */
    int64_t static_shared_bytes;
    /* Of a call, where a trace tells them; they stand in for what the manifest does not state of
     * its traffic. 0: unknown. Set them after estimator_init. */
    double traced_global_bytes, traced_shared_bytes;
};

/* Borrows manifest and device. Fails with TUNE_ENOTFOUND where the manifest says nothing of its
 * work (neither flops, nor bytes, nor traffic), or with the error of an expression. */
int estimator_init(struct estimator *estimator, const struct manifest *manifest,
    const struct device_info *device, const int64_t *dims, const char *dtype,
    struct tune_error *err);

/* Values of all params, a valid configuration of the space; `registers` per thread where they are
 * known from a compile, else 0. TUNE_ELIMIT where a block does not fit the device. */
int estimator_run(struct estimator *estimator, const int64_t *values, int64_t registers,
    struct estimate *estimate, struct tune_error *err);

/* Bytes that a call of this configuration asks of global memory, as the manifest has it: its
 * traffic_global, else its bytes. TUNE_ENOTFOUND where it has neither. */
int estimator_traffic(
    struct estimator *estimator, const int64_t *values, double *bytes, struct tune_error *err);

/* waves, tail_fill and sm_fill, from the blocks and the occupancy that stand there already. */
void estimate_waves(int64_t sms, struct estimate *estimate);

/* Multiply-adds per clock, relative to f32's: tensor cores where the dtype is one of theirs. */
double estimate_dtype_speed(int64_t sm, const char *dtype);

const char *estimate_ceiling_word(enum estimate_ceiling ceiling);

#endif
