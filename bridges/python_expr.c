/* See python_expr.h: the translation operator by operator. The table and the trial are
 * python_table.c's. */
#include "python_expr.h"
#include "python_expr_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How tightly a text binds in the manifest's grammar; an operand that binds less is bracketed. */
enum rank {
    RANK_CHOICE = 1,
    RANK_OR,
    RANK_AND,
    RANK_EQUAL,
    RANK_ORDER,
    RANK_SUM,
    RANK_PRODUCT,
    RANK_UNARY,
    RANK_ATOM,
};

struct text {
    const char *text;
    enum rank rank;
};

/* A number: over / under, with under a positive integer (text NULL: 1); its range as a real. */
struct piece {
    struct text over, under;
    long double lo, hi;
    bool is_bool;
};

struct translator {
    struct python *python;
    const struct python_symbol *symbols;
    size_t symbol_count;
    const struct python_name *names;
    size_t name_count;
    struct tune_error *err;
};

static int translate(struct translator *t, const struct node *node, struct piece *piece);
static int translate_truth(struct translator *t, const struct node *node, struct text *out);

/* --- texts ------------------------------------------------------------------------------------ */

static int cannot(struct translator *t, const char *what)
{
    return tune_fail(t->err, TUNE_EINVAL, "%s cannot be said in integers", what);
}

static int format(struct translator *t, enum rank rank, struct text *out, const char *pattern, ...)
    __attribute__((format(printf, 4, 5)));

static int format(struct translator *t, enum rank rank, struct text *out, const char *pattern, ...)
{
    va_list args, again;
    va_start(args, pattern);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, pattern, args);
    char *text = NULL;
    if (length < 0 || length > EXPR_TEXT_LIMIT)
        tune_fail(t->err, TUNE_ELIMIT, "the expression outgrows the %d bytes of a manifest's",
            EXPR_TEXT_LIMIT);
    else
        text = arena_take(&t->python->tree, (size_t)length + 1, t->err);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, pattern, again);
    va_end(again);
    va_end(args);
    *out = (struct text){text, rank};
    return text ? 0 : -1;
}

/* `left op right`, with brackets where an operand binds less than `rank` (the right one: not more,
 * since operators group from the left). */
static int binary(struct translator *t, struct text left, const char *op, struct text right,
    enum rank rank, struct text *out)
{
    bool is_left = left.rank < rank, is_right = right.rank <= rank;
    return format(t, rank, out, "%s%s%s %s %s%s%s", is_left ? "(" : "", left.text,
        is_left ? ")" : "", op, is_right ? "(" : "", right.text, is_right ? ")" : "");
}

static int unary(struct translator *t, const char *op, struct text operand, struct text *out)
{
    bool is_bracketed = operand.rank <= RANK_UNARY;
    return format(t, RANK_UNARY, out, "%s%s%s%s", op, is_bracketed ? "(" : "", operand.text,
        is_bracketed ? ")" : "");
}

static int number(struct translator *t, int64_t integer, struct text *out)
{
    return format(t, integer < 0 ? RANK_UNARY : RANK_ATOM, out, "%" PRId64, integer);
}

/* a * b, where a text NULL is 1. */
static int product(struct translator *t, struct text a, struct text b, struct text *out)
{
    if (a.text == NULL || b.text == NULL) {
        *out = a.text ? a : b;
        return 0;
    }
    return binary(t, a, "*", b, RANK_PRODUCT, out);
}

/* a ? b : c. The middle may be anything; the last is of the same rank or tighter. */
static int choice(
    struct translator *t, struct text a, struct text b, struct text c, struct text *out)
{
    bool is_bracketed = a.rank <= RANK_CHOICE;
    return format(t, RANK_CHOICE, out, "%s%s%s ? %s : %s", is_bracketed ? "(" : "", a.text,
        is_bracketed ? ")" : "", b.text, c.text);
}

/* --- constants and names ---------------------------------------------------------------------- */

#define FRACTION_LIMIT INT64_C(1000000000000)

/* A real becomes a fraction of a power of ten, or of two, that is exactly it. */
static int real_constant(struct translator *t, double real, struct piece *piece)
{
    piece->lo = piece->hi = real;
    for (int base = 10; base >= 2; base -= 8) {
        for (int64_t under = 1; under <= FRACTION_LIMIT; under *= base) {
            double over = nearbyint(real * (double)under);
            if (fabs(over) > 9e15 || over / (double)under != real)
                continue;
            if (under > 1 && number(t, under, &piece->under))
                return -1;
            return number(t, (int64_t)over, &piece->over);
        }
    }
    return cannot(t, "this real number");
}

static int constant(struct translator *t, const struct python_value *value, struct piece *piece)
{
    if (value->type == PYTHON_REAL)
        return real_constant(t, value->real, piece);
    if (!python_is_number(value))
        return cannot(t, "a string or a list");
    piece->lo = piece->hi = (long double)value->integer;
    piece->is_bool = value->type == PYTHON_BOOL;
    return value->integer > INT64_MIN ? number(t, value->integer, &piece->over)
                                      : cannot(t, "-2^63");
}

static const struct python_symbol *find_symbol(
    const struct translator *t, const char *name, int64_t index)
{
    for (size_t i = 0; i < t->symbol_count; i++)
        if (t->symbols[i].index == index && strcmp(t->symbols[i].name, name) == 0)
            return &t->symbols[i];
    return NULL;
}

static bool reads_symbol(const struct translator *t, const struct node *node)
{
    if (node->kind == NODE_NAME)
        for (size_t i = 0; i < t->symbol_count; i++)
            if (strcmp(t->symbols[i].name, node->value.text) == 0)
                return true;
    for (size_t i = 0; i < node->kid_count; i++)
        if (reads_symbol(t, node->kids[i]))
            return true;
    return false;
}

static int symbol(struct translator *t, const struct python_symbol *found, struct piece *piece)
{
    piece->over = (struct text){found->text, RANK_ATOM};
    piece->lo = (long double)found->lo;
    piece->hi = (long double)found->hi;
    return piece->over.text ? 0 : cannot(t, "this name");
}

static int translate_name(
    struct translator *t, const char *name, int64_t index, struct piece *piece)
{
    const struct python_symbol *found = find_symbol(t, name, index);
    if (found != NULL)
        return symbol(t, found, piece);
    return index < 0 ? cannot(t, name) : cannot(t, "this element of a list");
}

/* NAME[constant] */
static int translate_subscript(struct translator *t, const struct node *node, struct piece *piece)
{
    const struct node *list = node->kids[0], *index = node->kids[1];
    if (list->kind != NODE_NAME || index->kind != NODE_VALUE || index->value.type != PYTHON_INT)
        return cannot(t, "an element of a list");
    return translate_name(t, list->value.text, index->value.integer, piece);
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static long double least(long double a, long double b, long double c, long double d)
{
    return fminl(fminl(a, b), fminl(c, d));
}

static long double most(long double a, long double b, long double c, long double d)
{
    return fmaxl(fmaxl(a, b), fmaxl(c, d));
}

/* Both over the same denominator: the first's stays, `right` is what remains of the second. */
static int same_under(struct translator *t, const struct piece *a, const struct piece *b,
    struct text over[2], struct text *under)
{
    if (a->under.text != NULL && b->under.text != NULL &&
        strcmp(a->under.text, b->under.text) == 0) {
        over[0] = a->over;
        over[1] = b->over;
        *under = a->under;
        return 0;
    }
    return product(t, a->over, b->under, &over[0]) || product(t, b->over, a->under, &over[1]) ||
                   product(t, a->under, b->under, under)
               ? -1
               : 0;
}

static int add(struct translator *t, enum python_op op, const struct piece *a,
    const struct piece *b, struct piece *out)
{
    struct text over[2];
    bool is_sum = op == OP_ADD;
    out->lo = is_sum ? a->lo + b->lo : a->lo - b->hi;
    out->hi = is_sum ? a->hi + b->hi : a->hi - b->lo;
    return same_under(t, a, b, over, &out->under) ||
                   binary(t, over[0], is_sum ? "+" : "-", over[1], RANK_SUM, &out->over)
               ? -1
               : 0;
}

static int multiply(
    struct translator *t, const struct piece *a, const struct piece *b, struct piece *out)
{
    out->lo = least(a->lo * b->lo, a->lo * b->hi, a->hi * b->lo, a->hi * b->hi);
    out->hi = most(a->lo * b->lo, a->lo * b->hi, a->hi * b->lo, a->hi * b->hi);
    return product(t, a->over, b->over, &out->over) || product(t, a->under, b->under, &out->under)
               ? -1
               : 0;
}

/* a / b as over / under, with under positive. */
static int divide(
    struct translator *t, const struct piece *a, const struct piece *b, struct piece *out)
{
    if (b->lo <= 0)
        return cannot(t, "a division by what may be zero or negative");
    out->lo = fminl(a->lo / b->lo, a->lo / b->hi);
    out->hi = fmaxl(a->hi / b->lo, a->hi / b->hi);
    return product(t, a->over, b->under, &out->over) || product(t, a->under, b->over, &out->under)
               ? -1
               : 0;
}

/* floor(over / under) with under != 0: where both are known not to be negative, ours is Python's.
 */
static int floor_of(
    struct translator *t, struct text over, struct text under, bool is_natural, struct text *out)
{
    struct text inner, rest, sum, difference;
    if (under.text == NULL) {
        *out = over;
        return 0;
    }
    if (is_natural)
        return binary(t, over, "/", under, RANK_PRODUCT, out);
    /* (a - ((a % b + b) % b)) / b: Python's modulo taken off, the division leaves nothing. */
    return binary(t, over, "%", under, RANK_PRODUCT, &inner) ||
                   binary(t, inner, "+", under, RANK_SUM, &sum) ||
                   binary(t, sum, "%", under, RANK_PRODUCT, &rest) ||
                   binary(t, over, "-", rest, RANK_SUM, &difference) ||
                   binary(t, difference, "/", under, RANK_PRODUCT, out)
               ? -1
               : 0;
}

static int modulo_of(
    struct translator *t, struct text over, struct text under, bool is_natural, struct text *out)
{
    struct text inner, sum;
    if (is_natural)
        return binary(t, over, "%", under, RANK_PRODUCT, out);
    return binary(t, over, "%", under, RANK_PRODUCT, &inner) ||
                   binary(t, inner, "+", under, RANK_SUM, &sum) ||
                   binary(t, sum, "%", under, RANK_PRODUCT, out)
               ? -1
               : 0;
}

static int floor_divide(struct translator *t, enum python_op op, const struct piece *a,
    const struct piece *b, struct piece *out)
{
    struct text over, under, one = {"1", RANK_ATOM};
    bool is_natural = a->lo >= 0 && b->lo > 0;
    if (product(t, a->over, b->under, &over) || product(t, b->over, a->under, &under))
        return -1;
    if (op == OP_FLOOR) {
        bool has_sign = b->lo > 0 || b->hi < 0;
        long double near = b->lo > 0 ? b->lo : has_sign ? b->hi : 1;
        long double far = fmaxl(fabsl(a->lo), fabsl(a->hi)) / fabsl(near);
        out->lo = is_natural ? 0 : -far - 1;
        out->hi = far + 1;
        return floor_of(t, over, under, is_natural, &out->over);
    }
    out->lo = b->lo < 0 ? b->lo : 0;
    out->hi = b->hi > 0 ? b->hi : 0;
    if (is_natural && a->hi < out->hi)
        out->hi = a->hi;
    return modulo_of(t, over, under.text ? under : one, is_natural, &out->over) ||
                   product(t, a->under, b->under, &out->under)
               ? -1
               : 0;
}

/* A power with a constant exponent is a product; a power of two is our pow2. */
static int raise(
    struct translator *t, const struct node *base, const struct node *exponent, struct piece *out)
{
    struct piece a = {0}, b = {0};
    if (translate(t, base, &a) || translate(t, exponent, &b))
        return -1;
    if (b.lo == b.hi && b.lo >= 1 && b.lo <= 8 && b.under.text == NULL) {
        *out = a;
        for (int i = 1; i < (int)b.lo; i++) {
            struct piece so_far = *out;
            *out = (struct piece){0};
            if (multiply(t, &so_far, &a, out))
                return -1;
        }
        return 0;
    }
    if (a.lo == 2 && a.hi == 2 && a.under.text == NULL && b.under.text == NULL && b.lo >= 0 &&
        b.hi <= 62) {
        out->lo = exp2l(b.lo);
        out->hi = exp2l(b.hi);
        return format(t, RANK_ATOM, &out->over, "pow2(%s)", b.over.text);
    }
    return cannot(t, "this power");
}

static int translate_binary(struct translator *t, const struct node *node, struct piece *out)
{
    struct piece a = {0}, b = {0};
    if (node->op == OP_POWER)
        return raise(t, node->kids[0], node->kids[1], out);
    if (translate(t, node->kids[0], &a) || translate(t, node->kids[1], &b))
        return -1;
    switch (node->op) {
    case OP_ADD:
    case OP_SUBTRACT:
        return add(t, node->op, &a, &b, out);
    case OP_MULTIPLY:
        return multiply(t, &a, &b, out);
    case OP_DIVIDE:
        return divide(t, &a, &b, out);
    default:
        return floor_divide(t, node->op, &a, &b, out);
    }
}

/* --- truths ----------------------------------------------------------------------------------- */

static int compare_pieces(struct translator *t, enum python_op op, const struct piece *a,
    const struct piece *b, struct text *out)
{
    static const char *const words[] = {[OP_EQUAL] = "==",
        [OP_NOT_EQUAL] = "!=",
        [OP_LESS] = "<",
        [OP_LESS_EQUAL] = "<=",
        [OP_GREATER] = ">",
        [OP_GREATER_EQUAL] = ">="};
    struct text over[2], under;
    bool is_equality = op == OP_EQUAL || op == OP_NOT_EQUAL;
    return same_under(t, a, b, over, &under) || binary(t, over[0], words[op], over[1],
                                                    is_equality ? RANK_EQUAL : RANK_ORDER, out)
               ? -1
               : 0;
}

static int join_truths(struct translator *t, bool is_or, struct text next, struct text *all)
{
    struct text so_far = *all;
    if (so_far.text == NULL) {
        *all = next;
        return 0;
    }
    return binary(t, so_far, is_or ? "||" : "&&", next, is_or ? RANK_OR : RANK_AND, all);
}

/* x in [a, b]: x == a || x == b. */
static int translate_in(
    struct translator *t, const struct piece *left, const struct node *list, struct text *out)
{
    struct text all = {0};
    if (list->kind != NODE_LIST || list->kid_count == 0)
        return cannot(t, "\"in\" of anything but a list of values");
    for (size_t i = 0; i < list->kid_count; i++) {
        struct piece element = {0};
        struct text equal;
        if (translate(t, list->kids[i], &element) ||
            compare_pieces(t, OP_EQUAL, left, &element, &equal) ||
            join_truths(t, true, equal, &all))
            return -1;
    }
    *out = all;
    return list->compared == OP_IN ? 0 : unary(t, "!", all, out);
}

static int translate_chain(struct translator *t, const struct node *node, struct text *out)
{
    struct piece left = {0};
    struct text all = {0};
    if (translate(t, node->kids[0], &left))
        return -1;
    for (size_t i = 1; i < node->kid_count; i++) {
        const struct node *kid = node->kids[i];
        struct piece right = {0};
        struct text holds;
        if (kid->compared == OP_IN || kid->compared == OP_NOT_IN) {
            if (i + 1 < node->kid_count)
                return cannot(t, "\"in\" within a chain of comparisons");
            if (translate_in(t, &left, kid, &holds))
                return -1;
        } else if (translate(t, kid, &right) ||
                   compare_pieces(t, kid->compared, &left, &right, &holds)) {
            return -1;
        }
        if (join_truths(t, false, holds, &all))
            return -1;
        left = right;
    }
    *out = all;
    return 0;
}

static int translate_words(struct translator *t, const struct node *node, struct text *out)
{
    struct text all = {0};
    for (size_t i = 0; i < node->kid_count; i++) {
        struct text next;
        if (translate_truth(t, node->kids[i], &next) ||
            join_truths(t, node->kind == NODE_OR, next, &all))
            return -1;
    }
    *out = all;
    return 0;
}

/* 0 for false, anything else for true. */
static int translate_truth(struct translator *t, const struct node *node, struct text *out)
{
    struct piece piece = {0};
    struct text inner;
    if (node->kind == NODE_AND || node->kind == NODE_OR)
        return translate_words(t, node, out);
    if (node->kind == NODE_COMPARE)
        return translate_chain(t, node, out);
    if (node->kind == NODE_UNARY && node->op == OP_NOT)
        return translate_truth(t, node->kids[0], &inner) || unary(t, "!", inner, out) ? -1 : 0;
    if (translate(t, node, &piece))
        return -1;
    *out = piece.over;
    return 0;
}

/* --- the tree --------------------------------------------------------------------------------- */

/* A truth as a value: 0 or 1. `and` and `or` give one of their operands, so these must be truths.
 */
static int translate_bool(struct translator *t, const struct node *node, struct piece *out)
{
    for (size_t i = 0; (node->kind == NODE_AND || node->kind == NODE_OR) && i < node->kid_count;
         i++) {
        struct piece kid = {0};
        if (translate(t, node->kids[i], &kid))
            return -1;
        if (!kid.is_bool)
            return cannot(t, "the operand that \"and\" or \"or\" gives");
    }
    out->hi = 1;
    out->is_bool = true;
    return translate_truth(t, node, &out->over);
}

static int translate_choice(struct translator *t, const struct node *node, struct piece *out)
{
    struct piece a = {0}, b = {0};
    struct text condition, over[2];
    if (translate_truth(t, node->kids[0], &condition) || translate(t, node->kids[1], &a) ||
        translate(t, node->kids[2], &b) || same_under(t, &a, &b, over, &out->under))
        return -1;
    out->lo = fminl(a.lo, b.lo);
    out->hi = fmaxl(a.hi, b.hi);
    return choice(t, condition, over[0], over[1], &out->over);
}

static int translate_negation(struct translator *t, const struct node *node, struct piece *out)
{
    struct piece a = {0};
    if (translate(t, node->kids[0], &a))
        return -1;
    *out = a;
    out->is_bool = false;
    if (node->op == OP_PLUS)
        return 0;
    out->lo = -a.hi;
    out->hi = -a.lo;
    return unary(t, "-", a.over, &out->over);
}

static int translate_extreme(struct translator *t, const struct node *node, struct piece *out)
{
    const char *name = node->value.text;
    bool is_min = strcmp(name, "min") == 0;
    for (size_t i = 0; i < node->kid_count; i++) {
        struct piece next = {0}, so_far = *out;
        if (translate(t, node->kids[i], &next))
            return -1;
        if (next.under.text != NULL)
            return cannot(t, "the smaller or greater of fractions");
        out->lo = i == 0 ? next.lo : is_min ? fminl(so_far.lo, next.lo) : fmaxl(so_far.lo, next.lo);
        out->hi = i == 0 ? next.hi : is_min ? fminl(so_far.hi, next.hi) : fmaxl(so_far.hi, next.hi);
        out->over = next.over;
        if (i > 0 &&
            format(t, RANK_ATOM, &out->over, "%s(%s, %s)", name, so_far.over.text, next.over.text))
            return -1;
    }
    return 0;
}

static int translate_abs(struct translator *t, const struct piece *a, struct piece *out)
{
    struct text negative, condition, zero = {"0", RANK_ATOM};
    *out = *a;
    if (a->lo >= 0)
        return 0;
    out->lo = 0;
    out->hi = fmaxl(-a->lo, a->hi);
    return unary(t, "-", a->over, &negative) ||
                   binary(t, a->over, "<", zero, RANK_ORDER, &condition) ||
                   choice(t, condition, negative, a->over, &out->over)
               ? -1
               : 0;
}

static int translate_call(struct translator *t, const struct node *node, struct piece *out)
{
    const char *name = node->value.text;
    struct piece a = {0};
    if ((strcmp(name, "min") == 0 || strcmp(name, "max") == 0) && node->kid_count > 1)
        return translate_extreme(t, node, out);
    if (strcmp(name, "pow") == 0 && node->kid_count == 2)
        return raise(t, node->kids[0], node->kids[1], out);
    bool is_int = strcmp(name, "int") == 0, is_float = strcmp(name, "float") == 0;
    bool is_abs = strcmp(name, "abs") == 0;
    if (node->kid_count != 1 || (!is_int && !is_float && !is_abs))
        return cannot(t, name);
    if (translate(t, node->kids[0], &a))
        return -1;
    if (is_abs)
        return translate_abs(t, &a, out);
    *out = a;
    out->is_bool = false;
    if (is_float || a.under.text == NULL)
        return 0;
    out->under.text = NULL; /* int() cuts towards zero, as our division does */
    out->lo = truncl(a.lo);
    out->hi = truncl(a.hi);
    return binary(t, a.over, "/", a.under, RANK_PRODUCT, &out->over);
}

static int translate(struct translator *t, const struct node *node, struct piece *piece)
{
    struct python_value value;
    if (node->kind != NODE_NAME && !reads_symbol(t, node))
        return python_eval_node(t->python, node, t->names, t->name_count, &value, t->err) ||
                       constant(t, &value, piece)
                   ? -1
                   : 0;
    switch (node->kind) {
    case NODE_NAME:
        if (!reads_symbol(t, node))
            return python_eval_node(t->python, node, t->names, t->name_count, &value, t->err) ||
                           constant(t, &value, piece)
                       ? -1
                       : 0;
        return translate_name(t, node->value.text, -1, piece);
    case NODE_SUBSCRIPT:
        return translate_subscript(t, node, piece);
    case NODE_BINARY:
        return translate_binary(t, node, piece);
    case NODE_CHOICE:
        return translate_choice(t, node, piece);
    case NODE_CALL:
        return translate_call(t, node, piece);
    case NODE_UNARY:
        return node->op == OP_NOT ? translate_bool(t, node, piece)
                                  : translate_negation(t, node, piece);
    case NODE_COMPARE:
    case NODE_AND:
    case NODE_OR:
        return translate_bool(t, node, piece);
    default:
        return cannot(t, "a list");
    }
}

/* --- the ways in ------------------------------------------------------------------------------ */

char *python_translate_condition(struct python *python, const struct python_symbol *symbols,
    size_t count, struct tune_error *err)
{
    struct translator t = {python, symbols, count, NULL, 0, err};
    struct text text;
    return translate_truth(&t, python->root, &text) ? NULL : strdup(text.text);
}

char *python_size(const char *text, const struct python_symbol *symbols, size_t symbol_count,
    const struct python_name *names, size_t name_count, struct tune_error *err)
{
    struct python *python = python_parse(text, err);
    if (python == NULL)
        return NULL;
    struct translator t = {python, symbols, symbol_count, names, name_count, err};
    struct piece piece = {0};
    struct text floored = {0};
    char *out = NULL;
    if (translate(&t, python->root, &piece) == 0 &&
        floor_of(&t, piece.over, piece.under, piece.lo >= 0, &floored) == 0)
        out = strdup(floored.text);
    python_destroy(python);
    return out;
}
