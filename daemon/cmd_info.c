/* ping, kernels, describe, devices, stats, fleet: what the daemon is and has. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/search/search.h"

#include <string.h>
#include <unistd.h>

void cmd_ping(struct request *request)
{
    struct app *app = request->app;
    request_reply(request,
        json_pack("{s:s, s:i, s:i, s:s, s:s, s:s?, s:b, s:b, s:f}", "version", TUNE_VERSION,
            "proto", TUNE_PROTO_VERSION, "pid", (int)getpid(), "db", app->config.db, "socket",
            app->config.socket, "served", publish_folder(app->publish), "emulated",
            app->config.emulate, "ready", sched_is_ready(app->sched), "uptime_s",
            (double)(uv_hrtime() - app->started_ns) / 1e9));
}

static json_t *kernel_json(const struct plugin *plugin)
{
    const struct manifest *manifest = plugin->manifest;
    json_t *dims = json_array(), *dtypes = json_array(), *params = json_array();
    for (size_t i = 0; i < manifest->dim_count; i++)
        json_array_append_new(dims, json_string(manifest->dims[i].name));
    for (size_t i = 0; i < manifest->dtype_count; i++)
        json_array_append_new(dtypes, json_string(manifest->dtypes[i]));
    for (size_t i = 0; i < manifest->param_count; i++)
        json_array_append_new(params, json_string(manifest->params[i].name));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:s}", "name", manifest->name, "summary",
        manifest->summary, "dims", dims, "dtypes", dtypes, "params", params, "fingerprint",
        plugin->fingerprint, "folder", plugin->folder);
}

void cmd_kernels(struct request *request)
{
    struct app *app = request->app;
    json_t *list = json_array();
    for (size_t i = 0; i < registry_count(app->registry); i++)
        json_array_append_new(list, kernel_json(registry_at(app->registry, i)));
    const char *name, *reason;
    for (size_t i = 0; registry_failure(app->registry, i, &name, &reason); i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "error", reason));
    request_reply(request, list);
}

void cmd_describe(struct request *request)
{
    static const char *const keys[] = {"kernel", NULL};
    struct tune_error err = {0};
    struct plugin *plugin;
    if (proto_known_keys(request->params, keys, "describe", &err) ||
        find_plugin(request->app, request->params, &plugin, &err)) {
        request_fail(request, &err);
        return;
    }
    json_t *result = manifest_to_json(plugin->manifest);
    json_object_set_new(result, "fingerprint", json_string(plugin->fingerprint));
    json_object_set_new(result, "folder", json_string(plugin->folder));
    json_t *strategies = json_object();
    for (size_t i = 0; search_strategies[i] != NULL; i++)
        json_object_set_new(
            strategies, search_strategies[i]->name, json_string(search_strategies[i]->summary));
    json_object_set_new(result, "strategies", strategies);
    request_reply(request, result);
}

/* What is known of a device: new; NULL when nothing is. */
static json_t *limits_of(const struct limits *limits, const struct device_info *device)
{
    bool is_current;
    json_t *measured = limits_measured(limits, device, &is_current);
    return measured != NULL ? measured : limits_known(limits, device->name);
}

void cmd_devices(struct request *request)
{
    static const char *const keys[] = {"revive", NULL};
    struct app *app = request->app;
    struct tune_error err = {0};
    int64_t revive = -1;
    if (proto_known_keys(request->params, keys, "devices", &err) ||
        proto_int_opt(request->params, "revive", 0, 1023, &revive, &err)) {
        request_fail(request, &err);
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < sched_device_count(app->sched); i++) {
        const struct device_info *device = sched_device(app->sched, i);
        const char *reason;
        if (revive == device->ordinal)
            sched_revive(app->sched, i);
        const char *state = sched_device_state(app->sched, i, &reason);
        json_t *json = device_to_json(device);
        json_object_set_new(json, "state", json_string(state));
        json_object_set_new(json, "busy_s", json_real(sched_device_busy_s(app->sched, i)));
        if (reason[0] != '\0')
            json_object_set_new(json, "reason", json_string(reason));
        json_t *limits = limits_of(app->limits, device);
        if (limits != NULL)
            json_object_set_new(json, "limits", limits);
        json_array_append_new(list, json);
    }
    request_reply(request, list);
}

static json_t *database_json(struct app *app)
{
    struct tuning_db_stats stats;
    struct tune_error err = {0};
    if (tuning_db_stats(app->db, &stats, &err))
        return json_pack("{s:s}", "error", err.text);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "samples",
        (json_int_t)stats.samples, "best", (json_int_t)stats.best, "cubins",
        (json_int_t)stats.cubins, "logs", (json_int_t)stats.logs, "jobs", (json_int_t)stats.jobs,
        "cubin_bytes", (json_int_t)stats.cubin_bytes, "map_bytes", (json_int_t)stats.map_bytes,
        "used_bytes", (json_int_t)stats.used_bytes, "readers_used", (json_int_t)stats.readers_used,
        "readers_max", (json_int_t)stats.readers_max, "damaged", (json_int_t)stats.damaged,
        "generation", (json_int_t)stats.generation);
}

static json_t *shipped_json(const struct shipped *shipped)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "files", (json_int_t)shipped->files, "records",
        (json_int_t)shipped->records, "set_aside", (json_int_t)shipped->set_aside, "refused",
        (json_int_t)shipped->refused);
}

static json_t *workers_json(const struct sched *sched)
{
    size_t compile_workers, bench_workers, compile_queue;
    uint64_t deaths;
    struct sched_work work;
    sched_counts(sched, &compile_workers, &bench_workers, &compile_queue, &deaths);
    sched_work(sched, &work);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "compile",
        (json_int_t)compile_workers, "bench", (json_int_t)bench_workers, "compile_queue",
        (json_int_t)compile_queue, "deaths", (json_int_t)deaths, "compile_busy",
        (json_int_t)work.compile_busy, "bench_busy", (json_int_t)work.bench_busy, "compile_busy_s",
        work.compile_busy_s, "bench_busy_s", work.bench_busy_s);
}

void cmd_stats(struct request *request)
{
    struct app *app = request->app;
    struct image_counts images = images_counts(app->images);
    const struct compiler_info *compiler = sched_compiler(app->sched);
    request_reply(request,
        json_pack("{s:f, s:I, s:I, s:I, s:I, s:o, s:{s:I, s:I, s:I}, s:{s:s, s:s, s:s, "
                  "s:s}, s:{s:I, s:I}, s:o, s:o, s:o, s:o}",
            "uptime_s", (double)(uv_hrtime() - app->started_ns) / 1e9, "clients",
            (json_int_t)server_client_count(app->server), "requests", (json_int_t)app->requests,
            "jobs_active", (json_int_t)jobs_active_count(app->jobs), "jobs_queued",
            (json_int_t)jobs_queued_count(app->jobs), "workers", workers_json(app->sched), "images",
            "cache_hits", (json_int_t)images.hits, "compiles", (json_int_t)images.compiles,
            "failures", (json_int_t)images.failures, "compiler", "nvrtc", compiler->nvrtc, "path",
            compiler->path, "include", compiler->include, "error", compiler->error, "memo", "hits",
            (json_int_t)memo_hits(app->memo), "bytes", (json_int_t)memo_bytes(app->memo),
            "database", database_json(app), "shipped", shipped_json(&app->shipped), "fleet",
            app->fleet ? fleet_to_json(app->fleet) : json_null(), "helping",
            app->helping ? helping_to_json(app->helping) : json_null()));
}

void cmd_fleet(struct request *request)
{
    static const char *const keys[] = {NULL};
    struct app *app = request->app;
    struct tune_error err = {0};
    if (proto_known_keys(request->params, keys, "fleet", &err) == 0 && app->fleet == NULL)
        tune_fail(&err, TUNE_ENOTFOUND,
            "this daemon shares nothing: start it with --fleet URL (tunerd(8), FLEET)");
    if (err.code != TUNE_OK)
        request_fail(request, &err);
    else
        request_reply(request, fleet_to_json(app->fleet));
}
