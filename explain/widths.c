/* What the emulator is told of a cubin: which lines access memory by more than a word at once. */
#include "explain/explain.h"
#include "explain/sass.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 4

/* Atomics stay apart on the emulator as on the GPU. */
static bool is_told(const struct sass_access *access)
{
    return access->line != 0 && access->bytes > WORD_BYTES && access->kind != SASS_ATOMIC;
}

/* Those of all kernels, by place; new, NULL: none. */
static struct sass_access *wide_accesses(const struct sass *sass, size_t *count)
{
    size_t total = 0;
    *count = 0;
    for (size_t k = 0; k < sass->kernel_count; k++)
        total += sass->kernels[k].access_count;
    struct sass_access *all = malloc((total + 1) * sizeof *all);
    if (all == NULL)
        return NULL;
    for (size_t k = 0; k < sass->kernel_count; k++)
        for (size_t i = 0; i < sass->kernels[k].access_count; i++)
            if (is_told(&sass->kernels[k].accesses[i]))
                all[(*count)++] = sass->kernels[k].accesses[i];
    qsort(all, *count, sizeof *all, sass_access_order);
    return all;
}

static bool is_same_place(const struct sass_access *a, const struct sass_access *b)
{
    return strcmp(a->file, b->file) == 0 && a->line == b->line && a->kind == b->kind;
}

/* NULL where the name of the file is not UTF-8. */
static json_t *width_of(const struct sass_access *access)
{
    bool is_global = access->kind == SASS_GLOBAL_LOAD || access->kind == SASS_GLOBAL_STORE;
    bool is_load = access->kind == SASS_GLOBAL_LOAD || access->kind == SASS_SHARED_LOAD;
    return json_pack("{s:s,s:I,s:s,s:s,s:I}", "file", access->file, "line",
        (json_int_t)access->line, "space", is_global ? "global" : "shared", "kind",
        is_load ? "load" : "store", "bytes", (json_int_t)access->bytes);
}

json_t *explain_widths(const void *cubin, size_t cubin_bytes)
{
    struct sass sass;
    json_t *widths = json_array();
    size_t count = 0;
    struct sass_access *wide = NULL;
    if (sass_read(cubin, cubin_bytes, &sass, NULL) == 0)
        wide = wide_accesses(&sass, &count);
    /* The widest of a place is its last. */
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || !is_same_place(&wide[i], &wide[i + 1]))
            json_array_append_new(widths, width_of(&wide[i]));
    free(wide);
    sass_finish(&sass);
    return widths;
}
