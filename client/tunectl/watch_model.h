/* What `watch` knows: running sweeps with what became of their configurations, how busy the daemon
 * is, and what the person at the keys wants to see.
 *
 * Pure: fed with what the daemon sends and with moments, so that tests need neither. Moments are
 * seconds of a clock that does not jump; wall_offset_s makes time of day of them. */
#ifndef TUNECTL_WATCH_MODEL_H
#define TUNECTL_WATCH_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define WATCH_RECENT_MAX 256   /* results kept of a sweep */
#define WATCH_POINTS_MAX 128   /* moments kept for its rate */
#define WATCH_RATE_WINDOW_S 10 /* over which the rate is taken */
#define WATCH_LOADS_MAX 6      /* stats kept, one a second, for the share of busy time */
#define WATCH_GPUS_MAX 64

/* What became of a configuration. */
struct watch_result {
    char *config, *outcome, *detail; /* detail "": nothing to say */
    double median_ns, told_s;        /* 0: no time */
};

struct watch_job {
    char *id, *kernel, *shape, *phase;
    char *best_config; /* "" when there is none yet */
    double shape_index, shape_count;
    double done, total, best_ns, default_ns;
    double mean_rate, elapsed_s; /* as the daemon tells them, at told_s */
    double told_s;
    json_t *outcomes; /* counts by word */
    struct {
        double at_s, done;
    } points[WATCH_POINTS_MAX]; /* the oldest first */
    size_t point_count;
    /* A ring: result i of all that were told is at i % WATCH_RECENT_MAX. */
    struct watch_result recent[WATCH_RECENT_MAX];
    size_t recent_count, shape_first; /* all that were told; those before this shape */
    size_t shown_count;               /* less than recent_count while the list stands still */
};

struct watch_gpu {
    int ordinal;
    char *name, *state, *reason;
    double busy_s[WATCH_LOADS_MAX];
};

struct watch_model {
    double wall_offset_s;
    char *only;              /* the one job that is watched, or NULL: all */
    struct watch_job **jobs; /* that run */
    size_t job_count, selected;
    char *last_end; /* which job ended last, in words; or NULL */
    /* From stats. */
    double uptime_s, clients, jobs_active, jobs_queued;
    double compile_alive, compile_busy, compile_queue;
    struct {
        double uptime_s, compile_busy_s;
    } loads[WATCH_LOADS_MAX]; /* the oldest first; of the same moments as the GPUs' busy_s */
    size_t load_count;
    struct watch_gpu *gpus;
    size_t gpu_count;
    /* From the keys. */
    bool is_paused, shows_help;
    char *asked;   /* whether this job shall be canceled; NULL: no question */
    char *message; /* until the next key; or NULL */
};

void watch_init(struct watch_model *model, const char *only, double wall_offset_s);
void watch_finish(struct watch_model *model);

/* A `progress` or `done`. */
void watch_notify(struct watch_model *model, const json_t *message, double now_s);
/* The reply to `jobs`: those that ran before we listened. */
void watch_take_jobs(struct watch_model *model, const json_t *jobs, double now_s);
/* The replies to `stats` and `devices`, asked together. */
void watch_take_stats(struct watch_model *model, const json_t *stats, const json_t *devices);

enum watch_action {
    WATCH_STAY,
    WATCH_LEAVE,
    WATCH_CANCEL, /* the job in `asked`; then watch_canceled */
};
#define WATCH_KEY_ESCAPE 27
/* A key: q, Escape, j, k, p, c, y, n, ?; others do nothing. */
enum watch_action watch_key(struct watch_model *model, int key);
/* The daemon's answer; error NULL: it does so. */
void watch_canceled(struct watch_model *model, const char *error);

const struct watch_job *watch_selected(const struct watch_model *model); /* NULL: nothing runs */
/* Configurations per second lately; at the beginning the daemon's own mean. */
double watch_rate(const struct watch_job *job, double now_s);
double watch_elapsed_s(const struct watch_job *job, double now_s);
double watch_left_s(const struct watch_job *job, double now_s); /* -1: not known */
/* Result `age` of those on show, 0 the newest; NULL: there are not so many. */
const struct watch_result *watch_recent(const struct watch_job *job, size_t age);
/* The times of the last results of this shape, the oldest first; 0: none. How many. */
size_t watch_times(const struct watch_job *job, double *times_ns, size_t room);

/* Busy share of the last seconds, 0 to 1; -1: not known. */
double watch_gpu_share(const struct watch_model *model, size_t gpu);
double watch_compile_share(const struct watch_model *model);

#endif
