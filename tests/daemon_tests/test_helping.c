/* Work for other machines: what they may ask for, whose work goes first, how it ends. */
#include "fake_fleet.h"

#include "daemon/helping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct jobs *jobs;
static struct helping *helping;
static bool is_returned, is_job_done;

static void on_event(const char *method, json_t *params, const char *job, void *context)
{
    (void)params, (void)job, (void)context;
    is_job_done |= strcmp(method, "done") == 0;
}

static bool is_lent(size_t device, bool is_wanted, void *context)
{
    (void)context;
    return helping != NULL && helping_has(helping, device, is_wanted);
}

/* Until now what wants the device has not begun, on no other one either. */
static void on_returned(void *context)
{
    (void)context;
    json_t *list = jobs_to_json(jobs, NULL, NULL);
    const json_t *job = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "queued");
    json_decref(list);
    is_returned = true;
    jobs_kick(jobs);
}

static int start(void **state)
{
    jobs = NULL;
    helping = NULL;
    is_returned = is_job_done = false;
    if (open_parts(state))
        return -1;
    fake_fleet_start();
    set_fake("FAKE_TIME_NS=90000");
    return 0;
}

static int finish(void **state)
{
    helping_destroy(helping);
    if (jobs != NULL)
        jobs_destroy(jobs);
    fake_fleet_stop();
    return close_parts(state);
}

static void start_all(void)
{
    struct jobs_callbacks callbacks = {.is_lent = is_lent, .on_event = on_event};
    struct tune_error err = {0};
    start_parts();
    jobs = jobs_create(&parts, parts_registry, &callbacks);
    assert_int_equal(jobs_load(jobs, &err), 0);
    struct helping_deps deps = {
        .tuning = parts, .registry = parts_registry, .jobs = jobs, .on_returned = on_returned};
    helping = helping_create(&deps);
    helping_kick(helping);
}

static json_t *batch(void)
{
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:{s:i, s:i}, s:s, s:s, s:s, s:[s, s, s], s:i, s:i}", "v", 1,
        "target", FAKE_TARGET, "job", "j-test", "kernel", "transpose", "fingerprint",
        registry_find(parts_registry, "transpose", NULL)->fingerprint, "shape", "M", 64, "N", 64,
        "dtype", "f32", "mode", "cold", "method", "graph", "configs",
        "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=0", "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=1",
        "VARIANT=1,TILE=32,ROWS=8,VEC=1,LAYOUT=1", "input_seed", 7, "deadline_ms", 1000);
}

static bool has_ended(void *context)
{
    return fake.leases_ended == (size_t)(uintptr_t)context;
}

/* --- what is asked ---------------------------------------------------------------------------- */

static void a_good_batch_is_read(void **state)
{
    (void)state;
    struct helping_request request;
    struct tune_error err = {0};
    json_t *payload = batch();
    json_object_set_new(payload, "best_ns", json_real(1e6));
    assert_int_equal(helping_parse(parts_registry, payload, &request, &err), 0);
    assert_string_equal(request.spec.job, "j-test");
    assert_string_equal(request.target, FAKE_TARGET);
    assert_int_equal(request.spec.help.count, 3);
    assert_int_equal(request.spec.input_seed, 7);
    assert_true(request.spec.help.best_ns == 1e6);
    json_decref(payload);
}

static json_t *many_configs(void)
{
    json_t *list = json_array();
    for (int i = 0; i <= TUNING_BATCH_MAX; i++)
        json_array_append_new(list, json_string("VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=0"));
    return list;
}

/* Takes value; NULL: the field is left out. */
static void assert_refused(const char *field, json_t *value, const char *because)
{
    struct helping_request request;
    struct tune_error err = {0};
    json_t *payload = batch();
    if (value == NULL)
        json_object_del(payload, field);
    else
        json_object_set_new(payload, field, value);
    if (helping_parse(parts_registry, payload, &request, &err) == 0)
        fail_msg("%s was not refused", field);
    if (strstr(err.text, because) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", field, err.text, because);
    json_decref(payload);
}

static void a_batch_from_the_network_is_checked_like_a_request(void **state)
{
    (void)state;
    static const char *const fields[] = {"v", "target", "job", "kernel", "fingerprint", "shape",
        "dtype", "mode", "method", "configs", "input_seed", "deadline_ms", NULL};
    for (size_t i = 0; fields[i] != NULL; i++) {
        assert_refused(fields[i], NULL, "");
        assert_refused(fields[i], json_true(), "");
        assert_refused(fields[i], json_array(), "");
    }
    assert_refused("v", json_integer(2), "bring both to one version");
    assert_refused("more", json_integer(2), "more");
    assert_refused("job", json_string(""), "id");
    assert_refused("job", json_string("j-1/confirm"), "id");
    assert_refused("job", json_string("../../x"), "id");
    assert_refused("job", json_string("j-0123456789012345678901234567890123456789"), "id");
    assert_refused("kernel", json_string("nothing"), "nothing");
    assert_refused("fingerprint", json_string("00112233445566778899aabbccddeeff"), "differs");
    assert_refused("shape", json_pack("{s:i}", "M", 64), "N");
    assert_refused("shape", json_pack("{s:i, s:i}", "M", 0, "N", 64), "M");
    assert_refused("dtype", json_string("f99"), "f99");
    assert_refused("mode", json_string("hot"), "hot");
    assert_refused("method", json_string("auto"), "auto");
    assert_refused("configs", json_array(), "0 configurations");
    assert_refused("configs", many_configs(), "65 configurations");
    assert_refused("configs", json_pack("[i]", 1), "not a string");
    assert_refused("configs", json_pack("[s]", "TILE=32"), "");
    assert_refused("configs", json_pack("[s]", "VARIANT=1,TILE=33,ROWS=4,VEC=1,LAYOUT=0"), "");
    assert_refused("configs", json_pack("[s]", "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=0,X=1"), "");
    assert_refused("input_seed", json_integer(-1), "input_seed");
    assert_refused("deadline_ms", json_integer(9), "deadline_ms");
    assert_refused("deadline_ms", json_integer(TUNING_HELP_DEADLINE_MAX_MS + 1), "deadline_ms");
    assert_refused("best_ns", json_real(-1), "best_ns");
}

static void what_is_refused_ends_as_failed(void **state)
{
    (void)state;
    start_all();
    json_t *payload = batch();
    json_object_set_new(payload, "fingerprint", json_string("other"));
    fake_lease(payload);
    assert_int_equal(fake.leases_failed, 1);
    json_t *figures = helping_to_json(helping);
    assert_int_equal(json_integer_value(json_object_get(figures, "refused")), 1);
    json_decref(figures);
}

/* --- a batch ---------------------------------------------------------------------------------- */

static int check_row(const struct sample *sample, void *context)
{
    (void)context;
    assert_string_equal(sample->run, "j-test/search");
    assert_string_equal(sample->host, "here");
    assert_string_equal(sample->key.shape, "M=64,N=64");
    assert_int_equal(sample->seed, 7);
    assert_true(sample->is_final);
    assert_int_equal(sample->outcome, OUTCOME_OK);
    assert_false(sample->is_default);
    return 0;
}

static int on_mark(const char *name, const void *bytes, size_t count, void *context)
{
    (void)name, (void)bytes, (void)count;
    ++*(int *)context;
    return 0;
}

static int count_marks(void)
{
    int count = 0;
    assert_int_equal(tuning_db_walk_jobs(parts.db, "mark/", on_mark, &count, NULL), 0);
    return count;
}

static void a_batch_is_measured_and_nothing_beside_it(void **state)
{
    (void)state;
    start_all();
    assert_int_equal(fake.devices_told, 1);
    assert_int_equal(fake_free_targets(), 1);
    fake_lease(batch());
    assert_int_equal(fake_free_targets(), 0);
    run_until(has_ended, (void *)1);
    assert_int_equal(fake.leases_failed, 0);
    assert_int_equal(count_rows("GPU-0"), 3);
    assert_int_equal(tuning_db_walk_samples(parts.db, NULL, check_row, NULL, NULL), 0);
    assert_int_equal(noted("run bench"), 3); /* no default, control or confirmation */
    assert_int_equal(noted("auto"), 0);      /* the method is the asker's */
    assert_int_equal(count_marks(), 0);
    assert_int_equal(jobs_active_count(jobs), 0);
    assert_int_equal(fake_free_targets(), 1);
    json_t *figures = helping_to_json(helping);
    assert_int_equal(json_integer_value(json_object_get(figures, "evaluations")), 3);
    json_decref(figures);
}

/* A shape whose rows are no whole vectors. */
static void what_is_not_of_the_space_here_is_passed_over(void **state)
{
    (void)state;
    start_all();
    json_t *payload = batch();
    json_object_set_new(payload, "shape", json_pack("{s:i, s:i}", "M", 63, "N", 63));
    json_array_append_new(json_object_get(payload, "configs"),
        json_string("VARIANT=1,TILE=32,ROWS=4,VEC=2,LAYOUT=1"));
    fake_lease(payload);
    run_until(has_ended, (void *)1);
    assert_int_equal(fake.leases_failed, 0);
    assert_int_equal(count_rows("GPU-0"), 3);
}

static void each_device_takes_a_batch_and_no_more(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=2");
    start_all();
    assert_int_equal(fake_free_targets(), 2);
    fake_lease(batch());
    json_t *payload = batch();
    json_object_set_new(
        payload, "configs", json_pack("[s]", "VARIANT=1,TILE=64,ROWS=8,VEC=1,LAYOUT=1"));
    fake_lease(payload);
    assert_int_equal(fake_free_targets(), 0);
    fake_lease(batch());
    assert_int_equal(fake.leases_failed, 1);
    run_until(has_ended, (void *)3);
    assert_int_equal(fake.leases_failed, 1);
    assert_int_equal(count_rows(NULL), 4);
}

static void a_machine_without_a_compiler_offers_nothing(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=error");
    start_all();
    assert_int_equal(fake.devices_told, 0);
    assert_int_equal(fake_free_targets(), 0);
}

static void a_lease_that_is_lost_is_broken_off(void **state)
{
    (void)state;
    start_all();
    struct fleet_lease *lease = fake_lease(batch());
    fake_lose(lease);
    run_until(has_ended, (void *)1);
    assert_int_equal(fake.leases_failed, 1);
    assert_int_equal(fake_free_targets(), 1);
}

static bool has_a_row(void *context)
{
    (void)context;
    return count_rows("GPU-0") > 0;
}

static void a_daemon_that_stops_ends_its_leases(void **state)
{
    (void)state;
    start_all();
    fake_lease(batch());
    run_until(has_a_row, NULL);
    helping_destroy(helping);
    helping = NULL;
    assert_int_equal(fake.leases_ended, 1);
    assert_int_equal(fake.leases_failed, 1);
    assert_false(fake.has_helper);
}

/* --- our own work goes first ------------------------------------------------------------------ */

static void on_submitted(const char *job, const struct tune_error *err, void *context)
{
    (void)job, (void)context;
    assert_null(err);
}

static void submit(bool is_background, int evals)
{
    struct tune_error err = {0};
    json_t *params = json_pack("{s:s, s:[{s:i, s:i}], s:s, s:{s:i}, s:b, s:b}", "kernel",
        "transpose", "shapes", "M", 64, "N", 64, "strategy", "random", "budget", "evals", evals,
        "background", is_background, "local", 1);
    if (jobs_submit(jobs, params, 0, on_submitted, NULL, &err))
        fail_msg("%s", err.text);
    json_decref(params);
}

static void a_sweep_of_ours_takes_the_device_back(void **state)
{
    (void)state;
    start_all();
    fake_lease(batch());
    run_until(has_a_row, NULL);
    submit(false, 2);
    run_until(has_ended, (void *)1);
    assert_int_equal(fake.leases_failed, 1); /* the asker does the rest */
    assert_true(is_returned);
    assert_int_equal(fake_free_targets(), 0);
    run_until_true(&is_job_done);
    assert_int_equal(fake_free_targets(), 1);
}

/* It begins on both devices, not on the one that was free at first. */
static void a_sweep_of_ours_waits_for_all_its_devices(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=2");
    start_all();
    fake_lease(batch());
    run_until(has_a_row, NULL);
    submit(false, 12);
    assert_int_equal(fake_free_targets(), 0); /* the free one is spoken for */
    run_until_true(&is_job_done);
    assert_true(is_returned);
    assert_int_equal(noted("start bench 1"), 1);
    assert_int_equal(fake.leases_ended, 1);
}

static void a_sweep_in_the_background_waits_for_the_batch(void **state)
{
    (void)state;
    start_all();
    fake_lease(batch());
    submit(true, 2);
    assert_int_equal(fake_free_targets(), 0);
    run_until(has_ended, (void *)1);
    assert_int_equal(fake.leases_failed, 0);
    jobs_kick(jobs);
    run_until_true(&is_job_done);
}

static void on_stored(const struct tune_error *err, void *context)
{
    assert_null(err);
    *(bool *)context = true;
}

/* Of a batch that a daemon was at when it was killed. */
static void marks_of_other_machines_jobs_go_at_the_next_start(void **state)
{
    (void)state;
    bool is_stored = false;
    tuning_db_batch_job(writer_batch(parts.writer), "mark/j-there/0", "0 X=1", 5);
    writer_after_commit(parts.writer, on_stored, &is_stored);
    run_until_true(&is_stored);
    assert_int_equal(count_marks(), 1);
    start_all();
    is_stored = false;
    writer_after_commit(parts.writer, on_stored, &is_stored);
    run_until_true(&is_stored);
    assert_int_equal(count_marks(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_good_batch_is_read),
        TEST(a_batch_from_the_network_is_checked_like_a_request),
        TEST(what_is_refused_ends_as_failed),
        TEST(a_batch_is_measured_and_nothing_beside_it),
        TEST(what_is_not_of_the_space_here_is_passed_over),
        TEST(each_device_takes_a_batch_and_no_more),
        TEST(a_machine_without_a_compiler_offers_nothing),
        TEST(a_lease_that_is_lost_is_broken_off),
        TEST(a_daemon_that_stops_ends_its_leases),
        TEST(a_sweep_of_ours_takes_the_device_back),
        TEST(a_sweep_of_ours_waits_for_all_its_devices),
        TEST(a_sweep_in_the_background_waits_for_the_batch),
        TEST(marks_of_other_machines_jobs_go_at_the_next_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
