/* The state machine of a tuning; see tuning.h. Every callback updates the state and ends in
 * tuning_pump(), which starts what can be started. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the state machine ------------------------------------------------------------------------ */

static bool is_at_work(const struct tuning *tuning)
{
    return tuning->compiling > 0 || tuning->following > 0 || tuning->ready.count > 0 ||
           tuning->returned.count > 0 || lanes_are_busy(tuning) || tuning->committing.count > 0;
}

/* How far proposals may run ahead of measurements, and of the disk: candidates that fail before
 * they are compiled would otherwise be worked off in one turn of the loop, all 100,000 of a space
 * where nearly all are over a limit (run: 1.5 s without an answer to anybody). A search that learns
 * chooses the worse the more is still out (on ten gemm shapes: 6 evaluations until 5 % of the best
 * one by one, 9 with 16 out, 11 with 30), so it keeps the compilers and the devices busy and no
 * more; a cached image is there at once. What others could measure is not heaped up here. */
static bool has_room(const struct tuning *tuning)
{
    size_t workers = tuning->deps.compile_workers;
    if (tuning->committing.count >= TUNING_COMMITTING_MAX)
        return false;
    if (!search_learns(tuning->search)) {
        size_t ready = remote_is_possible(tuning) ? 2 * tuning->lane_count : TUNING_READY_MAX;
        return tuning->compiling < 2 * workers && tuning->ready.count < ready;
    }
    size_t compiles = tuning->last_was_cached ? tuning->lane_count : workers + 1;
    return tuning->compiling < compiles && tuning->ready.count <= tuning->lane_count;
}

static bool may_propose(const struct tuning *tuning)
{
    return !tuning->search_is_done && !tuning->is_canceled && !tuning->is_cut &&
           tuning->error.code == TUNE_OK && has_room(tuning);
}

bool tuning_next(struct tuning *tuning, size_t *index)
{
    if (tuning->search_is_done)
        return false;
    enum search_step step = search_next(tuning->search, index);
    tuning->search_is_done = step == SEARCH_DONE;
    return step == SEARCH_PROPOSED;
}

static void propose(struct tuning *tuning)
{
    size_t index;
    while (tuning->returned.count > 0 && has_room(tuning))
        candidate_compile(candidate_queue_pop(&tuning->returned));
    if (!tuning->default_is_proposed && may_propose(tuning)) {
        tuning->default_is_proposed = true;
        if (tuning->default_index != SIZE_MAX) {
            if (tuning_is_of_space(tuning, tuning->default_index))
                search_mark_tried(tuning->search, tuning->default_index);
            candidate_begin(tuning, tuning->default_index);
        }
    }
    while (may_propose(tuning) && tuning->prior_next < tuning->prior_count &&
           tuning->candidate_count < search_total(tuning->search)) {
        index = tuning->prior_list[tuning->prior_next++];
        search_mark_tried(tuning->search, index);
        candidate_begin(tuning, index);
    }
    while (may_propose(tuning) && tuning_next(tuning, &index))
        candidate_begin(tuning, index);
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
            candidate_drop_payload(candidate);
    }
    while (candidate_queue_pop(&tuning->ready) != NULL)
        continue;
    while (candidate_queue_pop(&tuning->returned) != NULL)
        continue;
    remote_drop(tuning);
    tuning->compiling = tuning->following = 0;
}

static void cancel_running(struct tuning *tuning)
{
    lanes_leave(tuning);
    for (size_t i = 0; i < tuning->lane_count; i++) {
        tuning->lanes[i].benching = NULL;
        tuning->lanes[i].is_controlling = false;
        tuning_add_mark(&tuning->lanes[i]);
    }
    tuning->confirm_is_sent = false;
}

static void begin_confirmation(struct tuning *tuning)
{
    tuning->state = STATE_CONFIRMING;
    tuning->confirm_started_ns = uv_hrtime();
    tuning_report(tuning, "confirming");
    tuning_confirm(tuning);
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
    remote_offer(tuning);
    lanes_measure(tuning);
    if (is_at_work(tuning))
        return;
    if (tuning->batch_count > 0)
        remote_take_back(tuning);
    else if (tuning->search_is_done && !lanes_control_at_the_end(tuning))
        begin_confirmation(tuning);
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
    json_array_foreach (tuning->messages, i, known) {
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
        candidate_drop_payload(tuning->candidates[i]);
        free(tuning->candidates[i]->detail);
        free(tuning->candidates[i]);
    }
    free(tuning->candidates);
    free(tuning->guesses);
    free(tuning->lanes);
    free(tuning->identities);
    free(tuning->known);
    search_destroy(tuning->search);
    space_destroy(tuning->space);
    json_decref(tuning->harness);
    json_decref(tuning->reference);
    json_decref(tuning->setup);
    json_decref(tuning->messages);
    plugin_unref(tuning->plugin);
    free(tuning->dtype);
    free(tuning->mode);
    free(tuning->strategy);
    free(tuning->input);
    free(tuning->job);
    free(tuning->shape);
    json_decref(tuning->control.package);
    json_decref(tuning->control.launches);
    json_decref(tuning->control.buffers);
    free(tuning->run_search);
    free(tuning->run_again);
    free(tuning->run_confirm);
    for (size_t i = 0; i < tuning->help_config_count; i++)
        free(tuning->help_configs[i]);
    free(tuning->help_configs);
    free(tuning->help_indices);
    free(tuning);
}

void tuning_release(struct tuning *tuning)
{
    if (--tuning->outstanding == 0)
        free_tuning(tuning);
}

static void on_handle_closed(uv_handle_t *handle)
{
    tuning_release(handle->data);
}

/* Cuts every tie to the rest of the daemon; memory goes when the handles are closed. */
static void detach(struct tuning *tuning)
{
    remote_drop(tuning);
    lanes_leave(tuning);
    image_cancel(tuning->deps.images, tuning);
    for (size_t i = 0; i < tuning->candidate_count; i++)
        image_cancel(tuning->deps.images, tuning->candidates[i]);
    writer_forget(tuning->deps.writer, tuning);
    for (size_t i = 0; i < tuning->lane_count; i++)
        writer_forget(tuning->deps.writer, &tuning->lanes[i]);
    uv_close((uv_handle_t *)&tuning->timer, on_handle_closed);
    uv_close((uv_handle_t *)&tuning->turn, on_handle_closed);
    uv_close((uv_handle_t *)&tuning->patience, on_handle_closed);
}

void tuning_over(struct tuning *tuning, enum tuning_end end)
{
    assert(tuning->state != STATE_OVER);
    json_t *result = tuning->space ? tuning_result(tuning) : NULL;
    tuning->state = STATE_OVER;
    tuning->callbacks.on_done(
        end, end == TUNING_FAILED ? &tuning->error : NULL, result, tuning->callbacks.context);
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
    bool is_begun = tuning->benched > 0 || (tuning->ready.count == 0 && !lanes_are_busy(tuning));
    if (tuning->state != STATE_SEARCHING || !is_begun)
        return; /* the first measurement starts it anew */
    tuning->is_cut = true;
    drop_unmeasured(tuning);
    tuning_pump(tuning);
}

/* Many candidates may be over a limit, or not compile, before the inputs are there. Their failures
 * start the clock only where the default will not: else a search of nothing but failures would have
 * no end. */
void tuning_start_clock(struct tuning *tuning)
{
    const struct candidate *standard = tuning->standard;
    bool is_measured = tuning->benched > 0;
    bool is_expected = standard != NULL && standard->state < CANDIDATE_COMMITTING;
    if (is_measured ? tuning->clock_counts : tuning->clock_runs || is_expected)
        return;
    if (tuning->budget_seconds > 0)
        uv_timer_start(
            &tuning->timer, on_time_over, (uint64_t)(tuning->budget_seconds * 1000) + 1, 0);
    tuning->clock_runs = true;
    tuning->clock_counts = is_measured;
}

/* Also where the budget would allow every configuration: time may end first, and then those that
 * promise most should have been measured. */
static void choose_strategy(struct tuning *tuning)
{
    size_t evals = tuning->budget_evals;
    if (tuning->strategy == NULL) {
        if (evals == 0)
            evals = tuning->device.attributes[DEVICE_sm] == 0 ? TUNING_DEFAULT_EVALS_CPU
                                                              : TUNING_DEFAULT_EVALS;
        tuning->strategy = xstrdup("guided");
    }
    tuning->budget_evals = evals ? evals : SIZE_MAX;
}

static void create_search(struct tuning *tuning)
{
    if (tuning->is_helping) {
        tuning->default_is_proposed = true;
        tuning->search =
            search_create_listed(tuning->space, tuning->help_indices, tuning->help_count);
        return;
    }
    choose_strategy(tuning);
    if (strcmp(tuning->strategy, "exhaustive") == 0)
        tuning->prior_count = 0;
    tuning->search = search_create(
        tuning->strategy, tuning->space, tuning->seed, tuning->budget_evals, &tuning->error);
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
        tuning_release(tuning);
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
    create_search(tuning);
    if (tuning->search != NULL && tuning->guesses != NULL)
        search_guess(tuning->search, tuning->guesses);
    free(tuning->guesses);
    tuning->guesses = NULL;
    const char *first = NULL;
    size_t errors = space_errors(tuning->space, &first);
    if (errors > 0)
        tuning_message(tuning, "%zu configurations could not be judged by a constraint: %s", errors,
            first ? first : "");
    if (tuning->search != NULL) {
        tuning_report(tuning, "searching");
        tuning_request_parts(tuning);
        if (tuning->is_canceled)
            drop_unmeasured(tuning);
    }
    tuning_pump(tuning);
}

static void copy_help(struct tuning *tuning, const struct tuning_help *help)
{
    tuning->is_helping = help->count > 0;
    if (!tuning->is_helping)
        return;
    tuning->help_configs = xcalloc(help->count, sizeof *tuning->help_configs);
    tuning->help_indices = xcalloc(help->count, sizeof *tuning->help_indices);
    for (size_t i = 0; i < help->count; i++)
        tuning->help_configs[i] = xstrdup(help->configs[i]);
    tuning->help_config_count = help->count;
    tuning->help_best_ns = help->best_ns;
    snprintf(tuning->method, sizeof tuning->method, "%s", help->method);
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
    tuning->input = xstrdup(spec->input);
    tuning->is_input_checked = spec->is_input_checked;
    tuning->asker = spec->asker;
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
    tuning->is_local = spec->is_local;
    copy_help(tuning, &spec->help);
    remote_begin(tuning);
    tuning->key = (struct record_key){
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
    candidate_queue_init(&tuning->ready);
    candidate_queue_init(&tuning->committing);
    candidate_queue_init(&tuning->returned);
    copy_spec(tuning, spec);
    uv_timer_init(deps->loop, &tuning->timer);
    uv_async_init(deps->loop, &tuning->turn, on_turn);
    uv_timer_init(deps->loop, &tuning->patience);
    tuning->timer.data = tuning->turn.data = tuning->work.data = tuning->patience.data = tuning;
    tuning->outstanding = 4;
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
