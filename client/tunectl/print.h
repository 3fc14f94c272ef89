/* Everything that a person reads on a terminal: one table printer, and numbers with units.
 *
 * Texts come from the daemon and so, in the end, from other people's files: control characters are
 * shown as '?', so that a kernel's name cannot steer the terminal. */
#ifndef TUNECTL_PRINT_H
#define TUNECTL_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* The memory, if it was to be had: else the program ends with a line on standard error. */
void *need(void *memory);

/* Rows of cells, printed in columns as wide as their widest cell. */
struct table {
    const char *align; /* one '<' or '>' per column */
    size_t columns, count, room;
    char **cells;
};

void table_init(struct table *table, const char *align);
/* The next cell, in rows; a NULL text is empty. The text is copied. */
void table_add(struct table *table, const char *text);
void table_addf(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table, const char *indent, FILE *file);
void table_finish(struct table *table);

/* A moment in local time: ISO text as it came, or milliseconds (or seconds, if small) since 1970.
 */
void table_add_moment(struct table *table, const json_t *moment);

#define HUMAN_BYTES 32
/* "63.2 us", "1.85 ms"; "-" for a time that is not known (<= 0). Returns `text`. */
char *human_time(double ns, char text[HUMAN_BYTES]);
/* "41 s", "3 min 20 s", "2 h 05 min". */
char *human_duration(double seconds, char text[HUMAN_BYTES]);
/* "256 MiB". */
char *human_bytes(double bytes, char text[HUMAN_BYTES]);

/* "BM=64 BN=64 SWIZZLE=xor" from an object, with `separator` between the pairs. malloc'ed; a string
 * is taken as it is, "-" stands for what is neither. */
char *pairs_text(const json_t *object, const char *separator);
/* The "shape" of a reply, with the names of its "choices". */
char *shape_text(const json_t *reply, const char *separator);

/* Fields of a reply that may be absent. */
const char *text_of(const json_t *object, const char *key); /* "" when absent; borrowed */
double number_of(const json_t *object, const char *key);    /* 0 when absent */

/* Prints text with control characters shown as '?'. */
void print_clean(FILE *file, const char *text);

/* Columns for text on standard output: the terminal's, within what reads well (80 to 120). */
int text_columns(void);

/* Prints text and a line end, control characters shown as '?'. Lines break between words before
 * text_columns(); `indent` columns are taken on the first one and left blank on the others. */
void print_wrapped(const char *text, int indent);

/* The one value of --json. */
void print_json(const json_t *value);

#endif
