/* Records as text: one JSON object a line, the form in which records leave a machine (files, the
 * fleet's engine). Pure.
 *
 * A file is a header line, then record lines sorted by their bytes (as `LC_ALL=C sort` does):
 *
 *     {"format":"tunerd-records","version":[1,0]}
 *     {"kernel":"gemm","dtype":"f32","arch":"sm_90","shape":{"M":64,...},...,"sum":"0123456789abcdef"}
 *
 * The text of a record is canonical: equal content has equal bytes. Fields stand in the order of
 * the table in record_line.c, numbers in the shortest form that reads back to the same value, a
 * field whose value is empty, zero or false is left out unless the table says otherwise, then the
 * fields that this version does not know, sorted by name, as they came. `sum` ends the line:
 * XXH3-64 (16 hex digits) of the bytes before `,"sum"`.
 *
 * Version: a reader takes any minor version of its major one and keeps the fields it does not know;
 * another major version is refused as a whole. Raise the minor one for a new field, the major one
 * when a known field changes its meaning. */
#ifndef TUNE_RECORD_LINE_H
#define TUNE_RECORD_LINE_H

#include "record.h"

#define RECORD_LINE_MAJOR 1
#define RECORD_LINE_MINOR 0
#define RECORD_LINE_LIMIT_BYTES ((size_t)64 << 10)       /* of one line; a longer one is refused */
#define RECORD_LINE_EXTRA_LIMIT_BYTES ((size_t)16 << 10) /* of the unknown fields together */

/* New: the header line of this version, without a line end. NULL only without memory. */
char *record_header_format(void);
/* Whether a line is a header (has a member "format"), so that a reader knows what it holds. */
bool record_line_is_header(const char *line, size_t length);
/* 0, or -1: TUNE_EVERSION with the found and the wanted version (another major one, or none),
 * TUNE_EPARSE, TUNE_EINVAL for another format. *unknown: new, names of unknown header fields,
 * separated by ", ", or NULL when there are none. */
int record_header_check(const char *line, size_t length, char **unknown, struct tune_error *err);

/* New: the canonical line without a line end; *length excludes the NUL. NULL: TUNE_ENOMEM,
 * TUNE_ELIMIT, or TUNE_EINVAL when record_line_parse would not take the line, with the field. Texts
 * for people (gpu, detail, host, nvrtc, method_note) are mended instead: cut at their limit, and a
 * byte that is no UTF-8 becomes '?'. */
char *record_line_format(const struct sample *sample, size_t *length, struct tune_error *err);

/* The reverse; sample_finish releases what it took. 0, or -1 with a sentence that names the field:
 * TUNE_EPARSE (no strict JSON object; the position), TUNE_EDAMAGED (the sum does not fit or is
 * absent), TUNE_EINVAL (a field is absent, of another type, or out of its range), TUNE_ELIMIT. Any
 * strict JSON is taken (order of members, blanks, forms of numbers, fields with a value that is
 * left out), as long as the sum at its end is that of its bytes: others may write such lines; what
 * is formatted again is canonical, and may not be longer than a line may be. Each value is taken
 * exactly or refused (samples_ns: rounded to floats). What is checked here needs no manifest: texts
 * are of the form and length that the database takes, times finite and lo <= median <= hi, an ok
 * row has a time, a configuration is not empty. */
int record_line_parse(
    const char *line, size_t length, struct sample *sample, struct tune_error *err);

/* XXH3-64 of the canonical line: equal content, equal hash. 0 for a row that has no line. */
uint64_t record_line_hash(const struct sample *sample);

/* Of two rows of one identity (key, configuration, GPU, run) the one that stands, wherever and in
 * whatever order they meet: refused before not refused, then final before not final, then more
 * attempts, then the line that sorts last. Negative: a stands; positive: b; 0: they are equal. A
 * total order, so that merging is commutative, associative and idempotent. */
int sample_precedence(const struct sample *a, const struct sample *b);

#endif
