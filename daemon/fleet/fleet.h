/* The fleet: this daemon's part in a set of machines that share what they measure.
 *
 * The LMDB of each machine stays its own and the only thing that answers read. With --fleet URL
 * every row that is stored here also enters an outbox in the same transaction; a link (link.c: one
 * thread, one connection) puts the outbox into the engine, reads the changes of the others, and
 * stores them together with the position that they reach, again in one transaction. Without the
 * engine all goes on as before and the outbox grows.
 *
 * After each (re)connection the two sides compare digests of their rows, bucket by bucket, and
 * mend what differs: that is also how a machine that joins late, an engine that was made anew and
 * one that was restored from a backup come to hold everything again.
 *
 * All calls and callbacks on the loop thread. */
#ifndef TUNE_FLEET_H
#define TUNE_FLEET_H

#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

#include <jansson.h>
#include <uv.h>

struct fleet;

struct fleet_deps {
    uv_loop_t *loop;
    struct tuning_db *db; /* with has_outbox */
    const struct registry *registry;
    const char *host;
    const char *url;      /* "postgresql://..." or a libpq connection text */
    bool shares_emulated; /* rows of the arch `cpu` too */
    size_t limit_bytes;   /* rows of others are taken until the database is so large */
};

/* Never blocks, also when the engine cannot be reached. NULL with TUNE_EINVAL when the URL is of no
 * engine that is built in. */
struct fleet *fleet_create(const struct fleet_deps *deps, struct tune_error *err);
/* What an operator runs in the engine where the daemons may not make their tables; NULL when this
 * program was built without the fleet. */
const char *fleet_schema(void);
/* Interrupts the thread; on_stopped when all is gone. What is in the outbox stays there. The last
 * call. */
void fleet_stop(struct fleet *fleet, void (*on_stopped)(void *context), void *context);

/* The kernels were read again: rows are judged by what they are now. */
void fleet_registry_changed(struct fleet *fleet);
/* Something was committed to the outbox. Cheap; called after every commit of the writer. */
void fleet_kick(struct fleet *fleet);

/* New reference: {"url" (no password),"node","state","since_s","error","outbox","position","head",
 * "rows" (there),"lag_s","sent","taken","refused" (since the start),"nodes":[{"node","host",
 * "targets","age_s","position","is_this"}]}. */
json_t *fleet_to_json(const struct fleet *fleet);
const char *fleet_node(const struct fleet *fleet); /* 32 hex digits, kept in the database */

/* --- sweeps: asking others -------------------------------------------------------------------- */

/* "sm_90|NVIDIA H200|132": only GPUs of one model are compared in one sweep. */
#define FLEET_TARGET_BYTES 160
void fleet_target_text(
    const char *arch, const char *gpu_name, unsigned sms, char *text, size_t room);

/* Other nodes with a device of this target that were heard of lately; 0 while not connected. */
size_t fleet_helpers(const struct fleet *fleet, const char *target);

struct fleet_task;

enum fleet_task_end {
    FLEET_TASK_DONE,       /* its rows are in the local database now */
    FLEET_TASK_FAILED,     /* a helper could not do it; what it measured is here */
    FLEET_TASK_TAKEN_BACK, /* nobody has it or will have it: the asker does the work */
};

/* Offers a batch. on_end is called once, later, never inside this call; the task is gone when it
 * returns. The payload is a new reference that is taken. NULL when not connected, or when the
 * payload is larger than ENGINE_PAYLOAD_LIMIT_BYTES (engine.h). */
struct fleet_task *fleet_offer(struct fleet *fleet, const char *target, json_t *payload,
    void (*on_end)(struct fleet_task *task, enum fleet_task_end end, void *context), void *context);
/* The asker has nothing else to do: ends TAKEN_BACK unless a living helper holds it, in which case
 * on_end comes when that one is done or its lease has run out. With the engine out of reach for
 * FLEET_TASK_PATIENCE_MS it ends TAKEN_BACK too: the work may then be done twice, never not at
 * all. */
void fleet_take_back(struct fleet_task *task);
#define FLEET_TASK_PATIENCE_MS 15000
/* No on_end any more, and the task is gone; the engine forgets it when it can be reached. */
void fleet_withdraw(struct fleet_task *task);

/* --- sweeps: helping others ------------------------------------------------------------------- */

#define FLEET_LEASE_MS 10000 /* renewed every third of it while it is open */

struct fleet_lease;

struct fleet_helper {
    /* Fills the targets of devices that are free now, NULL-ended, borrowed until the next call;
     * none: no lease is asked for. */
    void (*free_targets)(const char **targets, size_t room, void *context);
    /* A lease was given; the payload is borrowed. The helper owns it until fleet_lease_end. */
    void (*on_lease)(struct fleet_lease *lease, const json_t *payload, void *context);
    /* It was lost (we were too slow or cut off): stop when convenient; fleet_lease_end is still
     * owed. */
    void (*on_lost)(struct fleet_lease *lease, void *context);
    void *context;
};

/* Copied; NULL: no more leases are taken (those that are open are still owed their end). */
void fleet_set_helper(struct fleet *fleet, const struct fleet_helper *helper);
/* A device became free, or devices are known now. */
void fleet_devices_changed(struct fleet *fleet, const char *const *all_targets);
/* All rows are committed here; the link puts them into the engine, then completes the task. */
void fleet_lease_end(struct fleet_lease *lease, bool has_failed);

#endif
