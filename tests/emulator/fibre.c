#include "fibre.h"
#include "run.h"
#include "switch.h"
#include "trace_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES ((size_t)128 * 1024)
#define PAGE_BYTES ((size_t)4096)

struct run run;

static char *stacks; /* FIBRE_GRID_THREADS of them, made usable one by one */
static size_t stacks_ready;
static struct fibre fibres[FIBRE_GRID_THREADS];

/* --- going from fibre to fibre ---------------------------------------------------------------- */

static bool test_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static void set_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= (uint64_t)1 << i % 64;
}

static void clear_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] &= ~((uint64_t)1 << i % 64);
}

/* The first ready thread after `from`, going round; or the thread count. */
static uint32_t next_ready(const struct block *block, uint32_t from)
{
    uint32_t word = from / 64;
    uint64_t bits = from % 64 == 63 ? 0 : block->ready[word] & ~(uint64_t)0 << (from % 64 + 1);
    for (uint32_t i = 0; i <= run.words; i++) {
        if (bits)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
        word = word + 1 == run.words ? 0 : word + 1;
        bits = block->ready[word];
    }
    return run.thread_count;
}

static void go_to(uint32_t next)
{
    struct fibre *from = &run.block->fibres[run.thread], *to = &run.block->fibres[next];
    run.thread = next;
    run.result->switches++;
    *run.launch->loaded->image->thread = to->index;
    if (from != to)
        switch_stack(&from->stack, to->stack);
}

static bool waits_for_other_blocks(const struct block *block)
{
    return block->cluster_waiting == block->live_count || block->grid_waiting == block->live_count;
}

static void report_deadlock(void)
{
    const struct block *block = run.block;
    uint32_t waiter = 0, count = 0;
    for (uint32_t i = run.thread_count; i-- > 0;) {
        if (test_bit(block->live, i)) {
            waiter = i;
            count += block->fibres[i].wait == WAIT_BARRIER;
        }
    }
    const struct fibre *fibre = &block->fibres[waiter];
    *run.launch->loaded->image->thread = fibre->index;
    if (fibre->wait == WAIT_WARP)
        fail_at(ERROR_LAUNCH_FAILED, fibre->pc,
            "deadlock: a warp operation with mask 0x%x waits for lanes that do not come",
            block->warps[waiter / 32].mask[waiter % 32]);
    fail_at(ERROR_LAUNCH_FAILED, fibre->pc,
        "deadlock: %u threads wait at a barrier that %u others do not reach", count,
        block->live_count - count);
}

/* Gives the turn to another thread of the block, or to the launch when none can go on. */
static void give_turn(void)
{
    struct block *block = run.block;
    uint32_t next = next_ready(block, run.thread);
    if (next < run.thread_count)
        go_to(next);
    else if (waits_for_other_blocks(block))
        switch_stack(&block->fibres[run.thread].stack, run.main_stack);
    else
        report_deadlock();
}

static void wait_as(enum wait wait, void *pc)
{
    struct fibre *fibre = &run.block->fibres[run.thread];
    fibre->wait = wait;
    fibre->pc = pc;
    clear_bit(run.block->ready, run.thread);
    give_turn();
    fibre->wait = WAIT_NOT;
}

static void yield(void)
{
    uint32_t next = next_ready(run.block, run.thread);
    if (next < run.thread_count)
        go_to(next);
}

/* --- barriers --------------------------------------------------------------------------------- */

static void release_barrier(struct block *block)
{
    trace_complete(block->live_count);
    block->met = block->waiting;
    block->met_predicates = block->predicates;
    block->waiting = block->predicates = 0;
    memcpy(block->ready, block->live, run.words * sizeof *block->ready);
}

static uint32_t barrier(uint32_t predicate, uint32_t *count, void *pc)
{
    struct block *block = run.block;
    block->predicates += predicate;
    if (++block->waiting == block->live_count)
        release_barrier(block);
    else
        wait_as(WAIT_BARRIER, pc);
    if (count)
        *count = block->met_predicates;
    return block->met;
}

uint32_t fibre_cluster_blocks(const struct fibre_launch *launch)
{
    return launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
}

static uint32_t cluster_blocks(void)
{
    return fibre_cluster_blocks(run.launch);
}

/* Without clusters each block is one. */
static void cluster_barrier(void *pc)
{
    if (cluster_blocks() == 1) {
        barrier(0, NULL, pc);
        return;
    }
    run.block->cluster_waiting++;
    wait_as(WAIT_CLUSTER, pc);
}

static void grid_barrier(void *pc)
{
    if (!run.launch->is_cooperative)
        fail_at(ERROR_LAUNCH_FAILED, pc, "a grid barrier in a launch that is not cooperative");
    run.block->grid_waiting++;
    wait_as(WAIT_GRID, pc);
}

static uint64_t warp_result(const struct warp *warp, uint32_t lane, uint32_t members)
{
    uint64_t result = 0;
    uint32_t source = warp->argument[lane];
    switch (warp->op[lane]) {
    case WARP_EXCHANGE: /* from a lane that takes no part: undefined on a GPU, here its own value */
        return warp->value[source < 32 && members >> source & 1 ? source : lane];
    case WARP_BALLOT:
        for (uint32_t i = 0; i < 32; i++)
            result |= (uint64_t)((members >> i & 1) && warp->value[i]) << i;
        return result;
    case WARP_MATCH:
        for (uint32_t i = 0; i < 32; i++)
            result |= (uint64_t)((members >> i & 1) && warp->value[i] == warp->value[lane]) << i;
        return result;
    default:
        return members;
    }
}

/* The last lane to come works out everybody's result, so that nobody needs the others' values
 * later. */
static void complete_warp(struct block *block, struct warp *warp, uint32_t first, uint32_t members)
{
    for (uint32_t left = members; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        warp->result[lane] = warp_result(warp, lane, members);
        set_bit(block->ready, first + lane);
    }
    warp->arrived &= ~members;
}

static bool warp_is_complete(const struct warp *warp, uint32_t lane, uint32_t members, void *pc)
{
    if ((warp->arrived & members) != members)
        return false;
    for (uint32_t left = members; left; left &= left - 1) {
        uint32_t other = (uint32_t)__builtin_ctz(left);
        if (warp->mask[other] != warp->mask[lane] || warp->op[other] != warp->op[lane])
            fail_at(ERROR_LAUNCH_FAILED, pc,
                "lanes %u and %u of a warp meet with different masks (0x%x, 0x%x) or operations",
                lane, other, warp->mask[lane], warp->mask[other]);
    }
    return true;
}

static uint64_t warp(uint32_t op, uint32_t mask, uint64_t value, uint32_t argument, void *pc)
{
    struct block *block = run.block;
    struct warp *w = &block->warps[run.thread / 32];
    uint32_t lane = run.thread % 32, members = mask & w->exists;
    if (!(mask >> lane & 1))
        fail_at(ERROR_LAUNCH_FAILED, pc, "the mask 0x%x of a warp operation lacks its own lane %u",
            mask, lane);
    w->op[lane] = op;
    w->mask[lane] = mask;
    w->value[lane] = value;
    w->argument[lane] = argument;
    w->arrived |= (uint32_t)1 << lane;
    if (warp_is_complete(w, lane, members, pc))
        complete_warp(block, w, run.thread - lane, members);
    else
        wait_as(WAIT_WARP, pc);
    return w->result[lane];
}

/* --- blocks ----------------------------------------------------------------------------------- */

static void fibre_main(void)
{
    run.launch->kernel->image->call(run.launch->params);
    struct block *block = run.block;
    clear_bit(block->live, run.thread);
    clear_bit(block->ready, run.thread);
    block->live_count--;
    if (block->live_count && block->waiting == block->live_count)
        release_barrier(block); /* threads that have left are not waited for */
    give_turn();
}

static bool make_stacks(size_t count)
{
    if (!stacks) {
        stacks = mmap(NULL, FIBRE_GRID_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (stacks == MAP_FAILED) {
            stacks = NULL;
            return false;
        }
    }
    for (; stacks_ready < count; stacks_ready++)
        if (mprotect(stacks + stacks_ready * STACK_BYTES, PAGE_BYTES, PROT_NONE) != 0)
            return false;
    return true;
}

/* Tops are staggered, or the hot ends of all stacks would fall into the same few sets of the cache.
 */
static void *stack_top(size_t number)
{
    return stacks + (number + 1) * STACK_BYTES - number * 320 % 4096;
}

/* Blocks are numbered cluster by cluster, x first in the grid of clusters and within each. */
static struct image_index block_index(const struct fibre_launch *launch, uint64_t number)
{
    const uint32_t *cluster = launch->cluster;
    uint32_t rank = (uint32_t)(number % fibre_cluster_blocks(launch));
    uint64_t clusters_x = launch->grid[0] / cluster[0], clusters_y = launch->grid[1] / cluster[1];
    number /= fibre_cluster_blocks(launch);
    return (struct image_index){(uint32_t)(number % clusters_x) * cluster[0] + rank % cluster[0],
        (uint32_t)(number / clusters_x % clusters_y) * cluster[1] + rank / cluster[0] % cluster[1],
        (uint32_t)(number / clusters_x / clusters_y) * cluster[2] + rank / cluster[0] / cluster[1]};
}

static void start_block(struct block *block, uint64_t number, size_t first_fibre)
{
    const struct fibre_launch *launch = run.launch;
    uint32_t threads = run.thread_count;
    block->index = block_index(launch, number);
    block->fibres = &fibres[first_fibre];
    block->first_fibre = (uint32_t)first_fibre;
    block->live_count = threads;
    block->has_begun = false;
    block->waiting = block->predicates = 0;
    block->cluster_waiting = block->grid_waiting = 0;
    memset(block->live, 0, sizeof block->live);
    for (uint32_t i = 0; i < threads; i++)
        set_bit(block->live, i);
    memcpy(block->ready, block->live, sizeof block->ready);
    for (uint32_t i = 0; i * 32 < threads; i++) {
        block->warps[i].arrived = 0;
        block->warps[i].exists =
            threads - i * 32 >= 32 ? 0xFFFFFFFFu : ((uint32_t)1 << (threads - i * 32)) - 1;
    }
    for (uint32_t i = 0; i < threads; i++) {
        block->fibres[i].wait = WAIT_NOT;
        block->fibres[i].stack = switch_prepare(stack_top(first_fibre + i), fibre_main);
    }
    trace_start_threads((uint32_t)first_fibre, threads);
}

/* Shared memory starts as 0xFF bytes (NaN): nobody may rely on what an earlier block left. */
static void poison_shared(void)
{
    const struct loaded *loaded = run.launch->loaded;
    memset(loaded->image->dynamic_shared, 0xFF, run.launch->shared_bytes);
    for (size_t i = 0; i < loaded->object_count; i++)
        if (loaded->objects[i].is_shared)
            memset((void *)loaded->objects[i].address, 0xFF, loaded->objects[i].bytes);
}

/* Runs the block until it ends, all of it waits for other blocks, or the launch fails. */
static void run_block(struct block *block)
{
    run.block = block;
    block->has_begun = true;
    *run.launch->loaded->image->block = block->index;
    run.thread = next_ready(block, run.thread_count - 1);
    *run.launch->loaded->image->thread = block->fibres[run.thread].index;
    trace_complete(block->live_count);
    switch_stack(&run.main_stack, block->fibres[run.thread].stack);
    trace_complete(block->live_count);
}

static void run_blocks(uint64_t count)
{
    static struct block block;
    for (uint64_t i = 0; !run.result->error && trace_goes_on(i) && i < trace_block_count(count);
         i++) {
        start_block(&block, trace_block_number(i, count), 0);
        poison_shared();
        run_block(&block);
    }
}

/* --- blocks that are alive together ----------------------------------------------------------- */

#define SAVED_ALIGNMENT ((size_t)1024)

/* Where an object of shared memory lies among the saved ones, `at` or later: as far from an aligned
 * address as it really is, so that vectors and banks stay what they are. */
static size_t saved_place(size_t at, uintptr_t address)
{
    return (at + SAVED_ALIGNMENT - 1) / SAVED_ALIGNMENT * SAVED_ALIGNMENT +
           address % SAVED_ALIGNMENT;
}

/* Calls with each object of shared memory and its place; returns how much room all need. */
static size_t each_shared(void (*visit)(char *at, char *saved, size_t bytes), char *saved)
{
    const struct loaded *loaded = run.launch->loaded;
    size_t end = run.launch->shared_bytes;
    if (visit)
        visit(loaded->image->dynamic_shared, saved, end);
    for (size_t i = 0; i < loaded->object_count; i++) {
        const struct loaded_object *object = &loaded->objects[i];
        if (!object->is_shared)
            continue;
        size_t place = saved_place(end, object->address);
        if (visit)
            visit((char *)object->address, saved + place, object->bytes);
        end = place + object->bytes;
    }
    return (end + SAVED_ALIGNMENT - 1) / SAVED_ALIGNMENT * SAVED_ALIGNMENT;
}

static void save(char *at, char *saved, size_t bytes)
{
    memcpy(saved, at, bytes);
}

static void restore(char *at, char *saved, size_t bytes)
{
    memcpy(at, saved, bytes);
}

struct block *fibre_saved_block(uintptr_t address, uintptr_t *bytes)
{
    *bytes = each_shared(NULL, NULL);
    for (uint64_t i = 0; i < run.alive_count; i++)
        if (address - (uintptr_t)run.alive[i].saved < *bytes)
            return &run.alive[i];
    return NULL;
}

static uint32_t cluster_rank(void)
{
    const uint32_t *cluster = run.launch->cluster;
    const struct image_index *at = &run.block->index;
    return at->x % cluster[0] +
           cluster[0] * (at->y % cluster[1] + cluster[1] * (at->z % cluster[2]));
}

static struct {
    uintptr_t address, found;
} mapped;

static void map_one(char *at, char *saved, size_t bytes)
{
    if (mapped.address - (uintptr_t)at < bytes)
        mapped.found = (uintptr_t)saved + (mapped.address - (uintptr_t)at);
}

static uintptr_t cluster_address(uintptr_t shared, uint32_t rank, void *pc)
{
    uint32_t mine = cluster_rank();
    if (rank >= cluster_blocks())
        fail_at(ERROR_ILLEGAL_ADDRESS, pc, "shared memory of block %u in a cluster of %u blocks",
            rank, cluster_blocks());
    if (rank == mine)
        return shared;
    const struct block *block = run.block + rank - mine;
    mapped.address = shared;
    mapped.found = 0;
    each_shared(map_one, block->saved);
    if (!mapped.found)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc, "0x%zx is not in shared memory", (size_t)shared);
    if (block->live_count == 0)
        fail_at(ERROR_ILLEGAL_ADDRESS, pc,
            "shared memory of block %u of the cluster, which has ended", rank);
    return mapped.found;
}

/* Those of a cluster go on when each has ended or waits at the cluster's barrier; true if so. */
static bool release_cluster(struct block *blocks)
{
    bool is_waiting = false;
    for (uint32_t i = 0; i < cluster_blocks(); i++) {
        if (blocks[i].live_count && blocks[i].cluster_waiting != blocks[i].live_count)
            return false;
        is_waiting |= blocks[i].live_count > 0;
    }
    for (uint32_t i = 0; i < cluster_blocks(); i++) {
        blocks[i].cluster_waiting = 0;
        memcpy(blocks[i].ready, blocks[i].live, sizeof blocks[i].ready);
    }
    return is_waiting;
}

static bool release_grid(struct block *blocks, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (blocks[i].grid_waiting != blocks[i].live_count)
            return false;
    for (uint64_t i = 0; i < count; i++) {
        blocks[i].grid_waiting = 0;
        memcpy(blocks[i].ready, blocks[i].live, sizeof blocks[i].ready);
    }
    return true;
}

/* Each round takes every block to the next barrier that it shares with others, or to its end. */
static void run_together(struct block *blocks, uint64_t count)
{
    bool is_alive = true;
    while (is_alive && !run.result->error && trace_goes_on(count)) {
        bool has_gone_on = false;
        is_alive = false;
        for (uint64_t i = 0; i < count && !run.result->error; i++) {
            if (blocks[i].live_count == 0 || waits_for_other_blocks(&blocks[i]))
                continue;
            each_shared(restore, blocks[i].saved);
            run_block(&blocks[i]);
            each_shared(save, blocks[i].saved);
            has_gone_on = true;
        }
        for (uint64_t i = 0; i < count; i++)
            is_alive |= blocks[i].live_count > 0;
        if (cluster_blocks() > 1)
            for (uint64_t i = 0; i < count; i += cluster_blocks())
                has_gone_on |= release_cluster(blocks + i);
        if (is_alive && release_grid(blocks, count))
            continue;
        if (is_alive && !has_gone_on && !run.result->error) {
            fprintf(stderr,
                "emulator: %s: deadlock: blocks of a cluster wait for each other at "
                "different barriers\n",
                run.launch->kernel->image->name);
            run.result->error = ERROR_LAUNCH_FAILED;
        }
    }
}

/* All blocks of a cooperative launch, or one cluster after another. */
static void run_groups(uint64_t count, uint64_t at_once)
{
    uint64_t groups = count / at_once;
    size_t saved_bytes = each_shared(NULL, NULL);
    run.alive = calloc(at_once, sizeof *run.alive);
    char *saved = aligned_alloc(SAVED_ALIGNMENT, at_once * saved_bytes + SAVED_ALIGNMENT);
    if (!run.alive || !saved || !make_stacks(at_once * run.thread_count)) {
        run.result->error = ERROR_LAUNCH_FAILED;
    } else {
        run.alive_count = at_once;
        for (uint64_t t = run.thread_count; t < at_once * run.thread_count; t++)
            fibres[t].index = fibres[t % run.thread_count].index;
    }
    for (uint64_t g = 0; !run.result->error && trace_goes_on(g) && g < trace_block_count(groups);
         g++) {
        uint64_t first = trace_block_number(g, groups) * at_once;
        poison_shared();
        for (uint64_t i = 0; i < at_once; i++) {
            start_block(&run.alive[i], first + i, i * run.thread_count);
            run.alive[i].saved = saved + i * saved_bytes;
            each_shared(save, run.alive[i].saved);
        }
        run_together(run.alive, at_once);
    }
    free(run.alive);
    free(saved);
    run.alive = NULL;
    run.alive_count = 0;
}

/* --- the launch ------------------------------------------------------------------------------- */

static void prepare_image(const struct fibre_launch *launch)
{
    static const struct image_services services = {.resolve = resolve,
        .misaligned = misaligned,
        .barrier = barrier,
        .warp = warp,
        .grid_barrier = grid_barrier,
        .cluster_barrier = cluster_barrier,
        .cluster_rank = cluster_rank,
        .cluster_blocks = cluster_blocks,
        .cluster_address = cluster_address,
        .yield = yield,
        .fail = fail};
    struct image *image = launch->loaded->image;
    *image->services = services;
    *image->hot = (struct image_hot){.stack_base = (uintptr_t)stacks,
        .stack_bytes = FIBRE_GRID_THREADS * STACK_BYTES,
        .shared_bytes = launch->shared_bytes};
    *image->block_dim = (struct image_index){launch->block[0], launch->block[1], launch->block[2]};
    *image->grid_dim = (struct image_index){launch->grid[0], launch->grid[1], launch->grid[2]};
    for (uint32_t i = 0; i < run.thread_count; i++)
        fibres[i].index = (struct image_index){i % launch->block[0],
            i / launch->block[0] % launch->block[1], i / launch->block[0] / launch->block[1]};
}

void fibre_run(const struct fibre_launch *launch, struct fibre_result *result)
{
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    *result = (struct fibre_result){.blocks = blocks};
    run.launch = launch;
    run.result = result;
    run.hot = launch->loaded->image->hot;
    run.thread_count = launch->block[0] * launch->block[1] * launch->block[2];
    run.words = (run.thread_count + 63) / 64;
    run.use_count = run.next_slot = 0;
    result->threads = blocks * run.thread_count;
    if (!make_stacks(run.thread_count)) {
        fprintf(stderr, "emulator: no memory for the stacks of %u threads\n", run.thread_count);
        result->error = ERROR_LAUNCH_FAILED;
        return;
    }
    prepare_image(launch);
    trace_begin_launch(launch);
    if (launch->is_cooperative)
        run_groups(blocks, blocks);
    else if (cluster_blocks() > 1)
        run_groups(blocks, cluster_blocks());
    else
        run_blocks(blocks);
    trace_end_launch();
    collect_uses();
    result->global_accesses = run.hot->global_accesses;
    result->shared_accesses = run.hot->shared_accesses;
    result->misses = run.hot->misses;
}
