/* Record lines to and from the daemon, whatever file they come from or go to. */
#ifndef TUNECTL_EXCHANGE_H
#define TUNECTL_EXCHANGE_H

#include "client/tune_rpc.h"

#include <stdbool.h>
#include <stdint.h>

/* Where lines come from. `next` hands out the next one, borrowed until it is called again: 1, 0 at
 * the end, -1 with *err when the file cannot be read on. A line that is no record for a reason of
 * its own (a conflict mark of git) comes with that reason, and counts as refused. */
struct exchange_line {
    const char *text; /* without its end */
    size_t length;
    uint64_t number;     /* from 1, rising */
    const char *refusal; /* NULL: none */
};
struct exchange_source {
    int (*next)(void *context, struct exchange_line *line, struct tune_error *err);
    void *context;
};

struct exchange_options {
    bool is_strict, is_dry_run;
    bool shows_progress; /* on standard error, if that is a terminal */
};

/* Imports all lines of a source as one file, all or nothing. A header line must be among them
 * (record_header_format makes one). *report: new, the daemon's answer to the end of an import
 * (tunerd(8)). With an error nothing of it is stored. */
int exchange_send(struct tune_client *client, const char *name,
    const struct exchange_source *source, const struct exchange_options *options, json_t **report,
    struct tune_error *err);

/* Lines of all records that the daemon has, but for those of the emulated device unless `arch` is
 * "cpu". Sorted as a file of records is; without the header. */
struct exchange_lines {
    char **lines; /* count of them, NUL-terminated */
    size_t count, room, bytes;
    size_t measured; /* of the records, those with a time: the others failed */
};
#define EXCHANGE_LIMIT_BYTES ((size_t)1 << 30) /* of text */

struct exchange_filter {
    const char *kernel, *arch; /* NULL: any */
    bool is_best;              /* only what makes the best rows */
    bool is_anonymous;         /* without host names */
};
int exchange_fetch(struct tune_client *client, const struct exchange_filter *filter,
    bool shows_progress, struct exchange_lines *lines, struct tune_error *err);
void exchange_lines_finish(struct exchange_lines *lines); /* also after a failure */

#endif
