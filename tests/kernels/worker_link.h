/* A test's own end of a tune-worker's pipe: start, ask, stop. One request at a time, as the pipe's
 * rules have it (daemon/worker/pipe.h); the tests here drive the real program with it, so that what
 * they check is what a sweep would do. */
#ifndef TUNE_TESTS_WORKER_LINK_H
#define TUNE_TESTS_WORKER_LINK_H

#include "client/proto.h"

#include <sys/types.h>

struct worker_link {
    pid_t pid;
    int descriptor;
    struct proto_reader reader;
    json_t *hello;
    json_int_t next_id;
};

/* Starts `tune-worker ROLE`; cuda_dir (may be NULL) is the folder whose libraries it shall load. 0,
 * or -1 with a sentence, also when the hello has an error. */
int worker_link_start(
    struct worker_link *link, const char *role, const char *cuda_dir, struct tune_error *err);
void worker_link_stop(struct worker_link *link);

/* Sends without waiting, and receives the answer: so that two workers can be busy at once.
 * `request` is taken; it gets its id here. The answer is a new reference, NULL when the worker
 * died. */
int worker_link_send(struct worker_link *link, json_t *request);
json_t *worker_link_receive(struct worker_link *link);
json_t *worker_link_call(struct worker_link *link, json_t *request);

#endif
