/* Jobs: which are kept, what is known of them after a restart. */
#include "daemon/job.h"
#include "parts.h"

#include <stdio.h>
#include <string.h>

static struct jobs *jobs;
static bool is_done;
static char done_job[JOB_ID_BYTES];

static void on_event(const char *method, json_t *params, const char *job, void *context)
{
    (void)params, (void)context;
    if (strcmp(method, "done") != 0)
        return;
    snprintf(done_job, sizeof done_job, "%s", job);
    is_done = true;
}

static int start(void **state)
{
    is_done = false;
    return open_parts(state);
}

static int finish(void **state)
{
    jobs_destroy(jobs);
    return close_parts(state);
}

static void on_stored(const struct tune_error *err, void *context)
{
    assert_null(err);
    *(bool *)context = true;
}

/* Writes a job as an earlier daemon left it. Takes fields. */
static void leave_job(int number, const char *state, json_t *fields)
{
    char name[48], id[32];
    snprintf(id, sizeof id, "j-%04d-00", number);
    snprintf(name, sizeof name, "job/%s", id);
    json_t *job = json_pack("{s:s, s:s, s:I, s:i, s:[], s:{s:s, s:[{s:i, s:i}], s:s, s:{s:i}}}",
        "job", id, "state", state, "created_unix_ms", (json_int_t)number, "owner", 0, "results",
        "request", "kernel", "transpose", "shapes", "M", 64, "N", 64, "strategy", "random",
        "budget", "evals", 2);
    json_object_update_new(job, fields ? fields : json_object());
    char *text = json_dumps(job, JSON_COMPACT);
    tuning_db_batch_job(writer_batch(parts.writer), name, text, strlen(text));
    free(text);
    json_decref(job);
}

static void load(void)
{
    struct jobs_callbacks callbacks = {.on_event = on_event};
    struct tune_error err = {0};
    bool is_stored = false;
    writer_after_commit(parts.writer, on_stored, &is_stored);
    run_until_true(&is_stored);
    start_parts();
    jobs = jobs_create(&parts, parts_registry, &callbacks);
    assert_int_equal(jobs_load(jobs, &err), 0);
}

static void a_job_is_not_forgotten_before_its_end_was_told(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    leave_job(1, "running", NULL);
    for (int i = 0; i < JOBS_FINISHED_KEPT; i++)
        leave_job(2 + i, "canceled", NULL);
    load();
    jobs_kick(jobs);
    run_until_true(&is_done);
    assert_string_equal(done_job, "j-0001-00");
    json_t *job = jobs_to_json(jobs, "j-0001-00", NULL);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "done");
    json_decref(job);
    json_t *all = jobs_to_json(jobs, NULL, NULL);
    assert_int_equal(json_array_size(all), JOBS_FINISHED_KEPT);
    json_decref(all);
}

static void a_failed_job_keeps_its_reason_and_the_word_for_it(void **state)
{
    (void)state;
    leave_job(
        1, "failed", json_pack("{s:s, s:s}", "error", "the card fell out", "code", "no_device"));
    load();
    json_t *job = jobs_to_json(jobs, "j-0001-00", NULL);
    assert_string_equal(json_string_value(json_object_get(job, "error")), "the card fell out");
    assert_string_equal(json_string_value(json_object_get(job, "code")), "no_device");
    json_decref(job);
}

static bool is_never_idle(size_t device, void *context)
{
    (void)device, (void)context;
    return false;
}

static void on_submitted(const char *job, const struct tune_error *err, void *context)
{
    (void)job, (void)context;
    assert_null(err);
}

static int submit(int n, bool is_background, struct tune_error *err)
{
    json_t *params = json_pack("{s:s, s:[{s:i, s:i}], s:b}", "kernel", "transpose", "shapes", "M",
        8, "N", n, "background", is_background);
    int status = jobs_submit(jobs, params, 0, on_submitted, NULL, err);
    json_decref(params);
    return status;
}

/* On a GPU that is never idle they stay queued. */
static void sweeps_in_the_background_leave_room_for_others(void **state)
{
    (void)state;
    struct jobs_callbacks callbacks = {.is_idle = is_never_idle, .on_event = on_event};
    struct tune_error err = {0};
    start_parts();
    jobs = jobs_create(&parts, parts_registry, &callbacks);
    int count = 0;
    while (submit(8 + count, true, &err) == 0)
        count++;
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_int_equal(count, JOBS_BACKGROUND_MAX);
    err = (struct tune_error){0};
    assert_int_equal(submit(8, false, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_job_is_not_forgotten_before_its_end_was_told, start, finish),
        cmocka_unit_test_setup_teardown(
            a_failed_job_keeps_its_reason_and_the_word_for_it, start, finish),
        cmocka_unit_test_setup_teardown(
            sweeps_in_the_background_leave_room_for_others, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
