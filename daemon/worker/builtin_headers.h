/* Standard headers that NVRTC lacks and that kernels include all the same (it says "could not open
 * source file" for <stdint.h>). Given to every NVRTC program unless the request brings its own. */
#ifndef TUNE_WORKER_BUILTIN_HEADERS_H
#define TUNE_WORKER_BUILTIN_HEADERS_H

struct builtin_header {
    const char *name, *text;
};

/* Ended by a NULL name. */
extern const struct builtin_header builtin_headers[];

#endif
