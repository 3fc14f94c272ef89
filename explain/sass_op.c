/* See sass_op.h. */
#include "explain/sass_op.h"
#include "explain/sass_codes.h"

#define CODE_BITS 9
#define CODE_COUNT (1 << CODE_BITS)
#define NO_REGISTER 255 /* RZ: reads as zero */

/* Where an instruction has the bytes that a lane accesses; bit numbers are of its 128. */
enum width {
    NONE,     /* nowhere, or it does not say which memory it accesses */
    WORD,     /* bits 73..75: u8, s8, u16, s16, 4, 8, 16 bytes */
    PAIR,     /* two pieces of 16 bytes */
    COPY,     /* as WORD; from sm_100 on bits 74..75: 4, 8, 16 bytes */
    MATRIX,   /* bits 72..73: 1, 2 or 4 matrices, a word of each per lane */
    INTEGERS, /* bits 73..75: u32, s32, u64, then by architecture */
    FLOATS,   /* bits 73..76: f16x2, its vectors, f32, its vectors, f64 */
    SWAP      /* bits 73..75: 4, -, 8, -, 16 bytes */
};

enum {
#define X(code, name, class_name, width) OP_##name = code,
    SASS_CODES(X)
#undef X
};

static const struct entry {
    uint8_t is_known, kind, width;
} entries[CODE_COUNT] = {
#define X(code, name, class_name, width) [code] = {1, SASS_##class_name, width},
    SASS_CODES(X)
#undef X
};

static uint32_t field(uint64_t hi, unsigned bit, unsigned bits)
{
    return (uint32_t)(hi >> (bit - 64)) & ((1U << bits) - 1);
}

/* From sm_90 on atomics of floats have operations of their own. */
static uint32_t integer_bytes(uint64_t hi, int sm)
{
    static const uint8_t before[] = {4, 4, 8, 4, 4, 8, 8, 4};
    static const uint8_t since_90[] = {4, 4, 8, 8, 4, 4, 4, 4};
    return (sm < 90 ? before : since_90)[field(hi, 73, 3)];
}

static uint32_t access_bytes(enum width width, uint64_t hi, int sm)
{
    static const uint8_t words[] = {1, 1, 2, 2, 4, 8, 16, 0};
    static const uint8_t copies[] = {4, 8, 16, 0};
    static const uint8_t matrices[] = {4, 8, 16, 0};
    static const uint8_t floats[] = {4, 8, 16, 4, 8, 16, 4, 4, 4, 4, 8, 16, 4, 4, 4, 8};
    static const uint8_t swaps[] = {4, 4, 8, 8, 16, 16, 4, 4};
    switch (width) {
    case WORD:
        return words[field(hi, 73, 3)];
    case PAIR:
        return 32;
    case COPY:
        return sm < 100 ? words[field(hi, 73, 3)] : copies[field(hi, 74, 2)];
    case MATRIX:
        return matrices[field(hi, 72, 2)];
    case INTEGERS:
        return integer_bytes(hi, sm);
    case FLOATS:
        return floats[field(hi, 73, 4)];
    case SWAP:
        return swaps[field(hi, 73, 3)];
    case NONE:
        break;
    }
    return 0;
}

/* Compilers load constants by 0 * 0 + constant, where that is free. */
static bool is_move(uint64_t lo, uint64_t hi)
{
    return (lo >> 24 & 0xFF) == NO_REGISTER && (hi & 0xFF) == NO_REGISTER;
}

static enum sass_class copy_class(uint64_t hi)
{
    enum { TO_GLOBAL = 2, WITHIN_SHARED = 3 };
    switch (field(hi, 73, 2)) {
    case TO_GLOBAL:
        return SASS_GLOBAL_STORE;
    case WITHIN_SHARED:
        return SASS_SHARED_STORE;
    default:
        return SASS_GLOBAL_LOAD;
    }
}

static enum sass_class class_of(unsigned code, uint64_t lo, uint64_t hi, int sm)
{
    switch (code) {
    case OP_HFMA2_MMA: /* IADD there */
        return sm >= 100 || is_move(lo, hi) ? SASS_INTEGER : SASS_FP16;
    case OP_HFMA2:
        return is_move(lo, hi) ? SASS_INTEGER : SASS_FP16;
    case OP_UBLKCP:
        return copy_class(hi);
    default:
        return (enum sass_class)entries[code].kind;
    }
}

/* Bits 12..15 are the predicate: PT is 7, and 8 negates. */
static bool never_runs(uint64_t lo)
{
    return (lo >> 12 & 0xF) == 0xF;
}

/* The distance is in bits 16..81, in units of 4 bytes (on sm_90 and later split in two), from the
 * next instruction on; -16 bytes has only these two forms. */
static bool is_self_jump(unsigned code, uint64_t lo, uint64_t hi)
{
    uint64_t distance = lo >> 16;
    return code == OP_BRA && (lo >> 12 & 0xF) == 7 && (hi & 0x3FFFF) == 0x3FFFF &&
           (distance == 0xFFFFFFF00000 || distance == 0xFFFFFFFC00FC);
}

struct sass_op sass_op(uint64_t lo, uint64_t hi, int sm)
{
    unsigned code = lo & (CODE_COUNT - 1);
    const struct entry *entry = &entries[code];
    if (!entry->is_known)
        return (struct sass_op){.kind = SASS_OTHER, .is_padding = never_runs(lo)};
    return (struct sass_op){
        .kind = class_of(code, lo, hi, sm),
        .is_known = true,
        .is_padding = code == OP_NOP || never_runs(lo) || is_self_jump(code, lo, hi),
        .bytes = access_bytes((enum width)entry->width, hi, sm),
    };
}
