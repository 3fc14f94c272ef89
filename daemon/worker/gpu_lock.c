#include "gpu_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_or_create(const char *path)
{
    const int flags =
        O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; /* a planted fifo must not hang */
    for (int attempt = 0; attempt < 2; attempt++) {
        int fd = open(path, flags);
        if (fd >= 0 || errno != ENOENT)
            return fd;
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
        if (fd >= 0) {
            (void)!fchmod(fd, 0666); /* whatever the umask: others must be able to wait too */
            return fd;
        }
        if (errno != EEXIST) /* else somebody was quicker: open theirs */
            return -1;
    }
    return -1;
}

static void open_in(struct gpu_lock *lock, const char *folder, const char *uuid)
{
    snprintf(lock->path, sizeof(lock->path), "%s/tunerd-%s.lock", folder, uuid);
    lock->fd = open_or_create(lock->path);
}

int gpu_lock_open(struct gpu_lock *lock, const char *uuid, struct tune_error *err)
{
    struct stat status;
    const char *asked = getenv("TUNE_LOCK_DIR");
    bool is_asked = asked && *asked;
    open_in(lock, is_asked ? asked : "/run/lock", uuid);
    if (lock->fd < 0 && !is_asked && (errno == ENOENT || errno == EACCES || errno == EROFS))
        open_in(lock, "/tmp", uuid);
    if (lock->fd < 0)
        return tune_fail_errno(err, TUNE_EIO,
            "the GPU lock %.120s cannot be opened (name a shared folder in TUNE_LOCK_DIR)",
            lock->path);
    if (fstat(lock->fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        gpu_lock_close(lock);
        return tune_fail(err, TUNE_EIO, "the GPU lock %.160s is not a regular file", lock->path);
    }
    return 0;
}

void gpu_lock_close(struct gpu_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

int gpu_lock_take(struct gpu_lock *lock, struct tune_error *err)
{
    while (flock(lock->fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return tune_fail_errno(
                err, TUNE_EIO, "the GPU lock %.160s cannot be taken", lock->path);
    return 0;
}

void gpu_lock_release(struct gpu_lock *lock)
{
    flock(lock->fd, LOCK_UN);
}
