/* Sweeps as jobs: queued, run one per device at a time, persisted, resumed, cancelled, told of.
 *
 * Design. A job is a request and its results, one per shape, tuned one after the other (tuning.h).
 * It is written to the database before its id is given out, after every shape, and when it ends, so
 * that a daemon that was killed goes on where it stopped. job_set_state is the only writer of the
 * state: it checks the step, logs "old -> new: why" and publishes. News go up through on_event;
 * jobs know no server.
 *
 * A sweep in the background begins when no other can begin, on devices that are idle; any other
 * goes before it.
 *
 *     queued -> running -> done | failed | canceled          queued -> canceled | failed
 *     running -> queued: its device went offline, and another one may take the shape */
#ifndef TUNE_JOB_H
#define TUNE_JOB_H

#include "daemon/tuning.h"

#include <sys/types.h>

#define JOB_ID_BYTES 32
#define JOBS_ACTIVE_MAX 256     /* queued and running */
#define JOBS_BACKGROUND_MAX 192 /* of them in the background: others find room at any time */
#define JOBS_FINISHED_KEPT 200  /* older ones are forgotten; their samples stay */
#define JOBS_RETRY_MS 600000    /* a background sweep that found nothing is not repeated before */
#define JOB_SHAPES_MAX 256
#define JOB_PROGRESS_PERIOD_MS 100

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELED };

struct jobs;

struct jobs_callbacks {
    /* Whether a background sweep may begin on a device that no sweep of ours uses. no: jobs_kick is
     * called when that may have changed. NULL: always. */
    bool (*is_idle)(size_t device, void *context);
    /* Whether the device works for another machine. is_wanted: a sweep of ours could begin on it,
     * so it is to be freed; jobs_kick is called when it is. NULL: never. */
    bool (*is_lent)(size_t device, bool is_wanted, void *context);
    /* "progress" or "done", with params as the protocol has them (borrowed), for watchers of `job`.
     */
    void (*on_event)(const char *method, json_t *params, const char *job, void *context);
    void *context;
};

struct jobs *jobs_create(const struct tuning_deps *deps, const struct registry *registry,
    const struct jobs_callbacks *callbacks);
/* No event any more; running tunings are abandoned, to be resumed by the next start. */
void jobs_destroy(struct jobs *jobs);

/* Loads what the database has and queues what was not finished. */
int jobs_load(struct jobs *jobs, struct tune_error *err);
/* Starts what can be started: called when the scheduler is ready. */
void jobs_kick(struct jobs *jobs);

/* A new job from the params of `sweep`. on_stored is called once, when the job is durable (err
 * NULL) or could not be stored. -1 with the sentence when the request is refused, and then no
 * callback. */
int jobs_submit(struct jobs *jobs, const json_t *params, uid_t owner,
    void (*on_stored)(const char *job, const struct tune_error *err, void *context), void *context,
    struct tune_error *err);

/* The daemon stops: whoever still waits for on_stored is told so now. */
void jobs_refuse_askers(struct jobs *jobs, const struct tune_error *err);

/* What a get wants tuned: of the kernel as it is, on GPUs of this model. Borrowed. */
struct jobs_key {
    const struct plugin *plugin;
    const char *shape, *dtype, *mode, *gpu;
};

/* Id of an active job that tunes this key, or NULL. Borrowed. */
const char *jobs_find_active(const struct jobs *jobs, const struct jobs_key *key);

/* Whether a background sweep of this key ended less than JOBS_RETRY_MS ago: if the key is not tuned
 * now, trying again at once would only keep the GPU busy. */
bool jobs_tried_lately(const struct jobs *jobs, const struct jobs_key *key);

/* Somebody waits for it: a background sweep that has not begun becomes an ordinary one. */
void jobs_hurry(struct jobs *jobs, const char *job);

/* -1: TUNE_ENOTFOUND, or TUNE_EPERM for somebody else's job. Cancelling a finished job is no error.
 */
int jobs_cancel(struct jobs *jobs, const char *job, uid_t asker, struct tune_error *err);

/* One job, or all (NULL): state, progress, results. New reference; NULL with TUNE_ENOTFOUND. */
json_t *jobs_to_json(const struct jobs *jobs, const char *job, struct tune_error *err);
/* Whether its end is still to be told. */
bool jobs_is_active(const struct jobs *jobs, const char *job);
/* Whether none of ours runs on it, nor, those in the background aside, waits for it. */
bool jobs_leave_free(const struct jobs *jobs, size_t device);
size_t jobs_active_count(const struct jobs *jobs);
size_t jobs_queued_count(const struct jobs *jobs);

#endif
