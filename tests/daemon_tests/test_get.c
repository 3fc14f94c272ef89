/* get: which questions begin a sweep. Answers are caught where commands give them. */
#include "daemon/command.h"
#include "parts.h"

#include <stdatomic.h>
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

void __wrap_request_reply(struct request *replied, json_t *result);
void __wrap_request_reply_again(struct request *replied, json_t *result);
void __wrap_request_fail(struct request *failed, const struct tune_error *err);

void __wrap_request_reply(struct request *replied, json_t *result)
{
    struct asked *of = (struct asked *)replied;
    assert_false(of->is_answered);
    of->is_answered = true;
    of->answer = result;
}

void __wrap_request_reply_again(struct request *replied, json_t *result)
{
    __wrap_request_reply(replied, result);
}

void __wrap_request_fail(struct request *failed, const struct tune_error *err)
{
    struct asked *of = (struct asked *)failed;
    assert_false(of->is_answered);
    of->is_answered = true;
    of->failure = *err;
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

/* The disk as these tests want it. */
static atomic_bool is_disk_full;

int __real_tuning_db_commit(
    struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err);
int __wrap_tuning_db_commit(
    struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err);

int __wrap_tuning_db_commit(
    struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err)
{
    if (atomic_load(&is_disk_full))
        return tune_fail(err, TUNE_EFULL, "no room");
    return __real_tuning_db_commit(db, batch, err);
}

static int start(void **state)
{
    atomic_store(&is_disk_full, false);
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
    memset(asked, 0, sizeof asked);
    return 0;
}

static int finish(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        json_decref(asked[i].request.message);
        json_decref(asked[i].answer);
    }
    jobs_destroy(app.jobs);
    sessions_destroy(app.sessions);
    nearest_destroy(app.nearest);
    return close_parts(state);
}

static void get_as(struct asked *as, const char *policy, const char *arch)
{
    as->request = (struct request){.app = &app,
        .message = json_pack("{s:s, s:{s:i, s:i}, s:s, s:s*}", "kernel", "transpose", "shape", "M",
            8, "N", 8, "policy", policy, "arch", arch)};
    as->request.params = as->request.message;
    cmd_get(&as->request);
}

static void get(const char *policy, const char *arch)
{
    get_as(&asked[0], policy, arch);
    run_until_true(&asked[0].is_answered);
}

static const char *origin_of(const struct asked *of)
{
    return json_string_value(json_object_get(of->answer, "origin"));
}

static void a_sweep_is_waited_for_on_the_attached_architecture(void **state)
{
    (void)state;
    get("wait", "sm_90");
    assert_string_equal(origin_of(&asked[0]), "exact");
}

static void no_sweep_is_begun_for_an_architecture_that_is_not_attached(void **state)
{
    (void)state;
    get("tune", "sm_80");
    assert_string_equal(origin_of(&asked[0]), "default");
    assert_null(json_object_get(asked[0].answer, "job"));
    assert_int_equal(jobs_active_count(app.jobs), 0);
}

static void who_waits_for_an_architecture_that_is_not_attached_is_told(void **state)
{
    (void)state;
    get("wait", "sm_80");
    assert_int_equal(asked[0].failure.code, TUNE_ENODEVICE);
    assert_non_null(strstr(asked[0].failure.text, "sm_80"));
    assert_int_equal(jobs_active_count(app.jobs), 0);
}

/* Who began the sweep is told, and who went with it is answered with what there is. Whether the
 * second goes with the first or begins one too depends on the pool's threads, on which both look
 * for the nearest. */
static void nobody_waits_for_a_sweep_that_could_not_be_stored(void **state)
{
    (void)state;
    atomic_store(&is_disk_full, true);
    get_as(&asked[1], "wait", "sm_90");
    get_as(&asked[0], "wait", "sm_90");
    run_until_true(&asked[1].is_answered);
    run_until_true(&asked[0].is_answered);
    size_t told = 0;
    for (size_t i = 0; i < 2; i++) {
        if (asked[i].answer != NULL) {
            assert_string_equal(origin_of(&asked[i]), "default");
            continue;
        }
        assert_int_equal(asked[i].failure.code, TUNE_EFULL);
        told++;
    }
    assert_in_range(told, 1, 2);
    assert_int_equal(jobs_active_count(app.jobs), 0);
}

static void who_does_not_wait_is_answered_although_the_sweep_could_not_be_stored(void **state)
{
    (void)state;
    atomic_store(&is_disk_full, true);
    get("tune", "sm_90");
    assert_string_equal(origin_of(&asked[0]), "default");
    assert_null(json_object_get(asked[0].answer, "job"));
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
        cmocka_unit_test_setup_teardown(
            nobody_waits_for_a_sweep_that_could_not_be_stored, start, finish),
        cmocka_unit_test_setup_teardown(
            who_does_not_wait_is_answered_although_the_sweep_could_not_be_stored, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
