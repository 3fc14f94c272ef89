/* What the files of tuning share; see tuning.h. */
#ifndef TUNE_TUNING_INTERNAL_H
#define TUNE_TUNING_INTERNAL_H

#include "daemon/fleet/fleet.h"
#include "daemon/search/search.h"
#include "daemon/tuning.h"

#define TUNING_PRIOR_MAX 16

enum tuning_state {
    STATE_BUILDING, /* space and history are read on a pool thread */
    STATE_SEARCHING,
    STATE_CONFIRMING, /* images of the finalists, then the confirmation itself */
    STATE_PUBLISHING, /* confirmed rows and `best` are on their way to the disk */
    STATE_OVER,       /* on_done was called */
};

enum candidate_state {
    CANDIDATE_REMOTE, /* in a batch for another machine, or back from there without a result */
    CANDIDATE_COMPILING,
    CANDIDATE_FOLLOWING, /* waits for its equal */
    CANDIDATE_READY,
    CANDIDATE_BENCHING,
    CANDIDATE_COMMITTING,
    CANDIDATE_DONE,
};

/* What a bench worker needs of a configuration: the compiled image, launches, buffers. */
struct subject {
    json_t *package, *launches, *buffers;
};

struct candidate {
    struct tuning *tuning;
    size_t index; /* in the space */
    enum candidate_state state;
    struct candidate *next;      /* in the ready or the committing queue */
    struct candidate *leader;    /* the equal one that was first, or NULL */
    struct subject subject;      /* dropped once measured */
    struct record_hash identity; /* of image, launches and buffers */
    struct lane *lane;           /* that measured it, or NULL */
    unsigned attempts;
    bool is_default, is_counted;
    bool is_refused;        /* its time cannot be believed */
    bool is_again;          /* measured a second time, after a drift */
    unsigned control_round; /* of its lane, when it was measured */
    double level_ns;        /* the control's median then; 0: unknown */
    enum outcome outcome;
    double median_ns, lo_ns, hi_ns;
    char *detail; /* of what is no plain ok, until it is told or pushed out of `recent` */
};

/* A row of an earlier run, or of this one before a restart. */
struct known {
    size_t index;
    bool is_this_run, is_final, is_refused;
    enum outcome outcome;
    uint32_t attempts;
    double median_ns, lo_ns, hi_ns;
};

/* A device at work for this tuning. */
struct lane {
    struct tuning *tuning;
    size_t device_index; /* of the scheduler */
    struct device_info device;
    struct candidate *benching; /* or NULL */
    uint64_t sent_ns;
    bool is_lost; /* its device is out of use */
    /* The control (tuning_belief.c). */
    bool is_controlling, has_no_level; /* the last control gave no time */
    unsigned since_control, control_round;
    double level_ns, level_lo_ns, level_hi_ns; /* its last median and interval; 0: none yet */
};

struct candidate_queue {
    struct candidate *first, **end;
    size_t count;
};

struct tuning {
    struct tuning_deps deps;
    struct tuning_callbacks callbacks;
    struct plugin *plugin;
    const struct manifest *manifest;
    size_t lane_count;
    struct lane *lanes;
    struct device_info device; /* of the first lane; the others are of the same model */
    int64_t dims[MANIFEST_MAX_DIMS];
    char *dtype, *mode, *strategy, *job, *shape, *run_search, *run_again, *run_confirm;
    char *input; /* or NULL */
    bool is_input_checked;
    uid_t asker;
    struct space_filter filter;
    bool has_filter, no_nvrtc_cache;
    size_t budget_evals;
    double budget_seconds;
    uint64_t seed, input_seed, deadline_ms;
    /* Where the time went, for the result. */
    uint64_t started_ns, search_started_ns, confirm_started_ns;
    double bench_busy_s, compile_busy_s;
    size_t compiled, cached;
    struct record_key key;

    enum tuning_state state;
    bool is_abandoned, is_canceled, is_cut; /* cut: the time budget has ended */
    bool clock_runs, clock_counts;          /* counts: since the first measurement */
    struct tune_error error;
    int outstanding; /* pool work and open handles that keep the memory */
    uv_work_t work;
    uv_timer_t timer; /* time budget */
    uv_async_t turn;  /* runs pump() outside the caller's stack */

    struct space *space;
    struct search *search;
    struct known *known;
    size_t known_count;
    char method[8]; /* "event" or "graph", "" until chosen */
    bool search_is_done, default_is_proposed;
    size_t default_index;
    unsigned prior; /* TUNING_PRIOR_ bits */
    float *guesses; /* by configuration, for search_guess; NULL: there is no estimate */
    size_t prior_list[TUNING_PRIOR_MAX]; /* begun right after the default; first those of near
                                            shapes */
    size_t prior_count, prior_near, prior_next;

    json_t *harness, *reference, *setup; /* packages, and the request made of them */
    uint64_t session;
    unsigned setup_failures, device_failures;

    struct candidate **candidates; /* in order of proposal */
    size_t candidate_count, candidate_room;
    struct candidate **identities; /* open addressing, by identity */
    size_t identity_room;
    struct candidate_queue ready, committing;
    struct candidate *best, *standard; /* standard: the default's candidate */
    bool last_was_cached;              /* the image that came last */
    size_t compiling, following, counts[OUTCOME_COUNT], evaluations;
    /* A ring for tuning_tell: what was counted since it was asked. */
    struct candidate *recent[TUNING_RECENT_MAX];
    size_t recent_count;

    struct subject control; /* tuning_belief.c */
    size_t refused;

    /* Other machines (tuning_fleet.c). */
    bool is_local;
    char target[FLEET_TARGET_BYTES];
    struct batch *batches;           /* out, or being read; the newest first */
    struct candidate_queue returned; /* to be measured here after all */
    uv_timer_t patience;             /* with batches that the search waits for */
    size_t batch_count, offered, remote_evaluations, most_helpers, benched;
    unsigned useless_batches; /* in a row that brought nothing */

    /* Work for another machine. */
    bool is_helping;
    char **help_configs;
    size_t *help_indices; /* of those that are of the space */
    size_t help_config_count, help_count;
    double help_best_ns;

    /* confirmation */
    struct candidate *finalists[TUNING_CONFIRM_MAX + 1];
    size_t finalist_count, finalist_images;
    bool confirm_is_sent;
    double confirmed_lo[TUNING_CONFIRM_MAX + 1], confirmed_hi[TUNING_CONFIRM_MAX + 1],
        confirmed_median[TUNING_CONFIRM_MAX + 1];
    size_t confirmed_samples[TUNING_CONFIRM_MAX + 1];
    bool has_confirmed;
    json_t
        *messages; /* sentences for the person: via_ptx, disagreement of manifest and source, ... */
};

/* A row of `samples` to be written. */
struct row {
    const struct candidate *candidate;
    const char *run;
    enum outcome outcome;
    bool is_final, is_confirmed, is_refused;
    const json_t *answer; /* of the worker, or NULL */
    const char *detail;   /* a sentence for failures, or NULL: the answer's */
    const char *same_as;
    const char *log;                /* the compiler's, or NULL */
    double median_ns, lo_ns, hi_ns; /* used where there is no answer */
};

/* tuning.c: the state machine. */
void tuning_pump(struct tuning *tuning);
/* A candidate has ended. The budget's seconds count from the first measurement on: making the
 * inputs and their reference may take longer than the search. */
void tuning_start_clock(struct tuning *tuning);
/* The next configuration that the search proposes. False: none now. */
bool tuning_next(struct tuning *tuning, size_t *index);
/* Pool work or a handle that kept the memory has ended. */
void tuning_release(struct tuning *tuning);
void tuning_fail(struct tuning *tuning, enum tune_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tuning_over(struct tuning *tuning, enum tuning_end end);
void tuning_message(struct tuning *tuning, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* tuning_candidate.c */
void candidate_queue_init(struct candidate_queue *queue);
void candidate_queue_push(struct candidate_queue *queue, struct candidate *candidate);
void candidate_queue_push_front(struct candidate_queue *queue, struct candidate *candidate);
struct candidate *candidate_queue_pop(struct candidate_queue *queue); /* NULL: empty */
struct candidate *candidate_add(struct tuning *tuning, size_t index);
void candidate_drop_payload(struct candidate *candidate);
/* Equal image, launches and buffers make two candidates one: the place of the first with this
 * identity, which is NULL when there is none yet. */
void candidate_set_identity(struct candidate *candidate);
struct candidate **candidate_find_equal(struct tuning *tuning, const struct record_hash *identity);
/* A finished candidate: its row goes to the disk, and it counts once that is done. */
void candidate_finish(struct candidate *candidate, struct row *row);
void candidate_fail(struct candidate *candidate, enum outcome outcome, const char *detail);
void candidate_finish_followers(struct candidate *leader);
void candidate_count(struct candidate *candidate);
/* False for a default that the sweep's filter leaves out. */
bool tuning_is_of_space(const struct tuning *tuning, size_t index);
void tuning_report(struct tuning *tuning, const char *phase);
void tuning_forget_recent(struct tuning *tuning);

/* tuning_measure.c */
struct lane *tuning_first_lane(const struct tuning *tuning); /* that is not lost, or NULL */
void lanes_measure(struct tuning *tuning);                   /* on every lane that is free */
bool lanes_are_busy(const struct tuning *tuning);
/* Before the search is closed each device is looked at once more. True: wait for that. */
bool lanes_control_at_the_end(struct tuning *tuning);
/* No answer of a device is wanted any more; what runs is killed, so that the devices are free at
 * once. */
void lanes_leave(struct tuning *tuning);

/* tuning_compile.c */
void candidate_begin(struct tuning *tuning, size_t index);
/* A candidate for another machine, NULL where there is nothing to measure: its result is known or
 * it cannot be launched. */
struct candidate *candidate_begin_remote(struct tuning *tuning, size_t index);
void candidate_compile(struct candidate *candidate);
/* candidate NULL: the reference. */
void tuning_request_image(struct tuning *tuning, const struct candidate *candidate,
    image_callback callback, void *context);
void tuning_request_parts(struct tuning *tuning); /* harness and reference */

/* tuning_history.c: runs on a pool thread; reads the database, fills known, method, space. */
void tuning_read_history(struct tuning *tuning);
/* A row of this very run, measured on a GPU that ours may be compared with. */
bool tuning_is_of_run(const struct tuning *tuning, const struct sample *sample);
const struct known *tuning_known(const struct tuning *tuning, size_t index, bool this_run);

/* tuning_prior.c: after it on the same thread; fills prior_list. */
void tuning_find_prior(struct tuning *tuning);

/* tuning_row.c */
/* The times in a worker's answer; zeros where it has none. */
struct times {
    double median_ns, lo_ns, hi_ns;
};
struct times tuning_times(const json_t *answer);
/* The sentence of a failure, its own or the worker's; "" when there is none. Borrowed. */
const char *tuning_row_detail(const struct row *row);
/* Adds the row to the open batch. */
void tuning_add_row(struct tuning *tuning, const struct row *row);
/* Names the candidate that the lane is about to launch, in the open batch; none: what was named is
 * forgotten. */
void tuning_add_mark(struct lane *lane);

/* tuning_belief.c */
/* Whether a time lies under what physics or the timer allow; then *reason is a sentence. */
bool tuning_disbelieves(const struct tuning *tuning, double median_ns, char *reason, size_t room);
/* a is ok and, for the level of its lane, faster than b (NULL: nothing). */
bool tuning_is_better(const struct candidate *a, const struct candidate *b);
/* Looks for the best among all counted candidates anew. */
void tuning_find_best(struct tuning *tuning);
/* Its lower bound is within `margin` of the best's upper bound, levels considered. */
bool tuning_is_close(const struct candidate *candidate, double margin);
/* The best's upper bound as this lane would measure it now; 0: none. */
double tuning_best_ns_on(const struct lane *lane);
void tuning_keep_control(struct lane *lane, const struct candidate *candidate);
bool tuning_control_is_due(const struct lane *lane, bool is_last);
void tuning_take_control(struct lane *lane, const json_t *answer);
/* tuning_compile.c: compiles (from the cache) and measures a counted candidate once more. */
void tuning_begin_again(struct candidate *candidate);

/* tuning_fleet.c */
void remote_begin(struct tuning *tuning); /* its devices are known */
/* Whether others may measure for this search now. */
bool remote_is_possible(const struct tuning *tuning);
/* Batches for those who wait, of what the search proposes next. */
void remote_offer(struct tuning *tuning);
/* There is nothing to do here: what nobody has begun comes back. */
void remote_take_back(struct tuning *tuning);
/* No result is wanted any more. */
void remote_drop(struct tuning *tuning);
json_t *remote_json(const struct tuning *tuning); /* new */

/* tuning_confirm.c */
void tuning_confirm(struct tuning *tuning); /* starts, or goes on with, the confirmation */
json_t *tuning_setup_request(struct tuning *tuning, uint64_t session, uint64_t input_seed);
uint64_t tuning_new_session(void);

/* tuning_result.c */
json_t *tuning_result(const struct tuning *tuning); /* new reference */

#endif
