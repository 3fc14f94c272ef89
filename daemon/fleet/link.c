/* See link.h: the thread, its connection, its states, and what it says. */
#include "daemon/fleet/link_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define CONNECT_DEADLINE_MS 10000
#define PAUSE_FIRST_MS 200 /* after a failure; doubled up to the second, where */
#define PAUSE_LAST_MS 5000
#define PAUSE_REFUSED_FIRST_MS 1000 /* an operator has to do something */
#define PAUSE_REFUSED_LAST_MS 60000
#define NODE_MARK "fleet/node"

const char *link_state_word(enum link_state state)
{
    static const char *const words[] = {
#define X(name, word) [LINK_##name] = word,
        LINK_STATES(X)
#undef X
    };
    return words[state];
}

/* --- messages --------------------------------------------------------------------------------- */

struct link_message *link_message_new(enum link_word word, uint64_t token, int value)
{
    struct link_message *message = xcalloc(1, sizeof *message);
    message->word = word;
    message->token = token;
    message->value = value;
    return message;
}

void link_message_destroy(struct link_message *message)
{
    free(message->target);
    free(message->text);
    free(message);
}

static void queue_put(struct link_queue *queue, struct link_message *message)
{
    message->next = NULL;
    if (queue->first == NULL)
        queue->last = &queue->first;
    *queue->last = message;
    queue->last = &message->next;
}

static struct link_message *queue_take(struct link *link, struct link_queue *queue)
{
    uv_mutex_lock(&link->mutex);
    struct link_message *message = queue->first;
    if (message != NULL)
        queue->first = message->next;
    uv_mutex_unlock(&link->mutex);
    return message;
}

static void ring(int descriptor)
{
    uint64_t one = 1;
    ssize_t ignored = write(descriptor, &one, sizeof one);
    (void)ignored;
}

void link_kick(struct link *link)
{
    ring(link->wake_fd);
}

void link_tell(struct link *link, struct link_message *message)
{
    uv_mutex_lock(&link->mutex);
    queue_put(&link->to_link, message);
    uv_mutex_unlock(&link->mutex);
    link_kick(link);
}

struct link_message *link_hear(struct link *link)
{
    return queue_take(link, &link->to_loop);
}

void link_say_message(struct link *link, struct link_message *message)
{
    uv_mutex_lock(&link->mutex);
    queue_put(&link->to_loop, message);
    uv_mutex_unlock(&link->mutex);
    link->options.on_news(link->options.context);
}

void link_say(struct link *link, enum link_word word, uint64_t token, int value)
{
    link_say_message(link, link_message_new(word, token, value));
}

/* --- what is known of it ---------------------------------------------------------------------- */

static void copy_nodes(struct link_status *to, const struct link_status *from)
{
    to->nodes = xcalloc(from->node_count, sizeof *to->nodes);
    for (size_t i = 0; i < from->node_count; i++) {
        to->nodes[i] = from->nodes[i];
        to->nodes[i].host = xstrdup(from->nodes[i].host);
        to->nodes[i].targets = xstrdup(from->nodes[i].targets);
    }
}

void link_status(struct link *link, struct link_status *status)
{
    uv_mutex_lock(&link->mutex);
    *status = link->status;
    copy_nodes(status, &link->status);
    uv_mutex_unlock(&link->mutex);
}

void link_status_finish(struct link_status *status)
{
    for (size_t i = 0; i < status->node_count; i++) {
        free(status->nodes[i].host);
        free(status->nodes[i].targets);
    }
    free(status->nodes);
    status->nodes = NULL;
    status->node_count = 0;
}

bool link_is_stopping(struct link *link)
{
    uv_mutex_lock(&link->mutex);
    bool is_stopping = link->is_stopping;
    uv_mutex_unlock(&link->mutex);
    return is_stopping;
}

static void log_state(const struct link *link, enum link_state state, const char *why)
{
    switch (state) {
    case LINK_CONNECTING:
        if (why != NULL)
            log_warnx("fleet: %s; trying again", why);
        break;
    case LINK_COMPARING:
        log_info("fleet: connected as node %s", link->node);
        break;
    case LINK_FOLLOWING:
        log_info("fleet: up to date at change %llu", (unsigned long long)link->position);
        break;
    case LINK_FULL:
    case LINK_REFUSED:
        log_warnx("fleet: %s", why);
        break;
    case LINK_STOPPED:
        break;
    }
}

/* What a server says before it knows our encoding may be in any; what is no UTF-8 cannot be told to
 * a client. */
static void make_utf8(char *text)
{
    json_t *string = json_string(text);
    for (char *at = text; string == NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    json_decref(string);
}

/* One line in the log for each change, and for each new reason of being refused. */
void link_set_state(struct link *link, enum link_state state, const char *why)
{
    struct link_status *status = &link->status;
    const char *reason = why != NULL ? why : "";
    uv_mutex_lock(&link->mutex);
    bool is_first_failure = state == LINK_CONNECTING && why != NULL && status->error[0] == '\0';
    bool is_other_refusal = state == LINK_REFUSED && strcmp(status->error, reason) != 0;
    bool is_change = status->state != state || is_first_failure || is_other_refusal;
    if (status->state != state)
        status->since_ns = uv_hrtime();
    status->state = state;
    status->is_connected = state == LINK_FOLLOWING || state == LINK_FULL;
    snprintf(status->error, sizeof status->error, "%s", reason);
    make_utf8(status->error);
    uv_mutex_unlock(&link->mutex);
    if (!is_change)
        return;
    log_state(link, state, why);
    link->options.on_news(link->options.context);
}

static void note_progress(struct link *link)
{
    struct link_status *status = &link->status;
    uv_mutex_lock(&link->mutex);
    uint64_t now_ns = uv_hrtime();
    status->last_ok_ns = now_ns;
    status->position = link->position;
    status->head = link->head;
    if (!link->is_behind)
        status->behind_ns = 0;
    else if (status->behind_ns == 0)
        status->behind_ns = now_ns;
    uv_mutex_unlock(&link->mutex);
}

static void on_node(const struct engine_node *node, void *context)
{
    struct link_status *listed = context;
    listed->nodes = xrealloc(listed->nodes, (listed->node_count + 1) * sizeof *listed->nodes);
    struct link_node *copy = &listed->nodes[listed->node_count++];
    *copy = (struct link_node){
        .host = xstrdup(node->host),
        .targets = xstrdup(node->targets),
        .age_s = node->age_s,
        .position = node->position,
        .listed_ns = uv_hrtime(),
    };
    memcpy(copy->node, node->node, sizeof copy->node);
}

static int list_nodes(struct link *link, struct tune_error *err)
{
    struct link_status listed = {0};
    uint64_t rows = 0, head = 0;
    int status = link->options.engine->status(link->engine, on_node, &listed, &rows, &head, err);
    size_t nodes = listed.node_count;
    if (status == 0) {
        uv_mutex_lock(&link->mutex);
        struct link_status old = {
            .nodes = link->status.nodes, .node_count = link->status.node_count};
        link->status.nodes = listed.nodes;
        link->status.node_count = listed.node_count;
        link->status.rows = rows;
        uv_mutex_unlock(&link->mutex);
        listed = old;
        link->options.on_news(link->options.context);
    }
    link_status_finish(&listed);
    uint64_t pause_ms = LINK_STATUS_MS + LINK_STATUS_MS * nodes / 100;
    if (pause_ms > LINK_STATUS_LAST_MS)
        pause_ms = LINK_STATUS_LAST_MS;
    link->status_ns = uv_hrtime() + pause_ms * NS_PER_MS;
    return status;
}

/* --- the database ----------------------------------------------------------------------------- */

bool link_commit(struct link *link, struct tuning_db_batch *batch)
{
    struct tune_error err = {0};
    int status = tuning_db_commit(link->options.db, batch, &err);
    tuning_db_batch_destroy(batch);
    bool is_first = !link->cannot_store;
    link->cannot_store = status != 0;
    if (status == 0)
        return true;
    if (is_first)
        log_warnx("fleet: cannot store: %s; trying again", err.text);
    link->store_ns = uv_hrtime() + LINK_STORE_PAUSE_MS * NS_PER_MS;
    return false;
}

static void make_node(struct link *link)
{
    uint8_t random[16] = {0};
    ssize_t ignored = getrandom(random, sizeof random, 0);
    (void)ignored;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(link->node + 2 * i, 3, "%02x", random[i]);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    if (batch == NULL || tuning_db_batch_job(batch, NODE_MARK, link->node, 32))
        log_warnx("fleet: no memory to note this node's id");
    if (batch != NULL)
        link_commit(link, batch);
}

static void publish_node(struct link *link)
{
    uv_mutex_lock(&link->mutex);
    memcpy(link->status.node, link->node, sizeof link->node);
    uv_mutex_unlock(&link->mutex);
}

static void load_node(struct link *link)
{
    void *bytes = NULL;
    size_t count = 0;
    int found = tuning_db_job(link->options.db, NODE_MARK, &bytes, &count, NULL);
    if (found == 0 && count == 32 && strspn(bytes, "0123456789abcdef") == 32)
        memcpy(link->node, bytes, 33);
    else
        make_node(link);
    free(bytes);
    publish_node(link);
}

/* --- the turns -------------------------------------------------------------------------------- */

static int beat(struct link *link, struct tune_error *err)
{
    int status = link->options.engine->beat(link->engine, link->options.host,
        link->targets != NULL ? link->targets : "", link->position, err);
    link->beat_ns = uv_hrtime() + LINK_BEAT_MS * NS_PER_MS;
    if (status != 1)
        return status;
    make_node(link);
    publish_node(link);
    return tune_fail(err, TUNE_EIO,
        "another daemon goes by this node's id (its database is a copy of this one): this one "
        "takes the id %s",
        link->node);
}

int link_keep_up(struct link *link, struct tune_error *err)
{
    uint64_t now_ns = uv_hrtime();
    note_progress(link);
    if (now_ns >= link->beat_ns && beat(link, err))
        return -1;
    return link_renew(link, err);
}

static void hear_all(struct link *link)
{
    struct link_message *message;
    while ((message = queue_take(link, &link->to_link)) != NULL) {
        struct intake *old = link->intake;
        switch (message->word) {
        case LINK_INTAKE: /* goes back: it is destroyed where it was made */
            link->intake = message->intake;
            message->intake = old;
            link_say_message(link, message);
            continue;
        case LINK_DEVICES:
            free(link->targets);
            link->targets = message->text;
            message->text = NULL;
            link->beat_ns = 0;
            break;
        default:
            link_tasks_hear(link, message);
        }
        link_message_destroy(message);
    }
}

static void clear_wake(struct link *link)
{
    uint64_t count;
    ssize_t ignored = read(link->wake_fd, &count, sizeof count);
    (void)ignored;
}

/* The two sides are alike as far as each can know without comparing. */
static bool is_settled(const struct link *link)
{
    return !link->has_unsent && (!link->is_behind || link->is_full);
}

static void advance(uint64_t *due_ns, uint64_t to_ns)
{
    if (to_ns < *due_ns)
        *due_ns = to_ns;
}

static uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* Until the next thing that is due. */
static unsigned wait_ms(const struct link *link)
{
    uint64_t now_ns = uv_hrtime(), due_ns = link->beat_ns;
    advance(&due_ns, link->status_ns);
    advance(&due_ns, link->tasks_ns);
    if (is_settled(link))
        advance(&due_ns, later(link->compare_ns, link->store_ns));
    if (link->has_batch)
        advance(&due_ns, link->store_ns);
    else if (link->has_unsent)
        advance(&due_ns, later(link->store_ns, link->sent_ns + LINK_SEND_EVERY_MS * NS_PER_MS));
    if (link->is_behind && !link->is_full)
        advance(&due_ns, link->store_ns);
    return due_ns <= now_ns ? 0 : (unsigned)((due_ns - now_ns) / NS_PER_MS + 1);
}

static void show_state(struct link *link)
{
    if (link->is_full) {
        link_set_state(link, LINK_FULL,
            "rows of other machines are not taken any more: the database has reached the limit "
            "of --fleet-limit; raise it, or export the database and start anew");
        return;
    }
    bool was_full = link->status.state == LINK_FULL;
    if (link->compare_ns != 0 && (is_settled(link) || was_full))
        link_set_state(link, LINK_FOLLOWING, NULL);
}

static int turn(struct link *link, struct tune_error *err)
{
    clear_wake(link);
    hear_all(link);
    if (link_send(link, err) || link_take(link, err))
        return -1;
    bool is_due = uv_hrtime() >= link->compare_ns && uv_hrtime() >= link->store_ns;
    if (is_due && is_settled(link) && link_compare(link, err))
        return -1;
    show_state(link);
    if (link_tasks_turn(link, err) || link_keep_up(link, err))
        return -1;
    if (uv_hrtime() >= link->status_ns && list_nodes(link, err))
        return -1;
    int status = link->options.engine->wait(link->engine, link->wake_fd, wait_ms(link), err);
    link->has_news |= status == 1;
    return status < 0 ? -1 : 0;
}

static int serve(struct link *link, struct tune_error *err)
{
    link->beat_ns = link->status_ns = link->compare_ns = link->tasks_ns = 0;
    link->store_ns = link->sent_ns = link->drained_ns = 0;
    link->is_full = link->is_behind = link->has_batch = false;
    link->has_unsent = true;
    link->compare.next = 0;
    if (link_load_position(link, err))
        return -1;
    link_set_state(link, LINK_COMPARING, NULL);
    while (!link_is_stopping(link)) {
        if (turn(link, err))
            return -1;
        link->failures = 0;
    }
    return 0;
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool is_refusal(enum tune_code code)
{
    return code == TUNE_EPERM || code == TUNE_EVERSION || code == TUNE_EINVAL;
}

/* Doubled with each failure, with some chance in it so that a thousand daemons do not come back at
 * once. */
static unsigned pause_ms(const struct link *link, bool is_refused)
{
    unsigned last_ms = is_refused ? PAUSE_REFUSED_LAST_MS : PAUSE_LAST_MS;
    unsigned ms = is_refused ? PAUSE_REFUSED_FIRST_MS : PAUSE_FIRST_MS;
    uint8_t chance = 0;
    ssize_t ignored = getrandom(&chance, 1, 0);
    (void)ignored;
    for (unsigned i = 1; i < link->failures && ms < last_ms; i++)
        ms *= 2;
    if (ms > last_ms)
        ms = last_ms;
    return ms / 2 + ms * chance / 512;
}

static void pause_after(struct link *link, const struct tune_error *err)
{
    bool is_refused = is_refusal(err->code);
    struct pollfd stop = {.fd = link->stop_fd, .events = POLLIN};
    link->failures = is_refused == link->was_refused ? link->failures + 1 : 1;
    link->was_refused = is_refused;
    link_set_state(link, is_refused ? LINK_REFUSED : LINK_CONNECTING, err->text);
    poll(&stop, 1, (int)pause_ms(link, is_refused));
}

static void thread_main(void *argument)
{
    struct link *link = argument;
    load_node(link);
    while (!link_is_stopping(link)) {
        struct tune_error err = {0};
        hear_all(link);
        link->engine = link->options.engine->connect(
            link->options.url, link->node, link->stop_fd, CONNECT_DEADLINE_MS, &err);
        if (link->engine != NULL)
            serve(link, &err);
        link->options.engine->destroy(link->engine);
        link->engine = NULL;
        if (!link_is_stopping(link))
            pause_after(link, &err);
    }
    link_set_state(link, LINK_STOPPED, NULL);
    link_say(link, LINK_ENDED, 0, 0);
}

/* --- start and stop --------------------------------------------------------------------------- */

static void link_free(struct link *link)
{
    struct link_message *message;
    while ((message = queue_take(link, &link->to_link)) != NULL ||
           (message = queue_take(link, &link->to_loop)) != NULL) {
        intake_destroy(message->intake);
        link_message_destroy(message);
    }
    link_tasks_finish(link);
    link_status_finish(&link->status);
    intake_destroy(link->intake);
    if (link->wake_fd >= 0)
        close(link->wake_fd);
    if (link->stop_fd >= 0)
        close(link->stop_fd);
    uv_mutex_destroy(&link->mutex);
    free((char *)(uintptr_t)link->options.url);
    free((char *)(uintptr_t)link->options.host);
    free(link->targets);
    free(link);
}

struct link *link_start(
    const struct link_options *options, struct intake *intake, struct tune_error *err)
{
    struct link *link = xcalloc(1, sizeof *link);
    link->options = *options;
    link->options.url = xstrdup(options->url);
    link->options.host = xstrdup(options->host);
    link->intake = intake;
    link->status.since_ns = uv_hrtime();
    uv_mutex_init(&link->mutex);
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0 || link->stop_fd < 0) {
        tune_fail_errno(err, TUNE_EIO, "cannot start the link to the fleet");
    } else {
        int status = uv_thread_create(&link->thread, thread_main, link);
        if (status == 0)
            return link;
        tune_fail(err, TUNE_EIO, "cannot start the link's thread: %s", uv_strerror(status));
    }
    link_free(link);
    return NULL;
}

void link_ask_stop(struct link *link)
{
    uv_mutex_lock(&link->mutex);
    link->is_stopping = true;
    uv_mutex_unlock(&link->mutex);
    ring(link->stop_fd);
}

void link_destroy(struct link *link)
{
    uv_thread_join(&link->thread);
    link_free(link);
}
