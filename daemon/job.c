/* See job.h. */
#include "daemon/job_internal.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void forget_old(struct jobs *jobs, const struct job *heard_of);

/* --- state ------------------------------------------------------------------------------------ */

static void publish_done(struct job *job)
{
    json_t *params = job_to_json(job, false);
    job->jobs->callbacks.on_event("done", params, job->id, job->jobs->callbacks.context);
    json_decref(params);
}

static void on_end_stored(const struct tune_error *err, void *context)
{
    struct job *job = context;
    if (err != NULL)
        log_warnx("%s: its end could not be stored: %s", job->id, err->text);
    job->told = job->state;
    publish_done(job);
    forget_old(job->jobs, job);
}

void job_set_state(struct job *job, enum job_state state, const char *why)
{
    assert(job_is_active(job));
    assert(state != JOB_QUEUED || job->state == JOB_RUNNING);
    assert(state != JOB_RUNNING || job->state == JOB_QUEUED);
    log_info("%s: %s -> %s: %s", job->id, job_state_words[job->state], job_state_words[state], why);
    job->state = state;
    if (job_is_active(job)) {
        job->told = state;
        return;
    }
    json_decref(job->progress);
    job->progress = NULL;
    if (state != JOB_CANCELED)
        job->ended_at_ms = uv_now(job->jobs->deps.loop);
    job_persist(job);
    writer_after_commit(job->jobs->deps.writer, on_end_stored, job);
}

/* --- the list --------------------------------------------------------------------------------- */

struct job *jobs_find(const struct jobs *jobs, const char *id)
{
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        if (strcmp(job->id, id) == 0)
            return job;
    return NULL;
}

struct job *job_new(struct jobs *jobs, json_t *request, uid_t owner)
{
    struct job *job = xcalloc(1, sizeof *job);
    job->jobs = jobs;
    job->request = request;
    job->results = json_array();
    job->owner = owner;
    return job;
}

void job_destroy(struct job *job)
{
    writer_forget(job->jobs->deps.writer, job);
    plugin_unref(job->plugin);
    json_decref(job->request);
    json_decref(job->results);
    json_decref(job->progress);
    free(job->shapes);
    free(job);
}

void jobs_append(struct jobs *jobs, struct job *job)
{
    *jobs->end = job;
    jobs->end = &job->next;
}

static void remove_job(struct jobs *jobs, struct job *job)
{
    struct job **at = &jobs->first;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    if (job->next == NULL)
        jobs->end = at;
    job_destroy(job);
}

/* Its end is still to be told. */
static bool is_active_to_others(const struct job *job)
{
    return job->told == JOB_QUEUED || job->told == JOB_RUNNING;
}

/* Forgets the oldest finished jobs beyond the number kept, but not the one that others just heard
 * of. */
static void forget_old(struct jobs *jobs, const struct job *heard_of)
{
    size_t finished = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        finished += !is_active_to_others(job);
    for (struct job *job = jobs->first; job != NULL && finished > JOBS_FINISHED_KEPT;) {
        struct job *next = job->next;
        if (!is_active_to_others(job) && job != heard_of) {
            char name[48];
            snprintf(name, sizeof name, "job/%s", job->id);
            tuning_db_batch_job(writer_batch(jobs->deps.writer), name, NULL, 0);
            remove_job(jobs, job);
            finished--;
        }
        job = next;
    }
}

/* --- running ---------------------------------------------------------------------------------- */

static void on_progress(const struct tuning_progress *progress, void *context)
{
    struct job *job = context;
    uint64_t now_ms = uv_now(job->jobs->deps.loop);
    const char *before = json_string_value(json_object_get(job->progress, "phase"));
    bool is_news =
        before == NULL || strcmp(before, progress->phase) != 0 || progress->done == progress->total;
    if (!is_news && now_ms - job->progress_at_ms < JOB_PROGRESS_PERIOD_MS)
        return;
    job->progress_at_ms = now_ms;
    json_decref(job->progress);
    size_t shape = json_array_size(job->results);
    job->progress = json_pack("{s:s, s:O, s:o, s:I, s:I, s:s, s:I, s:I, s:f, s:f}", "job", job->id,
        "kernel", json_object_get(job->request, "kernel"), "shape",
        manifest_shape_to_json(job->plugin->manifest, job->shapes[shape]), "shape_index",
        (json_int_t)shape, "shape_count", (json_int_t)job->shape_count, "phase", progress->phase,
        "done", (json_int_t)progress->done, "total", (json_int_t)progress->total, "configs_per_s",
        progress->configs_per_s, "elapsed_s", progress->elapsed_s);
    manifest_name_choices(job->plugin->manifest, job->shapes[shape], job->progress);
    if (job_input(job, shape) != NULL)
        json_object_set_new(job->progress, "input", json_string(job_input(job, shape)));
    json_object_set_new(job->progress, "best_ns",
        progress->best_ns > 0 ? json_real(progress->best_ns) : json_null());
    json_object_set_new(job->progress, "default_ns",
        progress->default_ns > 0 ? json_real(progress->default_ns) : json_null());
    tuning_tell(job->tuning, job->progress);
    job->jobs->callbacks.on_event("progress", job->progress, job->id, job->jobs->callbacks.context);
}

static void start_shape(struct job *job);

/* Nothing was ok for any shape: the sweep as a whole failed, and says of what. */
static bool has_best(const struct job *job)
{
    size_t i;
    json_t *result;
    json_array_foreach (job->results, i, result) {
        if (json_is_object(json_object_get(result, "best")))
            return true;
    }
    return false;
}

void job_finish(struct job *job)
{
    if (job->is_canceling) {
        job_set_state(job, JOB_CANCELED, "cancelled");
    } else if (job->error.code != TUNE_OK) {
        job_set_state(job, JOB_FAILED, job->error.text);
    } else if (!has_best(job)) {
        tune_fail(&job->error, TUNE_ENOTFOUND,
            "no valid candidate: none of those tried was ok; see the counts by outcome, and "
            "`tunectl records --job %s` for the reasons",
            job->id);
        job_set_state(job, JOB_FAILED, "no valid candidate");
    } else {
        job_set_state(job, JOB_DONE, "all shapes tuned");
    }
    jobs_start_next(job->jobs);
}

/* Its device is out of use: the shape goes to another one, or the job fails with the reason. */
static bool must_move(const struct job *job, enum tuning_end end, const struct tune_error *err)
{
    const char *reason;
    return end == TUNING_FAILED && err->code == TUNE_ENODEVICE && !job->is_canceling &&
           strcmp(sched_device_state(job->jobs->deps.sched, job->devices[0], &reason), "offline") ==
               0;
}

static void on_tuned(
    enum tuning_end end, const struct tune_error *err, json_t *result, void *context)
{
    struct job *job = context;
    job->tuning = NULL;
    if (must_move(job, end, err)) {
        job_set_state(job, JOB_QUEUED, err->text);
        jobs_start_next(job->jobs);
        return;
    }
    if (result != NULL)
        json_array_append(job->results, result);
    if (end == TUNING_FAILED && job->error.code == TUNE_OK)
        job->error = *err;
    if (end == TUNING_DONE && json_array_size(job->results) < job->shape_count) {
        job_persist(job);
        start_shape(job);
        return;
    }
    job_finish(job);
}

static void start_shape(struct job *job)
{
    struct tuning_callbacks callbacks = {on_progress, on_tuned, job};
    size_t shape = json_array_size(job->results);
    job->spec.device_count = job->device_count;
    job->spec.is_local = job->is_local || job->is_background;
    memcpy(job->spec.devices, job->devices, sizeof job->spec.devices);
    memcpy(job->spec.dims, job->shapes[shape], sizeof job->spec.dims);
    job->spec.input = job_input(job, shape);
    job->spec.is_local = job->spec.is_local || job->spec.input != NULL; /* others lack the file */
    job->tuning = tuning_start(&job->jobs->deps, &job->spec, &callbacks);
}

static bool device_is_taken(const struct jobs *jobs, size_t device)
{
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        for (size_t i = 0; job->state == JOB_RUNNING && i < job->device_count; i++)
            if (job->devices[i] == device)
                return true;
    return false;
}

static bool is_asked_device(const json_t *asked, const struct device_info *device)
{
    if (asked == NULL || json_is_null(asked))
        return true;
    if (json_is_integer(asked))
        return json_integer_value(asked) == device->ordinal;
    char ordinal[16];
    snprintf(ordinal, sizeof ordinal, "%d", device->ordinal);
    return strcmp(json_string_value(asked), ordinal) == 0 ||
           strcmp(json_string_value(asked), device->uuid) == 0 ||
           strcmp(json_string_value(asked), device->name) == 0;
}

/* Whether the job runs, or will run, on GPUs of this model and no others. */
static bool is_for_model(const struct job *job, const char *gpu)
{
    const struct sched *sched = job->jobs->deps.sched;
    const json_t *asked = json_object_get(job->request, "device");
    if (job->device_count > 0)
        return strcmp(sched_device(sched, job->devices[0])->name, gpu) == 0;
    for (size_t i = 0; i < sched_device_count(sched); i++)
        if (is_asked_device(asked, sched_device(sched, i)) &&
            strcmp(sched_device(sched, i)->name, gpu) != 0)
            return false;
    return true;
}

/* A sweep is spread over all free GPUs of one model, whose times may be compared. */
static bool may_join(const struct job *job, size_t device)
{
    const struct sched *sched = job->jobs->deps.sched;
    if (job->device_count == 0)
        return true;
    const struct device_info *first = sched_device(sched, job->devices[0]);
    const struct device_info *other = sched_device(sched, device);
    return job->device_count < TUNING_LANES_MAX && strcmp(first->name, other->name) == 0 &&
           memcmp(first->attributes, other->attributes, sizeof first->attributes) == 0;
}

static bool is_idle(const struct jobs *jobs, size_t device)
{
    const struct jobs_callbacks *callbacks = &jobs->callbacks;
    return callbacks->is_idle == NULL || callbacks->is_idle(device, callbacks->context);
}

/* Whether one that the job could take works for another machine. It is asked back, unless the job
 * can wait. */
static bool is_lent(const struct job *job, size_t device)
{
    const struct jobs_callbacks *callbacks = &job->jobs->callbacks;
    return callbacks->is_lent != NULL &&
           callbacks->is_lent(device, !job->is_background, callbacks->context);
}

/* A free device for the job; -1 without *err: wait; -1 with *err: there will be none. */
static int choose_devices(struct job *job, struct tune_error *err)
{
    struct sched *sched = job->jobs->deps.sched;
    const json_t *asked = json_object_get(job->request, "device");
    bool is_known = false, is_taken = false, is_coming = false;
    job->device_count = 0;
    const char *reason = "", *why;
    for (size_t i = 0; i < sched_device_count(sched); i++) {
        if (!is_asked_device(asked, sched_device(sched, i)))
            continue;
        is_known = true;
        if (strcmp(sched_device_state(sched, i, &why), "offline") == 0) {
            reason = why;
        } else if (device_is_taken(job->jobs, i) ||
                   (job->is_background && !is_idle(job->jobs, i))) {
            is_taken = true;
        } else if (is_lent(job, i)) {
            is_coming = true;
        } else if (may_join(job, i)) {
            job->devices[job->device_count++] = i;
        }
    }
    if (is_coming && !job->is_background)
        job->device_count = 0; /* in a moment it begins on all of them */
    if (job->device_count > 0)
        return 0;
    if (is_taken || is_coming)
        return -1;
    if (is_known)
        return tune_fail(err, TUNE_ENODEVICE, "the device is offline: %s", reason);
    if (sched_device_count(sched) > 0)
        return tune_fail(err, TUNE_ENODEVICE, "there is no such device; see `tunectl devices`");
    return tune_fail(err, TUNE_ENODEVICE, "no GPU to tune on: %s", sched_device_error(sched));
}

static void try_start(struct job *job)
{
    struct tune_error err = {0};
    if (choose_devices(job, &err)) {
        if (err.code != TUNE_OK) {
            job->error = err;
            job_set_state(job, JOB_FAILED, err.text);
        }
        return;
    }
    const struct device_info *device = sched_device(job->jobs->deps.sched, job->devices[0]);
    if (!job->shapes_are_given)
        job_take_manifest_shapes(job, device);
    job_set_state(job, JOB_RUNNING, device->name);
    start_shape(job);
}

void jobs_start_next(struct jobs *jobs)
{
    if (!sched_is_ready(jobs->deps.sched))
        return;
    for (int is_background = 0; is_background <= 1; is_background++)
        for (struct job *job = jobs->first; job != NULL; job = job->next)
            if (job->state == JOB_QUEUED && job->on_stored == NULL &&
                job->is_background == is_background)
                try_start(job);
}

void jobs_kick(struct jobs *jobs)
{
    jobs_start_next(jobs);
}

/* --- public ----------------------------------------------------------------------------------- */

struct jobs *jobs_create(const struct tuning_deps *deps, const struct registry *registry,
    const struct jobs_callbacks *callbacks)
{
    struct jobs *jobs = xcalloc(1, sizeof *jobs);
    jobs->deps = *deps;
    jobs->registry = registry;
    jobs->callbacks = *callbacks;
    jobs->end = &jobs->first;
    return jobs;
}

void jobs_destroy(struct jobs *jobs)
{
    while (jobs->first != NULL) {
        if (jobs->first->tuning != NULL)
            tuning_abandon(jobs->first->tuning);
        remove_job(jobs, jobs->first);
    }
    free(jobs);
}

static void tell_asker(struct job *job, const struct tune_error *err)
{
    void (*on_stored)(const char *, const struct tune_error *, void *) = job->on_stored;
    job->on_stored = NULL;
    if (on_stored != NULL)
        on_stored(job->id, err, job->stored_context);
}

/* It is as if it had never been, but for those who follow it already. */
static void discard(struct job *job, const struct tune_error *err)
{
    job->error = *err;
    job->state = job->told = JOB_FAILED;
    publish_done(job);
    remove_job(job->jobs, job);
}

static void on_submitted(const struct tune_error *err, void *context)
{
    struct job *job = context;
    tell_asker(job, err);
    if (err != NULL)
        discard(job, err);
    else
        jobs_start_next(job->jobs);
}

void jobs_refuse_askers(struct jobs *jobs, const struct tune_error *err)
{
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        tell_asker(job, err);
}

static void make_id(struct job *job)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    job->created_unix_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    do {
        /* Unique among the machines of a fleet, whose rows lie under the same keys. */
        snprintf(job->id, sizeof job->id, "j-%llx-%08llx", (unsigned long long)job->created_unix_ms,
            (unsigned long long)(job_random_seed() & UINT32_MAX));
    } while (jobs_find(job->jobs, job->id) != NULL);
}

static int check_room(const struct job *job, struct tune_error *err)
{
    const struct jobs *jobs = job->jobs;
    size_t in_background = 0;
    for (const struct job *other = jobs->first; other != NULL; other = other->next)
        in_background += job_is_active(other) && other->is_background;
    if (!job->is_background || in_background < JOBS_BACKGROUND_MAX)
        return 0;
    return tune_fail(err, TUNE_ELIMIT,
        "%d sweeps in the background are queued or running, which is the limit",
        JOBS_BACKGROUND_MAX);
}

int jobs_submit(struct jobs *jobs, const json_t *params, uid_t owner,
    void (*on_stored)(const char *job, const struct tune_error *err, void *context), void *context,
    struct tune_error *err)
{
    if (jobs_active_count(jobs) >= JOBS_ACTIVE_MAX)
        return tune_fail(err, TUNE_ELIMIT,
            "%d sweeps are queued or running, which is the limit: wait for some to end, or cancel "
            "some",
            JOBS_ACTIVE_MAX);
    struct job *job = job_new(jobs, json_deep_copy(params), owner);
    make_id(job);
    if (job_parse(job, err) || check_room(job, err)) {
        job_destroy(job);
        return -1;
    }
    if (sched_is_ready(jobs->deps.sched)) {
        struct tune_error refusal = {0};
        choose_devices(job, &refusal);
        if (refusal.code != TUNE_OK) {
            job_destroy(job);
            return tune_fail(err, refusal.code, "%s", refusal.text);
        }
    }
    job->on_stored = on_stored;
    job->stored_context = context;
    jobs_append(jobs, job);
    job_persist(job);
    writer_after_commit(jobs->deps.writer, on_submitted, job);
    return 0;
}

static bool is_same_kernel(const struct plugin *a, const struct plugin *b)
{
    return strcmp(a->manifest->name, b->manifest->name) == 0 &&
           strcmp(a->fingerprint, b->fingerprint) == 0;
}

/* Whether the key is among the job's, from its shape `first` on. */
static bool tunes(const struct job *job, const struct jobs_key *key, size_t first)
{
    if (!is_same_kernel(job->plugin, key->plugin) || strcmp(job->spec.dtype, key->dtype) != 0 ||
        strcmp(job->spec.mode, key->mode) != 0 || job->spec.has_filter ||
        !is_for_model(job, key->gpu))
        return false;
    for (size_t i = first; i < job->shape_count; i++) {
        char *text = manifest_shape_text(job->plugin->manifest, job->shapes[i]);
        bool is_same = strcmp(text, key->shape) == 0;
        free(text);
        if (is_same)
            return true;
    }
    return false;
}

const char *jobs_find_active(const struct jobs *jobs, const struct jobs_key *key)
{
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        if (job_is_active(job) && tunes(job, key, json_array_size(job->results)))
            return job->id;
    return NULL;
}

bool jobs_tried_lately(const struct jobs *jobs, const struct jobs_key *key)
{
    uint64_t now_ms = uv_now(jobs->deps.loop);
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        if (job->is_background && job->ended_at_ms != 0 &&
            now_ms - job->ended_at_ms < JOBS_RETRY_MS && tunes(job, key, 0))
            return true;
    return false;
}

void jobs_hurry(struct jobs *jobs, const char *id)
{
    struct job *job = jobs_find(jobs, id);
    if (job == NULL || job->state != JOB_QUEUED || !job->is_background)
        return;
    log_info("%s: no longer in the background: somebody waits for it", id);
    job->is_background = false;
    json_object_del(job->request, "background");
    json_object_del(job->request, "budget");
    job->spec.budget_evals = 0;
    job->spec.budget_seconds = 0;
    job_persist(job);
    jobs_start_next(jobs);
}

int jobs_cancel(struct jobs *jobs, const char *id, uid_t asker, struct tune_error *err)
{
    struct job *job = jobs_find(jobs, id);
    if (job == NULL)
        return tune_fail(err, TUNE_ENOTFOUND, "there is no job \"%.40s\"; see `tunectl jobs`", id);
    if (asker != 0 && asker != job->owner)
        return tune_fail(err, TUNE_EPERM,
            "job %s belongs to user %u: only they or root may cancel it", job->id,
            (unsigned)job->owner);
    if (!job_is_active(job) || job->is_canceling)
        return 0;
    job->is_canceling = true;
    if (job->tuning != NULL)
        tuning_cancel(job->tuning);
    else
        job_set_state(job, JOB_CANCELED, "cancelled before it began");
    return 0;
}

static json_t *listed(const struct job *job)
{
    json_t *json = job_to_json(job, true);
    json_object_set_new(json, "state", json_string(job_state_words[job->told]));
    /* A job that ended in an earlier life of the daemon is not parsed any more. */
    size_t shapes = job->shape_count ? job->shape_count
                                     : json_array_size(json_object_get(job->request, "shapes"));
    json_object_set_new(json, "shape_count", json_integer((json_int_t)shapes));
    if (job->progress != NULL) {
        json_object_set(json, "progress", job->progress);
        json_object_set(json, "done", json_object_get(job->progress, "done"));
        json_object_set(json, "total", json_object_get(job->progress, "total"));
    }
    return json;
}

json_t *jobs_to_json(const struct jobs *jobs, const char *id, struct tune_error *err)
{
    if (id != NULL) {
        const struct job *job = jobs_find(jobs, id);
        if (job == NULL) {
            tune_fail(err, TUNE_ENOTFOUND, "there is no job \"%.40s\"; see `tunectl jobs`", id);
            return NULL;
        }
        return listed(job);
    }
    json_t *list = json_array();
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        json_array_append_new(list, listed(job));
    return list;
}

bool jobs_is_active(const struct jobs *jobs, const char *id)
{
    const struct job *job = jobs_find(jobs, id);
    return job != NULL && is_active_to_others(job);
}

bool jobs_leave_free(const struct jobs *jobs, size_t device)
{
    if (device_is_taken(jobs, device))
        return false;
    const struct device_info *info = sched_device(jobs->deps.sched, device);
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        if (job->state == JOB_QUEUED && !job->is_background &&
            is_asked_device(json_object_get(job->request, "device"), info))
            return false;
    return true;
}

size_t jobs_active_count(const struct jobs *jobs)
{
    size_t count = 0;
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        count += job_is_active(job);
    return count;
}

size_t jobs_queued_count(const struct jobs *jobs)
{
    size_t count = 0;
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        count += job->state == JOB_QUEUED;
    return count;
}
