/* The bench role: verify and time candidates on one device, and the device itself, behind the
 * pipe's requests setup, bench, confirm and limits. */
#ifndef TUNE_WORKER_BENCH_H
#define TUNE_WORKER_BENCH_H

#include "channel.h"
#include "libraries.h"

/* Says hello and answers requests until the daemon closes the pipe or a sticky error ends the
 * context. Returns the exit status. */
int bench_role(struct channel *channel, struct libraries *libraries, const char *device);

#endif
