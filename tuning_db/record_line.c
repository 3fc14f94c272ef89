/* See record_line.h. The fields are record_fields' business; here they become a line with a
 * checksum, and what this version does not know is carried along as it came. */
#include "record_line.h"
#include "record_fields.h"
#include "record_number.h"

#include "client/proto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SUM_DIGITS 16

/* --- writing ---------------------------------------------------------------------------------- */

/* What no single field can tell. */
static int check_sample(const struct sample *sample, struct tune_error *err)
{
    for (size_t i = 0; i < field_count(); i++) {
        const struct field *field = field_at(i);
        bool is_absent = field->is_required ? false : field_is_left_out(field, sample);
        if (!is_absent && field_check(field, sample, err))
            return -1;
    }
    if (sample->run == NULL || sample->run[0] == '\0')
        return tune_fail(err, TUNE_EINVAL, "field \"run\" must not be empty");
    if (sample->outcome == OUTCOME_OK && !(sample->median_ns > 0))
        return tune_fail(err, TUNE_EINVAL, "field \"median_ns\" is absent, and the outcome is ok");
    if (sample->median_ns > 0 && sample->lo_ns == 0 && sample->hi_ns == 0)
        return tune_fail(
            err, TUNE_EINVAL, "field \"interval_ns\" is absent, and there is a median_ns");
    return 0;
}

static int check_extra_name(const struct member *member, struct tune_error *err)
{
    if (member_is(member, "sum") || member_is(member, "format"))
        return tune_fail(err, TUNE_EINVAL, "a record cannot have a field \"%.*s\"",
            (int)member->name_bytes, member->name);
    return 0;
}

/* The members of sample->extra by name. They were checked when they came in; whoever made the
 * sample may not have. */
static int split_extra(const char *extra, struct members *members, struct tune_error *err)
{
    members->count = 0;
    if (extra == NULL || extra[0] == '\0')
        return 0;
    json_t *json = line_object(extra, strlen(extra), "what a row has of unknown fields", err);
    if (json == NULL)
        return -1;
    json_decref(json);
    if (members_split(extra, strlen(extra), members, err))
        return -1;
    for (size_t i = 0; i < members->count; i++) {
        if (check_extra_name(&members->of[i], err))
            return -1;
    }
    members_sort(members);
    return 0;
}

static void put_name(struct line_text *text, const char *name, size_t length)
{
    line_puts(text, text->used > 1 ? ",\"" : "\"");
    line_put(text, name, length);
    line_puts(text, "\":");
}

static void put_member(struct line_text *text, const struct member *member)
{
    put_name(text, member->name, member->name_bytes);
    line_put(text, member->value, member->value_bytes);
}

static const struct member *find_member(const struct members *members, const char *name)
{
    for (size_t i = 0; i < members->count; i++) {
        if (member_is(&members->of[i], name))
            return &members->of[i];
    }
    return NULL;
}

/* A row may have been stored by a version that did not know a field that this one knows: then the
 * field stands among the unknown ones, and takes its place in the line from there, so that both
 * versions write the same line. */
static void put_fields(
    struct line_text *text, const struct sample *sample, const struct members *extra)
{
    for (size_t i = 0; i < field_count(); i++) {
        const struct field *field = field_at(i);
        const struct member *late = find_member(extra, field->name);
        if (!field_is_left_out(field, sample)) {
            put_name(text, field->name, strlen(field->name));
            field_write(field, sample, text);
        } else if (late != NULL) {
            put_member(text, late);
        }
    }
    size_t hint = 0;
    for (size_t i = 0; i < extra->count; i++) {
        if (field_of(&extra->of[i], &hint) == NULL)
            put_member(text, &extra->of[i]);
    }
}

static void sum_of(const char *bytes, size_t count, char digits[SUM_DIGITS + 1])
{
    snprintf(digits, SUM_DIGITS + 1, "%016" PRIx64, (uint64_t)XXH3_64bits(bytes, count));
}

char *record_line_format(const struct sample *sample, size_t *length, struct tune_error *err)
{
    struct members extra;
    struct line_text text = {0};
    char sum[SUM_DIGITS + 1];
    if (check_sample(sample, err) || split_extra(sample->extra, &extra, err))
        return NULL;
    line_puts(&text, "{");
    put_fields(&text, sample, &extra);
    sum_of(text.bytes, text.used, sum);
    line_puts(&text, ",\"sum\":\"");
    line_puts(&text, sum);
    line_put(&text, "\"}", 3); /* with the NUL */
    if (!text.is_short && text.used - 1 <= RECORD_LINE_LIMIT_BYTES) {
        *length = text.used - 1;
        return text.bytes;
    }
    if (text.is_short)
        tune_fail(err, TUNE_ENOMEM, "no memory for the line of a record");
    else
        tune_fail(err, TUNE_ELIMIT, "the record would be a line of %zu bytes; at most %zu are read",
            text.used - 1, RECORD_LINE_LIMIT_BYTES);
    free(text.bytes);
    return NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The name of the field that a position in a broken line belongs to; false when none is before it.
 */
static bool find_field(const char *line, size_t position, const char **name, size_t *length)
{
    const char *end = line + position, *colon = NULL, *next = line;
    while ((next = memmem(next, (size_t)(end - next), "\":", 2)) != NULL)
        colon = next++;
    *name = colon != NULL ? memrchr(line, '"', (size_t)(colon - line)) : NULL;
    if (*name == NULL)
        return false;
    ++*name;
    *length = (size_t)(colon - *name);
    return is_plain_name(*name, *length, RECORD_NAME_LIMIT_BYTES);
}

/* jansson tells where it stopped; a person wants to know at which field that was. */
static json_t *parse_record(const char *line, size_t length, struct tune_error *err)
{
    struct tune_error cause = {0};
    json_t *json = line_object(line, length, "a record", &cause);
    if (json != NULL)
        return json;
    json_error_t why = {.position = 0};
    if (cause.code == TUNE_EPARSE)
        json_decref(json_loadb(line, length, JSON_REJECT_DUPLICATES, &why));
    const char *name;
    size_t name_bytes;
    if (why.position > 0 && (size_t)why.position <= length &&
        find_field(line, (size_t)why.position, &name, &name_bytes))
        tune_fail(err, cause.code, "field \"%.*s\": %s", (int)name_bytes, name, cause.text);
    else
        tune_fail(err, cause.code, "%s", cause.text);
    return NULL;
}

static int check_sum(const char *line, const struct members *members, struct tune_error *err)
{
    const struct member *last = members->count > 0 ? &members->of[members->count - 1] : NULL;
    if (last == NULL || members->comma == NULL || !member_is(last, "sum"))
        return tune_fail(err, TUNE_EDAMAGED,
            "the line does not end with its checksum, the field \"sum\": it is cut off, or no "
            "record of tunerd");
    char sum[SUM_DIGITS + 1];
    sum_of(line, (size_t)(members->comma - line), sum);
    if (last->value_bytes != SUM_DIGITS + 2 || memcmp(last->value + 1, sum, SUM_DIGITS) != 0)
        return tune_fail(err, TUNE_EDAMAGED,
            "the line says \"sum\":%.*s, its bytes have \"%s\": it was damaged or changed",
            (int)(last->value_bytes < 40 ? last->value_bytes : 40), last->value, sum);
    return 0;
}

static int keep_extra(
    struct members *extra, struct sample *sample, struct line_arena *arena, struct tune_error *err)
{
    if (extra->count == 0)
        return 0;
    struct line_text text = {0};
    members_sort(extra);
    line_puts(&text, "{");
    for (size_t i = 0; i < extra->count; i++)
        put_member(&text, &extra->of[i]);
    line_put(&text, "}", 2); /* with the NUL */
    int status = 0;
    if (text.is_short)
        status = tune_fail(err, TUNE_ENOMEM, "no memory for the unknown fields of a record");
    else if (text.used > RECORD_LINE_EXTRA_LIMIT_BYTES)
        status = tune_fail(err, TUNE_ELIMIT,
            "the fields that this program does not know take %zu bytes; at most %zu are kept",
            text.used, RECORD_LINE_EXTRA_LIMIT_BYTES);
    else
        sample->extra = memcpy(arena->at, text.bytes, text.used);
    free(text.bytes);
    return status;
}

static int require_fields(const json_t *json, struct tune_error *err)
{
    for (size_t i = 0; i < field_count(); i++) {
        const struct field *field = field_at(i);
        if (field->is_required && json_object_get(json, field->name) == NULL)
            return tune_fail(err, TUNE_EINVAL, "field \"%s\" is missing", field->name);
    }
    return 0;
}

static int take_members(const json_t *json, const struct members *members, struct sample *sample,
    struct line_arena *arena, struct tune_error *err)
{
    struct members extra;
    size_t hint = 0;
    extra.count = 0;
    for (size_t i = 0; i + 1 < members->count; i++) { /* the last one is the sum */
        const struct member *member = &members->of[i];
        const struct field *field = field_of(member, &hint);
        if (field == NULL) {
            if (check_extra_name(member, err))
                return -1;
            extra.of[extra.count++] = *member;
            continue;
        }
        const json_t *value = json_object_get(json, field->name);
        if (field_read(field, value, member, sample, arena, err))
            return -1;
    }
    return keep_extra(&extra, sample, arena, err);
}

/* All texts of a line take fewer bytes than the line, and its floats 4 for 2 bytes at least. */
static int make_room(
    const json_t *json, size_t length, struct sample *sample, struct line_arena *arena)
{
    const json_t *floats = json_object_get(json, "samples_ns");
    size_t count = json_array_size(floats);
    if (count > RECORD_SAMPLES_LIMIT)
        count = 0; /* refused when it is read */
    size_t floats_bytes = count * sizeof(float), bytes = floats_bytes + length + 64;
    sample->storage = malloc(bytes);
    if (sample->storage == NULL)
        return -1;
    arena->at = (char *)sample->storage + floats_bytes;
    arena->end = (char *)sample->storage + bytes;
    return 0;
}

/* Texts that are not in the line are "", as in a decoded row. */
static void clear_texts(struct sample *sample)
{
    *sample = (struct sample){.key = {"", "", "", "", "", ""},
        .config = "",
        .gpu_uuid = "",
        .run = "",
        .method = "",
        .same_as = "",
        .detail = "",
        .log_id = "",
        .gpu_name = "",
        .host = "",
        .nvrtc = "",
        .method_note = "",
        .extra = ""};
}

/* Numbers may be longer in our form than they came: what could not leave again is not taken. */
static int check_length(size_t length, const struct sample *sample, struct tune_error *err)
{
    const size_t other_numbers = 4;
    if (length + (sample->sample_count + other_numbers) * NUMBER_TEXT_BYTES <=
        RECORD_LINE_LIMIT_BYTES)
        return 0;
    char *line = record_line_format(sample, &length, err);
    free(line);
    return line != NULL ? 0 : -1;
}

int record_line_parse(
    const char *line, size_t length, struct sample *sample, struct tune_error *err)
{
    struct members members;
    struct line_arena arena;
    clear_texts(sample);
    json_t *json = parse_record(line, length, err);
    if (json == NULL)
        return -1;
    int status = -1;
    if (members_split(line, length, &members, err) || check_sum(line, &members, err))
        goto done;
    if (make_room(json, length, sample, &arena)) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a record of %zu bytes", length);
        goto done;
    }
    if (take_members(json, &members, sample, &arena, err) == 0 && require_fields(json, err) == 0 &&
        check_sample(sample, err) == 0 && check_length(length, sample, err) == 0)
        status = 0;
done:
    json_decref(json);
    if (status != 0)
        sample_finish(sample);
    return status;
}

/* --- comparing -------------------------------------------------------------------------------- */

uint64_t record_line_hash(const struct sample *sample)
{
    size_t length = 0;
    char *line = record_line_format(sample, &length, NULL);
    uint64_t hash = line != NULL ? XXH3_64bits(line, length) : 0;
    free(line);
    return hash;
}

/* Of rows that have no line, their stored form decides. */
static int compare_content(const struct sample *a, const struct sample *b)
{
    size_t a_length = 0, b_length = 0;
    char *a_line = record_line_format(a, &a_length, NULL);
    char *b_line = record_line_format(b, &b_length, NULL);
    if (a_line == NULL && b_line == NULL) {
        a_line = sample_encode(a, &a_length);
        b_line = sample_encode(b, &b_length);
    }
    size_t common = a_length < b_length ? a_length : b_length;
    int order = common > 0 ? memcmp(b_line, a_line, common) : 0;
    if (order == 0)
        order = (b_length > a_length) - (b_length < a_length);
    free(a_line);
    free(b_line);
    return order;
}

int sample_precedence(const struct sample *a, const struct sample *b)
{
    if (a->is_refused != b->is_refused)
        return a->is_refused ? -1 : 1;
    if (a->is_final != b->is_final)
        return a->is_final ? -1 : 1;
    if (a->attempts != b->attempts)
        return a->attempts > b->attempts ? -1 : 1;
    return compare_content(a, b);
}
