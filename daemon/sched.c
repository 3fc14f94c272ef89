/* See sched.h. */
#include "daemon/sched.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/worker.h"
#include "daemon/worker/pipe.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETUP_DEADLINE_MS 120000 /* a reference on a large shape takes seconds */
#define LOCK_DEADLINE_MS 600000  /* another tunerd may be measuring on the same GPU */
#define BUSY_FIRST_PAUSE_MS 100
#define BUSY_DOUBLINGS 5
#define TASK_LOSSES_MAX 2 /* how often a task may go back to its queue */
#define RETRY_COMPILER_AFTER_MS 5000
#define DEVICES_MAX 64

struct task {
    struct task *next;
    json_t *request, *setup;
    uint64_t session, deadline_ms;
    unsigned losses;       /* workers that ended before they had read it */
    task_callback on_done; /* NULL: cancelled */
    void *context;
};

struct queue {
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
    uint64_t request_id;     /* of what it was sent last */
    unsigned start_failures; /* in a row, without one answer between them */
    /* bench only */
    bool is_bench;
    size_t device;
    uint64_t session; /* held by the worker; 0: none */
    struct queue queue;
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
    struct queue compile_queue;
    struct slot *compile_slots;
    size_t device_count;
    struct device_info *devices;
    struct slot *bench_slots;
    struct worker *lister; /* the short-lived "devices" worker */
    bool devices_known;
    char device_error[256];
    uint64_t next_request_id, worker_deaths;
    void (*on_ready)(void *context);
    void *ready_context;
    bool is_ready, is_stopping;
    int open_handles;
    void (*on_stopped)(void *context);
    void *stopped_context;
};

static void dispatch(struct sched *sched);

/* --- queues and tasks ------------------------------------------------------------------------- */

static void queue_init(struct queue *queue)
{
    *queue = (struct queue) { .end = &queue->first };
}

static void queue_push(struct queue *queue, struct task *task)
{
    task->next = NULL;
    *queue->end = task;
    queue->end = &task->next;
    queue->count++;
}

static void queue_push_front(struct queue *queue, struct task *task)
{
    task->next = queue->first;
    queue->first = task;
    if (task->next == NULL)
        queue->end = &task->next;
    queue->count++;
}

static struct task *queue_pop(struct queue *queue)
{
    struct task *task = queue->first;
    if (task == NULL)
        return NULL;
    queue->first = task->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    queue->count--;
    return task;
}

static void task_destroy(struct task *task)
{
    json_decref(task->request);
    json_decref(task->setup);
    free(task);
}

static void finish_task(struct task *task, enum task_end end, const json_t *answer, const char *why)
{
    struct task_result result = { end, answer, why };
    if (task->on_done != NULL)
        task->on_done(&result, task->context);
    task_destroy(task);
}

static void queue_drop(struct queue *queue, const void *context)
{
    struct queue kept;
    queue_init(&kept);
    struct task *task;
    while ((task = queue_pop(queue)) != NULL) {
        if (task->context == context)
            task_destroy(task);
        else
            queue_push(&kept, task);
    }
    while ((task = queue_pop(&kept)) != NULL)
        queue_push(queue, task);
}

/* Fails as many tasks as wait now. They stay in the queue until their turn, since a callback may
 * cancel others, and may submit again. */
static void fail_queue(struct queue *queue, const char *why)
{
    for (size_t count = queue->count; count > 0 && queue->first != NULL; count--)
        finish_task(queue_pop(queue), TASK_UNAVAILABLE, NULL, why);
}

/* A sentence from outside, cut between characters: it goes into JSON. */
static void set_text(char *to, size_t room, const char *text)
{
    struct tune_error cut = { 0 };
    tune_fail(&cut, TUNE_EINTERNAL, "%s", text);
    snprintf(to, room, "%s", cut.text);
}

/* --- readiness -------------------------------------------------------------------------------- */

static void maybe_ready(struct sched *sched)
{
    if (sched->is_ready || !sched->devices_known
        || !(sched->compiler.is_known || sched->compiler.error[0] != '\0'))
        return;
    sched->is_ready = true;
    sched->on_ready(sched->ready_context);
}

static void compiler_missing(struct sched *sched, const char *why)
{
    set_text(sched->compiler.error, sizeof sched->compiler.error, why);
    sched->compiler_failed_at_ms = uv_now(sched->loop);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void on_slot_message(struct worker *worker, json_t *message, void *context);
static void on_slot_done(struct worker *worker, const struct worker_end *end, void *context);

/* A worker did not come up, or went down unexpectedly. */
static void slot_failed(struct slot *slot, bool was_starting, const char *why)
{
    slot->start_failures++;
    set_text(slot->reason, sizeof slot->reason, why);
    if (!slot->is_bench && was_starting && slot->start_failures >= SCHED_START_FAILURES_MAX)
        compiler_missing(slot->sched, why);
}

static void slot_init(struct sched *sched, struct slot *slot)
{
    slot->sched = sched;
    uv_timer_init(sched->loop, &slot->timer);
    slot->timer.data = slot;
    sched->open_handles++;
}

static void slot_start(struct slot *slot)
{
    struct sched *sched = slot->sched;
    char ordinal[16] = "";
    if (slot->is_bench)
        snprintf(ordinal, sizeof ordinal, "%d", sched->devices[slot->device].ordinal);
    const char *argv[] = { sched->options.worker_path, slot->is_bench ? "bench" : "compile",
        slot->is_bench ? "--device" : NULL, slot->is_bench ? ordinal : NULL, NULL };
    struct worker_options options = {
        .argv = argv,
        .env = sched->options.env,
        .hello_deadline_ms = sched->options.hello_deadline_ms,
        .memory_limit_bytes = slot->is_bench ? 0 : sched->options.compile_memory_limit_bytes,
    };
    struct worker_callbacks callbacks = { on_slot_message, on_slot_done, slot };
    struct tune_error err = { 0 };
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

/* A bench worker first waits for the GPU lock, perhaps for long: its own deadline begins when it says
 * that it has the lock. */
static void send_to_slot(struct slot *slot, json_t *request)
{
    uint64_t deadline_ms
        = slot->is_bench ? slot->sched->options.lock_deadline_ms : slot_deadline_ms(slot);
    slot->request_id = ++slot->sched->next_request_id;
    json_object_set_new(request, "id", json_integer((json_int_t)slot->request_id));
    worker_send(slot->worker, request, deadline_ms);
}

static void slot_run(struct slot *slot, struct task *task)
{
    slot->task = task;
    uv_timer_stop(&slot->timer);
    if (slot->is_bench && slot->session != task->session) {
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
    json_array_foreach(json_object_get(hello, "archs"), i, arch)
    {
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
    set_text(slot->reason, sizeof slot->reason, error);
    slot->state = SLOT_ENDING;
    if (!slot->is_bench) {
        compiler_missing(sched, error);
        worker_kill(slot->worker, "it cannot compile");
    } else {
        bool is_busy = json_is_true(json_object_get(hello, "busy"));
        if (is_busy && ++slot->busy_tries < SCHED_BUSY_TRIES_MAX)
            slot->is_pausing = true;
        else if (json_integer_value(json_object_get(hello, "code")) != 0)
            slot->start_failures = SCHED_START_FAILURES_MAX; /* the device's fault: one try is enough */
        else
            slot->start_failures++;
        worker_kill(slot->worker, "it cannot use its device");
    }
    log_warnx("%s worker: %s", slot->is_bench ? "bench" : "compile", error);
    maybe_ready(sched);
}

/* Why a worker cannot be used, in its own words or ours; NULL when it can. */
static const char *hello_error(const json_t *hello, const char *expected_role)
{
    const char *role = json_string_value(json_object_get(hello, "hello"));
    if (role == NULL || strcmp(role, expected_role) != 0
        || json_integer_value(json_object_get(hello, "pipe")) != PIPE_VERSION)
        return "tune-worker and tunerd are of different versions: install both from one package";
    return json_string_value(json_object_get(hello, "error"));
}

static void take_hello(struct slot *slot, const json_t *hello)
{
    const char *error = hello_error(hello, slot->is_bench ? "bench" : "compile");
    struct device_info device = { 0 };
    struct tune_error err = { 0 };
    if (error == NULL && slot->is_bench
        && device_from_json(json_object_get(hello, "device"), &device, &err))
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
    maybe_ready(slot->sched);
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
    slot->task = NULL;
    if (is_last) {
        slot->state = SLOT_ENDING;
        worker_stop(slot->worker); /* it ends by itself; this sets the limit */
    } else {
        slot_rest(slot);
    }
    const char *error = json_string_value(json_object_get(answer, "error"));
    finish_task(task, was_setup ? TASK_SETUP_FAILED : TASK_ANSWERED, answer,
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
    if (json_object_get(message, "event") != NULL) {
        worker_extend(worker, slot_deadline_ms(slot)); /* it has the GPU now */
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
    dispatch(slot->sched);
}

static void pause_slot(struct slot *slot)
{
    unsigned doublings = slot->busy_tries - 1;
    uint64_t pause_ms = slot->sched->options.busy_pause_ms
        << (doublings > BUSY_DOUBLINGS ? BUSY_DOUBLINGS : doublings);
    uv_timer_start(&slot->timer, on_pause_over, pause_ms, 0);
}

static void maybe_stopped(struct sched *sched);

/* The worker is gone: what becomes of its task. */
static void lose_task(struct slot *slot, struct task *task, bool was_setting_up,
    const struct worker_end *end)
{
    bool was_killed = end->missed_deadline || end->over_memory;
    if (end->left_unread && !was_killed && task->losses < TASK_LOSSES_MAX
        && !slot->sched->is_stopping && task->on_done != NULL) {
        task->losses++;
        queue_push_front(slot->is_bench ? &slot->queue : &slot->sched->compile_queue, task);
        return;
    }
    finish_task(task, was_setting_up ? TASK_SETUP_FAILED : end_of_task(end), NULL, end->why);
}

static void on_slot_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct slot *slot = context;
    struct sched *sched = slot->sched;
    bool was_starting = slot->state == SLOT_STARTING;
    bool was_setting_up = slot->state == SLOT_SETTING_UP;
    bool was_expected = slot->state == SLOT_ENDING;
    struct task *task = slot->task;
    slot->state = SLOT_OFF;
    slot->worker = NULL;
    slot->task = NULL;
    if (!was_expected) {
        sched->worker_deaths++;
        slot_failed(slot, was_starting, end->why);
        log_warnx("%s worker %d: %s", slot->is_bench ? "bench" : "compile", worker_pid(worker),
            end->why);
    }
    if (slot->is_pausing && !sched->is_stopping)
        pause_slot(slot);
    if (task != NULL)
        lose_task(slot, task, was_setting_up, end);
    if (sched->is_stopping) {
        maybe_stopped(sched);
        return;
    }
    maybe_ready(sched);
    uv_async_send(&sched->kick);
}

/* --- the list of devices ---------------------------------------------------------------------- */

static bool is_wanted(const char *list, int ordinal)
{
    if (list == NULL)
        return true;
    for (const char *at = list; *at != '\0';) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end != at && value == ordinal)
            return true;
        at = strchr(end, ',');
        if (at == NULL)
            break;
        at++;
    }
    return false;
}

static void take_devices(struct sched *sched, const json_t *hello)
{
    const char *error = hello_error(hello, "devices");
    json_t *list = json_object_get(hello, "devices"), *json;
    size_t i;
    if (error != NULL || json_array_size(list) == 0) {
        set_text(sched->device_error, sizeof sched->device_error,
            error ? error : "the driver reports no device");
        return;
    }
    json_array_foreach(list, i, json)
    {
        struct device_info device;
        struct tune_error err = { 0 };
        if (sched->device_count == DEVICES_MAX)
            break;
        if (device_from_json(json, &device, &err))
            log_warnx("a device is left out: %s", err.text);
        else if (is_wanted(sched->options.devices, device.ordinal))
            sched->devices[sched->device_count++] = device;
    }
    if (sched->device_count == 0)
        snprintf(sched->device_error, sizeof sched->device_error,
            "none of the devices is in the list given with --devices");
}

static void on_lister_message(struct worker *worker, json_t *message, void *context)
{
    struct sched *sched = context;
    worker_stop(worker); /* it has said all */
    if (sched->devices_known)
        return;
    take_devices(sched, message);
    sched->devices_known = true;
    sched->bench_slots = xcalloc(sched->device_count, sizeof *sched->bench_slots);
    for (size_t i = 0; i < sched->device_count; i++) {
        struct slot *slot = &sched->bench_slots[i];
        slot_init(sched, slot);
        slot->is_bench = true;
        slot->device = i;
        queue_init(&slot->queue);
        log_info("device %d: %s, %s, %s", sched->devices[i].ordinal, sched->devices[i].name,
            sched->devices[i].arch, sched->devices[i].uuid);
    }
    if (sched->device_count == 0)
        log_warnx("no device: %s", sched->device_error);
}

static void on_lister_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct sched *sched = context;
    (void)worker;
    sched->lister = NULL;
    if (!sched->devices_known) {
        sched->devices_known = true;
        set_text(sched->device_error, sizeof sched->device_error, end->why);
        log_warnx("cannot list the devices: %s", end->why);
    }
    if (sched->is_stopping)
        maybe_stopped(sched);
    else
        maybe_ready(sched);
}

static void list_devices(struct sched *sched)
{
    const char *argv[] = { sched->options.worker_path, "devices", NULL };
    struct worker_options options = {
        .argv = argv,
        .env = sched->options.env,
        .hello_deadline_ms = sched->options.hello_deadline_ms,
    };
    struct worker_callbacks callbacks = { on_lister_message, on_lister_done, sched };
    struct tune_error err = { 0 };
    sched->lister = worker_start(sched->loop, &options, &callbacks, &err);
    if (sched->lister != NULL)
        return;
    sched->devices_known = true;
    set_text(sched->device_error, sizeof sched->device_error, err.text);
    compiler_missing(sched, err.text);
    log_warnx("%s", err.text);
}

/* --- dispatch --------------------------------------------------------------------------------- */

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
    return sched->compiler.error[0] != '\0'
        && uv_now(sched->loop) - sched->compiler_failed_at_ms < sched->options.compiler_retry_ms;
}

static void dispatch_compiles(struct sched *sched)
{
    while (sched->compile_queue.first != NULL) {
        bool may_come = false;
        struct slot *slot = free_compile_slot(sched, &may_come);
        if (slot == NULL)
            return;
        if (slot->state == SLOT_IDLE) {
            slot_run(slot, queue_pop(&sched->compile_queue));
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
                fail_queue(&sched->compile_queue, sched->compiler.error);
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
        slot_run(slot, queue_pop(&slot->queue));
        return;
    }
    if (slot->state != SLOT_OFF || slot->is_pausing)
        return;
    if (!slot->is_offline && slot->start_failures >= SCHED_START_FAILURES_MAX) {
        slot->is_offline = true;
        log_warnx("device %zu is offline: %s", slot->device, slot->reason);
    }
    if (slot->is_offline)
        fail_queue(&slot->queue, slot->reason);
    else
        slot_start(slot);
}

/* The first compile worker comes before the first request: its hello says which NVRTC there is. */
static void meet_compiler(struct sched *sched)
{
    struct slot *slot = &sched->compile_slots[0];
    if (!sched->is_ready && !sched->compiler.is_known && sched->compiler.error[0] == '\0'
        && slot->state == SLOT_OFF)
        slot_start(slot);
}

static void fail_all(struct sched *sched, const char *why)
{
    fail_queue(&sched->compile_queue, why);
    for (size_t i = 0; i < sched_device_count(sched); i++)
        fail_queue(&sched->bench_slots[i].queue, why);
}

static void dispatch(struct sched *sched)
{
    if (sched->is_stopping) {
        fail_all(sched, "the daemon is stopping");
        return;
    }
    meet_compiler(sched);
    maybe_ready(sched);
    dispatch_compiles(sched);
    for (size_t i = 0; i < sched_device_count(sched); i++)
        dispatch_bench(&sched->bench_slots[i]);
}

static void on_kick(uv_async_t *kick)
{
    dispatch(kick->data);
}

/* --- public ----------------------------------------------------------------------------------- */

static void fill_defaults(struct sched_options *options)
{
    struct {
        uint64_t *value, usual;
    } fields[] = {
        { &options->hello_deadline_ms, SCHED_HELLO_DEADLINE_MS },
        { &options->setup_deadline_ms, SETUP_DEADLINE_MS },
        { &options->lock_deadline_ms, LOCK_DEADLINE_MS },
        { &options->bench_idle_ms, SCHED_BENCH_IDLE_MS },
        { &options->compile_idle_ms, SCHED_COMPILE_IDLE_MS },
        { &options->busy_pause_ms, BUSY_FIRST_PAUSE_MS },
        { &options->compiler_retry_ms, RETRY_COMPILER_AFTER_MS },
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
    sched->devices = xcalloc(DEVICES_MAX, sizeof *sched->devices);
    sched->compile_slots = xcalloc(options->compile_workers, sizeof *sched->compile_slots);
    queue_init(&sched->compile_queue);
    uv_async_init(loop, &sched->kick, on_kick);
    sched->kick.data = sched;
    sched->open_handles = 1;
    for (unsigned i = 0; i < options->compile_workers; i++)
        slot_init(sched, &sched->compile_slots[i]);
    list_devices(sched);
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
    queue_push(&sched->compile_queue, task);
    uv_async_send(&sched->kick);
}

void sched_bench(struct sched *sched, size_t device, json_t *setup, uint64_t session,
    json_t *request, uint64_t deadline_ms, task_callback on_done, void *context)
{
    assert(device < sched->device_count && session != 0);
    struct task *task = xcalloc(1, sizeof *task);
    task->request = request;
    task->setup = json_incref(setup);
    task->session = session;
    task->deadline_ms = deadline_ms;
    task->on_done = on_done;
    task->context = context;
    queue_push(&sched->bench_slots[device].queue, task);
    uv_async_send(&sched->kick);
}

static void for_each_slot(struct sched *sched, void (*visit)(struct slot *, const void *),
    const void *context)
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
        queue_drop(&slot->queue, context);
}

void sched_cancel(struct sched *sched, const void *context)
{
    queue_drop(&sched->compile_queue, context);
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

static void maybe_stopped(struct sched *sched)
{
    size_t compile_workers, bench_workers, queue;
    uint64_t deaths;
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    if (compile_workers + bench_workers > 0 || sched->lister != NULL
        || uv_is_closing((uv_handle_t *)&sched->kick))
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
    maybe_stopped(sched);
}
