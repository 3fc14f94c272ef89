/* See error.h. */
#include "client/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *tune_code_word(enum tune_code code)
{
    static const char *const words[] = {
#define X(name, word) [TUNE_##name] = word,
        TUNE_CODES(X)
#undef X
    };
    size_t count = sizeof words / sizeof words[0];
    return (size_t)code < count ? words[code] : "internal";
}

enum tune_code tune_code_from_word(const char *word)
{
    for (int code = TUNE_OK + 1; word != NULL && code < TUNE_EINTERNAL; code++)
        if (strcmp(word, tune_code_word((enum tune_code)code)) == 0)
            return (enum tune_code)code;
    return TUNE_EINTERNAL;
}

/* A cut must not leave half a UTF-8 character: the text goes into JSON. */
static void trim_partial_utf8(char *text)
{
    size_t length = strlen(text);
    size_t start = length;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0 || (unsigned char)text[start - 1] < 0xC0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (length - (start - 1) < need)
        text[start - 1] = '\0';
}

static void set(struct tune_error *err, enum tune_code code, const char *format, va_list args)
{
    err->code = code;
    int written = vsnprintf(err->text, sizeof err->text, format, args);
    if (written >= (int)sizeof err->text)
        trim_partial_utf8(err->text);
}

int tune_fail(struct tune_error *err, enum tune_code code, const char *format, ...)
{
    if (err == NULL || err->code != TUNE_OK)
        return -1;
    va_list args;
    va_start(args, format);
    set(err, code, format, args);
    va_end(args);
    return -1;
}

int tune_fail_errno(struct tune_error *err, enum tune_code code, const char *format, ...)
{
    int saved_errno = errno;
    if (err == NULL || err->code != TUNE_OK)
        return -1;
    va_list args;
    va_start(args, format);
    set(err, code, format, args);
    va_end(args);
    char reason[96];
    const char *words = strerror_r(saved_errno, reason, sizeof reason);
    /* The reason says more than the end of a long path: it is the sentence that is cut. */
    size_t used = strlen(err->text), need = strlen(words) + strlen(": ") + 1;
    if (used + need > sizeof err->text) {
        err->text[sizeof err->text - need] = '\0';
        trim_partial_utf8(err->text);
        used = strlen(err->text);
    }
    snprintf(err->text + used, sizeof err->text - used, ": %s", words);
    return -1;
}
