/* One HTML file out of the parts in share/tunerd/report and the numbers. See report.h.
 *
 * The numbers stand in a script element. A text in them cannot end it: '<' is written as \u003c,
 * which JSON reads as the same, and has no place outside of texts. */
#include "report.h"
#include "print.h"
#include "record_file.h"

#include "client/folders.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_LIMIT_BYTES ((size_t)16 << 20)
#define DIGITS 6 /* of a number that is no integer */

struct text {
    char *bytes;
    size_t length, room;
};

static void append(struct text *text, const char *bytes, size_t count)
{
    if (text->length + count + 1 > text->room) {
        text->room = 2 * (text->length + count) + 4096;
        text->bytes = need(realloc(text->bytes, text->room));
    }
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

/* --- parts ------------------------------------------------------------------------------------ */

static int read_all(int fd, const char *path, struct text *text, struct tune_error *err)
{
    char piece[65536];
    size_t before = text->length;
    ssize_t count;
    while ((count = read(fd, piece, sizeof piece)) > 0) {
        append(text, piece, (size_t)count);
        if (text->length - before > PART_LIMIT_BYTES)
            return tune_fail(
                err, TUNE_ELIMIT, "%s has more than %zu MiB", path, PART_LIMIT_BYTES >> 20);
    }
    append(text, "", 0);
    return count == 0 ? 0 : tune_fail_errno(err, TUNE_EIO, "cannot read %s", path);
}

static int read_part(
    const char *folder, const char *name, struct text *text, struct tune_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tune_fail_errno(err, TUNE_ENOTFOUND,
            "a part of the page cannot be read, so the program is not installed as a whole: %s",
            path);
    int status = read_all(fd, path, text, err);
    close(fd);
    return status;
}

/* --- data ------------------------------------------------------------------------------------- */

static int append_json(const char *bytes, size_t count, void *context)
{
    const char *end = bytes + count, *next;
    for (; (next = memchr(bytes, '<', (size_t)(end - bytes))) != NULL; bytes = next + 1) {
        append(context, bytes, (size_t)(next - bytes));
        append(context, "\\u003c", 6);
    }
    append(context, bytes, (size_t)(end - bytes));
    return 0;
}

static void append_model(struct text *text, const json_t *model)
{
    int status =
        json_dump_callback(model, append_json, text, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    need(status == 0 ? text : NULL);
}

/* --- the page --------------------------------------------------------------------------------- */

static const struct place {
    const char *mark, *part; /* part NULL: the numbers */
} places[] = {
    {"/*TUNERD:CSS*/", "page.css"},
    {"/*TUNERD:LIBRARY*/", "echarts.min.js"},
    {"/*TUNERD:DATA*/", NULL},
    {"/*TUNERD:BASE*/", "base.js"},
    {"/*TUNERD:EXPLORE*/", "explore.js"},
    {"/*TUNERD:RESULTS*/", "results.js"},
    {"/*TUNERD:SCRIPT*/", "page.js"},
};
#define PLACE_COUNT (sizeof places / sizeof places[0])

static int check_frame(const char *folder, const char *frame, struct tune_error *err)
{
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        const char *mark = places[i].mark, *at = strstr(frame, mark);
        if (at == NULL || strstr(at + 1, mark) != NULL)
            return tune_fail(err, TUNE_EINVAL,
                "%s/page.html must have %s once, and has it %s: install the program anew", folder,
                mark, at == NULL ? "not at all" : "more often");
    }
    return 0;
}

/* The place that comes first in what is left of the frame, or NULL. */
static const struct place *next_place(const char *frame, const char **at)
{
    const struct place *next = NULL;
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        const char *found = strstr(frame, places[i].mark);
        if (found != NULL && (next == NULL || found < *at)) {
            next = &places[i];
            *at = found;
        }
    }
    return next;
}

/* Marks are looked for in the frame alone: what is put in may contain the same. */
static int fill_frame(struct text *page, const char *frame, const char *folder, const json_t *model,
    struct tune_error *err)
{
    const char *at = NULL;
    const struct place *place;
    while ((place = next_place(frame, &at)) != NULL) {
        append(page, frame, (size_t)(at - frame));
        if (place->part == NULL)
            append_model(page, model);
        else if (read_part(folder, place->part, page, err))
            return -1;
        frame = at + strlen(place->mark);
    }
    append(page, frame, strlen(frame));
    return 0;
}

char *report_page_text(
    const json_t *model, const char *folder, size_t *length, struct tune_error *err)
{
    struct text frame = {0}, page = {0};
    int status = read_part(folder, "page.html", &frame, err);
    if (status == 0)
        status = check_frame(folder, frame.bytes, err);
    if (status == 0)
        status = fill_frame(&page, frame.bytes, folder, model, err);
    free(frame.bytes);
    if (status != 0) {
        free(page.bytes);
        return NULL;
    }
    *length = page.length;
    return page.bytes;
}

/* The first folder that is there; else the last that was looked for, for the error to name. */
static void find_folder(char folder[PATH_MAX])
{
    struct stat status;
    for (size_t i = 0; folders_installed(i, "report", folder); i++)
        if (stat(folder, &status) == 0 && S_ISDIR(status.st_mode))
            return;
}

int report_page(const json_t *model, const char *path, struct tune_error *err)
{
    char folder[PATH_MAX] = "";
    size_t length;
    find_folder(folder);
    char *page = report_page_text(model, folder, &length, err);
    struct record_writer *writer = page != NULL ? record_writer_open(path, err) : NULL;
    int status = writer != NULL ? record_writer_add(writer, page, length, err) : -1;
    if (status == 0)
        status = record_writer_finish(writer, err);
    else
        record_writer_abandon(writer);
    free(page);
    return status;
}
