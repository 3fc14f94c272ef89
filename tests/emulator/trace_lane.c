/* What happens at each hook: where in its loops the lane is, and whom it meets there. This runs
 * some hundred million times, hence the guesses: a lane mostly goes where the one before it
 * went. */
#include "run.h"
#include "trace_internal.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS ((size_t)1 << 16)
#define SITE_BUCKETS 4096
#define SITE_CACHE 1024
#define CHUNK_BYTES ((size_t)1 << 20)
#define RECORD_LIMIT_BYTES ((size_t)256 << 20)

struct chunk {
    struct chunk *next;
    size_t used;
    char bytes[];
};

struct code {
    bool is_known;
    uintptr_t from, bytes;
};

static struct {
    struct trace_lane *lanes; /* by number of the fibre */
    struct trace_group **groups;
    struct trace_moment **moments;
    struct trace_site *sites[SITE_BUCKETS], *cache[SITE_CACHE];
    struct chunk *chunks, *spare;
    struct trace_group *free_accesses, *free_blocks;
    size_t recorded_bytes;
    struct code *loops; /* by header, once they are asked for */
} table;

/* --- memory ----------------------------------------------------------------------------------- */

/* Room until trace_lanes_forget; NULL when the limit is reached. */
static void *record_room(size_t bytes)
{
    struct chunk *chunk = table.chunks;
    if (!chunk || chunk->used + bytes > CHUNK_BYTES) {
        if (table.recorded_bytes + CHUNK_BYTES > RECORD_LIMIT_BYTES)
            return NULL;
        chunk = table.spare ? table.spare : malloc(sizeof *chunk + CHUNK_BYTES);
        if (!chunk)
            return NULL;
        table.spare = chunk == table.spare ? chunk->next : table.spare;
        *chunk = (struct chunk){.next = table.chunks};
        table.chunks = chunk;
        table.recorded_bytes += CHUNK_BYTES;
    }
    chunk->used += bytes;
    return chunk->bytes + chunk->used - bytes;
}

void trace_lanes_forget(void)
{
    for (struct chunk *next; table.chunks; table.chunks = next) {
        next = table.chunks->next;
        table.chunks->next = table.spare;
        table.spare = table.chunks;
    }
    if (table.recorded_bytes) {
        memset(table.groups, 0, BUCKETS * sizeof(void *));
        memset(table.moments, 0, BUCKETS * sizeof(void *));
    }
    table.recorded_bytes = 0;
    table.free_accesses = table.free_blocks = NULL;
    trace.moments = NULL;
    for (uint32_t w = 0; w < TRACE_WARPS; w++) {
        trace.root[w] = (struct trace_group){.warp = w};
        trace.last[w] = &trace.root[w];
    }
    trace.interval++;
}

bool trace_lanes_open(void)
{
    table.lanes = table.lanes ? table.lanes : calloc(FIBRE_GRID_THREADS, sizeof *table.lanes);
    table.groups = calloc(BUCKETS, sizeof(void *));
    table.moments = calloc(BUCKETS, sizeof(void *));
    trace.turn_limit = TRACE_TURNS;
    trace.steps = 0;
    trace.is_cut = false;
    if (!table.lanes || !table.groups || !table.moments)
        return false;
    trace_lanes_forget();
    return true;
}

static void free_sites(void)
{
    for (size_t i = 0; i < SITE_BUCKETS; i++)
        for (struct trace_site *next; table.sites[i]; table.sites[i] = next) {
            next = table.sites[i]->chain;
            free(table.sites[i]);
        }
}

void trace_lanes_close(void)
{
    trace_lanes_forget();
    free_sites();
    for (struct chunk *next; table.spare; table.spare = next) {
        next = table.spare->next;
        free(table.spare);
    }
    free(table.groups);
    free(table.moments);
    free(table.lanes);
    free(table.loops);
    memset(&table, 0, sizeof table);
}

/* --- sites ------------------------------------------------------------------------------------ */

static bool is_site(const struct trace_site *site, uintptr_t pc, enum trace_what what,
    enum image_range_kind kind, uint32_t bytes)
{
    return site && site->pc == pc && site->what == what && site->kind == kind &&
           site->bytes == bytes;
}

static uintptr_t block_pc(const struct image_block *block)
{
    return (uintptr_t)&block->code + (uintptr_t)(intptr_t)block->code;
}

/* -1 for code that has no table of blocks. */
static int32_t find_block(uintptr_t pc)
{
    const struct image *image = trace.launch->loaded->image;
    for (const struct image_block *block = image->blocks; block < image->blocks_end; block++)
        if (block_pc(block) == pc)
            return (int32_t)(block - image->blocks);
    return -1;
}

static struct code find_loop(const struct image *image, int32_t header)
{
    const struct image_block *blocks = image->blocks;
    int32_t count = (int32_t)(image->blocks_end - blocks);
    uintptr_t from = UINTPTR_MAX, last = 0;
    for (int32_t i = 0; i < count; i++) {
        uintptr_t pc = block_pc(&blocks[i]);
        if (!trace_is_in_loop(blocks, i, header))
            continue;
        from = pc < from ? pc : from;
        last = pc > last ? pc : last;
    }
    for (int32_t i = 0; i < count; i++)
        if (block_pc(&blocks[i]) - from <= last - from && !trace_is_in_loop(blocks, i, header))
            return (struct code){.is_known = true};
    return (struct code){.is_known = true, .from = from, .bytes = last - from + 1};
}

void trace_loop_code(int32_t header, uintptr_t *from, uintptr_t *bytes)
{
    const struct image *image = trace.launch->loaded->image;
    if (!table.loops)
        table.loops = calloc((size_t)(image->blocks_end - image->blocks), sizeof *table.loops);
    if (!table.loops)
        return;
    struct code *code = &table.loops[header];
    if (!code->is_known)
        *code = find_loop(image, header);
    *from = code->from;
    *bytes = code->bytes;
}

/* NULL without memory. */
static struct trace_site *find_site(
    uintptr_t pc, enum trace_what what, enum image_range_kind kind, uint32_t bytes)
{
    struct trace_site **cached = &table.cache[(pc ^ pc >> 10) % SITE_CACHE];
    if (is_site(*cached, pc, what, kind, bytes))
        return *cached;
    uint64_t hash = trace_mix(pc, bytes << 8 | (uint32_t)what << 4 | (uint32_t)kind);
    struct trace_site **bucket = &table.sites[hash % SITE_BUCKETS], *site = *bucket;
    while (site && !is_site(site, pc, what, kind, bytes))
        site = site->chain;
    if (!site && (site = malloc(sizeof *site))) {
        *site = (struct trace_site){.chain = *bucket,
            .pc = pc,
            .what = what,
            .kind = kind,
            .bytes = bytes,
            .block = what == TRACE_BLOCK ? find_block(pc) : -1};
        *bucket = site;
    }
    return *cached = site;
}

void trace_each_site(void (*visit)(struct trace_site *site))
{
    for (size_t i = 0; i < SITE_BUCKETS; i++)
        for (struct trace_site *site = table.sites[i]; site; site = site->chain)
            visit(site);
}

/* --- groups ----------------------------------------------------------------------------------- */

static struct trace_group **group_bucket(
    const struct trace_site *site, uint64_t hash, uint32_t warp, uint32_t repeat)
{
    return &table
                .groups[trace_mix(hash ^ (uintptr_t)site, (uint64_t)warp << 32 | repeat) % BUCKETS];
}

/* Takes what lies in deeper turns than the limit out of the records, for other use. */
static void drop_deep_groups(uint32_t warp)
{
    struct trace_group *last = &trace.root[warp];
    for (struct trace_group *group = last->order, *next; group; group = next) {
        next = group->order;
        if (group->turns <= trace.turn_limit) {
            struct trace_group **bucket =
                group_bucket(group->site, group->hash, warp, group->repeat);
            group->chain = *bucket;
            *bucket = group;
            last = last->order = group;
            continue;
        }
        struct trace_group **list =
            group->site->what == TRACE_BLOCK ? &table.free_blocks : &table.free_accesses;
        group->chain = *list;
        *list = group;
    }
    last->order = NULL;
    trace.last[warp] = last;
}

/* There is no more room: fewer turns are recorded from here on, and of all lanes the same. */
static void halve_turns(void)
{
    trace.turn_limit /= 2;
    memset(table.groups, 0, BUCKETS * sizeof(void *));
    for (uint32_t w = 0; w < TRACE_WARPS; w++)
        drop_deep_groups(w);
}

static struct trace_group *group_room(bool is_block, uint32_t turns)
{
    size_t bytes = sizeof(struct trace_group);
    struct trace_group **list = is_block ? &table.free_blocks : &table.free_accesses;
    if (!is_block)
        bytes += ACCESS_LANES * sizeof(uint64_t);
    while (turns <= trace.turn_limit) {
        struct trace_group *group = *list ? *list : record_room(bytes);
        if (group) {
            *list = group == *list ? group->chain : *list;
            return group;
        }
        halve_turns();
    }
    return NULL;
}

static struct trace_moment *find_moment(
    const struct trace_lane *lane, struct trace_site *site, uint32_t repeat)
{
    struct trace_moment **bucket =
        &table.moments[trace_mix(lane->hash ^ (uintptr_t)site, repeat) % BUCKETS];
    for (struct trace_moment *moment = *bucket; moment; moment = moment->chain)
        if (moment->site == site && moment->hash == lane->hash && moment->repeat == repeat)
            return moment;
    struct trace_moment *moment = record_room(sizeof *moment);
    if (moment) {
        *moment = (struct trace_moment){.chain = *bucket,
            .order = trace.moments,
            .site = site,
            .hash = lane->hash,
            .repeat = repeat,
            .turns = lane->turns};
        trace.moments = *bucket = moment;
    }
    return moment;
}

static struct trace_group *new_group(
    const struct trace_lane *lane, struct trace_site *site, uint32_t warp, uint32_t repeat)
{
    bool is_block = site->what == TRACE_BLOCK;
    struct trace_group *group = group_room(is_block, lane->turns);
    if (!group)
        return NULL;
    struct trace_group **bucket = group_bucket(site, lane->hash, warp, repeat);
    *group = (struct trace_group){.chain = *bucket,
        .site = site,
        .moment = is_block ? find_moment(lane, site, repeat) : NULL,
        .hash = lane->hash,
        .warp = warp,
        .repeat = repeat,
        .turns = lane->turns};
    *bucket = group;
    trace.last[warp] = trace.last[warp]->order = group;
    return group;
}

static bool is_group(const struct trace_group *group, const struct trace_lane *lane,
    const struct trace_site *site, uint32_t warp, uint32_t repeat)
{
    return group->site == site && group->hash == lane->hash && group->warp == warp &&
           group->repeat == repeat;
}

/* The group that the lane joins at this site, or NULL if it is not to be recorded. A lane that was
 * here before in the same turn is here again for a reason that no loop shows: counted apart. */
static struct trace_group *join_group(struct trace_lane *lane, struct trace_site *site)
{
    uint32_t warp = run.thread / ACCESS_LANES, bit = (uint32_t)1 << run.thread % ACCESS_LANES;
    struct trace_group *group = lane->at->next;
    if (!group || !is_group(group, lane, site, warp, 0) || group->mask & bit) {
        uint32_t repeat = 0;
        do {
            group = *group_bucket(site, lane->hash, warp, repeat);
            while (group && !is_group(group, lane, site, warp, repeat))
                group = group->chain;
        } while (group && group->mask & bit && ++repeat < TRACE_REPEATS);
        if (repeat == TRACE_REPEATS)
            return NULL;
        if (!group && !(group = new_group(lane, site, warp, repeat)))
            return NULL;
        lane->at->next = group;
    }
    group->mask |= bit;
    lane->at = group;
    return group;
}

/* --- hooks ------------------------------------------------------------------------------------ */

static inline struct trace_lane *running_lane(void)
{
    if (++trace.steps % TRACE_CLOCK_STEPS == 0)
        trace_look_at_limits();
    if (trace.is_cut)
        end_launch();
    return &table.lanes[run.block->first_fibre + run.thread];
}

/* The lane that runs, returned from the functions that it has left. */
static struct trace_lane *current_lane(struct trace_lane *lane, uintptr_t frame)
{
    if (lane->interval != trace.interval) {
        lane->interval = trace.interval;
        lane->at = &trace.root[run.thread / ACCESS_LANES];
        lane->moment = &trace.start;
    }
    if (frame > lane->frame || lane->lost_frame)
        trace_nest_frame(lane, frame);
    return lane;
}

static bool is_recorded(const struct trace_lane *lane)
{
    return lane->turns <= trace.turn_limit && !lane->lost_frame;
}

void trace_access(uintptr_t address, uintptr_t bytes, enum image_access access,
    enum image_range_kind kind, void *pc, void *frame)
{
    static const enum trace_what whats[] = {TRACE_LOAD, TRACE_STORE, TRACE_ATOMIC};
    struct trace_lane *lane = current_lane(running_lane(), (uintptr_t)frame);
    struct trace_site *site = find_site((uintptr_t)pc, whats[access], kind, (uint32_t)bytes);
    if (!site)
        return;
    site->lane_accesses++;
    trace.accesses++;
    struct trace_group *group = is_recorded(lane) ? join_group(lane, site) : NULL;
    if (group)
        group->address[run.thread % ACCESS_LANES] = address;
}

/* From `lane->moment` to `moment`. */
static void note_way(struct trace_lane *lane, struct trace_moment *moment)
{
    moment->lanes++;
    for (uint32_t i = 0; lane->moment && i < TRACE_PREDECESSORS; i++) {
        if (!moment->from[i])
            moment->from[i] = lane->moment;
        if (moment->from[i] == lane->moment)
            break;
    }
}

void trace_block(void *pc, void *frame)
{
    struct trace_lane *lane = running_lane();
    if ((uintptr_t)pc - lane->passed_from < lane->passed_bytes)
        return;
    current_lane(lane, (uintptr_t)frame);
    struct trace_site *site = find_site((uintptr_t)pc, TRACE_BLOCK, IMAGE_STATIC, 0);
    if (lane->lost_frame || !site || site->block < 0)
        return;
    trace_nest_move(lane, trace.launch->loaded->image->blocks, site->block);
    struct trace_group *group = is_recorded(lane) ? join_group(lane, site) : NULL;
    struct trace_moment *moment = group ? group->moment : NULL;
    if (moment)
        note_way(lane, moment);
    lane->moment = moment;
}

void trace_call(void *site, void *frame)
{
    struct trace_lane *lane = current_lane(running_lane(), (uintptr_t)frame);
    if (!lane->lost_frame)
        trace_nest_call(lane, (uintptr_t)site, (uintptr_t)frame);
}

void trace_start_threads(uint32_t first_fibre, uint32_t count)
{
    trace.blocks_run++;
    for (uint32_t i = 0; trace.is_on && i < count; i++) {
        table.lanes[first_fibre + i].interval = 0;
        trace_nest_reset(&table.lanes[first_fibre + i]);
    }
}
