/* Allocation for the programs: no memory ends the daemon with a line in the log; the store is
 * intact, since nothing is acknowledged before its commit. */
#ifndef TUNE_XMALLOC_H
#define TUNE_XMALLOC_H

#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *memory, size_t size);
char *xstrdup(const char *text); /* NULL gives NULL */
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
