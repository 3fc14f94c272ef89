/* Integer expressions: a Pratt parser that emits bytecode for a small stack machine.
 *
 * Parsing recurses only for parentheses, function arguments, and right operands, and each recursion
 * leaves at most one more value on the stack; EXPR_DEPTH_LIMIT therefore bounds both the parser's
 * stack and the evaluator's, which is an array on the C stack.
 *
 * To add an operator: a row in `binary_operators` (or `functions`), an opcode, a case in expr_eval.
 */
#include "expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum opcode {
    OP_NUMBER, /* push value */
    OP_SLOT,   /* push slots[value] */
    OP_NEGATE,
    OP_NOT,
    OP_BOOL, /* top = top != 0 */
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_REMAINDER,
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_CEILDIV,
    OP_MIN,
    OP_MAX,
    OP_POW2,
    OP_AND,          /* top == 0: keep it and go to value; else pop */
    OP_OR,           /* top != 0: make it 1 and go to value; else pop */
    OP_JUMP,         /* go to value */
    OP_JUMP_IF_ZERO, /* pop; go to value when it was 0 */
    OP_END,
};

struct instruction {
    enum opcode op;
    int64_t value;
};

struct expr {
    char *text;
    uint64_t *used; /* one bit per slot */
    size_t slot_count;
    struct instruction *code;
    size_t code_count, code_room;
};

/* --- compiling -------------------------------------------------------------------------------- */

struct parser {
    struct expr *expr;
    const char *at; /* the next byte of expr->text */
    const char *const *names;
    unsigned depth;
    struct tune_error *err;
};

struct binary_operator {
    const char *text;
    int binding; /* higher binds tighter; C's order */
    enum opcode op;
};

/* Longer texts stand before their own beginnings. */
static const struct binary_operator binary_operators[] = {
    {"||", 2, OP_OR},
    {"&&", 3, OP_AND},
    {"==", 4, OP_EQUAL},
    {"!=", 4, OP_NOT_EQUAL},
    {"<=", 5, OP_LESS_EQUAL},
    {">=", 5, OP_GREATER_EQUAL},
    {"<", 5, OP_LESS},
    {">", 5, OP_GREATER},
    {"+", 6, OP_ADD},
    {"-", 6, OP_SUBTRACT},
    {"*", 7, OP_MULTIPLY},
    {"/", 7, OP_DIVIDE},
    {"%", 7, OP_REMAINDER},
};
enum { BINDING_CONDITIONAL = 1, BINDING_LOWEST = 1 };

struct function {
    const char *name;
    size_t min_args, max_args;
    enum opcode op; /* applied to each further argument, or once to a single one */
};

static const struct function functions[] = {
    {"ceildiv", 2, 2, OP_CEILDIV},
    {"min", 2, 64, OP_MIN},
    {"max", 2, 64, OP_MAX},
    {"pow2", 1, 1, OP_POW2},
};

static int parse(struct parser *parser, int binding);

static int parse_fail(struct parser *parser, const char *what)
{
    size_t position = (size_t)(parser->at - parser->expr->text) + 1;
    return tune_fail(parser->err, TUNE_EPARSE, "expression \"%.80s\", position %zu: %s",
        parser->expr->text, position, what);
}

/* Returns the index of the new instruction, or -1. */
static long emit(struct parser *parser, enum opcode op, int64_t value)
{
    struct expr *expr = parser->expr;
    if (expr->code_count == expr->code_room) {
        size_t room = expr->code_room ? expr->code_room * 2 : 16;
        struct instruction *code = realloc(expr->code, room * sizeof *code);
        if (code == NULL)
            return tune_fail(parser->err, TUNE_ENOMEM, "no memory for an expression");
        expr->code = code;
        expr->code_room = room;
    }
    expr->code[expr->code_count] = (struct instruction){op, value};
    return (long)expr->code_count++;
}

static void jump_here(struct parser *parser, long jump)
{
    parser->expr->code[jump].value = (int64_t)parser->expr->code_count;
}

static void skip_blanks(struct parser *parser)
{
    while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n' || *parser->at == '\r')
        parser->at++;
}

static bool take(struct parser *parser, char c)
{
    skip_blanks(parser);
    if (*parser->at != c)
        return false;
    parser->at++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int digit_value(char c, int base)
{
    int value = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : base;
    return value < base ? value : -1;
}

static int parse_number(struct parser *parser)
{
    const char *digits = parser->at;
    int base = 10;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
        base = 16;
        digits += 2;
    } else if (digits[0] == '0' && is_digit(digits[1])) {
        return parse_fail(parser, "a number may not begin with 0 (octal is not meant, is it?)");
    }
    int64_t value = 0;
    const char *end = digits;
    for (; digit_value(*end, base) >= 0; end++)
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit_value(*end, base), &value))
            return parse_fail(parser, "the number does not fit a signed 64-bit integer");
    if (end == digits || is_name_char(*end) || *end == '.')
        return parse_fail(parser, "expected an integer, such as 48 or 0x30");
    parser->at = end;
    return emit(parser, OP_NUMBER, value) < 0 ? -1 : 0;
}

/* The names last in the table come first: those are the manifest's own. */
static int unknown_name(struct parser *parser, const char *name, size_t length)
{
    static const char more[] = ", ...";
    char list[140] = "";
    size_t used = 0;
    for (size_t i = parser->expr->slot_count; i-- > 0;) {
        size_t need = strlen(parser->names[i]) + 2;
        if (need == 2)
            continue; /* a slot that nothing may name yet */
        if (used + need + sizeof more > sizeof list) {
            strcpy(list + used, more);
            break;
        }
        used += (size_t)sprintf(list + used, "%s%s", used ? ", " : "", parser->names[i]);
    }
    return tune_fail(parser->err, TUNE_ENOTFOUND,
        "unknown name \"%.*s\" in \"%.40s\"; there are %s", (int)(length < 32 ? length : 32), name,
        parser->expr->text, list);
}

static int parse_name(struct parser *parser, const char *name, size_t length)
{
    for (size_t i = 0; i < parser->expr->slot_count; i++) {
        if (strncmp(parser->names[i], name, length) != 0 || parser->names[i][length] != '\0')
            continue;
        parser->expr->used[i / 64] |= UINT64_C(1) << (i % 64);
        return emit(parser, OP_SLOT, (int64_t)i) < 0 ? -1 : 0;
    }
    return unknown_name(parser, name, length);
}

static int parse_call(struct parser *parser, const struct function *function)
{
    size_t count = 0;
    do {
        if (parse(parser, BINDING_LOWEST))
            return -1;
        if ((count > 0 || function->max_args == 1) && emit(parser, function->op, 0) < 0)
            return -1;
        count++;
    } while (count < function->max_args && take(parser, ','));
    if (count < function->min_args || !take(parser, ')')) {
        char what[80];
        snprintf(what, sizeof what, "%s takes %s%zu argument%s, then \")\"", function->name,
            function->max_args > function->min_args ? "at least " : "", function->min_args,
            function->min_args == 1 ? "" : "s");
        return parse_fail(parser, what);
    }
    return 0;
}

static int parse_name_or_call(struct parser *parser)
{
    const char *name = parser->at;
    while (is_name_char(*parser->at))
        parser->at++;
    size_t length = (size_t)(parser->at - name);
    if (!take(parser, '('))
        return parse_name(parser, name, length);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strncmp(functions[i].name, name, length) == 0 && functions[i].name[length] == '\0')
            return parse_call(parser, &functions[i]);
    parser->at = name;
    return parse_fail(parser, "unknown function; there are ceildiv, min, max and pow2");
}

static int parse_operand(struct parser *parser)
{
    skip_blanks(parser);
    char c = *parser->at;
    if (is_digit(c))
        return parse_number(parser);
    if (is_name_char(c))
        return parse_name_or_call(parser);
    if (c == '(') {
        parser->at++;
        if (parse(parser, BINDING_LOWEST))
            return -1;
        return take(parser, ')') ? 0 : parse_fail(parser, "expected \")\" or an operator");
    }
    if (c == '-' || (c == '!' && parser->at[1] != '=')) {
        parser->at++;
        if (parse(parser, 8)) /* binds tighter than any binary operator */
            return -1;
        return emit(parser, c == '-' ? OP_NEGATE : OP_NOT, 0) < 0 ? -1 : 0;
    }
    return parse_fail(parser, "expected a number, a name, \"(\", \"-\" or \"!\"");
}

static const struct binary_operator *peek_operator(struct parser *parser)
{
    skip_blanks(parser);
    for (size_t i = 0; i < sizeof binary_operators / sizeof binary_operators[0]; i++)
        if (strncmp(parser->at, binary_operators[i].text, strlen(binary_operators[i].text)) == 0)
            return &binary_operators[i];
    return NULL;
}

static int parse_binary(struct parser *parser, const struct binary_operator *rule)
{
    parser->at += strlen(rule->text);
    bool is_lazy = rule->op == OP_AND || rule->op == OP_OR;
    long jump = is_lazy ? emit(parser, rule->op, 0) : 0;
    if (jump < 0 || parse(parser, rule->binding + 1))
        return -1;
    if (!is_lazy)
        return emit(parser, rule->op, 0) < 0 ? -1 : 0;
    if (emit(parser, OP_BOOL, 0) < 0)
        return -1;
    jump_here(parser, jump);
    return 0;
}

static int parse_conditional(struct parser *parser)
{
    long to_else = emit(parser, OP_JUMP_IF_ZERO, 0);
    if (to_else < 0 || parse(parser, BINDING_LOWEST))
        return -1;
    if (!take(parser, ':'))
        return parse_fail(parser, "expected \":\" or an operator");
    long to_end = emit(parser, OP_JUMP, 0);
    if (to_end < 0)
        return -1;
    jump_here(parser, to_else);
    if (parse(parser, BINDING_CONDITIONAL))
        return -1;
    jump_here(parser, to_end);
    return 0;
}

/* Parses operators that bind at least as tightly as `binding`; leaves code that pushes one value.
 */
static int parse(struct parser *parser, int binding)
{
    if (++parser->depth > EXPR_DEPTH_LIMIT)
        return tune_fail(parser->err, TUNE_ELIMIT,
            "expression \"%.60s...\" is nested deeper than %d levels", parser->expr->text,
            EXPR_DEPTH_LIMIT);
    if (parse_operand(parser))
        return -1;
    for (;;) {
        const struct binary_operator *rule = peek_operator(parser);
        if (rule != NULL && rule->binding >= binding) {
            if (parse_binary(parser, rule))
                return -1;
        } else if (binding <= BINDING_CONDITIONAL && take(parser, '?')) {
            if (parse_conditional(parser))
                return -1;
        } else {
            break;
        }
    }
    parser->depth--;
    return 0;
}

static int parse_whole(struct parser *parser)
{
    if (parse(parser, BINDING_LOWEST))
        return -1;
    skip_blanks(parser);
    if (*parser->at == '&' || *parser->at == '|' || *parser->at == '=')
        return parse_fail(parser, "expected an operator; did you mean &&, || or ==?");
    if (*parser->at != '\0')
        return parse_fail(parser, "expected an operator or the end");
    return emit(parser, OP_END, 0) < 0 ? -1 : 0;
}

struct expr *expr_create(
    const char *text, const char *const *names, size_t name_count, struct tune_error *err)
{
    if (strlen(text) > EXPR_TEXT_LIMIT) {
        tune_fail(err, TUNE_ELIMIT, "expression \"%.60s...\" has %zu bytes; the limit is %d", text,
            strlen(text), EXPR_TEXT_LIMIT);
        return NULL;
    }
    struct expr *expr = calloc(1, sizeof *expr);
    if (expr == NULL)
        goto no_memory;
    expr->text = strdup(text);
    expr->used = calloc(name_count / 64 + 1, sizeof *expr->used);
    expr->slot_count = name_count;
    if (expr->text == NULL || expr->used == NULL)
        goto no_memory;
    struct parser parser = {.expr = expr, .at = expr->text, .names = names, .err = err};
    if (parse_whole(&parser) == 0)
        return expr;
    expr_destroy(expr);
    return NULL;
no_memory:
    expr_destroy(expr);
    tune_fail(err, TUNE_ENOMEM, "no memory for an expression");
    return NULL;
}

void expr_destroy(struct expr *expr)
{
    if (expr == NULL)
        return;
    free(expr->text);
    free(expr->used);
    free(expr->code);
    free(expr);
}

const char *expr_text(const struct expr *expr)
{
    return expr->text;
}

bool expr_uses(const struct expr *expr, size_t slot)
{
    return slot < expr->slot_count && (expr->used[slot / 64] >> (slot % 64) & 1);
}

/* --- evaluating ------------------------------------------------------------------------------- */

static int divide_fail(const struct expr *expr, int64_t divisor, struct tune_error *err)
{
    return tune_fail(err, TUNE_EMATH, "%s in \"%.160s\"",
        divisor == 0 ? "division by zero" : "64-bit overflow", expr->text);
}

static bool can_divide(int64_t a, int64_t b)
{
    return b != 0 && !(a == INT64_MIN && b == -1);
}

/* Rounds towards positive infinity for every sign. */
static int64_t ceildiv(int64_t a, int64_t b)
{
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

int expr_eval(
    const struct expr *expr, const int64_t *slots, int64_t *result, struct tune_error *err)
{
    int64_t stack[EXPR_DEPTH_LIMIT + 2];
    int64_t *top = stack; /* stack[0] is below the first value, so that top[0] is always there */
    *top = 0;
    for (const struct instruction *at = expr->code;; at++) {
        bool overflow = false;
        int64_t right = *top;
        switch (at->op) {
        case OP_NUMBER:
            *++top = at->value;
            break;
        case OP_SLOT:
            *++top = slots[at->value];
            break;
        case OP_NEGATE:
            overflow = __builtin_sub_overflow(INT64_C(0), right, top);
            break;
        case OP_NOT:
            *top = right == 0;
            break;
        case OP_BOOL:
            *top = right != 0;
            break;
        case OP_ADD:
            top--;
            overflow = __builtin_add_overflow(*top, right, top);
            break;
        case OP_SUBTRACT:
            top--;
            overflow = __builtin_sub_overflow(*top, right, top);
            break;
        case OP_MULTIPLY:
            top--;
            overflow = __builtin_mul_overflow(*top, right, top);
            break;
        case OP_DIVIDE:
            top--;
            if (!can_divide(*top, right))
                return divide_fail(expr, right, err);
            *top /= right;
            break;
        case OP_REMAINDER:
            top--;
            if (!can_divide(*top, right))
                return divide_fail(expr, right, err);
            *top %= right;
            break;
        case OP_CEILDIV:
            top--;
            if (!can_divide(*top, right))
                return divide_fail(expr, right, err);
            *top = ceildiv(*top, right);
            break;
        case OP_EQUAL:
            top--;
            *top = *top == right;
            break;
        case OP_NOT_EQUAL:
            top--;
            *top = *top != right;
            break;
        case OP_LESS:
            top--;
            *top = *top < right;
            break;
        case OP_LESS_EQUAL:
            top--;
            *top = *top <= right;
            break;
        case OP_GREATER:
            top--;
            *top = *top > right;
            break;
        case OP_GREATER_EQUAL:
            top--;
            *top = *top >= right;
            break;
        case OP_MIN:
            top--;
            *top = *top < right ? *top : right;
            break;
        case OP_MAX:
            top--;
            *top = *top > right ? *top : right;
            break;
        case OP_POW2:
            overflow = right < 0 || right > 62;
            if (!overflow)
                *top = INT64_C(1) << right;
            break;
        case OP_AND:
            if (right == 0)
                at = expr->code + at->value - 1;
            else
                top--;
            break;
        case OP_OR:
            if (right != 0) {
                *top = 1;
                at = expr->code + at->value - 1;
            } else {
                top--;
            }
            break;
        case OP_JUMP:
            at = expr->code + at->value - 1;
            break;
        case OP_JUMP_IF_ZERO:
            top--;
            if (right == 0)
                at = expr->code + at->value - 1;
            break;
        case OP_END:
            *result = *top;
            return 0;
        }
        if (overflow)
            return tune_fail(err, TUNE_EMATH, "64-bit overflow in \"%.160s\"", expr->text);
    }
}
