/* See xmalloc.h. */
#include "xmalloc.h"

#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check(void *memory)
{
    if (memory == NULL)
        log_fatal("out of memory");
    return memory;
}

void *xmalloc(size_t size)
{
    return check(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return check(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *memory, size_t size)
{
    return check(realloc(memory, size ? size : 1));
}

char *xstrdup(const char *text)
{
    return text ? check(strdup(text)) : NULL;
}

char *xasprintf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    return check(length < 0 ? NULL : text);
}
