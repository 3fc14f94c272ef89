/* Records made by hand for tests of what comes from elsewhere, imports by the protocol, and tunectl
 * as a program. */
#ifndef E2E_EXCHANGE_SUPPORT_H
#define E2E_EXCHANGE_SUPPORT_H

#include "harness.h"

#include "tuning_db/record_line.h"

/* --- lines ------------------------------------------------------------------------------------ */

struct text {
    char *bytes; /* NUL-terminated */
    size_t length, room;
};

void text_add(struct text *text, const char *bytes, size_t length);
/* With a line end. */
void text_line(struct text *text, const char *line);
void text_finish(struct text *text);

/* What a record of the kernel tiny is unless said otherwise: TAG=1, N=64, on one H200, ok in 10 us,
 * final, of this machine's text of the kernel. */
struct spec {
    const char *kernel, *fingerprint, *config, *arch, *gpu, *uuid, *run, *host, *mode;
    int n;
    double median_ns;
    enum outcome outcome;
    uint32_t attempts;
    bool is_confirmed, is_default, is_first; /* is_first: not final */
    const char *extra;
};

/* The fingerprint of a kernel as this daemon has it; valid for the test. */
const char *fingerprint_of(struct harness *harness, const char *kernel);
/* Of the kernel tiny: what records have that give none. */
void use_fingerprint_of(struct harness *harness);

struct sample sample_of(const struct spec *spec); /* borrowed texts, valid until the next call */
void add_record(struct text *text, const struct spec *spec);
void add_header(struct text *text);
/* The lines of a text but for the first, which is the header. */
size_t count_records(const char *text);

/* --- imports ---------------------------------------------------------------------------------- */

/* The report, new. options: taken, as "begin" has them; NULL: none. */
json_t *import_text(struct harness *harness, json_t *options, const char *text);
/* The same where it fails as a whole: the sentence, valid until the next call. TUNE_OK: with
 * whatever code. */
const char *import_fails(struct harness *harness, const char *text, enum tune_code code);
/* A number of a report, which must be there. */
size_t count_in(const json_t *report, const char *name);
/* Whether line `line` was refused with a reason that has this text. */
bool is_refused(const json_t *report, int line, const char *text);

/* All lines as the method gives them, sorted, with a header; new. arch NULL: all but cpu. */
char *export_text(struct harness *harness, const char *arch);

/* --- tunectl ---------------------------------------------------------------------------------- */

/* Its exit status; *output: what it printed on both streams, valid until the next call. */
int run_tunectl(const struct harness *harness, const char **output, const char *const *args);
#define TUNECTL(harness, output, ...)                                                              \
    run_tunectl(harness, output, (const char *const[]){__VA_ARGS__, NULL})

/* A path in the harness's folder; the last four stay valid. */
const char *file_in(const struct harness *harness, const char *name);
/* New. */
char *read_file(const char *path);
void write_file(const char *path, const char *text, size_t length);
/* Resident memory of the daemon. */
long resident_kib(const struct harness *harness);

#endif
