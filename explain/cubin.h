/* The container of compiled GPU code: an ELF file, its sections, and the architecture it is for.
 * Pure; what the sections mean is for others. Input is not trusted: each section that is handed out
 * lies within the file, and each name ends within it. */
#ifndef TUNE_EXPLAIN_CUBIN_H
#define TUNE_EXPLAIN_CUBIN_H

#include "client/error.h"

#include <stddef.h>
#include <stdint.h>

#define CUBIN_BYTES_MAX ((size_t)64 << 20)

struct cubin_section {
    const char *name; /* borrowed from the copy, as bytes are */
    uint8_t *bytes;   /* may be written to: it is a copy */
    size_t count;     /* 0 for what takes no room in the file */
    uint32_t type, link, info;
};

struct cubin {
    int sm;         /* 90 for sm_90 and sm_90a */
    uint8_t *bytes; /* new: a copy of the file and a NUL; who takes it sets this to NULL */
    struct cubin_section *sections;
    size_t section_count;
};

/* TUNE_EINVAL with the reason when it is no cubin or is damaged, TUNE_ENOTFOUND when it is older
 * than sm_70 or PTX, TUNE_ELIMIT when it is too large. cubin_finish in any case. */
int cubin_init(struct cubin *cubin, const void *bytes, size_t count, struct tune_error *err);
void cubin_finish(struct cubin *cubin);

#endif
