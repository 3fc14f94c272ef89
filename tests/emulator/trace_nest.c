/* The loops and calls around a lane's place. */
#include "trace_internal.h"

static uint32_t product(uint32_t turns, uint32_t count)
{
    uint64_t all = (uint64_t)turns * count;
    return all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
}

static void leave_level(struct trace_lane *lane)
{
    const struct trace_nest *nest = &lane->nest[--lane->depth];
    lane->hash = nest->hash;
    lane->turns = nest->turns;
    if (nest->header < 0)
        lane->frame = nest->frame;
}

static struct trace_nest *innermost_loop(struct trace_lane *lane)
{
    struct trace_nest *nest = lane->depth ? &lane->nest[lane->depth - 1] : NULL;
    return nest && nest->header >= 0 ? nest : NULL;
}

static void leave_call(struct trace_lane *lane)
{
    while (innermost_loop(lane))
        leave_level(lane);
    if (lane->depth)
        leave_level(lane);
}

void trace_nest_reset(struct trace_lane *lane)
{
    lane->frame = UINTPTR_MAX;
    lane->lost_frame = 0;
    lane->hash = 0;
    lane->turns = 1;
    lane->depth = 0;
    lane->passed_bytes = 0;
}

void trace_nest_frame(struct trace_lane *lane, uintptr_t frame)
{
    if (lane->lost_frame && frame > lane->lost_frame)
        lane->lost_frame = 0;
    while (frame > lane->frame && lane->depth)
        leave_call(lane);
}

/* --- loops ------------------------------------------------------------------------------------ */

bool trace_is_in_loop(const struct image_block *blocks, int32_t block, int32_t header)
{
    while (block >= 0 && block != header)
        block = blocks[block].header;
    return block == header;
}

/* A loop in a turn that is too deep to be recorded is passed over until it is left, since its turns
 * only become more: most hooks of a long loop end there. That takes code that lies together. */
static void pass_over(struct trace_lane *lane)
{
    for (uint32_t i = 0; i < lane->depth; i++) {
        uint32_t turns = i + 1 < lane->depth ? lane->nest[i + 1].turns : lane->turns;
        if (turns <= trace.turn_limit)
            continue;
        if (lane->nest[i].header >= 0)
            trace_loop_code(lane->nest[i].header, &lane->passed_from, &lane->passed_bytes);
        return;
    }
}

void trace_nest_move(struct trace_lane *lane, const struct image_block *blocks, int32_t block)
{
    struct trace_nest *nest;
    lane->passed_bytes = 0;
    while ((nest = innermost_loop(lane)) && !trace_is_in_loop(blocks, block, nest->header))
        leave_level(lane);
    if (!blocks[block].is_header)
        return;
    if (!nest || nest->header != block) {
        if (lane->depth == TRACE_NEST)
            return;
        nest = &lane->nest[lane->depth++];
        *nest = (struct trace_nest){.header = block, .turns = lane->turns, .hash = lane->hash};
    }
    nest->count++;
    lane->hash = trace_mix(trace_mix(nest->hash, (uint64_t)block), nest->count);
    lane->turns = product(nest->turns, (nest->count + TRACE_TURNS_STEP - 1) / TRACE_TURNS_STEP);
    if (lane->turns > trace.turn_limit)
        pass_over(lane);
}

/* --- calls ------------------------------------------------------------------------------------ */

void trace_nest_call(struct trace_lane *lane, uintptr_t site, uintptr_t frame)
{
    while (frame >= lane->frame && lane->depth) /* a call before this one has ended */
        leave_call(lane);
    if (lane->depth == TRACE_NEST) {
        lane->lost_frame = frame;
        return;
    }
    lane->nest[lane->depth++] = (struct trace_nest){
        .header = -1, .frame = lane->frame, .turns = lane->turns, .hash = lane->hash};
    lane->hash = trace_mix(lane->hash, site);
    lane->frame = frame;
}
