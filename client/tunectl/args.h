/* The command line against the table of command patterns, and the values it carries.
 *
 * A pattern is what the help shows, and is read as the grammar too:
 *     KERNEL            an operand that must be given        [JOB]          one that may
 *     FILE...           operands, one at least
 *     [--dtype T]       an option with a value               [--detach]     one without
 *     --shape DIMS      an option that must be given         [...]...       may be repeated
 *     -o FILE           an option of one letter
 * Operands and options may stand in any order; `--name=value` is the same as `--name value`; `--`
 * ends the options. Nothing is abbreviated, so that a script does not break when a name is added.
 */
#ifndef TUNECTL_ARGS_H
#define TUNECTL_ARGS_H

#include "client/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tunectl;
struct args;

struct command {
    const char *name, *pattern, *summary;
    int (*run)(struct tunectl *ctl, const struct args *args);
};

struct args {
    const struct command *command; /* NULL when none was named */
    bool wants_help, wants_version, is_json;
    const char *socket;
    const char **operands;
    size_t operand_count, option_count;
    struct args_option {
        const char *name, *value; /* value NULL for an option without one */
    } * options;                  /* in the order given */
};

/* Reads the command line. `commands` ends with a NULL name. -1: a usage error, told in *err; the
 * command is set if it was recognised. args_finish in any case. */
int args_parse(struct args *args, int argc, char **argv, const struct command *commands,
    struct tune_error *err);
void args_finish(struct args *args);

bool args_has(const struct args *args, const char *name);
const char *args_value(const struct args *args, const char *name); /* NULL when not given */
/* Each value of a repeatable option; *cursor starts at 0. NULL at the end. */
const char *args_each(const struct args *args, const char *name, size_t *cursor);
/* Those given of the NULL-ended list go into the object under the same names, as strings: --dtype
 * as "dtype". */
void args_pass(const struct args *args, const char *const *names, json_t *request);

/* The name in a NULL-ended list that is nearest to what was typed, or NULL if none is near. */
const char *nearest_name(const char *typed, const char *const *names);

/* --- values ----------------------------------------------------------------------------------- */

/* Decimal digits only (a '-' in front if min < 0): no blanks, no 0x, no exponent. */
int parse_integer(const char *what, const char *text, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err);
/* "M=4096,OP=max" -> {"M":4096,"OP":"max"}; each at least 1, or a choice's name, and given once. */
int parse_dims(const char *text, json_t **dims, struct tune_error *err);
/* "BM=64,SWIZZLE=xor" -> {"BM":64,"SWIZZLE":"xor"}; each given once. */
int parse_config(const char *text, json_t **config, struct tune_error *err);
/* A file of shapes: one "M=..,N=.." per line ('#' starts a comment), or a JSON list of objects; "-"
 * is standard input. Appends to the array `shapes`. */
int parse_shapes_file(const char *path, json_t *shapes, struct tune_error *err);
/* "evals=100,seconds=60" into the object `budget`. */
int parse_budget(const char *text, json_t *budget, struct tune_error *err);
/* "BM=32,64" into the object `params` as "BM":[32,64]; values that are no integers are names. */
int parse_param(const char *text, json_t *params, struct tune_error *err);
/* One of the NULL-ended list. */
int parse_choice(
    const char *what, const char *text, const char *const *choices, struct tune_error *err);

#endif
