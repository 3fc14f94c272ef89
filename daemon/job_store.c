/* Jobs in the database, and as the protocol tells them. */
#include "daemon/job_internal.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const job_state_words[] = {"queued", "running", "done", "failed", "canceled"};

bool job_is_active(const struct job *job)
{
    return job->state == JOB_QUEUED || job->state == JOB_RUNNING;
}

json_t *job_to_json(const struct job *job, bool with_request)
{
    json_t *json = json_pack("{s:s, s:s, s:O, s:I, s:I, s:I}", "job", job->id, "state",
        job_state_words[job->state], "results", job->results, "created_unix_ms",
        (json_int_t)job->created_unix_ms, "owner", (json_int_t)job->owner, "shape_count",
        (json_int_t)job->shape_count);
    json_object_set(json, "kernel", json_object_get(job->request, "kernel"));
    if (with_request)
        json_object_set(json, "request", job->request);
    if (job->error.code != TUNE_OK) {
        json_object_set_new(json, "error", proto_text(job->error.text));
        json_object_set_new(json, "code", json_string(tune_code_word(job->error.code)));
    }
    return json;
}

/* What is stored of a job whose shapes come from the manifest must name them: the manifest may
 * change before a restart. */
void job_persist(struct job *job)
{
    char name[48];
    json_t *json = job_to_json(job, true);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    snprintf(name, sizeof name, "job/%s", job->id);
    if (text != NULL)
        tuning_db_batch_job(writer_batch(job->jobs->deps.writer), name, text, strlen(text));
    free(text);
}

/* --- loading ---------------------------------------------------------------------------------- */

static enum job_state state_from_word(const char *word)
{
    for (size_t i = 0; word != NULL && i < sizeof job_state_words / sizeof job_state_words[0]; i++)
        if (strcmp(job_state_words[i], word) == 0)
            return (enum job_state)i;
    return JOB_FAILED;
}

static void restore_error(struct job *job, const json_t *json)
{
    const char *text = json_string_value(json_object_get(json, "error"));
    const char *word = json_string_value(json_object_get(json, "code"));
    if (text != NULL)
        tune_fail(&job->error, tune_code_from_word(word), "%s", text);
}

static int on_stored_job(const char *name, const void *bytes, size_t count, void *context)
{
    struct jobs *jobs = context;
    struct tune_error err = {0};
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
    jobs_append(jobs, job);
    if (job->state == JOB_RUNNING)
        job->state = JOB_QUEUED;
    job->told = job->state;
    if (!job_is_active(job))
        return 0;
    if (job_parse(job, &job->error))
        job_set_state(job, JOB_FAILED, job->error.text);
    else if (job->shapes_are_given && json_array_size(job->results) >= job->shape_count)
        job_finish(job);
    else
        log_info("%s: resumed", job->id);
    return 0;
}

static int compare_created(const void *left, const void *right)
{
    const struct job *a = *(struct job *const *)left, *b = *(struct job *const *)right;
    return (a->created_unix_ms > b->created_unix_ms) - (a->created_unix_ms < b->created_unix_ms);
}

/* "mark/JOB/DEVICE": what a device was measuring when the last daemon ended. Only a job that goes
 * on reads it; that of another machine's job, which we helped, would stay for ever. */
static int on_mark(const char *name, const void *bytes, size_t count, void *context)
{
    struct jobs *jobs = context;
    char id[JOB_ID_BYTES];
    (void)bytes, (void)count;
    const char *begin = name + strlen("mark/");
    snprintf(id, sizeof id, "%.*s", (int)strcspn(begin, "/"), begin);
    const struct job *job = jobs_find(jobs, id);
    if (job == NULL || !job_is_active(job))
        tuning_db_batch_job(writer_batch(jobs->deps.writer), name, NULL, 0);
    return 0;
}

int jobs_load(struct jobs *jobs, struct tune_error *err)
{
    if (tuning_db_walk_jobs(jobs->deps.db, "job/", on_stored_job, jobs, err) ||
        tuning_db_walk_jobs(jobs->deps.db, "mark/", on_mark, jobs, err))
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
        jobs_append(jobs, sorted[i]);
    }
    free(sorted);
    return 0;
}
