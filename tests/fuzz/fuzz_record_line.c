/* Lines of records. Each input is taken as it is, and again with the checksum made right, so that
 * what lies behind it is reached. What is accepted must come back from its own line, from the
 * database's form, and from a merge; what is refused has a sentence. */
#include "target.h"
#include "tuning_db/record_line.h"
#include "tuning_db/record_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void check_header(const char *line, size_t length)
{
    struct tune_error err = {0};
    char *unknown;
    bool is_header = record_line_is_header(line, length);
    int status = record_header_check(line, length, &unknown, &err);
    check(status == 0 ? is_header : unknown == NULL && err.code != TUNE_OK && err.text[0] != '\0');
    free(unknown);
}

/* The same line after being stored and read. */
static void check_stored(const struct sample *sample, const char *line)
{
    struct sample stored;
    size_t bytes, length;
    void *value = sample_encode(sample, &bytes);
    check(sample_decode(value, bytes, &stored, NULL) == 0);
    char *again = record_line_format(&stored, &length, NULL);
    check(again != NULL && strcmp(line, again) == 0);
    check(sample_precedence(sample, &stored) == 0);
    sample_finish(&stored);
    free(again);
    free(value);
}

static void check_merged(const char *line, size_t length)
{
    struct record_set_counts counts;
    struct record_set *set = record_set_create();
    check(record_set_add(set, line, length, NULL) == 0);
    check(record_set_add(set, line, length, NULL) == 0);
    const char *const *lines = record_set_join(set, &counts);
    check(counts.standing == 1 && counts.equal == 1 && strcmp(lines[0], line) == 0);
    record_set_destroy(set);
}

static void check_line(const char *line, size_t length)
{
    struct tune_error err = {0};
    struct sample sample, again;
    if (record_line_parse(line, length, &sample, &err)) {
        check(err.code != TUNE_OK && err.text[0] != '\0' && sample.storage == NULL);
        return;
    }
    size_t canonical_length;
    char *canonical = record_line_format(&sample, &canonical_length, &err);
    /* Escapes and numbers may be longer in the canonical form than they were. */
    check(canonical != NULL || err.code == TUNE_ELIMIT);
    if (canonical != NULL) {
        check(memchr(canonical, '\n', canonical_length) == NULL);
        check(record_line_parse(canonical, canonical_length, &again, &err) == 0);
        check(sample_precedence(&sample, &again) == 0);
        check(record_line_hash(&sample) == XXH3_64bits(canonical, canonical_length));
        check_stored(&again, canonical);
        check_merged(canonical, canonical_length);
        sample_finish(&again);
    }
    free(canonical);
    sample_finish(&sample);
}

/* Where the last ,"sum" begins, or the end. */
static size_t body_length(const char *line, size_t length)
{
    const char *at = line, *found = line + length;
    while ((at = memmem(at, length - (size_t)(at - line), ",\"sum\"", 6)) != NULL)
        found = at++;
    return (size_t)(found - line);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const char *line = (const char *)bytes;
    check_header(line, count);
    check_line(line, count);
    size_t length = body_length(line, count);
    char *sealed = malloc(length + 40);
    memcpy(sealed, line, length);
    int sum = snprintf(
        sealed + length, 40, ",\"sum\":\"%016" PRIx64 "\"}", (uint64_t)XXH3_64bits(line, length));
    check_line(sealed, length + (size_t)sum);
    free(sealed);
    return 0;
}
