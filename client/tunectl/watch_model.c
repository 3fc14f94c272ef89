/* See watch_model.h. */
#include "watch_model.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces a text. */
static void set_text(char **text, const char *value)
{
    char *copy = value ? need(strdup(value)) : NULL;
    free(*text);
    *text = copy;
}

/* The same, with a new one. */
static void take_text(char **text, char *value)
{
    free(*text);
    *text = value;
}

static double clamp_share(double share)
{
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void result_finish(struct watch_result *result)
{
    free(result->config);
    free(result->outcome);
    free(result->detail);
}

static void job_destroy(struct watch_job *job)
{
    for (size_t i = 0; i < WATCH_RECENT_MAX; i++)
        result_finish(&job->recent[i]);
    free(job->id);
    free(job->kernel);
    free(job->shape);
    free(job->phase);
    free(job->best_config);
    json_decref(job->outcomes);
    free(job);
}

static size_t place_of(const struct watch_model *model, const char *id)
{
    size_t place = 0;
    while (place < model->job_count && strcmp(model->jobs[place]->id, id) != 0)
        place++;
    return place;
}

static struct watch_job *job_of(struct watch_model *model, const char *id)
{
    size_t place = place_of(model, id);
    if (place < model->job_count)
        return model->jobs[place];
    model->jobs = need(realloc(model->jobs, (place + 1) * sizeof *model->jobs));
    struct watch_job *job = model->jobs[place] = need(calloc(1, sizeof *job));
    model->job_count++;
    set_text(&job->id, id);
    set_text(&job->kernel, "");
    set_text(&job->shape, "");
    set_text(&job->phase, "");
    set_text(&job->best_config, "");
    return job;
}

static void remove_job(struct watch_model *model, size_t place)
{
    if (model->asked != NULL && strcmp(model->asked, model->jobs[place]->id) == 0)
        set_text(&model->asked, NULL);
    job_destroy(model->jobs[place]);
    model->job_count--;
    for (size_t i = place; i < model->job_count; i++)
        model->jobs[i] = model->jobs[i + 1];
    if (model->selected > place || (model->selected == model->job_count && place > 0))
        model->selected--;
}

/* --- progress --------------------------------------------------------------------------------- */

static void add_result(struct watch_job *job, const json_t *json, double now_s)
{
    struct watch_result *result = &job->recent[job->recent_count++ % WATCH_RECENT_MAX];
    take_text(&result->config, pairs_text(json_object_get(json, "config"), " "));
    set_text(&result->outcome, text_of(json, "outcome"));
    set_text(&result->detail, text_of(json, "detail"));
    result->median_ns = number_of(json, "median_ns");
    result->told_s = now_s;
}

static void add_point(struct watch_job *job, double now_s)
{
    if (job->point_count == WATCH_POINTS_MAX) {
        memmove(job->points, job->points + 1, sizeof job->points - sizeof job->points[0]);
        job->point_count--;
    }
    job->points[job->point_count].at_s = now_s;
    job->points[job->point_count++].done = job->done;
}

/* What is told of one shape begins anew with the next. */
static void begin_shape(struct watch_job *job, double index)
{
    job->shape_index = index;
    job->shape_first = job->recent_count;
    job->point_count = 0;
}

static void take_numbers(struct watch_job *job, const json_t *params, double now_s)
{
    job->shape_count = number_of(params, "shape_count");
    job->done = number_of(params, "done");
    job->total = number_of(params, "total");
    job->best_ns = number_of(params, "best_ns");
    job->default_ns = number_of(params, "default_ns");
    job->mean_rate = number_of(params, "configs_per_s");
    job->elapsed_s = number_of(params, "elapsed_s");
    job->told_s = now_s;
    add_point(job, now_s);
}

static void take_progress(struct watch_model *model, const json_t *params, double now_s)
{
    const json_t *best = json_object_get(params, "best_config");
    struct watch_job *job = job_of(model, text_of(params, "job"));
    double index = number_of(params, "shape_index");
    if (index != job->shape_index)
        begin_shape(job, index);
    set_text(&job->kernel, text_of(params, "kernel"));
    take_text(&job->shape, shape_text(params, ","));
    set_text(&job->phase, text_of(params, "phase"));
    take_text(&job->best_config, json_is_object(best) ? pairs_text(best, " ") : need(strdup("")));
    take_numbers(job, params, now_s);
    json_decref(job->outcomes);
    job->outcomes = json_incref(json_object_get(params, "outcomes"));
    size_t i;
    json_t *result;
    json_array_foreach (json_object_get(params, "recent"), i, result) {
        add_result(job, result, now_s);
    }
    if (!model->is_paused)
        job->shown_count = job->recent_count;
}

/* "gemm is done, best 63.2 us". */
static void take_done(struct watch_model *model, const json_t *params)
{
    const char *id = text_of(params, "job");
    const json_t *results = json_object_get(params, "results");
    const json_t *best = json_object_get(json_array_get(results, 0), "best");
    size_t place = place_of(model, id);
    char best_text[HUMAN_BYTES], *words;
    bool has_best = json_array_size(results) == 1 && json_is_object(best);
    const char *kernel = text_of(params, "kernel");
    if (asprintf(&words, "%s%s%s is %s%s%s", kernel, kernel[0] ? " " : "", id,
            text_of(params, "state"), has_best ? ", best " : "",
            has_best ? human_time(number_of(best, "median_ns"), best_text) : "") < 0)
        words = need(NULL);
    take_text(&model->last_end, words);
    if (place < model->job_count)
        remove_job(model, place);
}

void watch_notify(struct watch_model *model, const json_t *message, double now_s)
{
    const json_t *params = json_object_get(message, "params");
    const char *method = text_of(message, "method");
    if (strcmp(method, "progress") == 0)
        take_progress(model, params, now_s);
    else if (strcmp(method, "done") == 0)
        take_done(model, params);
}

void watch_take_jobs(struct watch_model *model, const json_t *jobs, double now_s)
{
    size_t i;
    json_t *job;
    json_array_foreach (jobs, i, job) {
        const json_t *progress = json_object_get(job, "progress");
        const char *id = text_of(job, "job");
        bool is_known = place_of(model, id) < model->job_count;
        bool is_meant = model->only == NULL || strcmp(model->only, id) == 0;
        if (is_meant && !is_known && strcmp(text_of(job, "state"), "running") == 0 &&
            json_is_object(progress))
            take_progress(model, progress, now_s);
    }
}

double watch_rate(const struct watch_job *job, double now_s)
{
    size_t from = 0;
    while (from + 1 < job->point_count && job->points[from + 1].at_s <= now_s - WATCH_RATE_WINDOW_S)
        from++;
    if (job->point_count == 0 || now_s - job->points[from].at_s < 1)
        return job->mean_rate;
    double rate = (job->done - job->points[from].done) / (now_s - job->points[from].at_s);
    return rate > 0 ? rate : 0;
}

double watch_elapsed_s(const struct watch_job *job, double now_s)
{
    return job->elapsed_s + (now_s > job->told_s ? now_s - job->told_s : 0);
}

double watch_left_s(const struct watch_job *job, double now_s)
{
    double rate = watch_rate(job, now_s);
    return rate > 0 && job->total > job->done ? (job->total - job->done) / rate : -1;
}

/* The first result that is still kept. */
static size_t oldest(const struct watch_job *job)
{
    return job->recent_count > WATCH_RECENT_MAX ? job->recent_count - WATCH_RECENT_MAX : 0;
}

const struct watch_result *watch_recent(const struct watch_job *job, size_t age)
{
    if (job->shown_count < oldest(job) + age + 1)
        return NULL;
    return &job->recent[(job->shown_count - age - 1) % WATCH_RECENT_MAX];
}

size_t watch_times(const struct watch_job *job, double *times_ns, size_t room)
{
    size_t first = oldest(job) > job->shape_first ? oldest(job) : job->shape_first;
    if (job->recent_count - first > room)
        first = job->recent_count - room;
    for (size_t i = first; i < job->recent_count; i++)
        times_ns[i - first] = job->recent[i % WATCH_RECENT_MAX].median_ns;
    return job->recent_count - first;
}

/* --- stats ------------------------------------------------------------------------------------ */

static void forget_gpus(struct watch_model *model)
{
    for (size_t i = 0; i < model->gpu_count; i++) {
        free(model->gpus[i].name);
        free(model->gpus[i].state);
        free(model->gpus[i].reason);
    }
    free(model->gpus);
    model->gpus = NULL;
    model->gpu_count = 0;
}

static void drop_oldest_load(struct watch_model *model)
{
    memmove(model->loads, model->loads + 1, sizeof model->loads - sizeof model->loads[0]);
    for (size_t i = 0; i < model->gpu_count; i++)
        memmove(model->gpus[i].busy_s, model->gpus[i].busy_s + 1,
            sizeof model->gpus[i].busy_s - sizeof model->gpus[i].busy_s[0]);
    model->load_count--;
}

/* Room for them; those that are known keep what was told of them. */
static void fit_gpus(struct watch_model *model, size_t count)
{
    count = count < WATCH_GPUS_MAX ? count : WATCH_GPUS_MAX;
    if (count == model->gpu_count)
        return;
    forget_gpus(model);
    model->load_count = 0;
    model->gpus = need(calloc(count + 1, sizeof *model->gpus));
    model->gpu_count = count;
}

void watch_take_stats(struct watch_model *model, const json_t *stats, const json_t *devices)
{
    const json_t *workers = json_object_get(stats, "workers");
    model->uptime_s = number_of(stats, "uptime_s");
    model->clients = number_of(stats, "clients");
    model->jobs_active = number_of(stats, "jobs_active");
    model->jobs_queued = number_of(stats, "jobs_queued");
    model->compile_alive = number_of(workers, "compile");
    model->compile_busy = number_of(workers, "compile_busy");
    model->compile_queue = number_of(workers, "compile_queue");
    fit_gpus(model, json_array_size(devices));
    if (model->load_count == WATCH_LOADS_MAX)
        drop_oldest_load(model);
    size_t load = model->load_count++;
    model->loads[load].uptime_s = model->uptime_s;
    model->loads[load].compile_busy_s = number_of(workers, "compile_busy_s");
    for (size_t i = 0; i < model->gpu_count; i++) {
        const json_t *device = json_array_get(devices, i);
        struct watch_gpu *gpu = &model->gpus[i];
        gpu->ordinal = (int)json_integer_value(json_object_get(device, "ordinal"));
        set_text(&gpu->name, text_of(device, "name"));
        set_text(&gpu->state, text_of(device, "state"));
        set_text(&gpu->reason, text_of(device, "reason"));
        gpu->busy_s[load] = number_of(device, "busy_s");
    }
}

/* Seconds between the oldest and the newest stats kept; 0: there are no two. */
static double window_s(const struct watch_model *model)
{
    size_t count = model->load_count;
    return count < 2 ? 0 : model->loads[count - 1].uptime_s - model->loads[0].uptime_s;
}

double watch_gpu_share(const struct watch_model *model, size_t gpu)
{
    const double *busy_s = model->gpus[gpu].busy_s;
    double over_s = window_s(model);
    return over_s > 0 ? clamp_share((busy_s[model->load_count - 1] - busy_s[0]) / over_s) : -1;
}

double watch_compile_share(const struct watch_model *model)
{
    double over_s = window_s(model), workers = model->compile_alive;
    if (!(over_s > 0))
        return -1;
    double busy_s =
        model->loads[model->load_count - 1].compile_busy_s - model->loads[0].compile_busy_s;
    return workers > 0 ? clamp_share(busy_s / over_s / workers) : 0;
}

/* --- keys ------------------------------------------------------------------------------------- */

const struct watch_job *watch_selected(const struct watch_model *model)
{
    return model->job_count > 0 ? model->jobs[model->selected] : NULL;
}

static void toggle_pause(struct watch_model *model)
{
    model->is_paused = !model->is_paused;
    for (size_t i = 0; i < model->job_count && !model->is_paused; i++)
        model->jobs[i]->shown_count = model->jobs[i]->recent_count;
}

enum watch_action watch_key(struct watch_model *model, int key)
{
    const struct watch_job *job = watch_selected(model);
    set_text(&model->message, NULL);
    if (model->asked != NULL) {
        if (key == 'y')
            return WATCH_CANCEL;
        set_text(&model->asked, NULL);
    } else if (model->shows_help) {
        model->shows_help = false;
    } else if (key == 'q' || key == WATCH_KEY_ESCAPE) {
        return WATCH_LEAVE;
    } else if (key == '?') {
        model->shows_help = true;
    } else if (key == 'p') {
        toggle_pause(model);
    } else if (key == 'c' && job != NULL) {
        set_text(&model->asked, job->id);
    } else if (key == 'j' && model->selected + 1 < model->job_count) {
        model->selected++;
    } else if (key == 'k' && model->selected > 0) {
        model->selected--;
    }
    return WATCH_STAY;
}

void watch_canceled(struct watch_model *model, const char *error)
{
    char *words;
    if (asprintf(&words, "%s%s", error ? error : "canceling ", error ? "" : model->asked) < 0)
        words = need(NULL);
    take_text(&model->message, words);
    set_text(&model->asked, NULL);
}

/* --- life ------------------------------------------------------------------------------------- */

void watch_init(struct watch_model *model, const char *only, double wall_offset_s)
{
    *model = (struct watch_model){.wall_offset_s = wall_offset_s};
    set_text(&model->only, only);
}

void watch_finish(struct watch_model *model)
{
    while (model->job_count > 0)
        remove_job(model, model->job_count - 1);
    forget_gpus(model);
    free(model->jobs);
    free(model->only);
    free(model->last_end);
    free(model->asked);
    free(model->message);
}
