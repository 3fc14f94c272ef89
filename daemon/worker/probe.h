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

/* Says a load hello on the pipe: how busy the devices of these UUIDs (separated by commas) are, as
 * far as NVML knows. Loads no driver. */
int load_role(struct channel *channel, struct libraries *libraries, const char *uuids);

#endif
