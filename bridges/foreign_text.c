/* The text of a foreign file as JSON. Python writes NaN and Infinity, and a cache file of Kernel
 * Tuner is written by appending, so that at any moment it may lack its end. */
#include "foreign_internal.h"

#include "client/proto.h"

#include <stdlib.h>
#include <string.h>

/* Walks over JSON without building anything, and copies. */
struct walker {
    const char *at, *end;
    char *out; /* the copy's end */
    unsigned depth;
    bool is_cache_key; /* the last text at depth 1 was "cache" */
    bool is_in_cache;  /* inside the object of that name, at depth 2 and more */
    char *whole;       /* the copy's end after the last whole record, or the opening bracket */
};

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* A string with its quotes, or as much of it as there is. */
static void copy_string(struct walker *walker)
{
    const char *start = walker->at++;
    while (walker->at < walker->end && *walker->at != '"')
        walker->at += walker->at[0] == '\\' && walker->at + 1 < walker->end ? 2 : 1;
    if (walker->at < walker->end)
        walker->at++;
    size_t length = (size_t)(walker->at - start);
    if (walker->depth == 1)
        walker->is_cache_key = length == 7 && memcmp(start, "\"cache\"", 7) == 0;
    memcpy(walker->out, start, length);
    walker->out += length;
}

/* NaN, Infinity and -Infinity have no form in JSON: not known. */
static bool copy_null(struct walker *walker)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(walker->end - walker->at) >= length &&
            memcmp(walker->at, words[i], length) == 0) {
            walker->at += length;
            memcpy(walker->out, "null", 4);
            walker->out += 4;
            return true;
        }
    }
    return false;
}

static void copy_bracket(struct walker *walker, char byte)
{
    bool opens = byte == '{' || byte == '[';
    if (opens && walker->depth++ == 1 && walker->is_cache_key && byte == '{') {
        walker->is_in_cache = true;
        walker->whole = walker->out + 1;
    }
    if (opens || walker->depth == 0)
        return;
    walker->depth--;
    if (walker->is_in_cache && walker->depth == 2 && byte == '}')
        walker->whole = walker->out + 1;
    if (walker->depth == 1)
        walker->is_in_cache = false;
}

static void walk(struct walker *walker)
{
    while (walker->at < walker->end) {
        char byte = *walker->at;
        if (byte == '"') {
            copy_string(walker);
            continue;
        }
        if ((byte == 'N' || byte == 'I' || byte == '-') && copy_null(walker))
            continue;
        if (byte == '{' || byte == '[' || byte == '}' || byte == ']')
            copy_bracket(walker, byte);
        else if (byte == ',' && walker->depth == 1)
            walker->is_cache_key = false;
        *walker->out++ = byte;
        walker->at++;
    }
}

/* null is longer than NaN by one byte. malloc'ed. */
static char *walk_text(
    struct walker *walker, const char *text, size_t length, struct tune_error *err)
{
    if (length > FOREIGN_LIMIT_BYTES) {
        tune_fail(err, TUNE_ELIMIT, "a file of %zu bytes; the limit is %zu MiB", length,
            FOREIGN_LIMIT_BYTES >> 20);
        return NULL;
    }
    char *copy = malloc(length + length / 3 + 8);
    if (copy == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a file of %zu bytes", length);
        return NULL;
    }
    *walker = (struct walker){.at = text, .end = text + length, .out = copy};
    walk(walker);
    return copy;
}

json_t *foreign_parse(const char *text, size_t length, struct tune_error *err)
{
    struct walker walker;
    char *copy = walk_text(&walker, text, length, err);
    json_t *json = copy ? proto_parse(copy, (size_t)(walker.out - copy), err) : NULL;
    free(copy);
    return json;
}

/* What is left behind the last whole record, but for what may stand there anyway. */
static size_t count_dropped(const char *at, const char *end)
{
    while (at < end && (is_blank(*at) || *at == ',' || *at == '}'))
        at++;
    return (size_t)(end - at);
}

json_t *foreign_parse_cut(const char *text, size_t length, size_t *dropped, struct tune_error *err)
{
    struct walker walker;
    json_t *json = NULL;
    *dropped = 0;
    char *copy = walk_text(&walker, text, length, err);
    if (copy == NULL)
        return NULL;
    if (walker.depth == 0) { /* closed, or no JSON: the parser says */
        json = proto_parse(copy, (size_t)(walker.out - copy), err);
    } else if (walker.whole == NULL) {
        tune_fail(err, TUNE_EPARSE, "the file ends within its header, before any record");
    } else {
        char *end = walker.whole;
        *dropped = walker.is_in_cache ? count_dropped(end, walker.out) : 0;
        memcpy(end, "}}", 2);
        json = proto_parse(copy, (size_t)(end + 2 - copy), err);
    }
    free(copy);
    return json;
}
