/* What GPUs reach at most, measured: bytes per second of their memory, f32 operations per second.
 * The ceilings of the roofline.
 *
 * Design. Nothing is measured unasked. Who asks for a device shares the measurement that is under
 * way for it, if any: kernels_src/limits.cu is compiled (or comes from the cache), then its bench
 * task waits in the device's queue like every other. What came out is kept in memory and in the
 * database ("limits/UUID" among its jobs), one entry per GPU, with the driver it was measured
 * under. For models that were never measured here stand those that came with the program. Loop
 * thread only.
 *
 * An entry is {"device":name,"driver":N,"dram_bytes_per_s":x,"flops_f32":x,"time_unix_ms":N} and,
 * where it was measured here, "uuid". What is given out has "from":"measured"|"shipped" too. */
#ifndef TUNE_LIMITS_H
#define TUNE_LIMITS_H

#include "daemon/image.h"
#include "daemon/sched.h"
#include "daemon/writer.h"

struct limits;

/* All borrowed for the life of the limits. */
struct limits_deps {
    struct sched *sched;
    struct images *images;
    struct tuning_db *db;
    struct writer *writer;
    const struct image_source *source; /* kernels_src/limits.cu */
    const json_t *shipped;             /* array of entries */
};

/* New. */
struct limits *limits_create(const struct limits_deps *deps);
/* After the scheduler has stopped. Who still waits is not told. NULL is fine. */
void limits_destroy(struct limits *limits);

/* Takes up what the database has, and drops there what is no entry. */
int limits_load(struct limits *limits, struct tune_error *err);

/* Whether this is an entry. 0 or -1. */
int limits_check(const json_t *entry, struct tune_error *err);

/* What is known of a GPU model: what was measured last here, else what came with the program; new,
 * or NULL. */
json_t *limits_known(const struct limits *limits, const char *gpu_name);
/* What was measured of this very GPU, under whatever driver; new, or NULL. *is_current: the driver
 * is still the same. */
json_t *limits_measured(
    const struct limits *limits, const struct device_info *device, bool *is_current);

/* result: borrowed during the call; NULL when there is none, and then `why` is a sentence. */
typedef void (*limits_callback)(const json_t *result, const char *why, void *context);

/* Measures a device of the scheduler, whatever is known. 0, and the callback comes once, never
 * inside this call; or -1 and it does not come: the device is busy or offline. */
int limits_measure(struct limits *limits, size_t device, limits_callback callback, void *context,
    struct tune_error *err);
/* This context is not told any more; what is being measured is kept all the same. */
void limits_cancel(struct limits *limits, const void *context);

#endif
