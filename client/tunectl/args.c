/* See args.h. */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((size_t)16 << 20)

/* Options that every command takes. */
static const char global_pattern[] = "[--socket PATH] [--json] [--help] [--version]";

/* --- nearest name ----------------------------------------------------------------------------- */

#define NAME_LIMIT 40

static unsigned least(unsigned a, unsigned b, unsigned c)
{
    unsigned smaller = a < b ? a : b;
    return smaller < c ? smaller : c;
}

/* Single edits (insert, delete, replace, swap of neighbours) between two names. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][NAME_LIMIT + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > NAME_LIMIT || b_length > NAME_LIMIT)
        return NAME_LIMIT;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *nearest_name(const char *typed, const char *const *names)
{
    const char *nearest = NULL;
    unsigned smallest = (unsigned)strlen(typed) / 3 + 2;
    for (; *names != NULL; names++) {
        unsigned steps = distance(typed, *names);
        if (steps < smallest) {
            smallest = steps;
            nearest = *names;
        }
    }
    return nearest;
}

/* --- patterns --------------------------------------------------------------------------------- */

/* One element of a pattern. */
struct element {
    char name[NAME_LIMIT];
    bool is_option, has_value, is_required, is_repeatable;
};

/* Reads the element at *cursor and moves on; false at the end. */
static bool next_element(const char **cursor, struct element *element)
{
    const char *at = *cursor + strspn(*cursor, " ");
    if (*at == '\0')
        return false;
    *element = (struct element){.is_required = *at != '['};
    at += *at == '[';
    element->is_option = *at == '-';
    size_t length = strcspn(at, " ].");
    snprintf(element->name, sizeof element->name, "%.*s", (int)length, at);
    at += length;
    /* The value's placeholder follows its option inside the same brackets, or after a blank. */
    if (element->is_option && *at == ' ' && at[1] != '[' && at[1] != '\0' && at[1] != '-') {
        element->has_value = true;
        at += 1 + strcspn(at + 1, " ]");
    }
    at += *at == ']';
    element->is_repeatable = strncmp(at, "...", 3) == 0;
    *cursor = at + (element->is_repeatable ? 3 : 0);
    return true;
}

static bool find_option(const char *pattern, const char *name, struct element *element)
{
    while (pattern != NULL && next_element(&pattern, element)) {
        if (element->is_option && strcmp(element->name, name) == 0)
            return true;
    }
    return false;
}

/* --- parsing ---------------------------------------------------------------------------------- */

struct parser {
    struct args *args;
    const struct command *commands;
    int argc, at;
    char **argv;
};

static int unknown_command(const struct parser *parser, const char *typed, struct tune_error *err)
{
    const char *names[64];
    size_t count = 0;
    for (const struct command *c = parser->commands; c->name != NULL && count < 63; c++)
        names[count++] = c->name;
    names[count] = NULL;
    const char *nearest = nearest_name(typed, names);
    return tune_fail(err, TUNE_EINVAL, "unknown command \"%.60s\"%s%s%s", typed,
        nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

/* The command, other than the one given, that has an option of this name. */
static const char *owner_of(const struct parser *parser, const char *name)
{
    struct element element;
    for (const struct command *c = parser->commands; c->name != NULL; c++) {
        if (c != parser->args->command && find_option(c->pattern, name, &element))
            return c->name;
    }
    return NULL;
}

static int unknown_option(const struct parser *parser, const char *name, struct tune_error *err)
{
    const struct command *command = parser->args->command;
    const char *owner = owner_of(parser, name);
    if (command == NULL)
        return tune_fail(err, TUNE_EINVAL,
            owner ? "the option %.60s comes after its command (%s)"
                  : "unknown option %.60s before the command",
            name, owner);
    if (owner != NULL)
        return tune_fail(err, TUNE_EINVAL, "%.60s is an option of \"%s\", not of \"%s\"", name,
            owner, command->name);
    char storage[32][NAME_LIMIT];
    const char *names[33];
    size_t count = 0;
    const char *const patterns[] = {command->pattern, global_pattern};
    for (size_t i = 0; i < 2; i++) {
        const char *cursor = patterns[i];
        struct element element;
        while (count < 32 && next_element(&cursor, &element)) {
            if (!element.is_option)
                continue;
            memcpy(storage[count], element.name, NAME_LIMIT);
            names[count] = storage[count];
            count++;
        }
    }
    names[count] = NULL;
    const char *nearest = nearest_name(name, names);
    return tune_fail(err, TUNE_EINVAL, "\"%s\" has no option %.60s%s%s%s", command->name, name,
        nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* Global options go to their fields, the others into the list. */
static int store_option(
    struct args *args, const struct element *element, const char *value, struct tune_error *err)
{
    if (!element->is_repeatable && args_has(args, element->name))
        return tune_fail(err, TUNE_EINVAL, "%s is given twice", element->name);
    args->options[args->option_count].name = strdup(element->name);
    args->options[args->option_count++].value = value;
    if (strcmp(element->name, "--json") == 0)
        args->is_json = true;
    else if (strcmp(element->name, "--help") == 0)
        args->wants_help = true;
    else if (strcmp(element->name, "--version") == 0)
        args->wants_version = true;
    else if (strcmp(element->name, "--socket") == 0)
        args->socket = value;
    return 0;
}

static int take_option(struct parser *parser, const char *word, struct tune_error *err)
{
    char name[NAME_LIMIT];
    size_t length = strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    if (strcmp(word, "-h") == 0)
        snprintf(name, sizeof name, "--help");
    struct element element;
    const struct command *command = parser->args->command;
    if (length >= sizeof name ||
        (!find_option(global_pattern, name, &element) &&
            !find_option(command ? command->pattern : NULL, name, &element)))
        return unknown_option(parser, length >= sizeof name ? word : name, err);
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (!element.has_value && value != NULL)
        return tune_fail(err, TUNE_EINVAL, "%s takes no value", name);
    if (element.has_value && value == NULL) {
        if (parser->at + 1 >= parser->argc)
            return tune_fail(err, TUNE_EINVAL, "%s needs a value", name);
        value = parser->argv[++parser->at];
    }
    return store_option(parser->args, &element, value, err);
}

static int take_word(struct parser *parser, const char *word, struct tune_error *err)
{
    struct args *args = parser->args;
    if (args->command == NULL) {
        for (const struct command *c = parser->commands; c->name != NULL; c++) {
            if (strcmp(c->name, word) == 0)
                args->command = c;
        }
        return args->command ? 0 : unknown_command(parser, word, err);
    }
    size_t room = 0;
    struct element element;
    for (const char *cursor = args->command->pattern; next_element(&cursor, &element);)
        room += element.is_option ? 0 : element.is_repeatable ? (size_t)parser->argc : 1;
    if (args->operand_count >= room)
        return tune_fail(err, TUNE_EINVAL, "\"%s\" does not know what to do with \"%.60s\"",
            args->command->name, word);
    args->operands[args->operand_count++] = word;
    return 0;
}

/* What the pattern requires must have been given. */
static int check_required(const struct args *args, struct tune_error *err)
{
    size_t operands = 0;
    struct element element;
    for (const char *cursor = args->command->pattern; next_element(&cursor, &element);) {
        if (!element.is_required)
            continue;
        bool is_given =
            element.is_option ? args_has(args, element.name) : operands++ < args->operand_count;
        if (!is_given)
            return tune_fail(
                err, TUNE_EINVAL, "\"%s\" needs %s", args->command->name, element.name);
    }
    return 0;
}

int args_parse(struct args *args, int argc, char **argv, const struct command *commands,
    struct tune_error *err)
{
    *args = (struct args){
        .options = calloc((size_t)argc + 1, sizeof *args->options),
        .operands = calloc((size_t)argc + 1, sizeof *args->operands),
    };
    if (args->options == NULL || args->operands == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %d words", argc);
    struct parser parser = {args, commands, argc, 1, argv};
    bool only_operands = false;
    for (; parser.at < argc; parser.at++) {
        const char *word = argv[parser.at];
        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        bool is_option = !only_operands && word[0] == '-' && word[1] != '\0';
        if (is_option ? take_option(&parser, word, err) : take_word(&parser, word, err))
            return -1;
    }
    if (args->wants_help || args->wants_version)
        return 0;
    if (args->command == NULL)
        return tune_fail(err, TUNE_EINVAL, "no command is given");
    return check_required(args, err);
}

void args_finish(struct args *args)
{
    for (size_t i = 0; i < args->option_count; i++)
        free((char *)args->options[i].name);
    free(args->options);
    free(args->operands);
    *args = (struct args){0};
}

const char *args_each(const struct args *args, const char *name, size_t *cursor)
{
    while (*cursor < args->option_count) {
        const struct args_option *option = &args->options[(*cursor)++];
        if (strcmp(option->name, name) == 0)
            return option->value;
    }
    return NULL;
}

const char *args_value(const struct args *args, const char *name)
{
    size_t cursor = 0;
    return args_each(args, name, &cursor);
}

void args_pass(const struct args *args, const char *const *names, json_t *request)
{
    for (; *names != NULL; names++) {
        const char *value = args_value(args, *names);
        if (value != NULL)
            json_object_set_new(request, *names + strlen("--"), json_string(value));
    }
}

bool args_has(const struct args *args, const char *name)
{
    for (size_t i = 0; i < args->option_count; i++) {
        if (strcmp(args->options[i].name, name) == 0)
            return true;
    }
    return false;
}

/* --- values ----------------------------------------------------------------------------------- */

/* True for an optional '-' and digits that fit. */
static bool is_integer(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-');
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0;
}

int parse_integer(const char *what, const char *text, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err)
{
    int64_t value;
    if (!is_integer(text, &value))
        return tune_fail(err, TUNE_EINVAL, "%s must be an integer, not \"%.40s\"", what, text);
    if (value < min || value > max)
        return tune_fail(err, TUNE_EINVAL, "%s is %lld; it must be %lld to %lld", what,
            (long long)value, (long long)min, (long long)max);
    *out = value;
    return 0;
}

/* Splits "NAME=VALUE" at the front of *text, up to ',' or the end, and moves on. */
static int take_pair(const char **text, char *name, char *value, struct tune_error *err)
{
    size_t name_length = strcspn(*text, "=,");
    const char *after = *text + name_length;
    if (name_length == 0 || name_length >= NAME_LIMIT * 2 || *after != '=')
        return tune_fail(
            err, TUNE_EINVAL, "\"%.60s\" is not of the form NAME=VALUE,NAME=VALUE", *text);
    size_t value_length = strcspn(after + 1, ",");
    if (value_length >= NAME_LIMIT * 2)
        return tune_fail(err, TUNE_EINVAL, "\"%.60s\" is too long", after + 1);
    snprintf(name, NAME_LIMIT * 2, "%.*s", (int)name_length, *text);
    snprintf(value, NAME_LIMIT * 2, "%.*s", (int)value_length, after + 1);
    *text = after + 1 + value_length;
    if (**text == ',' && *++*text == '\0')
        return tune_fail(err, TUNE_EINVAL, "nothing follows the last ','");
    return 0;
}

/* A size, or the name of a choice, which the daemon knows; NULL: neither. */
static json_t *parse_dim(const char *name, const char *value, struct tune_error *err)
{
    char what[NAME_LIMIT * 2 + 16];
    int64_t number;
    if (isalpha((unsigned char)value[0]))
        return json_string(value);
    snprintf(what, sizeof what, "dimension %s", name);
    return parse_integer(what, value, 1, INT64_MAX, &number, err) ? NULL : json_integer(number);
}

int parse_dims(const char *text, json_t **dims, struct tune_error *err)
{
    *dims = json_object();
    const char *at = text;
    do {
        char name[NAME_LIMIT * 2], value[NAME_LIMIT * 2];
        if (take_pair(&at, name, value, err))
            goto fail;
        if (json_object_get(*dims, name) != NULL) {
            tune_fail(err, TUNE_EINVAL, "dimension %s is given twice in \"%.80s\"", name, text);
            goto fail;
        }
        json_t *size = parse_dim(name, value, err);
        if (size == NULL || json_object_set_new(*dims, name, size)) {
            tune_fail(err, TUNE_EINVAL, "dimension names are UTF-8");
            goto fail;
        }
    } while (*at != '\0');
    return 0;

fail:
    json_decref(*dims);
    *dims = NULL;
    return -1;
}

int parse_config(const char *text, json_t **config, struct tune_error *err)
{
    *config = json_object();
    const char *at = text;
    do {
        char name[NAME_LIMIT * 2], value[NAME_LIMIT * 2];
        int64_t number;
        if (take_pair(&at, name, value, err))
            goto fail;
        if (value[0] == '\0' || json_object_get(*config, name) != NULL) {
            tune_fail(err, TUNE_EINVAL, "%s %s in \"%.80s\"", name,
                value[0] ? "is given twice" : "has no value", text);
            goto fail;
        }
        if (json_object_set_new(*config, name,
                is_integer(value, &number) ? json_integer(number) : json_string(value))) {
            tune_fail(err, TUNE_EINVAL, "names and values are UTF-8");
            goto fail;
        }
    } while (*at != '\0');
    return 0;

fail:
    json_decref(*config);
    *config = NULL;
    return -1;
}

int parse_budget(const char *text, json_t *budget, struct tune_error *err)
{
    static const char *const kinds[] = {"evals", "seconds", NULL};
    do {
        char name[NAME_LIMIT * 2], value[NAME_LIMIT * 2];
        int64_t number;
        if (take_pair(&text, name, value, err) || parse_choice("a budget", name, kinds, err) ||
            parse_integer(name, value, 1, INT32_MAX, &number, err))
            return -1;
        if (json_object_get(budget, name) != NULL)
            return tune_fail(err, TUNE_EINVAL, "the budget's %s is given twice", name);
        json_object_set_new(budget, name, json_integer(number));
    } while (*text != '\0');
    return 0;
}

int parse_param(const char *text, json_t *params, struct tune_error *err)
{
    char name[NAME_LIMIT * 2];
    size_t length = strcspn(text, "=");
    if (length == 0 || length >= sizeof name || text[length] != '=' || text[length + 1] == '\0')
        return tune_fail(err, TUNE_EINVAL, "\"%.60s\" is not of the form NAME=VALUE,VALUE", text);
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (json_object_get(params, name) != NULL)
        return tune_fail(err, TUNE_EINVAL,
            "--param %s is given twice; list its values with commas instead", name);
    json_t *values = json_array();
    for (const char *at = text + length + 1;; at++) {
        char value[NAME_LIMIT * 2];
        length = strcspn(at, ",");
        if (length == 0 || length >= sizeof value) {
            json_decref(values);
            return tune_fail(err, TUNE_EINVAL, "a value is missing in \"%.80s\"", text);
        }
        snprintf(value, sizeof value, "%.*s", (int)length, at);
        int64_t number;
        json_array_append_new(
            values, is_integer(value, &number) ? json_integer(number) : json_string(value));
        at += length;
        if (*at == '\0')
            break;
    }
    if (json_object_set_new(params, name, values))
        return tune_fail(err, TUNE_EINVAL, "parameter names are UTF-8");
    return 0;
}

int parse_choice(
    const char *what, const char *text, const char *const *choices, struct tune_error *err)
{
    char list[160] = "";
    for (size_t i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], text) == 0)
            return 0;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", choices[i]);
    }
    return tune_fail(err, TUNE_EINVAL, "%s is one of %s, not \"%.40s\"", what, list, text);
}

/* --- files of shapes -------------------------------------------------------------------------- */

/* The whole text of a file, malloc'ed and NUL-ended. */
static char *read_file(const char *path, size_t *length, struct tune_error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL) {
        tune_fail_errno(err, TUNE_EIO, "cannot open %s", path);
        return NULL;
    }
    char *text = NULL;
    size_t used = 0, room = 0, count;
    do {
        room = room ? room * 2 : 4096;
        char *larger = realloc(text, room + 1);
        if (larger == NULL || room > FILE_LIMIT_BYTES) {
            tune_fail(err, TUNE_ELIMIT, "%s is larger than %zu bytes", path, FILE_LIMIT_BYTES);
            free(larger ? larger : text);
            text = NULL;
            goto out;
        }
        text = larger;
        count = fread(text + used, 1, room - used, file);
        used += count;
    } while (used == room);
    if (ferror(file)) {
        tune_fail_errno(err, TUNE_EIO, "cannot read %s", path);
        free(text);
        text = NULL;
        goto out;
    }
    text[used] = '\0';
    *length = used;
out:
    if (file != stdin)
        fclose(file);
    return text;
}

static int shapes_from_json(
    const char *path, const char *text, json_t *shapes, struct tune_error *err)
{
    json_error_t why;
    json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (list == NULL)
        return tune_fail(
            err, TUNE_EINVAL, "%s line %d is not valid JSON: %.100s", path, why.line, why.text);
    size_t i;
    json_t *shape;
    int status = 0;
    json_array_foreach (list, i, shape) {
        if (!json_is_object(shape))
            status = tune_fail(err, TUNE_EINVAL, "%s: shape %zu is no object", path, i + 1);
        else
            json_array_append(shapes, shape);
    }
    json_decref(list);
    return status;
}

static int shapes_from_lines(const char *path, char *text, json_t *shapes, struct tune_error *err)
{
    unsigned number = 1;
    for (char *line = text; line != NULL; number++) {
        char *next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        size_t length = strlen(line);
        while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
            line[--length] = '\0';
        json_t *shape;
        struct tune_error why = {0};
        if (length > 0 && parse_dims(line, &shape, &why))
            return tune_fail(err, TUNE_EINVAL, "%s line %u: %.150s", path, number, why.text);
        if (length > 0)
            json_array_append_new(shapes, shape);
        line = next;
    }
    return 0;
}

int parse_shapes_file(const char *path, json_t *shapes, struct tune_error *err)
{
    size_t length;
    char *text = read_file(path, &length, err);
    if (text == NULL)
        return -1;
    size_t before = json_array_size(shapes);
    bool is_json = text[strspn(text, " \t\r\n")] == '[';
    int status = is_json ? shapes_from_json(path, text, shapes, err)
                         : shapes_from_lines(path, text, shapes, err);
    free(text);
    if (status == 0 && json_array_size(shapes) == before)
        return tune_fail(err, TUNE_EINVAL, "%s lists no shapes", path);
    return status;
}
