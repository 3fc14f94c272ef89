#include "compile_log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT_MARK_ROOM 128 /* bytes kept for the mark */
#define ERROR_LINE_LIMIT 4096

static size_t line_length(const char *line)
{
    return strcspn(line, "\n");
}

static bool line_has(const char *line, size_t length, const char *text)
{
    return memmem(line, length, text, strlen(text)) != NULL;
}

size_t compile_log_strip(char *log)
{
    char *to = log;
    for (const char *line = log; *line;) {
        size_t length = line_length(line);
        size_t whole = length + (line[length] == '\n');
        if (!line_has(line, length, "Compile time =")) {
            memmove(to, line, whole);
            to += whole;
        }
        line += whole;
    }
    *to = '\0';
    return (size_t)(to - log);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* "error", maybe a number as in "error #20-D", blanks, then ':'. */
static bool is_error_line(const char *line, size_t length)
{
    const char *end = line + length;
    for (const char *at = line; (at = memmem(at, (size_t)(end - at), "error", 5)); at += 5) {
        if (at > line && is_word(at[-1]))
            continue;
        const char *after = at + 5;
        while (after < end && (*after == ' ' || *after == '\t'))
            after++;
        if (after < end && *after == '#')
            while (after < end && *after != ':' && *after != ' ')
                after++;
        if (after < end && *after == ':')
            return true;
    }
    return false;
}

const char *compile_log_error(const char *log, size_t *length)
{
    for (const char *line = log; *line;) {
        *length = line_length(line);
        if (is_error_line(line, *length))
            return line;
        line += *length + (line[*length] == '\n');
    }
    return NULL;
}

bool compile_log_has_static_assert(const char *log)
{
    return strstr(log, "static assertion failed") || strstr(log, "static_assert failed");
}

/* The number that stands before `text` in the line, 0 when it is not there. */
static json_int_t number_before(const char *line, size_t length, const char *text)
{
    const char *at = memmem(line, length, text, strlen(text));
    if (!at)
        return 0;
    while (at > line && isdigit((unsigned char)at[-1]))
        at--;
    return strtoll(at, NULL, 10);
}

/* The name between single quotes after "Compiling entry function", as a new object's key. */
static json_t *begin_entry(json_t *resources, const char *line, size_t length)
{
    const char *from = memchr(line, '\'', length);
    if (!from)
        return NULL;
    from++;
    const char *to = memchr(from, '\'', length - (size_t)(from - line));
    if (!to)
        return NULL;
    char *name = strndup(from, (size_t)(to - from));
    json_t *entry = json_pack("{si,si,si,si}", "registers", 0, "spill_bytes", 0,
        "static_shared_bytes", 0, "stack_bytes", 0);
    if (!name || !entry || json_object_set_new(resources, name, entry) < 0)
        entry = NULL;
    free(name);
    return entry;
}

static void read_entry_line(json_t *entry, const char *line, size_t length)
{
    if (line_has(line, length, "bytes stack frame")) {
        json_int_t spill = number_before(line, length, " bytes spill stores") +
                           number_before(line, length, " bytes spill loads");
        json_object_set_new(entry, "spill_bytes", json_integer(spill));
        json_object_set_new(
            entry, "stack_bytes", json_integer(number_before(line, length, " bytes stack frame")));
    } else if (line_has(line, length, "Used ") && line_has(line, length, " registers")) {
        json_object_set_new(
            entry, "registers", json_integer(number_before(line, length, " registers")));
        json_object_set_new(
            entry, "static_shared_bytes", json_integer(number_before(line, length, " bytes smem")));
    }
}

json_t *compile_log_resources(const char *log)
{
    json_t *resources = json_object();
    json_t *entry = NULL;
    bool is_own = false; /* the properties that follow are the entry's, not a device function's */
    for (const char *line = log; *line;) {
        size_t length = line_length(line);
        if (line_has(line, length, "Compiling entry function")) {
            entry = begin_entry(resources, line, length);
            is_own = true;
        } else if (line_has(line, length, "Function properties for ")) {
            const char *name = memmem(line, length, "for ", 4);
            char *key = name ? strndup(name + 4, length - (size_t)(name + 4 - line)) : NULL;
            is_own = key && json_object_get(resources, key) == entry;
            free(key);
        } else if (entry && (is_own || !line_has(line, length, "stack frame"))) {
            read_entry_line(entry, line, length);
        }
        line += length + (line[length] == '\n');
    }
    return resources;
}

char *compile_log_cut(const char *log, size_t limit)
{
    size_t length = strlen(log);
    if (length <= limit)
        return strdup(log);
    char *cut = malloc(limit + 1);
    if (!cut)
        return NULL;
    size_t error_length = 0;
    const char *error = compile_log_error(log, &error_length);
    if (error_length > ERROR_LINE_LIMIT)
        error_length = ERROR_LINE_LIMIT;
    size_t head = limit - CUT_MARK_ROOM;
    bool is_beyond = error && (size_t)(error - log) + error_length > head;
    if (is_beyond)
        head -= error_length;
    while (
        head > 0 && ((unsigned char)log[head] & 0xC0) == 0x80) /* a UTF-8 character stays whole */
        head--;
    memcpy(cut, log, head);
    int mark =
        snprintf(cut + head, CUT_MARK_ROOM, "\n[log cut: %zu of %zu bytes shown]\n", head, length);
    size_t used = head + (size_t)mark;
    if (is_beyond) {
        memcpy(cut + used, error, error_length);
        used += error_length;
    }
    cut[used] = '\0';
    return cut;
}

static const char *skip_blanks(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* From behind "(" to behind its ")". */
static const char *skip_parens(const char *at)
{
    for (int depth = 1; *at && depth > 0; at++)
        depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
    return at;
}

/* The function's name is the last word before the first "(" that is not an attribute's. */
static const char *global_name(const char *at, size_t *length)
{
    const char *name = NULL;
    *length = 0;
    for (at = skip_blanks(at); *at && *at != ';' && *at != '{'; at = skip_blanks(at)) {
        if (*at == '(') {
            bool is_attribute = name && (strncmp(name, "__launch_bounds__", 17) == 0 ||
                                            strncmp(name, "__cluster_dims__", 16) == 0 ||
                                            strncmp(name, "__maxnreg__", 11) == 0 ||
                                            strncmp(name, "__attribute__", 13) == 0);
            if (!is_attribute)
                return name;
            at = skip_parens(at + 1);
        } else if (is_word(*at)) {
            name = at;
            while (is_word(*at))
                at++;
            *length = (size_t)(at - name);
        } else {
            at++;
        }
    }
    return NULL;
}

void compile_log_globals(const char *source, char *names, size_t room)
{
    size_t used = 0;
    snprintf(names, room, "none");
    for (const char *at = source; (at = strstr(at, "__global__"));) {
        size_t length;
        at += 10;
        const char *name = global_name(at, &length);
        if (!name || used + length + 3 > room)
            continue;
        used += (size_t)snprintf(
            names + used, room - used, "%s%.*s", used ? ", " : "", (int)length, name);
    }
}
