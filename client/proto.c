/* See proto.h. */
#include "proto.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READER_KEPT_BYTES ((size_t)256 << 10) /* a buffer above this is given back when empty */

/* --- lines ------------------------------------------------------------------------------------ */

void proto_reader_init(struct proto_reader *reader, size_t limit_bytes)
{
    *reader = (struct proto_reader){.limit = limit_bytes};
}

void proto_reader_finish(struct proto_reader *reader)
{
    free(reader->bytes);
    *reader = (struct proto_reader){.limit = reader->limit};
}

static void drop_taken(struct proto_reader *reader)
{
    if (reader->taken == 0)
        return;
    reader->used -= reader->taken;
    reader->scanned -= reader->taken;
    memmove(reader->bytes, reader->bytes + reader->taken, reader->used);
    reader->taken = 0;
}

/* One long message must not cost its memory for the rest of a connection's life. */
static void shrink_if_empty(struct proto_reader *reader)
{
    if (reader->used > 0 || reader->room <= READER_KEPT_BYTES)
        return;
    free(reader->bytes);
    reader->bytes = NULL;
    reader->room = 0;
}

static int make_room(struct proto_reader *reader, size_t count, struct tune_error *err)
{
    size_t need = reader->used + count;
    if (need <= reader->room)
        return 0;
    size_t room = reader->room ? reader->room : 4096;
    while (room < need)
        room *= 2;
    char *bytes = realloc(reader->bytes, room);
    if (bytes == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a message of %zu bytes", need);
    reader->bytes = bytes;
    reader->room = room;
    return 0;
}

/* Length of the longest unfinished or finished line that the new bytes take part in. */
static size_t longest_line(size_t held, const char *bytes, size_t count)
{
    size_t longest = 0, line = held;
    while (count > 0) {
        const char *newline = memchr(bytes, '\n', count);
        size_t part = newline ? (size_t)(newline - bytes) : count;
        line += part;
        longest = line > longest ? line : longest;
        line = 0;
        part += newline != NULL;
        bytes += part;
        count -= part;
    }
    return longest;
}

/* Bytes of the line at the end of the buffer that has not ended yet. Whole lines that were not
 * taken may stand before it. */
static size_t unfinished(const struct proto_reader *reader)
{
    size_t fresh = reader->used - reader->scanned;
    const char *newline = fresh ? memrchr(reader->bytes + reader->scanned, '\n', fresh) : NULL;
    return newline ? (size_t)(reader->bytes + reader->used - newline) - 1 : reader->used;
}

int proto_reader_feed(
    struct proto_reader *reader, const char *bytes, size_t count, struct tune_error *err)
{
    drop_taken(reader);
    if (count == 0)
        return 0;
    if (longest_line(unfinished(reader), bytes, count) > reader->limit)
        return tune_fail(err, TUNE_ELIMIT,
            "a message may have at most %zu bytes; this one has more: send less in one request",
            reader->limit);
    shrink_if_empty(reader);
    if (make_room(reader, count, err))
        return -1;
    memcpy(reader->bytes + reader->used, bytes, count);
    reader->used += count;
    return 0;
}

char *proto_reader_next(struct proto_reader *reader, size_t *length)
{
    while (reader->taken < reader->used) {
        char *start = reader->bytes + reader->taken;
        size_t from = reader->scanned > reader->taken ? reader->scanned : reader->taken;
        char *end = memchr(reader->bytes + from, '\n', reader->used - from);
        if (end == NULL) {
            reader->scanned = reader->used;
            return NULL;
        }
        reader->taken = (size_t)(end - reader->bytes) + 1;
        reader->scanned = reader->taken;
        if (end > start && end[-1] == '\r')
            end--;
        if (end == start)
            continue;
        *end = '\0';
        *length = (size_t)(end - start);
        return start;
    }
    return NULL;
}

size_t proto_reader_pending(const struct proto_reader *reader)
{
    return reader->used - reader->taken;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* Nesting is bounded before jansson sees the text: its own limit (2048) is far above what copying
 * and printing a value recursively can bear on a small stack. */
static int check_depth(const char *text, size_t length, struct tune_error *err)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > PROTO_DEPTH_LIMIT)
                return tune_fail(err, TUNE_ELIMIT, "JSON nested deeper than %d levels at byte %zu",
                    PROTO_DEPTH_LIMIT, i + 1);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return 0;
}

json_t *proto_parse(const char *text, size_t length, struct tune_error *err)
{
    if (check_depth(text, length, err))
        return NULL;
    json_error_t why;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (value == NULL)
        tune_fail(err, TUNE_EPARSE, "not valid JSON at byte %d: %s", why.position, why.text);
    return value;
}

/* 15 digits: a double's decimal is then short where it can be (21.3, not 21.300000000000001). */
#define LINE_FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))

char *proto_line(const json_t *message, size_t *length)
{
    size_t size = json_dumpb(message, NULL, 0, LINE_FLAGS);
    char *line = size ? malloc(size + 2) : NULL;
    if (line == NULL)
        return NULL;
    size_t written = json_dumpb(message, line, size, LINE_FLAGS);
    assert(written == size);
    (void)written;
    line[size] = '\n';
    line[size + 1] = '\0';
    *length = size + 1;
    return line;
}

json_t *proto_request_new(json_int_t id, const char *method, json_t *params)
{
    json_t *message = json_pack("{s:s, s:I, s:s}", "jsonrpc", "2.0", "id", id, "method", method);
    if (params != NULL)
        json_object_set_new(message, "params", params);
    return message;
}

json_t *proto_notification_new(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params",
        params ? params : json_object());
}

json_t *proto_result_new(json_t *id, json_t *result)
{
    return json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id ? id : json_null(), "result",
        result ? result : json_null());
}

static int rpc_code(enum tune_code code)
{
    switch (code) {
    case TUNE_EPARSE:
        return -32700;
    case TUNE_EMETHOD:
        return -32601;
    case TUNE_EINVAL:
        return -32602;
    case TUNE_EINTERNAL:
        return -32603;
    default:
        return -32000;
    }
}

json_t *proto_text(const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    char *plain = strdup(text);
    for (char *at = plain; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    string = plain == NULL ? NULL : json_string(plain);
    free(plain);
    return string;
}

json_t *proto_error_new(json_t *id, const struct tune_error *err)
{
    return json_pack("{s:s, s:o, s:{s:i, s:o, s:{s:s}}}", "jsonrpc", "2.0", "id",
        id ? id : json_null(), "error", "code", rpc_code(err->code), "message",
        proto_text(err->text), "data", "code", tune_code_word(err->code));
}

/* --- fields ----------------------------------------------------------------------------------- */

static json_t *field(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int missing(const char *key, struct tune_error *err)
{
    return tune_fail(err, TUNE_EINVAL, "field \"%s\" is missing", key);
}

int proto_string_opt(
    const json_t *object, const char *key, const char **out, struct tune_error *err)
{
    json_t *value = field(object, key);
    if (value == NULL)
        return 0;
    if (!json_is_string(value))
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" must be a string", key);
    *out = json_string_value(value);
    return 0;
}

int proto_string(const json_t *object, const char *key, const char **out, struct tune_error *err)
{
    *out = NULL;
    if (proto_string_opt(object, key, out, err))
        return -1;
    return *out ? 0 : missing(key, err);
}

int proto_int_opt(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err)
{
    json_t *value = field(object, key);
    if (value == NULL)
        return 0;
    if (!json_is_integer(value))
        return tune_fail(err, TUNE_EINVAL,
            "field \"%s\" must be an integer (written without point or exponent)", key);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" is %lld; it must be %lld to %lld", key,
            (long long)number, (long long)min, (long long)max);
    *out = number;
    return 0;
}

int proto_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err)
{
    if (field(object, key) == NULL)
        return missing(key, err);
    return proto_int_opt(object, key, min, max, out, err);
}

int proto_bool_opt(const json_t *object, const char *key, bool *out, struct tune_error *err)
{
    json_t *value = field(object, key);
    if (value == NULL)
        return 0;
    if (!json_is_boolean(value))
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" must be true or false", key);
    *out = json_is_true(value);
    return 0;
}

int proto_number_opt(const json_t *object, const char *key, double *out, struct tune_error *err)
{
    json_t *value = field(object, key);
    if (value == NULL)
        return 0;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" must be a finite number", key);
    *out = json_number_value(value);
    return 0;
}

int proto_array_opt(const json_t *object, const char *key, json_t **out, struct tune_error *err)
{
    *out = field(object, key);
    if (*out != NULL && !json_is_array(*out))
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" must be an array", key);
    return 0;
}

int proto_object_opt(const json_t *object, const char *key, json_t **out, struct tune_error *err)
{
    *out = field(object, key);
    if (*out != NULL && !json_is_object(*out))
        return tune_fail(err, TUNE_EINVAL, "field \"%s\" must be an object", key);
    return 0;
}

int proto_known_keys(
    const json_t *object, const char *const *known, const char *what, struct tune_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        const char *const *name = known;
        while (*name != NULL && strcmp(*name, key) != 0)
            name++;
        if (*name == NULL)
            return tune_fail(err, TUNE_EINVAL, "%s has no field \"%.60s\"", what, key);
    }
    return 0;
}

/* --- base64 ----------------------------------------------------------------------------------- */

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *proto_base64_encode(const void *bytes, size_t count)
{
    const unsigned char *in = bytes;
    char *text = malloc((count + 2) / 3 * 4 + 1);
    if (text == NULL)
        return NULL;
    char *out = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        unsigned group = (unsigned)in[i] << 16;
        if (left > 1)
            group |= (unsigned)in[i + 1] << 8;
        if (left > 2)
            group |= in[i + 2];
        *out++ = base64_digits[group >> 18];
        *out++ = base64_digits[group >> 12 & 63];
        *out++ = left > 1 ? base64_digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? base64_digits[group & 63] : '=';
    }
    *out = '\0';
    return text;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

void *proto_base64_decode(const char *text, size_t *count, struct tune_error *err)
{
    size_t length = strlen(text);
    size_t padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    if (length % 4 != 0) {
        tune_fail(err, TUNE_EPARSE, "base64 text has %zu characters, not a multiple of 4", length);
        return NULL;
    }
    unsigned char *bytes = malloc(length / 4 * 3 + 1);
    if (bytes == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for %zu decoded bytes", length / 4 * 3);
        return NULL;
    }
    unsigned char *out = bytes;
    for (size_t i = 0; i < length; i += 4) {
        unsigned group = 0;
        for (size_t j = i; j < i + 4; j++) {
            int value = j >= length - padding ? 0 : base64_value(text[j]);
            if (value < 0) {
                tune_fail(err, TUNE_EPARSE, "base64 text has a wrong character at byte %zu", j + 1);
                free(bytes);
                return NULL;
            }
            group = group << 6 | (unsigned)value;
        }
        *out++ = (unsigned char)(group >> 16);
        *out++ = (unsigned char)(group >> 8);
        *out++ = (unsigned char)group;
    }
    *count = length / 4 * 3 - padding;
    return bytes;
}
