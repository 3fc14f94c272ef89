#include "worker_link.h"

#include "daemon/worker/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: the pipe becomes descriptor 3, and standard output stays out of the way. */
static void run_worker(int descriptor, const char *role, const char *cuda_dir)
{
    if (descriptor == PIPE_DESCRIPTOR)
        fcntl(descriptor, F_SETFD, 0);
    else
        dup2(descriptor, PIPE_DESCRIPTOR);
    if (cuda_dir)
        execl(TUNE_WORKER_PATH, "tune-worker", role, "--cuda", cuda_dir, (char *)NULL);
    else
        execl(TUNE_WORKER_PATH, "tune-worker", role, (char *)NULL);
    fprintf(stderr, "cannot run " TUNE_WORKER_PATH ": %s\n", strerror(errno));
    _exit(127);
}

int worker_link_start(
    struct worker_link *link, const char *role, const char *cuda_dir, struct tune_error *err)
{
    int ends[2];
    memset(link, 0, sizeof *link);
    signal(SIGPIPE, SIG_IGN);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot make a socket pair");
    link->pid = fork();
    if (link->pid == 0)
        run_worker(ends[1], role, cuda_dir);
    close(ends[1]);
    link->descriptor = ends[0];
    proto_reader_init(&link->reader, PROTO_MESSAGE_LIMIT_BYTES);
    link->hello = worker_link_receive(link);
    const char *sentence = NULL;
    if (!link->hello)
        tune_fail(err, TUNE_EIO, "the %s worker ended before its hello", role);
    else if (proto_string_opt(link->hello, "error", &sentence, err) == 0 && sentence)
        tune_fail(err, TUNE_ENOCOMPILER, "%s", sentence);
    else
        return 0;
    worker_link_stop(link);
    return -1;
}

void worker_link_stop(struct worker_link *link)
{
    if (link->pid > 0) {
        close(link->descriptor);
        kill(link->pid, SIGKILL);
        waitpid(link->pid, NULL, 0);
        proto_reader_finish(&link->reader);
        json_decref(link->hello);
    }
    memset(link, 0, sizeof *link);
}

int worker_link_send(struct worker_link *link, json_t *request)
{
    size_t length, sent = 0;
    json_object_set_new(request, "id", json_integer(++link->next_id));
    char *line = proto_line(request, &length);
    json_decref(request);
    while (sent < length) {
        ssize_t count = write(link->descriptor, line + sent, length - sent);
        if (count < 0 && errno != EINTR)
            break;
        if (count > 0)
            sent += (size_t)count;
    }
    free(line);
    return sent == length ? 0 : -1;
}

json_t *worker_link_receive(struct worker_link *link)
{
    static char bytes[1 << 16];
    size_t length;
    for (;;) {
        char *line = proto_reader_next(&link->reader, &length);
        json_t *message = line ? proto_parse(line, length, NULL) : NULL;
        if (line && !json_object_get(message, "event"))
            return message;
        json_decref(message);
        if (line)
            continue;
        ssize_t count = read(link->descriptor, bytes, sizeof bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0 || proto_reader_feed(&link->reader, bytes, (size_t)count, NULL) != 0)
            return NULL;
    }
}

json_t *worker_link_call(struct worker_link *link, json_t *request)
{
    if (worker_link_send(link, request) != 0)
        return NULL;
    return worker_link_receive(link);
}
