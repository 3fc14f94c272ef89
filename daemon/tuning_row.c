/* Rows of `samples`: what a worker answered, put together with where and when it was measured. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "daemon/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DETAIL_MAX 1024

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static uint32_t count(const json_t *object, const char *key)
{
    double value = number(object, key);
    return value > 0 && value < UINT32_MAX ? (uint32_t)value : 0;
}

struct times tuning_times(const json_t *answer)
{
    const json_t *interval = json_object_get(answer, "interval_ns");
    return (struct times){
        .median_ns = number(answer, "median_ns"),
        .lo_ns = json_number_value(json_array_get(interval, 0)),
        .hi_ns = json_number_value(json_array_get(interval, 1)),
    };
}

static void take_times(struct sample *sample, const struct row *row, float **samples)
{
    const json_t *answer = row->answer;
    const json_t *list = json_object_get(answer, "samples_ns");
    if (!json_is_array(list)) {
        sample->median_ns = row->median_ns;
        sample->lo_ns = row->lo_ns;
        sample->hi_ns = row->hi_ns;
        return;
    }
    struct times times = tuning_times(answer);
    sample->median_ns = times.median_ns;
    sample->lo_ns = times.lo_ns;
    sample->hi_ns = times.hi_ns;
    size_t total = json_array_size(list);
    *samples = xcalloc(total, sizeof **samples);
    for (size_t i = 0; i < total; i++)
        (*samples)[i] = (float)json_number_value(json_array_get(list, i));
    sample->samples_ns = *samples;
    sample->sample_count = total;
}

static void take_clocks(struct sample *sample, const json_t *clocks)
{
    sample->sm_clock_mhz = count(clocks, "sm_mhz");
    sample->memory_clock_mhz = count(clocks, "memory_mhz");
    sample->temperature_c = count(clocks, "temperature_c");
    sample->throttle_reasons =
        (uint64_t)json_integer_value(json_object_get(clocks, "throttle_reasons"));
}

const char *tuning_row_detail(const struct row *row)
{
    const char *detail = row->detail;
    if (detail == NULL)
        detail = json_string_value(json_object_get(row->answer, "error"));
    return detail ? detail : "";
}

void tuning_add_row(struct tuning *tuning, const struct row *row)
{
    const struct candidate *candidate = row->candidate;
    const struct device_info *device = candidate->lane ? &candidate->lane->device : &tuning->device;
    struct tuning_db_batch *batch = writer_batch(tuning->deps.writer);
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    char *config = manifest_config_text(tuning->manifest, values);
    char detail[DETAIL_MAX], log_id[33] = "";
    snprintf(detail, sizeof detail, "%s", tuning_row_detail(row));
    float *samples = NULL;
    const char *method = json_string_value(json_object_get(row->answer, "method"));
    struct sample sample = {
        .key = tuning->key,
        .config = config,
        .gpu_uuid = device->uuid,
        .run = row->run,
        .outcome = row->outcome,
        .is_final = row->is_final,
        .is_confirmed = row->is_confirmed,
        .is_default = candidate->is_default,
        .is_refused = row->is_refused,
        .attempts = candidate->attempts,
        .method = method ? method : tuning->method,
        .registers = count(row->answer, "registers"),
        .spill_bytes = count(row->answer, "spill_bytes"),
        .static_shared_bytes = count(row->answer, "static_shared_bytes"),
        .dynamic_shared_bytes = count(row->answer, "dynamic_shared_bytes"),
        .same_as = row->same_as ? row->same_as : "",
        .detail = detail,
        .gpu_name = device->name,
        .sms = (uint32_t)device->attributes[DEVICE_sms],
        .host = tuning->deps.host,
        .nvrtc = sched_compiler(tuning->deps.sched)->nvrtc,
        .driver = (uint32_t)device->driver,
        .via_ptx = json_is_true(json_object_get(candidate->subject.package, "is_ptx")),
        .time_unix_ms = clock_unix_ms(),
        .seed = tuning->input_seed,
        .max_error = number(row->answer, "max_error"),
    };
    take_times(&sample, row, &samples);
    take_clocks(&sample, json_object_get(row->answer, "clocks"));
    if (row->log != NULL && row->log[0] != '\0' &&
        tuning_db_batch_log(batch, row->log, strlen(row->log), log_id) == 0)
        sample.log_id = log_id;
    if (tuning_db_batch_sample(batch, &sample))
        log_warnx("%s: a result is too large to be stored", config);
    free(samples);
    free(config);
}

void tuning_add_mark(struct lane *lane)
{
    struct tuning *tuning = lane->tuning;
    const struct candidate *candidate = lane->benching;
    char name[64];
    snprintf(name, sizeof name, "mark/%s/%zu", tuning->job, lane->device_index);
    struct tuning_db_batch *batch = writer_batch(tuning->deps.writer);
    if (candidate == NULL) {
        tuning_db_batch_job(batch, name, NULL, 0);
        return;
    }
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    char *config = manifest_config_text(tuning->manifest, values);
    char *mark = xasprintf("%u %s", candidate->attempts, config);
    tuning_db_batch_job(batch, name, mark, strlen(mark));
    free(mark);
    free(config);
}
