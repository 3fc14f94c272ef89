#include "fixture.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[512];

const struct record_key gemm_key = {.kernel = "gemm",
    .fingerprint = "0123456789abcdef0123456789abcdef",
    .shape = "M=1024,N=1024,K=1024",
    .dtype = "f32",
    .arch = "cpu", /* times of a few nanoseconds count, as they would not of a GPU */
    .mode = "cold"};

void fixture_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/tune-db-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void fixture_remove(void)
{
    chmod(dir, 0700);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int fixture_setup(void **state)
{
    (void)state;
    fixture_make();
    return 0;
}

int fixture_teardown(void **state)
{
    (void)state;
    fixture_remove();
    return 0;
}

const char *fixture_dir(void)
{
    return dir;
}

const char *path_in(const char *name)
{
    static char paths[4][1024];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

struct tuning_db *open_db(const struct tuning_db_options *options)
{
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db *db = tuning_db_open(path_in("db"), options, &err);
    if (db == NULL)
        fail_msg("open: %s", err.text);
    return db;
}

void refuse_db(enum tune_code code, const char *part_of_text)
{
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db *db = tuning_db_open(path_in("db"), NULL, &err);
    assert_null(db);
    if (err.code != code || strstr(err.text, part_of_text) == NULL)
        fail_msg("%s: %s (wanted %s: ...%s...)", tune_code_word(err.code), err.text,
            tune_code_word(code), part_of_text);
}

struct sample make_sample(unsigned config, const char *run, double median_ns)
{
    static char texts[64][24];
    static const float samples_ns[3] = {1, 2, 3};
    static unsigned next;
    char *text = texts[next++ % 64];
    snprintf(text, sizeof texts[0], "BM=%u", config);
    return (struct sample){.key = gemm_key,
        .config = text,
        .gpu_uuid = "gpu-0",
        .gpu_name = "H200",
        .run = run,
        .outcome = OUTCOME_OK,
        .is_final = true,
        .attempts = 1,
        .method = "event",
        .median_ns = median_ns,
        .lo_ns = median_ns * 0.99,
        .hi_ns = median_ns * 1.01,
        .sample_count = 3,
        .samples_ns = samples_ns,
        .host = "host",
        .nvrtc = "13.0",
        .time_unix_ms = 1000};
}

void commit_now(struct tuning_db *db, struct tuning_db_batch *batch)
{
    struct tune_error err = {.code = TUNE_OK};
    if (tuning_db_commit(db, batch, &err) != 0)
        fail_msg("commit: %s", err.text);
    tuning_db_batch_destroy(batch);
}

void put_sample_now(struct tuning_db *db, const struct sample *sample)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_sample(batch, sample), 0);
    assert_int_equal(tuning_db_batch_refresh(batch, &sample->key), 0);
    commit_now(db, batch);
}

char *read_file(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*count + 1);
    assert_int_equal(fread(bytes, 1, *count, file), *count);
    fclose(file);
    return bytes;
}

void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* splitmix64 */
uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int run_in_child(void (*body)(void *context), void *context)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* cmocka's handlers would go on with the tests in the child. */
        static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
        for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
            signal(fatal[i], SIG_DFL);
        body(context);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}
