/* See session.h. */
#include "daemon/session.h"

#include "client/proto.h"
#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define TOUCH_PERIOD_MS (INT64_C(3600) * 1000)

struct kept {
    struct sessions *sessions;
    char key[SESSION_KEY_BYTES];
    json_t *answer;
    int64_t used_unix_ms, stored_used_unix_ms;
    bool is_durable;
};

struct sessions {
    struct tuning_db *db;
    struct writer *writer;
    struct kept **kept; /* by key, ascending */
    size_t count;
};

struct sessions *sessions_create(struct tuning_db *db, struct writer *writer)
{
    struct sessions *sessions = xcalloc(1, sizeof *sessions);
    sessions->db = db;
    sessions->writer = writer;
    sessions->kept = xcalloc(SESSION_ANSWERS_MAX, sizeof *sessions->kept);
    return sessions;
}

static void kept_destroy(struct kept *kept)
{
    json_decref(kept->answer);
    free(kept);
}

void sessions_destroy(struct sessions *sessions)
{
    if (sessions == NULL)
        return;
    for (size_t i = 0; i < sessions->count; i++)
        kept_destroy(sessions->kept[i]);
    free(sessions->kept);
    free(sessions);
}

/* --- the list --------------------------------------------------------------------------------- */

/* Where a key is, or would be put. */
static size_t find_place(const struct sessions *sessions, const char *key)
{
    size_t low = 0, high = sessions->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(sessions->kept[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct kept *find(const struct sessions *sessions, const char *key)
{
    size_t place = find_place(sessions, key);
    return place < sessions->count && strcmp(sessions->kept[place]->key, key) == 0
               ? sessions->kept[place]
               : NULL;
}

static void insert(struct sessions *sessions, struct kept *kept)
{
    size_t place = find_place(sessions, kept->key);
    memmove(&sessions->kept[place + 1], &sessions->kept[place],
        (sessions->count - place) * sizeof *sessions->kept);
    sessions->kept[place] = kept;
    sessions->count++;
}

/* Here and in the database. */
static void drop(struct sessions *sessions, struct kept *kept)
{
    size_t place = find_place(sessions, kept->key);
    sessions->count--;
    memmove(&sessions->kept[place], &sessions->kept[place + 1],
        (sessions->count - place) * sizeof *sessions->kept);
    tuning_db_batch_job(writer_batch(sessions->writer), kept->key, NULL, 0);
    writer_forget(sessions->writer, kept);
    kept_destroy(kept);
}

static void drop_longest_unused(struct sessions *sessions)
{
    struct kept *oldest = sessions->kept[0];
    for (size_t i = 1; i < sessions->count; i++)
        if (sessions->kept[i]->used_unix_ms < oldest->used_unix_ms)
            oldest = sessions->kept[i];
    log_debug("%d answers of sessions are kept, which is the limit: %s is dropped",
        SESSION_ANSWERS_MAX, oldest->key);
    drop(sessions, oldest);
}

/* --- in the database -------------------------------------------------------------------------- */

static void store(struct kept *kept)
{
    json_t *json = json_pack(
        "{s:I, s:O}", "used_unix_ms", (json_int_t)kept->used_unix_ms, "answer", kept->answer);
    char *text = json_dumps(json, JSON_COMPACT);
    if (text != NULL)
        tuning_db_batch_job(writer_batch(kept->sessions->writer), kept->key, text, strlen(text));
    kept->stored_used_unix_ms = kept->used_unix_ms;
    free(text);
    json_decref(json);
}

static void on_stored(const struct tune_error *err, void *context)
{
    struct kept *kept = context;
    if (err == NULL)
        kept->is_durable = true;
    else
        drop(kept->sessions, kept);
}

static int on_loaded(const char *name, const void *bytes, size_t count, void *context)
{
    struct sessions *sessions = context;
    struct tune_error err = {0};
    json_t *json = proto_parse(bytes, count, &err);
    json_t *answer = json_object_get(json, "answer");
    int64_t used_unix_ms = json_integer_value(json_object_get(json, "used_unix_ms"));
    bool is_kept = json_is_object(answer) && strlen(name) < SESSION_KEY_BYTES &&
                   sessions->count < SESSION_ANSWERS_MAX &&
                   clock_unix_ms() - used_unix_ms < SESSION_LIFE_MS;
    if (is_kept) {
        struct kept *kept = xcalloc(1, sizeof *kept);
        kept->sessions = sessions;
        snprintf(kept->key, sizeof kept->key, "%s", name);
        kept->answer = json_incref(answer);
        kept->used_unix_ms = kept->stored_used_unix_ms = used_unix_ms;
        kept->is_durable = true;
        insert(sessions, kept);
    } else {
        tuning_db_batch_job(writer_batch(sessions->writer), name, NULL, 0);
    }
    json_decref(json);
    return 0;
}

int sessions_load(struct sessions *sessions, struct tune_error *err)
{
    return tuning_db_walk_jobs(sessions->db, "session/", on_loaded, sessions, err);
}

/* --- public ----------------------------------------------------------------------------------- */

int session_key(const char *name, const struct record_key *key, const char *gpu,
    char out[SESSION_KEY_BYTES], struct tune_error *err)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-";
    size_t length = strlen(name);
    if (length < 1 || length > SESSION_NAME_BYTES || strspn(name, allowed) != length)
        return tune_fail(err, TUNE_EINVAL,
            "session is \"%.40s\"; a name has 1 to %d letters, digits and . _ : @ -", name,
            SESSION_NAME_BYTES);
    char target[160];
    struct record_key full = *key;
    snprintf(target, sizeof target, "%s %s", key->arch, gpu);
    full.arch = target;
    struct record_hash hash = record_key_hash(&full);
    int used = snprintf(out, SESSION_KEY_BYTES, "session/%s/", name);
    for (size_t i = 0; i < sizeof hash.bytes; i++)
        snprintf(out + used + 2 * i, 3, "%02x", hash.bytes[i]);
    return 0;
}

json_t *sessions_find(struct sessions *sessions, const char *key)
{
    struct kept *kept = find(sessions, key);
    int64_t now = clock_unix_ms();
    if (kept == NULL)
        return NULL;
    if (now - kept->used_unix_ms >= SESSION_LIFE_MS) {
        drop(sessions, kept);
        return NULL;
    }
    kept->used_unix_ms = now;
    if (now - kept->stored_used_unix_ms >= TOUCH_PERIOD_MS)
        store(kept);
    return kept->answer;
}

json_t *sessions_keep(struct sessions *sessions, const char *key, json_t *answer)
{
    json_t *there = sessions_find(sessions, key);
    if (there != NULL)
        return there;
    if (sessions->count == SESSION_ANSWERS_MAX)
        drop_longest_unused(sessions);
    struct kept *kept = xcalloc(1, sizeof *kept);
    kept->sessions = sessions;
    snprintf(kept->key, sizeof kept->key, "%s", key);
    kept->answer = json_incref(answer);
    kept->used_unix_ms = clock_unix_ms();
    insert(sessions, kept);
    store(kept);
    writer_after_commit(sessions->writer, on_stored, kept);
    return kept->answer;
}

void sessions_after_stored(
    struct sessions *sessions, const char *key, writer_callback callback, void *context)
{
    const struct kept *kept = find(sessions, key);
    if (kept != NULL && kept->is_durable)
        callback(NULL, context);
    else
        writer_after_commit(sessions->writer, callback, context);
}
