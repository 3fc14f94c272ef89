/* Reads a cache file of Kernel Tuner. */
#include "foreign_internal.h"

#include <string.h>

/* Parameters are those that tune_params_keys names; older files have the object alone. */
static json_t *param_names(const json_t *root)
{
    const json_t *keys = json_object_get(root, "tune_params_keys");
    const json_t *params = json_object_get(root, "tune_params");
    json_t *names = json_array(), *value;
    const char *name;
    size_t i;
    json_array_foreach (keys, i, value) {
        if (json_is_string(value))
            json_array_append(names, value);
    }
    if (json_array_size(names) == 0)
        json_object_foreach ((json_t *)params, name, value)
            json_array_append_new(names, json_string(name));
    return names;
}

/* The record cut down to its parameters. New. */
static json_t *config_of(const json_t *record, const json_t *names, struct foreign_row *row)
{
    json_t *config = json_object(), *name;
    size_t i;
    json_array_foreach (names, i, name) {
        json_t *value = json_object_get(record, json_string_value(name));
        if (value == NULL)
            foreign_refuse(row, "it lacks the parameter %.60s", json_string_value(name));
        json_object_set(config, json_string_value(name), value);
    }
    return config;
}

/* Any member may carry the word of a failure, so all are looked at. */
static void find_error(const json_t *record, struct foreign_row *row)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)record, name, value) {
        const char *text = json_string_value(value);
        if (text != NULL && foreign_error(text, &row->outcome)) {
            row->detail = text;
            break;
        }
    }
    if (row->outcome != OUTCOME_OK) /* what our own files add to the four words */
        outcome_from_word(told_text(record, "tunerd_outcome"), &row->outcome);
}

static int read_record(struct foreign_reader *reader, const json_t *root, const json_t *names,
    const json_t *record, uint64_t number)
{
    struct foreign_row *row = foreign_row(reader, number);
    if (row == NULL)
        return -1;
    row->device = told_text(root, "device_name");
    foreign_problem(row, json_object_get(root, "problem_size"));
    if (!json_is_object(record)) {
        foreign_refuse(row, "it is no object");
        return 0;
    }
    row->config = config_of(record, names, row);
    json_array_append_new(json_object_get(reader->file->content, "configs"), row->config);
    find_error(record, row);
    row->time_ms = json_number_value(json_object_get(record, "time"));
    row->times = json_object_get(record, "times");
    row->time_unix_ms = foreign_moment(told_text(record, "timestamp"));
    return 0;
}

int foreign_read_cache(struct foreign_reader *reader)
{
    size_t dropped;
    json_t *root = foreign_parse_cut(reader->text, reader->length, &dropped, reader->err);
    if (root == NULL)
        return -1;
    reader->file->content = json_pack("{s:o, s:[]}", "file", root, "configs");
    const json_t *cache = json_object_get(root, "cache");
    if (!json_is_object(cache))
        return tune_fail(reader->err, TUNE_EINVAL,
            "this is no cache file of Kernel Tuner: it has no object \"cache\"");
    if (dropped > 0)
        foreign_warn(reader->file,
            "the file was cut off: its last %zu bytes are no whole record and are left out",
            dropped);
    json_t *names = param_names(root), *record;
    const char *key;
    uint64_t number = 0;
    int status = json_array_size(names) > 0
                     ? 0
                     : tune_fail(reader->err, TUNE_EINVAL,
                           "the file names no parameters: it lacks tune_params_keys");
    json_object_foreach ((json_t *)cache, key, record) {
        if (status == 0)
            status = read_record(reader, root, names, record, ++number);
    }
    json_decref(names);
    return status;
}
