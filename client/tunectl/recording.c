/* See recording.h. */
#include "recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define CELLS_MAX (MANIFEST_MAX_PARAMS + 32)

/* --- the index -------------------------------------------------------------------------------- */

static char *table_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *start = slash ? slash + 1 : path;
    const char *end = strstr(start, ".csv");
    return strndup(start, end ? (size_t)(end - start) : strlen(start));
}

static char *index_beside(const char *table_path)
{
    const char *slash = strrchr(table_path, '/');
    char *path = NULL;
    if (asprintf(&path, "%.*sindex.json", slash ? (int)(slash + 1 - table_path) : 0, table_path) <
        0)
        return NULL;
    return path;
}

static bool is_named(const json_t *entry, const char *name)
{
    const char *space = json_string_value(json_object_get(entry, "space"));
    const char *file = json_string_value(json_object_get(entry, "file"));
    size_t length = strlen(name);
    return (space && strcmp(space, name) == 0) ||
           (file && strncmp(file, name, length) == 0 && strncmp(file + length, ".csv", 4) == 0);
}

/* The object that describes this table (borrowed from root), or NULL. */
static const json_t *find_entry(const json_t *root, const char *name)
{
    const json_t *spaces = json_object_get(root, "spaces");
    size_t i;
    const json_t *entry;
    if (spaces == NULL)
        return json_is_object(json_object_get(root, "params")) ? root : NULL;
    json_array_foreach (spaces, i, entry) {
        if (is_named(entry, name))
            return entry;
    }
    return NULL;
}

/* --- from the index to a manifest --------------------------------------------------------------
 */

static bool is_word_byte(char byte)
{
    return byte == '_' || (byte >= '0' && byte <= '9') || (byte | 32) >= 'a';
}

/* The words and operators in which Python's expressions differ from C's. malloc'ed. */
static char *c_expression(const char *text)
{
    static const struct {
        const char *python, *c;
    } words[] = {{"and", "&&"}, {"or", "||"}, {"not", "!"}, {"True", "1"}, {"False", "0"}};
    char *out = malloc(2 * strlen(text) + 1), *end = out;
    while (out != NULL && *text != '\0') {
        size_t length = 0;
        const char *with = NULL;
        while (is_word_byte(text[length]))
            length++;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (length == strlen(words[i].python) && strncmp(text, words[i].python, length) == 0)
                with = words[i].c;
        if (length == 0)
            length = text[0] == '/' && text[1] == '/' ? 2 : 1;
        if (length == 2 && text[0] == '/')
            with = "/";
        if (with != NULL)
            end = stpcpy(end, with);
        else
            end = mempcpy(end, text, length);
        text += length;
    }
    if (out != NULL)
        *end = '\0';
    return out;
}

/* Integers stay; strings become named values, numbered in their order. */
static json_t *manifest_params(const json_t *params)
{
    json_t *list = json_array(), *values;
    const char *name;
    json_object_foreach ((json_t *)params, name, values) {
        json_t *listed = json_array();
        size_t i;
        json_t *value;
        json_array_foreach (values, i, value) {
            json_array_append_new(listed, json_is_string(value) ? json_pack("{s:I, s:O}", "value",
                                                                      (json_int_t)i, "name", value)
                                                                : json_incref(value));
        }
        json_array_append_new(list,
            json_pack("{s:s, s:s, s:o}", "name", name, "meaning", "recorded", "values", listed));
    }
    return list;
}

/* Constants become derived values; those that are no integers no constraint could use. */
static json_t *manifest_constants(const json_t *constants)
{
    json_t *list = json_array(), *value;
    const char *name;
    json_object_foreach ((json_t *)constants, name, value) {
        if (json_is_integer(value))
            json_array_append_new(list,
                json_pack("{s:s, s:O, s:s}", "name", name, "expr", value, "meaning", "constant"));
    }
    return list;
}

static json_t *manifest_constraints(const json_t *constraints)
{
    json_t *list = json_array(), *text;
    size_t i;
    json_array_foreach (constraints, i, text) {
        char *expr = json_is_string(text) ? c_expression(json_string_value(text)) : NULL;
        json_array_append_new(
            list, json_pack("{s:s, s:O}", "expr", expr ? expr : "", "message", text));
        free(expr);
    }
    return list;
}

static json_t *first_values(const json_t *params)
{
    json_t *config = json_object();
    size_t i;
    json_t *param;
    json_array_foreach (params, i, param) {
        const json_t *first = json_array_get(json_object_get(param, "values"), 0);
        const json_t *value = json_object_get(first, "value");
        json_object_set(config, json_string_value(json_object_get(param, "name")),
            (json_t *)(value ? value : first));
    }
    return config;
}

/* What a manifest must have beside its space; nothing of it is ever launched. */
static const char frame[] =
    "{\"tunerd\":1,\"name\":\"recorded\",\"summary\":\"a recorded space\","
    "\"dims\":[{\"name\":\"RECORDED_N\",\"meaning\":\"none\"}],\"shapes\":[{\"RECORDED_N\":1}],"
    "\"dtypes\":[\"f32\"],"
    "\"buffers\":[{\"name\":\"y\",\"dtype\":\"T\",\"count\":1,\"role\":\"out\"}],"
    "\"launches\":[{\"entry\":\"recorded\",\"grid\":[1],\"block\":[1],\"args\":[{\"buffer\":\"y\"}]"
    "}],"
    "\"reference\":{\"buffers\":[{\"name\":\"r\",\"dtype\":\"f64\",\"count\":1,\"role\":\"out\"}],"
    "\"launches\":[{\"entry\":\"reference\",\"grid\":[1],\"block\":[1],"
    "\"args\":[{\"buffer\":\"r\"}]}]},"
    "\"checks\":[{\"buffer\":\"y\",\"reference\":\"r\",\"derivation\":\"none\","
    "\"tolerance\":{\"unit\":\"f32\"}}]}";

static struct manifest *build_manifest(
    const json_t *entry, const char *index_path, struct tune_error *err)
{
    json_t *json = json_loads(frame, 0, NULL);
    json_t *params = manifest_params(json_object_get(entry, "params"));
    json_object_set_new(json, "default", first_values(params));
    json_object_set_new(json, "params", params);
    json_object_set_new(json, "derived", manifest_constants(json_object_get(entry, "constants")));
    json_object_set_new(
        json, "constraints", manifest_constraints(json_object_get(entry, "constraints")));
    char *text = json_dumps(json, JSON_COMPACT);
    struct manifest *manifest = text ? manifest_create(text, strlen(text), index_path, err) : NULL;
    if (text == NULL)
        tune_fail(err, TUNE_EINVAL, "%.150s: the space cannot be read", index_path);
    free(text);
    json_decref(json);
    return manifest;
}

static int build_space(struct recording *recording, const char *index_path, struct tune_error *err)
{
    json_error_t why;
    json_t *root = json_load_file(index_path, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return tune_fail(
            err, TUNE_EINVAL, "%.120s: %.80s (line %d)", index_path, why.text, why.line);
    const json_t *entry = find_entry(root, recording->name);
    if (entry == NULL)
        tune_fail(err, TUNE_ENOTFOUND,
            "%.120s does not describe the space %.60s; name its description with --space",
            index_path, recording->name);
    else
        recording->manifest = build_manifest(entry, index_path, err);
    json_decref(root);
    struct device_info device = {0}; /* constraints of a recording read no device */
    int64_t dims[] = {1};
    if (recording->manifest != NULL)
        recording->space = space_create(recording->manifest, &device, dims, "f32", NULL, err);
    return recording->space ? 0 : -1;
}

/* --- the table -------------------------------------------------------------------------------- */

struct columns {
    size_t params[MANIFEST_MAX_PARAMS], time, status, repeats, estimate; /* SIZE_MAX: absent */
    size_t count;
};

/* Cuts a line at its commas, in place. */
static size_t cut(char *line, char **cells)
{
    size_t count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *cell; (cell = strsep(&line, ",")) != NULL && count < CELLS_MAX;)
        cells[count++] = cell;
    return count;
}

static size_t find_column(char *const *cells, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cells[i], name) == 0)
            return i;
    return SIZE_MAX;
}

static int read_head(
    struct recording *recording, char *line, struct columns *columns, struct tune_error *err)
{
    char *cells[CELLS_MAX];
    columns->count = cut(line, cells);
    columns->time = find_column(cells, columns->count, "time_ms");
    columns->status = find_column(cells, columns->count, "status");
    columns->repeats = find_column(cells, columns->count, "repeats_ms");
    columns->estimate = find_column(cells, columns->count, "estimate_ms");
    recording->has_estimates = columns->estimate != SIZE_MAX;
    if (columns->time == SIZE_MAX)
        return tune_fail(err, TUNE_EINVAL, "the table has no column time_ms");
    for (size_t i = 0; i < recording->manifest->param_count; i++) {
        const char *name = recording->manifest->params[i].name;
        columns->params[i] = find_column(cells, columns->count, name);
        if (columns->params[i] == SIZE_MAX)
            return tune_fail(err, TUNE_EINVAL, "the table has no column %.64s", name);
    }
    return 0;
}

static int read_time(const char *text, double *time_ms)
{
    char *end;
    *time_ms = strtod(text, &end);
    return end != text && *end == '\0' && *time_ms > 0 && isfinite(*time_ms) ? 0 : -1;
}

static int add_repeats(
    struct recording *recording, struct recorded *config, char *text, struct tune_error *err)
{
    size_t room = recording->repeats_total + 1;
    for (const char *c = text; *c != '\0'; c++)
        room += *c == ';';
    double *repeats = realloc(recording->repeats_ms, room * sizeof *repeats);
    if (repeats == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the table's repeats");
    recording->repeats_ms = repeats;
    config->repeats_start = recording->repeats_total;
    for (char *cell; (cell = strsep(&text, ";")) != NULL;)
        if (read_time(cell, &repeats[recording->repeats_total]) == 0)
            recording->repeats_total++;
    config->repeats_count = recording->repeats_total - config->repeats_start;
    return 0;
}

/* Which configuration of the space a row is. */
static int find_config(const struct recording *recording, const struct columns *columns,
    char *const *cells, struct recorded **config, struct tune_error *err)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    const struct manifest *manifest = recording->manifest;
    for (size_t i = 0; i < manifest->param_count; i++)
        if (manifest_param_value_text(
                &manifest->params[i], cells[columns->params[i]], &values[i], err))
            return -1;
    size_t index = space_find(recording->space, values);
    if (index == SIZE_MAX)
        return tune_fail(err, TUNE_EINVAL, "the constraints exclude this row of the table");
    *config = &recording->configs[index];
    if ((*config)->row != SIZE_MAX)
        return tune_fail(err, TUNE_EINVAL, "row %zu is of the same configuration", (*config)->row);
    return 0;
}

static int read_row(
    struct recording *recording, const struct columns *columns, char *line, struct tune_error *err)
{
    char *cells[CELLS_MAX];
    struct recorded *config = NULL;
    size_t count = cut(line, cells);
    if (count != columns->count)
        return tune_fail(err, TUNE_EINVAL, "%zu cells; the head has %zu", count, columns->count);
    if (find_config(recording, columns, cells, &config, err))
        return -1;
    config->row = recording->row_count++;
    if (columns->estimate != SIZE_MAX && cells[columns->estimate][0] != '\0' &&
        read_time(cells[columns->estimate], &config->estimate_ms))
        return tune_fail(err, TUNE_EINVAL, "\"%.40s\" is not a time", cells[columns->estimate]);
    bool is_ok = columns->status == SIZE_MAX || strcmp(cells[columns->status], "ok") == 0;
    if (!is_ok || cells[columns->time][0] == '\0')
        return 0;
    if (read_time(cells[columns->time], &config->time_ms))
        return tune_fail(err, TUNE_EINVAL, "\"%.40s\" is not a time", cells[columns->time]);
    if (recording->best_ms == 0 || config->time_ms < recording->best_ms)
        recording->best_ms = config->time_ms;
    return columns->repeats == SIZE_MAX
               ? 0
               : add_repeats(recording, config, cells[columns->repeats], err);
}

static int read_rows(struct recording *recording, gzFile file, struct tune_error *err)
{
    char *line = malloc(LINE_MAX_BYTES);
    struct columns columns = {0};
    int status = line != NULL && gzgets(file, line, LINE_MAX_BYTES) != NULL
                     ? read_head(recording, line, &columns, err)
                     : tune_fail(err, TUNE_EINVAL, "the table is empty");
    while (status == 0 && gzgets(file, line, LINE_MAX_BYTES) != NULL)
        status = read_row(recording, &columns, line, err);
    int code = Z_OK;
    const char *why = gzerror(file, &code);
    if (status == 0 && code != Z_OK && code != Z_STREAM_END)
        status = tune_fail(err, TUNE_EIO, "%.80s", why);
    free(line);
    return status;
}

static int read_table(struct recording *recording, const char *path, struct tune_error *err)
{
    size_t count = space_count(recording->space);
    recording->configs = calloc(count, sizeof *recording->configs);
    if (recording->configs == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu configurations", count);
    for (size_t i = 0; i < count; i++)
        recording->configs[i].row = SIZE_MAX;
    gzFile file = gzopen(path, "rb");
    if (file == NULL)
        return tune_fail(err, TUNE_EIO, "%.150s cannot be opened", path);
    struct tune_error why = {0};
    int status = read_rows(recording, file, &why);
    gzclose(file);
    if (status)
        return tune_fail(err, why.code, "%.80s, row %zu: %.120s", recording->name,
            recording->row_count, why.text);
    recording->missing = count - recording->row_count;
    return recording->best_ms > 0
               ? 0
               : tune_fail(err, TUNE_EINVAL, "nothing in %.80s worked", recording->name);
}

int recording_load(struct recording *recording, const char *table_path, const char *index_path,
    struct tune_error *err)
{
    memset(recording, 0, sizeof *recording);
    char *beside = index_path ? NULL : index_beside(table_path);
    recording->name = table_name(table_path);
    int status = -1;
    if (recording->name == NULL || (index_path == NULL && beside == NULL))
        tune_fail(err, TUNE_ENOMEM, "no memory for a path");
    else
        status = build_space(recording, index_path ? index_path : beside, err);
    free(beside);
    return status ? -1 : read_table(recording, table_path, err);
}

void recording_finish(struct recording *recording)
{
    free(recording->name);
    free(recording->configs);
    free(recording->repeats_ms);
    space_destroy(recording->space);
    manifest_destroy(recording->manifest);
}
