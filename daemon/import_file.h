/* One file of records on its way into the database: lines are parsed and judged one by one and
 * collected in one batch, which is stored as a whole at the end or not at all.
 *
 * A line that is wrong is refused, with its number and the reason, and does not disturb the others.
 * A file of another major version, without a header, or beyond a limit fails as a whole: from then
 * on every call fails with the same error.
 *
 * Of one thread at a time. */
#ifndef TUNE_IMPORT_FILE_H
#define TUNE_IMPORT_FILE_H

#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

#define IMPORT_ROWS_MAX 1000000    /* of one file */
#define IMPORT_REFUSALS_LISTED 100 /* the first ones; all are counted */
#define IMPORT_UNKNOWN_LISTED 100  /* names of fields that this version does not know */

struct import_file;

struct import_options {
    const char *name; /* copied: what the report calls the file */
    bool is_strict;   /* any refused line, and nothing is stored */
    bool is_dry_run;  /* nothing is stored */
};

/* New; on the loop thread (it takes references to the kernels). */
struct import_file *import_file_create(
    const struct registry *registry, const struct import_options *options);
void import_file_destroy(struct import_file *file);

/* Whole lines, each ended by '\n' but perhaps the last; empty ones count and are passed over. */
int import_file_lines(struct import_file *file, const char *text, size_t length, int64_t first_line,
    struct tune_error *err);
/* A line that somebody else has found to be wrong. */
void import_file_refuse(struct import_file *file, int64_t line, const char *reason);

/* Stores all that was collected, in one transaction, or finds out what that would do. May be called
 * on any thread: a commit takes the database's own lock. */
int import_file_end(struct import_file *file, struct tuning_db *db, struct tune_error *err);

/* After a successful end. New reference: {"name","dry_run","strict","stored","rows","keys","added",
 * "equal","replaced","kept","set_aside","refused","refusals":[{"line","reason"}],
 * "unknown_fields":[..]}. rows: all lines but headers and empty ones; kept: rows that gave way to
 * the stored one; set_aside: of the rows that were taken, those of a kernel, or a text of it, that
 * is not here; keys: distinct ones of those taken. */
json_t *import_file_report(const struct import_file *file);
bool import_file_is_stored(const struct import_file *file);

#endif
