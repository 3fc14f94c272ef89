#include "loops.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define HOOK "__sanitizer_cov_trace_pc"

enum { NONE = -1 };

/* A stretch of code that is entered at its beginning only, with at most one hook. */
struct node {
    int hook;     /* number of the hook, or NONE */
    int function; /* which one of the file it is in */
    int jump;     /* label, or NONE */
    bool falls;   /* into the next node */
    bool is_indirect;
    bool is_entry; /* of a function */
    int seen;      /* by the search for what follows a hook */
};

struct label {
    const char *name;
    size_t length;
    int node, function;
    bool is_in_table; /* target of an indirect jump of the function */
};

/* A hooked block among the others. After M. Wei and others, "A New Algorithm for Identifying Loops
 * in Decompilation" (2007): one walk, depth first, which takes irreducible loops too. */
struct block {
    int node;
    int *next, next_count;
    int place;  /* on the path of the walk, from 1 on; 0: not on it */
    int header; /* of the innermost loop around it (not its own), or NONE */
    bool is_visited, is_header;
};

struct code {
    struct node *nodes;
    struct label *labels;
    struct block *blocks; /* by number of the hook */
    int node_count, label_count, block_count, function_count, search;
};

/* --- assembly --------------------------------------------------------------------------------- */

static bool is_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && !isalnum((unsigned char)text[length]);
}

#if defined(__x86_64__)
static bool is_jump(const char *text)
{
    return *text == 'j';
}

static bool is_end(const char *text)
{
    return is_word(text, "jmp") || is_word(text, "ret") || is_word(text, "ud2");
}

static bool is_indirect(const char *text)
{
    return is_word(text, "jmp") && text[3 + strspn(text + 3, " \t")] == '*';
}
#elif defined(__aarch64__)
static bool is_jump(const char *text)
{
    static const char *const words[] = {"b", "cbz", "cbnz", "tbz", "tbnz", "beq", "bne", "bcs",
        "bcc", "bmi", "bpl", "bvs", "bvc", "bhi", "bls", "bge", "blt", "bgt", "ble"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(text, words[i])) /* also b.eq */
            return true;
    return false;
}

static bool is_end(const char *text)
{
    return (is_word(text, "b") && text[1] != '.') || is_word(text, "br") || is_word(text, "ret") ||
           is_word(text, "brk");
}

static bool is_indirect(const char *text)
{
    return is_word(text, "br");
}
#endif

static size_t label_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || strchr("._$", text[length]))
        if (text[length++] == '\0')
            return 0;
    return length;
}

/* Created at its first mention. */
static int find_label(struct code *code, const char *text)
{
    size_t length = label_length(text);
    for (int i = code->label_count - 1; i >= 0; i--)
        if (code->labels[i].length == length && strncmp(code->labels[i].name, text, length) == 0)
            return i;
    code->labels[code->label_count] =
        (struct label){.name = text, .length = length, .node = NONE, .function = NONE};
    return code->label_count++;
}

static struct node *begin_node(struct code *code)
{
    struct node *node = &code->nodes[code->node_count++];
    *node =
        (struct node){.hook = NONE, .jump = NONE, .falls = true, .function = code->function_count};
    return node;
}

static void read_instruction(struct code *code, const char *text, size_t length)
{
    struct node *node = &code->nodes[code->node_count - 1];
    const char *target = memmem(text, length, ".L", 2);
    if (strncmp(text, "notrack", 7) == 0) /* a prefix of jumps through tables */
        text += strspn(text + 7, " \t") + 7;
    if (memmem(text, length, HOOK, strlen(HOOK))) {
        node = node->hook == NONE ? node : begin_node(code);
        node->hook = code->block_count++;
        return;
    }
    if (!is_jump(text) && !is_end(text))
        return;
    node->falls = !is_end(text);
    node->is_indirect = is_indirect(text);
    if (is_jump(text) && target && !node->is_indirect)
        node->jump = find_label(code, target);
    begin_node(code);
}

static void read_label(struct code *code, const char *text)
{
    bool is_function = *text != '.';
    if (is_function) {
        code->nodes[code->node_count - 1].falls = false;
        code->function_count++;
    }
    struct node *node = begin_node(code);
    node->is_entry = is_function;
    if (!is_function)
        code->labels[find_label(code, text)].node = code->node_count - 1;
}

/* ".long .L4-.L6": part of a jump table. */
static void read_directive(struct code *code, const char *text, size_t length)
{
    static const char *const words[] = {".long", ".quad", ".word", ".xword", ".hword", ".byte"};
    const char *target = memmem(text, length, ".L", 2);
    for (size_t i = 0; target && i < sizeof words / sizeof *words; i++) {
        if (!is_word(text, words[i]))
            continue;
        struct label *label = &code->labels[find_label(code, target)];
        label->is_in_table = true;
        label->function = code->function_count;
    }
}

static void read_line(struct code *code, const char *line, size_t length)
{
    size_t blanks = strspn(line, " \t");
    if (blanks >= length || line[blanks] == '#')
        return;
    const char *text = line + blanks;
    size_t name = label_length(text);
    if (name && blanks + name < length && text[name] == ':')
        read_label(code, text);
    else if (*text == '.')
        read_directive(code, text, length - blanks);
    else
        read_instruction(code, text, length - blanks);
}

static void read_lines(struct code *code, const char *assembly)
{
    begin_node(code);
    for (const char *line = assembly, *end; (end = strchr(line, '\n')); line = end + 1)
        read_line(code, line, (size_t)(end - line));
    code->nodes[code->node_count - 1].falls = false;
}

/* --- from hook to hook ------------------------------------------------------------------------ */

static void follow(struct code *code, struct block *block, int number, bool is_first);

static void follow_jumps(struct code *code, struct block *block, int number)
{
    const struct node *node = &code->nodes[number];
    if (node->falls)
        follow(code, block, number + 1, false);
    if (node->jump != NONE && code->labels[node->jump].node != NONE)
        follow(code, block, code->labels[node->jump].node, false);
    for (int i = 0; node->is_indirect && i < code->label_count; i++)
        if (code->labels[i].is_in_table && code->labels[i].function == node->function &&
            code->labels[i].node != NONE)
            follow(code, block, code->labels[i].node, false);
}

/* Adds the hooks that may come next, through nodes without one. */
static void follow(struct code *code, struct block *block, int number, bool is_first)
{
    struct node *node = &code->nodes[number];
    if (!is_first && node->seen == code->search)
        return;
    if (!is_first)
        node->seen = code->search;
    if (is_first || node->hook == NONE) {
        follow_jumps(code, block, number);
        return;
    }
    int *grown = realloc(block->next, (size_t)(block->next_count + 1) * sizeof *grown);
    if (!grown)
        return;
    block->next = grown;
    block->next[block->next_count++] = node->hook;
}

static void connect(struct code *code)
{
    for (int i = 0; i < code->node_count; i++) {
        if (code->nodes[i].hook == NONE)
            continue;
        struct block *block = &code->blocks[code->nodes[i].hook];
        *block = (struct block){.node = i, .header = NONE};
        code->search = i + 1;
        follow(code, block, i, true);
    }
}

/* --- loops ------------------------------------------------------------------------------------ */

/* Puts the block into the loop of `header`, which is on the path, between those it is in. */
static void put_into(struct code *code, int number, int header)
{
    if (number == header || header == NONE)
        return;
    struct block *blocks = code->blocks;
    while (blocks[number].header != NONE) {
        int outer = blocks[number].header;
        if (outer == header)
            return;
        if (blocks[outer].place < blocks[header].place) {
            blocks[number].header = header;
            number = header;
            header = outer;
        } else {
            number = outer;
        }
    }
    blocks[number].header = header;
}

static void walk(struct code *code, int number, int place)
{
    struct block *block = &code->blocks[number];
    block->is_visited = true;
    block->place = place;
    for (int i = 0; i < block->next_count; i++) {
        int next = block->next[i], header = next;
        if (!code->blocks[next].is_visited) {
            walk(code, next, place + 1);
            header = code->blocks[next].header;
        } else if (code->blocks[next].place) {
            code->blocks[next].is_header = true;
        } else { /* the innermost loop around it that is on the path */
            do
                header = code->blocks[header].header;
            while (header != NONE && !code->blocks[header].place);
        }
        put_into(code, number, header);
    }
    block->place = 0;
}

static void find_loops(struct code *code)
{
    struct block entry = {0};
    for (int i = 0; i < code->node_count; i++) {
        if (!code->nodes[i].is_entry)
            continue;
        code->search = code->node_count + 1 + i;
        entry.next_count = 0;
        follow(code, &entry, i, false);
        for (int j = 0; j < entry.next_count; j++)
            if (!code->blocks[entry.next[j]].is_visited)
                walk(code, entry.next[j], 1);
    }
    free(entry.next);
}

/* --- output ----------------------------------------------------------------------------------- */

static void write_code(const char *assembly, FILE *out)
{
    int number = 0;
    for (const char *line = assembly, *end; (end = strchr(line, '\n')); line = end + 1) {
        size_t length = (size_t)(end - line);
        fwrite(line, 1, length + 1, out);
        if (*line == '\t' && line[1] != '.' && memmem(line, length, HOOK, strlen(HOOK)))
            fprintf(out, ".Ltune_block%d:\n", number++);
    }
}

/* struct image_block; the return address is relative to its own field. */
static void write_table(const struct code *code, FILE *out)
{
    fputs("\t.section tune_blocks,\"a\"\n\t.balign 4\n", out);
    for (int i = 0; i < code->block_count; i++)
        fprintf(out, "\t.long .Ltune_block%d - .\n\t.long %d\n\t.long %d\n", i,
            code->blocks[i].header, code->blocks[i].is_header);
    fputs("\t.section .note.GNU-stack,\"\",%progbits\n", out);
}

static bool make_room(struct code *code, const char *assembly)
{
    size_t lines = 2;
    for (const char *at = assembly; (at = strchr(at, '\n')); at++)
        lines++;
    code->nodes = calloc(2 * lines, sizeof *code->nodes);
    code->labels = calloc(2 * lines, sizeof *code->labels);
    code->blocks = calloc(lines, sizeof *code->blocks);
    return code->nodes && code->labels && code->blocks;
}

bool loops_annotate(const char *assembly, FILE *out)
{
    struct code code = {0};
    bool has_room = make_room(&code, assembly);
    if (has_room) {
        read_lines(&code, assembly);
        connect(&code);
        find_loops(&code);
        write_code(assembly, out);
        write_table(&code, out);
    }
    for (int i = 0; has_room && i < code.block_count; i++)
        free(code.blocks[i].next);
    free(code.nodes);
    free(code.labels);
    free(code.blocks);
    return has_room;
}
