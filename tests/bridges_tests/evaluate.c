/* Evaluates Python expressions of standard input, one a line, and prints each value as repr() does,
 * or "error". For python_meaning.py, which asks Python the same. */
#include "bridges/python.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_value(const struct python_value *value)
{
    char real[PYTHON_REAL_BYTES];
    switch (value->type) {
    case PYTHON_NONE:
        fputs("None", stdout);
        break;
    case PYTHON_BOOL:
        fputs(value->integer ? "True" : "False", stdout);
        break;
    case PYTHON_INT:
        printf("%" PRId64, value->integer);
        break;
    case PYTHON_REAL:
        python_real_text(value->real, real);
        fputs(real, stdout);
        break;
    case PYTHON_TEXT:
        printf("'%s'", value->text);
        break;
    case PYTHON_LIST:
        putchar('[');
        for (int64_t i = 0; i < value->integer; i++) {
            fputs(i > 0 ? ", " : "", stdout);
            print_value(&value->items[i]);
        }
        putchar(']');
    }
}

int main(void)
{
    static char line[1 << 16];
    struct python_name names[] = {{"a", {.type = PYTHON_INT, .integer = 7}},
        {"b", {.type = PYTHON_INT, .integer = -3}}, {"f", {.type = PYTHON_REAL, .real = 2.5}},
        {"t", {.type = PYTHON_BOOL, .integer = 1}},
        {"s", {.type = PYTHON_TEXT, .integer = 2, .text = "xy"}}};
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct tune_error err = {0};
        struct python_value value;
        line[strcspn(line, "\n")] = '\0';
        struct python *python = python_parse(line, &err);
        if (python == NULL ||
            python_eval(python, names, sizeof names / sizeof names[0], &value, &err))
            fputs("error", stdout);
        else
            print_value(&value);
        putchar('\n');
        python_destroy(python);
    }
    return 0;
}
