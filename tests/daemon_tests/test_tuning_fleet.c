/* A tuning of which other machines do a part, with helpers that fail in each way there is. */
#include "fake_fleet.h"

#include "daemon/tuning_internal.h"

#include <stdio.h>
#include <string.h>

static struct {
    bool is_over;
    enum tuning_end end;
    json_t *result;
} told;

static void on_progress(const struct tuning_progress *progress, void *context)
{
    (void)context;
    assert_false(told.is_over);
    assert_true(progress->done <= progress->total);
}

static void on_done(
    enum tuning_end end, const struct tune_error *err, json_t *result, void *context)
{
    (void)context;
    assert_false(told.is_over);
    if (err != NULL)
        print_message("%s\n", err->text);
    told.is_over = true;
    told.end = end;
    told.result = json_incref(result);
}

static int start(void **state)
{
    memset(&told, 0, sizeof told);
    if (open_parts(state))
        return -1;
    fake_fleet_start();
    set_fake("FAKE_TIME_NS=90000");
    return 0;
}

static int finish(void **state)
{
    json_decref(told.result);
    fake_fleet_stop();
    return close_parts(state);
}

/* --- tuning the transpose --------------------------------------------------------------------- */

static struct tuning_spec spec_of(const char *strategy)
{
    return (struct tuning_spec){.plugin = registry_find(parts_registry, "transpose", NULL),
        .device_count = 1,
        .dims = {64, 64},
        .dtype = "f32",
        .mode = "cold",
        .strategy = strategy,
        .job = "j-test",
        .deadline_ms = 1000};
}

static struct tuning *begin(const struct tuning_spec *spec)
{
    struct tuning_callbacks callbacks = {.on_progress = on_progress, .on_done = on_done};
    return tuning_start(&parts, spec, &callbacks);
}

static struct tuning *sweep(void)
{
    struct tuning_spec spec = spec_of("exhaustive");
    start_parts();
    return begin(&spec);
}

static size_t field(const char *object, const char *name)
{
    const json_t *from = object ? json_object_get(told.result, object) : told.result;
    return (size_t)json_integer_value(json_object_get(from, name));
}

/* Each configuration of the space was counted, once, and was ok. */
static void assert_whole(void)
{
    assert_true(told.is_over);
    assert_int_equal(told.end, TUNING_DONE);
    assert_int_equal(field(NULL, "evaluations"), field(NULL, "space"));
    assert_int_equal(field("counts", "ok"), field(NULL, "space"));
}

static void run_to_end(void)
{
    run_until_true(&told.is_over);
}

/* --- helpers that do it ----------------------------------------------------------------------- */

static void others_measure_a_part_and_each_candidate_counts_once(void **state)
{
    (void)state;
    sweep();
    run_to_end();
    assert_whole();
    assert_true(fake.offered > 4);
    assert_int_equal(field("fleet", "helpers"), 2);
    assert_int_equal(field("fleet", "tasks"), fake.offered);
    assert_int_equal(field("fleet", "remote_evaluations"), fake.configs);
    assert_int_equal(count_rows("GPU-far"), fake.configs);
    assert_int_equal(count_rows("GPU-far") + count_rows("GPU-0"), field(NULL, "space"));
}

static void a_winner_measured_elsewhere_is_confirmed_here(void **state)
{
    (void)state;
    sweep();
    run_to_end();
    const json_t *best = json_object_get(told.result, "best");
    assert_true(json_is_true(json_object_get(best, "confirmed")));
    assert_true(json_number_value(json_object_get(best, "median_ns")) == 90000);
    /* One that was faster there: its image was not compiled here before. */
    const json_t *standard = json_object_get(told.result, "default");
    assert_false(json_equal(json_object_get(best, "config"), json_object_get(standard, "config")));
}

static void rows_of_two_machines_count_once(void **state)
{
    (void)state;
    fake.habit = FAKE_TWICE;
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(count_rows("GPU-farther"), fake.configs);
    assert_int_equal(field("fleet", "remote_evaluations"), fake.configs);
}

/* Two machines, two candidates each. */
static void a_search_that_learns_has_little_out(void **state)
{
    (void)state;
    struct tuning_spec spec = spec_of("guided");
    spec.budget_evals = 40;
    start_parts();
    begin(&spec);
    run_to_end();
    assert_int_equal(field(NULL, "evaluations"), 40);
    assert_true(fake.offered > 0);
    assert_in_range(fake.most_out, 1, 4);
}

/* --- helpers that do not ---------------------------------------------------------------------- */

static void what_has_no_row_is_measured_here(void **state)
{
    (void)state;
    fake.habit = FAKE_HALF;
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(field("fleet", "remote_evaluations"), count_rows("GPU-far"));
    assert_true(count_rows("GPU-far") < fake.configs);
}

static void helpers_that_always_refuse_are_asked_no_more(void **state)
{
    (void)state;
    fake.habit = FAKE_REFUSE;
    sweep();
    run_to_end();
    assert_whole();
    assert_in_range(fake.offered, 1, 6); /* three in a row, and what was out by then */
    assert_int_equal(field("fleet", "remote_evaluations"), 0);
    assert_int_equal(json_array_size(json_object_get(told.result, "messages")), 1);
}

static void what_nobody_begins_is_taken_back(void **state)
{
    (void)state;
    fake.habit = FAKE_NOBODY;
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(count_rows("GPU-0"), field(NULL, "space"));
}

static void rows_that_come_after_the_taking_back_change_nothing(void **state)
{
    (void)state;
    fake.habit = FAKE_LATE;
    sweep();
    run_to_end();
    assert_whole();
    assert_true(count_rows("GPU-far") > 0);
    /* Some come in time all the same. */
    assert_int_equal(
        count_rows("GPU-0") + field("fleet", "remote_evaluations"), field(NULL, "space"));
}

static bool all_else_is_done(void *context)
{
    const struct tuning *tuning = context;
    return uv_is_active((const uv_handle_t *)&tuning->patience);
}

/* The patience is short here: its timer fires at once, again and again. */
static void a_helper_that_never_ends_is_not_waited_for(void **state)
{
    (void)state;
    fake.habit = FAKE_HOLD;
    struct tuning *tuning = sweep();
    run_until(all_else_is_done, tuning);
    assert_false(told.is_over);
    assert_true(tuning->batch_count > 0);
    uv_timer_set_repeat(&tuning->patience, 1);
    uv_timer_again(&tuning->patience);
    run_to_end();
    assert_whole();
    assert_int_equal(fake.withdrawn, fake.offered);
    assert_int_equal(count_rows("GPU-0"), field(NULL, "space"));
}

static int check_attempts(const struct sample *sample, void *context)
{
    size_t *twice = context;
    *twice += strcmp(sample->gpu_uuid, "GPU-0") == 0 && sample->attempts == 2 &&
              strcmp(sample->run, "j-test/search") == 0;
    return 0;
}

static void a_crash_elsewhere_counts_as_an_attempt(void **state)
{
    (void)state;
    fake.habit = FAKE_CRASH;
    sweep();
    run_to_end();
    assert_whole();
    size_t twice = 0;
    assert_int_equal(tuning_db_walk_samples(parts.db, NULL, check_attempts, &twice, NULL), 0);
    assert_int_equal(twice, fake.configs);
}

static void without_a_connection_all_is_measured_here(void **state)
{
    (void)state;
    fake.is_down = true;
    sweep();
    run_to_end();
    assert_whole();
    assert_null(json_object_get(told.result, "fleet"));
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool is_something_out(void *context)
{
    (void)context;
    return fake.tasks != NULL;
}

static void a_cancel_withdraws_what_is_out(void **state)
{
    (void)state;
    fake.habit = FAKE_HOLD;
    struct tuning *tuning = sweep();
    run_until(is_something_out, NULL);
    tuning_cancel(tuning);
    run_to_end();
    assert_int_equal(told.end, TUNING_CANCELED);
    assert_int_equal(fake.withdrawn, fake.offered);
}

static void the_end_of_the_time_withdraws_what_is_out(void **state)
{
    (void)state;
    fake.habit = FAKE_HOLD;
    struct tuning_spec spec = spec_of("exhaustive");
    spec.budget_seconds = 20;
    start_parts();
    struct tuning *tuning = begin(&spec);
    run_until(is_something_out, NULL);
    uv_timer_start(&tuning->timer, tuning->timer.timer_cb, 0, 0); /* over already */
    run_to_end();
    assert_int_equal(told.end, TUNING_DONE);
    assert_int_equal(fake.withdrawn, fake.offered);
    assert_true(field(NULL, "evaluations") < field(NULL, "space"));
}

static bool is_being_read(void *context)
{
    const struct tuning *tuning = context;
    return tuning->batch_count > 0 && fake.tasks == NULL;
}

static bool pool_is_idle(void *context)
{
    (void)context;
    return parts.loop->active_reqs.count == 0;
}

/* The memory of what is being read goes when it has been read (the sanitizer looks). */
static void a_daemon_that_stops_leaves_nothing(void **state)
{
    (void)state;
    struct tuning *tuning = sweep();
    run_until(is_being_read, tuning);
    tuning_abandon(tuning);
    assert_null(fake.tasks);
    run_until(pool_is_idle, NULL); /* the database is closed when the loop has run dry */
    assert_false(told.is_over);
}

/* --- what stays at home ----------------------------------------------------------------------- */

static void assert_stays_here(struct tuning_spec spec)
{
    start_parts();
    begin(&spec);
    run_to_end();
    assert_whole();
    assert_int_equal(fake.offered, 0);
}

static void a_local_sweep_asks_nobody(void **state)
{
    (void)state;
    struct tuning_spec spec = spec_of("exhaustive");
    spec.is_local = true;
    assert_stays_here(spec);
}

static void a_deadline_that_nobody_would_take_is_not_asked_for(void **state)
{
    (void)state;
    struct tuning_spec spec = spec_of("exhaustive");
    spec.deadline_ms = TUNING_HELP_DEADLINE_MAX_MS + 1;
    assert_stays_here(spec);
}

static void without_helpers_nothing_is_offered(void **state)
{
    (void)state;
    fake.helpers = 0;
    assert_stays_here(spec_of("exhaustive"));
}

/* --- going on after a restart ----------------------------------------------------------------- */

static const char *const known_configs[] = {"VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=0",
    "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=1", "VARIANT=1,TILE=32,ROWS=4,VEC=1,LAYOUT=2"};

static void leave_row(const char *config, const char *run, uint32_t sms, const char *method)
{
    const struct plugin *plugin = registry_find(parts_registry, "transpose", NULL);
    struct sample sample = {
        .key = {"transpose", plugin->fingerprint, "M=64,N=64", "f32", "sm_90", "cold"},
        .config = config,
        .gpu_uuid = "GPU-far",
        .gpu_name = "Fake",
        .sms = sms,
        .run = run,
        .outcome = OUTCOME_OK,
        .is_final = true,
        .attempts = 1,
        .method = method,
        .median_ns = 50000,
        .lo_ns = 49999,
        .hi_ns = 50001,
    };
    assert_int_equal(tuning_db_batch_sample(writer_batch(parts.writer), &sample), 0);
}

static void on_stored(const struct tune_error *err, void *context)
{
    assert_null(err);
    *(bool *)context = true;
}

static void store(void)
{
    bool is_stored = false;
    writer_after_commit(parts.writer, on_stored, &is_stored);
    run_until_true(&is_stored);
}

static void a_restarted_asker_knows_what_others_measured(void **state)
{
    (void)state;
    fake.helpers = 0;
    for (int i = 0; i < 3; i++)
        leave_row(known_configs[i], "j-test/search", 1, "event");
    store();
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(count_rows("GPU-0"), field(NULL, "space") - 3);
    assert_int_equal(noted("auto"), 0); /* the method is that of the rows */
}

static void rows_of_another_model_or_run_are_not_taken_for_ours(void **state)
{
    (void)state;
    fake.helpers = 0;
    leave_row(known_configs[0], "j-test/search", 2, "graph");
    leave_row(known_configs[1], "j-other/search", 1, "graph");
    store();
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(count_rows("GPU-0"), field(NULL, "space"));
    assert_string_equal(json_string_value(json_object_get(told.result, "method")), "event");
}

static void a_method_that_is_none_is_not_measured_with(void **state)
{
    (void)state;
    fake.helpers = 0;
    leave_row(known_configs[0], "j-test/search", 1, "bogus");
    store();
    sweep();
    run_to_end();
    assert_whole();
    assert_int_equal(noted("bogus"), 0);
    assert_string_equal(json_string_value(json_object_get(told.result, "method")), "event");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(others_measure_a_part_and_each_candidate_counts_once),
        TEST(a_winner_measured_elsewhere_is_confirmed_here),
        TEST(rows_of_two_machines_count_once),
        TEST(a_search_that_learns_has_little_out),
        TEST(what_has_no_row_is_measured_here),
        TEST(helpers_that_always_refuse_are_asked_no_more),
        TEST(what_nobody_begins_is_taken_back),
        TEST(rows_that_come_after_the_taking_back_change_nothing),
        TEST(a_helper_that_never_ends_is_not_waited_for),
        TEST(a_crash_elsewhere_counts_as_an_attempt),
        TEST(without_a_connection_all_is_measured_here),
        TEST(a_cancel_withdraws_what_is_out),
        TEST(the_end_of_the_time_withdraws_what_is_out),
        TEST(a_daemon_that_stops_leaves_nothing),
        TEST(a_local_sweep_asks_nobody),
        TEST(a_deadline_that_nobody_would_take_is_not_asked_for),
        TEST(without_helpers_nothing_is_offered),
        TEST(a_restarted_asker_knows_what_others_measured),
        TEST(rows_of_another_model_or_run_are_not_taken_for_ours),
        TEST(a_method_that_is_none_is_not_measured_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
