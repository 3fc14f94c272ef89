/* explain: a request that is given up at any of its steps is answered once, and nothing of it is
 * left. Workers are stand-ins; answers are caught where commands give them. */
#include "daemon/command.h"
#include "parts.h"

#include <string.h>

/* A request, and what became of it. */
struct asked {
    struct request request; /* first */
    bool is_answered;
    json_t *answer;
    struct tune_error failure;
};

static struct app app;
static struct asked asked[2];
static json_t *no_limits;
static bool has_worked; /* on the thread pool */
static bool is_traced;  /* or waits for it */

void __wrap_request_reply(struct request *replied, json_t *result);
void __wrap_request_fail(struct request *failed, const struct tune_error *err);

void __wrap_request_reply(struct request *replied, json_t *result)
{
    struct asked *of = (struct asked *)replied;
    assert_false(of->is_answered);
    of->is_answered = true;
    of->answer = result;
}

void __wrap_request_fail(struct request *failed, const struct tune_error *err)
{
    struct asked *of = (struct asked *)failed;
    assert_false(of->is_answered);
    of->is_answered = true;
    of->failure = *err;
}

static uv_after_work_cb after_work;

static void on_worked(uv_work_t *work, int status)
{
    after_work(work, status);
    has_worked = true;
}

int __real_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done);
int __wrap_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done);

/* The app here has no loop of its own. */
int __wrap_uv_queue_work(
    uv_loop_t *loop, uv_work_t *work, uv_work_cb on_work, uv_after_work_cb on_done)
{
    if (loop != &app.loop)
        return __real_uv_queue_work(loop, work, on_work, on_done);
    after_work = on_done;
    return __real_uv_queue_work(test_loop(), work, on_work, on_worked);
}

int __real_tracer_request(struct tracer *tracer, json_t *request, tracer_callback callback,
    void *context, struct tune_error *err);
int __wrap_tracer_request(struct tracer *tracer, json_t *request, tracer_callback callback,
    void *context, struct tune_error *err);

int __wrap_tracer_request(struct tracer *tracer, json_t *request, tracer_callback callback,
    void *context, struct tune_error *err)
{
    const json_t *call = json_object_get(request, "call"); /* of hooks, if there are any */
    assert_int_equal(json_object_size(json_object_get(call, "dims")), 2);
    is_traced = true;
    return __real_tracer_request(tracer, request, callback, context, err);
}

static int start(void **state)
{
    if (open_parts(state))
        return -1;
    start_parts();
    struct tracer_options tracer = {
        .worker_path = fake_worker(), .env = fake_env(), .emulator = "/emulator"};
    no_limits = json_array();
    struct limits_deps limits = {
        .sched = parts.sched,
        .images = parts.images,
        .db = parts.db,
        .writer = parts.writer,
        .source = parts.harness,
        .shipped = no_limits,
    };
    app = (struct app){.registry = parts_registry,
        .db = parts.db,
        .sched = parts.sched,
        .images = parts.images,
        .tracer = tracer_create(test_loop(), &tracer),
        .limits = limits_create(&limits),
        .harness = *parts.harness,
        .nearest = nearest_create(parts.db)};
    memset(asked, 0, sizeof asked);
    has_worked = is_traced = false;
    return 0;
}

static int finish(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        json_decref(asked[i].request.message);
        json_decref(asked[i].answer);
    }
    tracer_stop(app.tracer);
    nearest_destroy(app.nearest);
    int status = close_parts(state);
    limits_destroy(app.limits);
    json_decref(no_limits);
    return status;
}

static void ask(struct asked *as, uint64_t client)
{
    as->request = (struct request){.app = &app,
        .client = client,
        .message = json_pack("{s:s, s:{s:i, s:i}, s:s}", "kernel", "transpose", "shape", "M", 8,
            "N", 8, "arch", "sm_80")};
    as->request.params = as->request.message;
    cmd_explain(&as->request);
}

static void assert_refused(const struct asked *of)
{
    assert_true(of->is_answered);
    assert_null(of->answer);
    assert_int_equal(of->failure.code, TUNE_EBUSY);
}

static void refuse(void)
{
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EBUSY, "the daemon is stopping");
    explain_refuse_all(&app, &err);
}

static void what_the_workers_say_is_put_together(void **state)
{
    (void)state;
    ask(&asked[0], 1);
    assert_false(asked[0].is_answered);
    run_until_true(&asked[0].is_answered);
    assert_string_equal(json_string_value(json_object_get(asked[0].answer, "origin")), "default");
    assert_string_equal(
        json_string_value(json_object_get(asked[0].answer, "registers_from")), "manifest");
    assert_int_equal(noted("run compile"), 1);
    assert_int_equal(noted("run trace"), 1);
}

static void one_on_the_thread_pool_is_forgotten_when_it_is_refused(void **state)
{
    (void)state;
    ask(&asked[0], 1);
    refuse();
    assert_refused(&asked[0]);
    run_until_true(&has_worked);
    run_turns(5);
    assert_int_equal(noted("run compile"), 0);
}

static void one_at_the_compiler_is_forgotten_when_it_is_refused(void **state)
{
    (void)state;
    ask(&asked[0], 1);
    run_until_true(&has_worked);
    refuse();
    assert_refused(&asked[0]);
    run_turns(5);
    assert_int_equal(noted("run trace"), 0);
}

static void one_that_is_traced_is_forgotten_when_it_is_refused(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_TRACE=hang");
    ask(&asked[0], 1);
    run_until_true(&is_traced);
    refuse();
    assert_refused(&asked[0]);
}

static void a_client_that_leaves_takes_its_own_questions_alone(void **state)
{
    (void)state;
    ask(&asked[0], 1);
    ask(&asked[1], 2);
    explain_client_left(&app, 1);
    assert_true(asked[0].is_answered);
    assert_int_equal(asked[0].failure.code, TUNE_EIO);
    run_until_true(&asked[1].is_answered);
    assert_non_null(asked[1].answer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_workers_say_is_put_together),
        TEST(one_on_the_thread_pool_is_forgotten_when_it_is_refused),
        TEST(one_at_the_compiler_is_forgotten_when_it_is_refused),
        TEST(one_that_is_traced_is_forgotten_when_it_is_refused),
        TEST(a_client_that_leaves_takes_its_own_questions_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
