/* See t1_signature.h. No parser of C++: comments are blanked, the name is looked for after
 * __global__, and its parameters are told apart by their commas. */
#include "t1_signature.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy with comments and line ends as blanks. */
static char *without_comments(const char *source)
{
    char *copy = strdup(source);
    for (char *at = copy; at != NULL && *at != '\0'; at++) {
        bool is_line = at[0] == '/' && at[1] == '/', is_block = at[0] == '/' && at[1] == '*';
        if (is_line || is_block) {
            const char *end = is_line ? strchr(at, '\n') : strstr(at + 2, "*/");
            size_t length = end ? (size_t)(end - at) + (is_block ? 2 : 0) : strlen(at);
            memset(at, ' ', length);
        }
        if (isspace((unsigned char)*at))
            *at = ' ';
    }
    return copy;
}

static bool is_word_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_';
}

/* The bracket that opens the list of parameters: of `name`, as a whole word, before the body. */
static const char *find_list(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = text; length > 0 && (at = strstr(at, "__global__")) != NULL; at++) {
        const char *end = at + strcspn(at, "{;"), *found = at;
        while ((found = strstr(found + 1, name)) != NULL && found < end) {
            const char *after = found + length + strspn(found + length, " ");
            if (!is_word_byte(found[-1]) && *after == '(')
                return after;
        }
    }
    return NULL;
}

/* Where the bracket at `open` closes, or NULL. */
static const char *find_close(const char *open)
{
    int depth = 0;
    for (const char *at = open; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0)
            return at;
    }
    return NULL;
}

static void read_params(const char *at, const char *end, struct signature *signature)
{
    int depth = 0;
    bool is_pointer = false, is_anything = false;
    for (; at <= end && signature->count < SIGNATURE_PARAMS_MAX; at++) {
        if (at == end || (*at == ',' && depth == 0)) {
            if (is_anything)
                signature->is_pointer[signature->count++] = is_pointer;
            is_pointer = is_anything = false;
            continue;
        }
        depth += (*at == '(' || *at == '<') - (*at == ')' || *at == '>');
        is_pointer |= *at == '*' || *at == '[';
        is_anything |= *at != ' ';
    }
}

/* f(void) takes nothing. */
static bool is_void(const char *start, const char *end)
{
    start += strspn(start, " ");
    return strncmp(start, "void", 4) == 0 && start + 4 + strspn(start + 4, " ") >= end;
}

bool signature_find(const char *source, const char *name, struct signature *signature)
{
    memset(signature, 0, sizeof *signature);
    char *text = without_comments(source);
    const char *open = text ? find_list(text, name) : NULL, *close = open ? find_close(open) : NULL;
    if (close != NULL && !is_void(open + 1, close))
        read_params(open + 1, close, signature);
    if (close != NULL)
        snprintf(
            signature->text, sizeof signature->text, "%.*s", (int)(close - open - 1), open + 1);
    free(text);
    return close != NULL;
}
