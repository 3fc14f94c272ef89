/* See fleet.h: the loop's side of the fleet.
 *
 * Design. What the link's thread says comes through one async handle (on_news); nothing of it is
 * waited for. A task or a lease is known to both sides by its token; a message about one that is no
 * longer known is dropped, so that either side may forget first. The patience timer runs only while
 * tasks are being taken back: it ends those that nobody can tell us of. */
#include "daemon/fleet/fleet.h"

#include "daemon/fleet/link.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_CHECK_MS 250
#define HELPER_AGE_S 15.0 /* beats come every 2 s */
#define FREE_TARGETS_MAX 64

struct fleet_task {
    struct fleet *fleet;
    struct fleet_task *next;
    uint64_t token;
    bool is_taking_back;
    void (*on_end)(struct fleet_task *task, enum fleet_task_end end, void *context);
    void *context;
};

struct fleet_lease {
    struct fleet *fleet;
    struct fleet_lease *next;
    uint64_t token;
    bool is_lost;
};

struct fleet {
    struct fleet_deps deps; /* host and url are ours */
    char *shown_url;
    uv_async_t news;
    uv_timer_t patience;
    struct link *link;
    struct fleet_helper helper;
    bool has_helper;
    struct fleet_task *tasks;
    struct fleet_lease *leases;
    uint64_t last_token;       /* of a task, */
    uint64_t last_lease;       /* of a lease: given by the link */
    struct link_status status; /* as of the last news */
    int open_handles;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

static void take_status(struct fleet *fleet)
{
    link_status_finish(&fleet->status);
    link_status(fleet->link, &fleet->status);
}

static void tell(struct fleet *fleet, enum link_word word, uint64_t token, int value)
{
    link_tell(fleet->link, link_message_new(word, token, value));
}

/* --- asking others ---------------------------------------------------------------------------- */

void fleet_target_text(
    const char *arch, const char *gpu_name, unsigned sms, char *text, size_t room)
{
    snprintf(text, room, "%s|%s|%u", arch, gpu_name, sms);
}

/* Whether a line of `list` is this text. */
static bool has_line(const char *list, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = list; at != NULL && *at != '\0';) {
        const char *end = strchrnul(at, '\n');
        if ((size_t)(end - at) == length && memcmp(at, text, length) == 0)
            return true;
        at = *end == '\n' ? end + 1 : end;
    }
    return false;
}

static double node_age_s(const struct link_node *node)
{
    return node->age_s + (double)(uv_hrtime() - node->listed_ns) / 1e9;
}

size_t fleet_helpers(const struct fleet *fleet, const char *target)
{
    const struct link_status *status = &fleet->status;
    size_t count = 0;
    if (!status->is_connected)
        return 0;
    for (size_t i = 0; i < status->node_count; i++) {
        const struct link_node *node = &status->nodes[i];
        if (strcmp(node->node, status->node) != 0 && node_age_s(node) < HELPER_AGE_S &&
            has_line(node->targets, target))
            count++;
    }
    return count;
}

static void task_unlink(struct fleet_task *task)
{
    struct fleet_task **at = &task->fleet->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
}

static struct fleet_task *find_task(struct fleet *fleet, uint64_t token)
{
    struct fleet_task *task = fleet->tasks;
    while (task != NULL && task->token != token)
        task = task->next;
    return task;
}

static void task_end(struct fleet_task *task, enum fleet_task_end end)
{
    task_unlink(task);
    task->on_end(task, end, task->context);
    free(task);
}

struct fleet_task *fleet_offer(struct fleet *fleet, const char *target, json_t *payload,
    void (*on_end)(struct fleet_task *task, enum fleet_task_end end, void *context), void *context)
{
    char *text = json_dumps(payload, JSON_COMPACT);
    json_decref(payload);
    if (text == NULL || strlen(text) > ENGINE_PAYLOAD_LIMIT_BYTES || !fleet->status.is_connected) {
        free(text);
        return NULL;
    }
    struct fleet_task *task = xcalloc(1, sizeof *task);
    *task = (struct fleet_task){
        .fleet = fleet,
        .next = fleet->tasks,
        .token = ++fleet->last_token,
        .on_end = on_end,
        .context = context,
    };
    fleet->tasks = task;
    struct link_message *message = link_message_new(LINK_OFFER, task->token, 0);
    message->target = xstrdup(target);
    message->text = text;
    link_tell(fleet->link, message);
    return task;
}

void fleet_take_back(struct fleet_task *task)
{
    struct fleet *fleet = task->fleet;
    if (task->is_taking_back)
        return;
    task->is_taking_back = true;
    tell(fleet, LINK_TAKE_BACK, task->token, 0);
    if (!uv_is_active((uv_handle_t *)&fleet->patience))
        uv_timer_again(&fleet->patience);
}

void fleet_withdraw(struct fleet_task *task)
{
    tell(task->fleet, LINK_WITHDRAW, task->token, 0);
    task_unlink(task);
    free(task);
}

static struct fleet_task *first_taken_back(struct fleet *fleet)
{
    struct fleet_task *task = fleet->tasks;
    while (task != NULL && !task->is_taking_back)
        task = task->next;
    return task;
}

/* An end may offer or withdraw others, so the list is searched anew each time. */
static void on_patience(uv_timer_t *timer)
{
    struct fleet *fleet = timer->data;
    struct fleet_task *task;
    take_status(fleet);
    uint64_t silent_ns = uv_hrtime() - fleet->status.last_ok_ns;
    bool is_over = silent_ns / 1000000 >= FLEET_TASK_PATIENCE_MS;
    while (is_over && (task = first_taken_back(fleet)) != NULL) {
        tell(fleet, LINK_WITHDRAW, task->token, 0);
        task_end(task, FLEET_TASK_TAKEN_BACK);
    }
    if (first_taken_back(fleet) == NULL)
        uv_timer_stop(timer);
}

/* --- helping others --------------------------------------------------------------------------- */

void fleet_set_helper(struct fleet *fleet, const struct fleet_helper *helper)
{
    fleet->has_helper = helper != NULL;
    fleet->helper = helper != NULL ? *helper : (struct fleet_helper){0};
}

static char *join_lines(const char *const *texts)
{
    char *joined = xstrdup("");
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        char *longer = xasprintf("%s%s%s", joined, i > 0 ? "\n" : "", texts[i]);
        free(joined);
        joined = longer;
    }
    return joined;
}

static void say_what_is_free(struct fleet *fleet)
{
    const char *targets[FREE_TARGETS_MAX + 1] = {NULL};
    if (!fleet->has_helper || fleet->on_stopped != NULL)
        return;
    fleet->helper.free_targets(targets, FREE_TARGETS_MAX + 1, fleet->helper.context);
    if (targets[0] == NULL)
        return;
    struct link_message *message = link_message_new(LINK_FREE, fleet->last_lease, 0);
    message->text = join_lines(targets);
    link_tell(fleet->link, message);
}

void fleet_devices_changed(struct fleet *fleet, const char *const *all_targets)
{
    struct link_message *message = link_message_new(LINK_DEVICES, 0, 0);
    message->text = join_lines(all_targets);
    link_tell(fleet->link, message);
    say_what_is_free(fleet);
}

static struct fleet_lease *find_lease(struct fleet *fleet, uint64_t token)
{
    struct fleet_lease *lease = fleet->leases;
    while (lease != NULL && lease->token != token)
        lease = lease->next;
    return lease;
}

static void start_lease(struct fleet *fleet, const struct link_message *message)
{
    json_t *payload = json_loads(message->text, JSON_REJECT_DUPLICATES, NULL);
    fleet->last_lease = message->token;
    if (payload == NULL || !fleet->has_helper || fleet->on_stopped != NULL) {
        tell(fleet, LINK_LEASE_END, message->token, true);
        json_decref(payload);
        return;
    }
    struct fleet_lease *lease = xcalloc(1, sizeof *lease);
    *lease = (struct fleet_lease){.fleet = fleet, .next = fleet->leases, .token = message->token};
    fleet->leases = lease;
    fleet->helper.on_lease(lease, payload, fleet->helper.context);
    json_decref(payload);
}

static void lose_lease(struct fleet *fleet, uint64_t token)
{
    struct fleet_lease *lease = find_lease(fleet, token);
    if (lease == NULL || lease->is_lost)
        return;
    lease->is_lost = true;
    if (fleet->has_helper)
        fleet->helper.on_lost(lease, fleet->helper.context);
}

void fleet_lease_end(struct fleet_lease *lease, bool has_failed)
{
    struct fleet *fleet = lease->fleet;
    struct fleet_lease **at = &fleet->leases;
    while (*at != lease)
        at = &(*at)->next;
    *at = lease->next;
    tell(fleet, LINK_LEASE_END, lease->token, has_failed);
    free(lease);
    say_what_is_free(fleet);
}

/* --- news ------------------------------------------------------------------------------------- */

static void end_thread(struct fleet *fleet);

static void hear(struct fleet *fleet, struct link_message *message)
{
    struct fleet_task *task;
    switch (message->word) {
    case LINK_TASK_END:
        task = find_task(fleet, message->token);
        if (task != NULL)
            task_end(task, (enum fleet_task_end)message->value);
        break;
    case LINK_LEASE:
        start_lease(fleet, message);
        break;
    case LINK_LOST:
        lose_lease(fleet, message->token);
        break;
    case LINK_WANT_FREE:
        say_what_is_free(fleet);
        break;
    case LINK_INTAKE:
        intake_destroy(message->intake);
        break;
    case LINK_ENDED:
        end_thread(fleet);
        break;
    default:
        assert(!"a word for the other side");
    }
}

static void on_news(uv_async_t *async)
{
    struct fleet *fleet = async->data;
    struct link_message *message;
    take_status(fleet);
    while (fleet->link != NULL && (message = link_hear(fleet->link)) != NULL) {
        hear(fleet, message);
        link_message_destroy(message);
    }
}

static void tell_news(void *context)
{
    struct fleet *fleet = context;
    uv_async_send(&fleet->news);
}

void fleet_registry_changed(struct fleet *fleet)
{
    struct link_message *message = link_message_new(LINK_INTAKE, 0, 0);
    message->intake = intake_create(fleet->deps.registry);
    link_tell(fleet->link, message);
}

void fleet_kick(struct fleet *fleet)
{
    link_kick(fleet->link);
}

const char *fleet_node(const struct fleet *fleet)
{
    return fleet->status.node;
}

/* --- start and stop --------------------------------------------------------------------------- */

static void fleet_free(struct fleet *fleet)
{
    link_status_finish(&fleet->status);
    free((char *)(uintptr_t)fleet->deps.host);
    free((char *)(uintptr_t)fleet->deps.url);
    free(fleet->shown_url);
    free(fleet);
}

struct fleet *fleet_create(const struct fleet_deps *deps, struct tune_error *err)
{
    const struct engine_ops *engine = engine_find(deps->url, err);
    if (engine == NULL)
        return NULL;
    struct fleet *fleet = xcalloc(1, sizeof *fleet);
    fleet->deps = *deps;
    fleet->deps.host = xstrdup(deps->host);
    fleet->deps.url = xstrdup(deps->url);
    fleet->shown_url = engine->show(deps->url);
    uv_async_init(deps->loop, &fleet->news, on_news);
    uv_timer_init(deps->loop, &fleet->patience);
    fleet->news.data = fleet->patience.data = fleet;
    uv_timer_start(&fleet->patience, on_patience, PATIENCE_CHECK_MS, PATIENCE_CHECK_MS);
    uv_timer_stop(&fleet->patience);
    struct link_options options = {
        .engine = engine,
        .url = deps->url,
        .host = deps->host,
        .db = deps->db,
        .shares_emulated = deps->shares_emulated,
        .limit_bytes = deps->limit_bytes,
        .on_news = tell_news,
        .context = fleet,
    };
    fleet->link = link_start(&options, intake_create(deps->registry), err);
    if (fleet->link == NULL)
        return NULL; /* only at start: the program ends */
    take_status(fleet);
    return fleet;
}

const char *fleet_schema(void)
{
    return engines[0] != NULL ? engines[0]->schema : NULL;
}

static void on_closed(uv_handle_t *handle)
{
    struct fleet *fleet = handle->data;
    if (--fleet->open_handles > 0)
        return;
    void (*on_stopped)(void *) = fleet->on_stopped;
    void *context = fleet->stopped_context;
    fleet_free(fleet);
    on_stopped(context);
}

static void end_thread(struct fleet *fleet)
{
    link_destroy(fleet->link);
    fleet->link = NULL;
    fleet->open_handles = 2;
    uv_close((uv_handle_t *)&fleet->news, on_closed);
    uv_close((uv_handle_t *)&fleet->patience, on_closed);
}

void fleet_stop(struct fleet *fleet, void (*on_stopped)(void *context), void *context)
{
    assert(fleet->tasks == NULL && fleet->leases == NULL); /* their owners end first */
    fleet->on_stopped = on_stopped;
    fleet->stopped_context = context;
    link_ask_stop(fleet->link);
}

/* --- for people ------------------------------------------------------------------------------- */

static json_t *nodes_json(const struct link_status *status)
{
    json_t *list = json_array();
    for (size_t i = 0; i < status->node_count; i++) {
        const struct link_node *node = &status->nodes[i];
        json_array_append_new(list,
            json_pack("{s:s, s:s, s:s, s:f, s:I, s:b}", "node", node->node, "host", node->host,
                "targets", node->targets, "age_s", node_age_s(node), "position",
                (json_int_t)node->position, "is_this", strcmp(node->node, status->node) == 0));
    }
    return list;
}

json_t *fleet_to_json(const struct fleet *fleet)
{
    struct link_status status;
    size_t outbox = 0;
    tuning_db_outbox_count(fleet->deps.db, &outbox, NULL);
    link_status(fleet->link, &status);
    uint64_t now_ns = uv_hrtime();
    double lag_s = status.behind_ns != 0 ? (double)(now_ns - status.behind_ns) / 1e9 : 0;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:f, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:o}", "url",
            fleet->shown_url, "node", status.node, "state", link_state_word(status.state),
            "since_s", (double)(now_ns - status.since_ns) / 1e9, "error", status.error, "outbox",
            (json_int_t)outbox, "position", (json_int_t)status.position, "head",
            (json_int_t)status.head, "rows", (json_int_t)status.rows, "lag_s", lag_s, "sent",
            (json_int_t)status.sent, "taken", (json_int_t)status.taken, "refused",
            (json_int_t)status.refused, "nodes", nodes_json(&status));
    link_status_finish(&status);
    return json;
}
