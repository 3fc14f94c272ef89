/* A small daemon for tests: starts tune-worker over a socketpair, asks, waits for its end. */
#ifndef TUNE_TESTS_WORKER_DRIVER_H
#define TUNE_TESTS_WORKER_DRIVER_H

#include "client/proto.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define WORKER_ANSWER_LIMIT_S 60

struct worker_process {
    pid_t pid;
    int fd;
    unsigned locked_events; /* {"event":"locked"} lines before the last answer */
    struct proto_reader reader;
};

/* `role` with a NULL-ended list of further arguments (NULL: none). The environment is the test's.
 * Fails the test when it cannot start. */
void worker_start(struct worker_process *worker, const char *role, const char *const *arguments);
/* The next message, or NULL at the stream's end. New reference; fails the test after the limit. */
json_t *worker_read(struct worker_process *worker);
/* Sends a request (takes the reference, adds an id) and reads its answer, past its events. */
json_t *worker_ask(struct worker_process *worker, json_t *request);
/* Closes the pipe and waits: the status of waitpid. */
int worker_end(struct worker_process *worker);

/* The words of an answer. Borrowed; "" when absent. */
const char *text_of(const json_t *answer, const char *key);
bool has_text(const json_t *answer, const char *key, const char *part);

/* Takes the emulator's libraries (on) or the machine's. */
void use_emulator(bool on);
/* Writes a scenario for the emulator and names it in the environment; NULL: none. */
void use_scenario(const char *json);

/* Reads a whole file: malloc'ed. */
char *read_text(const char *path);

/* A running compile worker's answer to one source. New reference. */
json_t *compile_text(struct worker_process *compiler, const char *source, const char *arch,
    const char *option, const char *entry);

#endif
