/* Reads a wisdom file of Kernel Launcher: a header, then one record a line. */
#include "foreign_internal.h"

#include "client/proto.h"

#include <stdio.h>
#include <string.h>

static int read_header(
    struct foreign_reader *reader, const char *line, size_t length, json_t **names)
{
    struct tune_error why = {0};
    json_t *header = proto_parse(line, length, &why);
    const char *version = told_text(header, "version");
    *names = json_incref(json_object_get(header, "tunable_parameters"));
    int status = 0;
    if (!json_is_array(*names))
        status = tune_fail(reader->err, TUNE_EINVAL,
            "this is no wisdom file: its first line has no \"tunable_parameters\"");
    else if (strcmp(version, "1.0") != 0)
        status = tune_fail(reader->err, TUNE_EVERSION,
            "wisdom of version \"%.20s\"; version 1.0 is read here", version);
    else if (strcmp(told_text(header, "objective"), "time") != 0)
        status = tune_fail(reader->err, TUNE_EINVAL,
            "the file's objective is \"%.20s\"; only times are read",
            told_text(header, "objective"));
    json_decref(header);
    return status;
}

/* Values by position become values by name. */
static void read_config(const json_t *record, const json_t *names, struct foreign_row *row)
{
    const json_t *values = json_object_get(record, "config"), *name;
    size_t i;
    if (json_array_size(values) != json_array_size(names)) {
        foreign_refuse(row, "its configuration has %zu values; the header names %zu parameters",
            json_array_size(values), json_array_size(names));
        return;
    }
    json_array_foreach (names, i, name) {
        if (json_is_string(name))
            json_object_set(row->config, json_string_value(name), json_array_get(values, i));
    }
}

static void read_record(const json_t *record, const json_t *names, struct foreign_row *row)
{
    const json_t *environment = json_object_get(record, "environment");
    json_int_t capability = json_integer_value(json_object_get(environment, "compute_capability"));
    read_config(record, names, row);
    row->time_ms = json_number_value(json_object_get(record, "time"));
    row->device = told_text(environment, "device_name");
    row->time_unix_ms = foreign_moment(told_text(environment, "date"));
    if (capability > 0 && capability < 1000)
        snprintf(row->arch, sizeof row->arch, "sm_%d", (int)capability);
    foreign_problem(row, json_object_get(record, "problem_size"));
}

static int read_line(struct foreign_reader *reader, const char *line, size_t length,
    uint64_t number, const json_t *names)
{
    struct tune_error why = {0};
    struct foreign_row *row = foreign_row(reader, number);
    json_t *record = row ? proto_parse(line, length, &why) : NULL;
    if (row == NULL)
        return -1;
    json_array_append_new(reader->file->content, row->config = json_object());
    if (!json_is_object(record)) {
        foreign_refuse(row, "%s", record ? "it is no object" : why.text);
        json_decref(record);
        return 0;
    }
    json_array_append_new(reader->file->content, record);
    read_record(record, names, row);
    return 0;
}

int foreign_read_wisdom(struct foreign_reader *reader)
{
    json_t *names = NULL;
    const char *at = reader->text, *end = at + reader->length, *next;
    int status = 0;
    reader->file->content = json_array();
    for (uint64_t number = 1; status == 0 && at < end; at = next, number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        next = newline ? newline + 1 : end;
        for (; length > 0 && (*at == ' ' || *at == '\t'); length--)
            at++;
        for (; length > 0 && (at[length - 1] == '\r' || at[length - 1] == ' '); length--)
            ;
        bool is_comment = length == 0 || *at == '#' || (length > 1 && at[0] == '/' && at[1] == '/');
        if (is_comment)
            continue;
        status = names == NULL ? read_header(reader, at, length, &names)
                               : read_line(reader, at, length, number, names);
    }
    if (status == 0 && names == NULL)
        status = tune_fail(reader->err, TUNE_EINVAL, "the wisdom file is empty");
    json_decref(names);
    return status;
}
