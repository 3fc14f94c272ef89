/* What the files of tunectl share: the state of one run, and one function per command.
 *
 * To add a command: a line in the table of main.c (its pattern is its grammar and its help), a
 * legend there for options that are new, a function in the file of its family, a section in
 * doc/man/tunectl.1. */
#ifndef TUNECTL_H
#define TUNECTL_H

#include "args.h"

#include "client/tune_rpc.h"

#include <stdbool.h>

/* Exit statuses: scripts rely on them. */
enum ctl_status {
    CTL_DONE = 0,
    CTL_FAILED = 1,   /* the thing asked for failed */
    CTL_USAGE = 2,    /* the command line is wrong */
    CTL_NO_DAEMON = 3 /* nobody answers, and none could be started */
};

struct tunectl {
    const char *socket; /* --socket, or NULL */
    bool is_json;       /* exactly one JSON value on standard output */
    struct tune_client *client;
};

/* Connects, with `may_start` starting a daemon when none answers (never for --socket, which names
 * one that should be there). Once connected, does nothing. 0, or -1. */
int ctl_connect(struct tunectl *ctl, bool may_start, struct tune_error *err);

/* Connects (starting a daemon if need be) and calls one method. `params` is taken. */
int ctl_ask(struct tunectl *ctl, const char *method, json_t *params, json_t **result,
    struct tune_error *err);

/* Reports a failure: the sentence on standard error, with --json also {"error":{"code","message"}}
 * on standard output. Returns the exit status that belongs to it. */
int ctl_fail(const struct tunectl *ctl, const struct tune_error *err);

/* As CUDA writes it: gemm<<<(8,16,1), (256,1,1), 34816>>>(A, B, C, 1024). malloc'ed. */
char *launch_text(const json_t *launch);

/* Writes the "cubin" of an answer to a file, whole or not at all, and says so on standard error. */
int save_cubin(const json_t *answer, const char *path, struct tune_error *err);

/* One command: does it all and returns the exit status. */
int run_sweep(struct tunectl *ctl, const struct args *args);
int run_get(struct tunectl *ctl, const struct args *args);
int run_kernels(struct tunectl *ctl, const struct args *args);
int run_describe(struct tunectl *ctl, const struct args *args);
int run_devices(struct tunectl *ctl, const struct args *args);
int run_fleet(struct tunectl *ctl, const struct args *args);
int run_doctor(struct tunectl *ctl, const struct args *args);
int run_export(struct tunectl *ctl, const struct args *args);
int run_import(struct tunectl *ctl, const struct args *args);
int run_refuse(struct tunectl *ctl, const struct args *args);
int run_records(struct tunectl *ctl, const struct args *args);
int run_jobs(struct tunectl *ctl, const struct args *args);
int run_watch(struct tunectl *ctl, const struct args *args);
int run_explain(struct tunectl *ctl, const struct args *args);
int run_cancel(struct tunectl *ctl, const struct args *args);
int run_simulate(struct tunectl *ctl, const struct args *args);
int run_convert(struct tunectl *ctl, const struct args *args);
int run_report(struct tunectl *ctl, const struct args *args);
int run_merge(struct tunectl *ctl, const struct args *args);

#endif
