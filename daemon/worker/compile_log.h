/* Reads a compiler's log: the first error, resources per entry, and a form short enough to keep.
 * Pure. NVRTC's front end, its ptxas, and the emulator's host compiler all use "error:" in their
 * lines. */
#ifndef TUNE_WORKER_COMPILE_LOG_H
#define TUNE_WORKER_COMPILE_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Removes the lines that differ from one compile of the same text to the next (ptxas tells how long
 * it took). In place; returns the new length. */
size_t compile_log_strip(char *log);

/* The first line with an error, or NULL; *length gets the line's length. Borrowed from `log`. */
const char *compile_log_error(const char *log, size_t *length);

/* True when a static_assert failed: manifest and source disagree. */
bool compile_log_has_static_assert(const char *log);

/* {"lowered name":{"registers","spill_bytes","static_shared_bytes","stack_bytes"}} from the lines
 * of
 * --ptxas-options=-v. spill_bytes counts stores and loads. New reference. */
json_t *compile_log_resources(const char *log);

/* A copy of at most `limit` bytes, malloc'ed: the whole log, or its beginning, a mark that tells
 * how much is missing, and the first error where the beginning does not hold it. */
char *compile_log_cut(const char *log, size_t limit);

/* The names of the __global__ functions of a source, ", " between them, for the error about an
 * entry that is not there. Always ends; writes "none" when there are none. */
void compile_log_globals(const char *source, char *names, size_t room);

#endif
