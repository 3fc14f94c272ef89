/* Lanes: which candidate is measured next, and what an answer means for it. */
#include "daemon/tuning_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEVICE_TRIES 3 /* failures in a row that are the device's */
#define SETUP_TRIES 3  /* a worker that dies in the setup may have been killed from outside */
#define CONTROL_BUDGET_MS 100
/* Sampling stops early once the lower bound is this far above the best. */
#define STOP_MARGIN 1.05
/* Loads and verification; the worker's own watchdog is much tighter. */
#define ANSWER_MARGIN_MS 10000

static void bench_next(struct lane *lane);

static void learn_method(struct tuning *tuning, const json_t *answer)
{
    const char *method = json_string_value(json_object_get(answer, "method"));
    if (tuning->method[0] == '\0' && method != NULL)
        snprintf(tuning->method, sizeof tuning->method, "%s", method);
}

static void take_measurement(struct candidate *candidate, const json_t *answer)
{
    struct times times = tuning_times(answer);
    candidate->median_ns = times.median_ns;
    candidate->lo_ns = times.lo_ns;
    candidate->hi_ns = times.hi_ns;
    struct lane *lane = candidate->lane;
    tuning_keep_control(lane, candidate);
    lane->since_control++;
    candidate->level_ns = lane->level_ns;
    candidate->control_round = lane->control_round;
}

static void try_again(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    candidate->state = CANDIDATE_READY;
    if (!tuning->is_cut && !tuning->is_canceled)
        candidate_queue_push_front(&tuning->ready, candidate);
}

/* A worker died on it, or its context did. Once may be chance; twice is the candidate's doing. */
static void take_crash(struct candidate *candidate, const json_t *answer, const char *why)
{
    struct tuning *tuning = candidate->tuning;
    struct row row = {.outcome = OUTCOME_CRASHED, .answer = answer, .detail = why};
    candidate->attempts++;
    if (candidate->attempts >= TUNING_ATTEMPTS_MAX) {
        candidate_finish(candidate, &row);
        return;
    }
    row.candidate = candidate;
    row.run = tuning->run_search;
    tuning_add_row(tuning, &row); /* not final: the attempt is remembered across a restart */
    try_again(candidate);
}

/* The device's fault, not the candidate's (daemon/worker/cuda_errors.c): nothing is recorded. A
 * fresh worker may have better luck; a device that goes on like that ends the sweep. */
static void blame_device(struct candidate *candidate, const json_t *answer)
{
    struct tuning *tuning = candidate->tuning;
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (!json_is_true(json_object_get(answer, "retry")) ||
        ++tuning->device_failures >= DEVICE_TRIES)
        tuning_fail(
            tuning, TUNE_ENODEVICE, "%s: %s", tuning->device.name, error ? error : "it failed");
    else
        try_again(candidate);
}

/* "ok" without a time that can be compared breaks the protocol. */
static bool has_time(const json_t *answer)
{
    double median_ns = tuning_times(answer).median_ns;
    return median_ns > 0 && isfinite(median_ns);
}

static void take_answer(struct candidate *candidate, const json_t *answer)
{
    enum outcome outcome;
    const char *word = json_string_value(json_object_get(answer, "outcome"));
    const char *blame = json_string_value(json_object_get(answer, "blame"));
    if (word == NULL || outcome_from_word(word, &outcome))
        outcome = OUTCOME_CRASHED;
    if (outcome != OUTCOME_OK && blame != NULL && strcmp(blame, "device") == 0) {
        blame_device(candidate, answer);
        return;
    }
    candidate->tuning->device_failures = 0;
    if (outcome == OUTCOME_CRASHED || (outcome == OUTCOME_OK && !has_time(answer))) {
        take_crash(candidate, answer,
            outcome == OUTCOME_OK ? "its worker answered ok without a usable time" : NULL);
        return;
    }
    candidate->attempts++;
    struct row row = {.outcome = outcome, .answer = answer};
    char reason[200];
    if (outcome == OUTCOME_OK) {
        learn_method(candidate->tuning, answer);
        take_measurement(candidate, answer);
        candidate->is_refused =
            tuning_disbelieves(candidate->tuning, candidate->median_ns, reason, sizeof reason);
        if (candidate->is_refused)
            row.detail = reason;
    }
    candidate_finish(candidate, &row);
}

static void retry_setup(struct candidate *candidate, const struct task_result *result)
{
    struct tuning *tuning = candidate->tuning;
    const char *blame = json_string_value(json_object_get(result->answer, "blame"));
    if (blame != NULL && strcmp(blame, "device") == 0) {
        blame_device(candidate, result->answer);
        return;
    }
    if (result->answer != NULL || ++tuning->setup_failures >= SETUP_TRIES) {
        tuning_fail(tuning, TUNE_EINVAL,
            "kernel %s: the inputs or the reference could not be set up: %s",
            tuning->manifest->name, result->why);
        return;
    }
    try_again(candidate);
}

struct lane *tuning_first_lane(const struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        if (!tuning->lanes[i].is_lost)
            return &tuning->lanes[i];
    return NULL;
}

/* Its device is out of use: the others go on, if there are others. */
static void lose_lane(struct lane *lane, struct candidate *candidate, const char *why)
{
    struct tuning *tuning = lane->tuning;
    lane->is_lost = true;
    if (tuning_first_lane(tuning) == NULL) {
        tuning_fail(tuning, TUNE_ENODEVICE, "%s: %s", lane->device.name, why);
        return;
    }
    tuning_message(tuning, "device %d is out of use: %s", lane->device.ordinal, why);
    if (candidate != NULL)
        try_again(candidate);
}

static void on_benched(const struct task_result *result, void *context)
{
    struct lane *lane = context;
    struct tuning *tuning = lane->tuning;
    struct candidate *candidate = lane->benching;
    lane->benching = NULL;
    tuning->benched++;
    tuning->bench_busy_s += (double)(uv_hrtime() - lane->sent_ns) / 1e9;
    switch (result->end) {
    case TASK_ANSWERED:
        take_answer(candidate, result->answer);
        break;
    case TASK_CRASHED:
        take_crash(candidate, NULL, result->why);
        break;
    case TASK_TIMED_OUT:
        candidate->attempts++;
        candidate_fail(candidate, OUTCOME_TIMEOUT,
            "it did not end within its deadline and did not let its worker say so");
        break;
    case TASK_SETUP_FAILED:
        retry_setup(candidate, result);
        break;
    case TASK_OVER_MEMORY:
    case TASK_UNAVAILABLE:
        lose_lane(lane, candidate, result->why);
        break;
    }
    if (tuning->error.code != TUNE_OK)
        return;
    tuning->setup_failures = result->end == TASK_SETUP_FAILED ? tuning->setup_failures : 0;
    bench_next(lane); /* its mark joins the row's commit */
    if (lane->benching == NULL)
        tuning_add_mark(lane);
    tuning_pump(tuning);
}

/* Sends what is to be measured to the lane's device. stop_above_ns 0: sampling does not stop early.
 */
static void send_bench(struct lane *lane, const struct subject *subject, bool is_verified,
    int budget_ms, double stop_above_ns, task_callback on_done)
{
    struct tuning *tuning = lane->tuning;
    json_t *request = json_pack("{s:s, s:I, s:O, s:O, s:O, s:O, s:s, s:s, s:b, s:I, s:i, s:i}",
        "op", "bench", "session", (json_int_t)tuning->session, "image",
        json_object_get(subject->package, "image"), "names",
        json_object_get(subject->package, "names"), "buffers", subject->buffers, "launches",
        subject->launches, "mode", tuning->mode, "method",
        tuning->method[0] ? tuning->method : "auto", "verify", is_verified, "deadline_ms",
        (json_int_t)tuning->deadline_ms, "sample_budget_ms", budget_ms, "max_samples",
        TUNING_SAMPLES_MAX);
    if (stop_above_ns > 0)
        json_object_set_new(request, "stop_above_ns", json_real(stop_above_ns));
    lane->sent_ns = uv_hrtime();
    sched_bench(tuning->deps.sched, lane->device_index, tuning->setup, tuning->session, request,
        tuning->deadline_ms + TUNING_SAMPLE_BUDGET_MS + ANSWER_MARGIN_MS, on_done, lane);
}

static void on_mark_committed(const struct tune_error *err, void *context)
{
    struct lane *lane = context;
    struct tuning *tuning = lane->tuning;
    if (err != NULL) {
        tuning_fail(tuning, err->code, "the database cannot be written: %s", err->text);
        return;
    }
    if (lane->benching == NULL)
        return; /* cancelled meanwhile */
    send_bench(lane, &lane->benching->subject, true, TUNING_SAMPLE_BUDGET_MS,
        tuning_best_ns_on(lane) * STOP_MARGIN, on_benched);
}

/* The default goes first, because the method is chosen from it. Where it fails the first that is ok
 * chooses: until then the lanes take turns, so that no two of them choose. */
static bool must_wait_for_method(const struct tuning *tuning)
{
    const struct candidate *standard = tuning->standard;
    if (tuning->method[0] != '\0')
        return false;
    return lanes_are_busy(tuning) ||
           (standard != NULL && standard->state != CANDIDATE_DONE &&
               standard->state != CANDIDATE_READY && standard->state != CANDIDATE_COMMITTING);
}

static struct candidate *take_ready(struct tuning *tuning)
{
    struct candidate *standard = tuning->standard;
    if (tuning->method[0] == '\0' && standard != NULL && standard->state == CANDIDATE_READY) {
        struct candidate_queue others;
        candidate_queue_init(&others);
        struct candidate *candidate;
        while ((candidate = candidate_queue_pop(&tuning->ready)) != NULL)
            if (candidate != standard)
                candidate_queue_push(&others, candidate);
        while ((candidate = candidate_queue_pop(&others)) != NULL)
            candidate_queue_push(&tuning->ready, candidate);
        return standard;
    }
    return candidate_queue_pop(&tuning->ready);
}

static void on_control(const struct task_result *result, void *context)
{
    struct lane *lane = context;
    struct tuning *tuning = lane->tuning;
    lane->is_controlling = false;
    lane->since_control = 0;
    tuning->bench_busy_s += (double)(uv_hrtime() - lane->sent_ns) / 1e9;
    if (result->end == TASK_UNAVAILABLE)
        lose_lane(lane, NULL, result->why);
    else
        tuning_take_control(lane, result->answer); /* NULL where there is none */
    if (tuning->error.code == TUNE_OK)
        tuning_pump(tuning);
}

static void send_control(struct lane *lane)
{
    lane->is_controlling = true;
    send_bench(lane, &lane->tuning->control, false, CONTROL_BUDGET_MS, 0, on_control);
}

static void bench_next(struct lane *lane)
{
    struct tuning *tuning = lane->tuning;
    if (lane->benching != NULL || lane->is_controlling || lane->is_lost ||
        tuning->ready.count == 0 || tuning->setup == NULL || tuning->is_canceled ||
        tuning->is_cut || must_wait_for_method(tuning))
        return;
    if (tuning_control_is_due(lane, false)) {
        send_control(lane);
        return;
    }
    struct candidate *candidate = take_ready(tuning);
    candidate->state = CANDIDATE_BENCHING;
    candidate->lane = lane;
    lane->benching = candidate;
    tuning_add_mark(lane);
    writer_after_commit(tuning->deps.writer, on_mark_committed, lane);
}

void lanes_measure(struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        bench_next(&tuning->lanes[i]);
}

/* Before the search is closed each device is looked at once more. True: wait for that. */
bool lanes_control_at_the_end(struct tuning *tuning)
{
    bool is_sent = false;
    for (size_t i = 0; i < tuning->lane_count && !tuning->is_canceled && !tuning->is_cut; i++) {
        struct lane *lane = &tuning->lanes[i];
        if (lane->since_control == 0 || !tuning_control_is_due(lane, true))
            continue;
        send_control(lane);
        is_sent = true;
    }
    return is_sent;
}

bool lanes_are_busy(const struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        if (tuning->lanes[i].benching != NULL || tuning->lanes[i].is_controlling)
            return true;
    return false;
}

/* No answer of a device is wanted any more; what runs is killed, so that the devices are free at
 * once. */
void lanes_leave(struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++) {
        sched_abort(tuning->deps.sched, &tuning->lanes[i]);
        sched_cancel(tuning->deps.sched, &tuning->lanes[i]);
    }
}
