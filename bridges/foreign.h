/* Results of other tuners: their files into rows, rows into record lines, and records into their
 * files. Pure: texts come from and go to the caller.
 *
 *     kernel-tuner   cache file of Kernel Tuner, closed, open, or cut off anywhere
 *     t4             T4 results
 *     wisdom         Kernel Launcher's wisdom (read only)
 *     clblast        CLBlast's database, or the output of one of its tuners (read only)
 *
 * Nothing of a file is executed. Fields that are not known are passed over. A row that makes no
 * sense is refused with its reason and the others are taken; a file that is not what it is said to
 * be is refused as a whole. */
#ifndef TUNE_BRIDGES_FOREIGN_H
#define TUNE_BRIDGES_FOREIGN_H

#include "plugins/manifest.h"
#include "tuning_db/record.h"

#define FOREIGN_LIMIT_BYTES ((size_t)256 << 20) /* of a file's text */
#define FOREIGN_DIMS 3
#define FOREIGN_SAMPLES_LIMIT 1024 /* times of one row that are kept; the median is of all */

enum foreign_format {
    FOREIGN_KERNEL_TUNER,
    FOREIGN_T4,
    FOREIGN_WISDOM,
    FOREIGN_CLBLAST,
    FOREIGN_FORMAT_COUNT
};

/* "kernel-tuner", ...; NULL past the end. */
const char *foreign_word(enum foreign_format format);
/* 0, or -1 with TUNE_EINVAL and the words that there are. */
int foreign_from_word(const char *word, enum foreign_format *format, struct tune_error *err);

/* One configuration as a file tells it. Texts are borrowed from the file, "" where it says nothing.
 */
struct foreign_row {
    uint64_t number; /* in the file, from 1: the line of a wisdom file, else the record */
    json_t *config;  /* name -> integer, real, bool or text; borrowed */
    enum outcome outcome;
    double time_ms;      /* mean or median; 0: not told */
    const json_t *times; /* list of numbers, or NULL */
    double unit_ms;      /* of its times */
    const char *detail, *device;
    char arch[16];
    int64_t problem[FOREIGN_DIMS]; /* its size, if the file tells */
    size_t problem_count;
    int precision; /* bits, 0: not told */
    int64_t time_unix_ms;
    char *refusal; /* why the row cannot be taken; NULL: it can */
};

struct foreign_file {
    enum foreign_format format;
    char run[64];    /* "import/FORMAT/HASH" of the content, wherever the file lies */
    json_t *content; /* what rows borrow from */
    struct foreign_row *rows;
    size_t count, room;
    json_t *warnings; /* sentences */
};

/* Reads a file. `kernel`: which of the kernels in a CLBlast database (kernel or family), NULL: the
 * only one. -1: TUNE_EPARSE, TUNE_EINVAL, TUNE_ELIMIT, TUNE_EVERSION. foreign_finish in any case.
 */
int foreign_read(struct foreign_file *file, enum foreign_format format, const char *text,
    size_t length, const char *kernel, struct tune_error *err);
void foreign_finish(struct foreign_file *file);

/* --- rows into record lines --------------------------------------------------------------------
 */

/* What the file does not say. */
struct foreign_target {
    const struct manifest *manifest;
    const char *fingerprint;
    const int64_t *dims;    /* NULL: from the file's problem sizes */
    const char *dtype;      /* of the manifest */
    const char *arch, *gpu; /* NULL: from the file */
    const char *mode;
};

struct foreign_line {
    char *text; /* a record line, or NULL */
    uint64_t number;
    char *refusal; /* why there is none */
};

struct foreign_lines {
    struct foreign_line *lines;
    size_t count, taken; /* taken: those that are records */
};

/* One line a configuration and device (of several the fastest), refused rows among them; warnings
 * are added to file->warnings. -1 when the file does not fit the kernel: a parameter that it lacks
 * or that is unknown, a problem size that is not its shape, no arch. foreign_lines_finish in any
 * case. */
int foreign_lines(struct foreign_file *file, const struct foreign_target *target,
    struct foreign_lines *out, struct tune_error *err);
void foreign_lines_finish(struct foreign_lines *lines);

/* --- records into files ------------------------------------------------------------------------
 */

struct foreign_output {
    const struct manifest *manifest;
    const char *fingerprint, *shape, *dtype, *arch, *gpu;
    const struct sample *samples; /* of this key and GPU, any order; several of a configuration */
    size_t count;
};

/* New (free): the text of a kernel-tuner or t4 file, one record a configuration in the order of
 * their texts; the same for the same samples in any order. *written: records in it. NULL with
 * TUNE_EINVAL for a format that is only read, and when there is nothing to write. */
char *foreign_write(enum foreign_format format, const struct foreign_output *output, size_t *length,
    size_t *written, struct tune_error *err);

#endif
