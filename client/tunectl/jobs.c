/* `jobs`, `watch`, `cancel`: sweeps that are under way or over. */
#include "follow.h"
#include "print.h"
#include "progress.h"

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

/* --- watch ------------------------------------------------------------------------------------ */

/* A job that is over sends no news: its row among the jobs serves as its `done`. New reference, or
 * NULL while it runs (or with *err set when there is no such job). */
static json_t *ended_job(struct tunectl *ctl, const char *name, struct tune_error *err)
{
    json_t *jobs, *job, *found = NULL;
    size_t i;
    if (tune_request(ctl->client, "jobs", NULL, &jobs, err))
        return NULL;
    json_array_foreach (jobs, i, job) {
        if (strcmp(text_of(job, "job"), name) == 0)
            found = job;
    }
    const char *state = text_of(found, "state");
    bool is_over = strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
                   strcmp(state, "canceled") == 0;
    if (found == NULL)
        tune_fail(err, TUNE_ENOTFOUND, "there is no job %s (see \"tunectl jobs\")", name);
    json_incref(is_over ? found : NULL);
    json_decref(jobs);
    return is_over ? found : NULL;
}

static int watch_one(struct tunectl *ctl, const char *name)
{
    struct tune_error err = {0};
    json_t *done = NULL;
    /* Subscribed before looking, so that an end in between is not missed. */
    if (tune_request(ctl->client, "watch", json_pack("{s:s}", "job", name), NULL, &err) == 0)
        done = ended_job(ctl, name, &err);
    if (done == NULL && err.code == TUNE_OK)
        follow_job(ctl, name, false, &done, &err);
    int status = err.code == TUNE_OK ? show_done(ctl, done) : ctl_fail(ctl, &err);
    json_decref(done);
    return status;
}

/* A line of text, or with --json the next element of the one array. */
static void show_news(const struct tunectl *ctl, const json_t *message, bool is_first)
{
    const json_t *params = json_object_get(message, "params");
    if (ctl->is_json) {
        fputs(is_first ? "" : ",\n", stdout);
        json_dumpf(message, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
    } else if (strcmp(text_of(message, "method"), "done") == 0) {
        print_clean(stdout, text_of(params, "job"));
        fputs(" is ", stdout);
        print_clean(stdout, text_of(params, "state"));
        putchar('\n');
    } else {
        char *text = progress_text(params);
        print_clean(stdout, text_of(params, "job"));
        putchar(' ');
        print_clean(stdout, text ? text : "");
        putchar('\n');
        free(text);
    }
    fflush(stdout);
}

/* Until Ctrl-C, or until the daemon goes. */
static int watch_all(struct tunectl *ctl)
{
    struct tune_error err = {0};
    bool is_first = true;
    if (tune_request(ctl->client, "watch", NULL, NULL, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        putchar('[');
    while (interrupts_seen() == 0 && err.code == TUNE_OK && !ferror(stdout)) {
        json_t *message;
        if (tune_next(ctl->client, 200, &message, &err) > 0) {
            show_news(ctl, message, is_first);
            is_first = false;
        }
        json_decref(message);
    }
    if (ctl->is_json)
        puts("]");
    if (err.code != TUNE_OK)
        fprintf(stderr, "tunectl: %s\n", err.text);
    return err.code == TUNE_OK ? CTL_DONE : CTL_FAILED;
}

int run_watch(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    interrupts_catch();
    if (ctl_connect(ctl, false, &err))
        return ctl_fail(ctl, &err);
    return args->operand_count > 0 ? watch_one(ctl, args->operands[0]) : watch_all(ctl);
}
