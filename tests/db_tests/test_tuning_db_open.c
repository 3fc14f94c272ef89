/* Who may open which folder. */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long pretended_fs_type; /* 0: the real one */

int __real_fstatfs(int fd, struct statfs *fs);
int __wrap_fstatfs(int fd, struct statfs *fs);

int __wrap_fstatfs(int fd, struct statfs *fs)
{
    int status = __real_fstatfs(fd, fs);
    if (status == 0 && pretended_fs_type != 0)
        fs->f_type = (__typeof__(fs->f_type))pretended_fs_type;
    return status;
}

static int setup(void **state)
{
    (void)state;
    fixture_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pretended_fs_type = 0;
    fixture_remove();
    return 0;
}

static mode_t mode_of(const char *name)
{
    struct stat status;
    assert_int_equal(lstat(path_in(name), &status), 0);
    return status.st_mode & 07777;
}

static void folders_are_made_and_private_under_any_umask(void **state)
{
    (void)state;
    mode_t old = umask(0);
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db *db = tuning_db_open(path_in("a/b/db/"), NULL, &err);
    umask(old);
    if (db == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(mode_of("a/b"), 0700);
    assert_int_equal(mode_of("a/b/db"), 0700);
    assert_int_equal(mode_of("a/b/db/data.mdb"), 0600);
    assert_int_equal(mode_of("a/b/db/lock.mdb"), 0600);
    assert_int_equal(mode_of("a/b/db/lock"), 0600);
    tuning_db_close(db);
}

static void what_is_ours_and_open_to_others_is_made_private(void **state)
{
    (void)state;
    tuning_db_close(open_db(NULL));
    chmod(path_in("db"), 0777);
    chmod(path_in("db/data.mdb"), 0666);
    chmod(path_in("db/lock.mdb"), 0666);
    chmod(path_in("db/lock"), 0666);
    tuning_db_close(open_db(NULL));
    assert_int_equal(mode_of("db"), 0700);
    assert_int_equal(mode_of("db/data.mdb"), 0600);
    assert_int_equal(mode_of("db/lock.mdb"), 0600);
    assert_int_equal(mode_of("db/lock"), 0600);
}

static void what_belongs_to_others_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give a file away */
    static const char *const names[] = {"db/data.mdb", "db/lock.mdb", "db/lock", "db"};
    tuning_db_close(open_db(NULL));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(lchown(path_in(names[i]), 12345, 12345), 0);
        refuse_db(TUNE_EPERM, "belongs to user 12345");
        assert_int_equal(lchown(path_in(names[i]), 0, 0), 0);
    }
    tuning_db_close(open_db(NULL));
}

static void links_are_refused_wherever_they_stand(void **state)
{
    (void)state;
    static const char *const names[] = {"db/data.mdb", "db/lock.mdb", "db/lock"};
    tuning_db_close(open_db(NULL));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(rename(path_in(names[i]), path_in("target")), 0);
        assert_int_equal(symlink(path_in("target"), path_in(names[i])), 0);
        refuse_db(TUNE_EPERM, "a symbolic link");
        unlink(path_in(names[i]));
        assert_int_equal(rename(path_in("target"), path_in(names[i])), 0);
    }
    assert_int_equal(rename(path_in("db"), path_in("real")), 0);
    assert_int_equal(symlink(path_in("real"), path_in("db")), 0);
    refuse_db(TUNE_EPERM, "is a symbolic link");
    struct tune_error err = {.code = TUNE_OK};
    assert_null(tuning_db_open(path_in("db/"), NULL, &err)); /* the slash does not help */
    assert_int_equal(err.code, TUNE_EPERM);
}

static void a_folder_that_cannot_be_is_an_error_with_its_name(void **state)
{
    (void)state;
    write_file(path_in("file"), "x", 1);
    struct tune_error err = {.code = TUNE_OK};
    assert_null(tuning_db_open(path_in("file/db"), NULL, &err));
    assert_int_equal(err.code, TUNE_EIO);
    assert_non_null(strstr(err.text, "file/db"));
    err.code = TUNE_OK;
    assert_null(tuning_db_open("", NULL, &err));
    assert_int_equal(err.code, TUNE_EINVAL);
    write_file(path_in("db"), "x", 1);
    refuse_db(TUNE_EIO, "Not a directory");
}

static void a_second_opening_is_refused_in_this_process(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    refuse_db(TUNE_EBUSY, "already open");
    struct tuning_db_options options = {.read_only = true};
    struct tune_error err = {.code = TUNE_OK};
    assert_null(tuning_db_open(path_in("db"), &options, &err));
    assert_int_equal(err.code, TUNE_EBUSY);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample); /* the first is none the worse */
    tuning_db_close(db);
    tuning_db_close(open_db(NULL));
}

/* exec'd rather than forked, for a fork shares this process's list of open folders: `true` when the
 * kernel's lock is what refuses. */
static int second_process(const char *self, bool read_only)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, read_only ? "--read" : "--open", path_in("db"), (char *)NULL);
        _exit(99);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_second_process_is_refused_but_may_read(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    assert_int_equal(second_process("/proc/self/exe", false), TUNE_EBUSY);
    assert_int_equal(second_process("/proc/self/exe", true), 0);
    put_sample_now(db, &sample);
    tuning_db_close(db);
    assert_int_equal(second_process("/proc/self/exe", false), 0);
}

static void a_killed_owner_leaves_no_lock(void **state)
{
    (void)state;
    tuning_db_close(open_db(NULL));
    int pipe_ends[2];
    char byte;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct tuning_db *db = tuning_db_open(path_in("db"), NULL, NULL);
        if (db == NULL || write(pipe_ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    refuse_db(TUNE_EBUSY, "another tunerd");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    tuning_db_close(open_db(NULL));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void network_file_systems_are_refused(void **state)
{
    (void)state;
    static const unsigned long types[] = {NFS_SUPER_MAGIC, 0xFF534D42, 0xFE534D42, 0x65735546};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        pretended_fs_type = types[i];
        refuse_db(TUNE_EINVAL, "network file system");
        assert_int_equal(access(path_in("db/data.mdb"), F_OK), -1);
    }
    pretended_fs_type = EXT4_SUPER_MAGIC;
    tuning_db_close(open_db(NULL));
}

/* How often the closed file holds a format's number; `to` not 0: puts that in its place. */
static size_t find_format(uint8_t format, uint8_t to)
{
    size_t count, length, found = 0;
    char *bytes = read_file(path_in("db/data.mdb"), &count);
    uint8_t number[8] = {format};
    uint8_t *old = blob_encode(number, 8, &length);
    number[0] = to;
    uint8_t *new = blob_encode(number, 8, &length);
    for (size_t i = 0; i + length <= count; i++) {
        if (memcmp(bytes + i, old, length) != 0)
            continue;
        if (to != 0)
            memcpy(bytes + i, new, length);
        found++;
    }
    write_file(path_in("db/data.mdb"), bytes, count);
    free(bytes);
    free(old);
    free(new);
    return found;
}

static void a_newer_database_is_refused_and_unchanged(void **state)
{
    (void)state;
    tuning_db_close(open_db(NULL));
    assert_int_equal(find_format(2, 4), 1);
    size_t count, after_count;
    char *bytes = read_file(path_in("db/data.mdb"), &count);
    refuse_db(TUNE_EVERSION, "format 4");
    char *after = read_file(path_in("db/data.mdb"), &after_count);
    assert_int_equal(after_count, count);
    assert_memory_equal(after, bytes, count);
    free(after);
    free(bytes);
}

/* Opening writes nothing: the disk or the map may be full. */
static void an_older_database_is_of_todays_format_from_its_first_new_best_on(void **state)
{
    (void)state;
    tuning_db_close(open_db(NULL));
    assert_int_equal(find_format(2, 1), 1);
    struct tuning_db *db = open_db(NULL);
    tuning_db_close(db);
    assert_int_equal(find_format(2, 0), 0);
    db = open_db(NULL);
    struct sample sample = make_sample(1, "a", 100);
    put_sample_now(db, &sample);
    tuning_db_close(db);
    assert_int_equal(find_format(2, 0), 1);
}

static void use_in_fork(void *context)
{
    struct tuning_db *db = context;
    struct tune_error err = {.code = TUNE_OK};
    struct best best;
    if (tuning_db_best(db, &gemm_key, NULL, 0, &best, &err) != -1 || err.code != TUNE_EINTERNAL)
        _exit(1);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    tuning_db_batch_job(batch, "x", "y", 1);
    if (tuning_db_commit(db, batch, NULL) != -1)
        _exit(1);
    tuning_db_batch_destroy(batch);
    tuning_db_close(db);
    _exit(0);
}

static int fork_while_reading(const struct sample *sample, void *context)
{
    (void)sample;
    for (int i = 0; i < 20; i++)
        assert_int_equal(run_in_child(use_in_fork, context), 0);
    return 0;
}

static void a_forked_child_cannot_harm_its_parent(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    assert_int_equal(tuning_db_walk_samples(db, NULL, fork_while_reading, db, NULL), 0);
    sample = make_sample(2, "1/search", 10);
    put_sample_now(db, &sample);
    struct best best;
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL), 0);
    best_finish(&best);
    assert_int_equal(second_process("/proc/self/exe", false), TUNE_EBUSY);
    tuning_db_close(db);
}

static void no_descriptor_of_ours_reaches_a_child(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    DIR *dir = opendir("/proc/self/fd");
    unsigned ours = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char link[64], target[1024];
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (strstr(target, path_in("db")) == NULL)
            continue;
        ours++;
        if (!(fcntl(atoi(entry->d_name), F_GETFD) & FD_CLOEXEC))
            fail_msg("%s would be inherited", target);
    }
    closedir(dir);
    assert_true(ours >= 3);
    tuning_db_close(db);
}

static void open_without_descriptors(void *context)
{
    (void)context;
    close(0);
    close(1);
    close(2);
    struct tuning_db *db = tuning_db_open(path_in("db"), NULL, NULL);
    if (db == NULL)
        _exit(1);
    struct sample sample = make_sample(1, "1/search", 10);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    tuning_db_batch_sample(batch, &sample);
    dprintf(2, "a message to nobody, long enough to hurt a header page of a database\n");
    if (tuning_db_commit(db, batch, NULL) != 0)
        _exit(1);
    tuning_db_batch_destroy(batch);
    dprintf(1, "another\n");
    dprintf(2, "another\n");
    tuning_db_close(db);
    _exit(0);
}

static void messages_of_a_process_without_descriptors_miss_the_database(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(open_without_descriptors, NULL), 0);
    struct tuning_db *db = open_db(NULL);
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    assert_int_equal(stats.samples, 1);
    tuning_db_close(db);
}

static void reading_only_needs_a_database_and_changes_nothing(void **state)
{
    (void)state;
    struct tuning_db_options options = {.read_only = true};
    struct tune_error err = {.code = TUNE_OK};
    assert_null(tuning_db_open(path_in("db"), &options, &err));
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    assert_int_equal(access(path_in("db"), F_OK), -1);
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    tuning_db_close(db);
    db = open_db(&options);
    struct best best;
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL), 0);
    best_finish(&best);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    tuning_db_batch_job(batch, "x", "y", 1);
    err.code = TUNE_OK;
    assert_int_equal(tuning_db_commit(db, batch, &err), -1);
    assert_int_equal(err.code, TUNE_EPERM);
    tuning_db_batch_destroy(batch);
    tuning_db_close(db);
}

/* The second process of the tests above. */
static int open_and_look(const char *dir, bool read_only)
{
    struct tuning_db_options options = {.read_only = read_only};
    struct tune_error err = {.code = TUNE_OK};
    struct tuning_db *db = tuning_db_open(dir, &options, &err);
    struct best best;
    if (db == NULL)
        return err.code;
    if (tuning_db_best(db, &gemm_key, NULL, 0, &best, &err) != 0)
        return 98;
    best_finish(&best);
    tuning_db_close(db);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return open_and_look(argv[2], strcmp(argv[1], "--read") == 0);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(folders_are_made_and_private_under_any_umask),
        TEST(what_is_ours_and_open_to_others_is_made_private),
        TEST(what_belongs_to_others_is_refused),
        TEST(links_are_refused_wherever_they_stand),
        TEST(a_folder_that_cannot_be_is_an_error_with_its_name),
        TEST(a_second_opening_is_refused_in_this_process),
        TEST(a_second_process_is_refused_but_may_read),
        TEST(a_killed_owner_leaves_no_lock),
        TEST(network_file_systems_are_refused),
        TEST(a_newer_database_is_refused_and_unchanged),
        TEST(an_older_database_is_of_todays_format_from_its_first_new_best_on),
        TEST(a_forked_child_cannot_harm_its_parent),
        TEST(no_descriptor_of_ours_reaches_a_child),
        TEST(messages_of_a_process_without_descriptors_miss_the_database),
        TEST(reading_only_needs_a_database_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
