/* Confirmation: the finalists and the default, measured interleaved on fresh inputs, verified
 * again. What is not slower than the default beside it becomes a confirmed row; `best` is then made
 * from all rows. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINALIST_MARGIN 1.05 /* whose lower bound is within this of the best's upper bound */
#define CONFIRM_TRIES 3 /* a worker or device that fails may have been disturbed from outside */
#define CONFIRM_BUDGET_MS 1500
#define CONFIRM_MARGIN_MS 30000

uint64_t tuning_new_session(void)
{
    static uint64_t last;
    return ++last;
}

json_t *tuning_setup_request(struct tuning *tuning, uint64_t session, uint64_t input_seed)
{
    struct tune_error err = {0};
    json_t *buffers =
        plan_buffers(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, NULL, &err);
    json_t *reference =
        plan_reference(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, &err);
    if (buffers == NULL || reference == NULL) {
        json_decref(buffers);
        json_decref(reference);
        tuning_fail(tuning, err.code, "%s for this shape: %s", tuning->manifest->name, err.text);
        return NULL;
    }
    json_t *request = json_pack("{s:s, s:I, s:O, s:O, s:O, s:o, s:o, s:I, s:s?, s:{s:s, s:s, s:o}}",
        "op", "setup", "session", (json_int_t)session, "harness",
        json_object_get(tuning->harness, "image"), "reference_image",
        json_object_get(tuning->reference, "image"), "reference_names",
        json_object_get(tuning->reference, "names"), "buffers", buffers, "reference", reference,
        "seed", (json_int_t)(input_seed & INT64_MAX), "hooks", tuning->plugin->hooks, "call",
        "kernel", tuning->manifest->name, "dtype", tuning->dtype, "dims",
        manifest_shape_to_json(tuning->manifest, tuning->dims));
    if (tuning->input != NULL)
        json_object_set_new(request, "input", json_string(tuning->input));
    if (tuning->input != NULL && tuning->is_input_checked)
        json_object_set_new(request, "input_reader", json_integer((json_int_t)tuning->asker));
    return request;
}

/* --- who takes part --------------------------------------------------------------------------- */

static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = *(struct candidate *const *)left;
    const struct candidate *b = *(struct candidate *const *)right;
    if (tuning_is_better(a, b) != tuning_is_better(b, a))
        return tuning_is_better(a, b) ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void choose_finalists(struct tuning *tuning)
{
    struct candidate **sorted = xcalloc(tuning->candidate_count, sizeof *sorted);
    size_t count = 0;
    for (size_t i = 0; i < tuning->candidate_count; i++) {
        struct candidate *candidate = tuning->candidates[i];
        if (candidate->is_counted && candidate->leader == NULL && !candidate->is_default &&
            tuning_is_close(candidate, FINALIST_MARGIN))
            sorted[count++] = candidate;
    }
    qsort(sorted, count, sizeof *sorted, compare_candidates);
    tuning->finalist_count = 0;
    for (size_t i = 0; i < count && i < TUNING_CONFIRM_MAX; i++)
        tuning->finalists[tuning->finalist_count++] = sorted[i];
    free(sorted);
    if (tuning->standard != NULL && tuning->standard->is_counted &&
        tuning->standard->outcome == OUTCOME_OK && !tuning->standard->is_refused)
        tuning->finalists[tuning->finalist_count++] = tuning->standard;
}

/* --- images ----------------------------------------------------------------------------------- */

static void drop_finalist(struct tuning *tuning, size_t index)
{
    struct candidate *candidate = tuning->finalists[index];
    json_decref(candidate->subject.package);
    candidate->subject.package = NULL;
    memmove(&tuning->finalists[index], &tuning->finalists[index + 1],
        (tuning->finalist_count - index - 1) * sizeof tuning->finalists[0]);
    tuning->finalist_count--;
}

static void on_finalist_image(const struct image_result *result, void *context)
{
    struct candidate *candidate = context;
    struct tuning *tuning = candidate->tuning;
    tuning->finalist_images--;
    if (result->package != NULL)
        candidate->subject.package = json_incref(result->package);
    if (tuning->finalist_images > 0)
        return;
    for (size_t i = tuning->finalist_count; i-- > 0;)
        if (tuning->finalists[i]->subject.package == NULL)
            drop_finalist(tuning, i);
    if (tuning->finalist_count == 0) /* they would be chosen again, without end */
        tuning_fail(tuning, result->is_hopeless ? TUNE_ENOCOMPILER : TUNE_EINTERNAL,
            "the best candidates do not compile a second time: %s", result->error);
    tuning_pump(tuning);
}

static void request_finalists(struct tuning *tuning)
{
    tuning->finalist_images = tuning->finalist_count;
    for (size_t i = 0; i < tuning->finalist_count; i++)
        tuning_request_image(tuning, tuning->finalists[i], on_finalist_image, tuning->finalists[i]);
}

/* --- the measurement -------------------------------------------------------------------------- */

static json_t *finalist_json(struct tuning *tuning, const struct candidate *candidate)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    return json_pack("{s:O, s:O, s:o, s:o}", "image",
        json_object_get(candidate->subject.package, "image"), "names",
        json_object_get(candidate->subject.package, "names"), "buffers",
        plan_buffers(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, NULL),
        "launches",
        plan_launches(
            tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, NULL));
}

static void set_failed(struct candidate *candidate, enum outcome outcome, const json_t *answer)
{
    struct tuning *tuning = candidate->tuning;
    size_t *counts = tuning->counts;
    struct row row = {
        .candidate = candidate,
        .run = tuning->run_confirm,
        .outcome = outcome,
        .is_final = true,
        .answer = answer,
    };
    tuning_add_row(tuning, &row);
    if (candidate->is_counted && candidate->outcome == OUTCOME_OK) {
        counts[OUTCOME_OK]--;
        counts[outcome]++;
    }
    candidate->outcome = outcome;
}

/* A finalist that failed now, on other inputs or beside others, is not a winner: its failure
 * becomes a row and the rest is measured again without it. */
static void take_failure(struct tuning *tuning, const json_t *answer)
{
    enum outcome outcome;
    const char *word = json_string_value(json_object_get(answer, "outcome"));
    const char *blame = json_string_value(json_object_get(answer, "blame"));
    json_int_t index = json_integer_value(json_object_get(answer, "candidate"));
    if (blame != NULL && strcmp(blame, "device") == 0 &&
        json_is_true(json_object_get(answer, "retry")) && ++tuning->device_failures < CONFIRM_TRIES)
        return; /* pump sends it again */
    if (word == NULL || outcome_from_word(word, &outcome) || outcome == OUTCOME_OK || index < 0 ||
        (size_t)index >= tuning->finalist_count) {
        const char *error = json_string_value(json_object_get(answer, "error"));
        tuning_fail(tuning, TUNE_EINTERNAL, "the confirmation failed: %s",
            error ? error : "no reason given");
        return;
    }
    struct candidate *candidate = tuning->finalists[index];
    tuning_message(tuning, "a finalist failed in the confirmation (%s) and was set aside", word);
    set_failed(candidate, outcome, answer);
    for (size_t i = 0; i < tuning->candidate_count; i++) /* what is equal to it fails with it */
        if (tuning->candidates[i]->leader == candidate)
            set_failed(tuning->candidates[i], outcome, answer);
    drop_finalist(tuning, (size_t)index);
    tuning_find_best(tuning);
}

static void take_result(struct tuning *tuning, size_t index, const json_t *result)
{
    struct times times = tuning_times(result);
    tuning->confirmed_median[index] = times.median_ns;
    tuning->confirmed_lo[index] = times.lo_ns;
    tuning->confirmed_hi[index] = times.hi_ns;
    tuning->confirmed_samples[index] = json_array_size(json_object_get(result, "samples_ns"));
}

static void add_confirmed_rows(struct tuning *tuning, const json_t *answer)
{
    size_t last = tuning->finalist_count - 1;
    bool has_default = tuning->finalists[last] == tuning->standard;
    const json_t *results = json_object_get(answer, "results");
    for (size_t i = 0; i < tuning->finalist_count; i++)
        take_result(tuning, i, json_array_get(results, i));
    for (size_t i = 0; i < tuning->finalist_count; i++) {
        json_t *one = json_copy(json_array_get(results, i));
        json_object_set(one, "clocks", json_object_get(answer, "clocks"));
        struct row row = {
            .candidate = tuning->finalists[i],
            .run = tuning->run_confirm,
            .outcome = OUTCOME_OK,
            .is_final = true,
            .is_confirmed =
                !has_default || tuning->confirmed_median[i] <= tuning->confirmed_median[last],
            .answer = one,
        };
        tuning_add_row(tuning, &row);
        json_decref(one);
    }
    tuning->has_confirmed = true;
}

static void on_confirmed(const struct task_result *result, void *context)
{
    struct lane *lane = context;
    struct tuning *tuning = lane->tuning;
    tuning->confirm_is_sent = false;
    switch (result->end) {
    case TASK_ANSWERED: {
        const char *word = json_string_value(json_object_get(result->answer, "outcome"));
        bool is_whole =
            json_array_size(json_object_get(result->answer, "results")) == tuning->finalist_count;
        if (word != NULL && strcmp(word, "ok") == 0 && is_whole)
            add_confirmed_rows(tuning, result->answer);
        else
            take_failure(tuning, result->answer);
        break;
    }
    case TASK_CRASHED:
    case TASK_TIMED_OUT:
    case TASK_SETUP_FAILED:
        if (result->answer == NULL && ++tuning->setup_failures < CONFIRM_TRIES)
            break; /* pump sends it again, to a fresh worker */
        tuning_fail(tuning, TUNE_EINTERNAL, "the confirmation failed: %s", result->why);
        break;
    case TASK_OVER_MEMORY:
    case TASK_UNAVAILABLE:
        lane->is_lost = true; /* pump sends it to another, if there is one */
        tuning_message(tuning, "device %d is out of use: %s", lane->device.ordinal, result->why);
        break;
    }
    tuning_pump(tuning);
}

static void send_confirm(struct tuning *tuning)
{
    struct lane *lane = tuning_first_lane(tuning);
    if (lane == NULL) {
        tuning_fail(tuning, TUNE_ENODEVICE, "%s: no device is left to confirm the best on",
            tuning->device.name);
        return;
    }
    for (size_t i = 0; i < tuning->finalist_count; i++)
        tuning->finalists[i]->lane = lane; /* whose rows these will be */
    json_t *list = json_array();
    for (size_t i = 0; i < tuning->finalist_count; i++)
        json_array_append_new(list, finalist_json(tuning, tuning->finalists[i]));
    uint64_t session = tuning_new_session();
    json_t *setup = tuning_setup_request(tuning, session, tuning->input_seed + 1);
    if (setup == NULL) {
        json_decref(list);
        return;
    }
    json_t *request = json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:b, s:o}", "op", "confirm",
        "session", (json_int_t)session, "mode", tuning->mode, "method",
        tuning->method[0] ? tuning->method : "event", "deadline_ms",
        (json_int_t)tuning->deadline_ms, "budget_ms", (json_int_t)CONFIRM_BUDGET_MS, "seed",
        (json_int_t)(tuning->seed & INT64_MAX), "verify", 1, "candidates", list);
    tuning->confirm_is_sent = true;
    sched_bench(tuning->deps.sched, lane->device_index, setup, session, request,
        tuning->deadline_ms + CONFIRM_BUDGET_MS + CONFIRM_MARGIN_MS, on_confirmed, lane);
    json_decref(setup);
}

/* --- publishing ------------------------------------------------------------------------------- */

static void on_published(const struct tune_error *err, void *context)
{
    struct tuning *tuning = context;
    if (err != NULL) {
        tuning_fail(tuning, err->code, "the best could not be stored: %s", err->text);
        return;
    }
    tuning_over(tuning, tuning->is_canceled ? TUNING_CANCELED : TUNING_DONE);
}

static void publish(struct tuning *tuning)
{
    tuning->state = STATE_PUBLISHING;
    for (size_t i = 0; i < tuning->lane_count; i++)
        tuning_add_mark(&tuning->lanes[i]);
    if (tuning->counts[OUTCOME_OK] > 0)
        tuning_db_batch_refresh(writer_batch(tuning->deps.writer), &tuning->key);
    writer_after_commit(tuning->deps.writer, on_published, tuning);
}

void tuning_confirm(struct tuning *tuning)
{
    if (tuning->state == STATE_PUBLISHING || tuning->confirm_is_sent || tuning->finalist_images > 0)
        return;
    if (tuning->is_canceled || tuning->best == NULL || tuning->has_confirmed ||
        tuning->is_helping) {
        publish(tuning);
        return;
    }
    if (tuning->finalist_count == 0) {
        choose_finalists(tuning);
        if (tuning->finalist_count == 0) {
            publish(tuning);
            return;
        }
        request_finalists(tuning);
        return;
    }
    send_confirm(tuning);
}
