/* The handle, and the way of a question through it. See tune.h for the manual and handle.h for the
 * design. */
#include "handle.h"

#include <stdlib.h>

/* --- opening and closing ---------------------------------------------------------------------- */

static void init_locks(struct tune *tune)
{
    pthread_mutex_init(&tune->view_lock, NULL);
    pthread_mutex_init(&tune->offline_lock, NULL);
    pthread_mutex_init(&tune->cubin_lock, NULL);
    pthread_mutex_init(&tune->events_lock, NULL);
    handle_links_init(&tune->links);
}

int tune_open(const char *socket_path, struct tune **tune, struct tune_error *err)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    *tune = NULL;
    if (tune_socket_path(socket_path, path, err)) /* one that is too long will never do */
        return -1;
    struct tune *new = calloc(1, sizeof *new);
    if (new == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a handle");
    init_locks(new);
    new->limit_ms = LIMIT_UNSET;
    new->table = handle_table_create();
    new->asked_path = socket_path ? strdup(socket_path) : NULL;
    if (new->table == NULL || (socket_path != NULL && new->asked_path == NULL)) {
        tune_close(new);
        return tune_fail(err, TUNE_ENOMEM, "no memory for a handle");
    }
    handle_view_look(new);
    *tune = new;
    return 0;
}

void tune_close(struct tune *tune)
{
    if (tune == NULL)
        return;
    handle_events_finish(tune);
    handle_cubins_finish(tune);
    handle_offline_finish(tune);
    handle_links_finish(&tune->links);
    handle_view_finish(tune);
    handle_table_destroy(tune->table);
    pthread_mutex_destroy(&tune->view_lock);
    pthread_mutex_destroy(&tune->offline_lock);
    pthread_mutex_destroy(&tune->cubin_lock);
    pthread_mutex_destroy(&tune->events_lock);
    free(tune->asked_path);
    free(tune);
}

void tune_set_limit(struct tune *tune, int limit_ms)
{
    atomic_store(&tune->limit_ms, limit_ms < 0 ? TUNE_NO_LIMIT : limit_ms);
}

uint64_t tune_generation(struct tune *tune)
{
    return handle_table_is_ours(tune->table) ? handle_tag(tune) : 0;
}

int handle_check_owner(const struct tune *tune, struct tune_error *err)
{
    if (handle_table_is_ours(tune->table))
        return 0;
    return tune_fail(err, TUNE_EINVAL,
        "this handle was opened before a fork and belongs to the parent: open one in the child");
}

/* --- asking ----------------------------------------------------------------------------------- */

/* What is left when nobody answers; `known` says whether *answer holds what was known last. */
static int answer_alone(struct tune *tune, const struct tune_query *query, bool known,
    const struct tune_error *why, struct tune_answer *answer, struct tune_error *err)
{
    if (known)
        return 0;
    if (query->policy == TUNE_WAIT)
        return tune_fail(
            err, TUNE_ENODAEMON, "nobody is there to tune %.64s: %s", query->kernel, why->text);
    if (query->policy == TUNE_CACHED)
        return tune_fail(err, TUNE_ENOTFOUND,
            "nothing is published for %.64s and this shape, and the daemon cannot be asked: %s",
            query->kernel, why->text);
    return handle_offline_get(tune, query, answer, err);
}

/* What the table does not know, or knew before the last news (`is_stale`, and in *answer). */
static int look_further(struct tune *tune, const struct tune_query *query,
    const struct handle_key *key, uint64_t tag, bool is_stale, struct tune_answer *answer,
    struct tune_error *err)
{
    struct tune_error why = {0};
    struct tune_answer fresh;
    handle_view_look(tune);
    if (handle_view_get(tune, query, answer) == 0) {
        handle_table_put(tune->table, key, answer, tag);
        return 0;
    }
    switch (handle_fetch(tune, query, !is_stale, &fresh, &why)) {
    case ASKED_REFUSED:
        return tune_fail(err, why.code, "%s", why.text);
    case ASKED_OK:
        memcpy(answer, &fresh, offsetof(struct tune_answer, words) + fresh.length);
        handle_table_put(tune->table, key, answer, query->session != NULL ? TAG_ALWAYS : tag);
        return 0;
    case ASKED_NOBODY:
        break;
    }
    if (answer_alone(tune, query, is_stale, &why, answer, err))
        return -1;
    handle_table_put(tune->table, key, answer, handle_tick());
    return 0;
}

int tune_get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer,
    struct tune_error *err)
{
    struct handle_key key;
    if (handle_key_make(query, &key, err) || handle_check_owner(tune, err))
        return -1;
    uint64_t entry_tag, tag = handle_tag(tune);
    bool is_known = handle_table_get(tune->table, &key, answer, &entry_tag);
    if (is_known && handle_is_fresh(entry_tag, tag))
        return 0;
    return look_further(tune, query, &key, tag, is_known && !answer->is_offline, answer, err);
}
