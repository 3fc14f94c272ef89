/* The result of a tuning in the form of `tunectl sweep --json`. */
#include "daemon/tuning_internal.h"

#include "client/proto.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"

#include <stdlib.h>

/* What is reported of one candidate: from the confirmation where it took part. */
struct figures {
    const struct candidate *candidate;
    double median_ns, lo_ns, hi_ns;
    size_t samples;
};

static json_t *config_json(const struct tuning *tuning, const struct candidate *candidate)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    return manifest_config_to_json(tuning->manifest, values);
}

static json_t *figures_json(const struct tuning *tuning, const struct figures *figures)
{
    return json_pack("{s:o, s:f, s:[f, f]}", "config", config_json(tuning, figures->candidate),
        "median_ns", figures->median_ns, "interval_ns", figures->lo_ns, figures->hi_ns);
}

static struct figures confirmed(const struct tuning *tuning, size_t index)
{
    return (struct figures){
        .candidate = tuning->finalists[index],
        .median_ns = tuning->confirmed_median[index],
        .lo_ns = tuning->confirmed_lo[index],
        .hi_ns = tuning->confirmed_hi[index],
        .samples = tuning->confirmed_samples[index],
    };
}

static struct figures unconfirmed(const struct candidate *candidate)
{
    return (struct figures){
        .candidate = candidate,
        .median_ns = candidate->median_ns,
        .lo_ns = candidate->lo_ns,
        .hi_ns = candidate->hi_ns,
    };
}

/* The winner by the rule of `best`: the lowest upper bound among those not slower than the default.
 */
static bool find_winner(const struct tuning *tuning, size_t *winner)
{
    size_t last = tuning->finalist_count - 1;
    bool has_default = tuning->finalists[last] == tuning->standard;
    bool is_found = false;
    for (size_t i = 0; i <= last; i++) {
        if (has_default && tuning->confirmed_median[i] > tuning->confirmed_median[last])
            continue;
        if (!is_found || tuning->confirmed_hi[i] < tuning->confirmed_hi[*winner])
            *winner = i;
        is_found = true;
    }
    return is_found;
}

static bool is_finalist(const struct tuning *tuning, const struct candidate *candidate)
{
    for (size_t i = 0; i < tuning->finalist_count; i++)
        if (tuning->finalists[i] == candidate)
            return true;
    return false;
}

/* All that cannot be told apart from the winner: finalists whose interval meets its own; what did
 * not come into the confirmation, by its interval from the search; and what has equal code and
 * launches. */
static json_t *ties_json(const struct tuning *tuning, size_t winner)
{
    json_t *ties = json_array();
    double winner_hi_ns = tuning->confirmed_hi[winner];
    for (size_t i = 0; i < tuning->finalist_count; i++) {
        struct figures figures = confirmed(tuning, i);
        if (i != winner && figures.lo_ns <= winner_hi_ns)
            json_array_append_new(ties, figures_json(tuning, &figures));
    }
    for (size_t i = 0; i < tuning->candidate_count; i++) {
        const struct candidate *candidate = tuning->candidates[i];
        bool is_equal = candidate->leader == tuning->finalists[winner];
        struct figures figures = is_equal ? confirmed(tuning, winner) : unconfirmed(candidate);
        figures.candidate = candidate;
        if (!candidate->is_counted || candidate->outcome != OUTCOME_OK || candidate->is_refused ||
            is_finalist(tuning, candidate) || figures.lo_ns > winner_hi_ns)
            continue;
        json_array_append_new(ties, figures_json(tuning, &figures));
    }
    return ties;
}

static void add_rates(const struct tuning *tuning, json_t *result, double median_ns)
{
    double flops = 0, bytes = 0;
    if (plan_work(
            tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, &flops, &bytes, NULL))
        return;
    json_object_set_new(result, "flops", json_real(flops));
    json_object_set_new(result, "bytes", json_real(bytes));
    if (median_ns <= 0)
        return;
    json_object_set_new(result, "tflops", json_real(flops / median_ns / 1e3));
    json_object_set_new(result, "gbs", json_real(bytes / median_ns));
    double peak_flops = device_peak_flops_f32(&tuning->device);
    double peak_bytes = device_peak_bytes_per_s(&tuning->device);
    if (peak_flops <= 0 || peak_bytes <= 0)
        return;
    double floor_s =
        flops / peak_flops > bytes / peak_bytes ? flops / peak_flops : bytes / peak_bytes;
    json_object_set_new(result, "roofline", json_real(floor_s * 1e9 / median_ns));
}

static json_t *counts_json(const struct tuning *tuning)
{
    json_t *counts = json_object();
    for (int i = 0; i < OUTCOME_COUNT; i++)
        json_object_set_new(counts, outcome_word(i), json_integer((json_int_t)tuning->counts[i]));
    return counts;
}

static json_t *best_json(const struct tuning *tuning, double *median_ns)
{
    size_t winner = 0;
    struct figures figures;
    json_t *ties;
    if (tuning->has_confirmed && find_winner(tuning, &winner)) {
        figures = confirmed(tuning, winner);
        ties = ties_json(tuning, winner);
    } else if (tuning->best != NULL) {
        figures = unconfirmed(tuning->best);
        ties = json_array();
    } else {
        return json_null();
    }
    *median_ns = figures.median_ns;
    json_t *best = figures_json(tuning, &figures);
    json_object_set_new(best, "samples", json_integer((json_int_t)figures.samples));
    json_object_set_new(best, "confirmed", json_boolean(tuning->has_confirmed));
    json_object_set_new(best, "ties", ties);
    return best;
}

static json_t *default_json(const struct tuning *tuning)
{
    const struct candidate *standard = tuning->standard;
    if (standard == NULL)
        return json_null();
    size_t last = tuning->finalist_count - 1;
    struct figures figures = unconfirmed(standard);
    if (tuning->has_confirmed && tuning->finalists[last] == standard)
        figures = confirmed(tuning, last);
    if (!standard->is_counted || standard->outcome != OUTCOME_OK)
        return json_pack("{s:o, s:n, s:s}", "config", config_json(tuning, standard), "median_ns",
            "outcome", standard->is_counted ? outcome_word(standard->outcome) : "not measured");
    return figures_json(tuning, &figures);
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns < from_ns ? 0 : (double)(to_ns - from_ns) / 1e9;
}

/* bench_s: the time in which the device worked for this sweep's search, or its worker started or
 * set up; compile_s: summed over the compile workers. */
static json_t *timing_json(const struct tuning *tuning)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t searched_ns = tuning->confirm_started_ns ? tuning->confirm_started_ns : now_ns;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "build_s",
        seconds_between(tuning->started_ns, tuning->search_started_ns), "search_s",
        seconds_between(tuning->search_started_ns, searched_ns), "confirm_s",
        seconds_between(tuning->confirm_started_ns, now_ns), "bench_s", tuning->bench_busy_s,
        "compile_s", tuning->compile_busy_s, "compiled", (json_int_t)tuning->compiled, "cached",
        (json_int_t)tuning->cached);
}

/* How many of the evaluations were begun for what was known before. */
static json_t *prior_json(const struct tuning *tuning)
{
    size_t near = tuning->prior_next < tuning->prior_near ? tuning->prior_next : tuning->prior_near;
    return json_pack(
        "{s:I, s:I}", "near", (json_int_t)near, "static", (json_int_t)(tuning->prior_next - near));
}

static json_t *recent_json(const struct tuning *tuning, const struct candidate *candidate)
{
    bool has_time = candidate->outcome == OUTCOME_OK && candidate->median_ns > 0;
    return json_pack("{s:o, s:s, s:o, s:o}", "config", config_json(tuning, candidate), "outcome",
        outcome_word(candidate->outcome), "median_ns",
        has_time ? json_real(candidate->median_ns) : json_null(), "detail",
        proto_text(candidate->detail ? candidate->detail : ""));
}

void tuning_tell(struct tuning *tuning, json_t *progress)
{
    size_t count = tuning->recent_count;
    json_t *recent = json_array();
    for (size_t i = count > TUNING_RECENT_MAX ? count - TUNING_RECENT_MAX : 0; i < count; i++)
        json_array_append_new(recent, recent_json(tuning, tuning->recent[i % TUNING_RECENT_MAX]));
    tuning_forget_recent(tuning);
    json_object_set_new(
        progress, "best_config", tuning->best ? config_json(tuning, tuning->best) : json_null());
    json_object_set_new(progress, "outcomes", counts_json(tuning));
    json_object_set_new(progress, "recent", recent);
}

json_t *tuning_result(const struct tuning *tuning)
{
    double median_ns = 0;
    json_t *best = best_json(tuning, &median_ns);
    json_t *result =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:I, s:f, s:o, s:o, s:o, s:s, s:s, s:s, s:I, s:O}",
            "kernel", tuning->manifest->name, "dtype", tuning->dtype, "arch", tuning->device.arch,
            "shape", manifest_shape_to_json(tuning->manifest, tuning->dims), "mode", tuning->mode,
            "evaluations", (json_int_t)tuning->evaluations, "wall_s",
            (double)(uv_hrtime() - tuning->started_ns) / 1e9, "counts", counts_json(tuning), "best",
            best, "default", default_json(tuning), "device", tuning->device.name, "method",
            tuning->method, "strategy", tuning->strategy ? tuning->strategy : "", "space",
            (json_int_t)space_count(tuning->space), "messages", tuning->messages);
    manifest_name_choices(tuning->manifest, tuning->dims, result);
    if (tuning->input != NULL)
        json_object_set_new(result, "input", json_string(tuning->input));
    json_object_set_new(result, "refused", json_integer((json_int_t)tuning->refused));
    json_object_set_new(result, "timing", timing_json(tuning));
    json_object_set_new(result, "prior", prior_json(tuning));
    if (tuning->offered > 0)
        json_object_set_new(result, "fleet", remote_json(tuning));
    add_rates(tuning, result, median_ns);
    return result;
}
