/* See matrix_market.h. */
#include "plugins/matrix_market.h"

#include "sparse_internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A short file must not take gigabytes: a side is at most this long, or this many times the number
 * of entries, whichever is more. */
#define SIDE_ALWAYS (INT64_C(1) << 20)
#define SIDE_PER_ENTRY 64

struct entry {
    int32_t row, column;
};

struct reading {
    FILE *stream;
    const char *name;
    int64_t line_number;
    char line[MATRIX_MARKET_LINE_BYTES + 2]; /* without its end */
    bool is_pattern, is_symmetric;
    int64_t rows, columns, entry_count;
    size_t room;
    struct entry *entries;
    struct tune_error *err;
};

static int fail(struct reading *reading, const char *what)
{
    return tune_fail(reading->err, TUNE_EINVAL, "%.120s, line %" PRId64 ": %s", reading->name,
        reading->line_number, what);
}

/* --- lines ------------------------------------------------------------------------------------ */

/* 1, 0 at the end, -1. */
static int next_line(struct reading *reading)
{
    reading->line_number++;
    if (fgets(reading->line, sizeof reading->line, reading->stream) == NULL)
        return ferror(reading->stream)
                   ? tune_fail_errno(reading->err, TUNE_EIO, "cannot read %.120s", reading->name)
                   : 0;
    size_t length = strlen(reading->line);
    bool has_end = length > 0 && reading->line[length - 1] == '\n';
    if (!has_end && !feof(reading->stream))
        return fail(
            reading, length == sizeof reading->line - 1 ? "it is too long" : "it has a zero byte");
    while (length > 0 && isspace((unsigned char)reading->line[length - 1]))
        reading->line[--length] = '\0';
    return 1;
}

/* The next line that says something; 0 at the end. */
static int next_content(struct reading *reading)
{
    int got = next_line(reading);
    while (got == 1 && (reading->line[0] == '%' || reading->line[0] == '\0'))
        got = next_line(reading);
    return got;
}

/* An integer of 1 to 10 digits, and what parts it from the next; -1 when there is none. */
static int64_t next_integer(const char **at)
{
    int64_t value = 0;
    int digits = 0;
    while (**at == ' ' || **at == '\t')
        (*at)++;
    for (; **at >= '0' && **at <= '9' && digits < 11; digits++)
        value = 10 * value + (*(*at)++ - '0');
    return digits > 0 && digits < 11 && (**at == '\0' || **at == ' ' || **at == '\t') ? value : -1;
}

static bool is_end(const char *at)
{
    return at[strspn(at, " \t")] == '\0';
}

/* --- header ----------------------------------------------------------------------------------- */

static int read_banner(struct reading *reading)
{
    char object[16], format[16], field[16], symmetry[16], rest[2];
    int got = next_line(reading);
    if (got < 0)
        return -1;
    if (got == 0 || strncasecmp(reading->line, "%%MatrixMarket", 14) != 0 ||
        sscanf(reading->line + 14, " %15s %15s %15s %15s %1s", object, format, field, symmetry,
            rest) != 4)
        return fail(reading, "it must be %%MatrixMarket, an object, format, field and symmetry");
    if (strcasecmp(object, "matrix") != 0 || strcasecmp(format, "coordinate") != 0)
        return fail(reading, "only coordinate matrices can be read");
    reading->is_pattern = strcasecmp(field, "pattern") == 0;
    if (!reading->is_pattern && strcasecmp(field, "real") != 0 && strcasecmp(field, "integer") != 0)
        return fail(reading, "the field must be real, integer or pattern");
    reading->is_symmetric = strcasecmp(symmetry, "symmetric") == 0;
    if (!reading->is_symmetric && strcasecmp(symmetry, "general") != 0)
        return fail(reading, "the symmetry must be general or symmetric");
    return 0;
}

static int read_sizes(struct reading *reading)
{
    int got = next_content(reading);
    const char *at = reading->line;
    if (got < 0)
        return -1;
    if (got == 0)
        return fail(reading, "the file ends before the sizes");
    reading->rows = next_integer(&at);
    reading->columns = reading->rows < 0 ? -1 : next_integer(&at);
    reading->entry_count = reading->columns < 0 ? -1 : next_integer(&at);
    if (reading->entry_count < 0 || !is_end(at))
        return fail(reading, "it must be rows, columns and entries");
    if (reading->rows < 1 || reading->rows > SPARSE_MAX_ROWS || reading->columns < 1 ||
        reading->columns > SPARSE_MAX_ROWS || reading->entry_count > SPARSE_MAX_NONZEROS)
        return fail(reading, "a matrix has 1 to 2^31 - 1 rows and columns, below 2^32 entries");
    if (reading->entry_count == 0)
        return fail(reading, "the matrix has no entries");
    int64_t longer = reading->rows > reading->columns ? reading->rows : reading->columns;
    if (longer > SIDE_ALWAYS && longer / SIDE_PER_ENTRY > reading->entry_count)
        return fail(reading, "the matrix is far too large for so few entries");
    if (reading->is_symmetric && reading->rows != reading->columns)
        return fail(reading, "a symmetric matrix has as many columns as rows");
    return 0;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int read_entry(struct reading *reading, struct entry *entry)
{
    const char *at = reading->line;
    char *end;
    int64_t row = next_integer(&at), column = row < 0 ? -1 : next_integer(&at);
    if (column < 0)
        return fail(reading, "it must be a row and a column");
    if (row < 1 || row > reading->rows || column < 1 || column > reading->columns)
        return fail(reading, "the row or the column is outside the matrix");
    if (reading->is_symmetric && column > row)
        return fail(reading, "a symmetric matrix has entries on and below its diagonal only");
    if (!reading->is_pattern) {
        (void)strtod(at, &end);
        if (end == at)
            return fail(reading, "it has no value");
        at = end;
    }
    if (!is_end(at))
        return fail(reading, "there is more on it than an entry");
    *entry = (struct entry){(int32_t)(row - 1), (int32_t)(column - 1)};
    return 0;
}

/* Room grows with what is there: a header of a few bytes must not make gigabytes. */
static int make_room(struct reading *reading, size_t used)
{
    if (used < reading->room)
        return 0;
    size_t room = reading->room ? 2 * reading->room : 4096;
    room = room < (size_t)reading->entry_count ? room : (size_t)reading->entry_count;
    struct entry *entries = realloc(reading->entries, room * sizeof *entries);
    if (entries == NULL)
        return tune_fail(
            reading->err, TUNE_ENOMEM, "%.120s: no memory for %zu entries", reading->name, room);
    reading->entries = entries;
    reading->room = room;
    return 0;
}

static int read_entries(struct reading *reading)
{
    for (int64_t i = 0; i < reading->entry_count; i++) {
        int got = next_content(reading);
        if (got < 0 || make_room(reading, (size_t)i) ||
            (got == 1 && read_entry(reading, &reading->entries[i])))
            return -1;
        if (got == 0)
            return fail(reading, "the file ends before its last entry");
    }
    int got = next_content(reading);
    return got == 1 ? fail(reading, "there are more entries than the file says") : got;
}

/* --- the matrix ------------------------------------------------------------------------------- */

static bool is_doubled(const struct reading *reading, const struct entry *entry)
{
    return reading->is_symmetric && entry->row != entry->column;
}

/* From entries in any order to rows. */
static int place_entries(const struct reading *reading, struct sparse_matrix *matrix)
{
    for (int64_t i = 0; i < reading->entry_count; i++) {
        const struct entry *entry = &reading->entries[i];
        matrix->offsets[entry->row + 1]++;
        if (is_doubled(reading, entry))
            matrix->offsets[entry->column + 1]++;
    }
    if (sparse_sum_lengths(matrix, reading->err))
        return -1;
    for (int64_t i = 0; i < reading->entry_count; i++) {
        const struct entry *entry = &reading->entries[i];
        matrix->columns_of[matrix->offsets[entry->row]++] = entry->column;
        if (is_doubled(reading, entry))
            matrix->columns_of[matrix->offsets[entry->column]++] = entry->row;
    }
    sparse_end_placing(matrix);
    return sparse_sort_rows(matrix, reading->err);
}

int matrix_market_read_stream(
    FILE *stream, const char *name, struct sparse_matrix *matrix, struct tune_error *err)
{
    struct reading reading = {.stream = stream, .name = name, .err = err};
    *matrix = (struct sparse_matrix){.rows = 0};
    int result = read_banner(&reading);
    if (result == 0)
        result = read_sizes(&reading);
    if (result == 0)
        result = read_entries(&reading);
    if (result == 0)
        result = sparse_begin(matrix, reading.rows, reading.columns, err);
    if (result == 0)
        result = place_entries(&reading, matrix);
    free(reading.entries);
    if (result != 0)
        sparse_finish(matrix);
    return result;
}

int matrix_market_read(const char *path, struct sparse_matrix *matrix, struct tune_error *err)
{
    *matrix = (struct sparse_matrix){.rows = 0};
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return tune_fail_errno(err, TUNE_EIO, "cannot open %.120s", path);
    int result = matrix_market_read_stream(stream, path, matrix, err);
    fclose(stream);
    return result;
}
