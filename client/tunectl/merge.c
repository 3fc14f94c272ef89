/* `merge`: files of records into one, without a daemon. */
#include "print.h"
#include "record_file.h"
#include "tunectl.h"

#include "client/proto.h"
#include "tuning_db/record_line.h"
#include "tuning_db/record_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSALS_SHOWN 20

struct merge {
    struct record_set *set;
    size_t refused;
    bool has_warned; /* of unknown fields in a header: once is enough */
};

static void say(const char *file, uint64_t line, const char *text)
{
    fprintf(stderr, "tunectl: ");
    print_clean(stderr, file);
    if (line > 0)
        fprintf(stderr, ":%llu", (unsigned long long)line);
    fprintf(stderr, ": ");
    print_clean(stderr, text);
    fputc('\n', stderr);
}

static int take_header(
    struct merge *merge, const char *path, const struct exchange_line *line, struct tune_error *err)
{
    char *unknown;
    if (record_header_check(line->text, line->length, &unknown, err))
        return -1;
    if (unknown != NULL && !merge->has_warned) {
        char text[300];
        snprintf(text, sizeof text,
            "the header has fields that this version does not know; they are left out: %s",
            unknown);
        say(path, line->number, text);
        merge->has_warned = true;
    }
    free(unknown);
    return 0;
}

static void refuse_line(
    struct merge *merge, const char *path, const struct exchange_line *line, const char *reason)
{
    if (++merge->refused <= REFUSALS_SHOWN)
        say(path, line->number, reason);
}

/* -1: the file as a whole cannot be taken. Lines that are refused are told and counted. */
static int read_lines(
    struct merge *merge, const char *path, struct record_reader *reader, struct tune_error *err)
{
    struct exchange_line line;
    bool has_header = false;
    int status;
    while ((status = record_reader_next(reader, &line, err)) > 0) {
        struct tune_error why = {0};
        if (line.refusal != NULL) {
            refuse_line(merge, path, &line, line.refusal);
        } else if (record_line_is_header(line.text, line.length)) {
            if (take_header(merge, path, &line, err))
                return -1;
            has_header = true;
        } else if (record_set_add(merge->set, line.text, line.length, &why)) {
            if (why.code == TUNE_ENOMEM)
                return tune_fail(err, why.code, "%s", why.text);
            refuse_line(merge, path, &line, why.text);
        }
    }
    if (status == 0 && !has_header)
        return tune_fail(err, TUNE_EVERSION,
            "it has no header line that tells its version, as {\"format\":\"tunerd-records\","
            "\"version\":[%d,%d]}: it is cut off, or no file of records",
            RECORD_LINE_MAJOR, RECORD_LINE_MINOR);
    return status;
}

static int read_file(struct merge *merge, const char *path, struct tune_error *err)
{
    struct tune_error cause = {0};
    struct record_reader *reader = record_reader_open(path, err);
    if (reader == NULL)
        return -1;
    int status = read_lines(merge, path, reader, &cause);
    if (status != 0)
        tune_fail(err, cause.code, "%s: %s", path, cause.text);
    record_reader_close(reader);
    return status;
}

static int write_file(
    const char *path, const char *const *lines, size_t count, struct tune_error *err)
{
    char *header = record_header_format();
    if (header == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to write %s", path);
    struct record_writer *writer = record_writer_open(path, err);
    int status = writer == NULL ? -1 : record_writer_add(writer, header, strlen(header), err);
    for (size_t i = 0; status == 0 && i < count; i++)
        status = record_writer_add(writer, lines[i], strlen(lines[i]), err);
    if (status == 0)
        status = record_writer_finish(writer, err);
    else
        record_writer_abandon(writer);
    free(header);
    return status;
}

static void report(
    const struct tunectl *ctl, const char *path, const struct record_set_counts *counts)
{
    if (!ctl->is_json) {
        fprintf(stderr, "tunectl: %zu records read, %zu equal, %zu superseded, %zu written to ",
            counts->rows, counts->equal, counts->superseded, counts->standing);
        print_clean(stderr, path);
        fputc('\n', stderr);
        return;
    }
    json_t *value = json_pack("{s:o, s:I, s:I, s:I, s:I}", "file", proto_text(path), "read",
        (json_int_t)counts->rows, "equal", (json_int_t)counts->equal, "superseded",
        (json_int_t)counts->superseded, "written", (json_int_t)counts->standing);
    print_json(value);
    json_decref(value);
}

static int merge_files(struct merge *merge, const struct args *args, const char *path,
    struct record_set_counts *counts, struct tune_error *err)
{
    for (size_t i = 0; i < args->operand_count; i++) {
        if (read_file(merge, args->operands[i], err))
            return -1;
    }
    if (merge->refused > 0)
        return tune_fail(err, TUNE_EINVAL,
            "lines refused: %zu; nothing is written: take them out or mend them, or let "
            "\"tunectl import\" pass them over",
            merge->refused);
    const char *const *lines = record_set_join(merge->set, counts);
    if (lines == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to merge %zu records", counts->rows);
    return write_file(path, lines, counts->standing, err);
}

int run_merge(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    struct record_set_counts counts;
    const char *path = args_value(args, "-o");
    if (strcmp(path, "-") == 0 && ctl->is_json) {
        tune_fail(
            &err, TUNE_EINVAL, "with -o - the records go to standard output: leave --json out");
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    struct merge merge = {.set = record_set_create()};
    int status = merge.set != NULL ? merge_files(&merge, args, path, &counts, &err)
                                   : tune_fail(&err, TUNE_ENOMEM, "no memory to merge records");
    if (status == 0)
        report(ctl, path, &counts);
    record_set_destroy(merge.set);
    return status == 0 ? CTL_DONE : ctl_fail(ctl, &err);
}
