/* `sweep`: asks for a job, follows it, shows the winners. */
#include "follow.h"
#include "input.h"
#include "print.h"
#include "progress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Ctrl-C ----------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number)
{
    interrupts++;
    if (interrupts < 2)
        return;
    /* The default action takes effect when the handler returns: the shell sees a SIGINT. */
    signal(number, SIG_DFL);
    raise(number);
}

void interrupts_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: poll must wake */
    sigaction(SIGINT, &action, NULL);
}

int interrupts_seen(void)
{
    return interrupts;
}

/* --- following -------------------------------------------------------------------------------- */

/* True when the notification is the end of this job; progress of it is shown. */
static bool is_end(const json_t *message, const char *job, struct progress *progress)
{
    const json_t *params = json_object_get(message, "params");
    if (strcmp(text_of(params, "job"), job) != 0)
        return false;
    if (strcmp(text_of(message, "method"), "progress") == 0)
        progress_update(progress, params);
    return strcmp(text_of(message, "method"), "done") == 0;
}

static int on_first_interrupt(
    struct tunectl *ctl, const char *job, bool cancel, struct tune_error *err)
{
    if (!cancel)
        return tune_fail(err, TUNE_ECANCELED, "no longer watching; %s goes on", job);
    fprintf(stderr, "tunectl: canceling %s; Ctrl-C again leaves at once\n", job);
    /* A job that ended meanwhile cannot be canceled: its `done` is on the way. */
    struct tune_error ignored = {0};
    tune_request(ctl->client, "cancel", json_pack("{s:s}", "job", job), NULL, &ignored);
    return ignored.code == TUNE_EIO ? tune_fail(err, TUNE_EIO, "%s", ignored.text) : 0;
}

int follow_job(struct tunectl *ctl, const char *job, bool cancel_on_interrupt, json_t **done,
    struct tune_error *err)
{
    struct progress progress;
    progress_init(&progress);
    bool is_canceling = false;
    int status = 0;
    *done = NULL;
    while (status == 0 && *done == NULL) {
        if (interrupts_seen() > 0 && !is_canceling) {
            is_canceling = true;
            progress_end(&progress);
            status = on_first_interrupt(ctl, job, cancel_on_interrupt, err);
            continue;
        }
        json_t *message;
        /* The limit bounds how late a Ctrl-C that came just before the wait is seen. */
        status = tune_next(ctl->client, 200, &message, err) < 0 ? -1 : 0;
        if (message != NULL && is_end(message, job, &progress))
            *done = json_incref(json_object_get(message, "params"));
        json_decref(message);
    }
    progress_end(&progress);
    return status;
}

/* --- results ---------------------------------------------------------------------------------- */

static void add_pair(struct table *table, const char *name, const char *value)
{
    table_add(table, name);
    table_add(table, value);
}

static void add_config(struct table *table, const char *name, const json_t *config)
{
    char *text = pairs_text(config, " ");
    add_pair(table, name, text);
    free(text);
}

/* Every outcome that occurred, ok first. */
static void add_counts(struct table *table, const json_t *result)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    const json_t *counts = json_object_get(result, "counts");
    fprintf(stream, "%.0f ok", number_of(counts, "ok"));
    const char *word;
    json_t *count;
    json_object_foreach ((json_t *)counts, word, count) {
        if (strcmp(word, "ok") != 0 && json_number_value(count) > 0)
            fprintf(stream, ", %.0f %s", json_number_value(count), word);
    }
    char duration[HUMAN_BYTES];
    fprintf(stream, "; %.0f evaluations in %s", number_of(result, "evaluations"),
        human_duration(number_of(result, "wall_s"), duration));
    double elsewhere = number_of(json_object_get(result, "fleet"), "remote_evaluations");
    if (elsewhere > 0)
        fprintf(stream, ", %.0f of them on other machines", elsewhere);
    fclose(stream);
    add_pair(table, "outcomes", text);
    free(text);
}

static void add_time(struct table *table, const json_t *best)
{
    char median[HUMAN_BYTES], low[HUMAN_BYTES], high[HUMAN_BYTES];
    const json_t *interval = json_object_get(best, "interval_ns");
    table_add(table, "time");
    char samples[32] = "not confirmed";
    if (number_of(best, "samples") > 0)
        snprintf(samples, sizeof samples, "%.0f samples", number_of(best, "samples"));
    table_addf(table, "%s   (95%% interval %s to %s, %s)",
        human_time(number_of(best, "median_ns"), median),
        human_time(json_number_value(json_array_get(interval, 0)), low),
        human_time(json_number_value(json_array_get(interval, 1)), high), samples);
}

/* TFLOP/s for what computes, GB/s for what moves; and how near that is to what the card can do. */
static void add_rate(struct table *table, const json_t *result)
{
    double tflops = number_of(result, "tflops"), gbs = number_of(result, "gbs");
    double share = number_of(result, "roofline");
    if (!(tflops > 0) && !(gbs > 0))
        return;
    table_add(table, "rate");
    char share_text[64] = "";
    if (share > 0)
        snprintf(share_text, sizeof share_text, "   (%.0f%% of the roofline)", share * 100);
    if (tflops > 0 && gbs > 0)
        table_addf(table, "%.3g TFLOP/s, %.4g GB/s%s", tflops, gbs, share_text);
    else
        table_addf(table, "%.4g %s%s", tflops > 0 ? tflops : gbs, tflops > 0 ? "TFLOP/s" : "GB/s",
            share_text);
}

static void add_default(struct table *table, const json_t *result, double best_ns)
{
    const json_t *usual = json_object_get(result, "default");
    double default_ns = number_of(usual, "median_ns");
    char text[HUMAN_BYTES];
    if (!json_is_object(usual))
        return;
    add_config(table, "default", json_object_get(usual, "config"));
    table_add(table, "");
    const char *outcome = text_of(usual, "outcome");
    if (!(default_ns > 0))
        table_add(table, outcome[0] ? outcome : "not measured");
    else if (json_equal(json_object_get(usual, "config"),
                 json_object_get(json_object_get(result, "best"), "config")))
        table_addf(table, "%s: the default is the winner", human_time(default_ns, text));
    else
        table_addf(table, "%s: the winner is %.2f x as fast", human_time(default_ns, text),
            default_ns / best_ns);
}

static void add_ties(struct table *table, const json_t *best)
{
    const json_t *ties = json_object_get(best, "ties");
    size_t i;
    json_t *tie;
    char text[HUMAN_BYTES];
    table_add(table, "ties");
    if (json_is_false(json_object_get(best, "confirmed"))) {
        table_add(table, "not known: the sweep ended before the winner was confirmed");
        return;
    }
    if (json_array_size(ties) == 0) {
        table_add(table, "none: no other configuration comes within the interval");
        return;
    }
    table_addf(table, "%zu cannot be told apart from the winner:", json_array_size(ties));
    json_array_foreach (ties, i, tie) {
        if (i == 4) {
            add_pair(table, "", "...");
            break;
        }
        char *config = pairs_text(json_object_get(tie, "config"), " ");
        table_add(table, "");
        table_addf(table, "%s   %s", human_time(number_of(tie, "median_ns"), text), config);
        free(config);
    }
}

/* One shape: a headline and a table of what was found. */
static void show_result(const json_t *result)
{
    const json_t *best = json_object_get(result, "best");
    const char *input = text_of(result, "input");
    char *shape = shape_text(result, " ");
    const char *device = text_of(result, "device");
    char *headline;
    if (asprintf(&headline, "%s %s %s on %s%s%s, %s%s%s", text_of(result, "kernel"),
            text_of(result, "dtype"), shape, device, device[0] ? ", " : "", text_of(result, "arch"),
            text_of(result, "mode"), text_of(result, "method")[0] ? ", timed by " : "",
            text_of(result, "method")) >= 0) {
        print_clean(stdout, headline);
        putchar('\n');
        free(headline);
    }
    free(shape);
    struct table table;
    table_init(&table, "<<");
    if (input[0] != '\0')
        add_pair(&table, "input", input);
    if (json_is_object(best)) {
        add_config(&table, "winner", json_object_get(best, "config"));
        add_time(&table, best);
        add_rate(&table, result);
        add_default(&table, result, number_of(best, "median_ns"));
        add_ties(&table, best);
    } else {
        add_pair(&table, "winner", "none: no configuration ran and gave a right result");
    }
    add_counts(&table, result);
    size_t i;
    json_t *message;
    json_array_foreach (json_object_get(result, "messages"), i, message) {
        add_pair(&table, i == 0 ? "note" : "", json_string_value(message));
    }
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

/* `error` of a done: a sentence, or an object with one. */
static const char *done_error(const json_t *done)
{
    const json_t *error = json_object_get(done, "error");
    return json_is_string(error) ? json_string_value(error) : text_of(error, "message");
}

static bool all_have_best(const json_t *results)
{
    size_t i;
    json_t *result;
    json_array_foreach (results, i, result) {
        if (!json_is_object(json_object_get(result, "best")))
            return false;
    }
    return json_array_size(results) > 0;
}

int show_done(const struct tunectl *ctl, const json_t *done)
{
    const json_t *results = json_object_get(done, "results");
    const char *state = text_of(done, "state");
    bool is_complete = strcmp(state, "done") == 0;
    if (!is_complete && json_array_size(results) == 0) {
        struct tune_error err = {0};
        bool is_canceled = strcmp(state, "canceled") == 0;
        const char *sentence = done_error(done);
        tune_fail(&err, is_canceled ? TUNE_ECANCELED : TUNE_EINTERNAL, "%s %s%s%s",
            text_of(done, "job"), state, sentence[0] ? ": " : "", sentence);
        return ctl_fail(ctl, &err);
    }
    if (!is_complete) {
        const char *sentence = done_error(done);
        fprintf(stderr, "tunectl: %s %s%s", text_of(done, "job"), state, sentence[0] ? ": " : "");
        print_clean(stderr, sentence);
        putc('\n', stderr);
    }
    size_t i;
    json_t *result;
    /* One shape gives an object, several a list, also where a cancelled sweep came to one result
     * only. */
    json_int_t shapes = json_integer_value(json_object_get(done, "shape_count"));
    bool is_one = json_array_size(results) == 1 && shapes <= 1;
    if (ctl->is_json)
        print_json(is_one ? json_array_get(results, 0) : results);
    else
        json_array_foreach (results, i, result) {
            if (i > 0)
                putchar('\n');
            show_result(result);
        }
    return is_complete && all_have_best(results) ? CTL_DONE : CTL_FAILED;
}

/* --- the request ------------------------------------------------------------------------------ */

static int pass_integer(const struct args *args, const char *name, const char *field, int64_t min,
    json_t *request, struct tune_error *err)
{
    const char *text = args_value(args, name);
    int64_t value;
    if (text == NULL)
        return 0;
    if (parse_integer(name, text, min, INT64_MAX, &value, err))
        return -1;
    json_object_set_new(request, field, json_integer(value));
    return 0;
}

static int pass_shapes(const struct args *args, json_t *request, struct tune_error *err)
{
    json_t *shapes = json_array();
    int status = 0;
    size_t cursor = 0;
    for (const char *text; (text = args_each(args, "--shape", &cursor)) != NULL && status == 0;) {
        json_t *shape;
        status = parse_dims(text, &shape, err);
        if (status == 0)
            json_array_append_new(shapes, shape);
    }
    const char *path = args_value(args, "--shapes-file");
    if (status == 0 && path != NULL)
        status = parse_shapes_file(path, shapes, err);
    if (json_array_size(shapes) > 0)
        json_object_set(request, "shapes", shapes);
    json_decref(shapes);
    return status;
}

/* A repeatable option whose values add to one object. */
static int pass_object(const struct args *args, const char *name, const char *field,
    int (*parse)(const char *text, json_t *object, struct tune_error *err), json_t *request,
    struct tune_error *err)
{
    size_t cursor = 0;
    for (const char *text; (text = args_each(args, name, &cursor)) != NULL;) {
        if (json_object_get(request, field) == NULL)
            json_object_set_new(request, field, json_object());
        if (parse(text, json_object_get(request, field), err))
            return -1;
    }
    return 0;
}

/* A GPU by number or by UUID. */
static void pass_device(const struct args *args, json_t *request)
{
    const char *text = args_value(args, "--device");
    int64_t ordinal;
    if (text != NULL && parse_integer("", text, 0, 1023, &ordinal, NULL) == 0)
        json_object_set_new(request, "device", json_integer(ordinal));
    else if (text != NULL)
        json_object_set_new(request, "device", json_string(text));
}

/* The params of `sweep`, or NULL with a usage error. */
static json_t *sweep_request(const struct args *args, struct tune_error *err)
{
    static const char *const modes[] = {"cold", "warm", NULL};
    static const char *const priors[] = {"none", "static", "near", "all", NULL};
    static const char *const strings[] = {"--dtype", "--mode", "--strategy", "--prior", NULL};
    json_t *request = json_pack("{s:s}", "kernel", args->operands[0]);
    if (request == NULL) {
        tune_fail(err, TUNE_EINVAL, "a kernel's name is UTF-8");
        return NULL;
    }
    const char *mode = args_value(args, "--mode"), *prior = args_value(args, "--prior");
    args_pass(args, strings, request);
    pass_device(args, request);
    if (args_has(args, "--no-cache"))
        json_object_set_new(request, "nvrtc_cache", json_false());
    if (args_has(args, "--local"))
        json_object_set_new(request, "local", json_true());
    if ((mode && parse_choice("--mode", mode, modes, err)) ||
        (prior && parse_choice("--prior", prior, priors, err)) ||
        (!args_has(args, "--input") && pass_shapes(args, request, err)) ||
        pass_object(args, "--budget", "budget", parse_budget, request, err) ||
        pass_object(args, "--param", "params", parse_param, request, err) ||
        pass_integer(args, "--seed", "seed", 0, request, err) ||
        pass_integer(args, "--deadline-ms", "deadline_ms", 1, request, err)) {
        json_decref(request);
        return NULL;
    }
    return request;
}

static int detach(const struct tunectl *ctl, const char *job)
{
    json_t *value = json_pack("{s:s}", "job", job);
    if (ctl->is_json)
        print_json(value);
    else
        printf("%s\n", job);
    json_decref(value);
    return CTL_DONE;
}

int run_sweep(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *reply = NULL, *done = NULL;
    int status;
    json_t *request = sweep_request(args, &err);
    if (request == NULL) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if (pass_inputs(ctl, args, request, &err)) {
        json_decref(request);
        return ctl_fail(ctl, &err);
    }
    if (!args_has(args, "--detach"))
        interrupts_catch();
    if (ctl_ask(ctl, "sweep", request, &reply, &err))
        return ctl_fail(ctl, &err);
    const char *job = text_of(reply, "job");
    if (args_has(args, "--detach"))
        status = detach(ctl, job);
    else if (follow_job(ctl, job, true, &done, &err))
        status = ctl_fail(ctl, &err);
    else
        status = show_done(ctl, done);
    json_decref(reply);
    json_decref(done);
    return status;
}
