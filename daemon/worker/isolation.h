/* What a worker does to itself before anything else: it must not outlive the daemon, hold its
 * files, or write into its output. */
#ifndef TUNE_WORKER_ISOLATION_H
#define TUNE_WORKER_ISOLATION_H

#include "client/error.h"

/* Dies with its parent, keeps descriptors 0 to 3 only (3 closes on exec, 1 goes where 2 goes:
 * device printf and libraries write there), makes TUNE_CUDA_DIR absolute, and leaves the working
 * folder for
 * "/", so that no header or library lying in it is picked up. */
int isolate(struct tune_error *err);

#endif
