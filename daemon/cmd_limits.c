/* limits: what a GPU reaches at most.
 *
 * Answered at once where it was measured under the driver of now; else it is measured first. A
 * request that comes before GPUs and compiler are known waits for them. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct asking {
    struct asking *next, **here; /* in the list of those not answered yet */
    struct request *request;
    bool is_early; /* GPUs or compiler are not known yet */
};

static struct asking *unanswered; /* the loop thread's */

static struct asking *asking_create(struct request *request)
{
    struct asking *asking = xcalloc(1, sizeof *asking);
    asking->request = request;
    asking->next = unanswered;
    asking->here = &unanswered;
    if (unanswered != NULL)
        unanswered->here = &asking->next;
    unanswered = asking;
    return asking;
}

static void asking_destroy(struct asking *asking)
{
    *asking->here = asking->next;
    if (asking->next != NULL)
        asking->next->here = asking->here;
    free(asking);
}

/* Takes the result. */
static void answer(struct asking *asking, json_t *result)
{
    request_reply(asking->request, result);
    asking_destroy(asking);
}

static void refuse(struct asking *asking, const struct tune_error *err)
{
    request_fail(asking->request, err);
    asking_destroy(asking);
}

/* --- which device ----------------------------------------------------------------------------- */

static bool is_wanted(const struct device_info *device, const json_t *wanted)
{
    const char *text = json_string_value(wanted);
    if (text == NULL)
        return wanted == NULL || device->ordinal == json_integer_value(wanted);
    return strcasecmp(device->uuid, text) == 0 || strcmp(device->name, text) == 0;
}

/* The first that is meant; `wanted` NULL: any. 0 or -1. */
static int find_device(
    const struct app *app, const json_t *wanted, size_t *device, struct tune_error *err)
{
    size_t count = sched_device_count(app->sched);
    for (*device = 0; *device < count; ++*device)
        if (is_wanted(sched_device(app->sched, *device), wanted))
            return 0;
    if (count == 0)
        return tune_fail(
            err, TUNE_ENODEVICE, "no GPU can be measured: %s", sched_device_error(app->sched));
    if (json_is_string(wanted))
        return tune_fail(err, TUNE_ENODEVICE,
            "no GPU here is called %.60s: `tunectl devices` lists them", json_string_value(wanted));
    return tune_fail(err, TUNE_ENODEVICE, "there is no device %lld: `tunectl devices` lists them",
        (long long)json_integer_value(wanted));
}

/* --- answering -------------------------------------------------------------------------------- */

static void on_limits(const json_t *result, const char *why, void *context)
{
    struct asking *asking = context;
    struct tune_error err = {0};
    if (result != NULL) {
        answer(asking, json_incref((json_t *)result));
        return;
    }
    tune_fail(&err, TUNE_ENODEVICE, "the limits cannot be measured: %s", why);
    refuse(asking, &err);
}

static int parse(
    const json_t *params, const json_t **wanted, bool *is_fresh, struct tune_error *err)
{
    static const char *const keys[] = {"device", "fresh", NULL};
    if (proto_known_keys(params, keys, "limits", err) ||
        proto_bool_opt(params, "fresh", is_fresh, err))
        return -1;
    *wanted = json_object_get(params, "device");
    if (json_is_null(*wanted))
        *wanted = NULL;
    if (*wanted != NULL && !json_is_integer(*wanted) && !json_is_string(*wanted))
        return tune_fail(
            err, TUNE_EINVAL, "device must be the number, the UUID or the name of a GPU");
    return 0;
}

static void ask_device(struct asking *asking, size_t device, bool is_fresh)
{
    struct app *app = asking->request->app;
    struct tune_error err = {0};
    bool is_current;
    json_t *known = limits_measured(app->limits, sched_device(app->sched, device), &is_current);
    if (is_current && !is_fresh) {
        answer(asking, known);
        return;
    }
    json_decref(known);
    if (limits_measure(app->limits, device, on_limits, asking, &err))
        refuse(asking, &err);
}

static void begin(struct asking *asking)
{
    struct app *app = asking->request->app;
    struct tune_error err = {0};
    const json_t *wanted;
    bool is_fresh = false;
    size_t device;
    if (parse(asking->request->params, &wanted, &is_fresh, &err)) {
        refuse(asking, &err);
        return;
    }
    if (find_device(app, wanted, &device, &err) == 0) {
        ask_device(asking, device, is_fresh);
        return;
    }
    /* A model that is not here may be known all the same. */
    json_t *known = json_is_string(wanted) && !is_fresh
                        ? limits_known(app->limits, json_string_value(wanted))
                        : NULL;
    if (known != NULL)
        answer(asking, known);
    else
        refuse(asking, &err);
}

/* --- public ----------------------------------------------------------------------------------- */

void cmd_limits(struct request *request)
{
    struct asking *asking = asking_create(request);
    asking->is_early = !sched_is_ready(request->app->sched);
    if (!asking->is_early)
        begin(asking);
}

void limits_ready(void)
{
    struct asking *next;
    for (struct asking *asking = unanswered; asking != NULL; asking = next) {
        next = asking->next;
        if (!asking->is_early)
            continue;
        asking->is_early = false;
        begin(asking);
    }
}

void limits_client_left(struct app *app, uint64_t client)
{
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EIO, "the client has left");
    struct asking *next;
    for (struct asking *asking = unanswered; asking != NULL; asking = next) {
        next = asking->next;
        if (asking->request->client != client)
            continue;
        limits_cancel(app->limits, asking);
        refuse(asking, &err);
    }
}

void limits_refuse_all(struct app *app, const struct tune_error *err)
{
    while (unanswered != NULL) {
        limits_cancel(app->limits, unanswered);
        refuse(unanswered, err);
    }
}
