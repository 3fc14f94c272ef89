/* Sparse matrices: made by name and from descriptions, described, and sorted numbers. */
#include "plugins/sparse.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* --- help ------------------------------------------------------------------------------------- */

static struct sparse_matrix make(const char *input)
{
    struct sparse_matrix matrix;
    struct tune_error err = {.code = TUNE_OK};
    if (sparse_make(input, &matrix, &err))
        fail_msg("%s", err.text);
    return matrix;
}

static struct sparse_description describe(const struct sparse_matrix *matrix)
{
    struct sparse_description description;
    struct tune_error err = {.code = TUNE_OK};
    if (sparse_describe(matrix, &description, &err))
        fail_msg("%s", err.text);
    return description;
}

static void assert_is_sound(const struct sparse_matrix *matrix)
{
    assert_int_equal(matrix->offsets[0], 0);
    assert_int_equal(matrix->offsets[matrix->rows], matrix->nonzeros);
    for (int64_t row = 0; row < matrix->rows; row++)
        for (int64_t i = matrix->offsets[row]; i < matrix->offsets[row + 1]; i++) {
            assert_in_range(matrix->columns_of[i], 0, matrix->columns - 1);
            if (i > matrix->offsets[row] && matrix->columns_of[i - 1] > matrix->columns_of[i])
                fail_msg("row %" PRId64 " does not ascend", row);
        }
}

static void assert_same(const struct sparse_matrix *a, const struct sparse_matrix *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->nonzeros, b->nonzeros);
    assert_memory_equal(a->offsets, b->offsets, ((size_t)a->rows + 1) * sizeof *a->offsets);
    assert_memory_equal(a->columns_of, b->columns_of, (size_t)a->nonzeros * sizeof *a->columns_of);
}

static void assert_refused(const char *input, const char *part)
{
    struct sparse_matrix matrix;
    struct tune_error err = {.code = TUNE_OK};
    assert_int_equal(sparse_make(input, &matrix, &err), -1);
    assert_null(matrix.offsets);
    if (strstr(err.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void assert_dims(const struct sparse_matrix *matrix, int64_t rows, int64_t columns,
    int64_t nonzeros, int64_t spread, int64_t longest, int64_t bandwidth, int64_t skew)
{
    const int64_t wanted[] = {rows, columns, nonzeros, spread, longest, bandwidth, skew};
    struct sparse_description found = describe(matrix);
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (found.dims[i] != wanted[i])
            fail_msg(
                "%s is %" PRId64 ", not %" PRId64, sparse_dim_names[i], found.dims[i], wanted[i]);
}

/* --- by name ---------------------------------------------------------------------------------- */

static const char *const inputs[] = {"random:rows=2000,per_row=32",
    "random:rows=500,per_row=7,columns=9000", "random:rows=3000,per_row=10,columns=11",
    "banded:rows=5000,per_row=9,width=60", "banded:rows=1000,per_row=40,width=40",
    "power_law:rows=5000,per_row=8", "power_law:rows=3000,per_row=3.5,exponent=3",
    "rmat:scale=11,degree=8", "rmat:scale=10,degree=4,symmetric=0", "grid:side=60",
    "grid:side=3,columns=500"};

#define INPUT_COUNT (sizeof inputs / sizeof *inputs)

static void every_kind_makes_sound_matrices_and_the_same_for_the_same_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUT_COUNT; i++) {
        struct sparse_matrix first = make(inputs[i]), second = make(inputs[i]);
        assert_is_sound(&first);
        assert_same(&first, &second);
        sparse_finish(&first);
        sparse_finish(&second);
    }
}

static void a_seed_makes_another_matrix_of_the_same_description(void **state)
{
    (void)state;
    struct sparse_matrix first = make("random:rows=2200,per_row=8,seed=1");
    struct sparse_matrix plain = make("random:rows=2200,per_row=8");
    struct sparse_matrix other = make("random:rows=2200,per_row=8,seed=2");
    struct sparse_description a = describe(&first), b = describe(&other);
    assert_same(&first, &plain);
    assert_memory_not_equal(
        first.columns_of, other.columns_of, (size_t)first.nonzeros * sizeof *first.columns_of);
    assert_memory_equal(&a, &b, sizeof a);
    sparse_finish(&first);
    sparse_finish(&plain);
    sparse_finish(&other);
}

static void the_descriptions_are_those_that_were_asked_for(void **state)
{
    (void)state;
    struct sparse_matrix matrix = make("random:rows=3000,per_row=30");
    assert_dims(&matrix, 3000, 3000, 90000, 100, 30, 2200, 100);
    sparse_finish(&matrix);
    /* A width of 600 is a mean distance of 150 but at the ends. */
    matrix = make("banded:rows=20000,per_row=20,width=600");
    assert_dims(&matrix, 20000, 20000, 400000, 100, 20, 330, 100);
    sparse_finish(&matrix);
    /* Of a grid 64 x 64: 4 * 64 * 63 entries, half of them 64 away and half 1. */
    matrix = make("grid:side=64");
    assert_dims(&matrix, 4096, 4096, 16128, 100, 4, 68, 100);
    sparse_finish(&matrix);
    matrix = make("power_law:rows=20000,per_row=8");
    struct sparse_description law = describe(&matrix);
    assert_int_equal(law.dims[SPARSE_NONZEROS], 160000);
    assert_true(law.dims[SPARSE_SPREAD] > 500 && law.dims[SPARSE_LONGEST] > 2000);
    sparse_finish(&matrix);
}

static void rows_of_random_matrices_have_no_column_twice(void **state)
{
    (void)state;
    struct sparse_matrix matrix = make("random:rows=300,per_row=24,columns=100");
    for (int64_t i = 1; i < matrix.nonzeros; i++)
        if (i % 24 != 0)
            assert_true(matrix.columns_of[i] > matrix.columns_of[i - 1]);
    sparse_finish(&matrix);
}

/* a = .57, b = c = .19, d = .05 of the four quarters. */
static void rmat_has_its_shares_in_the_quarters(void **state)
{
    (void)state;
    struct sparse_matrix matrix = make("rmat:scale=12,degree=16,symmetric=0");
    double counts[2][2] = {{0}};
    for (int64_t row = 0; row < matrix.rows; row++)
        for (int64_t i = matrix.offsets[row]; i < matrix.offsets[row + 1]; i++)
            counts[row >= 2048][matrix.columns_of[i] >= 2048] += 1.0 / 65536;
    assert_true(fabs(counts[0][0] - 0.57) < 0.01 && fabs(counts[0][1] - 0.19) < 0.01);
    assert_true(fabs(counts[1][0] - 0.19) < 0.01 && fabs(counts[1][1] - 0.05) < 0.01);
    sparse_finish(&matrix);
}

static void graphs_are_symmetric_where_they_say_so(void **state)
{
    (void)state;
    struct sparse_matrix both = make("rmat:scale=10,degree=8");
    struct sparse_matrix one = make("rmat:scale=10,degree=8,symmetric=0");
    struct sparse_matrix grid = make("grid:side=20,columns=30");
    assert_true(sparse_is_symmetric(&both) && sparse_is_symmetric(&grid));
    assert_false(sparse_is_symmetric(&one));
    assert_int_equal(both.nonzeros, 2 * one.nonzeros);
    sparse_finish(&both);
    sparse_finish(&one);
    sparse_finish(&grid);
}

static void the_smallest_matrices_are_made(void **state)
{
    static const char *const smallest[] = {"random:rows=1,per_row=1",
        "banded:rows=1,per_row=1,width=1", "power_law:rows=1,per_row=1", "rmat:scale=1,degree=1",
        "grid:side=1,columns=2", "grid:side=2,columns=1"};
    (void)state;
    for (size_t i = 0; i < sizeof smallest / sizeof *smallest; i++) {
        struct sparse_matrix matrix = make(smallest[i]);
        assert_is_sound(&matrix);
        struct sparse_description description = describe(&matrix);
        for (int dim = 0; dim < SPARSE_DIM_COUNT; dim++)
            assert_true(description.dims[dim] >= 1);
        sparse_finish(&matrix);
    }
}

static void what_cannot_be_made_is_refused_with_a_sentence(void **state)
{
    (void)state;
    assert_refused("random:rows=5,per_row=6", "6 entries per row do not fit into 5 columns");
    assert_refused("random:rows=5,per_row=4,columns=3", "do not fit into 3 columns");
    assert_refused("banded:rows=50,per_row=6,width=5", "do not fit into a band of 5");
    assert_refused("banded:rows=50,per_row=6,width=51", "wider than the 50");
    assert_refused("power_law:rows=50,per_row=51", "do not fit into 50");
    assert_refused("power_law:rows=50,per_row=5,exponent=1", "above 1");
    assert_refused("power_law:rows=50,per_row=0.001", "1 to");
    assert_refused("rmat:scale=31,degree=1", "1 to 30");
    assert_refused("rmat:scale=30,degree=16", "at most 4294967295 entries");
    assert_refused("rmat:scale=3,degree=1,symmetric=2", "0 or 1");
    assert_refused("grid:side=1", "no entries");
    assert_refused("grid:side=100000", "2147483647 rows");
    assert_refused("random:rows=2147483647,per_row=3", "at most 4294967295 entries");
}

static void what_is_no_input_is_refused_with_a_sentence(void **state)
{
    (void)state;
    assert_refused("", "it must be random:");
    assert_refused("random", "it must be random:");
    assert_refused("rand:rows=1", "it must be random:");
    assert_refused("random:", "needs \"rows\"");
    assert_refused("random:rows=5", "needs \"per_row\"");
    assert_refused("random:rows=5,per_row=2,width=4", "no \"width\"");
    assert_refused("random:rows=5,rows=5,per_row=1", "given twice");
    assert_refused("random:rows,per_row=1", "a key, = and a number");
    assert_refused("random:rows=0,per_row=1", "an integer from 1");
    assert_refused("random:rows=-3,per_row=1", "an integer from 1");
    assert_refused("random:rows=1.5,per_row=1", "an integer from 1");
    assert_refused("random:rows=1e3,per_row=1", "an integer from 1");
    assert_refused("random:rows=,per_row=1", "an integer from 1");
    assert_refused("random:rows=99999999999,per_row=1", "an integer from 1");
    assert_refused("power_law:rows=9,per_row=1.2.3", "a number from");
    assert_refused("random:rows=5,per_row=1,seed=x", "an integer from 0");
    assert_refused("none.mtx", "cannot open none.mtx");
}

static void files_are_told_from_kinds(void **state)
{
    (void)state;
    assert_true(sparse_is_file("/a/b") && sparse_is_file("a.mtx") && sparse_is_file("./x:y"));
    assert_false(sparse_is_file("random:rows=1,per_row=1") || sparse_is_file(".mtx"));
}

/* --- from descriptions ------------------------------------------------------------------------ */

static void a_matrix_made_from_a_description_has_that_description(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUT_COUNT; i++) {
        struct sparse_matrix named = make(inputs[i]), made, again;
        struct sparse_description asked = describe(&named);
        struct tune_error err = {.code = TUNE_OK};
        assert_int_equal(sparse_from_description(&asked, 3, &made, &err), 0);
        assert_int_equal(sparse_from_description(&asked, 3, &again, &err), 0);
        assert_is_sound(&made);
        assert_same(&made, &again);
        struct sparse_description found = describe(&made);
        for (int dim = 0; dim < SPARSE_DIM_COUNT; dim++) {
            bool is_rounded = dim == SPARSE_SPREAD || dim == SPARSE_BANDWIDTH || dim == SPARSE_SKEW;
            double ratio = (double)found.dims[dim] / (double)asked.dims[dim];
            if (is_rounded ? ratio < 0.8 || ratio > 1.25 : ratio != 1) /* a step of the series */
                fail_msg("%s: %s is %" PRId64 ", asked was %" PRId64, inputs[i],
                    sparse_dim_names[dim], found.dims[dim], asked.dims[dim]);
        }
        sparse_finish(&named);
        sparse_finish(&made);
        sparse_finish(&again);
    }
}

static void without_columns_it_is_a_graph(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUT_COUNT; i++) {
        struct sparse_matrix named = make(inputs[i]), made;
        struct sparse_description asked = describe(&named);
        struct tune_error err = {.code = TUNE_OK};
        sparse_finish(&named);
        if (asked.dims[SPARSE_COLUMNS] != asked.dims[SPARSE_ROWS])
            continue;
        asked.dims[SPARSE_COLUMNS] = 0;
        assert_int_equal(sparse_from_description(&asked, 3, &made, &err), 0);
        assert_is_sound(&made);
        assert_true(sparse_is_symmetric(&made));
        struct sparse_description found = describe(&made);
        assert_int_equal(found.dims[SPARSE_LONGEST], asked.dims[SPARSE_LONGEST]);
        assert_int_equal(found.dims[SPARSE_SPREAD], asked.dims[SPARSE_SPREAD]);
        double ratio = (double)found.dims[SPARSE_BANDWIDTH] / (double)asked.dims[SPARSE_BANDWIDTH];
        assert_true(ratio > 0.8 && ratio < 1.25);
        sparse_finish(&made);
    }
}

static void any_description_gives_a_matrix_or_a_sentence(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 10, 100, 101, 150, 390, 2700};
    uint64_t random = 12345;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct sparse_description asked;
        struct sparse_matrix matrix;
        struct tune_error err = {.code = TUNE_OK};
        for (int dim = 0; dim < SPARSE_DIM_COUNT; dim++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            asked.dims[dim] = sizes[(random >> 33) % 10];
        }
        if (sparse_from_description(&asked, (uint64_t)round, &matrix, &err)) {
            assert_true(err.text[0] != '\0');
            continue;
        }
        assert_is_sound(&matrix);
        assert_int_equal(matrix.rows, asked.dims[SPARSE_ROWS]);
        assert_int_equal(matrix.nonzeros, asked.dims[SPARSE_NONZEROS]);
        struct sparse_description found = describe(&matrix);
        if (asked.dims[SPARSE_LONGEST] > 0)
            assert_int_equal(found.dims[SPARSE_LONGEST], asked.dims[SPARSE_LONGEST]);
        sparse_finish(&matrix);
    }
}

/* What is too much lies in a few long rows, since the others are empty: taken from all rows evenly,
 * it took a pass over a million of them for each entry of the few. */
static void a_spread_that_no_rows_have_takes_no_longer(void **state)
{
    static const struct sparse_description asked = {
        {1 << 20, 148, 6565660, 48984, 620000, 38735, 5832}};
    struct sparse_matrix matrix;
    struct tune_error err = {.code = TUNE_OK};
    (void)state;
    alarm(120);
    assert_int_equal(sparse_from_description(&asked, 1, &matrix, &err), 0);
    alarm(0);
    assert_is_sound(&matrix);
    struct sparse_description found = describe(&matrix);
    assert_int_equal(found.dims[SPARSE_NONZEROS], asked.dims[SPARSE_NONZEROS]);
    assert_int_equal(found.dims[SPARSE_LONGEST], asked.dims[SPARSE_LONGEST]);
    sparse_finish(&matrix);
}

static void descriptions_of_no_matrix_are_refused(void **state)
{
    static const struct {
        struct sparse_description description;
        const char *part;
    } cases[] = {
        {{{0, 4, 4}}, "ROWS=0"},
        {{{4, 4, 0}}, "NONZEROS=0"},
        {{{4, 4, 9, 100, 2}}, "no such matrix"},
        {{{4, 4, 9, 100, 10}}, "no such matrix"},
        {{{4, -4, 9}}, "COLUMNS=-4"},
        {{{INT64_C(1) << 31, 4, 9}}, "rows and columns"},
        {{{4, 4, INT64_C(1) << 32}}, "at most"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sparse_matrix matrix;
        struct tune_error err = {.code = TUNE_OK};
        assert_int_equal(sparse_from_description(&cases[i].description, 1, &matrix, &err), -1);
        if (strstr(err.text, cases[i].part) == NULL)
            fail_msg("%s", err.text);
    }
}

/* --- describing ------------------------------------------------------------------------------- */

static void a_small_matrix_is_described_by_hand(void **state)
{
    /* Rows of 3, 0 and 1 entries: mean 4/3, mean square 10/3; columns of 1, 2, 0 and 1: mean 1,
     * mean square 3/2. Distances from 0, 4/3, 8/3: 0, 1, 3 and 5/3. */
    static const int32_t offsets[] = {0, 3, 3, 4}, columns_of[] = {0, 1, 3, 1};
    static const int64_t wide[] = {0, 3, 3, 4};
    static const int64_t wanted[] = {3, 4, 4, 150, 3, 4, 120};
    struct sparse_description found, again;
    struct tune_error err = {.code = TUNE_OK};
    (void)state;
    assert_int_equal(sparse_describe_csr(3, 4, offsets, 4, columns_of, &found, &err), 0);
    /* sqrt(10/3) / (4/3) is 1.37, of which 1.5 is nearer than 1.2; sqrt(3/2) is 1.22 */
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        assert_int_equal(found.dims[i], wanted[i]);
    assert_int_equal(sparse_describe_csr(3, 4, wide, 8, columns_of, &again, &err), 0);
    assert_memory_equal(&found, &again, sizeof found);
}

static void arrays_that_are_no_matrix_are_refused(void **state)
{
    static const int32_t late[] = {1, 3}, back[] = {0, 3, 2}, good[] = {0, 2}, none[] = {0, 0};
    static const int32_t columns_of[] = {0, 4, 0}, negative[] = {-1, 0};
    struct sparse_description found;
    (void)state;
    assert_int_equal(sparse_describe_csr(1, 4, late, 4, columns_of, &found, NULL), -1);
    assert_int_equal(sparse_describe_csr(2, 9, back, 4, columns_of, &found, NULL), -1);
    assert_int_equal(sparse_describe_csr(1, 4, good, 4, columns_of, &found, NULL), -1);
    assert_int_equal(sparse_describe_csr(1, 4, good, 4, negative, &found, NULL), -1);
    assert_int_equal(sparse_describe_csr(1, 4, none, 4, columns_of, &found, NULL), -1);
    assert_int_equal(sparse_describe_csr(0, 4, good, 4, columns_of, &found, NULL), -1);
}

static void columns_past_the_last_row_are_not_read(void **state)
{
    static const int32_t offsets[] = {0, 1 << 20, 2};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct tune_error err = {.code = TUNE_OK};
    struct sparse_description found;
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    const int32_t *columns_of = (const int32_t *)(pages + page) - 2;
    assert_int_equal(sparse_describe_csr(2, 4, offsets, 4, columns_of, &found, &err), -1);
    assert_non_null(strstr(err.text, "row 0 ends at 1048576"));
    munmap(pages, 2 * page);
}

static void the_longest_row_is_the_first_of_its_length(void **state)
{
    int64_t offsets[] = {0, 1, 3, 3, 5};
    struct sparse_matrix matrix = {.rows = 4, .offsets = offsets};
    (void)state;
    assert_int_equal(sparse_longest_row(&matrix), 1);
}

/* --- sorted numbers --------------------------------------------------------------------------- */

static double element(const char *dtype, const void *data, size_t i)
{
    uint32_t bits;
    float wide;
    switch (dtype[0] == 'f' || dtype[0] == 't' ? dtype[1] : dtype[0]) {
    case '6':
        return ((const double *)data)[i];
    case '3':
        return ((const float *)data)[i];
    case 'b':
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    case '1':
        bits = ((const uint16_t *)data)[i];
        if ((bits & 0x7fff) == 0)
            return 0;
        return (bits >> 15 ? -1 : 1) *
               ldexp(1 + (bits & 1023) / 1024.0, (int)(bits >> 10 & 31) - 15);
    case 'i':
        return strcmp(dtype, "i64") == 0   ? (double)((const int64_t *)data)[i]
               : strcmp(dtype, "i32") == 0 ? ((const int32_t *)data)[i]
               : strcmp(dtype, "i16") == 0 ? ((const int16_t *)data)[i]
                                           : ((const int8_t *)data)[i];
    default:
        return strcmp(dtype, "u64") == 0   ? (double)((const uint64_t *)data)[i]
               : strcmp(dtype, "u32") == 0 ? ((const uint32_t *)data)[i]
               : strcmp(dtype, "u16") == 0 ? ((const uint16_t *)data)[i]
                                           : ((const uint8_t *)data)[i];
    }
}

static void sorted_numbers_ascend_over_the_range_of_their_type(void **state)
{
    static const struct {
        const char *dtype;
        double low, high;
    } cases[] = {{"f64", -1, 1}, {"f32", -1, 1}, {"f16", -1, 1}, {"bf16", -1, 1},
        {"i64", -0x1p63, 0x1p63}, {"i32", -0x1p31, 0x1p31}, {"i16", -32768, 32768},
        {"i8", -128, 128}, {"u64", 0, 0x1p64}, {"u32", 0, 0x1p32}, {"u16", 0, 65536},
        {"u8", 0, 256}};
    enum { N = 20001 };
    void *data = malloc(8 * N), *other = malloc(8 * N);
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *dtype = cases[c].dtype;
        double low = cases[c].low, high = cases[c].high, sum = 0;
        memset(data, 0, 8 * N);
        memset(other, 0, 8 * N);
        assert_int_equal(sparse_sorted(dtype, N, 1, data, NULL), 0);
        assert_int_equal(sparse_sorted(dtype, N, 2, other, NULL), 0);
        assert_memory_not_equal(data, other, N);
        assert_int_equal(sparse_sorted(dtype, N, 1, other, NULL), 0);
        assert_memory_equal(data, other, 8 * N);
        for (size_t i = 0; i < N; i++) {
            double value = element(dtype, data, i);
            if (value < low || value > high || (i > 0 && value < element(dtype, data, i - 1)))
                fail_msg("%s: element %zu is %g", dtype, i, value);
            sum += value / N;
        }
        assert_true(fabs(sum - (low + high) / 2) < 0.02 * (high - low));
        assert_true(element(dtype, data, 0) < low + 0.01 * (high - low));
        assert_true(element(dtype, data, N - 1) > high - 0.01 * (high - low));
    }
    assert_int_equal(sparse_sorted("f32", 0, 1, data, NULL), 0);
    assert_int_equal(sparse_sorted("x", 1, 1, data, NULL), -1);
    free(data);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_makes_sound_matrices_and_the_same_for_the_same_text),
        cmocka_unit_test(a_seed_makes_another_matrix_of_the_same_description),
        cmocka_unit_test(the_descriptions_are_those_that_were_asked_for),
        cmocka_unit_test(rows_of_random_matrices_have_no_column_twice),
        cmocka_unit_test(rmat_has_its_shares_in_the_quarters),
        cmocka_unit_test(graphs_are_symmetric_where_they_say_so),
        cmocka_unit_test(the_smallest_matrices_are_made),
        cmocka_unit_test(what_cannot_be_made_is_refused_with_a_sentence),
        cmocka_unit_test(what_is_no_input_is_refused_with_a_sentence),
        cmocka_unit_test(files_are_told_from_kinds),
        cmocka_unit_test(a_matrix_made_from_a_description_has_that_description),
        cmocka_unit_test(without_columns_it_is_a_graph),
        cmocka_unit_test(any_description_gives_a_matrix_or_a_sentence),
        cmocka_unit_test(a_spread_that_no_rows_have_takes_no_longer),
        cmocka_unit_test(descriptions_of_no_matrix_are_refused),
        cmocka_unit_test(a_small_matrix_is_described_by_hand),
        cmocka_unit_test(arrays_that_are_no_matrix_are_refused),
        cmocka_unit_test(columns_past_the_last_row_are_not_read),
        cmocka_unit_test(the_longest_row_is_the_first_of_its_length),
        cmocka_unit_test(sorted_numbers_ascend_over_the_range_of_their_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
