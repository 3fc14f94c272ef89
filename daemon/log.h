/* The daemon's log: one line per event on standard error, with time and level.
 *
 * log_warn adds errno's words, log_warnx does not. log_fatal ends the process and appears in main.c
 * and xmalloc.c only. Texts from outside are made printable, so that a client cannot forge lines.
 */
#ifndef TUNE_LOG_H
#define TUNE_LOG_H

#include <stdbool.h>

void log_init(bool debug); /* whether log_debug prints */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warnx(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
