/* Inputs that are made on the host: what lands in the buffers, and which files may be read. The
 * device is this process' own memory. */
#include "daemon/worker/harness.h"
#include "daemon/worker/inputs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS 40
#define NONZEROS 200
#define SEED 9

static unsigned copy_up(unsigned long long to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return ABI_SUCCESS;
}

static unsigned wait_for_copy(struct CUstream_st *stream)
{
    (void)stream;
    return ABI_SUCCESS;
}

static struct gpu gpu = {.api = {.cuMemcpyHtoD = copy_up, .cuStreamSynchronize = wait_for_copy}};

static struct inputs begin(const char *input, int64_t reader)
{
    struct inputs inputs;
    struct verdict verdict = {.outcome = NULL};
    json_t *request = json_object();
    if (input != NULL)
        json_object_set_new(request, "input", json_string(input));
    if (reader >= 0)
        json_object_set_new(request, "input_reader", json_integer(reader));
    assert_int_equal(inputs_init(&inputs, request, &verdict), 0);
    if (input != NULL)
        inputs.named = input; /* outlives the request */
    json_decref(request);
    return inputs;
}

static struct buffer buffer_of(const char *fill, const char *dtype, uint64_t count, void *at)
{
    struct buffer buffer = {.name = (char *)"b",
        .count = count,
        .pointer = (uintptr_t)at,
        .matrix.dims = {
            [SPARSE_ROWS] = ROWS, [SPARSE_COLUMNS] = ROWS, [SPARSE_NONZEROS] = NONZEROS}};
    assert_int_equal(harness_dtype(dtype, &buffer.dtype), 0);
    assert_int_equal(harness_fill_kind(fill, &buffer.fill), 0);
    buffer.bytes = count * (uint64_t)harness_dtype_bytes(buffer.dtype);
    return buffer;
}

static void fill(
    struct inputs *inputs, const char *word, const char *dtype, uint64_t count, void *at)
{
    struct verdict verdict = {.outcome = NULL};
    struct buffer buffer = buffer_of(word, dtype, count, at);
    if (!inputs_fill(inputs, &gpu, &buffer, SEED, 0, &verdict))
        fail_msg("%s", verdict.text);
}

static void assert_refused(
    struct inputs *inputs, const char *word, const char *dtype, uint64_t count, const char *part)
{
    int64_t room[NONZEROS + 1];
    struct verdict verdict = {.outcome = NULL};
    struct buffer buffer = buffer_of(word, dtype, count, room);
    assert_false(inputs_fill(inputs, &gpu, &buffer, SEED, 0, &verdict));
    assert_string_equal(verdict.outcome, "invalid");
    if (strstr(verdict.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", verdict.text, part);
    inputs_finish(inputs);
}

static void the_buffers_are_of_one_matrix(void **state)
{
    struct inputs inputs = begin(NULL, -1);
    int32_t narrow[ROWS + 1], columns[NONZEROS];
    int64_t wide[ROWS + 1], longest;
    struct sparse_description found;
    (void)state;
    fill(&inputs, "csr_columns", "i32", NONZEROS, columns);
    fill(&inputs, "csr_offsets", "i32", ROWS + 1, narrow);
    fill(&inputs, "csr_offsets", "i64", ROWS + 1, wide);
    fill(&inputs, "csr_longest_row", "i64", 1, &longest);
    for (int i = 0; i <= ROWS; i++)
        assert_int_equal(narrow[i], wide[i]);
    assert_int_equal(sparse_describe_csr(ROWS, ROWS, narrow, 4, columns, &found, NULL), 0);
    assert_int_equal(found.dims[SPARSE_NONZEROS], NONZEROS);
    assert_int_equal(wide[longest + 1] - wide[longest], found.dims[SPARSE_LONGEST]);
    inputs_finish(&inputs);
}

static void sorted_numbers_differ_by_buffer(void **state)
{
    struct inputs inputs = begin(NULL, -1);
    struct verdict verdict = {.outcome = NULL};
    uint32_t first[100], second[100];
    struct buffer a = buffer_of("sorted", "u32", 100, first);
    struct buffer b = buffer_of("sorted", "u32", 100, second);
    (void)state;
    assert_true(inputs_fill(&inputs, &gpu, &a, SEED, 0, &verdict));
    assert_true(inputs_fill(&inputs, &gpu, &b, SEED, 1, &verdict));
    assert_memory_not_equal(first, second, sizeof first);
    inputs_finish(&inputs);
}

static void other_fills_are_left_to_the_device(void **state)
{
    struct inputs inputs = begin(NULL, -1);
    struct verdict verdict = {.outcome = NULL};
    struct buffer buffer = buffer_of("uniform", "f32", 4, NULL);
    (void)state;
    assert_false(inputs_fill(&inputs, &gpu, &buffer, SEED, 0, &verdict));
    assert_null(verdict.outcome);
}

static void a_named_input_must_be_of_the_shape(void **state)
{
    struct inputs inputs = begin("random:rows=40,per_row=5", -1);
    int32_t columns[NONZEROS];
    (void)state;
    fill(&inputs, "csr_columns", "i32", NONZEROS, columns);
    inputs_finish(&inputs);
    inputs = begin("random:rows=40,per_row=4", -1);
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS,
        "the input random:rows=40,per_row=4 is not of this shape: its NONZEROS is 160, that of the "
        "shape 200");
    inputs = begin("random:rows=40,per_row=50", -1);
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS, "do not fit into 40 columns");
}

static void a_graph_has_its_edges_both_ways(void **state)
{
    struct verdict verdict = {.outcome = NULL};
    int32_t columns[NONZEROS];
    struct inputs inputs = begin("random:rows=40,per_row=5", -1);
    struct buffer buffer = buffer_of("csr_columns", "i32", NONZEROS, columns);
    buffer.matrix.dims[SPARSE_COLUMNS] = 0;
    (void)state;
    assert_false(inputs_fill(&inputs, &gpu, &buffer, SEED, 0, &verdict));
    assert_non_null(strstr(verdict.text, "edges one way only"));
    inputs_finish(&inputs);
}

static void buffers_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *fill, *dtype;
        uint64_t count;
    } cases[] = {{"csr_offsets", "i32", ROWS}, {"csr_offsets", "u8", ROWS + 1},
        {"csr_columns", "i64", NONZEROS}, {"csr_columns", "i32", NONZEROS - 1},
        {"csr_longest_row", "i64", 2}, {"csr_longest_row", "i32", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct inputs inputs = begin(NULL, -1);
        assert_refused(
            &inputs, cases[i].fill, cases[i].dtype, cases[i].count, "does not fit its matrix");
    }
}

/* --- who may read ----------------------------------------------------------------------------- */

#define STRANGER 54321 /* no user of this machine */

static void write_matrix(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("%%MatrixMarket matrix coordinate pattern general\n40 40 200\n", file);
    for (int i = 0; i < NONZEROS; i++)
        fprintf(file, "%d %d\n", i / 5 + 1, i % 5 + 1);
    fclose(file);
}

static void a_file_is_read_only_for_those_who_may(void **state)
{
    char folder[] = "/tmp/test_inputs_XXXXXX", path[64];
    int32_t columns[NONZEROS];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.mtx", folder);
    write_matrix(path);
    const struct {
        mode_t folder, file;
        int64_t reader;
        bool is_allowed;
    } cases[] = {{0755, 0644, STRANGER, true}, {0755, 0640, STRANGER, false},
        {0700, 0644, STRANGER, false}, {0711, 0604, STRANGER, true}, {0700, 0600, getuid(), true},
        {0700, 0600, -1, true}, {0700, 0600, 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct inputs inputs = begin(path, cases[i].reader);
        assert_int_equal(chmod(folder, cases[i].folder), 0);
        assert_int_equal(chmod(path, cases[i].file), 0);
        if (cases[i].is_allowed) {
            fill(&inputs, "csr_columns", "i32", NONZEROS, columns);
            inputs_finish(&inputs);
        } else {
            assert_refused(&inputs, "csr_columns", "i32", NONZEROS,
                "no such file, or the one who asks may not read it");
        }
    }
    struct inputs inputs = begin(folder, -1);
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS, "is no file");
    remove(path);
    inputs = begin(path, -1);
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS, "No such file");
    inputs = begin(path, STRANGER); /* as if it were there */
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS,
        "no such file, or the one who asks may not read it");
    assert_int_equal(mkfifo(path, 0644), 0); /* must not hold the worker */
    inputs = begin(path, -1);
    assert_refused(&inputs, "csr_columns", "i32", NONZEROS, "is no file");
    remove(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_buffers_are_of_one_matrix),
        cmocka_unit_test(sorted_numbers_differ_by_buffer),
        cmocka_unit_test(other_fills_are_left_to_the_device),
        cmocka_unit_test(a_named_input_must_be_of_the_shape),
        cmocka_unit_test(a_graph_has_its_edges_both_ways),
        cmocka_unit_test(buffers_that_do_not_fit_are_refused),
        cmocka_unit_test(a_file_is_read_only_for_those_who_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
