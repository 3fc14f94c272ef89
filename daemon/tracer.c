/* See tracer.h. */
#include "daemon/tracer.h"

#include "daemon/log.h"
#include "daemon/sched_internal.h"
#include "daemon/worker.h"
#include "daemon/xmalloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct run *next;
    struct tracer *tracer;
    struct worker *worker; /* NULL: it waits for its turn */
    json_t *request;
    tracer_callback callback; /* NULL: cancelled */
    void *context;
    bool has_hello;
    json_t *launches; /* of the answer */
    char why[256];    /* there are none */
};

struct tracer {
    uv_loop_t *loop;
    struct tracer_options options;
    struct run *runs; /* in the order in which they came */
    bool is_stopping;
};

struct tracer *tracer_create(uv_loop_t *loop, const struct tracer_options *options)
{
    struct tracer *tracer = xcalloc(1, sizeof *tracer);
    tracer->loop = loop;
    tracer->options = *options;
    if (tracer->options.deadline_ms == 0)
        tracer->options.deadline_ms = TRACER_DEADLINE_MS;
    return tracer;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void add_run(struct run *run)
{
    struct run **end = &run->tracer->runs;
    while (*end != NULL)
        end = &(*end)->next;
    *end = run;
}

static void unlink_run(struct run *run)
{
    struct run **at = &run->tracer->runs;
    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
}

/* It is in the list no more, so that whoever is told may do as he likes. */
static void tell(struct run *run, const char *why)
{
    if (run->callback != NULL)
        run->callback(run->launches, why, run->context);
}

static void run_free(struct run *run)
{
    json_decref(run->request);
    json_decref(run->launches);
    free(run);
}

/* Nobody wants it any more. */
static void drop(struct run *run)
{
    run->callback = NULL;
    if (run->worker != NULL) {
        worker_kill(run->worker, "nobody wants its trace any more");
        return;
    }
    unlink_run(run);
    run_free(run);
}

static size_t count_runs(const struct tracer *tracer, bool at_work)
{
    size_t count = 0;
    for (const struct run *run = tracer->runs; run != NULL; run = run->next)
        count += (run->worker != NULL) == at_work;
    return count;
}

static void take_answer(struct run *run, const json_t *answer)
{
    json_t *launches = json_object_get(answer, "launches");
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (json_is_true(json_object_get(answer, "ok")) && json_is_array(launches))
        run->launches = json_incref(launches);
    else
        sched_set_text(run->why, sizeof run->why, error ? error : "the worker gave no reason");
}

/* The hello and the answer; everything that it may say is said then. */
static void on_message(struct worker *worker, json_t *message, void *context)
{
    struct run *run = context;
    const char *error = run->has_hello ? NULL : sched_hello_error(message, "trace");
    if (error != NULL) {
        sched_set_text(run->why, sizeof run->why, error);
        worker_stop(worker);
    } else if (!run->has_hello) {
        run->has_hello = true;
        worker_send(worker, run->request, run->tracer->options.deadline_ms);
    } else {
        take_answer(run, message);
        worker_stop(worker);
    }
}

static const char *end_reason(const struct run *run, const struct worker_end *end)
{
    if (run->why[0] != '\0')
        return run->why;
    if (end->missed_deadline)
        return "running it on the emulator took too long";
    if (end->over_memory)
        return "running it on the emulator took more memory than allowed (see --compile-memory)";
    return end->why;
}

/* --- turns ------------------------------------------------------------------------------------ */

static void start_next(struct tracer *tracer);

static void on_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct run *run = context;
    struct tracer *tracer = run->tracer;
    (void)worker;
    const char *why = run->launches != NULL ? "" : end_reason(run, end);
    if (run->launches == NULL)
        log_debug("nothing was traced: %s", why);
    unlink_run(run);
    tell(run, why);
    run_free(run);
    if (!tracer->is_stopping)
        start_next(tracer);
    else if (tracer->runs == NULL)
        free(tracer);
}

static int start(struct run *run, struct tune_error *err)
{
    const struct tracer_options *options = &run->tracer->options;
    const char *argv[] = {options->worker_path, "trace", "--cuda", options->emulator, NULL};
    struct worker_options worker = {
        .argv = argv,
        .env = options->env,
        .hello_deadline_ms = SCHED_HELLO_DEADLINE_MS,
        .memory_limit_bytes = options->memory_limit_bytes,
    };
    struct worker_callbacks callbacks = {on_message, on_done, run};
    run->worker = worker_start(run->tracer->loop, &worker, &callbacks, err);
    return run->worker != NULL ? 0 : -1;
}

static struct run *first_waiting(const struct tracer *tracer)
{
    struct run *run = tracer->runs;
    while (run != NULL && run->worker != NULL)
        run = run->next;
    return run;
}

/* One that cannot be started leaves its turn to the next one. */
static void start_next(struct tracer *tracer)
{
    struct run *run;
    while (!tracer->is_stopping && count_runs(tracer, true) < TRACER_RUNS_MAX &&
           (run = first_waiting(tracer)) != NULL) {
        struct tune_error err = {0};
        if (start(run, &err) == 0)
            continue;
        unlink_run(run);
        tell(run, err.text);
        run_free(run);
    }
}

/* --- public ----------------------------------------------------------------------------------- */

int tracer_request(struct tracer *tracer, json_t *request, tracer_callback callback, void *context,
    struct tune_error *err)
{
    const char *trouble = NULL;
    if (tracer->options.emulator == NULL)
        trouble = "the emulator, which runs it for that, is not installed: install the whole "
                  "package";
    else if (count_runs(tracer, false) >= TRACER_QUEUE_MAX)
        trouble = "too many kernels wait to be traced: try again later";
    if (trouble != NULL) {
        json_decref(request);
        return tune_fail(
            err, tracer->options.emulator ? TUNE_EBUSY : TUNE_ENOTFOUND, "%s", trouble);
    }
    json_object_set_new(request, "id", json_integer(1));
    struct run *run = xcalloc(1, sizeof *run);
    *run = (struct run){
        .tracer = tracer, .request = request, .callback = callback, .context = context};
    bool is_free = count_runs(tracer, true) < TRACER_RUNS_MAX;
    add_run(run);
    if (!is_free || start(run, err) == 0)
        return 0;
    unlink_run(run);
    run_free(run);
    return -1;
}

void tracer_cancel(struct tracer *tracer, const void *context)
{
    struct run *next;
    for (struct run *run = tracer->runs; run != NULL; run = next) {
        next = run->next;
        if (run->context == context)
            drop(run);
    }
}

void tracer_stop(struct tracer *tracer)
{
    if (tracer == NULL)
        return;
    tracer->is_stopping = true;
    struct run *next;
    for (struct run *run = tracer->runs; run != NULL; run = next) {
        next = run->next;
        drop(run);
    }
    if (tracer->runs == NULL)
        free(tracer);
}
