/* What the files of job.h share: job.c runs jobs, job_request.c reads requests, job_store.c keeps
 * them. */
#ifndef TUNE_JOB_INTERNAL_H
#define TUNE_JOB_INTERNAL_H

#include "daemon/job.h"

struct job {
    struct job *next;
    struct jobs *jobs;
    char id[JOB_ID_BYTES];
    enum job_state state;
    enum job_state told; /* what others may know: an end only once it is durable */
    json_t *request;     /* the params of `sweep` */
    json_t *results;     /* one per finished shape */
    struct tune_error error;
    uid_t owner;
    int64_t created_unix_ms;
    uint64_t ended_at_ms; /* of the loop's clock; 0: not in this daemon's life, or cancelled */
    /* parsed from the request */
    struct plugin *plugin;
    size_t shape_count;
    int64_t (*shapes)[MANIFEST_MAX_DIMS];
    struct tuning_spec spec; /* for the shape that runs */
    bool shapes_are_given;
    bool is_background, is_local;
    /* running */
    struct tuning *tuning;
    size_t device_count; /* the devices it has, all of one model */
    size_t devices[TUNING_LANES_MAX];
    bool is_canceling;
    json_t *progress; /* the last one told */
    uint64_t progress_at_ms;
    void (*on_stored)(const char *job, const struct tune_error *err, void *context);
    void *stored_context;
};

struct jobs {
    struct tuning_deps deps;
    const struct registry *registry;
    struct jobs_callbacks callbacks;
    struct job *first, **end;
};

/* job.c */
struct job *job_new(struct jobs *jobs, json_t *request, uid_t owner); /* takes request */
void job_destroy(struct job *job);
struct job *jobs_find(const struct jobs *jobs, const char *id); /* borrowed, or NULL */
void jobs_append(struct jobs *jobs, struct job *job);
/* The only writer of the state; `why` goes to the log. */
void job_set_state(struct job *job, enum job_state state, const char *why);
/* All shapes are tuned, or it cannot go on: sets the last state. */
void job_finish(struct job *job);
void jobs_start_next(struct jobs *jobs);

/* job_request.c */
int job_parse(struct job *job, struct tune_error *err);
/* The input that was named for a shape, borrowed; NULL: none. */
const char *job_input(const struct job *job, size_t shape);
/* The manifest's own shapes, once the device is known: the emulated one gets small ones. */
void job_take_manifest_shapes(struct job *job, const struct device_info *device);
uint64_t job_random_seed(void);

/* job_store.c */
extern const char *const job_state_words[];
bool job_is_active(const struct job *job);
json_t *job_to_json(const struct job *job, bool with_request); /* new */
/* Into the open batch. */
void job_persist(struct job *job);

#endif
