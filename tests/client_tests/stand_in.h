/* A stand-in daemon for tests of libtune's handle: a thread that answers `ping` and `get` on any
 * number of connections, as the test tells it to. It can be stopped and started again on its path.
 * Beside it, a folder with a published snapshot. */
#ifndef TEST_STAND_IN_H
#define TEST_STAND_IN_H

#include "client/tune.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define STAND_IN_CONNECTIONS 64

struct stand_in {
    char folder[64], path[96], served[128];
    int listener, wake[2]; /* -1: not running */
    pthread_t thread;
    int connections[STAND_IN_CONNECTIONS];
    char *lines[STAND_IN_CONNECTIONS]; /* what has come of a request, 4 KiB each */
    size_t used[STAND_IN_CONNECTIONS];
    /* told by the test */
    _Atomic int drops;     /* so many `get` end their connection without a reply */
    _Atomic bool is_mute;  /* nothing is answered */
    _Atomic bool is_huge;  /* answers have more than TUNE_ANSWER_BYTES */
    _Atomic int64_t value; /* of the answers' param TAG */
    const char *refusal;   /* code of an error for every `get`; NULL: none */
    /* told to the test */
    _Atomic int accepted, gets;
    char last[4096]; /* the last `get` */
};

/* The folder and the names; nothing runs yet. */
void stand_in_init(struct stand_in *daemon);
void stand_in_start(struct stand_in *daemon);
/* Its connections end, and its socket is gone. Nothing where it does not run. */
void stand_in_stop(struct stand_in *daemon);
/* Tells all connections that a sweep of the kernel tiny for N = n has ended. */
void stand_in_tell(struct stand_in *daemon, int64_t n);
/* Stops, and removes all. */
void stand_in_finish(struct stand_in *daemon);

/* An exact answer of the kernel tiny for N = n with TAG = tag. */
void make_answer(int64_t n, int64_t tag, struct tune_answer *answer);
/* Publishes exact answers for n in [1, count], TAG = tag, as a base. */
void publish_base(struct stand_in *daemon, int64_t count, int64_t tag);
/* The same as a delta over the base published last. */
void publish_delta(struct stand_in *daemon, int64_t count, int64_t tag);

#endif
