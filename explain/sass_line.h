/* Which line of the source an instruction came from: .debug_line of a cubin (DWARF 2 to 4). Where
 * functions were inlined, the line is that of the innermost one.
 *
 * Each row of the table is named by its section and its offset in it. Damaged or missing tables are
 * no error: what cannot be read is not there. */
#ifndef TUNE_EXPLAIN_SASS_LINE_H
#define TUNE_EXPLAIN_SASS_LINE_H

#include "explain/cubin.h"

struct sass_row {
    uint64_t address; /* section index << 32 | offset: the row holds from here to the next one */
    const char *file; /* base name, borrowed from the cubin; "" when unknown */
    uint32_t line;    /* 0: unknown, and the end of a sequence */
};

struct sass_lines {
    struct sass_row *rows; /* by address */
    size_t count, room;
};

/* Relocates the cubin's table in place. Fails for lack of memory only; sass_lines_finish in any
 * case. */
int sass_lines_read(struct sass_lines *lines, struct cubin *cubin, struct tune_error *err);
void sass_lines_finish(struct sass_lines *lines);

/* Never NULL: a row without a line where nothing is known. */
const struct sass_row *sass_lines_find(
    const struct sass_lines *lines, size_t section, uint64_t offset);

#endif
