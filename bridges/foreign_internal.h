/* Between the readers of foreign files. */
#ifndef TUNE_BRIDGES_FOREIGN_INTERNAL_H
#define TUNE_BRIDGES_FOREIGN_INTERNAL_H

#include "foreign.h"
#include "told.h"

struct foreign_reader {
    struct foreign_file *file;
    const char *text;
    size_t length;
    const char *kernel;
    struct tune_error *err;
};

const char *foreign_method(enum foreign_format format); /* "kernel_tuner", ... */

int foreign_read_cache(struct foreign_reader *reader);   /* foreign_cache.c */
int foreign_read_t4(struct foreign_reader *reader);      /* foreign_t4.c */
int foreign_read_wisdom(struct foreign_reader *reader);  /* foreign_wisdom.c */
int foreign_read_clblast(struct foreign_reader *reader); /* foreign_clblast.c */

/* A row with everything "not told"; NULL (and the error set) without memory. Borrowed until the
 * next one. */
struct foreign_row *foreign_row(struct foreign_reader *reader, uint64_t number);
void foreign_refuse(struct foreign_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void foreign_warn(struct foreign_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "2023-12-22 09:54:05.502007+00:00" or with a T; 0 when it is no such moment. */
int64_t foreign_moment(const char *text);
/* A problem size: an integer, or a list of up to three. */
void foreign_problem(struct foreign_row *row, const json_t *size);
/* The word of an error of Kernel Tuner and what it means; false for any other text. */
bool foreign_error(const char *word, enum outcome *outcome);

/* JSON as Python writes it (NaN and Infinity become null). New reference. */
json_t *foreign_parse(const char *text, size_t length, struct tune_error *err);
/* The same of a cache file that may be open or cut off: what follows the last whole record of
 * "cache" is dropped and the brackets are closed. *dropped: bytes of a record that was cut. */
json_t *foreign_parse_cut(const char *text, size_t length, size_t *dropped, struct tune_error *err);

/* What the source gets for a value, as other tuners write it: an integer, or the number, bool or
 * text that it stands for. New reference. */
json_t *foreign_value(const struct manifest_param *param, int64_t value);

#endif
