/* See sched.h. Here: which task goes where, and the public functions. */
#include "daemon/sched_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SETUP_DEADLINE_MS 120000 /* a reference on a large shape takes seconds */
#define LOCK_DEADLINE_MS 600000  /* another tunerd may be measuring on the same GPU */
#define BEGIN_DEADLINE_MS                                                                          \
    10000 /* a bench worker that does not even say that it waits for the GPU */
#define BUSY_FIRST_PAUSE_MS 100
#define RETRY_COMPILER_AFTER_MS 5000

/* --- readiness -------------------------------------------------------------------------------- */

void sched_maybe_ready(struct sched *sched)
{
    if (sched->devices_known && !sched->are_devices_told) {
        sched->are_devices_told = true;
        if (sched->options.on_devices != NULL)
            sched->options.on_devices(sched->ready_context);
    }
    if (sched->is_ready || !sched->devices_known ||
        !(sched->compiler.is_known || sched->compiler.error[0] != '\0'))
        return;
    sched->is_ready = true;
    sched->on_ready(sched->ready_context);
}

void sched_compiler_missing(struct sched *sched, const char *why)
{
    sched_set_text(sched->compiler.error, sizeof sched->compiler.error, why);
    sched->compiler_failed_at_ms = uv_now(sched->loop);
}

/* --- sched_dispatch
 * --------------------------------------------------------------------------------- */

static struct slot *free_compile_slot(struct sched *sched, bool *may_come)
{
    struct slot *off = NULL;
    for (unsigned i = 0; i < sched->options.compile_workers; i++) {
        struct slot *slot = &sched->compile_slots[i];
        if (slot->state == SLOT_IDLE)
            return slot;
        if (slot->state == SLOT_OFF)
            off = off ? off : slot;
        else
            *may_come = true;
    }
    return off;
}

static bool compiler_is_hopeless(struct sched *sched)
{
    return sched->compiler.error[0] != '\0' &&
           uv_now(sched->loop) - sched->compiler_failed_at_ms < sched->options.compiler_retry_ms;
}

static void dispatch_compiles(struct sched *sched)
{
    while (sched->compile_queue.first != NULL) {
        bool may_come = false;
        struct slot *slot = free_compile_slot(sched, &may_come);
        if (slot == NULL)
            return;
        if (slot->state == SLOT_IDLE) {
            slot_run(slot, task_queue_pop(&sched->compile_queue));
            continue;
        }
        /* One new worker per waiting task, counting those that are on their way up. */
        size_t starting = 0;
        for (unsigned i = 0; i < sched->options.compile_workers; i++)
            starting += sched->compile_slots[i].state == SLOT_STARTING;
        if (starting >= sched->compile_queue.count)
            return;
        if (compiler_is_hopeless(sched)) {
            if (!may_come)
                task_queue_fail(&sched->compile_queue, sched->compiler.error);
            return;
        }
        slot_start(slot);
        if (slot->state == SLOT_OFF)
            return;
    }
}

static void dispatch_bench(struct slot *slot)
{
    if (slot->queue.first == NULL)
        return;
    if (slot->state == SLOT_IDLE) {
        slot_run(slot, task_queue_pop(&slot->queue));
        return;
    }
    if (slot->state != SLOT_OFF || slot->is_pausing)
        return;
    if (!slot->is_offline && slot->start_failures >= SCHED_START_FAILURES_MAX) {
        slot->is_offline = true;
        log_warnx("device %zu is offline: %s", slot->device, slot->reason);
    }
    if (slot->is_offline)
        task_queue_fail(&slot->queue, slot->reason);
    else
        slot_start(slot);
}

/* The first compile worker comes before the first request: its hello says which NVRTC there is. */
static void meet_compiler(struct sched *sched)
{
    struct slot *slot = &sched->compile_slots[0];
    if (!sched->is_ready && !sched->compiler.is_known && sched->compiler.error[0] == '\0' &&
        slot->state == SLOT_OFF)
        slot_start(slot);
}

static void fail_all(struct sched *sched, const char *why)
{
    task_queue_fail(&sched->compile_queue, why);
    for (size_t i = 0; i < sched_device_count(sched); i++)
        task_queue_fail(&sched->bench_slots[i].queue, why);
}

void sched_dispatch(struct sched *sched)
{
    if (sched->is_stopping) {
        fail_all(sched, "the daemon is stopping");
        return;
    }
    meet_compiler(sched);
    sched_maybe_ready(sched);
    dispatch_compiles(sched);
    for (size_t i = 0; i < sched_device_count(sched); i++)
        dispatch_bench(&sched->bench_slots[i]);
}

static void on_kick(uv_async_t *kick)
{
    sched_dispatch(kick->data);
}

/* --- public ----------------------------------------------------------------------------------- */

static void fill_defaults(struct sched_options *options)
{
    struct {
        uint64_t *value, usual;
    } fields[] = {
        {&options->hello_deadline_ms, SCHED_HELLO_DEADLINE_MS},
        {&options->setup_deadline_ms, SETUP_DEADLINE_MS},
        {&options->lock_deadline_ms, LOCK_DEADLINE_MS},
        {&options->begin_deadline_ms, BEGIN_DEADLINE_MS},
        {&options->bench_idle_ms, SCHED_BENCH_IDLE_MS},
        {&options->compile_idle_ms, SCHED_COMPILE_IDLE_MS},
        {&options->busy_pause_ms, BUSY_FIRST_PAUSE_MS},
        {&options->compiler_retry_ms, RETRY_COMPILER_AFTER_MS},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (*fields[i].value == 0)
            *fields[i].value = fields[i].usual;
}

struct sched *sched_create(uv_loop_t *loop, const struct sched_options *options,
    void (*on_ready)(void *context), void *context)
{
    struct sched *sched = xcalloc(1, sizeof *sched);
    sched->loop = loop;
    sched->options = *options;
    fill_defaults(&sched->options);
    sched->on_ready = on_ready;
    sched->ready_context = context;
    sched->devices = xcalloc(SCHED_DEVICES_MAX, sizeof *sched->devices);
    sched->compile_slots = xcalloc(options->compile_workers, sizeof *sched->compile_slots);
    task_queue_init(&sched->compile_queue);
    uv_async_init(loop, &sched->kick, on_kick);
    sched->kick.data = sched;
    sched->open_handles = 1;
    for (unsigned i = 0; i < options->compile_workers; i++)
        slot_init(sched, &sched->compile_slots[i]);
    sched_list_devices(sched);
    uv_async_send(&sched->kick); /* on_ready must not come from inside this call */
    return sched;
}

bool sched_is_ready(const struct sched *sched)
{
    return sched->is_ready;
}

void sched_compile(struct sched *sched, json_t *request, task_callback on_done, void *context)
{
    struct task *task = xcalloc(1, sizeof *task);
    task->request = request;
    task->deadline_ms = sched->options.compile_deadline_ms;
    task->on_done = on_done;
    task->context = context;
    task_queue_push(&sched->compile_queue, task);
    uv_async_send(&sched->kick);
}

void sched_bench(struct sched *sched, size_t device, json_t *setup, uint64_t session,
    json_t *request, uint64_t deadline_ms, task_callback on_done, void *context)
{
    assert(device < sched->device_count && (session != 0) == (setup != NULL));
    struct task *task = xcalloc(1, sizeof *task);
    task->request = request;
    task->setup = json_incref(setup);
    task->session = session;
    task->deadline_ms = deadline_ms;
    task->on_done = on_done;
    task->context = context;
    task_queue_push(&sched->bench_slots[device].queue, task);
    uv_async_send(&sched->kick);
}

static void for_each_slot(
    struct sched *sched, void (*visit)(struct slot *, const void *), const void *context)
{
    for (unsigned i = 0; i < sched->options.compile_workers; i++)
        visit(&sched->compile_slots[i], context);
    for (size_t i = 0; sched->bench_slots != NULL && i < sched->device_count; i++)
        visit(&sched->bench_slots[i], context);
}

static void cancel_in_slot(struct slot *slot, const void *context)
{
    if (slot->task != NULL && slot->task->context == context)
        slot->task->on_done = NULL;
    if (slot->is_bench)
        task_queue_drop(&slot->queue, context);
}

void sched_cancel(struct sched *sched, const void *context)
{
    task_queue_drop(&sched->compile_queue, context);
    for_each_slot(sched, cancel_in_slot, context);
}

static void abort_in_slot(struct slot *slot, const void *context)
{
    if (!slot->is_bench || slot->task == NULL || slot->task->context != context)
        return;
    slot->task->on_done = NULL;
    slot->state = SLOT_ENDING;
    worker_kill(slot->worker, "its task was cancelled");
}

void sched_abort(struct sched *sched, const void *context)
{
    for_each_slot(sched, abort_in_slot, context);
}

const struct compiler_info *sched_compiler(const struct sched *sched)
{
    return &sched->compiler;
}

size_t sched_device_count(const struct sched *sched)
{
    return sched->bench_slots ? sched->device_count : 0;
}

const struct device_info *sched_device(const struct sched *sched, size_t device)
{
    return &sched->devices[device];
}

bool sched_devices_known(const struct sched *sched)
{
    return sched->devices_known;
}

const char *sched_device_error(const struct sched *sched)
{
    return sched->device_error;
}

const char *sched_device_state(const struct sched *sched, size_t device, const char **reason)
{
    const struct slot *slot = &sched->bench_slots[device];
    *reason = slot->is_offline || slot->is_pausing ? slot->reason : "";
    if (slot->is_offline)
        return "offline";
    if (slot->is_pausing)
        return "busy";
    if (slot->state == SLOT_STARTING)
        return "starting";
    return slot->state == SLOT_RUNNING || slot->state == SLOT_SETTING_UP ? "running" : "idle";
}

void sched_revive(struct sched *sched, size_t device)
{
    struct slot *slot = &sched->bench_slots[device];
    slot->is_offline = false;
    slot->start_failures = 0;
    slot->busy_tries = 0;
    uv_async_send(&sched->kick);
}

void sched_counts(const struct sched *sched, size_t *compile_workers, size_t *bench_workers,
    size_t *compile_queue, uint64_t *worker_deaths)
{
    *compile_workers = *bench_workers = 0;
    for (unsigned i = 0; i < sched->options.compile_workers; i++)
        *compile_workers += sched->compile_slots[i].worker != NULL;
    for (size_t i = 0; i < sched_device_count(sched); i++)
        *bench_workers += sched->bench_slots[i].worker != NULL;
    *compile_queue = sched->compile_queue.count;
    *worker_deaths = sched->worker_deaths;
}

void sched_work(const struct sched *sched, struct sched_work *work)
{
    *work = (struct sched_work){0};
    for (unsigned i = 0; i < sched->options.compile_workers; i++) {
        work->compile_busy += sched->compile_slots[i].task != NULL;
        work->compile_busy_s += slot_busy_s(&sched->compile_slots[i]);
    }
    for (size_t i = 0; i < sched_device_count(sched); i++) {
        work->bench_busy += sched->bench_slots[i].task != NULL;
        work->bench_busy_s += slot_busy_s(&sched->bench_slots[i]);
    }
}

double sched_device_busy_s(const struct sched *sched, size_t device)
{
    return slot_busy_s(&sched->bench_slots[device]);
}

/* --- stopping --------------------------------------------------------------------------------- */

static void free_all(struct sched *sched)
{
    void (*on_stopped)(void *) = sched->on_stopped;
    void *context = sched->stopped_context;
    fail_all(sched, "the daemon is stopping"); /* what was submitted since */
    free(sched->compile_slots);
    free(sched->bench_slots);
    free(sched->devices);
    free(sched);
    on_stopped(context);
}

static void on_kick_closed(uv_handle_t *handle)
{
    struct sched *sched = handle->data;
    if (--sched->open_handles == 0)
        free_all(sched);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct slot *slot = handle->data;
    struct sched *sched = slot->sched;
    if (--sched->open_handles == 0)
        free_all(sched);
}

static void close_timer(struct slot *slot, const void *context)
{
    (void)context;
    uv_close((uv_handle_t *)&slot->timer, on_timer_closed);
}

void sched_maybe_stopped(struct sched *sched)
{
    size_t compile_workers, bench_workers, queue;
    uint64_t deaths;
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    if (compile_workers + bench_workers > 0 || sched->lister != NULL ||
        uv_is_closing((uv_handle_t *)&sched->kick))
        return;
    for_each_slot(sched, close_timer, NULL);
    uv_close((uv_handle_t *)&sched->kick, on_kick_closed);
}

static void stop_slot(struct slot *slot, const void *context)
{
    (void)context;
    uv_timer_stop(&slot->timer);
    if (slot->worker == NULL)
        return;
    if (slot->task != NULL)
        slot->task->on_done = NULL;
    slot->state = SLOT_ENDING;
    worker_stop(slot->worker);
}

void sched_stop(struct sched *sched, void (*on_stopped)(void *context), void *context)
{
    sched->is_stopping = true;
    sched->on_stopped = on_stopped;
    sched->stopped_context = context;
    for_each_slot(sched, stop_slot, NULL);
    fail_all(sched, "the daemon is stopping");
    if (sched->lister != NULL)
        worker_kill(sched->lister, "the daemon is stopping");
    sched_maybe_stopped(sched);
}
