/* explain: why a configuration is as fast as it is (explain/explain.h has the answer's form).
 *
 * Design. One struct explaining per request, one step after another: the database tells which
 * configuration and how long it took (on the thread pool), the compiler what it takes and what it
 * consists of, the emulator what it accesses, the GPU what it reaches at most (unless it is at work
 * or that is known), and explain() puts that together. Only a wrong question is an error: where a
 * step fails, a note says what is missing and why. A request that comes before GPUs and compiler
 * are known waits for them. When its client leaves or the daemon stops, the step at hand is
 * cancelled; one on the thread pool is forgotten when it comes back. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/inquiry.h"
#include "daemon/xmalloc.h"
#include "explain/explain.h"
#include "plugins/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 8
#define TRACE_BLOCKS 64 /* of a launch */
#define TRACE_SEED 1    /* of the inputs: the same question has the same answer */

struct explaining {
    struct explaining *next, **here; /* in the list of those not answered yet */
    struct request *request;         /* NULL: refused while it was on the thread pool */
    struct tuning_db *db;            /* borrowed */
    struct plugin *plugin;           /* a reference */
    struct inquiry inquiry;
    bool with_cubin, with_trace, is_early, is_on_pool;
    uv_work_t work;
    struct tune_error error; /* of the work */
    json_t *launches, *buffers, *defines, *entries;
    json_t *package; /* of the compile */
    void *cubin;
    size_t cubin_bytes;
    json_t *trace, *limits;
    char *notes[NOTES_MAX + 1]; /* NULL-ended */
    size_t note_count;
};

static struct explaining *unanswered; /* the loop thread's */

/* --- life ------------------------------------------------------------------------------------- */

static struct explaining *explaining_create(struct request *request)
{
    struct explaining *explaining = xcalloc(1, sizeof *explaining);
    explaining->request = request;
    explaining->db = request->app->db;
    explaining->next = unanswered;
    explaining->here = &unanswered;
    if (unanswered != NULL)
        unanswered->here = &explaining->next;
    unanswered = explaining;
    return explaining;
}

/* Takes it out of the list. */
static void explaining_unlink(struct explaining *explaining)
{
    *explaining->here = explaining->next;
    if (explaining->next != NULL)
        explaining->next->here = explaining->here;
}

static void explaining_free(struct explaining *explaining)
{
    plugin_unref(explaining->plugin);
    json_decref(explaining->launches);
    json_decref(explaining->buffers);
    json_decref(explaining->defines);
    json_decref(explaining->entries);
    json_decref(explaining->package);
    json_decref(explaining->trace);
    json_decref(explaining->limits);
    free(explaining->cubin);
    for (size_t i = 0; i < explaining->note_count; i++)
        free(explaining->notes[i]);
    free(explaining);
}

static void explaining_fail(struct explaining *explaining, const struct tune_error *err)
{
    request_fail(explaining->request, err);
    explaining_unlink(explaining);
    explaining_free(explaining);
}

/* Whatever it waits for. */
static void give_up(struct app *app, struct explaining *explaining, const struct tune_error *err)
{
    image_cancel(app->images, explaining);
    tracer_cancel(app->tracer, explaining);
    limits_cancel(app->limits, explaining);
    if (!explaining->is_on_pool) {
        explaining_fail(explaining, err);
        return;
    }
    request_fail(explaining->request, err);
    explaining->request = NULL;
    explaining_unlink(explaining);
}

static void note(struct explaining *explaining, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct explaining *explaining, const char *format, ...)
{
    char text[480];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (explaining->note_count < NOTES_MAX)
        explaining->notes[explaining->note_count++] = xstrdup(text);
}

/* --- parsing ---------------------------------------------------------------------------------- */

static int parse(struct explaining *explaining, struct tune_error *err)
{
    static const char *const keys[] = {
        "kernel", "shape", "dtype", "arch", "gpu", "mode", "config", "cubin", "trace", NULL};
    const json_t *params = explaining->request->params;
    struct app *app = explaining->request->app;
    struct question *question = &explaining->inquiry.question;
    const char *dtype, *arch = NULL, *gpu = NULL, *mode = "cold";
    struct plugin *plugin;
    json_t *shape = NULL, *config = NULL;
    if (proto_known_keys(params, keys, "explain", err) || find_plugin(app, params, &plugin, err))
        return -1;
    question->plugin = explaining->plugin = plugin_ref(plugin);
    question->nearest = app->nearest;
    dtype = plugin->manifest->dtypes[0];
    explaining->with_trace = true;
    if (proto_object_opt(params, "shape", &shape, err) ||
        proto_string_opt(params, "dtype", &dtype, err) ||
        proto_string_opt(params, "arch", &arch, err) ||
        proto_string_opt(params, "gpu", &gpu, err) ||
        proto_string_opt(params, "mode", &mode, err) ||
        proto_object_opt(params, "config", &config, err) ||
        proto_bool_opt(params, "cubin", &explaining->with_cubin, err) ||
        proto_bool_opt(params, "trace", &explaining->with_trace, err))
        return -1;
    if (shape == NULL)
        return tune_fail(err, TUNE_EINVAL, "field \"shape\" is missing");
    if (manifest_shape_from_json(plugin->manifest, shape, question->dims, err) ||
        find_words(plugin->manifest, &dtype, &mode, err) ||
        find_target(app, arch, gpu, &question->device, err))
        return -1;
    question->dtype = dtype;
    question->mode = mode;
    return config == NULL ? 0 : inquiry_config(&explaining->inquiry, config, err);
}

/* --- the answer ------------------------------------------------------------------------------- */

/* The kernel's own texts; static storage, of the loop thread. */
static const struct explain_source *sources_of(const struct plugin *plugin)
{
    static struct explain_source sources[PLUGIN_HEADER_LIMIT + 1];
    sources[0] = (struct explain_source){plugin->source_name, plugin->source};
    for (size_t i = 0; i < plugin->header_count; i++)
        sources[i + 1] = (struct explain_source){plugin->headers[i].name, plugin->headers[i].text};
    return sources;
}

static bool is_emulated(const struct device_info *device)
{
    return device->attributes[DEVICE_sm] == 0;
}

static struct explain_facts facts_of(const struct explaining *explaining)
{
    const struct inquiry *inquiry = &explaining->inquiry;
    const struct question *question = &inquiry->question;
    bool is_measured = inquiry->measured_on[0] != '\0';
    return (struct explain_facts){
        .manifest = explaining->plugin->manifest,
        .device = &question->device,
        .dims = question->dims,
        .values = inquiry->values,
        .dtype = question->dtype,
        .mode = question->mode,
        .origin = inquiry->origin,
        .sources = sources_of(explaining->plugin),
        .source_count = explaining->plugin->header_count + 1,
        .resources = json_object_get(explaining->package, "resources"),
        .names = json_object_get(explaining->package, "names"),
        .is_emulated = is_emulated(&question->device),
        .cubin = explaining->cubin,
        .cubin_bytes = explaining->cubin_bytes,
        .trace = explaining->trace,
        .limits = explaining->limits,
        .median_ns = inquiry->median_ns,
        .lo_ns = inquiry->lo_ns,
        .hi_ns = inquiry->hi_ns,
        .measured_on = is_measured ? inquiry->measured_on : NULL,
        .notes = (const char *const *)explaining->notes,
    };
}

/* Null where it does not compile. */
static void add_code(const struct explaining *explaining, json_t *answer)
{
    static const char *const fields[][2] = {{"cubin", "image"}, {"names", "names"}};
    for (size_t i = 0; i < 2; i++) {
        json_t *value = json_object_get(explaining->package, fields[i][1]);
        json_object_set_new(answer, fields[i][0], value ? json_incref(value) : json_null());
    }
}

static void finish(struct explaining *explaining)
{
    struct tune_error err = {0};
    struct explain_facts facts = facts_of(explaining);
    json_t *answer = explain(&facts, &err);
    if (answer == NULL) {
        explaining_fail(explaining, &err);
        return;
    }
    if (explaining->with_cubin)
        add_code(explaining, answer);
    request_reply(explaining->request, answer);
    explaining_unlink(explaining);
    explaining_free(explaining);
}

/* --- the ceilings ----------------------------------------------------------------------------- */

static void note_unlimited(struct explaining *explaining, const char *why)
{
    note(explaining, "what the device reaches at most was not measured: %s", why);
}

static void on_limits(const json_t *result, const char *why, void *context)
{
    struct explaining *explaining = context;
    if (result != NULL)
        explaining->limits = json_incref((json_t *)result);
    else
        note_unlimited(explaining, why);
    finish(explaining);
}

/* Its number with the scheduler; SIZE_MAX: not attached. */
static size_t find_attached(const struct sched *sched, const struct device_info *device)
{
    for (size_t i = 0; i < sched_device_count(sched); i++)
        if (strcmp(sched_device(sched, i)->uuid, device->uuid) == 0)
            return i;
    return SIZE_MAX;
}

/* Of the GPU itself, else of its model; without one of the model that the time is of. */
static json_t *known_limits(const struct explaining *explaining)
{
    const struct app *app = explaining->request->app;
    const struct inquiry *inquiry = &explaining->inquiry;
    const struct device_info *device = &inquiry->question.device;
    bool is_current;
    json_t *known = limits_measured(app->limits, device, &is_current);
    if (known == NULL)
        known = limits_known(app->limits, device->name);
    return known == NULL ? limits_known(app->limits, inquiry->measured_on) : known;
}

/* A sweep is not waited for. */
static void ask_limits(struct explaining *explaining)
{
    const struct app *app = explaining->request->app;
    struct tune_error err = {0};
    size_t device = find_attached(app->sched, &explaining->inquiry.question.device);
    explaining->limits = known_limits(explaining);
    if (explaining->limits == NULL && device != SIZE_MAX) {
        if (jobs_active_count(app->jobs) > 0)
            tune_fail(&err, TUNE_EBUSY, "a sweep runs or waits; ask again when it has ended");
        else if (limits_measure(app->limits, device, on_limits, explaining, &err) == 0)
            return;
        note_unlimited(explaining, err.text);
    }
    finish(explaining);
}

/* --- the accesses ----------------------------------------------------------------------------- */

static void note_untraced(struct explaining *explaining, const char *why)
{
    note(explaining, "accesses and branches are not known: %s", why);
}

static void note_cut(struct explaining *explaining, const json_t *launches)
{
    size_t i;
    json_t *launch;
    json_array_foreach ((json_t *)launches, i, launch) {
        const char *entry = json_string_value(json_object_get(launch, "entry"));
        if (!json_is_true(json_object_get(launch, "is_cut")))
            continue;
        note(explaining,
            "%.100s takes the emulator too long: its accesses and branches are those of its "
            "beginning, and how many bytes it asks for is not known; a smaller shape tells "
            "more",
            entry ? entry : "a launch");
        return;
    }
}

static void on_traced(const json_t *launches, const char *why, void *context)
{
    struct explaining *explaining = context;
    if (launches == NULL) {
        note_untraced(explaining, why);
    } else {
        note_cut(explaining, launches);
        explaining->trace = json_incref((json_t *)launches);
    }
    ask_limits(explaining);
}

/* New; NULL when a text of it is no JSON. */
static json_t *trace_request(const struct explaining *explaining)
{
    struct image_source source = image_source_of_plugin(explaining->plugin);
    const struct image_source *harness = &explaining->request->app->harness;
    json_t *none = json_array();
    json_t *widths = explaining->cubin != NULL
                         ? explain_widths(explaining->cubin, explaining->cubin_bytes)
                         : json_array();
    const struct question *question = &explaining->inquiry.question;
    const struct manifest *manifest = explaining->plugin->manifest;
    json_t *request = json_pack("{s:s, s:o, s:o, s:O, s:O, s:o, s:i, s:i, s:s?, s:{s:s, s:s, s:o}}",
        "op", "trace", "compile",
        image_compile_json(&source, explaining->defines, explaining->entries), "harness",
        image_compile_json(harness, none, none), "buffers", explaining->buffers, "launches",
        explaining->launches, "widths", widths, "seed", TRACE_SEED, "blocks", TRACE_BLOCKS, "hooks",
        explaining->plugin->hooks, "call", "kernel", manifest->name, "dtype", question->dtype,
        "dims", manifest_shape_to_json(manifest, question->dims));
    json_decref(none);
    return request;
}

static void ask_tracer(struct explaining *explaining)
{
    struct tune_error err = {0};
    json_t *request = explaining->with_trace ? trace_request(explaining) : NULL;
    if (!explaining->with_trace)
        tune_fail(&err, TUNE_EINVAL, "they were not traced, as asked");
    else if (request == NULL)
        tune_fail(&err, TUNE_EINVAL, "%s or a header of it is not UTF-8: save it in that encoding",
            explaining->plugin->source_name);
    else if (tracer_request(
                 explaining->request->app->tracer, request, on_traced, explaining, &err) == 0)
        return;
    note_untraced(explaining, err.text);
    ask_limits(explaining);
}

/* --- the code --------------------------------------------------------------------------------- */

static void take_package(struct explaining *explaining, json_t *package)
{
    const char *image = json_string_value(json_object_get(package, "image"));
    explaining->package = json_incref(package);
    if (is_emulated(&explaining->inquiry.question.device))
        note(explaining, "the code is the emulator's, for the CPU: it has no registers, spills and "
                         "instructions to tell of");
    else if (image != NULL)
        explaining->cubin = proto_base64_decode(image, &explaining->cubin_bytes, NULL);
}

static void on_image(const struct image_result *result, void *context)
{
    struct explaining *explaining = context;
    if (result->package != NULL)
        take_package(explaining, result->package);
    else
        note(explaining, "registers, spills and instructions of the code are not known: %s",
            result->error);
    ask_tracer(explaining);
}

/* With lines in it, which change no instruction. NVRTC's own cache gives the code without the log
 * that has the registers, so it is left out. */
static void ask_compiler(struct explaining *explaining)
{
    const struct question *question = &explaining->inquiry.question;
    const struct manifest *manifest = explaining->plugin->manifest;
    json_t *options = json_copy(explaining->defines);
    if (!is_emulated(&question->device))
        json_array_append_new(options, json_string("-lineinfo"));
    struct image_request request = {
        .source = image_source_of_plugin(explaining->plugin),
        .defines = options,
        .entries = explaining->entries,
        .device = &question->device,
        .arch_suffix = plan_arch_suffix(manifest, &question->device, question->dims,
            question->dtype, explaining->inquiry.values),
        .no_nvrtc_cache = true,
    };
    image_request(explaining->request->app->images, &request, on_image, explaining);
    json_decref(options);
}

/* --- the configuration ------------------------------------------------------------------------ */

static int plan(struct explaining *explaining, struct tune_error *err)
{
    const struct question *question = &explaining->inquiry.question;
    const struct manifest *manifest = explaining->plugin->manifest;
    const int64_t *values = explaining->inquiry.values;
    explaining->launches =
        plan_launches(manifest, &question->device, question->dims, question->dtype, values, err);
    if (explaining->launches == NULL)
        return -1;
    explaining->buffers =
        plan_buffers(manifest, &question->device, question->dims, question->dtype, values, err);
    if (explaining->buffers == NULL)
        return -1;
    explaining->defines = plan_defines(manifest, question->dims, question->dtype, values, err);
    explaining->entries = plan_entries(manifest, false);
    return explaining->defines != NULL && explaining->entries != NULL ? 0 : -1;
}

static void note_inquiry(struct explaining *explaining)
{
    const struct inquiry *inquiry = &explaining->inquiry;
    const char *kernel = explaining->plugin->manifest->name;
    if (inquiry->has_config && inquiry->filled_from[0] != '\0')
        note(explaining,
            "the parameters not given are those of the best known configuration (its origin: %s)",
            inquiry->filled_from);
    if (inquiry->measured_on[0] != '\0')
        return;
    char *shape = manifest_shape_text(explaining->plugin->manifest, inquiry->question.dims);
    note(explaining,
        "this configuration was not measured for this shape and %s; `tunectl sweep %s --shape "
        "%.200s` measures some where such a GPU is",
        inquiry->question.device.arch, kernel, shape);
    free(shape);
}

static void on_work(uv_work_t *work)
{
    struct explaining *explaining = work->data;
    inquiry_run(&explaining->inquiry, explaining->db, &explaining->error);
}

static void on_worked(uv_work_t *work, int status)
{
    struct explaining *explaining = work->data;
    (void)status; /* it is never cancelled */
    explaining->is_on_pool = false;
    if (explaining->request == NULL) {
        explaining_free(explaining);
        return;
    }
    if (explaining->error.code != TUNE_OK || plan(explaining, &explaining->error)) {
        explaining_fail(explaining, &explaining->error);
        return;
    }
    note_inquiry(explaining);
    ask_compiler(explaining);
}

static void begin(struct explaining *explaining)
{
    struct tune_error err = {0};
    if (parse(explaining, &err)) {
        explaining_fail(explaining, &err);
        return;
    }
    explaining->is_on_pool = true;
    explaining->work.data = explaining;
    uv_queue_work(&explaining->request->app->loop, &explaining->work, on_work, on_worked);
}

/* --- public ----------------------------------------------------------------------------------- */

void cmd_explain(struct request *request)
{
    struct explaining *explaining = explaining_create(request);
    explaining->is_early = !sched_is_ready(request->app->sched);
    if (!explaining->is_early)
        begin(explaining);
}

void explain_ready(void)
{
    struct explaining *next;
    for (struct explaining *explaining = unanswered; explaining != NULL; explaining = next) {
        next = explaining->next;
        if (!explaining->is_early)
            continue;
        explaining->is_early = false;
        begin(explaining);
    }
}

void explain_client_left(struct app *app, uint64_t client)
{
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EIO, "the client has left");
    struct explaining *next;
    for (struct explaining *explaining = unanswered; explaining != NULL; explaining = next) {
        next = explaining->next;
        if (explaining->request->client == client)
            give_up(app, explaining, &err);
    }
}

void explain_refuse_all(struct app *app, const struct tune_error *err)
{
    while (unanswered != NULL)
        give_up(app, unanswered, err);
}
