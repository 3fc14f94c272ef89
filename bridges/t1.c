/* See t1.h: parameters, conditions and the default; and the source that joins them to the kernel.
 */
#include "t1_internal.h"

#include "client/proto.h"
#include "plugins/space.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- tools ------------------------------------------------------------------------------------ */

void t1_warn(struct t1_reader *reader, const char *format, ...)
{
    va_list args;
    if (reader->is_quiet)
        return;
    va_start(args, format);
    told_warning(reader->warnings, format, args);
    va_end(args);
}

void t1_identifier(const char *text, const char *prefix, char *out)
{
    size_t used = 0;
    if (!isalpha((unsigned char)text[0]))
        used = (size_t)snprintf(out, MANIFEST_MAX_NAME, "%s", prefix);
    for (; *text != '\0' && used < MANIFEST_MAX_NAME; text++)
        out[used++] = isalnum((unsigned char)*text) ? *text : *text == '-' ? 'm' : '_';
    out[used] = '\0';
}

/* --- values ----------------------------------------------------------------------------------- */

/* What the source gets: the value as it is written in C. */
static int define_text(
    struct t1_reader *reader, const struct t1_param *param, size_t i, char *define)
{
    const struct python_value *value = &param->values[i];
    if (value->type == PYTHON_REAL)
        python_real_text(value->real, define);
    else if (value->type == PYTHON_BOOL)
        strcpy(define, value->integer ? "true" : "false");
    else if (value->type == PYTHON_INT)
        snprintf(define, MANIFEST_MAX_NAME, "%" PRId64, value->integer);
    else if (value->type == PYTHON_TEXT && value->integer > 0 && value->integer < MANIFEST_MAX_NAME)
        strcpy(define, value->text);
    else
        return tune_fail(reader->err, TUNE_EINVAL,
            "parameter %.60s: value %zu is neither a number nor a word of at most %d bytes",
            param->name, i + 1, MANIFEST_MAX_NAME - 1);
    return 0;
}

/* Ordinals with names; two values whose names look alike get numbers behind them. */
static int name_value(struct t1_reader *reader, struct t1_param *param, size_t i)
{
    bool is_bool = param->values[i].type == PYTHON_BOOL;
    if (define_text(reader, param, i, param->defines[i]))
        return -1;
    param->numbers[i] = is_bool ? param->values[i].integer : (int64_t)i;
    t1_identifier(param->defines[i], "v", param->names[i]);
    for (size_t j = 0; j < i; j++) {
        if (strcmp(param->names[j], param->names[i]) == 0) {
            size_t length = strnlen(param->names[i], MANIFEST_MAX_NAME - 4);
            snprintf(param->names[i] + length, 5, "_%zu", i % 1000);
        }
    }
    return 0;
}

static bool is_integral(const struct python_value *value)
{
    return value->type == PYTHON_INT ||
           (value->type == PYTHON_REAL && value->real == nearbyint(value->real) &&
               fabs(value->real) < 9e15);
}

/* Whether all values are integers; reals such as 16.0 count where the type says int. */
static bool are_integers(const struct t1_param *param, const char *type)
{
    bool may_be_real = strcmp(type, "int") == 0 || strcmp(type, "uint") == 0;
    for (size_t i = 0; i < param->count; i++)
        if (param->values[i].type != PYTHON_INT && !(may_be_real && is_integral(&param->values[i])))
            return false;
    return true;
}

/* The list without what stands in it twice. A list as a value is refused later, and may take long
 * to compare. */
static int take_values(struct t1_reader *reader, struct t1_param *param,
    const struct python_value *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool is_new = true;
        for (size_t j = 0; is_new && j < param->count; j++)
            is_new = items[i].type != param->values[j].type || items[i].type == PYTHON_LIST ||
                     !python_is_equal(&items[i], &param->values[j]);
        if (!is_new) {
            t1_warn(
                reader, "parameter %s: value %zu stands twice; once is enough", param->name, i + 1);
            continue;
        }
        if (param->count == MANIFEST_MAX_VALUES)
            return tune_fail(reader->err, TUNE_ELIMIT,
                "parameter %.60s has more than the %d values that a parameter can have",
                param->name, MANIFEST_MAX_VALUES);
        param->values[param->count++] = items[i];
    }
    return param->count > 0
               ? 0
               : tune_fail(reader->err, TUNE_EINVAL, "parameter %.60s has no value", param->name);
}

static int read_values(struct t1_reader *reader, struct t1_param *param, const json_t *object)
{
    struct tune_error why = {0};
    struct python_value list;
    const char *text = told_text(object, "Values");
    param->python = python_parse(text, &why);
    if (param->python == NULL || python_eval(param->python, NULL, 0, &list, &why))
        return tune_fail(
            reader->err, why.code, "parameter %.60s: its Values: %s", param->name, why.text);
    bool is_list = list.type == PYTHON_LIST;
    if (take_values(
            reader, param, is_list ? list.items : &list, is_list ? (size_t)list.integer : 1))
        return -1;
    param->is_integer = are_integers(param, told_text(object, "Type"));
    for (size_t i = 0; i < param->count; i++) {
        if (!param->is_integer && name_value(reader, param, i))
            return -1;
        if (param->is_integer) {
            param->numbers[i] = param->values[i].type == PYTHON_REAL
                                    ? (int64_t)param->values[i].real
                                    : param->values[i].integer;
            define_text(reader, param, i, param->defines[i]);
            if (param->values[i].type == PYTHON_REAL)
                snprintf(param->defines[i], MANIFEST_MAX_NAME, "%" PRId64, param->numbers[i]);
        }
    }
    return 0;
}

/* JSON as Python has it; lists give their first element. */
static struct python_value json_value(const json_t *json)
{
    struct python_value value = {.type = PYTHON_NONE};
    if (json_is_array(json))
        json = json_array_get(json, 0);
    if (json_is_string(json))
        value = (struct python_value){.type = PYTHON_TEXT,
            .integer = (int64_t)json_string_length(json),
            .text = json_string_value(json)};
    else if (json_is_boolean(json))
        value = (struct python_value){.type = PYTHON_BOOL, .integer = json_is_true(json)};
    else if (json_is_integer(json))
        value = (struct python_value){.type = PYTHON_INT, .integer = json_integer_value(json)};
    else if (json_is_real(json))
        value = (struct python_value){.type = PYTHON_REAL, .real = json_real_value(json)};
    return value;
}

static void read_default(struct t1_reader *reader, struct t1_param *param, const json_t *object)
{
    const json_t *json = json_object_get(object, "Default");
    struct python_value wanted = json_value(json);
    for (size_t i = 0; i < param->count; i++) {
        if (python_is_equal(&wanted, &param->values[i]) ||
            (wanted.type == PYTHON_TEXT && strcmp(wanted.text, param->defines[i]) == 0)) {
            param->fallback = i;
            return;
        }
    }
    if (json != NULL && param->count > 1)
        t1_warn(reader, "parameter %s: its default is none of its values; the first one is taken",
            param->name);
}

static json_t *param_json(const struct t1_param *param)
{
    json_t *values = json_array();
    for (size_t i = 0; i < param->count; i++)
        json_array_append_new(values,
            param->is_integer ? json_integer(param->numbers[i])
                              : json_pack("{s:I, s:s, s:s}", "value", (json_int_t)param->numbers[i],
                                    "name", param->names[i], "define", param->defines[i]));
    return json_pack("{s:s, s:s, s:o}", "name", param->name, "meaning",
        "as the problem description has it", "values", values);
}

static int read_params(struct t1_reader *reader)
{
    const json_t *list = json_object_get(reader->space, "TuningParameters");
    size_t count = json_array_size(list);
    json_t *params = json_array();
    json_object_set_new(reader->manifest, "params", params);
    if (count == 0 || count > MANIFEST_MAX_PARAMS)
        return tune_fail(reader->err, count ? TUNE_ELIMIT : TUNE_EINVAL,
            "the description has %zu tuning parameters; there must be 1 to %d", count,
            MANIFEST_MAX_PARAMS);
    reader->params = calloc(count, sizeof *reader->params);
    if (reader->params == NULL)
        return tune_fail(reader->err, TUNE_ENOMEM, "no memory for the parameters");
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(list, i);
        struct t1_param *param = &reader->params[reader->param_count++];
        param->name = told_text(object, "Name");
        if (read_values(reader, param, object))
            return -1;
        read_default(reader, param, object);
        json_array_append_new(params, param_json(param));
    }
    return 0;
}

/* --- conditions ------------------------------------------------------------------------------- */

static int read_condition(struct t1_reader *reader, const char *text, json_t *constraints)
{
    struct python_param params[MANIFEST_MAX_PARAMS];
    struct tune_error why = {0};
    for (size_t i = 0; i < reader->param_count; i++) {
        const struct t1_param *param = &reader->params[i];
        params[i] = (struct python_param){
            param->name, param->count, param->values, param->numbers, param->is_integer};
    }
    char *expr = python_condition(text, params, reader->param_count, &why);
    if (expr == NULL)
        return tune_fail(reader->err, why.code, "condition \"%.60s\": %s", text, why.text);
    char message[MANIFEST_MAX_TEXT];
    snprintf(message, sizeof message, "the problem description demands: %s", text);
    json_array_append_new(constraints, json_pack("{s:s, s:s}", "expr", expr, "message", message));
    free(expr);
    return 0;
}

static int read_conditions(struct t1_reader *reader)
{
    json_t *constraints = json_object_get(reader->manifest, "constraints"), *condition;
    const json_t *conditions = json_object_get(reader->space, "Conditions");
    size_t i;
    if (json_array_size(conditions) > MANIFEST_MAX_ITEMS)
        return tune_fail(reader->err, TUNE_ELIMIT,
            "the description has %zu conditions; the limit is %d", json_array_size(conditions),
            MANIFEST_MAX_ITEMS);
    json_array_foreach (conditions, i, condition) {
        const char *text = json_is_string(condition) ? json_string_value(condition)
                                                     : told_text(condition, "Expression");
        if (text[0] == '\0')
            return tune_fail(reader->err, TUNE_EINVAL, "condition %zu has no Expression", i + 1);
        if (read_condition(reader, text, constraints))
            return -1;
    }
    return 0;
}

/* --- the default ------------------------------------------------------------------------------ */

static json_t *default_json(const struct t1_reader *reader)
{
    json_t *config = json_object();
    for (size_t i = 0; i < reader->param_count; i++)
        json_object_set_new(config, reader->params[i].name,
            json_integer(reader->params[i].numbers[reader->params[i].fallback]));
    return config;
}

static struct manifest *check_manifest(struct t1_reader *reader)
{
    char *text = json_dumps(reader->manifest, JSON_COMPACT);
    struct manifest *manifest =
        text ? manifest_create(text, strlen(text), "the manifest made of it", reader->err) : NULL;
    if (text == NULL)
        tune_fail(reader->err, TUNE_ENOMEM, "no memory for a manifest");
    free(text);
    return manifest;
}

/* The first configuration of the space becomes the default. */
static void take_first(struct t1_reader *reader, const struct space *space)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(space, 0, values);
    for (size_t i = 0; i < reader->param_count; i++)
        for (size_t j = 0; j < reader->params[i].count; j++)
            if (reader->params[i].numbers[j] == values[i])
                reader->params[i].fallback = j;
    t1_warn(reader, "the description's default breaks its own conditions; the first valid "
                    "configuration takes its place");
}

/* A manifest that can be read, and its space; a default that is none of it is replaced. */
static int settle_default(struct t1_reader *reader, struct t1_plugin *plugin)
{
    struct device_info device;
    struct tune_error why = {0};
    struct manifest *manifest = check_manifest(reader);
    if (manifest == NULL || device_generic("sm_90", &device, reader->err)) {
        manifest_destroy(manifest);
        return -1;
    }
    struct space *space =
        space_create(manifest, &device, manifest->shapes[0], manifest->dtypes[0], NULL, &why);
    int status = 0;
    if (space != NULL) {
        plugin->configurations = space_count(space);
        if (space_default(space) == SIZE_MAX)
            take_first(reader, space);
    } else if (why.code == TUNE_ELIMIT) {
        t1_warn(reader, "%s: tunerd cannot sweep it whole; restrict it with --param", why.text);
    } else {
        status = tune_fail(reader->err, why.code, "%s", why.text);
    }
    space_destroy(space);
    manifest_destroy(manifest);
    json_object_set_new(reader->manifest, "default", default_json(reader));
    return status;
}

/* --- the source ------------------------------------------------------------------------------- */

/* The kernel's own text comes by #include, so that a new version of it needs no new conversion. */
static char *source_text(const struct t1_reader *reader, const char *included)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return NULL;
    fprintf(out,
        "// Made by \"tunectl convert t1\": the kernel that %s describes.\n"
        "// The reference is the kernel itself in its default configuration.\n\n"
        "#define kernel_tuner 1 // sources ask for it to find their parameters defined\n\n"
        "#ifdef TUNE_REFERENCE\n",
        reader->options->file);
    for (size_t i = 0; i < reader->param_count; i++)
        fprintf(out, "#define %s %s\n", reader->params[i].name,
            reader->params[i].defines[reader->params[i].fallback]);
    fprintf(out, "#endif\n\n#include \"%s\"\n", included);
    return fclose(out) == 0 ? text : NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* [a-z][a-z0-9_]*, of the options, the description, or the file. */
static char *kernel_name(const json_t *t1, const struct t1_options *options)
{
    char name[MANIFEST_MAX_NAME + 1];
    const char *wanted =
        options->name ? options->name : told_text(json_object_get(t1, "General"), "BenchmarkName");
    if (wanted[0] == '\0')
        wanted = told_text(json_object_get(t1, "KernelSpecification"), "KernelName");
    t1_identifier(wanted, "t1_", name);
    for (char *at = name; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    return strdup(name);
}

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
            return false;
    return true;
}

static int name_files(struct t1_reader *reader, struct t1_plugin *plugin, const json_t *t1)
{
    const char *file = base_name(t1_kernel_file(t1));
    plugin->name = kernel_name(t1, reader->options);
    plugin->included_name = strdup(file[0] != '\0' ? file : "kernel.cu");
    if (plugin->name == NULL || plugin->included_name == NULL ||
        asprintf(&plugin->source_name, "%s_t1.cu", plugin->name) < 0)
        return tune_fail(reader->err, TUNE_ENOMEM, "no memory for names");
    if (strcmp(plugin->source_name, plugin->included_name) == 0) /* it would include itself */
        memcpy(strrchr(plugin->source_name, '_'), "_2.cu", 6);
    if (!is_printable(plugin->included_name) || !is_printable(reader->options->file))
        return tune_fail(reader->err, TUNE_EINVAL,
            "the name of the description, or its KernelFile, has bytes that no #include can have");
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

json_t *t1_parse(const char *text, size_t length, struct tune_error *err)
{
    if (length > T1_LIMIT_BYTES) {
        tune_fail(err, TUNE_ELIMIT, "a description of %zu bytes; the limit is %zu", length,
            T1_LIMIT_BYTES);
        return NULL;
    }
    json_t *t1 = proto_parse(text, length, err);
    if (t1 == NULL)
        return NULL;
    if (json_is_object(json_object_get(t1, "ConfigurationSpace")) &&
        json_is_object(json_object_get(t1, "KernelSpecification")))
        return t1;
    tune_fail(err, TUNE_EINVAL,
        "this is no T1 description: it lacks ConfigurationSpace or KernelSpecification");
    json_decref(t1);
    return NULL;
}

const char *t1_kernel_file(const json_t *t1)
{
    return told_text(json_object_get(t1, "KernelSpecification"), "KernelFile");
}

static json_t *frame(const struct t1_reader *reader, const struct t1_plugin *plugin)
{
    char summary[512];
    snprintf(summary, sizeof summary,
        "%.100s of %.100s; checked against itself in its default configuration, which proves that "
        "configurations agree, not that they are right",
        told_text(reader->kernel, "KernelName"), reader->options->file);
    return json_pack("{s:i, s:s, s:s, s:s, s:[], s:[], s:[], s:[], s:[], s:{}}", "tunerd",
        MANIFEST_VERSION, "name", plugin->name, "summary", summary, "source", plugin->source_name,
        "dims", "shapes", "dtypes", "params", "constraints", "default");
}

static int convert(struct t1_reader *reader, struct t1_plugin *plugin, const json_t *t1)
{
    if (name_files(reader, plugin, t1))
        return -1;
    t1_compare_names(reader, json_object_get(t1, "General"));
    reader->manifest = frame(reader, plugin);
    if (reader->manifest == NULL)
        return tune_fail(reader->err, TUNE_EINVAL, "the description's names cannot be written");
    if (read_params(reader) || read_conditions(reader))
        return -1;
    json_object_set_new(reader->manifest, "default", default_json(reader));
    if (t1_add_launch(reader) || settle_default(reader, plugin))
        return -1;
    t1_warn(reader,
        "%s is its own reference: what is measured is compared with its default configuration, "
        "which shows that configurations agree, not that they are right",
        plugin->name);
    reader->is_quiet = true;
    if (t1_add_launch(reader)) /* again: the reference is launched as the default is */
        return -1;
    struct manifest *manifest = check_manifest(reader);
    if (manifest == NULL)
        return -1;
    manifest_destroy(manifest);
    plugin->manifest = json_dumps(reader->manifest, JSON_INDENT(2));
    plugin->source = source_text(reader, plugin->included_name);
    return plugin->manifest && plugin->source
               ? 0
               : tune_fail(reader->err, TUNE_ENOMEM, "no memory for a manifest");
}

int t1_convert(const json_t *t1, const struct t1_options *options, struct t1_plugin *plugin,
    struct tune_error *err)
{
    *plugin = (struct t1_plugin){.warnings = json_array()};
    struct t1_reader reader = {.space = json_object_get(t1, "ConfigurationSpace"),
        .kernel = json_object_get(t1, "KernelSpecification"),
        .options = options,
        .warnings = plugin->warnings,
        .err = err};
    int status = convert(&reader, plugin, t1);
    for (size_t i = 0; i < reader.param_count; i++)
        python_destroy(reader.params[i].python);
    free(reader.params);
    json_decref(reader.manifest);
    return status;
}

void t1_plugin_finish(struct t1_plugin *plugin)
{
    free(plugin->name);
    free(plugin->manifest);
    free(plugin->source);
    free(plugin->source_name);
    free(plugin->included_name);
    json_decref(plugin->warnings);
    *plugin = (struct t1_plugin){0};
}
