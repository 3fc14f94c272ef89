/* SIGKILL at random moments of a writer. The journal is outside: the writer says through a pipe
 * what it is about to store and what was acknowledged, and the pipe outlives it. */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING 20

/* Step n writes sample n and makes every job of the ring say n; each is one commit. */
static int put_step(struct tuning_db *db, uint32_t step)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    struct sample sample = make_sample(step, "1/search", 1e6 - step); /* each is a new best */
    sample.seed = step;
    static char cubin[30000];
    struct record_hash key = record_bytes_hash(&step, sizeof step);
    tuning_db_batch_sample(batch, &sample);
    tuning_db_batch_refresh(batch, &gemm_key);
    tuning_db_batch_cubin(batch, &key, cubin, sizeof cubin);
    for (unsigned i = 0; i < RING; i++) {
        char name[32];
        snprintf(name, sizeof name, "ring/%u", i);
        tuning_db_batch_job(batch, name, &step, sizeof step);
    }
    int status = tuning_db_commit(db, batch, NULL);
    tuning_db_batch_destroy(batch);
    return status;
}

struct mark {
    uint32_t step, is_acknowledged;
};

static void say(int fd, uint32_t step, uint32_t is_acknowledged)
{
    struct mark mark = {step, is_acknowledged};
    if (write(fd, &mark, sizeof mark) != sizeof mark)
        _exit(2);
}

static const struct tuning_db_options options = {
    .map_start_bytes = 1 << 20, .cubin_limit_bytes = 200000};

static void write_until_killed(int fd, uint32_t step)
{
    struct tuning_db *db = tuning_db_open(path_in("db"), &options, NULL);
    for (; db != NULL; step++) {
        say(fd, step, 0);
        if (put_step(db, step) != 0)
            break;
        say(fd, step, 1);
    }
    _exit(3);
}

/* Starts a writer, lets `marks` marks pass and some more time, kills it; then reads what else it
 * said. */
static void run_and_kill(uint32_t first, uint64_t *seed, uint32_t *tried, uint32_t *acknowledged)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        write_until_killed(ends[1], first);
    }
    close(ends[1]);
    uint64_t marks = 1 + next_random(seed) % 12, extra = next_random(seed) % 200000;
    struct mark mark;
    for (uint64_t i = 0; read(ends[0], &mark, sizeof mark) == sizeof mark; i++) {
        *tried = mark.step;
        if (mark.is_acknowledged)
            *acknowledged = mark.step;
        if (i != marks)
            continue;
        for (volatile uint64_t spin = 0; spin < extra; spin++) { /* into the middle of something */
        }
        kill(pid, SIGKILL);
    }
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

struct found {
    uint32_t samples, highest, ring, ring_step;
};

static int find_sample(const struct sample *sample, void *context)
{
    struct found *found = context;
    struct sample wanted = make_sample((unsigned)sample->seed, "1/search", 1e6 - sample->seed);
    assert_string_equal(sample->config, wanted.config); /* of one write in all its fields */
    assert_true(sample->median_ns == wanted.median_ns);
    found->samples++;
    if (sample->seed > found->highest)
        found->highest = (uint32_t)sample->seed;
    return 0;
}

static int find_ring(const char *name, const void *bytes, size_t count, void *context)
{
    struct found *found = context;
    uint32_t step;
    (void)name;
    assert_int_equal(count, sizeof step);
    memcpy(&step, bytes, sizeof step);
    if (found->ring++ > 0)
        assert_int_equal(step, found->ring_step);
    found->ring_step = step;
    return 0;
}

/* Steps 1 .. highest are there, once each; highest is the acknowledged one or the one in flight. */
static uint32_t check_after_kill(uint32_t tried, uint32_t acknowledged)
{
    struct tuning_db *db = open_db(&options);
    struct found found = {0};
    size_t damaged;
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(tuning_db_walk_samples(db, NULL, find_sample, &found, NULL), 0);
    assert_int_equal(tuning_db_walk_jobs(db, "ring/", find_ring, &found, NULL), 0);
    assert_true(found.highest >= acknowledged); /* nothing lost */
    assert_true(found.highest <= tried);        /* nothing invented */
    assert_int_equal(found.samples, found.highest);
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    assert_int_equal(stats.generation, found.highest);
    if (found.highest > 0) {
        struct best best;
        struct sample wanted = make_sample(found.highest, "1/search", 1);
        assert_int_equal(found.ring, RING);
        assert_int_equal(found.ring_step, found.highest);
        assert_int_equal(tuning_db_best(db, &gemm_key, "H200", 0, &best, NULL), 0);
        assert_string_equal(best.config, wanted.config);
        best_finish(&best);
    }
    tuning_db_close(db);
    return found.highest;
}

static void a_hundred_kills_lose_invent_and_tear_nothing(void **state)
{
    (void)state;
    uint64_t seed = 1;
    uint32_t stored = 0;
    for (int kill_number = 0; kill_number < 100; kill_number++) {
        uint32_t tried = stored, acknowledged = stored;
        run_and_kill(stored + 1, &seed, &tried, &acknowledged);
        stored = check_after_kill(tried, acknowledged);
    }
    assert_true(stored > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_hundred_kills_lose_invent_and_tear_nothing, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
