/* What one memory instruction of a warp costs: sectors of global memory, passes over the banks of
 * shared memory. Pure arithmetic on the addresses of its lanes; no allocation.
 *
 * Global memory moves in sectors of 32 bytes. 32 lanes that read neighbouring floats touch 4 when
 * the first is aligned to a sector and 5 when it is not; lanes that are 32 bytes or more apart
 * touch one each; lanes that read one address touch one together (CUDA C++ Best Practices Guide,
 * "Coalesced Access to Global Memory").
 *
 * Shared memory has 32 banks of 4 bytes. An access is n-way conflicted when n different words of
 * one bank are asked for: it takes n passes. Lanes that ask for the same word share it, whatever
 * their number: that is a broadcast, degree 1. Accesses of 8 and 16 bytes are served for half a
 * warp and a quarter of a warp at a time, so degrees are counted within those (CUDA C++ Programming
 * Guide, "Shared Memory" of compute capability 5.x and later).
 *
 * Loads whose lanes ask in pairs for the same address (each lane i for that of lane i ^ 1, or each
 * for that of i ^ 2) are served in parts twice as large: the whole warp for 8 bytes, half of it for
 * 16. No manual says so; 58 patterns counted on an H200 agree with it, and with the rest of this
 * model, without exception (tests/explain_tests/h200_wavefronts.h). */
#ifndef TUNE_EXPLAIN_ACCESS_H
#define TUNE_EXPLAIN_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#define ACCESS_LANES 32
#define ACCESS_SECTOR_BYTES 32
#define ACCESS_BANKS 32
#define ACCESS_BANK_BYTES 4

/* One instruction of one warp. */
struct access {
    uint32_t active; /* bit per lane that takes part */
    bool is_store;   /* stores are never served in larger parts */
    uint32_t bytes;  /* per lane: 1, 2, 4, 8 or 16; more are taken as several of 16 */
    uint64_t address[ACCESS_LANES]; /* of the active lanes */
};

/* Different sectors that the lanes touch together; 0 when no lane is active. */
uint32_t access_sectors(const struct access *access);

struct access_banks {
    uint32_t degree;     /* of the worst part: 1 is free of conflicts */
    uint32_t wavefronts; /* passes over the banks: the sum of the degrees of all parts */
    uint32_t parts;      /* parts with an active lane: the passes of an access without conflicts */
};

/* All 0 when no lane is active. */
struct access_banks access_banks(const struct access *access);

#endif
