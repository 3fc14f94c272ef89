/* What the parts of the bench role share: bench.c (requests), bench_setup.c (session),
 * bench_verify.c, bench_measure.c (samples), bench_confirm.c, bench_limits.c. Not for others. */
#ifndef TUNE_WORKER_BENCH_INTERNAL_H
#define TUNE_WORKER_BENCH_INTERNAL_H

#include "buffers.h"
#include "channel.h"
#include "gpu.h"
#include "gpu_lock.h"
#include "harness.h"
#include "launch.h"
#include "nvml.h"
#include "stats.h"
#include "watchdog.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_CHECK_LIMIT 64
#define BENCH_BATCH_LIMIT 16  /* timed calls between two waits of the host */
#define BENCH_GRAPH_NODES 100 /* calls in a graph */
#define BENCH_SAMPLE_LIMIT 100000

struct check {
    size_t buffer, reference, scale; /* into the session's buffers; scale SIZE_MAX: |reference| */
    double relative, absolute;
};

/* Inputs and reference of one (kernel, shape, dtype), kept on the device for all its candidates. */
struct session {
    bool is_ready;
    json_int_t number;
    struct buffer_list buffers; /* the kernel's own in, out, inout; then the reference's */
    size_t own_count;
    uint64_t
        input_sums[BUFFER_LIMIT];   /* checksum of in and inout, to see a candidate write there */
    uint64_t masters[BUFFER_LIMIT]; /* inout: where its pristine content is kept */
    size_t check_count;
    struct check checks[BENCH_CHECK_LIMIT];
    struct arena own_arena, reference_arena, master_arena;
};

struct bench {
    struct channel *channel;
    struct gpu gpu;
    struct nvml nvml;
    struct watchdog watchdog;
    struct gpu_lock lock;
    struct harness harness;
    struct session session;
    struct arena scratch_arena, replica_arena, flush_arena;
    /* Whose calls were the last on the scratch and on the copies for graphs, by serial: what it has
     * done once is still there. 0: nobody's. */
    uint64_t serials, scratch_of, copies_of;
    size_t flush_bytes;
    struct CUevent_st *starts[BENCH_BATCH_LIMIT], *ends[BENCH_BATCH_LIMIT];
    bool is_lost; /* a sticky error: end after the answer */
};

/* One candidate on the device. */
struct candidate {
    uint64_t serial; /* of the worker's candidates, from 1 */
    struct buffer_list
        buffers; /* as its request lists them, pointers bound to session and scratch */
    uint64_t pointers[BUFFER_LIMIT];
    uint64_t masters[BUFFER_LIMIT]; /* 0: nothing to restore */
    bool has_inout;
    struct program program;
};

/* bench_setup.c */
json_t *bench_setup(struct bench *bench, const json_t *request);
void session_finish(struct session *session, struct gpu *gpu);
/* Binds a candidate's buffers and loads it. On failure nothing stays loaded. */
int candidate_load(struct candidate *candidate, struct bench *bench, const json_t *request,
    struct verdict *verdict);
void candidate_unload(struct candidate *candidate, struct bench *bench);
/* inout back to what it was, asynchronously. */
int candidate_restore(struct candidate *candidate, struct bench *bench, struct verdict *verdict);
/* All that comes before a timed call and is not part of it, asynchronously: restoring, and what is
 * done once, where another candidate had the scratch since. */
int candidate_make_ready(struct candidate *candidate, struct bench *bench, struct verdict *verdict);
/* Waits for the stream under the watchdog. */
int bench_wait(struct bench *bench, double limit_ms, const char *what, struct verdict *verdict);
/* Issues the launches of `parts` (launch.h) and waits for them, under the watchdog. */
int bench_run(struct bench *bench, const struct program *program, unsigned parts,
    const struct buffer_list *buffers, const uint64_t *pointers, double limit_ms,
    struct verdict *verdict);

/* bench_verify.c */
/* The first launch: on poisoned outputs, between guards, compared with the reference. *max_error:
 * the largest |x - ref| as a share of what is allowed. */
int candidate_verify(struct candidate *candidate, struct bench *bench, double deadline_ms,
    double *max_error, struct verdict *verdict);
/* Whether outputs and guards are still right, after timing. */
int candidate_recheck(
    struct candidate *candidate, struct bench *bench, double *max_error, struct verdict *verdict);

/* bench_measure.c */
struct measure {
    bool is_cold, is_graph;
    double deadline_ms, budget_ms;
    size_t max_samples;
    double stop_above_ns; /* 0: never */
    /* results */
    double *samples_ns, *scratch; /* room for max_samples each */
    size_t sample_count;
    struct stats stats;
    bool is_stopped_early;
};

int measure_init(struct measure *measure, const json_t *request, struct verdict *verdict);
void measure_finish(struct measure *measure);
/* "auto" became event or graph. */
int measure_candidate(struct measure *measure, struct candidate *candidate, struct bench *bench,
    bool is_auto, struct verdict *verdict);
/* What the mode needs before the first sample: room to flush the cache with. */
int measure_prepare(const struct measure *measure, struct bench *bench, struct verdict *verdict);
/* {"samples_ns","median_ns","interval_ns"}: new reference. */
json_t *measure_to_json(const struct measure *measure);

/* A candidate's calls as a graph, each on buffers of its own. */
struct replay {
    struct CUgraphExec_st *exec; /* NULL: none */
    size_t nodes, sets;
    uint64_t stride;
};

uint64_t candidate_set_bytes(struct candidate *candidate);
/* Decides on calls and sets of buffers, and makes room for the sets. `stride`: bytes from one set
 * to the next, at least the candidate's own; call_ms: what one call takes the host. Graphs made
 * with the same plan may live side by side. */
int replay_plan(struct replay *replay, struct bench *bench, const struct measure *measure,
    bool has_inout, uint64_t stride, double call_ms, struct verdict *verdict);
/* Makes the graph of a planned replay and replays it once, untimed. */
int replay_create(struct replay *replay, struct candidate *candidate, struct bench *bench,
    const struct measure *measure, struct verdict *verdict);
void replay_destroy(struct replay *replay, struct bench *bench);
/* Prepares (untimed) and replays once; *ns is one call's share. */
int replay_sample(struct replay *replay, struct candidate *candidate, struct bench *bench,
    const struct measure *measure, double *ns, struct verdict *verdict);
/* `count` timed calls, one wait. */
int event_samples(struct candidate *candidate, struct bench *bench, const struct measure *measure,
    size_t count, double *ns, struct verdict *verdict);

/* bench_confirm.c */
json_t *bench_confirm(struct bench *bench, const json_t *request);

/* bench_limits.c */
json_t *bench_limits(struct bench *bench, const json_t *request);

/* bench.c */
json_t *bench_clocks(struct bench *bench);
/* registers, spill_bytes, static_shared_bytes, dynamic_shared_bytes. */
void bench_add_resources(json_t *answer, const struct program *program);

#endif
