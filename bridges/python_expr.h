/* Python conditions and sizes as expressions of a manifest (plugins/expr.h). Pure.
 *
 * Ours are integers that divide towards zero; Python's `//` and `%` floor and `/` gives a real.
 * What comes out here means the same: a real is carried as a fraction, a floor is written out where
 * an operand can be negative (ranges of the parameters tell), and what has no such form at all
 * (reals and strings as values, `or` as a value) is written as a table over the values of the
 * parameters. Every condition is then tried against Python's meaning, on all combinations of values
 * if there are not too many, before it is handed out: a translation that differs anywhere is an
 * error. */
#ifndef TUNE_BRIDGES_PYTHON_EXPR_H
#define TUNE_BRIDGES_PYTHON_EXPR_H

#include "python.h"

#include "plugins/manifest.h"

/* A parameter: its name in both languages and, value by value, what it is in Python and what it is
 * in the manifest. */
struct python_param {
    const char *name;
    size_t count;
    const struct python_value *values;
    const int64_t *numbers; /* [count] */
    bool is_integer;        /* both are the same integers */
};

/* Combinations on which a translation is tried, and that a table may have, at most; and the steps
 * that all these evaluations may take together. */
#define PYTHON_TRIED_LIMIT 200000
#define PYTHON_TRIED_STEP_LIMIT 20000000

/* New (free): the condition over params[0..count) as an expression. NULL: TUNE_EPARSE and so on of
 * python_parse, TUNE_ENOTFOUND for a name that is no parameter, TUNE_EINVAL or TUNE_ELIMIT when it
 * cannot be said. Values for which it has no meaning (a division by zero) are excluded; values for
 * which it outgrows our limits are an error, since Python might include them. */
char *python_condition(
    const char *text, const struct python_param *params, size_t count, struct tune_error *err);

/* Names that stand for integers of any size from lo to hi: params and dims in sizes. */
struct python_symbol {
    const char *name;
    int64_t index;    /* of name[index]; -1: the name alone */
    const char *text; /* in the manifest */
    int64_t lo, hi;
};

/* New (free): a size (grid, block, elements) as an expression over the symbols; `names` are
 * constants. A real is rounded down. */
char *python_size(const char *text, const struct python_symbol *symbols, size_t symbol_count,
    const struct python_name *names, size_t name_count, struct tune_error *err);

#endif
