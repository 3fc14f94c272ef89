/* Evaluates a tree with Python's semantics. Every operation and every element made is a step, and
 * steps are bounded, so that no text runs long; values lie in an arena that is bounded too. */
#include "python_tree.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scope { /* a comprehension's variable */
    const struct scope *outer;
    struct python_name name;
};

struct evaluation {
    struct arena *arena;
    const struct python_name *names;
    size_t name_count, steps;
    struct tune_error *err;
};

static const struct python_value none = {.type = PYTHON_NONE};

static struct python_value integer_value(int64_t integer)
{
    return (struct python_value){.type = PYTHON_INT, .integer = integer};
}

static struct python_value real_value(double real)
{
    return (struct python_value){.type = PYTHON_REAL, .real = real};
}

static struct python_value bool_value(bool is_true)
{
    return (struct python_value){.type = PYTHON_BOOL, .integer = is_true};
}

static int step(struct evaluation *e, size_t count)
{
    e->steps += count;
    return e->steps <= PYTHON_STEP_LIMIT
               ? 0
               : tune_fail(e->err, TUNE_ELIMIT, "the expression takes more than %d steps",
                     PYTHON_STEP_LIMIT);
}

/* --- values ----------------------------------------------------------------------------------- */

bool python_is_number(const struct python_value *value)
{
    return value->type == PYTHON_BOOL || value->type == PYTHON_INT || value->type == PYTHON_REAL;
}

static bool is_integer(const struct python_value *value)
{
    return value->type == PYTHON_BOOL || value->type == PYTHON_INT;
}

double python_number(const struct python_value *value)
{
    return value->type == PYTHON_REAL ? value->real : (double)value->integer;
}

bool python_is_true(const struct python_value *value)
{
    return value->type == PYTHON_REAL ? value->real != 0 : value->integer != 0;
}

/* <0, 0, >0; exact between an integer and a real. Neither is NaN: no operation here makes one. */
static int compare_numbers(const struct python_value *a, const struct python_value *b)
{
    if (is_integer(a) && is_integer(b))
        return (a->integer > b->integer) - (a->integer < b->integer);
    long double left = is_integer(a) ? (long double)a->integer : (long double)a->real;
    long double right = is_integer(b) ? (long double)b->integer : (long double)b->real;
    return (left > right) - (left < right);
}

/* Lists may share their elements, so that a short text makes a comparison that never ends: each
 * pair costs one of *budget. */
static bool is_equal(const struct python_value *a, const struct python_value *b, size_t *budget)
{
    if (*budget == 0)
        return false;
    --*budget;
    if (python_is_number(a) && python_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a->type != b->type || a->integer != b->integer)
        return false;
    if (a->type == PYTHON_TEXT)
        return strcmp(a->text, b->text) == 0;
    for (int64_t i = 0; a->type == PYTHON_LIST && i < a->integer; i++)
        if (!is_equal(&a->items[i], &b->items[i], budget))
            return false;
    return true;
}

bool python_is_equal(const struct python_value *a, const struct python_value *b)
{
    size_t budget = PYTHON_STEP_LIMIT;
    return is_equal(a, b, &budget);
}

void python_real_text(double real, char text[PYTHON_REAL_BYTES])
{
    int digits = 1;
    for (; digits <= 17; digits++) {
        snprintf(text, PYTHON_REAL_BYTES, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real)
            break;
    }
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) { /* where Python writes no exponent */
        int decimals = digits - 1 - exponent;
        snprintf(text, PYTHON_REAL_BYTES, "%.*f", decimals > 1 ? decimals : 1, real);
    }
    char *comma = strchr(text, ','); /* the locale's */
    if (comma != NULL)
        *comma = '.';
}

static const char *type_name(const struct python_value *value)
{
    static const char *const names[] = {
        "None", "a bool", "an int", "a float", "a string", "a list"};
    return names[value->type];
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static int overflow(struct evaluation *e)
{
    return tune_fail(e->err, TUNE_ELIMIT, "a number outgrows 64 bits");
}

static int no_zero(struct evaluation *e)
{
    return tune_fail(e->err, TUNE_EMATH, "a division by zero");
}

static int real_result(struct evaluation *e, double real, struct python_value *value)
{
    *value = real_value(real);
    return isfinite(real) ? 0 : overflow(e);
}

static int power_of_integers(
    struct evaluation *e, int64_t base, int64_t exponent, struct python_value *value)
{
    int64_t result = 1;
    if (exponent < 0)
        return base == 0 ? no_zero(e) : real_result(e, pow((double)base, (double)exponent), value);
    if (base == 0 || base == 1 || base == -1) {
        *value = integer_value(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
        return 0;
    }
    while (exponent-- > 0) /* at most 63 rounds: then it overflows */
        if (__builtin_mul_overflow(result, base, &result))
            return overflow(e);
    *value = integer_value(result);
    return 0;
}

static int integer_operation(
    struct evaluation *e, enum python_op op, int64_t a, int64_t b, struct python_value *value)
{
    int64_t result = 0;
    bool is_over = false;
    switch (op) {
    case OP_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUBTRACT:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MULTIPLY:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIVIDE:
        return b == 0 ? no_zero(e) : real_result(e, (double)a / (double)b, value);
    case OP_FLOOR:
    case OP_MODULO:
        if (b == 0)
            return no_zero(e);
        if (b == -1) { /* INT64_MIN / -1 traps */
            is_over = __builtin_sub_overflow((int64_t)0, a, &result);
            if (op == OP_MODULO)
                is_over = false, result = 0;
            break;
        }
        result = op == OP_FLOOR ? a / b - (a % b != 0 && (a < 0) != (b < 0))
                                : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
        break;
    default:
        return power_of_integers(e, a, b, value);
    }
    *value = integer_value(result);
    return is_over ? overflow(e) : 0;
}

/* Python's modulo of reals has the sign of the divisor. */
static double floor_modulo(double a, double b)
{
    double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int real_operation(
    struct evaluation *e, enum python_op op, double a, double b, struct python_value *value)
{
    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && b == 0)
        return no_zero(e);
    switch (op) {
    case OP_ADD:
        return real_result(e, a + b, value);
    case OP_SUBTRACT:
        return real_result(e, a - b, value);
    case OP_MULTIPLY:
        return real_result(e, a * b, value);
    case OP_DIVIDE:
        return real_result(e, a / b, value);
    case OP_FLOOR: /* as CPython: from the modulo, not from the rounded quotient */
        return real_result(e, nearbyint((a - floor_modulo(a, b)) / b), value);
    case OP_MODULO:
        return real_result(e, floor_modulo(a, b), value);
    default:
        return real_result(e, pow(a, b), value);
    }
}

/* A list of `count` elements, none filled yet. */
static struct python_value *list_items(struct evaluation *e, size_t count)
{
    if (count > PYTHON_LIST_LIMIT) {
        tune_fail(e->err, TUNE_ELIMIT, "a list of more than %d elements", PYTHON_LIST_LIMIT);
        return NULL;
    }
    return step(e, count) ? NULL
                          : arena_take(e->arena, (count + 1) * sizeof(struct python_value), e->err);
}

static struct python_value list_value(const struct python_value *items, size_t count)
{
    return (struct python_value){.type = PYTHON_LIST, .integer = (int64_t)count, .items = items};
}

static int join(struct evaluation *e, const struct python_value *a, const struct python_value *b,
    struct python_value *value)
{
    size_t left = (size_t)a->integer, right = (size_t)b->integer;
    if (a->type == PYTHON_LIST) {
        struct python_value *items = list_items(e, left + right);
        if (items == NULL)
            return -1;
        memcpy(items, a->items, left * sizeof *items);
        memcpy(items + left, b->items, right * sizeof *items);
        *value = list_value(items, left + right);
        return 0;
    }
    char *text =
        left + right <= PYTHON_LIST_LIMIT ? arena_take(e->arena, left + right + 1, e->err) : NULL;
    if (text == NULL)
        return tune_fail(e->err, TUNE_ELIMIT, "a string of more than %d bytes", PYTHON_LIST_LIMIT);
    memcpy(text, a->text, left);
    memcpy(text + left, b->text, right);
    *value = (struct python_value){
        .type = PYTHON_TEXT, .integer = (int64_t)(left + right), .text = text};
    return step(e, left + right);
}

/* A list or a string, `times` times, by doubling: each join is bounded. */
static int repeat(struct evaluation *e, const struct python_value *what, int64_t times,
    struct python_value *value)
{
    struct python_value power = *what;
    *value = (struct python_value){.type = what->type, .text = "", .items = what->items};
    if (what->integer == 0)
        return 0;
    for (; times > 0; times >>= 1) {
        struct python_value so_far = *value, half = power;
        if ((times & 1) != 0 && join(e, &so_far, &half, value))
            return -1;
        if (times > 1 && join(e, &half, &half, &power))
            return -1;
    }
    return 0;
}

static int operate(struct evaluation *e, enum python_op op, const struct python_value *a,
    const struct python_value *b, struct python_value *value)
{
    if (is_integer(a) && is_integer(b))
        return integer_operation(e, op, a->integer, b->integer, value);
    if (python_is_number(a) && python_is_number(b))
        return real_operation(e, op, python_number(a), python_number(b), value);
    if (op == OP_ADD && a->type == b->type && (a->type == PYTHON_LIST || a->type == PYTHON_TEXT))
        return join(e, a, b, value);
    bool is_left = a->type == PYTHON_LIST || a->type == PYTHON_TEXT;
    bool is_right = b->type == PYTHON_LIST || b->type == PYTHON_TEXT;
    if (op == OP_MULTIPLY && is_left && is_integer(b))
        return repeat(e, a, b->integer, value);
    if (op == OP_MULTIPLY && is_right && is_integer(a))
        return repeat(e, b, a->integer, value);
    return tune_fail(
        e->err, TUNE_EINVAL, "%s and %s have no such operation", type_name(a), type_name(b));
}

static int negate(struct evaluation *e, enum python_op op, const struct python_value *a,
    struct python_value *value)
{
    struct python_value zero = integer_value(0);
    if (op == OP_NOT) {
        *value = bool_value(!python_is_true(a));
        return 0;
    }
    if (!python_is_number(a))
        return tune_fail(e->err, TUNE_EINVAL, "%s has no sign", type_name(a));
    return operate(e, op == OP_NEGATE ? OP_SUBTRACT : OP_ADD, &zero, a, value);
}

/* <0, 0, >0; lists by their first elements that differ. -1: these have no order. */
static int order_of(struct evaluation *e, const struct python_value *a,
    const struct python_value *b, size_t *budget, int *order)
{
    if (python_is_number(a) && python_is_number(b))
        *order = compare_numbers(a, b);
    else if (a->type == PYTHON_TEXT && b->type == PYTHON_TEXT)
        *order = strcmp(a->text, b->text);
    else if (a->type != PYTHON_LIST || b->type != PYTHON_LIST)
        return tune_fail(
            e->err, TUNE_EINVAL, "%s and %s have no order", type_name(a), type_name(b));
    else
        *order = (a->integer > b->integer) - (a->integer < b->integer);
    for (int64_t i = 0; a->type == PYTHON_LIST && i < a->integer && i < b->integer; i++)
        if (!is_equal(&a->items[i], &b->items[i], budget))
            return order_of(e, &a->items[i], &b->items[i], budget, order);
    return 0;
}

static int compare(struct evaluation *e, enum python_op op, const struct python_value *a,
    const struct python_value *b, bool *holds)
{
    int order = 0;
    size_t budget = PYTHON_STEP_LIMIT;
    if (op == OP_IN || op == OP_NOT_IN) {
        bool is_in = false;
        if (b->type != PYTHON_LIST)
            return tune_fail(e->err, TUNE_EINVAL, "\"in\" needs a list, not %s", type_name(b));
        for (int64_t i = 0; !is_in && i < b->integer; i++)
            is_in = is_equal(a, &b->items[i], &budget);
        *holds = is_in == (op == OP_IN);
        return step(e, PYTHON_STEP_LIMIT - budget);
    }
    if (op == OP_EQUAL || op == OP_NOT_EQUAL) {
        *holds = is_equal(a, b, &budget) == (op == OP_EQUAL);
        return step(e, PYTHON_STEP_LIMIT - budget);
    }
    if (order_of(e, a, b, &budget, &order) || step(e, PYTHON_STEP_LIMIT - budget))
        return -1;
    *holds = op == OP_LESS         ? order < 0
             : op == OP_LESS_EQUAL ? order <= 0
             : op == OP_GREATER    ? order > 0
                                   : order >= 0;
    return 0;
}

/* --- functions -------------------------------------------------------------------------------- */

typedef int function(struct evaluation *e, const struct python_value *args, size_t count,
    struct python_value *value);

static int call_range(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    for (size_t i = 0; i < count; i++)
        if (!is_integer(&args[i]))
            return tune_fail(e->err, TUNE_EINVAL, "range needs integers");
    int64_t start = count > 1 ? args[0].integer : 0;
    int64_t end = args[count > 1 ? 1 : 0].integer, stride = count > 2 ? args[2].integer : 1;
    if (stride == 0)
        return tune_fail(e->err, TUNE_EINVAL, "range with a step of 0");
    __int128 span = stride > 0 ? (__int128)end - start : (__int128)start - end;
    __int128 size = stride > 0 ? stride : -(__int128)stride;
    __int128 total = span > 0 ? (span + size - 1) / size : 0;
    struct python_value *items =
        list_items(e, total > PYTHON_LIST_LIMIT ? PYTHON_LIST_LIMIT + (size_t)1 : (size_t)total);
    for (int64_t i = 0; items != NULL && i < total; i++)
        items[i] = integer_value((int64_t)(start + (__int128)i * stride));
    *value = list_value(items, (size_t)total);
    return items ? 0 : -1;
}

static int call_list(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    *value = count > 0 ? args[0] : list_value(&none, 0);
    return value->type == PYTHON_LIST
               ? 0
               : tune_fail(e->err, TUNE_EINVAL, "%s is no list", type_name(&args[0]));
}

/* The extreme of a list, or of the arguments; a lone number is itself. */
static int extreme(struct evaluation *e, const struct python_value *args, size_t count,
    enum python_op op, struct python_value *value)
{
    if (count == 1 && args[0].type == PYTHON_LIST) {
        count = (size_t)args[0].integer;
        args = args[0].items;
    }
    if (count == 0)
        return tune_fail(e->err, TUNE_EINVAL, "min and max need a value");
    *value = args[0];
    for (size_t i = 1; i < count; i++) {
        bool is_better;
        if (compare(e, op, &args[i], value, &is_better))
            return -1;
        if (is_better)
            *value = args[i];
    }
    return step(e, count);
}

static int call_min(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    return extreme(e, args, count, OP_LESS, value);
}

static int call_max(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    return extreme(e, args, count, OP_GREATER, value);
}

static int call_sum(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    struct python_value total = integer_value(0);
    if (args[0].type != PYTHON_LIST)
        return tune_fail(e->err, TUNE_EINVAL, "sum needs a list");
    for (int64_t i = 0; i < args[0].integer; i++) {
        struct python_value so_far = total;
        if (operate(e, OP_ADD, &so_far, &args[0].items[i], &total))
            return -1;
    }
    *value = total;
    return step(e, (size_t)args[0].integer);
}

static int call_abs(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    bool is_negative = python_is_number(&args[0]) && python_number(&args[0]) < 0;
    return negate(e, is_negative ? OP_NEGATE : OP_PLUS, &args[0], value);
}

static int call_len(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    *value = integer_value(args[0].integer);
    return args[0].type == PYTHON_LIST || args[0].type == PYTHON_TEXT
               ? 0
               : tune_fail(e->err, TUNE_EINVAL, "%s has no length", type_name(&args[0]));
}

static int to_integer(struct evaluation *e, double real, struct python_value *value)
{
    if (!(real > -9.2e18 && real < 9.2e18))
        return overflow(e);
    *value = integer_value((int64_t)real);
    return 0;
}

static int call_int(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    if (!python_is_number(&args[0]))
        return tune_fail(e->err, TUNE_EINVAL, "int of %s", type_name(&args[0]));
    *value = integer_value(args[0].integer);
    return is_integer(&args[0]) ? 0 : to_integer(e, args[0].real, value);
}

static int call_round(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    if (!python_is_number(&args[0]))
        return tune_fail(e->err, TUNE_EINVAL, "round of %s", type_name(&args[0]));
    *value = integer_value(args[0].integer);
    return is_integer(&args[0]) ? 0 : to_integer(e, nearbyint(args[0].real), value);
}

static int call_float(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    if (!python_is_number(&args[0]))
        return tune_fail(e->err, TUNE_EINVAL, "float of %s", type_name(&args[0]));
    *value = real_value(python_number(&args[0]));
    return 0;
}

static int call_bool(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)e;
    (void)count;
    *value = bool_value(python_is_true(&args[0]));
    return 0;
}

static int call_str(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    *value = args[0];
    if (args[0].type == PYTHON_TEXT)
        return 0;
    if (args[0].type != PYTHON_INT)
        return tune_fail(e->err, TUNE_EINVAL, "str of %s", type_name(&args[0]));
    char *text = arena_take(e->arena, 24, e->err);
    if (text == NULL)
        return -1;
    int length = snprintf(text, 24, "%" PRId64, args[0].integer);
    *value = (struct python_value){.type = PYTHON_TEXT, .integer = length, .text = text};
    return 0;
}

/* Insertion sort: lists of values are short, and its steps are counted. */
static int call_sorted(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    struct python_value *items =
        args[0].type == PYTHON_LIST ? list_items(e, (size_t)args[0].integer) : NULL;
    if (items == NULL)
        return tune_fail(e->err, TUNE_EINVAL, "sorted needs a list");
    for (int64_t i = 0; i < args[0].integer; i++) {
        int64_t at = i;
        for (bool is_less; at > 0; at--) {
            if (step(e, 1) || compare(e, OP_LESS, &args[0].items[i], &items[at - 1], &is_less))
                return -1;
            if (!is_less)
                break;
            items[at] = items[at - 1];
        }
        items[at] = args[0].items[i];
    }
    *value = list_value(items, (size_t)args[0].integer);
    return 0;
}

static int call_pow(
    struct evaluation *e, const struct python_value *args, size_t count, struct python_value *value)
{
    (void)count;
    return operate(e, OP_POWER, &args[0], &args[1], value);
}

static const struct {
    const char *name;
    size_t min_args, max_args;
    function *call;
} functions[] = {
    {"range", 1, 3, call_range},
    {"list", 0, 1, call_list},
    {"tuple", 0, 1, call_list},
    {"min", 1, SIZE_MAX, call_min},
    {"max", 1, SIZE_MAX, call_max},
    {"sum", 1, 1, call_sum},
    {"abs", 1, 1, call_abs},
    {"len", 1, 1, call_len},
    {"int", 1, 1, call_int},
    {"float", 1, 1, call_float},
    {"bool", 1, 1, call_bool},
    {"str", 1, 1, call_str},
    {"round", 1, 1, call_round},
    {"sorted", 1, 1, call_sorted},
    {"pow", 2, 2, call_pow},
};

bool python_has_function(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, name) == 0)
            return true;
    return false;
}

/* --- the tree --------------------------------------------------------------------------------- */

static int evaluate(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value *value);

static int evaluate_name(
    struct evaluation *e, const struct scope *scope, const char *name, struct python_value *value)
{
    for (; scope != NULL; scope = scope->outer) {
        if (strcmp(scope->name.name, name) == 0) {
            *value = scope->name.value;
            return 0;
        }
    }
    for (size_t i = 0; i < e->name_count; i++) {
        if (strcmp(e->names[i].name, name) == 0) {
            *value = e->names[i].value;
            return 0;
        }
    }
    return tune_fail(e->err, TUNE_ENOTFOUND, "there is no name \"%.60s\" here", name);
}

static int evaluate_all(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value **items)
{
    *items = list_items(e, node->kid_count);
    for (size_t i = 0; *items != NULL && i < node->kid_count; i++)
        if (evaluate(e, scope, node->kids[i], &(*items)[i]))
            return -1;
    return *items ? 0 : -1;
}

static int evaluate_call(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value *value)
{
    struct python_value *args;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, node->value.text) != 0)
            continue;
        if (node->kid_count < functions[i].min_args || node->kid_count > functions[i].max_args)
            return tune_fail(e->err, TUNE_EINVAL, "%s does not take %zu arguments",
                node->value.text, node->kid_count);
        return evaluate_all(e, scope, node, &args)
                   ? -1
                   : functions[i].call(e, args, node->kid_count, value);
    }
    return tune_fail(
        e->err, TUNE_ENOTFOUND, "the function \"%.60s\" is not read here", node->value.text);
}

static int evaluate_subscript(struct evaluation *e, const struct scope *scope,
    const struct node *node, struct python_value *value)
{
    struct python_value list, index;
    if (evaluate(e, scope, node->kids[0], &list) || evaluate(e, scope, node->kids[1], &index))
        return -1;
    if (list.type != PYTHON_LIST || !is_integer(&index))
        return tune_fail(e->err, TUNE_EINVAL, "%s cannot be indexed with %s", type_name(&list),
            type_name(&index));
    int64_t at = index.integer < 0 ? index.integer + list.integer : index.integer;
    if (at < 0 || at >= list.integer)
        return tune_fail(e->err, TUNE_EINVAL,
            "there is no element %" PRId64 " in a list of %" PRId64, index.integer, list.integer);
    *value = list.items[at];
    return 0;
}

static int evaluate_chain(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value *value)
{
    struct python_value left, right;
    bool holds = true;
    if (evaluate(e, scope, node->kids[0], &left))
        return -1;
    for (size_t i = 1; holds && i < node->kid_count; i++, left = right)
        if (evaluate(e, scope, node->kids[i], &right) ||
            compare(e, node->kids[i]->compared, &left, &right, &holds))
            return -1;
    *value = bool_value(holds);
    return 0;
}

/* A list under construction; its room doubles. */
struct growing {
    struct python_value *items;
    size_t count, room;
};

static int grow(struct evaluation *e, struct growing *list, const struct python_value *value)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        struct python_value *items = list_items(e, room);
        if (items == NULL)
            return -1;
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *value;
    return 0;
}

/* The clauses from `at` on, for each of whose values the element is taken. */
static int generate(struct evaluation *e, const struct scope *scope, const struct node *node,
    size_t at, struct growing *list)
{
    struct python_value value;
    if (at == node->kid_count)
        return evaluate(e, scope, node->kids[0], &value) || grow(e, list, &value) ? -1 : 0;
    const struct node *clause = node->kids[at];
    if (evaluate(e, scope, clause->kids[0], &value))
        return -1;
    if (clause->kind == NODE_IF)
        return python_is_true(&value) ? generate(e, scope, node, at + 1, list) : 0;
    if (value.type != PYTHON_LIST)
        return tune_fail(e->err, TUNE_EINVAL, "\"for\" needs a list, not %s", type_name(&value));
    for (int64_t i = 0; i < value.integer; i++) {
        struct scope inner = {scope, {clause->value.text, value.items[i]}};
        if (step(e, 1) || generate(e, &inner, node, at + 1, list))
            return -1;
    }
    return 0;
}

static int evaluate_words(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value *value)
{
    for (size_t i = 0; i < node->kid_count; i++) {
        if (evaluate(e, scope, node->kids[i], value))
            return -1;
        if (python_is_true(value) == (node->kind == NODE_OR))
            break;
    }
    return 0;
}

static int evaluate(struct evaluation *e, const struct scope *scope, const struct node *node,
    struct python_value *value)
{
    struct python_value a, b, *items;
    struct growing list = {0};
    if (step(e, 1))
        return -1;
    switch (node->kind) {
    case NODE_NAME:
        return evaluate_name(e, scope, node->value.text, value);
    case NODE_LIST:
        if (evaluate_all(e, scope, node, &items))
            return -1;
        *value = list_value(items, node->kid_count);
        return 0;
    case NODE_UNARY:
        return evaluate(e, scope, node->kids[0], &a) || negate(e, node->op, &a, value) ? -1 : 0;
    case NODE_BINARY:
        return evaluate(e, scope, node->kids[0], &a) || evaluate(e, scope, node->kids[1], &b) ||
                       operate(e, node->op, &a, &b, value)
                   ? -1
                   : 0;
    case NODE_COMPARE:
        return evaluate_chain(e, scope, node, value);
    case NODE_AND:
    case NODE_OR:
        return evaluate_words(e, scope, node, value);
    case NODE_CHOICE:
        return evaluate(e, scope, node->kids[0], &a) ||
                       evaluate(e, scope, node->kids[python_is_true(&a) ? 1 : 2], value)
                   ? -1
                   : 0;
    case NODE_CALL:
        return evaluate_call(e, scope, node, value);
    case NODE_SUBSCRIPT:
        return evaluate_subscript(e, scope, node, value);
    case NODE_GENERATE:
        if (generate(e, scope, node, 1, &list))
            return -1;
        *value = list_value(list.items ? list.items : &none, list.count);
        return 0;
    default:
        *value = node->value;
        return 0;
    }
}

int python_eval_node(struct python *python, const struct node *node,
    const struct python_name *names, size_t count, struct python_value *value,
    struct tune_error *err)
{
    struct evaluation e = {&python->values, names, count, 0, err};
    *value = none;
    int status = evaluate(&e, NULL, node, value);
    python->steps += e.steps;
    return status;
}

int python_eval(struct python *python, const struct python_name *names, size_t count,
    struct python_value *value, struct tune_error *err)
{
    arena_finish(&python->values);
    return python_eval_node(python, python->root, names, count, value, err);
}
