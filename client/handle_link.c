/* Connections of a handle: as many as threads ask at once, the idle ones kept for the next. See
 * handle.h.
 *
 * Design. A thread takes an idle connection or makes one, asks, and puts it back, so that one that
 * waits for a sweep holds up nobody. A connection that breaks takes the idle ones with it: the
 * daemon has gone. It is then waited for by those who have no other answer, up to GONE_WAIT_MS from
 * when it was missed first. After that it counts as absent, as one does that was never seen: one
 * caller tries again now and then, and the others are told what he found. */
#include "handle.h"
#include "answer.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define IDLE_LIMIT 16
#define GONE_WAIT_MS 5000
#define NEVER_SEEN 1 /* as gone_since_ms: long ago */
#define PAUSE_MS 20  /* between looks for a daemon that is coming back */
#define BACKOFF_MIN_MS 250
#define BACKOFF_MAX_MS 5000
#define ATTEMPTS 3 /* a connection that had died, a restart, and another one */

struct link {
    struct link *next;
    struct tune_client *client;
};

/* --- time ------------------------------------------------------------------------------------- */

long long handle_deadline(const struct tune *tune, enum tune_policy policy)
{
    int limit_ms = atomic_load(&tune->limit_ms);
    if (limit_ms == LIMIT_UNSET)
        limit_ms = policy == TUNE_WAIT ? TUNE_NO_LIMIT : 30000;
    return limit_ms < 0 ? -1 : client_now_ms() + limit_ms;
}

int handle_left_ms(long long deadline)
{
    if (deadline < 0)
        return TUNE_NO_LIMIT;
    long long left = deadline - client_now_ms();
    return left < 0 ? 0 : (int)left;
}

/* The shorter of two limits. */
static int at_most(int left_ms, int limit_ms)
{
    return left_ms < 0 || left_ms > limit_ms ? limit_ms : left_ms;
}

/* --- idle connections ------------------------------------------------------------------------- */

void handle_links_init(struct links *links)
{
    *links = (struct links){.gone_since_ms = NEVER_SEEN};
    pthread_mutex_init(&links->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&links->end_of_try, &attributes);
    pthread_condattr_destroy(&attributes);
}

static struct tune_client *take_idle(struct links *links)
{
    pthread_mutex_lock(&links->lock);
    struct link *link = links->idle;
    if (link != NULL) {
        links->idle = link->next;
        links->idle_count--;
    }
    pthread_mutex_unlock(&links->lock);
    struct tune_client *client = link ? link->client : NULL;
    free(link);
    return client;
}

static void give_back(struct links *links, struct tune_client *client)
{
    struct link *link = malloc(sizeof *link);
    pthread_mutex_lock(&links->lock);
    bool is_kept = link != NULL && links->idle_count < IDLE_LIMIT;
    if (is_kept) {
        *link = (struct link){links->idle, client};
        links->idle = link;
        links->idle_count++;
    }
    pthread_mutex_unlock(&links->lock);
    if (!is_kept) {
        free(link);
        tune_disconnect(client);
    }
}

static void drop_idle(struct links *links)
{
    struct tune_client *client;
    while ((client = take_idle(links)) != NULL)
        tune_disconnect(client);
}

void handle_links_finish(struct links *links)
{
    drop_idle(links);
    pthread_mutex_destroy(&links->lock);
    pthread_cond_destroy(&links->end_of_try);
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool is_absent(const struct links *links, long long now_ms)
{
    return links->gone_since_ms != 0 && now_ms - links->gone_since_ms > GONE_WAIT_MS;
}

/* Waits until nobody else tries; false at the deadline. The lock is held. */
static bool wait_for_turn(struct links *links, long long deadline)
{
    while (links->is_tried) {
        int left_ms = at_most(handle_left_ms(deadline), 1000);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(left_ms % 1000) * 1000000;
        until.tv_sec += left_ms / 1000 + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (left_ms == 0)
            return false;
        pthread_cond_timedwait(&links->end_of_try, &links->lock, &until);
    }
    return true;
}

/* An absent daemon is tried by one caller at a time, and the others wait for what he finds. False
 * when that took too long, or when it was tried a moment ago; *is_alone: end_try must follow. */
static bool begin_try(struct links *links, long long deadline, bool *is_alone)
{
    bool may = true;
    *is_alone = false;
    pthread_mutex_lock(&links->lock);
    if (is_absent(links, client_now_ms())) {
        may = wait_for_turn(links, deadline);
        *is_alone = may && is_absent(links, client_now_ms());
        if (*is_alone && client_now_ms() < links->retry_at_ms)
            may = *is_alone = false;
        links->is_tried |= *is_alone;
    }
    pthread_mutex_unlock(&links->lock);
    return may;
}

static void end_try(struct links *links)
{
    pthread_mutex_lock(&links->lock);
    links->is_tried = false;
    pthread_cond_broadcast(&links->end_of_try);
    pthread_mutex_unlock(&links->lock);
}

/* Notes that nobody answered; false when it is no use to wait any longer. */
static bool note_missing(struct links *links)
{
    long long now_ms = client_now_ms();
    pthread_mutex_lock(&links->lock);
    if (links->gone_since_ms == 0)
        links->gone_since_ms = now_ms;
    bool is_given_up = is_absent(links, now_ms);
    if (is_given_up) {
        links->backoff_ms = links->backoff_ms == 0 ? BACKOFF_MIN_MS : 2 * links->backoff_ms;
        if (links->backoff_ms > BACKOFF_MAX_MS)
            links->backoff_ms = BACKOFF_MAX_MS;
        links->retry_at_ms = now_ms + links->backoff_ms;
    }
    pthread_mutex_unlock(&links->lock);
    return !is_given_up;
}

/* One that takes no notice is as good as absent: the next caller shall not wait for it too. */
static void note_mute(struct links *links)
{
    long long now_ms = client_now_ms();
    pthread_mutex_lock(&links->lock);
    links->gone_since_ms = now_ms - GONE_WAIT_MS - 1;
    links->retry_at_ms = now_ms + BACKOFF_MIN_MS;
    pthread_mutex_unlock(&links->lock);
    drop_idle(links);
}

void handle_note_there(struct tune *tune, const struct tune_client *client)
{
    struct links *links = &tune->links;
    pthread_mutex_lock(&links->lock);
    bool is_back = links->gone_since_ms > NEVER_SEEN;
    links->gone_since_ms = 0;
    links->backoff_ms = 0;
    pthread_mutex_unlock(&links->lock);
    if (is_back)
        atomic_fetch_add(&tune->epoch, 1);
    handle_view_of(tune, tune_server_path(client));
}

/* NULL: nobody answers; *may_return whether that may change soon. */
static struct tune_client *try_once(
    struct tune *tune, long long deadline, bool *may_return, struct tune_error *err)
{
    struct links *links = &tune->links;
    struct tune_client *client;
    int left_ms = at_most(handle_left_ms(deadline), CLIENT_HELLO_MS);
    if (client_connect(tune->asked_path, left_ms, &client, err) == 0) {
        client_ignore_notifications(client);
        handle_note_there(tune, client);
        return client;
    }
    *may_return = note_missing(links);
    return NULL;
}

struct tune_client *handle_connect(
    struct tune *tune, long long deadline, bool may_wait, struct tune_error *err)
{
    struct links *links = &tune->links;
    for (;;) {
        struct tune_error why = {0};
        bool may_return = false, is_alone;
        if (!begin_try(links, deadline, &is_alone)) {
            tune_fail(err, TUNE_ENODAEMON, "no daemon answered a moment ago");
            return NULL;
        }
        struct tune_client *client = try_once(tune, deadline, &may_return, &why);
        if (is_alone)
            end_try(links);
        if (client != NULL)
            return client;
        int left_ms = handle_left_ms(deadline);
        if (!may_return || !may_wait || left_ms == 0) {
            tune_fail(err, TUNE_ENODAEMON, "%s", why.text);
            return NULL;
        }
        poll(NULL, 0, at_most(left_ms, PAUSE_MS));
    }
}

/* --- asking ----------------------------------------------------------------------------------- */

json_t *handle_shape_json(const struct tune_query *query, struct tune_error *err)
{
    json_t *shape = json_object();
    bool is_text = true;
    for (size_t i = 0; i < query->dim_count; i++)
        is_text &= json_object_set_new(shape, query->dims[i].name,
                       json_integer((json_int_t)query->dims[i].value)) == 0;
    if (is_text && json_object_size(shape) == query->dim_count)
        return shape;
    json_decref(shape);
    tune_fail(err, TUNE_EINVAL,
        is_text ? "the query gives a dim twice"
                : "a dim of the query has a name that is not UTF-8");
    return NULL;
}

/* The params of `get`, new; fields that are not asked for are left out. */
static json_t *params_json(const struct tune_query *query, bool with_cubin, struct tune_error *err)
{
    static const char *const policies[] = {"nearest", "cached", "tune", "wait"};
    json_t *shape = handle_shape_json(query, err);
    if (shape == NULL)
        return NULL;
    json_t *params =
        json_pack("{s:s, s:o, s:s*, s:s*, s:s*, s:s*, s:s, s:s*}", "kernel", query->kernel, "shape",
            shape, "dtype", query->dtype, "mode", query->mode, "arch", query->arch, "gpu",
            query->gpu, "policy", policies[query->policy], "session", query->session);
    if (params != NULL && with_cubin)
        json_object_set_new(params, "cubin", json_true());
    if (params == NULL)
        tune_fail(err, TUNE_EINVAL, "a name in the query is not UTF-8");
    return params;
}

static struct tune_client *take(
    struct tune *tune, long long deadline, bool may_wait, struct tune_error *err)
{
    struct tune_client *client = take_idle(&tune->links);
    return client ? client : handle_connect(tune, deadline, may_wait, err);
}

/* A daemon that is ending refuses with "busy" first. */
static bool is_ending(const struct tune_error *why)
{
    return why->code == TUNE_EBUSY;
}

/* `is_slow`: an answer may take its time (a sweep, a compilation), so that a missing one says
 * nothing about the daemon. */
static enum asked ask_until(struct tune *tune, json_t *params, long long deadline, bool is_slow,
    bool may_wait, json_t **result, struct tune_error *err)
{
    struct tune_error why = {0};
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct tune_client *client = take(tune, deadline, may_wait, err);
        if (client == NULL)
            return ASKED_NOBODY;
        tune_set_timeout(client, handle_left_ms(deadline));
        why = (struct tune_error){0};
        int status = tune_request(client, "get", json_incref(params), result, &why);
        bool is_lost = client_is_lost(client);
        if (is_lost || (status && is_ending(&why))) {
            tune_disconnect(client);
        } else {
            give_back(&tune->links, client);
            if (status)
                tune_fail(err, why.code, "%s", why.text);
            return status ? ASKED_REFUSED : ASKED_OK;
        }
        if (is_lost && why.code == TUNE_ETIMEOUT) {
            if (!is_slow)
                note_mute(&tune->links);
            break;
        }
        drop_idle(&tune->links);
        note_missing(&tune->links);
    }
    tune_fail(err, why.code, "%s", why.text);
    return is_ending(&why) || (is_slow && why.code == TUNE_ETIMEOUT) ? ASKED_REFUSED : ASKED_NOBODY;
}

enum asked handle_ask(struct tune *tune, const struct tune_query *query, bool with_cubin,
    bool may_wait, json_t **result, struct tune_error *err)
{
    json_t *params = params_json(query, with_cubin, err);
    if (params == NULL)
        return ASKED_REFUSED;
    long long deadline = handle_deadline(tune, query->policy);
    bool is_slow = with_cubin || query->policy == TUNE_WAIT;
    enum asked asked = ask_until(tune, params, deadline, is_slow, may_wait, result, err);
    json_decref(params);
    return asked;
}

enum asked handle_fetch(struct tune *tune, const struct tune_query *query, bool may_wait,
    struct tune_answer *answer, struct tune_error *err)
{
    json_t *json = NULL;
    enum asked asked = handle_ask(tune, query, false, may_wait, &json, err);
    if (asked == ASKED_OK && answer_from_json(json, answer, err))
        asked = ASKED_REFUSED;
    json_decref(json);
    return asked;
}
