// Breadth-first search: levels[v] is how many edges lie between `source` and v at least, -1 where
// no path leads to v. The graph is a sparse matrix by rows (CSR): u's neighbours are
// columns[offsets[u]] to columns[offsets[u + 1] - 1]. It must be symmetric (v is u's neighbour
// where u is v's), as a vertex looks for its predecessor among its own neighbours.
//
// The whole search is one cooperative launch: blocks stay, a level ends with a barrier of the grid,
// and what the next level does is decided on the device, by every block alike from the same counts.
//
// VARIANT 0 (vertex): each level looks at all vertices and takes those of the present level,
// THREADS
//   lanes to a row. The readable one.
// VARIANT 1 (edge): each level looks at all edges; warps have equal shares of them, so that long
// rows
//   cost nothing extra.
// VARIANT 2 (frontier): a queue has the rows of the present level. A vertex belongs to whoever sets
//   its bit in `seen`, and its row goes to the next queue.
// VARIANT 3 (direction): as 2, and when the frontier has many of the edges that are left, the
//   vertices that are not reached look for a reached neighbour instead (pull), and stop at the
//   first.
//
// Queues hold pieces of rows, of CHUNK edges at most, so that one row of a million edges keeps the
// whole device busy. They fill in shared memory and go to the global one by one atomic operation
// per block and level. While the frontier has at most SMALL edges, block 0 searches by itself, with
// its queue in shared memory and without barriers of the grid; the others wait for it.
//
// Vertices and edges are numbered by 32 bits: less than 2^31 - 2^16 of each.
// Levels do not depend on the order in which vertices are reached: every variant is deterministic.
#ifndef VARIANT
#define VARIANT 3 // 0 to 3, as above
#endif
#ifndef BLOCK
#define BLOCK 512 // threads per block, power of 2
#endif
#ifndef BLOCKS
#define BLOCKS 8 // blocks for each four multiprocessors
#endif
#ifndef THREADS
#define THREADS                                                                                    \
    0 // lanes that share a row or a piece of one; 0: a warp's 32 pieces are dealt evenly
#endif
#ifndef EDGES
#define EDGES 2 // edges that a lane follows at once
#endif
#ifndef CHUNK
#define CHUNK 128 // edges of a piece of a row at most
#endif
#ifndef QUEUE
#define QUEUE 4096 // pieces that a block's queue in shared memory holds
#endif
#ifndef SMALL
#define SMALL 2048 // edges of a frontier that block 0 follows by itself
#endif
#ifndef ALPHA
#define ALPHA 8 // push becomes pull when the frontier has more than 1/ALPHA of the edges left
#endif
#ifndef BETA
#define BETA 64 // pull becomes push when the frontier has less than 1/BETA of the vertices
#endif
#ifndef PROBE
#define PROBE 4 // neighbours that a vertex looks at at once when it pulls
#endif
#ifndef VERTICES
#define VERTICES 2 // vertices that a lane pulls for at once
#endif
#ifndef WORDS
#define WORDS 8 // words of 32 vertices whose open ones a warp deals to its lanes
#endif

#include "common.cuh"
#include "grid.cuh"

static_assert(VARIANT >= 2 || (THREADS > 0 && (VARIANT == 0 || THREADS == 1) && EDGES == 1 &&
                                  CHUNK == 128 && QUEUE == 2048 && SMALL == 0),
    "only queues have EDGES, CHUNK, QUEUE and SMALL, and pieces to balance; an edge has one lane");
static_assert(
    VARIANT == 3 || (ALPHA == 8 && BETA == 64 && PROBE == 2 && VERTICES == 1 && WORDS == 4),
    "only direction pulls: it alone has ALPHA, BETA, PROBE, VERTICES and WORDS");
static_assert((BLOCKS + 3) / 4 * BLOCK <= 2048, "a multiprocessor runs at most 2048 threads");

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 ALL = 0xffffffffu; // lanes of a warp
constexpr int WARPS = BLOCK / 32;

#if TUNE_REFERENCE

// For who has no bfs.so, which computes this on the CPU: by one block, each level over all
// vertices.
extern "C" __global__ void __launch_bounds__(1024)
    reference_levels(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,              // [edges]
        const i64 *__restrict__ source,               // [1]
        int *levels,                                  // [rows]
        i64 rows)
{
    for (i64 v = threadIdx.x; v < rows; v += 1024)
        levels[v] = v == *source ? 0 : -1;
    __syncthreads();
    for (int level = 0, is_found = 1; is_found; level++) {
        is_found = 0;
        for (i64 v = threadIdx.x; v < rows; v += 1024)
            for (int e = offsets[v]; levels[v] == level && e < offsets[v + 1]; e++)
                if (levels[columns[e]] < 0) {
                    levels[columns[e]] = level + 1;
                    is_found = 1;
                }
        is_found = __syncthreads_or(is_found);
    }
}

#else

// What the blocks tell each other. A turn is what lies between two barriers of the grid; it reads
// the counts of `turn % 3`, adds to those of the next, and clears those after.
struct counts {
    u64 found;    // vertices << 32 | edges of the frontier
    int entries;  // pieces in its queue; in vertex and edge: whether there is a frontier
    int level;    // of the frontier, where block 0 has searched by itself,
    u32 explored; // and the edges of all that is reached
};

struct graph {
    const int *__restrict__ offsets; // [rows + 1]
    const int *__restrict__ columns; // [edges]
    int rows, edges;

    __device__ inline int degree(int v) const
    {
        return offsets[v + 1] - offsets[v];
    }
};

__device__ inline int lane_of()
{
    return threadIdx.x % 32;
}

// Lanes below the thread's own.
__device__ inline u32 lanes_below()
{
    return (1u << threadIdx.x % 32) - 1;
}

// The warp's number in the grid, and how many there are.
__device__ inline int grid_warp()
{
    return blockIdx.x * WARPS + threadIdx.x / 32;
}

__device__ inline int grid_warps()
{
    return gridDim.x * WARPS;
}

__device__ inline void clear(counts *of)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        of->found = 0;
        of->entries = 0;
    }
}

#if VARIANT <= 1

// One level of all vertices; returns whether the thread has reached any.
__device__ inline bool reach(const graph &graph, int *levels, int level, int from, int to, int step)
{
    bool is_found = false;
    for (int e = from; e < to; e += step) {
        const int u = graph.columns[e];
        if (levels[u] < 0) {
            levels[u] = level + 1; // whoever else comes writes the same
            is_found = true;
        }
    }
    return is_found;
}

#if VARIANT == 0

__device__ inline bool search_level(const graph &graph, int *levels, int level)
{
    const i64 thread = (i64)blockIdx.x * BLOCK + threadIdx.x, threads = (i64)gridDim.x * BLOCK;
    bool is_found = false;
    for (i64 v = thread / THREADS; v < graph.rows; v += threads / THREADS)
        if (levels[v] == level)
            is_found |= reach(graph, levels, level, graph.offsets[v] + (int)(thread % THREADS),
                graph.offsets[v + 1], THREADS);
    return is_found;
}

#else

constexpr int SPAN = 512; // edges that a warp takes at once

// The row that has edge e.
__device__ inline int row_of(const graph &graph, int e)
{
    int low = 0, high = graph.rows; // offsets[low] <= e < offsets[high]
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (graph.offsets[middle] <= e)
            low = middle;
        else
            high = middle;
    }
    return low;
}

__device__ inline bool search_level(const graph &graph, int *levels, int level)
{
    bool is_found = false;
    for (i64 from = (i64)grid_warp() * SPAN; from < graph.edges; from += (i64)grid_warps() * SPAN) {
        const int to = (int)least(from + SPAN, graph.edges);
        int row = row_of(graph, (int)from);
        for (int e = (int)from + lane_of(); e < to; e += 32) {
            while (graph.offsets[row + 1] <= e)
                row++;
            if (levels[row] == level)
                is_found |= reach(graph, levels, level, e, e + 1, 1);
        }
    }
    return is_found;
}

#endif

extern "C" __global__ void __launch_bounds__(BLOCK, (BLOCKS + 3) / 4)
    search(const int *__restrict__ offsets, const int *__restrict__ columns,
        const i64 *__restrict__ source, int *levels, // [rows]
        u32 *, int2 *, counts *of_turn, i64 rows, i64 edges)
{
    const graph graph = {offsets, columns, (int)rows, (int)edges};
    const i64 threads = (i64)gridDim.x * BLOCK;
    for (i64 v = (i64)blockIdx.x * BLOCK + threadIdx.x; v < rows; v += threads)
        levels[v] = v == *source ? 0 : -1;
    clear(of_turn + 1);
    grid_sync();
    for (int level = 0;; level++) {
        clear(of_turn + (level + 2) % 3);
        int *entries = &of_turn[(level + 1) % 3].entries;
        if (__syncthreads_or(search_level(graph, levels, level)) && threadIdx.x == 0)
            *entries = 1;
        grid_sync();
        if (*entries == 0)
            break;
    }
}

#else

// --- queues --------------------------------------------------------------------------------------

// A piece of a row: its first edge, and how many.
typedef int2 piece;

// Where a block puts what it has reached: the first QUEUE pieces in shared memory, others straight
// into the global queue.
struct block_queue {
    int count; // pieces that were asked room for
    int limit; // the first place that was asked for and is not here; all later ones are not either
    u32 edges; // of the vertices that were reached
    u32 reached; // vertices, where they are counted
};

struct sink {
    piece *here; // [size], shared
    int size;
    block_queue *state;
    piece *there; // the global queue
    int *entries; // how many it has

    // Room for the warp's `count` pieces, by all its lanes: the first place, from `size` on in the
    // global queue.
    __device__ inline int reserve(int count) const
    {
        int at = 0;
        if (lane_of() == 0) {
            at = atomicAdd(&state->count, count);
            if (at + count > size) {
                atomicMin(&state->limit, at);
                at = size + atomicAdd(entries, count);
            }
        }
        return __shfl_sync(ALL, at, 0);
    }

    __device__ inline void put(int at, int first, int count) const
    {
        piece piece;
        piece.x = first;
        piece.y = count;
        if (at < size)
            here[at] = piece;
        else
            there[at - size] = piece;
    }

    // The rows of the lanes' vertices, of which those without edges are none.
    template <int COUNT>
    __device__ inline void add(const int (&first)[COUNT], const int (&degree)[COUNT]) const
    {
        int place[COUNT], total = 0;
        bool is_long = false;
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const u32 who = __ballot_sync(ALL, degree[k] > 0);
            place[k] = total + __popc(who & lanes_below());
            total += __popc(who);
            is_long |= degree[k] > CHUNK;
        }
        if (total == 0)
            return;
        const int at = reserve(total);
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (degree[k] > 0)
                put(at + place[k], first[k], degree[k] < CHUNK ? degree[k] : CHUNK);
        if (!__any_sync(ALL, is_long))
            return;
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            for (u32 left = __ballot_sync(ALL, degree[k] > CHUNK); left; left &= left - 1) {
                const int owner = __ffs((int)left) - 1;
                add_pieces(__shfl_sync(ALL, first[k], owner) + CHUNK,
                    __shfl_sync(ALL, degree[k], owner) - CHUNK);
            }
    }

    // A row, by the whole warp.
    __device__ inline void add_pieces(int first, int degree) const
    {
        const int count = (degree + CHUNK - 1) / CHUNK, at = reserve(count);
        for (int i = lane_of(); i < count; i += 32)
            put(at + i, first + i * CHUNK, i < count - 1 ? CHUNK : degree - i * CHUNK);
    }

    __device__ inline int kept() const
    {
        return state->count < state->limit ? state->count : state->limit;
    }
};

__device__ inline void clear(block_queue *queue)
{
    if (threadIdx.x == 0) {
        queue->count = 0;
        queue->limit = 1 << 30;
        queue->edges = 0;
        queue->reached = 0;
    }
}

__device__ inline u32 warp_total(u32 value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(ALL, value, offset);
    return value;
}

// Adds the threads' counts to the block's.
__device__ inline void tally(block_queue *queue, u32 edges, u32 reached)
{
    edges = warp_total(edges);
    reached = warp_total(reached);
    if (lane_of() == 0 && edges > 0) {
        atomicAdd(&queue->edges, edges);
        atomicAdd(&queue->reached, reached);
    }
}

// The block's queue and counts to those of the grid.
__device__ inline void hand_over(const sink &sink, counts *next)
{
    __shared__ int start;
    __syncthreads();
    const int count = sink.kept();
    if (threadIdx.x == 0) {
        if (sink.state->edges > 0)
            atomicAdd(&next->found, (u64)sink.state->reached << 32 | sink.state->edges);
        if (count > 0)
            start = atomicAdd(&next->entries, count);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += BLOCK)
        sink.there[start + i] = sink.here[i];
}

// --- push ----------------------------------------------------------------------------------------

struct search_state {
    graph of;
    int *levels; // [rows]
    u32 *seen;   // a bit for each vertex
};

// Follows an edge for each u that is not -1. Adds the degrees of what is reached to `edges`.
//
// IS_ALONE: a block searches a small frontier. All that can be asked for at once is, as time is
// what counts; else most vertices are known by then and reading first saves the atomic operations.
// What is read may be old, for the L1 does not hear of other blocks: the atomic operation decides.
template <bool IS_ALONE>
__device__ inline void visit(
    const search_state &search, const int (&u)[EDGES], int level, const sink &sink, u32 &edges)
{
    int first[EDGES], degree[EDGES];
    bool is_new[EDGES], is_any_new = false;
#pragma unroll
    for (int k = 0; k < EDGES; k++)
        is_new[k] = u[k] >= 0 && (IS_ALONE || (search.seen[u[k] / 32] >> u[k] % 32 & 1) == 0);
#pragma unroll
    for (int k = 0; k < EDGES; k++) {
        u32 before = ALL;
        if (is_new[k])
            before = atomicOr(search.seen + u[k] / 32, 1u << u[k] % 32);
        first[k] = degree[k] = 0;
        if (IS_ALONE && is_new[k]) {
            first[k] = search.of.offsets[u[k]];
            degree[k] = search.of.offsets[u[k] + 1];
        }
        is_new[k] = (before >> (u32)u[k] % 32 & 1) == 0; // u is -1 where there is no edge
        is_any_new |= is_new[k];
    }
    if (!__any_sync(ALL, is_any_new))
        return;
#pragma unroll
    for (int k = 0; k < EDGES; k++) {
        if (!IS_ALONE && is_new[k]) {
            first[k] = search.of.offsets[u[k]];
            degree[k] = search.of.offsets[u[k] + 1];
        }
        degree[k] = is_new[k] ? degree[k] - first[k] : 0;
        edges += degree[k];
        if (is_new[k])
            search.levels[u[k]] = level + 1;
    }
    sink.add(first, degree);
}

#if THREADS == 0

// The warp's pieces, one per lane, which may be empty: their edges are dealt evenly. `running` is
// the sum of the edges up to the lane's own.
template <bool IS_ALONE>
__device__ inline void push_pieces(
    const search_state &search, piece own, int level, const sink &sink, u32 &edges)
{
    const int lane = lane_of();
    int running = own.y;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(ALL, running, offset);
        running += lane >= offset ? other : 0;
    }
    const int total = __shfl_sync(ALL, running, 31), base = own.x - (running - own.y);
    for (int from = lane; from - lane < total; from += 32 * EDGES) {
        int u[EDGES];
#pragma unroll
        for (int k = 0; k < EDGES; k++) {
            const int edge = from + k * 32;
            int owner = 0; // the first lane whose running sum is above `edge`
#pragma unroll
            for (int step = 16; step > 0; step /= 2)
                owner += __shfl_sync(ALL, running, owner + step - 1) <= edge ? step : 0;
            const int at = __shfl_sync(ALL, base, owner) + edge;
            u[k] = edge < total ? search.of.columns[at] : -1;
        }
        visit<IS_ALONE>(search, u, level, sink, edges);
    }
}

constexpr int LANES = 1; // per piece

#else

// The pieces of the warp, one for each THREADS lanes.
template <bool IS_ALONE>
__device__ inline void push_pieces(
    const search_state &search, piece own, int level, const sink &sink, u32 &edges)
{
    for (int from = lane_of() % THREADS; __any_sync(ALL, from < own.y); from += THREADS * EDGES) {
        int u[EDGES];
#pragma unroll
        for (int k = 0; k < EDGES; k++) {
            const int edge = from + k * THREADS;
            u[k] = edge < own.y ? search.of.columns[own.x + edge] : -1;
        }
        visit<IS_ALONE>(search, u, level, sink, edges);
    }
}

constexpr int LANES = THREADS; // per piece

#endif

// The frontier's pieces, each warp as many at once as keep all of them busy.
template <bool IS_ALONE>
__device__ inline void push(const search_state &search, const piece *from, int entries, int warp,
    int warps, int level, const sink &sink)
{
    const int share = (entries + warps - 1) / warps, most = 32 / LANES;
    const int take = share < most ? share : most, own = lane_of() / LANES;
    u32 edges = 0;
    for (i64 at = (i64)warp * take; at < entries; at += (i64)warps * take) {
        piece piece;
        piece.x = piece.y = 0;
        if (own < take && at + own < entries)
            piece = from[at + own];
        push_pieces<IS_ALONE>(search, piece, level, sink, edges);
    }
    tally(sink.state, edges, 0);
}

// Block 0 by itself, until nothing is left or the frontier has more than SMALL edges, or more
// pieces than fit. What it has reached last is handed over as after any other turn.
// A function of its own, so that the registers it needs are not missing elsewhere; `search` by
// value, since what is handed on by address lies in memory for everybody.
__device__ __noinline__ void search_alone(search_state search, const piece *from, int entries,
    int level, u32 explored, piece *queues, piece *there, counts *next)
{
    __shared__ block_queue own[3];
    for (int i = 0; i < 3; i++)
        clear(own + i);
    __syncthreads();
    for (int i = 0;; i++) {
        const sink sink = {
            queues + i % 2 * (QUEUE / 2), QUEUE / 2, own + i % 3, there, &next->entries};
        push<true>(search, from, entries, threadIdx.x / 32, WARPS, level, sink);
        clear(own + (i + 1) % 3);
        __syncthreads();
        entries = sink.state->count;
        const u32 edges = sink.state->edges;
        level++;
        explored += edges;
        if (entries == 0 || entries > QUEUE / 2 || edges > SMALL) {
            if (threadIdx.x == 0) {
                next->level = level;
                next->explored = explored;
            }
            hand_over(sink, next);
            return;
        }
        from = sink.here;
    }
}

// --- pull ----------------------------------------------------------------------------------------

#if VARIANT == 3

__device__ inline bool is_seen(const u32 *seen, int u)
{
    return seen[u / 32] >> u % 32 & 1;
}

// Which of the lane's vertices, whose neighbours are columns[from, to), have one that is seen: a
// bit for each. A lane looks at PROBE neighbours of each at once; when few vertices of the warp are
// left, the warp looks at the rest of their rows together.
__device__ inline u32 have_seen_neighbour(
    const graph &graph, const u32 *seen, const int (&from)[VERTICES], const int (&to)[VERTICES])
{
    u32 found = 0;
    int done = 0, left = 0; // neighbours that are looked at; vertices of the warp that have more
    do {
        int u[VERTICES][PROBE];
#pragma unroll
        for (int k = 0; k < VERTICES; k++)
#pragma unroll
            for (int i = 0; i < PROBE; i++) {
                const int at = from[k] + done + i;
                u[k][i] = !(found >> k & 1) && at < to[k] ? graph.columns[at] : -1;
            }
        done += PROBE;
        left = 0;
#pragma unroll
        for (int k = 0; k < VERTICES; k++) {
#pragma unroll
            for (int i = 0; i < PROBE; i++)
                if (u[k][i] >= 0)
                    found |= (u32)is_seen(seen, u[k][i]) << k;
            left += __popc(__ballot_sync(ALL, !(found >> k & 1) && from[k] + done < to[k]));
        }
    } while (left > 8);
    if (left == 0)
        return found;
#pragma unroll
    for (int k = 0; k < VERTICES; k++)
        for (u32 rest = __ballot_sync(ALL, !(found >> k & 1) && from[k] + done < to[k]); rest;
             rest &= rest - 1) {
            const int owner = __ffs((int)rest) - 1, end = __shfl_sync(ALL, to[k], owner);
            bool is_hit = false;
            for (int e = __shfl_sync(ALL, from[k], owner) + done; e < end && !is_hit; e += 32) {
                const int at = e + lane_of();
                is_hit = __any_sync(ALL, at < end && is_seen(seen, graph.columns[at]));
            }
            if (is_hit && lane_of() == owner)
                found |= 1u << k;
        }
    return found;
}

// One level: vertices that are not in `seen` look for a neighbour that is, which can only be of the
// present level. What is seen afterwards goes to `after`, all of it, and if `is_queued` what is
// reached to the queue as well.
__device__ inline void pull(
    const search_state &search, u32 *after, int words, int level, bool is_queued, const sink &sink)
{
    __shared__ unsigned short open_of_warp[WARPS][WORDS * 32]; // vertices that are not seen
    __shared__ u32 found_of_warp[WARPS][WORDS];
    unsigned short *open = open_of_warp[threadIdx.x / 32];
    u32 *found = found_of_warp[threadIdx.x / 32], edges = 0, reached = 0;
    const int lane = lane_of();
    for (i64 at = (i64)grid_warp() * WORDS; at < words; at += (i64)grid_warps() * WORDS) {
        const bool has_word = lane < WORDS && at + lane < words;
        const u32 seen = has_word ? search.seen[at + lane] : ALL;
        int count = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const u32 not_seen = ~__shfl_sync(ALL, seen, i);
            if (not_seen >> lane & 1)
                open[count + __popc(not_seen & lanes_below())] = (unsigned short)(i * 32 + lane);
            count += __popc(not_seen);
        }
        if (lane < WORDS)
            found[lane] = 0;
        __syncwarp();
        for (int i = lane; i - lane < count; i += 32 * VERTICES) {
            int which[VERTICES], from[VERTICES], to[VERTICES], degree[VERTICES];
#pragma unroll
            for (int k = 0; k < VERTICES; k++) {
                which[k] = from[k] = to[k] = 0;
                if (i + k * 32 < count) {
                    which[k] = open[i + k * 32];
                    from[k] = search.of.offsets[at * 32 + which[k]];
                    to[k] = search.of.offsets[at * 32 + which[k] + 1];
                }
            }
            const u32 hits = have_seen_neighbour(search.of, search.seen, from, to);
#pragma unroll
            for (int k = 0; k < VERTICES; k++) {
                const bool is_hit = hits >> k & 1;
                degree[k] = is_hit ? to[k] - from[k] : 0;
                edges += degree[k];
                reached += is_hit;
                if (is_hit) {
                    search.levels[at * 32 + which[k]] = level + 1;
                    atomicOr(found + which[k] / 32, 1u << which[k] % 32);
                }
            }
            if (is_queued)
                sink.add(from, degree);
        }
        __syncwarp();
        if (has_word)
            after[at + lane] = seen | found[lane];
        __syncwarp();
    }
    tally(sink.state, edges, reached);
}

// The rows of what is in `seen` and was not in `before`, to the queue.
__device__ inline void queue_reached(
    const search_state &search, const u32 *before, int words, const sink &sink)
{
    for (i64 at = (i64)grid_warp() * 32; at < words; at += (i64)grid_warps() * 32) {
        const i64 word = at + lane_of();
        const u32 own = word < words ? search.seen[word] & ~before[word] : 0;
        for (u32 left = __ballot_sync(ALL, own != 0); left; left &= left - 1) {
            const int which = __ffs((int)left) - 1;
            int first[1] = {0}, degree[1] = {0};
            if (__shfl_sync(ALL, own, which) >> lane_of() & 1) {
                const i64 v = (at + which) * 32 + lane_of();
                first[0] = search.of.offsets[v];
                degree[0] = search.of.offsets[v + 1] - first[0];
            }
            sink.add(first, degree);
        }
    }
}

#endif

// --- the search ----------------------------------------------------------------------------------

constexpr int WORDS_AT_ONCE = 4;

// Levels and bits before the search. A vertex without edges counts as seen, or it would look for a
// neighbour again and again.
__device__ inline void begin(const search_state &search, int source, int words)
{
    for (i64 at = (i64)grid_warp() * WORDS_AT_ONCE; at < words;
         at += (i64)grid_warps() * WORDS_AT_ONCE) {
        bool is_seen[WORDS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < WORDS_AT_ONCE; i++) {
            const i64 v = (at + i) * 32 + lane_of();
            is_seen[i] = v >= search.of.rows || v == source;
            if (VARIANT == 3 && v < search.of.rows)
                is_seen[i] |= search.of.degree((int)v) == 0;
        }
#pragma unroll
        for (int i = 0; i < WORDS_AT_ONCE; i++) {
            const i64 v = (at + i) * 32 + lane_of();
            if (v < search.of.rows)
                search.levels[v] = v == source ? 0 : -1;
            const u32 bits = __ballot_sync(ALL, is_seen[i]);
            if (lane_of() == 0 && at + i < words)
                search.seen[at + i] = bits;
        }
    }
}

// The source's row to the queue, in pieces that are smaller than others where the whole device has
// nothing else to do; returns how many.
__device__ inline int queue_source(const search_state &search, int source, i64 room, piece *queue)
{
    const int first = search.of.offsets[source], degree = search.of.degree(source);
    int size = (int)ceildiv(degree, grid_warps());
    size = size < 32 ? 32 : size > CHUNK ? CHUNK : size;
    if (ceildiv(degree, size) > room)
        size = CHUNK;
    const int count = (int)ceildiv(degree, size);
    for (int i = threadIdx.x; blockIdx.x == 0 && i < count; i += BLOCK) {
        queue[i].x = first + i * size;
        queue[i].y = i < count - 1 ? size : degree - i * size;
    }
    return count;
}

enum step { PUSH, PULL, ALONE, ENQUEUE };

extern "C" __global__ void __launch_bounds__(BLOCK, (BLOCKS + 3) / 4)
    search(const int *__restrict__ offsets, // [rows + 1]
        const int *__restrict__ columns,    // [edges]
        const i64 *__restrict__ source,     // [1]
        int *levels,                        // [rows]
        u32 *seen,                          // [2 * words]
        int2 *queue,                        // [2 * (rows + edges / CHUNK)]
        counts *of_turn, i64 rows, i64 edges)
{
    extern __shared__ int2 queues[]; // [QUEUE]
    __shared__ block_queue own;
    const int words = (int)ceildiv(rows, 32);
    search_state search = {{offsets, columns, (int)rows, (int)edges}, levels, seen};
    u32 *other = seen + words; // in pull: what is seen afterwards, then what was before
    const i64 room = rows + edges / CHUNK;

    begin(search, (int)*source, words);
    clear(of_turn + 1);
    int level = 0, reached = 1, entries = queue_source(search, (int)*source, room, queue);
    u32 explored = search.of.degree((int)*source), frontier = explored, last = 0;
    bool was_pull = false, has_queue = true;
    grid_sync();
    for (int turn = 0; has_queue ? entries > 0 : reached > 0; turn++) {
        // Pull begins while the frontier grows, and ends when it shrinks: there is no way to and
        // fro.
        bool is_pull = false;
        if (VARIANT == 3 && frontier > SMALL)
            is_pull = was_pull ? reached >= rows / BETA || frontier >= last
                               : frontier > last && (u64)frontier * ALPHA > (u64)edges - explored;
        const step step = is_pull ? PULL : !has_queue ? ENQUEUE : frontier <= SMALL ? ALONE : PUSH;
        // What is reached goes to a queue too where it cannot be much: the next level may want it.
        has_queue = !is_pull || edges - explored <= edges / 4;
        was_pull = is_pull;

        counts *next = of_turn + (turn + 1) % 3;
        piece *from = queue + turn % 2 * room, *to = queue + (turn + 1) % 2 * room;
        const sink sink = {queues, QUEUE, &own, to, &next->entries};
        clear(of_turn + (turn + 2) % 3);
        clear(&own);
        __syncthreads();
        switch (step) {
        case PUSH:
            push<false>(search, from, entries, grid_warp(), grid_warps(), level, sink);
            break;
        case ALONE:
            if (SMALL > 0 && blockIdx.x == 0)
                search_alone(search, from, entries, level, explored, queues, to, next);
            break;
#if VARIANT == 3
        case PULL:
            pull(search, other, words, level, has_queue, sink);
            break;
        case ENQUEUE:
            queue_reached(search, other, words, sink);
            break;
#endif
        default:
            break;
        }
        if (step != ALONE)
            hand_over(sink, next);
        grid_sync();

        entries = next->entries;
        if (step == ENQUEUE)
            continue;
        last = frontier;
        frontier = (u32)next->found;
        reached = (int)(next->found >> 32);
        level = step == ALONE ? next->level : level + 1;
        explored = step == ALONE ? next->explored : explored + frontier;
        if (step == PULL) {
            u32 *before = search.seen;
            search.seen = other;
            other = before;
        }
    }
}

#endif
#endif
