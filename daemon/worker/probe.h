/* What `doctor` shows of this machine: compiler, driver, devices, and what was tried to find them.
 */
#ifndef TUNE_WORKER_PROBE_H
#define TUNE_WORKER_PROBE_H

#include "libraries.h"

/* Prints one line of JSON on standard output. Returns the exit status: 0 when the line was written,
 * whatever was found. */
int probe_role(struct libraries *libraries);

#endif
