/* See limits.h. */
#include "daemon/limits.h"

#include "client/proto.h"
#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINE_MS 60000 /* second line behind the worker's own; it takes about a second */
#define RATE_MAX 1e18     /* per second: no GPU has as much of anything */

struct asker {
    struct asker *next;
    limits_callback callback;
    void *context;
};

/* One device that is being measured, and who waits for it. */
struct measuring {
    struct measuring *next;
    struct limits *limits;
    size_t device;
    struct asker *askers;
};

struct limits {
    struct limits_deps deps;
    json_t *kept; /* uuid -> entry */
    struct measuring *measuring;
};

struct limits *limits_create(const struct limits_deps *deps)
{
    struct limits *limits = xcalloc(1, sizeof *limits);
    limits->deps = *deps;
    limits->kept = json_object();
    return limits;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int check_rate(const json_t *entry, const char *key, struct tune_error *err)
{
    double rate = 0;
    if (proto_number_opt(entry, key, &rate, err))
        return -1;
    if (!(rate > 0) || rate > RATE_MAX)
        return tune_fail(err, TUNE_EINVAL, "%s is %g per second, which no GPU does", key, rate);
    return 0;
}

int limits_check(const json_t *entry, struct tune_error *err)
{
    const char *device, *uuid;
    int64_t number;
    if (proto_string(entry, "device", &device, err) ||
        proto_string_opt(entry, "uuid", &uuid, err) ||
        proto_int(entry, "driver", 0, INT32_MAX, &number, err) ||
        proto_int(entry, "time_unix_ms", 0, INT64_MAX, &number, err) ||
        check_rate(entry, "dram_bytes_per_s", err) || check_rate(entry, "flops_f32", err))
        return -1;
    return 0;
}

static json_int_t integer_of(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

/* An entry as it is given out: new. */
static json_t *given_out(const json_t *entry, const char *from)
{
    json_t *json = json_copy((json_t *)entry);
    json_object_set_new(json, "from", json_string(from));
    return json;
}

/* The later of two entries if `each` is of this model. */
static const json_t *later(const json_t *found, const json_t *each, const char *gpu_name)
{
    const char *name = json_string_value(json_object_get(each, "device"));
    if (name == NULL || strcmp(name, gpu_name) != 0)
        return found;
    bool is_later =
        found == NULL || integer_of(each, "time_unix_ms") > integer_of(found, "time_unix_ms");
    return is_later ? each : found;
}

json_t *limits_known(const struct limits *limits, const char *gpu_name)
{
    const json_t *found = NULL;
    const char *uuid;
    json_t *each;
    size_t i;
    json_object_foreach (limits->kept, uuid, each)
        found = later(found, each, gpu_name);
    if (found != NULL)
        return given_out(found, "measured");
    json_array_foreach ((json_t *)limits->deps.shipped, i, each)
        found = later(found, each, gpu_name);
    return found != NULL ? given_out(found, "shipped") : NULL;
}

json_t *limits_measured(
    const struct limits *limits, const struct device_info *device, bool *is_current)
{
    const json_t *entry = json_object_get(limits->kept, device->uuid);
    *is_current = entry != NULL && integer_of(entry, "driver") == device->driver;
    return entry != NULL ? given_out(entry, "measured") : NULL;
}

/* --- in the database -------------------------------------------------------------------------- */

static void store(struct limits *limits, const char *uuid, const json_t *entry)
{
    char *text = json_dumps(entry, JSON_COMPACT);
    char *name = xasprintf("limits/%s", uuid);
    if (text != NULL)
        tuning_db_batch_job(writer_batch(limits->deps.writer), name, text, strlen(text));
    free(name);
    free(text);
}

static int on_loaded(const char *name, const void *bytes, size_t count, void *context)
{
    struct limits *limits = context;
    struct tune_error err = {0};
    json_t *entry = proto_parse(bytes, count, &err);
    if (entry != NULL && limits_check(entry, &err) == 0) {
        json_object_set(limits->kept, name + strlen("limits/"), entry);
    } else {
        log_warnx("%s is damaged and left out: %s", name, err.text);
        tuning_db_batch_job(writer_batch(limits->deps.writer), name, NULL, 0);
    }
    json_decref(entry);
    return 0;
}

int limits_load(struct limits *limits, struct tune_error *err)
{
    return tuning_db_walk_jobs(limits->deps.db, "limits/", on_loaded, limits, err);
}

/* --- measuring -------------------------------------------------------------------------------- */

static void measuring_free(struct measuring *measuring)
{
    while (measuring->askers != NULL) {
        struct asker *asker = measuring->askers;
        measuring->askers = asker->next;
        free(asker);
    }
    free(measuring);
}

/* It is in the list no more, so that whoever is told may ask again. */
static void tell(struct measuring *measuring, const json_t *result, const char *why)
{
    struct measuring **at = &measuring->limits->measuring;
    while (*at != measuring)
        at = &(*at)->next;
    *at = measuring->next;
    while (measuring->askers != NULL) {
        struct asker *asker = measuring->askers;
        measuring->askers = asker->next;
        asker->callback(result, why, asker->context);
        free(asker);
    }
    measuring_free(measuring);
}

static void fail(struct measuring *measuring, const char *why)
{
    log_warnx("the limits of device %zu are not measured: %s", measuring->device, why);
    tell(measuring, NULL, why);
}

/* The worker's answer as an entry: new; NULL when it is none. */
static json_t *entry_of(
    const struct device_info *device, const json_t *answer, struct tune_error *err)
{
    json_t *entry = json_pack("{s:s, s:s, s:i, s:O?, s:O?, s:I}", "device", device->name, "uuid",
        device->uuid, "driver", device->driver, "dram_bytes_per_s",
        json_object_get(answer, "dram_bytes_per_s"), "flops_f32",
        json_object_get(answer, "flops_f32"), "time_unix_ms", (json_int_t)clock_unix_ms());
    if (limits_check(entry, err) == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

static void keep(struct measuring *measuring, const json_t *answer)
{
    struct limits *limits = measuring->limits;
    const struct device_info *device = sched_device(limits->deps.sched, measuring->device);
    struct tune_error err = {0};
    json_t *entry = entry_of(device, answer, &err);
    if (entry == NULL) {
        fail(measuring, err.text);
        return;
    }
    log_info("%s (%s) reaches %.0f GB/s and %.2f TFLOP/s", device->name, device->uuid,
        json_number_value(json_object_get(entry, "dram_bytes_per_s")) / 1e9,
        json_number_value(json_object_get(entry, "flops_f32")) / 1e12);
    json_object_set_new(limits->kept, device->uuid, entry);
    store(limits, device->uuid, entry);
    json_t *result = given_out(entry, "measured");
    tell(measuring, result, "");
    json_decref(result);
}

static void on_measured(const struct task_result *result, void *context)
{
    struct measuring *measuring = context;
    const char *outcome = json_string_value(json_object_get(result->answer, "outcome"));
    const char *error = json_string_value(json_object_get(result->answer, "error"));
    if (result->end == TASK_ANSWERED && outcome != NULL && strcmp(outcome, "ok") == 0)
        keep(measuring, result->answer);
    else
        fail(measuring, error != NULL            ? error
                        : result->why[0] != '\0' ? result->why
                                                 : "the worker gave no reason");
}

static void on_image(const struct image_result *result, void *context)
{
    struct measuring *measuring = context;
    if (result->package == NULL) {
        fail(measuring, result->error);
        return;
    }
    json_t *request = json_pack("{s:s, s:O, s:O}", "op", "limits", "image",
        json_object_get(result->package, "image"), "names",
        json_object_get(result->package, "names"));
    sched_bench(measuring->limits->deps.sched, measuring->device, NULL, 0, request, DEADLINE_MS,
        on_measured, measuring);
}

static void start(struct measuring *measuring)
{
    const struct limits_deps *deps = &measuring->limits->deps;
    json_t *none = json_array();
    struct image_request request = {
        .source = *deps->source,
        .defines = none,
        .entries = none,
        .device = sched_device(deps->sched, measuring->device),
        .arch_suffix = "",
    };
    image_request(deps->images, &request, on_image, measuring);
    json_decref(none);
}

/* --- public ----------------------------------------------------------------------------------- */

static struct measuring *find_or_start(struct limits *limits, size_t device)
{
    for (struct measuring *each = limits->measuring; each != NULL; each = each->next)
        if (each->device == device)
            return each;
    struct measuring *measuring = xcalloc(1, sizeof *measuring);
    measuring->limits = limits;
    measuring->device = device;
    measuring->next = limits->measuring;
    limits->measuring = measuring;
    start(measuring);
    return measuring;
}

int limits_measure(struct limits *limits, size_t device, limits_callback callback, void *context,
    struct tune_error *err)
{
    const char *reason;
    const char *state = sched_device_state(limits->deps.sched, device, &reason);
    if (strcmp(state, "offline") == 0 || strcmp(state, "busy") == 0)
        return tune_fail(err, TUNE_ENODEVICE, "%s is %s: %s",
            sched_device(limits->deps.sched, device)->name, state, reason);
    struct measuring *measuring = find_or_start(limits, device);
    struct asker *asker = xcalloc(1, sizeof *asker);
    *asker = (struct asker){measuring->askers, callback, context};
    measuring->askers = asker;
    return 0;
}

void limits_cancel(struct limits *limits, const void *context)
{
    for (struct measuring *each = limits->measuring; each != NULL; each = each->next)
        for (struct asker **at = &each->askers; *at != NULL;) {
            struct asker *asker = *at;
            if (asker->context != context) {
                at = &asker->next;
                continue;
            }
            *at = asker->next;
            free(asker);
        }
}

void limits_destroy(struct limits *limits)
{
    if (limits == NULL)
        return;
    while (limits->measuring != NULL) {
        struct measuring *measuring = limits->measuring;
        limits->measuring = measuring->next;
        measuring_free(measuring);
    }
    json_decref(limits->kept);
    free(limits);
}
