/* Answers that stay the same: all who ask under one session name, the ranks of one job, say, get
 * the same answer to the same question, also after something better is known and after the daemon
 * was restarted.
 *
 * A session is nothing but its name: it begins with the first question under it. Each answer lives
 * until nobody has asked for it for SESSION_LIFE_MS (told to the database once an hour at most), or
 * the kernel's text or manifest changes: then it is another kernel. At most SESSION_ANSWERS_MAX are
 * kept, of all sessions together; beyond that the one not asked for the longest gives way. The
 * database keeps them under "session/NAME/HASH" of its jobs.
 *
 * Loop thread only. */
#ifndef TUNE_SESSION_H
#define TUNE_SESSION_H

#include "daemon/writer.h"

#include <jansson.h>

#define SESSION_LIFE_MS (INT64_C(7) * 24 * 3600 * 1000)
#define SESSION_ANSWERS_MAX 4096
#define SESSION_NAME_BYTES 100
#define SESSION_KEY_BYTES 144 /* with the NUL */

struct sessions;

struct sessions *sessions_create(struct tuning_db *db, struct writer *writer);
void sessions_destroy(struct sessions *sessions); /* NULL is fine */

/* Takes up what the database has, and drops there what has outlived its time. */
int sessions_load(struct sessions *sessions, struct tune_error *err);

/* The key of a question under a name: 1 to SESSION_NAME_BYTES letters, digits and . _ : @ -. Of the
 * record key all fields count, and the GPU name beside them. */
int session_key(const char *name, const struct record_key *key, const char *gpu,
    char out[SESSION_KEY_BYTES], struct tune_error *err);

/* The answer kept under a key, borrowed until the next call, or NULL. */
json_t *sessions_find(struct sessions *sessions, const char *key);
/* Keeps an answer (borrowed) unless there is one already; the one to give, borrowed. */
json_t *sessions_keep(struct sessions *sessions, const char *key, json_t *answer);
/* Calls back when the answer kept under the key is durable, perhaps before this returns: an answer
 * given before could be another one after a crash. With an error it is not kept any more. */
void sessions_after_stored(
    struct sessions *sessions, const char *key, writer_callback callback, void *context);

#endif
