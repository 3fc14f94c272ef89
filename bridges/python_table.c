/* A condition as a table over the values of its parameters, and the trial of a translation against
 * Python's meaning. */
#include "python_expr_internal.h"

#include "plugins/expr.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct condition {
    struct python *python;
    const struct python_param *params; /* all there are */
    size_t count;
    size_t used[MANIFEST_MAX_PARAMS], used_count;  /* those that the condition reads */
    struct python_name names[MANIFEST_MAX_PARAMS]; /* of used[]; values as they are bound */
    int64_t slots[MANIFEST_MAX_PARAMS];            /* the same in the manifest */
    size_t combinations;                           /* SIZE_MAX: too many to count */
    bool has_outgrown;                             /* a limit, for some of the values */
    struct tune_error *err;
};

/* --- which parameters it reads ---------------------------------------------------------------- */

static bool reads(const struct node *node, const char *name)
{
    if (node->kind == NODE_NAME && strcmp(node->value.text, name) == 0)
        return true;
    for (size_t i = 0; i < node->kid_count; i++)
        if (reads(node->kids[i], name))
            return true;
    return false;
}

static void find_used(struct condition *c)
{
    c->combinations = 1;
    for (size_t i = 0; i < c->count; i++) {
        if (!reads(c->python->root, c->params[i].name))
            continue;
        if (__builtin_mul_overflow(c->combinations, c->params[i].count, &c->combinations))
            c->combinations = SIZE_MAX;
        c->names[c->used_count].name = c->params[i].name;
        c->used[c->used_count++] = i;
    }
}

static void bind(struct condition *c, size_t at, size_t value)
{
    const struct python_param *param = &c->params[c->used[at]];
    c->names[at].value = param->values[value];
    c->slots[at] = param->numbers[value];
}

static int outgrow(struct condition *c, enum tune_code code, const char *why)
{
    c->has_outgrown = true;
    return tune_fail(c->err, code, "%s", why);
}

/* What Python says of the values that are bound: 1, 0, or -1 where only our limits keep it from
 * having a meaning. A condition that cannot be evaluated (a division by zero, say) excludes them,
 * as one of a manifest does. */
static int holds(struct condition *c)
{
    struct tune_error why = {0};
    struct python_value value;
    if (c->python->steps > PYTHON_TRIED_STEP_LIMIT)
        return outgrow(
            c, TUNE_ELIMIT, "it takes too many steps to be tried on the values of its parameters");
    if (python_eval(c->python, c->names, c->used_count, &value, &why) == 0)
        return python_is_true(&value);
    return why.code == TUNE_ELIMIT || why.code == TUNE_ENOMEM ? outgrow(c, why.code, why.text) : 0;
}

/* --- the table -------------------------------------------------------------------------------- */

static char *table(struct condition *c, size_t at);

static char *copied(struct condition *c, const char *pattern, ...)
    __attribute__((format(printf, 2, 3)));

static char *copied(struct condition *c, const char *pattern, ...)
{
    va_list args;
    char text[EXPR_TEXT_LIMIT + 64], *copy = NULL;
    va_start(args, pattern);
    int length = vsnprintf(text, sizeof text, pattern, args);
    va_end(args);
    if (length > EXPR_TEXT_LIMIT)
        tune_fail(c->err, TUNE_ELIMIT,
            "as a table of its values it outgrows the %d bytes of a manifest's expression",
            EXPR_TEXT_LIMIT);
    else
        copy = arena_take(&c->python->tree, (size_t)length + 1, c->err);
    return copy ? strcpy(copy, text) : NULL;
}

/* "A == 1 || A == 2" for the values whose text is that of value `of`. */
static char *equal_values(struct condition *c, size_t at, char *const *texts, size_t of)
{
    const struct python_param *param = &c->params[c->used[at]];
    char *all = NULL;
    for (size_t i = 0; i < param->count; i++) {
        if (strcmp(texts[i], texts[of]) != 0)
            continue;
        all = copied(c, "%s%s%s == %" PRId64, all ? all : "", all ? " || " : "", param->name,
            param->numbers[i]);
        if (all == NULL)
            return NULL;
    }
    return all;
}

static size_t count_equal(char *const *texts, size_t count, size_t of)
{
    size_t equal = 0;
    for (size_t i = 0; i < count; i++)
        equal += strcmp(texts[i], texts[of]) == 0;
    return equal;
}

static bool is_first(char *const *texts, size_t of)
{
    for (size_t i = 0; i < of; i++)
        if (strcmp(texts[i], texts[of]) == 0)
            return false;
    return true;
}

/* One row of the table: what is left to ask once this parameter has the values of row `of`. */
static char *row(struct condition *c, size_t at, char *const *texts, size_t of, const char *rest)
{
    char *values = equal_values(c, at, texts, of);
    if (values == NULL)
        return NULL;
    if (strcmp(texts[of], "1") == 0 && strcmp(rest, "0") == 0)
        return copied(c, "(%s)", values);
    if (strcmp(texts[of], "0") == 0 && strcmp(rest, "1") == 0)
        return copied(c, "!(%s)", values);
    return copied(c, "(%s ? %s : %s)", values, texts[of], rest);
}

/* Values that leave the same question are asked about together; the most frequent comes last. */
static char *merge(struct condition *c, size_t at, char *const *texts, size_t count)
{
    size_t frequent = 0;
    for (size_t i = 1; i < count; i++)
        if (count_equal(texts, count, i) > count_equal(texts, count, frequent))
            frequent = i;
    char *rest = texts[frequent];
    for (size_t i = count; rest != NULL && i-- > 0;)
        if (is_first(texts, i) && strcmp(texts[i], texts[frequent]) != 0)
            rest = row(c, at, texts, i, rest);
    return rest;
}

/* The rest of the condition, with used[0..at) bound. Borrowed from the tree's arena. */
static char *table(struct condition *c, size_t at)
{
    static char yes[] = "1", no[] = "0";
    char *texts[MANIFEST_MAX_VALUES] = {NULL};
    if (at == c->used_count) {
        int truth = holds(c);
        return truth < 0 ? NULL : truth > 0 ? yes : no;
    }
    const struct python_param *param = &c->params[c->used[at]];
    for (size_t i = 0; i < param->count; i++) {
        bind(c, at, i);
        texts[i] = table(c, at + 1);
        if (texts[i] == NULL)
            return NULL;
    }
    return merge(c, at, texts, param->count);
}

/* --- the trial -------------------------------------------------------------------------------- */

/* The combination of that number, in a mixed radix. */
static void bind_combination(struct condition *c, uint64_t number)
{
    for (size_t i = c->used_count; i-- > 0;) {
        size_t radix = c->params[c->used[i]].count;
        bind(c, i, (size_t)(number % radix));
        number /= radix;
    }
}

/* Whether the expression says what Python says: of all combinations, or of so many spread evenly
 * (an odd stride, so that it meets every value). */
static bool is_same(struct condition *c, const char *text, struct tune_error *err)
{
    const char *names[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < c->used_count; i++)
        names[i] = c->names[i].name;
    struct expr *expr = expr_create(text, names, c->used_count, err);
    if (expr == NULL)
        return false;
    uint64_t total = c->combinations;
    uint64_t tried = total < PYTHON_TRIED_LIMIT ? total : PYTHON_TRIED_LIMIT;
    uint64_t stride = total / tried | 1;
    bool is_equal = true;
    for (uint64_t i = 0; is_equal && i < tried; i++) {
        struct tune_error ours = {0};
        int64_t result;
        bind_combination(c, stride * i % total);
        bool is_true = expr_eval(expr, c->slots, &result, &ours) == 0 && result != 0;
        is_equal = (int)is_true == holds(c);
    }
    expr_destroy(expr);
    return is_equal || tune_fail(err, TUNE_EINVAL, "its translation \"%.100s\" differs", text) == 0;
}

/* --- the way in ------------------------------------------------------------------------------- */

/* Operator by operator; NULL when there is no such form, or when it differs. */
static char *translated(struct condition *c, struct tune_error *why)
{
    struct python_symbol symbols[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < c->used_count; i++) {
        const struct python_param *param = &c->params[c->used[i]];
        symbols[i] = (struct python_symbol){param->name, -1, param->name, INT64_MAX, INT64_MIN};
        if (!param->is_integer) {
            tune_fail(why, TUNE_EINVAL, "%.60s has values that are no integers", param->name);
            return NULL;
        }
        for (size_t j = 0; j < param->count; j++) {
            if (param->numbers[j] < symbols[i].lo)
                symbols[i].lo = param->numbers[j];
            if (param->numbers[j] > symbols[i].hi)
                symbols[i].hi = param->numbers[j];
        }
    }
    char *text = python_translate_condition(c->python, symbols, c->used_count, why);
    if (text != NULL && is_same(c, text, why))
        return text;
    free(text);
    return NULL;
}

static char *tabulated(struct condition *c, const struct tune_error *why)
{
    if (c->combinations > PYTHON_TRIED_LIMIT) {
        tune_fail(c->err, TUNE_ELIMIT,
            "%s, and its parameters have too many combinations of values for a table", why->text);
        return NULL;
    }
    char *text = table(c, 0);
    return text ? strdup(text) : NULL;
}

static bool is_variable(const struct node *node, const char *name)
{
    if (node->kind == NODE_FOR && strcmp(node->value.text, name) == 0)
        return true;
    for (size_t i = 0; i < node->kid_count; i++)
        if (is_variable(node->kids[i], name))
            return true;
    return false;
}

/* The first name that is neither a parameter nor the variable of a comprehension, or function that
 * is not known; NULL: none. */
static const char *unknown_name(const struct condition *c, const struct node *node)
{
    const char *name = node->value.text, *unknown = NULL;
    if (node->kind == NODE_CALL && !python_has_function(name))
        return name;
    if (node->kind == NODE_NAME && !is_variable(c->python->root, name)) {
        unknown = name;
        for (size_t i = 0; i < c->count; i++)
            if (strcmp(c->params[i].name, name) == 0)
                unknown = NULL;
    }
    for (size_t i = 0; unknown == NULL && i < node->kid_count; i++)
        unknown = unknown_name(c, node->kids[i]);
    return unknown;
}

/* An unknown name is an error of the text, also where it is not reached; a division by zero is one
 * of the values. */
static int check_names(struct condition *c)
{
    const char *unknown = unknown_name(c, c->python->root);
    return unknown == NULL
               ? 0
               : tune_fail(c->err, TUNE_ENOTFOUND,
                     "\"%.60s\" is neither a parameter nor a function that is read here", unknown);
}

char *python_condition(
    const char *text, const struct python_param *params, size_t count, struct tune_error *err)
{
    struct condition c = {.params = params, .count = count, .err = err};
    struct tune_error why = {0};
    c.python = python_parse(text, err);
    if (c.python == NULL)
        return NULL;
    find_used(&c);
    char *out = NULL;
    if (check_names(&c) == 0) {
        out = translated(&c, &why);
        if (out == NULL && !c.has_outgrown)
            out = tabulated(&c, &why);
    }
    python_destroy(c.python);
    return out;
}
