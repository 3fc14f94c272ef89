/* See foreign.h: what the readers have in common. */
#include "foreign_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

static const struct {
    const char *word, *method;
    int (*read)(struct foreign_reader *reader);
} formats[FOREIGN_FORMAT_COUNT] = {
    [FOREIGN_KERNEL_TUNER] = {"kernel-tuner", "kernel_tuner", foreign_read_cache},
    [FOREIGN_T4] = {"t4", "t4", foreign_read_t4},
    [FOREIGN_WISDOM] = {"wisdom", "wisdom", foreign_read_wisdom},
    [FOREIGN_CLBLAST] = {"clblast", "clblast", foreign_read_clblast},
};

const char *foreign_word(enum foreign_format format)
{
    return format < FOREIGN_FORMAT_COUNT ? formats[format].word : NULL;
}

const char *foreign_method(enum foreign_format format)
{
    return formats[format].method;
}

int foreign_from_word(const char *word, enum foreign_format *format, struct tune_error *err)
{
    for (size_t i = 0; i < FOREIGN_FORMAT_COUNT; i++) {
        if (strcmp(formats[i].word, word) == 0) {
            *format = (enum foreign_format)i;
            return 0;
        }
    }
    return tune_fail(err, TUNE_EINVAL,
        "\"%.40s\" is no format of another tuner; there are kernel-tuner, t4, wisdom and clblast",
        word);
}

/* --- rows ------------------------------------------------------------------------------------- */

struct foreign_row *foreign_row(struct foreign_reader *reader, uint64_t number)
{
    struct foreign_file *file = reader->file;
    if (file->count == file->room) {
        size_t room = file->room ? file->room * 2 : 256;
        struct foreign_row *rows = realloc(file->rows, room * sizeof *rows);
        if (rows == NULL) {
            tune_fail(reader->err, TUNE_ENOMEM, "no memory for %zu rows", room);
            return NULL;
        }
        file->rows = rows;
        file->room = room;
    }
    struct foreign_row *row = &file->rows[file->count++];
    *row = (struct foreign_row){.number = number, .unit_ms = 1, .detail = "", .device = ""};
    return row;
}

void foreign_refuse(struct foreign_row *row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (row->refusal == NULL && vasprintf(&row->refusal, format, args) < 0)
        row->refusal = NULL;
    va_end(args);
}

void foreign_warn(struct foreign_file *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    told_warning(file->warnings, format, args);
    va_end(args);
}

/* --- fields ----------------------------------------------------------------------------------- */

/* The offset behind a moment, "+01:00", in seconds. */
static int64_t offset_s(const char *text)
{
    int hours = 0, minutes = 0;
    if ((*text != '+' && *text != '-') || sscanf(text + 1, "%2d:%2d", &hours, &minutes) < 1)
        return 0;
    return (*text == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
}

int64_t foreign_moment(const char *text)
{
    struct tm moment = {0};
    double fraction = 0;
    const char *rest = strptime(text, "%Y-%m-%d", &moment);
    rest = rest && (*rest == ' ' || *rest == 'T') ? strptime(rest + 1, "%H:%M:%S", &moment) : NULL;
    if (rest == NULL || moment.tm_year < 70)
        return 0;
    if (*rest == '.') {
        char *end;
        fraction = strtod(rest, &end);
        rest = end;
    }
    return ((int64_t)timegm(&moment) - offset_s(rest)) * 1000 + (int64_t)(fraction * 1000);
}

void foreign_problem(struct foreign_row *row, const json_t *size)
{
    size_t count = json_is_array(size) ? json_array_size(size) : json_is_integer(size);
    for (size_t i = 0; i < count && i < FOREIGN_DIMS; i++) {
        const json_t *one = json_is_array(size) ? json_array_get(size, i) : size;
        if (!json_is_integer(one) || json_integer_value(one) < 1) {
            row->problem_count = 0;
            return;
        }
        row->problem[i] = json_integer_value(one);
        row->problem_count = i + 1;
    }
}

bool foreign_error(const char *word, enum outcome *outcome)
{
    static const struct {
        const char *word;
        enum outcome outcome;
    } errors[] = {{"InvalidConfig", OUTCOME_INVALID},
        {"CompilationFailedConfig", OUTCOME_COMPILE_FAILED},
        {"RuntimeFailedConfig", OUTCOME_LAUNCH_FAILED}, {"ErrorConfig", OUTCOME_LAUNCH_FAILED}};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (strcmp(errors[i].word, word) == 0) {
            *outcome = errors[i].outcome;
            return true;
        }
    }
    return false;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The same file twice is one run, also from another folder or on another machine. */
static void name_run(struct foreign_file *file, const char *text, size_t length)
{
    snprintf(file->run, sizeof file->run, "import/%s/%016llx", foreign_word(file->format),
        (unsigned long long)XXH3_64bits(text, length));
}

int foreign_read(struct foreign_file *file, enum foreign_format format, const char *text,
    size_t length, const char *kernel, struct tune_error *err)
{
    *file = (struct foreign_file){.format = format, .warnings = json_array()};
    if (length > FOREIGN_LIMIT_BYTES)
        return tune_fail(err, TUNE_ELIMIT, "a file of %zu bytes; the limit is %zu MiB", length,
            FOREIGN_LIMIT_BYTES >> 20);
    struct foreign_reader reader = {file, text, length, kernel, err};
    name_run(file, text, length);
    return formats[format].read(&reader);
}

void foreign_finish(struct foreign_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        free(file->rows[i].refusal);
    free(file->rows);
    json_decref(file->content);
    json_decref(file->warnings);
    *file = (struct foreign_file){0};
}
