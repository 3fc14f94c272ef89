/* One tune-worker process: started, asked, watched, killed, reaped. Knows bytes and pids only.
 *
 * Design. worker_start spawns the program with a socketpair on its descriptor 3 and a pipe on its
 * standard error (its last lines explain a death). Messages arrive through on_message, the hello
 * first. A worker is done when its pipe has ended AND its exit was seen, in either order; whichever
 * is second calls on_done, once, after which the worker frees itself (ending at the exit alone
 * loses the last answer now and then). After the exit a short grace bounds the wait for a pipe that
 * some grandchild keeps open. A worker that closes its pipe and lives on is killed after a grace.
 * Where a worker leads a process group, what it left in there is killed after its exit.
 * Nothing is called from inside worker_start or worker_send. */
#ifndef TUNE_WORKER_H
#define TUNE_WORKER_H

#include "client/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct worker;

/* How a worker ended. */
struct worker_end {
    int64_t exit_status;
    int signal;
    bool missed_deadline; /* killed because an answer did not come in time */
    bool over_memory;     /* killed by the resident-memory limit */
    bool broke_protocol;
    bool left_unread; /* it ended before it had read the request: that one is not to blame */
    char why[256]; /* a sentence with the signal or status, and the last line of standard error */
};

struct worker_callbacks {
    /* A message of the worker; borrowed. */
    void (*on_message)(struct worker *worker, json_t *message, void *context);
    /* The last call; the worker is freed after it. */
    void (*on_done)(struct worker *worker, const struct worker_end *end, void *context);
    void *context;
};

struct worker_options {
    const char *const *argv; /* argv[0]: path of tune-worker; NULL-ended */
    const char *const *env;  /* whole environment, NULL-ended */
    uint64_t hello_deadline_ms;
    size_t memory_limit_bytes; /* resident; 0: none */
};

/* New, or NULL when the program cannot be started. */
struct worker *worker_start(uv_loop_t *loop, const struct worker_options *options,
    const struct worker_callbacks *callbacks, struct tune_error *err);

/* Sends a request (borrowed); an answer must come within deadline_ms or the worker is killed. */
void worker_send(struct worker *worker, const json_t *request, uint64_t deadline_ms);
/* The answer may take deadline_ms from now on. */
void worker_extend(struct worker *worker, uint64_t deadline_ms);
/* The request has been answered: ends its deadline. */
void worker_settle(struct worker *worker);

/* Ends the worker: SIGTERM, and SIGKILL after a second. No message of it is delivered any more. */
void worker_stop(struct worker *worker);
/* SIGKILL now; no message of it is delivered any more. on_done follows as ever. */
void worker_kill(struct worker *worker, const char *why);

int worker_pid(const struct worker *worker);

#endif
