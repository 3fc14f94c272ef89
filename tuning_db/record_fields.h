/* The fields of a record line: what each is called, what it may hold, and how it stands in a struct
 * sample. Shared by the parts of record_line; nobody else includes it. Pure.
 *
 * To add a field: a row in the table of record_fields.c, and a raised RECORD_LINE_MINOR. */
#ifndef TUNE_RECORD_FIELDS_H
#define TUNE_RECORD_FIELDS_H

#include "record.h"
#include "record_members.h"

#include <jansson.h>

/* Grows; after a failed allocation it swallows what is put. */
struct line_text {
    char *bytes;
    size_t used, room;
    bool is_short; /* of memory */
};

void line_put(struct line_text *text, const char *bytes, size_t count);
void line_puts(struct line_text *text, const char *bytes);

/* Parses one strict JSON object. New reference, or NULL: TUNE_ELIMIT, TUNE_EPARSE; `what` says what
 * it should have been. */
json_t *line_object(const char *line, size_t length, const char *what, struct tune_error *err);

/* One block that holds what a parsed sample points to. */
struct line_arena {
    char *at, *end;
};

/* X(name, phrase): the types, and what a value must be in a sentence. */
#define FIELD_TYPES(X)                                                                             \
    X(NAME, "a name of letters, digits, '_', '-' and '.', 1 to 64 bytes")                          \
    X(OPTIONAL_NAME, "\"\", or a name of letters, digits, '_', '-' and '.', up to 64 bytes")       \
    X(MODE, "\"cold\" or \"warm\"")                                                                \
    X(WORD, "UTF-8 text that is not too long") /* part of an identity: exact, or refused */        \
    X(TEXT, "UTF-8 text that is not too long") /* for people: bad bytes are written as '?' */      \
    X(SHAPE, "an object of 1 to 16 integers, each at least 1")                                     \
    X(CONFIG, "an object of 1 to 32 integers")                                                     \
    X(CONFIG_TEXT, "\"\", or text of the form \"NAME=1,OTHER=2\"")                                 \
    X(OUTCOME, "ok, invalid, compile_failed, over_limits, launch_failed, wrong_result, timeout "   \
               "or crashed")                                                                       \
    X(BOOL, "true or false")                                                                       \
    X(COUNT, "an integer, 0 to 4294967295, without point or exponent")                             \
    X(MOMENT, "an integer of milliseconds since 1970, without point or exponent")                  \
    X(HEX, "a string of the form \"0x1f\", of 1 to 16 lower-case digits")                          \
    X(NS, "a finite number of nanoseconds, at least 0")                                            \
    X(INTERVAL, "[low, high], two finite numbers of nanoseconds with low <= median_ns <= high")    \
    X(FLOATS, "an array of at most 4096 finite numbers of nanoseconds, each at least 0")           \
    X(ERROR, "a number, at least 0, or \"inf\" or \"nan\"")

enum field_type {
#define X(name, phrase) TYPE_##name,
    FIELD_TYPES(X)
#undef X
};

struct field {
    const char *name;
    enum field_type type;
    size_t at;          /* in struct sample; unused where one field alone has the type */
    bool is_required;   /* stands in every line; the others only when not empty, zero or false */
    size_t limit_bytes; /* of a text */
};

#define RECORD_SAMPLES_LIMIT 4096                    /* floats of one row */
#define RECORD_EXACT_LIMIT INT64_C(9007199254740992) /* 2^53: integers up to it are doubles too */

size_t field_count(void);
const struct field *field_at(size_t index);
/* The field of a member, or NULL. *hint: where the search begins; it is moved behind what was
 * found, so that members in the table's order are found at once. */
const struct field *field_of(const struct member *member, size_t *hint);

/* Whether it is left out of a line, being empty, zero or false. */
bool field_is_left_out(const struct field *field, const struct sample *sample);
/* The member of a sample that a field stands for, in the type that it has there. */
void *field_place(const struct field *field, const struct sample *sample);
/* Of a field of text; NULL counts as "". */
const char *field_text(const struct field *field, const struct sample *sample);
/* Bytes of the UTF-8 character that `text` begins with, or 0 when there is none: overlong forms,
 * surrogates and what is above U+10FFFF are none. */
size_t utf8_bytes(const char *text);
bool is_identifier(const char *text, size_t length);
/* TUNE_EINVAL with what the field must be. */
int field_wrong(const struct field *field, struct tune_error *err);

/* Writes the value alone; it must have passed field_check. */
void field_write(const struct field *field, const struct sample *sample, struct line_text *text);
/* Reads it. -1 with TUNE_EINVAL and the field's name: another type, or not exactly what the member
 * says. The range is field_check's. */
int field_read(const struct field *field, const json_t *value, const struct member *member,
    struct sample *sample, struct line_arena *arena, struct tune_error *err);
/* Whether the value in the sample may stand in a line: 0, or -1 as field_wrong. */
int field_check(const struct field *field, const struct sample *sample, struct tune_error *err);

#endif
