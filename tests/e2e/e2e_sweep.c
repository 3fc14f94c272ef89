/* Sweeps: what is measured, what is not measured again, who wins, who is told. */
#include "harness.h"

#include <sys/stat.h>
#include <unistd.h>

#define SLOW_LOADS                                                                                 \
    "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 50}]}"

static json_int_t stat_of(struct harness *harness, const char *path)
{
    json_t *stats = ask(harness, "stats", NULL);
    json_int_t value = json_integer_value(at(stats, path));
    json_decref(stats);
    return value;
}

static json_t *shape_params(int n)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    return params;
}

static json_t *job_of(struct harness *harness, const struct job_name *job)
{
    return ask(harness, "jobs", json_pack("{s:s}", "job", job->text));
}

struct progress_wait {
    struct harness *harness;
    const struct job_name *job;
    double at_least;
};

static bool job_has_progress(void *context)
{
    struct progress_wait *wait = context;
    json_t *job = job_of(wait->harness, wait->job);
    bool is_there = number_at(job, "done") >= wait->at_least;
    json_decref(job);
    return is_there;
}

static void wait_progress(struct harness *harness, const struct job_name *job, double at_least)
{
    struct progress_wait wait = {harness, job, at_least};
    wait_for(job_has_progress, &wait, LIMIT_MS);
}

/* --- what is compiled and measured ------------------------------------------------------------ */

static void a_second_shape_compiles_nothing(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 6}, NULL);
    json_decref(sweep_result(harness, shape_params(64)));
    json_int_t compiles = stat_of(harness, "images.compiles");
    assert_int_equal(compiles, 8); /* six, the reference, the harness */
    json_decref(sweep_result(harness, shape_params(96)));
    assert_int_equal(stat_of(harness, "images.compiles"), compiles);
    harness_stop(harness);
    harness_start(harness);
    json_decref(sweep_result(harness, shape_params(128)));
    assert_int_equal(stat_of(harness, "images.compiles"), 0); /* nor after a restart (F45) */
    assert_true(stat_of(harness, "images.cache_hits") >= 8);
}

static void an_empty_space_is_an_error_that_names_the_constraint_to_blame(void)
{
    struct harness *harness = start_tiny(
        &(struct tiny){.tags = 8,
            .constraints = "{\"expr\": \"TAG < 7\", \"message\": \"only seven tags exist\"},"
                           "{\"expr\": \"TAG > N\", \"message\": \"a tag must exceed N\"}",
            .shapes = "{\"N\": 64}"},
        NULL);
    json_t *list = ask(harness, "kernels", NULL);
    size_t i;
    json_t *kernel;
    json_array_foreach (list, i, kernel) {
        if (strcmp(text_at(kernel, "name"), "tiny") == 0 && text_at(kernel, "error")[0] != '\0')
            fail_msg("%s", text_at(kernel, "error"));
    }
    json_decref(list);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_string_equal(text_at(job, "code"), "empty_space");
    assert_non_null(strstr(text_at(job, "error"), "a tag must exceed N"));
    json_decref(job);
}

static void equal_candidates_are_timed_once_and_both_rows_say_so(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 5, .is_same_code = true},
        "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 0}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 5);
    assert_string_equal(text_at(row_of(rows, 0), "same_as"), "");
    for (int tag = 1; tag < 5; tag++) {
        assert_string_equal(text_at(row_of(rows, tag), "outcome"), "ok");
        assert_string_equal(text_at(row_of(rows, tag), "same_as"), "TAG=0");
        assert_true(
            number_at(row_of(rows, tag), "median_ns") == number_at(row_of(rows, 0), "median_ns"));
    }
    assert_int_equal(json_array_size(json_object_get(json_object_get(result, "best"), "ties")), 4);
    /* Loads: harness and reference and the one candidate, and the same for the confirmation. */
    assert_in_range(harness_matches(harness, 0), 4, 6);
    json_decref(rows);
    json_decref(result);
}

/* F22 */
static void a_sweep_measures_the_listed_shapes_whatever_clients_ask_for(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, NULL);
    json_t *params = sweep_params("tiny");
    json_object_set_new(
        params, "shapes", json_pack("[{s:i}, {s:i}, {s:i}]", "N", 32, "N", 64, "N", 96));
    struct job_name job = sweep(harness, params);
    for (int n = 100; n < 110; n++)
        json_decref(
            ask(harness, "get", json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", n)));
    json_t *ended = wait_job(harness, job);
    assert_int_equal(json_array_size(json_object_get(ended, "results")), 3);
    assert_int_equal(stat_of(harness, "database.best"), 6); /* by GPU and by arch */
    json_decref(ended);
}

static void the_method_is_chosen_from_the_default_and_held_for_all(void)
{
    struct harness *harness =
        start_tiny(&(struct tiny){.tags = 4}, "{\"rules\": ["
                                              "{\"call\": \"cuLaunchKernel\", \"when\": "
                                              "{\"defines\": {\"TAG\": 0}}, \"do\": \"time_ns\", "
                                              "\"value\": 2000},"
                                              "{\"call\": \"cuLaunchKernel\", \"when\": "
                                              "{\"defines\": {\"TAG\": 2}}, \"do\": \"time_ns\", "
                                              "\"value\": 900000}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    size_t i;
    json_t *row;
    assert_string_equal(text_at(result, "method"), "graph");
    json_array_foreach (rows, i, row) {
        assert_string_equal(text_at(row, "method"), "graph");
    }
    json_decref(rows);
    json_decref(result);
    /* and by the next sweep too, though its default has become slow */
    harness_scenario(harness,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 5000000}]}");
    harness_stop(harness);
    harness_start(harness);
    result = sweep_result(harness, sweep_params("tiny"));
    assert_string_equal(text_at(result, "method"), "graph");
    json_decref(result);
}

static void a_candidate_that_is_clearly_slower_is_sampled_less(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4},
        "{\"noise\": {\"seed\": 3, \"relative\": 0.2}, \"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 3}}, \"do\": "
        "\"time_ns\", "
        "\"value\": 3000000}]}");
    json_decref(sweep_result(harness, sweep_params("tiny")));
    json_t *rows = ask(harness, "records", NULL);
    size_t first = 0, slow = 0, i;
    json_t *row;
    json_array_foreach (rows, i, row) {
        size_t samples = json_array_size(json_object_get(row, "samples_ns"));
        if (strstr(text_at(row, "run"), "/search") == NULL)
            continue;
        if (number_at(row, "config.TAG") == 0)
            first = samples;
        else if (number_at(row, "config.TAG") == 3)
            slow = samples;
    }
    assert_true(slow >= 3);
    assert_true(first > 2 * slow);
    json_decref(rows);
}

/* --- who wins --------------------------------------------------------------------------------- */

static void the_winner_is_confirmed_beside_the_default_and_faster(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 6},
        "{\"noise\": {\"seed\": 5, \"relative\": 0.05}, \"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 4}}, \"do\": "
        "\"time_ns\", "
        "\"value\": 80000}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(number_at(result, "best.config.TAG"), 4);
    assert_true(json_is_true(at(result, "best.confirmed")));
    assert_true(number_at(result, "best.median_ns") < 0.9 * number_at(result, "default.median_ns"));
    assert_true(number_at(result, "best.samples") >= 15);
    json_decref(result);
}

/* The candidate that looks fastest in the search is slower than the default when confirmed. */
static void a_published_best_is_never_slower_than_the_default(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2},
        "{\"rules\": ["
        "{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 1}}, \"do\": "
        "\"time_ns\", "
        "\"value\": 120000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 1}}, \"times\": 20, "
        "\"do\": "
        "\"time_ns\", \"value\": 50000}]}");
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(number_at(result, "best.config.TAG"), 0);
    json_t *answer =
        ask(harness, "get", json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", 64));
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_int_equal(number_at(answer, "config.TAG"), 0);
    json_decref(answer);
    json_decref(rows);
    json_decref(result);
}

/* F21: ties are decided by a written rule, and what is truly faster wins. */
static void among_equals_the_stored_best_is_steady_and_a_faster_one_wins(void)
{
    struct harness *harness = harness_new();
    int changes = 0, last = -1;
    write_tiny(harness, &(struct tiny){.tags = 8});
    for (int run = 0; run < 10; run++) {
        char scenario[500];
        snprintf(scenario, sizeof scenario,
            "{\"noise\": {\"seed\": %d, \"relative\": 0.05}, \"rules\": [{\"call\": "
            "\"cuLaunchKernel\", "
            "\"do\": \"time_ns\", \"value\": 100000},"
            "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 5}}, \"do\": "
            "\"time_ns\", "
            "\"value\": %d}]}",
            run + 1, run < 7 ? 100000 : 80000);
        harness_scenario(harness, scenario);
        harness_start(harness);
        json_t *params = sweep_params("tiny");
        json_object_set_new(params, "seed", json_integer(run));
        json_decref(sweep_result(harness, params));
        json_t *answer =
            ask(harness, "get", json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", 64));
        int tag = (int)number_at(answer, "config.TAG");
        json_decref(answer);
        changes += run > 0 && run < 7 && tag != last;
        last = tag;
        if (run >= 7)
            assert_int_equal(tag, 5);
        harness_stop(harness);
    }
    assert_in_range(changes, 0, 3);
}

/* --- budget, cancel, watch -------------------------------------------------------------------- */

static void a_budget_of_evaluations_is_kept_and_holds_the_default(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 20}, NULL);
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "budget", json_pack("{s:i}", "evals", 5));
    json_t *result = sweep_result(harness, params);
    assert_int_equal(number_at(result, "evaluations"), 5);
    assert_true(number_at(result, "default.median_ns") > 0);
    json_decref(result);
}

static void a_budget_of_seconds_ends_the_search_with_a_confirmed_best(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 64}, SLOW_LOADS);
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "budget", json_pack("{s:f}", "seconds", 1.0));
    json_t *result = sweep_result(harness, params);
    assert_true(number_at(result, "evaluations") < 64);
    assert_true(json_is_true(at(result, "best.confirmed")));
    json_decref(result);
}

/* Most configurations are over a limit, which is known before the inputs are made: that takes 3 s
 * here, and is no part of the time. */
static void the_seconds_of_a_budget_count_from_the_first_measurement(void)
{
    struct harness *harness =
        start_tiny(&(struct tiny){.tags = 60, .shared = "TAG % 4 == 0 ? 0 : 10000000"},
            "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"entry\": "
            "\"harness_fill\"}, \"do\": \"delay_ms\", \"value\": 1000}]}");
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "strategy", json_string("random"));
    json_object_set_new(params, "budget", json_pack("{s:f}", "seconds", 1.0));
    json_t *result = sweep_result(harness, params);
    assert_true(number_at(result, "counts.over_limits") > 0);
    assert_true(number_at(result, "counts.ok") > 1);
    json_decref(result);
}

static void the_seconds_of_a_budget_count_where_nothing_can_be_measured(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 64, .body = "no C"}, NULL);
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "budget", json_pack("{s:f}", "seconds", 0.02));
    struct job_name job = sweep(harness, params);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "failed");
    json_decref(ended);
    json_t *rows = records_of(harness, NULL);
    assert_true(rows_with(rows, "compile_failed", -1) < 64);
    json_decref(rows);
}

/* The next notification with this method for this job. */
static json_t *next_event(struct tune_client *client, const char *method, const char *job)
{
    struct tune_error err = {0};
    json_t *message = NULL;
    while (tune_next(client, LIMIT_MS, &message, &err) == 1) {
        bool is_it = strcmp(text_at(message, "method"), method) == 0 &&
                     strcmp(text_at(message, "params.job"), job) == 0;
        if (is_it)
            return message;
        json_decref(message);
    }
    fail_msg("no %s of %s came: %s", method, job, err.text);
    return NULL;
}

static void a_cancelled_sweep_ends_with_what_there_is_and_the_next_one_runs(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 60}, SLOW_LOADS);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 3);
    struct job_name other = sweep(harness, shape_params(32));
    json_decref(ask(harness, "cancel", json_pack("{s:s}", "job", other.text))); /* still queued */
    json_decref(ask(harness, "cancel", json_pack("{s:s}", "job", job.text)));
    json_decref(ask(harness, "cancel", json_pack("{s:s}", "job", job.text))); /* twice is fine */
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "canceled");
    json_t *result = json_array_get(json_object_get(ended, "results"), 0);
    assert_true(number_at(result, "evaluations") >= 3 && number_at(result, "evaluations") < 60);
    json_decref(ended);
    ended = wait_job(harness, other);
    assert_string_equal(text_at(ended, "state"), "canceled");
    json_decref(ended);
    ask_fail(harness, "cancel", json_pack("{s:s}", "job", "j-none"), TUNE_ENOTFOUND);
    json_t *params = shape_params(128);
    json_object_set_new(params, "budget", json_pack("{s:i}", "evals", 2));
    json_decref(sweep_result(harness, params));
}

static void a_second_client_watches_and_the_end_reaches_both(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 10}, SLOW_LOADS);
    struct tune_client *watcher = connect_more(harness), *of_all = connect_more(harness);
    struct tune_error err = {0};
    assert_int_equal(tune_request(of_all, "watch", NULL, NULL, &err), 0);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    assert_int_equal(
        tune_request(watcher, "watch", json_pack("{s:s}", "job", job.text), NULL, &err), 0);
    struct tune_client *clients[] = {harness->client, watcher, of_all};
    for (size_t i = 0; i < 3; i++) {
        json_decref(next_event(clients[i], "progress", job.text));
        json_t *done = next_event(clients[i], "done", job.text);
        assert_string_equal(text_at(done, "params.state"), "done");
        assert_int_equal(json_array_size((json_t *)at(done, "params.results")), 1);
        json_decref(done);
    }
    tune_disconnect(watcher);
    tune_disconnect(of_all);
}

static void losing_the_connection_does_not_cancel(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 8}, SLOW_LOADS);
    struct tune_client *asker = connect_more(harness);
    struct tune_error err = {0};
    struct job_name job;
    json_t *answer = NULL;
    assert_int_equal(tune_request(asker, "sweep", sweep_params("tiny"), &answer, &err), 0);
    snprintf(job.text, sizeof job.text, "%s", text_at(answer, "job"));
    json_decref(answer);
    tune_disconnect(asker);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
}

static void jobs_and_their_results_outlive_a_restart(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 3}, NULL);
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}, {s:i}]", "N", 32, "N", 64));
    json_t *before = wait_job(harness, sweep(harness, params));
    harness_kill(harness);
    harness_start(harness);
    json_t *after = ask(harness, "jobs", json_pack("{s:s}", "job", text_at(before, "job")));
    char *was = json_dumps(before, JSON_SORT_KEYS), *is = json_dumps(after, JSON_SORT_KEYS);
    assert_string_equal(was, is);
    free(was);
    free(is);
    json_decref(before);
    json_decref(after);
}

/* --- kernels that change (F97) ---------------------------------------------------------------- */

struct kernel_wait {
    struct harness *harness;
    const char *unlike;
};

static bool fingerprint_differs(void *context)
{
    struct kernel_wait *wait = context;
    json_t *kernel = ask(wait->harness, "describe", json_pack("{s:s}", "kernel", "tiny"));
    bool differs = strcmp(text_at(kernel, "fingerprint"), wait->unlike) != 0;
    json_decref(kernel);
    return differs;
}

static void a_kernel_replaced_in_a_sweep_serves_its_old_form_until_the_reload(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 10}, SLOW_LOADS);
    json_t *kernel = ask(harness, "describe", json_pack("{s:s}", "kernel", "tiny"));
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 2);
    write_tiny(harness, &(struct tiny){.tags = 3, .body = "if (n < -999) y[0] = 7;"});
    kill(harness->daemon, SIGHUP);
    struct kernel_wait wait = {harness, text_at(kernel, "fingerprint")};
    wait_for(fingerprint_differs, &wait, LIMIT_MS);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    assert_int_equal(
        count_of(json_array_get(json_object_get(ended, "results"), 0), "ok"), 10); /* as it was */
    json_t *answer =
        ask(harness, "get", json_pack("{s:s, s:{s:i}}", "kernel", "tiny", "shape", "N", 64));
    assert_string_not_equal(text_at(answer, "origin"), "exact"); /* a new kernel by its content */
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 3);
    json_decref(result);
    json_decref(answer);
    json_decref(ended);
    json_decref(kernel);
}

static bool kernel_is_broken(void *context)
{
    json_t *list = ask(context, "kernels", NULL), *kernel;
    bool is_broken = false;
    size_t i;
    json_array_foreach (list, i, kernel) {
        if (strcmp(text_at(kernel, "name"), "tiny") == 0)
            is_broken = text_at(kernel, "error")[0] != '\0';
    }
    json_decref(list);
    return is_broken;
}

static bool kernel_is_whole(void *context)
{
    return !kernel_is_broken(context);
}

static void a_kernel_cut_short_or_removed_is_left_out_with_the_reason_and_its_sweep_ends(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 10}, SLOW_LOADS);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 2);
    harness_write(harness, "plugins/tiny/tiny.json", "{\"tunerd\": 1,");
    kill(harness->daemon, SIGHUP);
    wait_for(kernel_is_broken, harness, LIMIT_MS);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
    ask_fail(harness, "sweep", sweep_params("tiny"), TUNE_EPARSE);
    write_tiny(harness, &(struct tiny){.tags = 2});
    kill(harness->daemon, SIGHUP);
    wait_for(kernel_is_whole, harness, LIMIT_MS);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    assert_int_equal(count_of(result, "ok"), 2);
    json_decref(result);
}

/* The newest rows up to the limit, newest last. */
static void records_with_a_limit_are_the_newest(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 12}, NULL);
    json_decref(sweep_result(harness, sweep_params("tiny")));
    json_t *all = records_of(harness, NULL);
    json_t *some = ask(harness, "records", json_pack("{s:i}", "limit", 5));
    size_t count = json_array_size(all);
    assert_int_equal(json_array_size(some), 5);
    for (size_t i = 1; i < count; i++)
        assert_true(number_at(json_array_get(all, i - 1), "time") <=
                    number_at(json_array_get(all, i), "time"));
    for (size_t i = 0; i < 5; i++)
        assert_true(number_at(json_array_get(some, i), "time") ==
                    number_at(json_array_get(all, count - 5 + i), "time"));
    json_decref(some);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(records_with_a_limit_are_the_newest),
        HARNESS_TEST(a_second_shape_compiles_nothing),
        HARNESS_TEST(an_empty_space_is_an_error_that_names_the_constraint_to_blame),
        HARNESS_TEST(equal_candidates_are_timed_once_and_both_rows_say_so),
        HARNESS_TEST(a_sweep_measures_the_listed_shapes_whatever_clients_ask_for),
        HARNESS_TEST(the_method_is_chosen_from_the_default_and_held_for_all),
        HARNESS_TEST(a_candidate_that_is_clearly_slower_is_sampled_less),
        HARNESS_TEST(the_winner_is_confirmed_beside_the_default_and_faster),
        HARNESS_TEST(a_published_best_is_never_slower_than_the_default),
        HARNESS_TEST(among_equals_the_stored_best_is_steady_and_a_faster_one_wins),
        HARNESS_TEST(a_budget_of_evaluations_is_kept_and_holds_the_default),
        HARNESS_TEST(a_budget_of_seconds_ends_the_search_with_a_confirmed_best),
        HARNESS_TEST(the_seconds_of_a_budget_count_from_the_first_measurement),
        HARNESS_TEST(the_seconds_of_a_budget_count_where_nothing_can_be_measured),
        HARNESS_TEST(a_cancelled_sweep_ends_with_what_there_is_and_the_next_one_runs),
        HARNESS_TEST(a_second_client_watches_and_the_end_reaches_both),
        HARNESS_TEST(losing_the_connection_does_not_cancel),
        HARNESS_TEST(jobs_and_their_results_outlive_a_restart),
        HARNESS_TEST(a_kernel_replaced_in_a_sweep_serves_its_old_form_until_the_reload),
        HARNESS_TEST(a_kernel_cut_short_or_removed_is_left_out_with_the_reason_and_its_sweep_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
