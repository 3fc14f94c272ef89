/* See source_text.h. */
#include "source_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
    const char *at, *end;
    char *out;
    size_t used;
    bool is_line_start; /* nothing but blanks and comments on this line so far */
    bool in_directive;
};

/* Copies `text` without line splices and carriage returns, so that a token never spans two lines.
 */
static char *splice_lines(const char *text, size_t length, size_t *spliced_length)
{
    char *spliced = malloc(length + 1);
    size_t used = 0;
    if (spliced == NULL)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        size_t next = i + 1 < length && text[i + 1] == '\r' ? i + 2 : i + 1;
        if (text[i] == '\\' && next < length && text[next] == '\n')
            i = next;
        else if (text[i] != '\r')
            spliced[used++] = text[i];
    }
    spliced[used] = '\0';
    *spliced_length = used;
    return spliced;
}

static void put(struct scanner *scanner, const char *bytes, size_t count)
{
    memcpy(scanner->out + scanner->used, bytes, count);
    scanner->used += count;
}

/* A token, apart from the one before it by a blank unless it begins a line. */
static void put_token(struct scanner *scanner, const char *bytes, size_t count)
{
    if (scanner->used > 0 && scanner->out[scanner->used - 1] != '\n')
        put(scanner, " ", 1);
    put(scanner, bytes, count);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static size_t left(const struct scanner *scanner)
{
    return (size_t)(scanner->end - scanner->at);
}

static bool starts(const struct scanner *scanner, const char *text)
{
    size_t length = strlen(text);
    return left(scanner) >= length && memcmp(scanner->at, text, length) == 0;
}

/* Skips blanks and comments, but not the end of the line. */
static void skip_blanks(struct scanner *scanner)
{
    while (scanner->at < scanner->end) {
        if (starts(scanner, "//")) {
            const char *stop = memchr(scanner->at, '\n', left(scanner));
            scanner->at = stop ? stop : scanner->end;
        } else if (starts(scanner, "/*")) {
            const char *stop = memmem(scanner->at + 2, left(scanner) - 2, "*/", 2);
            scanner->at = stop ? stop + 2 : scanner->end;
        } else if (*scanner->at != '\n' && isspace((unsigned char)*scanner->at)) {
            scanner->at++;
        } else {
            return;
        }
    }
}

static size_t word_length(const struct scanner *scanner)
{
    size_t length = 0;
    while (length < left(scanner) && is_word(scanner->at[length]))
        length++;
    return length;
}

/* Bytes of a preprocessing number: 1e-3f, 0x1.8p+3, 1'000. */
static size_t number_length(const struct scanner *scanner)
{
    size_t length = 1;
    for (; length < left(scanner); length++) {
        char c = scanner->at[length], before = scanner->at[length - 1];
        bool is_sign = (c == '+' || c == '-') && before != '\0' && strchr("eEpP", before) != NULL;
        bool is_separator =
            c == '\'' && length + 1 < left(scanner) && is_word(scanner->at[length + 1]);
        if (!is_word(c) && c != '.' && !is_sign && !is_separator)
            break;
    }
    return length;
}

/* Bytes of a literal whose opening quote stands `prefix` bytes ahead; an unclosed one ends with its
 * line. */
static size_t literal_length(const struct scanner *scanner, size_t prefix)
{
    char quote = scanner->at[prefix];
    size_t length = prefix + 1;
    while (length < left(scanner) && scanner->at[length] != '\n') {
        char c = scanner->at[length++];
        if (c == '\\' && length < left(scanner))
            length++;
        else if (c == quote)
            break;
    }
    return length;
}

/* R"delimiter(...)delimiter" */
static size_t raw_string_length(const struct scanner *scanner, size_t prefix)
{
    const char *delimiter = scanner->at + prefix + 1;
    const char *open = memchr(delimiter, '(', (size_t)(scanner->end - delimiter));
    char closing[20] = ")";
    if (open == NULL || open - delimiter > 16)
        return literal_length(scanner, prefix);
    size_t length = (size_t)(open - delimiter);
    memcpy(closing + 1, delimiter, length);
    closing[length + 1] = '"';
    const char *close = memmem(open, (size_t)(scanner->end - open), closing, length + 2);
    return close ? (size_t)(close - scanner->at) + length + 2 : left(scanner);
}

/* A word, or a literal with an encoding prefix. */
static size_t word_or_literal_length(const struct scanner *scanner)
{
    static const char *const prefixes[] = {"R", "L", "u", "U", "u8", "LR", "uR", "UR", "u8R"};
    size_t length = word_length(scanner);
    char quote = length < left(scanner) ? scanner->at[length] : '\0';
    if (quote != '"' && quote != '\'')
        return length;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strlen(prefixes[i]) == length && memcmp(prefixes[i], scanner->at, length) == 0)
            return quote == '"' && scanner->at[length - 1] == 'R'
                       ? raw_string_length(scanner, length)
                       : literal_length(scanner, length);
    return length;
}

/* The longest operator here: `a + ++b` and `a++ + b` differ. */
static size_t punctuator_length(const struct scanner *scanner)
{
    static const char *const longer[] = {"<<=", ">>=", "...", "->*", "<=>", "->", "++", "--", "<<",
        ">>", "<=", ">=", "==", "!=", "&&", "||",
        "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", "::", ".*"};
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++)
        if (starts(scanner, longer[i]))
            return strlen(longer[i]);
    return 1;
}

static size_t token_length(const struct scanner *scanner)
{
    char c = *scanner->at;
    bool is_fraction = c == '.' && left(scanner) > 1 && isdigit((unsigned char)scanner->at[1]);
    if (isdigit((unsigned char)c) || is_fraction)
        return number_length(scanner);
    if (is_word(c))
        return word_or_literal_length(scanner);
    if (c == '"' || c == '\'')
        return literal_length(scanner, 0);
    return punctuator_length(scanner);
}

/* The header's name goes out as it is written; <a/b.h> is no sequence of operators. */
static void scan_include(struct scanner *scanner)
{
    skip_blanks(scanner);
    char closing = left(scanner) == 0    ? '\0'
                   : *scanner->at == '"' ? '"'
                   : *scanner->at == '<' ? '>'
                                         : '\0';
    const char *line_end = memchr(scanner->at, '\n', left(scanner));
    size_t rest = line_end ? (size_t)(line_end - scanner->at) : left(scanner);
    const char *close = closing && rest > 1 ? memchr(scanner->at + 1, closing, rest - 1) : NULL;
    if (close == NULL)
        return; /* a macro: its tokens follow as in any line */
    size_t length = (size_t)(close - scanner->at) + 1;
    put_token(scanner, scanner->at, length);
    scanner->at += length;
}

/* `#define F(x)` is a macro with a parameter, `#define F (x)` is not. */
static void scan_define(struct scanner *scanner)
{
    skip_blanks(scanner);
    size_t length = word_length(scanner);
    put_token(scanner, scanner->at, length);
    scanner->at += length;
    if (left(scanner) > 0 && *scanner->at == '(') {
        put(scanner, "(", 1);
        scanner->at++;
    }
}

static void scan_directive(struct scanner *scanner)
{
    if (scanner->used > 0 && scanner->out[scanner->used - 1] != '\n')
        put(scanner, "\n", 1);
    put(scanner, "#", 1);
    scanner->at++;
    scanner->in_directive = true;
    skip_blanks(scanner);
    const char *name = scanner->at;
    size_t length = word_length(scanner);
    put(scanner, name, length);
    scanner->at += length;
    if (length == 7 && memcmp(name, "include", 7) == 0)
        scan_include(scanner);
    else if (length == 6 && memcmp(name, "define", 6) == 0)
        scan_define(scanner);
}

static void scan_line_end(struct scanner *scanner)
{
    if (scanner->in_directive)
        put(scanner, "\n", 1);
    scanner->in_directive = false;
    scanner->is_line_start = true;
    scanner->at++;
}

static void scan(struct scanner *scanner)
{
    for (skip_blanks(scanner); scanner->at < scanner->end; skip_blanks(scanner)) {
        if (*scanner->at == '\n') {
            scan_line_end(scanner);
            continue;
        }
        bool was_line_start = scanner->is_line_start;
        scanner->is_line_start = false;
        if (*scanner->at == '#' && was_line_start) {
            scan_directive(scanner);
            continue;
        }
        size_t length = token_length(scanner);
        put_token(scanner, scanner->at, length);
        scanner->at += length;
    }
}

char *source_tokens(const char *text, size_t length)
{
    size_t spliced_length;
    char *spliced = splice_lines(text, length, &spliced_length);
    /* At worst each byte is a token: itself, a blank, and the line ends around a directive. */
    char *out = spliced ? malloc(3 * spliced_length + 8) : NULL;
    if (out != NULL) {
        struct scanner scanner = {
            .at = spliced, .end = spliced + spliced_length, .out = out, .is_line_start = true};
        scan(&scanner);
        while (scanner.used > 0 && out[scanner.used - 1] == '\n')
            scanner.used--;
        out[scanner.used] = '\0';
    }
    free(spliced);
    return out;
}

/* The operand of an #include line, or NULL when this line is none. */
static const char *include_operand(const char *line)
{
    static const char include[] = "#include ", include_next[] = "#include_next ";
    if (strncmp(line, include, sizeof include - 1) == 0)
        return line + sizeof include - 1;
    if (strncmp(line, include_next, sizeof include_next - 1) == 0)
        return line + 1; /* no quote follows: it counts as computed */
    return NULL;
}

const char *source_next_include(const char *at, struct source_include *include)
{
    for (; *at != '\0'; at += strcspn(at, "\n")) {
        at += *at == '\n';
        const char *operand = include_operand(at);
        if (operand == NULL)
            continue;
        include->form = operand[0] == '"'   ? INCLUDE_QUOTED
                        : operand[0] == '<' ? INCLUDE_ANGLED
                                            : INCLUDE_COMPUTED;
        bool is_computed = include->form == INCLUDE_COMPUTED;
        include->name = is_computed ? operand : operand + 1;
        include->length = strcspn(include->name, is_computed ? "\n" : "\"\n>");
        return operand + strcspn(operand, "\n");
    }
    return NULL;
}

bool source_is_inside(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}
