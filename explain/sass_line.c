/* See sass_line.h. The format is chapter 6.2 of the DWARF standard, versions 2 to 4. NVIDIA adds
 * extended opcodes that tell where a function was inlined; they are skipped by their length. */
#include "explain/sass_line.h"

#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A million instructions have at most so many rows; a file that has more is not worth the memory.
 */
#define ROWS_MAX ((size_t)2 << 20)
#define FILES_MAX 65536
#define NAME_BYTES_MAX 255 /* as file systems have it */
#define DWARF64 0xFFFFFFFF

enum { END_SEQUENCE = 1, SET_ADDRESS = 2 }; /* extended opcodes */
enum { EXTENDED, COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC = 8, FIXED_ADVANCE_PC = 9 };

/* Reads forward; once it has failed, all it reads is 0. */
struct cursor {
    const uint8_t *at, *end;
    bool failed;
};

static const uint8_t *take(struct cursor *cursor, uint64_t count)
{
    if (count > (uint64_t)(cursor->end - cursor->at)) {
        cursor->failed = true;
        cursor->at = cursor->end;
        return NULL;
    }
    cursor->at += count;
    return cursor->at - count;
}

/* Little-endian, of up to 8 bytes. */
static uint64_t read_number(struct cursor *cursor, unsigned bytes)
{
    uint64_t value = 0;
    const uint8_t *from = take(cursor, bytes);
    for (unsigned i = 0; from != NULL && i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* LEB128; bits past the 64th are lost. */
static uint64_t read_leb(struct cursor *cursor, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = (uint8_t)read_number(cursor, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (is_signed && shift < 64 && byte & 0x40)
        value |= UINT64_MAX << shift;
    return value;
}

/* "" at the end of a list, and once it has failed. */
static const char *read_text(struct cursor *cursor)
{
    const uint8_t *end = memchr(cursor->at, '\0', (size_t)(cursor->end - cursor->at));
    const char *text = (const char *)cursor->at;
    if (end == NULL) {
        take(cursor, UINT64_MAX);
        return "";
    }
    cursor->at = end + 1;
    return text;
}

struct unit {
    uint8_t version, min_length, line_range, opcode_base;
    int8_t line_base;
    const uint8_t *operand_counts; /* of the standard opcodes, from 1 on */
    const char **files;            /* from 1 on */
    size_t file_count;
};

/* "" when it is too long to be one. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return strlen(name) <= NAME_BYTES_MAX ? name : "";
}

static void read_files(struct unit *unit, struct cursor *cursor)
{
    while (*read_text(cursor) != '\0') {
        /* folders */
    }
    for (;;) {
        const char *path = read_text(cursor);
        if (*path == '\0')
            return;
        for (int i = 0; i < 3; i++) /* folder, time, size */
            read_leb(cursor, false);
        if (unit->file_count < FILES_MAX)
            unit->files[unit->file_count++] = base_name(path);
    }
}

/* The cursor is left at the line program. */
static bool read_unit_header(struct unit *unit, struct cursor *cursor)
{
    unit->version = (uint8_t)read_number(cursor, 2);
    uint64_t length = read_number(cursor, 4);
    const uint8_t *after = cursor->at;
    if (unit->version < 2 || unit->version > 4 || take(cursor, length) == NULL)
        return false;
    struct cursor header = {.at = after, .end = cursor->at};
    unit->min_length = (uint8_t)read_number(&header, 1);
    take(&header, unit->version >= 4 ? 2 : 1); /* operations per instruction, is a statement */
    unit->line_base = (int8_t)read_number(&header, 1);
    unit->line_range = (uint8_t)read_number(&header, 1);
    unit->opcode_base = (uint8_t)read_number(&header, 1);
    if (header.failed || unit->line_range == 0 || unit->opcode_base == 0)
        return false;
    unit->operand_counts = take(&header, unit->opcode_base - 1U);
    read_files(unit, &header);
    return !header.failed;
}

/* The registers of the line program. */
struct machine {
    const struct unit *unit;
    struct sass_lines *lines;
    uint64_t address, file;
    uint32_t line;
    bool is_open; /* the last row belongs to this sequence */
};

static int add_row(struct machine *machine, uint32_t line)
{
    struct sass_lines *lines = machine->lines;
    const struct unit *unit = machine->unit;
    bool replaces = machine->is_open && lines->rows[lines->count - 1].address == machine->address;
    if (!replaces && lines->count == ROWS_MAX)
        return 0;
    if (!replaces && lines->count == lines->room) {
        size_t room = lines->room == 0 ? 256 : lines->room * 2;
        struct sass_row *rows = realloc(lines->rows, room * sizeof *rows);
        if (rows == NULL)
            return -1;
        lines->rows = rows;
        lines->room = room;
    }
    lines->count += !replaces;
    bool is_named = machine->file >= 1 && machine->file <= unit->file_count;
    lines->rows[lines->count - 1] = (struct sass_row){
        .address = machine->address,
        .file = is_named ? unit->files[machine->file - 1] : "",
        .line = line,
    };
    machine->is_open = true;
    return 0;
}

static void reset(struct machine *machine)
{
    machine->address = 0;
    machine->file = machine->line = 1;
    machine->is_open = false;
}

static int run_extended(struct machine *machine, struct cursor *cursor)
{
    uint64_t length = read_leb(cursor, false);
    const uint8_t *from = take(cursor, length);
    if (from == NULL || length == 0)
        return 0;
    struct cursor operands = {.at = from, .end = from + length};
    uint64_t opcode = read_number(&operands, 1);
    if (opcode == SET_ADDRESS && length == 9)
        machine->address = read_number(&operands, 8);
    if (opcode != END_SEQUENCE)
        return 0;
    int status = add_row(machine, 0);
    reset(machine);
    return status;
}

static void advance_pc(struct machine *machine, uint64_t operations)
{
    machine->address += operations * machine->unit->min_length;
}

static int run_standard(struct machine *machine, struct cursor *cursor, uint8_t opcode)
{
    const struct unit *unit = machine->unit;
    switch (opcode) {
    case COPY:
        return add_row(machine, machine->line);
    case ADVANCE_PC:
        advance_pc(machine, read_leb(cursor, false));
        return 0;
    case ADVANCE_LINE:
        machine->line += (uint32_t)read_leb(cursor, true);
        return 0;
    case SET_FILE:
        machine->file = read_leb(cursor, false);
        return 0;
    case CONST_ADD_PC:
        advance_pc(machine, (uint64_t)((UINT8_MAX - unit->opcode_base) / unit->line_range));
        return 0;
    case FIXED_ADVANCE_PC:
        machine->address += read_number(cursor, 2);
        return 0;
    default:
        for (uint8_t i = 0; i < unit->operand_counts[opcode - 1]; i++)
            read_leb(cursor, false);
        return 0;
    }
}

static int run_special(struct machine *machine, uint8_t opcode)
{
    const struct unit *unit = machine->unit;
    uint8_t adjusted = (uint8_t)(opcode - unit->opcode_base);
    advance_pc(machine, adjusted / unit->line_range);
    machine->line += (uint32_t)(unit->line_base + adjusted % unit->line_range);
    return add_row(machine, machine->line);
}

static int run_program(const struct unit *unit, struct sass_lines *lines, struct cursor *cursor)
{
    struct machine machine = {.unit = unit, .lines = lines};
    reset(&machine);
    int status = 0;
    while (status == 0 && cursor->at < cursor->end) {
        uint8_t opcode = (uint8_t)read_number(cursor, 1);
        if (opcode >= unit->opcode_base)
            status = run_special(&machine, opcode);
        else if (opcode == EXTENDED)
            status = run_extended(&machine, cursor);
        else
            status = run_standard(&machine, cursor, opcode);
    }
    return status;
}

static int read_units(struct sass_lines *lines, struct cursor all, const char **files)
{
    while (all.at < all.end) {
        uint64_t length = read_number(&all, 4);
        const uint8_t *from = take(&all, length);
        if (from == NULL || length == DWARF64)
            return 0;
        struct cursor cursor = {.at = from, .end = from + length};
        struct unit unit = {.files = files};
        if (read_unit_header(&unit, &cursor) && run_program(&unit, lines, &cursor))
            return -1;
    }
    return 0;
}

/* Of the symbol that the relocation names, as sass_row has it; false when there is none. */
static bool symbol_address(const struct cubin_section *symbols, uint64_t index, uint64_t *address)
{
    Elf64_Sym symbol;
    if (index >= symbols->count / sizeof symbol)
        return false;
    memcpy(&symbol, symbols->bytes + index * sizeof symbol, sizeof symbol);
    *address = ((uint64_t)symbol.st_shndx << 32) + symbol.st_value;
    return true;
}

static void relocate(const struct cubin_section *table, const struct cubin_section *relocations,
    const struct cubin_section *symbols)
{
    bool has_addend = relocations->type == SHT_RELA;
    size_t size = has_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    for (size_t at = 0; relocations->count - at >= size; at += size) {
        Elf64_Rela entry = {0};
        uint64_t address, operand;
        memcpy(&entry, relocations->bytes + at, size);
        if (entry.r_offset > table->count || table->count - entry.r_offset < sizeof operand ||
            !symbol_address(symbols, ELF64_R_SYM(entry.r_info), &address))
            continue;
        memcpy(&operand, table->bytes + entry.r_offset, sizeof operand);
        operand = address + (has_addend ? (uint64_t)entry.r_addend : operand);
        memcpy(table->bytes + entry.r_offset, &operand, sizeof operand);
    }
}

/* A compiler makes one section of them; more would only cost time. */
static void relocate_table(const struct cubin *cubin, size_t index)
{
    for (size_t i = 0; i < cubin->section_count; i++) {
        const struct cubin_section *section = &cubin->sections[i];
        bool is_relocation = section->type == SHT_REL || section->type == SHT_RELA;
        if (!is_relocation || section->info != index || section->link >= cubin->section_count)
            continue;
        relocate(&cubin->sections[index], section, &cubin->sections[section->link]);
        return;
    }
}

/* The end of one sequence stands before the start of the next one at the same address. */
static int by_address(const void *a, const void *b)
{
    const struct sass_row *left = a, *right = b;
    if (left->address != right->address)
        return left->address < right->address ? -1 : 1;
    return (left->line > right->line) - (left->line < right->line);
}

int sass_lines_read(struct sass_lines *lines, struct cubin *cubin, struct tune_error *err)
{
    *lines = (struct sass_lines){0};
    size_t i = 0;
    while (i < cubin->section_count && strcmp(cubin->sections[i].name, ".debug_line") != 0)
        i++;
    if (i == cubin->section_count)
        return 0;
    relocate_table(cubin, i);
    struct cubin_section table = cubin->sections[i];
    const char **files = malloc(FILES_MAX * sizeof *files);
    struct cursor cursor = {.at = table.bytes, .end = table.bytes + table.count};
    int status = files == NULL ? -1 : read_units(lines, cursor, files);
    free(files);
    if (status)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the lines of a cubin");
    if (lines->count > 0)
        qsort(lines->rows, lines->count, sizeof *lines->rows, by_address);
    return 0;
}

void sass_lines_finish(struct sass_lines *lines)
{
    free(lines->rows);
    *lines = (struct sass_lines){0};
}

const struct sass_row *sass_lines_find(
    const struct sass_lines *lines, size_t section, uint64_t offset)
{
    static const struct sass_row unknown = {.file = ""};
    uint64_t address = ((uint64_t)section << 32) + offset;
    size_t from = 0, to = lines->count; /* the first row past the address */
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (lines->rows[middle].address <= address)
            from = middle + 1;
        else
            to = middle;
    }
    const struct sass_row *row = from == 0 ? &unknown : &lines->rows[from - 1];
    bool is_here = row->address >> 32 == section && row->line != 0;
    return is_here ? row : &unknown;
}
