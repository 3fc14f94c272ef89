#include "daemon/worker/gpu_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64];
static bool is_run_lock_closed; /* to everybody but root */

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (is_run_lock_closed && strncmp(path, "/run/lock/", 10) == 0) {
        errno = flags & O_CREAT ? EACCES : ENOENT;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tune-lock-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    return setenv("TUNE_LOCK_DIR", folder, 1);
}

static int remove_folder(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof(path), "%s/tunerd-GPU-1.lock", folder);
    unlink(path);
    return rmdir(folder);
}

static void the_file_can_be_opened_by_everybody_whatever_the_umask(void **state)
{
    (void)state;
    struct gpu_lock lock;
    struct stat status;
    mode_t old = umask(077);
    assert_int_equal(gpu_lock_open(&lock, "GPU-1", NULL), 0);
    umask(old);
    assert_int_equal(stat(lock.path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0666);
    gpu_lock_close(&lock);
    assert_int_equal(lock.fd, -1);
}

static void two_holders_exclude_each_other(void **state)
{
    (void)state;
    struct gpu_lock first, second;
    assert_int_equal(gpu_lock_open(&first, "GPU-1", NULL), 0);
    assert_int_equal(gpu_lock_open(&second, "GPU-1", NULL), 0);
    assert_int_equal(gpu_lock_take(&first, NULL), 0);
    assert_int_equal(flock(second.fd, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    gpu_lock_release(&first);
    assert_int_equal(gpu_lock_take(&second, NULL), 0);
    gpu_lock_close(&first);
    gpu_lock_close(&second);
}

static void a_dead_holder_holds_nothing(void **state)
{
    (void)state;
    struct gpu_lock lock;
    pid_t child = fork();
    if (child == 0) {
        if (gpu_lock_open(&lock, "GPU-1", NULL) == 0 && gpu_lock_take(&lock, NULL) == 0)
            _exit(0);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(gpu_lock_open(&lock, "GPU-1", NULL), 0);
    assert_int_equal(gpu_lock_take(&lock, NULL), 0);
    gpu_lock_close(&lock);
}

static void a_planted_link_or_fifo_is_refused_with_its_path(void **state)
{
    (void)state;
    char path[128];
    struct gpu_lock lock;
    struct tune_error err = {.code = TUNE_OK};
    snprintf(path, sizeof(path), "%s/tunerd-GPU-2.lock", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(gpu_lock_open(&lock, "GPU-2", &err), -1);
    assert_non_null(strstr(err.text, path));
    unlink(path);
    assert_int_equal(mkfifo(path, 0666), 0);
    err.code = TUNE_OK;
    assert_int_equal(gpu_lock_open(&lock, "GPU-2", &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(path);
}

static void a_folder_that_is_roots_alone_gives_way_to_tmp_but_one_that_was_named_does_not(
    void **state)
{
    (void)state;
    struct gpu_lock lock;
    char uuid[32];
    snprintf(uuid, sizeof(uuid), "TEST-%d", (int)getpid());
    is_run_lock_closed = true;
    unsetenv("TUNE_LOCK_DIR");
    assert_int_equal(gpu_lock_open(&lock, uuid, NULL), 0);
    assert_int_equal(strncmp(lock.path, "/tmp/", 5), 0);
    unlink(lock.path);
    gpu_lock_close(&lock);
    setenv("TUNE_LOCK_DIR", "/run/lock", 1);
    assert_int_equal(gpu_lock_open(&lock, uuid, NULL), -1);
    setenv("TUNE_LOCK_DIR", folder, 1);
    is_run_lock_closed = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_can_be_opened_by_everybody_whatever_the_umask),
        cmocka_unit_test(two_holders_exclude_each_other),
        cmocka_unit_test(a_dead_holder_holds_nothing),
        cmocka_unit_test(a_planted_link_or_fifo_is_refused_with_its_path),
        cmocka_unit_test(
            a_folder_that_is_roots_alone_gives_way_to_tmp_but_one_that_was_named_does_not),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
