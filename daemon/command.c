/* See command.h. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

const struct command commands[] = {
    {"ping", "is the daemon there, and which", cmd_ping},
    {"kernels", "what there is to tune", cmd_kernels},
    {"describe", "a kernel's manifest and space", cmd_describe},
    {"get", "the launch configuration for a shape", cmd_get},
    {"explain", "why a configuration is as fast as it is", cmd_explain},
    {"sweep", "tune a kernel for shapes", cmd_sweep},
    {"jobs", "sweeps: queued, running, ended", cmd_jobs},
    {"cancel", "end a sweep", cmd_cancel},
    {"watch", "progress of one sweep or of all", cmd_watch},
    {"records", "what was measured", cmd_records},
    {"export", "records as lines, page by page", cmd_export},
    {"import", "records from lines, all or nothing", cmd_import},
    {"refuse", "take records out of service by their origin", cmd_refuse},
    {"devices", "GPUs and their state", cmd_devices},
    {"limits", "what a GPU reaches at most, measured", cmd_limits},
    {"stats", "counters of the daemon", cmd_stats},
    {"fleet", "the machines that share their records, and the link to them", cmd_fleet},
    {NULL, NULL, NULL},
};

/* A request that was under way on the thread pool may outlive the server when the daemon stops. */
static void request_destroy(struct request *request)
{
    if (request->app->server != NULL)
        server_request_end(request->app->server, request->client);
    request->app->requests++;
    json_decref(request->message);
    free(request->question);
    free(request);
}

/* --- answers given again ---------------------------------------------------------------------- */

/* Two lines that differ in the digits of the id alone are parsed to the same but for the id, so
 * what stands after the digits is the question. The answer's line begins with the same bytes as the
 * request's, up to the digits' end, and what follows them is kept. */
static const char line_start[] = "{\"jsonrpc\":\"2.0\",\"id\":";
static const char line_get[] = ",\"method\":\"get\",\"params\":";

/* Where the digits end in a canonical `get`, or 0 for any other line. */
static size_t find_question(const char *line, size_t length)
{
    size_t start = sizeof line_start - 1, at = start;
    if (length < start || memcmp(line, line_start, start) != 0)
        return 0;
    while (at < length && line[at] >= '0' && line[at] <= '9')
        at++;
    size_t digits = at - start;
    bool is_number = digits > 0 && digits <= 18 && (digits == 1 || line[start] != '0');
    return is_number && length - at >= sizeof line_get - 1 &&
                   memcmp(line + at, line_get, sizeof line_get - 1) == 0
               ? at
               : 0;
}

static uint64_t answers_version(const struct app *app)
{
    return tuning_db_generation(app->db) + (app->memo_changes << 40);
}

void command_forget_answers(struct app *app)
{
    app->memo_changes++;
}

bool command_again(struct app *app, uint64_t client, const char *line, size_t length)
{
    size_t question = find_question(line, length), answer_length;
    if (question == 0 || app->is_stopping)
        return false;
    const char *answer = memo_get(
        app->memo, answers_version(app), line + question, length - question, &answer_length);
    if (answer == NULL)
        return false;
    uv_buf_t parts[] = {
        {.base = (char *)(uintptr_t)line, .len = question},
        {.base = (char *)(uintptr_t)answer, .len = answer_length},
    };
    app->busy_at_ms = uv_now(&app->loop);
    app->requests++;
    server_send_parts(app->server, client, parts, 2);
    return true;
}

static void keep_question(struct request *request, const char *line, size_t length)
{
    size_t question = find_question(line, length);
    if (question == 0)
        return;
    request->question_length = length - question;
    request->question = xmalloc(request->question_length);
    memcpy(request->question, line + question, request->question_length);
    request->version = answers_version(request->app);
}

/* --- answering -------------------------------------------------------------------------------- */

/* Answers with a line, and keeps what follows the id if the answer may be given again. */
static void reply(struct request *request, json_t *result, bool is_reusable)
{
    struct app *app = request->app;
    if (request->id == NULL || app->server == NULL) {
        json_decref(result);
        request_destroy(request);
        return;
    }
    size_t length;
    json_t *message = proto_result_new(json_incref(request->id), result);
    char *line = proto_line(message, &length);
    json_decref(message);
    if (line != NULL) {
        uv_buf_t part = {.base = line, .len = length};
        server_send_parts(app->server, request->client, &part, 1);
    }
    if (line != NULL && is_reusable && request->question != NULL) {
        size_t start = sizeof line_start - 1;
        start += strspn(line + start, "0123456789");
        memo_put(app->memo, request->version, request->question, request->question_length,
            line + start, length - start);
    }
    free(line);
    request_destroy(request);
}

void request_reply(struct request *request, json_t *result)
{
    reply(request, result, false);
}

void request_reply_again(struct request *request, json_t *result)
{
    reply(request, result, true);
}

static void send_error(struct app *app, uint64_t client, json_t *id, const struct tune_error *err)
{
    json_t *message = proto_error_new(json_incref(id), err);
    server_send(app->server, client, message);
    json_decref(message);
}

void request_fail(struct request *request, const struct tune_error *err)
{
    if (request->id != NULL && request->app->server != NULL)
        send_error(request->app, request->client, request->id, err);
    request_destroy(request);
}

static const struct command *find_command(const char *method, struct tune_error *err)
{
    char names[200] = "";
    for (const struct command *command = commands; command->method != NULL; command++) {
        if (strcmp(command->method, method) == 0)
            return command;
        strncat(names, names[0] ? " " : "", sizeof names - strlen(names) - 1);
        strncat(names, command->method, sizeof names - strlen(names) - 1);
    }
    tune_fail(err, TUNE_EMETHOD, "there is no method \"%.40s\"; there are: %s", method, names);
    return NULL;
}

static const struct command *check_message(json_t *message, struct tune_error *err)
{
    static const char *const keys[] = {"jsonrpc", "id", "method", "params", NULL};
    const char *version, *method;
    json_t *params, *id = json_object_get(message, "id");
    if (proto_known_keys(message, keys, "a request", err) ||
        proto_string(message, "jsonrpc", &version, err) ||
        proto_string(message, "method", &method, err) ||
        proto_object_opt(message, "params", &params, err))
        return NULL;
    if (strcmp(version, "2.0") != 0) {
        tune_fail(err, TUNE_EINVAL, "field \"jsonrpc\" must be \"2.0\"");
        return NULL;
    }
    if (id != NULL && !json_is_integer(id) && !json_is_string(id) && !json_is_null(id)) {
        tune_fail(err, TUNE_EINVAL, "field \"id\" must be an integer or a string");
        return NULL;
    }
    return find_command(method, err);
}

void command_dispatch(
    struct app *app, uint64_t client, uid_t uid, json_t *message, const char *line, size_t length)
{
    struct tune_error err = {0};
    json_t *id = json_object_get(message, "id");
    const struct command *command = check_message(message, &err);
    if (command != NULL && app->is_stopping)
        tune_fail(&err, TUNE_EBUSY, "the daemon is stopping");
    else if (command != NULL && !server_request_begin(app->server, client))
        tune_fail(&err, TUNE_EBUSY, "this connection has %d requests under way: wait for answers",
            SERVER_REQUESTS_MAX);
    if (err.code != TUNE_OK) {
        if (id == NULL || json_is_integer(id) || json_is_string(id) || json_is_null(id))
            send_error(app, client, id, &err);
        else
            send_error(app, client, NULL, &err);
        return;
    }
    app->busy_at_ms = uv_now(&app->loop);
    struct request *request = xcalloc(1, sizeof *request);
    request->app = app;
    request->client = client;
    request->uid = uid;
    request->message = json_incref(message);
    request->id = id;
    request->params = json_object_get(message, "params");
    keep_question(request, line, length);
    command->run(request);
}

/* What follows from the rows alone (answers kept, published, the nearest) sees by itself that the
 * database has changed. */
void app_rows_stored(struct app *app)
{
    app->busy_at_ms = uv_now(&app->loop);
    if (app->fleet != NULL)
        fleet_kick(app->fleet);
}

int find_plugin(
    struct app *app, const json_t *params, struct plugin **plugin, struct tune_error *err)
{
    const char *kernel;
    if (proto_string(params, "kernel", &kernel, err))
        return -1;
    *plugin = registry_find(app->registry, kernel, err);
    return *plugin ? 0 : -1;
}

int find_target(struct app *app, const char *arch, const char *gpu, struct device_info *device,
    struct tune_error *err)
{
    for (size_t i = 0; i < sched_device_count(app->sched); i++) {
        const struct device_info *attached = sched_device(app->sched, i);
        if ((arch == NULL || strcmp(arch, attached->arch) == 0) &&
            (gpu == NULL || strcmp(gpu, attached->name) == 0)) {
            *device = *attached;
            return 0;
        }
    }
    if (arch == NULL && sched_device_count(app->sched) > 0)
        return tune_fail(err, TUNE_ENODEVICE,
            "no \"%.60s\" is attached (see `tunectl devices`): name its architecture too, e.g. "
            "--arch sm_90",
            gpu);
    if (arch == NULL)
        return tune_fail(err, TUNE_ENODEVICE,
            "no GPU is attached (%s): name an architecture, e.g. --arch sm_90",
            sched_device_error(app->sched));
    if (device_generic(arch, device, err))
        return -1;
    snprintf(device->name, sizeof device->name, "%s", gpu ? gpu : "");
    device->uuid[0] = '\0';
    return 0;
}

int find_words(
    const struct manifest *manifest, const char **dtype, const char **mode, struct tune_error *err)
{
    size_t i = 0;
    while (i < manifest->dtype_count && strcmp(manifest->dtypes[i], *dtype) != 0)
        i++;
    if (i == manifest->dtype_count)
        return tune_fail(err, TUNE_EINVAL, "%s has no dtype \"%.20s\"", manifest->name, *dtype);
    const char *known = strcmp(*mode, "warm") == 0 ? "warm" : "cold";
    if (strcmp(*mode, known) != 0)
        return tune_fail(err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", *mode);
    *dtype = manifest->dtypes[i];
    *mode = known;
    return 0;
}
