/* The one writer of the database: a thread with a queue and group commit.
 *
 * Design. The loop thread adds to the open batch and registers completions; once per turn of the
 * loop the batch goes to the thread, if that is idle. While it commits (one fsync), further records
 * gather in the next batch: that is the group commit, with no timer and no added delay. Completions
 * run on the loop thread in the order of registration, after the records added before them are
 * durable, or failed with the reason. */
#ifndef TUNE_WRITER_H
#define TUNE_WRITER_H

#include "tuning_db/tuning_db.h"

#include <uv.h>

struct writer;

/* err NULL: durable. Otherwise nothing of the batch was stored. */
typedef void (*writer_callback)(const struct tune_error *err, void *context);

/* The database is borrowed for the writer's life. New, or NULL. */
struct writer *writer_create(uv_loop_t *loop, struct tuning_db *db, struct tune_error *err);

/* The open batch, borrowed until control returns to the loop. */
struct tuning_db_batch *writer_batch(struct writer *writer);
/* Calls back when all that was added so far has been committed. */
void writer_after_commit(struct writer *writer, writer_callback callback, void *context);
/* Forgets the completions of this context: it is about to be destroyed. Their records stay. */
void writer_forget(struct writer *writer, const void *context);

/* Tells of each commit that succeeded, after its completions; one watcher. */
void writer_watch(struct writer *writer, void (*on_commit)(void *context), void *context);

/* Commits what is left, ends the thread, frees the writer, then calls on_stopped. */
void writer_stop(struct writer *writer, void (*on_stopped)(void *context), void *context);

#endif
