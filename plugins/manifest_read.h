/* Shared by the two halves of the manifest's reader; nobody else includes it.
 *
 * A reader carries the place that is being read ("params[2].values[0]"), so that every error names
 * file and place. Functions return 0 or -1; what they have put into the manifest until then is
 * released by manifest_destroy, so counts are raised before an element is filled. */
#ifndef TUNE_MANIFEST_READ_H
#define TUNE_MANIFEST_READ_H

#include "manifest.h"

/* What an expression reads. dtype_bytes is always allowed and has no bit. */
enum { READS_DEVICE = 1, READS_DIMS = 2, READS_PARAMS = 4, READS_ANY = 7 };
/* Allowed beside them where there is a turn; elsewhere the name is unknown. */
enum { READS_TURN = 8 };

struct reader {
    struct manifest *manifest;
    const char *file;
    char where[160];
    /* In slot order; a derived value not read yet is "", which no name in an expression equals. */
    const char *names[MANIFEST_MAX_SLOTS];
    unsigned derived_reads[MANIFEST_MAX_DERIVED];
    struct tune_error *err;
};

/* Sets the place; the format is printf's. */
void reader_at(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int reader_fail(struct reader *reader, enum tune_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Passes on a callee's error with file and place in front. */
int reader_wrap(struct reader *reader, const struct tune_error *cause);
int reader_no_memory(struct reader *reader);

int reader_known(struct reader *reader, const json_t *object, const char *const *known);
/* A text of 1..limit bytes; *out is NULL when it is absent and may be. */
int reader_text(struct reader *reader, const json_t *object, const char *key, size_t limit,
    bool is_optional, char **out);
/* An array of min..max elements, borrowed; with min 0 it may be absent (*out NULL, *count 0). */
int reader_array(struct reader *reader, const json_t *object, const char *key, size_t min,
    size_t max, json_t **out, size_t *count);
/* Zeroed room for `count` elements; NULL (and the error set) without memory. */
void *reader_calloc(struct reader *reader, size_t count, size_t size);
/* The expression under `key` ("count") or NULL in *out when absent and optional. */
int reader_expr(struct reader *reader, const json_t *object, const char *key, unsigned allowed,
    bool is_optional, struct expr **out);
/* The same from a value itself. */
int reader_expr_value(struct reader *reader, const json_t *value, const char *key, unsigned allowed,
    struct expr **out);
unsigned reader_reads(const struct reader *reader, const struct expr *expr);

bool reader_is_identifier(const char *text);

/* manifest_read_geometry.c */
int reader_geometry(struct reader *reader, const json_t *root);

#endif
