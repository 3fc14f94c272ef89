/* One tuning, with workers that fail at moments which the emulator does not offer. */
#include "parts.h"

#include "daemon/tuning_internal.h"

#include <stdio.h>
#include <string.h>

static struct {
    bool is_over;
    enum tuning_end end;
    struct tune_error error;
    json_t *result;
} told;

static void on_progress(const struct tuning_progress *progress, void *context)
{
    (void)progress, (void)context;
    assert_false(told.is_over);
}

static void on_done(
    enum tuning_end end, const struct tune_error *err, json_t *result, void *context)
{
    (void)context;
    assert_false(told.is_over);
    told.is_over = true;
    told.end = end;
    if (err != NULL)
        told.error = *err;
    told.result = json_incref(result);
}

static int start(void **state)
{
    memset(&told, 0, sizeof told);
    return open_parts(state);
}

static int finish(void **state)
{
    json_decref(told.result);
    return close_parts(state);
}

/* The transpose, `evals` configurations of it, on the first `devices` devices; filter: of
 * these values alone, taken. */
static struct tuning *tune_by(const char *strategy, size_t evals, size_t devices, json_t *filter)
{
    struct tuning_callbacks callbacks = {.on_progress = on_progress, .on_done = on_done};
    struct tune_error err = {0};
    struct tuning_spec spec = {.plugin = registry_find(parts_registry, "transpose", &err),
        .device_count = devices,
        .devices = {0, 1},
        .dims = {64, 64},
        .dtype = "f32",
        .mode = "cold",
        .strategy = strategy,
        .budget_evals = evals,
        .job = "j-test",
        .deadline_ms = 1000};
    if (spec.plugin == NULL)
        fail_msg("%s", err.text);
    spec.has_filter = filter != NULL;
    space_filter_init(&spec.filter, spec.plugin->manifest);
    if (filter != NULL && space_filter_from_json(&spec.filter, spec.plugin->manifest, filter, &err))
        fail_msg("%s", err.text);
    json_decref(filter);
    return tuning_start(&parts, &spec, &callbacks);
}

static struct tuning *tune(size_t evals, size_t devices)
{
    return tune_by("random", evals, devices, NULL);
}

static json_int_t evaluations(void)
{
    return json_integer_value(json_object_get(told.result, "evaluations"));
}

static void a_tuning_measures_confirms_and_ends(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    start_parts();
    tune(5, 1);
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_DONE);
    assert_int_equal(evaluations(), 5);
    json_t *best = json_object_get(told.result, "best");
    assert_true(json_is_true(json_object_get(best, "confirmed")));
    assert_true(json_number_value(json_object_get(best, "median_ns")) == 90000);
}

static int keep_median(const struct best *best, void *context)
{
    *(double *)context = best->median_ns;
    return 0;
}

/* The rule of `best` goes by the upper bound: what is slower than the default beside it must not
 * come in by a narrow interval, in the result or in the database. */
static void a_published_best_is_never_slower_than_the_default(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    set_fake("FAKE_TIGHT=1");
    start_parts();
    tune(5, 1);
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_DONE);
    json_t *best = json_object_get(told.result, "best");
    json_t *standard = json_object_get(told.result, "default");
    assert_true(json_equal(json_object_get(best, "config"), json_object_get(standard, "config")));
    double median_ns = 0;
    struct tune_error err = {0};
    assert_int_equal(tuning_db_walk_best(parts.db, NULL, keep_median, &median_ns, &err), 0);
    assert_true(median_ns == 90000);
}

static void a_tuning_cancelled_before_its_space_is_known_ends(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    start_parts();
    tuning_cancel(tune(5, 1));
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_CANCELED);
    assert_int_equal(evaluations(), 0);
}

/* The compiler goes away after the harness, the reference and the candidates, and no image is kept.
 */
static void finalists_that_do_not_compile_again_end_the_tuning_with_the_reason(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    set_fake("FAKE_COMPILES=5");
    limit_images(1);
    start_parts();
    tune(3, 1);
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_FAILED);
    assert_int_equal(evaluations(), 3);
    assert_non_null(strstr(told.error.text, "no more compiles"));
}

static void a_device_on_which_the_control_gets_no_time_measures_all_the_same(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    set_fake("FAKE_DEVICES=2");
    set_fake("FAKE_NO_CONTROL=1");
    start_parts();
    tune(12, 2);
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_DONE);
    assert_int_equal(evaluations(), 12);
    /* One confirmation, and few controls: that device did not ask for one again and again instead.
     */
    assert_in_range(noted("run bench"), 13, 18);
}

static void where_the_default_fails_one_candidate_chooses_the_method_for_all_devices(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    set_fake("FAKE_DEVICES=2");
    set_fake("FAKE_FIRST_WRONG=0");
    start_parts();
    tune(12, 2);
    run_until_true(&told.is_over);
    assert_int_equal(told.end, TUNING_DONE);
    json_t *counts = json_object_get(told.result, "counts");
    assert_int_equal(json_integer_value(json_object_get(counts, "ok")), 11);
    assert_int_equal(noted("auto"), 2);
}

static int count_wrong(const struct sample *sample, void *context)
{
    *(int *)context += sample->outcome == OUTCOME_WRONG_RESULT;
    return 0;
}

/* Configurations that differ in the layout of the tile alone have one launch, and here one image;
 * it is wrong on the confirmation's inputs. */
static void what_fails_in_the_confirmation_fails_under_each_of_its_names(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    set_fake("FAKE_SAME_IMAGE=1");
    set_fake("FAKE_WRONG=1");
    start_parts();
    tune_by("random", 2, 1,
        json_pack("{s:i, s:i, s:i, s:i, s:[i,i]}", "VARIANT", 1, "TILE", 64, "ROWS", 8, "VEC", 2,
            "LAYOUT", 0, 2));
    run_until_true(&told.is_over);
    assert_true(json_is_null(json_object_get(told.result, "best")));
    int wrong = 0;
    struct tune_error err = {0};
    assert_int_equal(tuning_db_walk_samples(parts.db, NULL, count_wrong, &wrong, &err), 0);
    assert_int_equal(wrong, 2);
}

/* The most compiles that were ahead of measurements at any time. */
static int farthest_ahead(const char *strategy)
{
    start_parts();
    tune_by(strategy, 40, 1, NULL);
    run_until_true(&told.is_over);
    assert_int_equal(evaluations(), 40);
    return noted_ahead("run compile", "run bench");
}

/* With one compiler and one device: harness and reference, two compiles under way or just done, two
 * images that wait, and one that is measured. */
static void a_search_that_learns_runs_ahead_no_farther_than_needed(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    assert_in_range(farthest_ahead("guided"), 3, 2 + 2 + 2 + 1);
}

static void a_search_that_does_not_learn_runs_ahead(void **state)
{
    (void)state;
    set_fake("FAKE_TIME_NS=90000");
    assert_true(farthest_ahead("random") > 10);
}

static size_t most_committing;

static void watch_committing(uv_check_t *check)
{
    const struct tuning *tuning = check->data;
    if (!told.is_over && tuning->committing.count > most_committing)
        most_committing = tuning->committing.count;
}

/* A grid of 2^38 blocks and more: no candidate is so much as compiled, and nothing but the disk
 * holds the search back, until the reference turns out to be too large as well. In between others
 * want the loop. */
static void candidates_that_fail_at_once_wait_for_the_disk(void **state)
{
    (void)state;
    start_parts();
    struct tuning_callbacks callbacks = {.on_progress = on_progress, .on_done = on_done};
    struct tuning_spec spec = {.plugin = registry_find(parts_registry, "gemm", NULL),
        .device_count = 1,
        .dims = {INT64_C(1) << 27, INT64_C(1) << 27, 16},
        .dtype = "f32",
        .mode = "cold",
        .strategy = "exhaustive",
        .budget_evals = 4 * TUNING_COMMITTING_MAX,
        .job = "j-test",
        .deadline_ms = 1000};
    assert_non_null(spec.plugin);
    uv_check_t check = {.data = tuning_start(&parts, &spec, &callbacks)};
    uv_check_init(parts.loop, &check);
    uv_check_start(&check, watch_committing);
    run_until_true(&told.is_over);
    uv_close((uv_handle_t *)&check, NULL);
    run_turns(2);
    assert_int_equal(told.end, TUNING_FAILED);
    assert_in_range(most_committing, 1, TUNING_COMMITTING_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tuning_measures_confirms_and_ends, start, finish),
        cmocka_unit_test_setup_teardown(
            a_published_best_is_never_slower_than_the_default, start, finish),
        cmocka_unit_test_setup_teardown(
            a_tuning_cancelled_before_its_space_is_known_ends, start, finish),
        cmocka_unit_test_setup_teardown(
            finalists_that_do_not_compile_again_end_the_tuning_with_the_reason, start, finish),
        cmocka_unit_test_setup_teardown(
            a_device_on_which_the_control_gets_no_time_measures_all_the_same, start, finish),
        cmocka_unit_test_setup_teardown(
            where_the_default_fails_one_candidate_chooses_the_method_for_all_devices, start,
            finish),
        cmocka_unit_test_setup_teardown(
            what_fails_in_the_confirmation_fails_under_each_of_its_names, start, finish),
        cmocka_unit_test_setup_teardown(
            a_search_that_learns_runs_ahead_no_farther_than_needed, start, finish),
        cmocka_unit_test_setup_teardown(a_search_that_does_not_learn_runs_ahead, start, finish),
        cmocka_unit_test_setup_teardown(
            candidates_that_fail_at_once_wait_for_the_disk, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
