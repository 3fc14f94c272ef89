/* Inside of the stand-in libnvrtc: one compile, from options to an image.
 *
 * Three steps in a private folder that is removed afterwards: preprocess, rewrite (rewrite.h),
 * compile and link with image.c's object. The result is a shared library that the stand-in libcuda
 * loads, and it is a pure function of source, headers and options: same input, same bytes. */
#ifndef TUNE_EMULATOR_COMPILE_H
#define TUNE_EMULATOR_COMPILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define ARGUMENT_LIMIT 512

enum nvrtc_result {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
    NVRTC_ERROR_INTERNAL_ERROR = 11
};

struct file {
    char *name, *text;
};

struct program {
    struct file source;
    struct file *headers;
    int header_count;
    char **expressions, **lowered;
    size_t expression_count;
    bool is_compiled;
    char *image;
    size_t image_bytes;
    bool is_virtual; /* compiled for compute_NN: PTX, no cubin */
    char *log;
    size_t log_bytes;
};

/* One compile: everything that ends with it. */
struct compile {
    struct program *program;
    FILE *log;
    char folder[PATH_MAX];
    char library_folder[PATH_MAX]; /* where tune_cuda.h and tune_image.o lie */
    char arch[32];
    char *defines; /* "BM=64\nBN=32\n" */
    size_t defines_bytes;
    FILE *defines_out;
    char *macros; /* the same as preprocessor lines, with #undef */
    size_t macros_bytes;
    FILE *macros_out;
    char *preprocess[ARGUMENT_LIMIT], *build[ARGUMENT_LIMIT];
    int preprocess_count, build_count;
    char *strings[2 * ARGUMENT_LIMIT]; /* arguments made here */
    int string_count;
    bool is_verbose; /* --ptxas-options=-v */
    char standard[32];
};

/* Appends an argument for the compiler. */
void compile_add(char **list, int *count, const char *argument);
/* A formatted string that lives as long as the compile. */
char *compile_string(struct compile *compile, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* options.c: what NVRTC's options mean here. Unknown ones are refused with a line in the log. */
enum nvrtc_result compile_take_options(
    struct compile *compile, int count, const char *const *options);

/* The whole way; image and log are left in the program. */
enum nvrtc_result compile_program(struct program *program, int count, const char *const *options);

#endif
