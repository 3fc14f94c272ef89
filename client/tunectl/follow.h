/* Following a job to its end, and showing what came out: shared by `sweep` and `watch JOB`. */
#ifndef TUNECTL_FOLLOW_H
#define TUNECTL_FOLLOW_H

#include "tunectl.h"

/* Counts Ctrl-C from now on; the second one ends the program at once. */
void interrupts_catch(void);
int interrupts_seen(void);

/* Shows progress until the job is done. *done gets the params of its `done` notification (new).
 * With `cancel_on_interrupt` the first Ctrl-C cancels the job and goes on waiting for what it has;
 * without, it ends the waiting with TUNE_ECANCELED. */
int follow_job(struct tunectl *ctl, const char *job, bool cancel_on_interrupt, json_t **done,
    struct tune_error *err);

/* Prints the results of a `done` (tables, or with --json the value) and returns the exit status. */
int show_done(const struct tunectl *ctl, const json_t *done);

#endif
