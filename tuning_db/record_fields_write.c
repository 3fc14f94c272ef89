/* Fields to text. See record_fields.h. */
#include "record_fields.h"
#include "record_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void line_put(struct line_text *text, const char *bytes, size_t count)
{
    if (text->is_short || count == 0)
        return;
    if (text->room - text->used < count) {
        size_t room = (text->room + count) * 2 + 1024;
        char *grown = realloc(text->bytes, room);
        text->is_short = grown == NULL;
        if (text->is_short)
            return;
        text->bytes = grown;
        text->room = room;
    }
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
}

void line_puts(struct line_text *text, const char *bytes)
{
    line_put(text, bytes, strlen(bytes));
}

static void put_control(struct line_text *text, char c)
{
    static const char plain[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *found = strchr(plain, c);
    char escape[8];
    if (found != NULL)
        snprintf(escape, sizeof escape, "\\%c", letters[found - plain]);
    else
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)c);
    line_puts(text, escape);
}

/* At most limit_bytes of it, in whole characters; a byte that belongs to none becomes '?'. */
static void put_string(struct line_text *text, const char *value, size_t limit_bytes)
{
    line_puts(text, "\"");
    for (const char *at = value; *at != '\0';) {
        size_t bytes = utf8_bytes(at), step = bytes > 0 ? bytes : 1;
        if ((size_t)(at - value) + step > limit_bytes)
            break;
        if (bytes == 0)
            line_puts(text, "?");
        else if ((unsigned char)*at < 0x20 || *at == '"' || *at == '\\')
            put_control(text, *at);
        else
            line_put(text, at, bytes);
        at += step;
    }
    line_puts(text, "\"");
}

/* "M=64,N=48" -> {"M":64,"N":48} */
static void put_pairs(struct line_text *text, const char *pairs)
{
    line_puts(text, "{");
    for (const char *at = pairs;;) {
        size_t name = strcspn(at, "="), pair = strcspn(at, ",");
        line_puts(text, "\"");
        line_put(text, at, name);
        line_puts(text, "\":");
        line_put(text, at + name + 1, pair - name - 1);
        at += pair;
        if (*at == '\0')
            break;
        line_put(text, at++, 1);
    }
    line_puts(text, "}");
}

static void put_number(struct line_text *text, double value)
{
    char number[NUMBER_TEXT_BYTES];
    line_put(text, number, number_text(fabs(value), number)); /* fabs: there is no -0 in a line */
}

static void put_floats(struct line_text *text, const float *values, size_t count)
{
    char number[NUMBER_TEXT_BYTES];
    for (size_t i = 0; i < count; i++) {
        line_puts(text, i == 0 ? "[" : ",");
        line_put(text, number, number_text_float(fabsf(values[i]), number));
    }
    line_puts(text, "]");
}

static void put_error(struct line_text *text, double value)
{
    if (isfinite(value))
        put_number(text, value);
    else
        line_puts(text, isnan(value) ? "\"nan\"" : "\"inf\"");
}

static void put_integer(struct line_text *text, int64_t value)
{
    char number[NUMBER_TEXT_BYTES];
    line_put(text, number, (size_t)snprintf(number, sizeof number, "%" PRId64, value));
}

static void put_hex(struct line_text *text, uint64_t value)
{
    char number[NUMBER_TEXT_BYTES];
    line_put(text, number, (size_t)snprintf(number, sizeof number, "\"0x%" PRIx64 "\"", value));
}

void field_write(const struct field *field, const struct sample *sample, struct line_text *text)
{
    const void *at = field_place(field, sample);
    switch (field->type) {
    case TYPE_SHAPE:
    case TYPE_CONFIG:
        put_pairs(text, field_text(field, sample));
        break;
    case TYPE_OUTCOME:
        put_string(text, outcome_word(sample->outcome), SIZE_MAX);
        break;
    case TYPE_BOOL:
        line_puts(text, *(const bool *)at ? "true" : "false");
        break;
    case TYPE_COUNT:
        put_integer(text, *(const uint32_t *)at);
        break;
    case TYPE_MOMENT:
        put_integer(text, *(const int64_t *)at);
        break;
    case TYPE_HEX:
        put_hex(text, *(const uint64_t *)at);
        break;
    case TYPE_NS:
        put_number(text, *(const double *)at);
        break;
    case TYPE_INTERVAL:
        line_puts(text, "[");
        put_number(text, sample->lo_ns);
        line_puts(text, ",");
        put_number(text, sample->hi_ns);
        line_puts(text, "]");
        break;
    case TYPE_FLOATS:
        put_floats(text, sample->samples_ns, sample->sample_count);
        break;
    case TYPE_ERROR:
        put_error(text, *(const double *)at);
        break;
    default:
        put_string(text, field_text(field, sample),
            field->limit_bytes > 0 ? field->limit_bytes : SIZE_MAX);
    }
}
