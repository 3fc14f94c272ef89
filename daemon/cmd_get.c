/* get: the configuration to launch with. Never blocks the loop; with the policy `wait` the answer
 * comes when the sweep that it needs has ended. */
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
    bool is_waiting;          /* for the end of `job` */
    struct request *request;
    struct plugin *plugin; /* a reference */
    struct question question;
    char *shape;
    enum policy policy;
    bool with_cubin;
    struct resolved resolved; /* the answer so far */
    char job[JOB_ID_BYTES];   /* of the sweep that was queued for it, or "" */
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

static void get_destroy(struct get *get)
{
    *get->here = get->next;
    if (get->next != NULL)
        get->next->here = get->here;
    plugin_unref(get->plugin);
    free(get->shape);
    resolved_finish(&get->resolved);
    free(get);
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

static int parse(struct get *get, struct tune_error *err)
{
    static const char *const keys[] = {
        "kernel", "shape", "dtype", "arch", "gpu", "mode", "policy", "cubin", NULL};
    const json_t *params = get->request->params;
    struct app *app = get->request->app;
    const char *arch = NULL, *gpu = NULL, *policy = "nearest";
    struct plugin *plugin;
    json_t *shape;
    if (proto_known_keys(params, keys, "get", err) || find_plugin(app, params, &plugin, err))
        return -1;
    get->plugin = plugin_ref(plugin);
    get->question.dtype = plugin->manifest->dtypes[0];
    get->question.mode = "cold";
    if (proto_object_opt(params, "shape", &shape, err) ||
        proto_string_opt(params, "dtype", &get->question.dtype, err) ||
        proto_string_opt(params, "arch", &arch, err) ||
        proto_string_opt(params, "gpu", &gpu, err) ||
        proto_string_opt(params, "mode", &get->question.mode, err) ||
        proto_string_opt(params, "policy", &policy, err) ||
        proto_bool_opt(params, "cubin", &get->with_cubin, err) ||
        parse_policy(policy, &get->policy, err))
        return -1;
    if (shape == NULL)
        return tune_fail(err, TUNE_EINVAL, "field \"shape\" is missing");
    if (manifest_shape_from_json(plugin->manifest, shape, get->question.dims, err))
        return -1;
    if (!manifest_has_dtype(plugin->manifest, get->question.dtype))
        return tune_fail(err, TUNE_EINVAL, "%s has no dtype \"%.20s\"", plugin->manifest->name,
            get->question.dtype);
    if (strcmp(get->question.mode, "cold") != 0 && strcmp(get->question.mode, "warm") != 0)
        return tune_fail(
            err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", get->question.mode);
    return find_target(app, arch, gpu, &get->question.device, err);
}

/* --- answering -------------------------------------------------------------------------------- */

/* What the database cannot say counts as not tuned. */
static void look(struct get *get)
{
    struct tune_error err = {0};
    resolved_finish(&get->resolved);
    if (resolve(get->request->app->db, &get->question, &get->resolved, &err))
        log_warnx("get: %s", err.text);
}

static json_t *answer_json(struct get *get)
{
    json_t *json = json_incref(get->resolved.json);
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
    struct image_request request = {
        .source = image_source_of_plugin(get->plugin),
        .defines = plan_defines(
            manifest, get->question.dims, get->question.dtype, get->resolved.values, NULL),
        .entries = plan_entries(manifest, false),
        .device = &get->question.device,
        .arch_suffix = plan_arch_suffix(manifest, &get->question.device, get->question.dims,
            get->question.dtype, get->resolved.values),
    };
    image_request(get->request->app->images, &request, on_image, get);
    json_decref(request.defines);
    json_decref(request.entries);
}

static void answer(struct get *get)
{
    if (get->resolved.origin == RESOLVE_NONE) {
        struct tune_error err = {0};
        tune_fail(&err, TUNE_ENOTFOUND,
            "%s for %s on %s is not tuned: run `tunectl sweep %s --shape %s`",
            get->plugin->manifest->name, get->shape, get->question.device.arch,
            get->plugin->manifest->name, get->shape);
        get_fail(get, &err);
        return;
    }
    if (get->with_cubin) {
        request_cubin(get);
        return;
    }
    bool asks_for_sweeps = get->policy == POLICY_TUNE || get->policy == POLICY_WAIT;
    if (get->resolved.origin == RESOLVE_EXACT || !asks_for_sweeps)
        request_reply_again(get->request, answer_json(get));
    else
        request_reply(get->request, answer_json(get));
    get_destroy(get);
}

/* --- tune and wait ---------------------------------------------------------------------------- */

static void follow_job(struct get *get, const char *job)
{
    snprintf(get->job, sizeof get->job, "%s", job);
    if (get->policy == POLICY_TUNE) {
        answer(get);
        return;
    }
    get->is_waiting = true;
}

static void on_queued(const char *job, const struct tune_error *err, void *context)
{
    struct get *get = context;
    if (err == NULL)
        follow_job(get, job);
    else
        get_fail(get, err);
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

/* One sweep for any number of askers. */
static void queue_sweep(struct get *get)
{
    struct app *app = get->request->app;
    const struct manifest *manifest = get->plugin->manifest;
    struct tune_error err = {0};
    if (get->question.device.uuid[0] == '\0') {
        tune_fail(&err, TUNE_ENODEVICE, "no %s %s is attached: it cannot be tuned here",
            get->question.device.arch,
            get->question.device.name[0] ? get->question.device.name : "GPU");
        answer_untuned(get, &err);
        return;
    }
    const char *job = jobs_find_active(app->jobs, manifest->name, get->shape, get->question.dtype,
        get->question.mode, get->question.device.name);
    if (job != NULL) {
        follow_job(get, job);
        return;
    }
    json_t *params = json_pack("{s:s, s:[o], s:s, s:s, s:s}", "kernel", manifest->name, "shapes",
        manifest_shape_to_json(manifest, get->question.dims), "dtype", get->question.dtype, "mode",
        get->question.mode, "device", get->question.device.name);
    if (jobs_submit(app->jobs, params, get->request->uid, on_queued, get, &err))
        answer_untuned(get, &err);
    json_decref(params);
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
        look(get);
        answer(get);
    }
}

void get_refuse_all(struct app *app, const struct tune_error *err)
{
    while (unanswered != NULL) {
        image_cancel(app->images, unanswered);
        get_fail(unanswered, err);
    }
}

void cmd_get(struct request *request)
{
    struct tune_error err = {0};
    struct get *get = get_create(request);
    if (parse(get, &err)) {
        get_fail(get, &err);
        return;
    }
    get->shape = manifest_shape_text(get->plugin->manifest, get->question.dims);
    get->question.plugin = get->plugin;
    get->question.only_exact = get->policy == POLICY_CACHED;
    look(get);
    bool wants_tuning = get->policy == POLICY_TUNE || get->policy == POLICY_WAIT;
    if (wants_tuning && get->resolved.origin != RESOLVE_EXACT)
        queue_sweep(get);
    else
        answer(get);
}
