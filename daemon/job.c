/* See job.h. */
#include "daemon/job.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/search/search.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct job {
    struct job *next;
    struct jobs *jobs;
    char id[JOB_ID_BYTES];
    enum job_state state;
    enum job_state told; /* what others may know: an end only once it is durable */
    json_t *request;  /* the params of `sweep` */
    json_t *results;  /* one per finished shape */
    struct tune_error error;
    uid_t owner;
    int64_t created_unix_ms;
    /* parsed from the request */
    struct plugin *plugin;
    size_t shape_count;
    int64_t (*shapes)[MANIFEST_MAX_DIMS];
    struct tuning_spec spec; /* for the shape that runs */
    bool shapes_are_given;
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
    bool is_destroyed;
};

static void start_next(struct jobs *jobs);

/* --- state ------------------------------------------------------------------------------------ */

static const char *const state_words[] = { "queued", "running", "done", "failed", "canceled" };

static bool is_active(const struct job *job)
{
    return job->state == JOB_QUEUED || job->state == JOB_RUNNING;
}

static json_t *job_json(const struct job *job, bool with_request)
{
    json_t *json = json_pack("{s:s, s:s, s:O, s:I, s:I}", "job", job->id, "state",
        state_words[job->state], "results", job->results, "created_unix_ms",
        (json_int_t)job->created_unix_ms, "owner", (json_int_t)job->owner);
    json_object_set(json, "kernel", json_object_get(job->request, "kernel"));
    if (with_request)
        json_object_set(json, "request", job->request);
    if (job->error.code != TUNE_OK) {
        json_t *sentence = json_string(job->error.text);
        json_object_set_new(json, "error", sentence ? sentence : json_string("(not printable)"));
        json_object_set_new(json, "code", json_string(tune_code_word(job->error.code)));
    }
    return json;
}

/* What is stored of a job whose shapes come from the manifest must name them: the manifest may change
 * before a restart. */
static void persist(struct job *job)
{
    char name[48];
    json_t *json = job_json(job, true);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    snprintf(name, sizeof name, "job/%s", job->id);
    if (text != NULL)
        tuning_db_batch_job(writer_batch(job->jobs->deps.writer), name, text, strlen(text));
    free(text);
}

static void publish_done(struct job *job)
{
    json_t *params = job_json(job, false);
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
}

static void job_set_state(struct job *job, enum job_state state, const char *why)
{
    assert(is_active(job));
    assert(state != JOB_QUEUED || job->state == JOB_RUNNING);
    assert(state != JOB_RUNNING || job->state == JOB_QUEUED);
    log_info("%s: %s -> %s: %s", job->id, state_words[job->state], state_words[state], why);
    job->state = state;
    if (is_active(job)) {
        job->told = state;
        return;
    }
    json_decref(job->progress);
    job->progress = NULL;
    persist(job);
    writer_after_commit(job->jobs->deps.writer, on_end_stored, job);
}

/* --- parsing a request ------------------------------------------------------------------------ */

static const char *const sweep_keys[] = { "kernel", "shapes", "dtype", "mode", "strategy", "budget",
    "seed", "prior", "device", "params", "deadline_ms", "nvrtc_cache", NULL };

static int parse_shapes(struct job *job, struct tune_error *err)
{
    const struct manifest *manifest = job->plugin->manifest;
    json_t *list, *shape;
    size_t i;
    if (proto_array_opt(job->request, "shapes", &list, err))
        return -1;
    job->shapes_are_given = json_array_size(list) > 0;
    if (!job->shapes_are_given)
        return 0;
    job->shape_count = json_array_size(list);
    if (job->shape_count > JOB_SHAPES_MAX)
        return tune_fail(err, TUNE_ELIMIT,
            "a sweep takes at most %d shapes; this one has %zu: split it", JOB_SHAPES_MAX,
            job->shape_count);
    job->shapes = xcalloc(job->shape_count, sizeof *job->shapes);
    json_array_foreach(list, i, shape)
    {
        if (manifest_shape_from_json(manifest, shape, job->shapes[i], err))
            return -1;
    }
    return 0;
}

/* The manifest's own list, once the device is known: the emulated one gets small shapes. */
static void take_manifest_shapes(struct job *job, const struct device_info *device)
{
    const struct manifest *manifest = job->plugin->manifest;
    bool is_cpu = device->attributes[DEVICE_sm] == 0 && manifest->shape_cpu_count > 0;
    job->shape_count = is_cpu ? manifest->shape_cpu_count : manifest->shape_count;
    job->shapes = xcalloc(job->shape_count, sizeof *job->shapes);
    memcpy(job->shapes, is_cpu ? manifest->shapes_cpu : manifest->shapes,
        job->shape_count * sizeof *job->shapes);
    json_t *list = json_array();
    for (size_t i = 0; i < job->shape_count; i++)
        json_array_append_new(list, manifest_shape_to_json(manifest, job->shapes[i]));
    json_object_set_new(job->request, "shapes", list);
    job->shapes_are_given = true;
    persist(job);
}

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = uv_hrtime();
    return seed & INT64_MAX;
}

static int parse_budget(struct job *job, struct tune_error *err)
{
    static const char *const keys[] = { "evals", "seconds", NULL };
    json_t *budget;
    int64_t evals = 0;
    double seconds = 0;
    if (proto_object_opt(job->request, "budget", &budget, err)
        || proto_known_keys(budget, keys, "a budget", err)
        || proto_int_opt(budget, "evals", 1, SPACE_CONFIG_LIMIT, &evals, err)
        || proto_number_opt(budget, "seconds", &seconds, err))
        return -1;
    if (seconds < 0 || seconds > 1e7)
        return tune_fail(err, TUNE_EINVAL, "budget seconds must be between 0 and 10000000");
    job->spec.budget_evals = (size_t)evals;
    job->spec.budget_seconds = seconds;
    return 0;
}

static int parse_filter(struct job *job, struct tune_error *err)
{
    json_t *params;
    if (proto_object_opt(job->request, "params", &params, err))
        return -1;
    job->spec.has_filter = params != NULL;
    if (params == NULL)
        return 0;
    space_filter_init(&job->spec.filter, job->plugin->manifest);
    return space_filter_from_json(&job->spec.filter, job->plugin->manifest, params, err);
}

static int parse_words(struct job *job, struct tune_error *err)
{
    struct tuning_spec *spec = &job->spec;
    const struct manifest *manifest = job->plugin->manifest;
    spec->dtype = manifest->dtypes[0];
    spec->mode = "cold";
    const char *prior = "all";
    if (proto_string_opt(job->request, "dtype", &spec->dtype, err)
        || proto_string_opt(job->request, "mode", &spec->mode, err)
        || proto_string_opt(job->request, "strategy", &spec->strategy, err)
        || proto_string_opt(job->request, "prior", &prior, err)
        || tuning_parse_prior(prior, &spec->prior, err))
        return -1;
    if (!manifest_has_dtype(manifest, spec->dtype))
        return tune_fail(err, TUNE_EINVAL, "%s has no dtype \"%.20s\"; see `tunectl describe %s`",
            manifest->name, spec->dtype, manifest->name);
    if (strcmp(spec->mode, "cold") != 0 && strcmp(spec->mode, "warm") != 0)
        return tune_fail(err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", spec->mode);
    return spec->strategy ? search_check_name(spec->strategy, err) : 0;
}

/* A device is named by ordinal or by UUID. */
static int parse_device(struct job *job, struct tune_error *err)
{
    const json_t *device = json_object_get(job->request, "device");
    if (device == NULL || json_is_null(device) || json_is_integer(device)
        || json_is_string(device))
        return 0;
    return tune_fail(err, TUNE_EINVAL, "field \"device\" must be a number or a UUID");
}

static int parse_request(struct job *job, struct tune_error *err)
{
    const char *kernel;
    int64_t seed = (int64_t)random_seed(), deadline_ms = TUNING_DEADLINE_MS;
    bool nvrtc_cache = true;
    if (proto_known_keys(job->request, sweep_keys, "sweep", err)
        || proto_string(job->request, "kernel", &kernel, err))
        return -1;
    struct plugin *plugin = registry_find(job->jobs->registry, kernel, err);
    if (plugin == NULL)
        return -1;
    job->plugin = plugin_ref(plugin);
    if (parse_shapes(job, err) || parse_words(job, err) || parse_budget(job, err)
        || parse_filter(job, err) || parse_device(job, err)
        || proto_int_opt(job->request, "seed", 0, INT64_MAX, &seed, err)
        || proto_int_opt(job->request, "deadline_ms", 10, 600000, &deadline_ms, err)
        || proto_bool_opt(job->request, "nvrtc_cache", &nvrtc_cache, err))
        return -1;
    json_object_set_new(job->request, "seed", json_integer(seed));
    job->spec.plugin = job->plugin;
    job->spec.seed = (uint64_t)seed;
    job->spec.input_seed = (uint64_t)seed;
    job->spec.deadline_ms = (uint64_t)deadline_ms;
    job->spec.no_nvrtc_cache = !nvrtc_cache;
    job->spec.job = job->id;
    return 0;
}

/* --- the list --------------------------------------------------------------------------------- */

static struct job *find(const struct jobs *jobs, const char *id)
{
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        if (strcmp(job->id, id) == 0)
            return job;
    return NULL;
}

static struct job *job_new(struct jobs *jobs, json_t *request, uid_t owner)
{
    struct job *job = xcalloc(1, sizeof *job);
    job->jobs = jobs;
    job->request = request;
    job->results = json_array();
    job->owner = owner;
    return job;
}

static void job_destroy(struct job *job)
{
    writer_forget(job->jobs->deps.writer, job);
    plugin_unref(job->plugin);
    json_decref(job->request);
    json_decref(job->results);
    json_decref(job->progress);
    free(job->shapes);
    free(job);
}

static void append(struct jobs *jobs, struct job *job)
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

/* Forgets the oldest finished jobs beyond the number kept. */
static void forget_old(struct jobs *jobs)
{
    size_t finished = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        finished += !is_active(job);
    for (struct job *job = jobs->first; job != NULL && finished > JOBS_FINISHED_KEPT;) {
        struct job *next = job->next;
        if (!is_active(job)) {
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
    bool is_news = before == NULL || strcmp(before, progress->phase) != 0
        || progress->done == progress->total;
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
    json_object_set_new(job->progress, "best_ns",
        progress->best_ns > 0 ? json_real(progress->best_ns) : json_null());
    json_object_set_new(job->progress, "default_ns",
        progress->default_ns > 0 ? json_real(progress->default_ns) : json_null());
    job->jobs->callbacks.on_event(
        "progress", job->progress, job->id, job->jobs->callbacks.context);
}

static void start_shape(struct job *job);

/* Nothing was ok for any shape: the sweep as a whole failed, and says of what. */
static bool has_best(const struct job *job)
{
    size_t i;
    json_t *result;
    json_array_foreach(job->results, i, result)
    {
        if (json_is_object(json_object_get(result, "best")))
            return true;
    }
    return false;
}

static void finish(struct job *job)
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
    forget_old(job->jobs);
    start_next(job->jobs);
}

/* Its device is out of use: the shape goes to another one, or the job fails with the reason. */
static bool must_move(const struct job *job, enum tuning_end end, const struct tune_error *err)
{
    const char *reason;
    return end == TUNING_FAILED && err->code == TUNE_ENODEVICE && !job->is_canceling
        && strcmp(sched_device_state(job->jobs->deps.sched, job->devices[0], &reason), "offline") == 0;
}

static void on_tuned(
    enum tuning_end end, const struct tune_error *err, json_t *result, void *context)
{
    struct job *job = context;
    job->tuning = NULL;
    if (must_move(job, end, err)) {
        job_set_state(job, JOB_QUEUED, err->text);
        start_next(job->jobs);
        return;
    }
    if (result != NULL)
        json_array_append(job->results, result);
    if (end == TUNING_FAILED && job->error.code == TUNE_OK)
        job->error = *err;
    if (end == TUNING_DONE && json_array_size(job->results) < job->shape_count) {
        persist(job);
        start_shape(job);
        return;
    }
    finish(job);
}

static void start_shape(struct job *job)
{
    struct tuning_callbacks callbacks = { on_progress, on_tuned, job };
    size_t shape = json_array_size(job->results);
    job->spec.device_count = job->device_count;
    memcpy(job->spec.devices, job->devices, sizeof job->spec.devices);
    memcpy(job->spec.dims, job->shapes[shape], sizeof job->spec.dims);
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
    return strcmp(json_string_value(asked), ordinal) == 0
        || strcmp(json_string_value(asked), device->uuid) == 0;
}

/* A sweep is spread over all free GPUs of one model, whose times may be compared. */
static bool may_join(const struct job *job, size_t device)
{
    const struct sched *sched = job->jobs->deps.sched;
    if (job->device_count == 0)
        return true;
    const struct device_info *first = sched_device(sched, job->devices[0]);
    const struct device_info *other = sched_device(sched, device);
    return job->device_count < TUNING_LANES_MAX && strcmp(first->name, other->name) == 0
        && memcmp(first->attributes, other->attributes, sizeof first->attributes) == 0;
}

/* A free device for the job; -1 without *err: wait; -1 with *err: there will be none. */
static int choose_devices(struct job *job, struct tune_error *err)
{
    struct sched *sched = job->jobs->deps.sched;
    const json_t *asked = json_object_get(job->request, "device");
    bool is_known = false, is_taken = false;
    job->device_count = 0;
    const char *reason = "", *why;
    for (size_t i = 0; i < sched_device_count(sched); i++) {
        if (!is_asked_device(asked, sched_device(sched, i)))
            continue;
        is_known = true;
        if (strcmp(sched_device_state(sched, i, &why), "offline") == 0) {
            reason = why;
        } else if (device_is_taken(job->jobs, i)) {
            is_taken = true;
        } else if (may_join(job, i)) {
            job->devices[job->device_count++] = i;
        }
    }
    if (job->device_count > 0)
        return 0;
    if (is_taken)
        return -1;
    if (is_known)
        return tune_fail(err, TUNE_ENODEVICE, "the device is offline: %s", reason);
    if (sched_device_count(sched) > 0)
        return tune_fail(err, TUNE_ENODEVICE, "there is no such device; see `tunectl devices`");
    return tune_fail(err, TUNE_ENODEVICE, "no GPU to tune on: %s", sched_device_error(sched));
}

static void try_start(struct job *job)
{
    struct tune_error err = { 0 };
    if (choose_devices(job, &err)) {
        if (err.code != TUNE_OK) {
            job->error = err;
            job_set_state(job, JOB_FAILED, err.text);
        }
        return;
    }
    const struct device_info *device = sched_device(job->jobs->deps.sched, job->devices[0]);
    if (!job->shapes_are_given)
        take_manifest_shapes(job, device);
    job_set_state(job, JOB_RUNNING, device->name);
    start_shape(job);
}

static void start_next(struct jobs *jobs)
{
    if (!sched_is_ready(jobs->deps.sched))
        return;
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        if (job->state == JOB_QUEUED && job->on_stored == NULL)
            try_start(job);
}

void jobs_kick(struct jobs *jobs)
{
    start_next(jobs);
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

static void on_submitted(const struct tune_error *err, void *context)
{
    struct job *job = context;
    struct jobs *jobs = job->jobs;
    tell_asker(job, err);
    if (err != NULL)
        remove_job(jobs, job);
    else
        start_next(jobs);
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
        snprintf(job->id, sizeof job->id, "j-%llx-%02llx", (unsigned long long)job->created_unix_ms,
            (unsigned long long)(random_seed() & 0xff));
    } while (find(job->jobs, job->id) != NULL);
}

int jobs_submit(struct jobs *jobs, const json_t *params, uid_t owner,
    void (*on_stored)(const char *job, const struct tune_error *err, void *context), void *context,
    struct tune_error *err)
{
    if (jobs_active_count(jobs) >= JOBS_ACTIVE_MAX)
        return tune_fail(err, TUNE_ELIMIT,
            "%d sweeps are queued or running, which is the limit: wait for some to end, or cancel some",
            JOBS_ACTIVE_MAX);
    struct job *job = job_new(jobs, json_deep_copy(params), owner);
    make_id(job);
    if (parse_request(job, err)) {
        job_destroy(job);
        return -1;
    }
    if (sched_is_ready(jobs->deps.sched)) {
        struct tune_error refusal = { 0 };
        choose_devices(job, &refusal);
        if (refusal.code != TUNE_OK) {
            job_destroy(job);
            return tune_fail(err, refusal.code, "%s", refusal.text);
        }
    }
    job->on_stored = on_stored;
    job->stored_context = context;
    append(jobs, job);
    persist(job);
    writer_after_commit(jobs->deps.writer, on_submitted, job);
    return 0;
}

const char *jobs_find_active(const struct jobs *jobs, const char *kernel, const char *shape,
    const char *dtype, const char *mode)
{
    for (const struct job *job = jobs->first; job != NULL; job = job->next) {
        if (!is_active(job) || strcmp(job->plugin->manifest->name, kernel) != 0
            || strcmp(job->spec.dtype, dtype) != 0 || strcmp(job->spec.mode, mode) != 0
            || job->spec.has_filter)
            continue;
        for (size_t i = json_array_size(job->results); i < job->shape_count; i++) {
            char *text = manifest_shape_text(job->plugin->manifest, job->shapes[i]);
            bool is_same = strcmp(text, shape) == 0;
            free(text);
            if (is_same)
                return job->id;
        }
    }
    return NULL;
}

int jobs_cancel(struct jobs *jobs, const char *id, uid_t asker, struct tune_error *err)
{
    struct job *job = find(jobs, id);
    if (job == NULL)
        return tune_fail(err, TUNE_ENOTFOUND, "there is no job \"%.40s\"; see `tunectl jobs`", id);
    if (asker != 0 && asker != job->owner)
        return tune_fail(err, TUNE_EPERM, "job %s belongs to user %u: only they or root may cancel it",
            job->id, (unsigned)job->owner);
    if (!is_active(job) || job->is_canceling)
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
    json_t *json = job_json(job, true);
    json_object_set_new(json, "state", json_string(state_words[job->told]));
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
        const struct job *job = find(jobs, id);
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
    const struct job *job = find(jobs, id);
    return job != NULL && (job->told == JOB_QUEUED || job->told == JOB_RUNNING);
}

size_t jobs_active_count(const struct jobs *jobs)
{
    size_t count = 0;
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        count += is_active(job);
    return count;
}

/* --- loading ---------------------------------------------------------------------------------- */

static enum job_state state_from_word(const char *word)
{
    for (size_t i = 0; word != NULL && i < sizeof state_words / sizeof state_words[0]; i++)
        if (strcmp(state_words[i], word) == 0)
            return (enum job_state)i;
    return JOB_FAILED;
}

static void restore_error(struct job *job, const json_t *json)
{
    const char *text = json_string_value(json_object_get(json, "error"));
    if (text != NULL)
        tune_fail(&job->error, TUNE_EINTERNAL, "%s", text);
}

static int on_stored_job(const char *name, const void *bytes, size_t count, void *context)
{
    struct jobs *jobs = context;
    struct tune_error err = { 0 };
    json_t *json = proto_parse(bytes, count, &err);
    json_t *request = json_object_get(json, "request");
    json_t *results = json_object_get(json, "results");
    if (!json_is_object(request) || !json_is_array(results)) {
        log_warnx("%s is damaged and left out: %s", name, err.text);
        json_decref(json);
        return 0;
    }
    struct job *job = job_new(
        jobs, json_incref(request), (uid_t)json_integer_value(json_object_get(json, "owner")));
    snprintf(job->id, sizeof job->id, "%s", name + strlen("job/"));
    json_decref(job->results);
    job->results = json_incref(results);
    job->created_unix_ms = json_integer_value(json_object_get(json, "created_unix_ms"));
    job->state = state_from_word(json_string_value(json_object_get(json, "state")));
    restore_error(job, json);
    json_decref(json);
    append(jobs, job);
    if (job->state == JOB_RUNNING)
        job->state = JOB_QUEUED;
    job->told = job->state;
    if (!is_active(job))
        return 0;
    if (parse_request(job, &job->error))
        job_set_state(job, JOB_FAILED, job->error.text);
    else if (job->shapes_are_given && json_array_size(job->results) >= job->shape_count)
        finish(job);
    else
        log_info("%s: resumed", job->id);
    return 0;
}

static int compare_created(const void *left, const void *right)
{
    const struct job *a = *(struct job *const *)left, *b = *(struct job *const *)right;
    return (a->created_unix_ms > b->created_unix_ms) - (a->created_unix_ms < b->created_unix_ms);
}

int jobs_load(struct jobs *jobs, struct tune_error *err)
{
    if (tuning_db_walk_jobs(jobs->deps.db, "job/", on_stored_job, jobs, err))
        return -1;
    size_t count = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        count++;
    struct job **sorted = xcalloc(count, sizeof *sorted);
    count = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next)
        sorted[count++] = job;
    qsort(sorted, count, sizeof *sorted, compare_created);
    jobs->first = NULL;
    jobs->end = &jobs->first;
    for (size_t i = 0; i < count; i++) {
        sorted[i]->next = NULL;
        append(jobs, sorted[i]);
    }
    free(sorted);
    return 0;
}
