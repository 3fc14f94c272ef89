#include "isolation.h"
#include "pipe.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The parent may have died before the death signal was asked for; the pipe's other end knows who it
 * was. Without that knowledge (another PID namespace) the pipe's end will tell later. */
static int check_parent(struct tune_error *err)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot ask for a signal at the parent's death");
    if (getsockopt(PIPE_DESCRIPTOR, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return tune_fail_errno(err, TUNE_EIO,
            "descriptor %d is no socket: tune-worker is started by tunerd, not by hand (try "
            "tune-worker probe)",
            PIPE_DESCRIPTOR);
    if (getppid() == 1 && peer.pid > 1)
        return tune_fail(err, TUNE_EIO, "tunerd is gone");
    return 0;
}

static void close_by_listing(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        int fd = atoi(entry->d_name);
        if (fd > PIPE_DESCRIPTOR && fd != dirfd(folder))
            close(fd);
    }
    if (folder)
        closedir(folder);
}

static int fix_descriptors(struct tune_error *err)
{
    if (syscall(SYS_close_range, PIPE_DESCRIPTOR + 1, ~0U, 0) < 0)
        close_by_listing(); /* Linux before 5.9 */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return tune_fail_errno(err, TUNE_EIO, "cannot open /dev/null");
    if (dup2(2, 1) < 0 || fcntl(PIPE_DESCRIPTOR, F_SETFD, FD_CLOEXEC) < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot set up the standard descriptors");
    return 0;
}

/* Relative parts of the list become absolute; what does not exist stays and is reported by the
 * search. */
static void resolve_cuda_dirs(void)
{
    const char *dirs = getenv("TUNE_CUDA_DIR");
    if (!dirs || !*dirs)
        return;
    size_t room = (strlen(dirs) + 2) * 2 + 16 * PATH_MAX, used = 0;
    char *list = strdup(dirs), *resolved = calloc(1, room), *rest = NULL;
    for (char *dir = list && resolved ? strtok_r(list, ":", &rest) : NULL; dir;
         dir = strtok_r(NULL, ":", &rest)) {
        char real[PATH_MAX];
        int length = snprintf(resolved + used, room - used, "%s%s", used ? ":" : "",
            realpath(dir, real) ? real : dir);
        if (length < 0 || (size_t)length >= room - used)
            break;
        used += (size_t)length;
    }
    if (used > 0)
        setenv("TUNE_CUDA_DIR", resolved, 1);
    free(list);
    free(resolved);
}

int isolate(struct tune_error *err)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an ignored one would lose the exit status of a host compiler */
    if (check_parent(err) < 0 || fix_descriptors(err) < 0)
        return -1;
    resolve_cuda_dirs();
    setpgid(0, 0); /* what it starts is in its group, which the daemon ends after it */
    if (chdir("/") < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot enter /");
    return 0;
}
