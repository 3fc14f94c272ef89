/* The worker's end of the pipe: whole messages in, whole messages out, and the id of the request
 * being answered. The watchdog's thread may answer in the main thread's place; whoever comes first
 * wins, and the other's answer is dropped. */
#ifndef TUNE_WORKER_CHANNEL_H
#define TUNE_WORKER_CHANNEL_H

#include "client/error.h"
#include "client/proto.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct channel {
    int fd;
    struct proto_reader reader;
    pthread_mutex_t lock; /* guards what follows, and the descriptor while an answer is written */
    json_int_t id;        /* of the request in progress */
    bool is_answered;
};

void channel_init(struct channel *channel, int fd);
void channel_finish(struct channel *channel);

/* The next message, or NULL: at the stream's end (*err untouched), or with *err set when the daemon
 * breaks the protocol. New reference. Waits. A request's "id" becomes the current one. */
json_t *channel_next(struct channel *channel, struct tune_error *err);

/* Sends `message`, whose reference it takes, as the answer to the current request (adding its id).
 * Fails when the daemon is gone. A second answer to one request is dropped. */
int channel_answer(struct channel *channel, json_t *message, struct tune_error *err);

/* Sends a message that answers nothing: the hello. Takes the reference. */
int channel_send(struct channel *channel, json_t *message, struct tune_error *err);

/* For the watchdog: sends "{"id":N,<fields>}" unless the request is answered already, without
 * allocating (the main thread may be stuck anywhere). `fields` is JSON text without braces. */
void channel_answer_text(struct channel *channel, const char *fields);

#endif
