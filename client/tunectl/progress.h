/* How a running job is shown on standard error: one live line on a terminal, a line per tenth (or
 * per 5 s) elsewhere. */
#ifndef TUNECTL_PROGRESS_H
#define TUNECTL_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>

struct progress {
    bool is_terminal, is_line_open;
    long long last_print_ms;
    int last_tenth;
};

void progress_init(struct progress *progress);
/* Takes in the params of a `progress` notification. */
void progress_update(struct progress *progress, const json_t *params);
/* Ends the live line, so that other text can follow. */
void progress_end(struct progress *progress);

/* "gemm M=64,N=64: 132 of 260, 3.1 configs/s, best 63.2 us (1.42 x as fast as the
 * default), 41 s left".
 * malloc'ed. */
char *progress_text(const json_t *params);

#endif
