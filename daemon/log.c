/* See log.h. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool print_debug;

void log_init(bool debug)
{
    print_debug = debug;
}

/* One write per line, so that lines of several threads do not mix. */
static void emit(const char *level, const char *format, va_list args, const char *reason)
{
    char line[2048];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    size_t used = strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S", &parts);
    used += (size_t)snprintf(
        line + used, sizeof line - used, ".%03ld %s: ", now.tv_nsec / 1000000, level);
    size_t start = used;
    size_t room = sizeof line - 1;
    int written = vsnprintf(line + used, room - used, format, args);
    used = written < 0 ? used : used + (size_t)written < room ? used + (size_t)written : room - 1;
    if (reason != NULL) {
        written = snprintf(line + used, room - used, ": %s", reason);
        used = used + (size_t)written < room ? used + (size_t)written : room - 1;
    }
    for (size_t i = start; i < used; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}

#define EMIT(level, reason)                                                                        \
    do {                                                                                           \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        emit(level, format, args, reason);                                                         \
        va_end(args);                                                                              \
    } while (0)

void log_debug(const char *format, ...)
{
    if (print_debug)
        EMIT("debug", NULL);
}

void log_info(const char *format, ...)
{
    EMIT("info", NULL);
}

void log_warn(const char *format, ...)
{
    char reason[96];
    const char *words = strerror_r(errno, reason, sizeof reason);
    EMIT("warning", words);
}

void log_warnx(const char *format, ...)
{
    EMIT("warning", NULL);
}

void log_fatal(const char *format, ...)
{
    EMIT("fatal", NULL);
    exit(1);
}
