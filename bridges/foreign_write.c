/* Our records as files of other tuners. */
#include "foreign_internal.h"

#include "bridges/python.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- JSON as Python writes it ------------------------------------------------------------------
 */

static void put(FILE *out, const json_t *json, const char *line);

static void put_text(FILE *out, const char *text)
{
    json_t *json = json_string(text);
    char *dump = json_dumps(json, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    fputs(dump ? dump : "\"\"", out);
    free(dump);
    json_decref(json);
}

/* `line` stands after each bracket and comma: "\n" as with indent="", "" for one line. */
static void put_separator(FILE *out, size_t at, const char *line)
{
    fputs(at > 0 ? "," : "", out);
    fputs(line[0] != '\0' ? line : at > 0 ? " " : "", out);
}

static void put_members(FILE *out, const json_t *json, const char *line)
{
    const char *name;
    json_t *value;
    size_t at = 0;
    json_object_foreach ((json_t *)json, name, value) {
        put_separator(out, at++, line);
        put_text(out, name);
        fputs(": ", out);
        put(out, value, line);
    }
}

static void put_elements(FILE *out, const json_t *json, const char *line)
{
    size_t i;
    json_t *value;
    json_array_foreach (json, i, value) {
        put_separator(out, i, line);
        put(out, value, line);
    }
}

static void put(FILE *out, const json_t *json, const char *line)
{
    char number[PYTHON_REAL_BYTES];
    const char *close = json_object_size(json) > 0 || json_array_size(json) > 0 ? line : "";
    if (json_is_object(json)) {
        fputc('{', out);
        put_members(out, json, line);
        fprintf(out, "%s}", close);
    } else if (json_is_array(json)) {
        fputc('[', out);
        put_elements(out, json, line);
        fprintf(out, "%s]", close);
    } else if (json_is_real(json)) {
        python_real_text(json_real_value(json), number);
        fputs(number, out);
    } else if (json_is_integer(json)) {
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
    } else if (json_is_string(json)) {
        put_text(out, json_string_value(json));
    } else {
        fputs(json_is_true(json) ? "true" : json_is_false(json) ? "false" : "null", out);
    }
}

/* --- values ----------------------------------------------------------------------------------- */

/* Words such as "inf" and "0x10" are numbers to strtod, and none to JSON. */
json_t *foreign_value(const struct manifest_param *param, int64_t value)
{
    const char *define = manifest_param_define(param, value);
    char *end;
    if (define == NULL)
        return json_integer(value);
    if (strcmp(define, "true") == 0 || strcmp(define, "false") == 0)
        return json_boolean(define[0] == 't');
    errno = 0;
    long long integer = strtoll(define, &end, 10);
    if (end != define && *end == '\0' && errno == 0)
        return json_integer(integer);
    double real = strtod(define, &end);
    bool is_real = *end == '\0' && define[strspn(define, "+-.0123456789eE")] == '\0';
    return is_real && isfinite(real) ? json_real(real) : json_string(define);
}

/* As Python's str() prints it, which is how keys are made. */
static void put_key_value(FILE *out, const json_t *json)
{
    if (json_is_string(json))
        fputs(json_string_value(json), out);
    else if (json_is_boolean(json))
        fputs(json_is_true(json) ? "True" : "False", out);
    else
        put(out, json, "");
}

/* "2023-12-22 09:54:05.502007+00:00" */
static void moment_text(int64_t unix_ms, char *out, size_t room)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm moment;
    char day[32];
    gmtime_r(&seconds, &moment);
    strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S", &moment);
    snprintf(out, room, "%s.%06d+00:00", day, (int)(unix_ms % 1000) * 1000);
}

static double mean_ms(const struct sample *sample)
{
    double sum = 0;
    for (size_t i = 0; i < sample->sample_count; i++)
        sum += (double)sample->samples_ns[i];
    return (sample->sample_count > 0 ? sum / (double)sample->sample_count : sample->median_ns) /
           1e6;
}

/* Every sample in milliseconds; the median where there is none. New. */
static json_t *times_ms(const struct sample *sample)
{
    json_t *times = json_array();
    for (size_t i = 0; i < sample->sample_count; i++)
        json_array_append_new(times, json_real((double)sample->samples_ns[i] / 1e6));
    if (sample->sample_count == 0 && sample->outcome == OUTCOME_OK)
        json_array_append_new(times, json_real(sample->median_ns / 1e6));
    return times;
}

static const char *error_word(enum outcome outcome)
{
    return outcome == OUTCOME_INVALID || outcome == OUTCOME_OVER_LIMITS ? "InvalidConfig"
           : outcome == OUTCOME_COMPILE_FAILED                          ? "CompilationFailedConfig"
                                                                        : "RuntimeFailedConfig";
}

/* --- which samples ---------------------------------------------------------------------------- */

/* Of two rows of a configuration the one that goes first: what worked, what was confirmed, the
 * lower upper bound; then what never ties. */
static int compare_samples(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    bool is_a = a->outcome == OUTCOME_OK, is_b = b->outcome == OUTCOME_OK;
    int order = strcmp(a->config, b->config);
    if (order == 0)
        order = (int)is_b - (int)is_a;
    if (order == 0)
        order = (int)b->is_confirmed - (int)a->is_confirmed;
    if (order == 0)
        order = (a->hi_ns > b->hi_ns) - (a->hi_ns < b->hi_ns);
    if (order == 0)
        order = strcmp(a->run ? a->run : "", b->run ? b->run : "");
    return order ? order : strcmp(a->gpu_uuid ? a->gpu_uuid : "", b->gpu_uuid ? b->gpu_uuid : "");
}

/* One sample a configuration, by their texts; those that do not count, or are of another version of
 * the kernel, are left out. malloc'ed. */
static const struct sample **choose(const struct foreign_output *output, size_t *count)
{
    const struct sample **chosen = malloc((output->count + 1) * sizeof(struct sample *));
    int64_t values[MANIFEST_MAX_PARAMS];
    *count = 0;
    for (size_t i = 0; chosen != NULL && i < output->count; i++) {
        const struct sample *sample = &output->samples[i];
        if (sample->is_final && !sample->is_refused &&
            manifest_config_from_text(output->manifest, sample->config, values, NULL) == 0)
            chosen[(*count)++] = sample;
    }
    if (chosen == NULL || *count == 0)
        return chosen;
    qsort(chosen, *count, sizeof(struct sample *), compare_samples);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++)
        if (strcmp(chosen[i]->config, chosen[kept - 1]->config) != 0)
            chosen[kept++] = chosen[i];
    *count = kept;
    return chosen;
}

/* Name -> value as the source got it. New. */
static json_t *config_json(const struct manifest *manifest, const struct sample *sample)
{
    int64_t values[MANIFEST_MAX_PARAMS] = {0};
    json_t *config = json_object();
    manifest_config_from_text(manifest, sample->config, values, NULL); /* it was one before */
    for (size_t i = 0; i < manifest->param_count; i++)
        json_object_set_new(
            config, manifest->params[i].name, foreign_value(&manifest->params[i], values[i]));
    return config;
}

/* --- Kernel Tuner ----------------------------------------------------------------------------- */

/* Everything before the records; the tuner compares it when it resumes. New. */
static json_t *cache_header(const struct foreign_output *output)
{
    const struct manifest *manifest = output->manifest;
    json_t *problem = json_array(), *keys = json_array(), *params = json_object();
    int64_t dims[MANIFEST_MAX_DIMS] = {0};
    manifest_shape_from_text(manifest, output->shape, dims);
    for (size_t i = 0; i < manifest->dim_count; i++)
        json_array_append_new(problem, json_integer(dims[i]));
    for (size_t i = 0; i < manifest->param_count; i++) {
        const struct manifest_param *param = &manifest->params[i];
        json_t *values = json_array();
        for (size_t j = 0; j < param->value_count; j++)
            json_array_append_new(values, foreign_value(param, param->values[j]));
        json_array_append_new(keys, json_string(param->name));
        json_object_set_new(params, param->name, values);
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:s}", "device_name", output->gpu, "kernel_name",
        manifest->name, "problem_size", problem, "tune_params_keys", keys, "tune_params", params,
        "objective", "time");
}

static void put_cache_record(
    FILE *out, const struct foreign_output *output, const struct sample *sample)
{
    static const char *const overheads[] = {
        "compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time"};
    json_t *record = config_json(output->manifest, sample), *value;
    bool is_ok = sample->outcome == OUTCOME_OK;
    const char *name;
    char moment[64], *key = NULL;
    size_t length, at = 0;
    FILE *keys = open_memstream(&key, &length);
    json_object_foreach (record, name, value) {
        fputs(at++ > 0 ? "," : "", keys);
        put_key_value(keys, value);
    }
    fclose(keys);
    moment_text(sample->time_unix_ms, moment, sizeof moment);
    json_object_set_new(record, "time",
        is_ok ? json_real(mean_ms(sample)) : json_string(error_word(sample->outcome)));
    if (is_ok)
        json_object_set_new(record, "times", times_ms(sample));
    for (size_t i = 0; i < sizeof overheads / sizeof overheads[0]; i++)
        json_object_set_new(record, overheads[i], json_integer(0));
    json_object_set_new(record, "timestamp", json_string(moment));
    if (!is_ok)
        json_object_set_new(record, "tunerd_outcome", json_string(outcome_word(sample->outcome)));
    put_text(out, key);
    fputs(": ", out);
    put(out, record, "");
    free(key);
    json_decref(record);
}

/* The header without its closing bracket, one record a line, and the two brackets by whose last
 * three bytes the tuner knows a closed file. */
static void put_cache(FILE *out, const struct foreign_output *output,
    const struct sample *const *samples, size_t count)
{
    json_t *header = cache_header(output), *value;
    const char *name;
    fputc('{', out);
    json_object_foreach (header, name, value) {
        fputc('\n', out);
        put_text(out, name);
        fputs(": ", out);
        put(out, value, "\n");
        fputc(',', out);
    }
    fputs("\n\"cache\": {", out);
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_cache_record(out, output, samples[i]);
    }
    fputs("}\n}", out);
    json_decref(header);
}

/* --- T4 --------------------------------------------------------------------------------------- */

static const char *invalidity_word(enum outcome outcome)
{
    static const char *const words[OUTCOME_COUNT] = {[OUTCOME_OK] = "correct",
        [OUTCOME_INVALID] = "constraints",
        [OUTCOME_COMPILE_FAILED] = "compile",
        [OUTCOME_OVER_LIMITS] = "constraints",
        [OUTCOME_LAUNCH_FAILED] = "runtime",
        [OUTCOME_WRONG_RESULT] = "correctness",
        [OUTCOME_TIMEOUT] = "timeout",
        [OUTCOME_CRASHED] = "runtime"};
    return words[outcome];
}

/* Readers look for the time of a compile under either name. */
static json_t *result_json(const struct foreign_output *output, const struct sample *sample)
{
    char moment[64];
    bool is_ok = sample->outcome == OUTCOME_OK;
    moment_text(sample->time_unix_ms, moment, sizeof moment);
    json_t *time = is_ok ? json_real(mean_ms(sample)) : json_string(error_word(sample->outcome));
    return json_pack("{s:s, s:o, s:[s], s:{s:i, s:i, s:o, s:i, s:i, s:i}, s:s, s:i, s:[{s:s, s:o, "
                     "s:s}]}",
        "timestamp", moment, "configuration", config_json(output->manifest, sample), "objectives",
        "time", "times", "compilation_time", 0, "compilation", 0, "runtimes", times_ms(sample),
        "framework", 0, "search_algorithm", 0, "validation", 0, "invalidity",
        invalidity_word(sample->outcome), "correctness", is_ok, "measurements", "name", "time",
        "value", time, "unit", "ms");
}

static void put_t4(FILE *out, const struct foreign_output *output,
    const struct sample *const *samples, size_t count)
{
    json_t *metadata = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "timeunit",
        "milliseconds", "device", output->gpu, "arch", output->arch, "driver",
        count > 0 ? (int)samples[0]->driver : 0, "kernel", output->manifest->name, "problem_size",
        output->shape, "dtype", output->dtype, "source_hash", output->fingerprint);
    fputs("{\"schema_version\": \"1.0.0\",\n\"metadata\": ", out);
    put(out, metadata, "");
    fputs(",\n\"results\": [", out);
    for (size_t i = 0; i < count; i++) {
        json_t *result = result_json(output, samples[i]);
        fputs(i > 0 ? ",\n" : "\n", out);
        put(out, result, "");
        json_decref(result);
    }
    fputs("\n]}\n", out);
    json_decref(metadata);
}

/* --- the whole -------------------------------------------------------------------------------- */

char *foreign_write(enum foreign_format format, const struct foreign_output *output, size_t *length,
    size_t *written, struct tune_error *err)
{
    char *text = NULL;
    const struct sample **samples = NULL;
    if (format != FOREIGN_KERNEL_TUNER && format != FOREIGN_T4) {
        tune_fail(err, TUNE_EINVAL, "files of %s are only read; kernel-tuner and t4 are written",
            foreign_word(format));
        return NULL;
    }
    samples = choose(output, written);
    FILE *out = samples ? open_memstream(&text, length) : NULL;
    if (out == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a file");
    } else if (*written == 0) {
        tune_fail(err, TUNE_ENOTFOUND, "no record of these configurations");
        fclose(out);
        free(text);
        text = NULL;
    } else {
        (format == FOREIGN_T4 ? put_t4 : put_cache)(out, output, samples, *written);
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
            tune_fail(err, TUNE_ENOMEM, "no memory for a file");
        }
    }
    free(samples);
    return text;
}
