/* Measures what was recorded between two barriers: requests, joined where the GPU's compiler joins
 * them, and where lanes parted. */
#include "run.h"
#include "trace_internal.h"

#include <string.h>

/* --- requests --------------------------------------------------------------------------------- */

/* Bits of an offset in a block's shared memory; above them stands which block of the cluster it is.
 */
#define OFFSET_BITS 32

/* The lanes that ask the block of the first one's. */
static uint32_t lanes_of_block(const struct access *access, uint32_t lanes)
{
    uint32_t same = 0;
    uint64_t block = access->address[__builtin_ctz(lanes)] >> OFFSET_BITS;
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (access->address[lane] >> OFFSET_BITS == block)
            same |= UINT32_C(1) << lane;
    }
    return same;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Each block of a cluster has its own banks: the most that one of them is asked for. */
static struct access_banks cluster_banks(const struct access *access)
{
    struct access_banks most = {0};
    struct access part = *access;
    for (uint32_t left = access->active; left; left &= ~part.active) {
        part.active = lanes_of_block(access, left);
        struct access_banks banks = access_banks(&part);
        most.degree = larger(most.degree, banks.degree);
        most.wavefronts = larger(most.wavefronts, banks.wavefronts);
        most.parts = larger(most.parts, banks.parts);
    }
    return most;
}

/* Adds one instruction of a warp; its row's accesses are joined 2^`joined` at a time. */
static void add_request(struct trace_row *row, const struct access *access, uint32_t joined)
{
    struct trace_sums *sums = &row->sums[joined];
    sums->requests++;
    sums->lanes += (uint32_t)__builtin_popcount(access->active);
    if (row->kind == IMAGE_GLOBAL) {
        sums->sectors += access_sectors(access);
        return;
    }
    struct access_banks banks = cluster_banks(access);
    sums->wavefronts += banks.wavefronts;
    sums->parts += banks.parts;
    sums->degrees += banks.degree;
    if (banks.degree > sums->degree_max)
        sums->degree_max = banks.degree;
}

/* Where the address lies in the block's shared memory: its variables one after another, as a
 * compiler for GPUs lays them, and then the dynamic part; in another block's, with its number. */
static uint64_t shared_offset(uintptr_t address)
{
    const struct loaded *loaded = trace.launch->loaded;
    uint64_t offset = 0;
    uintptr_t bytes;
    const struct block *other = fibre_saved_block(address, &bytes);
    if (other)
        return ((uint64_t)(other - run.alive + 1) << OFFSET_BITS) +
               (address - (uintptr_t)other->saved);
    for (size_t i = 0; i < loaded->object_count; i++) {
        const struct loaded_object *object = &loaded->objects[i];
        if (!object->is_shared)
            continue;
        if (address - object->address < object->bytes)
            return offset + (address - object->address);
        offset +=
            (object->bytes + TRACE_WIDEST_BYTES - 1) / TRACE_WIDEST_BYTES * TRACE_WIDEST_BYTES;
    }
    return offset + (address - (uintptr_t)loaded->image->dynamic_shared);
}

static struct access access_of(const struct trace_row *row, const struct trace_group *group)
{
    struct access access = {
        .active = group->mask, .is_store = row->what != TRACE_LOAD, .bytes = row->bytes};
    for (uint32_t left = group->mask; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        access.address[lane] = row->kind == IMAGE_SHARED
                                   ? shared_offset((uintptr_t)group->address[lane])
                                   : group->address[lane];
    }
    return access;
}

/* --- joined ones ------------------------------------------------------------------------------ */

static bool is_aligned(const struct access *access, uint32_t bytes)
{
    for (uint32_t left = access->active; left; left &= left - 1)
        if (access->address[__builtin_ctz(left)] % bytes != 0)
            return false;
    return true;
}

/* What has been joined, in the widest pieces that an instruction can have. */
static void end_chain(struct trace_row *row, struct trace_chain *chain)
{
    struct access piece = chain->access;
    for (uint32_t left = chain->access.bytes; left; left -= piece.bytes) {
        uint32_t joined = 0;
        for (piece.bytes = row->bytes; piece.bytes * 2 <= left; piece.bytes *= 2)
            joined++;
        add_request(row, &piece, joined);
        for (uint32_t lane = 0; lane < ACCESS_LANES; lane++)
            piece.address[lane] += piece.bytes;
    }
    *chain = row->chains[--row->chain_count];
}

static bool follows(const struct access *access, const struct trace_chain *chain)
{
    if (access->active != chain->access.active)
        return false;
    for (uint32_t left = access->active; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (access->address[lane] != chain->access.address[lane] + chain->access.bytes)
            return false;
    }
    return true;
}

static struct trace_chain *oldest_chain(struct trace_row *row)
{
    struct trace_chain *oldest = row->chains;
    for (uint32_t i = 1; i < row->chain_count; i++)
        if (row->chains[i].used < oldest->used)
            oldest = &row->chains[i];
    return oldest;
}

static void begin_chain(struct trace_row *row, const struct access *access, uint64_t now)
{
    uint32_t target = row->width_bytes;
    while (target > row->bytes && !is_aligned(access, target))
        target /= 2;
    if (target <= row->bytes) {
        add_request(row, access, 0);
        return;
    }
    if (row->chain_count == TRACE_CHAINS)
        end_chain(row, oldest_chain(row));
    row->chains[row->chain_count++] =
        (struct trace_chain){.access = *access, .target_bytes = target, .used = now};
}

static void join(struct trace_row *row, const struct access *access)
{
    static uint64_t now;
    now++;
    for (uint32_t i = 0; i < row->chain_count; i++) {
        struct trace_chain *chain = &row->chains[i];
        if (!follows(access, chain))
            continue;
        chain->access.bytes += row->bytes;
        chain->used = now;
        if (chain->access.bytes == chain->target_bytes)
            end_chain(row, chain);
        return;
    }
    begin_chain(row, access, now);
}

/* --- intervals -------------------------------------------------------------------------------- */

static void complete_group(const struct trace_group *group)
{
    struct trace_site *site = group->site;
    if (site->what == TRACE_BLOCK) {
        site->warps++;
        site->lanes += (uint32_t)__builtin_popcount(group->mask);
        return;
    }
    struct trace_row *row = trace_row_of(site);
    if (!row)
        return;
    struct access access = access_of(row, group);
    if (row->chains)
        join(row, &access);
    else
        add_request(row, &access, 0);
}

static void complete_warp(uint32_t warp)
{
    for (const struct trace_group *group = trace.root[warp].order; group; group = group->order)
        complete_group(group);
    for (struct trace_row *row = trace.rows; row; row = row->next)
        while (row->chain_count)
            end_chain(row, row->chains);
}

/* Lanes part where fewer enter a block than came to one before it. */
static void complete_moments(void)
{
    for (struct trace_moment *moment = trace.moments; moment; moment = moment->order) {
        if (moment->turns > trace.turn_limit)
            continue;
        for (uint32_t i = 0; i < TRACE_PREDECESSORS && moment->from[i]; i++)
            if (moment->from[i]->lanes > moment->lanes)
                moment->site->is_branch = true;
    }
}

/* Where the launch was cut, only warps whose lanes have all come to their end. */
static bool is_complete(uint32_t warp)
{
    uint64_t lanes = run.block->live[warp / 2] >> warp % 2 * ACCESS_LANES;
    return !trace.is_cut || (uint32_t)lanes == 0;
}

void trace_complete(uint32_t live)
{
    if (!trace.is_on)
        return;
    if (!run.result->error) {
        for (uint32_t w = 0; w < TRACE_WARPS; w++)
            if (trace.root[w].order && is_complete(w))
                complete_warp(w);
        if (!trace.is_cut)
            complete_moments();
    }
    trace_lanes_forget();
    trace.start.lanes = live;
}
