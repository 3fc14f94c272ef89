/* See support.h. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *data_file(const char *name, size_t *length)
{
    char path[4096], *text = malloc((size_t)1 << 20);
    snprintf(path, sizeof path, "%s/tests/data/bridges/%s", getenv("TUNE_SOURCE_DIR"), name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    *length = fread(text, 1, ((size_t)1 << 20) - 1, file);
    text[*length] = '\0';
    fclose(file);
    return text;
}

int has_warning(const json_t *warnings, const char *fragment)
{
    for (size_t i = 0; i < json_array_size(warnings); i++)
        if (strstr(json_string_value(json_array_get(warnings, i)), fragment) != NULL)
            return 1;
    return 0;
}
