/* Batches of candidates that other machines measure.
 *
 * Design. While the search goes on, what the lanes here do not need soon is offered in batches that
 * take a helper a few seconds. A batch ends in one of three ways (fleet.h), and each is treated
 * alike: the rows of its candidates are read from the database on a pool thread; what has a final
 * one is counted, as if it had been measured here; what has none is queued to be measured here.
 * When there is nothing left to do here, batches that nobody has begun are taken back, and those
 * that somebody has are waited for, but not for ever (REMOTE_PATIENCE_MS): work may be done twice,
 * never not at all.
 *
 * The end of a batch may come before, while or after the search is cut or cancelled: remote_drop
 * withdraws what is out, and what is being read then frees itself. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_FIRST 8      /* before it is known how long a candidate takes */
#define BATCH_LEARNING 2   /* a search that learns chooses the worse the more is out */
#define BATCH_SECONDS 3.0  /* what a batch should take */
#define BATCHES_MAX 128    /* out at a time */
#define RATE_KNOWN_AFTER 4 /* measurements */
#define USELESS_MAX 3      /* batches in a row without a result: nobody can help with this kernel */
#define REMOTE_PATIENCE_MS 30000 /* once or twice that, after nothing was left to do here */

/* What the database has of a candidate. */
struct remote_row {
    bool is_known, is_final, is_refused;
    enum outcome outcome;
    uint32_t attempts;
    double median_ns, lo_ns, hi_ns;
    size_t leader; /* place in the batch of the one with equal code; SIZE_MAX: none */
};

struct batch {
    struct tuning *tuning;
    struct batch *next;
    struct fleet_task *task; /* NULL: it has ended, and its rows are being read */
    bool is_taken_back, is_late, is_dropped;
    size_t count;
    struct candidate *candidates[TUNING_BATCH_MAX];
    char *configs[TUNING_BATCH_MAX];
    struct remote_row rows[TUNING_BATCH_MAX];
    uv_work_t work;
};

/* --- the list --------------------------------------------------------------------------------- */

static void free_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        free(batch->configs[i]);
    free(batch);
}

static void remove_batch(struct batch *batch)
{
    struct batch **at = &batch->tuning->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
    batch->tuning->batch_count--;
}

/* --- reading what came ------------------------------------------------------------------------ */

static size_t place_of(const struct batch *batch, const char *config)
{
    for (size_t i = 0; i < batch->count; i++)
        if (strcmp(batch->configs[i], config) == 0)
            return i;
    return SIZE_MAX;
}

/* A batch that was taken over by another machine may have two rows of one candidate: the final one
 * counts, or the first that the walk meets. */
static int on_sample(const struct sample *sample, void *context)
{
    struct batch *batch = context;
    if (!tuning_is_of_run(batch->tuning, sample))
        return 0;
    size_t place = place_of(batch, sample->config);
    bool is_usable =
        sample->outcome != OUTCOME_OK || (sample->median_ns > 0 && isfinite(sample->median_ns));
    if (place == SIZE_MAX || !is_usable)
        return 0;
    struct remote_row *row = &batch->rows[place];
    if (row->is_known && (row->is_final || !sample->is_final))
        return 0;
    *row = (struct remote_row){
        .is_known = true,
        .is_final = sample->is_final,
        .is_refused = sample->is_refused,
        .outcome = sample->outcome,
        .attempts = sample->attempts,
        .median_ns = sample->median_ns,
        .lo_ns = sample->lo_ns,
        .hi_ns = sample->hi_ns,
        .leader = place_of(batch, sample->same_as),
    };
    return 0;
}

static void read_on_pool(uv_work_t *work)
{
    struct batch *batch = work->data;
    struct tuning *tuning = batch->tuning;
    struct tune_error err = {0};
    if (tuning_db_walk_samples(tuning->deps.db, &tuning->key, on_sample, batch, &err))
        log_warnx("%s: what others measured cannot be read: %s", tuning->job, err.text);
}

static void take_row(struct batch *batch, size_t place)
{
    struct candidate *candidate = batch->candidates[place];
    const struct remote_row *row = &batch->rows[place];
    candidate->outcome = row->outcome;
    candidate->attempts = row->attempts;
    candidate->median_ns = row->median_ns;
    candidate->lo_ns = row->lo_ns;
    candidate->hi_ns = row->hi_ns;
    candidate->is_refused = row->is_refused;
    if (row->leader != SIZE_MAX && row->leader != place && batch->rows[row->leader].is_final &&
        batch->candidates[row->leader]->leader == NULL)
        candidate->leader = batch->candidates[row->leader];
    candidate_count(candidate);
}

/* To be measured here. An attempt that was made elsewhere counts: a candidate takes down
 * TUNING_ATTEMPTS_MAX workers, wherever they are. */
static void return_candidate(struct candidate *candidate, const struct remote_row *row)
{
    uint32_t attempts = row->is_known ? row->attempts : 0;
    candidate->attempts =
        attempts < TUNING_ATTEMPTS_MAX ? attempts : (uint32_t)TUNING_ATTEMPTS_MAX - 1;
    candidate_queue_push(&candidate->tuning->returned, candidate);
}

static void take_rows(struct batch *batch)
{
    struct tuning *tuning = batch->tuning;
    size_t taken = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->rows[i].is_final) {
            take_row(batch, i);
            taken++;
        } else {
            return_candidate(batch->candidates[i], &batch->rows[i]);
        }
    }
    tuning->remote_evaluations += taken;
    if (taken > 0)
        tuning->useless_batches = 0;
    else if (!batch->is_taken_back && ++tuning->useless_batches == USELESS_MAX)
        tuning_message(tuning,
            "other machines could not help: see their logs; the rest is measured here alone");
}

static void on_rows_read(uv_work_t *work, int status)
{
    struct batch *batch = work->data;
    struct tuning *tuning = batch->tuning;
    (void)status;
    if (!batch->is_dropped) {
        remove_batch(batch);
        take_rows(batch);
        tuning_report(tuning, "searching");
        uv_async_send(&tuning->turn);
    }
    free_batch(batch);
    tuning_release(tuning);
}

/* The batch is out no more. */
static void read_rows(struct batch *batch)
{
    struct tuning *tuning = batch->tuning;
    batch->task = NULL;
    batch->work.data = batch;
    tuning->outstanding++;
    uv_queue_work(tuning->deps.loop, &batch->work, read_on_pool, on_rows_read);
}

static void on_end(struct fleet_task *task, enum fleet_task_end end, void *context)
{
    struct batch *batch = context;
    (void)task;
    batch->is_taken_back |= end == FLEET_TASK_TAKEN_BACK;
    read_rows(batch);
}

/* --- offering --------------------------------------------------------------------------------- */

void remote_begin(struct tuning *tuning)
{
    const struct device_info *device = &tuning->device;
    if (tuning->deps.fleet != NULL)
        fleet_target_text(device->arch, device->name, (unsigned)device->attributes[DEVICE_sms],
            tuning->target, sizeof tuning->target);
}

bool remote_is_possible(const struct tuning *tuning)
{
    return tuning->deps.fleet != NULL && !tuning->is_local && !tuning->is_helping &&
           tuning->deadline_ms <= TUNING_HELP_DEADLINE_MAX_MS &&
           tuning->useless_batches < USELESS_MAX &&
           fleet_helpers(tuning->deps.fleet, tuning->target) > 0;
}

/* The method must be chosen, and what came back must be under way: others have shown that they
 * do not get it done. */
static bool may_offer(const struct tuning *tuning, size_t helpers)
{
    size_t most = search_learns(tuning->search) ? helpers : 2 * helpers;
    return !tuning->search_is_done && !tuning->is_canceled && !tuning->is_cut &&
           tuning->method[0] != '\0' && tuning->returned.count == 0 &&
           tuning->error.code == TUNE_OK && tuning->batch_count < most &&
           tuning->batch_count < BATCHES_MAX && tuning->committing.count < TUNING_COMMITTING_MAX;
}

/* What takes one device some seconds, and not more than its share of half of what is left, so that
 * all end at about the same time. */
static size_t batch_size(const struct tuning *tuning, size_t helpers)
{
    size_t total = search_total(tuning->search), begun = tuning->candidate_count;
    size_t left = total > begun ? total - begun : 1;
    size_t shares = 2 * (helpers + tuning->lane_count);
    size_t fair = (left + shares - 1) / shares, size = BATCH_FIRST;
    if (search_learns(tuning->search)) {
        size = BATCH_LEARNING;
    } else if (tuning->benched >= RATE_KNOWN_AFTER) {
        double spent_s = (double)(uv_hrtime() - tuning->search_started_ns) / 1e9;
        double each_s = spent_s * (double)tuning->lane_count / (double)tuning->benched;
        double most = BATCH_SECONDS / each_s;
        size = most >= TUNING_BATCH_MAX ? TUNING_BATCH_MAX : most < 1 ? 1 : (size_t)most;
    }
    return size < fair ? size : fair;
}

static json_t *payload_json(const struct batch *batch)
{
    const struct tuning *tuning = batch->tuning;
    json_t *configs = json_array();
    for (size_t i = 0; i < batch->count; i++)
        json_array_append_new(configs, json_string(batch->configs[i]));
    json_t *payload = json_pack("{s:i, s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:I, s:I}", "v",
        1, "target", tuning->target, "job", tuning->job, "kernel", tuning->manifest->name,
        "fingerprint", tuning->plugin->fingerprint, "shape",
        manifest_shape_to_json(tuning->manifest, tuning->dims), "dtype", tuning->dtype, "mode",
        tuning->mode, "method", tuning->method, "configs", configs, "input_seed",
        (json_int_t)(tuning->input_seed & INT64_MAX), "deadline_ms",
        (json_int_t)tuning->deadline_ms);
    if (tuning->best != NULL)
        json_object_set_new(payload, "best_ns", json_real(tuning->best->hi_ns));
    return payload;
}

static char *config_text(const struct candidate *candidate)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(candidate->tuning->space, candidate->index, values);
    return manifest_config_text(candidate->tuning->manifest, values);
}

/* NULL where the search has nothing to give. */
static struct batch *gather(struct tuning *tuning, size_t size)
{
    struct batch *batch = xcalloc(1, sizeof *batch);
    size_t index;
    batch->tuning = tuning;
    while (batch->count < size && tuning->committing.count < TUNING_COMMITTING_MAX &&
           tuning_next(tuning, &index)) {
        struct candidate *candidate = candidate_begin_remote(tuning, index);
        if (candidate == NULL)
            continue;
        batch->configs[batch->count] = config_text(candidate);
        batch->candidates[batch->count++] = candidate;
    }
    if (batch->count > 0)
        return batch;
    free_batch(batch);
    return NULL;
}

/* False: it cannot be offered, and its candidates are measured here. */
static bool offer(struct batch *batch)
{
    struct tuning *tuning = batch->tuning;
    batch->task =
        fleet_offer(tuning->deps.fleet, tuning->target, payload_json(batch), on_end, batch);
    if (batch->task == NULL) {
        for (size_t i = 0; i < batch->count; i++)
            candidate_queue_push(&tuning->returned, batch->candidates[i]);
        free_batch(batch);
        uv_async_send(&tuning->turn);
        return false;
    }
    batch->next = tuning->batches;
    tuning->batches = batch;
    tuning->batch_count++;
    tuning->offered++;
    return true;
}

void remote_offer(struct tuning *tuning)
{
    if (!remote_is_possible(tuning))
        return;
    size_t helpers = fleet_helpers(tuning->deps.fleet, tuning->target);
    if (helpers > tuning->most_helpers)
        tuning->most_helpers = helpers;
    while (may_offer(tuning, helpers)) {
        struct batch *batch = gather(tuning, batch_size(tuning, helpers));
        if (batch == NULL || !offer(batch))
            return;
    }
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Somebody holds a batch, and lives, and does not end it. */
static void on_patience_over(uv_timer_t *timer)
{
    struct tuning *tuning = timer->data;
    if (tuning->batch_count == 0)
        uv_timer_stop(timer);
    for (struct batch *batch = tuning->batches; batch != NULL; batch = batch->next) {
        if (batch->task == NULL || !batch->is_taken_back)
            continue;
        if (!batch->is_late) {
            batch->is_late = true;
            continue;
        }
        tuning_message(tuning, "another machine did not finish what it had begun: measured here");
        fleet_withdraw(batch->task);
        read_rows(batch);
    }
}

void remote_take_back(struct tuning *tuning)
{
    if (!uv_is_active((uv_handle_t *)&tuning->patience))
        uv_timer_start(&tuning->patience, on_patience_over, REMOTE_PATIENCE_MS, REMOTE_PATIENCE_MS);
    for (struct batch *batch = tuning->batches, *next; batch != NULL; batch = next) {
        next = batch->next;
        if (batch->task == NULL || batch->is_taken_back)
            continue;
        batch->is_taken_back = true;
        fleet_take_back(batch->task);
    }
}

void remote_drop(struct tuning *tuning)
{
    for (struct batch *batch = tuning->batches, *next; batch != NULL; batch = next) {
        next = batch->next;
        batch->is_dropped = true;
        if (batch->task == NULL)
            continue; /* on_rows_read frees it */
        fleet_withdraw(batch->task);
        free_batch(batch);
    }
    tuning->batches = NULL;
    tuning->batch_count = 0;
    uv_timer_stop(&tuning->patience);
}

json_t *remote_json(const struct tuning *tuning)
{
    return json_pack("{s:I, s:I, s:I}", "helpers", (json_int_t)tuning->most_helpers, "tasks",
        (json_int_t)tuning->offered, "remote_evaluations", (json_int_t)tuning->remote_evaluations);
}
