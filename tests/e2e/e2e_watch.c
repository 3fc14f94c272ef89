/* What watchers are told while a sweep runs: each result, the best so far, how busy the workers
 * are. */
#include "harness.h"

/* Adds up what notifications of one job told; the last one and its `done` stay. */
struct told {
    size_t count;
    json_t *outcomes, *last, *done; /* outcomes: how often each word was among the recent */
};

static void take_recent(struct told *told, const json_t *progress)
{
    size_t i;
    json_t *recent;
    json_array_foreach (at(progress, "recent"), i, recent) {
        const char *outcome = text_at(recent, "outcome");
        bool is_ok = strcmp(outcome, "ok") == 0;
        json_int_t before = json_integer_value(json_object_get(told->outcomes, outcome));
        json_object_set_new(told->outcomes, outcome, json_integer(before + 1));
        assert_true(json_is_integer(at(recent, "config.TAG")));
        assert_int_equal(json_is_number(at(recent, "median_ns")), is_ok);
        assert_true(is_ok || text_at(recent, "detail")[0] != '\0');
        told->count++;
    }
    assert_true(i <= 16);
}

static struct told follow(struct tune_client *client, const char *job)
{
    struct told told = {.outcomes = json_object()};
    struct tune_error err = {0};
    json_t *message;
    while (told.done == NULL && tune_next(client, LIMIT_MS, &message, &err) == 1) {
        const json_t *params = at(message, "params");
        if (strcmp(text_at(params, "job"), job) == 0) {
            bool is_progress = strcmp(text_at(message, "method"), "progress") == 0;
            json_t **kept = is_progress ? &told.last : &told.done;
            json_decref(*kept);
            *kept = json_incref((json_t *)params);
        }
        if (told.done == NULL && told.last == params)
            take_recent(&told, params);
        json_decref(message);
    }
    assert_non_null(told.done);
    assert_non_null(told.last);
    return told;
}

static void forget(struct told *told)
{
    json_decref(told->outcomes);
    json_decref(told->last);
    json_decref(told->done);
}

static void each_result_is_told_once_with_its_reason_and_the_best_with_its_configuration(void)
{
    struct harness *harness = harness_new();
    write_tiny(
        harness, &(struct tiny){.tags = 12, .top = "#if TAG > 8\n#error \"planted\"\n#endif"});
    harness_scenario(harness, TAG_WINS(5));
    harness_start(harness);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    struct told told = follow(harness->client, job.text);
    const json_t *result = json_array_get(at(told.done, "results"), 0);
    assert_int_equal(told.count, number_at(result, "evaluations"));
    const char *word;
    json_t *count;
    json_object_foreach ((json_t *)at(result, "counts"), word, count) {
        assert_int_equal(
            json_integer_value(json_object_get(told.outcomes, word)), json_integer_value(count));
    }
    assert_int_equal(number_at(told.outcomes, "compile_failed"), 3);
    assert_true(json_equal(at(told.last, "outcomes"), at(result, "counts")));
    assert_int_equal(number_at(told.last, "best_config.TAG"), 5);
    forget(&told);
}

static void a_sweep_faster_than_its_news_tells_the_newest_and_counts_all(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 64, .shared = "TAG > 0 ? smem_optin + 1 : 0"});
    harness_start(harness);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    struct told told = follow(harness->client, job.text);
    assert_int_equal(number_at(told.last, "outcomes.over_limits"), 63);
    assert_int_equal(number_at(told.last, "outcomes.ok"), 1);
    forget(&told);
}

static void before_the_first_result_there_is_no_best(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_start(harness);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    struct tune_error err = {0};
    json_t *message;
    assert_int_equal(tune_next(harness->client, LIMIT_MS, &message, &err), 1);
    assert_string_equal(text_at(message, "params.job"), job.text);
    assert_int_equal(number_at(message, "params.done"), 0);
    assert_true(json_is_null(at(message, "params.best_config")));
    assert_int_equal(json_array_size(at(message, "params.recent")), 0);
    json_decref(message);
    json_decref(wait_job(harness, job));
}

static void stats_tell_how_long_workers_and_gpus_were_at_work(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, NULL);
    json_t *stats = ask(harness, "stats", NULL);
    assert_int_equal(number_at(stats, "workers.bench_busy_s"), 0);
    assert_int_equal(number_at(stats, "workers.compile_busy"), 0);
    assert_int_equal(number_at(stats, "jobs_queued"), 0);
    json_decref(stats);
    json_decref(sweep_result(harness, sweep_params("tiny")));
    stats = ask(harness, "stats", NULL);
    json_t *devices = ask(harness, "devices", NULL);
    assert_true(number_at(stats, "workers.compile_busy_s") > 0);
    assert_true(number_at(stats, "workers.bench_busy_s") > 0);
    assert_int_equal(number_at(stats, "workers.bench_busy"), 0);
    assert_true(number_at(json_array_get(devices, 0), "busy_s") ==
                number_at(stats, "workers.bench_busy_s"));
    json_decref(devices);
    json_decref(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(each_result_is_told_once_with_its_reason_and_the_best_with_its_configuration),
        HARNESS_TEST(a_sweep_faster_than_its_news_tells_the_newest_and_counts_all),
        HARNESS_TEST(before_the_first_result_there_is_no_best),
        HARNESS_TEST(stats_tell_how_long_workers_and_gpus_were_at_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
