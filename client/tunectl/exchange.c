/* `export`, `import`, `refuse`: records leave the database, come into it, and are taken out of
 * service. */
#include "bridge.h"
#include "exchange.h"
#include "print.h"
#include "record_file.h"
#include "tunectl.h"

#include "client/proto.h"
#include "tuning_db/record_line.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- export ----------------------------------------------------------------------------------- */

static int write_lines(const char *path, const struct exchange_lines *lines, struct tune_error *err)
{
    char *header = record_header_format();
    struct record_writer *writer = record_writer_open(path, err);
    int status = writer == NULL ? -1 : record_writer_add(writer, header, strlen(header), err);
    for (size_t i = 0; status == 0 && i < lines->count; i++)
        status = record_writer_add(writer, lines->lines[i], strlen(lines->lines[i]), err);
    if (status == 0)
        status = record_writer_finish(writer, err);
    else
        record_writer_abandon(writer);
    free(header);
    return status;
}

/* What was asked for, in words: " of kernel gemm on sm_90". malloc'ed. */
static char *filter_text(const struct exchange_filter *filter)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s%s%s", filter->kernel ? " of kernel " : "",
            filter->kernel ? filter->kernel : "", filter->arch ? " on " : "",
            filter->arch ? filter->arch : "") < 0)
        abort();
    return text;
}

/* A file of failures alone would look like a result. */
static int fail_empty(const struct exchange_filter *filter, size_t failures, struct tune_error *err)
{
    char *what = filter_text(filter);
    if (failures > 0)
        tune_fail(err, TUNE_ENOTFOUND,
            "there is nothing to export: all %zu records%s are of candidates that failed (see "
            "tunectl records)",
            failures, what);
    tune_fail(err, TUNE_ENOTFOUND, "there is nothing to export: no %s%s%s",
        filter->is_best ? "best record" : "record", what,
        filter->arch == NULL ? " (those of the emulated device are exported with --arch cpu only)"
                             : "");
    free(what);
    return -1;
}

int run_export(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    const char *path = args_value(args, "-o");
    struct exchange_filter filter = {
        .kernel = args_value(args, "--kernel"),
        .arch = args_value(args, "--arch"),
        .is_best = args_has(args, "--best"),
        .is_anonymous = args_has(args, "--anonymous"),
    };
    if (args_has(args, "--to"))
        return bridge_export(ctl, args);
    bool is_stdout = strcmp(path, "-") == 0;
    if (bridge_check_options(args, &err)) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if ((filter.is_best && args_has(args, "--samples")) || (is_stdout && ctl->is_json)) {
        tune_fail(&err, TUNE_EINVAL,
            is_stdout ? "with -o - the records go to standard output: leave --json out"
                      : "--best and --samples exclude each other");
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    struct exchange_lines lines = {0};
    int status = ctl_connect(ctl, true, &err);
    if (status == 0)
        status = exchange_fetch(ctl->client, &filter, !ctl->is_json, &lines, &err);
    if (status == 0 && lines.measured == 0)
        status = fail_empty(&filter, lines.count, &err);
    if (status == 0)
        status = write_lines(path, &lines, &err);
    if (status == 0 && ctl->is_json) {
        json_t *value =
            json_pack("{s:o, s:I}", "file", proto_text(path), "records", (json_int_t)lines.count);
        print_json(value);
        json_decref(value);
    } else if (status == 0 && !is_stdout) {
        printf("%zu records written to %s\n", lines.count, path);
    }
    exchange_lines_finish(&lines);
    return status == 0 ? CTL_DONE : ctl_fail(ctl, &err);
}

/* --- import ----------------------------------------------------------------------------------- */

static int next_line(void *context, struct exchange_line *line, struct tune_error *err)
{
    return record_reader_next(context, line, err);
}

/* New report, or {"name","error":{"code","message"}} when nothing of the file was stored. */
static json_t *import_file(
    struct tunectl *ctl, const char *path, const struct exchange_options *options)
{
    struct tune_error err = {0};
    json_t *report = NULL;
    struct record_reader *reader = record_reader_open(path, &err);
    if (reader != NULL) {
        struct exchange_source source = {next_line, reader};
        exchange_send(ctl->client, path, &source, options, &report, &err);
    }
    record_reader_close(reader);
    return report != NULL ? report
                          : json_pack("{s:o, s:{s:s, s:o}}", "name", proto_text(path), "error",
                                "code", tune_code_word(err.code), "message", proto_text(err.text));
}

static bool has_failed(const json_t *report)
{
    return json_object_get(report, "error") != NULL || number_of(report, "refused") > 0;
}

static void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void print_line(const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    print_clean(stdout, text);
    putchar('\n');
    free(text);
}

static void show_refusals(const json_t *report)
{
    const json_t *list = json_object_get(report, "refusals"), *refusal;
    size_t i;
    json_array_foreach (list, i, refusal)
        print_line("  line %.0f: %s", number_of(refusal, "line"), text_of(refusal, "reason"));
    double more = number_of(report, "refused") - (double)json_array_size(list);
    if (more > 0)
        print_line("  and %.0f more", more);
}

static void show_unknown(const json_t *report)
{
    const json_t *list = json_object_get(report, "unknown_fields"), *name;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    fputs("  kept as they are, since this version does not know them:", stdout);
    json_array_foreach (list, i, name) {
        putchar(' ');
        print_clean(stdout, json_string_value(name));
    }
    putchar('\n');
}

static void show_report(const json_t *report)
{
    const json_t *error = json_object_get(report, "error");
    if (error != NULL) {
        print_line(
            "%s: nothing is imported: %s", text_of(report, "name"), text_of(error, "message"));
        return;
    }
    print_line("%s: %.0f records of %.0f keys: %.0f added, %.0f equal, %.0f replaced, %.0f kept as "
               "they were, %.0f refused",
        text_of(report, "name"), number_of(report, "rows"), number_of(report, "keys"),
        number_of(report, "added"), number_of(report, "equal"), number_of(report, "replaced"),
        number_of(report, "kept"), number_of(report, "refused"));
    if (number_of(report, "set_aside") > 0)
        print_line(
            "  %.0f of them set aside: they are of kernels, or of texts of kernels, that are "
            "not here",
            number_of(report, "set_aside"));
    show_refusals(report);
    show_unknown(report);
    if (json_is_true(json_object_get(report, "dry_run")))
        print_line("  nothing is stored: this was a dry run");
    else if (!json_is_true(json_object_get(report, "stored")))
        print_line("  nothing is stored: --strict takes a file only if no line is refused");
}

static int import_files(struct tunectl *ctl, const struct args *args)
{
    const struct exchange_options options = {
        .is_strict = args_has(args, "--strict"),
        .is_dry_run = args_has(args, "--dry-run"),
        .shows_progress = !ctl->is_json,
    };
    json_t *reports = json_array();
    int status = CTL_DONE;
    for (size_t i = 0; i < args->operand_count; i++) {
        const char *path = args->operands[i];
        json_t *report = args_has(args, "--from") ? bridge_import_file(ctl, args, path, &options)
                                                  : import_file(ctl, path, &options);
        if (!ctl->is_json)
            show_report(report);
        if (has_failed(report))
            status = CTL_FAILED;
        json_array_append_new(reports, report);
    }
    if (ctl->is_json)
        print_json(reports);
    json_decref(reports);
    return status;
}

int run_import(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    if (!args_has(args, "--from") && bridge_check_options(args, &err)) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if (ctl_connect(ctl, true, &err))
        return ctl_fail(ctl, &err);
    return import_files(ctl, args);
}

/* --- refuse ----------------------------------------------------------------------------------- */

/* "2026-11-30" or "2026-11-30T12:00:00Z", in UTC. */
static int parse_moment(const char *text, int64_t *unix_ms, struct tune_error *err)
{
    struct tm moment = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &moment);
    if (end == NULL) {
        moment = (struct tm){0};
        end = strptime(text, "%Y-%m-%d", &moment);
    } else if (*end == 'Z') {
        end++;
    }
    if (end == NULL || *end != '\0' || moment.tm_year < 70)
        return tune_fail(err, TUNE_EINVAL,
            "--before takes a day or a moment (UTC) such as 2026-11-30 or 2026-11-30T12:00:00Z, "
            "not \"%.40s\"",
            text);
    *unix_ms = (int64_t)timegm(&moment) * 1000;
    return 0;
}

static json_t *refuse_request(const struct args *args, struct tune_error *err)
{
    static const char *const names[] = {"--host", "--uuid", "--run", "--kernel", NULL};
    const char *before = args_value(args, "--before");
    int64_t before_ms = 0;
    if (before != NULL && parse_moment(before, &before_ms, err))
        return NULL;
    json_t *request = json_object();
    args_pass(args, names, request);
    if (before != NULL)
        json_object_set_new(request, "before_ms", json_integer(before_ms));
    if (json_object_size(request) == 0) {
        tune_fail(err, TUNE_EINVAL,
            "say which records: at least one of --host, --uuid, --run, --kernel and --before");
        json_decref(request);
        return NULL;
    }
    if (args_has(args, "--dry-run"))
        json_object_set_new(request, "dry_run", json_true());
    return request;
}

static void show_refused(const json_t *answer)
{
    bool is_dry_run = json_is_true(json_object_get(answer, "dry_run"));
    print_line("%.0f records %s (%.0f match, %.0f of them refused before)",
        number_of(answer, "refused"),
        is_dry_run ? "would be refused" : "refused: they are never served again",
        number_of(answer, "matched"), number_of(answer, "already"));
}

int run_refuse(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *answer = NULL;
    json_t *request = refuse_request(args, &err);
    if (request == NULL) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    int status = ctl_connect(ctl, true, &err);
    if (status == 0) {
        tune_set_timeout(ctl->client, 600000);
        status = tune_request(ctl->client, "refuse", request, &answer, &err);
    } else {
        json_decref(request);
    }
    if (status)
        return ctl_fail(ctl, &err);
    bool has_matched = number_of(answer, "matched") > 0;
    if (ctl->is_json)
        print_json(answer);
    else if (has_matched)
        show_refused(answer);
    else
        fputs("tunectl: no record matches\n", stderr);
    json_decref(answer);
    return has_matched ? CTL_DONE : CTL_FAILED;
}
