/* A deadline around each blocking driver step. Past it the watchdog's thread answers the request in
 * the main thread's place, with outcome timeout, and ends the process by SIGKILL: a hung driver
 * call can be ended in no other way.
 *
 * Only the monotonic clock counts. The main thread arms and disarms; steps do not nest. */
#ifndef TUNE_WORKER_WATCHDOG_H
#define TUNE_WORKER_WATCHDOG_H

#include "channel.h"
#include "cuda_errors.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define WATCHDOG_STEP_MS 10000 /* loads, allocations, our own kernels */

struct watchdog {
    struct channel *channel;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_armed, is_ending;
    struct timespec deadline;
    long limit_ms;
    enum cuda_blame blame;
    int candidate;  /* of a confirm request; -1: none */
    char what[160]; /* the step, already safe inside a JSON string */
};

int watchdog_init(struct watchdog *watchdog, struct channel *channel, struct tune_error *err);
void watchdog_finish(struct watchdog *watchdog);

/* `what` completes "… did not end within N ms". */
void watchdog_arm(struct watchdog *watchdog, double limit_ms, const char *what);
void watchdog_disarm(struct watchdog *watchdog);

#endif
