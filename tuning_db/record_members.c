/* See record_members.h. The text is known to be one strict JSON value, so brackets and quotes alone
 * tell where a member ends. */
#include "record_members.h"

#include <stdlib.h>
#include <string.h>

static const char name_bytes[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

bool is_plain_name(const char *name, size_t length, size_t limit_bytes)
{
    if (length == 0 || length > limit_bytes)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '\0' || strchr(name_bytes, name[i]) == NULL)
            return false;
    }
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

/* From a quote to behind the one that closes it. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\';
    return at < end ? at + 1 : end;
}

/* To the comma or bracket that ends a member's value. */
static const char *skip_value(const char *at, const char *end)
{
    for (unsigned depth = 0; at < end;) {
        char c = *at;
        if (depth == 0 && (c == ',' || c == '}'))
            return at;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        at = c == '"' ? skip_string(at, end) : at + 1;
    }
    return at;
}

static int take_member(
    const char **at, const char *end, struct member *member, struct tune_error *err)
{
    const char *name = skip_blanks(*at, end);
    const char *behind = skip_string(name, end);
    *member = (struct member){.name = name + 1, .name_bytes = (size_t)(behind - name) - 2};
    if (!is_plain_name(member->name, member->name_bytes, RECORD_NAME_LIMIT_BYTES))
        return tune_fail(err, TUNE_EINVAL,
            "a field is named \"%.*s\"; names are 1 to %d letters, digits, '_', '-' and '.'",
            (int)(member->name_bytes < 80 ? member->name_bytes : 80), member->name,
            RECORD_NAME_LIMIT_BYTES);
    const char *value = skip_blanks(skip_blanks(behind, end) + 1, end); /* behind the colon */
    *at = skip_value(value, end);
    const char *value_end = *at;
    while (value_end > value && is_blank(value_end[-1]))
        value_end--;
    member->value = value;
    member->value_bytes = (size_t)(value_end - value);
    return 0;
}

int members_split(const char *text, size_t length, struct members *members, struct tune_error *err)
{
    const char *end = text + length, *at = skip_blanks(text, end) + 1;
    members->count = 0;
    members->comma = NULL;
    if (*skip_blanks(at, end) == '}')
        return 0;
    for (;;) {
        if (members->count == RECORD_MEMBERS_MAX)
            return tune_fail(
                err, TUNE_ELIMIT, "a record has more than %d fields", RECORD_MEMBERS_MAX);
        if (take_member(&at, end, &members->of[members->count], err))
            return -1;
        members->count++;
        if (at == end || *at != ',')
            return 0;
        members->comma = at++;
    }
}

bool member_is(const struct member *member, const char *name)
{
    return strlen(name) == member->name_bytes &&
           memcmp(name, member->name, member->name_bytes) == 0;
}

static int compare_names(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    size_t common = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = memcmp(a->name, b->name, common);
    return order != 0 ? order : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

void members_sort(struct members *members)
{
    members->comma = NULL;
    qsort(members->of, members->count, sizeof members->of[0], compare_names);
}
