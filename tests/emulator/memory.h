/* Device memory: every allocation in a table ordered by address, with unmapped pages around it.
 *
 * Contents are made when they are first needed. A fresh allocation reads as 0xFF bytes, and a
 * memset over a whole allocation only notes its byte, so that flushing a cache by a memset of 256
 * MiB costs nothing unless somebody looks at the result. */
#ifndef TUNE_EMULATOR_MEMORY_H
#define TUNE_EMULATOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocation {
    uintptr_t address;
    size_t bytes;
    bool is_pending; /* content is `byte` throughout, but not written yet */
    unsigned char byte;
    int device;
};

/* The address, or 0 when `limit_bytes` of the device or the host's memory do not allow it. */
uintptr_t memory_allocate(int device, size_t bytes, size_t limit_bytes);
/* False when it is not the start of an allocation. */
bool memory_free(uintptr_t address);
size_t memory_used_bytes(int device);

/* The allocation that holds all of [address, +bytes), its content made; or NULL. */
struct allocation *memory_find(uintptr_t address, size_t bytes);
/* Whether the range is device memory; makes no content. */
bool memory_has(uintptr_t address, size_t bytes);
/* The allocation at or below an address: for messages. */
const struct allocation *memory_below(uintptr_t address);

/* Device memory or a variable of a module. `width` 1, 2 or 4 bytes per value. */
void memory_set(uintptr_t address, uint32_t value, size_t width, size_t count);

#endif
