#include "buffers.h"
#include "client/proto.h"
#include "harness.h"
#include "plugins/sparse_shape.h"

#include <stdlib.h>
#include <string.h>

static int role_from_word(const char *word, enum buffer_kind *role)
{
    static const char *const words[] = {"in", "out", "inout", "scratch"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word, words[i]) == 0) {
            *role = (enum buffer_kind)i;
            return 0;
        }
    return -1;
}

static int read_buffer(const json_t *json, struct buffer *buffer, struct tune_error *err)
{
    const char *name, *dtype, *role, *fill = "zero";
    int64_t count, bytes;
    if (proto_string(json, "name", &name, err) < 0 ||
        proto_string(json, "dtype", &dtype, err) < 0 ||
        proto_string(json, "role", &role, err) < 0 ||
        proto_int(json, "count", 0, INT64_MAX, &count, err) < 0 ||
        proto_int(json, "bytes", 0, INT64_MAX, &bytes, err) < 0 ||
        proto_string_opt(json, "fill", &fill, err) < 0 ||
        proto_number_opt(json, "fill_value", &buffer->fill_value, err) < 0)
        return -1;
    if (role_from_word(role, &buffer->role) < 0 || harness_dtype(dtype, &buffer->dtype) < 0 ||
        harness_fill_kind(fill, &buffer->fill) < 0)
        return tune_fail(err, TUNE_EINVAL,
            "buffer %.40s has an unknown role, dtype or fill: %.20s, "
            "%.20s, %.20s",
            name, role, dtype, fill);
    if (bytes != count * harness_dtype_bytes(buffer->dtype) || bytes > (int64_t)1 << 50)
        return tune_fail(err, TUNE_EINVAL, "buffer %.40s: %lld elements are not %lld bytes", name,
            (long long)count, (long long)bytes);
    sparse_description_from_json(json_object_get(json, "matrix"), &buffer->matrix);
    buffer->count = (uint64_t)count;
    buffer->bytes = (uint64_t)bytes;
    buffer->name = strdup(name);
    return buffer->name ? 0 : tune_fail(err, TUNE_ENOMEM, "no memory for a buffer's name");
}

int buffer_list_read(struct buffer_list *list, const json_t *json, struct verdict *verdict)
{
    size_t index;
    json_t *each;
    json_array_foreach (json, index, each) {
        struct tune_error err = {.code = TUNE_OK};
        struct buffer *buffer = &list->items[list->count];
        if (list->count == BUFFER_LIMIT)
            return verdict_set(verdict, "invalid", "more than %d buffers", BUFFER_LIMIT);
        *buffer = (struct buffer){.name = NULL};
        if (read_buffer(each, buffer, &err) < 0)
            return verdict_set(verdict, "invalid", "%s", err.text);
        bool is_double = buffer_list_find(list, buffer->name) != NULL;
        list->count++;
        if (is_double)
            return verdict_set(verdict, "invalid", "two buffers are called %s", buffer->name);
    }
    return 0;
}

void buffer_list_finish(struct buffer_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].name);
    list->count = 0;
}

struct buffer *buffer_list_find(struct buffer_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

uint64_t buffer_list_place(
    struct buffer_list *list, size_t from, size_t to, unsigned roles, uint64_t base)
{
    uint64_t used = 0;
    for (size_t i = from; i < to; i++) {
        struct buffer *buffer = &list->items[i];
        if (buffer->bytes == 0 || !(roles & ROLE_BIT(buffer->role)))
            continue;
        used += BUFFER_GUARD_BYTES;
        if (base)
            buffer->pointer = base + used;
        used += (buffer->bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
        used += BUFFER_GUARD_BYTES;
    }
    return used;
}

int arena_reserve(
    struct gpu *gpu, struct arena *arena, size_t bytes, const char *what, struct verdict *verdict)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (bytes <= arena->room_bytes)
        return 0;
    arena_release(gpu, arena);
    unsigned long long base = 0;
    unsigned result = gpu->api.cuMemAlloc(&base, bytes);
    if (result == ABI_OUT_OF_MEMORY) {
        gpu->api.cuMemGetInfo(&free_bytes, &total_bytes);
        verdict_set(verdict, "over_limits",
            "%s need %zu MiB of device memory, but %zu of %zu MiB are free", what, bytes >> 20,
            free_bytes >> 20, total_bytes >> 20);
        verdict->code = result;
        return -1;
    }
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "allocating %zu MiB for %s", bytes >> 20, what);
    arena->base = base;
    arena->room_bytes = bytes;
    return 0;
}

void arena_release(struct gpu *gpu, struct arena *arena)
{
    if (arena->base)
        gpu->api.cuMemFree(arena->base);
    *arena = (struct arena){.base = 0};
}
