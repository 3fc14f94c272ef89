/* Which task goes to which worker: compile workers in one pool, one bench worker per device.
 *
 * Design. A task is a request of daemon/worker/pipe.h. Compile tasks go in order of arrival to the
 * first free of N workers, started as they are needed. Bench tasks queue per device; each names the
 * session (inputs and reference) that it needs, and a worker that does not hold it, because it is
 * new or worked for another, gets the session's setup request first. Workers come and go
 * underneath: a lost worker costs the task it was working on, never another one; a task that it had
 * not read yet goes back to the head of its queue. A completion never runs inside the call that
 * submitted the task.
 *
 * A device whose workers fail to start or die three times in a row without one answer is set
 * offline: its tasks fail with the reason until sched_revive. A device that is busy (exclusive
 * mode, another program) is tried again with growing pauses. Idle bench workers end after
 * SCHED_BENCH_IDLE_MS, so that they do not hold a context and memory on the card; idle compile
 * workers after SCHED_COMPILE_IDLE_MS. */
#ifndef TUNE_SCHED_H
#define TUNE_SCHED_H

#include "client/error.h"
#include "plugins/device.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#define SCHED_BENCH_IDLE_MS 30000
#define SCHED_COMPILE_IDLE_MS 600000
#define SCHED_HELLO_DEADLINE_MS 20000
#define SCHED_START_FAILURES_MAX 3
#define SCHED_BUSY_TRIES_MAX 10
#define SCHED_ARCHS_MAX 64

struct sched;

struct sched_options {
    const char *worker_path;
    const char *const *env; /* of the workers, whole, NULL-ended; borrowed */
    unsigned compile_workers;
    uint64_t compile_deadline_ms;
    size_t compile_memory_limit_bytes;
    const char *devices; /* comma-separated ordinals to use, NULL: all */
    /* Once, when sched_devices_known; before on_ready, which needs the compiler too, and with the
     * same context. May be NULL. */
    void (*on_devices)(void *context);
    /* 0: the usual, as defined above and in sched.c. */
    uint64_t hello_deadline_ms, setup_deadline_ms, begin_deadline_ms, lock_deadline_ms,
        bench_idle_ms, compile_idle_ms;
    uint64_t busy_pause_ms;     /* the first pause before a busy device is tried again */
    uint64_t compiler_retry_ms; /* how long a compiler that cannot start is not tried again */
};

/* What is known of NVRTC, from the first compile worker's hello. */
struct compiler_info {
    bool is_known;     /* a hello came */
    char error[256];   /* why there is none, "" when there is */
    char nvrtc[16];    /* "13.0" */
    char path[512];    /* of the library */
    char include[512]; /* toolkit headers, "" when not found */
    int arch_count;
    int archs[SCHED_ARCHS_MAX];
    bool is_emulated;
};

enum task_end {
    TASK_ANSWERED,     /* answer is the worker's */
    TASK_CRASHED,      /* the worker died on it */
    TASK_TIMED_OUT,    /* the worker was killed at the task's deadline */
    TASK_OVER_MEMORY,  /* the worker was killed at its memory limit */
    TASK_SETUP_FAILED, /* the session could not be set up; answer is the worker's, or NULL */
    TASK_UNAVAILABLE,  /* no worker can be had; why says so */
};

struct task_result {
    enum task_end end;
    const json_t *answer; /* borrowed during the call; NULL unless said above */
    const char *why;      /* a sentence; "" for TASK_ANSWERED */
};

typedef void (*task_callback)(const struct task_result *result, void *context);

/* on_ready is called once, when devices and compiler are known (or known to be missing). */
struct sched *sched_create(uv_loop_t *loop, const struct sched_options *options,
    void (*on_ready)(void *context), void *context);
bool sched_is_ready(const struct sched *sched);

/* Takes request. */
void sched_compile(struct sched *sched, json_t *request, task_callback on_done, void *context);
/* Takes request, keeps a reference to setup. `session` is unique per setup; setup NULL and session
 * 0: the request needs none, and the worker keeps the one it has. */
void sched_bench(struct sched *sched, size_t device, json_t *setup, uint64_t session,
    json_t *request, uint64_t deadline_ms, task_callback on_done, void *context);
/* Queued tasks of this context go away, running ones lose their callback. */
void sched_cancel(struct sched *sched, const void *context);
/* Kills the worker that runs a bench task of this context, so that its device is free at once. */
void sched_abort(struct sched *sched, const void *context);

const struct compiler_info *sched_compiler(const struct sched *sched);
bool sched_devices_known(const struct sched *sched); /* how many there are is told below */
size_t sched_device_count(const struct sched *sched);
const struct device_info *sched_device(const struct sched *sched, size_t device);
/* "idle", "starting", "running", "busy" or "offline", with a reason for the last two. */
const char *sched_device_state(const struct sched *sched, size_t device, const char **reason);
/* Why there are no devices; "" when there are. */
const char *sched_device_error(const struct sched *sched);
void sched_revive(struct sched *sched, size_t device);
/* For `stats`: workers alive and tasks waiting. */
void sched_counts(const struct sched *sched, size_t *compile_workers, size_t *bench_workers,
    size_t *compile_queue, uint64_t *worker_deaths);

/* What the workers do: how many have a task now, and for how long they had one since the start,
 * summed over them (the tasks at hand up to now). A bench worker that waits for its GPU counts. */
struct sched_work {
    size_t compile_busy, bench_busy;
    double compile_busy_s, bench_busy_s;
};
void sched_work(const struct sched *sched, struct sched_work *work);
double sched_device_busy_s(const struct sched *sched, size_t device);

/* Ends all workers; on_stopped is called when all are gone and the scheduler is freed. */
void sched_stop(struct sched *sched, void (*on_stopped)(void *context), void *context);

#endif
