/* Parameters and results of statements in PostgreSQL's binary form: numbers in network order; an
 * array is dimensions, a flag for NULLs, the element's type, count and first index, then the
 * elements, each behind its length. */
#include "daemon/fleet/pg.h"

#include "daemon/xmalloc.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define OID_BOOL 16
#define OID_BYTEA 17
#define OID_INT8 20
#define OID_TEXT 25

static const struct {
    Oid array, element;
} array_types[] = {
    [PG_ARRAY_INT] = {1016, OID_INT8},
    [PG_ARRAY_TEXT] = {1009, OID_TEXT},
    [PG_ARRAY_BYTES] = {1001, OID_BYTEA},
};

void pg_params_finish(struct pg_params *params)
{
    for (int i = 0; i < params->count; i++)
        free(params->values[i].bytes);
    *params = (struct pg_params){0};
}

static void append(struct pg_buffer *buffer, const void *bytes, size_t count)
{
    if (buffer->length + count > buffer->room) {
        buffer->room = buffer->length + count + buffer->room / 2 + 64;
        buffer->bytes = xrealloc(buffer->bytes, buffer->room);
    }
    if (count > 0)
        memcpy(buffer->bytes + buffer->length, bytes, count);
    buffer->length += count;
}

static void append_u32(struct pg_buffer *buffer, uint32_t value)
{
    uint32_t bytes = htobe32(value);
    append(buffer, &bytes, sizeof bytes);
}

static struct pg_buffer *next(struct pg_params *params, Oid type)
{
    assert(params->count < PG_PARAMS_MAX);
    params->types[params->count] = type;
    return &params->values[params->count++];
}

void pg_add_int(struct pg_params *params, int64_t value)
{
    uint64_t bytes = htobe64((uint64_t)value);
    append(next(params, OID_INT8), &bytes, sizeof bytes);
}

void pg_add_bool(struct pg_params *params, bool value)
{
    append(next(params, OID_BOOL), value ? "\1" : "\0", 1);
}

void pg_add_text(struct pg_params *params, const char *text)
{
    /* An empty buffer would be NULL: the NUL is there, and not counted. */
    struct pg_buffer *buffer = next(params, OID_TEXT);
    append(buffer, text, strlen(text) + 1);
    buffer->length--;
}

void pg_add_bytes(struct pg_params *params, const void *bytes, size_t count)
{
    append(next(params, OID_BYTEA), bytes, count);
}

void pg_add_array(struct pg_params *params, enum pg_array kind, size_t count)
{
    struct pg_buffer *buffer = next(params, array_types[kind].array);
    append_u32(buffer, count > 0 ? 1 : 0);
    append_u32(buffer, 0);
    append_u32(buffer, array_types[kind].element);
    if (count > 0) {
        append_u32(buffer, (uint32_t)count);
        append_u32(buffer, 1);
    }
}

void pg_element_bytes(struct pg_params *params, const void *bytes, size_t count)
{
    struct pg_buffer *buffer = &params->values[params->count - 1];
    append_u32(buffer, (uint32_t)count);
    append(buffer, bytes, count);
}

void pg_element_int(struct pg_params *params, int64_t value)
{
    uint64_t bytes = htobe64((uint64_t)value);
    pg_element_bytes(params, &bytes, sizeof bytes);
}

/* --- results ---------------------------------------------------------------------------------- */

int64_t pg_int(const PGresult *result, int row, int column)
{
    const unsigned char *bytes = (const unsigned char *)PQgetvalue(result, row, column);
    int length = PQgetlength(result, row, column);
    if (PQgetisnull(result, row, column) || length == 0 || length > 8)
        return 0;
    uint64_t value = bytes[0] & 0x80 && length > 1 ? UINT64_MAX : 0;
    for (int i = 0; i < length; i++)
        value = value << 8 | bytes[i];
    return (int64_t)value;
}

double pg_double(const PGresult *result, int row, int column)
{
    uint64_t bits = (uint64_t)pg_int(result, row, column);
    double value;
    memcpy(&value, &bits, sizeof value);
    return PQgetlength(result, row, column) == 8 ? value : 0;
}

const char *pg_text(const PGresult *result, int row, int column)
{
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}
