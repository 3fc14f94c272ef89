/* Sweeps of inputs that are named: made by the worker, read from a file, kept over a restart. */
#include "harness.h"

#include <sys/wait.h>
#include <unistd.h>

/* Row sums of a matrix: small integers, so that any order of adding gives the same. TAG only makes
 * each configuration code of its own; no dim COLUMNS would make a graph of it. */
static void write_row_sums(struct harness *harness)
{
    harness_write(harness, "plugins/row_sums/row_sums.cu", "%s",
        "#ifndef TAG\n#define TAG 0\n#endif\n"
        "#if TUNE_REFERENCE\n#define NAME reference\n#else\n#define NAME row_sums\n#endif\n"
        "extern \"C\" __global__ void NAME(const int *offsets, const int *columns,\n"
        "    const long long *longest, const float *x, float *y, long long rows)\n"
        "{\n"
        "    long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "    if (row >= rows)\n        return;\n"
        "    float sum = row == *longest ? 1.0f : 0.0f;\n"
        "    for (int i = offsets[row]; i < offsets[row + 1]; i++)\n"
        "        sum += x[columns[i]];\n"
        "    y[row] = sum;\n"
        "    if (rows < -TAG)\n        y[0] = TAG; // never: makes each TAG code of its own\n"
        "}\n");
#define ARGS                                                                                       \
    "[{\"buffer\": \"offsets\"}, {\"buffer\": \"columns\"}, {\"buffer\": \"longest\"}, "           \
    "{\"buffer\": \"x\"}, {\"buffer\": \"%s\"}, {\"scalar\": \"i64\", \"value\": \"ROWS\"}]"
#define IN(name, dtype, count, fill)                                                               \
    "{\"name\": \"" name "\", \"dtype\": \"" dtype "\", \"count\": \"" count                       \
    "\", \"fill\": \"" fill "\", \"role\": \"in\"}, "
    harness_write(harness, "plugins/row_sums/row_sums.json",
        "{\"tunerd\": 1, \"name\": \"row_sums\", \"summary\": \"y = A x of ones\", "
        "\"source\": \"row_sums.cu\",\n"
        " \"dims\": [{\"name\": \"ROWS\", \"meaning\": \"rows\"}, "
        "{\"name\": \"COLUMNS\", \"meaning\": \"columns\"}, "
        "{\"name\": \"NONZEROS\", \"meaning\": \"entries\"}, "
        "{\"name\": \"LONGEST\", \"meaning\": \"of the longest row\"}, "
        "{\"name\": \"WAY\", \"meaning\": \"a choice\", \"values\": [{\"value\": 1, "
        "\"name\": \"one\"}, {\"value\": 2, \"name\": \"two\"}]}],\n"
        " \"shapes\": [{\"ROWS\": 50, \"COLUMNS\": 60, \"NONZEROS\": 200, \"LONGEST\": 9}],\n"
        " \"dtypes\": [\"f32\"],\n"
        " \"params\": [{\"name\": \"TAG\", \"meaning\": \"nothing\", \"values\": [0,1,2,3]}],\n"
        " \"derived\": [], \"constraints\": [],\n"
        " \"buffers\": [" IN("offsets", "i32", "ROWS + 1", "csr_offsets") IN("columns", "i32",
            "NONZEROS", "csr_columns") IN("longest", "i64", "1", "csr_longest_row") IN("x", "f32",
            "COLUMNS", "small_int") "{\"name\": \"y\", \"dtype\": \"f32\", \"count\": \"ROWS\", "
                                    "\"role\": \"out\"}],\n"
                                    " \"launches\": [{\"entry\": \"row_sums\", \"grid\": "
                                    "[\"ceildiv(ROWS, 32)\"], "
                                    "\"block\": [32], \"args\": " ARGS "}],\n"
                                    " \"reference\": {\"defines\": {\"TUNE_REFERENCE\": 1}, "
                                    "\"buffers\": [{\"name\": "
                                    "\"y_ref\", \"dtype\": \"f32\", \"count\": \"ROWS\", \"role\": "
                                    "\"scratch\"}],\n"
                                    "  \"launches\": [{\"entry\": \"reference\", \"grid\": "
                                    "[\"ceildiv(ROWS, 32)\"], "
                                    "\"block\": [32], \"args\": " ARGS "}]},\n"
                                    " \"checks\": [{\"buffer\": \"y\", \"reference\": \"y_ref\", "
                                    "\"derivation\": \"sums of "
                                    "small integers are exact\", \"tolerance\": {\"factor\": 0, "
                                    "\"unit\": \"exact\"}}],\n"
                                    " \"default\": {\"TAG\": 0}, \"flops\": \"NONZEROS\", "
                                    "\"bytes\": \"8 * NONZEROS\"}\n",
        "y", "y_ref");
}

static struct harness *start(const char *scenario)
{
    struct harness *harness = harness_new();
    write_row_sums(harness);
    if (scenario != NULL)
        harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

static json_t *shape_json(int rows, int columns, int nonzeros, int longest)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "ROWS", rows, "COLUMNS", columns, "NONZEROS", nonzeros,
        "LONGEST", longest);
}

/* One shape and its input; NULL: none. */
static json_t *params_of(json_t *shape, const char *input)
{
    json_t *params = sweep_params("row_sums");
    json_object_set_new(params, "shapes", json_pack("[o]", shape));
    json_object_set_new(params, "inputs", json_pack("[s?]", input));
    return params;
}

static void write_matrix(struct harness *harness, char *path, size_t room)
{
    harness_write(harness, "three.mtx", "%s",
        "%%MatrixMarket matrix coordinate real general\n3 4 5\n1 1 2\n1 2 3\n3 4 1\n3 1 1\n1 4 "
        "9\n");
    snprintf(path, room, "%s/three.mtx", harness->folder);
}

static void without_an_input_the_matrix_follows_from_the_shape(void)
{
    struct harness *harness = start(NULL);
    json_t *result = sweep_result(harness, params_of(shape_json(50, 60, 200, 9), NULL));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_null(json_object_get(result, "input"));
    json_decref(result);
}

static void an_input_is_made_or_read_and_told(void)
{
    struct harness *harness = start(NULL);
    char path[160];
    static const char made[] = "random:rows=50,per_row=4,columns=60";
    json_t *result = sweep_result(harness, params_of(shape_json(50, 60, 200, 4), made));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_string_equal(text_at(result, "input"), made);
    json_decref(result);
    write_matrix(harness, path, sizeof path);
    result = sweep_result(harness, params_of(shape_json(3, 4, 5, 3), path));
    assert_int_equal(count_of(result, "ok"), 4);
    assert_string_equal(text_at(result, "input"), path);
    json_decref(result);
}

static void an_input_of_another_shape_fails_the_sweep_with_a_sentence(void)
{
    struct harness *harness = start(NULL);
    struct job_name job = sweep(
        harness, params_of(shape_json(50, 60, 200, 5), "random:rows=50,per_row=4,columns=60"));
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "failed");
    assert_non_null(strstr(
        text_at(ended, "error"), "is not of this shape: its LONGEST is 4, that of the shape 5"));
    json_decref(ended);
}

static void what_is_no_input_is_refused_at_once(void)
{
    struct harness *harness = start(NULL);
    json_t *params = params_of(shape_json(50, 60, 200, 4), "m.mtx");
    assert_non_null(strstr(ask_fail(harness, "sweep", params, TUNE_EINVAL), "must begin with /"));
    params = params_of(shape_json(50, 60, 200, 4), NULL);
    json_array_append_new(json_object_get(params, "inputs"), json_null());
    assert_non_null(
        strstr(ask_fail(harness, "sweep", params, TUNE_EINVAL), "2 inputs for 1 shapes"));
    params = params_of(shape_json(50, 60, 200, 4), NULL);
    json_object_set_new(params, "inputs", json_pack("[i]", 7));
    ask_fail(harness, "sweep", params, TUNE_EINVAL);
    params = sweep_params("transpose");
    json_object_set_new(params, "shapes", json_pack("[{s:i, s:i}]", "M", 8, "N", 8));
    json_object_set_new(params, "inputs", json_pack("[s]", "grid:side=3"));
    assert_non_null(strstr(ask_fail(harness, "sweep", params, TUNE_EINVAL), "takes no matrix"));
}

struct wait_for_first {
    struct harness *harness;
    const char *job;
};

static bool has_begun(void *context)
{
    struct wait_for_first *wait = context;
    json_t *job = ask(wait->harness, "jobs", json_pack("{s:s}", "job", wait->job));
    bool is_there = number_at(job, "done") >= 1;
    json_decref(job);
    return is_there;
}

static void a_job_goes_on_with_its_input_after_a_kill(void)
{
    struct harness *harness = start(
        "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 50}]}");
    static const char made[] = "random:rows=50,per_row=4,columns=60";
    struct job_name job = sweep(harness, params_of(shape_json(50, 60, 200, 4), made));
    struct wait_for_first wait = {harness, job.text};
    wait_for(has_begun, &wait, LIMIT_MS);
    harness_kill(harness);
    harness_start(harness);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_t *result = json_array_get(json_object_get(ended, "results"), 0);
    assert_string_equal(text_at(result, "input"), made);
    assert_int_equal(count_of(result, "ok"), 4);
    json_decref(ended);
}

/* --- tunectl ---------------------------------------------------------------------------------- */

/* Runs `tunectl --socket ... sweep row_sums ARGS` in the harness's folder; its status, and what it
 * printed. */
static int run_tunectl(struct harness *harness, const char *args, char *output, size_t room)
{
    char command[1024];
    size_t used = 0, got;
    snprintf(command, sizeof command, "cd %s && %s/bin/tunectl --socket %s sweep row_sums %s 2>&1",
        harness->folder, build_folder(), harness->socket, args);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while ((got = fread(output + used, 1, room - 1 - used, pipe)) > 0)
        used += got;
    output[used] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void assert_says(const char *output, const char *part)
{
    if (strstr(output, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", output, part);
}

static void tunectl_takes_the_shape_from_the_input(void)
{
    struct harness *harness = start(NULL);
    char output[8192], path[160];
    write_matrix(harness, path, sizeof path);
    assert_int_equal(
        run_tunectl(harness, "--input three.mtx --input random:rows=9,per_row=2 --shape WAY=two",
            output, sizeof output),
        0);
    assert_says(output, "ROWS=3 COLUMNS=4 NONZEROS=5 LONGEST=3 WAY=two");
    assert_says(output, path);
    assert_says(output, "ROWS=9 COLUMNS=9 NONZEROS=18 LONGEST=2 WAY=two");
    assert_says(output, "random:rows=9,per_row=2");
}

static void tunectl_refuses_what_is_no_input(void)
{
    struct harness *harness = start(NULL);
    char output[8192];
    assert_int_not_equal(
        run_tunectl(harness, "--input random:rows=2,per_row=3", output, sizeof output), 0);
    assert_says(output, "3 entries per row do not fit into 2 columns");
    assert_int_not_equal(run_tunectl(harness, "--input none.mtx", output, sizeof output), 0);
    assert_says(output, "none.mtx: No such file");
    assert_int_not_equal(
        run_tunectl(harness, "--input grid:side=2 --shape ROWS=4", output, sizeof output), 0);
    assert_says(output, "ROWS follows from the input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(without_an_input_the_matrix_follows_from_the_shape),
        HARNESS_TEST(an_input_is_made_or_read_and_told),
        HARNESS_TEST(an_input_of_another_shape_fails_the_sweep_with_a_sentence),
        HARNESS_TEST(what_is_no_input_is_refused_at_once),
        HARNESS_TEST(a_job_goes_on_with_its_input_after_a_kill),
        HARNESS_TEST(tunectl_takes_the_shape_from_the_input),
        HARNESS_TEST(tunectl_refuses_what_is_no_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
