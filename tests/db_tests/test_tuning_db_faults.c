/* The disk fails: each of LMDB's writes, syncs and maps in turn, once or from there on. The
 * functions below stand before libc's, for LMDB too. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { FAULT_ERROR, FAULT_SHORT };

static int countdown = -1; /* the call after this many fails; -1: none */
static bool is_lasting;
static int fault_errno;
static enum fault fault_kind;
static unsigned fired;

static bool must_fail(void)
{
    if (countdown < 0 || countdown-- > 0)
        return false;
    if (is_lasting)
        countdown = 0;
    fired++;
    errno = fault_errno;
    return true;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    if (must_fail()) {
        if (fault_kind == FAULT_ERROR)
            return -1;
        count /= 2;
    }
    return syscall(SYS_pwrite64, fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite(fd, bytes, count, offset);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (fd > 2 && must_fail()) {
        if (fault_kind == FAULT_ERROR)
            return -1;
        count /= 2;
    }
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    if (must_fail()) {
        if (fault_kind == FAULT_ERROR)
            return -1;
        count = (count + 1) / 2;
    }
    return syscall(SYS_pwritev, fd, parts, count, offset, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (must_fail()) {
        if (fault_kind == FAULT_ERROR)
            return -1;
        count = (count + 1) / 2;
    }
    return syscall(SYS_writev, fd, parts, count);
}

int fdatasync(int fd)
{
    if (must_fail() && fault_kind == FAULT_ERROR)
        return -1;
    return (int)syscall(SYS_fdatasync, fd);
}

static bool must_fail_map;

void *mmap(void *address, size_t count, int protection, int flags, int fd, off_t offset)
{
    if (must_fail_map && fd >= 0) {
        fired++;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, count, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t count, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, count, protection, flags, fd, offset);
}

static int setup(void **state)
{
    (void)state;
    fixture_make();
    fired = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    countdown = -1;
    must_fail_map = false;
    fixture_remove();
    return 0;
}

#define JOBS 200

/* Round n writes all jobs with the text n: a ring, whole or not at all. */
static int put_round(struct tuning_db *db, unsigned round, struct tune_error *err)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    char text[400];
    memset(text, ' ', sizeof text);
    snprintf(text, sizeof text, "%u", round);
    for (unsigned i = 0; i < JOBS; i++) {
        char name[32];
        snprintf(name, sizeof name, "job/%u", i);
        assert_int_equal(tuning_db_batch_job(batch, name, text, sizeof text), 0);
    }
    int status = tuning_db_commit(db, batch, err);
    tuning_db_batch_destroy(batch);
    return status;
}

struct seen {
    unsigned round, count;
};

static int see_job(const char *name, const void *bytes, size_t count, void *context)
{
    (void)name, (void)count;
    struct seen *seen = context;
    unsigned round = (unsigned)atoi(bytes);
    if (seen->count++ > 0)
        assert_int_equal(round, seen->round);
    seen->round = round;
    return 0;
}

static unsigned round_of(struct tuning_db *db)
{
    struct seen seen = {0, 0};
    struct tune_error err = {.code = TUNE_OK};
    if (tuning_db_walk_jobs(db, "job/", see_job, &seen, &err) != 0)
        fail_msg("walk: %s", err.text);
    assert_int_equal(seen.count, JOBS);
    return seen.round;
}

static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};

/* Fails the k-th call for every k until one commit meets no fault any more. */
static void fail_each_call(enum fault kind, bool lasting)
{
    struct tuning_db *db = open_db(NULL);
    unsigned round = 1;
    assert_int_equal(put_round(db, round, NULL), 0);
    int k = 0;
    for (int met = 1; met; k++) {
        struct tune_error err = {.code = TUNE_OK};
        fired = 0;
        fault_kind = kind;
        fault_errno = errors[k % 4];
        is_lasting = lasting;
        countdown = k;
        int status = put_round(db, round + 1, &err);
        met = fired > 0;
        assert_int_equal(round_of(db), status == 0 ? round + 1 : round);
        if (status != 0) {
            bool is_full = fault_errno == ENOSPC || fault_errno == EDQUOT;
            if (kind == FAULT_ERROR)
                assert_int_equal(err.code, is_full ? TUNE_EFULL : TUNE_EIO);
            assert_true(strlen(err.text) > 0);
        } else {
            assert_true(!met || kind == FAULT_SHORT);
            round++;
        }
        countdown = -1;
        assert_int_equal(put_round(db, ++round, NULL), 0); /* the very next one works */
        assert_int_equal(round_of(db), round);
    }
    assert_true(k > 3); /* data, sync, header, and the one that met none: the faults are real */
    tuning_db_close(db);
    db = open_db(NULL);
    assert_int_equal(round_of(db), round);
    tuning_db_close(db);
}

static void one_failed_call_fails_one_commit(void **state)
{
    (void)state;
    fail_each_call(FAULT_ERROR, false);
}

static void a_disk_that_keeps_failing_leaves_the_old_readable(void **state)
{
    (void)state;
    fail_each_call(FAULT_ERROR, true);
}

static void a_write_cut_short_is_no_success(void **state)
{
    (void)state;
    fail_each_call(FAULT_SHORT, false);
}

static void a_map_that_cannot_grow_fails_the_commit_only(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20};
    struct tuning_db *db = open_db(&options);
    assert_int_equal(put_round(db, 1, NULL), 0);
    static char bytes[3 << 20];
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_job(batch, "large", bytes, sizeof bytes), 0);
    must_fail_map = true;
    assert_int_equal(tuning_db_commit(db, batch, NULL), -1);
    struct best best; /* there is no map at all now: an error, not the end */
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL), -1);
    must_fail_map = false;
    assert_true(fired > 0);
    assert_int_equal(round_of(db), 1);
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    tuning_db_batch_destroy(batch);
    assert_int_equal(round_of(db), 1);
    tuning_db_close(db);
}

static void a_file_size_limit_is_a_full_disk(void **state)
{
    (void)state;
    struct rlimit old, small = {300000, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    struct tuning_db *db = open_db(NULL);
    assert_int_equal(put_round(db, 1, NULL), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    static char bytes[1 << 20];
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_job(batch, "large", bytes, sizeof bytes), 0);
    int status = tuning_db_commit(db, batch, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, -1);
    assert_true(err.code == TUNE_EFULL || err.code == TUNE_EIO);
    assert_int_equal(round_of(db), 1);
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    tuning_db_batch_destroy(batch);
    tuning_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(one_failed_call_fails_one_commit),
        TEST(a_disk_that_keeps_failing_leaves_the_old_readable),
        TEST(a_write_cut_short_is_no_success),
        TEST(a_map_that_cannot_grow_fails_the_commit_only),
        TEST(a_file_size_limit_is_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
