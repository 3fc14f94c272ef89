/* get: which questions begin a sweep. Answers are caught where commands give them. */
#include "daemon/command.h"
#include "parts.h"

#include <string.h>

static struct app app;
static struct request request;
static bool is_answered;
static json_t *answer;
static struct tune_error failure;

void __wrap_request_reply(struct request *replied, json_t *result);
void __wrap_request_reply_again(struct request *replied, json_t *result);
void __wrap_request_fail(struct request *failed, const struct tune_error *err);

void __wrap_request_reply(struct request *replied, json_t *result)
{
    assert_ptr_equal(replied, &request);
    assert_false(is_answered);
    is_answered = true;
    answer = result;
}

void __wrap_request_reply_again(struct request *replied, json_t *result)
{
    __wrap_request_reply(replied, result);
}

void __wrap_request_fail(struct request *failed, const struct tune_error *err)
{
    assert_ptr_equal(failed, &request);
    assert_false(is_answered);
    is_answered = true;
    failure = *err;
}

static void on_event(const char *method, json_t *params, const char *job, void *context)
{
    (void)params, (void)context;
    if (strcmp(method, "done") == 0)
        get_job_ended(&app, job);
}

int __real_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done);
int __wrap_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done);

/* The app here has no loop of its own. */
int __wrap_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done)
{
    return __real_uv_queue_work(loop == &app.loop ? test_loop() : loop, work, on_work, on_done);
}

static int start(void **state)
{
    if (open_parts(state))
        return -1;
    set_fake("FAKE_TIME_NS=90000");
    start_parts();
    struct jobs_callbacks callbacks = {.on_event = on_event};
    app = (struct app){.registry = parts_registry,
        .db = parts.db,
        .writer = parts.writer,
        .sched = parts.sched,
        .images = parts.images,
        .nearest = nearest_create(parts.db),
        .sessions = sessions_create(parts.db, parts.writer),
        .config = {.background_evals = 20, .background_seconds = 60},
        .jobs = jobs_create(&parts, parts_registry, &callbacks)};
    is_answered = false;
    answer = NULL;
    failure = (struct tune_error){0};
    return 0;
}

static int finish(void **state)
{
    json_decref(request.message);
    json_decref(answer);
    jobs_destroy(app.jobs);
    sessions_destroy(app.sessions);
    nearest_destroy(app.nearest);
    return close_parts(state);
}

static void get(const char *policy, const char *arch)
{
    request = (struct request){.app = &app,
        .message = json_pack("{s:s, s:{s:i, s:i}, s:s, s:s*}", "kernel", "transpose", "shape", "M",
            8, "N", 8, "policy", policy, "arch", arch)};
    request.params = request.message;
    cmd_get(&request);
}

static void a_sweep_is_waited_for_on_the_attached_architecture(void **state)
{
    (void)state;
    get("wait", "sm_90");
    run_until_true(&is_answered);
    assert_string_equal(json_string_value(json_object_get(answer, "origin")), "exact");
}

static void no_sweep_is_begun_for_an_architecture_that_is_not_attached(void **state)
{
    (void)state;
    get("tune", "sm_80");
    run_until_true(&is_answered);
    assert_string_equal(json_string_value(json_object_get(answer, "origin")), "default");
    assert_null(json_object_get(answer, "job"));
    assert_int_equal(jobs_active_count(app.jobs), 0);
}

static void who_waits_for_an_architecture_that_is_not_attached_is_told(void **state)
{
    (void)state;
    get("wait", "sm_80");
    run_until_true(&is_answered);
    assert_int_equal(failure.code, TUNE_ENODEVICE);
    assert_non_null(strstr(failure.text, "sm_80"));
    assert_int_equal(jobs_active_count(app.jobs), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_sweep_is_waited_for_on_the_attached_architecture, start, finish),
        cmocka_unit_test_setup_teardown(
            no_sweep_is_begun_for_an_architecture_that_is_not_attached, start, finish),
        cmocka_unit_test_setup_teardown(
            who_waits_for_an_architecture_that_is_not_attached_is_told, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
