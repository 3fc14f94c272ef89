#include "memory.h"

#include "trace_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define FRESH_BYTE 0xFF

static struct allocation *table; /* by address */
static size_t table_count, table_room;

static size_t pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Index of the first allocation above the address. */
static size_t above(uintptr_t address)
{
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t memory_used_bytes(int device)
{
    size_t used = 0;
    for (size_t i = 0; i < table_count; i++)
        used += table[i].device == device ? pages(table[i].bytes) : 0;
    return used;
}

/* Whole pages between two that cannot be touched. */
static char *map(size_t bytes)
{
    char *pages_at = mmap(NULL, pages(bytes) + 2 * PAGE_BYTES, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages_at == MAP_FAILED)
        return NULL;
    if (mprotect(pages_at + PAGE_BYTES, pages(bytes), PROT_READ | PROT_WRITE) != 0) {
        munmap(pages_at, pages(bytes) + 2 * PAGE_BYTES);
        return NULL;
    }
    return pages_at + PAGE_BYTES;
}

static void unmap(const struct allocation *allocation)
{
    munmap((char *)allocation->address - PAGE_BYTES, pages(allocation->bytes) + 2 * PAGE_BYTES);
}

uintptr_t memory_allocate(int device, size_t bytes, size_t limit_bytes)
{
    if (bytes > limit_bytes || pages(bytes) > limit_bytes - memory_used_bytes(device))
        return 0;
    if (table_count == table_room) {
        size_t room = table_room ? 2 * table_room : 64;
        struct allocation *grown = realloc(table, room * sizeof *table);
        if (!grown)
            return 0;
        table = grown;
        table_room = room;
    }
    uintptr_t address = (uintptr_t)map(bytes);
    if (!address)
        return 0;
    size_t at = above(address);
    memmove(&table[at + 1], &table[at], (table_count - at) * sizeof *table);
    table[at] = (struct allocation){.address = address,
        .bytes = bytes,
        .is_pending = !trace_mode(), /* then fresh memory is the zeros that it comes with */
        .byte = FRESH_BYTE,
        .device = device};
    table_count++;
    return address;
}

bool memory_free(uintptr_t address)
{
    size_t at = above(address);
    if (at == 0 || table[at - 1].address != address)
        return false;
    unmap(&table[at - 1]);
    memmove(&table[at - 1], &table[at], (table_count - at) * sizeof *table);
    table_count--;
    return true;
}

const struct allocation *memory_below(uintptr_t address)
{
    size_t at = above(address);
    return at ? &table[at - 1] : NULL;
}

static struct allocation *find(uintptr_t address, size_t bytes)
{
    size_t at = above(address);
    struct allocation *allocation = at ? &table[at - 1] : NULL;
    if (!allocation || address - allocation->address > allocation->bytes ||
        bytes > allocation->bytes - (address - allocation->address))
        return NULL;
    return allocation;
}

bool memory_has(uintptr_t address, size_t bytes)
{
    return find(address, bytes) != NULL;
}

struct allocation *memory_find(uintptr_t address, size_t bytes)
{
    struct allocation *allocation = find(address, bytes);
    if (allocation && allocation->is_pending) {
        /* Fresh pages read as zeros; giving pages back makes them fresh. */
        if (allocation->byte == 0)
            madvise((void *)allocation->address, pages(allocation->bytes), MADV_DONTNEED);
        else
            memset((void *)allocation->address, allocation->byte, allocation->bytes);
        allocation->is_pending = false;
    }
    return allocation;
}

/* Whole pages are given back: fresh ones read as zeros and take no room. */
static void set_zero(uintptr_t address, size_t bytes)
{
    uintptr_t from = pages(address), to = (address + bytes) / PAGE_BYTES * PAGE_BYTES;
    if (to <= from) {
        memset((void *)address, 0, bytes);
        return;
    }
    memset((void *)address, 0, from - address);
    madvise((void *)from, to - from, MADV_DONTNEED);
    memset((void *)to, 0, address + bytes - to);
}

void memory_set(uintptr_t address, uint32_t value, size_t width, size_t count)
{
    size_t bytes = width * count;
    struct allocation *allocation = find(address, bytes);
    bool is_one_byte = width == 1 || value == (value & 0xFF) * (width == 4 ? 0x01010101u : 0x0101u);
    if (allocation && is_one_byte && bytes == allocation->bytes) {
        allocation->is_pending = true;
        allocation->byte = (unsigned char)value;
        return;
    }
    memory_find(address, bytes);
    if (allocation && value == 0)
        set_zero(address, bytes);
    else if (is_one_byte)
        memset((void *)address, (int)(value & 0xFF), bytes);
    for (size_t i = 0; !is_one_byte && i < count; i++)
        memcpy((char *)address + i * width, &value, width);
}
