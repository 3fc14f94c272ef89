/* See writer.h. */
#include "daemon/writer.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct completion {
    writer_callback callback; /* NULL: forgotten */
    void *context;
};

struct group {
    struct tuning_db_batch *batch;
    struct completion *completions;
    size_t count, room;
};

struct writer {
    struct tuning_db *db;
    uv_prepare_t turn; /* runs before each poll: hands the open group over */
    uv_async_t committed;
    uv_thread_t thread;
    uv_mutex_t mutex;
    uv_cond_t wake;
    struct group open;
    /* Shared with the thread, under the mutex. */
    struct group *submitted; /* handed over, not yet committed */
    bool is_done, is_ending;
    struct tune_error result;
    /* Loop thread only. */
    void (*on_commit)(void *context);
    void *watch_context;
    bool is_stopping;
    int open_handles;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

static void group_init(struct group *group)
{
    *group = (struct group){.batch = tuning_db_batch_create()};
    if (group->batch == NULL)
        abort();
}

static void group_finish(struct group *group)
{
    tuning_db_batch_destroy(group->batch);
    free(group->completions);
}

static void thread_main(void *argument)
{
    struct writer *writer = argument;
    uv_mutex_lock(&writer->mutex);
    for (;;) {
        while (!writer->is_ending && (writer->submitted == NULL || writer->is_done))
            uv_cond_wait(&writer->wake, &writer->mutex);
        if (writer->submitted == NULL || writer->is_done)
            break;
        struct group *group = writer->submitted;
        uv_mutex_unlock(&writer->mutex);
        struct tune_error err = {0};
        tuning_db_commit(writer->db, group->batch, &err);
        uv_mutex_lock(&writer->mutex);
        writer->result = err;
        writer->is_done = true;
        uv_async_send(&writer->committed);
    }
    uv_mutex_unlock(&writer->mutex);
}

static bool has_work(const struct writer *writer)
{
    return writer->open.count > 0 || tuning_db_batch_count(writer->open.batch) > 0;
}

static void hand_over(struct writer *writer)
{
    if (writer->submitted != NULL || !has_work(writer))
        return;
    struct group *group = xmalloc(sizeof *group);
    *group = writer->open;
    group_init(&writer->open);
    uv_mutex_lock(&writer->mutex);
    writer->submitted = group;
    writer->is_done = false;
    uv_cond_signal(&writer->wake);
    uv_mutex_unlock(&writer->mutex);
}

static void on_turn(uv_prepare_t *turn)
{
    hand_over(turn->data);
}

static void on_closed(uv_handle_t *handle)
{
    struct writer *writer = handle->data;
    if (--writer->open_handles > 0)
        return;
    void (*on_stopped)(void *) = writer->on_stopped;
    void *context = writer->stopped_context;
    uv_cond_destroy(&writer->wake);
    uv_mutex_destroy(&writer->mutex);
    group_finish(&writer->open);
    free(writer);
    on_stopped(context);
}

static void maybe_stop(struct writer *writer)
{
    if (!writer->is_stopping || writer->submitted != NULL || has_work(writer))
        return;
    writer->is_stopping = false;
    uv_mutex_lock(&writer->mutex);
    writer->is_ending = true;
    uv_cond_signal(&writer->wake);
    uv_mutex_unlock(&writer->mutex);
    uv_thread_join(&writer->thread);
    uv_close((uv_handle_t *)&writer->turn, on_closed);
    uv_close((uv_handle_t *)&writer->committed, on_closed);
}

static void on_committed(uv_async_t *async)
{
    struct writer *writer = async->data;
    uv_mutex_lock(&writer->mutex);
    struct group *group = writer->is_done ? writer->submitted : NULL;
    struct tune_error result = writer->result;
    uv_mutex_unlock(&writer->mutex);
    if (group == NULL)
        return;
    if (result.code != TUNE_OK)
        log_warnx("a commit failed: %s", result.text);
    /* A completion may add records and may forget completions of this very group, so it stays
     * the submitted one until all have run. */
    for (size_t i = 0; i < group->count; i++) {
        struct completion *completion = &group->completions[i];
        if (completion->callback != NULL)
            completion->callback(result.code == TUNE_OK ? NULL : &result, completion->context);
    }
    uv_mutex_lock(&writer->mutex);
    writer->submitted = NULL;
    writer->is_done = false;
    uv_mutex_unlock(&writer->mutex);
    group_finish(group);
    free(group);
    if (result.code == TUNE_OK && writer->on_commit != NULL)
        writer->on_commit(writer->watch_context);
    hand_over(writer);
    maybe_stop(writer);
}

struct writer *writer_create(uv_loop_t *loop, struct tuning_db *db, struct tune_error *err)
{
    struct writer *writer = xcalloc(1, sizeof *writer);
    writer->db = db;
    group_init(&writer->open);
    uv_mutex_init(&writer->mutex);
    uv_cond_init(&writer->wake);
    uv_prepare_init(loop, &writer->turn);
    uv_async_init(loop, &writer->committed, on_committed);
    writer->turn.data = writer->committed.data = writer;
    writer->open_handles = 2;
    uv_prepare_start(&writer->turn, on_turn);
    int status = uv_thread_create(&writer->thread, thread_main, writer);
    if (status != 0) {
        tune_fail(
            err, TUNE_EIO, "cannot start the database's writer thread: %s", uv_strerror(status));
        return NULL; /* only at start: the program ends */
    }
    return writer;
}

struct tuning_db_batch *writer_batch(struct writer *writer)
{
    return writer->open.batch;
}

void writer_after_commit(struct writer *writer, writer_callback callback, void *context)
{
    struct group *group = &writer->open;
    if (group->count == group->room) {
        group->room = group->room ? group->room * 2 : 8;
        group->completions = xrealloc(group->completions, group->room * sizeof *group->completions);
    }
    group->completions[group->count++] = (struct completion){callback, context};
}

static void forget_in(struct group *group, const void *context)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->completions[i].context == context)
            group->completions[i].callback = NULL;
}

void writer_forget(struct writer *writer, const void *context)
{
    forget_in(&writer->open, context);
    if (writer->submitted != NULL)
        forget_in(writer->submitted, context);
}

void writer_watch(struct writer *writer, void (*on_commit)(void *context), void *context)
{
    writer->on_commit = on_commit;
    writer->watch_context = context;
}

void writer_stop(struct writer *writer, void (*on_stopped)(void *context), void *context)
{
    writer->is_stopping = true;
    writer->on_stopped = on_stopped;
    writer->stopped_context = context;
    hand_over(writer);
    maybe_stop(writer);
}
