/* `report`: gathers records, from files or from the daemon, and writes the page. */
#include "report.h"
#include "exchange.h"
#include "print.h"
#include "record_file.h"
#include "report_known.h"
#include "tunectl.h"

#include "client/proto.h"
#include "tuning_db/record_line.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gathering {
    const struct args *args;
    const char *arch; /* --arch, or NULL */
    struct report *report;
    size_t taken, refused;
};

/* --- records ---------------------------------------------------------------------------------- */

static bool is_wanted(const struct gathering *gathering, const struct sample *sample)
{
    const struct args *args = gathering->args;
    bool is_named = args->operand_count == 0;
    for (size_t i = 0; i < args->operand_count && !is_named; i++)
        is_named = strcmp(args->operands[i], sample->key.kernel) == 0;
    return is_named && (gathering->arch == NULL || strcmp(gathering->arch, sample->key.arch) == 0);
}

static int take_record(
    struct gathering *gathering, const char *line, size_t length, struct tune_error *err)
{
    struct sample sample;
    if (record_line_parse(line, length, &sample, err))
        return -1;
    if (is_wanted(gathering, &sample)) {
        report_add(gathering->report, &sample);
        gathering->taken++;
    }
    sample_finish(&sample);
    return 0;
}

/* --- of files --------------------------------------------------------------------------------- */

static int take_header(const struct exchange_line *line, struct tune_error *err)
{
    char *unknown = NULL; /* fields of a newer version: there is nothing to be kept here */
    int status = record_header_check(line->text, line->length, &unknown, err);
    free(unknown);
    return status;
}

/* A line that cannot be read is left out; a file of another version, or none, is a failure. */
static int take_lines(
    struct gathering *gathering, struct record_reader *reader, struct tune_error *err)
{
    struct exchange_line line;
    bool has_header = false;
    int status;
    while ((status = record_reader_next(reader, &line, err)) > 0) {
        if (line.refusal == NULL && record_line_is_header(line.text, line.length)) {
            if (take_header(&line, err))
                return -1;
            has_header = true;
        } else if (line.refusal != NULL || take_record(gathering, line.text, line.length, NULL)) {
            gathering->refused++;
        }
    }
    if (status == 0 && !has_header)
        return tune_fail(err, TUNE_EVERSION,
            "it has no header line that tells its version: it is cut off, or no file of records");
    return status;
}

static int take_file(struct gathering *gathering, const char *path, struct tune_error *err)
{
    struct tune_error cause = {0};
    struct record_reader *reader = record_reader_open(path, err);
    if (reader == NULL)
        return -1;
    int status = take_lines(gathering, reader, &cause);
    if (status != 0)
        tune_fail(err, cause.code, "%s: %s", path, cause.text);
    record_reader_close(reader);
    return status;
}

static int take_files(struct gathering *gathering, struct tune_error *err)
{
    size_t cursor = 0;
    const char *path;
    while ((path = args_each(gathering->args, "--records", &cursor)) != NULL)
        if (take_file(gathering, path, err))
            return -1;
    if (gathering->refused > 0)
        fprintf(stderr,
            "tunectl: lines left out because they cannot be read: %zu (tunectl merge names "
            "them)\n",
            gathering->refused);
    return 0;
}

/* --- of the daemon ---------------------------------------------------------------------------- */

static int take_kernel(struct gathering *gathering, struct tunectl *ctl, const char *kernel,
    const char *arch, struct tune_error *err)
{
    struct exchange_filter filter = {.kernel = kernel, .arch = arch};
    struct exchange_lines lines = {0};
    int status = exchange_fetch(ctl->client, &filter, !ctl->is_json, &lines, err);
    for (size_t i = 0; status == 0 && i < lines.count; i++)
        status = take_record(gathering, lines.lines[i], strlen(lines.lines[i]), err);
    exchange_lines_finish(&lines);
    return status;
}

static int take_kernels(
    struct gathering *gathering, struct tunectl *ctl, const char *arch, struct tune_error *err)
{
    const struct args *args = gathering->args;
    int status = args->operand_count == 0 ? take_kernel(gathering, ctl, NULL, arch, err) : 0;
    for (size_t i = 0; status == 0 && i < args->operand_count; i++)
        status = take_kernel(gathering, ctl, args->operands[i], arch, err);
    return status;
}

/* Those of the emulated device come by name only, and are asked for when there are no others. */
static int take_of_daemon(struct gathering *gathering, struct tunectl *ctl, struct tune_error *err)
{
    if (ctl_connect(ctl, true, err) || take_kernels(gathering, ctl, gathering->arch, err))
        return -1;
    bool is_any = gathering->taken > 0 || gathering->arch != NULL;
    return is_any ? 0 : take_kernels(gathering, ctl, "cpu", err);
}

/* --- the page --------------------------------------------------------------------------------- */

/* "daemon", or the names of the files, without their folders. */
static json_t *source_json(const struct args *args)
{
    size_t cursor = 0;
    const char *path;
    char *names = NULL;
    while ((path = args_each(args, "--records", &cursor)) != NULL) {
        const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
        char *longer;
        if (asprintf(&longer, "%s%s%s", names ? names : "", names ? ", " : "", name) < 0)
            need(NULL);
        free(names);
        names = longer;
    }
    json_t *json = proto_text(names != NULL ? names : "daemon");
    free(names);
    return json;
}

static int fail_empty(const struct gathering *gathering, struct tune_error *err)
{
    const struct args *args = gathering->args;
    if (gathering->taken > 0)
        return tune_fail(err, TUNE_ENOTFOUND,
            "there is nothing to report: none of %zu records can be used; they are refused, not "
            "final, or have other parameters than their kernel",
            gathering->taken);
    return tune_fail(err, TUNE_ENOTFOUND, "there is nothing to report: no record%s%.60s%s%.20s%s",
        args->operand_count > 0 ? " of kernel " : "",
        args->operand_count > 0 ? args->operands[0] : "", gathering->arch ? " on " : "",
        gathering->arch ? gathering->arch : "",
        args_has(args, "--records") ? " in the files" : "; \"tunectl sweep KERNEL\" makes some");
}

static json_t *make_model(
    const struct gathering *gathering, struct tunectl *ctl, struct tune_error *err)
{
    struct report_known *known = report_known_create(ctl->client);
    json_t *model =
        report_model(gathering->report, report_known_manifest, report_known_limits, known);
    report_known_destroy(known);
    json_object_set_new(model, "created_unix_ms", json_integer((json_int_t)time(NULL) * 1000));
    json_object_set_new(model, "from", source_json(gathering->args));
    if (json_array_size(json_object_get(model, "groups")) > 0)
        return model;
    json_decref(model);
    fail_empty(gathering, err);
    return NULL;
}

static void tell(const struct tunectl *ctl, const char *path, const json_t *model)
{
    const json_t *groups = json_object_get(model, "groups"), *group;
    double rows = 0;
    size_t i;
    json_array_foreach (groups, i, group)
        rows += number_of(json_object_get(group, "provenance"), "rows");
    if (ctl->is_json) {
        json_t *value = json_pack("{s:o, s:I, s:I}", "file", proto_text(path), "groups",
            (json_int_t)json_array_size(groups), "rows", (json_int_t)rows);
        print_json(value);
        json_decref(value);
    } else if (strcmp(path, "-") != 0) {
        printf("%.0f measurements in %zu group%s written to ", rows, json_array_size(groups),
            json_array_size(groups) == 1 ? "" : "s");
        print_clean(stdout, path);
        putchar('\n');
    }
}

static int write_report(
    struct gathering *gathering, struct tunectl *ctl, const char *path, struct tune_error *err)
{
    int status = args_has(gathering->args, "--records") ? take_files(gathering, err)
                                                        : take_of_daemon(gathering, ctl, err);
    json_t *model = status == 0 ? make_model(gathering, ctl, err) : NULL;
    status = model != NULL ? report_page(model, path, err) : -1;
    if (status == 0)
        tell(ctl, path, model);
    json_decref(model);
    return status;
}

int run_report(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    const char *path = args_value(args, "-o");
    if (strcmp(path, "-") == 0 && ctl->is_json) {
        tune_fail(
            &err, TUNE_EINVAL, "with -o - the page goes to standard output: leave --json out");
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    struct gathering gathering = {args, args_value(args, "--arch"), report_create(), 0, 0};
    int status = write_report(&gathering, ctl, path, &err);
    report_destroy(gathering.report);
    return status == 0 ? CTL_DONE : ctl_fail(ctl, &err);
}
