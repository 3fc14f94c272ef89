/* What one instruction does, from its 128 bits. Pure. */
#ifndef TUNE_EXPLAIN_SASS_OP_H
#define TUNE_EXPLAIN_SASS_OP_H

#include "explain/sass.h"

#define SASS_OP_BYTES 16

struct sass_op {
    enum sass_class kind; /* OTHER for unknown operations too */
    bool is_known;
    bool is_padding; /* NOP, what never runs, and the jump to itself behind the last instruction */
    uint32_t bytes;  /* per lane, of what accesses global or shared memory; 0: none or unknown */
};

/* lo has bits 0..63 of the instruction. */
struct sass_op sass_op(uint64_t lo, uint64_t hi, int sm);

#endif
