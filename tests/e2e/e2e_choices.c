/* A kernel whose problem has a choice, whole: swept by name, verified against a reference that gets
 * the choice too, served to who asks by name, by value or not at all, and never for another one. */
#include "harness.h"

#include "client/tune.h"

/* OP is shift (y = x + by) or scale (y = x * by), `by` a constant; f16 comes out as f32. */
static void write_fold(struct harness *harness)
{
    harness_write(harness, "plugins/fold/fold.cu",
        "#include <cuda_fp16.h>\n"
        "#if TUNE_REFERENCE\n"
        "extern \"C\" __global__ void reference(const TUNE_T *x, const float *by, double *y, int "
        "n)\n"
        "{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = OP == 1 ? (float)x[i] + *by : (float)x[i] * *by;\n}\n"
        "#else\n"
        "extern \"C\" { __constant__ float step; }\n"
        "extern \"C\" __global__ void fold(const TUNE_T *x, float *y, int n)\n"
        "{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = TAG == 3 || OP == 1 ? (float)x[i] + step : (float)x[i] * step;\n}\n"
        "#endif\n");
    harness_write(harness, "plugins/fold/fold.json",
        "{\"tunerd\": 1, \"name\": \"fold\", \"summary\": \"y = x + by or x * by\",\n"
        " \"dims\": [{\"name\": \"N\", \"meaning\": \"elements\"},\n"
        "  {\"name\": \"OP\", \"meaning\": \"what is done\", \"values\":\n"
        "   [{\"value\": 1, \"name\": \"shift\"}, {\"value\": 2, \"name\": \"scale\"}]}],\n"
        " \"compile_dims\": [\"OP\"], \"shapes\": [{\"N\": 64}, {\"N\": 64, \"OP\": \"scale\"}],\n"
        " \"dtypes\": [\"f32\", \"f16\"],\n"
        " \"params\": [{\"name\": \"TAG\", \"meaning\": \"3 shifts always\", \"values\": [0, 1, 2, "
        "3]}],\n"
        " \"buffers\": [{\"name\": \"x\", \"dtype\": \"T\", \"count\": \"N\", \"fill\": "
        "{\"below\": \"8 * OP\"},\n"
        "   \"role\": \"in\"},\n"
        "  {\"name\": \"by\", \"dtype\": \"f32\", \"count\": 1, \"fill\": {\"value\": 3}, "
        "\"role\": \"in\"},\n"
        "  {\"name\": \"y\", \"dtype\": {\"f32\": \"f32\", \"f16\": \"f32\"}, \"count\": \"N\", "
        "\"role\": "
        "\"out\"}],\n"
        " \"launches\": [{\"constant\": \"step\", \"buffer\": \"by\"},\n"
        "  {\"entry\": \"fold\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": [32],\n"
        "   \"args\": [{\"buffer\": \"x\"}, {\"buffer\": \"y\"}, {\"scalar\": \"i32\", \"value\": "
        "\"N\"}]}],\n"
        " \"reference\": {\"defines\": {\"TUNE_REFERENCE\": 1},\n"
        "  \"buffers\": [{\"name\": \"r\", \"dtype\": \"f64\", \"count\": \"N\", \"role\": "
        "\"out\"}],\n"
        "  \"launches\": [{\"entry\": \"reference\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": "
        "[32],\n"
        "   \"args\": [{\"buffer\": \"x\"}, {\"buffer\": \"by\"}, {\"buffer\": \"r\"}, "
        "{\"scalar\": \"i32\", "
        "\"value\": \"N\"}]}]},\n"
        " \"checks\": [{\"buffer\": \"y\", \"reference\": \"r\", \"derivation\": \"small "
        "integers\",\n"
        "  \"tolerance\": {\"unit\": \"exact\"}}],\n"
        " \"default\": {\"TAG\": 0}}\n");
}

/* TAG 1 wins where it shifts, TAG 2 where it scales. */
static struct harness *start_fold(void)
{
    struct harness *harness = harness_new();
    write_fold(harness);
    harness_scenario(harness,
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 1, \"OP\": 1}}, \"do\": "
        "\"time_ns\", \"value\": 50000},"
        "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 2, \"OP\": 2}}, \"do\": "
        "\"time_ns\", \"value\": 50000}]}");
    harness_start(harness);
    return harness;
}

/* Takes the shape. */
static json_t *sweep_of(struct harness *harness, json_t *shape, const char *dtype)
{
    json_t *params = sweep_params("fold");
    json_object_set_new(params, "shapes", json_pack("[o]", shape));
    json_object_set_new(params, "dtype", json_string(dtype));
    return sweep_result(harness, params);
}

/* Takes the shape; the answer must be of this origin and TAG. */
static void expect_get(struct harness *harness, json_t *shape, const char *origin, int tag)
{
    json_t *answer = ask(harness, "get", json_pack("{s:s, s:o}", "kernel", "fold", "shape", shape));
    if (strcmp(text_at(answer, "origin"), origin) != 0 || number_at(answer, "config.TAG") != tag)
        fail_msg("not %s of TAG %d, but %s of TAG %g", origin, tag, text_at(answer, "origin"),
            number_at(answer, "config.TAG"));
    json_decref(answer);
}

static json_t *shape_of(int n, const char *op)
{
    return json_pack("{s:i, s:s*}", "N", n, "OP", op);
}

static void a_choice_is_swept_and_served_by_its_name(void)
{
    struct harness *harness = start_fold();
    json_t *result = sweep_of(harness, shape_of(64, "scale"), "f32");
    assert_int_equal(number_at(result, "shape.OP"), 2);
    assert_string_equal(text_at(result, "choices.OP"), "scale");
    assert_int_equal(number_at(result, "best.config.TAG"), 2);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_int_equal(count_of(result, "wrong_result"), 1); /* the one that shifts always */
    json_decref(result);
    expect_get(harness, shape_of(64, "scale"), "exact", 2);
    expect_get(harness, json_pack("{s:i, s:i}", "N", 64, "OP", 2), "exact", 2);
    expect_get(harness, shape_of(100, "scale"), "nearest", 2);
    expect_get(harness, shape_of(64, "shift"), "default", 0);
    expect_get(harness, shape_of(64, NULL), "default", 0);
    result = sweep_of(harness, shape_of(4096, NULL), "f16");
    assert_string_equal(text_at(result, "choices.OP"), "shift");
    assert_int_equal(count_of(result, "ok"), 4);
    json_decref(result);
    result = sweep_of(harness, shape_of(4096, NULL), "f32");
    json_decref(result);
    expect_get(harness, shape_of(64, NULL), "nearest", 1);
    expect_get(harness, shape_of(4096, "scale"), "nearest", 2);
    const char *sentence = ask_fail(harness, "get",
        json_pack("{s:s, s:o}", "kernel", "fold", "shape", shape_of(64, "turn")), TUNE_EINVAL);
    assert_non_null(
        strstr(sentence, "\"turn\" is not a value of dimension OP; it takes shift, scale"));
}

/* The manifest's own shapes name one choice and leave it out in another. */
static void the_shapes_of_the_manifest_are_of_both_choices(void)
{
    struct harness *harness = start_fold();
    struct job_name job = sweep(harness, sweep_params("fold"));
    json_t *done = wait_job(harness, job);
    const json_t *results = at(done, "results");
    assert_int_equal(json_array_size(results), 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(number_at(json_array_get(results, i), "best.config.TAG"), i + 1);
    json_decref(done);
    json_t *rows = records_of(harness, job.text);
    size_t i, named = 0;
    json_t *row;
    json_array_foreach (rows, i, row) {
        const char *name = number_at(row, "shape.OP") == 2 ? "scale" : "shift";
        named += strcmp(text_at(row, "choices.OP"), name) == 0;
    }
    assert_true(named > 0 && named == json_array_size(rows));
    json_decref(rows);
}

static void expect_tag(struct tune *tune, const struct tune_query *query, int64_t expected)
{
    struct tune_answer answer;
    struct tune_error err = {0};
    int64_t tag = -1;
    if (tune_get(tune, query, &answer, &err))
        fail_msg("%s", err.text);
    assert_int_equal(tune_answer_param(&answer, "TAG", &tag, NULL), 0);
    assert_int_equal(tag, expected);
}

/* By libtune, from the published answers and, where these do not know the question, the socket. */
static void programs_may_leave_the_first_choice_out(void)
{
    struct harness *harness = start_fold();
    struct tune_error err = {0};
    struct tune *tune;
    json_decref(sweep_of(harness, shape_of(64, "shift"), "f32"));
    json_decref(sweep_of(harness, shape_of(64, "scale"), "f32"));
    assert_int_equal(tune_open(harness->socket, &tune, &err), 0);
    struct tune_dim dims[] = {{"N", 64}, {"OP", 2}};
    struct tune_query query = {.kernel = "fold", .dims = dims, .dim_count = 1};
    expect_tag(tune, &query, 1);
    query.dim_count = 2;
    expect_tag(tune, &query, 2);
    dims[1].value = 1;
    expect_tag(tune, &query, 1);
    tune_close(tune);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_choice_is_swept_and_served_by_its_name),
        HARNESS_TEST(the_shapes_of_the_manifest_are_of_both_choices),
        HARNESS_TEST(programs_may_leave_the_first_choice_out),
    };
    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
