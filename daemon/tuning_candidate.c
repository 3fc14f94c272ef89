/* A candidate from its proposal to its row: queues, equality, counting. */
#include "daemon/tuning_internal.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define DETAIL_MAX 200 /* of a sentence for watchers; the row has more */

/* --- queues ----------------------------------------------------------------------------------- */

void candidate_queue_init(struct candidate_queue *queue)
{
    *queue = (struct candidate_queue){.end = &queue->first};
}

void candidate_queue_push(struct candidate_queue *queue, struct candidate *candidate)
{
    candidate->next = NULL;
    *queue->end = candidate;
    queue->end = &candidate->next;
    queue->count++;
}

void candidate_queue_push_front(struct candidate_queue *queue, struct candidate *candidate)
{
    candidate->next = queue->first;
    if (queue->first == NULL)
        queue->end = &candidate->next;
    queue->first = candidate;
    queue->count++;
}

struct candidate *candidate_queue_pop(struct candidate_queue *queue)
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

/* --- identity: equal image and launches are one candidate ---------------------------------------
 */

static uint64_t identity_slot(const struct record_hash *hash)
{
    uint64_t slot;
    memcpy(&slot, hash->bytes, sizeof slot);
    return slot;
}

struct candidate **candidate_find_equal(struct tuning *tuning, const struct record_hash *hash)
{
    size_t mask = tuning->identity_room - 1;
    size_t at = identity_slot(hash) & mask;
    while (tuning->identities[at] != NULL &&
           memcmp(&tuning->identities[at]->identity, hash, sizeof *hash) != 0)
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
            *candidate_find_equal(tuning, &old[i]->identity) = old[i];
    free(old);
}

void candidate_set_identity(struct candidate *candidate)
{
    char *launches = json_dumps(candidate->subject.launches, JSON_COMPACT);
    char *buffers = json_dumps(candidate->subject.buffers, JSON_COMPACT);
    char *text = xasprintf("%s|%s|%s",
        json_string_value(json_object_get(candidate->subject.package, "image")), launches, buffers);
    candidate->identity = record_text_hash(text);
    free(text);
    free(buffers);
    free(launches);
}

/* --- candidates ------------------------------------------------------------------------------- */

struct candidate *candidate_add(struct tuning *tuning, size_t index)
{
    if (tuning->candidate_count == tuning->candidate_room) {
        tuning->candidate_room = tuning->candidate_room ? tuning->candidate_room * 2 : 64;
        tuning->candidates =
            xrealloc(tuning->candidates, tuning->candidate_room * sizeof *tuning->candidates);
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

void candidate_drop_payload(struct candidate *candidate)
{
    json_decref(candidate->subject.package);
    json_decref(candidate->subject.launches);
    json_decref(candidate->subject.buffers);
    candidate->subject.package = candidate->subject.launches = candidate->subject.buffers = NULL;
}

static double seconds_since(const struct tuning *tuning)
{
    return (double)(uv_hrtime() - tuning->started_ns) / 1e9;
}

/* The default is measured even where the sweep is restricted to others: the search knows nothing of
 * it then. */
bool tuning_is_of_space(const struct tuning *tuning, size_t index)
{
    return index < space_count(tuning->space);
}

/* How many candidates will be measured at most. */
static size_t total_of(const struct tuning *tuning)
{
    if (tuning->search == NULL)
        return 0;
    bool has_outsider =
        tuning->default_index != SIZE_MAX && !tuning_is_of_space(tuning, tuning->default_index);
    return search_total(tuning->search) + has_outsider;
}

void tuning_report(struct tuning *tuning, const char *phase)
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

static void forget_detail(struct candidate *candidate)
{
    free(candidate->detail);
    candidate->detail = NULL;
}

static void keep_recent(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    struct candidate **place = &tuning->recent[tuning->recent_count++ % TUNING_RECENT_MAX];
    if (tuning->recent_count > TUNING_RECENT_MAX)
        forget_detail(*place);
    *place = candidate;
}

void tuning_forget_recent(struct tuning *tuning)
{
    for (size_t i = 0; i < TUNING_RECENT_MAX && i < tuning->recent_count; i++)
        forget_detail(tuning->recent[i]);
    tuning->recent_count = 0;
}

/* The candidate's result is durable (or was, from an earlier life of this run): everybody may know.
 */
void candidate_count(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    candidate->state = CANDIDATE_DONE;
    candidate_drop_payload(candidate);
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
    keep_recent(candidate);
    if (tuning_is_better(candidate, tuning->best))
        tuning->best = candidate;
    /* To the search a refused time is a failure: it must not be led there. */
    if (tuning_is_of_space(tuning, candidate->index))
        search_report(tuning->search, candidate->index,
            candidate->is_refused ? OUTCOME_INVALID : candidate->outcome, candidate->median_ns);
}

static void on_row_committed(const struct tune_error *err, void *context);

/* What is measured again was told already. */
static void keep_detail(struct candidate *candidate, const struct row *row)
{
    const char *detail = tuning_row_detail(row);
    if (detail[0] != '\0' && !candidate->is_counted && candidate->detail == NULL)
        candidate->detail = xasprintf("%.*s", DETAIL_MAX, detail);
}

/* A finished candidate: its row goes to the disk, and it counts once that is done. */
void candidate_finish(struct candidate *candidate, struct row *row)
{
    struct tuning *tuning = candidate->tuning;
    candidate->outcome = row->outcome;
    row->candidate = candidate;
    row->run = candidate->is_again ? tuning->run_again : tuning->run_search;
    row->is_final = true;
    row->is_refused = candidate->is_refused;
    keep_detail(candidate, row);
    tuning_add_row(tuning, row);
    candidate->state = CANDIDATE_COMMITTING;
    tuning_start_clock(tuning);
    candidate_queue_push(&tuning->committing, candidate);
    writer_after_commit(tuning->deps.writer, on_row_committed, tuning);
}

void candidate_fail(struct candidate *candidate, enum outcome outcome, const char *detail)
{
    struct row row = {.outcome = outcome, .detail = detail};
    candidate_finish(candidate, &row);
}

static char *config_text(const struct candidate *candidate)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(candidate->tuning->space, candidate->index, values);
    return manifest_config_text(candidate->tuning->manifest, values);
}

void candidate_finish_followers(struct candidate *leader)
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
        candidate_finish(candidate, &row);
    }
    free(same_as);
}

static void on_row_committed(const struct tune_error *err, void *context)
{
    struct tuning *tuning = context;
    struct candidate *candidate = candidate_queue_pop(&tuning->committing);
    if (err != NULL) {
        tuning_fail(tuning, err->code, "a result could not be stored: %s", err->text);
        return;
    }
    candidate_count(candidate);
    candidate_finish_followers(candidate);
    tuning_report(tuning, "searching");
    tuning_pump(tuning);
}
