/* The state machine of a tuning; see tuning.h. Every callback updates the state and ends in tuning_pump(),
 * which starts what can be started. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_TRIES 3          /* failures in a row that are the device's */
#define SETUP_TRIES 3           /* a worker that dies in the setup may have been killed from outside */
#define STOP_MARGIN 1.05        /* sampling stops early once the lower bound is this far above the best */
#define ANSWER_MARGIN_MS 10000  /* loads and verification; the worker's own watchdog is much tighter */

static void bench_next(struct lane *lane);

/* --- queues ----------------------------------------------------------------------------------- */

static void queue_init(struct candidate_queue *queue)
{
    *queue = (struct candidate_queue) { .end = &queue->first };
}

static void queue_push(struct candidate_queue *queue, struct candidate *candidate)
{
    candidate->next = NULL;
    *queue->end = candidate;
    queue->end = &candidate->next;
    queue->count++;
}

static void queue_push_front(struct candidate_queue *queue, struct candidate *candidate)
{
    candidate->next = queue->first;
    if (queue->first == NULL)
        queue->end = &candidate->next;
    queue->first = candidate;
    queue->count++;
}

static struct candidate *queue_pop(struct candidate_queue *queue)
{
    struct candidate *candidate = queue->first;
    if (candidate == NULL)
        return NULL;
    queue->first = candidate->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    queue->count--;
    return candidate;
}

/* --- identity: equal image and launches are one candidate --------------------------------------- */

static uint64_t identity_slot(const struct record_hash *hash)
{
    uint64_t slot;
    memcpy(&slot, hash->bytes, sizeof slot);
    return slot;
}

static struct candidate **identity_find(struct tuning *tuning, const struct record_hash *hash)
{
    size_t mask = tuning->identity_room - 1;
    size_t at = identity_slot(hash) & mask;
    while (tuning->identities[at] != NULL
        && memcmp(&tuning->identities[at]->identity, hash, sizeof *hash) != 0)
        at = (at + 1) & mask;
    return &tuning->identities[at];
}

static void identities_grow(struct tuning *tuning)
{
    if (tuning->identity_room > 2 * tuning->candidate_count)
        return;
    struct candidate **old = tuning->identities;
    size_t old_room = tuning->identity_room;
    tuning->identity_room = old_room ? old_room * 4 : 256;
    tuning->identities = xcalloc(tuning->identity_room, sizeof *tuning->identities);
    for (size_t i = 0; i < old_room; i++)
        if (old[i] != NULL)
            *identity_find(tuning, &old[i]->identity) = old[i];
    free(old);
}

static void set_identity(struct candidate *candidate)
{
    char *launches = json_dumps(candidate->launches, JSON_COMPACT);
    char *buffers = json_dumps(candidate->buffers, JSON_COMPACT);
    char *text = xasprintf("%s|%s|%s",
        json_string_value(json_object_get(candidate->package, "image")), launches, buffers);
    candidate->identity = record_text_hash(text);
    free(text);
    free(buffers);
    free(launches);
}

/* --- candidates ------------------------------------------------------------------------------- */

static struct candidate *add_candidate(struct tuning *tuning, size_t index)
{
    if (tuning->candidate_count == tuning->candidate_room) {
        tuning->candidate_room = tuning->candidate_room ? tuning->candidate_room * 2 : 64;
        tuning->candidates = xrealloc(
            tuning->candidates, tuning->candidate_room * sizeof *tuning->candidates);
    }
    struct candidate *candidate = xcalloc(1, sizeof *candidate);
    candidate->tuning = tuning;
    candidate->index = index;
    candidate->is_default = index == tuning->default_index;
    if (candidate->is_default)
        tuning->standard = candidate;
    tuning->candidates[tuning->candidate_count++] = candidate;
    identities_grow(tuning);
    return candidate;
}

static void drop_payload(struct candidate *candidate)
{
    json_decref(candidate->package);
    json_decref(candidate->launches);
    json_decref(candidate->buffers);
    candidate->package = candidate->launches = candidate->buffers = NULL;
}

static double seconds_since(const struct tuning *tuning)
{
    return (double)(uv_hrtime() - tuning->started_ns) / 1e9;
}

/* The default is measured even where the sweep is restricted to others: the search knows nothing of it then. */
static bool is_of_space(const struct tuning *tuning, size_t index)
{
    return index < space_count(tuning->space);
}

/* How many candidates will be measured at most. */
static size_t total_of(const struct tuning *tuning)
{
    if (tuning->search == NULL)
        return 0;
    bool has_outsider
        = tuning->default_index != SIZE_MAX && !is_of_space(tuning, tuning->default_index);
    return search_total(tuning->search) + has_outsider;
}

static void report_progress(struct tuning *tuning, const char *phase)
{
    double elapsed_s = seconds_since(tuning);
    const struct candidate *standard = tuning->standard;
    bool has_default = standard != NULL && standard->is_counted && standard->outcome == OUTCOME_OK;
    struct tuning_progress progress = {
        .phase = phase,
        .done = tuning->evaluations,
        .total = total_of(tuning),
        .best_ns = tuning->best ? tuning->best->median_ns : 0,
        .default_ns = has_default ? standard->median_ns : 0,
        .configs_per_s = elapsed_s > 0 ? (double)tuning->evaluations / elapsed_s : 0,
        .elapsed_s = elapsed_s,
    };
    tuning->callbacks.on_progress(&progress, tuning->callbacks.context);
}

/* The candidate's result is durable (or was, from an earlier life of this run): everybody may know. */
static void count_candidate(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    candidate->state = CANDIDATE_DONE;
    drop_payload(candidate);
    if (candidate->is_counted) { /* measured again: counted once, by its last outcome */
        tuning->counts[OUTCOME_OK]--;
        tuning->counts[candidate->outcome]++;
        tuning_find_best(tuning);
        return;
    }
    candidate->is_counted = true;
    tuning->counts[candidate->outcome]++;
    tuning->refused += candidate->is_refused;
    tuning->evaluations++;
    if (tuning_is_better(candidate, tuning->best))
        tuning->best = candidate;
    /* To the search a refused time is a failure: it must not be led there. */
    if (is_of_space(tuning, candidate->index))
        search_report(tuning->search, candidate->index,
            candidate->is_refused ? OUTCOME_INVALID : candidate->outcome, candidate->median_ns);
}

static void on_row_committed(const struct tune_error *err, void *context);

/* A finished candidate: its row goes to the disk, and it counts once that is done. */
static void finish_candidate(struct candidate *candidate, struct row *row)
{
    struct tuning *tuning = candidate->tuning;
    candidate->outcome = row->outcome;
    row->candidate = candidate;
    row->run = candidate->is_again ? tuning->run_again : tuning->run_search;
    row->is_final = true;
    row->is_refused = candidate->is_refused;
    tuning_add_row(tuning, row);
    candidate->state = CANDIDATE_COMMITTING;
    queue_push(&tuning->committing, candidate);
    writer_after_commit(tuning->deps.writer, on_row_committed, tuning);
}

static void fail_candidate(struct candidate *candidate, enum outcome outcome, const char *detail)
{
    struct row row = { .outcome = outcome, .detail = detail };
    finish_candidate(candidate, &row);
}

static char *config_text(const struct candidate *candidate)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(candidate->tuning->space, candidate->index, values);
    return manifest_config_text(candidate->tuning->manifest, values);
}

static void finish_followers(struct candidate *leader)
{
    struct tuning *tuning = leader->tuning;
    char *same_as = NULL;
    for (size_t i = 0; tuning->following > 0 && i < tuning->candidate_count; i++) {
        struct candidate *candidate = tuning->candidates[i];
        if (candidate->state != CANDIDATE_FOLLOWING || candidate->leader != leader)
            continue;
        if (same_as == NULL)
            same_as = config_text(leader);
        tuning->following--;
        candidate->median_ns = leader->median_ns;
        candidate->lo_ns = leader->lo_ns;
        candidate->hi_ns = leader->hi_ns;
        candidate->level_ns = leader->level_ns;
        candidate->is_refused = leader->is_refused;
        candidate->attempts = leader->attempts;
        struct row row = {
            .outcome = leader->outcome,
            .same_as = same_as,
            .detail = "equal code and launches: measured once",
            .median_ns = leader->median_ns,
            .lo_ns = leader->lo_ns,
            .hi_ns = leader->hi_ns,
        };
        finish_candidate(candidate, &row);
    }
    free(same_as);
}

static void on_row_committed(const struct tune_error *err, void *context)
{
    struct tuning *tuning = context;
    struct candidate *candidate = queue_pop(&tuning->committing);
    if (err != NULL) {
        tuning_fail(tuning, err->code, "a result could not be stored: %s", err->text);
        return;
    }
    count_candidate(candidate);
    finish_followers(candidate);
    report_progress(tuning, "searching");
    tuning_pump(tuning);
}

/* --- measuring -------------------------------------------------------------------------------- */

static void learn_method(struct tuning *tuning, const json_t *answer)
{
    const char *method = json_string_value(json_object_get(answer, "method"));
    if (tuning->method[0] == '\0' && method != NULL)
        snprintf(tuning->method, sizeof tuning->method, "%s", method);
}

static void take_measurement(struct candidate *candidate, const json_t *answer)
{
    const json_t *interval = json_object_get(answer, "interval_ns");
    candidate->median_ns = json_number_value(json_object_get(answer, "median_ns"));
    candidate->lo_ns = json_number_value(json_array_get(interval, 0));
    candidate->hi_ns = json_number_value(json_array_get(interval, 1));
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
        queue_push_front(&tuning->ready, candidate);
}

/* A worker died on it, or its context did. Once may be chance; twice is the candidate's doing. */
static void take_crash(struct candidate *candidate, const json_t *answer, const char *why)
{
    struct tuning *tuning = candidate->tuning;
    struct row row = { .outcome = OUTCOME_CRASHED, .answer = answer, .detail = why };
    candidate->attempts++;
    if (candidate->attempts >= TUNING_ATTEMPTS_MAX) {
        finish_candidate(candidate, &row);
        return;
    }
    row.candidate = candidate;
    row.run = tuning->run_search;
    tuning_add_row(tuning, &row); /* not final: the attempt is remembered across a restart */
    try_again(candidate);
}

/* The device's fault, not the candidate's (daemon/worker/cuda_errors.c): nothing is recorded. A fresh worker
 * may have better luck; a device that goes on like that ends the sweep. */
static void blame_device(struct candidate *candidate, const json_t *answer)
{
    struct tuning *tuning = candidate->tuning;
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (!json_is_true(json_object_get(answer, "retry")) || ++tuning->device_failures >= DEVICE_TRIES)
        tuning_fail(tuning, TUNE_ENODEVICE, "%s: %s", tuning->device.name, error ? error : "it failed");
    else
        try_again(candidate);
}

/* "ok" without a time that can be compared breaks the protocol. */
static bool has_time(const json_t *answer)
{
    double median_ns = json_number_value(json_object_get(answer, "median_ns"));
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
    struct row row = { .outcome = outcome, .answer = answer };
    char reason[200];
    if (outcome == OUTCOME_OK) {
        learn_method(candidate->tuning, answer);
        take_measurement(candidate, answer);
        candidate->is_refused
            = tuning_disbelieves(candidate->tuning, candidate->median_ns, reason, sizeof reason);
        if (candidate->is_refused)
            row.detail = reason;
    }
    finish_candidate(candidate, &row);
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
        tuning_fail(tuning, TUNE_EINVAL, "kernel %s: the inputs or the reference could not be set up: %s",
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
        fail_candidate(candidate, OUTCOME_TIMEOUT,
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

static json_t *bench_request(struct tuning *tuning, const struct candidate *candidate)
{
    json_t *request = json_pack("{s:s, s:I, s:O, s:O, s:O, s:O, s:s, s:s, s:b, s:I, s:I, s:I}", "op",
        "bench", "session", (json_int_t)tuning->session, "image",
        json_object_get(candidate->package, "image"), "names",
        json_object_get(candidate->package, "names"), "buffers", candidate->buffers, "launches",
        candidate->launches, "mode", tuning->mode, "method",
        tuning->method[0] ? tuning->method : "auto", "verify", 1, "deadline_ms",
        (json_int_t)tuning->deadline_ms, "sample_budget_ms", (json_int_t)TUNING_SAMPLE_BUDGET_MS,
        "max_samples", (json_int_t)TUNING_SAMPLES_MAX);
    double best_ns = tuning_best_ns_on(candidate->lane);
    if (best_ns > 0)
        json_object_set_new(request, "stop_above_ns", json_real(best_ns * STOP_MARGIN));
    return request;
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
    uint64_t deadline_ms = tuning->deadline_ms + TUNING_SAMPLE_BUDGET_MS + ANSWER_MARGIN_MS;
    lane->sent_ns = uv_hrtime();
    sched_bench(tuning->deps.sched, lane->device_index, tuning->setup, tuning->session,
        bench_request(tuning, lane->benching), deadline_ms, on_benched, lane);
}

/* The default goes first, because the method is chosen from it. */
static bool must_wait_for_default(const struct tuning *tuning)
{
    const struct candidate *standard = tuning->standard;
    return tuning->method[0] == '\0' && standard != NULL && standard->state != CANDIDATE_DONE
        && standard->state != CANDIDATE_READY && standard->state != CANDIDATE_COMMITTING;
}

static struct candidate *take_ready(struct tuning *tuning)
{
    struct candidate *standard = tuning->standard;
    if (tuning->method[0] == '\0' && standard != NULL && standard->state == CANDIDATE_READY) {
        struct candidate_queue others;
        queue_init(&others);
        struct candidate *candidate;
        while ((candidate = queue_pop(&tuning->ready)) != NULL)
            if (candidate != standard)
                queue_push(&others, candidate);
        while ((candidate = queue_pop(&others)) != NULL)
            queue_push(&tuning->ready, candidate);
        return standard;
    }
    return queue_pop(&tuning->ready);
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
    else if (result->end == TASK_ANSWERED)
        tuning_take_control(lane, result->answer);
    if (tuning->error.code == TUNE_OK)
        tuning_pump(tuning);
}

static void send_control(struct lane *lane)
{
    struct tuning *tuning = lane->tuning;
    lane->is_controlling = true;
    lane->sent_ns = uv_hrtime();
    sched_bench(tuning->deps.sched, lane->device_index, tuning->setup, tuning->session,
        tuning_control_request(tuning),
        tuning->deadline_ms + TUNING_SAMPLE_BUDGET_MS + ANSWER_MARGIN_MS, on_control, lane);
}

static void bench_next(struct lane *lane)
{
    struct tuning *tuning = lane->tuning;
    if (lane->benching != NULL || lane->is_controlling || lane->is_lost || tuning->ready.count == 0
        || tuning->setup == NULL || tuning->is_canceled || tuning->is_cut
        || must_wait_for_default(tuning))
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

static void bench_all(struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        bench_next(&tuning->lanes[i]);
}

/* Before the search is closed each device is looked at once more. True: wait for that. */
static bool control_at_the_end(struct tuning *tuning)
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

static bool is_benching(const struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        if (tuning->lanes[i].benching != NULL || tuning->lanes[i].is_controlling)
            return true;
    return false;
}

/* --- compiling -------------------------------------------------------------------------------- */

void tuning_request_image(struct tuning *tuning, const struct candidate *candidate,
    image_callback callback, void *context)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    const int64_t *config = NULL;
    if (candidate != NULL) {
        space_config(tuning->space, candidate->index, values);
        config = values;
    }
    struct tune_error err = { 0 };
    struct image_request request = {
        .source = image_source_of_plugin(tuning->plugin),
        .defines = plan_defines(tuning->manifest, tuning->dims, tuning->dtype, config, &err),
        .entries = plan_entries(tuning->manifest, candidate == NULL),
        .device = &tuning->device,
        .arch_suffix = config == NULL ? ""
                                      : plan_arch_suffix(tuning->manifest, &tuning->device,
                                            tuning->dims, tuning->dtype, config),
        .no_nvrtc_cache = tuning->no_nvrtc_cache,
    };
    if (request.defines == NULL)
        request.defines = json_array(); /* the compile will name what is missing */
    image_request(tuning->deps.images, &request, callback, context);
    json_decref(request.defines);
    json_decref(request.entries);
}

static void take_compile_failure(struct candidate *candidate, const struct image_result *result)
{
    struct tuning *tuning = candidate->tuning;
    if (result->is_hopeless) {
        tuning_fail(tuning, TUNE_ENOCOMPILER, "%s", result->error);
        return;
    }
    if (result->is_static_assert)
        tuning_message(tuning,
            "manifest and source of %s disagree: a configuration that the manifest allows fails a "
            "static_assert: %s",
            tuning->manifest->name, result->error);
    struct row row = {
        .outcome = OUTCOME_COMPILE_FAILED,
        .detail = result->error,
        .log = result->log,
        .log_bytes = result->log_bytes,
    };
    finish_candidate(candidate, &row);
}

static void on_image(const struct image_result *result, void *context)
{
    struct candidate *candidate = context;
    struct tuning *tuning = candidate->tuning;
    tuning->compiling--;
    tuning->compile_busy_s += result->compile_ms / 1e3;
    tuning->compiled += !result->is_cached;
    tuning->cached += result->is_cached;
    if (result->package == NULL) {
        take_compile_failure(candidate, result);
        tuning_pump(tuning);
        return;
    }
    candidate->package = json_incref(result->package);
    if (result->is_ptx)
        tuning_message(tuning, "%s is newer than NVRTC %s: compiled to PTX, which the driver finishes",
            tuning->device.arch, sched_compiler(tuning->deps.sched)->nvrtc);
    if (candidate->is_again) {
        candidate->state = CANDIDATE_READY;
        queue_push(&tuning->ready, candidate);
        tuning_pump(tuning);
        return;
    }
    set_identity(candidate);
    struct candidate **equal = identity_find(tuning, &candidate->identity);
    if (*equal == NULL) {
        *equal = candidate;
        candidate->state = CANDIDATE_READY;
        queue_push(&tuning->ready, candidate);
    } else {
        candidate->leader = *equal;
        candidate->state = CANDIDATE_FOLLOWING;
        tuning->following++;
        drop_payload(candidate);
        if ((*equal)->state == CANDIDATE_DONE)
            finish_followers(*equal);
    }
    tuning_pump(tuning);
}

/* What a launch is, without the macros that say how its image was compiled: those are in the image. */
static json_t *bare_launches(json_t *launches)
{
    json_t *bare = json_array(), *launch;
    size_t i;
    json_array_foreach(launches, i, launch)
    {
        json_t *copy = json_copy(launch);
        json_object_del(copy, "defines");
        json_array_append_new(bare, copy);
    }
    json_decref(launches);
    return bare;
}

/* Results known from before: of this run (the daemon was restarted), or a candidate that is never tried
 * again. True when there is nothing to measure. */
static bool take_known(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    const struct known *known = tuning_known(tuning, candidate->index, true);
    if (known != NULL) {
        candidate->attempts = known->attempts;
        candidate->outcome = known->outcome;
        candidate->median_ns = known->median_ns;
        candidate->lo_ns = known->lo_ns;
        candidate->hi_ns = known->hi_ns;
        candidate->is_refused = known->is_refused;
        if (known->is_final) {
            count_candidate(candidate);
            return true;
        }
        if (known->attempts < TUNING_ATTEMPTS_MAX)
            return false;
        fail_candidate(candidate, OUTCOME_CRASHED,
            "it took its worker or the daemon down each time it was tried");
        return true;
    }
    known = tuning_known(tuning, candidate->index, false);
    if (known == NULL)
        return false;
    candidate->attempts = known->attempts;
    fail_candidate(candidate, known->outcome, "not tried again: it failed so in an earlier sweep");
    return true;
}

static void compile_candidate(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    struct tune_error err = { 0 };
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    json_t *launches
        = plan_launches(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, &err);
    candidate->buffers
        = plan_buffers(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, &err);
    if (launches == NULL || candidate->buffers == NULL) {
        json_decref(launches);
        fail_candidate(candidate,
            err.code == TUNE_ELIMIT ? OUTCOME_OVER_LIMITS : OUTCOME_INVALID, err.text);
        return;
    }
    candidate->launches = bare_launches(launches);
    candidate->state = CANDIDATE_COMPILING;
    tuning->compiling++;
    tuning_request_image(tuning, candidate, on_image, candidate);
}

static void begin_candidate(struct tuning *tuning, size_t index)
{
    struct candidate *candidate = add_candidate(tuning, index);
    if (!take_known(candidate))
        compile_candidate(candidate);
}

void tuning_begin_again(struct candidate *candidate)
{
    candidate->is_again = true;
    compile_candidate(candidate);
}

/* --- setup ------------------------------------------------------------------------------------ */

static void maybe_setup(struct tuning *tuning)
{
    if (tuning->setup != NULL || tuning->harness == NULL || tuning->reference == NULL)
        return;
    tuning->session = tuning_new_session();
    tuning->setup = tuning_setup_request(tuning, tuning->session, tuning->input_seed);
}

static void take_part(struct tuning *tuning, json_t **part, const char *what,
    const struct image_result *result)
{
    if (result->package == NULL) {
        tuning_fail(tuning, result->is_hopeless ? TUNE_ENOCOMPILER : TUNE_EINVAL,
            "%s does not compile: %s", what, result->error);
        return;
    }
    *part = json_incref(result->package);
    maybe_setup(tuning);
    tuning_pump(tuning);
}

static void on_harness(const struct image_result *result, void *context)
{
    struct tuning *tuning = context;
    take_part(tuning, &tuning->harness, "the measuring harness", result);
}

static void on_reference(const struct image_result *result, void *context)
{
    struct tuning *tuning = context;
    take_part(tuning, &tuning->reference, "the kernel's reference", result);
}

static void request_parts(struct tuning *tuning)
{
    struct image_request harness = {
        .source = *tuning->deps.harness,
        .defines = json_array(),
        .entries = json_array(),
        .device = &tuning->device,
        .arch_suffix = "",
        .no_nvrtc_cache = tuning->no_nvrtc_cache,
    };
    image_request(tuning->deps.images, &harness, on_harness, tuning);
    json_decref(harness.defines);
    json_decref(harness.entries);
    tuning_request_image(tuning, NULL, on_reference, tuning);
}

/* --- the state machine ------------------------------------------------------------------------ */

bool tuning_is_waiting(const struct tuning *tuning)
{
    return tuning->compiling > 0 || tuning->following > 0 || tuning->ready.count > 0
        || is_benching(tuning) || tuning->committing.count > 0;
}

static bool may_propose(const struct tuning *tuning)
{
    return !tuning->search_is_done && !tuning->is_canceled && !tuning->is_cut
        && tuning->error.code == TUNE_OK && tuning->compiling < tuning->deps.compile_ahead
        && tuning->ready.count < TUNING_READY_MAX;
}

static void propose(struct tuning *tuning)
{
    size_t index;
    if (!tuning->default_is_proposed) {
        tuning->default_is_proposed = true;
        if (tuning->default_index != SIZE_MAX) {
            if (is_of_space(tuning, tuning->default_index))
                search_mark_tried(tuning->search, tuning->default_index);
            begin_candidate(tuning, tuning->default_index);
        }
    }
    while (may_propose(tuning) && tuning->prior_next < tuning->prior_count
        && tuning->candidate_count < search_total(tuning->search)) {
        index = tuning->prior_list[tuning->prior_next++];
        search_mark_tried(tuning->search, index);
        begin_candidate(tuning, index);
    }
    while (may_propose(tuning)) {
        enum search_step step = search_next(tuning->search, &index);
        if (step == SEARCH_DONE)
            tuning->search_is_done = true;
        if (step != SEARCH_PROPOSED)
            return;
        begin_candidate(tuning, index);
    }
}

/* The search ends before its time: what was not measured is dropped. */
static void drop_unmeasured(struct tuning *tuning)
{
    tuning->search_is_done = true;
    struct candidate *candidate;
    for (size_t i = 0; i < tuning->candidate_count; i++) {
        candidate = tuning->candidates[i];
        if (candidate->state == CANDIDATE_COMPILING)
            image_cancel(tuning->deps.images, candidate);
        if (candidate->state <= CANDIDATE_READY)
            drop_payload(candidate);
    }
    while (queue_pop(&tuning->ready) != NULL)
        continue;
    tuning->compiling = tuning->following = 0;
}

/* No answer of a device is wanted any more; what runs is killed, so that the devices are free at once. */
static void leave_devices(struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->lane_count; i++) {
        sched_abort(tuning->deps.sched, &tuning->lanes[i]);
        sched_cancel(tuning->deps.sched, &tuning->lanes[i]);
    }
}

static void cancel_running(struct tuning *tuning)
{
    leave_devices(tuning);
    for (size_t i = 0; i < tuning->lane_count; i++) {
        tuning->lanes[i].benching = NULL;
        tuning->lanes[i].is_controlling = false;
        tuning_add_mark(&tuning->lanes[i]);
    }
    tuning->confirm_is_sent = false;
}

void tuning_pump(struct tuning *tuning)
{
    if (tuning->state == STATE_OVER || tuning->state == STATE_BUILDING)
        return;
    if (tuning->error.code != TUNE_OK) {
        tuning_over(tuning, TUNING_FAILED);
        return;
    }
    if (tuning->state != STATE_SEARCHING) {
        tuning_confirm(tuning);
        return;
    }
    propose(tuning);
    bench_all(tuning);
    if (!tuning->search_is_done || tuning_is_waiting(tuning) || control_at_the_end(tuning))
        return;
    tuning->state = STATE_CONFIRMING;
    tuning->confirm_started_ns = uv_hrtime();
    report_progress(tuning, "confirming");
    tuning_confirm(tuning);
}

void tuning_message(struct tuning *tuning, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t i;
    json_t *known;
    json_array_foreach(tuning->messages, i, known)
    {
        if (strcmp(json_string_value(known), text) == 0)
            return;
    }
    if (json_array_size(tuning->messages) < 16)
        json_array_append_new(tuning->messages, json_string(text));
    log_info("%s: %s", tuning->job, text);
}

void tuning_fail(struct tuning *tuning, enum tune_code code, const char *format, ...)
{
    if (tuning->error.code == TUNE_OK) {
        va_list args;
        va_start(args, format);
        tuning->error.code = code;
        vsnprintf(tuning->error.text, sizeof tuning->error.text, format, args);
        va_end(args);
    }
    uv_async_send(&tuning->turn); /* pump ends it, outside whatever is running now */
}

/* --- life ------------------------------------------------------------------------------------- */

static void free_tuning(struct tuning *tuning)
{
    for (size_t i = 0; i < tuning->candidate_count; i++) {
        drop_payload(tuning->candidates[i]);
        free(tuning->candidates[i]);
    }
    free(tuning->candidates);
    free(tuning->lanes);
    free(tuning->identities);
    free(tuning->known);
    search_destroy(tuning->search);
    space_destroy(tuning->space);
    json_decref(tuning->harness);
    json_decref(tuning->reference);
    json_decref(tuning->setup);
    json_decref(tuning->confirmed);
    json_decref(tuning->messages);
    plugin_unref(tuning->plugin);
    free(tuning->dtype);
    free(tuning->mode);
    free(tuning->strategy);
    free(tuning->job);
    free(tuning->shape);
    json_decref(tuning->control.package);
    json_decref(tuning->control.launches);
    json_decref(tuning->control.buffers);
    free(tuning->run_search);
    free(tuning->run_again);
    free(tuning->run_confirm);
    free(tuning);
}

static void release(struct tuning *tuning)
{
    if (--tuning->outstanding == 0)
        free_tuning(tuning);
}

static void on_handle_closed(uv_handle_t *handle)
{
    release(handle->data);
}

/* Cuts every tie to the rest of the daemon; memory goes when the handles are closed. */
static void detach(struct tuning *tuning)
{
    leave_devices(tuning);
    image_cancel(tuning->deps.images, tuning);
    for (size_t i = 0; i < tuning->candidate_count; i++)
        image_cancel(tuning->deps.images, tuning->candidates[i]);
    writer_forget(tuning->deps.writer, tuning);
    for (size_t i = 0; i < tuning->lane_count; i++)
        writer_forget(tuning->deps.writer, &tuning->lanes[i]);
    uv_close((uv_handle_t *)&tuning->timer, on_handle_closed);
    uv_close((uv_handle_t *)&tuning->turn, on_handle_closed);
}

void tuning_over(struct tuning *tuning, enum tuning_end end)
{
    assert(tuning->state != STATE_OVER);
    json_t *result = tuning->space ? tuning_result(tuning) : NULL;
    tuning->state = STATE_OVER;
    tuning->callbacks.on_done(end, end == TUNING_FAILED ? &tuning->error : NULL, result,
        tuning->callbacks.context);
    json_decref(result);
    detach(tuning);
}

static void on_turn(uv_async_t *turn)
{
    tuning_pump(turn->data);
}

static void on_time_over(uv_timer_t *timer)
{
    struct tuning *tuning = timer->data;
    if (tuning->state != STATE_SEARCHING)
        return;
    tuning->is_cut = true;
    drop_unmeasured(tuning);
    tuning_pump(tuning);
}

/* Every configuration where the budget allows it, else a random choice of them. */
static void choose_strategy(struct tuning *tuning)
{
    size_t evals = tuning->budget_evals;
    if (tuning->strategy == NULL) {
        if (evals == 0)
            evals = tuning->device.attributes[DEVICE_sm] == 0 ? TUNING_DEFAULT_EVALS_CPU
                                                              : TUNING_DEFAULT_EVALS;
        tuning->strategy = xstrdup(space_count(tuning->space) <= evals ? "exhaustive" : "random");
    }
    tuning->budget_evals = evals ? evals : SIZE_MAX;
}

static void read_on_pool(uv_work_t *work)
{
    struct tuning *tuning = work->data;
    tuning_read_history(tuning);
    if (tuning->error.code == TUNE_OK)
        tuning_find_prior(tuning);
}

static void on_read(uv_work_t *work, int status)
{
    struct tuning *tuning = work->data;
    (void)status;
    if (tuning->is_abandoned) {
        release(tuning);
        return;
    }
    tuning->outstanding--;
    tuning->state = STATE_SEARCHING;
    tuning->search_started_ns = uv_hrtime();
    if (tuning->error.code != TUNE_OK) {
        tuning_pump(tuning);
        return;
    }
    tuning->default_index = space_default(tuning->space);
    choose_strategy(tuning);
    if (strcmp(tuning->strategy, "exhaustive") == 0)
        tuning->prior_count = 0;
    tuning->search = search_create(tuning->strategy, tuning->space, tuning->seed,
        tuning->budget_evals, &tuning->error);
    const char *first = NULL;
    size_t errors = space_errors(tuning->space, &first);
    if (errors > 0)
        tuning_message(tuning, "%zu configurations could not be judged by a constraint: %s", errors,
            first ? first : "");
    if (tuning->search != NULL) {
        report_progress(tuning, "searching");
        request_parts(tuning);
        if (tuning->budget_seconds > 0)
            uv_timer_start(
                &tuning->timer, on_time_over, (uint64_t)(tuning->budget_seconds * 1000) + 1, 0);
        if (tuning->is_canceled)
            drop_unmeasured(tuning);
    }
    tuning_pump(tuning);
}

static void copy_spec(struct tuning *tuning, const struct tuning_spec *spec)
{
    tuning->plugin = plugin_ref(spec->plugin);
    tuning->manifest = spec->plugin->manifest;
    tuning->lane_count = spec->device_count;
    tuning->lanes = xcalloc(spec->device_count, sizeof *tuning->lanes);
    for (size_t i = 0; i < spec->device_count; i++) {
        struct lane *lane = &tuning->lanes[i];
        lane->tuning = tuning;
        lane->device_index = spec->devices[i];
        lane->device = *sched_device(tuning->deps.sched, spec->devices[i]);
    }
    tuning->device = tuning->lanes[0].device;
    memcpy(tuning->dims, spec->dims, sizeof tuning->dims);
    tuning->dtype = xstrdup(spec->dtype);
    tuning->mode = xstrdup(spec->mode);
    tuning->strategy = xstrdup(spec->strategy);
    tuning->job = xstrdup(spec->job);
    tuning->run_search = xasprintf("%s/search", spec->job);
    tuning->run_again = xasprintf("%s/again", spec->job);
    tuning->run_confirm = xasprintf("%s/confirm", spec->job);
    tuning->shape = manifest_shape_text(tuning->manifest, tuning->dims);
    tuning->filter = spec->filter;
    tuning->has_filter = spec->has_filter;
    tuning->no_nvrtc_cache = spec->no_nvrtc_cache;
    tuning->budget_evals = spec->budget_evals;
    tuning->budget_seconds = spec->budget_seconds;
    tuning->seed = spec->seed;
    tuning->input_seed = spec->input_seed;
    tuning->deadline_ms = spec->deadline_ms;
    tuning->prior = spec->prior;
    tuning->key = (struct record_key) {
        .kernel = tuning->manifest->name,
        .fingerprint = tuning->plugin->fingerprint,
        .shape = tuning->shape,
        .dtype = tuning->dtype,
        .arch = tuning->device.arch,
        .mode = tuning->mode,
    };
}

struct tuning *tuning_start(const struct tuning_deps *deps, const struct tuning_spec *spec,
    const struct tuning_callbacks *callbacks)
{
    struct tuning *tuning = xcalloc(1, sizeof *tuning);
    tuning->deps = *deps;
    tuning->callbacks = *callbacks;
    tuning->started_ns = uv_hrtime();
    tuning->messages = json_array();
    tuning->default_index = SIZE_MAX;
    queue_init(&tuning->ready);
    queue_init(&tuning->committing);
    copy_spec(tuning, spec);
    uv_timer_init(deps->loop, &tuning->timer);
    uv_async_init(deps->loop, &tuning->turn, on_turn);
    tuning->timer.data = tuning->turn.data = tuning->work.data = tuning;
    tuning->outstanding = 3;
    uv_queue_work(deps->loop, &tuning->work, read_on_pool, on_read);
    return tuning;
}

void tuning_cancel(struct tuning *tuning)
{
    if (tuning->is_canceled || tuning->state == STATE_OVER)
        return;
    tuning->is_canceled = true;
    if (tuning->state == STATE_BUILDING)
        return; /* on_read goes on from here */
    cancel_running(tuning);
    if (tuning->state == STATE_SEARCHING)
        drop_unmeasured(tuning);
    uv_async_send(&tuning->turn);
}

void tuning_abandon(struct tuning *tuning)
{
    tuning->is_abandoned = true;
    tuning->state = STATE_OVER;
    detach(tuning);
}
