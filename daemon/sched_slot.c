/* A worker and the place it works in: started, met, given tasks, lost. */
#include "daemon/sched_internal.h"

#include "daemon/log.h"
#include "daemon/worker/pipe.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_DOUBLINGS 5
#define TASK_LOSSES_MAX                                                                            \
    8 /* how often a task may go back to its queue: it was never read, so it is not to blame */

static void on_slot_message(struct worker *worker, json_t *message, void *context);
static void on_slot_done(struct worker *worker, const struct worker_end *end, void *context);

/* A worker did not come up, or went down unexpectedly. */
static void slot_failed(struct slot *slot, bool was_starting, const char *why)
{
    slot->start_failures++;
    sched_set_text(slot->reason, sizeof slot->reason, why);
    if (!slot->is_bench && was_starting && slot->start_failures >= SCHED_START_FAILURES_MAX)
        sched_compiler_missing(slot->sched, why);
}

void slot_init(struct sched *sched, struct slot *slot)
{
    slot->sched = sched;
    uv_timer_init(sched->loop, &slot->timer);
    slot->timer.data = slot;
    sched->open_handles++;
}

void slot_start(struct slot *slot)
{
    struct sched *sched = slot->sched;
    char ordinal[16] = "";
    if (slot->is_bench)
        snprintf(ordinal, sizeof ordinal, "%d", sched->devices[slot->device].ordinal);
    const char *argv[] = {sched->options.worker_path, slot->is_bench ? "bench" : "compile",
        slot->is_bench ? "--device" : NULL, slot->is_bench ? ordinal : NULL, NULL};
    struct worker_options options = {
        .argv = argv,
        .env = sched->options.env,
        .hello_deadline_ms = sched->options.hello_deadline_ms,
        .memory_limit_bytes = slot->is_bench ? 0 : sched->options.compile_memory_limit_bytes,
    };
    struct worker_callbacks callbacks = {on_slot_message, on_slot_done, slot};
    struct tune_error err = {0};
    slot->session = 0;
    slot->worker = worker_start(sched->loop, &options, &callbacks, &err);
    if (slot->worker != NULL) {
        slot->state = SLOT_STARTING;
        return;
    }
    log_warnx("%s", err.text);
    slot_failed(slot, true, err.text);
    uv_async_send(&sched->kick); /* try again or give up, on the next turn */
}

static uint64_t slot_deadline_ms(const struct slot *slot)
{
    return slot->state == SLOT_SETTING_UP ? slot->sched->options.setup_deadline_ms
                                          : slot->task->deadline_ms;
}

/* A bench worker says at once that it has begun to wait for the GPU lock, perhaps for long; its own
 * deadline begins when it says that it has the lock. */
static void send_to_slot(struct slot *slot, json_t *request)
{
    uint64_t deadline_ms =
        slot->is_bench ? slot->sched->options.begin_deadline_ms : slot_deadline_ms(slot);
    slot->request_id = ++slot->sched->next_request_id;
    json_object_set_new(request, "id", json_integer((json_int_t)slot->request_id));
    worker_send(slot->worker, request, deadline_ms);
}

double slot_busy_s(const struct slot *slot)
{
    uint64_t current_ns = slot->task != NULL ? uv_hrtime() - slot->task_began_ns : 0;
    return (double)(slot->busy_ns + current_ns) / 1e9;
}

/* The slot has no task any more. */
static struct task *slot_take_task(struct slot *slot)
{
    struct task *task = slot->task;
    if (task != NULL)
        slot->busy_ns += uv_hrtime() - slot->task_began_ns;
    slot->task = NULL;
    return task;
}

void slot_run(struct slot *slot, struct task *task)
{
    slot->task = task;
    slot->task_began_ns = uv_hrtime();
    uv_timer_stop(&slot->timer);
    if (task->session != 0 && slot->session != task->session) {
        slot->state = SLOT_SETTING_UP;
        slot->session = 0;
        send_to_slot(slot, task->setup);
        return;
    }
    slot->state = SLOT_RUNNING;
    send_to_slot(slot, task->request);
}

static void on_idle_limit(uv_timer_t *timer)
{
    struct slot *slot = timer->data;
    if (slot->state != SLOT_IDLE)
        return;
    log_debug("%s worker %d was idle: ended", slot->is_bench ? "bench" : "compile",
        worker_pid(slot->worker));
    slot->state = SLOT_ENDING;
    worker_stop(slot->worker);
}

static void slot_rest(struct slot *slot)
{
    slot->state = SLOT_IDLE;
    const struct sched_options *options = &slot->sched->options;
    uv_timer_start(&slot->timer, on_idle_limit,
        slot->is_bench ? options->bench_idle_ms : options->compile_idle_ms, 0);
    uv_async_send(&slot->sched->kick);
}

static void copy_text(char *to, size_t room, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(to, room, "%s", text ? text : "");
}

static void take_compiler(struct sched *sched, const json_t *hello)
{
    struct compiler_info *info = &sched->compiler;
    copy_text(info->nvrtc, sizeof info->nvrtc, hello, "nvrtc");
    copy_text(info->path, sizeof info->path, hello, "nvrtc_path");
    copy_text(info->include, sizeof info->include, hello, "include");
    info->is_emulated = json_is_true(json_object_get(hello, "emulated"));
    info->error[0] = '\0';
    info->arch_count = 0;
    size_t i;
    json_t *arch;
    json_array_foreach (json_object_get(hello, "archs"), i, arch) {
        if (info->arch_count < SCHED_ARCHS_MAX)
            info->archs[info->arch_count++] = (int)json_integer_value(arch);
    }
    if (!info->is_known)
        log_info("NVRTC %s at %s", info->nvrtc, info->path);
    info->is_known = true;
}

static void slot_refused(struct slot *slot, const json_t *hello, const char *error)
{
    struct sched *sched = slot->sched;
    sched_set_text(slot->reason, sizeof slot->reason, error);
    slot->state = SLOT_ENDING;
    if (!slot->is_bench) {
        sched_compiler_missing(sched, error);
        worker_kill(slot->worker, "it cannot compile");
    } else {
        bool is_busy = json_is_true(json_object_get(hello, "busy"));
        if (is_busy && ++slot->busy_tries < SCHED_BUSY_TRIES_MAX)
            slot->is_pausing = true;
        else if (json_integer_value(json_object_get(hello, "code")) != 0)
            slot->start_failures =
                SCHED_START_FAILURES_MAX; /* the device's fault: one try is enough */
        else
            slot->start_failures++;
        worker_kill(slot->worker, "it cannot use its device");
    }
    log_warnx("%s worker: %s", slot->is_bench ? "bench" : "compile", error);
    sched_maybe_ready(sched);
}

/* Why a worker cannot be used, in its own words or ours; NULL when it can. */
const char *sched_hello_error(const json_t *hello, const char *expected_role)
{
    const char *role = json_string_value(json_object_get(hello, "hello"));
    if (role == NULL || strcmp(role, expected_role) != 0 ||
        json_integer_value(json_object_get(hello, "pipe")) != PIPE_VERSION)
        return "tune-worker and tunerd are of different versions: install both from one package";
    return json_string_value(json_object_get(hello, "error"));
}

static void take_hello(struct slot *slot, const json_t *hello)
{
    const char *error = sched_hello_error(hello, slot->is_bench ? "bench" : "compile");
    struct device_info device = {0};
    struct tune_error err = {0};
    if (error == NULL && slot->is_bench &&
        device_from_json(json_object_get(hello, "device"), &device, &err))
        error = err.text;
    if (error != NULL) {
        slot_refused(slot, hello, error);
        return;
    }
    if (slot->is_bench) {
        struct device_info *known = &slot->sched->devices[slot->device];
        device.ordinal = known->ordinal; /* it names the device to the next worker too */
        *known = device;
    } else {
        take_compiler(slot->sched, hello);
    }
    slot->busy_tries = 0;
    worker_settle(slot->worker);
    slot_rest(slot);
    sched_maybe_ready(slot->sched);
}

static void take_answer(struct slot *slot, const json_t *answer)
{
    struct task *task = slot->task;
    bool is_last = json_is_true(json_object_get(answer, "sticky"));
    bool was_setup = slot->state == SLOT_SETTING_UP;
    bool is_ok = json_is_true(json_object_get(answer, "ok"));
    slot->start_failures = 0;
    if (was_setup && is_ok) {
        slot->session = task->session;
        slot->state = SLOT_RUNNING;
        send_to_slot(slot, task->request);
        return;
    }
    slot_take_task(slot);
    if (is_last) {
        slot->state = SLOT_ENDING;
        worker_stop(slot->worker); /* it ends by itself; this sets the limit */
    } else {
        slot_rest(slot);
    }
    const char *error = json_string_value(json_object_get(answer, "error"));
    task_finish(task, was_setup ? TASK_SETUP_FAILED : TASK_ANSWERED, answer,
        was_setup && error ? error : "");
}

static void on_slot_message(struct worker *worker, json_t *message, void *context)
{
    struct slot *slot = context;
    if (slot->state == SLOT_STARTING) {
        take_hello(slot, message);
        return;
    }
    if (slot->state == SLOT_ENDING)
        return;
    bool is_asked = slot->state == SLOT_SETTING_UP || slot->state == SLOT_RUNNING;
    json_int_t id = json_integer_value(json_object_get(message, "id"));
    if (!is_asked || id != (json_int_t)slot->request_id) {
        worker_kill(worker, "it answered what was not asked");
        return;
    }
    const char *event = json_string_value(json_object_get(message, "event"));
    if (event != NULL) {
        bool is_waiting = strcmp(event, "waiting") == 0;
        worker_extend(
            worker, is_waiting ? slot->sched->options.lock_deadline_ms : slot_deadline_ms(slot));
        return;
    }
    worker_settle(worker);
    take_answer(slot, message);
}

static enum task_end end_of_task(const struct worker_end *end)
{
    if (end->over_memory)
        return TASK_OVER_MEMORY;
    return end->missed_deadline ? TASK_TIMED_OUT : TASK_CRASHED;
}

static void on_pause_over(uv_timer_t *timer)
{
    struct slot *slot = timer->data;
    slot->is_pausing = false;
    sched_dispatch(slot->sched);
}

static void pause_slot(struct slot *slot)
{
    unsigned doublings = slot->busy_tries - 1;
    uint64_t pause_ms = slot->sched->options.busy_pause_ms
                        << (doublings > BUSY_DOUBLINGS ? BUSY_DOUBLINGS : doublings);
    uv_timer_start(&slot->timer, on_pause_over, pause_ms, 0);
}

/* The worker is gone: what becomes of its task. */
static void lose_task(
    struct slot *slot, struct task *task, bool was_setting_up, const struct worker_end *end)
{
    bool was_killed = end->missed_deadline || end->over_memory;
    if (end->left_unread && !was_killed && task->losses < TASK_LOSSES_MAX &&
        !slot->sched->is_stopping && task->on_done != NULL) {
        task->losses++;
        task_queue_push_front(slot->is_bench ? &slot->queue : &slot->sched->compile_queue, task);
        return;
    }
    task_finish(task, was_setting_up ? TASK_SETUP_FAILED : end_of_task(end), NULL, end->why);
}

static void on_slot_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct slot *slot = context;
    struct sched *sched = slot->sched;
    bool was_starting = slot->state == SLOT_STARTING;
    bool was_setting_up = slot->state == SLOT_SETTING_UP;
    bool was_expected = slot->state == SLOT_ENDING;
    struct task *task = slot_take_task(slot);
    slot->state = SLOT_OFF;
    slot->worker = NULL;
    if (!was_expected) {
        sched->worker_deaths++;
        slot_failed(slot, was_starting, end->why);
        log_warnx(
            "%s worker %d: %s", slot->is_bench ? "bench" : "compile", worker_pid(worker), end->why);
    }
    if (slot->is_pausing && !sched->is_stopping)
        pause_slot(slot);
    if (task != NULL)
        lose_task(slot, task, was_setting_up, end);
    if (sched->is_stopping) {
        sched_maybe_stopped(sched);
        return;
    }
    sched_maybe_ready(sched);
    uv_async_send(&sched->kick);
}
