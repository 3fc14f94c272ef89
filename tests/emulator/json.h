/* A small JSON reader for scenario files: the emulator depends on nothing but the C library, so
 * that its libraries can be loaded into any program. Values live until json_free of the root. */
#ifndef TUNE_EMULATOR_JSON_H
#define TUNE_EMULATOR_JSON_H

#include <stddef.h>

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    double number; /* also of a boolean */
    char *text;    /* of a string */
    char *key;     /* of an object's member */
    struct json *first, *next;
};

/* New, or NULL; *position is then where the text stops being JSON. */
struct json *json_read(const char *text, size_t *position);
void json_free(struct json *json);

/* Member of an object, or NULL (also for NULL). */
const struct json *json_member(const struct json *object, const char *key);
double json_number(const struct json *object, const char *key, double otherwise);
const char *json_text(const struct json *object, const char *key, const char *otherwise);

#endif
