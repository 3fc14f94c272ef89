/* Expressions: compile any text; what compiles must evaluate to a value or a stated error, twice
 * the same, and compile again from its own text. */
#include "plugins/expr.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void evaluate(const struct expr *expr)
{
    static const int64_t slots[][3] = {{0, 0, 0}, {1, -1, 7}, {INT64_MAX, INT64_MIN, 3}};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        struct tune_error err = {0};
        int64_t first = 0, second = 0;
        int status = expr_eval(expr, slots[i], &first, &err);
        check(status == 0 || (status == -1 && err.code == TUNE_EMATH && err.text[0] != '\0'));
        check(expr_eval(expr, slots[i], &second, NULL) == status);
        check(status != 0 || first == second);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const names[] = {"A", "BM", "sm"};
    char *text = malloc(count + 1);
    memcpy(text, bytes, count);
    text[count] = '\0';
    struct tune_error err = {0};
    struct expr *expr = expr_create(text, names, 3, &err);
    if (expr == NULL) {
        check(err.code != TUNE_OK && err.text[0] != '\0');
    } else {
        evaluate(expr);
        struct expr *again = expr_create(expr_text(expr), names, 3, NULL);
        check(again != NULL);
        for (size_t slot = 0; slot < 3; slot++)
            check(expr_uses(expr, slot) == expr_uses(again, slot));
        expr_destroy(again);
        expr_destroy(expr);
    }
    free(text);
    return 0;
}
