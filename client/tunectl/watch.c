/* `watch`: sweeps as they go, on the whole screen of a terminal (watch_screen.h) or as lines. */
#include "follow.h"
#include "print.h"
#include "progress.h"
#include "watch_screen.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_S 1.0             /* how often the daemon is asked how busy it is */
#define REQUEST_LIMIT_MS 10000 /* while the keys wait */

/* --- a job that is over ----------------------------------------------------------------------- */

/* A job that is over sends no news: its row among the jobs serves as its `done`. New reference, or
 * NULL while it runs (or with *err set when there is no such job). */
static json_t *ended_job(const json_t *jobs, const char *name, struct tune_error *err)
{
    json_t *job, *found = NULL;
    size_t i;
    json_array_foreach (jobs, i, job) {
        if (strcmp(text_of(job, "job"), name) == 0)
            found = job;
    }
    const char *state = text_of(found, "state");
    bool is_over = strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
                   strcmp(state, "canceled") == 0;
    if (found == NULL)
        tune_fail(err, TUNE_ENOTFOUND, "there is no job %s (see \"tunectl jobs\")", name);
    return json_incref(is_over ? found : NULL);
}

/* --- lines ------------------------------------------------------------------------------------ */

static int follow_one(struct tunectl *ctl, const char *name)
{
    struct tune_error err = {0};
    json_t *done = NULL;
    int status =
        follow_job(ctl, name, false, &done, &err) ? ctl_fail(ctl, &err) : show_done(ctl, done);
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
static int follow_all(struct tunectl *ctl)
{
    struct tune_error err = {0};
    bool is_first = true;
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

/* --- the screen ------------------------------------------------------------------------------- */

struct watching {
    struct tunectl *ctl;
    struct watch_model model;
    double next_tick_s;
    json_t *done; /* of the one job that is watched, once it has ended */
    bool is_leaving;
    struct tune_error err; /* why it cannot go on */
};

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Asks how busy the daemon is, once a second. */
static void tick(struct watching *watching)
{
    struct tune_client *client = watching->ctl->client;
    json_t *stats = NULL, *devices = NULL;
    double now_s = seconds_of(CLOCK_MONOTONIC);
    if (now_s < watching->next_tick_s)
        return;
    watching->next_tick_s = now_s + TICK_S;
    if (tune_request(client, "stats", NULL, &stats, &watching->err) == 0 &&
        tune_request(client, "devices", NULL, &devices, &watching->err) == 0)
        watch_take_stats(&watching->model, stats, devices);
    json_decref(stats);
    json_decref(devices);
}

static void take_news(struct watching *watching)
{
    const char *only = watching->model.only;
    json_t *message;
    while (watching->err.code == TUNE_OK && watching->done == NULL &&
           tune_next(watching->ctl->client, 0, &message, &watching->err) > 0) {
        json_t *params = json_object_get(message, "params");
        bool is_meant = only == NULL || strcmp(only, text_of(params, "job")) == 0;
        if (is_meant)
            watch_notify(&watching->model, message, seconds_of(CLOCK_MONOTONIC));
        if (is_meant && only != NULL && strcmp(text_of(message, "method"), "done") == 0)
            watching->done = json_incref(params);
        json_decref(message);
    }
}

static void cancel_asked(struct watching *watching)
{
    struct tune_error err = {0};
    json_t *request = json_pack("{s:s}", "job", watching->model.asked);
    int status = tune_request(watching->ctl->client, "cancel", request, NULL, &err);
    watch_canceled(&watching->model, status ? err.text : NULL);
}

static void take_keys(struct watching *watching)
{
    int key;
    while (!watching->is_leaving && (key = screen_key()) != 0) {
        enum watch_action action = watch_key(&watching->model, key);
        if (action == WATCH_CANCEL)
            cancel_asked(watching);
        watching->is_leaving = action == WATCH_LEAVE;
    }
    screen_suspend();
    watching->is_leaving = watching->is_leaving || screen_signal() != 0;
}

static void draw(struct watching *watching)
{
    struct view view;
    int rows, columns;
    screen_size(&rows, &columns);
    view_make(&view, &watching->model, tune_server(watching->ctl->client), rows, columns,
        seconds_of(CLOCK_MONOTONIC));
    screen_draw(&view);
    view_finish(&view);
}

/* Until there is news, a key, a signal, or the next tick. */
static void wait_for_news(struct watching *watching)
{
    struct pollfd fds[] = {
        {.fd = tune_descriptor(watching->ctl->client), .events = POLLIN},
        {.fd = STDIN_FILENO, .events = POLLIN},
    };
    double left_s = watching->next_tick_s - seconds_of(CLOCK_MONOTONIC);
    int ready = poll(fds, 2, left_s > 0 ? (int)(left_s * 1000) + 1 : 0);
    if (ready > 0 && fds[1].revents & (POLLHUP | POLLERR | POLLNVAL))
        watching->is_leaving = true; /* the terminal is gone */
    if (ready < 0 && errno != EINTR)
        tune_fail_errno(&watching->err, TUNE_EIO, "cannot wait for the daemon");
}

static void run_screen(struct watching *watching)
{
    tune_set_timeout(watching->ctl->client, REQUEST_LIMIT_MS);
    for (;;) {
        tick(watching);
        take_news(watching);
        take_keys(watching);
        if (watching->is_leaving || watching->done != NULL || watching->err.code != TUNE_OK)
            return;
        draw(watching);
        wait_for_news(watching);
    }
}

/* On the normal screen again. */
static int end_screen(struct watching *watching)
{
    int number = screen_signal();
    if (number == SIGTERM || number == SIGHUP) {
        signal(number, SIG_DFL);
        raise(number); /* so that who asked for it sees it */
    }
    if (watching->done != NULL)
        return show_done(watching->ctl, watching->done);
    if (watching->err.code == TUNE_OK && watching->model.only != NULL)
        tune_fail(
            &watching->err, TUNE_ECANCELED, "no longer watching; %s goes on", watching->model.only);
    return watching->err.code == TUNE_OK ? CTL_DONE : ctl_fail(watching->ctl, &watching->err);
}

/* The screen is open. */
static int watch_on_screen(struct tunectl *ctl, const char *name, const json_t *jobs)
{
    double now_s = seconds_of(CLOCK_MONOTONIC);
    struct watching watching = {.ctl = ctl, .next_tick_s = now_s};
    watch_init(&watching.model, name, seconds_of(CLOCK_REALTIME) - now_s);
    watch_take_jobs(&watching.model, jobs, now_s);
    run_screen(&watching);
    screen_close();
    int status = end_screen(&watching);
    watch_finish(&watching.model);
    json_decref(watching.done);
    return status;
}

/* --- the command ------------------------------------------------------------------------------ */

/* Subscribes, and looks for what ran before; *done is set when the one job is over already. */
static int begin(struct tunectl *ctl, const char *name, bool needs_jobs, json_t **jobs,
    json_t **done, struct tune_error *err)
{
    json_t *request = name ? json_pack("{s:s}", "job", name) : NULL;
    if (ctl_connect(ctl, false, err)) {
        json_decref(request);
        return -1;
    }
    /* Subscribed before looking, so that an end in between is not missed. */
    if (tune_request(ctl->client, "watch", request, NULL, err) ||
        (needs_jobs && tune_request(ctl->client, "jobs", NULL, jobs, err)))
        return -1;
    *done = name ? ended_job(*jobs, name, err) : NULL;
    return err->code == TUNE_OK ? 0 : -1;
}

int run_watch(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *jobs = NULL, *done = NULL;
    const char *name = args->operand_count > 0 ? args->operands[0] : NULL;
    bool is_plain = ctl->is_json || args_has(args, "--plain") || !isatty(STDOUT_FILENO);
    int status;
    interrupts_catch();
    setlocale(LC_CTYPE, "");
    if (begin(ctl, name, name != NULL || !is_plain, &jobs, &done, &err))
        status = ctl_fail(ctl, &err);
    else if (done != NULL)
        status = show_done(ctl, done);
    else if (!is_plain && screen_open())
        status = watch_on_screen(ctl, name, jobs);
    else
        status = name ? follow_one(ctl, name) : follow_all(ctl);
    json_decref(jobs);
    json_decref(done);
    return status;
}
