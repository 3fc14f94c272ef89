/* Which addresses a kernel may touch, and what is said when it touches others. */
#include "memory.h"
#include "run.h"
#include "switch.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- errors ----------------------------------------------------------------------------------- */

void end_launch(void)
{
    void *dropped;
    switch_stack(&dropped, run.main_stack);
}

void fail_at(unsigned code, void *pc, const char *format, ...)
{
    char line[256], text[512];
    const struct image_index *thread = run.launch->loaded->image->thread;
    const struct image_index *block = &run.block->index;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    loader_line(run.launch->loaded, pc, line, sizeof line);
    fprintf(stderr, "emulator: %s: %s: %s; thread (%u, %u, %u) of block (%u, %u, %u)\n", line,
        run.launch->kernel->image->name, text, thread->x, thread->y, thread->z, block->x, block->y,
        block->z);
    run.result->error = code;
    end_launch();
}

void fail(uint32_t code, const char *text, void *pc)
{
    fail_at(code, pc, "%s", text);
}

/* --- addresses -------------------------------------------------------------------------------- */

static void merge_use(const struct image_range *range)
{
    for (uint32_t i = 0; i < run.use_count; i++)
        if (run.uses[i].base == range->base) {
            run.uses[i] = *range;
            return;
        }
}

/* The launch's own record of a range, which survives its being pushed out of the hooks' short list.
 */
static struct image_range *use_of(uintptr_t base, uintptr_t bytes, uint32_t kind, bool read_only)
{
    for (uint32_t i = 0; i < run.use_count; i++)
        if (run.uses[i].base == base)
            return &run.uses[i];
    uint32_t slot = run.use_count < USES ? run.use_count++ : USES - 1;
    run.uses[slot] = (struct image_range){.base = base,
        .bytes = bytes,
        .kind = kind,
        .read_only = read_only,
        .written_low = UINTPTR_MAX,
        .tag = slot};
    return &run.uses[slot];
}

static struct image_range *put_range(uintptr_t base, uintptr_t bytes, uint32_t kind, bool read_only)
{
    struct image_hot *hot = run.hot;
    uint32_t slot = hot->range_count;
    if (slot < IMAGE_RANGES) {
        hot->range_count++;
    } else {
        slot = run.next_slot++ % IMAGE_RANGES;
        merge_use(&hot->ranges[slot]);
    }
    hot->ranges[slot] = *use_of(base, bytes, kind, read_only);
    return &hot->ranges[slot];
}

static void bad_address(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc)
{
    const char *what = access != ACCESS_READ ? "write" : "read";
    const struct allocation *below = memory_below(address);
    uintptr_t shared = address - (uintptr_t)run.launch->loaded->image->dynamic_shared;
    const struct loaded_object *object = loader_object(run.launch->loaded, address);
    if (shared < IMAGE_DYNAMIC_SHARED_BYTES)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc,
            "%s of %zu bytes at offset %zu of dynamic shared memory, which has %u bytes in this "
            "launch",
            what, (size_t)bytes, (size_t)shared, run.launch->shared_bytes);
    if (object && object->is_read_only)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc, "write to the constant %s", object->name);
    if (object)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc,
            "%s of %zu bytes runs past the end of %s, which has %zu bytes", what, (size_t)bytes,
            object->name, (size_t)object->bytes);
    if (below && address - below->address < below->bytes + ((size_t)1 << 20))
        fail_at(ERROR_ILLEGAL_ADDRESS, pc,
            "%s of %zu bytes at 0x%zx, which is offset %zu of a buffer of %zu bytes", what,
            (size_t)bytes, (size_t)address, (size_t)(address - below->address), below->bytes);
    fail_at(ERROR_ILLEGAL_ADDRESS, pc, "%s of %zu bytes at 0x%zx, which is in no buffer", what,
        (size_t)bytes, (size_t)address);
}

/* String literals and the like, which have no symbol. */
static bool is_image_constant(uintptr_t address, enum image_access access)
{
    Dl_info info;
    const struct loaded *loaded = run.launch->loaded;
    uintptr_t shared = address - (uintptr_t)loaded->image->dynamic_shared;
    return access == ACCESS_READ && shared >= IMAGE_DYNAMIC_SHARED_BYTES &&
           dladdr((void *)address, &info) && (uintptr_t)info.dli_fbase == loaded->base;
}

struct image_range *resolve(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc)
{
    const struct allocation *allocation = memory_find(address, bytes);
    if (allocation)
        return put_range(allocation->address, allocation->bytes, IMAGE_GLOBAL, false);
    uintptr_t saved_bytes;
    const struct block *other = fibre_saved_block(address, &saved_bytes);
    if (other && !other->has_begun)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc,
            "%s in the shared memory of a block of the cluster that may not have begun",
            access != ACCESS_READ ? "write" : "read");
    if (other)
        return put_range((uintptr_t)other->saved, saved_bytes, IMAGE_SHARED, false);
    const struct loaded_object *object = loader_object(run.launch->loaded, address);
    if (object && bytes <= object->bytes - (address - object->address) &&
        !(access != ACCESS_READ && object->is_read_only))
        return put_range(object->address, object->bytes,
            object->is_shared ? IMAGE_SHARED : IMAGE_STATIC, object->is_read_only);
    if (!object && is_image_constant(address, access))
        return put_range(address, bytes, IMAGE_STATIC, true);
    bad_address(address, bytes, access, pc);
    return NULL;
}

void misaligned(uintptr_t address, uintptr_t bytes, enum image_access access, void *pc)
{
    fail_at(ERROR_MISALIGNED_ADDRESS, pc, "%s of %zu bytes at 0x%zx, which is no multiple of %zu",
        access != ACCESS_READ ? "write" : "read", (size_t)bytes, (size_t)address, (size_t)bytes);
}

/* --- afterwards ------------------------------------------------------------------------------- */

void collect_uses(void)
{
    for (uint32_t i = 0; i < run.hot->range_count; i++)
        merge_use(&run.hot->ranges[i]);
}

bool fibre_first_output(const struct fibre_launch *launch, uintptr_t *address, size_t *bytes)
{
    const struct image_kernel *kernel = launch->kernel->image;
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        uintptr_t value;
        if (kernel->param_bytes[i] != sizeof value)
            continue;
        memcpy(&value, launch->params[i], sizeof value);
        for (uint32_t u = 0; u < run.use_count; u++) {
            const struct image_range *use = &run.uses[u];
            if (use->kind != IMAGE_GLOBAL || value - use->base >= use->bytes ||
                use->written_low >= use->written_high)
                continue;
            *address = use->base + use->written_low;
            *bytes = use->written_high - use->written_low;
            return true;
        }
    }
    return false;
}
