/* Which devices there are: asked of a worker that ends with its answer. */
#include "daemon/sched_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const char *list, int ordinal)
{
    if (list == NULL)
        return true;
    for (const char *at = list; *at != '\0';) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end != at && value == ordinal)
            return true;
        at = strchr(end, ',');
        if (at == NULL)
            break;
        at++;
    }
    return false;
}

static void take_devices(struct sched *sched, const json_t *hello)
{
    const char *error = sched_hello_error(hello, "devices");
    json_t *list = json_object_get(hello, "devices"), *json;
    size_t i;
    if (error != NULL || json_array_size(list) == 0) {
        sched_set_text(sched->device_error, sizeof sched->device_error,
            error ? error : "the driver reports no device");
        return;
    }
    json_array_foreach (list, i, json) {
        struct device_info device;
        struct tune_error err = {0};
        if (sched->device_count == SCHED_DEVICES_MAX)
            break;
        if (device_from_json(json, &device, &err))
            log_warnx("a device is left out: %s", err.text);
        else if (is_wanted(sched->options.devices, device.ordinal))
            sched->devices[sched->device_count++] = device;
    }
    if (sched->device_count == 0)
        snprintf(sched->device_error, sizeof sched->device_error,
            "none of the devices is in the list given with --devices");
}

static void on_lister_message(struct worker *worker, json_t *message, void *context)
{
    struct sched *sched = context;
    worker_stop(worker); /* it has said all */
    if (sched->devices_known)
        return;
    take_devices(sched, message);
    sched->devices_known = true;
    sched->bench_slots = xcalloc(sched->device_count, sizeof *sched->bench_slots);
    for (size_t i = 0; i < sched->device_count; i++) {
        struct slot *slot = &sched->bench_slots[i];
        slot_init(sched, slot);
        slot->is_bench = true;
        slot->device = i;
        task_queue_init(&slot->queue);
        log_info("device %d: %s, %s, %s", sched->devices[i].ordinal, sched->devices[i].name,
            sched->devices[i].arch, sched->devices[i].uuid);
    }
    if (sched->device_count == 0)
        log_warnx("no device: %s", sched->device_error);
}

static void on_lister_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct sched *sched = context;
    (void)worker;
    sched->lister = NULL;
    if (!sched->devices_known) {
        sched->devices_known = true;
        sched_set_text(sched->device_error, sizeof sched->device_error, end->why);
        log_warnx("cannot list the devices: %s", end->why);
    }
    if (sched->is_stopping)
        sched_maybe_stopped(sched);
    else
        sched_maybe_ready(sched);
}

void sched_list_devices(struct sched *sched)
{
    const char *argv[] = {sched->options.worker_path, "devices", NULL};
    struct worker_options options = {
        .argv = argv,
        .env = sched->options.env,
        .hello_deadline_ms = sched->options.hello_deadline_ms,
    };
    struct worker_callbacks callbacks = {on_lister_message, on_lister_done, sched};
    struct tune_error err = {0};
    sched->lister = worker_start(sched->loop, &options, &callbacks, &err);
    if (sched->lister != NULL)
        return;
    sched->devices_known = true;
    sched_set_text(sched->device_error, sizeof sched->device_error, err.text);
    sched_compiler_missing(sched, err.text);
    log_warnx("%s", err.text);
}
