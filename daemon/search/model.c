/* See model.h. */
#include "daemon/search/model.h"

#include "daemon/search/number.h"
#include "daemon/xmalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Constants chosen on recorded spaces (tests/bench/search.sh); none of them is sharp. */
#define WEIGHT_START 2.0 /* and centre of the prior, whose deviation is in octaves: */
#define WEIGHT_OCTAVES 1.5
#define NOISE_START 0.02
#define NOISE_OCTAVES 2.0
#define TAIL_SLOPE 0.3      /* of targets beyond the median */
#define FAILED_QUANTILE 0.9 /* the time that a failure is taken for */
#define TREND_MAX 2.5       /* deviations from the mean guess that count */
#define MARGIN 0.3          /* what a trial should gain, in deviations of the targets */
#define STEPS_EARLY 12      /* of learning per fit, while that is cheap: */
#define STEPS_LATE 2
#define EARLY_COUNT 60

void model_init(struct model *model, const struct points *points, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    model->points = points;
    model->rng.state = seed;
    model->noise = NOISE_START;
    model->is_stale = true;
    model->gauss.width = points->width;
    for (size_t p = 0; p < points->width; p++) {
        model->weights[p] = WEIGHT_START;
        model->gauss.is_code[p] = points->is_code[p];
    }
}

void model_finish(struct model *model)
{
    free(model->reports);
    free(model->ranking);
    free(model->pending);
}

/* --- what happened ---------------------------------------------------------------------------- */

void model_propose(struct model *model, size_t index)
{
    if (model->pending_count == model->pending_room) {
        model->pending_room = model->pending_room ? 2 * model->pending_room : 64;
        model->pending = xrealloc(model->pending, model->pending_room * sizeof model->pending[0]);
    }
    model->pending[model->pending_count++] = index;
    if (model->is_stale)
        return; /* the next fit appends it */
    float place[MANIFEST_MAX_PARAMS];
    points_place(model->points, index, place);
    gauss_append(&model->gauss, place);
}

static void forget_pending(struct model *model, size_t index)
{
    for (size_t i = 0; i < model->pending_count; i++)
        if (model->pending[i] == index) {
            memmove(&model->pending[i], &model->pending[i + 1],
                (--model->pending_count - i) * sizeof model->pending[0]);
            return;
        }
}

static bool is_before(const struct model_report *a, const struct model_report *b)
{
    if (a->is_failed != b->is_failed)
        return b->is_failed;
    return !a->is_failed && a->log_time < b->log_time;
}

static void rank(struct model *model, size_t position)
{
    size_t at = position;
    for (; at > 0; at--) {
        if (!is_before(&model->reports[position], &model->reports[model->ranking[at - 1]]))
            break;
        model->ranking[at] = model->ranking[at - 1];
    }
    model->ranking[at] = (uint32_t)position;
}

void model_report(struct model *model, size_t index, bool is_failed, double median_ns)
{
    if (model->count == model->room) {
        model->room = model->room ? 2 * model->room : 256;
        model->reports = xrealloc(model->reports, model->room * sizeof model->reports[0]);
        model->ranking = xrealloc(model->ranking, model->room * sizeof model->ranking[0]);
    }
    is_failed |= !(median_ns > 0 && median_ns < 1e30);
    model->reports[model->count] = (struct model_report){
        .index = index,
        .log_time = is_failed ? 0 : number_log2(median_ns),
        .is_failed = is_failed,
    };
    rank(model, model->count++);
    model->worked += !is_failed;
    forget_pending(model, index);
    model->is_stale = true;
}

bool model_wants_spread(const struct model *model)
{
    return model->worked < 2 || model_known(model) < MODEL_FIRST;
}

size_t model_best(const struct model *model, size_t n)
{
    return model->reports[model->ranking[n]].index;
}

size_t model_known(const struct model *model)
{
    return model->count + model->pending_count;
}

size_t model_known_index(const struct model *model, size_t n)
{
    return n < model->count ? model->reports[n].index : model->pending[n - model->count];
}

/* --- targets ---------------------------------------------------------------------------------- */

static double log_time_at(const struct model *model, double quantile)
{
    return model->reports[model->ranking[(size_t)((double)(model->worked - 1) * quantile)]]
        .log_time;
}

/* 0 for the best so far, 1 for the median, and a gentler slope from there. */
static double target_of(const struct model *model, const struct model_report *report)
{
    double best = log_time_at(model, 0), median = log_time_at(model, 0.5);
    double scale = median - best > 1e-3 ? median - best : 1e-3;
    double log_time = report->is_failed ? log_time_at(model, FAILED_QUANTILE) : report->log_time;
    double target = (log_time - best) / scale;
    return target > 1 ? 1 + TAIL_SLOPE * (target - 1) : target;
}

/* Returns the configuration. */
static size_t add_target(struct model *model, size_t rank_position)
{
    struct gauss *gauss = &model->gauss;
    const struct model_report *report = &model->reports[model->ranking[rank_position]];
    float place[MANIFEST_MAX_PARAMS];
    points_place(model->points, report->index, place);
    for (size_t p = 0; p < gauss->width; p++)
        gauss->places[p][gauss->count] = place[p];
    gauss->targets[gauss->count++] = target_of(model, report);
    return report->index;
}

/* To mean 0 and deviation 1. */
static void standardize(struct gauss *gauss)
{
    double n = (double)gauss->count, mean = 0, squares = 0;
    for (size_t i = 0; i < gauss->count; i++)
        mean += gauss->targets[i] / n;
    for (size_t i = 0; i < gauss->count; i++)
        squares += (gauss->targets[i] - mean) * (gauss->targets[i] - mean);
    double deviation = sqrt(squares / n) > 1e-6 ? sqrt(squares / n) : 1e-6;
    for (size_t i = 0; i < gauss->count; i++)
        gauss->targets[i] = (gauss->targets[i] - mean) / deviation;
}

/* --- guesses ---------------------------------------------------------------------------------- */

static bool has_guess(const struct model *model, size_t index)
{
    return model->points->guesses != NULL && isfinite(model->points->guesses[index]);
}

/* What was guessed of a configuration, against the fitted ones. */
static double trend_of(const struct model *model, size_t index)
{
    if (!has_guess(model, index))
        return 0;
    double trend = (model->points->guesses[index] - model->guess_mean) * model->guess_scale;
    return trend > TREND_MAX ? TREND_MAX : trend < -TREND_MAX ? -TREND_MAX : trend;
}

/* fitted: indices of the configurations, as many as the process has points. */
static void set_trends(struct model *model, const size_t *fitted)
{
    struct gauss *gauss = &model->gauss;
    double count = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < gauss->count; i++)
        if (has_guess(model, fitted[i])) {
            count++;
            sum += model->points->guesses[fitted[i]];
        }
    model->guess_mean = count > 0 ? sum / count : 0;
    for (size_t i = 0; i < gauss->count; i++)
        if (has_guess(model, fitted[i])) {
            double difference = model->points->guesses[fitted[i]] - model->guess_mean;
            squares += difference * difference;
        }
    model->guess_scale = squares > 1e-6 ? sqrt(count / squares) : 0;
    for (size_t i = 0; i < gauss->count; i++)
        gauss->trends[i] = trend_of(model, fitted[i]);
}

/* --- choosing ----------------------------------------------------------------------------------
 */

/* All reports while there is room; past that the fastest half, and of the others some by lot. */
static void choose_targets(struct model *model)
{
    size_t fitted[GAUSS_FITTED_MAX], count = 0;
    model->gauss.count = 0;
    size_t sure = model->count <= GAUSS_FITTED_MAX ? model->count : GAUSS_FITTED_MAX / 2;
    size_t wanted = GAUSS_FITTED_MAX - sure;
    for (size_t i = 0; i < model->count; i++) {
        size_t left = model->count - i;
        if (i < sure) {
            fitted[count++] = add_target(model, i);
        } else if (rng_below(&model->rng, left) < wanted) {
            fitted[count++] = add_target(model, i);
            wanted--;
        }
    }
    standardize(&model->gauss);
    set_trends(model, fitted);
}

/* --- fitting ---------------------------------------------------------------------------------- */

static double log_prior(double value, double centre, double octaves)
{
    double z = number_log2(value / centre) / octaves;
    return -0.72 * z * z; /* half a square, in units of base 2 */
}

static double fit(struct model *model)
{
    struct gauss *gauss = &model->gauss;
    double score = gauss_fit(gauss) + log_prior(gauss->noise, NOISE_START, NOISE_OCTAVES);
    for (size_t p = 0; p < gauss->width; p++)
        score += log_prior(gauss->weights[p], WEIGHT_START, WEIGHT_OCTAVES);
    return score;
}

static void learn(struct model *model)
{
    static const double factors[] = {0.25, 0.5, 2, 4};
    struct gauss *gauss = &model->gauss;
    bool is_last_better = true;
    memcpy(gauss->weights, model->weights, sizeof gauss->weights);
    gauss->noise = model->noise;
    double best = fit(model);
    int steps = gauss->count < EARLY_COUNT ? STEPS_EARLY : STEPS_LATE;
    for (int i = 0; i < steps; i++) {
        size_t p = rng_below(&model->rng, gauss->width + 1);
        double *changed = p < gauss->width ? &gauss->weights[p] : &gauss->noise;
        double before = *changed;
        *changed *= factors[rng_below(&model->rng, 4)];
        double score = fit(model);
        is_last_better = score > best;
        if (is_last_better)
            best = score;
        else
            *changed = before;
    }
    if (!is_last_better)
        gauss_fit(gauss);
    memcpy(model->weights, gauss->weights, sizeof model->weights);
    model->noise = gauss->noise;
}

/* The lowest estimate among the tried: a lucky time does not become the mark for all others. */
static double find_goal(const struct model *model)
{
    const struct gauss *gauss = &model->gauss;
    float places[GAUSS_LANES][MANIFEST_MAX_PARAMS];
    double goal = 1e30;
    for (size_t from = 0; from < gauss->count; from += GAUSS_LANES) {
        double means[GAUSS_LANES], deviations[GAUSS_LANES];
        size_t count = gauss->count - from < GAUSS_LANES ? gauss->count - from : GAUSS_LANES;
        for (size_t l = 0; l < count; l++)
            for (size_t p = 0; p < gauss->width; p++)
                places[l][p] = gauss->places[p][from + l];
        gauss_estimate(gauss, places, gauss->trends + from, count, means, deviations);
        for (size_t l = 0; l < count; l++)
            goal = means[l] < goal ? means[l] : goal;
    }
    return goal;
}

void model_update(struct model *model)
{
    if (!model->is_stale || model_wants_spread(model))
        return;
    model->is_stale = false;
    choose_targets(model);
    learn(model);
    model->goal = find_goal(model);
    for (size_t i = 0; i < model->pending_count; i++) {
        float place[MANIFEST_MAX_PARAMS];
        points_place(model->points, model->pending[i], place);
        if (!gauss_append(&model->gauss, place))
            break;
    }
}

/* --- promises --------------------------------------------------------------------------------- */

/* Mean of max(0, gain + deviation * normal): the distribution function by Abramowitz and
 * Stegun 26.2.17. */
static double expected_gain(double gain, double deviation)
{
    double z = gain / deviation, t = 1 / (1 + 0.2316419 * fabs(z));
    double density = 0.3989422804 * number_exp(-0.5 * z * z);
    double tail = t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)));
    tail = density * t * (0.319381530 + tail);
    return gain * (z > 0 ? 1 - tail : tail) + deviation * density;
}

void model_promise(
    const struct model *model, const size_t *indices, size_t count, double *means, double *gains)
{
    float places[GAUSS_LANES][MANIFEST_MAX_PARAMS];
    for (size_t from = 0; from < count; from += GAUSS_LANES) {
        double deviations[GAUSS_LANES], trends[GAUSS_LANES];
        size_t lanes = count - from < GAUSS_LANES ? count - from : GAUSS_LANES;
        for (size_t l = 0; l < lanes; l++) {
            points_place(model->points, indices[from + l], places[l]);
            trends[l] = trend_of(model, indices[from + l]);
        }
        gauss_estimate(&model->gauss, places, trends, lanes, means + from, deviations);
        for (size_t l = 0; l < lanes; l++)
            gains[from + l] = expected_gain(model->goal - means[from + l] - MARGIN, deviations[l]);
    }
}
