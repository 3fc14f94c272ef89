/* The part of every image that is not the kernel: what the compiler's thread-sanitizer hooks call,
 * the built-in variables and the shared memory. See image.h.
 *
 * This runs at every memory access of a kernel, hence the order of the tests: stack, dynamic shared
 * memory, ranges met before, and only then the driver's table. */
#include "image.h"

#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default"), used))
#define PC __builtin_return_address(0)
#define FRAME __builtin_frame_address(0)

HIDDEN struct image_index threadIdx, blockIdx, blockDim, gridDim;
HIDDEN char tune_dynamic_shared[IMAGE_DYNAMIC_SHARED_BYTES] __attribute__((aligned(1024)));
HIDDEN struct image_services tune_services;
static struct image_hot hot;
static bool
    tune_is_atomic; /* within the pieces of an atomic operation, which was traced as a whole */

/* Written by the compile step for each image. */
extern const char tune_image_arch[] HIDDEN;
extern const char tune_image_defines[] HIDDEN;

/* __launch_bounds__(N) becomes N one-byte no-ops before the function and an entry in this section,
 * which is the one trace that an attribute with a constant expression can leave, templates
 * included. */
extern void *const __start___patchable_function_entries[] __attribute__((weak)) HIDDEN;
extern void *const __stop___patchable_function_entries[] __attribute__((weak)) HIDDEN;

extern const struct image_block __start_tune_blocks[] __attribute__((weak)) HIDDEN;
extern const struct image_block __stop_tune_blocks[] __attribute__((weak)) HIDDEN;

EXPORTED struct image tune_image = {TUNE_IMAGE_VERSION, tune_image_arch, tune_image_defines, &hot,
    &tune_services, tune_dynamic_shared, &threadIdx, &blockIdx, &blockDim, &gridDim,
    __start___patchable_function_entries, __stop___patchable_function_entries, __start_tune_blocks,
    __stop_tune_blocks};

/* Counts a global access, and a miss where its line was not the last one in its place of a
 * direct-mapped cache. Lines are numbered by buffer and offset, not by address. */
static inline void count_global(const struct image_range *range, uintptr_t offset)
{
    uint64_t line = ((uint64_t)range->tag << 48 | offset >> 7) + 1;
    uint64_t *place = &hot.lines[(line ^ line >> 48) % IMAGE_CACHE_LINES];
    hot.global_accesses++;
    if (*place != line) {
        *place = line;
        hot.misses++;
    }
}

static inline void count_range(
    struct image_range *range, uintptr_t offset, uintptr_t bytes, enum image_access access)
{
    if (range->kind == IMAGE_GLOBAL)
        count_global(range, offset);
    else if (range->kind == IMAGE_SHARED)
        hot.shared_accesses++;
    if (access != ACCESS_READ) {
        if (offset < range->written_low)
            range->written_low = offset;
        if (offset + bytes > range->written_high)
            range->written_high = offset + bytes;
    }
}

static inline bool within(uintptr_t offset, uintptr_t bytes, uintptr_t room)
{
    return offset < room && bytes <= room - offset;
}

static inline void trace(uintptr_t address, uintptr_t bytes, enum image_access access,
    enum image_range_kind kind, void *pc, void *frame)
{
    if (__builtin_expect(tune_services.trace_access && kind != IMAGE_STATIC && !tune_is_atomic, 0))
        tune_services.trace_access(address, bytes, access, kind, pc, frame);
}

static inline void check(
    uintptr_t address, uintptr_t bytes, enum image_access access, void *pc, void *frame)
{
    if (within(address - hot.stack_base, bytes, hot.stack_bytes))
        return;
    if (within(address - (uintptr_t)tune_dynamic_shared, bytes, hot.shared_bytes)) {
        hot.shared_accesses++;
        trace(address, bytes, access, IMAGE_SHARED, pc, frame);
        return;
    }
    for (uint32_t i = 0; i < hot.range_count; i++) {
        struct image_range *range = &hot.ranges[i];
        if (within(address - range->base, bytes, range->bytes) &&
            !(access != ACCESS_READ && range->read_only)) {
            count_range(range, address - range->base, bytes, access);
            trace(address, bytes, access, range->kind, pc, frame);
            return;
        }
    }
    struct image_range *range = tune_services.resolve(address, bytes, access, pc);
    count_range(range, address - range->base, bytes, access);
    trace(address, bytes, access, range->kind, pc, frame);
}

static inline void check_aligned(
    uintptr_t address, uintptr_t bytes, enum image_access access, void *pc, void *frame)
{
    if (address & (bytes - 1))
        tune_services.misaligned(address, bytes, access, pc);
    check(address, bytes, access, pc, frame);
}

#define HOOKS(bytes)                                                                               \
    HIDDEN void __tsan_read##bytes(void *p);                                                       \
    HIDDEN void __tsan_write##bytes(void *p);                                                      \
    HIDDEN void __tsan_unaligned_read##bytes(void *p);                                             \
    HIDDEN void __tsan_unaligned_write##bytes(void *p);                                            \
    HIDDEN void __tsan_volatile_read##bytes(void *p);                                              \
    HIDDEN void __tsan_volatile_write##bytes(void *p);                                             \
    void __tsan_read##bytes(void *p)                                                               \
    {                                                                                              \
        check_aligned((uintptr_t)p, bytes, ACCESS_READ, PC, FRAME);                                \
    }                                                                                              \
    void __tsan_write##bytes(void *p)                                                              \
    {                                                                                              \
        check_aligned((uintptr_t)p, bytes, ACCESS_WRITE, PC, FRAME);                               \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *p)                                                     \
    {                                                                                              \
        check((uintptr_t)p, bytes, ACCESS_READ, PC, FRAME);                                        \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *p)                                                    \
    {                                                                                              \
        check((uintptr_t)p, bytes, ACCESS_WRITE, PC, FRAME);                                       \
    }                                                                                              \
    void __tsan_volatile_read##bytes(void *p)                                                      \
    {                                                                                              \
        tune_services.yield(); /* it may wait for what another thread writes */                    \
        check_aligned((uintptr_t)p, bytes, ACCESS_READ, PC, FRAME);                                \
    }                                                                                              \
    void __tsan_volatile_write##bytes(void *p)                                                     \
    {                                                                                              \
        check_aligned((uintptr_t)p, bytes, ACCESS_WRITE, PC, FRAME);                               \
    }

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

HIDDEN void __tsan_read_range(void *p, uintptr_t bytes);
HIDDEN void __tsan_write_range(void *p, uintptr_t bytes);
HIDDEN void __tsan_init(void);
HIDDEN void __tsan_func_entry(void *site);
HIDDEN void __sanitizer_cov_trace_pc(void);
HIDDEN void __tsan_func_exit(void);
HIDDEN void __tsan_vptr_read(void **p);
HIDDEN void __tsan_vptr_update(void **p, void *value);

void __tsan_read_range(void *p, uintptr_t bytes)
{
    if (bytes)
        check((uintptr_t)p, bytes, ACCESS_READ, PC, FRAME);
}

void __tsan_write_range(void *p, uintptr_t bytes)
{
    if (bytes)
        check((uintptr_t)p, bytes, ACCESS_WRITE, PC, FRAME);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *site)
{
    if (tune_services.trace_call)
        tune_services.trace_call(site, FRAME);
}

void __tsan_func_exit(void)
{
}

/* At the beginning of each basic block, in tracing builds. */
void __sanitizer_cov_trace_pc(void)
{
    if (tune_services.trace_block)
        tune_services.trace_block(PC, FRAME);
}

void __tsan_vptr_read(void **p)
{
    check((uintptr_t)p, sizeof *p, ACCESS_READ, PC, FRAME);
}

void __tsan_vptr_update(void **p, void *value)
{
    (void)value;
    check((uintptr_t)p, sizeof *p, ACCESS_WRITE, PC, FRAME);
}

/* Calls that the compiler makes for copies of structs are checked like the rest. The loops carry a
 * barrier for the optimiser, or it would turn them into calls of themselves. */
HIDDEN void *memcpy(void *to, const void *from, size_t bytes);
HIDDEN void *memmove(void *to, const void *from, size_t bytes);
HIDDEN void *memset(void *to, int byte, size_t bytes);

static void *copy(char *to, const char *from, size_t bytes, void *pc, void *frame)
{
    if (bytes == 0)
        return to;
    check((uintptr_t)from, bytes, ACCESS_READ, pc, frame);
    check((uintptr_t)to, bytes, ACCESS_WRITE, pc, frame);
    for (size_t i = 0; i < bytes; i++) {
        size_t at = to < from ? i : bytes - 1 - i;
        to[at] = from[at];
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, PC, FRAME);
}

void *memcpy(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, PC, FRAME);
}

void *memset(void *to, int byte, size_t bytes)
{
    char *out = to;
    if (bytes)
        check((uintptr_t)to, bytes, ACCESS_WRITE, PC, FRAME);
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (char)byte;
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

/* --- what tune_cuda.h calls ------------------------------------------------------------------- */

HIDDEN uint32_t tune_barrier(uint32_t predicate, uint32_t *count);
HIDDEN uint64_t tune_warp(uint32_t op, uint32_t mask, uint64_t value, uint32_t argument);
HIDDEN void tune_grid_barrier(void);
HIDDEN void tune_cluster_barrier(void);
HIDDEN uint32_t tune_cluster_rank(void);
HIDDEN uint32_t tune_cluster_blocks(void);
HIDDEN void *tune_cluster_address(const void *shared, uint32_t rank);
HIDDEN void tune_yield(void);
HIDDEN void tune_fail(uint32_t code, const char *text);
HIDDEN long long tune_clock(void);
HIDDEN void tune_atomic_begin(void *p, uintptr_t bytes);
HIDDEN void tune_atomic_end(void);

uint32_t tune_barrier(uint32_t predicate, uint32_t *count)
{
    return tune_services.barrier(predicate, count, PC);
}

uint64_t tune_warp(uint32_t op, uint32_t mask, uint64_t value, uint32_t argument)
{
    return tune_services.warp(op, mask, value, argument, PC);
}

void tune_grid_barrier(void)
{
    tune_services.grid_barrier(PC);
}

void tune_cluster_barrier(void)
{
    tune_services.cluster_barrier(PC);
}

uint32_t tune_cluster_rank(void)
{
    return tune_services.cluster_rank();
}

uint32_t tune_cluster_blocks(void)
{
    return tune_services.cluster_blocks();
}

void *tune_cluster_address(const void *shared, uint32_t rank)
{
    return (void *)tune_services.cluster_address((uintptr_t)shared, rank, PC);
}

void tune_yield(void)
{
    tune_services.yield();
}

void tune_fail(uint32_t code, const char *text)
{
    tune_services.fail(code, text, PC);
}

long long tune_clock(void)
{
    return (long long)(hot.global_accesses + hot.shared_accesses);
}

/* Around the pieces of an atomic operation, in tracing builds: it is one access. */
void tune_atomic_begin(void *p, uintptr_t bytes)
{
    check((uintptr_t)p, bytes, ACCESS_ATOMIC, PC, FRAME);
    tune_is_atomic = true;
}

void tune_atomic_end(void)
{
    tune_is_atomic = false;
}
