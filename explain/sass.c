/* See sass.h. */
#include "explain/cubin.h"
#include "explain/sass_line.h"
#include "explain/sass_op.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_PREFIX ".text."
#define INSTRUCTIONS_MAX 1000000

/* One section of code and what is known of its lines. */
struct code {
    const uint8_t *bytes;
    size_t count; /* of instructions */
    size_t section;
    const struct sass_lines *lines;
    int sm;
};

static bool is_code(const struct cubin_section *section)
{
    return strncmp(section->name, TEXT_PREFIX, strlen(TEXT_PREFIX)) == 0;
}

static bool is_listed(const struct sass_op *op)
{
    switch (op->kind) {
    case SASS_GLOBAL_LOAD:
    case SASS_GLOBAL_STORE:
    case SASS_SHARED_LOAD:
    case SASS_SHARED_STORE:
    case SASS_ATOMIC:
        return op->bytes > 0;
    default:
        return false;
    }
}

static void add_access(
    struct sass_kernel *kernel, const struct sass_op *op, const struct sass_row *row)
{
    kernel->accesses[kernel->access_count++] = (struct sass_access){
        .file = row->file,
        .line = row->line,
        .kind = op->kind,
        .bytes = op->bytes,
        .count = 1,
    };
}

static void merge_accesses(struct sass_kernel *kernel)
{
    struct sass_access *accesses = kernel->accesses;
    size_t count = 0;
    if (kernel->access_count > 0)
        qsort(accesses, kernel->access_count, sizeof *accesses, sass_access_order);
    for (size_t i = 0; i < kernel->access_count; i++) {
        if (count > 0 && sass_access_order(&accesses[count - 1], &accesses[i]) == 0)
            accesses[count - 1].count++;
        else
            accesses[count++] = accesses[i];
    }
    kernel->access_count = count;
    /* Most instructions access nothing. */
    struct sass_access *smaller = realloc(accesses, (count + 1) * sizeof *accesses);
    if (smaller != NULL)
        kernel->accesses = smaller;
}

static void read_instruction(struct sass_kernel *kernel, const struct code *code, size_t index)
{
    uint64_t words[2];
    memcpy(words, code->bytes + index * SASS_OP_BYTES, sizeof words);
    struct sass_op op = sass_op(words[0], words[1], code->sm);
    if (op.is_padding)
        return;
    kernel->instructions++;
    kernel->by_class[op.kind]++;
    kernel->unknown += !op.is_known;
    if (is_listed(&op))
        add_access(kernel, &op, sass_lines_find(code->lines, code->section, index * SASS_OP_BYTES));
}

static int read_kernel(struct sass_kernel *kernel, const struct code *code, struct tune_error *err)
{
    kernel->accesses = malloc((code->count + 1) * sizeof *kernel->accesses);
    if (kernel->accesses == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu instructions", code->count);
    for (size_t i = 0; i < code->count; i++)
        read_instruction(kernel, code, i);
    merge_accesses(kernel);
    return 0;
}

static int check_code(const struct cubin *cubin, size_t *kernel_count, struct tune_error *err)
{
    size_t instructions = 0;
    *kernel_count = 0;
    for (size_t i = 0; i < cubin->section_count; i++) {
        const struct cubin_section *section = &cubin->sections[i];
        if (!is_code(section))
            continue;
        if (section->count % SASS_OP_BYTES != 0)
            return tune_fail(err, TUNE_EINVAL,
                "damaged cubin: %.60s has %zu bytes, which are not whole instructions",
                section->name, section->count);
        instructions += section->count / SASS_OP_BYTES;
        if (instructions > INSTRUCTIONS_MAX)
            return tune_fail(err, TUNE_ELIMIT,
                "a cubin of more than %d instructions; compile fewer kernels together",
                INSTRUCTIONS_MAX);
        ++*kernel_count;
    }
    if (*kernel_count == 0)
        return tune_fail(err, TUNE_ENOTFOUND, "the cubin has no code; compile for sm_XX");
    return 0;
}

static int read_kernels(struct sass *sass, const struct cubin *cubin,
    const struct sass_lines *lines, struct tune_error *err)
{
    size_t kernel_count;
    if (check_code(cubin, &kernel_count, err))
        return -1;
    sass->kernels = calloc(kernel_count, sizeof *sass->kernels);
    if (sass->kernels == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu kernels", kernel_count);
    for (size_t i = 0; i < cubin->section_count; i++) {
        const struct cubin_section *section = &cubin->sections[i];
        if (!is_code(section))
            continue;
        struct sass_kernel *kernel = &sass->kernels[sass->kernel_count++];
        kernel->name = section->name + strlen(TEXT_PREFIX);
        struct code code = {section->bytes, section->count / SASS_OP_BYTES, i, lines, cubin->sm};
        if (read_kernel(kernel, &code, err))
            return -1;
    }
    return 0;
}

int sass_read(const void *bytes, size_t count, struct sass *sass, struct tune_error *err)
{
    struct cubin cubin;
    struct sass_lines lines = {0};
    *sass = (struct sass){0};
    int status = cubin_init(&cubin, bytes, count, err);
    if (status == 0)
        status = sass_lines_read(&lines, &cubin, err);
    if (status == 0)
        status = read_kernels(sass, &cubin, &lines, err);
    sass->sm = cubin.sm;
    sass->names = (char *)cubin.bytes;
    cubin.bytes = NULL;
    sass_lines_finish(&lines);
    cubin_finish(&cubin);
    return status;
}

void sass_finish(struct sass *sass)
{
    for (size_t i = 0; i < sass->kernel_count; i++)
        free(sass->kernels[i].accesses);
    free(sass->kernels);
    free(sass->names);
    *sass = (struct sass){0};
}

const struct sass_kernel *sass_kernel(const struct sass *sass, const char *name)
{
    for (size_t i = 0; i < sass->kernel_count; i++)
        if (strcmp(sass->kernels[i].name, name) == 0)
            return &sass->kernels[i];
    return NULL;
}

int sass_access_order(const void *a, const void *b)
{
    const struct sass_access *left = a, *right = b;
    int order = left->file == right->file ? 0 : strcmp(left->file, right->file);
    if (order != 0)
        return order;
    if (left->line != right->line)
        return left->line < right->line ? -1 : 1;
    if (left->kind != right->kind)
        return left->kind < right->kind ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

const char *sass_class_word(enum sass_class kind)
{
    static const char *const words[] = {
#define X(name, word, meaning) word,
        SASS_CLASSES(X)
#undef X
    };
    return words[kind];
}
