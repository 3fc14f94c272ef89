/* bridges/t1 and python_expr: spaces keep their size, what a manifest cannot say is warned of, and
 * conditions mean what they mean in Python. */
#include "bridges/python_expr.h"
#include "bridges/t1.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With a member of its KernelSpecification replaced (takes `member`), unless key is NULL. */
static struct t1_plugin convert_with(
    const char *name, const char *source, const char *key, json_t *member)
{
    char file[64];
    size_t length;
    struct tune_error err = {0};
    struct t1_plugin plugin = {0};
    snprintf(file, sizeof file, "t1/%s.json", name);
    char *text = data_file(file, &length);
    json_t *t1 = t1_parse(text, length, &err);
    struct t1_options options = {.file = name, .source = source};
    if (key != NULL)
        json_object_set_new(json_object_get(t1, "KernelSpecification"), key, member);
    if (t1 == NULL || t1_convert(t1, &options, &plugin, &err))
        fail_msg("%s: %s", name, err.text);
    json_decref(t1);
    free(text);
    return plugin;
}

static struct t1_plugin convert(const char *name, const char *source)
{
    return convert_with(name, source, NULL, NULL);
}

/* As many as were measured, failures included. */
static void spaces_have_the_size_that_was_recorded(void **state)
{
    static const struct {
        const char *name;
        size_t configurations;
    } spaces[] = {{"convolution", 4362}, {"dedispersion", 11130}, {"gemm", 17956}, {"pnpoly", 4092},
        {"scale", 48}};
    (void)state;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        struct t1_plugin plugin = convert(spaces[i].name, NULL);
        assert_int_equal(plugin.configurations, spaces[i].configurations);
        assert_string_equal(plugin.name, spaces[i].name);
        t1_plugin_finish(&plugin);
    }
}

static void what_does_not_fit_is_warned_of(void **state)
{
    (void)state;
    struct t1_plugin plugin = convert("gemm", "__global__ void Xgemm(float *c) {}");
    assert_true(has_warning(plugin.warnings, "may be another kernel's"));
    assert_true(has_warning(plugin.warnings, "do not match Xgemm(float *c)"));
    assert_true(has_warning(plugin.warnings, "written in OpenCL"));
    assert_true(has_warning(plugin.warnings, "LocalSize \"block_size_x\""));
    t1_plugin_finish(&plugin);
    plugin = convert("pnpoly", NULL);
    assert_true(has_warning(plugin.warnings, "no output"));
    t1_plugin_finish(&plugin);
    plugin = convert("dedispersion", NULL);
    assert_true(has_warning(plugin.warnings, "breaks its own conditions"));
    t1_plugin_finish(&plugin);
    plugin = convert_with("scale", NULL, "ProblemSize", json_pack("[s, i]", "4096", 5));
    assert_true(has_warning(plugin.warnings, "number 1 of the ProblemSize"));
    t1_plugin_finish(&plugin);
}

/* A kernel's source may be called as ours would be. */
static void a_source_never_includes_itself(void **state)
{
    (void)state;
    struct t1_plugin plugin =
        convert_with("scale", NULL, "KernelFile", json_string("src/scale_t1.cu"));
    assert_string_equal(plugin.included_name, "scale_t1.cu");
    assert_string_not_equal(plugin.source_name, plugin.included_name);
    t1_plugin_finish(&plugin);
}

static void values_that_are_no_integers_reach_the_source_as_they_are(void **state)
{
    (void)state;
    size_t length;
    char *source = data_file("t1/scale.cu", &length);
    struct t1_plugin plugin = convert("scale", source);
    assert_int_equal(json_array_size(plugin.warnings), 1);
    assert_true(has_warning(plugin.warnings, "scale is its own reference"));
    struct tune_error err = {0};
    struct manifest *manifest =
        manifest_create(plugin.manifest, strlen(plugin.manifest), "scale", &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    static const char *const expected[] = {"0.25", "0.5", "1.0", "-1.5"};
    for (int64_t i = 0; i < 4; i++)
        assert_string_equal(manifest_param_define(&manifest->params[0], i), expected[i]);
    assert_string_equal(manifest_param_define(&manifest->params[1], 1), "double");
    assert_string_equal(manifest_param_define(&manifest->params[2], 1), "true");
    assert_null(manifest_param_define(&manifest->params[3], -5));
    assert_string_equal(manifest->params[0].value_names[3], "vm1_5");
    assert_non_null(strstr(manifest->summary, "checked against itself"));
    assert_non_null(strstr(manifest->checks[0].derivation, "as the description demands"));
    assert_non_null(strstr(plugin.source, "#define FACTOR 0.5\n"));
    assert_non_null(strstr(plugin.source, "#include \"scale.cu\""));
    manifest_destroy(manifest);
    t1_plugin_finish(&plugin);
    free(source);
}

/* --- conditions ------------------------------------------------------------------------------- */

static const struct python_value a_values[] = {{.type = PYTHON_INT, .integer = -7},
    {.type = PYTHON_INT, .integer = 0}, {.type = PYTHON_INT, .integer = 5},
    {.type = PYTHON_INT, .integer = 8}};
static const int64_t a_numbers[] = {-7, 0, 5, 8};
static const struct python_value b_values[] = {{.type = PYTHON_INT, .integer = -3},
    {.type = PYTHON_INT, .integer = 2}, {.type = PYTHON_INT, .integer = 4}};
static const int64_t b_numbers[] = {-3, 2, 4};
static const struct python_value w_values[] = {{.type = PYTHON_REAL, .real = 0.25},
    {.type = PYTHON_REAL, .real = 0.5}, {.type = PYTHON_REAL, .real = 1.0}};
static const int64_t w_numbers[] = {0, 1, 2};
static const struct python_param params[] = {{"a", 4, a_values, a_numbers, true},
    {"b", 3, b_values, b_numbers, true}, {"w", 3, w_values, w_numbers, false}};

/* Counts the combinations for which the translation holds. */
static int count(const char *text)
{
    static const char *const names[] = {"a", "b", "w"};
    struct tune_error err = {0};
    char *translated = python_condition(text, params, 3, &err);
    if (translated == NULL)
        fail_msg("%s: %s", text, err.text);
    struct expr *expr = expr_create(translated, names, 3, &err);
    if (expr == NULL)
        fail_msg("%s -> %s: %s", text, translated, err.text);
    int holds = 0;
    for (size_t i = 0; i < 36; i++) {
        int64_t slots[] = {a_numbers[i / 9], b_numbers[i / 3 % 3], w_numbers[i % 3]}, result = 0;
        struct tune_error why = {0};
        holds += expr_eval(expr, slots, &result, &why) == 0 && result != 0;
    }
    expr_destroy(expr);
    free(translated);
    return holds;
}

/* The numbers are Python's. */
static void conditions_mean_what_they_mean_in_python(void **state)
{
    (void)state;
    assert_int_equal(count("a // b == -2"), 6);
    assert_int_equal(count("a % b == 1"), 12);
    assert_int_equal(count("a / b == 2.5"), 3);
    assert_int_equal(count("a / 2 > b"), 15);
    assert_int_equal(count("-3 <= a < 8 and not b == 2"), 12);
    assert_int_equal(count("a in [0, 8] or b not in (2, 4)"), 24);
    assert_int_equal(count("w * 4 >= b"), 24);
    assert_int_equal(count("(a if w > 0.3 else b) > 1"), 20);
    assert_int_equal(count("a % (b * w) == 0"), 21);
    assert_int_equal(count("abs(a) + max(b, 1) ** 2 <= 9"), 18);
    assert_int_equal(count("1 / a > 0"), 18); /* a division by zero excludes */
    assert_int_equal(count("(a or b) == b"), 9);
    assert_int_equal(count("True"), 36);
}

/* Python's integers have no end: past ours nothing may be excluded silently. And a trial ends. */
static void a_condition_past_the_limits_is_an_error(void **state)
{
    static const char *const past[] = {"2 ** (62 + a) > 5", "(a + 9) * 2 ** 62 > 0 or w > 0",
        "len([i for i in range(60000) for j in range(5) if 0]) + a + b + w >= 0"};
    (void)state;
    for (size_t i = 0; i < sizeof past / sizeof past[0]; i++) {
        struct tune_error err = {0};
        assert_null(python_condition(past[i], params, 3, &err));
        assert_int_equal(err.code, TUNE_ELIMIT);
    }
}

static void a_condition_that_cannot_be_read_is_named(void **state)
{
    static const struct {
        const char *text;
        enum tune_code code;
    } wrong[] = {{"a ==", TUNE_EPARSE}, {"a == 0 or zz == 1", TUNE_ENOTFOUND},
        {"__import__('os').system('x')", TUNE_EPARSE}, {"open('x')", TUNE_ENOTFOUND}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tune_error err = {0};
        assert_null(python_condition(wrong[i].text, params, 3, &err));
        assert_int_equal(err.code, wrong[i].code);
    }
}

static void nothing_runs_long_or_deep(void **state)
{
    static const char *const hostile[] = {"[i for i in range(10000) for j in range(10000)]",
        "range(9223372036854775807)", "[0] * 9223372036854775807", "2 ** 63", "10 ** 10 ** 10",
        "sorted(range(60000, 0, -1))"};
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct tune_error err = {0};
        struct python_value value;
        struct python *python = python_parse(hostile[i], &err);
        assert_non_null(python);
        assert_int_equal(python_eval(python, NULL, 0, &value, &err), -1);
        assert_true(err.code == TUNE_ELIMIT || err.code == TUNE_EMATH);
        python_destroy(python);
    }
    struct tune_error wrong = {0};
    struct t1_plugin plugin;
    struct t1_options options = {.file = "lists"};
    json_t *t1 = json_pack("{s:{s:[{s:s, s:s, s:s}]}, s:{s:s}}", "ConfigurationSpace",
        "TuningParameters", "Name", "a", "Type", "int", "Values", "61 * [96 * [611 * [96 * [61]]]]",
        "KernelSpecification", "KernelName", "k");
    assert_int_equal(t1_convert(t1, &options, &plugin, &wrong), -1);
    assert_non_null(strstr(wrong.text, "value 1 is neither a number nor a word"));
    t1_plugin_finish(&plugin);
    json_decref(t1);
    char deep[4096];
    memset(deep, '(', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    struct tune_error err = {0};
    assert_null(python_parse(deep, &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spaces_have_the_size_that_was_recorded),
        cmocka_unit_test(what_does_not_fit_is_warned_of),
        cmocka_unit_test(values_that_are_no_integers_reach_the_source_as_they_are),
        cmocka_unit_test(conditions_mean_what_they_mean_in_python),
        cmocka_unit_test(a_source_never_includes_itself),
        cmocka_unit_test(a_condition_past_the_limits_is_an_error),
        cmocka_unit_test(a_condition_that_cannot_be_read_is_named),
        cmocka_unit_test(nothing_runs_long_or_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
