/* get: the configuration to launch with. Never blocks the loop; with the policy `wait` the answer
 * comes when the sweep that it needs has ended.
 *
 * Design. One struct get per request, from parsing to its answer. An exact answer is found on the
 * loop thread, by two reads; anything else is looked for on the thread pool. Then, by policy, the
 * answer is given at once, given with the job that will better it, or held until that job has
 * ended. Under a session name the answer is the one kept, or is kept and given when it is durable.
 * Whoever was told of a job is told of its end too. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/resolve.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"

#include <stdlib.h>
#include <string.h>

enum policy { POLICY_CACHED, POLICY_NEAREST, POLICY_TUNE, POLICY_WAIT };

struct get {
    struct get *next, **here; /* in the list of those not answered yet */
    struct request *request;  /* NULL: refused while it was looked for */
    struct tuning_db *db;     /* borrowed; the request may be gone while it is looked for */
    struct plugin *plugin;    /* a reference */
    struct question question;
    char *shape;
    enum policy policy;
    bool with_cubin;
    char session[SESSION_KEY_BYTES]; /* "": none */
    struct resolved resolved;        /* the answer so far */
    char job[JOB_ID_BYTES];          /* of the sweep that was queued for it, or "" */
    bool is_early;                   /* waits until the GPUs are known */
    bool is_waiting;                 /* for the end of `job` */
    bool has_left;                   /* its client */
    bool is_looking;                 /* on the thread pool */
    uv_work_t work;
    void (*then)(struct get *get); /* after looking */
    struct tune_error error;       /* of looking */
};

static struct get *unanswered; /* the loop thread's */

static struct get *get_create(struct request *request)
{
    struct get *get = xcalloc(1, sizeof *get);
    get->request = request;
    get->next = unanswered;
    get->here = &unanswered;
    if (unanswered != NULL)
        unanswered->here = &get->next;
    unanswered = get;
    return get;
}

/* Takes it out of the list. */
static void get_unlink(struct get *get)
{
    *get->here = get->next;
    if (get->next != NULL)
        get->next->here = get->here;
}

static void get_free(struct get *get)
{
    plugin_unref(get->plugin);
    free(get->shape);
    resolved_finish(&get->resolved);
    free(get);
}

static void get_destroy(struct get *get)
{
    get_unlink(get);
    get_free(get);
}

static void get_fail(struct get *get, const struct tune_error *err)
{
    request_fail(get->request, err);
    get_destroy(get);
}

/* --- parsing ---------------------------------------------------------------------------------- */

static int parse_policy(const char *word, enum policy *policy, struct tune_error *err)
{
    static const char *const words[] = {"cached", "nearest", "tune", "wait"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i]) == 0) {
            *policy = (enum policy)i;
            return 0;
        }
    return tune_fail(
        err, TUNE_EINVAL, "policy is \"%.20s\"; there are: cached, nearest, tune, wait", word);
}

static int parse_session(struct get *get, const char *name, struct tune_error *err)
{
    const struct question *question = &get->question;
    struct record_key key = {
        .kernel = get->plugin->manifest->name,
        .fingerprint = get->plugin->fingerprint,
        .shape = get->shape,
        .dtype = question->dtype,
        .arch = question->device.arch,
        .mode = question->mode,
    };
    return session_key(name, &key, question->device.name, get->session, err);
}

static int parse(struct get *get, struct tune_error *err)
{
    static const char *const keys[] = {
        "kernel", "shape", "dtype", "arch", "gpu", "mode", "policy", "cubin", "session", NULL};
    const json_t *params = get->request->params;
    struct app *app = get->request->app;
    const char *arch = NULL, *gpu = NULL, *policy = "nearest", *mode = "cold", *session = NULL;
    struct plugin *plugin;
    json_t *shape;
    if (proto_known_keys(params, keys, "get", err) || find_plugin(app, params, &plugin, err))
        return -1;
    get->question.plugin = get->plugin = plugin_ref(plugin);
    const char *dtype = plugin->manifest->dtypes[0];
    if (proto_object_opt(params, "shape", &shape, err) ||
        proto_string_opt(params, "dtype", &dtype, err) ||
        proto_string_opt(params, "arch", &arch, err) ||
        proto_string_opt(params, "gpu", &gpu, err) ||
        proto_string_opt(params, "mode", &mode, err) ||
        proto_string_opt(params, "policy", &policy, err) ||
        proto_string_opt(params, "session", &session, err) ||
        proto_bool_opt(params, "cubin", &get->with_cubin, err) ||
        parse_policy(policy, &get->policy, err))
        return -1;
    if (shape == NULL)
        return tune_fail(err, TUNE_EINVAL, "field \"shape\" is missing");
    if (manifest_shape_from_json(plugin->manifest, shape, get->question.dims, err) ||
        find_words(plugin->manifest, &dtype, &mode, err) ||
        find_target(app, arch, gpu, &get->question.device, err))
        return -1;
    get->question.dtype = dtype;
    get->question.mode = mode;
    get->shape = manifest_shape_text(plugin->manifest, get->question.dims);
    return session == NULL ? 0 : parse_session(get, session, err);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void on_look(uv_work_t *work)
{
    struct get *get = work->data;
    resolve(get->db, &get->question, &get->resolved, &get->error);
}

static void on_looked(uv_work_t *work, int status)
{
    struct get *get = work->data;
    (void)status; /* it is never cancelled */
    get->is_looking = false;
    if (get->request == NULL) {
        get_free(get);
        return;
    }
    if (get->error.code != TUNE_OK)
        get_fail(get, &get->error);
    else
        get->then(get);
}

/* Calls `then` with the answer so far, now or later. */
static void look(struct get *get, void (*then)(struct get *get))
{
    struct app *app = get->request->app;
    resolved_finish(&get->resolved);
    get->question.only_exact = get->question.is_quick = true;
    if (resolve(get->db, &get->question, &get->resolved, &get->error)) {
        get_fail(get, &get->error);
        return;
    }
    if (get->resolved.origin == RESOLVE_EXACT ||
        (get->policy == POLICY_CACHED && !get->resolved.is_unsure)) {
        then(get);
        return;
    }
    get->question.only_exact = get->policy == POLICY_CACHED;
    get->question.is_quick = false;
    get->question.nearest = app->nearest;
    get->then = then;
    get->is_looking = true;
    get->work.data = get;
    uv_queue_work(&app->loop, &get->work, on_look, on_looked);
}

/* --- answering -------------------------------------------------------------------------------- */

/* New; what a session keeps stays as it is. */
static json_t *answer_json(const struct get *get)
{
    json_t *json = json_copy(get->resolved.json);
    if (get->job[0] != '\0')
        json_object_set_new(json, "job", json_string(get->job));
    return json;
}

static void on_image(const struct image_result *result, void *context)
{
    struct get *get = context;
    if (result->package == NULL) {
        struct tune_error err = {0};
        tune_fail(&err, result->is_hopeless ? TUNE_ENOCOMPILER : TUNE_EINVAL,
            "the configuration does not compile: %s", result->error);
        get_fail(get, &err);
        return;
    }
    json_t *json = answer_json(get);
    json_object_set(json, "cubin", json_object_get(result->package, "image"));
    json_object_set(json, "names", json_object_get(result->package, "names"));
    json_object_set_new(json, "via_ptx", json_boolean(result->is_ptx));
    json_object_set_new(
        json, "min_driver", json_string(sched_compiler(get->request->app->sched)->nvrtc));
    request_reply(get->request, json);
    get_destroy(get);
}

static void request_cubin(struct get *get)
{
    const struct manifest *manifest = get->plugin->manifest;
    const struct question *question = &get->question;
    const int64_t *values = get->resolved.values;
    struct image_request request = {
        .source = image_source_of_plugin(get->plugin),
        .defines = plan_defines(manifest, question->dims, question->dtype, values, NULL),
        .entries = plan_entries(manifest, false),
        .device = &question->device,
        .arch_suffix =
            plan_arch_suffix(manifest, &question->device, question->dims, question->dtype, values),
    };
    image_request(get->request->app->images, &request, on_image, get);
    json_decref(request.defines);
    json_decref(request.entries);
}

/* Whether the same question has the same answer until something is tuned or loaded. */
static bool is_reusable(const struct get *get)
{
    bool asks_for_sweeps = get->policy == POLICY_TUNE || get->policy == POLICY_WAIT;
    return get->session[0] == '\0' && !get->resolved.is_unsure &&
           (get->resolved.origin == RESOLVE_EXACT || !asks_for_sweeps);
}

static void deliver(struct get *get)
{
    if (get->with_cubin) {
        request_cubin(get);
        return;
    }
    if (is_reusable(get))
        request_reply_again(get->request, answer_json(get));
    else
        request_reply(get->request, answer_json(get));
    get_destroy(get);
}

static void fail_untuned(struct get *get)
{
    struct tune_error err = {0};
    const char *kernel = get->plugin->manifest->name;
    tune_fail(&err, TUNE_ENOTFOUND,
        "%s for %s on %s is not tuned: run `tunectl sweep %s --shape %s`", kernel, get->shape,
        get->question.device.arch, kernel, get->shape);
    get_fail(get, &err);
}

/* --- sessions --------------------------------------------------------------------------------- */

static void on_kept(const struct tune_error *err, void *context)
{
    struct get *get = context;
    if (err != NULL)
        get_fail(get, err);
    else
        deliver(get);
}

/* Gives the answer that the session keeps, once a crash cannot change it. */
static void give_kept(struct get *get, json_t *kept)
{
    json_incref(kept);
    resolved_finish(&get->resolved);
    get->resolved.json = kept;
    manifest_config_from_json(get->plugin->manifest, json_object_get(kept, "config"),
        get->resolved.values, NULL); /* of this very manifest: its fingerprint is in the key */
    sessions_after_stored(get->request->app->sessions, get->session, on_kept, get);
}

static void answer(struct get *get)
{
    if (get->resolved.origin == RESOLVE_NONE)
        fail_untuned(get);
    else if (get->session[0] == '\0')
        deliver(get);
    else
        give_kept(
            get, sessions_keep(get->request->app->sessions, get->session, get->resolved.json));
}

/* --- tune and wait ---------------------------------------------------------------------------- */

/* Nobody waits for it any more: a sweep may take hours, and who tries again and again would leave a
 * request behind each time. */
static void give_up(struct get *get)
{
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EIO, "the client has left");
    get_fail(get, &err);
}

void get_client_left(uint64_t client)
{
    struct get *next;
    for (struct get *get = unanswered; get != NULL; get = next) {
        next = get->next;
        if (get->request->client != client)
            continue;
        get->has_left = true;
        if (get->is_waiting)
            give_up(get);
    }
}

static void follow_job(struct get *get, const char *job)
{
    struct app *app = get->request->app;
    snprintf(get->job, sizeof get->job, "%s", job);
    if (get->policy == POLICY_WAIT) {
        get->is_waiting = true;
        if (get->has_left)
            give_up(get);
        return;
    }
    if (app->server != NULL)
        server_subscribe_end(app->server, get->request->client, job);
    answer(get);
}

/* It cannot be tuned here: what there is is served all the same, but to those who wait for better.
 */
static void answer_untuned(struct get *get, const struct tune_error *why)
{
    if (get->policy == POLICY_TUNE)
        answer(get);
    else
        get_fail(get, why);
}

static void on_queued(const char *job, const struct tune_error *err, void *context)
{
    struct get *get = context;
    if (err == NULL)
        follow_job(get, job);
    else
        answer_untuned(get, err);
}

/* What is tuned for somebody who waits goes before what is tuned on the side. */
static json_t *sweep_params(const struct get *get)
{
    const struct manifest *manifest = get->plugin->manifest;
    const struct config *config = &get->request->app->config;
    json_t *params = json_pack("{s:s, s:[o], s:s, s:s, s:s}", "kernel", manifest->name, "shapes",
        manifest_shape_to_json(manifest, get->question.dims), "dtype", get->question.dtype, "mode",
        get->question.mode, "device", get->question.device.name);
    if (get->policy == POLICY_TUNE) {
        json_object_set_new(params, "background", json_true());
        json_object_set_new(params, "budget",
            json_pack("{s:I, s:I}", "evals", (json_int_t)config->background_evals, "seconds",
                (json_int_t)config->background_seconds));
    }
    return params;
}

/* One sweep for any number of askers. */
static void queue_sweep(struct get *get)
{
    struct app *app = get->request->app;
    const struct question *question = &get->question;
    struct tune_error err = {0};
    if (get->policy == POLICY_TUNE && app->config.background_evals == 0) {
        answer(get);
        return;
    }
    if (question->device.uuid[0] == '\0') {
        tune_fail(&err, TUNE_ENODEVICE, "no %s %s is attached: it cannot be tuned here",
            question->device.arch, question->device.name[0] ? question->device.name : "GPU");
        answer_untuned(get, &err);
        return;
    }
    const struct jobs_key key = {
        get->plugin, get->shape, question->dtype, question->mode, question->device.name};
    const char *job = jobs_find_active(app->jobs, &key);
    if (job == NULL && get->policy == POLICY_TUNE && jobs_tried_lately(app->jobs, &key)) {
        answer(get);
        return;
    }
    if (job != NULL) {
        if (get->policy == POLICY_WAIT)
            jobs_hurry(app->jobs, job);
        follow_job(get, job);
        return;
    }
    json_t *params = sweep_params(get);
    if (jobs_submit(app->jobs, params, get->request->uid, on_queued, get, &err))
        answer_untuned(get, &err);
    json_decref(params);
}

static void tune_or_answer(struct get *get)
{
    bool asks_for_sweeps = get->policy == POLICY_TUNE || get->policy == POLICY_WAIT;
    if (asks_for_sweeps && get->resolved.origin != RESOLVE_EXACT)
        queue_sweep(get);
    else
        answer(get);
}

void get_job_ended(struct app *app, const char *job)
{
    (void)app;
    struct get *next;
    for (struct get *get = unanswered; get != NULL; get = next) {
        next = get->next;
        if (!get->is_waiting || strcmp(get->job, job) != 0)
            continue;
        get->is_waiting = false;
        look(get, answer);
    }
}

void get_refuse_all(struct app *app, const struct tune_error *err)
{
    while (unanswered != NULL) {
        struct get *get = unanswered;
        image_cancel(app->images, get);
        writer_forget(app->writer, get);
        request_fail(get->request, err);
        get->request = NULL;
        get_unlink(get);
        if (!get->is_looking)
            get_free(get);
    }
}

static void begin(struct get *get)
{
    struct tune_error err = {0};
    const struct app *app = get->request->app;
    if (parse(get, &err)) {
        get_fail(get, &err);
        return;
    }
    get->db = app->db;
    json_t *kept = get->session[0] == '\0' ? NULL : sessions_find(app->sessions, get->session);
    if (kept != NULL)
        give_kept(get, kept);
    else
        look(get, tune_or_answer);
}

void get_devices_known(void)
{
    struct get *next;
    for (struct get *get = unanswered; get != NULL; get = next) {
        next = get->next;
        if (!get->is_early)
            continue;
        get->is_early = false;
        begin(get);
    }
}

/* Whether it can be answered before the GPUs are known: for an architecture, whichever GPU of it is
 * attached. Not where the GPU is part of what is asked: a session's key, where to tune. */
static bool needs_no_devices(const json_t *params)
{
    struct device_info device;
    const char *arch = json_string_value(json_object_get(params, "arch"));
    const char *word = json_string_value(json_object_get(params, "policy"));
    enum policy policy = POLICY_NEAREST;
    if (word != NULL && parse_policy(word, &policy, NULL))
        return true; /* it is refused */
    return arch != NULL && device_generic(arch, &device, NULL) == 0 && policy != POLICY_TUNE &&
           policy != POLICY_WAIT && json_object_get(params, "session") == NULL;
}

/* A question about "the GPU here" that comes with the daemon's start is not refused for want of a
 * list of GPUs: an application that asks again after a restart would take it for the truth. */
void cmd_get(struct request *request)
{
    struct get *get = get_create(request);
    get->is_early = !sched_devices_known(request->app->sched) && !needs_no_devices(request->params);
    if (!get->is_early)
        begin(get);
}
