/* The socket: clients, bytes in, frames out, limits per client. Knows no command.
 *
 * Design. Each whole line is offered to on_line as it came, which may answer it without a JSON
 * tree; else it becomes on_request (parsed JSON) or is answered with an error at once. What is sent
 * to a client while its bytes are taken apart goes out together after the last of them, in one
 * write; other messages go out at once, straight to the socket where it takes them.
 * Clients are named by a number that is never used again, and looked up again for each reply: a
 * client that has left simply gets nothing. A client is dropped, with a log line, when it sends a
 * line longer than PROTO_REQUEST_LIMIT_BYTES (it is told first; framing is lost), leaves half a
 * line unfinished for SERVER_HALF_LINE_MS, does not read, so that more than
 * SERVER_QUEUE_LIMIT_BYTES wait for it, not counting the longest message (one long answer to a
 * client that does read may be larger), is idle for SERVER_IDLE_MS without a request under way or a
 * subscription. A client that has shut its sending side down (the end of a script's input) still
 * gets what it is owed: answers under way and the events it subscribed to. Beyond
 * SERVER_CLIENTS_MAX (fewer when descriptors are short) a new client is told "busy" and closed. */
#ifndef TUNE_SERVER_H
#define TUNE_SERVER_H

#include "client/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define SERVER_CLIENTS_MAX 1024
#define SERVER_QUEUE_LIMIT_BYTES ((size_t)16 << 20)
#define SERVER_HALF_LINE_MS 30000
#define SERVER_IDLE_MS 600000
#define SERVER_REQUESTS_MAX 64     /* under way per client; more are refused as busy */
#define SERVER_DESCRIPTORS_KEPT 96 /* for workers, the database and files */

struct server;

struct server_callbacks {
    /* A line of a client as it came, borrowed. true: it has been answered. May be NULL. */
    bool (*on_line)(uint64_t client, const char *line, size_t length, void *context);
    /* A line that is a JSON object; both borrowed. */
    void (*on_request)(uint64_t client, uid_t uid, json_t *message, const char *line, size_t length,
        void *context);
    /* The client is no more. May be NULL. */
    void (*on_left)(uint64_t client, void *context);
    void *context;
};

/* Listens at `path` (checked: shorter than 108 bytes, nobody answers there). The socket file gets
 * mode 0660. New, or NULL with TUNE_EBUSY when another daemon listens there. */
struct server *server_start(uv_loop_t *loop, const char *path,
    const struct server_callbacks *callbacks, struct tune_error *err);

/* Whether peers other than our own user and root may connect (a system daemon's group). */
void server_allow_group(struct server *server, bool allow);

/* Sends a message (borrowed) to a client, if it is still there. */
void server_send(struct server *server, uint64_t client, const json_t *message);
/* Sends a whole message in parts, the last one ended by '\n'; all are copied. */
void server_send_parts(
    struct server *server, uint64_t client, const uv_buf_t *parts, unsigned count);
/* Accounts a request as under way, and as answered. false: the client has too many under way. */
bool server_request_begin(struct server *server, uint64_t client);
void server_request_end(struct server *server, uint64_t client);

/* Subscribes to the events of a job, or of all with NULL. false: the client has gone. */
bool server_subscribe(struct server *server, uint64_t client, const char *job);
/* Subscribes to the last event of a job alone. Such a subscription keeps no connection open whose
 * client sends no more. */
bool server_subscribe_end(struct server *server, uint64_t client, const char *job);
/* Sends to all who subscribed to this job or to all; `is_end`: to those of the last event too. */
void server_publish(struct server *server, const char *job, const json_t *message, bool is_end);
/* A finished job has no more events. */
void server_unsubscribe_all(struct server *server, const char *job);

size_t server_client_count(const struct server *server);

/* No new clients; what is queued goes out for at most a second. Removes the socket file. */
void server_stop(struct server *server, void (*on_stopped)(void *context), void *context);

#endif
