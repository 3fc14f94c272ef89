/* See weigh.h. */
#include "weigh.h"

#include <math.h>
#include <string.h>

/* Where no estimate says how much of the time a kind of work takes. */
#define ASSUMED_SHARE 0.5
/* An occupancy below this is suspected of leaving latencies uncovered; kernels with much
 * independent work per thread are fast far below it, which the headroom then shows. */
#define LOW_OCCUPANCY 0.5

double explain_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *explain_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

const char *explain_cause_word(enum explain_cause cause)
{
    static const char *const words[] = {
#define X(name, word) word,
        EXPLAIN_CAUSES(X)
#undef X
    };
    return words[cause];
}

static double clamp(double share)
{
    return share > 1 ? 1 : share > 0 ? share : 0;
}

/* --- accesses and branches -------------------------------------------------------------------- */

static bool is_shared(const json_t *access)
{
    return strcmp(explain_text(access, "space"), "shared") == 0;
}

/* All parts of an access are taken to be as conflicted as the average tells. */
double explain_wasted_wavefronts(const json_t *access)
{
    double degree = explain_number(access, "conflict_degree");
    if (!is_shared(access) || degree <= 1)
        return 0;
    return explain_number(access, "requests") * explain_number(access, "wavefronts_per_request") *
           (1 - 1 / degree);
}

double explain_wasted_sectors(const json_t *access)
{
    double more =
        explain_number(access, "sectors_per_request") - explain_number(access, "ideal_sectors");
    return is_shared(access) || more <= 0 ? 0 : explain_number(access, "requests") * more;
}

static void sum_accesses(const json_t *accesses, struct weighed *weighed)
{
    size_t i;
    json_t *access;
    json_array_foreach (accesses, i, access) {
        double requests = explain_number(access, "requests");
        if (is_shared(access)) {
            weighed->shared_requests += requests;
            weighed->wavefronts += requests * explain_number(access, "wavefronts_per_request");
            weighed->wasted_wavefronts += explain_wasted_wavefronts(access);
        } else {
            weighed->global_requests += requests;
            weighed->sectors += requests * explain_number(access, "sectors_per_request");
            weighed->ideal_sectors += requests * explain_number(access, "ideal_sectors");
            weighed->wasted_sectors += explain_wasted_sectors(access);
        }
    }
}

static double idle_lanes(const json_t *branch)
{
    return explain_number(branch, "warps") * (1 - explain_number(branch, "active_fraction"));
}

static void sum_branches(const json_t *branches, struct weighed *weighed)
{
    size_t i;
    json_t *branch;
    double idle = 0;
    json_array_foreach (branches, i, branch) {
        weighed->warps += explain_number(branch, "warps");
        idle += idle_lanes(branch);
    }
    weighed->idle_lanes = weighed->warps > 0 ? clamp(idle / weighed->warps) : 0;
}

const json_t *explain_worst(const json_t *explanation, enum explain_cause cause)
{
    bool of_branches = cause == CAUSE_DIVERGENCE;
    const json_t *list = json_object_get(explanation, of_branches ? "branches" : "accesses");
    const json_t *worst = NULL;
    double most = 0;
    size_t i;
    json_t *item;
    json_array_foreach (list, i, item) {
        double waste = of_branches                ? idle_lanes(item)
                       : cause == CAUSE_CONFLICTS ? explain_wasted_wavefronts(item)
                                                  : explain_wasted_sectors(item);
        if (waste > most) {
            most = waste;
            worst = item;
        }
    }
    return worst;
}

static void sum_instructions(const json_t *instructions, struct weighed *weighed)
{
    static const char *const words[] = {
        "local", "global_load", "global_store", "shared_load", "shared_store", "atomic"};
    const json_t *mix = json_object_get(instructions, "by_class");
    double all = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        all += explain_number(mix, words[i]);
    weighed->local_share = all > 0 ? explain_number(mix, "local") / all : 0;
}

/* --- time ------------------------------------------------------------------------------------- */

/* What shares are of: the estimate's own time, or the measured one where that is longer. On an
 * architecture alone the estimate's times are an order and no times; only its own is of their kind.
 */
static double time_basis(const json_t *explanation, double estimated_ns)
{
    double median_ns = explain_number(explanation, "median_ns");
    bool has_device = json_is_string(json_object_get(explanation, "device"));
    return has_device && median_ns > estimated_ns ? median_ns : estimated_ns;
}

static void take_shares(const json_t *explanation, struct weighed *weighed)
{
    const json_t *estimate = json_object_get(explanation, "estimate");
    double time_ns = time_basis(explanation, explain_number(estimate, "time_ns"));
    weighed->has_estimate = time_ns > 0;
    if (time_ns <= 0)
        return;
    const json_t *ceilings = json_object_get(estimate, "ceilings_ns");
    for (int i = 0; i < ESTIMATE_CEILING_COUNT; i++)
        weighed->share[i] = clamp(
            explain_number(ceilings, estimate_ceiling_word((enum estimate_ceiling)i)) / time_ns);
    weighed->weight[CAUSE_WAITS] = clamp(explain_number(estimate, "wait_ns") / time_ns);
}

static void take_headroom(const json_t *explanation, struct weighed *weighed)
{
    const json_t *share = json_object_get(json_object_get(explanation, "roofline"), "share");
    weighed->is_measured = json_is_number(share);
    weighed->has_headroom = weighed->is_measured || weighed->has_estimate;
    double reached = weighed->is_measured ? json_number_value(share)
                     : weighed->has_estimate
                         ? fmax(weighed->share[ESTIMATE_FLOPS], weighed->share[ESTIMATE_DRAM])
                         : 0;
    weighed->headroom = 1 - clamp(reached);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* An SM that runs one block more than the others decides where it is busy with them all the time;
 * where blocks wait, the last wave takes as long as a full one. The truth is between the two. */
static double tail_loss(double blocks, double sms, double waves, double tail_fill)
{
    double even = 1 - blocks / sms / ceil(blocks / sms);
    double by_waves = waves > 1 ? (1 - tail_fill) / ceil(waves) : 0;
    return fmax(even, (even + by_waves) / 2);
}

static void take_blocks(const json_t *explanation, struct weighed *weighed)
{
    const json_t *occupancy = json_object_get(explanation, "occupancy");
    double blocks = explain_number(explanation, "blocks");
    double waves = explain_number(explanation, "waves");
    double per_sm = explain_number(occupancy, "blocks_per_sm");
    weighed->resident_fraction = explain_number(occupancy, "fraction");
    if (json_is_null(json_object_get(explanation, "device")) || !(waves > 0 && per_sm > 0))
        return;
    double sms = weighed->sms = round(blocks / waves / per_sm);
    if (sms < 1) {
        weighed->sms = 0;
        return;
    }
    weighed->idle_sms = clamp(1 - blocks / sms);
    if (waves < 1)
        weighed->resident_fraction *= clamp(ceil(blocks / sms) / per_sm);
    if (blocks > sms)
        weighed->tail_loss =
            clamp(tail_loss(blocks, sms, waves, explain_number(explanation, "tail_fill")));
}

/* --- weights ---------------------------------------------------------------------------------- */

static double ratio(double part, double whole)
{
    return whole > 0 ? clamp(part / whole) : 0;
}

/* Share of the time that work of these two ceilings takes. */
static double share_of(
    const struct weighed *weighed, enum estimate_ceiling a, enum estimate_ceiling b)
{
    return weighed->has_estimate ? fmax(weighed->share[a], weighed->share[b]) : ASSUMED_SHARE;
}

static void weigh_traffic(const json_t *explanation, struct weighed *weighed)
{
    const json_t *roofline = json_object_get(explanation, "roofline");
    double asked = explain_number(roofline, "requested_bytes");
    double needed = explain_number(roofline, "bytes");
    weighed->weight[CAUSE_TRAFFIC] =
        asked > needed && needed > 0
            ? (1 - needed / asked) * share_of(weighed, ESTIMATE_L2, ESTIMATE_DRAM)
            : 0;
}

/* What the estimate takes the other ceilings to cost beyond those of the work itself. Wasted passes
 * are told as conflicts, and traffic is told as such where it is known. */
static void weigh_side_ceiling(struct weighed *weighed)
{
    const double *share = weighed->share;
    bool knows_traffic = weighed->weight[CAUSE_TRAFFIC] > 0 || weighed->weight[CAUSE_SECTORS] > 0;
    double excess[ESTIMATE_CEILING_COUNT] = {
        [ESTIMATE_ISSUE] = share[ESTIMATE_ISSUE],
        [ESTIMATE_PIPE] = share[ESTIMATE_PIPE] - weighed->weight[CAUSE_CONFLICTS],
        [ESTIMATE_L2] = knows_traffic ? 0 : share[ESTIMATE_L2],
    };
    weighed->side = ESTIMATE_ISSUE;
    for (int i = 0; i < ESTIMATE_CEILING_COUNT; i++)
        if (excess[i] > excess[weighed->side])
            weighed->side = (enum estimate_ceiling)i;
    double told = fmax(share[ESTIMATE_FLOPS], share[ESTIMATE_DRAM]);
    if (knows_traffic)
        told = fmax(told, share[ESTIMATE_L2]);
    weighed->weight[CAUSE_CEILING] = clamp(excess[weighed->side] - told);
}

static void weigh_occupancy(struct weighed *weighed)
{
    double fraction = weighed->resident_fraction;
    if (fraction > 0 && fraction < LOW_OCCUPANCY && weighed->has_headroom)
        weighed->weight[CAUSE_OCCUPANCY] = weighed->headroom * (1 - fraction / LOW_OCCUPANCY);
}

/* A cause cannot waste more than what is left beside the ceilings: a measured time at 95 % of one
 * leaves 5 %. Bank conflicts, sectors and traffic are bound by the model too, but it may be wrong
 * where the clock is not. */
static void cap_by_headroom(struct weighed *weighed)
{
    for (int i = 0; weighed->is_measured && i < CAUSE_COUNT; i++)
        weighed->weight[i] = fmin(weighed->weight[i], weighed->headroom);
}

void explain_weigh(const json_t *explanation, struct weighed *weighed)
{
    *weighed = (struct weighed){0};
    sum_accesses(json_object_get(explanation, "accesses"), weighed);
    sum_branches(json_object_get(explanation, "branches"), weighed);
    sum_instructions(json_object_get(explanation, "instructions"), weighed);
    take_shares(explanation, weighed);
    take_headroom(explanation, weighed);
    take_blocks(explanation, weighed);
    double *weight = weighed->weight;
    bool has_mix = json_is_object(json_object_get(explanation, "instructions"));
    if (explain_number(explanation, "spill_bytes") > 0)
        weight[CAUSE_SPILLS] = has_mix ? weighed->local_share : ASSUMED_SHARE;
    weight[CAUSE_CONFLICTS] = ratio(weighed->wasted_wavefronts, weighed->wavefronts) *
                              share_of(weighed, ESTIMATE_PIPE, ESTIMATE_PIPE);
    weight[CAUSE_SECTORS] = ratio(weighed->wasted_sectors, weighed->sectors) *
                            share_of(weighed, ESTIMATE_L2, ESTIMATE_DRAM);
    weight[CAUSE_DIVERGENCE] =
        weighed->idle_lanes * share_of(weighed, ESTIMATE_ISSUE, ESTIMATE_FLOPS);
    weight[CAUSE_FEW_BLOCKS] = weighed->idle_sms;
    weight[CAUSE_TAIL] = weighed->tail_loss;
    weigh_traffic(explanation, weighed);
    weigh_side_ceiling(weighed);
    weigh_occupancy(weighed);
    cap_by_headroom(weighed);
}
