/* Watching kernels run: every access of every lane, grouped as a warp would issue it, and which
 * lanes run each stretch of code. What `tunectl explain` asks of the emulator.
 *
 * It is there when the environment has TUNE_EMULATOR_TRACE=1, which both stand-ins read when they
 * are loaded: images are then compiled with a hook at each basic block beside those at accesses, a
 * block may have 227 KiB of shared memory, resource limits do not apply, fresh memory is zero and
 * takes no room until it is touched (allocations may together be as large as any GPU's).
 *
 * Design. Lanes run one after another, each up to its next barrier. A lane's place in the program
 * is its loop nest: the compile step finds out which basic blocks form loops (loops.h), and a hook
 * at a loop's first block makes its count go up; one at a block outside of it leaves it. Accesses
 * of a warp's lanes with equal (code address, barriers met, loop counts) are one request. At a
 * barrier all requests so far are complete, are measured (explain/access.h) and forgotten. Loops
 * are recorded for their first turns only, the same for all lanes, and of a large grid some blocks
 * are run, spread over it evenly: ratios are meant, not counts.
 *
 * A compiler for GPUs joins accesses to neighbouring addresses into wide ones, the host's does not.
 * Which lines have wide ones is known from the cubin and told in "widths": neighbouring accesses of
 * such a line, one after the other by the same lane, are joined up to that width where all lanes'
 * addresses are aligned for it. */
#ifndef TUNE_EMULATOR_TRACE_H
#define TUNE_EMULATOR_TRACE_H

/* From here on launches of this process are watched. `options` is JSON, all of it may be absent:
 * {"blocks":64,"accesses":20000000,"launches":1,"ms":0,
 *  "widths":[{"file":"gemm.cu","line":42,"space":"global"|"shared","kind":"load"|"store","bytes":16}]}
 * blocks: of a launch at most so many run; accesses: as many blocks run as make about so many
 * accesses of all lanes, or meet four times as many hooks (one block at least runs to its end,
 * unless that takes a billion hooks: it is then left where it is). ms: time for all of so many
 * launches, from here on, shared out among them; one whose share is over is left where it is
 * (0: as long as it takes). A CUresult: 1 for options that
 * cannot be read, 801 (not supported) without TUNE_EMULATOR_TRACE. */
unsigned tuneTraceBegin(const char *options);

/* Ends it and gives what was seen, JSON, to be freed with tuneTraceFree; NULL when none was begun:
 * [{"entry","grid":[x,y,z],"block":[x,y,z],"blocks":N,"blocks_traced":N,"is_cut":bool,
 *   "accesses":[{"file","line","space":"global"|"shared","kind":"load"|"store","atomic":bool,
 *     "bytes":per lane, "requests":N, "lanes":active lanes of all requests,
 *     "sectors":sum (global; 0 else), "wavefronts":sum, "parts":sum, "degrees":sum,
 *     "degree_max":N (shared; 0 else), "lane_accesses":N}],
 *   "branches":[{"file","line","warps":N,"lanes":N}],
 *   "global_load_bytes":N,"global_store_bytes":N,"shared_bytes":N}]
 * in the order of the launches; is_cut: one was left before the end of its last block; rows by
 * file, line, space, kind, bytes. Requests, lanes and the sums are of what was recorded;
 * lane_accesses and the bytes count all accesses of the traced blocks. branches: code that some
 * warp's lanes ran without all of its lanes, or that not all warps ran: warps that ran it (each
 * time counts) and their active lanes. Accesses in the toolkit's stand-in headers stand under the
 * line that called them where that is known. */
char *tuneTraceEnd(void);
void tuneTraceFree(char *text);

#endif
