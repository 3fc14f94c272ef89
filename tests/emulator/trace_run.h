/* Inside of the stand-ins: tracing as the rest of them sees it (trace.h). */
#ifndef TUNE_EMULATOR_TRACE_RUN_H
#define TUNE_EMULATOR_TRACE_RUN_H

#include "fibre.h"

/* What the device then says of itself: no kernel is too large for it. */
#define TRACE_MEMORY_BYTES ((uint64_t)1 << 40)
#define TRACE_SHARED_PER_SM_BYTES (228 * 1024)

/* Whether TUNE_EMULATOR_TRACE=1 was in the environment when the library was loaded. */
bool trace_mode(void);

/* Around a launch. Sets the services for its hooks where tuneTraceBegin was called; the other
 * functions below do nothing else. */
void trace_begin_launch(const struct fibre_launch *launch);
void trace_end_launch(void);

/* How many of the launch's blocks run: all, if it is not traced. May become less after the first.
 */
uint64_t trace_block_count(uint64_t blocks);
/* The number of the i-th of them, ascending. */
uint64_t trace_block_number(uint64_t i, uint64_t blocks);
/* Whether the launch may go on. */
bool trace_goes_on(uint64_t blocks_done);

/* A block's threads begin; fibres are numbered over all blocks that are alive. */
void trace_start_threads(uint32_t first_fibre, uint32_t count);
/* The running block's threads have met or have ended: what they did so far is complete. `live` of
 * them go on. */
void trace_complete(uint32_t live);

#endif
