/* The bytes of an answer, shared by its maker (answer_json.c) and its readers (answer.c).
 *
 * The bytes: a head, then these tables in this order, each of the head's count of elements: params,
 * launches, buffers, args (of all launches), maps (of tensor map arguments), numbers (of maps);
 * then the strings, the last of which ends the answer. A string, a map and a run of numbers is
 * referred to by its distance in bytes from the record that names it, 0 for none, so that a record
 * can be read with nothing but its address. */
#ifndef TUNE_ANSWER_FORM_H
#define TUNE_ANSWER_FORM_H

#include "client/answer.h"

#include <assert.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "answers and snapshots are read where they lie: only little-endian machines are supported"
#endif

#define ANSWER_MAGIC "TANS" /* four bytes */

/* Records lie in the answer's words. */
#define in_place __attribute__((may_alias))

#define MAP_RANK_MAX 5 /* of a tensor map, by the driver */

/* Of the head. Flags may be added without another version: readers pass over those of which they
 * do not know. */
enum { FLAG_SAME_GPU = 1, FLAG_VERIFIED = 2, FLAG_SHIPPED = 4 };
/* Of launches and buffers. */
enum { FLAG_MEMSET = 1, FLAG_COOPERATIVE = 2, FLAG_ZEROED = 4, FLAG_CONSTANT = 8, FLAG_ONCE = 16 };

struct in_place head {
    char magic[4];
    uint16_t version;
    uint8_t origin, flags;
    uint32_t length;
    int32_t sm;
    double median_ns, expected_loss;
    uint64_t generation;
    uint32_t params, launches, buffers, args, maps, numbers; /* counts */
    uint32_t kernel, dtype, mode, arch, shape, measured_on, measured_shape;
    uint32_t zero;
};

struct in_place param {
    int64_t value;
    uint32_t name, word;
};

struct in_place launch {
    uint8_t flags, byte;
    uint16_t zero;
    uint32_t name; /* of the entry, or of a memset's or a constant's buffer */
    uint32_t grid[3], block[3], cluster[3], shared_bytes, repeat;
    uint32_t first_arg, args;
    uint32_t constant; /* its variable's name */
};

struct in_place buffer {
    int64_t bytes;
    uint32_t name, dtype, role;
    uint32_t flags;
};

struct in_place arg {
    union {
        int64_t integer;
        double real;
    } value;
    uint32_t name, type; /* a tensor map's dtype is its type */
    uint16_t kind, is_real;
    uint32_t map;
};

struct in_place map {
    uint32_t swizzle, rank;
    uint32_t dims, strides_bytes, box; /* rank, rank - 1 and rank numbers */
    uint32_t zero;
};

/* Byte positions of the tables. */
struct layout {
    size_t params, launches, buffers, args, maps, numbers, strings;
};

static inline struct layout layout_of(const struct head *head)
{
    struct layout at = {.params = sizeof *head};
    at.launches = at.params + head->params * sizeof(struct param);
    at.buffers = at.launches + head->launches * sizeof(struct launch);
    at.args = at.buffers + head->buffers * sizeof(struct buffer);
    at.maps = at.args + head->args * sizeof(struct arg);
    at.numbers = at.maps + head->maps * sizeof(struct map);
    at.strings = at.numbers + head->numbers * sizeof(int64_t);
    return at;
}

static_assert(sizeof(struct head) % 8 == 0 && sizeof(struct param) % 8 == 0 &&
                  sizeof(struct launch) % 8 == 0 && sizeof(struct buffer) % 8 == 0 &&
                  sizeof(struct arg) % 8 == 0 && sizeof(struct map) % 8 == 0,
    "each table begins aligned");

#endif
