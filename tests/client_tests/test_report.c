/* The numbers of a report: what is counted against what, worked out by hand. */
#include "client/tunectl/report.h"

#include "plugins/manifest.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE 1e-12

/* --- samples and what becomes of them --------------------------------------------------------- */

/* A text that stays valid until the 64th call after. */
static const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *format, ...)
{
    static char texts[64][64];
    static unsigned next;
    char *room = texts[next++ % 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(room, sizeof texts[0], format, arguments);
    va_end(arguments);
    return room;
}

static int64_t clock_ms = 1000;

/* A confirmed, ok row of shape M and configuration "A=a,B=b", later than those made before. */
static struct sample row(int m, int a, int b, double median_ns)
{
    return (struct sample){
        .key = {"gemm", "0123456789abcdef0123456789abcdef", text("M=%d", m), "f32", "sm_90",
            "cold"},
        .config = text("A=%d,B=%d", a, b),
        .gpu_uuid = "GPU-1",
        .gpu_name = "NVIDIA H200",
        .run = "7/confirm",
        .outcome = OUTCOME_OK,
        .is_final = true,
        .is_confirmed = true,
        .attempts = 1,
        .method = "event",
        .median_ns = median_ns,
        .lo_ns = median_ns * 0.99,
        .hi_ns = median_ns * 1.01,
        .time_unix_ms = clock_ms++,
    };
}

static struct sample failed(int m, int a, int b, enum outcome outcome, const char *detail)
{
    struct sample sample = row(m, a, b, 0);
    sample.outcome = outcome;
    sample.detail = detail;
    sample.is_confirmed = false;
    return sample;
}

static const struct manifest *known_manifest;
static json_t *known_limits;

static const struct manifest *manifest_of(
    const char *kernel, const char *fingerprint, void *context)
{
    (void)context;
    return strcmp(kernel, "gemm") == 0 && fingerprint[0] == '0' ? known_manifest : NULL;
}

static json_t *limits_of(const char *gpu_name, void *context)
{
    (void)context;
    return strcmp(gpu_name, "NVIDIA H200") == 0 ? json_incref(known_limits) : NULL;
}

static json_t *model; /* of the last call; freed by the teardown */

static int forget_model(void **state)
{
    (void)state;
    json_decref(model);
    model = NULL;
    return 0;
}

static size_t model_of(const struct sample *samples, size_t count)
{
    struct report *report = report_create();
    for (size_t i = 0; i < count; i++)
        report_add(report, &samples[i]);
    forget_model(NULL);
    model = report_model(report, manifest_of, limits_of, NULL);
    report_destroy(report);
    return json_array_size(json_object_get(model, "groups"));
}

#define MODEL(...)                                                                                 \
    model_of((struct sample[]){__VA_ARGS__},                                                       \
        sizeof((struct sample[]){__VA_ARGS__}) / sizeof(struct sample))

/* A value of the model by its way through members and indices: "groups/0/rows/shape". */
static json_t *at(const char *way)
{
    json_t *value = model;
    char *copy = strdup(way), *rest = copy, *step;
    while ((step = strsep(&rest, "/")) != NULL)
        value = json_is_array(value) ? json_array_get(value, strtoul(step, NULL, 10))
                                     : json_object_get(value, step);
    free(copy);
    if (value == NULL)
        fail_msg("the model has no %s", way);
    return value;
}

static void assert_json(const char *way, const char *expected)
{
    char *found = json_dumps(
        at(way), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
    if (strcmp(found, expected) != 0)
        fail_msg("%s is %s, not %s", way, found, expected);
    free(found);
}

static void assert_near(const char *way, double expected)
{
    double found = json_number_value(at(way));
    if (!(fabs(found - expected) <= 1e-5 * fabs(expected) + 1e-12))
        fail_msg("%s is %g, not %g", way, found, expected);
}

/* --- importance ------------------------------------------------------------------------------- */

#define GRID (4 * 3)

/* log(time) = 0.3 a + 0.5 b over all pairs of a < 4 and b < 3, with c somewhere between. */
static void fill_grid(double *times, int64_t (*values)[3], double a, double b)
{
    for (int i = 0; i < GRID; i++) {
        values[i][0] = i / 3;
        values[i][1] = 16 << i % 3;
        values[i][2] = 5;
        times[i] = 1000 * exp(a * (i / 3) + b * (i % 3));
    }
}

static void an_additive_model_is_shared_out_exactly(void **state)
{
    (void)state;
    double times[GRID], shares[3], rest;
    int64_t values[GRID][3];
    fill_grid(times, values, 0.3, 0.5);
    report_importance(times, &values[0][0], GRID, 3, shares, &rest);
    double of_a = 0.3 * 0.3 * 1.25, of_b = 0.5 * 0.5 * 2 / 3; /* variances of 0..3 and of 0..2 */
    assert_true(fabs(shares[0] - of_a / (of_a + of_b)) < CLOSE);
    assert_true(fabs(shares[1] - of_b / (of_a + of_b)) < CLOSE);
    assert_true(shares[2] == 0);
    assert_true(fabs(rest) < CLOSE);
}

static void a_parameter_without_effect_has_no_share(void **state)
{
    (void)state;
    double times[GRID], shares[3], rest;
    int64_t values[GRID][3];
    fill_grid(times, values, 0, 0.5);
    report_importance(times, &values[0][0], GRID, 3, shares, &rest);
    assert_true(fabs(shares[0]) < CLOSE);
    assert_true(fabs(shares[1] - 1) < CLOSE);
}

static void what_only_two_parameters_together_explain_is_the_rest(void **state)
{
    (void)state;
    const double times[] = {100, 200, 200, 100};
    const int64_t values[] = {0, 0, 0, 1, 1, 0, 1, 1};
    double shares[2], rest;
    report_importance(times, values, 4, 2, shares, &rest);
    assert_true(fabs(shares[0]) < CLOSE && fabs(shares[1]) < CLOSE);
    assert_true(fabs(rest - 1) < CLOSE);
}

static void equal_times_give_importance_to_nothing(void **state)
{
    (void)state;
    double times[GRID], shares[3], rest;
    int64_t values[GRID][3];
    fill_grid(times, values, 0, 0);
    report_importance(times, &values[0][0], GRID, 3, shares, &rest);
    assert_true(shares[0] == 0 && shares[1] == 0 && shares[2] == 0 && rest == 0);
}

static void importance_is_told_for_shapes_with_eight_times_and_for_all_together(void **state)
{
    (void)state;
    struct sample samples[11];
    for (int i = 0; i < 8; i++)
        samples[i] = row(64, i % 4, i / 4, 1000 * exp(i % 4));
    for (int i = 0; i < 3; i++)
        samples[8 + i] = row(128, i, 0, 5000 * exp(i));
    assert_int_equal(model_of(samples, 11), 1);
    assert_int_equal(json_array_size(at("groups/0/importance")), 2);
    /* Of all: log ratios 0..3 twice and 0..2; squares in all 33 - 15^2 / 11, between the values of
     * B 7 (9/7 - 15/11)^2 + 4 (3/2 - 15/11)^2. */
    assert_json("groups/0/importance/0", "{\"rest\":0,\"rows\":11,\"shape\":null,\"shares\":[1,"
                                         "0.00931677]}");
    assert_json("groups/0/importance/1", "{\"rest\":0,\"rows\":8,\"shape\":0,\"shares\":[1,0]}");
}

/* --- loss ------------------------------------------------------------------------------------- */

static void the_loss_is_each_configurations_time_by_the_best(void **state)
{
    (void)state;
    MODEL(row(64, 1, 0, 1000), row(64, 2, 0, 1500), row(64, 3, 0, 1100), row(128, 1, 0, 4000),
        row(128, 2, 0, 2000), row(128, 3, 0, 2200), row(128, 4, 0, 9000));
    assert_json("groups/0/configs", "[[1,0],[2,0],[3,0],[4,0]]");
    assert_json("groups/0/loss/configs", "[2,1,0]"); /* the fourth is best nowhere */
    assert_json("groups/0/loss/matrix", "[[0.1,0.1],[0.5,0],[0,1]]");
    assert_json("groups/0/loss/worst", "[0.1,0.5,1]");
    assert_near("groups/0/loss/mean/0", 0.1);
    assert_near("groups/0/loss/mean/1", sqrt(1.5) - 1);
}

static void a_configuration_that_lacks_a_shape_comes_after_those_that_lack_none(void **state)
{
    (void)state;
    MODEL(row(64, 1, 0, 1000), row(64, 2, 0, 1500), row(128, 2, 0, 2000));
    assert_json("groups/0/loss/configs", "[1,0]");
    assert_json("groups/0/loss/matrix", "[[0.5,0],[0,null]]");
}

static void a_search_that_was_luckier_than_the_confirmed_best_is_no_gain(void **state)
{
    (void)state;
    struct sample lucky = row(64, 2, 0, 900);
    lucky.is_confirmed = false;
    MODEL(row(64, 1, 0, 1000), lucky);
    assert_json("groups/0/loss/matrix", "[[0],[0]]");
}

static void a_matrix_has_no_more_rows_than_a_person_reads(void **state)
{
    (void)state;
    struct sample samples[40];
    for (int i = 0; i < 40; i++)
        samples[i] = row(64, i, 0, 1000 + i);
    model_of(samples, 40);
    assert_int_equal(json_array_size(at("groups/0/loss/configs")), 24);
    assert_json("groups/0/loss/configs/0", "0");
    assert_json("groups/0/loss/configs/23", "23");
}

/* --- shapes ----------------------------------------------------------------------------------- */

static void best_ties_and_default_are_those_of_the_database(void **state)
{
    (void)state;
    struct sample standard = row(64, 4, 0, 1500);
    standard.is_default = true;
    MODEL(row(64, 1, 0, 1000), row(64, 2, 0, 1010), row(64, 3, 0, 1100), standard);
    assert_json("groups/0/shapes/0", "{\"best\":0,\"bytes\":0,\"default\":3,\"flops\":0,\"label\":"
                                     "\"M=64\",\"method\":\"event\",\"shape\":{\"M\":64},\"ties\":"
                                     "[1]}");
}

static void shapes_and_configurations_stand_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    MODEL(row(1024, 16, 0, 100000), row(64, 128, 0, 1000), row(128, 9, 2, 2000));
    assert_json("groups/0/shapes/0/label", "\"M=64\"");
    assert_json("groups/0/shapes/1/label", "\"M=128\"");
    assert_json("groups/0/shapes/2/label", "\"M=1024\"");
    assert_json("groups/0/configs", "[[9,2],[16,0],[128,0]]");
}

/* --- what is used ----------------------------------------------------------------------------- */

static void times_of_another_method_than_the_bests_are_set_aside(void **state)
{
    (void)state;
    struct sample other = row(64, 1, 0, 500);
    other.is_confirmed = false;
    other.method = "graph";
    MODEL(other, row(64, 2, 0, 1000));
    assert_json("groups/0/rows/median_ns", "[1000]");
    assert_json("groups/0/provenance/set_aside", "1");
    assert_json("groups/0/shapes/0/method", "\"event\"");
}

static void rows_that_are_refused_or_not_final_or_impossible_are_set_aside(void **state)
{
    (void)state;
    struct sample refused = row(64, 1, 0, 800), first_crash = failed(64, 2, 0, OUTCOME_CRASHED, "");
    refused.is_refused = true;
    first_crash.is_final = false;
    MODEL(refused, first_crash, row(64, 3, 0, 1), row(64, 4, 0, 1000));
    assert_json("groups/0/rows/median_ns", "[1000]");
    assert_json("groups/0/provenance/set_aside", "3");
}

static void of_one_configuration_each_run_has_its_row(void **state)
{
    (void)state;
    struct sample crashed = failed(64, 1, 0, OUTCOME_CRASHED, "once"), again = row(64, 1, 0, 1000);
    struct sample search = row(64, 1, 0, 1200);
    crashed.run = again.run;
    crashed.is_final = false;
    search.run = "7/search";
    search.is_confirmed = false;
    MODEL(crashed, again, search, again);
    assert_json("groups/0/rows/median_ns", "[1000,1200]");
    assert_json("groups/0/rows/run", "[0,1]");
    assert_json("groups/0/rows/confirmed", "[1,0]");
    assert_json("groups/0/rows/stands", "[1,0]");
    assert_json("groups/0/runs", "[\"7/confirm\",\"7/search\"]");
    assert_json("groups/0/provenance/set_aside", "0");
    assert_json("groups/0/loss/matrix", "[[0]]");
}

static void of_several_gpus_the_one_counts_on_which_a_configuration_is_best(void **state)
{
    (void)state;
    struct sample here = row(64, 2, 0, 1300), there = row(64, 2, 0, 1200);
    there.gpu_uuid = "GPU-2";
    MODEL(row(64, 1, 0, 1000), here, there);
    assert_int_equal(json_array_size(at("groups/0/rows/config")), 3);
    assert_json("groups/0/loss/matrix", "[[0],[0.2]]");
    here.time_unix_ms = there.time_unix_ms + 1;
    MODEL(row(64, 1, 0, 1000), here, there);
    assert_json("groups/0/rows/median_ns", "[1200,1300,1000]");
    assert_json("groups/0/rows/stands", "[1,0,1]");
}

static void a_time_whose_configuration_failed_since_does_not_stand(void **state)
{
    (void)state;
    struct sample best = row(64, 1, 0, 1000), fallen = row(64, 2, 0, 900);
    struct sample later = failed(64, 2, 0, OUTCOME_CRASHED, "later");
    later.run = "8/search";
    MODEL(best, fallen, later);
    assert_json("groups/0/rows/stands", "[1,0,0]");
    assert_json("groups/0/shapes/0/best", "0");
}

static void a_model_of_the_same_name_that_was_timed_otherwise_is_set_aside(void **state)
{
    (void)state;
    struct sample whole = row(64, 1, 0, 1000), part = row(64, 2, 0, 1200);
    whole.sms = 132;
    part.sms = 114;
    part.method = "graph";
    MODEL(whole, part);
    assert_json("groups/0/rows/median_ns", "[1000]");
    assert_json("groups/0/loss/matrix", "[[0]]");
}

static void an_idle_gpu_is_not_throttled(void **state)
{
    (void)state;
    struct sample idle = row(64, 1, 0, 1000), hot = row(64, 2, 0, 1000);
    idle.throttle_reasons = 1;
    hot.throttle_reasons = 0x21;
    MODEL(idle, hot, row(64, 3, 0, 1000));
    assert_json("groups/0/provenance/throttled", "1");
}

static void rows_of_other_parameters_than_the_rest_are_set_aside(void **state)
{
    (void)state;
    struct sample foreign = row(64, 1, 0, 900), broken = row(64, 1, 0, 900);
    foreign.config = "A=1,C=2";
    broken.config = "A=1,B=99999999999999999999";
    broken.run = "8/confirm";
    MODEL(row(64, 0, 0, 1000), foreign, broken);
    assert_json("groups/0/configs", "[[0,0]]");
    assert_json("groups/0/provenance/set_aside", "2");
}

static void each_text_of_a_kernel_is_a_group_and_the_fullest_comes_first(void **state)
{
    (void)state;
    struct sample old = row(64, 1, 0, 900);
    old.key.fingerprint = "00000000000000000000000000000000";
    assert_int_equal(MODEL(old, row(64, 1, 0, 1000), row(64, 2, 0, 1000)), 2);
    assert_json("groups/0/fingerprint", "\"0123456789abcdef0123456789abcdef\"");
    assert_json("groups/1/rows/median_ns", "[900]");
}

static void the_emulated_device_counts_when_it_is_alone(void **state)
{
    (void)state;
    struct sample emulated = row(64, 1, 0, 5);
    emulated.key.arch = "cpu";
    assert_int_equal(MODEL(emulated, row(64, 1, 0, 1000)), 1);
    assert_json("groups/0/arch", "\"sm_90\"");
    assert_int_equal(MODEL(emulated), 1);
    assert_json("groups/0/arch", "\"cpu\"");
}

static void nothing_and_nothing_usable_make_no_group(void **state)
{
    (void)state;
    struct sample refused = row(64, 1, 0, 1000);
    refused.is_refused = true;
    assert_int_equal(model_of(NULL, 0), 0);
    assert_int_equal(MODEL(refused), 0);
}

/* --- rows ------------------------------------------------------------------------------------- */

static void rows_stand_in_the_order_of_time_and_tell_it_from_the_first(void **state)
{
    (void)state;
    struct sample late = row(64, 1, 0, 1000.25), early = row(64, 2, 0, 1234567), never = early;
    late.time_unix_ms = 1796075037846;
    early.time_unix_ms = 1796075037746;
    never.config = "A=3,B=0";
    never.time_unix_ms = 0;
    MODEL(late, early, never);
    assert_json("groups/0/rows/time_ms", "[null,0,100]");
    assert_json("groups/0/rows/median_ns", "[1234570,1234570,1000.25]"); /* six digits */
    assert_json("groups/0/provenance/first_unix_ms", "1796075037746");
    assert_json("groups/0/provenance/last_unix_ms", "1796075037846");
}

static void a_failure_has_a_reason_and_no_time(void **state)
{
    (void)state;
    struct sample good = row(64, 1, 0, 1000);
    struct sample bad = failed(64, 2, 0, OUTCOME_WRONG_RESULT, "12 values differ");
    good.detail = "a remark, no reason";
    bad.median_ns = 3; /* nonsense of a foreign file */
    MODEL(good, bad);
    assert_json("groups/0/outcomes/0", "\"ok\"");
    assert_json("groups/0/rows/outcome", "[0,5]");
    assert_json("groups/0/outcomes/5", "\"wrong_result\"");
    assert_json("groups/0/rows/median_ns", "[1000,null]");
    assert_json("groups/0/rows/detail", "[\"\",\"12 values differ\"]");
}

static void a_long_reason_is_cut_between_characters(void **state)
{
    (void)state;
    char reason[301] = "a";
    for (size_t i = 1; i < 299; i += 2)
        memcpy(reason + i, "\xC3\xBC", 2);
    MODEL(failed(64, 2, 0, OUTCOME_TIMEOUT, reason));
    const char *kept = json_string_value(at("groups/0/rows/detail/0"));
    assert_int_equal(strlen(kept), 199);
    assert_int_equal(strncmp(kept, reason, 199), 0);
}

static void failures_alone_are_rows_without_a_best(void **state)
{
    (void)state;
    struct sample first = failed(64, 1, 0, OUTCOME_TIMEOUT, "slow");
    struct sample second = failed(64, 2, 0, OUTCOME_CRASHED, "signal 11");
    assert_int_equal(MODEL(first, second), 1);
    assert_json("groups/0/shapes/0/best", "null");
    assert_json("groups/0/shapes/0/ties", "[]");
    assert_json("groups/0/rows/detail", "[\"slow\",\"signal 11\"]");
    assert_json("groups/0/importance", "[]");
    assert_json("groups/0/loss", "{\"configs\":[],\"matrix\":[],\"mean\":[],\"worst\":[]}");
    assert_json("groups/0/provenance/ok", "0");
}

static void one_row_is_a_report(void **state)
{
    (void)state;
    struct sample only = row(64, 1, 2, 1000);
    only.host = "node-1";
    only.nvrtc = "13.0";
    only.driver = 12080;
    only.throttle_reasons = 4;
    MODEL(only);
    assert_json("groups/0/params",
        "[{\"meaning\":null,\"name\":\"A\",\"names\":{}},{\"meaning\":null,\"name\":\"B\","
        "\"names\":{}}]");
    assert_json("groups/0/summary", "null");
    assert_json("groups/0/rows/requested_bytes", "[null]");
    assert_json("groups/0/provenance/hosts", "[\"node-1\"]");
    assert_json("groups/0/provenance/drivers", "[\"12.8\"]");
    assert_json("groups/0/provenance/throttled", "1");
    assert_json("groups/0/loss/worst", "[0]");
}

static void twenty_thousand_rows_are_all_there(void **state)
{
    (void)state;
    struct sample *samples = calloc(20000, sizeof *samples);
    char(*configs)[32] = calloc(20000, sizeof *configs);
    for (int i = 0; i < 20000; i++) {
        samples[i] = row(64, 0, 0, 1000 + (i * 7919) % 20000);
        snprintf(configs[i], sizeof configs[i], "A=%d,B=%d", i / 100, i % 100);
        samples[i].config = configs[i];
        samples[i].key.shape = "M=64";
    }
    assert_int_equal(model_of(samples, 20000), 1);
    assert_int_equal(json_array_size(at("groups/0/rows/median_ns")), 20000);
    assert_int_equal(json_array_size(at("groups/0/configs")), 20000);
    assert_json("groups/0/provenance/rows", "20000");
    assert_json("groups/0/shapes/0/best", "0");
    free(configs);
    free(samples);
}

/* --- what is known beside --------------------------------------------------------------------- */

static struct manifest *read_gemm(void)
{
    char path[1024];
    struct tune_error err = {0};
    snprintf(path, sizeof path, "%s/plugins/gemm/gemm.json", getenv("TUNE_SOURCE_DIR"));
    json_t *json = json_load_file(path, 0, NULL);
    char *bytes = json_dumps(json, 0);
    struct manifest *manifest = manifest_create(bytes, strlen(bytes), path, &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    free(bytes);
    json_decref(json);
    return manifest;
}

static void the_manifest_tells_meanings_work_and_traffic(void **state)
{
    (void)state;
    struct manifest *manifest = read_gemm();
    struct sample sample = row(64, 0, 0, 1000);
    sample.key.shape = "M=64,N=32,K=16";
    sample.config = "VARIANT=1,BM=16,BN=16,BK=8,TM=1,TN=1,PAD=0,SWIZZLE=1,VEC=1,STAGES=1,"
                    "SPLIT_K=1,UNROLL=1,MIN_BLOCKS=1";
    known_manifest = manifest;
    MODEL(sample);
    known_manifest = NULL;
    assert_json("groups/0/shapes/0/flops", "65536");
    assert_json("groups/0/shapes/0/bytes", "14336");
    /* A is read N / BN = 2 times, B M / BM = 4 times, C written once. */
    assert_json("groups/0/rows/requested_bytes", "[24576]");
    assert_string_equal(
        json_string_value(at("groups/0/params/1/meaning")), manifest->params[1].meaning);
    assert_string_equal(json_string_value(at("groups/0/summary")), manifest->summary);
    manifest_destroy(manifest);
}

static void limits_are_those_of_the_groups_dtype(void **state)
{
    (void)state;
    struct sample half = row(64, 1, 0, 1000), other = row(64, 1, 0, 1000);
    half.key.dtype = "f16";
    other.gpu_name = "NVIDIA H100";
    known_limits = json_pack(
        "{s:f, s:f, s:s}", "dram_bytes_per_s", 4.2e12, "flops_f32", 6e13, "from", "shipped");
    MODEL(half, row(64, 1, 0, 1000), other);
    json_decref(known_limits);
    known_limits = NULL;
    assert_json("groups/0/dtype", "\"f16\"");
    assert_json("groups/0/limits",
        "{\"dram_bytes_per_s\":4200000000000,\"flops\":960000000000000,\"from\":\"shipped\"}");
    assert_json("groups/1/device", "\"NVIDIA H100\"");
    assert_json("groups/1/limits", "null");
    assert_json("groups/2/limits",
        "{\"dram_bytes_per_s\":4200000000000,\"flops\":60000000000000,\"from\":\"shipped\"}");
}

#define TEST(name) cmocka_unit_test_teardown(name, forget_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_additive_model_is_shared_out_exactly),
        TEST(a_parameter_without_effect_has_no_share),
        TEST(what_only_two_parameters_together_explain_is_the_rest),
        TEST(equal_times_give_importance_to_nothing),
        TEST(importance_is_told_for_shapes_with_eight_times_and_for_all_together),
        TEST(the_loss_is_each_configurations_time_by_the_best),
        TEST(a_configuration_that_lacks_a_shape_comes_after_those_that_lack_none),
        TEST(a_search_that_was_luckier_than_the_confirmed_best_is_no_gain),
        TEST(a_matrix_has_no_more_rows_than_a_person_reads),
        TEST(best_ties_and_default_are_those_of_the_database),
        TEST(shapes_and_configurations_stand_in_the_order_of_their_numbers),
        TEST(times_of_another_method_than_the_bests_are_set_aside),
        TEST(rows_that_are_refused_or_not_final_or_impossible_are_set_aside),
        TEST(of_one_configuration_each_run_has_its_row),
        TEST(of_several_gpus_the_one_counts_on_which_a_configuration_is_best),
        TEST(a_time_whose_configuration_failed_since_does_not_stand),
        TEST(a_model_of_the_same_name_that_was_timed_otherwise_is_set_aside),
        TEST(an_idle_gpu_is_not_throttled),
        TEST(rows_of_other_parameters_than_the_rest_are_set_aside),
        TEST(each_text_of_a_kernel_is_a_group_and_the_fullest_comes_first),
        TEST(the_emulated_device_counts_when_it_is_alone),
        TEST(nothing_and_nothing_usable_make_no_group),
        TEST(rows_stand_in_the_order_of_time_and_tell_it_from_the_first),
        TEST(a_failure_has_a_reason_and_no_time),
        TEST(a_long_reason_is_cut_between_characters),
        TEST(failures_alone_are_rows_without_a_best),
        TEST(one_row_is_a_report),
        TEST(twenty_thousand_rows_are_all_there),
        TEST(the_manifest_tells_meanings_work_and_traffic),
        TEST(limits_are_those_of_the_groups_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
