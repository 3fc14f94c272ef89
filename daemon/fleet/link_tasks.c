/* Sweeps spread over machines: the batches that this node asks others to measure, and the leases on
 * those of others.
 *
 * An asked batch ends here when the engine says so and its rows are in our database; it is then
 * deleted in the engine. A lease ends when its rows are in the engine, which is when the outbox has
 * been empty after the helper said that it is done. */
#include "daemon/fleet/link_internal.h"

#include "daemon/fleet/fleet.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_MS 1000 /* without news: a lease that ran out makes none */
#define LOOK_PAUSE_MS 100  /* with news */
#define TARGETS_MAX 64

/* --- what the loop says ----------------------------------------------------------------------- */

static void add_asked(struct link *link, struct link_message *message)
{
    struct link_asked *asked = xcalloc(1, sizeof *asked), **last = &link->asked;
    *asked = (struct link_asked){
        .token = message->token, .target = message->target, .payload = message->text};
    message->target = message->text = NULL;
    while (*last != NULL)
        last = &(*last)->next;
    *last = asked;
}

static struct link_asked *find_asked(const struct link *link, uint64_t token)
{
    struct link_asked *asked = link->asked;
    while (asked != NULL && asked->token != token)
        asked = asked->next;
    return asked;
}

static void end_lease(struct link *link, const struct link_message *message)
{
    struct link_lease *lease = link->leases;
    while (lease != NULL && lease->token != message->token)
        lease = lease->next;
    if (lease == NULL)
        return;
    lease->has_ended = true;
    lease->has_failed = message->value != 0;
    lease->ended_ns = uv_hrtime();
    link->has_unsent = true; /* so that the outbox is looked at once more */
}

void link_tasks_hear(struct link *link, struct link_message *message)
{
    struct link_asked *asked = find_asked(link, message->token);
    switch (message->word) {
    case LINK_OFFER:
        add_asked(link, message);
        break;
    case LINK_TAKE_BACK:
        if (asked != NULL)
            asked->is_taken_back = true;
        link->tasks_ns = 0;
        break;
    case LINK_WITHDRAW:
        if (asked != NULL)
            asked->is_withdrawn = true;
        break;
    case LINK_LEASE_END:
        end_lease(link, message);
        break;
    case LINK_FREE:
        if (message->token != link->last_token)
            break; /* a lease is on its way to what was free: it is said again after that one */
        free(link->free_targets);
        link->free_targets = message->text;
        message->text = NULL;
        break;
    default:
        break; /* the others are link.c's */
    }
}

/* --- asking ----------------------------------------------------------------------------------- */

static void asked_free(struct link_asked *asked)
{
    free(asked->target);
    free(asked->payload);
    free(asked);
}

static int offer(
    struct link *link, struct link_asked *asked, bool *has_ended, struct tune_error *err)
{
    struct tune_error why = {0};
    int status = link->options.engine->offer(
        link->engine, asked->target, asked->payload, &asked->task, &why);
    *has_ended = status != 0 && why.code == TUNE_EINVAL;
    if (status == 0 || *has_ended)
        return 0;
    return tune_fail(err, why.code, "%s", why.text);
}

/* What became of a batch; *has_ended with the end that it has. */
static int look_at(struct link *link, const struct link_asked *asked, bool *has_ended,
    enum fleet_task_end *end, struct tune_error *err)
{
    enum engine_task_state state;
    uint64_t done_seq;
    int status;
    if (link->options.engine->task_state(link->engine, asked->task, &state, &done_seq, err))
        return -1;
    switch (state) {
    case ENGINE_TASK_WAITING:
        if (!asked->is_taken_back)
            return 0;
        status = link->options.engine->take_back(link->engine, asked->task, err);
        *has_ended = status == 0;
        return status < 0 ? -1 : 0;
    case ENGINE_TASK_LEASED:
        return 0;
    case ENGINE_TASK_DONE:
    case ENGINE_TASK_FAILED:
        *has_ended = link->is_full || done_seq <= link->position;
        if (!link->is_full)
            *end = state == ENGINE_TASK_DONE ? FLEET_TASK_DONE : FLEET_TASK_FAILED;
        if (*has_ended)
            return link->options.engine->withdraw(link->engine, asked->task, err);
        return 0;
    case ENGINE_TASK_GONE:
        *has_ended = true;
        return 0;
    }
    return 0;
}

static int attend(struct link *link, struct link_asked *asked, bool is_time, bool *is_over,
    struct tune_error *err)
{
    enum fleet_task_end end = FLEET_TASK_TAKEN_BACK;
    if (asked->is_withdrawn) {
        *is_over = true;
        return asked->task != 0 ? link->options.engine->withdraw(link->engine, asked->task, err)
                                : 0;
    }
    int status = 0;
    if (asked->task == 0 && asked->is_taken_back)
        *is_over = true;
    else if (asked->task == 0)
        status = offer(link, asked, is_over, err);
    else if (is_time)
        status = look_at(link, asked, is_over, &end, err);
    if (status == 0 && *is_over)
        link_say(link, LINK_TASK_END, asked->token, end);
    return status;
}

static int attend_all(struct link *link, bool is_time, struct tune_error *err)
{
    for (struct link_asked **at = &link->asked; *at != NULL;) {
        struct link_asked *asked = *at;
        bool is_over = false;
        if (attend(link, asked, is_time, &is_over, err))
            return -1;
        if (is_over) {
            *at = asked->next;
            asked_free(asked);
        } else {
            at = &asked->next;
        }
    }
    return 0;
}

/* --- helping ---------------------------------------------------------------------------------- */

static void add_lease(struct link *link, const struct engine_task *task)
{
    struct link_lease *lease = xcalloc(1, sizeof *lease);
    *lease = (struct link_lease){
        .next = link->leases,
        .token = ++link->last_token,
        .task = task->id,
        .renew_ns = uv_hrtime() + FLEET_LEASE_MS / 3 * NS_PER_MS,
    };
    /* A lease of ours that ran out may come to us again: the older one is not to be ended twice. */
    for (struct link_lease *old = link->leases; old != NULL; old = old->next)
        if (old->task == task->id && !old->is_lost) {
            old->is_lost = true;
            link_say(link, LINK_LOST, old->token, 0);
        }
    link->leases = lease;
    struct link_message *message = link_message_new(LINK_LEASE, lease->token, 0);
    message->text = xstrdup(task->payload);
    link_say_message(link, message);
}

/* One lease for what is free; the loop is then asked what is free still. */
static int take_lease(struct link *link, struct tune_error *err)
{
    const char *targets[TARGETS_MAX + 1] = {NULL};
    size_t count = 0;
    char *lines = link->free_targets, *rest = lines, *line;
    link->free_targets = NULL;
    while (count < TARGETS_MAX && (line = strsep(&rest, "\n")) != NULL)
        targets[count++] = line;
    struct engine_task task = {0};
    int status = link->options.engine->lease(link->engine, targets, FLEET_LEASE_MS, &task, err);
    free(lines);
    if (status == 0) {
        add_lease(link, &task);
        link_say(link, LINK_WANT_FREE, 0, 0);
        engine_task_finish(&task);
    }
    return status < 0 ? -1 : 0;
}

static int complete_all(struct link *link, struct tune_error *err)
{
    for (struct link_lease **at = &link->leases; *at != NULL;) {
        struct link_lease *lease = *at;
        bool is_over = lease->has_ended && (lease->is_lost || link->drained_ns >= lease->ended_ns);
        if (is_over && !lease->is_lost &&
            link->options.engine->complete(link->engine, lease->task, lease->has_failed, err) < 0)
            return -1;
        if (is_over) {
            *at = lease->next;
            free(lease);
        } else {
            at = &lease->next;
        }
    }
    return 0;
}

int link_renew(struct link *link, struct tune_error *err)
{
    for (struct link_lease *lease = link->leases; lease != NULL; lease = lease->next) {
        uint64_t now_ns = uv_hrtime();
        if (lease->is_lost || now_ns < lease->renew_ns)
            continue;
        int status = link->options.engine->renew(link->engine, lease->task, FLEET_LEASE_MS, err);
        if (status < 0)
            return -1;
        lease->renew_ns = now_ns + FLEET_LEASE_MS / 3 * NS_PER_MS;
        lease->is_lost = status == 1;
        if (lease->is_lost)
            link_say(link, LINK_LOST, lease->token, 0);
    }
    return 0;
}

/* --- one turn --------------------------------------------------------------------------------- */

/* Whether tasks are to be looked at: there was news, or it is time anyway. */
static bool is_time_to_look(struct link *link)
{
    uint64_t now_ns = uv_hrtime();
    if (link->has_news && now_ns < link->tasks_ns) {
        uint64_t soon_ns = link->looked_ns + LOOK_PAUSE_MS * NS_PER_MS;
        link->tasks_ns = soon_ns < link->tasks_ns ? soon_ns : link->tasks_ns;
    }
    if (now_ns < link->tasks_ns)
        return false;
    link->has_news = false;
    link->looked_ns = now_ns;
    link->tasks_ns = now_ns + LOOK_EVERY_MS * NS_PER_MS;
    return true;
}

int link_tasks_turn(struct link *link, struct tune_error *err)
{
    bool is_time = is_time_to_look(link);
    if (is_time)
        link_say(link, LINK_WANT_FREE, 0, 0);
    if (attend_all(link, is_time, err) || complete_all(link, err))
        return -1;
    return link->free_targets != NULL ? take_lease(link, err) : 0;
}

void link_tasks_finish(struct link *link)
{
    while (link->asked != NULL) {
        struct link_asked *next = link->asked->next;
        asked_free(link->asked);
        link->asked = next;
    }
    while (link->leases != NULL) {
        struct link_lease *next = link->leases->next;
        free(link->leases);
        link->leases = next;
    }
    free(link->free_targets);
}
