/* When a GPU is idle enough for a sweep that nobody waits for.
 *
 * Design. Nothing runs unless somebody asks. background_is_idle answers from the last look, if that
 * is fresh; else it has a look taken: a tune-worker, which ends with its answer, reads utilisation
 * and memory of all devices through NVML, and on_looked is called, for the question to be asked
 * again. Looks are at least BACKGROUND_PERIOD_MS apart. A device is idle when it was so in two
 * looks in a row, since utilisation is that of the last moment. Where NVML is not there, or does
 * not know the device (the emulator, a MIG slice), the answer is yes: then only our own sweeps
 * count, which the asker knows of. */
#ifndef TUNE_BACKGROUND_H
#define TUNE_BACKGROUND_H

#include "daemon/sched.h"

#define BACKGROUND_PERIOD_MS 1000
#define BACKGROUND_LOOKS 2 /* in a row that must find a device idle */

struct background;

struct background_options {
    const char *worker_path;
    const char *const *env; /* of the worker; borrowed */
    double busy_percent;    /* utilisation above this is busy */
    double memory_percent;  /* so is more memory in use */
};

/* sched: borrowed, knows the devices. */
struct background *background_create(uv_loop_t *loop, const struct sched *sched,
    const struct background_options *options, void (*on_looked)(void *context), void *context);

/* Whether a sweep may begin on this device; no: on_looked may follow, later. */
bool background_is_idle(struct background *background, size_t device);

/* No on_looked any more. on_stopped: it has been freed. */
void background_stop(
    struct background *background, void (*on_stopped)(void *context), void *context);

#endif
