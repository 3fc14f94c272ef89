/* Fields from JSON. See record_fields.h. */
#include "record_fields.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(struct line_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    assert((size_t)(arena->end - arena->at) >= bytes);
    char *copy = memcpy(arena->at, text, bytes);
    arena->at += bytes;
    return copy;
}

static bool read_text(
    const struct field *field, const json_t *value, const char **out, struct line_arena *arena)
{
    const char *text = json_string_value(value);
    if (text == NULL || (field->limit_bytes > 0 && strlen(text) > field->limit_bytes))
        return false;
    *out = keep(arena, text);
    return true;
}

/* JSON writes -0 where jansson hands out 0. */
static bool has_minus_zero(const struct member *member)
{
    return memmem(member->value, member->value_bytes, "-0", 2) != NULL;
}

/* {"M":64,"N":48} -> "M=64,N=48". The pairs take fewer bytes than they have in the line. */
static bool read_pairs(
    const struct member *member, const json_t *value, const char **out, struct line_arena *arena)
{
    const char *name;
    json_t *number;
    if (!json_is_object(value) || json_object_size(value) == 0 || has_minus_zero(member))
        return false;
    *out = arena->at;
    json_object_foreach ((json_t *)value, name, number) {
        if (!json_is_integer(number) || !is_identifier(name, strlen(name)))
            return false;
        size_t room = (size_t)(arena->end - arena->at);
        int used = snprintf(
            arena->at, room, "%s=%" JSON_INTEGER_FORMAT ",", name, json_integer_value(number));
        assert(used > 0 && (size_t)used < room);
        arena->at += used;
    }
    arena->at[-1] = '\0'; /* over the last comma */
    return true;
}

static bool read_integer(
    const struct member *member, const json_t *value, int64_t min, int64_t max, int64_t *out)
{
    *out = json_integer_value(value);
    return json_is_integer(value) && !has_minus_zero(member) && *out >= min && *out <= max;
}

/* Times and the like are not below zero, so a minus may stand in an exponent only, not in -0. */
static bool has_minus(const struct member *member)
{
    for (size_t i = 0; i < member->value_bytes; i++) {
        if (member->value[i] == '-' && (i == 0 || (member->value[i - 1] | 0x20) != 'e'))
            return true;
    }
    return false;
}

/* Exactly, or not at all: a whole number must be one that a double holds. */
static bool read_number(const json_t *value, double *out)
{
    *out = json_number_value(value);
    if (json_is_integer(value))
        return json_integer_value(value) <= RECORD_EXACT_LIMIT;
    return json_is_real(value) && isfinite(*out);
}

static bool read_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t digits = strlen(text) > 2 ? strlen(text) - 2 : 0;
    if (strncmp(text, "0x", 2) != 0 || digits < 1 || digits > 16 ||
        strspn(text + 2, "0123456789abcdef") != digits)
        return false;
    *out = strtoull(text + 2, NULL, 16);
    return true;
}

static bool read_interval(const json_t *value, struct sample *sample)
{
    return json_is_array(value) && json_array_size(value) == 2 &&
           read_number(json_array_get(value, 0), &sample->lo_ns) &&
           read_number(json_array_get(value, 1), &sample->hi_ns);
}

/* The caller keeps as many floats at the arena's front. */
static bool read_floats(const json_t *value, struct sample *sample)
{
    if (!json_is_array(value) || json_array_size(value) > RECORD_SAMPLES_LIMIT)
        return false;
    float *floats = sample->storage;
    for (size_t i = 0; i < json_array_size(value); i++) {
        double number;
        if (!read_number(json_array_get(value, i), &number) || !isfinite((float)number))
            return false;
        floats[i] = (float)number;
    }
    sample->sample_count = json_array_size(value);
    sample->samples_ns = sample->sample_count > 0 ? floats : NULL;
    return true;
}

static bool read_error(const json_t *value, double *out)
{
    const char *text = json_string_value(value);
    if (text == NULL)
        return read_number(value, out);
    *out = strcmp(text, "inf") == 0 ? (double)INFINITY : (double)NAN;
    return strcmp(text, "inf") == 0 || strcmp(text, "nan") == 0;
}

int field_read(const struct field *field, const json_t *value, const struct member *member,
    struct sample *sample, struct line_arena *arena, struct tune_error *err)
{
    void *at = field_place(field, sample);
    bool is_right;
    int64_t integer;
    switch (field->type) {
    case TYPE_SHAPE:
    case TYPE_CONFIG:
        is_right = read_pairs(member, value, at, arena);
        break;
    case TYPE_OUTCOME:
        is_right = json_is_string(value) &&
                   outcome_from_word(json_string_value(value), &sample->outcome) == 0;
        break;
    case TYPE_BOOL:
        is_right = json_is_boolean(value);
        *(bool *)at = json_is_true(value);
        break;
    case TYPE_COUNT:
        is_right = read_integer(member, value, 0, UINT32_MAX, &integer);
        *(uint32_t *)at = (uint32_t)integer;
        break;
    case TYPE_MOMENT:
        is_right = read_integer(member, value, -RECORD_EXACT_LIMIT, RECORD_EXACT_LIMIT, at);
        break;
    case TYPE_HEX:
        is_right = read_hex(value, at);
        break;
    case TYPE_NS:
        is_right = !has_minus(member) && read_number(value, at);
        break;
    case TYPE_INTERVAL:
        is_right = !has_minus(member) && read_interval(value, sample);
        break;
    case TYPE_FLOATS:
        is_right = !has_minus(member) && read_floats(value, sample);
        break;
    case TYPE_ERROR:
        is_right = !has_minus(member) && read_error(value, at);
        break;
    default:
        is_right = read_text(field, value, at, arena);
    }
    return is_right ? 0 : field_wrong(field, err);
}
