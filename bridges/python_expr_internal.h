/* Between python_expr.c, which translates, and python_table.c, which tabulates and tries. */
#ifndef TUNE_BRIDGES_PYTHON_EXPR_INTERNAL_H
#define TUNE_BRIDGES_PYTHON_EXPR_INTERNAL_H

#include "python_expr.h"
#include "python_tree.h"

/* New: the condition operator by operator, not tried yet; NULL when it has no such form. */
char *python_translate_condition(struct python *python, const struct python_symbol *symbols,
    size_t count, struct tune_error *err);

#endif
