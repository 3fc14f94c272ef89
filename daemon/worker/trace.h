/* The trace role: a kernel run on the emulator and watched there, whatever the daemon times on. */
#ifndef TUNE_WORKER_TRACE_H
#define TUNE_WORKER_TRACE_H

#include "channel.h"
#include "libraries.h"

/* Says hello, answers one request (pipe.h), and returns the exit status. The libraries must be
 * those of the emulator: libraries->cuda_dir names its folder. */
int trace_role(struct channel *channel, struct libraries *libraries);

#endif
