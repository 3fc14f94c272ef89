/* Matrices that an input's text names. See sparse.h. To add a kind: its row in the table, and its
 * maker. */
#include "sparse_internal.h"

#include "plugins/matrix_market.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 6

/* The parameters of a kind, in the order of its keys; one that is not given is 0. */
struct request {
    double values[KEYS_MAX];
    bool is_given[KEYS_MAX];
    uint64_t seed;
};

/* --- makers ----------------------------------------------------------------------------------- */

/* Rows whose lengths are known: offsets[i + 1]; each has its columns anywhere in a window. */
static int make_windows(
    struct sparse_matrix *matrix, int64_t window, uint64_t seed, struct tune_error *err)
{
    struct sparse_random random = {.state = sparse_mix(seed)};
    if (sparse_sum_lengths(matrix, err))
        return -1;
    int32_t *room = sparse_row_room(matrix, err);
    if (room == NULL)
        return -1;
    for (int64_t row = 0; row < matrix->rows; row++)
        sparse_sample(&random, sparse_window_start(matrix, row, window), window,
            matrix->offsets[row + 1] - matrix->offsets[row],
            matrix->columns_of + matrix->offsets[row], room);
    free(room);
    return 0;
}

static int set_lengths(struct sparse_matrix *matrix, int64_t rows, int64_t columns, int64_t per_row,
    struct tune_error *err)
{
    if (rows * per_row > SPARSE_MAX_NONZEROS) /* each below 2^31 */
        return tune_fail(
            err, TUNE_ELIMIT, "a matrix has at most %" PRId64 " entries", SPARSE_MAX_NONZEROS);
    if (sparse_begin(matrix, rows, columns, err))
        return -1;
    for (int64_t row = 0; row < rows; row++)
        matrix->offsets[row + 1] = per_row;
    return 0;
}

static int make_random(
    const struct request *request, struct sparse_matrix *matrix, struct tune_error *err)
{
    int64_t rows = (int64_t)request->values[0], per_row = (int64_t)request->values[1];
    int64_t columns = request->is_given[2] ? (int64_t)request->values[2] : rows;
    if (per_row > columns)
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " entries per row do not fit into %" PRId64 " columns", per_row, columns);
    return set_lengths(matrix, rows, columns, per_row, err) ||
                   make_windows(matrix, columns, request->seed, err)
               ? -1
               : 0;
}

static int make_banded(
    const struct request *request, struct sparse_matrix *matrix, struct tune_error *err)
{
    int64_t rows = (int64_t)request->values[0], per_row = (int64_t)request->values[1];
    int64_t width = (int64_t)request->values[2];
    if (width > rows)
        return tune_fail(err, TUNE_EINVAL,
            "a band of %" PRId64 " columns is wider than the %" PRId64 " there are", width, rows);
    if (per_row > width)
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " entries per row do not fit into a band of %" PRId64 " columns", per_row,
            width);
    return set_lengths(matrix, rows, rows, per_row, err) ||
                   make_windows(matrix, width, request->seed, err)
               ? -1
               : 0;
}

static int make_power_law(
    const struct request *request, struct sparse_matrix *matrix, struct tune_error *err)
{
    struct sparse_random random = {.state = sparse_mix(~request->seed)};
    int64_t rows = (int64_t)request->values[0];
    double exponent = request->is_given[2] ? request->values[2] : 2.1;
    double total = request->values[1] * (double)rows;
    if (request->values[1] > (double)rows)
        return tune_fail(err, TUNE_EINVAL,
            "%.15g entries per row do not fit into %" PRId64 " columns", request->values[1], rows);
    if (exponent <= 1 || exponent > 100)
        return tune_fail(
            err, TUNE_EINVAL, "exponent is %.15g; it must be above 1, at most 100", exponent);
    if (total < 1 || total > (double)SPARSE_MAX_NONZEROS)
        return tune_fail(err, TUNE_ELIMIT, "a matrix has 1 to %" PRId64 " entries, not %.15g",
            SPARSE_MAX_NONZEROS, total);
    if (sparse_begin(matrix, rows, rows, err) ||
        sparse_lengths(matrix->offsets + 1, rows, (int64_t)total, rows, 0, exponent - 1, err))
        return -1;
    sparse_shuffle(matrix->offsets + 1, rows, &random);
    return make_windows(matrix, rows, request->seed, err);
}

/* --- R-MAT ------------------------------------------------------------------------------------ */

#define RMAT_LEVELS 3 /* of the recursion per 16 random bits */
#define RMAT_SCALE_MAX 30
#define RANGE_BITS 8

struct rmat {
    uint8_t steps[1 << 16]; /* row bits << RMAT_LEVELS | column bits */
    int scale;
    uint64_t seed;
};

/* Each combination of quadrants takes as many of the 2^16 numbers as its chance is. */
static void rmat_init(struct rmat *rmat, int scale, uint64_t seed)
{
    static const double chances[2][2] = {{0.57, 0.19}, {0.19, 0.05}};
    double sum = 0;
    size_t filled = 0;
    rmat->scale = scale;
    rmat->seed = sparse_mix(seed);
    for (int step = 0; step < 1 << 2 * RMAT_LEVELS; step++) {
        double chance = 1;
        for (int level = 0; level < RMAT_LEVELS; level++)
            chance *= chances[step >> (RMAT_LEVELS + level) & 1][step >> level & 1];
        sum += chance;
        while (filled < sizeof rmat->steps && (double)filled < sum * sizeof rmat->steps)
            rmat->steps[filled++] = (uint8_t)step;
    }
    memset(rmat->steps + filled, 0, sizeof rmat->steps - filled);
}

/* An edge by its number alone, so that edges can be made twice and need not be kept. */
static void rmat_edge(const struct rmat *rmat, int64_t edge, int32_t *row, int32_t *column)
{
    struct sparse_random random = {.state = rmat->seed + (uint64_t)edge * 0xd1342543de82ef95ull};
    uint64_t bits = 0, to_row = 0, to_column = 0;
    int left = 0, levels = 0;
    for (; levels < rmat->scale; levels += RMAT_LEVELS, left--, bits >>= 16) {
        if (left == 0) {
            bits = sparse_next(&random);
            left = 4;
        }
        unsigned step = rmat->steps[bits & 0xffff];
        to_row = to_row << RMAT_LEVELS | step >> RMAT_LEVELS;
        to_column = to_column << RMAT_LEVELS | (step & ((1 << RMAT_LEVELS) - 1));
    }
    *row = (int32_t)(to_row >> (levels - rmat->scale));
    *column = (int32_t)(to_column >> (levels - rmat->scale));
}

/* Entries, sorted by ranges of rows: where one is put next then lies near the one before, which
 * caches and page tables like. A plain scatter of 2^27 entries took half as long again. */
struct ranges {
    int shift;                             /* of a row, to its range */
    int64_t starts[(1 << RANGE_BITS) + 1]; /* of each in entries */
    uint64_t *entries;                     /* row << 32 | column */
};

static void put_in_range(struct ranges *ranges, int32_t row, int32_t column)
{
    ranges->entries[ranges->starts[row >> ranges->shift]++] =
        (uint64_t)row << 32 | (uint32_t)column;
}

/* False without memory. */
static bool fill_ranges(
    struct ranges *ranges, const struct rmat *rmat, int64_t edges, bool is_symmetric)
{
    int32_t row, column;
    for (int64_t edge = 0; edge < edges; edge++) {
        rmat_edge(rmat, edge, &row, &column);
        ranges->starts[(row >> ranges->shift) + 1]++;
        ranges->starts[(column >> ranges->shift) + 1] += is_symmetric;
    }
    for (int range = 0; range < 1 << RANGE_BITS; range++)
        ranges->starts[range + 1] += ranges->starts[range];
    ranges->entries = malloc((size_t)ranges->starts[1 << RANGE_BITS] * sizeof *ranges->entries);
    if (ranges->entries == NULL)
        return false;
    for (int64_t edge = 0; edge < edges; edge++) {
        rmat_edge(rmat, edge, &row, &column);
        put_in_range(ranges, row, column);
        if (is_symmetric)
            put_in_range(ranges, column, row);
    }
    return true;
}

static int rmat_place(const struct rmat *rmat, int64_t edges, bool is_symmetric,
    struct sparse_matrix *matrix, struct tune_error *err)
{
    struct ranges ranges = {.shift = rmat->scale > RANGE_BITS ? rmat->scale - RANGE_BITS : 0};
    int64_t count = edges * (is_symmetric ? 2 : 1);
    int result = -1;
    if (!fill_ranges(&ranges, rmat, edges, is_symmetric)) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a graph of %" PRId64 " edges", edges);
        return -1;
    }
    for (int64_t i = 0; i < count; i++)
        matrix->offsets[(ranges.entries[i] >> 32) + 1]++;
    if (sparse_sum_lengths(matrix, err) == 0) {
        for (int64_t i = 0; i < count; i++)
            matrix->columns_of[matrix->offsets[ranges.entries[i] >> 32]++] =
                (int32_t)ranges.entries[i];
        sparse_end_placing(matrix);
        result = sparse_sort_rows(matrix, err);
    }
    free(ranges.entries);
    return result;
}

static int make_rmat(
    const struct request *request, struct sparse_matrix *matrix, struct tune_error *err)
{
    double scale = request->values[0], degree = request->values[1];
    bool is_symmetric = !request->is_given[2] || request->values[2] != 0;
    if (scale > RMAT_SCALE_MAX)
        return tune_fail(
            err, TUNE_ELIMIT, "scale is %.15g; it must be 1 to %d", scale, RMAT_SCALE_MAX);
    if (request->values[2] > 1)
        return tune_fail(err, TUNE_EINVAL, "symmetric must be 0 or 1");
    int64_t vertices = INT64_C(1) << (int)scale;
    if (degree * (double)vertices * (is_symmetric ? 2 : 1) > (double)SPARSE_MAX_NONZEROS)
        return tune_fail(err, TUNE_ELIMIT,
            "degree %.15g at scale %.15g: a matrix has at most %" PRId64 " entries", degree, scale,
            SPARSE_MAX_NONZEROS);
    struct rmat *rmat = malloc(sizeof *rmat);
    if (rmat == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a random graph");
    rmat_init(rmat, (int)scale, request->seed);
    int result = sparse_begin(matrix, vertices, vertices, err);
    if (result == 0)
        result = rmat_place(rmat, (int64_t)degree * vertices, is_symmetric, matrix, err);
    free(rmat);
    return result;
}

/* --- grids ------------------------------------------------------------------------------------ */

/* Neighbours above, to the left, to the right and below, which is their order. */
static int64_t grid_row(int64_t side, int64_t columns, int64_t vertex, int32_t *out)
{
    int64_t y = vertex / columns, x = vertex % columns, count = 0;
    const int64_t near[4] = {y > 0 ? vertex - columns : -1, x > 0 ? vertex - 1 : -1,
        x + 1 < columns ? vertex + 1 : -1, y + 1 < side ? vertex + columns : -1};
    for (int i = 0; i < 4; i++)
        if (near[i] >= 0)
            out[count++] = (int32_t)near[i];
    return count;
}

static int make_grid(
    const struct request *request, struct sparse_matrix *matrix, struct tune_error *err)
{
    int64_t side = (int64_t)request->values[0];
    int64_t columns = request->is_given[1] ? (int64_t)request->values[1] : side;
    int32_t near[4];
    if (sparse_begin(matrix, side * columns, side * columns, err)) /* each below 2^31 */
        return -1;
    for (int64_t vertex = 0; vertex < matrix->rows; vertex++)
        matrix->offsets[vertex + 1] = grid_row(side, columns, vertex, near);
    if (sparse_sum_lengths(matrix, err))
        return -1;
    for (int64_t vertex = 0; vertex < matrix->rows; vertex++)
        grid_row(side, columns, vertex, matrix->columns_of + matrix->offsets[vertex]);
    return 0;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Keys after the `required` first may be left out. An exponent is no integer, nor need a mean be
 * one. */
static const struct kind {
    const char *name;
    int (*make)(
        const struct request *request, struct sparse_matrix *matrix, struct tune_error *err);
    size_t required;
    const char *keys[KEYS_MAX];
    const char *fractions; /* of these keys, one after the other */
} kinds[] = {
    {"random", make_random, 2, {"rows", "per_row", "columns"}, ""},
    {"banded", make_banded, 3, {"rows", "per_row", "width"}, ""},
    {"power_law", make_power_law, 2, {"rows", "per_row", "exponent"}, "per_row exponent"},
    {"rmat", make_rmat, 2, {"scale", "degree", "symmetric"}, ""},
    {"grid", make_grid, 1, {"side", "columns"}, ""},
};

static const struct kind *find_kind(const char *input, size_t length)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, input, length) == 0)
            return &kinds[i];
    return NULL;
}

bool sparse_is_file(const char *input)
{
    size_t length = strlen(input);
    return strchr(input, '/') != NULL || (length > 4 && strcmp(input + length - 4, ".mtx") == 0);
}

/* A number that begins with a digit and ends with the text. */
static int read_number(const char *key, const char *text, bool is_fraction, double least,
    double *value, struct tune_error *err)
{
    char *end;
    bool is_plain = text[0] >= '0' && text[0] <= '9' &&
                    text[strspn(text, is_fraction ? "0123456789." : "0123456789")] == '\0';
    *value = strtod(text, &end);
    if (!is_plain || *end != '\0' || *value < least || *value > (double)SPARSE_MAX_ROWS)
        return tune_fail(err, TUNE_EINVAL, "%s is \"%.30s\"; it must be %s from %g to %" PRId64,
            key, text, is_fraction ? "a number" : "an integer", least, SPARSE_MAX_ROWS);
    return 0;
}

static int read_pair(
    const struct kind *kind, char *pair, struct request *request, struct tune_error *err)
{
    char *value = strchr(pair, '=');
    double number;
    if (value == NULL)
        return tune_fail(err, TUNE_EINVAL, "\"%.40s\" must be a key, = and a number", pair);
    *value++ = '\0';
    if (strcmp(pair, "seed") == 0) {
        if (read_number(pair, value, false, 0, &number, err))
            return -1;
        request->seed = (uint64_t)number;
        return 0;
    }
    for (size_t i = 0; i < KEYS_MAX && kind->keys[i] != NULL; i++) {
        if (strcmp(kind->keys[i], pair) != 0)
            continue;
        if (request->is_given[i])
            return tune_fail(err, TUNE_EINVAL, "%s is given twice", pair);
        bool is_fraction = strstr(kind->fractions, pair) != NULL;
        double least = is_fraction ? 0 : strcmp(pair, "symmetric") == 0 ? 0 : 1;
        request->is_given[i] = true;
        return read_number(pair, value, is_fraction, least, &request->values[i], err);
    }
    return tune_fail(err, TUNE_EINVAL, "%s matrices have no \"%.40s\"", kind->name, pair);
}

static int read_request(
    const struct kind *kind, char *text, struct request *request, struct tune_error *err)
{
    char *next = text;
    while (next != NULL && *next != '\0') {
        char *pair = next;
        next = strchr(pair, ',');
        if (next != NULL)
            *next++ = '\0';
        if (read_pair(kind, pair, request, err))
            return -1;
    }
    for (size_t i = 0; i < kind->required; i++)
        if (!request->is_given[i])
            return tune_fail(
                err, TUNE_EINVAL, "a %s matrix needs \"%s\"", kind->name, kind->keys[i]);
    return 0;
}

int sparse_make(const char *input, struct sparse_matrix *matrix, struct tune_error *err)
{
    struct request request = {.seed = 1};
    char text[SPARSE_INPUT_BYTES];
    *matrix = (struct sparse_matrix){.rows = 0};
    if (sparse_is_file(input))
        return matrix_market_read(input, matrix, err);
    const char *colon = strchr(input, ':');
    const struct kind *kind = colon ? find_kind(input, (size_t)(colon - input)) : NULL;
    if (kind == NULL)
        return tune_fail(err, TUNE_EINVAL,
            "input \"%.60s\": it must be random:, banded:, power_law:, rmat: or grid: with their "
            "parameters, or the path of a .mtx file",
            input);
    if (strlen(colon + 1) >= sizeof text)
        return tune_fail(err, TUNE_ELIMIT, "an input's text has at most %zu bytes", sizeof text);
    strcpy(text, colon + 1);
    struct tune_error cause = {.code = TUNE_OK};
    if (read_request(kind, text, &request, &cause) == 0 &&
        kind->make(&request, matrix, &cause) == 0)
        return 0;
    sparse_finish(matrix);
    return tune_fail(err, cause.code, "input %.60s: %s", input, cause.text);
}
