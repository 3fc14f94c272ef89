#include "json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_LIMIT 32

struct reader {
    const char *at;
    int depth;
};

static struct json *read_value(struct reader *r);

static void skip_blanks(struct reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

/* ASCII escapes only; others become '?', which no rule matches. */
static char *read_string(struct reader *r)
{
    if (*r->at != '"')
        return NULL;
    char *text = malloc(strlen(r->at)), *out = text;
    for (r->at++; text && *r->at && *r->at != '"'; r->at++) {
        if (*r->at != '\\') {
            *out++ = *r->at;
            continue;
        }
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *escape = *++r->at ? strchr(from, *r->at) : NULL;
        if (escape) {
            *out++ = to[escape - from];
        } else if (*r->at == 'u' && strlen(r->at) > 4) {
            *out++ = '?';
            r->at += 4;
        } else {
            break;
        }
    }
    if (!text || *r->at != '"') {
        free(text);
        return NULL;
    }
    r->at++;
    *out = '\0';
    return text;
}

/* The members of an array or object, after its opening bracket. */
static int read_members(struct reader *r, struct json *parent, char close)
{
    struct json **end = &parent->first;
    skip_blanks(r);
    if (*r->at == close) {
        r->at++;
        return 0;
    }
    for (;;) {
        char *key = NULL;
        skip_blanks(r);
        if (close == '}') {
            key = read_string(r);
            skip_blanks(r);
            if (!key || *r->at != ':') {
                free(key);
                return -1;
            }
            r->at++;
        }
        *end = read_value(r);
        if (!*end) {
            free(key);
            return -1;
        }
        (*end)->key = key;
        end = &(*end)->next;
        skip_blanks(r);
        if (*r->at != ',' && *r->at != close)
            return -1;
        if (*r->at++ == close)
            return 0;
    }
}

static int read_word(struct reader *r, struct json *value)
{
    static const struct {
        const char *word;
        enum json_kind kind;
        double number;
    } words[] = {{"true", JSON_BOOL, 1}, {"false", JSON_BOOL, 0}, {"null", JSON_NULL, 0},
        {"NaN", JSON_NUMBER, __builtin_nan("")}, {"Infinity", JSON_NUMBER, __builtin_inf()}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(r->at, words[i].word, strlen(words[i].word)) == 0) {
            r->at += strlen(words[i].word);
            value->kind = words[i].kind;
            value->number = words[i].number;
            return 0;
        }
    }
    return -1;
}

static int read_number(struct reader *r, struct json *value)
{
    char *end;
    value->kind = JSON_NUMBER;
    value->number = strtod(r->at, &end);
    if (end == r->at)
        return -1;
    r->at = end;
    return 0;
}

static struct json *read_value(struct reader *r)
{
    struct json *value = calloc(1, sizeof *value);
    int failed = 0;
    skip_blanks(r);
    if (!value || ++r->depth > DEPTH_LIMIT) {
        failed = -1;
    } else if (*r->at == '{' || *r->at == '[') {
        char close = *r->at++ == '{' ? '}' : ']';
        value->kind = close == '}' ? JSON_OBJECT : JSON_ARRAY;
        failed = read_members(r, value, close);
    } else if (*r->at == '"') {
        value->kind = JSON_STRING;
        value->text = read_string(r);
        failed = value->text ? 0 : -1;
    } else if (*r->at == '-' || isdigit((unsigned char)*r->at)) {
        failed = read_number(r, value);
    } else {
        failed = read_word(r, value);
    }
    r->depth--;
    if (!failed)
        return value;
    json_free(value);
    return NULL;
}

struct json *json_read(const char *text, size_t *position)
{
    struct reader reader = {.at = text};
    struct json *value = read_value(&reader);
    skip_blanks(&reader);
    *position = (size_t)(reader.at - text);
    if (value && *reader.at) {
        json_free(value);
        return NULL;
    }
    return value;
}

void json_free(struct json *json)
{
    while (json) {
        struct json *next = json->next;
        json_free(json->first);
        free(json->text);
        free(json->key);
        free(json);
        json = next;
    }
}

const struct json *json_member(const struct json *object, const char *key)
{
    for (const struct json *m = object ? object->first : NULL; m; m = m->next)
        if (m->key && strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

double json_number(const struct json *object, const char *key, double otherwise)
{
    const struct json *m = json_member(object, key);
    return m && (m->kind == JSON_NUMBER || m->kind == JSON_BOOL) ? m->number : otherwise;
}

const char *json_text(const struct json *object, const char *key, const char *otherwise)
{
    const struct json *m = json_member(object, key);
    return m && m->kind == JSON_STRING ? m->text : otherwise;
}
