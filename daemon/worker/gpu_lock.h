/* One user of a GPU at a time among all tunerds of a machine, also across containers that share the
 * folder: a kernel lock on a file per device. Waiting for it counts against no deadline. */
#ifndef TUNE_WORKER_GPU_LOCK_H
#define TUNE_WORKER_GPU_LOCK_H

#include "client/error.h"

struct gpu_lock {
    int fd; /* -1: not open */
    char path[512];
};

/* Opens tunerd-<UUID>.lock in TUNE_LOCK_DIR, or in /run/lock, or in /tmp where that does not exist
 * or is root's alone, as some distributions have it. An existing file is opened without O_CREAT,
 * which a sticky folder refuses on another user's file; a new one gets mode 0666. */
int gpu_lock_open(struct gpu_lock *lock, const char *uuid, struct tune_error *err);
void gpu_lock_close(struct gpu_lock *lock);

int gpu_lock_take(struct gpu_lock *lock, struct tune_error *err); /* waits */
void gpu_lock_release(struct gpu_lock *lock);

#endif
