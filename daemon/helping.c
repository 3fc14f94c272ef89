/* See helping.h. */
#include "daemon/helping.h"

#include "daemon/fleet/fleet.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64 /* that are offered */

/* A lease and what is done for it. */
struct help {
    struct helping *helping;
    struct help *next;
    struct fleet_lease *lease;
    struct tuning *tuning; /* NULL: it has ended, and its last rows are on their way to the disk */
    size_t device;
    bool has_failed, is_wanted; /* wanted: its device is to be given back */
    size_t asked, evaluations;
    char job[JOB_ID_BYTES];
};

struct helping {
    struct helping_deps deps;
    struct help *first;
    size_t done, failed, refused, lost, evaluations;
    char targets[DEVICES_MAX][FLEET_TARGET_BYTES]; /* as they were told last */
};

static struct help *help_on(const struct helping *helping, size_t device)
{
    struct help *help = helping->first;
    while (help != NULL && help->device != device)
        help = help->next;
    return help;
}

/* --- devices ---------------------------------------------------------------------------------- */

static bool can_measure(const struct helping *helping, size_t device)
{
    const struct sched *sched = helping->deps.tuning.sched;
    const char *reason;
    const char *state = sched_device_state(sched, device, &reason);
    return strcmp(state, "offline") != 0 && strcmp(state, "busy") != 0;
}

static bool is_free(const struct helping *helping, size_t device)
{
    return can_measure(helping, device) && help_on(helping, device) == NULL &&
           jobs_leave_free(helping->deps.jobs, device);
}

static void device_target(const struct helping *helping, size_t device, char *text)
{
    const struct device_info *info = sched_device(helping->deps.tuning.sched, device);
    fleet_target_text(
        info->arch, info->name, (unsigned)info->attributes[DEVICE_sms], text, FLEET_TARGET_BYTES);
}

/* Lists the targets of devices, each once for each device, NULL-ended; borrowed until the next
 * call. */
static void list_targets(struct helping *helping, bool only_free, const char **targets, size_t room)
{
    const struct sched *sched = helping->deps.tuning.sched;
    size_t count = 0;
    bool can_compile = sched_is_ready(sched) && sched_compiler(sched)->error[0] == '\0';
    for (size_t i = 0; can_compile && i < sched_device_count(sched) && count + 1 < room; i++) {
        if (count == DEVICES_MAX || (only_free && !is_free(helping, i)))
            continue;
        device_target(helping, i, helping->targets[count]);
        targets[count] = helping->targets[count];
        count++;
    }
    targets[count] = NULL;
}

static void free_targets(const char **targets, size_t room, void *context)
{
    list_targets(context, true, targets, room);
}

void helping_kick(struct helping *helping)
{
    const char *targets[DEVICES_MAX + 1];
    list_targets(helping, false, targets, DEVICES_MAX + 1);
    fleet_devices_changed(helping->deps.tuning.fleet, targets);
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool is_any_wanted(const struct helping *helping)
{
    for (const struct help *help = helping->first; help != NULL; help = help->next)
        if (help->is_wanted)
            return true;
    return false;
}

static void remove_help(struct help *help)
{
    struct help **at = &help->helping->first;
    while (*at != help)
        at = &(*at)->next;
    *at = help->next;
}

static void on_committed(const struct tune_error *err, void *context)
{
    struct help *help = context;
    struct helping *helping = help->helping;
    bool has_failed = help->has_failed || err != NULL;
    log_debug("helped with %s: %zu of %zu configurations%s", help->job, help->evaluations,
        help->asked, has_failed ? ", then it was broken off or failed" : "");
    helping->done += !has_failed;
    helping->failed += has_failed;
    helping->evaluations += help->evaluations;
    bool was_wanted = help->is_wanted;
    remove_help(help);
    fleet_lease_end(help->lease, has_failed);
    free(help);
    if (was_wanted && !is_any_wanted(helping))
        helping->deps.on_returned(helping->deps.context);
}

static void on_progress(const struct tuning_progress *progress, void *context)
{
    struct help *help = context;
    help->evaluations = progress->done;
}

static void on_done(
    enum tuning_end end, const struct tune_error *err, json_t *result, void *context)
{
    struct help *help = context;
    (void)result;
    if (end == TUNING_FAILED)
        log_warnx("helping with %s failed: %s", help->job, err->text);
    help->tuning = NULL;
    help->has_failed = end != TUNING_DONE;
    writer_after_commit(help->helping->deps.tuning.writer, on_committed, help);
}

/* --- leases ----------------------------------------------------------------------------------- */

/* A free device of the target; SIZE_MAX: there is none. */
static size_t find_device(const struct helping *helping, const char *target)
{
    const struct sched *sched = helping->deps.tuning.sched;
    char text[FLEET_TARGET_BYTES];
    for (size_t i = 0; sched_is_ready(sched) && i < sched_device_count(sched); i++) {
        device_target(helping, i, text);
        if (strcmp(text, target) == 0 && is_free(helping, i))
            return i;
    }
    return SIZE_MAX;
}

static void start(struct helping *helping, struct fleet_lease *lease,
    struct helping_request *request, size_t device)
{
    struct help *help = xcalloc(1, sizeof *help);
    struct tuning_callbacks callbacks = {on_progress, on_done, help};
    help->helping = helping;
    help->lease = lease;
    help->device = device;
    help->asked = request->spec.help.count;
    snprintf(help->job, sizeof help->job, "%s", request->spec.job);
    help->next = helping->first;
    helping->first = help;
    request->spec.device_count = 1;
    request->spec.devices[0] = device;
    log_debug("helping with %s: %zu configurations of %s on device %d", help->job, help->asked,
        request->spec.plugin->manifest->name,
        sched_device(helping->deps.tuning.sched, device)->ordinal);
    help->tuning = tuning_start(&helping->deps.tuning, &request->spec, &callbacks);
}

static void on_lease(struct fleet_lease *lease, const json_t *payload, void *context)
{
    struct helping *helping = context;
    struct helping_request request;
    struct tune_error err = {0};
    size_t device = SIZE_MAX;
    if (helping_parse(helping->deps.registry, payload, &request, &err)) {
        log_warnx("another machine's batch is refused: %s", err.text);
        helping->refused++;
    } else {
        device = find_device(helping, request.target);
        helping->failed += device == SIZE_MAX; /* a sweep of ours has begun meanwhile */
    }
    if (device == SIZE_MAX)
        fleet_lease_end(lease, true);
    else
        start(helping, lease, &request, device);
}

static void break_off(struct help *help)
{
    if (help->tuning != NULL)
        tuning_cancel(help->tuning);
}

static void on_lost(struct fleet_lease *lease, void *context)
{
    struct helping *helping = context;
    for (struct help *help = helping->first; help != NULL; help = help->next) {
        if (help->lease != lease)
            continue;
        helping->lost++;
        break_off(help);
        return;
    }
}

/* --- public ----------------------------------------------------------------------------------- */

struct helping *helping_create(const struct helping_deps *deps)
{
    struct helping *helping = xcalloc(1, sizeof *helping);
    helping->deps = *deps;
    struct fleet_helper helper = {free_targets, on_lease, on_lost, helping};
    fleet_set_helper(deps->tuning.fleet, &helper);
    return helping;
}

void helping_destroy(struct helping *helping)
{
    if (helping == NULL)
        return;
    fleet_set_helper(helping->deps.tuning.fleet, NULL);
    while (helping->first != NULL) {
        struct help *help = helping->first;
        helping->first = help->next;
        if (help->tuning != NULL)
            tuning_abandon(help->tuning);
        writer_forget(helping->deps.tuning.writer, help);
        fleet_lease_end(help->lease, true);
        free(help);
    }
    free(helping);
}

bool helping_has(struct helping *helping, size_t device, bool is_wanted)
{
    struct help *help = help_on(helping, device);
    if (help == NULL)
        return false;
    if (is_wanted && !help->is_wanted) {
        help->is_wanted = true;
        break_off(help);
    }
    return true;
}

bool helping_is_active(const struct helping *helping)
{
    return helping->first != NULL;
}

json_t *helping_to_json(const struct helping *helping)
{
    size_t running = 0;
    for (const struct help *help = helping->first; help != NULL; help = help->next)
        running++;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "running", (json_int_t)running, "done",
        (json_int_t)helping->done, "failed", (json_int_t)helping->failed, "refused",
        (json_int_t)helping->refused, "lost", (json_int_t)helping->lost, "evaluations",
        (json_int_t)helping->evaluations);
}
