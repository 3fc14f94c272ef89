/* See told.h. */
#include "told.h"

#include <stdio.h>

const char *told_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void told_warning(json_t *warnings, const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    json_array_append_new(warnings, json_string(text));
}
