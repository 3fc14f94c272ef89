/* The connection: bytes out and in, replies matched by id, notifications kept in order. See
 * tune_rpc.h. Which socket to use and how a daemon is started is start.c's business. */
#include "tune_rpc.h"
#include "client_internal.h"
#include "proto.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_LIMIT_MS 30000
#define KEPT_LIMIT 4096 /* notifications kept for tune_next */

struct tune_client {
    int fd;
    int limit_ms;
    bool is_lost; /* no request can succeed any more */
    bool is_deaf; /* nobody will ask for notifications */
    json_int_t last_id;
    struct proto_reader reader;
    json_t *kept;   /* array of notifications, oldest first */
    json_t *server; /* answer to `ping` */
    char path[TUNE_SOCKET_PATH_BYTES];
};

/* --- time ------------------------------------------------------------------------------------- */

long long client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The moment at which a limit that starts now ends; -1 for none. */
static long long deadline_after(int limit_ms)
{
    return limit_ms < 0 ? -1 : client_now_ms() + limit_ms;
}

static int left_until(long long deadline)
{
    if (deadline < 0)
        return -1;
    long long left = deadline - client_now_ms();
    return left < 0 ? 0 : (int)left;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* 1 when the descriptor is ready (or has failed: the call that follows tells), 0 at the deadline or
 * on a signal, with errno EINTR for the latter. */
static int wait_for(struct tune_client *client, short events, long long deadline)
{
    struct pollfd poll_fd = {.fd = client->fd, .events = events};
    int ready = poll(&poll_fd, 1, left_until(deadline));
    if (ready == 0)
        errno = ETIMEDOUT;
    return ready > 0;
}

static int send_line(
    struct tune_client *client, const char *line, size_t length, struct tune_error *err)
{
    long long deadline = deadline_after(client->limit_ms);
    while (length > 0) {
        ssize_t sent = send(client->fd, line, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            line += sent;
            length -= (size_t)sent;
        } else if (errno == EAGAIN) {
            if (!wait_for(client, POLLOUT, deadline) && errno != EINTR)
                return tune_fail(err, TUNE_ETIMEOUT,
                    "the daemon at %s takes no requests: is it stopped?", client->path);
        } else if (errno != EINTR) {
            return tune_fail_errno(err, TUNE_EIO, "cannot send to the daemon at %s", client->path);
        }
    }
    return 0;
}

/* Takes in what has arrived: 1 for some bytes, 0 for none yet. */
static int receive(struct tune_client *client, struct tune_error *err)
{
    char bytes[65536];
    ssize_t count = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0)
        return proto_reader_feed(&client->reader, bytes, (size_t)count, err) ? -1 : 1;
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count == 0 || errno == ECONNRESET)
        return tune_fail(err, TUNE_EIO,
            "the daemon at %s closed the connection: it was stopped, or it is serving too many "
            "clients (its log tells)",
            client->path);
    return tune_fail_errno(err, TUNE_EIO, "cannot read from the daemon at %s", client->path);
}

/* --- messages --------------------------------------------------------------------------------- */

/* The next whole message among the bytes held, a new reference; NULL when there is none (or on
 * failure, with *err set). */
static json_t *take_message(struct tune_client *client, struct tune_error *err)
{
    size_t length;
    char *line = proto_reader_next(&client->reader, &length);
    if (line == NULL)
        return NULL;
    json_t *message = proto_parse(line, length, err);
    if (message != NULL && !json_is_object(message)) {
        tune_fail(err, TUNE_EPARSE, "the daemon sent a line that is no message: %.60s", line);
        json_decref(message);
        return NULL;
    }
    return message;
}

/* Keeps a notification for tune_next. A program that never asks for them must not grow without
 * end: progress is superseded by later progress, so the oldest goes. */
static int keep(struct tune_client *client, json_t *message, struct tune_error *err)
{
    if (client->is_deaf) {
        json_decref(message);
        return 0;
    }
    if (json_array_size(client->kept) >= KEPT_LIMIT) {
        size_t i;
        json_t *old;
        json_array_foreach (client->kept, i, old) {
            const char *method = json_string_value(json_object_get(old, "method"));
            if (method != NULL && strcmp(method, "progress") == 0)
                break;
        }
        json_array_remove(client->kept, i < json_array_size(client->kept) ? i : 0);
    }
    if (json_array_append_new(client->kept, message))
        return tune_fail(err, TUNE_ENOMEM, "no memory to keep a notification");
    return 0;
}

static int fail_as_sent(const json_t *error, struct tune_error *err)
{
    const char *sentence = json_string_value(json_object_get(error, "message"));
    const char *word = json_string_value(json_object_get(json_object_get(error, "data"), "code"));
    return tune_fail(err, tune_code_from_word(word), "%s",
        sentence ? sentence : "the daemon refused without saying why");
}

/* Waits for the reply with this id. New reference to the whole message, or NULL. */
static json_t *wait_for_reply(struct tune_client *client, json_int_t id, struct tune_error *err)
{
    long long deadline = deadline_after(client->limit_ms);
    struct tune_error why = {0};
    for (;;) {
        json_t *message = take_message(client, &why);
        if (message != NULL) {
            json_t *its_id = json_object_get(message, "id");
            if (json_is_integer(its_id) && json_integer_value(its_id) == id)
                return message;
            /* An error without an id is about the connection as a whole ("busy"). */
            if (json_is_null(its_id) && json_object_get(message, "error") != NULL)
                return message;
            if (json_object_get(message, "method") == NULL)
                json_decref(message); /* the late reply to a request that timed out */
            else if (keep(client, message, &why))
                break;
            continue;
        }
        if (why.code != TUNE_OK)
            break;
        if (!wait_for(client, POLLIN, deadline) && errno != EINTR) {
            tune_fail(&why, TUNE_ETIMEOUT, "no answer from the daemon at %s within %d ms",
                client->path, client->limit_ms);
            break;
        }
        if (receive(client, &why) < 0)
            break;
    }
    tune_fail(err, why.code, "%s", why.text);
    return NULL;
}

int tune_request(struct tune_client *client, const char *method, json_t *params, json_t **result,
    struct tune_error *err)
{
    if (result != NULL)
        *result = NULL;
    json_t *request = proto_request_new(++client->last_id, method, params);
    size_t length;
    char *line = request ? proto_line(request, &length) : NULL;
    json_decref(request);
    if (line == NULL)
        return tune_fail(
            err, TUNE_EINVAL, "the request to \"%s\" cannot be written as JSON", method);
    if (length > PROTO_REQUEST_LIMIT_BYTES) {
        free(line);
        return tune_fail(err, TUNE_ELIMIT,
            "a request of %zu bytes is over the limit of %zu: ask for less at once", length,
            PROTO_REQUEST_LIMIT_BYTES);
    }
    int status = send_line(client, line, length, err);
    free(line);
    json_t *reply = status ? NULL : wait_for_reply(client, client->last_id, err);
    client->is_lost = reply == NULL;
    if (reply == NULL)
        return -1;
    const json_t *error = json_object_get(reply, "error");
    if (error != NULL)
        status = fail_as_sent(error, err);
    else if (json_object_get(reply, "result") == NULL)
        status = tune_fail(err, TUNE_EPARSE,
            "the reply from %s has neither result nor error: is it a tunerd?", client->path);
    else if (result != NULL)
        *result = json_incref(json_object_get(reply, "result"));
    json_decref(reply);
    return status;
}

int tune_next(struct tune_client *client, int limit_ms, json_t **message, struct tune_error *err)
{
    long long deadline = deadline_after(limit_ms);
    struct tune_error why = {0};
    *message = NULL;
    while (json_array_size(client->kept) == 0) {
        json_t *next = take_message(client, &why);
        if (next != NULL) {
            if (json_object_get(next, "method") == NULL)
                json_decref(next);
            else if (keep(client, next, &why))
                break;
            continue;
        }
        if (why.code != TUNE_OK)
            break;
        if (!wait_for(client, POLLIN, deadline))
            return 0;
        if (receive(client, &why) < 0)
            break;
    }
    if (why.code != TUNE_OK)
        return tune_fail(err, why.code, "%s", why.text);
    *message = json_incref(json_array_get(client->kept, 0));
    json_array_remove(client->kept, 0);
    return 1;
}

/* --- the connection --------------------------------------------------------------------------- */

static int open_socket(const char *path, int limit_ms, struct tune_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return tune_fail(err, TUNE_EINVAL,
            "the socket path has %zu bytes; the system allows %zu: choose a shorter one",
            strlen(path), sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot make a socket");
    /* A full backlog makes a blocking connect wait for ever on a stopped daemon. */
    struct timeval limit = {.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000 + 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (errno == EACCES || errno == EPERM)
        tune_fail_errno(err, TUNE_EPERM, "may not connect to %s", path);
    else
        tune_fail_errno(err, TUNE_ENODAEMON, "no daemon answers at %s", path);
    close(fd);
    return -1;
}

/* Whoever listens must be a tunerd of this protocol, and answer at once. */
static int greet(struct tune_client *client, int limit_ms, struct tune_error *err)
{
    struct tune_error why = {0};
    client->limit_ms = limit_ms;
    if (tune_request(client, "ping", NULL, &client->server, &why)) {
        enum tune_code code = why.code == TUNE_ETIMEOUT ? TUNE_ENODAEMON : why.code;
        return tune_fail(err, code, "%s", why.text);
    }
    client->limit_ms = REQUEST_LIMIT_MS;
    int64_t proto = -1;
    if (proto_int_opt(client->server, "proto", 0, INT32_MAX, &proto, NULL) ||
        proto != TUNE_PROTO_VERSION)
        return tune_fail(err, TUNE_EVERSION,
            "the daemon at %s speaks protocol %lld and this program %d: use programs of one "
            "version "
            "(stop the daemon, or update)",
            client->path, (long long)proto, TUNE_PROTO_VERSION);
    return 0;
}

int client_open(const char *path, int limit_ms, struct tune_client **client, struct tune_error *err)
{
    *client = NULL;
    int fd = open_socket(path, limit_ms, err);
    if (fd < 0)
        return -1;
    struct tune_client *new = calloc(1, sizeof *new);
    json_t *kept = json_array();
    if (new == NULL || kept == NULL) {
        free(new);
        json_decref(kept);
        close(fd);
        return tune_fail(err, TUNE_ENOMEM, "no memory for a connection");
    }
    new->fd = fd;
    new->kept = kept;
    memcpy(new->path, path, strlen(path) + 1);
    proto_reader_init(&new->reader, PROTO_MESSAGE_LIMIT_BYTES);
    if (greet(new, limit_ms, err)) {
        tune_disconnect(new);
        return -1;
    }
    *client = new;
    return 0;
}

void tune_disconnect(struct tune_client *client)
{
    if (client == NULL)
        return;
    close(client->fd);
    proto_reader_finish(&client->reader);
    json_decref(client->kept);
    json_decref(client->server);
    free(client);
}

void tune_set_timeout(struct tune_client *client, int limit_ms)
{
    client->limit_ms = limit_ms < 0 ? TUNE_NO_LIMIT : limit_ms;
}

bool client_is_lost(const struct tune_client *client)
{
    return client->is_lost;
}

void client_ignore_notifications(struct tune_client *client)
{
    client->is_deaf = true;
}

int tune_descriptor(const struct tune_client *client)
{
    return client->fd;
}

const json_t *tune_server(const struct tune_client *client)
{
    return client->server;
}

const char *tune_server_path(const struct tune_client *client)
{
    return client->path;
}
