/* Inside of the stand-in libnvrtc, for tracing: which basic blocks of the compiled code form loops.
 *
 * Lanes are put together by the turns of the loops around them (trace.h), so loops have to be
 * known exactly. Addresses do not tell: compilers place the blocks of a nest in any order. The
 * compiler's assembly does, since all its jumps go to labels. */
#ifndef TUNE_EMULATOR_LOOPS_H
#define TUNE_EMULATOR_LOOPS_H

#include <stdbool.h>
#include <stdio.h>

/* Copies the assembly of one translation unit and adds the section "tune_blocks": a struct
 * image_block for each call of __sanitizer_cov_trace_pc. False without memory. */
bool loops_annotate(const char *assembly, FILE *out);

#endif
