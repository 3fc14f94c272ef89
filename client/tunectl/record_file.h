/* Files of records (tuning_db/record_line.h says what is in them): lines in, lines out, plain or
 * compressed by zstd. What a line says is the caller's business. */
#ifndef TUNECTL_RECORD_FILE_H
#define TUNECTL_RECORD_FILE_H

#include "exchange.h"

#include <stddef.h>

#define RECORD_FILE_LIMIT_BYTES ((size_t)1 << 30) /* of text, after decompressing */

/* --- reading ---------------------------------------------------------------------------------- */

struct record_reader;

/* "-" is standard input. New, or NULL. */
struct record_reader *record_reader_open(const char *path, struct tune_error *err);
/* The next line that is not empty, without its end (LF, or CR LF); borrowed until the next call. 1,
 * or 0 at the end, or -1: TUNE_EIO, TUNE_EDAMAGED (compressed data are cut off or broken),
 * TUNE_ELIMIT (the text is longer than the limit above), in sentences that do not name the file. A
 * line that is longer than RECORD_LINE_LIMIT_BYTES is empty, and one that git left as a mark of a
 * conflict is what it is, each with a refusal. Takes some 200 KiB, and for a compressed file the
 * window that it was made with, up to 128 MiB. */
int record_reader_next(
    struct record_reader *reader, struct exchange_line *line, struct tune_error *err);
void record_reader_close(struct record_reader *reader); /* NULL is fine */

/* --- writing ---------------------------------------------------------------------------------- */

struct record_writer;

/* "-" is standard output; a name that ends in ".zst" makes a compressed file. What is written goes
 * to a file beside PATH that takes its place (and its mode) when it is complete and on the disk, so
 * that PATH holds the old text or the new one whatever happens. A device or pipe is written
 * directly. New, or NULL. */
struct record_writer *record_writer_open(const char *path, struct tune_error *err);
/* One line, without its end. */
int record_writer_add(
    struct record_writer *writer, const char *line, size_t length, struct tune_error *err);
/* Completes the file. Destroys the writer in any case; after a failure nothing is left behind. */
int record_writer_finish(struct record_writer *writer, struct tune_error *err);
/* Destroys it; nothing is left behind. NULL is fine. */
void record_writer_abandon(struct record_writer *writer);

#endif
