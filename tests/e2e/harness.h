/* A real daemon for a test: a temporary folder with socket, database, log, kernels and a scenario
 * for the emulator; started, asked, restarted, killed, and stopped at the end of the test.
 *
 * Each test is HARNESS_TEST(function). Whatever daemons it started are stopped after it: one that
 * is still running must end on SIGTERM with status 0, leave no process and no report of a
 * sanitizer. When the test fails the daemons' logs are printed. The test process adopts orphans, so
 * that workers of a killed daemon can be waited for.
 *
 * Nothing sleeps: wait_for polls a condition. Its limits are generous, since machines are busy. */
#ifndef E2E_HARNESS_H
#define E2E_HARNESS_H

#include "client/error.h"
#include "client/tune_rpc.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#define LIMIT_MS 60000 /* of waits that end at once on an idle machine */

/* --- daemons ---------------------------------------------------------------------------------- */

struct harness {
    struct harness *next;
    char folder[64], socket[108], db[96], log[96], plugins[96], state[96];
    const char *args[16];          /* further arguments of tunerd, NULL-ended; borrowed */
    void (*before_exec)(void);     /* in the child, last of all: limits, descriptors; may be NULL */
    const char *sanitizer_options; /* further ones, as ":handle_segv=0"; may be NULL */
    pid_t daemon;                  /* 0: none runs */
    struct tune_client *client;
    bool is_real;    /* no emulator: the libraries and devices that the machine has */
    bool is_scruffy; /* the test left it in a state that cannot end well */
};

/* New; owned by the test's teardown. A folder with an empty scenario and no kernels of its own. */
struct harness *harness_new(void);
/* Starts the daemon and waits until it is ready and knows its devices. */
void harness_start(struct harness *harness);
/* The same without waiting for the devices: some scenarios have none. */
void harness_launch(struct harness *harness);
/* SIGTERM; asserts a clean end. */
void harness_stop(struct harness *harness);
/* SIGKILL, and waits until its workers have ended too. */
void harness_kill(struct harness *harness);
/* Waits for the daemon's own end and returns waitpid's status. */
int harness_wait_exit(struct harness *harness);
/* Starts tunerd with these arguments alone, waits for its end, fills output with what it printed
 * (at most `room` bytes), and returns its exit status. */
int run_tunerd(char *output, size_t room, ...) __attribute__((sentinel));
const char *build_folder(void);
/* In a child before exec: the environment of the harness's programs. */
void set_environment(const struct harness *harness);
/* Until no child or adopted orphan is left; fails after a while. */
void reap_all(void);

/* Writes a file below the harness's folder, making folders as needed; replaces it in one step. */
void harness_write(struct harness *harness, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The scenario for processes started from now on; the folder for counters is added. */
void harness_scenario(struct harness *harness, const char *text);
/* How often rule `index` of the scenario has matched, over all processes. */
long harness_matches(const struct harness *harness, int index);
/* Whether the daemon's log has this text. */
bool harness_log_has(const struct harness *harness, const char *text);
/* Pids of the daemon's children named tune-worker with this role ("compile", "bench", NULL: any).
 */
size_t harness_workers(const struct harness *harness, const char *role, pid_t *pids, size_t room);
/* The daemon's children that nobody has reaped, and its open descriptors. */
size_t harness_zombies(const struct harness *harness);
size_t harness_descriptors(const struct harness *harness);

/* Calls `condition` until it is true; fails the test after limit_ms. */
void wait_for_(bool (*condition)(void *context), void *context, int limit_ms, const char *what);
#define wait_for(condition, context, limit_ms) wait_for_(condition, context, limit_ms, #condition)

uint64_t now_ms(void);
/* The seed of this run: E2E_SEED, or made from the clock; printed once. */
uint64_t test_seed(void);
uint64_t next_random(uint64_t *state);

/* --- kernels ---------------------------------------------------------------------------------- */

/* A kernel y = x + 1 in plugins/NAME, tiny and quick to compile, with a parameter TAG from 0 to
 * tags - 1 that makes each configuration code of its own. NULL and 0: the plain choice. */
struct tiny {
    const char *name;        /* "tiny" */
    int tags;                /* 4 */
    const char *params;      /* more of them: ", {...}" */
    const char *defaults;    /* ", \"COST\": 1" to match */
    const char *constraints; /* JSON objects, separated by commas */
    const char *shapes;      /* {"N": 64} */
    const char *grid;        /* three expressions: "ceildiv(N, 32)" */
    const char *shared;      /* bytes of dynamic shared memory: "0" */
    const char *body;        /* C at the end of the kernel; sees x, y, i, n */
    const char *reference;   /* C at the end of the reference */
    const char *top;         /* at the head of the source */
    const char *more;        /* further fields of the manifest: ", \"hooks\": ..." */
    bool is_same_code;       /* TAG does not reach the code */
};
void write_tiny(struct harness *harness, const struct tiny *tiny);
/* A harness whose daemon runs with that kernel; scenario NULL: none. */
struct harness *start_tiny(const struct tiny *tiny, const char *scenario);

/* The scenario in which the candidate of this TAG is the fastest. */
#define TAG_WINS(tag)                                                                              \
    "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"         \
    "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": " #tag                       \
    "}}, \"do\": \"time_ns\", \"value\": 50000}]}"

/* --- asking ----------------------------------------------------------------------------------- */

/* The harness's own connection, made when needed. `params` is taken. */
json_t *ask(struct harness *harness, const char *method, json_t *params);
/* Expects an error with this code; the sentence is valid until the next call. */
const char *ask_fail(
    struct harness *harness, const char *method, json_t *params, enum tune_code code);
/* A further connection. */
struct tune_client *connect_more(const struct harness *harness);

/* Queues a sweep and returns its id in `job`. params: taken. */
struct job_name {
    char text[64];
};
struct job_name sweep(struct harness *harness, json_t *params);
/* Waits until it has ended; the job as `jobs` tells it, new. */
json_t *wait_job(struct harness *harness, struct job_name job);
/* Both, and its state must be "done"; the result of the first shape, new. */
json_t *sweep_result(struct harness *harness, json_t *params);
/* A sweep of tiny at N = n, to its end. */
void tune_shape(struct harness *harness, int n);
json_t *sweep_params(const char *kernel); /* {"kernel": ...}, new */
/* Rows of a job (NULL: all) in `records`, new. */
json_t *records_of(struct harness *harness, const char *job);
/* Rows of that list with this outcome whose config has TAG = tag (-1: any). */
size_t rows_with(const json_t *rows, const char *outcome, int tag);
const json_t *row_of(const json_t *rows, int tag); /* the last one; NULL: none */
json_int_t count_of(const json_t *result, const char *outcome);

/* field of a path "database.samples" */
const json_t *at(const json_t *json, const char *path);
const char *text_at(const json_t *json, const char *path); /* "" when absent */
double number_at(const json_t *json, const char *path);

/* --- raw bytes -------------------------------------------------------------------------------- */

int raw_connect(const struct harness *harness); /* a connected descriptor */
void raw_send(int descriptor, const char *bytes, size_t count);
/* The next line as JSON, new; NULL when the connection ended. Fails the test after LIMIT_MS. */
json_t *raw_receive(int descriptor);

/* --- running ---------------------------------------------------------------------------------- */

int harness_setup(void **state);
int harness_teardown(void **state);
void harness_run(void **state);
#define HARNESS_TEST(function)                                                                     \
    {                                                                                              \
#function, harness_run, harness_setup, harness_teardown, (void *)&(struct harness_case)    \
        {                                                                                          \
            function                                                                               \
        }                                                                                          \
    }
struct harness_case {
    void (*run)(void);
};

#endif
