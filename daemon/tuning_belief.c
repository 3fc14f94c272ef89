/* Whether times can be believed: a floor that no time may lie under, and a control that is timed
 * again and again, so that a GPU whose speed changes (heat, a neighbour) is noticed.
 *
 * The control is the first candidate that was ok: the default, as a rule. Each lane times it when
 * it begins, then after every CONTROL_EVERY candidates and at the end, and remembers the level: the
 * control's median. A candidate keeps the level under which it was measured, and candidates are
 * compared by time / level, so that drift, and the small differences between GPUs of one model,
 * favour nobody. When the level has changed by more than DRIFT_MIN, what was measured since the
 * last control and could still win is measured again. The confirmation is interleaved and needs
 * none of this. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "plugins/plan.h"

#include <math.h>
#include <string.h>

#define CONTROL_EVERY 32
#define CONTROL_LAST                                                                               \
    8 /* at the end of the search, when at least so many have come since the last one */
#define DRIFT_MIN 0.03
#define AGAIN_MARGIN                                                                               \
    1.10 /* what lies further behind the best cannot win through drift of this size */
#define FLOOR_SHARE 0.9 /* peak rates by data sheet are met to a few per cent at most */
#define EVENT_RESOLUTION_NS 500.0
#define GRAPH_RESOLUTION_NS 5.0 /* an event's, over the 100 and more calls of a graph */

/* --- the floor -------------------------------------------------------------------------------- */

/* Bytes of outputs may still lie in the L2 when the clock stops: they are not counted. */
static double written_bytes(const struct tuning *tuning)
{
    double total = 0;
    size_t i;
    json_t *buffer;
    json_array_foreach (json_object_get(tuning->setup, "buffers"), i, buffer) {
        const char *role = json_string_value(json_object_get(buffer, "role"));
        if (role != NULL && (strcmp(role, "out") == 0 || strcmp(role, "inout") == 0))
            total += (double)json_integer_value(json_object_get(buffer, "bytes"));
    }
    double l2 = (double)tuning->device.attributes[DEVICE_l2_bytes];
    return total < l2 ? total : l2;
}

static double floor_ns(const struct tuning *tuning)
{
    double flops = 0, bytes = 0, flops_ns = 0, bytes_ns = 0;
    double peak_flops = device_peak_flops_f32(&tuning->device);
    double peak_bytes = device_peak_bytes_per_s(&tuning->device);
    if (plan_work(
            tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, &flops, &bytes, NULL))
        return 0;
    if (strcmp(tuning->dtype, "f32") == 0 && peak_flops > 0)
        flops_ns = flops / peak_flops * 1e9;
    if (strcmp(tuning->mode, "cold") == 0 && peak_bytes > 0)
        bytes_ns = (bytes - written_bytes(tuning)) / peak_bytes * 1e9;
    return FLOOR_SHARE * fmax(flops_ns, bytes_ns);
}

bool tuning_disbelieves(const struct tuning *tuning, double median_ns, char *reason, size_t room)
{
    double floor = floor_ns(tuning);
    double resolution =
        strcmp(tuning->method, "graph") == 0 ? GRAPH_RESOLUTION_NS : EVENT_RESOLUTION_NS;
    if (median_ns < floor)
        snprintf(reason, room,
            "refused: %.0f ns is less than the %.0f ns that the device's peak rates need for this "
            "work",
            median_ns, floor);
    else if (median_ns < resolution)
        snprintf(reason, room, "refused: %.1f ns is less than the timer can tell (%.0f ns)",
            median_ns, resolution);
    else
        return false;
    return true;
}

/* --- levels ----------------------------------------------------------------------------------- */

/* How a's clock ran against b's. Levels are unknown for results from before a restart. */
static double level_ratio(double a_level_ns, double b_level_ns)
{
    return a_level_ns > 0 && b_level_ns > 0 ? a_level_ns / b_level_ns : 1;
}

bool tuning_is_better(const struct candidate *a, const struct candidate *b)
{
    if (a->outcome != OUTCOME_OK || a->is_refused)
        return false;
    return b == NULL || a->hi_ns < b->hi_ns * level_ratio(a->level_ns, b->level_ns);
}

void tuning_find_best(struct tuning *tuning)
{
    tuning->best = NULL;
    for (size_t i = 0; i < tuning->candidate_count; i++)
        if (tuning->candidates[i]->is_counted &&
            tuning_is_better(tuning->candidates[i], tuning->best))
            tuning->best = tuning->candidates[i];
}

double tuning_best_ns_on(const struct lane *lane)
{
    const struct candidate *best = lane->tuning->best;
    double asked_ns = lane->tuning->help_best_ns;
    double best_ns = best ? best->hi_ns * level_ratio(lane->level_ns, best->level_ns) : asked_ns;
    return asked_ns > 0 && asked_ns < best_ns ? asked_ns : best_ns;
}

bool tuning_is_close(const struct candidate *candidate, double margin)
{
    const struct candidate *best = candidate->tuning->best;
    return best != NULL && candidate->outcome == OUTCOME_OK && !candidate->is_refused &&
           candidate->lo_ns <=
               best->hi_ns * level_ratio(candidate->level_ns, best->level_ns) * margin;
}

/* --- the control ------------------------------------------------------------------------------ */

void tuning_keep_control(struct lane *lane, const struct candidate *candidate)
{
    struct tuning *tuning = lane->tuning;
    if (tuning->control.package != NULL || tuning->is_helping)
        return;
    tuning->control.package = json_incref(candidate->subject.package);
    tuning->control.launches = json_incref(candidate->subject.launches);
    tuning->control.buffers = json_incref(candidate->subject.buffers);
    lane->level_ns = candidate->median_ns; /* it was measured just now */
    lane->level_lo_ns = candidate->lo_ns;
    lane->level_hi_ns = candidate->hi_ns;
    lane->since_control = 0;
}

bool tuning_control_is_due(const struct lane *lane, bool is_last)
{
    unsigned every = is_last ? CONTROL_LAST : CONTROL_EVERY;
    return lane->tuning->control.package != NULL && !lane->is_lost &&
           ((lane->level_ns <= 0 && !lane->has_no_level) || lane->since_control >= every);
}

/* What was measured on this lane since its last control, before or after the change, and could
 * still win. */
static size_t measure_again(struct lane *lane, double change)
{
    struct tuning *tuning = lane->tuning;
    double margin = AGAIN_MARGIN * (change > 1 ? change : 1 / change);
    size_t count = 0;
    for (size_t i = 0; i < tuning->candidate_count && !tuning->is_cut; i++) {
        struct candidate *candidate = tuning->candidates[i];
        if (candidate->lane != lane || candidate->control_round != lane->control_round ||
            candidate->state != CANDIDATE_DONE || candidate->is_again ||
            !tuning_is_close(candidate, margin))
            continue;
        tuning_begin_again(candidate);
        count++;
    }
    return count;
}

void tuning_take_control(struct lane *lane, const json_t *answer)
{
    struct times times = tuning_times(answer);
    double median_ns = times.median_ns, before_ns = lane->level_ns;
    bool is_apart = times.lo_ns > lane->level_hi_ns || times.hi_ns < lane->level_lo_ns;
    lane->has_no_level = !(median_ns > 0) || !isfinite(median_ns);
    if (lane->has_no_level)
        return; /* no time: the control is due again after the next candidates */
    size_t again = 0;
    if (before_ns > 0 && is_apart && fabs(median_ns / before_ns - 1) > DRIFT_MIN) {
        again = measure_again(lane, median_ns / before_ns);
        tuning_message(lane->tuning,
            "device %d drifted: the control took %.1f us and takes %.1f us now; %zu candidates are "
            "measured "
            "again",
            lane->device.ordinal, before_ns / 1e3, median_ns / 1e3, again);
    }
    lane->level_ns = median_ns;
    lane->level_lo_ns = times.lo_ns;
    lane->level_hi_ns = times.hi_ns;
    lane->control_round++;
}
