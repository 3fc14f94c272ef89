/* A scanner for as much of C++ as it takes to find kernels: strings, identifiers, braces. It copies
 * its input and changes only `__shared__` declarations. */
#include "rewrite.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_LIMIT 256

struct scope {
    char *space; /* name of the namespace that this brace opened, "" for one without, or NULL */
    bool is_template;
};

struct scanner {
    const char *at;
    FILE *out;
    struct rewrite *result;
    struct scope scopes[DEPTH_LIMIT];
    int depth;
    char last[256];     /* last identifier */
    char previous[256]; /* and the token before that, identifier or one character */
    bool has_extern, has_template, has_namespace; /* in the current declaration */
    bool is_kernel;                               /* after __global__, until its name */
    bool skips_parens;                            /* the next parentheses belong to an attribute */
    bool wants_label;                             /* in `extern __shared__ T n[]`, before its end */
    char shared[256];                             /* n */
    FILE *aliases;                                /* of templates' dynamic shared arrays */
};

/* --- tokens that are copied whole ------------------------------------------------------------- */

static void copy_to(struct scanner *s, const char *end)
{
    fwrite(s->at, 1, (size_t)(end - s->at), s->out);
    s->at = end;
}

static void copy_line(struct scanner *s)
{
    const char *end = strchr(s->at, '\n');
    copy_to(s, end ? end : s->at + strlen(s->at));
}

static void copy_quoted(struct scanner *s)
{
    char quote = *s->at;
    const char *p = s->at + 1;
    while (*p && *p != quote && *p != '\n')
        p += *p == '\\' && p[1] ? 2 : 1;
    copy_to(s, *p == quote ? p + 1 : p);
}

/* R"delimiter( ... )delimiter" */
static void copy_raw(struct scanner *s)
{
    const char *open = strchr(s->at, '(');
    char end[32];
    if (!open || open - s->at - 1 > 16) {
        copy_quoted(s);
        return;
    }
    snprintf(end, sizeof end, ")%.*s\"", (int)(open - s->at - 1), s->at + 1);
    const char *close = strstr(open, end);
    copy_to(s, close ? close + strlen(end) : s->at + strlen(s->at));
}

static void copy_number(struct scanner *s)
{
    const char *p = s->at;
    while (isalnum((unsigned char)*p) || *p == '.' || *p == '_' ||
           (*p == '\'' && isalnum((unsigned char)p[1])) ||
           ((*p == '+' || *p == '-') && strchr("eEpP", p[-1])))
        p++;
    copy_to(s, p);
}

/* The whole of "(...)". */
static void copy_parens(struct scanner *s)
{
    int depth = 0;
    while (*s->at) {
        char c = *s->at;
        if (c == '"' || c == '\'') {
            copy_quoted(s);
            continue;
        }
        depth += (c == '(') - (c == ')');
        copy_to(s, s->at + 1);
        if (depth == 0)
            return;
    }
}

/* --- declarations ----------------------------------------------------------------------------- */

static void remember(struct scanner *s, const char *token)
{
    memcpy(s->previous, s->last, sizeof s->previous);
    snprintf(s->last, sizeof s->last, "%s", token);
}

static void end_declaration(struct scanner *s)
{
    s->has_extern = s->has_template = s->has_namespace = false;
    s->is_kernel = s->skips_parens = s->wants_label = false;
    s->shared[0] = '\0';
    remember(s, "");
}

static void open_brace(struct scanner *s)
{
    if (s->depth < DEPTH_LIMIT) {
        char *space = NULL;
        if (s->has_namespace)
            space = strdup(strcmp(s->last, "namespace") == 0 ? "" : s->last);
        bool is_inner = s->depth > 0 && s->scopes[s->depth - 1].is_template;
        s->scopes[s->depth] =
            (struct scope){.space = space, .is_template = s->has_template || is_inner};
    }
    s->depth++;
    end_declaration(s);
}

static void close_brace(struct scanner *s)
{
    if (s->depth > 0 && --s->depth < DEPTH_LIMIT) {
        free(s->scopes[s->depth].space);
        s->scopes[s->depth].space = NULL;
    }
    end_declaration(s);
}

static void add_kernel(struct scanner *s)
{
    char name[1024] = "";
    for (int i = 0; i < s->depth && i < DEPTH_LIMIT; i++) {
        const char *space = s->scopes[i].space;
        if (space && *space) {
            size_t used = strlen(name);
            snprintf(name + used, sizeof name - used, "%s::", space);
        }
    }
    size_t used = strlen(name);
    snprintf(name + used, sizeof name - used, "%s", s->last);
    struct rewrite *r = s->result;
    for (size_t i = 0; i < r->kernel_count; i++)
        if (strcmp(r->kernels[i].name, name) == 0)
            return;
    struct rewrite_kernel *grown = realloc(r->kernels, (r->kernel_count + 1) * sizeof *r->kernels);
    if (!grown)
        return;
    r->kernels = grown;
    r->kernels[r->kernel_count++] =
        (struct rewrite_kernel){.name = strdup(name), .is_template = s->has_template};
}

static void shared_qualifier(struct scanner *s)
{
    if (s->has_extern)
        s->wants_label = true;
    else if (strcmp(s->last, "static") == 0)
        fputs("__attribute__((used))", s->out);
    else
        fputs("__shared__", s->out);
}

/* g++ forgets the label of an array that a template declares: its symbol, which is that of the
 * namespace around it, becomes another name of the memory. */
static void add_alias(struct scanner *s)
{
    const char *name = s->shared[0] ? s->shared : s->last;
    bool is_nested = false;
    if (s->depth == 0 || s->depth > DEPTH_LIMIT || !s->scopes[s->depth - 1].is_template)
        return;
    fputs("__asm__(\".set ", s->aliases);
    for (int i = 0; i < s->depth; i++) {
        const char *space = s->scopes[i].space;
        if (!space)
            continue;
        space = *space ? space : "_GLOBAL__N_1";
        fprintf(s->aliases, "%s%zu%s", is_nested ? "" : "_ZN", strlen(space), space);
        is_nested = true;
    }
    if (is_nested)
        fprintf(s->aliases, "%zu%sE", strlen(name), name);
    else
        fputs(name, s->aliases);
    fputs(", tune_dynamic_shared\");\n", s->aliases);
}

static bool is_attribute(const char *word)
{
    static const char *const words[] = {"__launch_bounds__", "__attribute__", "__attribute",
        "alignas", "decltype", "__declspec", "noexcept", "__asm__", "asm"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static void identifier(struct scanner *s)
{
    char word[256];
    const char *p = s->at;
    while (isalnum((unsigned char)*p) || *p == '_' || *p == '$')
        p++;
    snprintf(word, sizeof word, "%.*s", (int)(p - s->at), s->at);
    if (*p == '"' && word[strlen(word) - 1] == 'R') { /* R"(...)", u8R"(...)" */
        copy_to(s, p);
        copy_raw(s);
        return;
    }
    if (strcmp(word, "__shared__") == 0) {
        s->at = p;
        shared_qualifier(s);
        return;
    }
    copy_to(s, p);
    s->has_extern |= strcmp(word, "extern") == 0;
    s->has_template |= strcmp(word, "template") == 0;
    s->has_namespace |= strcmp(word, "namespace") == 0;
    s->is_kernel |= strcmp(word, "__global__") == 0;
    s->skips_parens = is_attribute(word);
    if (!s->skips_parens)
        remember(s, word);
}

static void punctuation(struct scanner *s)
{
    char c = *s->at;
    if (c == '(' && s->skips_parens) {
        s->skips_parens = false;
        copy_parens(s);
        return;
    }
    if (c == '(' && s->is_kernel) {
        add_kernel(s);
        s->is_kernel = false;
    }
    if (s->wants_label && c == '[' && s->shared[0] == '\0')
        memcpy(s->shared, s->last, sizeof s->shared);
    if (s->wants_label && (c == ';' || c == ',')) {
        fputs(" __asm__(\"tune_dynamic_shared\")", s->out);
        add_alias(s);
        s->shared[0] = '\0';
    }
    copy_to(s, s->at + 1);
    if (c == '{')
        open_brace(s);
    else if (c == '}')
        close_brace(s);
    else if (c == ';')
        end_declaration(s);
}

static void scan(struct scanner *s)
{
    bool at_line_start = true;
    while (*s->at) {
        unsigned char c = (unsigned char)*s->at;
        if (isspace(c)) {
            at_line_start |= c == '\n';
            copy_to(s, s->at + 1);
            continue;
        }
        if (c == '#' && at_line_start)
            copy_line(s);
        else if (c == '"' || c == '\'')
            copy_quoted(s);
        else if (isdigit(c) || (c == '.' && isdigit((unsigned char)s->at[1])))
            copy_number(s);
        else if (isalpha(c) || c == '_' || c == '$')
            identifier(s);
        else
            punctuation(s);
        at_line_start = false;
    }
}

/* The aliases come last. */
static int finish(struct scanner *s, char **aliases)
{
    int failed = fclose(s->aliases);
    fputs(failed ? "" : *aliases, s->out);
    for (int i = 0; i < s->depth && i < DEPTH_LIMIT; i++)
        free(s->scopes[i].space);
    failed |= ferror(s->out) | fclose(s->out);
    free(*aliases);
    return failed ? -1 : 0;
}

int rewrite_init(struct rewrite *rewrite, const char *text)
{
    char *aliases = NULL;
    size_t bytes;
    struct scanner s = {.at = text, .result = rewrite};
    *rewrite = (struct rewrite){0};
    s.out = open_memstream(&rewrite->text, &rewrite->length);
    if (!s.out)
        return -1;
    s.aliases = open_memstream(&aliases, &bytes);
    if (!s.aliases) {
        fclose(s.out);
        return -1;
    }
    fputc('\n', s.aliases);
    scan(&s);
    return finish(&s, &aliases);
}

void rewrite_finish(struct rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->kernel_count; i++)
        free(rewrite->kernels[i].name);
    free(rewrite->kernels);
    free(rewrite->text);
    *rewrite = (struct rewrite){0};
}
