/* The map grows under readers: in this process, and in another one. Run under the thread sanitizer
 * too. */
#include "fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORDS 50000
#define BATCH 250
#define WRITERS 4
#define READERS 4
#define SHAPES 200

static struct tuning_db *db;
static atomic_uint acknowledged[WRITERS]; /* records that a commit has made durable */
static atomic_uint running_writers;

/* Record `index` of a writer; every field is a function of the two numbers. */
struct texts {
    char shape[32], config[32], run[32];
};

static struct sample numbered(unsigned writer, unsigned index, struct texts *texts)
{
    static const float samples_ns[30];
    snprintf(texts->shape, sizeof texts->shape, "M=%u", index % SHAPES);
    snprintf(texts->config, sizeof texts->config, "W=%u,I=%u", writer, index);
    snprintf(texts->run, sizeof texts->run, "%u/search", writer);
    return (struct sample){.key = {"gemm", "fp", texts->shape, "f32", "sm_90", "cold"},
        .config = texts->config,
        .gpu_uuid = "gpu",
        .gpu_name = "H200",
        .run = texts->run,
        .outcome = OUTCOME_OK,
        .is_final = true,
        .method = "event",
        .median_ns = 1e6 + index,
        .lo_ns = 1e6 + index - 1,
        .hi_ns = 1e6 + index + 1,
        .sample_count = 30,
        .samples_ns = samples_ns,
        .seed = (uint64_t)writer << 32 | index};
}

static bool is_whole(const struct sample *sample)
{
    struct texts texts;
    struct sample wanted = numbered((unsigned)(sample->seed >> 32), (unsigned)sample->seed, &texts);
    return record_key_equal(&wanted.key, &sample->key) &&
           strcmp(wanted.config, sample->config) == 0 && wanted.median_ns == sample->median_ns &&
           sample->sample_count == 30;
}

static void *write_records(void *context)
{
    unsigned writer = (unsigned)(uintptr_t)context;
    for (unsigned first = 0; first < RECORDS / WRITERS; first += BATCH) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        for (unsigned i = first; i < first + BATCH; i++) {
            struct texts texts;
            struct sample sample = numbered(writer, i, &texts);
            if (tuning_db_batch_sample(batch, &sample) != 0)
                abort();
            if (i % 100 == 0 && tuning_db_batch_refresh(batch, &sample.key) != 0)
                abort();
        }
        struct tune_error err = {.code = TUNE_OK};
        if (tuning_db_commit(db, batch, &err) != 0) {
            fprintf(stderr, "commit: %s\n", err.text);
            abort();
        }
        tuning_db_batch_destroy(batch);
        atomic_store(&acknowledged[writer], first + BATCH);
    }
    atomic_fetch_sub(&running_writers, 1);
    return NULL;
}

static int check_whole(const struct sample *sample, void *context)
{
    if (!is_whole(sample))
        abort();
    ++*(unsigned *)context;
    return 0;
}

/* Lists one shape after another: what was acknowledged before must be in the listing. */
static void *read_records(void *context)
{
    unsigned reader = (unsigned)(uintptr_t)context;
    struct tune_error err = {.code = TUNE_OK};
    for (unsigned round = 0; atomic_load(&running_writers) > 0; round++) {
        struct texts texts;
        struct sample sample = numbered(0, (reader * 57 + round) % SHAPES, &texts);
        unsigned found = 0, expected = 0;
        for (unsigned i = 0; i < WRITERS; i++)
            expected += atomic_load(&acknowledged[i]) / SHAPES;
        struct best best;
        int status = tuning_db_walk_samples(db, &sample.key, check_whole, &found, &err);
        if (status == 0)
            status = tuning_db_best(db, &sample.key, NULL, 0, &best, &err);
        if (status == 0)
            best_finish(&best);
        if (status < 0 || found < expected) {
            fprintf(stderr, "reader: %u of %u: %s\n", found, expected, err.text);
            abort();
        }
        struct tuning_db_stats stats;
        if (tuning_db_stats(db, &stats, &err) != 0)
            abort();
    }
    return NULL;
}

static void writers_make_the_map_grow_under_readers(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20, .map_limit_bytes = 256 << 20};
    db = open_db(&options);
    pthread_t threads[WRITERS + READERS];
    atomic_store(&running_writers, WRITERS);
    for (uintptr_t i = 0; i < WRITERS + READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL,
                             i < WRITERS ? write_records : read_records, (void *)i),
            0);
    for (size_t i = 0; i < WRITERS + READERS; i++)
        pthread_join(threads[i], NULL);
    struct tuning_db_stats stats;
    unsigned found = 0;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    assert_int_equal(stats.samples, RECORDS);
    assert_int_equal(stats.readers_used, 0);
    assert_true(stats.map_bytes >= 16 << 20);
    assert_int_equal(tuning_db_walk_samples(db, NULL, check_whole, &found, NULL), 0);
    assert_int_equal(found, RECORDS);
    tuning_db_close(db);
}

/* An offline reader in a process of its own: 0 when no listing ever failed, 1 at a failure. */
static int read_until_all_is_there(const char *dir)
{
    struct tuning_db_options options = {.read_only = true};
    struct tune_error err = {.code = TUNE_OK};
    db = tuning_db_open(dir, &options, &err);
    unsigned found = 0, previous = 0;
    for (; db != NULL && found < 10000; previous = found) {
        found = 0;
        if (tuning_db_walk_samples(db, NULL, check_whole, &found, &err) != 0 || found < previous)
            break;
    }
    tuning_db_close(db);
    if (found < 10000)
        fprintf(stderr, "offline reader: %u rows, %s\n", found, err.text);
    return found >= 10000 ? 0 : 1;
}

static void a_reader_in_another_process_takes_up_each_growth(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20};
    db = open_db(&options);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "reader", "--read", path_in("db"), (char *)NULL);
        _exit(99);
    }
    for (unsigned first = 0; first < 10000; first += 50) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        for (unsigned i = first; i < first + 50; i++) {
            struct texts texts;
            struct sample sample = numbered(0, i, &texts);
            tuning_db_batch_sample(batch, &sample);
        }
        commit_now(db, batch);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    tuning_db_close(db);
}

static void *list_all(void *context)
{
    (void)context;
    for (int i = 0; i < 20; i++) {
        unsigned found = 0;
        if (tuning_db_walk_samples(db, NULL, check_whole, &found, NULL) != 0 || found != 100)
            abort();
    }
    return NULL;
}

static void many_threads_listing_never_run_out_of_slots(void **state)
{
    (void)state;
    enum { THREADS = 300 };
    db = open_db(NULL);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = 0; i < 100; i++) {
        struct texts texts;
        struct sample sample = numbered(0, i, &texts);
        tuning_db_batch_sample(batch, &sample);
    }
    commit_now(db, batch);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, list_all, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    assert_int_equal(stats.readers_used, 0);
    tuning_db_close(db);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return read_until_all_is_there(argv[2]);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        TEST(writers_make_the_map_grow_under_readers),
        TEST(a_reader_in_another_process_takes_up_each_growth),
        TEST(many_threads_listing_never_run_out_of_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
