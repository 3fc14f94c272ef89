/* See sparse.h. Describes matrices, and has what their makers share. */
#include "sparse_internal.h"

#include "manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SORT_INSERTING 48 /* rows up to this length are sorted by inserting */

const char *const sparse_dim_names[SPARSE_DIM_COUNT] = {
    "ROWS", "COLUMNS", "NONZEROS", "SPREAD", "LONGEST", "BANDWIDTH", "SKEW"};

/* --- matrices --------------------------------------------------------------------------------- */

void sparse_finish(struct sparse_matrix *matrix)
{
    free(matrix->offsets);
    free(matrix->columns_of);
    *matrix = (struct sparse_matrix){.rows = 0};
}

int sparse_begin(
    struct sparse_matrix *matrix, int64_t rows, int64_t columns, struct tune_error *err)
{
    *matrix = (struct sparse_matrix){.rows = rows, .columns = columns};
    if (rows < 1 || rows > SPARSE_MAX_ROWS || columns < 1 || columns > SPARSE_MAX_ROWS)
        return tune_fail(err, TUNE_ELIMIT,
            "a matrix has 1 to %" PRId64 " rows and columns, not %" PRId64 " x %" PRId64,
            SPARSE_MAX_ROWS, rows, columns);
    matrix->offsets = calloc((size_t)rows + 1, sizeof *matrix->offsets);
    return matrix->offsets
               ? 0
               : tune_fail(err, TUNE_ENOMEM, "no memory for a matrix of %" PRId64 " rows", rows);
}

int sparse_sum_lengths(struct sparse_matrix *matrix, struct tune_error *err)
{
    for (int64_t row = 0; row < matrix->rows; row++)
        if (__builtin_add_overflow(
                matrix->offsets[row], matrix->offsets[row + 1], &matrix->offsets[row + 1]) ||
            matrix->offsets[row + 1] > SPARSE_MAX_NONZEROS)
            return tune_fail(
                err, TUNE_ELIMIT, "a matrix has at most %" PRId64 " entries", SPARSE_MAX_NONZEROS);
    matrix->nonzeros = matrix->offsets[matrix->rows];
    if (matrix->nonzeros == 0)
        return tune_fail(err, TUNE_EINVAL, "the matrix has no entries");
    matrix->columns_of = malloc((size_t)matrix->nonzeros * sizeof *matrix->columns_of);
    return matrix->columns_of
               ? 0
               : tune_fail(err, TUNE_ENOMEM, "no memory for a matrix of %" PRId64 " entries",
                     matrix->nonzeros);
}

int64_t sparse_longest_row(const struct sparse_matrix *matrix)
{
    int64_t best = 0, longest = -1;
    for (int64_t row = 0; row < matrix->rows; row++) {
        int64_t length = matrix->offsets[row + 1] - matrix->offsets[row];
        if (length > longest) {
            longest = length;
            best = row;
        }
    }
    return best;
}

/* --- rows ------------------------------------------------------------------------------------- */

static void sort_inserting(int32_t *columns, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        int32_t value = columns[i];
        int64_t at = i;
        for (; at > 0 && columns[at - 1] > value; at--)
            columns[at] = columns[at - 1];
        columns[at] = value;
    }
}

/* By digits, the lowest first; a digit that all have alike is passed over. */
void sparse_sort_row(int32_t *columns, int64_t count, int32_t *room)
{
    if (count <= SORT_INSERTING) {
        sort_inserting(columns, count);
        return;
    }
    int32_t *from = columns, *to = room;
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t starts[257] = {0};
        for (int64_t i = 0; i < count; i++)
            starts[((uint32_t)from[i] >> shift & 255) + 1]++;
        if (starts[((uint32_t)from[0] >> shift & 255) + 1] == count)
            continue;
        for (int digit = 0; digit < 256; digit++)
            starts[digit + 1] += starts[digit];
        for (int64_t i = 0; i < count; i++)
            to[starts[(uint32_t)from[i] >> shift & 255]++] = from[i];
        int32_t *other = from;
        from = to;
        to = other;
    }
    if (from != columns)
        memcpy(columns, from, (size_t)count * sizeof *columns);
}

void sparse_end_placing(struct sparse_matrix *matrix)
{
    memmove(matrix->offsets + 1, matrix->offsets, (size_t)matrix->rows * sizeof *matrix->offsets);
    matrix->offsets[0] = 0;
}

int32_t *sparse_row_room(const struct sparse_matrix *matrix, struct tune_error *err)
{
    int64_t row = sparse_longest_row(matrix);
    int64_t longest = matrix->offsets[row + 1] - matrix->offsets[row];
    int32_t *room = malloc((size_t)longest * sizeof *room);
    if (room == NULL)
        tune_fail(err, TUNE_ENOMEM, "no memory for a row of %" PRId64 " entries", longest);
    return room;
}

int sparse_sort_rows(struct sparse_matrix *matrix, struct tune_error *err)
{
    int32_t *room = sparse_row_room(matrix, err);
    if (room == NULL)
        return -1;
    for (int64_t row = 0; row < matrix->rows; row++)
        sparse_sort_row(matrix->columns_of + matrix->offsets[row],
            matrix->offsets[row + 1] - matrix->offsets[row], room);
    free(room);
    return 0;
}

/* Each column of the window in turn, taken with the probability that leaves the right number. */
static void sample_dense(
    struct sparse_random *random, int64_t first, int64_t window, int64_t count, int32_t *columns)
{
    int64_t of_each = count / window, wanted = count % window, used = 0;
    for (int64_t i = 0; i < window; i++) {
        int64_t copies = of_each;
        if (wanted > 0 && sparse_below(random, window - i) < wanted) {
            wanted--;
            copies++;
        }
        for (int64_t copy = 0; copy < copies; copy++)
            columns[used++] = (int32_t)(first + i);
    }
}

void sparse_sample(struct sparse_random *random, int64_t first, int64_t window, int64_t count,
    int32_t *columns, int32_t *room)
{
    if (count > window / 4) {
        sample_dense(random, first, window, count, columns);
        return;
    }
    /* Few of many: draws, and again in the place of those that came twice. */
    for (int64_t kept = 0; kept < count;) {
        for (int64_t i = kept; i < count; i++)
            columns[i] = (int32_t)(first + sparse_below(random, window));
        sparse_sort_row(columns, count, room);
        kept = count > 0;
        for (int64_t i = 1; i < count; i++)
            if (columns[i] != columns[kept - 1])
                columns[kept++] = columns[i];
    }
}

int64_t sparse_window_start(const struct sparse_matrix *matrix, int64_t row, int64_t window)
{
    int64_t place = row * matrix->columns / matrix->rows; /* below 2^62 */
    int64_t start = place - window / 2, last = matrix->columns - window;
    return start < 0 ? 0 : start > last ? last : start;
}

void sparse_shuffle(int64_t *values, int64_t count, struct sparse_random *random)
{
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t other = sparse_below(random, i + 1), value = values[i];
        values[i] = values[other];
        values[other] = value;
    }
}

/* --- description ------------------------------------------------------------------------------ */

int64_t sparse_round(double value, double exact)
{
    static const int series[] = {10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82, 100};
    double power = 1;
    if (value < exact && value < 10)
        return (int64_t)(value + 0.5);
    while (value >= 100 * power)
        power *= 10;
    double digits = value / power;
    for (size_t i = 0; i + 1 < sizeof series / sizeof *series; i++)
        if (digits * digits < (double)series[i] * series[i + 1])
            return (int64_t)(series[i] * power);
    return (int64_t)(100 * power);
}

static int64_t spread_of(double sum_of_squares, int64_t groups, int64_t nonzeros)
{
    return sparse_round(100 * sqrt(sum_of_squares * (double)groups) / (double)nonzeros, 0);
}

/* Sums over the rows of a matrix whose offsets are 4 or 8 bytes wide. */
struct sums {
    double squares, distances;
    int64_t longest;
};

static int64_t offset_at(const void *offsets, int bytes, int64_t row)
{
    return bytes == 4 ? ((const int32_t *)offsets)[row] : ((const int64_t *)offsets)[row];
}

static int sum_row(int64_t columns, double center, const int32_t *columns_of, int64_t count,
    uint32_t *per_column, double *distance, struct tune_error *err)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t column = columns_of[i];
        if (column < 0 || column >= columns)
            return tune_fail(err, TUNE_EINVAL,
                "column %" PRId32 " is none of the matrix' 0 to %" PRId64, column, columns - 1);
        sum += fabs((double)column - center);
        per_column[column]++;
    }
    *distance = sum;
    return 0;
}

/* No more is read of columns_of than the last offset says that there is. */
static int sum_rows(int64_t rows, int64_t columns, const void *offsets, int offset_bytes,
    const int32_t *columns_of, uint32_t *per_column, struct sums *sums, struct tune_error *err)
{
    int64_t nonzeros = offset_at(offsets, offset_bytes, rows);
    if (nonzeros > SPARSE_MAX_NONZEROS)
        return tune_fail(err, TUNE_ELIMIT, "a matrix has at most %" PRId64 " entries, not %" PRId64,
            SPARSE_MAX_NONZEROS, nonzeros);
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = offset_at(offsets, offset_bytes, row);
        int64_t to = offset_at(offsets, offset_bytes, row + 1);
        double distance = 0, center = (double)(row * columns) / (double)rows;
        if (to < from || to > nonzeros)
            return tune_fail(err, TUNE_EINVAL,
                "row %" PRId64 " ends at %" PRId64 " and begins at %" PRId64 "; the last one ends "
                "at %" PRId64,
                row, to, from, nonzeros);
        if (sum_row(columns, center, columns_of + from, to - from, per_column, &distance, err))
            return -1;
        sums->squares += (double)(to - from) * (double)(to - from);
        sums->distances += distance;
        sums->longest = to - from > sums->longest ? to - from : sums->longest;
    }
    return 0;
}

int sparse_describe_csr(int64_t rows, int64_t columns, const void *offsets, int offset_bytes,
    const int32_t *columns_of, struct sparse_description *description, struct tune_error *err)
{
    struct sums sums = {.squares = 0};
    *description = (struct sparse_description){.dims = {0}};
    if (rows < 1 || rows > SPARSE_MAX_ROWS || columns < 1 || columns > SPARSE_MAX_ROWS)
        return tune_fail(err, TUNE_ELIMIT,
            "a matrix has 1 to %" PRId64 " rows and columns, not %" PRId64 " x %" PRId64,
            SPARSE_MAX_ROWS, rows, columns);
    if (offset_at(offsets, offset_bytes, 0) != 0)
        return tune_fail(err, TUNE_EINVAL, "the first row begins at %" PRId64 ", not at 0",
            offset_at(offsets, offset_bytes, 0));
    uint32_t *per_column = calloc((size_t)columns, sizeof *per_column);
    if (per_column == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to count %" PRId64 " columns", columns);
    int result = sum_rows(rows, columns, offsets, offset_bytes, columns_of, per_column, &sums, err);
    int64_t nonzeros = offset_at(offsets, offset_bytes, rows);
    double column_squares = 0;
    for (int64_t column = 0; column < columns; column++)
        column_squares += (double)per_column[column] * per_column[column];
    free(per_column);
    if (result == 0 && nonzeros == 0)
        result = tune_fail(err, TUNE_EINVAL, "the matrix has no entries");
    if (result != 0)
        return -1;
    *description = (struct sparse_description){
        .dims = {
            [SPARSE_ROWS] = rows,
            [SPARSE_COLUMNS] = columns,
            [SPARSE_NONZEROS] = nonzeros,
            [SPARSE_SPREAD] = spread_of(sums.squares, rows, nonzeros),
            [SPARSE_LONGEST] = sums.longest,
            [SPARSE_BANDWIDTH] = sparse_round(1 + 2 * sums.distances / (double)nonzeros, 10),
            [SPARSE_SKEW] = spread_of(column_squares, columns, nonzeros),
        }};
    return 0;
}

int sparse_describe(const struct sparse_matrix *matrix, struct sparse_description *description,
    struct tune_error *err)
{
    return sparse_describe_csr(
        matrix->rows, matrix->columns, matrix->offsets, 8, matrix->columns_of, description, err);
}

int sparse_compare(const struct sparse_description *asked, const struct sparse_description *found,
    struct tune_error *err)
{
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (asked->dims[i] != 0 && asked->dims[i] != found->dims[i])
            return tune_fail(err, TUNE_EINVAL, "its %s is %" PRId64 ", that of the shape %" PRId64,
                sparse_dim_names[i], found->dims[i], asked->dims[i]);
    if (asked->dims[SPARSE_COLUMNS] == 0 && found->dims[SPARSE_COLUMNS] != found->dims[SPARSE_ROWS])
        return tune_fail(err, TUNE_EINVAL, "it is no graph: %" PRId64 " rows, %" PRId64 " columns",
            found->dims[SPARSE_ROWS], found->dims[SPARSE_COLUMNS]);
    return 0;
}

/* --- sorted numbers --------------------------------------------------------------------------- */

/* A gap's mean and variance are about those of the gaps between random points. */
static uint64_t next_gap(struct sparse_random *random)
{
    uint64_t bits = sparse_next(random);
    return (bits >> 32) * (bits & UINT32_MAX) >> 32;
}

/* A float that has few enough digits, as f16. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value == 0)
        return 0;
    return (
        uint16_t)((bits >> 31 << 15) | ((bits >> 23 & 255) - 127 + 15) << 10 | (bits >> 13 & 1023));
}

/* share in [0, 1) as an element; it never descends when the share does not. */
static void put_sorted(void *data, int64_t i, int dtype_kind, int64_t bytes, double share)
{
    if (dtype_kind == 'f' || dtype_kind == 'b' || dtype_kind == 't') {
        double value = 2 * share - 1;
        float narrow = bytes == 2 ? (float)(floor(value * (dtype_kind == 'b' ? 256 : 2048)) /
                                            (dtype_kind == 'b' ? 256 : 2048))
                                  : (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        if (bytes == 8)
            ((double *)data)[i] = value;
        else if (bytes == 4)
            ((float *)data)[i] = narrow;
        else
            ((uint16_t *)data)[i] = dtype_kind == 'b' ? (uint16_t)(bits >> 16) : half_of(narrow);
        return;
    }
    /* From the least of the type on: in two's complement that is the highest bit, for unsigned 0.
     */
    uint64_t value = (uint64_t)(share * 0x1p64) >> (64 - 8 * bytes);
    value ^= dtype_kind == 'i' ? UINT64_C(1) << (8 * bytes - 1) : 0;
    memcpy((char *)data + i * bytes, &value, (size_t)bytes); /* little-endian, as the device */
}

int sparse_sorted(
    const char *dtype, int64_t count, uint64_t seed, void *data, struct tune_error *err)
{
    struct sparse_random random = {.state = sparse_mix(seed)};
    const struct sparse_random start = random;
    uint64_t sum = 0, at = 0;
    int64_t bytes = dtype_bytes(dtype);
    if (bytes == 0 || count > SPARSE_MAX_NONZEROS)
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " sorted numbers of type %.20s: at most %" PRId64 " can be made", count,
            dtype, SPARSE_MAX_NONZEROS);
    for (int64_t i = 0; i <= count; i++)
        sum += next_gap(&random);
    random = start;
    double scale = sum > 0 ? (1 - 0x1p-52) / (double)sum : 0;
    for (int64_t i = 0; i < count; i++) {
        at += next_gap(&random);
        put_sorted(data, i, dtype[0], bytes, (double)at * scale);
    }
    return 0;
}
