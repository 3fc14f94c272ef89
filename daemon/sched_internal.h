/* What the files of sched.h share: sched.c decides which task goes where, sched_slot.c knows
 * workers, sched_devices.c finds the devices, sched_task.c keeps queues. */
#ifndef TUNE_SCHED_INTERNAL_H
#define TUNE_SCHED_INTERNAL_H

#include "daemon/sched.h"
#include "daemon/worker.h"

#define SCHED_DEVICES_MAX 64

struct task {
    struct task *next;
    json_t *request, *setup;
    uint64_t session, deadline_ms; /* session 0: it needs none */
    unsigned losses;               /* workers that ended before they had read it */
    task_callback on_done;         /* NULL: cancelled */
    void *context;
};

struct task_queue {
    struct task *first, **end;
    size_t count;
};

enum slot_state {
    SLOT_OFF,      /* no process */
    SLOT_STARTING, /* hello not seen yet */
    SLOT_IDLE,
    SLOT_SETTING_UP, /* bench: session under way for `task` */
    SLOT_RUNNING,
    SLOT_ENDING, /* no further task; on_done is on its way */
};

struct slot {
    struct sched *sched;
    enum slot_state state;
    struct worker *worker;
    struct task *task;
    uint64_t request_id;             /* of what it was sent last */
    uint64_t task_began_ns, busy_ns; /* of `task`; of all tasks before it */
    unsigned start_failures;         /* in a row, without one answer between them */
    /* bench only */
    bool is_bench;
    size_t device;
    uint64_t session; /* held by the worker; 0: none */
    struct task_queue queue;
    uv_timer_t timer; /* idle limit, or pause before the next start */
    unsigned busy_tries;
    bool is_pausing, is_offline;
    char reason[256];
};

struct sched {
    uv_loop_t *loop;
    struct sched_options options;
    uv_async_t kick; /* dispatches on the next turn of the loop */
    struct compiler_info compiler;
    uint64_t compiler_failed_at_ms;
    struct task_queue compile_queue;
    struct slot *compile_slots;
    size_t device_count;
    struct device_info *devices;
    struct slot *bench_slots;
    struct worker *lister; /* the short-lived "devices" worker */
    bool devices_known, are_devices_told;
    char device_error[256];
    uint64_t next_request_id, worker_deaths;
    void (*on_ready)(void *context);
    void *ready_context;
    bool is_ready, is_stopping;
    int open_handles;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

/* sched_task.c */
void task_queue_init(struct task_queue *queue);
void task_queue_push(struct task_queue *queue, struct task *task);
void task_queue_push_front(struct task_queue *queue, struct task *task);
struct task *task_queue_pop(struct task_queue *queue); /* NULL: empty */
/* Tasks of this context go away without a word. */
void task_queue_drop(struct task_queue *queue, const void *context);
/* All end as TASK_UNAVAILABLE. */
void task_queue_fail(struct task_queue *queue, const char *why);
/* Tells the asker and frees the task. */
void task_finish(struct task *task, enum task_end end, const json_t *answer, const char *why);
void task_destroy(struct task *task);
/* Copies a sentence, cut at a whole character. */
void sched_set_text(char *to, size_t room, const char *text);

/* sched_slot.c */
void slot_init(struct sched *sched, struct slot *slot);
void slot_start(struct slot *slot);
void slot_run(struct slot *slot, struct task *task);
/* The time in which it had a task, since the start. */
double slot_busy_s(const struct slot *slot);
/* What is wrong with a hello, or NULL; borrowed from it. */
const char *sched_hello_error(const json_t *hello, const char *expected_role);

/* sched_devices.c */
void sched_list_devices(struct sched *sched);

/* sched.c */
void sched_dispatch(struct sched *sched);
void sched_maybe_ready(struct sched *sched);
void sched_compiler_missing(struct sched *sched, const char *why);
void sched_maybe_stopped(struct sched *sched);

#endif
