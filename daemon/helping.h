/* Work for other machines of the fleet: their batches of candidates, measured on devices that have
 * nothing of ours to do.
 *
 * Design. A lease is a tuning of its own kind (struct tuning_help) on one device: a few
 * configurations under the asker's key, method and run. Its rows go to the database as all rows do,
 * and so to the fleet; when they are committed the lease ends. Our own sweeps go first: a device is
 * offered while none of them runs on it or waits for it, and one that is wanted back is given back
 * at once, what was measured until then is kept, and the asker does the rest. What a batch asks for
 * comes from the network and is checked as strictly as what a client asks for
 * (helping_request.c). */
#ifndef TUNE_HELPING_H
#define TUNE_HELPING_H

#include "daemon/job.h"

struct helping;

struct helping_deps {
    struct tuning_deps tuning; /* with a fleet */
    const struct registry *registry;
    const struct jobs *jobs;
    /* A device that was asked back is free. */
    void (*on_returned)(void *context);
    void *context;
};

/* Makes itself the fleet's helper. New; never NULL. */
struct helping *helping_create(const struct helping_deps *deps);
/* Abandons what runs and ends the leases; before the jobs and the fleet. NULL is fine. */
void helping_destroy(struct helping *helping);

/* Devices and compiler are known now, or one of our sweeps has ended. */
void helping_kick(struct helping *helping);

/* Whether a batch of another machine runs on the device. is_wanted: it is broken off, and
 * on_returned follows, once for all that are wanted. */
bool helping_has(struct helping *helping, size_t device, bool is_wanted);

/* Whether a batch is being measured. */
bool helping_is_active(const struct helping *helping);

/* New: {"running","done","failed","refused","lost","evaluations"}: leases, and configurations
 * measured, since the start. */
json_t *helping_to_json(const struct helping *helping);

/* --- what is asked (helping_request.c) -------------------------------------------------------- */

struct helping_request {
    struct tuning_spec spec; /* without devices; strings borrowed from the payload */
    const char *target;
    const char *configs[TUNING_BATCH_MAX];
};

/* 0, or -1 with a sentence for the log: a version or field that is not known, another text of the
 * kernel, a shape, configuration or limit that would be refused to a client too. The plugin is
 * borrowed from the registry. */
int helping_parse(const struct registry *registry, const json_t *payload,
    struct helping_request *request, struct tune_error *err);

#endif
