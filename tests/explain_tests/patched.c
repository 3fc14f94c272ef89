/* See patched.h. */
#include "patched.h"

#include "../plugins_tests/support.h"

#include <stdlib.h>
#include <string.h>

static json_t *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    json_t *json = parse_json(copy);
    free(copy);
    return json;
}

static void patch(json_t *object, const json_t *changes)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)changes, key, value) {
        json_t *old = json_object_get(object, key);
        if (json_is_object(old) && json_is_object(value))
            patch(old, value);
        else
            json_object_set(object, key, value);
    }
}

json_t *patched(const char *base, const char *changes)
{
    json_t *json = quoted(base), *more = quoted(changes);
    patch(json, more);
    json_decref(more);
    return json;
}
