/* What all bridges do with JSON that somebody else wrote, and with what they have to say of it. */
#ifndef TUNE_BRIDGES_TOLD_H
#define TUNE_BRIDGES_TOLD_H

#include <jansson.h>
#include <stdarg.h>

/* A borrowed text of an object, "" when there is none. */
const char *told_text(const json_t *object, const char *key);

/* Adds a sentence to a list of warnings. */
void told_warning(json_t *warnings, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

#endif
