/* The source-to-source step of the stand-in compiler, on preprocessed text: finds the kernels, and
 * turns `extern __shared__ T n[]` (which is not C++) into a declaration of the image's dynamic
 * shared memory. Working after the preprocessor, it sees exactly the code that will be compiled. */
#ifndef TUNE_EMULATOR_REWRITE_H
#define TUNE_EMULATOR_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

struct rewrite_kernel {
    char *name; /* qualified with its namespaces */
    bool is_template;
};

struct rewrite {
    char *text; /* malloc'ed */
    size_t length;
    struct rewrite_kernel *kernels;
    size_t kernel_count;
};

/* 0, or -1 without memory. */
int rewrite_init(struct rewrite *rewrite, const char *text);
void rewrite_finish(struct rewrite *rewrite);

#endif
