/* Counts allocations: its malloc, calloc and realloc stand before libc's in a program that links
 * this file. See measure.h. */
#include "measure.h"

#include <stdatomic.h>
#include <stdlib.h>

/* glibc's own functions under the names that stand before its public ones. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *bytes, size_t size);

static _Atomic uint64_t allocation_count;

uint64_t allocations(void)
{
    return atomic_load_explicit(&allocation_count, memory_order_relaxed);
}

void *malloc(size_t size)
{
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return __libc_calloc(count, size);
}

void *realloc(void *bytes, size_t size)
{
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return __libc_realloc(bytes, size);
}
