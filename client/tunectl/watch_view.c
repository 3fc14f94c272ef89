/* See watch_view.h. */
#include "watch_view.h"
#include "print.h"
#include "watch_text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROOMY_ROWS 18    /* from here on GPUs and other jobs have lines of their own */
#define ROOMY_COLUMNS 60 /* and results their time of day */
#define GPU_LINES_MAX 4
#define TIMES_MAX 512

/* What the functions below share. */
struct drawing {
    struct view *view;
    const struct watch_model *model;
    double now_s;
    bool is_tall, is_wide;
};

/* --- lines ------------------------------------------------------------------------------------ */

/* The last row is kept for the footer. */
static int rows_left(const struct drawing *drawing)
{
    return drawing->view->rows - 1 - drawing->view->count;
}

static void put_line(struct view *view, enum ink ink, const char *text)
{
    view->lines[view->count].ink = ink;
    view->lines[view->count++].text = text_fit(text, view->columns);
}

static void add_line(const struct drawing *drawing, enum ink ink, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_line(const struct drawing *drawing, enum ink ink, const char *format, ...)
{
    char *text;
    va_list args;
    if (rows_left(drawing) <= 0)
        return;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    put_line(drawing->view, ink, need(length < 0 ? NULL : text));
    free(text);
}

/* "83%", "-" for what is not known. */
static char *percent(double share, char text[HUMAN_BYTES])
{
    if (share < 0)
        snprintf(text, HUMAN_BYTES, "-");
    else
        snprintf(text, HUMAN_BYTES, "%.0f%%", share * 100);
    return text;
}

/* --- the daemon ------------------------------------------------------------------------------- */

static void add_title(const struct drawing *drawing, const json_t *server)
{
    const struct watch_model *model = drawing->model;
    char up[HUMAN_BYTES];
    add_line(drawing, INK_TITLE, "tunerd %s%s, up %s, %.0f client%s, %zu GPU%s",
        text_of(server, "version"),
        json_is_true(json_object_get(server, "emulated")) ? " (emulated)" : "",
        human_duration(model->uptime_s, up), model->clients, model->clients == 1 ? "" : "s",
        model->gpu_count, model->gpu_count == 1 ? "" : "s");
}

static void add_gpu(const struct drawing *drawing, size_t place)
{
    const struct watch_gpu *gpu = &drawing->model->gpus[place];
    char bar[TEXT_BAR_MAX + 1], share_text[HUMAN_BYTES];
    double share = watch_gpu_share(drawing->model, place);
    add_line(drawing, gpu->reason[0] ? INK_NOTE : INK_PLAIN, "GPU %-3d  [%s] %4s  %s, %s%s%s",
        gpu->ordinal, text_bar(share, 10, bar), percent(share, share_text), gpu->name, gpu->state,
        gpu->reason[0] ? ": " : "", gpu->reason);
}

/* All in one line: "GPU 0 83%, 1 90%". */
static char *gpus_text(const struct watch_model *model)
{
    char *text = NULL, share[HUMAN_BYTES];
    size_t length;
    FILE *stream = need(open_memstream(&text, &length));
    fputs("GPU", stream);
    for (size_t i = 0; i < model->gpu_count; i++)
        fprintf(stream, "%s %d %s", i > 0 ? "," : "", model->gpus[i].ordinal,
            percent(watch_gpu_share(model, i), share));
    fputs(model->gpu_count == 0 ? " none" : "", stream);
    fclose(stream);
    return need(text);
}

/* How busy it is: a line each, or all in one. */
static void add_load(const struct drawing *drawing)
{
    const struct watch_model *model = drawing->model;
    char bar[TEXT_BAR_MAX + 1], share_text[HUMAN_BYTES];
    double share = watch_compile_share(model);
    bool has_lines = drawing->is_tall && model->gpu_count <= GPU_LINES_MAX;
    char *gpus = has_lines ? NULL : gpus_text(model);
    percent(share, share_text);
    if (!drawing->is_tall) {
        add_line(drawing, INK_PLAIN, "%s, compile %s, %.0f wait, %.0f queued", gpus, share_text,
            model->compile_queue, model->jobs_queued);
    } else {
        for (size_t i = 0; has_lines && i < model->gpu_count; i++)
            add_gpu(drawing, i);
        if (gpus != NULL)
            add_line(drawing, INK_PLAIN, "%s", gpus);
        add_line(drawing, INK_PLAIN, "compile  [%s] %4s  %.0f of %.0f workers busy, %.0f wait",
            text_bar(share, 10, bar), share_text, model->compile_busy, model->compile_alive,
            model->compile_queue);
        add_line(drawing, INK_PLAIN, "jobs     %.0f running, %.0f queued",
            model->jobs_active - model->jobs_queued, model->jobs_queued);
    }
    free(gpus);
}

/* --- jobs ------------------------------------------------------------------------------------- */

/* A job that is not selected. */
static void add_other(const struct drawing *drawing, const struct watch_job *job)
{
    char best[HUMAN_BYTES], share[HUMAN_BYTES];
    add_line(drawing, INK_PLAIN, "  %s %s  %s  best %s  %s", job->kernel, job->shape,
        percent(job->total > 0 ? job->done / job->total : 0, share), human_time(job->best_ns, best),
        job->id);
}

static void add_headline(const struct drawing *drawing, const struct watch_job *job)
{
    char shapes[64] = "", place[64] = "";
    if (job->shape_count > 1)
        snprintf(
            shapes, sizeof shapes, " (shape %.0f of %.0f)", job->shape_index + 1, job->shape_count);
    if (drawing->model->job_count > 1)
        snprintf(place, sizeof place, " (job %zu of %zu)", drawing->model->selected + 1,
            drawing->model->job_count);
    add_line(drawing, INK_STRONG, "> %s %s%s, %s  %s%s", job->kernel, job->shape, shapes,
        job->phase, job->id, place);
}

static void add_bar(const struct drawing *drawing, const struct watch_job *job)
{
    char bar[TEXT_BAR_MAX + 1], elapsed[HUMAN_BYTES], left[HUMAN_BYTES];
    double rate = watch_rate(job, drawing->now_s), left_s = watch_left_s(job, drawing->now_s);
    bool is_known = left_s >= 0;
    human_duration(left_s, left);
    add_line(drawing, INK_PLAIN, "  [%s] %.0f/%.0f  %.*f/s  %s%s%s%s",
        text_bar(job->total > 0 ? job->done / job->total : 0, drawing->view->columns / 4, bar),
        job->done, job->total, rate < 9.95 ? 1 : 0, rate,
        human_duration(watch_elapsed_s(job, drawing->now_s), elapsed), is_known ? ", " : "",
        is_known ? left : "", is_known ? " left" : "");
}

static void add_best(const struct drawing *drawing, const struct watch_job *job)
{
    char time[HUMAN_BYTES], gain[64] = "";
    if (!(job->best_ns > 0)) {
        add_line(drawing, INK_DIM, "  no result yet");
        return;
    }
    if (job->default_ns > 0)
        snprintf(gain, sizeof gain, " (%.2f x the default)", job->default_ns / job->best_ns);
    add_line(drawing, INK_STRONG, "  best %s%s  %s", human_time(job->best_ns, time), gain,
        job->best_config);
}

/* The selected one at length, and as many of those around it as fit into a quarter. */
static void add_jobs(const struct drawing *drawing)
{
    const struct watch_model *model = drawing->model;
    size_t most = drawing->is_tall ? (size_t)drawing->view->rows / 4 : 1;
    size_t first = model->selected >= most ? model->selected - most + 1 : 0;
    for (size_t i = first; i < model->job_count && i < first + most; i++) {
        if (i != model->selected) {
            add_other(drawing, model->jobs[i]);
            continue;
        }
        add_headline(drawing, model->jobs[i]);
        add_bar(drawing, model->jobs[i]);
        add_best(drawing, model->jobs[i]);
    }
}

/* --- results ---------------------------------------------------------------------------------- */

/* Every outcome that occurred, ok first. */
static void add_outcomes(const struct drawing *drawing, const struct watch_job *job)
{
    char *text = NULL;
    size_t length;
    FILE *stream = need(open_memstream(&text, &length));
    const char *word;
    json_t *count;
    fprintf(stream, "outcomes %.0f ok", number_of(job->outcomes, "ok"));
    json_object_foreach (job->outcomes, word, count) {
        if (strcmp(word, "ok") != 0 && json_number_value(count) > 0)
            fprintf(stream, ", %.0f %s", json_number_value(count), word);
    }
    fclose(stream);
    need(text);
    add_line(drawing, INK_PLAIN, "%s", text);
    free(text);
}

static void add_times(const struct drawing *drawing, const struct watch_job *job)
{
    double times_ns[TIMES_MAX], low_ns, high_ns;
    size_t count = watch_times(job, times_ns, TIMES_MAX);
    char low[HUMAN_BYTES], high[HUMAN_BYTES];
    int columns = drawing->view->columns - (drawing->is_wide ? 34 : 9);
    char *line = text_sparkline(times_ns, count, columns, &low_ns, &high_ns);
    if (drawing->is_wide && low_ns > 0)
        add_line(drawing, INK_PLAIN, "times    %s  %s to %s", line, human_time(low_ns, low),
            human_time(high_ns, high));
    else
        add_line(drawing, INK_PLAIN, "times    %s", line);
    free(line);
}

static void add_result(const struct drawing *drawing, const struct watch_result *result)
{
    time_t told = (time_t)(result->told_s + drawing->model->wall_offset_s);
    char clock[16] = "", time[HUMAN_BYTES];
    struct tm local;
    bool is_ok = strcmp(result->outcome, "ok") == 0;
    if (drawing->is_wide && localtime_r(&told, &local))
        strftime(clock, sizeof clock, "%H:%M:%S ", &local);
    if (is_ok)
        add_line(drawing, INK_PLAIN, " %s%-14s %8s  %s%s%s", clock, result->outcome,
            human_time(result->median_ns, time), result->config, result->detail[0] ? "  " : "",
            result->detail);
    else
        add_line(drawing, INK_BAD, " %s%-14s %s: %s", clock, result->outcome, result->config,
            result->detail);
}

static void add_results(const struct drawing *drawing, const struct watch_job *job)
{
    size_t hidden = job->recent_count - job->shown_count;
    if (drawing->is_tall)
        add_line(drawing, INK_PLAIN, "%s", "");
    if (drawing->model->is_paused)
        add_line(drawing, INK_NOTE, "recent, newest first (paused: %zu more; p goes on)", hidden);
    else if (drawing->is_tall)
        add_line(drawing, INK_DIM, "recent, newest first");
    const struct watch_result *result;
    for (size_t age = 0; rows_left(drawing) > 0 && (result = watch_recent(job, age)); age++)
        add_result(drawing, result);
}

/* --- the whole -------------------------------------------------------------------------------- */

static void add_help(const struct drawing *drawing)
{
    static const char *const lines[] = {
        "q Esc ^C  leave; sweeps go on",
        "down j    select the next job",
        "up k      select the one before",
        "p         let the results stand still",
        "c         cancel the selected job: asks",
        "^Z        suspend; fg comes back",
        "?         this help; any key leaves it",
        "",
        "GPU and compile: how much of the last seconds they worked.",
        "times: of the last results, on a logarithmic scale; x failed.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        add_line(drawing, INK_PLAIN, "%s", lines[i]);
}

static void add_waiting(const struct drawing *drawing)
{
    const struct watch_model *model = drawing->model;
    if (model->only != NULL)
        add_line(drawing, INK_STRONG, "%s has not begun: waiting for it", model->only);
    else
        add_line(drawing, INK_STRONG, "nothing runs: waiting for the next sweep");
    if (model->last_end != NULL)
        add_line(drawing, INK_PLAIN, "%s", model->last_end);
}

static void add_footer(struct view *view, const struct watch_model *model)
{
    char *question;
    if (model->asked != NULL) {
        if (asprintf(&question, "cancel %s? y/n", model->asked) < 0)
            question = need(NULL);
        put_line(view, INK_NOTE, question);
        free(question);
    } else if (model->message != NULL) {
        put_line(view, INK_NOTE, model->message);
    } else {
        put_line(view, INK_DIM, "q leave  ? help  c cancel  p pause  up/down select");
    }
}

void view_make(struct view *view, const struct watch_model *model, const json_t *server, int rows,
    int columns, double now_s)
{
    *view = (struct view){.rows = rows > 0 ? rows : 1, .columns = columns};
    view->lines = need(calloc((size_t)view->rows, sizeof *view->lines));
    struct drawing drawing = {view, model, now_s, rows >= ROOMY_ROWS, columns >= ROOMY_COLUMNS};
    const struct watch_job *job = watch_selected(model);
    add_title(&drawing, server);
    if (model->shows_help) {
        add_help(&drawing);
    } else {
        add_load(&drawing);
        if (drawing.is_tall)
            add_line(&drawing, INK_PLAIN, "%s", "");
        if (job == NULL)
            add_waiting(&drawing);
        else
            add_jobs(&drawing);
    }
    if (job != NULL && !model->shows_help) {
        add_outcomes(&drawing, job);
        add_times(&drawing, job);
        add_results(&drawing, job);
    }
    while (rows_left(&drawing) > 0)
        add_line(&drawing, INK_PLAIN, "%s", "");
    add_footer(view, model);
}

void view_finish(struct view *view)
{
    for (int i = 0; i < view->count; i++)
        free(view->lines[i].text);
    free(view->lines);
    *view = (struct view){0};
}
