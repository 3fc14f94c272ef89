/* The header line. See record_line.h. */
#include "record_line.h"
#include "record_fields.h"

#include "client/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_WORD "tunerd-records"

char *record_header_format(void)
{
    char line[80];
    snprintf(line, sizeof line, "{\"format\":\"" FORMAT_WORD "\",\"version\":[%d,%d]}",
        RECORD_LINE_MAJOR, RECORD_LINE_MINOR);
    return strdup(line);
}

json_t *line_object(const char *line, size_t length, const char *what, struct tune_error *err)
{
    if (length > RECORD_LINE_LIMIT_BYTES) {
        tune_fail(err, TUNE_ELIMIT, "a line has %zu bytes; at most %zu are read", length,
            RECORD_LINE_LIMIT_BYTES);
        return NULL;
    }
    json_t *json = proto_parse(line, length, err);
    if (json == NULL || json_is_object(json))
        return json;
    json_decref(json);
    tune_fail(err, TUNE_EPARSE, "%s is a JSON object, and this line is none", what);
    return NULL;
}

bool record_line_is_header(const char *line, size_t length)
{
    if (memmem(line, length, "\"format\"", 8) == NULL) /* true for nearly every line */
        return false;
    json_t *json = line_object(line, length, "a header", NULL);
    bool is_header = json_object_get(json, "format") != NULL;
    json_decref(json);
    return is_header;
}

/* The names of a header's other members. */
static int unknown_names(const char *line, size_t length, char **unknown, struct tune_error *err)
{
    struct members members;
    struct line_text names = {0};
    if (members_split(line, length, &members, err))
        return -1;
    for (size_t i = 0; i < members.count; i++) {
        const struct member *member = &members.of[i];
        if (member_is(member, "format") || member_is(member, "version"))
            continue;
        line_puts(&names, names.used > 0 ? ", " : "");
        line_put(&names, member->name, member->name_bytes);
    }
    bool is_any = names.used > 0;
    line_put(&names, "", 1);
    *unknown = names.bytes;
    if (names.is_short)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the names of a header's fields");
    if (!is_any) {
        free(names.bytes);
        *unknown = NULL;
    }
    return 0;
}

static int check_version(const json_t *header, struct tune_error *err)
{
    const json_t *version = json_object_get(header, "version");
    const json_t *major = json_array_get(version, 0), *minor = json_array_get(version, 1);
    if (version == NULL)
        return tune_fail(err, TUNE_EVERSION,
            "the header has no field \"version\"; this program reads version [%d,x] and needs to "
            "be told it",
            RECORD_LINE_MAJOR);
    if (json_array_size(version) != 2 || !json_is_integer(major) || !json_is_integer(minor) ||
        json_integer_value(major) < 0 || json_integer_value(minor) < 0)
        return tune_fail(err, TUNE_EVERSION,
            "field \"version\" must be [major,minor]; this program reads [%d,x]",
            RECORD_LINE_MAJOR);
    if (json_integer_value(major) != RECORD_LINE_MAJOR)
        return tune_fail(err, TUNE_EVERSION,
            "field \"version\" is [%" JSON_INTEGER_FORMAT ",%" JSON_INTEGER_FORMAT
            "]; this program reads [%d,x]: use the tunerd that wrote these records, or a newer one",
            json_integer_value(major), json_integer_value(minor), RECORD_LINE_MAJOR);
    return 0;
}

int record_header_check(const char *line, size_t length, char **unknown, struct tune_error *err)
{
    *unknown = NULL;
    json_t *header = line_object(line, length, "a header", err);
    if (header == NULL)
        return -1;
    const char *format = json_string_value(json_object_get(header, "format"));
    int status = 0;
    if (format == NULL || strcmp(format, FORMAT_WORD) != 0)
        status = tune_fail(err, TUNE_EINVAL,
            "the header's field \"format\" is %s%.60s%s; this program reads \"" FORMAT_WORD "\"",
            format ? "\"" : "", format ? format : "absent or no string", format ? "\"" : "");
    else if (check_version(header, err) || unknown_names(line, length, unknown, err))
        status = -1;
    json_decref(header);
    return status;
}
