/* get: the configuration to launch with. Never blocks the loop; with the policy `wait` the answer
 * comes when the sweep that it needs has ended. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"
#include "plugins/space.h"

#include <stdlib.h>
#include <string.h>

enum policy { POLICY_CACHED, POLICY_NEAREST, POLICY_TUNE, POLICY_WAIT };

/* How far an answer was fetched; lower is better. */
enum origin { ORIGIN_EXACT, ORIGIN_NEAREST, ORIGIN_TRANSFERRED, ORIGIN_DEFAULT, ORIGIN_NONE };

static const char *const origin_words[] = {"exact", "nearest", "transferred", "default"};

struct get {
    struct get *next, **here; /* in the list of those not answered yet */
    bool is_waiting;          /* for the end of `job` */
    struct request *request;
    struct plugin *plugin; /* a reference */
    int64_t dims[MANIFEST_MAX_DIMS];
    char *shape;
    const char *dtype, *mode;
    struct device_info device;
    enum policy policy;
    bool with_cubin;
    struct record_key key;
    /* the answer so far */
    enum origin origin;
    double distance;
    int64_t values[MANIFEST_MAX_PARAMS];
    bool same_gpu, is_confirmed;
    double median_ns;
    char *measured_on, *measured_shape, *nvrtc;
    json_t *launches, *buffers;
    char job[JOB_ID_BYTES]; /* of the sweep that was queued for it, or "" */
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
    free(get->measured_on);
    free(get->measured_shape);
    free(get->nvrtc);
    json_decref(get->launches);
    json_decref(get->buffers);
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
    get->dtype = plugin->manifest->dtypes[0];
    get->mode = "cold";
    if (proto_object_opt(params, "shape", &shape, err) ||
        proto_string_opt(params, "dtype", &get->dtype, err) ||
        proto_string_opt(params, "arch", &arch, err) ||
        proto_string_opt(params, "gpu", &gpu, err) ||
        proto_string_opt(params, "mode", &get->mode, err) ||
        proto_string_opt(params, "policy", &policy, err) ||
        proto_bool_opt(params, "cubin", &get->with_cubin, err) ||
        parse_policy(policy, &get->policy, err))
        return -1;
    if (shape == NULL)
        return tune_fail(err, TUNE_EINVAL, "field \"shape\" is missing");
    if (manifest_shape_from_json(plugin->manifest, shape, get->dims, err))
        return -1;
    if (!manifest_has_dtype(plugin->manifest, get->dtype))
        return tune_fail(
            err, TUNE_EINVAL, "%s has no dtype \"%.20s\"", plugin->manifest->name, get->dtype);
    if (strcmp(get->mode, "cold") != 0 && strcmp(get->mode, "warm") != 0)
        return tune_fail(err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", get->mode);
    return find_target(app, arch, gpu, &get->device, err);
}

/* --- looking ---------------------------------------------------------------------------------- */

/* Whether these values may be launched for the asked shape on the asked device; fills the launches.
 */
static bool take_values(struct get *get, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct manifest *manifest = get->plugin->manifest;
    manifest_bind(manifest, &get->device, get->dims, get->dtype, slots);
    if (space_check(manifest, values, slots, NULL))
        return false;
    json_t *launches = plan_launches(manifest, &get->device, get->dims, get->dtype, values, NULL);
    json_t *buffers = plan_buffers(manifest, &get->device, get->dims, get->dtype, values, NULL);
    if (launches == NULL || buffers == NULL) {
        json_decref(launches);
        json_decref(buffers);
        return false;
    }
    json_decref(get->launches);
    json_decref(get->buffers);
    get->launches = launches;
    get->buffers = buffers;
    memcpy(get->values, values, sizeof get->values);
    return true;
}

static void set_text(char **to, const char *text)
{
    free(*to);
    *to = xstrdup(text);
}

/* A stored row is served only if it is valid in today's space: the manifest may have changed, or
 * the row may come from elsewhere. */
static bool take_best(struct get *get, const struct best *best, enum origin origin, double distance)
{
    int64_t values[MANIFEST_MAX_PARAMS] = {0};
    if (manifest_config_from_text(get->plugin->manifest, best->config, values, NULL) ||
        !take_values(get, values)) {
        log_debug(
            "a stored %s configuration is not valid here: %s", best->key.kernel, best->config);
        return false;
    }
    get->origin = origin;
    get->distance = distance;
    get->same_gpu = strcmp(best->gpu_name, get->device.name) == 0;
    get->is_confirmed = best->is_confirmed;
    get->median_ns = best->median_ns;
    set_text(&get->measured_on, best->gpu_name);
    set_text(&get->measured_shape, best->key.shape);
    set_text(&get->nvrtc, best->nvrtc);
    return true;
}

static void look_exact(struct get *get)
{
    struct tuning_db *db = get->request->app->db;
    const char *names[] = {get->device.name, NULL};
    for (size_t i = 0; i < 2 && get->origin == ORIGIN_NONE; i++) {
        struct best best;
        struct tune_error err = {0};
        if (i == 0 && names[0][0] == '\0')
            continue;
        if (tuning_db_best(db, &get->key, names[i], &best, &err) != 0)
            continue;
        take_best(get, &best, ORIGIN_EXACT, 0);
        best_finish(&best);
    }
}

static int on_near(const struct best *best, void *context)
{
    struct get *get = context;
    if (strcmp(best->key.dtype, get->dtype) != 0 || strcmp(best->key.mode, get->mode) != 0)
        return 0;
    bool is_cpu = strcmp(best->key.arch, "cpu") == 0;
    bool same_arch = strcmp(best->key.arch, get->device.arch) == 0;
    double distance = manifest_shape_distance(get->plugin->manifest, get->dims, best->key.shape);
    if (distance < 0 || (is_cpu && !same_arch))
        return 0; /* emulated times say nothing about a GPU */
    enum origin origin = same_arch ? ORIGIN_NEAREST : ORIGIN_TRANSFERRED;
    if (origin < get->origin || (origin == get->origin && distance < get->distance))
        take_best(get, best, origin, distance);
    return 0;
}

static void look_default(struct get *get)
{
    const struct manifest *manifest = get->plugin->manifest;
    for (size_t i = 0; i < manifest->default_count && get->origin == ORIGIN_NONE; i++)
        if (take_values(get, manifest->defaults[i]))
            get->origin = ORIGIN_DEFAULT;
}

static void look(struct get *get)
{
    get->origin = ORIGIN_NONE;
    look_exact(get);
    if (get->origin == ORIGIN_EXACT || get->policy == POLICY_CACHED)
        return;
    struct tune_error err = {0};
    if (tuning_db_walk_best(get->request->app->db, get->plugin->manifest->name, on_near, get, &err))
        log_warnx("get: %s", err.text);
    look_default(get);
}

/* --- answering -------------------------------------------------------------------------------- */

static json_t *answer_json(const struct get *get)
{
    struct tuning_db_stats stats = {0};
    tuning_db_stats(get->request->app->db, &stats, NULL);
    const struct manifest *manifest = get->plugin->manifest;
    bool is_exact = get->origin == ORIGIN_EXACT;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s?, s:s?, s:b, s:o, s:O, s:O, s:o, s:I, "
                  "s:b, s:I, s:s?}",
            "kernel", manifest->name, "dtype", get->dtype, "arch", get->device.arch, "shape",
            manifest_shape_to_json(manifest, get->dims), "mode", get->mode, "origin",
            origin_words[get->origin], "measured_on", get->measured_on, "measured_shape",
            get->measured_shape, "same_gpu", get->same_gpu, "config",
            manifest_config_to_json(manifest, get->values), "launches", get->launches, "buffers",
            get->buffers, "median_ns", get->median_ns > 0 ? json_real(get->median_ns) : json_null(),
            "generation", (json_int_t)stats.generation, "verified", get->origin != ORIGIN_DEFAULT,
            "sm", (json_int_t)get->device.attributes[DEVICE_sm], "nvrtc", get->nvrtc);
    /* The loss of an exact, confirmed answer is none by its own measurement; nothing is known of
     * others. */
    json_object_set_new(
        json, "expected_loss", is_exact && get->is_confirmed ? json_real(0.0) : json_null());
    json_object_set_new(json, "min_driver", json_null());
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
        .defines = plan_defines(manifest, get->dims, get->dtype, get->values, NULL),
        .entries = plan_entries(manifest, false),
        .device = &get->device,
        .arch_suffix = plan_arch_suffix(manifest, &get->device, get->dims, get->dtype, get->values),
    };
    image_request(get->request->app->images, &request, on_image, get);
    json_decref(request.defines);
    json_decref(request.entries);
}

static void answer(struct get *get)
{
    if (get->origin == ORIGIN_NONE) {
        struct tune_error err = {0};
        tune_fail(&err, TUNE_ENOTFOUND,
            "%s for %s on %s is not tuned: run `tunectl sweep %s --shape %s`",
            get->plugin->manifest->name, get->shape, get->device.arch, get->plugin->manifest->name,
            get->shape);
        get_fail(get, &err);
        return;
    }
    if (get->with_cubin) {
        request_cubin(get);
        return;
    }
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
    if (get->device.uuid[0] == '\0') {
        tune_fail(&err, TUNE_ENODEVICE, "no %s %s is attached: it cannot be tuned here",
            get->device.arch, get->device.name[0] ? get->device.name : "GPU");
        answer_untuned(get, &err);
        return;
    }
    const char *job = jobs_find_active(
        app->jobs, manifest->name, get->shape, get->dtype, get->mode, get->device.name);
    if (job != NULL) {
        follow_job(get, job);
        return;
    }
    json_t *params = json_pack("{s:s, s:[o], s:s, s:s, s:s}", "kernel", manifest->name, "shapes",
        manifest_shape_to_json(manifest, get->dims), "dtype", get->dtype, "mode", get->mode,
        "device", get->device.name);
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
    get->shape = manifest_shape_text(get->plugin->manifest, get->dims);
    get->key = (struct record_key){
        .kernel = get->plugin->manifest->name,
        .fingerprint = get->plugin->fingerprint,
        .shape = get->shape,
        .dtype = get->dtype,
        .arch = get->device.arch,
        .mode = get->mode,
    };
    look(get);
    bool wants_tuning = get->policy == POLICY_TUNE || get->policy == POLICY_WAIT;
    if (wants_tuning && get->origin != ORIGIN_EXACT)
        queue_sweep(get);
    else
        answer(get);
}
