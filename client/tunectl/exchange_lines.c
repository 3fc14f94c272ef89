/* See exchange.h. A file is larger than a request may be: it goes in parts of whole lines, and
 * comes in pages. */
#include "exchange.h"
#include "print.h"

#include "client/proto.h"
#include "tuning_db/record_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_BYTES                                                                                 \
    ((size_t)768 << 10)     /* of text as it goes over the wire; a request may be 1 MiB */
#define REFUSAL_BYTES 48    /* of a refused line as it goes over the wire, but for the reason */
#define PART_GAP 1000       /* empty lines put in to keep the numbers */
#define END_LIMIT_MS 600000 /* for the daemon to store all of it */
#define PROGRESS_LINES 10000

/* --- progress --------------------------------------------------------------------------------- */

static void show_progress(bool is_wanted, const char *what, uint64_t count)
{
    if (is_wanted && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %" PRIu64 " lines\x1b[K", what, count);
}

static void end_progress(bool is_wanted)
{
    if (is_wanted && isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
}

/* --- sending ---------------------------------------------------------------------------------- */

/* What the next request carries. */
struct part {
    char *text;
    size_t length, room;
    size_t wire_bytes; /* of the text, escaped, and of what is refused */
    uint64_t first_line, next_line;
    json_t *refused; /* lines that cannot be sent */
};

struct sending {
    struct tune_client *client;
    json_int_t number; /* of the import */
    struct part part;
    struct tune_error *err;
};

static void add_bytes(struct part *part, const char *bytes, size_t count)
{
    if (part->length + count > part->room) {
        part->room = 2 * (part->length + count);
        part->text = need(realloc(part->text, part->room));
    }
    memcpy(part->text + part->length, bytes, count);
    part->length += count;
}

/* Bytes of a text inside a JSON string, its line end included. */
static size_t wire_bytes(const char *text, size_t length)
{
    size_t bytes = length + 2;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bytes += c < 0x20 ? 5 : c == '"' || c == '\\' ? 1 : 0;
    }
    return bytes;
}

static int flush(struct sending *sending)
{
    struct part *part = &sending->part;
    bool has_refused = json_array_size(part->refused) > 0;
    if (part->length == 0 && !has_refused)
        return 0;
    json_t *params = json_pack("{s:I}", "import", sending->number);
    if (part->length > 0) {
        json_object_set_new(params, "lines", json_stringn_nocheck(part->text, part->length));
        json_object_set_new(params, "first_line", json_integer((json_int_t)part->first_line));
    }
    if (has_refused)
        json_object_set(params, "refused", part->refused);
    int status = tune_request(sending->client, "import", params, NULL, sending->err);
    json_decref(part->refused);
    part->refused = json_array();
    part->length = part->wire_bytes = 0;
    part->first_line = part->next_line = 0;
    return status;
}

/* Why a line cannot stand in a JSON string; NULL: it can. */
static const char *fault_of(const struct exchange_line *line)
{
    if (line->refusal != NULL)
        return line->refusal;
    if (line->length > RECORD_LINE_LIMIT_BYTES)
        return "the line is longer than 64 KiB";
    if (memchr(line->text, '\0', line->length) != NULL)
        return "the line has a NUL byte";
    json_t *text = json_stringn(line->text, line->length);
    json_decref(text);
    return text == NULL ? "the line is not UTF-8" : NULL;
}

static int add_refused(struct sending *sending, uint64_t number, const char *reason)
{
    struct part *part = &sending->part;
    json_array_append_new(part->refused,
        json_pack("{s:I, s:o}", "line", (json_int_t)number, "reason", proto_text(reason)));
    part->wire_bytes += wire_bytes(reason, strlen(reason)) + REFUSAL_BYTES;
    return json_array_size(part->refused) >= PART_GAP || part->wire_bytes > PART_BYTES
               ? flush(sending)
               : 0;
}

static int add_line(struct sending *sending, const struct exchange_line *line)
{
    struct part *part = &sending->part;
    const char *fault = fault_of(line);
    if (fault != NULL)
        return add_refused(sending, line->number, fault);
    size_t bytes = wire_bytes(line->text, line->length);
    bool is_far = part->length > 0 && line->number - part->next_line > PART_GAP;
    if ((part->wire_bytes + bytes > PART_BYTES || is_far) && flush(sending))
        return -1;
    if (part->length == 0)
        part->first_line = part->next_line = line->number;
    for (; part->next_line < line->number; part->next_line++) {
        add_bytes(part, "\n", 1);
        part->wire_bytes += 2;
    }
    add_bytes(part, line->text, line->length);
    add_bytes(part, "\n", 1);
    part->wire_bytes += bytes;
    part->next_line++;
    return 0;
}

static int begin(struct sending *sending, const char *name, const struct exchange_options *options)
{
    json_t *answer = NULL;
    json_t *params = json_pack("{s:{s:b, s:b, s:o}}", "begin", "strict", options->is_strict,
        "dry_run", options->is_dry_run, "name", proto_text(name));
    if (tune_request(sending->client, "import", params, &answer, sending->err))
        return -1;
    int64_t number = 0;
    int status = proto_int(answer, "import", 1, INT64_MAX, &number, sending->err);
    sending->number = number;
    json_decref(answer);
    return status;
}

static int send_lines(struct sending *sending, const char *name,
    const struct exchange_source *source, const struct exchange_options *options)
{
    struct exchange_line line;
    uint64_t count = 0;
    int status;
    while ((status = source->next(source->context, &line, sending->err)) > 0) {
        if (add_line(sending, &line))
            return -1;
        if (++count % PROGRESS_LINES == 0)
            show_progress(options->shows_progress, name, count);
        line = (struct exchange_line){0};
    }
    return status < 0 ? -1 : flush(sending);
}

/* The daemon forgets what it has; when it cannot be told, it does so when the connection ends. */
static void give_up(struct sending *sending)
{
    tune_request(sending->client, "import",
        json_pack("{s:I, s:b}", "import", sending->number, "abort", true), NULL, NULL);
}

int exchange_send(struct tune_client *client, const char *name,
    const struct exchange_source *source, const struct exchange_options *options, json_t **report,
    struct tune_error *err)
{
    struct tune_error why = {0};
    struct sending sending = {.client = client, .part.refused = json_array(), .err = &why};
    int status = begin(&sending, name, options);
    if (status == 0) {
        tune_set_timeout(client, END_LIMIT_MS);
        status = send_lines(&sending, name, source, options);
        if (status == 0)
            status = tune_request(client, "import",
                json_pack("{s:I, s:b}", "import", sending.number, "end", true), report, &why);
        else
            give_up(&sending);
        end_progress(options->shows_progress);
    }
    json_decref(sending.part.refused);
    free(sending.part.text);
    return status == 0 ? 0 : tune_fail(err, why.code, "%s", why.text);
}

/* --- fetching --------------------------------------------------------------------------------- */

static int take_page(struct exchange_lines *lines, const json_t *page, struct tune_error *err)
{
    const char *text;
    int64_t measured = 0;
    if (proto_string(page, "lines", &text, err) ||
        proto_int_opt(page, "measured", 0, INT64_MAX, &measured, err))
        return -1;
    lines->measured += (size_t)measured;
    lines->bytes += strlen(text);
    if (lines->bytes > EXCHANGE_LIMIT_BYTES)
        return tune_fail(err, TUNE_ELIMIT,
            "the records take more than %zu MiB: export them by kernel or arch",
            EXCHANGE_LIMIT_BYTES >> 20);
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (lines->count == lines->room) {
            lines->room = lines->room ? 2 * lines->room : 1024;
            lines->lines = need(realloc(lines->lines, lines->room * sizeof *lines->lines));
        }
        lines->lines[lines->count++] = need(strndup(text, length));
        text += length + (text[length] == '\n');
    }
    return 0;
}

static json_t *page_request(const struct exchange_filter *filter, const char *cursor)
{
    return json_pack("{s:s*, s:s*, s:b, s:b, s:s*}", "kernel", filter->kernel, "arch", filter->arch,
        "best", filter->is_best, "anonymous", filter->is_anonymous, "cursor", cursor);
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int exchange_fetch(struct tune_client *client, const struct exchange_filter *filter,
    bool shows_progress, struct exchange_lines *lines, struct tune_error *err)
{
    char *cursor = NULL;
    int status = 0;
    *lines = (struct exchange_lines){0};
    do {
        json_t *page = NULL;
        const char *next = NULL;
        status = tune_request(client, "export", page_request(filter, cursor), &page, err);
        free(cursor);
        cursor = NULL;
        if (status == 0 && take_page(lines, page, err) == 0 &&
            proto_string_opt(page, "cursor", &next, err) == 0)
            cursor = next ? need(strdup(next)) : NULL;
        else
            status = -1;
        json_decref(page);
        show_progress(shows_progress, "export", lines->count);
    } while (status == 0 && cursor != NULL);
    end_progress(shows_progress);
    if (status == 0 && lines->count > 0)
        qsort(lines->lines, lines->count, sizeof *lines->lines, compare_lines);
    return status;
}

void exchange_lines_finish(struct exchange_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->lines[i]);
    free(lines->lines);
    *lines = (struct exchange_lines){0};
}
