/* `jobs`, `cancel`: sweeps that are under way or over. */
#include "print.h"
#include "tunectl.h"

#include <stdlib.h>
#include <string.h>

/* --- jobs ------------------------------------------------------------------------------------- */

/* The best time of a job of one shape. */
static double best_of(const json_t *job)
{
    const json_t *results = json_object_get(job, "results");
    const json_t *best = json_object_get(json_array_get(results, 0), "best");
    const json_t *progress = json_object_get(job, "progress");
    if (json_array_size(results) > 1 || number_of(job, "shape_count") > 1)
        return 0;
    return json_is_object(best) ? number_of(best, "median_ns") : number_of(progress, "best_ns");
}

/* How far it has come; of a job that is over, how many configurations it took. */
static void add_done(struct table *table, const json_t *job)
{
    double evaluations = 0;
    size_t i;
    json_t *result;
    json_array_foreach (json_object_get(job, "results"), i, result) {
        evaluations += number_of(result, "evaluations");
    }
    if (number_of(job, "total") > 0)
        table_addf(table, "%.0f/%.0f", number_of(job, "done"), number_of(job, "total"));
    else
        table_addf(table, "%.0f", evaluations);
}

static void show_jobs(const json_t *jobs)
{
    struct table table;
    table_init(&table, "<<<>><");
    static const char *const heads[] = {"job", "kernel", "state", "done", "best", "created"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    size_t i;
    json_t *job;
    json_array_foreach (jobs, i, job) {
        char time[HUMAN_BYTES];
        table_add(&table, text_of(job, "job"));
        table_add(&table, text_of(job, "kernel"));
        table_add(&table, text_of(job, "state"));
        add_done(&table, job);
        table_add(&table, human_time(best_of(job), time));
        table_add_moment(&table, json_object_get(job, "created_unix_ms"));
    }
    if (json_array_size(jobs) == 0)
        puts("no jobs");
    else
        table_print(&table, "", stdout);
    table_finish(&table);
}

int run_jobs(struct tunectl *ctl, const struct args *args)
{
    (void)args;
    struct tune_error err = {0};
    json_t *jobs;
    if (ctl_ask(ctl, "jobs", NULL, &jobs, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        print_json(jobs);
    else
        show_jobs(jobs);
    json_decref(jobs);
    return CTL_DONE;
}

/* --- cancel ----------------------------------------------------------------------------------- */

int run_cancel(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *reply = NULL;
    json_t *request = json_pack("{s:s}", "job", args->operands[0]);
    /* Without a daemon there is nothing to cancel, so none is started. */
    int status = ctl_connect(ctl, false, &err);
    if (status)
        json_decref(request);
    else
        status = tune_request(ctl->client, "cancel", request, &reply, &err);
    if (status)
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        print_json(reply);
    else
        printf("canceled %s\n", args->operands[0]);
    json_decref(reply);
    return CTL_DONE;
}
