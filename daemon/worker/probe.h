/* What `doctor` shows of this machine: compiler, driver, devices, and what was tried to find them.
 */
#ifndef TUNE_WORKER_PROBE_H
#define TUNE_WORKER_PROBE_H

#include "channel.h"
#include "libraries.h"

/* Prints one line of JSON on standard output. Returns the exit status: 0 when the line was written,
 * whatever was found. */
int probe_role(struct libraries *libraries);

/* Says a devices hello on the pipe: what the driver has, without making a context. */
int devices_role(struct channel *channel, struct libraries *libraries);

#endif
