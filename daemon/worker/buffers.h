/* The buffers of a kernel on the device: a list as the plan gives it, laid out in arenas with guard
 * zones between, so that a stray write is seen and nothing is allocated per candidate.
 *
 * An arena is one device allocation that grows and is used again. A buffer of zero bytes has no
 * place: kernels get a null pointer for it. */
#ifndef TUNE_WORKER_BUFFERS_H
#define TUNE_WORKER_BUFFERS_H

#include "gpu.h"
#include "plugins/sparse.h"

#include <jansson.h>
#include <stdint.h>

#define BUFFER_GUARD_BYTES 4096 /* on each side */
#define BUFFER_GUARD_BYTE 0xA5
#define BUFFER_ALIGN 256
#define BUFFER_LIMIT 256 /* kernel and reference together, as in manifests */

enum buffer_kind { KIND_IN, KIND_OUT, KIND_INOUT, KIND_SCRATCH };

struct buffer {
    char *name;
    int dtype; /* harness.h */
    int fill;
    double fill_value;
    struct sparse_description matrix; /* that it is filled from */
    enum buffer_kind role;
    uint64_t count, bytes;
    uint64_t pointer; /* on the device; 0 when bytes is 0 */
};

struct buffer_list {
    size_t count;
    struct buffer items[BUFFER_LIMIT];
};

struct arena {
    uint64_t base;
    size_t room_bytes;
};

/* Reads plan_buffers and appends them. A name that is there already is refused. */
int buffer_list_read(struct buffer_list *list, const json_t *json, struct verdict *verdict);
void buffer_list_finish(struct buffer_list *list);
/* NULL when there is none. */
struct buffer *buffer_list_find(struct buffer_list *list, const char *name);

/* Places items[from..to) one after another from `base` on and returns the bytes used; with base 0
 * it only counts. Places only buffers whose role is in `roles`, a bit per role. */
uint64_t buffer_list_place(
    struct buffer_list *list, size_t from, size_t to, unsigned roles, uint64_t base);

#define ROLE_BIT(role) (1u << (role))
#define ROLES_ALL                                                                                  \
    (ROLE_BIT(KIND_IN) | ROLE_BIT(KIND_OUT) | ROLE_BIT(KIND_INOUT) | ROLE_BIT(KIND_SCRATCH))

/* Makes sure of `bytes`; the content is lost when it grows. */
int arena_reserve(
    struct gpu *gpu, struct arena *arena, size_t bytes, const char *what, struct verdict *verdict);
void arena_release(struct gpu *gpu, struct arena *arena);

#endif
