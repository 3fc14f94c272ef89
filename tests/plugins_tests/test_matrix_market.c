/* Matrix Market files: good ones, and what is wrong with bad ones. */
#include "plugins/matrix_market.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GENERAL "%%MatrixMarket matrix coordinate real general\n"
#define SYMMETRIC "%%MatrixMarket matrix coordinate pattern symmetric\n"

static int read_bytes(
    const char *bytes, size_t length, struct sparse_matrix *matrix, struct tune_error *err)
{
    *err = (struct tune_error){.code = TUNE_OK};
    FILE *stream = fmemopen((void *)bytes, length, "r");
    assert_non_null(stream);
    int result = matrix_market_read_stream(stream, "m.mtx", matrix, err);
    fclose(stream);
    return result;
}

static void assert_reads(const char *text, int64_t rows, int64_t columns, int64_t nonzeros,
    const int64_t *offsets, const int32_t *columns_of)
{
    struct sparse_matrix matrix;
    struct tune_error err;
    if (read_bytes(text, strlen(text), &matrix, &err))
        fail_msg("%s", err.text);
    assert_int_equal(matrix.rows, rows);
    assert_int_equal(matrix.columns, columns);
    assert_int_equal(matrix.nonzeros, nonzeros);
    assert_memory_equal(matrix.offsets, offsets, ((size_t)rows + 1) * sizeof *offsets);
    assert_memory_equal(matrix.columns_of, columns_of, (size_t)nonzeros * sizeof *columns_of);
    sparse_finish(&matrix);
}

static void general_matrices_are_read_in_any_order(void **state)
{
    static const int64_t offsets[] = {0, 2, 2, 3};
    static const int32_t columns_of[] = {0, 3, 1};
    (void)state;
    assert_reads(GENERAL "% a comment\n\n3 4 3\n1 4 2.5\n3 2 -1e-3\n% another\n1 1 nan\n", 3, 4, 3,
        offsets, columns_of);
    assert_reads("%%matrixmarket MATRIX Coordinate Integer General\r\n 3\t4 3 \r\n1 4 7\r\n"
                 "3 2 0\r\n1 1 -1",
        3, 4, 3, offsets, columns_of);
    assert_reads("%%MatrixMarket matrix coordinate pattern general\n3 4 3\n1 4\n3 2\n1 1\n", 3, 4,
        3, offsets, columns_of);
}

static void symmetric_matrices_get_their_upper_half(void **state)
{
    static const int64_t offsets[] = {0, 2, 4, 6};
    static const int32_t columns_of[] = {0, 1, 0, 2, 1, 2};
    (void)state;
    assert_reads(SYMMETRIC "3 3 4\n2 1\n1 1\n3 3\n3 2\n", 3, 3, 6, offsets, columns_of);
}

static void what_is_wrong_is_said_with_its_line(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"\n", "line 1: it must be %%MatrixMarket"},
        {"%%MatrixMarket matrix coordinate real\n", "line 1: it must be"},
        {"%%MatrixMarket matrix coordinate real general x\n", "line 1: it must be"},
        {"%%MatrixMarket vector coordinate real general\n", "line 1: only coordinate"},
        {"%%MatrixMarket matrix array real general\n2 2\n", "line 1: only coordinate"},
        {"%%MatrixMarket matrix coordinate complex general\n", "line 1: the field"},
        {"%%MatrixMarket matrix coordinate real hermitian\n", "line 1: the symmetry"},
        {GENERAL, "line 2: the file ends before the sizes"},
        {GENERAL "% only a comment\n", "line 3: the file ends before the sizes"},
        {GENERAL "2 2\n", "line 2: it must be rows, columns and entries"},
        {GENERAL "2 2 1 1\n", "line 2: it must be rows"},
        {GENERAL "2 -2 1\n", "line 2: it must be rows"},
        {GENERAL "2 2.0 1\n", "line 2: it must be rows"},
        {GENERAL "0 2 1\n", "line 2: a matrix has 1"},
        {GENERAL "2 2147483648 1\n", "line 2: a matrix has 1"},
        {GENERAL "2 99999999999999999999 1\n", "line 2: it must be rows"},
        {GENERAL "2 2 4294967296\n", "line 2: a matrix has 1"},
        {GENERAL "2 2 0\n", "line 2: the matrix has no entries"},
        {GENERAL "2147483647 2 5\n", "line 2: the matrix is far too large"},
        {SYMMETRIC "2 3 1\n", "line 2: a symmetric matrix"},
        {SYMMETRIC "2 2 1\n1 2\n", "line 3: a symmetric matrix has entries on and below"},
        {GENERAL "2 2 1\n3 1 1\n", "line 3: the row or the column is outside"},
        {GENERAL "2 2 1\n1 0 1\n", "line 3: the row or the column is outside"},
        {GENERAL "2 2 1\n1\n", "line 3: it must be a row and a column"},
        {GENERAL "2 2 1\nx 1 1\n", "line 3: it must be a row and a column"},
        {GENERAL "2 2 1\n1x 1 1\n", "line 3: it must be a row and a column"},
        {GENERAL "2 2 1\n1 1\n", "line 3: it has no value"},
        {GENERAL "2 2 1\n1 1 one\n", "line 3: it has no value"},
        {GENERAL "2 2 1\n1 1 1 1\n", "line 3: there is more"},
        {SYMMETRIC "2 2 1\n1 1 1\n", "line 3: there is more"},
        {GENERAL "2 2 2\n1 1 1\n", "line 4: the file ends before its last entry"},
        {GENERAL "2 2 4000000000\n1 1 1\n", "line 4: the file ends before its last entry"},
        {GENERAL "2 2 1\n1 1 1\n2 2 1\n", "line 4: there are more entries"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sparse_matrix matrix;
        struct tune_error err;
        assert_int_equal(read_bytes(cases[i].text, strlen(cases[i].text), &matrix, &err), -1);
        assert_null(matrix.offsets);
        assert_null(matrix.columns_of);
        if (strstr(err.text, cases[i].part) == NULL || strstr(err.text, "m.mtx") == NULL)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text, cases[i].part);
    }
}

static void long_lines_and_zero_bytes_are_refused(void **state)
{
    static const char zero[] = GENERAL "2 2 1\n1 1\0 1\n";
    char text[4096];
    struct sparse_matrix matrix;
    struct tune_error err;
    (void)state;
    assert_int_equal(read_bytes(zero, sizeof zero - 1, &matrix, &err), -1);
    assert_non_null(strstr(err.text, "line 3"));
    int head = snprintf(text, sizeof text, "%s%%", GENERAL);
    memset(text + head, 'x', 2000);
    strcpy(text + head + 2000, "\n1 1 1\n1 1 1\n");
    assert_int_equal(read_bytes(text, strlen(text), &matrix, &err), -1);
    assert_non_null(strstr(err.text, "line 2: it is too long"));
}

static void a_file_is_an_input(void **state)
{
    char path[] = "/tmp/test_matrix_market_XXXXXX";
    struct sparse_matrix matrix;
    struct tune_error err = {.code = TUNE_OK};
    (void)state;
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    fputs(GENERAL "2 3 1\n2 3 1\n", file);
    fclose(file);
    assert_int_equal(sparse_make(path, &matrix, &err), 0);
    assert_int_equal(matrix.columns_of[0], 2);
    sparse_finish(&matrix);
    remove(path);
    assert_int_equal(sparse_make(path, &matrix, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(general_matrices_are_read_in_any_order),
        cmocka_unit_test(symmetric_matrices_get_their_upper_half),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(long_lines_and_zero_bytes_are_refused),
        cmocka_unit_test(a_file_is_an_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
