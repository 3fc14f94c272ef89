/* Line programs put together by hand, in the smallest cubin that can hold them. */
#include "explain/sass.h"
#include "explain/sass_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES_MAX 8192
#define CODE_SECTION 2
#define OTHER_SECTION 3
#define LOAD_BYTES 16

/* A cubin that grows: sections first, their headers at the end. */
struct builder {
    uint8_t bytes[BYTES_MAX];
    size_t count;
    Elf64_Shdr sections[8];
    unsigned section_count;
};

static void append(struct builder *builder, const void *bytes, size_t count)
{
    assert_true(builder->count + count <= sizeof builder->bytes);
    memcpy(builder->bytes + builder->count, bytes, count);
    builder->count += count;
}

static Elf64_Shdr *add_section(
    struct builder *builder, unsigned name, uint32_t type, const void *bytes, size_t count)
{
    Elf64_Shdr *section = &builder->sections[builder->section_count++];
    *section = (Elf64_Shdr){
        .sh_name = name, .sh_type = type, .sh_offset = builder->count, .sh_size = count};
    append(builder, bytes, count);
    return section;
}

/* Offsets in the names below. */
enum { NAME_K = 1, NAME_L = 9, NAME_LINES = 17, NAME_OTHER = 29 };
static const char names[] = "\0.text.k\0.text.l\0.debug_line\0.other";

/* Two kernels of four loads each (LDG.E.128); `address_at` is where the line table has the address
 * of the first, and, unless 0, `second_at` where it has that of the second. */
static void build(struct builder *builder, const uint8_t *table, size_t table_bytes,
    uint64_t address_at, uint64_t second_at)
{
    static const uint64_t load[] = {0x0000002414047981, 0x004ea2000c1e1d00};
    uint64_t code[8];
    for (int i = 0; i < 8; i++)
        code[i] = load[i % 2];
    Elf64_Ehdr header = {.e_ident = ELFMAG,
        .e_machine = 190,
        .e_flags = 100 << 8,
        .e_shentsize = sizeof(Elf64_Shdr)};
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_OSABI] = 0x41;
    *builder = (struct builder){.count = sizeof header, .section_count = 1};
    const Elf64_Sym symbols[] = {{0}, {.st_shndx = CODE_SECTION}, {.st_shndx = OTHER_SECTION}};
    const Elf64_Rel relocations[] = {
        {address_at, ELF64_R_INFO(1, 2)}, {second_at, ELF64_R_INFO(2, 2)}};
    add_section(builder, NAME_OTHER, SHT_STRTAB, names, sizeof names);
    add_section(builder, NAME_K, SHT_PROGBITS, code, sizeof code);
    add_section(builder, NAME_L, SHT_PROGBITS, code, sizeof code);
    add_section(builder, NAME_LINES, SHT_PROGBITS, table, table_bytes);
    add_section(builder, NAME_OTHER, SHT_SYMTAB, symbols, sizeof symbols);
    Elf64_Shdr *section = add_section(builder, NAME_OTHER, SHT_REL, relocations,
        second_at != 0 ? sizeof relocations : sizeof *relocations);
    section->sh_link = 5;
    section->sh_info = 4;
    header.e_shoff = builder->count;
    header.e_shnum = (uint16_t)builder->section_count;
    header.e_shstrndx = 1;
    append(builder, builder->sections, builder->section_count * sizeof *builder->sections);
    memcpy(builder->bytes, &header, sizeof header);
}

/* A unit: its header with the files "dir/a.cu" and "b.cuh", then the program. Line base -5, range
 * 14, first special opcode 10, so that opcode 15 + 14 * pc + line is a row. From version 4 on one
 * byte more tells the operations per instruction. */
#define HEADER_BYTES 54
static size_t unit(uint8_t *table, uint16_t version, const uint8_t *program, size_t count)
{
    static const uint8_t rest[] = "\1\1\1\xfb\x0e\x0a\0\1\1\1\1\0\0\0\1folder\0\0dir/a.cu\0\1\0\0"
                                  "b.cuh\0\1\0\0";
    size_t skipped = version < 4;
    uint32_t header_length = (uint32_t)(sizeof rest - skipped);
    uint32_t length = (uint32_t)(2 + 4 + header_length + count);
    memcpy(table, &length, 4);
    memcpy(table + 4, &version, 2);
    memcpy(table + 6, &header_length, 4);
    memcpy(table + 10, rest + skipped, header_length);
    assert_int_equal(10 + header_length, HEADER_BYTES + (version >= 4));
    memcpy(table + 10 + header_length, program, count);
    return 10 + header_length + count;
}

#define SET_ADDRESS 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0
#define ADDRESS_AT (HEADER_BYTES + 3)
#define END_SEQUENCE 0, 1, 1
#define ADVANCE_PC(bytes) 2, (bytes)
#define ADVANCE_LINE(lines) 3, (lines) /* of -64 to 63, as 7 bits */
#define SET_FILE(file) 4, (file)
#define COPY 1

/* The lines of the four loads of .text.k must be these; 0: unknown. */
static void check_lines(const struct builder *builder, const uint32_t *lines, const char *file)
{
    struct cubin cubin;
    struct sass_lines read;
    assert_int_equal(cubin_init(&cubin, builder->bytes, builder->count, NULL), 0);
    assert_int_equal(sass_lines_read(&read, &cubin, NULL), 0);
    for (unsigned i = 0; i < 4; i++) {
        const struct sass_row *row = sass_lines_find(&read, CODE_SECTION, i * LOAD_BYTES);
        assert_int_equal(row->line, lines[i]);
        assert_string_equal(row->file, lines[i] == 0 ? "" : file);
    }
    sass_lines_finish(&read);
    cubin_finish(&cubin);
}

static void check_program(
    uint16_t version, const uint8_t *program, size_t count, const uint32_t *lines)
{
    uint8_t table[1024];
    struct builder builder;
    size_t table_bytes = unit(table, version, program, count);
    build(&builder, table, table_bytes, ADDRESS_AT + (version >= 4), 0);
    check_lines(&builder, lines, "a.cu");
}

#define CHECK(version, program, ...)                                                               \
    check_program(version, program, sizeof program, (const uint32_t[4]){__VA_ARGS__})

static void a_row_holds_until_the_next_one_and_the_end(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, ADVANCE_LINE(6), COPY, ADVANCE_PC(32),
        ADVANCE_LINE(0x7e), COPY, ADVANCE_PC(16), END_SEQUENCE};
    CHECK(2, program, 7, 7, 5, 0);
}

static void the_last_of_several_rows_at_one_address_counts(void **state)
{
    (void)state;
    static const uint8_t program[] = {
        SET_ADDRESS, COPY, ADVANCE_LINE(1), COPY, ADVANCE_PC(64), END_SEQUENCE};
    CHECK(2, program, 2, 2, 2, 2);
}

static void every_opcode_that_moves_the_address_is_known(void **state)
{
    (void)state;
    enum { FIXED_ADVANCE = 9, CONST_ADD = 8, SPECIAL = 15 + 14 * 16 + 3 };
    static const uint8_t special[] = {SET_ADDRESS, COPY, SPECIAL, ADVANCE_PC(48), END_SEQUENCE};
    CHECK(2, special, 1, 4, 4, 4);
    static const uint8_t fixed[] = {SET_ADDRESS, COPY, FIXED_ADVANCE, 48, 0, ADVANCE_LINE(1), COPY,
        ADVANCE_PC(16), END_SEQUENCE};
    CHECK(2, fixed, 1, 1, 1, 2);
    /* (255 - 10) / 14 = 17 */
    static const uint8_t constant[] = {SET_ADDRESS, COPY, CONST_ADD, ADVANCE_PC(15),
        ADVANCE_LINE(1), COPY, ADVANCE_PC(32), END_SEQUENCE};
    CHECK(2, constant, 1, 1, 2, 2);
}

static void opcodes_of_nvidia_and_those_without_effect_are_skipped(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, 0, 3, 0x90, 2, 7, /* inlined at */
        5, 0x81, 1 /* column */, 6, 7, COPY, ADVANCE_PC(64), END_SEQUENCE};
    CHECK(2, program, 1, 1, 1, 1);
}

static void later_versions_are_read_or_have_no_lines(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, COPY, ADVANCE_PC(64), END_SEQUENCE};
    CHECK(3, program, 1, 1, 1, 1);
    CHECK(4, program, 1, 1, 1, 1);
    CHECK(5, program, 0, 0, 0, 0);
}

static void the_file_is_the_one_that_the_row_names(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, SET_FILE(2), COPY, ADVANCE_PC(64), END_SEQUENCE};
    static const uint8_t beyond[] = {SET_ADDRESS, SET_FILE(3), COPY, ADVANCE_PC(64), END_SEQUENCE};
    static const uint32_t lines[] = {1, 1, 1, 1};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    build(&builder, table, count, ADDRESS_AT, 0);
    check_lines(&builder, lines, "b.cuh");
    count = unit(table, 2, beyond, sizeof beyond);
    build(&builder, table, count, ADDRESS_AT, 0);
    check_lines(&builder, lines, "");
}

static void check_kernel(const struct builder *builder, const char *name, uint32_t line)
{
    struct sass sass;
    assert_int_equal(sass_read(builder->bytes, builder->count, &sass, NULL), 0);
    const struct sass_kernel *kernel = sass_kernel(&sass, name);
    assert_non_null(kernel);
    assert_int_equal(kernel->access_count, 1);
    assert_int_equal(kernel->accesses[0].line, line);
    assert_int_equal(kernel->accesses[0].count, 4);
    sass_finish(&sass);
}

static void each_sequence_belongs_to_the_section_of_its_relocation(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, ADVANCE_LINE(10), COPY, ADVANCE_PC(64),
        END_SEQUENCE, SET_ADDRESS, ADVANCE_LINE(20), COPY, ADVANCE_PC(64), END_SEQUENCE};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    build(&builder, table, count, ADDRESS_AT, ADDRESS_AT + 19);
    check_kernel(&builder, "k", 11);
    check_kernel(&builder, "l", 21);
    build(&builder, table, count, ADDRESS_AT + 19, ADDRESS_AT);
    check_kernel(&builder, "k", 21);
    check_kernel(&builder, "l", 11);
}

static void sequences_of_one_section_may_meet(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, ADVANCE_PC(32), ADVANCE_LINE(20), COPY,
        ADVANCE_PC(32), END_SEQUENCE, SET_ADDRESS, ADVANCE_LINE(10), COPY, ADVANCE_PC(32),
        END_SEQUENCE};
    static const uint32_t lines[] = {11, 11, 21, 21};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    build(&builder, table, count, ADDRESS_AT, ADDRESS_AT + 21);
    /* The second symbol is of the first kernel too. */
    size_t symbol = builder.sections[5].sh_offset + 2 * sizeof(Elf64_Sym);
    builder.bytes[symbol + offsetof(Elf64_Sym, st_shndx)] = CODE_SECTION;
    check_lines(&builder, lines, "a.cu");
}

static void a_sequence_without_an_end_ends_with_its_section(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, COPY};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    build(&builder, table, count, ADDRESS_AT, 0);
    check_kernel(&builder, "k", 1);
    check_kernel(&builder, "l", 0);
}

/* The second address stands where the addend is when the relocations have one. */
static void an_addend_takes_the_place_of_what_the_table_has(void **state)
{
    (void)state;
    static const uint8_t program[] = {
        0, 9, 2, 32, 0, 0, 0, 0, 0, 0, 0, COPY, ADVANCE_PC(64), END_SEQUENCE};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    build(&builder, table, count, ADDRESS_AT, 0);
    check_lines(&builder, (const uint32_t[]){0, 0, 1, 1}, "a.cu");
    build(&builder, table, count, ADDRESS_AT, LOAD_BYTES);
    Elf64_Ehdr header;
    memcpy(&header, builder.bytes, sizeof header);
    size_t at = header.e_shoff + 6 * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_type);
    builder.bytes[at] = SHT_RELA;
    check_lines(&builder, (const uint32_t[]){0, 1, 1, 1}, "a.cu");
}

static void a_second_unit_has_files_of_its_own(void **state)
{
    (void)state;
    static const uint8_t first[] = {SET_ADDRESS, COPY, ADVANCE_PC(64), END_SEQUENCE};
    static const uint8_t second[] = {
        SET_ADDRESS, SET_FILE(2), ADVANCE_LINE(4), COPY, ADVANCE_PC(64), END_SEQUENCE};
    static const uint32_t lines[] = {5, 5, 5, 5};
    uint8_t table[1024];
    struct builder builder;
    size_t start = unit(table, 2, first, sizeof first);
    size_t count = start + unit(table + start, 2, second, sizeof second);
    build(&builder, table, count, start + ADDRESS_AT, ADDRESS_AT);
    check_lines(&builder, lines, "b.cuh");
}

/* Whatever is wrong with the table, the instructions are counted. */
static void a_damaged_table_only_loses_the_lines(void **state)
{
    (void)state;
    static const uint8_t program[] = {SET_ADDRESS, COPY, ADVANCE_PC(64), END_SEQUENCE};
    uint8_t table[1024];
    struct builder builder;
    size_t count = unit(table, 2, program, sizeof program);
    for (size_t at = 0; at < HEADER_BYTES; at++)
        for (unsigned value = 0; value < 256; value += 17) {
            uint8_t damaged[1024];
            struct sass sass;
            memcpy(damaged, table, count);
            damaged[at] = (uint8_t)value;
            build(&builder, damaged, count, ADDRESS_AT, 0);
            assert_int_equal(sass_read(builder.bytes, builder.count, &sass, NULL), 0);
            assert_int_equal(sass_kernel(&sass, "k")->instructions, 4);
            sass_finish(&sass);
        }
}

static void operations_without_a_name_are_counted(void **state)
{
    (void)state;
    struct builder builder;
    struct sass sass;
    build(&builder, (const uint8_t *)"", 0, 0, 0);
    uint8_t *second = builder.bytes + builder.sections[CODE_SECTION].sh_offset + LOAD_BYTES;
    second[0] = 0xFF;
    assert_int_equal(sass_read(builder.bytes, builder.count, &sass, NULL), 0);
    const struct sass_kernel *kernel = sass_kernel(&sass, "k");
    assert_int_equal(kernel->unknown, 1);
    assert_int_equal(kernel->by_class[SASS_OTHER], 1);
    assert_int_equal(kernel->by_class[SASS_GLOBAL_LOAD], 3);
    assert_int_equal(sass_kernel(&sass, "l")->unknown, 0);
    sass_finish(&sass);
}

static void code_that_is_no_whole_number_of_instructions_is_damaged(void **state)
{
    (void)state;
    struct builder builder;
    struct sass sass;
    struct tune_error err = {0};
    build(&builder, (const uint8_t *)"", 0, 0, 0);
    Elf64_Ehdr header;
    memcpy(&header, builder.bytes, sizeof header);
    size_t at = header.e_shoff + CODE_SECTION * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size);
    builder.bytes[at] -= 8;
    assert_int_equal(sass_read(builder.bytes, builder.count, &sass, &err), -1);
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, ".text.k"));
    sass_finish(&sass);
}

static void more_than_a_million_instructions_are_refused(void **state)
{
    (void)state;
    enum { CODE_BYTES = 16 * 1000001 };
    struct builder builder;
    struct sass sass;
    struct tune_error err = {0};
    build(&builder, (const uint8_t *)"", 0, 0, 0);
    Elf64_Ehdr header;
    memcpy(&header, builder.bytes, sizeof header);
    Elf64_Shdr code = {.sh_name = NAME_K,
        .sh_type = SHT_PROGBITS,
        .sh_offset = builder.count,
        .sh_size = CODE_BYTES};
    memcpy(builder.bytes + header.e_shoff + CODE_SECTION * sizeof code, &code, sizeof code);
    uint8_t *large = calloc(1, builder.count + CODE_BYTES);
    memcpy(large, builder.bytes, builder.count);
    assert_int_equal(sass_read(large, builder.count + CODE_BYTES, &sass, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    sass_finish(&sass);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_holds_until_the_next_one_and_the_end),
        cmocka_unit_test(the_last_of_several_rows_at_one_address_counts),
        cmocka_unit_test(every_opcode_that_moves_the_address_is_known),
        cmocka_unit_test(opcodes_of_nvidia_and_those_without_effect_are_skipped),
        cmocka_unit_test(later_versions_are_read_or_have_no_lines),
        cmocka_unit_test(the_file_is_the_one_that_the_row_names),
        cmocka_unit_test(each_sequence_belongs_to_the_section_of_its_relocation),
        cmocka_unit_test(sequences_of_one_section_may_meet),
        cmocka_unit_test(a_sequence_without_an_end_ends_with_its_section),
        cmocka_unit_test(an_addend_takes_the_place_of_what_the_table_has),
        cmocka_unit_test(a_second_unit_has_files_of_its_own),
        cmocka_unit_test(a_damaged_table_only_loses_the_lines),
        cmocka_unit_test(operations_without_a_name_are_counted),
        cmocka_unit_test(code_that_is_no_whole_number_of_instructions_is_damaged),
        cmocka_unit_test(more_than_a_million_instructions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
