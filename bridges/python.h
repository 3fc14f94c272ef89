/* Python expressions as other tuners' files hold them: value lists, sizes, conditions. Pure.
 *
 * A T1 file says `"Values": "[2**i for i in range(0, 6)]"` and `"Expression": "32 <= x * y <=
 * 1024"` and means Python. This is a small parser and evaluator of its own for that language of
 * values; it calls nothing, imports nothing, and reads no attribute, so a hostile file can at most
 * be refused.
 *
 *     x if c else y   or   and   not   in, not in, == != < <= > >= (chained)   + -   * / // %
 *     unary + -   **   x[i]   f(...)   ( )   tuples, lists, comprehensions with several for and if
 *     integers (decimal, 0x, with _), reals, strings, True, False, None
 *     range list tuple min max sum abs len int float bool str round sorted pow
 *
 * with Python's meaning: `//` and `%` floor, `/` gives a real, `and`/`or` give an operand, True is
 * 1. Integers are 64 bits; past that, and past the limits below, is an error with a sentence, never
 * a wrong value. */
#ifndef TUNE_BRIDGES_PYTHON_H
#define TUNE_BRIDGES_PYTHON_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PYTHON_TEXT_LIMIT ((size_t)64 << 10) /* bytes of source text */
#define PYTHON_DEPTH_LIMIT 64                /* nesting of anything in anything */
#define PYTHON_STEP_LIMIT 1000000            /* operations of one evaluation, list elements too */
#define PYTHON_LIST_LIMIT 65536              /* elements of one list, bytes of one string */

enum python_type { PYTHON_NONE, PYTHON_BOOL, PYTHON_INT, PYTHON_REAL, PYTHON_TEXT, PYTHON_LIST };

struct python_value {
    enum python_type type;
    int64_t integer; /* of an int; 0 or 1 of a bool; elements of a list; bytes of a text */
    double real;
    const char *text; /* NUL-terminated */
    const struct python_value *items;
};

/* A name and what it stands for. */
struct python_name {
    const char *name;
    struct python_value value;
};

struct python; /* a parsed expression */

/* New, or NULL with TUNE_EPARSE (position and what was expected) or TUNE_ELIMIT. */
struct python *python_parse(const char *text, struct tune_error *err);
void python_destroy(struct python *python);

/* Evaluates with names[0..count). The value's lists and texts are borrowed from `python` until its
 * next evaluation (or its end). 0, or -1: TUNE_ENOTFOUND for an unknown name, TUNE_EMATH (division
 * by zero), TUNE_EINVAL (types that do not go together), TUNE_ELIMIT (64 bits among the limits). */
int python_eval(struct python *python, const struct python_name *names, size_t count,
    struct python_value *value, struct tune_error *err);

/* Whether a value counts as true. */
bool python_is_true(const struct python_value *value);
/* Python's == between two values: 1 == 1.0 == True; lists by their elements. */
bool python_is_equal(const struct python_value *a, const struct python_value *b);
bool python_is_number(const struct python_value *value); /* bool, int or real */
double python_number(const struct python_value *value);  /* of a number */

/* A finite real as Python prints it: the shortest text that reads back as it, with a point or an
 * exponent. */
#define PYTHON_REAL_BYTES 32
void python_real_text(double real, char text[PYTHON_REAL_BYTES]);

#endif
