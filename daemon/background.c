/* See background.h. */
#include "daemon/background.h"

#include "daemon/log.h"
#include "daemon/sched_internal.h"
#include "daemon/worker.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

struct background {
    uv_loop_t *loop;
    const struct sched *sched;
    struct background_options options;
    uv_timer_t timer; /* until the next look */
    struct worker *looker;
    uint64_t looked_at_ms;
    bool has_looked, is_stopping, is_timer_closed;
    unsigned idle_looks[SCHED_DEVICES_MAX]; /* in a row */
    void (*on_looked)(void *context);
    void *context;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

struct background *background_create(uv_loop_t *loop, const struct sched *sched,
    const struct background_options *options, void (*on_looked)(void *context), void *context)
{
    struct background *background = xcalloc(1, sizeof *background);
    background->loop = loop;
    background->sched = sched;
    background->options = *options;
    background->on_looked = on_looked;
    background->context = context;
    uv_timer_init(loop, &background->timer);
    background->timer.data = background;
    return background;
}

/* --- looking ---------------------------------------------------------------------------------- */

/* What NVML says of a device; NULL: nothing. */
static const json_t *find_load(const json_t *list, const char *uuid)
{
    size_t i;
    const json_t *load;
    json_array_foreach ((json_t *)(uintptr_t)list, i, load) {
        const char *named = json_string_value(json_object_get(load, "uuid"));
        if (named != NULL && strcmp(named, uuid) == 0)
            return load;
    }
    return NULL;
}

static bool is_idle_by(const struct background *background, const json_t *load)
{
    return json_number_value(json_object_get(load, "busy_percent")) <=
               background->options.busy_percent &&
           json_number_value(json_object_get(load, "memory_percent")) <=
               background->options.memory_percent;
}

static void take_loads(struct background *background, const json_t *list)
{
    size_t count = sched_device_count(background->sched);
    for (size_t i = 0; i < count; i++) {
        const struct device_info *device = sched_device(background->sched, i);
        const json_t *load = find_load(list, device->uuid);
        unsigned *looks = &background->idle_looks[i];
        if (load == NULL)
            *looks = BACKGROUND_LOOKS;
        else
            *looks = is_idle_by(background, load) ? *looks + 1 : 0;
        if (load != NULL && *looks == 0)
            log_debug("device %d is busy: %g %% at work, %g %% of its memory in use",
                device->ordinal, json_number_value(json_object_get(load, "busy_percent")),
                json_number_value(json_object_get(load, "memory_percent")));
    }
}

static void on_message(struct worker *worker, json_t *message, void *context)
{
    struct background *background = context;
    worker_stop(worker); /* it has said all */
    const char *error = sched_hello_error(message, "load");
    if (error != NULL)
        log_warnx("cannot tell whether the GPUs are busy: %s", error);
    take_loads(background, error ? NULL : json_object_get(message, "devices"));
    background->has_looked = true;
}

static void maybe_stopped(struct background *background)
{
    if (!background->is_stopping || !background->is_timer_closed || background->looker != NULL)
        return;
    void (*on_stopped)(void *) = background->on_stopped;
    void *context = background->stopped_context;
    free(background);
    on_stopped(context);
}

static void end_look(struct background *background)
{
    if (!background->has_looked)
        take_loads(background, NULL);
    background->has_looked = true;
    background->looked_at_ms = uv_now(background->loop);
    background->on_looked(background->context);
}

static void on_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct background *background = context;
    (void)worker;
    background->looker = NULL;
    if (background->is_stopping) {
        maybe_stopped(background);
        return;
    }
    if (!background->has_looked)
        log_warnx("cannot tell whether the GPUs are busy: %s", end->why);
    end_look(background);
}

/* NVML knows devices by their UUIDs. */
static char *list_uuids(const struct sched *sched)
{
    char *list = xstrdup("");
    for (size_t i = 0; i < sched_device_count(sched); i++) {
        char *longer = xasprintf("%s%s%s", list, i ? "," : "", sched_device(sched, i)->uuid);
        free(list);
        list = longer;
    }
    return list;
}

static void on_timer(uv_timer_t *timer)
{
    struct background *background = timer->data;
    char *uuids = list_uuids(background->sched);
    const char *argv[] = {background->options.worker_path, "load", "--device", uuids, NULL};
    struct worker_options options = {
        .argv = argv,
        .env = background->options.env,
        .hello_deadline_ms = SCHED_HELLO_DEADLINE_MS,
    };
    struct worker_callbacks callbacks = {on_message, on_done, background};
    struct tune_error err = {0};
    background->has_looked = false;
    background->looker = worker_start(background->loop, &options, &callbacks, &err);
    free(uuids);
    if (background->looker == NULL) {
        log_warnx("cannot tell whether the GPUs are busy: %s", err.text);
        end_look(background);
    }
}

/* --- public ----------------------------------------------------------------------------------- */

bool background_is_idle(struct background *background, size_t device)
{
    uint64_t age_ms = uv_now(background->loop) - background->looked_at_ms;
    bool is_fresh = background->has_looked && age_ms < BACKGROUND_PERIOD_MS;
    if (is_fresh && background->idle_looks[device] >= BACKGROUND_LOOKS)
        return true;
    bool is_coming = background->looker != NULL || uv_is_active((uv_handle_t *)&background->timer);
    if (!is_coming && !background->is_stopping)
        uv_timer_start(
            &background->timer, on_timer, is_fresh ? BACKGROUND_PERIOD_MS - age_ms : 0, 0);
    return false;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct background *background = handle->data;
    background->is_timer_closed = true;
    maybe_stopped(background);
}

void background_stop(
    struct background *background, void (*on_stopped)(void *context), void *context)
{
    background->is_stopping = true;
    background->on_stopped = on_stopped;
    background->stopped_context = context;
    if (background->looker != NULL)
        worker_kill(background->looker, "the daemon is stopping");
    uv_close((uv_handle_t *)&background->timer, on_timer_closed);
}
