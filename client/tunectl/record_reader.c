/* Reading a file of records. See record_file.h. */
#include "record_file.h"

#include "tuning_db/record_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define PIECE_BYTES ((size_t)64 << 10) /* of the file, and of its text, at a time */

struct record_reader {
    int fd;
    ZSTD_DStream *zstd; /* NULL: plain */
    bool is_started, is_at_end;
    bool is_in_frame; /* compressed data go on */
    ZSTD_inBuffer packed;
    size_t text_at, text_end, total_bytes;
    uint64_t number;
    size_t line_bytes;
    bool is_too_long; /* the line that is being read */
    char packed_bytes[PIECE_BYTES], text[PIECE_BYTES];
    char line[RECORD_LINE_LIMIT_BYTES + 2]; /* a CR and a NUL more */
};

struct record_reader *record_reader_open(const char *path, struct tune_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct record_reader *reader = malloc(sizeof *reader);
    if (reader == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory to read %s", path);
        return NULL;
    }
    memset(reader, 0, offsetof(struct record_reader, packed_bytes));
    reader->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (reader->fd >= 0)
        return reader;
    tune_fail_errno(err, TUNE_EIO, "cannot open %s", path);
    record_reader_close(reader);
    return NULL;
}

void record_reader_close(struct record_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd > STDIN_FILENO)
        close(reader->fd);
    ZSTD_freeDStream(reader->zstd);
    free(reader);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Up to `room` bytes; 0 at the end of the file. */
static ssize_t read_bytes(
    struct record_reader *reader, char *bytes, size_t room, struct tune_error *err)
{
    ssize_t count;
    do
        count = read(reader->fd, bytes, room);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        tune_fail_errno(err, TUNE_EIO, "cannot read the file");
    return count;
}

/* The file's first bytes, among them zstd's mark if it is compressed. */
static int start(struct record_reader *reader, struct tune_error *err)
{
    size_t used = 0;
    ssize_t count = 1;
    while (used < 4 && count > 0) {
        count = read_bytes(reader, reader->packed_bytes + used, PIECE_BYTES - used, err);
        used += count > 0 ? (size_t)count : 0;
    }
    if (count < 0)
        return -1;
    reader->packed = (ZSTD_inBuffer){reader->packed_bytes, used, 0};
    reader->is_started = true;
    if (used < 4 || memcmp(reader->packed_bytes, "\x28\xB5\x2F\xFD", 4) != 0)
        return 0;
    reader->zstd = ZSTD_createDStream();
    if (reader->zstd == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to decompress the file");
    return 0;
}

static int fill_packed(struct record_reader *reader, struct tune_error *err)
{
    if (reader->packed.pos < reader->packed.size)
        return 0;
    ssize_t count = read_bytes(reader, reader->packed_bytes, PIECE_BYTES, err);
    if (count < 0)
        return -1;
    reader->packed = (ZSTD_inBuffer){reader->packed_bytes, (size_t)count, 0};
    reader->is_at_end = count == 0;
    return 0;
}

static int decompress(struct record_reader *reader, struct tune_error *err)
{
    ZSTD_outBuffer text = {reader->text, PIECE_BYTES, 0};
    while (text.pos == 0 && !reader->is_at_end) {
        size_t before = reader->packed.pos;
        size_t status = ZSTD_decompressStream(reader->zstd, &text, &reader->packed);
        if (ZSTD_isError(status))
            return tune_fail(err, TUNE_EDAMAGED, "the file is not sound compressed data: %s",
                ZSTD_getErrorName(status));
        if (text.pos > 0 || reader->packed.pos != before)
            reader->is_in_frame = status != 0;
        else if (fill_packed(reader, err))
            return -1;
    }
    if (text.pos == 0 && reader->is_in_frame)
        return tune_fail(err, TUNE_EDAMAGED, "the file is cut off: its compressed data do not end");
    reader->text_end = text.pos;
    return 0;
}

static int copy_plain(struct record_reader *reader, struct tune_error *err)
{
    if (fill_packed(reader, err))
        return -1;
    reader->text_end = reader->packed.size - reader->packed.pos;
    memcpy(reader->text, reader->packed_bytes + reader->packed.pos, reader->text_end);
    reader->packed.pos = reader->packed.size;
    return 0;
}

/* The next piece of text; text_end is 0 at the end. */
static int fill_text(struct record_reader *reader, struct tune_error *err)
{
    reader->text_at = reader->text_end = 0;
    if (!reader->is_started && start(reader, err))
        return -1;
    if (reader->zstd != NULL ? decompress(reader, err) : copy_plain(reader, err))
        return -1;
    reader->total_bytes += reader->text_end;
    if (reader->total_bytes > RECORD_FILE_LIMIT_BYTES)
        return tune_fail(err, TUNE_ELIMIT,
            "the file has more than %zu MiB of text; split it: at most so much is read from one",
            RECORD_FILE_LIMIT_BYTES >> 20);
    return 0;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void add_bytes(struct record_reader *reader, const char *bytes, size_t count)
{
    if (count > RECORD_LINE_LIMIT_BYTES + 1 - reader->line_bytes) {
        reader->is_too_long = true;
        return;
    }
    memcpy(reader->line + reader->line_bytes, bytes, count);
    reader->line_bytes += count;
}

/* Collects a line. 1, or 0 when nothing is left. */
static int take_line(struct record_reader *reader, struct tune_error *err)
{
    reader->line_bytes = 0;
    reader->is_too_long = false;
    for (bool is_any = false;; is_any = true) {
        if (reader->text_at == reader->text_end && fill_text(reader, err))
            return -1;
        size_t left = reader->text_end - reader->text_at;
        if (left == 0) {
            reader->number += is_any;
            return is_any;
        }
        const char *text = reader->text + reader->text_at, *end = memchr(text, '\n', left);
        size_t count = end != NULL ? (size_t)(end - text) : left;
        add_bytes(reader, text, count);
        reader->text_at += count + (end != NULL);
        if (end != NULL) {
            reader->number++;
            return 1;
        }
    }
}

static bool is_conflict_mark(const char *line)
{
    static const char *const marks[] = {"<<<<<<<", "|||||||", "=======", ">>>>>>>"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strncmp(line, marks[i], 7) == 0 && (line[7] == '\0' || line[7] == ' '))
            return true;
    }
    return false;
}

int record_reader_next(
    struct record_reader *reader, struct exchange_line *line, struct tune_error *err)
{
    int status;
    do {
        status = take_line(reader, err);
        if (status <= 0)
            return status;
        if (reader->line_bytes > 0 && reader->line[reader->line_bytes - 1] == '\r')
            reader->line_bytes--;
    } while (reader->line_bytes == 0 && !reader->is_too_long);
    reader->is_too_long |= reader->line_bytes > RECORD_LINE_LIMIT_BYTES;
    if (reader->is_too_long)
        reader->line_bytes = 0;
    reader->line[reader->line_bytes] = '\0';
    *line = (struct exchange_line){reader->line, reader->line_bytes, reader->number, NULL};
    if (reader->is_too_long)
        line->refusal = "the line is longer than 65536 bytes";
    else if (is_conflict_mark(reader->line))
        line->refusal =
            "a mark of a merge conflict of git; take the mark out and leave the records "
            "of both sides: of two that are of one measurement the right one is taken";
    return 1;
}
