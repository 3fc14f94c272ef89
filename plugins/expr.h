/* Integer expressions of manifests: C's operators over int64, compiled once, evaluated often.
 *
 * Grammar, with C's precedence and truncating division:
 *     ? :   ||   &&   == !=   < <= > >=   + -   * / %   unary - !   ( )
 *     decimal and 0x numbers, names, ceildiv(a,b) min(a,b,...) max(a,b,...) pow2(n)
 * `pow2(n)` is 1 << n (0 <= n <= 62); `&&`, `||` and `?:` do not evaluate the side not taken.
 * Comparison and logic give 0 or 1. Nothing loops, calls out, or allocates while evaluating;
 * overflow, division by zero and INT64_MIN / -1 are errors (TUNE_EMATH), never traps. */
#ifndef TUNE_EXPR_H
#define TUNE_EXPR_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPR_TEXT_LIMIT 4096 /* bytes of source text */
#define EXPR_DEPTH_LIMIT 64  /* nesting of parentheses and operators */

struct expr;

/* Compiles `text`; a name is looked up in names[0..name_count) and becomes that slot number.
 * New, or NULL with TUNE_EPARSE (position and what was expected) or TUNE_ENOTFOUND (unknown name,
 * with the names there are). */
struct expr *expr_create(
    const char *text, const char *const *names, size_t name_count, struct tune_error *err);
void expr_destroy(struct expr *expr);

/* Evaluates with slots[i] the value of names[i]. 0, or -1 with TUNE_EMATH. */
int expr_eval(
    const struct expr *expr, const int64_t *slots, int64_t *result, struct tune_error *err);

/* The text it was compiled from (borrowed), and which slots it reads. */
const char *expr_text(const struct expr *expr);
bool expr_uses(const struct expr *expr, size_t slot);

#endif
