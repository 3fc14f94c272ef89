/* Death at any moment: of the daemon, of a worker, of both.
 *
 * The journal is kept here, outside: whatever a client has seen (a row of `records`, a number of
 * finished candidates) must be there, unchanged, after each death. What was committed is not
 * measured again, which the emulator's own counters tell: a rule without effect counts how often
 * each candidate's function was fetched from its image, once per measurement. */
#include "harness.h"

#include <sys/wait.h>
#include <unistd.h>

#define TAGS 32
#define KILLS 100
#define NEWS_MS 150 /* progress comes every 100 ms */
#define LIFE_MS 260 /* the longest of a daemon's lives; a sweep takes longer than that */

static void count_measurements(struct harness *harness, const char *more)
{
    char text[TAGS * 160] = "{\"rules\": [", *end = text + strlen(text);
    for (int tag = 0; tag < TAGS; tag++)
        end += sprintf(end,
            "%s{\"call\": \"cuModuleGetFunction\", \"when\": {\"defines\": {\"TAG\": %d}}, \"do\": "
            "\"delay_ms\", \"value\": 5}",
            tag ? "," : "", tag);
    sprintf(end, "%s]}", more);
    harness_scenario(harness, text);
}

/* --- the journal ------------------------------------------------------------------------------ */

struct journal {
    struct job_name job;
    char *rows[TAGS];     /* what a client saw of a final row of the search, as text */
    bool committed[TAGS]; /* was in the database when the last life began */
    long counted[TAGS];   /* measurements when the last life began */
    double done;          /* the highest number that a client was told */
    size_t redone;
};

static void journal_reset(struct journal *journal)
{
    for (int tag = 0; tag < TAGS; tag++)
        free(journal->rows[tag]);
    *journal = (struct journal){0};
}

static bool is_search_row(const json_t *row)
{
    return strstr(text_at(row, "run"), "/search") != NULL && json_is_true(at(row, "final"));
}

/* Reads the job's rows: those seen before must be as they were, and there are no others than
 * candidates' own, one each. Returns how many candidates have a final row. */
static size_t check_rows(struct harness *harness, struct journal *journal, bool seen[TAGS])
{
    json_t *rows = records_of(harness, journal->job.text), *row;
    size_t i, count = 0;
    memset(seen, 0, TAGS * sizeof seen[0]);
    json_array_foreach (rows, i, row) {
        if (!is_search_row(row))
            continue;
        int tag = (int)number_at(row, "config.TAG");
        assert_in_range(tag, 0, TAGS - 1);
        if (seen[tag])
            fail_msg("TAG %d has two final rows", tag);
        seen[tag] = true;
        count++;
        char *text = json_dumps(row, JSON_SORT_KEYS);
        if (journal->rows[tag] == NULL)
            journal->rows[tag] = text;
        else
            assert_string_equal(text, journal->rows[tag]);
        if (text != journal->rows[tag])
            free(text);
    }
    for (int tag = 0; tag < TAGS; tag++)
        if (journal->rows[tag] != NULL && !seen[tag])
            fail_msg("TAG %d was acknowledged and is lost", tag);
    json_decref(rows);
    return count;
}

/* At the start of a life: nothing acknowledged is lost; the life before measured nothing that was
 * committed when it began, and each of the others once at most. Holds while the search lasts: the
 * confirmation measures the finalists again. */
static void check_start(struct harness *harness, struct journal *journal, const long counted[TAGS])
{
    bool seen[TAGS];
    size_t count = check_rows(harness, journal, seen);
    if ((double)count < journal->done)
        fail_msg("a client was told of %g results; there are %zu", journal->done, count);
    for (int tag = 0; tag < TAGS && count < TAGS; tag++) {
        long times = counted[tag] - journal->counted[tag];
        if (journal->committed[tag] && times != 0)
            fail_msg("TAG %d was committed and measured again", tag);
        if (times > 1)
            fail_msg("TAG %d was measured %ld times in one life", tag, times);
        journal->redone += times == 1 && !seen[tag];
    }
    memcpy(journal->committed, seen, sizeof seen);
    memcpy(journal->counted, counted, sizeof journal->counted);
}

static void read_counters(const struct harness *harness, long counted[TAGS])
{
    for (int tag = 0; tag < TAGS; tag++)
        counted[tag] = harness_matches(harness, tag);
}

/* --- T01 -------------------------------------------------------------------------------------- */

static json_t *shape_params(int n)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    return params;
}

static bool is_over(struct harness *harness, const struct job_name *job)
{
    json_t *json = ask(harness, "jobs", json_pack("{s:s}", "job", job->text));
    const char *state = text_at(json, "state");
    bool over = strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
    if (over && strcmp(state, "done") != 0)
        fail_msg("the sweep is %s: %s", state, text_at(json, "error"));
    json_decref(json);
    return over;
}

/* Until the moment of death: listens to progress, and looks at the rows now and then. Half of the
 * lives end right after some news, while what it tells of may still be on its way to the disk. */
static void live(
    struct harness *harness, struct journal *journal, uint64_t end_ms, uint64_t *random)
{
    struct tune_error err = {0};
    bool seen[TAGS], ends_with_news = next_random(random) % 2, is_news = false;
    json_decref(ask(harness, "watch", json_pack("{s:s}", "job", journal->job.text)));
    uint64_t last_ms = ends_with_news ? end_ms + NEWS_MS : end_ms;
    while (now_ms() < last_ms && !(is_news && now_ms() >= end_ms)) {
        json_t *message = NULL;
        if (next_random(random) % 8 == 0 && now_ms() < end_ms)
            check_rows(harness, journal, seen);
        is_news = false;
        if (tune_next(harness->client, 4, &message, &err) != 1)
            continue;
        is_news = strcmp(text_at(message, "method"), "progress") == 0;
        if (is_news && number_at(message, "params.done") > journal->done)
            journal->done = number_at(message, "params.done");
        json_decref(message);
    }
}

static void kill_a_worker(struct harness *harness, uint64_t *random)
{
    pid_t pids[8];
    size_t count = harness_workers(harness, NULL, pids, 8);
    if (count > 0)
        kill(pids[next_random(random) % count], SIGKILL);
}

/* One in eight dies while it starts. */
static void die_at_start(struct harness *harness, uint64_t *random)
{
    uint64_t end_ms;
    harness_launch(harness);
    end_ms = now_ms() + next_random(random) % 20;
    while (now_ms() < end_ms)
        json_decref(ask(harness, "ping", NULL));
    harness_kill(harness);
}

static void the_daemon_is_killed_a_hundred_times_and_nothing_acknowledged_is_lost(void)
{
    struct harness *harness = harness_new();
    struct journal journal = {0};
    uint64_t random = test_seed();
    long counted[TAGS] = {0};
    int sweeps = 0;
    size_t redone = 0;
    char output[4096];
    write_tiny(harness, &(struct tiny){.tags = TAGS});
    count_measurements(harness, "");
    for (int kills = 0; kills < KILLS; kills++) {
        if (next_random(&random) % 8 == 0 && journal.job.text[0] != '\0')
            die_at_start(harness, &random);
        harness_start(harness);
        if (journal.job.text[0] != '\0')
            check_start(harness, &journal, counted);
        if (journal.job.text[0] == '\0' || is_over(harness, &journal.job)) {
            redone += journal.redone;
            journal_reset(&journal);
            memcpy(journal.counted, counted, sizeof counted);
            journal.job = sweep(harness, shape_params(64 + sweeps++));
        }
        live(harness, &journal, now_ms() + next_random(&random) % LIFE_MS, &random);
        if (next_random(&random) % 4 == 0)
            kill_a_worker(harness, &random);
        harness_kill(harness);
        read_counters(harness, counted);
    }
    harness_start(harness);
    check_start(harness, &journal, counted);
    json_t *ended = wait_job(harness, journal.job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
    redone += journal.redone;
    print_message("%d kills over %d sweeps, %zu measurements redone\n", KILLS, sweeps, redone);
    assert_true(sweeps >= 2);
    assert_in_range(redone, 0, KILLS);
    harness_stop(harness);
    assert_int_equal(run_tunerd(output, sizeof output, "--check", "--emulate", "--socket",
                         harness->socket, "--db", harness->db, NULL),
        0);
    assert_non_null(strstr(output, ": 0 damaged"));
    journal_reset(&journal);
}

/* --- T02 -------------------------------------------------------------------------------------- */

static void keep_running(struct harness *harness, struct job_name *job, int *sweeps)
{
    if (job->text[0] == '\0' || is_over(harness, job))
        *job = sweep(harness, shape_params(64 + (*sweeps)++));
}

struct answer_wait {
    struct harness *harness;
    struct job_name *job;
    int *sweeps;
    size_t answers;
    double compiles;
    const char *role; /* of a worker that has answered since the last one of its kind was killed */
};

static size_t answers_of(const struct answer_wait *wait)
{
    json_t *rows = records_of(wait->harness, wait->job->text);
    size_t answers = rows_with(rows, "ok", -1);
    json_decref(rows);
    return answers;
}

/* A device or compiler whose workers die three times in a row without one answer is given up, and
 * so is an image whose compiler dies twice, as it should be. So a worker is killed only after one
 * of its kind has answered, and a compiler only after the image that was lost is done. */
static bool a_worker_has_answered(void *context)
{
    struct answer_wait *wait = context;
    int sweeps = *wait->sweeps;
    keep_running(wait->harness, wait->job, wait->sweeps);
    if (*wait->sweeps != sweeps)
        wait->answers = 0;
    json_t *stats = ask(wait->harness, "stats", NULL);
    double compiles = number_at(stats, "images.compiles");
    json_decref(stats);
    wait->role = NULL;
    if (compiles >= wait->compiles + 8) {
        wait->compiles = compiles;
        wait->role = "compile";
    } else if (answers_of(wait) >= wait->answers + 2) { /* one may have been on its way already */
        wait->role = "bench";
    }
    return wait->role != NULL;
}

static void workers_killed_sixty_times_are_replaced_and_the_daemon_serves_on(void)
{
    static const int signals[] = {SIGKILL, SIGSEGV, SIGABRT, SIGTERM};
    struct harness *harness = harness_new();
    struct job_name job = {""};
    uint64_t random = test_seed() + 1;
    pid_t pids[8];
    int sweeps = 0;
    harness->sanitizer_options = ":handle_segv=0:handle_abort=0"; /* signals sent are no finds */
    write_tiny(harness, &(struct tiny){.tags = TAGS});
    count_measurements(harness, "");
    harness->args[0] = "--compile-workers";
    harness->args[1] = "1";
    harness_start(harness);
    pid_t daemon = harness->daemon;
    size_t descriptors = harness_descriptors(harness);
    struct answer_wait wait = {.harness = harness, .job = &job, .sweeps = &sweeps};
    for (int kills = 0; kills < 60;) {
        wait_for(a_worker_has_answered, &wait, LIMIT_MS);
        uint64_t end_ms = now_ms() + next_random(&random) % 40;
        while (now_ms() < end_ms)
            json_decref(ask(harness, "ping", NULL));
        size_t count = harness_workers(harness, wait.role, pids, 8);
        if (count == 0)
            continue;
        kill(pids[next_random(&random) % count], signals[next_random(&random) % 4]);
        wait.answers = answers_of(&wait);
        kills++;
    }
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
    json_decref(sweep_result(harness, shape_params(1000)));
    json_t *answer = ask(harness, "ping", NULL);
    assert_int_equal(number_at(answer, "pid"), daemon);
    assert_int_equal(harness_zombies(harness), 0);
    assert_in_range(harness_descriptors(harness), descriptors - 4, descriptors + 6);
    json_decref(answer);
}

struct stopped_wait {
    struct harness *harness;
    pid_t pid;
};

static bool bench_worker_is_another(void *context)
{
    struct stopped_wait *wait = context;
    pid_t pids[2];
    return harness_workers(wait->harness, "bench", pids, 2) == 1 && pids[0] != wait->pid;
}

static bool tag_7_is_on_the_device(void *context)
{
    return harness_matches(context, TAGS) > 0;
}

/* It is stopped while it measures TAG 7 and holds the lock of the device. */
static void a_stopped_worker_is_replaced_at_its_deadline(void)
{
    struct harness *harness = harness_new();
    struct stopped_wait wait = {harness, 0};
    write_tiny(harness, &(struct tiny){.tags = TAGS});
    count_measurements(harness, ", {\"call\": \"cuModuleGetFunction\", \"when\": {\"defines\": "
                                "{\"TAG\": 7}}, \"times\": 1, "
                                "\"do\": \"delay_ms\", \"value\": 2000}");
    harness_start(harness);
    json_t *params = shape_params(64);
    json_object_set_new(params, "deadline_ms", json_integer(100));
    struct job_name job = sweep(harness, params);
    wait_for(tag_7_is_on_the_device, harness, LIMIT_MS);
    assert_int_equal(harness_workers(harness, "bench", &wait.pid, 1), 1);
    kill(wait.pid, SIGSTOP);
    wait_for(bench_worker_is_another, &wait, LIMIT_MS);
    json_t *ended = wait_job(harness, job);
    json_t *result = json_array_get(json_object_get(ended, "results"), 0);
    assert_string_equal(text_at(ended, "state"), "done");
    assert_int_equal(count_of(result, "timeout"), 1);
    assert_int_equal(count_of(result, "ok"), TAGS - 1);
    json_decref(ended);
}

/* --- F02 -------------------------------------------------------------------------------------- */

static void a_candidate_that_always_kills_its_worker_is_tried_twice_over_all_restarts(void)
{
    struct harness *harness = harness_new();
    uint64_t random = test_seed() + 2;
    struct journal journal = {0};
    write_tiny(harness, &(struct tiny){.tags = TAGS});
    count_measurements(harness, ", {\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": "
                                "{\"TAG\": 7}}, \"do\": \"abort\"}");
    harness_start(harness);
    journal.job = sweep(harness, shape_params(64));
    for (int i = 0; i < 3; i++) {
        live(harness, &journal, now_ms() + next_random(&random) % 150, &random);
        harness_kill(harness);
        harness_start(harness);
    }
    json_t *ended = wait_job(harness, journal.job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_t *rows = records_of(harness, journal.job.text);
    assert_in_range(harness_matches(harness, TAGS), 1, 2);
    assert_string_equal(text_at(row_of(rows, 7), "outcome"), "crashed");
    assert_string_not_equal(text_at(row_of(rows, 7), "detail"), "");
    json_t *result = json_array_get(json_object_get(ended, "results"), 0);
    assert_int_equal(number_at(result, "evaluations"), TAGS);
    assert_true(
        count_of(result, "ok") >= TAGS - 4); /* in flight at two kills: counted as crashed */
    json_decref(rows);
    json_decref(ended);
    journal_reset(&journal);
}

struct launch_wait {
    struct harness *harness;
    long more_than;
};

static bool tag_7_is_launched(void *context)
{
    struct launch_wait *wait = context;
    return harness_matches(wait->harness, 0) > wait->more_than;
}

/* The daemon dies while TAG 7 hangs, as if it had been the reason. */
static struct job_name die_with_tag_7(struct harness *harness, long deaths)
{
    struct job_name job = {""};
    write_tiny(harness, &(struct tiny){.tags = 10});
    harness_scenario(harness, "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": "
                              "{\"TAG\": 7}}, \"do\": "
                              "\"hang\"}]}");
    for (long i = 0; i < deaths; i++) {
        struct launch_wait wait = {harness, i};
        harness_start(harness);
        if (i == 0)
            job = sweep(harness, shape_params(64));
        wait_for(tag_7_is_launched, &wait, LIMIT_MS);
        harness_kill(harness);
    }
    return job;
}

static void a_candidate_that_takes_the_daemon_down_twice_is_never_launched_again(void)
{
    struct harness *harness = harness_new();
    struct job_name job = die_with_tag_7(harness, 2);
    harness_start(harness);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_t *rows = records_of(harness, job.text);
    assert_string_equal(text_at(row_of(rows, 7), "outcome"), "crashed");
    assert_int_equal(number_at(row_of(rows, 7), "attempts"), 2);
    assert_int_equal(count_of(json_array_get(json_object_get(ended, "results"), 0), "ok"), 9);
    json_decref(sweep_result(harness, shape_params(64))); /* nor by the next sweep */
    assert_int_equal(harness_matches(harness, 0), 2);
    json_decref(rows);
    json_decref(ended);
}

static void a_single_death_of_the_daemon_blames_nobody_for_good(void)
{
    struct harness *harness = harness_new();
    struct job_name job = die_with_tag_7(harness, 1);
    harness_scenario(harness, "{}");
    harness_start(harness);
    json_t *ended = wait_job(harness, job);
    assert_int_equal(count_of(json_array_get(json_object_get(ended, "results"), 0), "ok"), 10);
    json_decref(ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(the_daemon_is_killed_a_hundred_times_and_nothing_acknowledged_is_lost),
        HARNESS_TEST(workers_killed_sixty_times_are_replaced_and_the_daemon_serves_on),
        HARNESS_TEST(a_stopped_worker_is_replaced_at_its_deadline),
        HARNESS_TEST(a_candidate_that_always_kills_its_worker_is_tried_twice_over_all_restarts),
        HARNESS_TEST(a_candidate_that_takes_the_daemon_down_twice_is_never_launched_again),
        HARNESS_TEST(a_single_death_of_the_daemon_blames_nobody_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
