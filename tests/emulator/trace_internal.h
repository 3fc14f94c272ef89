/* Inside of trace*.c: what is known of the launch that is traced. See trace.h for the design.
 *
 * trace_lane.c records, at every hook; trace_nest.c knows the lane's loops; trace_complete.c
 * measures what was recorded, at barriers; trace_place.c knows lines; trace_rows.c adds up by line
 * and writes; trace.c is the way in. */
#ifndef TUNE_EMULATOR_TRACE_INTERNAL_H
#define TUNE_EMULATOR_TRACE_INTERNAL_H

#include "explain/access.h"
#include "trace_run.h"

#include <stdio.h>

#define TRACE_NEST 32      /* loops and calls around a place that are told apart */
#define TRACE_TURNS 64     /* product of turns over a nest up to which is recorded, */
#define TRACE_TURNS_STEP 4 /* counted in fours: what is joined lies together */
#define TRACE_REPEATS 256  /* of one place that no loop explains */
#define TRACE_STEPS                                                                                \
    ((uint64_t)1000000000)      /* hooks of a launch: the longest takes half a minute              \
                                 */
#define TRACE_CLOCK_STEPS 65536 /* hooks from one look at the clock to the next */
#define TRACE_PREDECESSORS 4    /* ways to a basic block that are remembered */
#define TRACE_WIDTHS 5          /* an access alone, and 2, 4, 8 or 16 joined */
#define TRACE_CHAINS 8          /* unfinished joined accesses of one line */
#define TRACE_WARPS (FIBRE_BLOCK_THREADS / ACCESS_LANES)
#define TRACE_WIDEST_BYTES 16 /* of one instruction */

enum trace_what { TRACE_LOAD, TRACE_STORE, TRACE_ATOMIC, TRACE_BLOCK };

/* --- places ----------------------------------------------------------------------------------- */

struct trace_place {
    const char *file; /* base name; lives as long as the launch */
    uint32_t line;    /* 0: not known */
};

void trace_places_open(const struct loaded *loaded);
/* The line of a return address: the innermost one outside of the toolkit's stand-in headers. */
struct trace_place trace_place(uintptr_t pc);
void trace_places_close(void);

/* --- rows ------------------------------------------------------------------------------------- */

struct trace_sums {
    uint64_t requests, lanes, sectors, wavefronts, parts, degrees;
    uint32_t degree_max;
};

/* A joined access that may become wider with the next one. */
struct trace_chain {
    struct access access; /* bytes: so far */
    uint32_t target_bytes;
    uint64_t used; /* when last: the oldest gives way */
};

/* The accesses of one kind on one line. */
struct trace_row {
    struct trace_row *next;
    struct trace_place place;
    enum image_range_kind kind;
    enum trace_what what;
    uint32_t bytes, width_bytes;          /* of one; up to which they are joined */
    uint64_t lane_accesses;               /* all */
    struct trace_sums sums[TRACE_WIDTHS]; /* recorded ones, by how many are joined: 2^i */
    struct trace_chain *chains;           /* NULL, or TRACE_CHAINS of them */
    uint32_t chain_count;
};

/* An instruction of the host's: an access or the beginning of a basic block. */
struct trace_site {
    struct trace_site *chain; /* in its bucket */
    uintptr_t pc;
    enum trace_what what;
    enum image_range_kind kind;
    uint32_t bytes;
    int32_t block; /* number of a basic block */
    bool has_place;
    struct trace_place place;
    struct trace_row *row;  /* of an access, once it has a place */
    uint64_t lane_accesses; /* all */
    uint64_t warps, lanes;  /* of a block, recorded ones */
    bool is_branch;         /* some that came up to it did not enter it */
};

struct trace_width {
    char file[128];
    uint32_t line, bytes;
    enum image_range_kind kind;
    enum trace_what what;
};

/* The row of an access's site, which is looked up at the first call. NULL without memory. */
struct trace_row *trace_row_of(struct trace_site *site);
/* Lane accesses of all sites go to their rows; then the launch's JSON object. */
void trace_rows_write(FILE *out);
void trace_rows_free(void);

/* --- what is recorded ------------------------------------------------------------------------- */

/* One basic block in one turn of its loops, all warps of the thread block together. */
struct trace_moment {
    struct trace_moment *chain, *order;
    struct trace_site *site;
    uint64_t hash;
    uint32_t repeat, turns;
    uint32_t lanes;
    struct trace_moment *from[TRACE_PREDECESSORS];
};

/* One warp at one instruction in one turn of its loops. */
struct trace_group {
    struct trace_group *chain; /* in its bucket */
    struct trace_group *order; /* the next one of its warp */
    struct trace_group *next;  /* where the last lane went from here: a guess for the next lane */
    struct trace_site *site;
    struct trace_moment *moment; /* of a block */
    uint64_t hash;               /* of the loop nest and its turns */
    uint32_t warp, mask, repeat, turns;
    uint64_t address[]; /* of an access: one per lane */
};

/* One level around a lane's place: a loop with its turn, or a call. */
struct trace_nest {
    int32_t header;  /* number of the block that begins the loop; -1: a call */
    uintptr_t frame; /* of the caller */
    uint32_t count;  /* turns of the loop */
    uint32_t turns;  /* outside of this level, as is hash */
    uint64_t hash;
};

struct trace_lane {
    uint64_t interval; /* between two barriers: group and moment are of this one */
    struct trace_group *at;
    struct trace_moment *moment; /* NULL: not recorded */
    uintptr_t frame;
    uintptr_t lost_frame; /* 0, or of a call for which there was no room */
    uint64_t hash;
    uint32_t turns, depth;
    uintptr_t passed_from, passed_bytes; /* code of which nothing is recorded until it is left */
    struct trace_nest nest[TRACE_NEST];
};

struct trace {
    bool is_begun, is_on; /* by tuneTraceBegin; in this launch */
    uint64_t blocks_wanted, accesses_wanted;
    struct trace_width *widths;
    size_t width_count;
    const struct fibre_launch *launch;
    uint64_t blocks_planned, blocks_run; /* of the launch */
    uint64_t steps;                      /* hooks */
    double end_ms, late_ms; /* of the clock: when all launches, and this one, must end; 0: never */
    uint64_t launches_left; /* that are still to come, this one among them */
    bool is_cut;            /* the launch was left before its end */
    uint64_t accesses;      /* to global and shared memory, of single lanes */
    uint64_t interval;
    uint32_t turn_limit;
    struct trace_moment start;                                /* all that began the interval */
    struct trace_group root[TRACE_WARPS], *last[TRACE_WARPS]; /* lists of each warp's groups */
    struct trace_moment *moments;
    struct trace_row *rows;
};

extern struct trace trace;

/* Whether the launch has done as much as it may, or its time is over, shows in `trace.is_cut`. */
void trace_look_at_limits(void);

static inline uint64_t trace_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* --- trace_nest.c ----------------------------------------------------------------------------- */

void trace_nest_reset(struct trace_lane *lane);
/* Returns from the functions that have ended, when something happens in this frame. */
void trace_nest_frame(struct trace_lane *lane, uintptr_t frame);
bool trace_is_in_loop(const struct image_block *blocks, int32_t block, int32_t header);
void trace_nest_move(struct trace_lane *lane, const struct image_block *blocks, int32_t block);
void trace_nest_call(struct trace_lane *lane, uintptr_t site, uintptr_t frame);

/* --- trace_lane.c ----------------------------------------------------------------------------- */

bool trace_lanes_open(void);
void trace_lanes_close(void);
void trace_lanes_forget(void); /* groups and moments */
/* Where the hooks of a loop's blocks are; 0 bytes when others lie between them. */
void trace_loop_code(int32_t header, uintptr_t *from, uintptr_t *bytes);
/* Calls with each site that was met. */
void trace_each_site(void (*visit)(struct trace_site *site));

void trace_access(uintptr_t address, uintptr_t bytes, enum image_access access,
    enum image_range_kind kind, void *pc, void *frame);
void trace_block(void *pc, void *frame);
void trace_call(void *site, void *frame);

#endif
