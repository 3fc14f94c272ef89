/* `simulate`: a strategy on a recorded space, through the daemon's own search and without a GPU.
 * The trace is what searches are scored by: run_id, evaluation_index, config_index (the row of the
 * table), and the time that the search saw (empty when the configuration failed). */
#include "tunectl.h"
#include "print.h"
#include "recording.h"

#include "daemon/search/number.h"
#include "daemon/search/rng.h"
#include "daemon/search/search.h"
#include "daemon/worker/stats.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OUTSTANDING_MAX 4096
#define REPEATS_MAX 101
#define REPEATS_DEFAULT 7 /* a sweep times a candidate so often at least */

struct simulation {
    struct recording recording;
    const char *strategy, *trace_path;
    int64_t budget, runs, seed, outstanding, repeats;
    bool is_noisy;
    FILE *trace;
    size_t evaluations;
    double quality; /* sum over the runs of best recorded time / time of the one chosen */
    double choosing_s, longest_s; /* processor time of all choices, and of the longest */
};

/* One run. */
struct run {
    struct search *search;
    struct rng noise;
    int64_t number;
    size_t evaluated;
    double seen_ms, true_ms; /* of the fastest seen; 0: nothing worked */
    size_t queue[OUTSTANDING_MAX], queued;
    bool is_done;
};

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void propose(struct simulation *simulation, struct run *run)
{
    double start = processor_s();
    size_t index = 0;
    enum search_step step = search_next(run->search, &index);
    double taken = processor_s() - start;
    simulation->choosing_s += taken;
    if (taken > simulation->longest_s)
        simulation->longest_s = taken;
    if (step == SEARCH_PROPOSED)
        run->queue[run->queued++] = index;
    else
        run->is_done = step == SEARCH_DONE || run->queued == 0;
}

/* What one evaluation sees: the recorded time, or the median of some of its repeats, drawn by lot
 * as a sweep takes samples. */
static double see(
    const struct simulation *simulation, struct run *run, const struct recorded *config)
{
    if (!simulation->is_noisy || config->repeats_count == 0)
        return config->time_ms;
    const double *repeats_ms = simulation->recording.repeats_ms + config->repeats_start;
    double drawn[REPEATS_MAX], sorted[REPEATS_MAX];
    for (int64_t i = 0; i < simulation->repeats; i++)
        drawn[i] = repeats_ms[rng_below(&run->noise, config->repeats_count)];
    return stats_median(drawn, (size_t)simulation->repeats, sorted);
}

static void evaluate(struct simulation *simulation, struct run *run)
{
    size_t index = run->queue[0];
    const struct recorded *config = &simulation->recording.configs[index];
    memmove(run->queue, run->queue + 1, --run->queued * sizeof run->queue[0]);
    fprintf(
        simulation->trace, "%lld,%zu,%zu,", (long long)run->number, run->evaluated++, config->row);
    if (config->time_ms > 0) {
        double seen_ms = see(simulation, run, config);
        fprintf(simulation->trace, "%.17g\n", seen_ms);
        search_report(run->search, index, OUTCOME_OK, seen_ms * 1e6);
        if (run->seen_ms == 0 || seen_ms < run->seen_ms) {
            run->seen_ms = seen_ms;
            run->true_ms = config->time_ms;
        }
    } else {
        fputc('\n', simulation->trace);
        search_report(run->search, index, OUTCOME_LAUNCH_FAILED, 0);
    }
}

/* What a table knows of its configurations before they are tried, as a sweep gets it from the
 * static estimate. */
static void guess(struct search *search, const struct recording *recording)
{
    size_t count = space_count(recording->space);
    float *guesses = malloc(count * sizeof *guesses);
    for (size_t i = 0; guesses != NULL && i < count; i++) {
        double estimate_ms = recording->configs[i].estimate_ms;
        guesses[i] = estimate_ms > 0 ? (float)number_log2(estimate_ms) : NAN;
    }
    if (guesses != NULL)
        search_guess(search, guesses);
    free(guesses);
}

/* Configurations that the table lacks cannot be tried; the budget is for the others. */
static struct search *create_search(
    const struct simulation *simulation, uint64_t seed, struct tune_error *err)
{
    const struct recording *recording = &simulation->recording;
    struct search *search = search_create(simulation->strategy, recording->space, seed,
        (size_t)simulation->budget + recording->missing, err);
    for (size_t i = 0; search && recording->missing > 0 && i < space_count(recording->space); i++)
        if (recording->configs[i].row == SIZE_MAX)
            search_mark_tried(search, i);
    if (search != NULL && recording->has_estimates)
        guess(search, recording);
    return search;
}

static int simulate_run(
    struct simulation *simulation, int64_t number, struct rng *seeds, struct tune_error *err)
{
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a run");
    run->number = number;
    run->search = create_search(simulation, rng_next(seeds), err);
    run->noise.state = rng_next(seeds);
    while (run->search != NULL && !(run->is_done && run->queued == 0)) {
        while (!run->is_done && run->queued < (size_t)simulation->outstanding) {
            size_t before = run->queued;
            propose(simulation, run);
            if (run->queued == before)
                break;
        }
        if (run->queued > 0)
            evaluate(simulation, run);
    }
    simulation->evaluations += run->evaluated;
    if (run->true_ms > 0)
        simulation->quality += simulation->recording.best_ms / run->true_ms;
    int status = run->search ? 0 : -1;
    search_destroy(run->search);
    free(run);
    return status;
}

static int simulate_all(struct simulation *simulation, struct tune_error *err)
{
    struct rng seeds = {(uint64_t)simulation->seed};
    int status = 0;
    simulation->trace = fopen(simulation->trace_path, "w");
    if (simulation->trace == NULL)
        return tune_fail(err, TUNE_EIO, "%.150s: %s", simulation->trace_path, strerror(errno));
    fputs("run_id,evaluation_index,config_index,time_ms\n", simulation->trace);
    for (int64_t i = 0; i < simulation->runs && status == 0; i++)
        status = simulate_run(simulation, i, &seeds, err);
    bool is_lost = ferror(simulation->trace) != 0;
    if ((fclose(simulation->trace) != 0 || is_lost) && status == 0)
        status = tune_fail(err, TUNE_EIO, "%.150s: %s", simulation->trace_path, strerror(errno));
    return status;
}

static void show(const struct tunectl *ctl, const struct simulation *simulation)
{
    const struct recording *recording = &simulation->recording;
    double quality = simulation->quality / (double)simulation->runs;
    double choosing_us = 1e6 * simulation->choosing_s / (double)simulation->evaluations;
    if (!ctl->is_json) {
        printf("%s: %zu configurations, best %.6g ms\n"
               "%lld runs of %s, %zu evaluations; after them best time / time found: %.4f\n"
               "choosing one: %.0f us, at most %.0f us\n",
            recording->name, recording->row_count, recording->best_ms, (long long)simulation->runs,
            simulation->strategy, simulation->evaluations, quality, choosing_us,
            1e6 * simulation->longest_s);
        return;
    }
    json_t *value = json_pack("{s:s, s:I, s:f, s:s, s:I, s:I, s:f, s:f, s:f}", "space",
        recording->name, "configs", (json_int_t)recording->row_count, "best_ms", recording->best_ms,
        "strategy", simulation->strategy, "runs", (json_int_t)simulation->runs, "evaluations",
        (json_int_t)simulation->evaluations, "quality", quality, "choosing_us", choosing_us,
        "longest_us", 1e6 * simulation->longest_s);
    print_json(value);
    json_decref(value);
}

static int read_number(const struct args *args, const char *name, int64_t min, int64_t max,
    int64_t *value, struct tune_error *err)
{
    const char *text = args_value(args, name);
    return text ? parse_integer(name, text, min, max, value, err) : 0;
}

static int read_args(struct simulation *simulation, const struct args *args, struct tune_error *err)
{
    simulation->strategy = args_value(args, "--strategy");
    simulation->trace_path = args_value(args, "--trace");
    simulation->is_noisy = args_has(args, "--noise");
    simulation->budget = 200;
    simulation->runs = simulation->seed = simulation->outstanding = 1;
    simulation->repeats = REPEATS_DEFAULT;
    if (search_check_name(simulation->strategy, err))
        return -1;
    return read_number(args, "--budget", 1, INT32_MAX, &simulation->budget, err) ||
                   read_number(args, "--runs", 1, INT32_MAX, &simulation->runs, err) ||
                   read_number(args, "--seed", 0, INT64_MAX, &simulation->seed, err) ||
                   read_number(args, "--repeats", 1, REPEATS_MAX, &simulation->repeats, err) ||
                   read_number(
                       args, "--outstanding", 1, OUTSTANDING_MAX, &simulation->outstanding, err)
               ? -1
               : 0;
}

int run_simulate(struct tunectl *ctl, const struct args *args)
{
    struct simulation simulation = {0};
    struct tune_error err = {0};
    int status;
    if (read_args(&simulation, args, &err)) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if (recording_load(
            &simulation.recording, args->operands[0], args_value(args, "--space"), &err) ||
        simulate_all(&simulation, &err)) {
        status = ctl_fail(ctl, &err);
    } else {
        show(ctl, &simulation);
        status = CTL_DONE;
    }
    recording_finish(&simulation.recording);
    return status;
}
