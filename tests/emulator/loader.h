/* Loads an image and tells what is in it: kernels with their resources, and the variables that
 * device code may touch. Used by both stand-ins: the compiler checks what it made. */
#ifndef TUNE_EMULATOR_LOADER_H
#define TUNE_EMULATOR_LOADER_H

#include "image.h"

#include <stddef.h>

#define LOADER_STATIC_SHARED_LIMIT (48 * 1024)

struct loaded_kernel {
    const struct image_kernel *image;
    uint32_t launch_bound;  /* threads by __launch_bounds__, 0: none */
    uint32_t static_shared; /* bytes */
    uint32_t registers;     /* made up from the size of the code; repeats exactly */
};

struct loaded_object {
    const char *name; /* as in the symbol table: mangled */
    uintptr_t address, bytes;
    bool is_shared, is_read_only;
};

struct loaded {
    void *library;
    int descriptor; /* stays open: the library's name is /proc/self/fd/N, and must stay unique */
    uintptr_t base;
    struct image *image;
    struct loaded_kernel *kernels;
    size_t kernel_count;
    struct loaded_object *objects; /* by address */
    size_t object_count;
    char *names; /* storage of the objects' names */
};

/* Length of an image that starts at `bytes`, from its own headers; 0 when it is none. */
size_t loader_image_bytes(const void *bytes);

/* New, or NULL with a sentence in `text`. The bytes are copied. */
struct loaded *loader_open(const void *bytes, size_t count, char *text, size_t room);
void loader_close(struct loaded *loaded);

const struct loaded_kernel *loader_kernel(const struct loaded *loaded, const char *name);
/* The object that holds the address, or NULL. */
const struct loaded_object *loader_object(const struct loaded *loaded, uintptr_t address);

/* "gemm.cu:42" for an address of the image's code, or "?". Asks addr2line: for error messages only.
 */
void loader_line(const struct loaded *loaded, const void *pc, char *text, size_t room);

#endif
