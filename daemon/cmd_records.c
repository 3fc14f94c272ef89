/* records: what was measured, the newest rows up to a limit, newest last, with filters. Runs on a
 * pool thread: the database may be large. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_DEFAULT 1000
#define RECORDS_MAX 20000 /* of one answer; ask with filters for more */

struct row {
    int64_t time_unix_ms;
    json_t *json;
};

struct walk {
    uv_work_t work;
    struct request *request;
    struct tuning_db *db;
    const char *kernel, *outcome, *job, *shape, *arch;
    int64_t limit;
    bool with_log;
    struct row *rows; /* a heap, the oldest at the root */
    size_t count;
    struct tune_error err;
};

/* A canonical text "M=64,N=48" as an object: the form that requests take. */
static json_t *text_json(const char *text)
{
    json_t *object = json_object();
    while (*text != '\0') {
        size_t length = strcspn(text, "=");
        char *end;
        if (text[length] == '\0')
            break;
        long long value = strtoll(text + length + 1, &end, 10);
        json_object_setn_new(object, text, length, json_integer(value));
        text = *end == ',' ? end + 1 : end;
    }
    return object;
}

static json_t *sample_json(const struct sample *sample)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < sample->sample_count; i++)
        json_array_append_new(samples, json_real(sample->samples_ns[i]));
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:s, s:o, s:s, s:i, s:s, s:I, s:s, s:s, s:s}",
            "kernel", sample->key.kernel, "dtype", sample->key.dtype, "arch", sample->key.arch,
            "shape", text_json(sample->key.shape), "mode", sample->key.mode, "config",
            text_json(sample->config), "outcome", outcome_word(sample->outcome), "samples_ns",
            samples, "device", sample->gpu_name, "driver", (int)sample->driver, "nvrtc",
            sample->nvrtc, "time", (json_int_t)sample->time_unix_ms, "host", sample->host, "run",
            sample->run, "method", sample->method);
    json_object_set_new(json, "median_ns",
        sample->outcome == OUTCOME_OK ? json_real(sample->median_ns) : json_null());
    json_object_update_new(json,
        json_pack("{s:[f, f], s:b, s:b, s:b, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:f}",
            "interval_ns", sample->lo_ns, sample->hi_ns, "final", sample->is_final, "confirmed",
            sample->is_confirmed, "default", sample->is_default, "attempts", (int)sample->attempts,
            "registers", (int)sample->registers, "spill_bytes", (int)sample->spill_bytes,
            "static_shared_bytes", (int)sample->static_shared_bytes, "dynamic_shared_bytes",
            (int)sample->dynamic_shared_bytes, "detail", sample->detail, "same_as", sample->same_as,
            "uuid", sample->gpu_uuid, "fingerprint", sample->key.fingerprint, "max_error",
            sample->max_error));
    json_object_update_new(json,
        json_pack("{s:i, s:i, s:i, s:I, s:I, s:b, s:s}", "sm_clock_mhz", (int)sample->sm_clock_mhz,
            "memory_clock_mhz", (int)sample->memory_clock_mhz, "temperature_c",
            (int)sample->temperature_c, "throttle_reasons", (json_int_t)sample->throttle_reasons,
            "seed", (json_int_t)(sample->seed & INT64_MAX), "via_ptx", sample->via_ptx, "log_id",
            sample->log_id));
    return json;
}

static bool is_job_of(const char *run, const char *job)
{
    size_t length = strlen(job);
    return strncmp(run, job, length) == 0 && run[length] == '/';
}

static bool differs(const char *wanted, const char *found)
{
    return wanted != NULL && strcmp(wanted, found) != 0;
}

static void add_log(struct walk *walk, json_t *json, const char *id)
{
    char *text = NULL;
    size_t length = 0;
    struct tune_error err = {0};
    if (id[0] != '\0' && tuning_db_log(walk->db, id, &text, &length, &err) == 0)
        json_object_set_new(json, "log", json_stringn(text, length));
    free(text);
}

/* Puts a row in the root's place, and down to where it belongs. */
static void sink(struct walk *walk, struct row row)
{
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= walk->count)
            break;
        if (child + 1 < walk->count &&
            walk->rows[child + 1].time_unix_ms < walk->rows[child].time_unix_ms)
            child++;
        if (walk->rows[child].time_unix_ms >= row.time_unix_ms)
            break;
        walk->rows[at] = walk->rows[child];
        at = child;
    }
    walk->rows[at] = row;
}

/* Adds a row at the end, and up to where it belongs. */
static void rise(struct walk *walk, struct row row)
{
    size_t at = walk->count++;
    while (at > 0 && walk->rows[(at - 1) / 2].time_unix_ms > row.time_unix_ms) {
        walk->rows[at] = walk->rows[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    walk->rows[at] = row;
}

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return (a->time_unix_ms > b->time_unix_ms) - (a->time_unix_ms < b->time_unix_ms);
}

static int on_sample(const struct sample *sample, void *context)
{
    struct walk *walk = context;
    if (differs(walk->kernel, sample->key.kernel) || differs(walk->shape, sample->key.shape) ||
        differs(walk->arch, sample->key.arch) ||
        differs(walk->outcome, outcome_word(sample->outcome)) ||
        (walk->job != NULL && !is_job_of(sample->run, walk->job)))
        return 0;
    bool is_full = (int64_t)walk->count == walk->limit;
    if (is_full && sample->time_unix_ms <= walk->rows[0].time_unix_ms)
        return 0;
    json_t *json = sample_json(sample);
    if (walk->with_log)
        add_log(walk, json, sample->log_id);
    struct row row = {sample->time_unix_ms, json};
    if (is_full) {
        json_decref(walk->rows[0].json);
        sink(walk, row);
    } else {
        rise(walk, row);
    }
    return 0;
}

static void read_on_pool(uv_work_t *work)
{
    struct walk *walk = work->data;
    tuning_db_walk_samples(walk->db, NULL, on_sample, walk, &walk->err);
}

/* For people, where a kernel of today has such a shape. */
static void name_choices(const struct walk *walk, json_t *row)
{
    int64_t dims[MANIFEST_MAX_DIMS];
    const char *kernel = json_string_value(json_object_get(row, "kernel"));
    const struct plugin *plugin = registry_find(walk->request->app->registry, kernel, NULL);
    if (plugin != NULL &&
        manifest_shape_from_json(plugin->manifest, json_object_get(row, "shape"), dims, NULL) == 0)
        manifest_name_choices(plugin->manifest, dims, row);
}

static void on_read(uv_work_t *work, int status)
{
    struct walk *walk = work->data;
    (void)status;
    json_t *list = json_array();
    qsort(walk->rows, walk->count, sizeof *walk->rows, compare_rows);
    for (size_t i = 0; i < walk->count; i++) {
        name_choices(walk, walk->rows[i].json);
        json_array_append_new(list, walk->rows[i].json);
    }
    if (walk->err.code != TUNE_OK) {
        json_decref(list);
        request_fail(walk->request, &walk->err);
    } else {
        request_reply(walk->request, list);
    }
    free(walk->rows);
    free(walk);
}

void cmd_records(struct request *request)
{
    static const char *const keys[] = {
        "kernel", "outcome", "job", "shape", "arch", "limit", "log", NULL};
    struct tune_error err = {0};
    struct walk *walk = xcalloc(1, sizeof *walk);
    const json_t *params = request->params;
    enum outcome ignored;
    walk->limit = RECORDS_DEFAULT;
    proto_known_keys(params, keys, "records", &err);
    proto_string_opt(params, "kernel", &walk->kernel, &err);
    proto_string_opt(params, "outcome", &walk->outcome, &err);
    proto_string_opt(params, "job", &walk->job, &err);
    proto_string_opt(params, "shape", &walk->shape, &err);
    proto_string_opt(params, "arch", &walk->arch, &err);
    proto_int_opt(params, "limit", 1, RECORDS_MAX, &walk->limit, &err);
    proto_bool_opt(params, "log", &walk->with_log, &err);
    if (err.code == TUNE_OK && walk->outcome != NULL && outcome_from_word(walk->outcome, &ignored))
        tune_fail(&err, TUNE_EINVAL, "there is no outcome \"%.40s\"", walk->outcome);
    if (err.code != TUNE_OK) {
        free(walk);
        request_fail(request, &err);
        return;
    }
    walk->request = request;
    walk->db = request->app->db;
    walk->rows = xcalloc((size_t)walk->limit, sizeof *walk->rows);
    walk->work.data = walk;
    uv_queue_work(&request->app->loop, &walk->work, read_on_pool, on_read);
}
