/* The tuning of one kernel for one shape: from the space to a confirmed best.
 *
 * Design. One direction: space -> search -> image -> bench -> sample row -> search is told ->
 * confirmation
 * -> best row -> on_done. Several candidates compile ahead while one is measured; both queues are
 * bounded.
 *
 *  - Every finished candidate is committed before anybody is told of it, and the next candidate is
 *    measured only after that, so a kill at any point costs at most the one in flight. The mark
 * that names the candidate in flight is committed together with the previous row, before its
 * launch: a candidate that takes the whole daemon down is counted as one attempt after the restart.
 *  - A lane is a device that measures candidates of this tuning, one at a time. All lanes are GPUs
 * of one model; a lane whose device goes out of use gives its candidate back to the others.
 *  - Where there is a fleet, part of the proposals goes to other machines with the same model, in
 * batches (tuning_fleet.c). Their rows come back through the database; what has none is measured
 * here, so that a sweep ends whatever becomes of the others. Finalists are confirmed here.
 *  - The measuring method is chosen from the default, which goes first, and held for all.
 *  - Two candidates with equal image and launches are one: the second follows the first and gets
 * its result.
 *  - Confirmation measures the top candidates and the default interleaved, on fresh inputs. A row
 * counts as confirmed only if it is not slower than the default beside it.
 *
 * Callbacks arrive in any order; each ends in tuning_pump(), which looks at the state and starts
 * whatever can be started. tuning.c is that state machine; tuning_candidate.c takes a candidate
 * from proposal to row, tuning_compile.c gets images, tuning_measure.c runs the lanes, tuning_row.c
 * writes rows, tuning_history.c reads earlier ones, tuning_prior.c says where to begin,
 * tuning_belief.c what to believe, tuning_fleet.c asks other machines, tuning_confirm.c confirms,
 * tuning_result.c tells. */
#ifndef TUNE_TUNING_H
#define TUNE_TUNING_H

#include "daemon/image.h"
#include "daemon/sched.h"
#include "daemon/writer.h"
#include "plugins/registry.h"
#include "plugins/space.h"

#include <sys/types.h>

#define TUNING_LANES_MAX 64 /* devices of one tuning */
#define TUNING_COMMITTING_MAX                                                                      \
    64 /* candidates of one tuning that are finished and wait for the disk: a group commit */
#define TUNING_ATTEMPTS_MAX                                                                        \
    2                        /* a candidate that killed a worker this often is never tried again   \
                              */
#define TUNING_READY_MAX 64  /* compiled, waiting for the GPU */
#define TUNING_CONFIRM_MAX 8 /* candidates in the confirmation, the default not counted */
#define TUNING_DEFAULT_EVALS 400    /* of a sweep that names neither strategy nor budget ... */
#define TUNING_DEFAULT_EVALS_CPU 64 /* ... and on the emulated device, which is slow */
#define TUNING_DEADLINE_MS 5000
#define TUNING_SAMPLE_BUDGET_MS 300
#define TUNING_SAMPLES_MAX 200
#define TUNING_PRIOR_NEAR 1u   /* winners of near shapes and other architectures */
#define TUNING_PRIOR_STATIC 2u /* the best by the static estimate */

#define TUNING_RECENT_MAX 16 /* results that one progress tells of */
#define TUNING_BATCH_MAX 64  /* candidates that are given to another machine at a time */
#define TUNING_HELP_DEADLINE_MAX_MS                                                                \
    60000 /* what another machine may ask for each; a sweep with a longer one stays at home */

/* What all tunings share; borrowed. */
struct tuning_deps {
    uv_loop_t *loop;
    struct sched *sched;
    struct images *images;
    struct tuning_db *db;
    struct writer *writer;
    const struct image_source *harness;
    unsigned compile_workers; /* of the scheduler */
    const char *host;
    struct fleet *fleet; /* NULL: none */
    bool is_system;      /* many users' */
};

/* Work for another machine: these configurations and no others, under the asker's key, method and
 * run. No default beside them, no control, no confirmation. What is not of the space here is passed
 * over. */
struct tuning_help {
    const char *const *configs; /* canonical texts; copied */
    size_t count;               /* 0: this is a sweep of our own */
    const char *method;
    double best_ns; /* the asker's best so far; 0: none */
};

struct tuning_spec {
    struct plugin *plugin; /* a reference is taken */
    size_t
        device_count; /* equal devices, over which the search is spread; the first one confirms */
    size_t devices[TUNING_LANES_MAX];
    int64_t dims[MANIFEST_MAX_DIMS];
    const char *dtype, *mode; /* copied */
    const char *strategy;     /* copied; NULL: guided */
    struct space_filter filter;
    bool has_filter;
    size_t budget_evals;   /* 0: TUNING_DEFAULT_EVALS, or all for a named strategy */
    double budget_seconds; /* 0: none */
    uint64_t seed, input_seed;
    const char *job; /* id, copied: names the runs "<job>/search" and "<job>/confirm" */
    uint64_t deadline_ms;
    bool no_nvrtc_cache;
    unsigned
        prior; /* TUNING_PRIOR_ bits: what the search begins with; an exhaustive one ignores it */
    bool is_local;         /* measure on this machine alone */
    const char *input;     /* of plugins/sparse.h, copied; NULL: the inputs follow from the shape */
    bool is_input_checked; /* a file only if `asker` may read it */
    uid_t asker;
    struct tuning_help help;
};

enum tuning_end { TUNING_DONE, TUNING_FAILED, TUNING_CANCELED };

struct tuning_progress {
    const char *phase; /* "preparing", "searching", "confirming" */
    size_t done, total;
    double best_ns, default_ns; /* 0: none yet */
    double configs_per_s, elapsed_s;
};

struct tuning;

struct tuning_callbacks {
    void (*on_progress)(const struct tuning_progress *progress, void *context);
    /* The last call. result: borrowed, the shape of `sweep --json`, NULL only if nothing was begun.
     */
    void (*on_done)(
        enum tuning_end end, const struct tune_error *err, json_t *result, void *context);
    void *context;
};

struct tuning *tuning_start(const struct tuning_deps *deps, const struct tuning_spec *spec,
    const struct tuning_callbacks *callbacks);

/* For watchers, into the params of a progress: "best_config" (null: none yet), "outcomes" (counts
 * by word) and "recent", what was evaluated since this was asked last: the newest
 * TUNING_RECENT_MAX, newest last, as {"config","outcome","median_ns","detail"}. Only from inside
 * on_progress. */
void tuning_tell(struct tuning *tuning, json_t *progress);

/* "none", "near", "static" or "all" as bits. */
int tuning_parse_prior(const char *word, unsigned *prior, struct tune_error *err);

/* Ends early with what there is; on_done follows, later. */
void tuning_cancel(struct tuning *tuning);

/* The daemon stops: no further callback, no further row; memory goes when its last task has
 * returned. What was committed is found again by the next start. */
void tuning_abandon(struct tuning *tuning);

#endif
