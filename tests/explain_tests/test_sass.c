/* Whole cubins: what NVIDIA's compiler made of tests/data/explain/cubins/small.cu for three
 * architectures, and what is none or is damaged. */
#include "daemon/search/rng.h"
#include "explain/explain.h"
#include "explain/sass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_BYTES_MAX 65536
#define FLIPS 10000
#define SEED 20250301

struct file {
    uint8_t bytes[FILE_BYTES_MAX];
    size_t count;
};

static const int archs[] = {75, 90, 120};
#define ARCH_COUNT (sizeof archs / sizeof *archs)

static void load(struct file *file, int sm)
{
    char path[1024];
    const char *root = getenv("TUNE_SOURCE_DIR");
    snprintf(
        path, sizeof path, "%s/tests/data/explain/cubins/small_%d.cubin", root ? root : ".", sm);
    FILE *stream = fopen(path, "re");
    assert_non_null(stream);
    file->count = fread(file->bytes, 1, sizeof file->bytes, stream);
    fclose(stream);
}

static void read_well(const struct file *file, struct sass *sass)
{
    struct tune_error err = {0};
    if (sass_read(file->bytes, file->count, sass, &err))
        fail_msg("%s", err.text);
}

static void assert_refused(const void *bytes, size_t count, enum tune_code code, const char *words)
{
    struct sass sass;
    struct tune_error err = {0};
    assert_int_equal(sass_read(bytes, count, &sass, &err), -1);
    assert_int_equal(err.code, code);
    if (strstr(err.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    sass_finish(&sass);
}

static void check_counts(const struct sass_kernel *kernel, const uint32_t *expected)
{
    uint32_t sum = 0;
    assert_int_equal(kernel->unknown, 0);
    for (int kind = 0; kind < SASS_CLASS_COUNT; kind++) {
        sum += kernel->by_class[kind];
        /* Addresses are computed in more or less steps, from constants loaded or not. */
        if (kind != SASS_INTEGER && kind != SASS_CONSTANT)
            assert_int_equal(kernel->by_class[kind], expected[kind]);
    }
    assert_int_equal(sum, kernel->instructions);
}

static void instructions_are_what_the_source_says(void **state)
{
    (void)state;
    static const uint32_t through_shared[SASS_CLASS_COUNT] = {[SASS_FP32] = 1,
        [SASS_CONVERT] = 1,
        [SASS_GLOBAL_LOAD] = 2,
        [SASS_GLOBAL_STORE] = 1,
        [SASS_SHARED_LOAD] = 1,
        [SASS_SHARED_STORE] = 1,
        [SASS_BARRIER] = 1,
        [SASS_BRANCH] = 1};
    static const uint32_t add_up[SASS_CLASS_COUNT] = {
        [SASS_FP64] = 1, [SASS_GLOBAL_LOAD] = 1, [SASS_ATOMIC] = 2, [SASS_BRANCH] = 1};
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        struct file file;
        struct sass sass;
        load(&file, archs[i]);
        read_well(&file, &sass);
        assert_int_equal(sass.sm, archs[i]);
        assert_int_equal(sass.kernel_count, 2);
        assert_null(sass_kernel(&sass, "twice")); /* inlined */
        const struct sass_kernel *first = sass_kernel(&sass, "through_shared");
        const struct sass_kernel *second = sass_kernel(&sass, "add_up");
        assert_non_null(first);
        assert_non_null(second);
        check_counts(first, through_shared);
        check_counts(second, add_up);
        /* MOV, S2R, IMAD, ... : 7 and 8 of them on sm_75, fewer later. */
        assert_true(first->by_class[SASS_INTEGER] >= 6 && second->by_class[SASS_INTEGER] >= 4);
        sass_finish(&sass);
    }
}

static void check_accesses(
    const struct sass_kernel *kernel, const struct sass_access *expected, size_t count)
{
    assert_int_equal(kernel->access_count, count);
    for (size_t i = 0; i < count; i++) {
        const struct sass_access *access = &kernel->accesses[i];
        assert_string_equal(access->file, expected[i].file);
        assert_int_equal(access->line, expected[i].line);
        assert_int_equal(access->kind, expected[i].kind);
        assert_int_equal(access->bytes, expected[i].bytes);
        assert_int_equal(access->count, expected[i].count);
    }
}

static void accesses_stand_under_their_lines_also_of_inlined_functions(void **state)
{
    (void)state;
    static const struct sass_access through_shared[] = {
        {"small.cu", 4, SASS_GLOBAL_LOAD, 4, 1},
        {"small.cu", 9, SASS_SHARED_STORE, 4, 1},
        {"small.cu", 11, SASS_GLOBAL_LOAD, 1, 1},
        {"small.cu", 11, SASS_GLOBAL_STORE, 8, 1},
        {"small.cu", 11, SASS_SHARED_LOAD, 4, 1},
    };
    static const struct sass_access add_up[] = {
        {"small.cu", 15, SASS_GLOBAL_LOAD, 16, 1},
        {"small.cu", 15, SASS_ATOMIC, 8, 1},
        {"small.cu", 16, SASS_ATOMIC, 4, 1},
    };
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        struct file file;
        struct sass sass;
        load(&file, archs[i]);
        read_well(&file, &sass);
        check_accesses(sass_kernel(&sass, "through_shared"), through_shared,
            sizeof through_shared / sizeof *through_shared);
        check_accesses(sass_kernel(&sass, "add_up"), add_up, sizeof add_up / sizeof *add_up);
        sass_finish(&sass);
    }
}

static void widths_are_those_of_more_than_a_word_and_no_atomics(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        struct file file;
        load(&file, archs[i]);
        json_t *widths = explain_widths(file.bytes, file.count);
        char *text = json_dumps(widths, JSON_COMPACT);
        assert_string_equal(text,
            "[{\"file\":\"small.cu\",\"line\":11,\"space\":\"global\",\"kind\":\"store\","
            "\"bytes\":8},"
            "{\"file\":\"small.cu\",\"line\":15,\"space\":\"global\",\"kind\":\"load\","
            "\"bytes\":16}]");
        free(text);
        json_decref(widths);
    }
}

static void without_line_information_accesses_have_no_line_and_widths_are_empty(void **state)
{
    (void)state;
    struct file file;
    struct sass sass;
    load(&file, 90);
    uint8_t *name = memmem(file.bytes, file.count, "\0.debug_line", sizeof "\0.debug_line");
    assert_non_null(name);
    name[2] = 'D';
    read_well(&file, &sass);
    static const struct sass_access add_up[] = {
        {"", 0, SASS_GLOBAL_LOAD, 16, 1}, {"", 0, SASS_ATOMIC, 4, 1}, {"", 0, SASS_ATOMIC, 8, 1}};
    check_accesses(sass_kernel(&sass, "add_up"), add_up, sizeof add_up / sizeof *add_up);
    sass_finish(&sass);
    json_t *widths = explain_widths(file.bytes, file.count);
    assert_int_equal(json_array_size(widths), 0);
    json_decref(widths);
}

static void what_is_no_cubin_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const char ptx[] = "//\n// Generated by NVIDIA NVVM Compiler\n//\n.version 9.0\n";
    struct file file;
    assert_refused(NULL, 0, TUNE_EINVAL, "not a cubin");
    assert_refused("\177ELF", 4, TUNE_EINVAL, "not a cubin");
    assert_refused(ptx, sizeof ptx, TUNE_ENOTFOUND, "compile for sm_XX");
    load(&file, 75);
    file.bytes[18] = 62; /* x86-64: an image of the emulator */
    assert_refused(file.bytes, file.count, TUNE_EINVAL, "another machine");
    json_t *widths = explain_widths(file.bytes, file.count);
    assert_int_equal(json_array_size(widths), 0);
    json_decref(widths);
}

/* Byte 7 is the ABI, bytes 48 to 51 are the flags. */
static void the_architecture_is_read_in_the_old_and_the_new_form(void **state)
{
    (void)state;
    struct file file;
    struct sass sass;
    load(&file, 75);
    file.bytes[7] = 0x33;
    memcpy(file.bytes + 48, "\x50\x05\x50", 4);
    read_well(&file, &sass);
    assert_int_equal(sass.sm, 80);
    sass_finish(&sass);
    file.bytes[48] = 61;
    assert_refused(file.bytes, file.count, TUNE_ENOTFOUND, "sm_61");
}

static void more_than_64_mib_is_refused(void **state)
{
    (void)state;
    struct file file;
    load(&file, 75);
    assert_refused(file.bytes, ((size_t)64 << 20) + 1, TUNE_ELIMIT, "67108864");
}

/* A block of its own size, so that a sanitizer sees a read past its end. */
static void read_any(const uint8_t *bytes, size_t count)
{
    struct sass sass;
    struct tune_error err = {0};
    uint8_t *exact = malloc(count + (count == 0));
    memcpy(exact, bytes, count);
    int status = sass_read(exact, count, &sass, &err);
    assert_true(status == 0 || err.text[0] != '\0');
    for (size_t k = 0; k < sass.kernel_count; k++)
        for (size_t i = 0; i < sass.kernels[k].access_count; i++)
            assert_true(strlen(sass.kernels[k].accesses[i].file) <= count);
    sass_finish(&sass);
    json_decref(explain_widths(exact, count));
    free(exact);
}

static void every_truncation_is_an_error_or_a_reading(void **state)
{
    (void)state;
    struct file file;
    load(&file, 75);
    for (size_t count = 0; count < file.count; count++)
        read_any(file.bytes, count);
}

/* Few bytes of a file are its structure: three flips in four fall upon the header, the sections'
 * table and the lines. */
static void flipped_bytes_are_an_error_or_a_reading(void **state)
{
    (void)state;
    struct rng rng = {SEED};
    struct file whole, file;
    load(&whole, 90);
    uint64_t table;
    memcpy(&table, whole.bytes + 40, sizeof table);
    for (int i = 0; i < FLIPS; i++) {
        file = whole;
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips > 0; flips--) {
            uint64_t at = rng_below(&rng, file.count);
            if (i % 4 == 1)
                at = rng_below(&rng, 64);
            else if (i % 4 == 2)
                at = table + rng_below(&rng, file.count - table);
            else if (i % 4 == 3)
                at = rng_below(&rng, 4096);
            file.bytes[at] = (uint8_t)rng_next(&rng);
        }
        read_any(file.bytes, file.count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_what_the_source_says),
        cmocka_unit_test(accesses_stand_under_their_lines_also_of_inlined_functions),
        cmocka_unit_test(widths_are_those_of_more_than_a_word_and_no_atomics),
        cmocka_unit_test(without_line_information_accesses_have_no_line_and_widths_are_empty),
        cmocka_unit_test(what_is_no_cubin_is_refused_with_the_reason),
        cmocka_unit_test(the_architecture_is_read_in_the_old_and_the_new_form),
        cmocka_unit_test(more_than_64_mib_is_refused),
        cmocka_unit_test(every_truncation_is_an_error_or_a_reading),
        cmocka_unit_test(flipped_bytes_are_an_error_or_a_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
