/* A matrix made from its description alone. See sparse.h.
 *
 * Lengths of rows: one row has LONGEST entries; the others follow a power law, cut off there, whose
 * two numbers are searched for so that the sum and the sum of the squares come out. Columns: at
 * random in a window around the diagonal, of the width that BANDWIDTH means; where SKEW is more
 * than chance gives, some columns of each block of them are popular, again by a power law; where it
 * is less, rows have the same distances from the diagonal, as those of a stencil. */
#include "sparse_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_TERMS 64 /* of a sum over a power law; the rest is an integral */
#define BISECTIONS 64
#define TAIL_LEAST 1e-3 /* two lengths: none and the most */
#define TAIL_MOST 1e3   /* all alike */

/* --- lengths ---------------------------------------------------------------------------------- */

struct law {
    double tail, most;
    double t; /* tail x log c: the share with x or more is min(1, exp(t - tail x log x)) */
};

static double share_above(const struct law *law, double x)
{
    double e = law->t - law->tail * log(x);
    return e < 0 ? exp(e) : 1;
}

/* The integral of power * x^(power - 1) * share from `from` to law->most; power 1 or 2. */
static double integral_above(const struct law *law, double from, int power)
{
    double knee = exp(law->t / law->tail), end = law->most, sum = 0;
    if (knee > from) {
        knee = knee < end ? knee : end;
        sum = pow(knee, power) - pow(from, power);
        from = knee;
    }
    if (from >= end)
        return sum;
    double d = power - law->tail;
    if (fabs(d) < 1e-6)
        d = 1e-6;
    return sum + power * (exp(law->t + d * log(end)) - exp(law->t + d * log(from))) / d;
}

/* A length of k stands for what lies within a half of it. */
static void moments(const struct law *law, double *mean, double *square)
{
    *mean = *square = 0;
    for (int k = 1; k <= EXACT_TERMS && k <= law->most; k++) {
        double share = share_above(law, k - 0.5);
        *mean += share;
        *square += (2 * k - 1) * share;
    }
    if (law->most > EXACT_TERMS) {
        *mean += integral_above(law, EXACT_TERMS, 1);
        *square += integral_above(law, EXACT_TERMS, 2);
    }
}

/* Sets t so that the mean comes out; returns the mean square. */
static double fit_mean(struct law *law, double wanted)
{
    double low = -80, high = law->tail * log(law->most + 1), mean, square;
    for (int i = 0; i < BISECTIONS; i++) {
        law->t = (low + high) / 2;
        moments(law, &mean, &square);
        *(mean < wanted ? &low : &high) = law->t;
    }
    return square;
}

static void fit_spread(struct law *law, double mean, double spread_squared)
{
    double low = log(TAIL_LEAST), high = log(TAIL_MOST);
    for (int i = 0; i < BISECTIONS; i++) {
        law->tail = exp((low + high) / 2);
        double square = fit_mean(law, mean);
        *(square > spread_squared * mean * mean ? &low : &high) = log(law->tail);
    }
}

static int64_t even_share(int64_t total, int64_t parts, int64_t i)
{
    return (int64_t)((__int128)total * (i + 1) / parts - (__int128)total * i / parts);
}

static void set_evenly(int64_t *lengths, int64_t rows, int64_t total)
{
    for (int64_t i = 0; i < rows; i++)
        lengths[i] = even_share(total, rows, i);
}

static bool has_room(int64_t length, int64_t lacking, int64_t most)
{
    return lacking < 0 ? length > 0 : length < most;
}

/* Adds `lacking`, which may be negative, evenly to those that have room: each length stays within 0
 * to most. There is room for it. Each pass but the last leaves fewer that have room. */
static void add_evenly(int64_t *lengths, int64_t rows, int64_t lacking, int64_t most)
{
    while (lacking != 0) {
        int64_t wanted = lacking, open = 0, nth = 0;
        for (int64_t i = 0; i < rows; i++)
            open += has_room(lengths[i], wanted, most);
        for (int64_t i = 0; i < rows; i++) {
            if (!has_room(lengths[i], wanted, most))
                continue;
            int64_t length = lengths[i] + even_share(wanted, open, nth++);
            length = length < 0 ? 0 : length > most ? most : length;
            lacking -= length - lengths[i];
            lengths[i] = length;
        }
    }
}

int sparse_lengths(int64_t *lengths, int64_t rows, int64_t total, int64_t most,
    double spread_squared, double tail, struct tune_error *err)
{
    double mean = (double)total / (double)rows, part = mean - floor(mean);
    if (total > 0 && (most < 1 || (__int128)rows * most < total))
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " rows of at most %" PRId64 " entries cannot have %" PRId64, rows, most,
            total);
    if (total == 0 || mean >= (double)most ||
        (tail == 0 && spread_squared * mean * mean <= mean * mean + part * (1 - part))) {
        set_evenly(lengths, rows, total);
        return 0;
    }
    struct law law = {.tail = tail, .most = (double)most};
    if (tail == 0)
        fit_spread(&law, mean, spread_squared);
    fit_mean(&law, mean);
    int64_t sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        double length = exp((law.t - log(((double)i + 0.5) / (double)rows)) / law.tail) + 0.5;
        lengths[i] = length < law.most ? (int64_t)length : most;
        sum += lengths[i];
    }
    add_evenly(lengths, rows, total - sum, most);
    return 0;
}

/* --- columns ---------------------------------------------------------------------------------- */

enum choice { CHOICE_RANDOM, CHOICE_POPULAR, CHOICE_DIAGONALS };

struct maker {
    struct sparse_matrix *matrix;
    struct sparse_random random;
    enum choice choice;
    int64_t window;
    int32_t *room; /* as long as the longest row */
    /* popular */
    int64_t block;  /* columns, of which the same share is popular */
    int64_t step;   /* from a column of a block to the next popular one; no divisor in common */
    double inverse; /* of the power law's */
    /* diagonals */
    int64_t longest;
    int32_t *diagonals; /* from the window's start, ascending */
};

/* A window of width w on a side of c columns, kept inside at the ends, has entries at the mean
 * distance w/4 + w^2/(12 c) from the diagonal. */
static int64_t window_of(int64_t bandwidth, int64_t columns)
{
    double share = (double)(bandwidth - 1) / 2 / (double)columns;
    double window = (sqrt(9 + 48 * share) - 3) / 2 * (double)columns;
    if (bandwidth == 0 || window >= (double)columns)
        return columns;
    return window < 1 ? 1 : (int64_t)(window + 0.5);
}

/* `block` times the sum of the squared chances of columns 0 to block - 1, where the first k have a
 * share of (k / block)^power. */
static double crowding(double power, double block)
{
    double sum = 0, scale = pow(block, -power);
    for (int k = 0; k < EXACT_TERMS && k < block; k++) {
        double chance = (pow(k + 1, power) - pow(k, power)) * scale;
        sum += chance * chance;
    }
    double e = 2 * power - 1;
    if (fabs(e) < 1e-6)
        e = 1e-6;
    if (block > EXACT_TERMS)
        sum += power * power * scale * scale * (pow(block, e) - pow(EXACT_TERMS, e)) / e;
    return block * sum;
}

static double fit_crowding(double wanted, double block)
{
    double low = 1e-4, high = 1;
    for (int i = 0; i < BISECTIONS; i++) {
        double power = (low + high) / 2;
        *(crowding(power, block) > wanted ? &low : &high) = power;
    }
    return low;
}

static int64_t step_within(int64_t block)
{
    for (int64_t step = (int64_t)((double)block * 0.618) + 1;; step++) {
        int64_t a = block, b = step;
        while (b != 0) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

/* Columns at random differ by chance, the more the fewer entries they have. */
static void choose(struct maker *maker, int64_t skew)
{
    const struct sparse_matrix *matrix = maker->matrix;
    double mean = (double)matrix->nonzeros / (double)matrix->columns;
    double wanted = (double)skew * (double)skew / 1e4;
    int64_t chance = sparse_round(100 * sqrt(1 + 1 / mean), 0);
    maker->choice = CHOICE_RANDOM;
    if (skew > chance) {
        bool is_everywhere = maker->window > matrix->columns / 10 * 9;
        maker->choice = CHOICE_POPULAR;
        maker->block = is_everywhere ? matrix->columns : maker->window / 8 + 1;
        maker->step = step_within(maker->block);
        maker->inverse = 1 / fit_crowding(wanted - 1 / mean, (double)maker->block);
    } else if (skew > 0 && skew < chance) {
        maker->choice = CHOICE_DIAGONALS;
    }
}

/* A place in the window, and of the columns of its block one by their popularity, which is the same
 * for all rows. */
static void draw_popular(struct maker *maker, int64_t start, int64_t count, int32_t *columns)
{
    int64_t block = maker->block, last = maker->matrix->columns - block;
    for (int64_t i = 0; i < count; i++) {
        int64_t first = (start + sparse_below(&maker->random, maker->window)) / block * block;
        int64_t rank = (int64_t)((double)block * pow(sparse_share(&maker->random), maker->inverse));
        first = first > last ? last : first;
        columns[i] = (int32_t)(first + (rank * maker->step + first) % block);
    }
    sparse_sort_row(columns, count, maker->room);
}

/* False at the ends of a band, where some distances lead out of the matrix. */
static bool draw_diagonals(struct maker *maker, int64_t row, int64_t count, int32_t *columns)
{
    const struct sparse_matrix *matrix = maker->matrix;
    int64_t start = row * matrix->columns / matrix->rows - maker->window / 2;
    int64_t phase = sparse_below(&maker->random, maker->longest), gap;
    gap = matrix->columns / matrix->rows; /* columns that no row's diagonal goes through */
    start += gap > 1 ? sparse_below(&maker->random, gap) : 0;
    bool leads_out = start < 0 || start + maker->window > matrix->columns;
    if (leads_out && maker->window < matrix->columns / 10 * 9)
        return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t which = (i * maker->longest + phase) / count;
        int64_t column = start + maker->diagonals[which < maker->longest ? which : 0];
        columns[i] = (int32_t)((column + matrix->columns) % matrix->columns);
    }
    sparse_sort_row(columns, count, maker->room);
    return true;
}

static void draw_row(struct maker *maker, int64_t row)
{
    const struct sparse_matrix *matrix = maker->matrix;
    int64_t count = matrix->offsets[row + 1] - matrix->offsets[row];
    int32_t *columns = matrix->columns_of + matrix->offsets[row];
    int64_t window = maker->window;
    if (maker->choice == CHOICE_POPULAR) {
        draw_popular(maker, sparse_window_start(matrix, row, window), count, columns);
        return;
    }
    if (maker->choice == CHOICE_DIAGONALS && count > 0 &&
        draw_diagonals(maker, row, count, columns))
        return;
    window = count <= window ? window : count < matrix->columns ? count : matrix->columns;
    sparse_sample(&maker->random, sparse_window_start(matrix, row, window), window, count, columns,
        maker->room);
}

static int draw_columns(struct maker *maker, int64_t longest, int64_t skew, struct tune_error *err)
{
    choose(maker, skew);
    if (maker->choice == CHOICE_DIAGONALS && longest > maker->matrix->columns)
        maker->choice = CHOICE_RANDOM;
    maker->longest = longest;
    maker->room = malloc((size_t)longest * sizeof *maker->room);
    maker->diagonals = malloc((size_t)longest * sizeof *maker->diagonals);
    if (maker->room == NULL || maker->diagonals == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a row of %" PRId64 " entries", longest);
    if (maker->choice == CHOICE_DIAGONALS) {
        maker->window = maker->window < longest ? longest : maker->window;
        for (int64_t i = 0; i < longest; i++) { /* each in its part of the window */
            int64_t from = maker->window * i / longest, to = maker->window * (i + 1) / longest;
            maker->diagonals[i] = (int32_t)(from + sparse_below(&maker->random, to - from));
        }
    }
    for (int64_t row = 0; row < maker->matrix->rows; row++)
        draw_row(maker, row);
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int check(const struct sparse_description *description, struct tune_error *err)
{
    const int64_t *dims = description->dims;
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (dims[i] < 0 || (dims[i] == 0 && (i == SPARSE_ROWS || i == SPARSE_NONZEROS)))
            return tune_fail(
                err, TUNE_EINVAL, "a matrix cannot have %s=%" PRId64, sparse_dim_names[i], dims[i]);
    if (dims[SPARSE_NONZEROS] > SPARSE_MAX_NONZEROS)
        return tune_fail(err, TUNE_ELIMIT, "a matrix has at most %" PRId64 " entries, not %" PRId64,
            SPARSE_MAX_NONZEROS, dims[SPARSE_NONZEROS]);
    int64_t longest = dims[SPARSE_LONGEST];
    if (longest > 0 && (longest > dims[SPARSE_NONZEROS] ||
                           (__int128)longest * dims[SPARSE_ROWS] < dims[SPARSE_NONZEROS]))
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " rows with %" PRId64 " entries, the longest of %" PRId64
            ": there is no such matrix",
            dims[SPARSE_ROWS], dims[SPARSE_NONZEROS], longest);
    return 0;
}

/* Where nothing is said of the longest row: as long as the law gives it. */
static int64_t longest_of(const struct sparse_description *description, int64_t columns)
{
    int64_t rows = description->dims[SPARSE_ROWS], nonzeros = description->dims[SPARSE_NONZEROS];
    int64_t least = (nonzeros + rows - 1) / rows, most = columns < nonzeros ? columns : nonzeros;
    if (description->dims[SPARSE_LONGEST] > 0)
        return description->dims[SPARSE_LONGEST];
    return description->dims[SPARSE_SPREAD] <= 100 || most < least ? least : most;
}

static int make_lengths(struct maker *maker, const struct sparse_description *description,
    int64_t longest, struct tune_error *err)
{
    struct sparse_matrix *matrix = maker->matrix;
    int64_t total = description->dims[SPARSE_NONZEROS], rows = matrix->rows;
    int64_t spread = description->dims[SPARSE_SPREAD];
    int64_t *lengths = matrix->offsets + 1;
    bool is_longest_said = description->dims[SPARSE_LONGEST] > 0;
    double mean = (double)total / (double)rows;
    double squares = (double)spread * (double)spread / 1e4 * mean * mean * (double)rows;
    if (is_longest_said) { /* one row has it, whatever the law gives the others */
        lengths[0] = longest;
        total -= longest;
        squares -= (double)longest * (double)longest;
        lengths++;
        rows--;
    }
    if (rows > 0) {
        double rest = (double)total / (double)rows;
        double spread_squared = rest > 0 ? squares / (double)rows / (rest * rest) : 0;
        if (sparse_lengths(
                lengths, rows, total, longest, spread_squared > 1 ? spread_squared : 1, 0, err))
            return -1;
    }
    if (spread > 100 || is_longest_said)
        sparse_shuffle(matrix->offsets + 1, matrix->rows, &maker->random);
    return sparse_sum_lengths(matrix, err);
}

int sparse_from_description(const struct sparse_description *description, uint64_t seed,
    struct sparse_matrix *matrix, struct tune_error *err)
{
    const int64_t *dims = description->dims;
    struct maker maker = {.matrix = matrix, .random = {.state = sparse_mix(seed)}};
    int64_t columns = dims[SPARSE_COLUMNS] > 0 ? dims[SPARSE_COLUMNS] : dims[SPARSE_ROWS];
    *matrix = (struct sparse_matrix){.rows = 0};
    if (check(description, err))
        return -1;
    int64_t longest = longest_of(description, columns);
    maker.window = window_of(dims[SPARSE_BANDWIDTH], columns);
    int result = sparse_begin(matrix, dims[SPARSE_ROWS], columns, err);
    if (result == 0)
        result = make_lengths(&maker, description, longest, err);
    if (result == 0 && dims[SPARSE_COLUMNS] == 0)
        result = sparse_join(matrix, dims[SPARSE_BANDWIDTH], &maker.random, err);
    else if (result == 0)
        result = draw_columns(&maker, longest, dims[SPARSE_SKEW], err);
    free(maker.room);
    free(maker.diagonals);
    if (result != 0)
        sparse_finish(matrix);
    return result;
}
