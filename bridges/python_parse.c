/* Text to tree: a descent by precedence. See python.h for the grammar. */
#include "python_tree.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ----------------------------------------------------------------------------------- */

#define ARENA_BLOCK_BYTES ((size_t)8 << 10)

struct arena_block {
    struct arena_block *next;
    size_t used, room;
    max_align_t bytes[];
};

void *arena_take(struct arena *arena, size_t bytes, struct tune_error *err)
{
    struct arena_block *block = arena->blocks;
    size_t align = sizeof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    if (bytes > ARENA_LIMIT_BYTES - arena->used_bytes) {
        tune_fail(err, TUNE_ELIMIT, "the expression makes more than %zu MiB of values",
            ARENA_LIMIT_BYTES >> 20);
        return NULL;
    }
    if (block == NULL || block->room - block->used < bytes) {
        size_t room = bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES;
        block = malloc(sizeof *block + room);
        if (block == NULL) {
            tune_fail(err, TUNE_ENOMEM, "no memory for an expression");
            return NULL;
        }
        *block = (struct arena_block){arena->blocks, 0, room};
        arena->blocks = block;
    }
    void *taken = (char *)block->bytes + block->used;
    block->used += bytes;
    arena->used_bytes += bytes;
    return memset(taken, 0, bytes);
}

void arena_finish(struct arena *arena)
{
    for (struct arena_block *block = arena->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (struct arena){0};
}

/* --- tokens ----------------------------------------------------------------------------------- */

struct parser {
    struct python *python;
    const char *text, *at;
    unsigned depth;
    struct tune_error *err;
};

static struct node *parse_fail(struct parser *parser, const char *what)
{
    tune_fail(parser->err, TUNE_EPARSE, "\"%.80s\", position %zu: %s", parser->text,
        (size_t)(parser->at - parser->text) + 1, what);
    return NULL;
}

static void skip_blanks(struct parser *parser)
{
    parser->at += strspn(parser->at, " \t\r\n");
}

static bool is_word_byte(char byte)
{
    return byte == '_' || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
           (byte >= 'A' && byte <= 'Z');
}

static size_t word_length(const char *at)
{
    size_t length = 0;
    if (*at >= '0' && *at <= '9')
        return 0;
    while (is_word_byte(at[length]))
        length++;
    return length;
}

/* Takes an operator or a keyword if it comes next; a keyword only as a whole word. */
static bool take(struct parser *parser, const char *token)
{
    skip_blanks(parser);
    size_t length = strlen(token), word = word_length(parser->at);
    if (strncmp(parser->at, token, length) != 0 || (word > 0 && word != length))
        return false;
    parser->at += length;
    return true;
}

static bool next_is(struct parser *parser, const char *token)
{
    const char *before = parser->at;
    bool is_next = take(parser, token);
    parser->at = before;
    return is_next;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static struct node *node_new(struct parser *parser, enum node_kind kind)
{
    struct node *node = arena_take(&parser->python->tree, sizeof *node, parser->err);
    if (node != NULL)
        node->kind = kind;
    return node;
}

/* Adds a kid; the array grows to the next power of two, and what it leaves stays in the arena. */
static int add_kid(struct parser *parser, struct node *node, struct node *kid)
{
    if (node == NULL || kid == NULL)
        return -1;
    size_t count = node->kid_count;
    if (node->depth <= kid->depth)
        node->depth = kid->depth + 1;
    if (node->depth > NODE_DEPTH_LIMIT)
        return tune_fail(parser->err, TUNE_ELIMIT, "\"%.80s\" has more than %d operators in a row",
            parser->text, NODE_DEPTH_LIMIT);
    if ((count & (count - 1)) == 0) {
        size_t room = count ? count * 2 : 1;
        struct node **kids =
            arena_take(&parser->python->tree, room * sizeof(struct node *), parser->err);
        if (kids == NULL)
            return -1;
        if (count > 0)
            memcpy(kids, node->kids, count * sizeof *kids);
        node->kids = kids;
    }
    node->kids[node->kid_count++] = kid;
    return 0;
}

static struct node *with_kids(
    struct parser *parser, enum node_kind kind, enum python_op op, struct node *a, struct node *b)
{
    struct node *node = a ? node_new(parser, kind) : NULL;
    if (node == NULL || add_kid(parser, node, a))
        return NULL;
    node->op = op;
    return kind == NODE_UNARY || add_kid(parser, node, b) == 0 ? node : NULL;
}

static char *copy_text(struct parser *parser, const char *text, size_t length)
{
    char *copy = arena_take(&parser->python->tree, length + 1, parser->err);
    return copy ? memcpy(copy, text, length) : NULL;
}

/* --- atoms ------------------------------------------------------------------------------------ */

static struct node *parse_choice(struct parser *parser);
static struct node *parse_or(struct parser *parser);
static struct node *parse_unary(struct parser *parser);

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* The digits of a number without the `_` that Python allows between them, and where they end. */
static const char *read_digits(const char *at, char *out, size_t room, bool *is_real)
{
    size_t used = 0;
    bool is_hex = at[0] == '0' && (at[1] | 32) == 'x';
    for (;; at++) {
        bool is_exponent = !is_hex && used > 0 && (*at | 32) == 'e' &&
                           (is_digit(at[1]) || ((at[1] == '+' || at[1] == '-') && is_digit(at[2])));
        bool is_sign =
            !is_hex && used > 0 && (*at == '+' || *at == '-') && (out[used - 1] | 32) == 'e';
        if (*at == '_' && used > 0 && is_word_byte(at[1]))
            continue;
        if (!(is_hex ? is_word_byte(*at) : is_digit(*at) || *at == '.' || is_exponent || is_sign))
            break;
        *is_real |= *at == '.' || is_exponent;
        if (used + 1 < room)
            out[used++] = *at;
    }
    out[used] = '\0';
    return at;
}

static struct node *parse_number(struct parser *parser)
{
    char digits[64], *end;
    bool is_real = false;
    const char *after = read_digits(parser->at, digits, sizeof digits, &is_real);
    struct node *node = node_new(parser, NODE_VALUE);
    if (node == NULL)
        return NULL;
    errno = 0;
    if (is_real) {
        node->value.type = PYTHON_REAL;
        node->value.real = strtod(digits, &end);
    } else {
        node->value.type = PYTHON_INT;
        node->value.integer = strtoll(digits, &end, (digits[1] | 32) == 'x' ? 16 : 10);
    }
    if (*end != '\0' || is_word_byte(*after) || strlen(digits) + 1 == sizeof digits)
        return parse_fail(parser, "this is no number");
    if (errno == ERANGE || (is_real && !isfinite(node->value.real)))
        return parse_fail(parser, "this number needs more than 64 bits");
    parser->at = after;
    return node;
}

static struct node *parse_text(struct parser *parser)
{
    char quote = *parser->at;
    struct node *node = node_new(parser, NODE_VALUE);
    const char *start = parser->at + 1;
    size_t length = 0;
    while (start[length] != quote && start[length] != '\0' && start[length] != '\\')
        length++;
    if (start[length] != quote)
        return parse_fail(parser,
            start[length] == '\\' ? "escapes in a string are not read" : "the string does not end");
    parser->at = start + length + 1;
    if (node == NULL)
        return NULL;
    node->value.type = PYTHON_TEXT;
    node->value.integer = (int64_t)length;
    node->value.text = copy_text(parser, start, length);
    return node->value.text ? node : NULL;
}

static struct node *parse_word(struct parser *parser)
{
    static const struct {
        const char *word;
        struct python_value value;
    } constants[] = {{"True", {.type = PYTHON_BOOL, .integer = 1}},
        {"False", {.type = PYTHON_BOOL}}, {"None", {.type = PYTHON_NONE}}};
    static const char *const keywords[] = {
        "and", "or", "not", "in", "if", "else", "for", "lambda", "is", NULL};
    size_t length = word_length(parser->at);
    char *word = copy_text(parser, parser->at, length);
    struct node *node = word ? node_new(parser, NODE_NAME) : NULL;
    if (node == NULL)
        return NULL;
    for (size_t i = 0; keywords[i] != NULL; i++)
        if (strcmp(word, keywords[i]) == 0)
            return parse_fail(parser, "a value must stand here");
    parser->at += length;
    node->value.text = word;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (strcmp(word, constants[i].word) == 0) {
            node->kind = NODE_VALUE;
            node->value = constants[i].value;
        }
    }
    return node;
}

/* The clauses after a first element: for NAME in LIST [if CONDITION] ... */
static struct node *parse_clauses(struct parser *parser, struct node *element)
{
    struct node *node = node_new(parser, NODE_GENERATE);
    if (node == NULL || add_kid(parser, node, element))
        return NULL;
    for (;;) {
        bool is_for = take(parser, "for");
        if (!is_for && !take(parser, "if"))
            return node;
        struct node *clause = node_new(parser, is_for ? NODE_FOR : NODE_IF);
        if (clause == NULL)
            return NULL;
        if (is_for) {
            skip_blanks(parser);
            size_t length = word_length(parser->at);
            clause->value.text = copy_text(parser, parser->at, length);
            if (length == 0 || clause->value.text == NULL)
                return parse_fail(parser, "a name must follow \"for\"");
            parser->at += length;
            if (!take(parser, "in"))
                return parse_fail(parser, "\"in\" must follow");
        }
        if (add_kid(parser, clause, parse_or(parser)) || add_kid(parser, node, clause))
            return NULL;
    }
}

/* Elements up to `close`, the opening bracket being taken. A single element in parentheses without
 * a comma is itself. */
static struct node *parse_elements(struct parser *parser, const char *close)
{
    struct node *list = node_new(parser, NODE_LIST);
    bool has_comma = *close == ']';
    if (list == NULL)
        return NULL;
    while (!take(parser, close)) {
        struct node *element = parse_choice(parser);
        if (element != NULL && list->kid_count == 0 && next_is(parser, "for")) {
            struct node *all = parse_clauses(parser, element);
            return all == NULL || take(parser, close) ? all
                                                      : parse_fail(parser, "the list does not end");
        }
        if (add_kid(parser, list, element))
            return NULL;
        if (take(parser, ","))
            has_comma = true;
        else if (!next_is(parser, close))
            return parse_fail(parser, "a comma or the closing bracket must follow");
    }
    return !has_comma && list->kid_count == 1 ? list->kids[0] : list;
}

static struct node *parse_atom(struct parser *parser)
{
    skip_blanks(parser);
    char byte = *parser->at;
    if (is_digit(byte) || (byte == '.' && is_digit(parser->at[1])))
        return parse_number(parser);
    if (byte == '\'' || byte == '"')
        return parse_text(parser);
    if (take(parser, "("))
        return parse_elements(parser, ")");
    if (take(parser, "["))
        return parse_elements(parser, "]");
    return word_length(parser->at) > 0 ? parse_word(parser)
                                       : parse_fail(parser, "a value must stand here");
}

/* Arguments; `sum(x for x in y)` has a list that is not in brackets. */
static struct node *parse_arguments(struct parser *parser, struct node *call)
{
    while (!take(parser, ")")) {
        struct node *argument = parse_choice(parser);
        if (argument != NULL && next_is(parser, "for"))
            argument = parse_clauses(parser, argument);
        if (add_kid(parser, call, argument))
            return NULL;
        if (!take(parser, ",") && !next_is(parser, ")"))
            return parse_fail(parser, "a comma or \")\" must follow");
    }
    return call;
}

static struct node *parse_postfix(struct parser *parser)
{
    struct node *node = parse_atom(parser);
    for (;;) {
        if (node == NULL)
            return NULL;
        if (node->kind == NODE_NAME && take(parser, "(")) {
            node->kind = NODE_CALL;
            node = parse_arguments(parser, node);
        } else if (take(parser, "[")) {
            node = with_kids(parser, NODE_SUBSCRIPT, OP_NONE, node, parse_choice(parser));
            if (node != NULL && !take(parser, "]"))
                return parse_fail(parser, "\"]\" must follow");
        } else {
            return node;
        }
    }
}

/* --- operators -------------------------------------------------------------------------------- */

/* Every way into a deeper expression leads through here. */
static bool enter(struct parser *parser)
{
    if (++parser->depth <= PYTHON_DEPTH_LIMIT)
        return true;
    tune_fail(parser->err, TUNE_ELIMIT, "\"%.80s\" nests deeper than %d", parser->text,
        PYTHON_DEPTH_LIMIT);
    return false;
}

static struct node *parse_power(struct parser *parser)
{
    struct node *node = parse_postfix(parser);
    return node != NULL && take(parser, "**")
               ? with_kids(parser, NODE_BINARY, OP_POWER, node, parse_unary(parser))
               : node;
}

static struct node *parse_unary(struct parser *parser)
{
    struct node *node = NULL;
    if (enter(parser)) {
        if (take(parser, "-"))
            node = with_kids(parser, NODE_UNARY, OP_NEGATE, parse_unary(parser), NULL);
        else if (take(parser, "+"))
            node = with_kids(parser, NODE_UNARY, OP_PLUS, parse_unary(parser), NULL);
        else
            node = parse_power(parser);
    }
    parser->depth--;
    return node;
}

static struct node *parse_product(struct parser *parser)
{
    struct node *node = parse_unary(parser);
    for (;;) {
        enum python_op op = take(parser, "//")                            ? OP_FLOOR
                            : take(parser, "/")                           ? OP_DIVIDE
                            : take(parser, "%")                           ? OP_MODULO
                            : !next_is(parser, "**") && take(parser, "*") ? OP_MULTIPLY
                                                                          : OP_NONE;
        if (op == OP_NONE || node == NULL)
            return node;
        node = with_kids(parser, NODE_BINARY, op, node, parse_unary(parser));
    }
}

static struct node *parse_sum(struct parser *parser)
{
    struct node *node = parse_product(parser);
    for (;;) {
        enum python_op op = take(parser, "+") ? OP_ADD : take(parser, "-") ? OP_SUBTRACT : OP_NONE;
        if (op == OP_NONE || node == NULL)
            return node;
        node = with_kids(parser, NODE_BINARY, op, node, parse_product(parser));
    }
}

static enum python_op take_comparison(struct parser *parser)
{
    static const struct {
        const char *token;
        enum python_op op;
    } comparisons[] = {{"==", OP_EQUAL}, {"!=", OP_NOT_EQUAL}, {"<=", OP_LESS_EQUAL},
        {">=", OP_GREATER_EQUAL}, {"<", OP_LESS}, {">", OP_GREATER}, {"in", OP_IN}};
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++)
        if (take(parser, comparisons[i].token))
            return comparisons[i].op;
    const char *before = parser->at;
    if (take(parser, "not") && take(parser, "in"))
        return OP_NOT_IN;
    parser->at = before;
    return OP_NONE;
}

static struct node *parse_comparison(struct parser *parser)
{
    struct node *first = parse_sum(parser), *chain = NULL;
    for (;;) {
        enum python_op op = first ? take_comparison(parser) : OP_NONE;
        if (op == OP_NONE)
            return chain ? chain : first;
        struct node *right = parse_sum(parser);
        /* An operand carries its operator, so a chain needs no second list. */
        struct node *operand = right ? node_new(parser, right->kind) : NULL;
        if (operand == NULL)
            return NULL;
        *operand = *right;
        operand->compared = op;
        if (chain == NULL) {
            chain = node_new(parser, NODE_COMPARE);
            if (chain == NULL || add_kid(parser, chain, first))
                return NULL;
        }
        if (add_kid(parser, chain, operand))
            return NULL;
    }
}

static struct node *parse_not(struct parser *parser)
{
    struct node *node = NULL;
    if (enter(parser))
        node = take(parser, "not") ? with_kids(parser, NODE_UNARY, OP_NOT, parse_not(parser), NULL)
                                   : parse_comparison(parser);
    parser->depth--;
    return node;
}

static struct node *parse_words(struct parser *parser, const char *word, enum node_kind kind,
    struct node *(*parse)(struct parser *))
{
    struct node *first = parse(parser), *all = NULL;
    while (first != NULL && take(parser, word)) {
        if (all == NULL) {
            all = node_new(parser, kind);
            if (all == NULL || add_kid(parser, all, first))
                return NULL;
        }
        if (add_kid(parser, all, parse(parser)))
            return NULL;
    }
    return all ? all : first;
}

static struct node *parse_and(struct parser *parser)
{
    return parse_words(parser, "and", NODE_AND, parse_not);
}

static struct node *parse_or(struct parser *parser)
{
    return parse_words(parser, "or", NODE_OR, parse_and);
}

static struct node *parse_choice(struct parser *parser)
{
    struct node *node = NULL;
    if (enter(parser))
        node = parse_or(parser);
    if (node != NULL && take(parser, "if")) {
        struct node *condition = parse_or(parser);
        if (condition != NULL && !take(parser, "else"))
            node = parse_fail(parser, "\"else\" must follow");
        else
            node = with_kids(parser, NODE_CHOICE, OP_NONE, condition, node);
        if (node != NULL && add_kid(parser, node, parse_choice(parser)))
            node = NULL;
    }
    parser->depth--;
    return node;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* An expression, or several with commas, which are a tuple. */
static struct node *parse_whole(struct parser *parser)
{
    struct node *first = parse_choice(parser);
    if (first != NULL && next_is(parser, ",")) {
        struct node *list = node_new(parser, NODE_LIST);
        if (list == NULL || add_kid(parser, list, first))
            return NULL;
        while (take(parser, ",")) {
            skip_blanks(parser);
            if (*parser->at != '\0' && add_kid(parser, list, parse_choice(parser)))
                return NULL;
        }
        first = list;
    }
    skip_blanks(parser);
    return first == NULL || *parser->at == '\0'
               ? first
               : parse_fail(parser, "the expression should end here");
}

struct python *python_parse(const char *text, struct tune_error *err)
{
    if (strlen(text) > PYTHON_TEXT_LIMIT) {
        tune_fail(err, TUNE_ELIMIT, "an expression of %zu bytes; the limit is %zu", strlen(text),
            PYTHON_TEXT_LIMIT);
        return NULL;
    }
    struct python *python = calloc(1, sizeof *python);
    if (python == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for an expression");
        return NULL;
    }
    struct parser parser = {python, text, text, 0, err};
    python->root = parse_whole(&parser);
    if (python->root != NULL)
        return python;
    python_destroy(python);
    return NULL;
}

void python_destroy(struct python *python)
{
    if (python == NULL)
        return;
    arena_finish(&python->tree);
    arena_finish(&python->values);
    free(python);
}
