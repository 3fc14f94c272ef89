/* Finding the daemon's socket and programs, and starting a daemon when none runs. See tune_rpc.h.
 *
 * Design of the start: whoever holds the lock beside the socket starts, everybody else waits for
 * the socket to answer. The starter forks a helper, which forks the daemon: so the daemon is never
 * the caller's child (no zombie, no surprise for its own wait calls), and yet the caller learns of
 * an early death at once, because the helper stays as the daemon's parent until the caller has seen
 * an answer, and ends when the daemon does. Between fork and exec only async-signal-safe calls are
 * made, as the caller may have threads. */
#include "tune_rpc.h"
#include "client_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_LIMIT_MS                                                                             \
    10000                   /* from exec to the first answer: opening a large database included    \
                             */
#define LOCK_LIMIT_MS 15000 /* somebody else's start, and a little more */
#define PAUSE_MS 20
#define LOG_LIMIT_BYTES ((off_t)16 << 20)

/* --- which socket ----------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int fill_path(
    char path[TUNE_SOCKET_PATH_BYTES], struct tune_error *err, const char *folder, const char *name)
{
    size_t length = strlen(folder) + strlen(name);
    if (length >= TUNE_SOCKET_PATH_BYTES)
        return tune_fail(err, TUNE_EINVAL,
            "the socket path %.100s... has %zu bytes; the system allows %d: choose a shorter one "
            "(--socket or TUNE_SOCKET)",
            folder, length, TUNE_SOCKET_PATH_BYTES - 1);
    snprintf(path, TUNE_SOCKET_PATH_BYTES, "%s%s", folder, name);
    return 0;
}

int tune_socket_path(const char *asked, char path[TUNE_SOCKET_PATH_BYTES], struct tune_error *err)
{
    if (asked == NULL)
        asked = environment("TUNE_SOCKET");
    if (asked != NULL)
        return fill_path(path, err, asked, "");
    const char *runtime = environment("XDG_RUNTIME_DIR");
    if (runtime != NULL)
        return fill_path(path, err, runtime, "/tunerd.sock");
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tunerd-%lu", (unsigned long)geteuid());
    return fill_path(path, err, folder, "/tunerd.sock");
}

/* Without a runtime folder the socket lies in /tmp, where anybody can plant a folder of our name:
 * it must be a real folder of ours that nobody else may enter. `create` makes it. */
static int check_tmp_folder(bool create, struct tune_error *err)
{
    if (environment("TUNE_SOCKET") || environment("XDG_RUNTIME_DIR"))
        return 0;
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tunerd-%lu", (unsigned long)geteuid());
    if (create && mkdir(folder, 0700) && errno != EEXIST)
        return tune_fail_errno(err, TUNE_EIO, "cannot make the folder %s", folder);
    struct stat info;
    if (lstat(folder, &info))
        return tune_fail_errno(err, TUNE_ENODAEMON, "no daemon answers at %s/tunerd.sock", folder);
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return tune_fail(err, TUNE_EPERM,
            "%s is not a folder of yours with mode 0700, so a socket in it cannot be trusted: "
            "remove "
            "it, or set XDG_RUNTIME_DIR or TUNE_SOCKET",
            folder);
    return 0;
}

static int connect_own(int limit_ms, struct tune_client **client, struct tune_error *err)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    if (tune_socket_path(NULL, path, err) || check_tmp_folder(false, err))
        return -1;
    return client_open(path, limit_ms, client, err);
}

int tune_connect(const char *path, struct tune_client **client, struct tune_error *err)
{
    return client_connect(path, CLIENT_HELLO_MS, client, err);
}

int client_connect(
    const char *path, int limit_ms, struct tune_client **client, struct tune_error *err)
{
    *client = NULL;
    if (path != NULL)
        return client_open(path, limit_ms, client, err);
    struct tune_error own = {0};
    if (connect_own(limit_ms, client, &own) == 0)
        return 0;
    if (own.code != TUNE_ENODAEMON || environment("TUNE_SOCKET"))
        return tune_fail(err, own.code, "%s", own.text);
    struct tune_error system = {0};
    if (client_open(TUNE_SYSTEM_SOCKET, limit_ms, client, &system) == 0)
        return 0;
    /* A system daemon that does not serve this user is as good as none: one's own can be started.
     */
    if (system.code != TUNE_ENODAEMON && system.code != TUNE_EPERM)
        return tune_fail(err, system.code, "%s", system.text);
    return tune_fail(err, TUNE_ENODAEMON, "%s, and %s %s", own.text,
        system.code == TUNE_EPERM ? "you may not use the one at" : "none at", TUNE_SYSTEM_SOCKET);
}

/* --- where the programs are ------------------------------------------------------------------- */

static bool is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Fills `path` without "..", links resolved. */
static bool found_at(
    char *path, size_t size, const char *folder, const char *below, const char *name)
{
    char guess[PATH_MAX], real[PATH_MAX];
    int length = snprintf(guess, sizeof guess, "%s/%s%s", folder, below, name);
    if (length < 0 || (size_t)length >= sizeof guess || !is_program(guess) ||
        realpath(guess, real) == NULL)
        return false;
    length = snprintf(path, size, "%s", real);
    return length > 0 && (size_t)length < size;
}

/* `size` bytes hold the folder of the running executable; false when the system does not tell. */
static bool own_folder(char *folder, size_t size)
{
    char exe[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length <= 0)
        return false;
    exe[length] = '\0';
    snprintf(folder, size, "%s", dirname(exe));
    return true;
}

static bool found_in_search_path(char *path, size_t size, const char *name)
{
    const char *folders = environment("PATH");
    while (folders != NULL && *folders != '\0') {
        int length = (int)strcspn(folders, ":");
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%.*s", length, folders);
        if (folder[0] == '/' && found_at(path, size, folder, "", name))
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

int tune_find_program(const char *name, char *path, size_t size, struct tune_error *err)
{
    const char *variable = strcmp(name, "tunerd") == 0 ? "TUNE_TUNERD" : "TUNE_WORKER";
    const char *asked = environment(variable);
    if (asked != NULL) {
        if ((size_t)snprintf(path, size, "%s", asked) < size && is_program(path))
            return 0;
        return tune_fail(
            err, TUNE_ENOTFOUND, "%s is set to %s, which is no program", variable, asked);
    }
    static const char *const below[] = {"", "../bin/", "../libexec/tunerd/", "../lib/tunerd/"};
    char folder[PATH_MAX];
    if (own_folder(folder, sizeof folder)) {
        for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
            if (found_at(path, size, folder, below[i], name))
                return 0;
        }
    }
    if (found_in_search_path(path, size, name))
        return 0;
    return tune_fail(err, TUNE_ENOTFOUND,
        "the program %s is neither beside this one nor in PATH: install it, or name it in %s", name,
        variable);
}

/* --- the log ---------------------------------------------------------------------------------- */

/* Makes each missing folder of `path` below its first `base` bytes, up to the last '/'. */
static void make_folders(const char *path, size_t base)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + base, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (slash > part + base)
            mkdir(part, 0700); /* failure shows when the file is opened */
        *slash = '/';
    }
}

/* Opens a log for appending; one that has grown large is set aside first, in place of the last. */
static int open_log(const char *path)
{
    struct stat info;
    char aside[PATH_MAX + 4];
    if (stat(path, &info) == 0 && info.st_size > LOG_LIMIT_BYTES) {
        snprintf(aside, sizeof aside, "%s.old", path);
        rename(path, aside);
    }
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* The log file's descriptor and name; beside the socket when there is no usable home. A home that
 * does not exist is not made. */
static int open_daemon_log(const char *socket_path, char *path, size_t size, struct tune_error *err)
{
    const char *state = environment("XDG_STATE_HOME");
    const char *base = state ? state : environment("HOME");
    int fd = -1;
    if (base != NULL) {
        snprintf(path, size, "%s%s/tunerd/tunerd.log", base, state ? "" : "/.local/state");
        make_folders(path, state ? 1 : strlen(base));
        fd = open_log(path);
    }
    if (fd < 0) {
        snprintf(path, size, "%s.log", socket_path);
        fd = open_log(path);
    }
    if (fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot write the daemon's log %s", path);
    return fd;
}

/* The last line that the log got after `from`, for the error of a failed start. */
static void last_log_line(const char *path, off_t from, char *line, size_t size)
{
    line[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char tail[2048];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t start = end - (off_t)sizeof tail + 1 > from ? end - (off_t)sizeof tail + 1 : from;
    ssize_t count = pread(fd, tail, sizeof tail - 1, start);
    close(fd);
    while (count > 0 && (tail[count - 1] == '\n' || tail[count - 1] == ' '))
        count--;
    if (count <= 0)
        return;
    tail[count] = '\0';
    const char *newline = strrchr(tail, '\n');
    snprintf(line, size, "%s", newline ? newline + 1 : tail);
}

/* --- starting --------------------------------------------------------------------------------- */

struct start {
    char program[PATH_MAX];
    char socket[PATH_MAX]; /* absolute: the daemon may change its folder */
    char log[PATH_MAX];
    int log_fd;
    off_t log_start; /* its size before this start */
};

/* In the grandchild: becomes the daemon. */
static _Noreturn void become_daemon(const struct start *start)
{
    setsid();
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(start->log_fd, 2);
    if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    execl(start->program, "tunerd", "--foreground", "--socket", start->socket, (char *)NULL);
    static const char words[] = "tunerd: cannot be executed\n";
    if (write(2, words, sizeof words - 1) < 0)
        _exit(126);
    _exit(127);
}

/* In the child: starts the daemon and stays until it ends or the caller closes its end of the pipe.
 */
static _Noreturn void hold_daemon(const struct start *start, int pipe_fd)
{
    signal(SIGCHLD, SIG_DFL); /* an ignored SIGCHLD would hide the daemon's death from waitpid */
    pid_t daemon = fork();
    if (daemon == 0)
        become_daemon(start);
    for (;;) {
        if (daemon < 0 || waitpid(daemon, NULL, WNOHANG) == daemon)
            _exit(1);
        struct pollfd caller = {.fd = pipe_fd};
        if (poll(&caller, 1, PAUSE_MS) > 0)
            _exit(0);
    }
}

static int answers(void)
{
    struct tune_client *client;
    if (connect_own(CLIENT_HELLO_MS, &client, NULL))
        return false;
    tune_disconnect(client);
    return true;
}

static void pause_ms(int ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

static int wait_for_answer(const struct start *start, pid_t helper, struct tune_error *err)
{
    long long deadline = client_now_ms() + START_LIMIT_MS;
    while (client_now_ms() < deadline) {
        if (answers())
            return 0;
        int status;
        if (waitpid(helper, &status, WNOHANG) == helper) {
            char line[160];
            last_log_line(start->log, start->log_start, line, sizeof line);
            return tune_fail(err, TUNE_ENODAEMON, "the daemon ended at its start: %s (log: %s)",
                line[0] ? line : "it said nothing", start->log);
        }
        pause_ms(PAUSE_MS);
    }
    return tune_fail(err, TUNE_ENODAEMON,
        "a daemon was started but did not answer within %d s; its log is %s", START_LIMIT_MS / 1000,
        start->log);
}

static int launch(const struct start *start, struct tune_error *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC))
        return tune_fail_errno(err, TUNE_EIO, "cannot make a pipe");
    pid_t helper = fork();
    if (helper == 0) {
        close(pipe_fds[0]);
        hold_daemon(start, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    int status = helper < 0 ? tune_fail_errno(err, TUNE_EIO, "cannot start a process")
                            : wait_for_answer(start, helper, err);
    close(pipe_fds[0]);
    if (helper > 0)
        waitpid(helper, NULL, 0);
    return status;
}

static int prepare(struct start *start, const char *socket_path, struct tune_error *err)
{
    struct tune_error why = {0};
    if (tune_find_program("tunerd", start->program, sizeof start->program, &why))
        return tune_fail(err, TUNE_ENODAEMON, "%s", why.text);
    char folder[PATH_MAX] = "";
    if (socket_path[0] != '/' && getcwd(folder, sizeof folder - 1) == NULL)
        return tune_fail_errno(err, TUNE_EIO, "cannot tell the working folder");
    if (folder[0] != '\0')
        strcat(folder, "/");
    if ((size_t)snprintf(start->socket, sizeof start->socket, "%s%s", folder, socket_path) >=
        TUNE_SOCKET_PATH_BYTES)
        return tune_fail(err, TUNE_EINVAL,
            "the socket path has %zu bytes when written from the root; the system allows %d",
            strlen(start->socket), TUNE_SOCKET_PATH_BYTES - 1);
    start->log_fd = open_daemon_log(start->socket, start->log, sizeof start->log, err);
    if (start->log_fd < 0)
        return -1;
    start->log_start = lseek(start->log_fd, 0, SEEK_END);
    return 0;
}

/* Waits for the lock or for somebody else's daemon. 1: locked, 0: a daemon answers. */
static int lock_or_answer(int lock_fd, struct tune_error *err)
{
    long long deadline = client_now_ms() + LOCK_LIMIT_MS;
    while (!answers()) {
        if (flock(lock_fd, LOCK_EX | LOCK_NB) == 0)
            return 1;
        if (client_now_ms() > deadline)
            return tune_fail(err, TUNE_ENODAEMON,
                "another program has been starting a daemon for %d s without success",
                LOCK_LIMIT_MS / 1000);
        pause_ms(PAUSE_MS);
    }
    return 0;
}

int tune_autostart(struct tune_error *err)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    if (tune_socket_path(NULL, path, err) || check_tmp_folder(true, err))
        return -1;
    char lock_path[TUNE_SOCKET_PATH_BYTES + 8];
    snprintf(lock_path, sizeof lock_path, "%s.start", path);
    int lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_fd < 0)
        return tune_fail_errno(
            err, TUNE_ENODAEMON, "cannot start a daemon: no lock file %s", lock_path);
    int locked = lock_or_answer(lock_fd, err);
    int status = locked < 0 ? -1 : 0;
    struct start start = {.log_fd = -1};
    /* Between the last look and the lock another one may have started it. */
    if (locked > 0 && !answers())
        status = prepare(&start, path, err) || launch(&start, err) ? -1 : 0;
    if (start.log_fd >= 0)
        close(start.log_fd);
    close(lock_fd);
    return status;
}
