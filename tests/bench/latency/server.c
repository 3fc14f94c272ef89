/* The servers that the others are measured against: bench_server raw|uv SOCKET REQUEST REPLY
 *
 * For every REQUEST bytes that come, REPLY bytes go back; nothing is looked at. `raw` is the floor:
 * a thread per connection that blocks in read and write. `uv` is what an event loop adds: libuv,
 * one thread. Both end with SIGTERM. */
#include "measure.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#define READ_BYTES 65536

static size_t request_bytes, reply_bytes;

/* What a read makes due: whole replies for the whole requests. `held`: bytes of a request so far.
 */
static size_t due_bytes(size_t *held, size_t count)
{
    *held += count;
    size_t requests = *held / request_bytes;
    *held %= request_bytes;
    return requests * reply_bytes;
}

static char *make_replies(void)
{
    size_t room = (READ_BYTES / request_bytes + 1) * reply_bytes;
    return memset(bench_alloc(1, room), 'x', room);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        bench_fail("%s is too long for a socket", path);
    strcpy(address.sun_path, path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(descriptor, SOMAXCONN) != 0)
        bench_fail("cannot listen at %s", path);
    return descriptor;
}

/* --- raw -------------------------------------------------------------------------------------- */

static void *serve_raw(void *context)
{
    int descriptor = (int)(intptr_t)context;
    char *replies = make_replies(), bytes[READ_BYTES];
    size_t held = 0;
    ssize_t count;
    while ((count = read(descriptor, bytes, sizeof bytes)) > 0) {
        size_t due = due_bytes(&held, (size_t)count);
        for (size_t sent = 0; sent < due;) {
            ssize_t written = write(descriptor, replies, due - sent);
            if (written <= 0)
                break;
            sent += (size_t)written;
        }
    }
    close(descriptor);
    free(replies);
    return NULL;
}

static void run_raw(int listener)
{
    int descriptor;
    while ((descriptor = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_raw, (void *)(intptr_t)descriptor) != 0)
            bench_fail("no thread for a connection");
        pthread_detach(thread);
    }
}

/* --- uv --------------------------------------------------------------------------------------- */

struct connection {
    uv_pipe_t pipe;
    size_t held;
};

static char *uv_replies;

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_written(uv_write_t *write, int status)
{
    (void)status;
    free(write);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[READ_BYTES];
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;
    (void)buffer;
    if (count < 0) {
        uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    size_t due = due_bytes(&connection->held, (size_t)count);
    if (due == 0)
        return;
    uv_write_t *write = bench_alloc(1, sizeof *write);
    uv_buf_t replies = uv_buf_init(uv_replies, (unsigned)due);
    if (uv_write(write, stream, &replies, 1, on_written) != 0)
        bench_fail("cannot write");
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct connection *connection = bench_alloc(1, sizeof *connection);
    uv_pipe_init(listener->loop, &connection->pipe, 0);
    connection->pipe.data = connection;
    if (status != 0 || uv_accept(listener, (uv_stream_t *)&connection->pipe) != 0 ||
        uv_read_start((uv_stream_t *)&connection->pipe, on_alloc, on_read) != 0)
        bench_fail("cannot accept");
}

static void run_uv(int listener)
{
    uv_pipe_t pipe;
    uv_replies = make_replies();
    uv_pipe_init(uv_default_loop(), &pipe, 0);
    if (uv_pipe_open(&pipe, listener) != 0 ||
        uv_listen((uv_stream_t *)&pipe, SOMAXCONN, on_connection) != 0)
        bench_fail("cannot listen");
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_fail("usage: bench_server raw|uv SOCKET REQUEST_BYTES REPLY_BYTES");
    request_bytes = strtoul(argv[3], NULL, 10);
    reply_bytes = strtoul(argv[4], NULL, 10);
    if (request_bytes == 0 || reply_bytes == 0)
        bench_fail("bytes are numbers above 0");
    int listener = listen_at(argv[2]);
    if (strcmp(argv[1], "uv") == 0)
        run_uv(listener);
    else
        run_raw(listener);
    return 0;
}
