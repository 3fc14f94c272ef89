/* See worker.h. */
#include "daemon/worker.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STOP_GRACE_MS 1000
#define LOST_GRACE_MS 1000 /* from the end of the pipe to the exit */
#define PIPE_GRACE_MS 500  /* after the exit, for bytes still in the pipe */
#define MEMORY_PERIOD_MS 200
#define STDERR_KEPT_BYTES 2048

struct worker {
    uv_process_t process;
    uv_pipe_t pipe, errors;
    uv_timer_t deadline, memory;
    struct worker_callbacks callbacks;
    struct worker_end end;
    size_t memory_limit_bytes;
    struct proto_reader reader;
    char kill_reason[80];
    char stderr_tail[STDERR_KEPT_BYTES];
    size_t stderr_used;
    bool has_exited, has_pipe_ended, is_closing, is_stopping, is_waiting;
    bool is_deaf; /* stopped or killed: its messages do not count any more */
    int open_handles;
};

struct outgoing {
    uv_write_t write;
    struct worker *worker;
    char *line;
};

static void on_handle_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;
    if (--worker->open_handles > 0)
        return;
    worker->callbacks.on_done(worker, &worker->end, worker->callbacks.context);
    proto_reader_finish(&worker->reader);
    free(worker);
}

/* The last non-empty line of what the worker wrote to standard error. It may be cut or no text at
 * all, and it goes into JSON: what is not printable ASCII becomes '?'. */
static void last_words(const struct worker *worker, char words[81])
{
    const char *text = worker->stderr_tail;
    size_t end = worker->stderr_used;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        end--;
    const char *newline = end ? memrchr(text, '\n', end) : NULL;
    size_t start = newline ? (size_t)(newline - text) + 1 : 0;
    size_t length = end - start < 80 ? end - start : 80;
    for (size_t i = 0; i < length; i++) {
        char c = text[start + i];
        words[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    words[length] = '\0';
}

static void describe_end(struct worker *worker)
{
    struct worker_end *end = &worker->end;
    char words[81], cause[96] = "", how[64];
    last_words(worker, words);
    if (worker->kill_reason[0] != '\0')
        snprintf(cause, sizeof cause, ": %s", worker->kill_reason);
    if (end->signal != 0)
        snprintf(how, sizeof how, "ended by signal %d (%s)", end->signal, strsignal(end->signal));
    else
        snprintf(how, sizeof how, "exited with status %d", (int)end->exit_status);
    if (words[0] != '\0')
        snprintf(end->why, sizeof end->why, "worker %s%s [%s]", how, cause, words);
    else
        snprintf(end->why, sizeof end->why, "worker %s%s", how, cause);
}

static void close_all(struct worker *worker)
{
    if (worker->is_closing)
        return;
    worker->is_closing = true;
    uv_close((uv_handle_t *)&worker->process, on_handle_closed);
    uv_close((uv_handle_t *)&worker->pipe, on_handle_closed);
    uv_close((uv_handle_t *)&worker->errors, on_handle_closed);
    uv_close((uv_handle_t *)&worker->deadline, on_handle_closed);
    uv_close((uv_handle_t *)&worker->memory, on_handle_closed);
}

static void maybe_done(struct worker *worker)
{
    if (!worker->has_exited || !worker->has_pipe_ended)
        return;
    describe_end(worker); /* here, not at the exit: its last words may come in after that */
    close_all(worker);
}

static void on_pipe_grace_over(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    worker->has_pipe_ended = true;
    maybe_done(worker);
}

static void on_process_exit(uv_process_t *process, int64_t exit_status, int signal)
{
    struct worker *worker = process->data;
    worker->end.exit_status = exit_status;
    worker->end.signal = signal;
    worker->has_exited = true;
    kill(-process->pid, SIGKILL); /* a host compiler that it waited for, say */
    uv_timer_start(&worker->deadline, on_pipe_grace_over, PIPE_GRACE_MS, 0);
    maybe_done(worker);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[65536]; /* the loop thread is the only reader and uses it up at once */
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void break_protocol(struct worker *worker, const char *why)
{
    worker->end.broke_protocol = true;
    worker_kill(worker, why);
}

static void take_lines(struct worker *worker)
{
    size_t length;
    char *line;
    while (!worker->is_deaf && (line = proto_reader_next(&worker->reader, &length)) != NULL) {
        struct tune_error err = {0};
        json_t *message = proto_parse(line, length, &err);
        if (message == NULL || !json_is_object(message))
            break_protocol(worker, "it sent a line that is no JSON object");
        else
            worker->callbacks.on_message(worker, message, worker->callbacks.context);
        json_decref(message);
    }
}

static void on_pipe_lost(uv_timer_t *timer)
{
    worker_kill(timer->data, "it closed its pipe");
}

static void on_pipe_end(struct worker *worker, ssize_t reason)
{
    uv_read_stop((uv_stream_t *)&worker->pipe);
    worker->has_pipe_ended = true;
    /* The kernel says "reset", not "end", when the other side left bytes unread. */
    if (reason == UV_ECONNRESET && worker->is_waiting)
        worker->end.left_unread = true;
    if (!worker->has_exited)
        uv_timer_start(&worker->deadline, on_pipe_lost, LOST_GRACE_MS, 0);
    maybe_done(worker);
}

static void on_pipe_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct worker *worker = stream->data;
    if (count < 0) {
        on_pipe_end(worker, count);
        return;
    }
    struct tune_error err = {0};
    if (worker->is_deaf)
        return;
    if (proto_reader_feed(&worker->reader, buffer->base, (size_t)count, &err))
        break_protocol(worker, "it sent a message without end");
    else
        take_lines(worker);
}

static void on_stderr_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct worker *worker = stream->data;
    if (count < 0) {
        uv_read_stop(stream);
        return;
    }
    size_t room = sizeof worker->stderr_tail - 1;
    size_t add = (size_t)count;
    const char *from = buffer->base;
    if (add > room) {
        from += add - room;
        add = room;
    }
    if (worker->stderr_used + add > room) {
        size_t drop = worker->stderr_used + add - room;
        memmove(worker->stderr_tail, worker->stderr_tail + drop, worker->stderr_used - drop);
        worker->stderr_used -= drop;
    }
    memcpy(worker->stderr_tail + worker->stderr_used, from, add);
    worker->stderr_used += add;
}

static void on_deadline(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    if (worker->is_stopping) {
        worker_kill(worker, "");
        return;
    }
    worker->end.missed_deadline = true;
    worker_kill(worker, "it did not answer within its deadline");
}

static size_t resident_bytes(int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    unsigned long pages = 0;
    if (fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void on_memory_check(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    if (!worker->is_waiting || worker->has_exited ||
        resident_bytes(worker_pid(worker)) <= worker->memory_limit_bytes)
        return;
    worker->end.over_memory = true;
    worker_kill(worker, "it used more memory than a compile may");
}

static void init_handle(struct worker *worker, void *handle)
{
    ((uv_handle_t *)handle)->data = worker;
    worker->open_handles++;
}

static int spawn(uv_loop_t *loop, struct worker *worker, const struct worker_options *options)
{
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&worker->errors},
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
            .data.stream = (uv_stream_t *)&worker->pipe},
    };
    uv_process_options_t process = {
        .exit_cb = on_process_exit,
        .file = options->argv[0],
        .args = (char **)options->argv,
        .env = (char **)options->env,
        .stdio_count = 4,
        .stdio = stdio,
    };
    return uv_spawn(loop, &worker->process, &process);
}

static void ignore_done(struct worker *worker, const struct worker_end *end, void *context)
{
    (void)worker;
    (void)end;
    (void)context;
}

struct worker *worker_start(uv_loop_t *loop, const struct worker_options *options,
    const struct worker_callbacks *callbacks, struct tune_error *err)
{
    struct worker *worker = xcalloc(1, sizeof *worker);
    worker->callbacks = *callbacks;
    worker->memory_limit_bytes = options->memory_limit_bytes;
    proto_reader_init(&worker->reader, PROTO_MESSAGE_LIMIT_BYTES);
    uv_pipe_init(loop, &worker->pipe, 0);
    init_handle(worker, &worker->pipe);
    uv_pipe_init(loop, &worker->errors, 0);
    init_handle(worker, &worker->errors);
    uv_timer_init(loop, &worker->deadline);
    init_handle(worker, &worker->deadline);
    uv_timer_init(loop, &worker->memory);
    init_handle(worker, &worker->memory);
    init_handle(worker, &worker->process);
    int status = spawn(loop, worker, options);
    if (status != 0) {
        /* uv_spawn has initialised the process handle even when it fails. The failure is told to
         * the caller here, so on_done must not follow: it becomes a no-op. */
        tune_fail(err, TUNE_EIO, "cannot start %s: %s", options->argv[0], uv_strerror(status));
        worker->callbacks.on_done = ignore_done;
        close_all(worker);
        return NULL;
    }
    uv_read_start((uv_stream_t *)&worker->pipe, on_alloc, on_pipe_read);
    uv_read_start((uv_stream_t *)&worker->errors, on_alloc, on_stderr_read);
    uv_timer_start(&worker->deadline, on_deadline, options->hello_deadline_ms, 0);
    if (worker->memory_limit_bytes != 0)
        uv_timer_start(&worker->memory, on_memory_check, MEMORY_PERIOD_MS, MEMORY_PERIOD_MS);
    return worker;
}

static void on_written(uv_write_t *write, int status)
{
    struct outgoing *outgoing = (struct outgoing *)write;
    /* Otherwise a dead worker is seen at its pipe and exit. */
    if (status == UV_EPIPE || status == UV_ECONNRESET)
        outgoing->worker->end.left_unread = true;
    free(outgoing->line);
    free(outgoing);
}

void worker_send(struct worker *worker, const json_t *request, uint64_t deadline_ms)
{
    assert(!worker->is_waiting);
    if (worker->is_closing || worker->is_stopping)
        return;
    worker->is_waiting = true;
    if (worker->has_exited || worker->has_pipe_ended) {
        worker->end.left_unread = true; /* on_done is on its way and answers for this request */
        return;
    }
    uv_timer_start(&worker->deadline, on_deadline, deadline_ms, 0);
    struct outgoing *outgoing = xmalloc(sizeof *outgoing);
    size_t length = 0;
    outgoing->worker = worker;
    outgoing->line = proto_line(request, &length);
    if (outgoing->line == NULL) {
        free(outgoing);
        worker_kill(worker, "its request could not be put into words");
        return;
    }
    uv_buf_t buffer = uv_buf_init(outgoing->line, (unsigned)length);
    uv_write(&outgoing->write, (uv_stream_t *)&worker->pipe, &buffer, 1, on_written);
}

void worker_extend(struct worker *worker, uint64_t deadline_ms)
{
    if (worker->is_waiting && !worker->has_exited && !worker->is_stopping)
        uv_timer_start(&worker->deadline, on_deadline, deadline_ms, 0);
}

void worker_settle(struct worker *worker)
{
    worker->is_waiting = false;
    if (!worker->has_exited && !worker->has_pipe_ended && !worker->is_stopping)
        uv_timer_stop(&worker->deadline);
}

/* The worker's read ends: one that runs under a tool and does not hear SIGTERM ends all the same.
 */
static void end_pipe(struct worker *worker)
{
    uv_os_fd_t descriptor;
    if (uv_fileno((uv_handle_t *)&worker->pipe, &descriptor) == 0)
        shutdown(descriptor, SHUT_WR);
}

void worker_stop(struct worker *worker)
{
    if (worker->is_stopping)
        return;
    worker->is_stopping = worker->is_deaf = true;
    worker->is_waiting = false;
    /* An answer that is still on the way is not wanted any more. */
    uv_read_stop((uv_stream_t *)&worker->pipe);
    worker->has_pipe_ended = true;
    if (!worker->has_exited) {
        end_pipe(worker);
        uv_process_kill(&worker->process, SIGTERM);
        uv_timer_start(&worker->deadline, on_deadline, STOP_GRACE_MS, 0);
    }
    maybe_done(worker);
}

void worker_kill(struct worker *worker, const char *why)
{
    worker->is_deaf = true;
    if (worker->kill_reason[0] == '\0')
        snprintf(worker->kill_reason, sizeof worker->kill_reason, "%s", why);
    if (!worker->has_exited && worker->process.pid > 0)
        uv_process_kill(&worker->process, SIGKILL);
}

int worker_pid(const struct worker *worker)
{
    return worker->process.pid;
}
