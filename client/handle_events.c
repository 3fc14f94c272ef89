/* News: which sweeps ended, for who subscribed. See handle.h.
 *
 * Design. A connection of its own that watches all jobs. An epoll descriptor stands for it towards
 * the caller's event loop, so that the number stays the same whatever becomes of the connection; a
 * timer beside the socket makes it readable when something is left to hand out and when it is time
 * to look for a daemon again. Whoever calls tune_next_event does the work, under the lock; nobody
 * waits for news under it.
 *
 * What ended while no daemon was connected is found out by asking: each subscription remembers the
 * exact answer that it knew last, as of its last event. */
#include "handle.h"
#include "answer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <xxhash.h>

#define SUBSCRIPTION_LIMIT 4096
#define RETRY_MS 200
#define HELLO_MS 1000

struct subscription {
    struct subscription *next;
    struct tune_event event;
    char mode[16];
    bool is_pending;
    uint64_t known; /* hash of the exact answer known last; 0: none */
    struct tune_query query;
    struct tune_dim dims[QUERY_MAX_DIMS];
    char texts[]; /* of the query */
};

struct events {
    int epoll_fd, timer_fd;
    struct tune_client *client; /* NULL: not connected */
    long long retry_at_ms;
    struct subscription *first;
    size_t count;
};

/* --- subscriptions ---------------------------------------------------------------------------- */

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *keep_text(char **room, const char *text)
{
    char *kept = *room;
    if (text == NULL)
        return NULL;
    *room = stpcpy(kept, text) + 1;
    return kept;
}

/* A copy of the query that lives on; new. */
static struct subscription *subscription_create(const struct tune_query *query)
{
    size_t bytes = text_bytes(query->kernel) + text_bytes(query->dtype) + text_bytes(query->mode) +
                   text_bytes(query->arch) + text_bytes(query->gpu);
    for (size_t i = 0; i < query->dim_count; i++)
        bytes += text_bytes(query->dims[i].name);
    struct subscription *new = calloc(1, sizeof *new + bytes);
    if (new == NULL)
        return NULL;
    char *room = new->texts;
    new->query = (struct tune_query){.kernel = keep_text(&room, query->kernel),
        .dims = new->dims,
        .dim_count = query->dim_count,
        .dtype = keep_text(&room, query->dtype),
        .mode = keep_text(&room, query->mode),
        .arch = keep_text(&room, query->arch),
        .gpu = keep_text(&room, query->gpu),
        .policy = TUNE_NEAREST};
    for (size_t i = 0; i < query->dim_count; i++)
        new->dims[i] =
            (struct tune_dim){keep_text(&room, query->dims[i].name), query->dims[i].value};
    return new;
}

/* Tells one exact answer from another. */
static uint64_t answer_hash(const struct tune_answer *answer)
{
    struct tune_answer_info info;
    tune_answer_info(answer, &info);
    if (info.origin != TUNE_EXACT)
        return 0;
    uint64_t hash = XXH3_64bits(&info.median_ns, sizeof info.median_ns);
    for (size_t i = 0; i < info.param_count; i++) {
        const char *name, *word;
        int64_t value;
        tune_answer_param_at(answer, i, &name, &value, &word);
        hash = XXH3_64bits_withSeed(&value, sizeof value, hash);
    }
    return hash | 1;
}

static bool is_of(const struct subscription *subscription, const char *kernel, const char *dtype,
    const char *mode, const char *shape)
{
    return strcmp(subscription->event.kernel, kernel) == 0 &&
           strcmp(subscription->event.dtype, dtype) == 0 && strcmp(subscription->mode, mode) == 0 &&
           strcmp(subscription->event.shape, shape) == 0;
}

/* --- what the daemon tells -------------------------------------------------------------------- */

/* "M=64,N=64", in the order of the members, which is the manifest's. */
static void shape_text(const json_t *shape, char *text, size_t size)
{
    const char *name;
    json_t *value;
    size_t used = 0;
    text[0] = '\0';
    json_object_foreach ((json_t *)shape, name, value) {
        int count = snprintf(text + used, size - used, "%s%s=%lld", used ? "," : "", name,
            (long long)json_integer_value(value));
        if (count < 0 || (size_t)count >= size - used)
            return;
        used += (size_t)count;
    }
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void on_result(struct events *events, const json_t *result)
{
    char shape[sizeof events->first->event.shape];
    if (!json_is_object(json_object_get(result, "best")))
        return; /* nothing was right: nothing is new */
    shape_text(json_object_get(result, "shape"), shape, sizeof shape);
    for (struct subscription *each = events->first; each != NULL; each = each->next)
        if (is_of(each, text_of(result, "kernel"), text_of(result, "dtype"),
                text_of(result, "mode"), shape))
            each->is_pending = true;
}

static void on_message(struct events *events, const json_t *message)
{
    size_t i;
    json_t *result;
    const json_t *params = json_object_get(message, "params");
    if (strcmp(text_of(message, "method"), "done") != 0)
        return;
    json_array_foreach (json_object_get(params, "results"), i, result) {
        on_result(events, result);
    }
}

/* --- the connection --------------------------------------------------------------------------- */

/* Asks for the exact answer, past the table and the snapshot; whether there is another now. */
static bool learn(struct tune *tune, struct subscription *subscription)
{
    struct tune_answer answer;
    uint64_t before = subscription->known;
    if (handle_fetch(tune, &subscription->query, false, &answer, NULL) != ASKED_OK)
        return false;
    subscription->known = answer_hash(&answer);
    return subscription->known != 0 && subscription->known != before;
}

/* What may have changed while no daemon was connected. */
static void check_all(struct tune *tune, struct events *events)
{
    for (struct subscription *each = events->first; each != NULL; each = each->next)
        each->is_pending |= learn(tune, each);
}

static void disconnect(struct events *events)
{
    /* Closing it alone would not do where a forked child has it open too. */
    epoll_ctl(events->epoll_fd, EPOLL_CTL_DEL, tune_descriptor(events->client), NULL);
    tune_disconnect(events->client);
    events->client = NULL;
    events->retry_at_ms = client_now_ms() + RETRY_MS;
}

static void connect_now(struct tune *tune, struct events *events)
{
    struct epoll_event interest = {.events = EPOLLIN};
    if (client_connect(tune->asked_path, HELLO_MS, &events->client, NULL) != 0) {
        events->client = NULL;
        events->retry_at_ms = client_now_ms() + RETRY_MS;
        return;
    }
    handle_note_there(tune, events->client);
    tune_set_timeout(events->client, HELLO_MS);
    if (tune_request(events->client, "watch", NULL, NULL, NULL) != 0 ||
        epoll_ctl(events->epoll_fd, EPOLL_CTL_ADD, tune_descriptor(events->client), &interest)) {
        disconnect(events);
        return;
    }
    check_all(tune, events);
}

/* Takes in what has come; connects where it is time to. */
static void catch_up(struct tune *tune, struct events *events)
{
    json_t *message;
    int got = 0;
    if (events->client == NULL && client_now_ms() >= events->retry_at_ms)
        connect_now(tune, events);
    while (events->client != NULL && (got = tune_next(events->client, 0, &message, NULL)) == 1) {
        on_message(events, message);
        json_decref(message);
    }
    if (got < 0)
        disconnect(events);
}

static struct subscription *find_pending(const struct events *events)
{
    struct subscription *each = events->first;
    while (each != NULL && !each->is_pending)
        each = each->next;
    return each;
}

/* Readable at once where something is pending, later where a daemon has to be looked for. */
static void arm(struct events *events)
{
    long long wait_ms = events->retry_at_ms - client_now_ms();
    struct itimerspec when = {0};
    if (find_pending(events) != NULL || (events->client == NULL && wait_ms <= 0))
        when.it_value.tv_nsec = 1;
    else if (events->client == NULL)
        when.it_value = (struct timespec){wait_ms / 1000, wait_ms % 1000 * 1000000 + 1};
    timerfd_settime(events->timer_fd, 0, &when, NULL);
}

/* --- creation --------------------------------------------------------------------------------- */

static struct events *events_create(struct tune_error *err)
{
    struct epoll_event interest = {.events = EPOLLIN};
    struct events *events = calloc(1, sizeof *events);
    if (events == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for subscriptions");
        return NULL;
    }
    events->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    events->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (events->epoll_fd >= 0 && events->timer_fd >= 0 &&
        epoll_ctl(events->epoll_fd, EPOLL_CTL_ADD, events->timer_fd, &interest) == 0)
        return events;
    tune_fail_errno(err, TUNE_EIO, "cannot make the descriptors of subscriptions");
    if (events->epoll_fd >= 0)
        close(events->epoll_fd);
    if (events->timer_fd >= 0)
        close(events->timer_fd);
    free(events);
    return NULL;
}

void handle_events_finish(struct tune *tune)
{
    struct events *events = tune->events;
    if (events == NULL)
        return;
    tune_disconnect(events->client);
    while (events->first != NULL) {
        struct subscription *each = events->first;
        events->first = each->next;
        free(each);
    }
    close(events->epoll_fd);
    close(events->timer_fd);
    free(events);
}

/* The lock is held on success, and only then. */
static struct events *events_lock(struct tune *tune, struct tune_error *err)
{
    if (handle_check_owner(tune, err))
        return NULL;
    pthread_mutex_lock(&tune->events_lock);
    if (tune->events == NULL)
        tune->events = events_create(err);
    if (tune->events == NULL)
        pthread_mutex_unlock(&tune->events_lock);
    return tune->events;
}

static void events_unlock(struct tune *tune)
{
    arm(tune->events);
    pthread_mutex_unlock(&tune->events_lock);
}

/* --- the public part -------------------------------------------------------------------------- */

/* Takes the subscription. */
static int add(struct events *events, struct subscription *new, struct tune_error *err)
{
    for (struct subscription *each = events->first; each != NULL; each = each->next)
        if (is_of(each, new->event.kernel, new->event.dtype, new->mode, new->event.shape)) {
            free(new);
            return 0;
        }
    if (events->count == SUBSCRIPTION_LIMIT) {
        free(new);
        return tune_fail(
            err, TUNE_ELIMIT, "a handle has at most %d subscriptions", SUBSCRIPTION_LIMIT);
    }
    new->next = events->first;
    events->first = new;
    events->count++;
    return 0;
}

int tune_subscribe(struct tune *tune, const struct tune_query *query, struct tune_error *err)
{
    struct tune_answer answer;
    struct tune_answer_info info;
    struct tune_query nearest = *query;
    nearest.policy = TUNE_NEAREST;
    nearest.session = NULL;
    struct events *events = events_lock(tune, err);
    if (events == NULL)
        return -1;
    catch_up(tune, events); /* watch first, ask then: nothing falls between */
    struct subscription *new = NULL;
    int status = tune_get(tune, &nearest, &answer, err);
    if (status == 0 && (new = subscription_create(query)) == NULL)
        status = tune_fail(err, TUNE_ENOMEM, "no memory for a subscription");
    if (status == 0) {
        tune_answer_info(&answer, &info);
        snprintf(new->event.kernel, sizeof new->event.kernel, "%s", info.kernel);
        snprintf(new->event.shape, sizeof new->event.shape, "%s", info.shape);
        snprintf(new->event.dtype, sizeof new->event.dtype, "%s", info.dtype);
        snprintf(new->mode, sizeof new->mode, "%s", info.mode);
        new->known = answer_hash(&answer);
        status = add(events, new, err);
    }
    events_unlock(tune);
    return status;
}

int tune_event_descriptor(struct tune *tune)
{
    const struct events *events = events_lock(tune, NULL);
    if (events == NULL)
        return -1;
    int descriptor = events->epoll_fd;
    events_unlock(tune);
    return descriptor;
}

/* 1 with an event, else 0. */
static int take_event(struct tune *tune, struct events *events, struct tune_event *event)
{
    struct subscription *pending = find_pending(events);
    if (pending == NULL)
        return 0;
    pending->is_pending = false;
    learn(tune, pending); /* or it would be told again after a restart */
    *event = pending->event;
    return 1;
}

int tune_next_event(
    struct tune *tune, int limit_ms, struct tune_event *event, struct tune_error *err)
{
    long long deadline = limit_ms < 0 ? -1 : client_now_ms() + limit_ms;
    for (;;) {
        struct events *events = events_lock(tune, err);
        if (events == NULL)
            return -1;
        catch_up(tune, events);
        int got = take_event(tune, events, event);
        struct pollfd news = {.fd = events->epoll_fd, .events = POLLIN};
        events_unlock(tune);
        int left_ms = handle_left_ms(deadline);
        if (got != 0 || left_ms == 0 || (poll(&news, 1, left_ms) < 0 && errno == EINTR))
            return got;
    }
}
