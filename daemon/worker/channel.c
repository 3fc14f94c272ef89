#include "channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void channel_init(struct channel *channel, int fd)
{
    *channel = (struct channel){.fd = fd, .is_answered = true};
    proto_reader_init(&channel->reader, PROTO_MESSAGE_LIMIT_BYTES);
    pthread_mutex_init(&channel->lock, NULL);
}

void channel_finish(struct channel *channel)
{
    proto_reader_finish(&channel->reader);
    pthread_mutex_destroy(&channel->lock);
}

static void begin_request(struct channel *channel, const json_t *message)
{
    pthread_mutex_lock(&channel->lock);
    channel->id = json_integer_value(json_object_get(message, "id"));
    channel->is_answered = false;
    pthread_mutex_unlock(&channel->lock);
}

json_t *channel_next(struct channel *channel, struct tune_error *err)
{
    static char bytes[1 << 16];
    for (;;) {
        size_t length;
        char *line = proto_reader_next(&channel->reader, &length);
        if (line) {
            json_t *message = proto_parse(line, length, err);
            if (message)
                begin_request(channel, message);
            return message;
        }
        ssize_t count = read(channel->fd, bytes, sizeof(bytes));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            tune_fail_errno(err, TUNE_EIO, "cannot read from the daemon");
        if (count <= 0)
            return NULL;
        if (proto_reader_feed(&channel->reader, bytes, (size_t)count, err) < 0)
            return NULL;
    }
}

static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        bytes += written;
        count -= (size_t)written;
    }
    return 0;
}

static int send_line(struct channel *channel, json_t *message, struct tune_error *err)
{
    size_t length;
    char *line = proto_line(message, &length);
    if (!line)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a message to the daemon");
    int result = write_all(channel->fd, line, length);
    free(line);
    return result == 0 ? 0 : tune_fail_errno(err, TUNE_EIO, "cannot write to the daemon");
}

int channel_send(struct channel *channel, json_t *message, struct tune_error *err)
{
    int result = send_line(channel, message, err);
    json_decref(message);
    return result;
}

int channel_answer(struct channel *channel, json_t *message, struct tune_error *err)
{
    int result = 0;
    pthread_mutex_lock(&channel->lock);
    if (!channel->is_answered) {
        channel->is_answered = true;
        json_object_set_new(message, "id", json_integer(channel->id));
        result = send_line(channel, message, err);
    }
    pthread_mutex_unlock(&channel->lock);
    json_decref(message);
    return result;
}

void channel_answer_text(struct channel *channel, const char *fields)
{
    char line[1024];
    pthread_mutex_lock(&channel->lock);
    int length = snprintf(line, sizeof(line), "{\"id\":%lld,%s}\n", (long long)channel->id, fields);
    if (!channel->is_answered && length > 0 && length < (int)sizeof(line)) {
        channel->is_answered = true;
        (void)!write_all(channel->fd, line, (size_t)length);
    }
    pthread_mutex_unlock(&channel->lock);
}
