/* Matrix Market files: coordinate; real, integer or pattern; general or symmetric. Values are read
 * and left out: a sweep has its own. Nothing in a file is trusted: lines are at most
 * MATRIX_MARKET_LINE_BYTES long, and room is made for as many entries as there are, not for as many
 * as the header says. Errors name the line and never quote it, since who asks may not be allowed to
 * read the file. */
#ifndef TUNE_MATRIX_MARKET_H
#define TUNE_MATRIX_MARKET_H

#include "plugins/sparse.h"

#include <stdio.h>

#define MATRIX_MARKET_LINE_BYTES 1024

int matrix_market_read(const char *path, struct sparse_matrix *matrix, struct tune_error *err);
/* The same from a stream, which is not closed; `name` names it in errors. */
int matrix_market_read_stream(
    FILE *stream, const char *name, struct sparse_matrix *matrix, struct tune_error *err);

#endif
