/* plugins/expr: each operator by itself, precedence, what is not evaluated, limits, and a random
 * comparison with an evaluator of trees in 128-bit arithmetic. */
#include "plugins/expr.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"A", "B", "BM", "TM", "BN", "TN", "THREADS", "ZERO", "BIG"};
static const int64_t slots[] = {7, -3, 64, 4, 128, 8, 256, 0, INT64_MAX};
#define NAME_COUNT (sizeof names / sizeof names[0])

/* 0 and *result, or the code of the first error. */
static enum tune_code run(const char *text, int64_t *result, struct tune_error *err)
{
    *err = (struct tune_error){0};
    struct expr *expr = expr_create(text, names, NAME_COUNT, err);
    if (expr != NULL)
        expr_eval(expr, slots, result, err);
    expr_destroy(expr);
    return err->code;
}

static void expect(const char *text, int64_t expected)
{
    struct tune_error err;
    int64_t result = 0;
    if (run(text, &result, &err) != TUNE_OK)
        fail_msg("%s: %s", text, err.text);
    if (result != expected)
        fail_msg("%s is %" PRId64 ", expected %" PRId64, text, result, expected);
}

static void expect_error(const char *text, enum tune_code code, const char *fragment)
{
    struct tune_error err;
    int64_t result = 0;
    enum tune_code got = run(text, &result, &err);
    if (got != code || strstr(err.text, fragment) == NULL)
        fail_msg("%s: got %s \"%s\", expected %s with \"%s\"", text, tune_code_word(got), err.text,
            tune_code_word(code), fragment);
}

static void every_operator_means_what_it_means_in_c(void **state)
{
    (void)state;
    expect("A + B", 4);
    expect("A - B", 10);
    expect("A * B", -21);
    expect("A / B", -2);
    expect("-7 / 2", -3);
    expect("A % B", 1);
    expect("-7 % 2", -1);
    expect("A == 7", 1);
    expect("A == B", 0);
    expect("A != 7", 0);
    expect("A != B", 1);
    expect("A < B", 0);
    expect("B < A", 1);
    expect("A < A", 0);
    expect("A <= A", 1);
    expect("A <= B", 0);
    expect("A > B", 1);
    expect("A > A", 0);
    expect("A >= A", 1);
    expect("B >= A", 0);
    expect("A && B", 1);
    expect("A && ZERO", 0);
    expect("ZERO && A", 0);
    expect("ZERO || B", 1);
    expect("A || ZERO", 1);
    expect("ZERO || ZERO", 0);
    expect("!A", 0);
    expect("!ZERO", 1);
    expect("-A", -7);
    expect("A ? 10 : 20", 10);
    expect("ZERO ? 10 : 20", 20);
}

static void every_function_has_its_meaning(void **state)
{
    (void)state;
    expect("ceildiv(7, 2)", 4);
    expect("ceildiv(8, 2)", 4);
    expect("ceildiv(-7, 2)", -3);
    expect("ceildiv(7, -2)", -3);
    expect("ceildiv(-7, -2)", 4);
    expect("ceildiv(BIG, 2)", (int64_t)1 << 62);
    expect("min(3, 1, 2)", 1);
    expect("max(3, 1, 2, 9)", 9);
    expect("max(-1, -2)", -1);
    expect("pow2(0)", 1);
    expect("pow2(62)", (int64_t)1 << 62);
}

static void a_comparison_with_a_product_of_quotients_is_taken_whole(void **state)
{
    (void)state;
    expect("THREADS == (BM/TM)*(BN/TN)", 1);
    expect("(BM/TM)*(BN/TN) == THREADS", 1);
    expect("THREADS + 1 == (BM/TM)*(BN/TN)", 0);
    expect("THREADS != (BM/TM)*(BN/TN)", 0);
    expect("THREADS == BM/TM*BN/TN", 1);
}

static void operators_bind_as_in_c(void **state)
{
    (void)state;
    expect("1 + 2 * 3", 7);
    expect("(1 + 2) * 3", 9);
    expect("10 - 4 - 3", 3);
    expect("100 / 10 / 5", 2);
    expect("100 / 10 * 5", 50);
    expect("17 % 10 % 4", 3);
    expect("1 + 1 == 2", 1);
    expect("1 == 1 < 2", 1);
    expect("2 < 1 == 0", 1);
    expect("1 || 0 && 0", 1);
    expect("(1 || 0) && 0", 0);
    expect("0 == 0 && 1", 1);
    expect("!A == 0", 1);
    expect("!(A == 0)", 1);
    expect("-A + 8", 1);
    expect("- - 3", 3);
    expect("!!A", 1);
    expect("-!ZERO", -1);
    expect("2 - -2", 4);
    expect("0 ? 1 : 0 ? 2 : 3", 3);
    expect("1 ? 0 ? 4 : 5 : 6", 5);
    expect("A > 0 ? A + 1 : B", 8);
    expect("ZERO || 1 ? 2 : 3", 2);
    expect("1 + (ZERO ? 2 : 3)", 4);
    expect("max(A ? 1 : 2, min(9, 8)) * 2", 16);
    expect(" \t\n( 0x1F+0XaB )", 202);
}

static void the_side_not_taken_is_not_evaluated(void **state)
{
    (void)state;
    expect("ZERO && 1 / ZERO", 0);
    expect("A || 1 / ZERO", 1);
    expect("A ? 5 : 1 / ZERO", 5);
    expect("ZERO ? 1 / ZERO : 6", 6);
    expect("ZERO && 1 / ZERO && 1 / ZERO", 0);
    expect("(ZERO && 1 / ZERO) + 3", 3);
    expect_error("A && 1 / ZERO", TUNE_EMATH, "division by zero");
    expect_error("ZERO || 1 / ZERO", TUNE_EMATH, "division by zero");
}

static void arithmetic_that_cannot_be_is_an_error_with_the_expression(void **state)
{
    (void)state;
    expect_error("A / ZERO", TUNE_EMATH, "division by zero in \"A / ZERO\"");
    expect_error("A % ZERO", TUNE_EMATH, "division by zero");
    expect_error("ceildiv(A, ZERO)", TUNE_EMATH, "division by zero");
    expect_error("(-BIG - 1) / -1", TUNE_EMATH, "64-bit overflow");
    expect_error("(-BIG - 1) % -1", TUNE_EMATH, "64-bit overflow");
    expect_error("ceildiv(-BIG - 1, -1)", TUNE_EMATH, "64-bit overflow");
    expect_error("BIG + 1", TUNE_EMATH, "64-bit overflow in \"BIG + 1\"");
    expect_error("-BIG - 2", TUNE_EMATH, "64-bit overflow");
    expect_error("BIG * 2", TUNE_EMATH, "64-bit overflow");
    expect_error("-(-BIG - 1)", TUNE_EMATH, "64-bit overflow");
    expect_error("pow2(63)", TUNE_EMATH, "64-bit overflow");
    expect_error("pow2(-1)", TUNE_EMATH, "64-bit overflow");
    expect("-BIG - 1", INT64_MIN);
    expect("BIG", INT64_MAX);
}

static void mistakes_are_told_with_their_position(void **state)
{
    (void)state;
    expect_error("", TUNE_EPARSE, "position 1: expected a number");
    expect_error("A +", TUNE_EPARSE, "position 4: expected a number");
    expect_error("A B", TUNE_EPARSE, "position 3: expected an operator");
    expect_error("(A", TUNE_EPARSE, "position 3: expected \")\"");
    expect_error("A)", TUNE_EPARSE, "position 2: expected an operator or the end");
    expect_error("A ? 1", TUNE_EPARSE, "position 6: expected \":\"");
    expect_error("A & B", TUNE_EPARSE, "did you mean &&");
    expect_error("A = 7", TUNE_EPARSE, "did you mean &&, || or ==?");
    expect_error("A << 2", TUNE_EPARSE, "position 4");
    expect_error("1.5", TUNE_EPARSE, "expected an integer");
    expect_error("12AB", TUNE_EPARSE, "expected an integer");
    expect_error("0x", TUNE_EPARSE, "expected an integer");
    expect_error("010", TUNE_EPARSE, "may not begin with 0");
    expect_error("9223372036854775808", TUNE_EPARSE, "does not fit");
    expect_error("0x8000000000000000", TUNE_EPARSE, "does not fit");
    expect_error("sqrt(2)", TUNE_EPARSE, "unknown function");
    expect_error("pow2(1, 2)", TUNE_EPARSE, "pow2 takes 1 argument, then");
    expect_error("min(1)", TUNE_EPARSE, "min takes at least 2 arguments");
    expect_error("ceildiv(1, 2, 3)", TUNE_EPARSE, "ceildiv takes 2 arguments");
    expect_error("min()", TUNE_EPARSE, "position 5");
    expect_error("A + C", TUNE_ENOTFOUND, "unknown name \"C\" in \"A + C\"; there are BIG, ZERO");
    expect_error("min", TUNE_ENOTFOUND, "unknown name \"min\"");
    expect_error("BMX", TUNE_ENOTFOUND, "unknown name \"BMX\"");
}

/* The list of names ends in time, however its last ones fit. */
static void a_list_of_names_of_any_length_fits_its_error(void **state)
{
    (void)state;
    char texts[10][64];
    const char *many[10];
    for (int first = 1; first < 60; first++)
        for (int others = 1; others < 30; others++) {
            struct tune_error err = {0};
            for (int i = 0; i < 10; i++) {
                snprintf(texts[i], sizeof texts[i], "%.*s", i == 9 ? first : others,
                    "ABCDEFGHIJABCDEFGHIJABCDEFGHIJABCDEFGHIJABCDEFGHIJABCDEFGHIJ");
                many[i] = texts[i];
            }
            assert_null(expr_create("x", many, 10, &err));
            assert_int_equal(err.code, TUNE_ENOTFOUND);
            assert_non_null(strstr(err.text, texts[9]));
            bool is_cut = strcmp(err.text + strlen(err.text) - 5, ", ...") == 0;
            assert_true(is_cut || first + 9 * (others + 2) < 140);
        }
}

/* `open` n times, "1", `close` n times */
static char *nested(const char *open, const char *close, int count)
{
    char *text = calloc(1, (size_t)count * (strlen(open) + strlen(close)) + 2);
    for (int i = 0; i < count; i++)
        strcat(text, open);
    strcat(text, "1");
    for (int i = 0; i < count; i++)
        strcat(text, close);
    return text;
}

static void nesting_ends_at_its_limit_for_each_way_to_nest(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close;
        int64_t value;
    } ways[] = {{"(", "", 0}, {"-", "", -1}, {"1 ? 1 : ", "", 1}, {"min(1,", ")", 1}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const char *close = i == 0 ? ")" : ways[i].close;
        char *within = nested(ways[i].open, close, EXPR_DEPTH_LIMIT - 1);
        char *beyond = nested(ways[i].open, close, EXPR_DEPTH_LIMIT);
        expect(within, i == 0 ? 1 : ways[i].value);
        expect_error(beyond, TUNE_ELIMIT, "nested deeper than 64 levels");
        free(within);
        free(beyond);
    }
}

/* Each level holds a value while the next is worked out: the deepest stack there can be. */
static void the_deepest_expression_still_evaluates(void **state)
{
    (void)state;
    char *text = nested("1+(", ")", EXPR_DEPTH_LIMIT / 2 - 1);
    expect(text, EXPR_DEPTH_LIMIT / 2);
    free(text);
    text = nested("max(0,", ")", EXPR_DEPTH_LIMIT - 1);
    expect(text, 1);
    free(text);
}

static void a_long_text_is_refused_and_a_long_chain_is_not_nesting(void **state)
{
    (void)state;
    char text[EXPR_TEXT_LIMIT + 2];
    for (size_t i = 0; i < EXPR_TEXT_LIMIT; i++)
        text[i] = i % 2 ? '+' : '1';
    text[EXPR_TEXT_LIMIT - 1] = '\0';
    expect(text, EXPR_TEXT_LIMIT / 2);
    memset(text, ' ', EXPR_TEXT_LIMIT);
    text[0] = '1';
    text[EXPR_TEXT_LIMIT] = '\0';
    expect(text, 1);
    text[EXPR_TEXT_LIMIT] = ' ';
    text[EXPR_TEXT_LIMIT + 1] = '\0';
    expect_error(text, TUNE_ELIMIT, "has 4097 bytes; the limit is 4096");
}

static void an_expression_tells_its_text_and_the_slots_that_it_reads(void **state)
{
    (void)state;
    struct expr *expr = expr_create("A ? BM : max(TM, 1)", names, NAME_COUNT, NULL);
    assert_string_equal(expr_text(expr), "A ? BM : max(TM, 1)");
    assert_true(expr_uses(expr, 0));
    assert_false(expr_uses(expr, 1));
    assert_true(expr_uses(expr, 2));
    assert_true(expr_uses(expr, 3));
    assert_false(expr_uses(expr, 4));
    assert_false(expr_uses(expr, 1000));
    expr_destroy(expr);
    expr_destroy(NULL);
}

/* --- random comparison ------------------------------------------------------------------------ */

struct writer {
    char text[EXPR_TEXT_LIMIT];
    size_t used;
    uint64_t random;
};

struct outcome {
    bool failed;
    __int128 value;
};

static uint64_t draw(struct writer *writer, uint64_t below)
{
    writer->random = writer->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (writer->random >> 33) % below;
}

static void say(struct writer *writer, const char *text)
{
    writer->used += (size_t)snprintf(
        writer->text + writer->used, sizeof writer->text - writer->used, "%s", text);
}

static struct outcome checked(bool failed, __int128 value)
{
    failed = failed || value < INT64_MIN || value > INT64_MAX;
    return (struct outcome){failed, failed ? 0 : value};
}

static struct outcome combine(unsigned which, struct outcome a, struct outcome b)
{
    bool failed = a.failed || b.failed;
    bool is_zero = b.value == 0;
    switch (which) {
    case 0:
        return checked(failed, a.value + b.value);
    case 1:
        return checked(failed, a.value - b.value);
    case 2:
        return checked(failed, a.value * b.value);
    case 3:
        return checked(failed || is_zero, is_zero ? 0 : a.value / b.value);
    case 4: /* the quotient must fit, too */
        return checked(
            failed || is_zero || a.value / b.value > INT64_MAX, is_zero ? 0 : a.value % b.value);
    case 5:
        return checked(failed, a.value == b.value);
    case 6:
        return checked(failed, a.value != b.value);
    case 7:
        return checked(failed, a.value < b.value);
    case 8:
        return checked(failed, a.value <= b.value);
    case 9:
        return checked(failed, a.value > b.value);
    case 10:
        return checked(failed, a.value >= b.value);
    case 11:
        return a.failed || a.value == 0 ? checked(a.failed, 0) : checked(b.failed, b.value != 0);
    default:
        return a.failed || a.value != 0 ? checked(a.failed, 1) : checked(b.failed, b.value != 0);
    }
}

static struct outcome write_tree(struct writer *writer, int depth);

static struct outcome write_leaf(struct writer *writer)
{
    size_t slot = draw(writer, NAME_COUNT + 2);
    char number[24];
    if (slot < NAME_COUNT) {
        say(writer, names[slot]);
        return checked(false, slots[slot]);
    }
    uint64_t value = draw(writer, 4);
    snprintf(number, sizeof number, "%" PRIu64, value);
    say(writer, number);
    return checked(false, value);
}

static struct outcome write_conditional(struct writer *writer, int depth)
{
    struct outcome condition = write_tree(writer, depth - 1);
    say(writer, " ? ");
    struct outcome yes = write_tree(writer, depth - 1);
    say(writer, " : ");
    struct outcome no = write_tree(writer, depth - 1);
    if (condition.failed)
        return condition;
    return condition.value != 0 ? yes : no;
}

/* Everything but leaves stands in parentheses: precedence has its own test. */
static struct outcome write_tree(struct writer *writer, int depth)
{
    static const char *const operators[] = {
        "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||"};
    unsigned kind = (unsigned)draw(writer, 16);
    struct outcome outcome;
    if (depth == 0)
        return write_leaf(writer);
    say(writer, "(");
    if (kind < 13) {
        struct outcome left = write_tree(writer, depth - 1);
        say(writer, operators[kind]);
        outcome = combine(kind, left, write_tree(writer, depth - 1));
    } else if (kind == 13) {
        outcome = write_conditional(writer, depth);
    } else {
        say(writer, kind == 14 ? "-" : "!");
        outcome = write_tree(writer, depth - 1);
        outcome = kind == 14 ? checked(outcome.failed, -outcome.value)
                             : checked(outcome.failed, outcome.value == 0);
    }
    say(writer, ")");
    return outcome;
}

static void random_expressions_agree_with_a_tree_in_128_bits(void **state)
{
    (void)state;
    int values = 0, failures = 0;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct writer writer = {.random = seed * 2654435761u};
        struct outcome outcome = write_tree(&writer, 1 + (int)(seed % 5));
        if (writer.used >= sizeof writer.text - 1)
            continue;
        (outcome.failed ? failures++ : values++);
        if (outcome.failed)
            expect_error(writer.text, TUNE_EMATH, "");
        else
            expect(writer.text, (int64_t)outcome.value);
    }
    assert_true(values > 5000); /* neither kind is rare by accident */
    assert_true(failures > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_means_what_it_means_in_c),
        cmocka_unit_test(every_function_has_its_meaning),
        cmocka_unit_test(a_comparison_with_a_product_of_quotients_is_taken_whole),
        cmocka_unit_test(operators_bind_as_in_c),
        cmocka_unit_test(the_side_not_taken_is_not_evaluated),
        cmocka_unit_test(arithmetic_that_cannot_be_is_an_error_with_the_expression),
        cmocka_unit_test(mistakes_are_told_with_their_position),
        cmocka_unit_test(a_list_of_names_of_any_length_fits_its_error),
        cmocka_unit_test(nesting_ends_at_its_limit_for_each_way_to_nest),
        cmocka_unit_test(the_deepest_expression_still_evaluates),
        cmocka_unit_test(a_long_text_is_refused_and_a_long_chain_is_not_nesting),
        cmocka_unit_test(an_expression_tells_its_text_and_the_slots_that_it_reads),
        cmocka_unit_test(random_expressions_agree_with_a_tree_in_128_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
