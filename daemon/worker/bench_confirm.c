/* Confirming: the best candidates and the default again, interleaved, so that drift hits all alike.
 */
#include "bench_internal.h"
#include "client/proto.h"
#include "daemon/clock.h"

#include <stdlib.h>

#define CONFIRM_LIMIT 32
#define ROUND_LIMIT 1000
#define MIN_ROUNDS 15
#define WANTED_WIDTH 0.005 /* of each interval: ties are to be told apart where they can be */

struct contender {
    struct candidate candidate;
    struct replay replay;
    struct measure measure;
    double max_error;
    bool is_loaded;
};

struct confirm {
    size_t count;
    struct contender *contenders;
    struct measure common; /* mode, deadline, budget */
    bool is_verified;
    double call_ms; /* what a call takes the host, on average */
    uint64_t random;
    size_t at; /* whose turn it is: who is to blame */
};

static uint64_t next_random(struct confirm *confirm)
{
    uint64_t z = (confirm->random += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static void shuffle(struct confirm *confirm, size_t *order)
{
    for (size_t i = 0; i < confirm->count; i++)
        order[i] = i;
    for (size_t i = confirm->count; i > 1; i--) {
        size_t j = next_random(confirm) % i, kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

/* All share the scratch arena, which must have its full size before any pointer is taken. */
static int reserve_scratch(struct bench *bench, const json_t *candidates, struct verdict *verdict)
{
    size_t index;
    json_t *each;
    uint64_t most = 0;
    json_array_foreach (candidates, index, each) {
        struct buffer_list list = {.count = 0};
        int result = buffer_list_read(&list, json_object_get(each, "buffers"), verdict);
        uint64_t bytes = buffer_list_place(&list, 0, list.count, ROLE_BIT(KIND_SCRATCH), 0);
        buffer_list_finish(&list);
        if (result < 0)
            return -1;
        most = bytes > most ? bytes : most;
    }
    return arena_reserve(&bench->gpu, &bench->scratch_arena, most, "scratch buffers", verdict);
}

static int load_contenders(struct confirm *confirm, struct bench *bench, const json_t *request,
    const json_t *candidates, struct verdict *verdict)
{
    json_t *each;
    if (reserve_scratch(bench, candidates, verdict) < 0)
        return -1;
    json_array_foreach (candidates, confirm->at, each) {
        struct contender *contender = &confirm->contenders[confirm->at];
        bench->watchdog.candidate = (int)confirm->at;
        if (measure_init(&contender->measure, request, verdict) < 0 ||
            candidate_load(&contender->candidate, bench, each, verdict) < 0)
            return -1;
        contender->is_loaded = true;
        if (confirm->is_verified &&
            candidate_verify(&contender->candidate, bench, confirm->common.deadline_ms,
                &contender->max_error, verdict) < 0)
            return -1;
    }
    return 0;
}

static int warm_up(struct confirm *confirm, struct bench *bench, struct verdict *verdict)
{
    double ns, start_ms = clock_ms();
    for (confirm->at = 0; confirm->at < confirm->count; confirm->at++) {
        struct contender *contender = &confirm->contenders[confirm->at];
        bench->watchdog.candidate = (int)confirm->at;
        if (event_samples(&contender->candidate, bench, &confirm->common, 1, &ns, verdict) < 0)
            return -1;
    }
    confirm->call_ms = (clock_ms() - start_ms) / (double)confirm->count;
    return 0;
}

/* One plan for all: the graphs share the copies, and their inputs lie at the same places. */
static int make_graphs(struct confirm *confirm, struct bench *bench, struct verdict *verdict)
{
    struct replay plan;
    uint64_t stride = 0;
    for (size_t i = 0; i < confirm->count; i++) {
        uint64_t bytes = candidate_set_bytes(&confirm->contenders[i].candidate);
        stride = bytes > stride ? bytes : stride;
    }
    bool has_inout = confirm->contenders[0].candidate.has_inout;
    confirm->at = 0;
    if (replay_plan(&plan, bench, &confirm->common, has_inout, stride, confirm->call_ms, verdict) <
        0)
        return -1;
    for (; confirm->at < confirm->count; confirm->at++) {
        struct contender *contender = &confirm->contenders[confirm->at];
        bench->watchdog.candidate = (int)confirm->at;
        contender->replay = plan;
        if (replay_create(
                &contender->replay, &contender->candidate, bench, &confirm->common, verdict) < 0)
            return -1;
    }
    return 0;
}

/* One sample. A warm one comes after a call of the same candidate: the last round left another's
 * data. */
static int sample(struct confirm *confirm, struct contender *contender, struct bench *bench,
    struct verdict *verdict)
{
    struct measure *measure = &contender->measure;
    double ns[2];
    size_t calls = confirm->common.is_cold ? 1 : 2;
    if (confirm->common.is_graph) {
        for (size_t i = 0; i < calls; i++)
            if (replay_sample(&contender->replay, &contender->candidate, bench, &confirm->common,
                    &ns[i], verdict) < 0)
                return -1;
    } else if (event_samples(&contender->candidate, bench, &confirm->common, calls, ns, verdict) <
               0) {
        return -1;
    }
    measure->samples_ns[measure->sample_count++] = ns[calls - 1];
    return 0;
}

static bool is_precise(struct confirm *confirm, size_t rounds)
{
    bool is_wide = false;
    for (size_t i = 0; i < confirm->count; i++) {
        struct measure *measure = &confirm->contenders[i].measure;
        measure->stats = stats_of(measure->samples_ns, measure->sample_count, measure->scratch);
        is_wide =
            is_wide || measure->stats.hi - measure->stats.lo > WANTED_WIDTH * measure->stats.median;
    }
    return rounds >= MIN_ROUNDS && !is_wide;
}

static int run_rounds(struct confirm *confirm, struct bench *bench, struct verdict *verdict)
{
    size_t order[CONFIRM_LIMIT];
    double start_ms = clock_ms();
    size_t most =
        confirm->common.max_samples < ROUND_LIMIT ? confirm->common.max_samples : ROUND_LIMIT;
    for (size_t round = 1; round <= most; round++) {
        shuffle(confirm, order);
        for (size_t i = 0; i < confirm->count; i++) {
            confirm->at = order[i];
            bench->watchdog.candidate = (int)confirm->at;
            if (sample(confirm, &confirm->contenders[confirm->at], bench, verdict) < 0)
                return -1;
        }
        if (is_precise(confirm, round) || clock_ms() - start_ms >= confirm->common.budget_ms)
            break;
    }
    return 0;
}

static json_t *results_to_json(const struct confirm *confirm)
{
    json_t *results = json_array();
    for (size_t i = 0; i < confirm->count; i++) {
        const struct contender *contender = &confirm->contenders[i];
        json_t *result = measure_to_json(&contender->measure);
        bench_add_resources(result, &contender->candidate.program);
        json_object_set_new(result, "max_error", json_real(contender->max_error));
        json_array_append_new(results, result);
    }
    return results;
}

static int confirm_all(
    struct confirm *confirm, struct bench *bench, const json_t *request, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    json_t *candidates = NULL;
    int64_t seed = 0;
    if (proto_array_opt(request, "candidates", &candidates, &err) < 0 ||
        proto_int_opt(request, "seed", INT64_MIN, INT64_MAX, &seed, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    size_t count = json_array_size(candidates);
    if (count == 0 || count > CONFIRM_LIMIT)
        return verdict_set(verdict, "invalid", "1 to %d candidates are confirmed at once, not %zu",
            CONFIRM_LIMIT, count);
    confirm->random = (uint64_t)seed;
    confirm->is_verified = json_is_true(json_object_get(request, "verify"));
    confirm->contenders = calloc(count, sizeof(*confirm->contenders));
    if (!confirm->contenders)
        return verdict_set(verdict, "invalid", "no memory for %zu candidates", count);
    confirm->count = count;
    if (measure_init(&confirm->common, request, verdict) < 0 ||
        load_contenders(confirm, bench, request, candidates, verdict) < 0 ||
        measure_prepare(&confirm->common, bench, verdict) < 0 ||
        warm_up(confirm, bench, verdict) < 0 ||
        (confirm->common.is_graph && make_graphs(confirm, bench, verdict) < 0))
        return -1;
    return run_rounds(confirm, bench, verdict);
}

static void confirm_finish(struct confirm *confirm, struct bench *bench)
{
    for (size_t i = 0; i < confirm->count; i++) {
        struct contender *contender = &confirm->contenders[i];
        if (!bench->is_lost) {
            replay_destroy(&contender->replay, bench);
            if (contender->is_loaded)
                candidate_unload(&contender->candidate, bench);
        }
        measure_finish(&contender->measure);
    }
    measure_finish(&confirm->common);
    free(confirm->contenders);
    bench->watchdog.candidate = -1;
}

json_t *bench_confirm(struct bench *bench, const json_t *request)
{
    struct confirm confirm = {.count = 0};
    struct verdict verdict = {.outcome = NULL};
    json_t *answer = json_object();
    if (confirm_all(&confirm, bench, request, &verdict) == 0) {
        json_object_set_new(answer, "results", results_to_json(&confirm));
        json_object_set_new(answer, "clocks", bench_clocks(bench));
    } else {
        json_object_set_new(answer, "candidate", json_integer((json_int_t)confirm.at));
    }
    bench->is_lost = bench->is_lost || verdict.is_sticky;
    verdict_to_json(&verdict, answer);
    confirm_finish(&confirm, bench);
    return answer;
}
