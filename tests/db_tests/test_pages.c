/* Files that are not what LMDB takes for granted: refused with a sentence, unchanged, and never the
 * end of the process. */
#include "fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 300
#define DATA "db/data.mdb"

static char *good;
static size_t good_bytes;

/* A database with branch pages, large values, free pages and every table. */
static void fill(struct tuning_db *db)
{
    static char cubin[30000];
    static float samples_ns[3000];
    for (unsigned i = 0; i < ROWS; i++) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        struct sample sample = make_sample(i, "1/search", 100 + i);
        sample.samples_ns = samples_ns;
        sample.sample_count = i % 20 == 0 ? 3000 : 20;
        char name[32], id[33];
        uint8_t row[TUNING_DB_ID_BYTES];
        snprintf(name, sizeof name, "job/%u", i);
        struct record_hash key = record_text_hash(name);
        tuning_db_batch_sample(batch, &sample);
        tuning_db_batch_refresh(batch, &gemm_key);
        tuning_db_batch_job(batch, name, name, strlen(name));
        tuning_db_batch_log(batch, name, strlen(name), id);
        tuning_db_id(&sample, row);
        tuning_db_batch_unsent(batch, row, i);
        tuning_db_batch_aside(batch, row, i, "of another kernel");
        if (i % 30 == 0)
            tuning_db_batch_cubin(batch, &key, cubin, sizeof cubin);
        commit_now(db, batch);
    }
}

static int setup_group(void **state)
{
    (void)state;
    fixture_make();
    struct tuning_db_options options = {
        .map_start_bytes = 1 << 20, .map_limit_bytes = 16 << 20, .cubin_limit_bytes = 100000};
    struct tuning_db *db = open_db(&options);
    fill(db);
    tuning_db_close(db);
    good = read_file(path_in(DATA), &good_bytes);
    return 0;
}

static int teardown_group(void **state)
{
    (void)state;
    free(good);
    fixture_remove();
    return 0;
}

/* The file is refused and afterwards the same, byte for byte. */
static void assert_refused_unchanged(
    const void *bytes, size_t count, enum tune_code code, const char *part_of_text)
{
    write_file(path_in(DATA), bytes, count);
    refuse_db(code, part_of_text);
    size_t after_count;
    char *after = read_file(path_in(DATA), &after_count);
    assert_int_equal(after_count, count);
    assert_memory_equal(after, bytes, count);
    free(after);
}

static int count_one(const struct sample *sample, void *context)
{
    (void)sample;
    ++*(unsigned *)context;
    return 0;
}

/* Everything a daemon would do with a database; 3 when it is refused, 2 when something does not
 * fit. */
static void use(void *context)
{
    (void)context;
    struct tuning_db *db = tuning_db_open(path_in("db"), NULL, NULL);
    if (db == NULL)
        _exit(3);
    struct best best;
    size_t damaged = 0;
    unsigned rows = 0;
    if (tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL) == 0) {
        if (strcmp(best.config, "BM=0") != 0)
            _exit(2);
        best_finish(&best);
    }
    tuning_db_walk_samples(db, NULL, count_one, &rows, NULL);
    tuning_db_check(db, &damaged, NULL);
    if (rows > ROWS)
        _exit(2);
    static char cubin[20000];
    for (unsigned round = 0; round < 3; round++) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        for (unsigned i = 0; i < 15; i++) {
            struct sample sample = make_sample(i, round % 2 ? "1/search" : "2/search", 1000);
            char name[32];
            snprintf(name, sizeof name, "job/%u", 21 * i + 7 * round);
            struct record_hash key = record_text_hash(name);
            tuning_db_batch_sample(batch, &sample);
            tuning_db_batch_job(batch, name, NULL, 0);
            tuning_db_batch_cubin(batch, &key, cubin, sizeof cubin);
        }
        tuning_db_batch_refresh(batch, &gemm_key);
        tuning_db_commit(db, batch, NULL);
        tuning_db_batch_destroy(batch);
    }
    tuning_db_close(db);
}

static void the_good_file_passes(void **state)
{
    (void)state;
    write_file(path_in(DATA), good, good_bytes);
    struct tuning_db *db = open_db(NULL);
    size_t damaged;
    unsigned rows = 0;
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(tuning_db_walk_samples(db, NULL, count_one, &rows, NULL), 0);
    assert_int_equal(rows, ROWS);
    tuning_db_close(db);
}

static void a_file_cut_short_is_refused(void **state)
{
    (void)state;
    const size_t cuts[] = {1, 100, 151, 152, 4095, 4096, 8191, 8192, good_bytes / 4, good_bytes / 2,
        good_bytes / 4 * 3};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        assert_refused_unchanged(good, cuts[i], TUNE_EDAMAGED, "");
}

/* The last page may be free: then nothing is lost. Otherwise the cut is seen. */
static void a_file_cut_by_one_byte_is_refused_or_whole(void **state)
{
    (void)state;
    for (size_t pages = 0; pages < 20; pages++) {
        write_file(path_in(DATA), good, good_bytes - 4096 * pages - 1);
        int status = run_in_child(use, NULL);
        assert_true(WIFEXITED(status));
        assert_int_not_equal(WEXITSTATUS(status), 2);
    }
}

static void an_empty_file_becomes_a_database(void **state)
{
    (void)state;
    write_file(path_in(DATA), "", 0);
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    tuning_db_close(db);
}

/* A patch of the good file at one offset of both header pages. */
static void assert_patched_headers_refused(
    size_t offset, const void *bytes, size_t count, enum tune_code code, const char *part_of_text)
{
    char *copy = malloc(good_bytes);
    memcpy(copy, good, good_bytes);
    memcpy(copy + offset, bytes, count);
    memcpy(copy + 4096 + offset, bytes, count);
    assert_refused_unchanged(copy, good_bytes, code, part_of_text);
    free(copy);
}

static void another_format_version_is_named(void **state)
{
    (void)state;
    const uint32_t version = 2;
    assert_patched_headers_refused(20, &version, 4, TUNE_EVERSION, "format version 2");
}

static void another_page_size_is_named(void **state)
{
    (void)state;
    const uint32_t page_bytes = 16384;
    assert_patched_headers_refused(40, &page_bytes, 4, TUNE_EVERSION, "pages of 16384 bytes");
}

static void a_32_bit_file_is_named(void **state)
{
    (void)state;
    char *copy = calloc(1, 8192);
    const uint32_t start[] = {0, 8u << 16, 0, 0xBEEFC0DE, 1};
    memcpy(copy, start, sizeof start);
    memcpy(copy + 4096, start, sizeof start);
    assert_refused_unchanged(copy, 8192, TUNE_EVERSION, "32-bit");
    free(copy);
}

static void a_file_of_the_other_byte_order_is_named(void **state)
{
    (void)state;
    const uint32_t magic = 0xDEC0EFBE;
    assert_patched_headers_refused(16, &magic, 4, TUNE_EVERSION, "byte order");
}

static void other_files_are_called_foreign(void **state)
{
    (void)state;
    static const char text[] = "Dear diary, today I tuned a kernel and it was slower than before.\n"
                               "So I tuned it again, and wrote the times down here, one by one: "
                               "12 13 12 12 14 12 12.";
    assert_refused_unchanged(text, sizeof text - 1, TUNE_EINVAL, "not an LMDB database");
    assert_refused_unchanged(text, 30, TUNE_EINVAL, "not an LMDB database");
    char zeros[8192] = {0};
    assert_refused_unchanged(zeros, sizeof zeros, TUNE_EINVAL, "not an LMDB database");
}

static void a_folder_fifo_or_link_as_data_file_is_refused(void **state)
{
    (void)state;
    unlink(path_in(DATA));
    assert_int_equal(mkdir(path_in(DATA), 0700), 0);
    refuse_db(TUNE_EPERM, "a folder");
    rmdir(path_in(DATA));
    assert_int_equal(mkfifo(path_in(DATA), 0600), 0);
    refuse_db(TUNE_EPERM, "a fifo");
    unlink(path_in(DATA));
    write_file(path_in("elsewhere"), good, good_bytes);
    assert_int_equal(symlink(path_in("elsewhere"), path_in(DATA)), 0);
    refuse_db(TUNE_EPERM, "a symbolic link");
    unlink(path_in(DATA));
    size_t count;
    char *bytes = read_file(path_in("elsewhere"), &count);
    assert_memory_equal(bytes, good, good_bytes);
    free(bytes);
}

/* A flipped bit anywhere: the file is refused, or the damage is a miss. LMDB alone would die of one
 * in twelve of these, and return wrong bytes for one in five. */
static void flipped_bits_never_end_the_process(void **state)
{
    (void)state;
    uint64_t seed = 20;
    unsigned refused = 0, used = 0;
    char *copy = malloc(good_bytes);
    for (int round = 0; round < 500; round++) {
        memcpy(copy, good, good_bytes);
        size_t bit = next_random(&seed) % (8 * good_bytes);
        if (round % 3 == 0) /* headers of pages, where it hurts most */
            bit = bit / (8 * 4096) * (8 * 4096) + bit % (8 * 200);
        copy[bit / 8] = (char)(copy[bit / 8] ^ 1 << bit % 8);
        write_file(path_in(DATA), copy, good_bytes);
        int status = run_in_child(use, NULL);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3))
            fail_msg("bit %zu: status %#x", bit, (unsigned)status);
        WEXITSTATUS(status) == 3 ? refused++ : used++;
    }
    free(copy);
    assert_true(refused > 10 && used > 150);
}

/* Whole stretches overwritten, as by a torn copy. */
static void overwritten_stretches_never_end_the_process(void **state)
{
    (void)state;
    uint64_t seed = 21;
    char *copy = malloc(good_bytes);
    for (int round = 0; round < 150; round++) {
        memcpy(copy, good, good_bytes);
        size_t count = 1 + next_random(&seed) % (round % 2 ? 64 : 9000);
        size_t to = next_random(&seed) % (good_bytes - count);
        size_t from = next_random(&seed) % (good_bytes - count);
        for (size_t i = 0; i < count; i++)
            copy[to + i] = round % 3 ? good[from + i] : (char)next_random(&seed);
        write_file(path_in(DATA), copy, good_bytes);
        int status = run_in_child(use, NULL);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3))
            fail_msg("round %d: status %#x", round, (unsigned)status);
    }
    free(copy);
}

static int put_salvaged(const struct sample *sample, void *context)
{
    put_sample_now(context, sample);
    return 0;
}

/* All branches of the trees are gone. */
static void samples_are_salvaged_from_a_file_that_is_refused(void **state)
{
    (void)state;
    char *copy = malloc(good_bytes);
    memcpy(copy, good, good_bytes);
    for (size_t page = 2; page < good_bytes / 4096; page++) {
        if (copy[4096 * page + 10] == 1) /* a branch */
            memset(copy + 4096 * page, 0, 4096);
    }
    write_file(path_in(DATA), copy, good_bytes);
    free(copy);
    refuse_db(TUNE_EDAMAGED, "damaged");
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db *new_db = tuning_db_open(path_in("new"), NULL, &err);
    assert_non_null(new_db);
    assert_int_equal(tuning_db_salvage(path_in("db"), put_salvaged, new_db, &err), 0);
    struct tuning_db_stats stats;
    struct best best;
    assert_int_equal(tuning_db_stats(new_db, &stats, NULL), 0);
    assert_int_equal(stats.samples, ROWS);
    assert_int_equal(tuning_db_best(new_db, &gemm_key, NULL, 0, &best, NULL), 0);
    assert_string_equal(best.config, "BM=0");
    best_finish(&best);
    tuning_db_close(new_db);
    assert_int_equal(tuning_db_salvage(path_in("none"), put_salvaged, NULL, &err), -1);
}

/* --- after a clean end ------------------------------------------------------------------------ */

#define MARK "db/clean"

/* Flips a bit in the number of each leaf page that holds samples; opening reads none of them. */
static void damage_leaves(void)
{
    size_t count, pages = 0;
    char *bytes = read_file(path_in(DATA), &count);
    for (size_t at = 8192; at + 4096 <= count; at += 4096) {
        if (bytes[at + 10] != 2 || memmem(bytes + at, 4096, "1/search", 8) == NULL)
            continue;
        bytes[at + 1] ^= 1;
        pages++;
    }
    assert_int_not_equal(pages, 0);
    write_file(path_in(DATA), bytes, count);
    free(bytes);
}

/* Makes the mark say what the file is now, as if the medium had changed it by itself. */
static void forge_mark(void)
{
    size_t count;
    struct stat status;
    char *mark = read_file(path_in(MARK), &count);
    assert_int_equal(stat(path_in(DATA), &status), 0);
    int64_t times[] = {status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
        status.st_ctim.tv_nsec};
    memcpy(mark + 32, times, sizeof times);
    write_file(path_in(MARK), mark, count);
    free(mark);
}

static void close_cleanly(void)
{
    write_file(path_in(DATA), good, good_bytes);
    tuning_db_close(open_db(NULL));
    assert_int_equal(access(path_in(MARK), F_OK), 0);
}

static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t verdict_given = PTHREAD_COND_INITIALIZER;
static struct tune_error verdict;

static void on_unsound(const struct tune_error *why, void *context)
{
    (void)context;
    pthread_mutex_lock(&verdict_lock);
    verdict = *why;
    pthread_cond_signal(&verdict_given);
    pthread_mutex_unlock(&verdict_lock);
}

static void damage_after_a_clean_end_is_refused_at_once(void **state)
{
    (void)state;
    close_cleanly();
    damage_leaves();
    refuse_db(TUNE_EDAMAGED, "--salvage");
}

static void what_the_medium_lost_is_refused_when_it_is_found(void **state)
{
    (void)state;
    close_cleanly();
    damage_leaves();
    forge_mark();
    struct tuning_db_options options = {.on_unsound = on_unsound};
    struct tuning_db *db = open_db(&options);
    pthread_mutex_lock(&verdict_lock);
    while (verdict.code == TUNE_OK)
        pthread_cond_wait(&verdict_given, &verdict_lock);
    pthread_mutex_unlock(&verdict_lock);
    assert_int_equal(verdict.code, TUNE_EDAMAGED);
    assert_non_null(strstr(verdict.text, "--salvage"));
    struct tune_error err = {0};
    struct best best;
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, &err), -1);
    assert_string_equal(err.text, verdict.text);
    tuning_db_close(db);
    assert_int_not_equal(access(path_in(MARK), F_OK), 0); /* not called clean again */
    refuse_db(TUNE_EDAMAGED, "--salvage");
}

static void end_without_closing(void *context)
{
    (void)context;
    _exit(tuning_db_open(path_in("db"), NULL, NULL) == NULL);
}

static void an_end_without_closing_leaves_no_mark(void **state)
{
    (void)state;
    close_cleanly();
    assert_int_equal(run_in_child(end_without_closing, NULL), 0);
    assert_int_not_equal(access(path_in(MARK), F_OK), 0);
}

static void the_state_that_was_opened_is_checked_while_it_is_written(void **state)
{
    (void)state;
    struct tuning_db_options options = {.on_unsound = on_unsound};
    verdict = (struct tune_error){0};
    close_cleanly();
    for (unsigned round = 0; round < 20; round++) {
        struct tuning_db *db = open_db(&options);
        for (unsigned i = 0; i < 10; i++) {
            char run[32];
            snprintf(run, sizeof run, "%u/%u", round, i);
            struct sample sample = make_sample(i, run, 1000);
            put_sample_now(db, &sample);
        }
        tuning_db_close(db);
        assert_int_equal(verdict.code, TUNE_OK);
    }
}

/* A snapshot that stays open would keep every page that commits free from being used anew. */
static void the_check_lets_go_of_its_snapshot_when_it_has_ended(void **state)
{
    (void)state;
    const struct timespec moment = {.tv_nsec = 1000 * 1000};
    struct tuning_db_stats stats = {.readers_used = 1};
    close_cleanly();
    struct tuning_db *db = open_db(NULL);
    for (int tries = 0; tries < 60000 && stats.readers_used > 0; tries++) {
        nanosleep(&moment, NULL);
        assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    }
    assert_int_equal(stats.readers_used, 0);
    tuning_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_file_passes),
        cmocka_unit_test(a_file_cut_short_is_refused),
        cmocka_unit_test(a_file_cut_by_one_byte_is_refused_or_whole),
        cmocka_unit_test(an_empty_file_becomes_a_database),
        cmocka_unit_test(another_format_version_is_named),
        cmocka_unit_test(another_page_size_is_named),
        cmocka_unit_test(a_32_bit_file_is_named),
        cmocka_unit_test(a_file_of_the_other_byte_order_is_named),
        cmocka_unit_test(other_files_are_called_foreign),
        cmocka_unit_test(a_folder_fifo_or_link_as_data_file_is_refused),
        cmocka_unit_test(flipped_bits_never_end_the_process),
        cmocka_unit_test(samples_are_salvaged_from_a_file_that_is_refused),
        cmocka_unit_test(damage_after_a_clean_end_is_refused_at_once),
        cmocka_unit_test(what_the_medium_lost_is_refused_when_it_is_found),
        cmocka_unit_test(an_end_without_closing_leaves_no_mark),
        cmocka_unit_test(the_state_that_was_opened_is_checked_while_it_is_written),
        cmocka_unit_test(the_check_lets_go_of_its_snapshot_when_it_has_ended),
        cmocka_unit_test(overwritten_stretches_never_end_the_process),
    };
    return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
