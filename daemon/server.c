/* See server.h. */
#include "daemon/server.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SWEEP_PERIOD_MS 1000 /* how often time limits are looked at */
#define BACKLOG 1024
#define FAREWELL_MS 1000
#define OUT_BYTES ((size_t)256 << 10) /* answers to one read; more go out in several writes */
#define SLOT_BITS 20                  /* of a client's number: where it is found */

struct subscription {
    struct subscription *next;
    char *job; /* NULL: all */
    bool is_end_only;
};

struct client {
    struct server *server;
    uv_pipe_t pipe;
    uint64_t id;
    uid_t uid;
    struct proto_reader reader;
    size_t queued_bytes;
    size_t longest_bytes; /* longest message since the queue was last empty */
    unsigned requests;    /* under way */
    uint64_t active_at_ms, half_line_at_ms;
    struct subscription *subscriptions;
    bool is_closing, is_ending; /* ending: closed once its queue is empty */
    bool has_finished;          /* it sends no more, and is closed once it is owed nothing */
};

struct server {
    uv_loop_t *loop;
    uv_pipe_t listener;
    uv_timer_t timer;
    struct server_callbacks callbacks;
    struct client **slots; /* NULL: free */
    size_t slot_count, client_count, clients_max;
    uint64_t accepted;     /* so far */
    struct client *taking; /* whose bytes are being taken apart: its answers gather in `out` */
    char *out;
    size_t out_used;
    char *path;
    int lock; /* descriptor of PATH.lock, held for the server's life */
    bool allows_group, is_stopping;
    uint64_t stopping_at_ms;
    int open_handles;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

/* Bytes that the socket did not take at once. */
struct outgoing {
    uv_write_t write;
    struct client *client;
    size_t length;
    char bytes[];
};

/* --- clients ---------------------------------------------------------------------------------- */

static void maybe_stopped(struct server *server);

static size_t slot_of(uint64_t id)
{
    return id & ((UINT64_C(1) << SLOT_BITS) - 1);
}

/* A number whose low bits say where the client is found; the others are never used again. */
static void add_client(struct server *server, struct client *client)
{
    size_t slot = 0;
    while (slot < server->slot_count && server->slots[slot] != NULL)
        slot++;
    if (slot == server->slot_count) {
        server->slot_count = server->slot_count ? 2 * server->slot_count : 64;
        server->slots = xrealloc(server->slots, server->slot_count * sizeof *server->slots);
        memset(server->slots + slot, 0, (server->slot_count - slot) * sizeof *server->slots);
    }
    client->id = ++server->accepted << SLOT_BITS | slot;
    server->slots[slot] = client;
    server->client_count++;
}

/* The next client at or after slot *at, NULL at the end. */
static struct client *next_client(const struct server *server, size_t *at)
{
    while (*at < server->slot_count)
        if (server->slots[(*at)++] != NULL)
            return server->slots[*at - 1];
    return NULL;
}

static void free_subscriptions(struct client *client)
{
    while (client->subscriptions != NULL) {
        struct subscription *subscription = client->subscriptions;
        client->subscriptions = subscription->next;
        free(subscription->job);
        free(subscription);
    }
}

static void on_client_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;
    struct server *server = client->server;
    server->slots[slot_of(client->id)] = NULL;
    server->client_count--;
    if (server->callbacks.on_left != NULL)
        server->callbacks.on_left(client->id, server->callbacks.context);
    free_subscriptions(client);
    proto_reader_finish(&client->reader);
    free(client);
    maybe_stopped(server);
}

static void close_client(struct client *client)
{
    if (client->is_closing)
        return;
    client->is_closing = true;
    uv_close((uv_handle_t *)&client->pipe, on_client_closed);
}

static void drop_client(struct client *client, const char *why)
{
    log_info("client %llu is dropped: %s", (unsigned long long)client->id, why);
    close_client(client);
}

static struct client *find(const struct server *server, uint64_t id)
{
    struct client *client = slot_of(id) < server->slot_count ? server->slots[slot_of(id)] : NULL;
    return client != NULL && client->id == id && !client->is_closing ? client : NULL;
}

static bool is_owed(const struct client *client)
{
    for (const struct subscription *at = client->subscriptions; at != NULL; at = at->next)
        if (!at->is_end_only)
            return true;
    return client->requests > 0 || client->queued_bytes > 0;
}

static void close_if_finished(struct client *client)
{
    if (client->has_finished && !is_owed(client))
        close_client(client);
}

/* The end of input is the same for a peer that has gone and for one that only sends no more; a
 * hang-up tells the first. */
static bool has_hung_up(const struct client *client)
{
    struct pollfd poll_one = {0};
    return uv_fileno((const uv_handle_t *)&client->pipe, &poll_one.fd) != 0 ||
           poll(&poll_one, 1, 0) < 0 || (poll_one.revents & (POLLHUP | POLLERR)) != 0;
}

/* --- bytes out -------------------------------------------------------------------------------- */

/* After a change of what waits for a client. */
static void settle(struct client *client)
{
    close_if_finished(client);
    if (client->is_ending && client->queued_bytes == 0)
        close_client(client);
}

static void on_written(uv_write_t *write, int status)
{
    struct outgoing *outgoing = (struct outgoing *)write;
    struct client *client = outgoing->client;
    client->queued_bytes -= outgoing->length;
    free(outgoing);
    if (status < 0)
        close_client(client);
    else
        settle(client);
}

static void queue_bytes(struct client *client, const char *bytes, size_t length)
{
    struct outgoing *outgoing = xmalloc(sizeof *outgoing + length);
    outgoing->client = client;
    outgoing->length = length;
    memcpy(outgoing->bytes, bytes, length);
    client->queued_bytes += length;
    uv_buf_t buffer = uv_buf_init(outgoing->bytes, (unsigned)length);
    int status = uv_write(&outgoing->write, (uv_stream_t *)&client->pipe, &buffer, 1, on_written);
    if (status == 0)
        return;
    client->queued_bytes -= length;
    free(outgoing);
    drop_client(client, uv_strerror(status));
}

/* Straight to the socket; what it does not take is queued behind what waits already. */
static void write_bytes(struct client *client, const char *bytes, size_t length)
{
    if (client->is_closing)
        return;
    uv_buf_t buffer = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)length);
    int written = uv_try_write((uv_stream_t *)&client->pipe, &buffer, 1);
    if (written < 0 && written != UV_EAGAIN) {
        close_client(client); /* it has gone */
        return;
    }
    size_t done = written > 0 ? (size_t)written : 0;
    if (done < length)
        queue_bytes(client, bytes + done, length - done);
    if (client->queued_bytes > SERVER_QUEUE_LIMIT_BYTES + client->longest_bytes)
        drop_client(client, "it does not read: too many bytes wait for it");
}

static void flush(struct server *server)
{
    size_t length = server->out_used;
    server->out_used = 0;
    if (length > 0)
        write_bytes(server->taking, server->out, length);
}

static void send_bytes(struct client *client, const char *bytes, size_t length)
{
    struct server *server = client->server;
    if (server->taking != client) {
        write_bytes(client, bytes, length);
        return;
    }
    if (length > OUT_BYTES - server->out_used)
        flush(server);
    if (length > OUT_BYTES) {
        write_bytes(client, bytes, length);
        return;
    }
    memcpy(server->out + server->out_used, bytes, length);
    server->out_used += length;
}

/* Whether a message of this length may be sent now. */
static bool begin_message(struct client *client, size_t length)
{
    if (client->is_closing || client->is_ending)
        return false;
    client->active_at_ms = uv_now(client->server->loop);
    if (client->queued_bytes == 0 || length > client->longest_bytes)
        client->longest_bytes = length;
    return true;
}

static void send_line(struct client *client, const char *line, size_t length)
{
    if (begin_message(client, length))
        send_bytes(client, line, length);
}

static void send_to(struct client *client, const json_t *message)
{
    size_t length;
    char *line = proto_line(message, &length);
    if (line == NULL)
        drop_client(client, "an answer could not be put into words");
    else
        send_line(client, line, length);
    free(line);
}

/* Says why and closes once that is written. */
static void farewell(struct client *client, const struct tune_error *err)
{
    json_t *message = proto_error_new(NULL, err);
    send_to(client, message);
    json_decref(message);
    client->is_ending = true;
    uv_read_stop((uv_stream_t *)&client->pipe);
    client->active_at_ms = uv_now(client->server->loop);
    if (client->server->taking != client)
        settle(client);
}

/* --- bytes in --------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[65536]; /* the loop thread is the only reader and uses it up at once */
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void refuse(struct client *client, const struct tune_error *err)
{
    json_t *message = proto_error_new(NULL, err);
    send_to(client, message);
    json_decref(message);
}

static void take_line(struct client *client, const char *line, size_t length)
{
    struct server *server = client->server;
    struct tune_error err = {0};
    if (server->callbacks.on_line != NULL &&
        server->callbacks.on_line(client->id, line, length, server->callbacks.context))
        return;
    json_t *message = proto_parse(line, length, &err);
    if (message != NULL && !json_is_object(message))
        tune_fail(&err, TUNE_EPARSE,
            "a request is one JSON-RPC object per line (batches in an array are not taken)");
    if (err.code != TUNE_OK)
        refuse(client, &err);
    else
        server->callbacks.on_request(
            client->id, client->uid, message, line, length, server->callbacks.context);
    json_decref(message);
}

static void take_lines(struct client *client)
{
    size_t length;
    char *line;
    while (!client->is_closing && !client->is_ending &&
           (line = proto_reader_next(&client->reader, &length)) != NULL) {
        client->half_line_at_ms = 0;
        take_line(client, line, length);
    }
    /* The limit runs from the first byte of a line: dripping further ones does not move it. */
    if (proto_reader_pending(&client->reader) == 0)
        client->half_line_at_ms = 0;
    else if (client->half_line_at_ms == 0)
        client->half_line_at_ms = uv_now(client->server->loop);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct client *client = stream->data;
    struct tune_error err = {0};
    if (count == UV_EOF && !client->is_ending && is_owed(client) && !has_hung_up(client)) {
        uv_read_stop(stream);
        client->has_finished = true;
        client->half_line_at_ms = 0;
        return;
    }
    if (count < 0) {
        close_client(client);
        return;
    }
    if (client->is_ending || client->is_closing)
        return;
    client->active_at_ms = uv_now(client->server->loop);
    client->server->taking = client;
    if (proto_reader_feed(&client->reader, buffer->base, (size_t)count, &err)) {
        log_info("client %llu is dropped: %s", (unsigned long long)client->id, err.text);
        farewell(client, &err);
    } else {
        take_lines(client);
    }
    flush(client->server);
    client->server->taking = NULL;
    settle(client);
}

/* --- accepting -------------------------------------------------------------------------------- */

static uid_t peer_uid(uv_pipe_t *pipe)
{
    uv_os_fd_t descriptor;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    if (uv_fileno((uv_handle_t *)pipe, &descriptor) == 0)
        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer.uid;
}

static int admit(struct client *client, struct tune_error *err)
{
    struct server *server = client->server;
    if (server->client_count > server->clients_max)
        return tune_fail(err, TUNE_EBUSY,
            "the daemon serves %zu clients, which is its limit: try again later",
            server->clients_max);
    if (client->uid != geteuid() && client->uid != 0 && !server->allows_group)
        return tune_fail(err, TUNE_EPERM, "this daemon belongs to another user");
    return 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *server = listener->data;
    if (status < 0) {
        log_warnx("a client could not be accepted: %s", uv_strerror(status));
        return;
    }
    struct client *client = xcalloc(1, sizeof *client);
    client->server = server;
    client->active_at_ms = uv_now(server->loop);
    proto_reader_init(&client->reader, PROTO_REQUEST_LIMIT_BYTES);
    uv_pipe_init(server->loop, &client->pipe, 0);
    client->pipe.data = client;
    add_client(server, client);
    if (uv_accept(listener, (uv_stream_t *)&client->pipe) != 0) {
        close_client(client);
        return;
    }
    client->uid = peer_uid(&client->pipe);
    struct tune_error err = {0};
    if (admit(client, &err))
        farewell(client, &err);
    else
        uv_read_start((uv_stream_t *)&client->pipe, on_alloc, on_read);
}

static void check_client(struct client *client, uint64_t now_ms)
{
    if (client->is_ending && now_ms - client->active_at_ms > FAREWELL_MS)
        close_client(client);
    else if (client->has_finished && has_hung_up(client))
        close_client(client);
    else if (client->half_line_at_ms != 0 && now_ms - client->half_line_at_ms > SERVER_HALF_LINE_MS)
        drop_client(client, "it left a request unfinished");
    else if (client->requests == 0 && client->subscriptions == NULL &&
             now_ms - client->active_at_ms > SERVER_IDLE_MS)
        drop_client(client, "it was idle");
}

static void on_period(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uint64_t now_ms = uv_now(server->loop);
    struct client *client;
    for (size_t at = 0; (client = next_client(server, &at)) != NULL;) {
        check_client(client, now_ms);
        if (server->is_stopping && now_ms - server->stopping_at_ms > FAREWELL_MS)
            close_client(client);
    }
}

/* --- listening -------------------------------------------------------------------------------- */

static int fill_address(const char *path, struct sockaddr_un *address, struct tune_error *err)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return tune_fail(err, TUNE_EINVAL,
            "the socket path has %zu bytes; a Unix socket takes at most %zu: choose a shorter one "
            "with "
            "--socket (%.60s...)",
            strlen(path), sizeof address->sun_path - 1, path);
    strcpy(address->sun_path, path);
    return 0;
}

/* A lock beside the socket decides who may replace the file: whoever holds it is alive, in any PID
 * namespace, and a file without a holder is left over from a daemon that was killed. */
static int take_lock(const char *path, int *lock, struct tune_error *err)
{
    char *name = xasprintf("%s.lock", path);
    int status = 0;
    *lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0)
        status = tune_fail_errno(err, TUNE_EIO, "cannot open %s", name);
    else if (flock(*lock, LOCK_EX | LOCK_NB) != 0)
        status = tune_fail(err, TUNE_EBUSY, "another tunerd listens at %s", path);
    free(name);
    if (status != 0 && *lock >= 0)
        close(*lock);
    return status;
}

/* Some program that knows nothing of our lock. */
static bool somebody_answers(const struct sockaddr_un *address)
{
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return false;
    bool answers = connect(descriptor, (const struct sockaddr *)address, sizeof *address) == 0 ||
                   errno == EAGAIN ||
                   errno == EPROTOTYPE; /* its backlog is full, or it takes datagrams */
    close(descriptor);
    return answers;
}

static int remove_stale(const char *path, const struct sockaddr_un *address, struct tune_error *err)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? 0 : tune_fail_errno(err, TUNE_EIO, "cannot look at %s", path);
    if (!S_ISSOCK(status.st_mode))
        return tune_fail(err, TUNE_EINVAL, "%s exists and is not a socket: it is left alone", path);
    if (somebody_answers(address))
        return tune_fail(err, TUNE_EBUSY, "another program listens at %s", path);
    if (unlink(path) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot remove the old socket %s", path);
    return 0;
}

/* Bound by hand: libuv would cut a long path silently and bind elsewhere. */
static int bind_socket(const char *path, struct tune_error *err)
{
    struct sockaddr_un address;
    if (fill_address(path, &address, err) || remove_stale(path, &address, err))
        return -1;
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot make a socket");
    mode_t mask = umask(0117); /* the file must never be wider than 0660, not even for a moment */
    int status = bind(descriptor, (struct sockaddr *)&address, sizeof address);
    int reason = errno;
    umask(mask);
    errno = reason;
    if (status != 0)
        tune_fail_errno(err, TUNE_EIO, "cannot bind %s", path);
    else if ((status = listen(descriptor, BACKLOG)) != 0)
        tune_fail_errno(err, TUNE_EIO, "cannot listen at %s", path);
    if (status == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

static size_t clients_allowed(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SERVER_CLIENTS_MAX;
    size_t room =
        limit.rlim_cur > SERVER_DESCRIPTORS_KEPT + 8 ? limit.rlim_cur - SERVER_DESCRIPTORS_KEPT : 8;
    return room < SERVER_CLIENTS_MAX ? room : SERVER_CLIENTS_MAX;
}

struct server *server_start(uv_loop_t *loop, const char *path,
    const struct server_callbacks *callbacks, struct tune_error *err)
{
    struct sockaddr_un address;
    int lock = -1;
    if (fill_address(path, &address, err) || take_lock(path, &lock, err))
        return NULL;
    int descriptor = bind_socket(path, err);
    if (descriptor < 0) {
        close(lock);
        return NULL;
    }
    struct server *server = xcalloc(1, sizeof *server);
    server->loop = loop;
    server->callbacks = *callbacks;
    server->path = xstrdup(path);
    server->lock = lock;
    server->out = xmalloc(OUT_BYTES);
    server->clients_max = clients_allowed();
    uv_pipe_init(loop, &server->listener, 0);
    uv_pipe_open(&server->listener, descriptor);
    uv_timer_init(loop, &server->timer);
    server->listener.data = server->timer.data = server;
    server->open_handles = 2;
    uv_timer_start(&server->timer, on_period, SWEEP_PERIOD_MS, SWEEP_PERIOD_MS);
    int status = uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection);
    assert(status == 0); /* it listens already */
    (void)status;
    return server;
}

void server_allow_group(struct server *server, bool allow)
{
    server->allows_group = allow;
}

/* --- for the commands ------------------------------------------------------------------------ */

void server_send(struct server *server, uint64_t id, const json_t *message)
{
    struct client *client = find(server, id);
    if (client != NULL)
        send_to(client, message);
}

void server_send_parts(struct server *server, uint64_t id, const uv_buf_t *parts, unsigned count)
{
    struct client *client = find(server, id);
    size_t length = 0;
    for (unsigned i = 0; i < count; i++)
        length += parts[i].len;
    if (client == NULL || !begin_message(client, length))
        return;
    for (unsigned i = 0; i < count; i++)
        send_bytes(client, parts[i].base, parts[i].len);
}

bool server_request_begin(struct server *server, uint64_t id)
{
    struct client *client = find(server, id);
    if (client == NULL || client->requests >= SERVER_REQUESTS_MAX)
        return false;
    client->requests++;
    return true;
}

void server_request_end(struct server *server, uint64_t id)
{
    struct client *client = find(server, id);
    if (client == NULL || client->requests == 0)
        return;
    client->requests--;
    close_if_finished(client);
}

static struct subscription *find_subscription(const struct client *client, const char *job)
{
    struct subscription *at = client->subscriptions;
    while (at != NULL && at->job != NULL && (job == NULL || strcmp(at->job, job) != 0))
        at = at->next;
    return at;
}

static bool subscribe(struct server *server, uint64_t id, const char *job, bool is_end_only)
{
    struct client *client = find(server, id);
    if (client == NULL)
        return false;
    struct subscription *subscription = find_subscription(client, job);
    if (subscription != NULL) {
        subscription->is_end_only = subscription->is_end_only && is_end_only;
        return true;
    }
    subscription = xcalloc(1, sizeof *subscription);
    subscription->job = xstrdup(job);
    subscription->is_end_only = is_end_only;
    subscription->next = client->subscriptions;
    client->subscriptions = subscription;
    return true;
}

bool server_subscribe(struct server *server, uint64_t id, const char *job)
{
    return subscribe(server, id, job, false);
}

bool server_subscribe_end(struct server *server, uint64_t id, const char *job)
{
    return subscribe(server, id, job, true);
}

static bool wants(const struct client *client, const char *job, bool is_end)
{
    for (const struct subscription *at = client->subscriptions; at != NULL; at = at->next)
        if ((at->job == NULL || strcmp(at->job, job) == 0) && (is_end || !at->is_end_only))
            return true;
    return false;
}

void server_publish(struct server *server, const char *job, const json_t *message, bool is_end)
{
    size_t length;
    char *line = proto_line(message, &length);
    struct client *client;
    for (size_t at = 0; line != NULL && (client = next_client(server, &at)) != NULL;) {
        if (wants(client, job, is_end))
            send_line(client, line, length);
    }
    free(line);
}

void server_unsubscribe_all(struct server *server, const char *job)
{
    struct client *client;
    for (size_t slot = 0; (client = next_client(server, &slot)) != NULL;) {
        struct subscription **at = &client->subscriptions;
        while (*at != NULL) {
            struct subscription *subscription = *at;
            if (subscription->job == NULL || strcmp(subscription->job, job) != 0) {
                at = &subscription->next;
                continue;
            }
            *at = subscription->next;
            free(subscription->job);
            free(subscription);
        }
        close_if_finished(client);
    }
}

size_t server_client_count(const struct server *server)
{
    return server->client_count;
}

/* --- stopping --------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;
    server->open_handles--;
    maybe_stopped(server);
}

static void maybe_stopped(struct server *server)
{
    if (!server->is_stopping || server->client_count > 0)
        return;
    if (!uv_is_closing((uv_handle_t *)&server->timer))
        uv_close((uv_handle_t *)&server->timer, on_handle_closed);
    if (server->open_handles > 0)
        return;
    void (*on_stopped)(void *) = server->on_stopped;
    void *context = server->stopped_context;
    close(server->lock);
    free(server->path);
    free(server->slots);
    free(server->out);
    free(server);
    on_stopped(context);
}

void server_stop(struct server *server, void (*on_stopped)(void *context), void *context)
{
    server->is_stopping = true;
    server->stopping_at_ms = uv_now(server->loop);
    server->on_stopped = on_stopped;
    server->stopped_context = context;
    unlink(server->path); /* before the lock goes, so that no other daemon's socket is removed */
    uv_close((uv_handle_t *)&server->listener, on_handle_closed);
    struct client *client;
    for (size_t at = 0; (client = next_client(server, &at)) != NULL;) {
        uv_read_stop((uv_stream_t *)&client->pipe);
        client->is_ending = true;
        if (client->queued_bytes == 0)
            close_client(client);
    }
    maybe_stopped(server);
}
