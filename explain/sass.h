/* What a compiled kernel consists of, read from the cubin alone: how many instructions of which
 * kind, and which lines of the source access which memory by how many bytes. Pure; no toolkit and
 * no disassembler is needed.
 *
 * A cubin is an ELF file: the code of kernel K is the section .text.K, instructions of 16 bytes
 * whose lowest 12 bits name the operation (sm_70 and later). Their source lines are in .debug_line
 * (DWARF), when it was compiled with -lineinfo.
 *
 * Input is not trusted: whatever the bytes are, the result is an error or a reading, never a read
 * past the end. */
#ifndef TUNE_EXPLAIN_SASS_H
#define TUNE_EXPLAIN_SASS_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, word, what a person reads) */
#define SASS_CLASSES(X)                                                                            \
    X(FP32, "fp32", "arithmetic on f32: FFMA, FADD, FMUL, ...")                                    \
    X(FP64, "fp64", "arithmetic on f64: DFMA, ...")                                                \
    X(FP16, "fp16", "packed f16 and bf16: HFMA2, ...")                                             \
    X(TENSOR, "tensor", "tensor cores: HMMA, HGMMA, IMMA, ...")                                    \
    X(SPECIAL, "special", "special functions: MUFU")                                               \
    X(INTEGER, "integer", "integers, addresses, logic, moves and comparisons")                     \
    X(CONVERT, "convert", "conversions between types")                                             \
    X(GLOBAL_LOAD, "global_load", "LDG, LD, and bulk copies from global memory")                   \
    X(GLOBAL_STORE, "global_store", "STG, ST")                                                     \
    X(ATOMIC, "atomic", "ATOM, ATOMG, RED, ATOMS")                                                 \
    X(SHARED_LOAD, "shared_load", "LDS, LDSM")                                                     \
    X(SHARED_STORE, "shared_store", "STS")                                                         \
    X(LOCAL, "local", "LDL, STL: spilled registers and arrays that did not fit")                   \
    X(CONSTANT, "constant", "LDC, ULDC")                                                           \
    X(WARP, "warp", "shuffles and votes: SHFL, VOTE, MATCH, REDUX")                                \
    X(BARRIER, "barrier", "BAR, DEPBAR, fences")                                                   \
    X(BRANCH, "branch", "BRA, EXIT, CALL, RET, BSSY, BSYNC")                                       \
    X(OTHER, "other",                                                                              \
        "everything else; padding (NOP, what never runs and what follows the end) is not counted")

enum sass_class {
#define X(name, word, meaning) SASS_##name,
    SASS_CLASSES(X)
#undef X
        SASS_CLASS_COUNT
};

/* Instructions of one line that access global or shared memory alike. */
struct sass_access {
    const char *file;     /* base name; "" when unknown; lives as long as the reading */
    uint32_t line;        /* 0: unknown */
    enum sass_class kind; /* GLOBAL_LOAD, GLOBAL_STORE, SHARED_LOAD, SHARED_STORE or ATOMIC */
    uint32_t bytes;       /* per lane: 1, 2, 4, 8, 16, 32 */
    uint32_t count;       /* such instructions in the code */
};

struct sass_kernel {
    const char *name;      /* as in the cubin: mangled for C++ linkage */
    uint32_t instructions; /* without padding */
    uint32_t by_class[SASS_CLASS_COUNT];
    uint32_t unknown;             /* of OTHER: operations that this reader does not know */
    struct sass_access *accesses; /* by file, line, kind, bytes */
    size_t access_count;
};

struct sass {
    int sm; /* 90 for sm_90 and sm_90a; 0 when the file does not say */
    struct sass_kernel *kernels;
    size_t kernel_count;
    char *names; /* storage of all texts */
};

/* Reads the cubin. TUNE_EINVAL with the reason when it is none or is damaged; TUNE_ENOTFOUND when
 * it is older than sm_70 or holds PTX instead of code; TUNE_ELIMIT past 64 MiB or a million
 * instructions. sass_finish in any case. */
int sass_read(const void *bytes, size_t count, struct sass *sass, struct tune_error *err);
void sass_finish(struct sass *sass);

/* NULL when there is none of this name. */
const struct sass_kernel *sass_kernel(const struct sass *sass, const char *name);

/* For qsort: by file, line, kind, bytes. */
int sass_access_order(const void *a, const void *b);

const char *sass_class_word(enum sass_class kind);

#endif
