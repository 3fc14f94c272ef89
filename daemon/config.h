/* The daemon's command line and environment, resolved to paths. */
#ifndef TUNE_CONFIG_H
#define TUNE_CONFIG_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_FOLDERS_MAX 16

struct config {
    char *socket, *db, *log;
    char *worker;                          /* path of tune-worker */
    char *data;                            /* .../share/tunerd, holds plugins and kernels_src */
    char *records;                         /* the folder of those that came with the program */
    char *plugins[CONFIG_FOLDERS_MAX + 1]; /* folders in search order, NULL-ended */
    size_t plugin_count;
    char *cuda;     /* searched first for libcuda and libnvrtc; NULL: none */
    char *emulator; /* its folder, on which kernels are traced; NULL: not installed */
    char *devices;  /* ordinals, NULL: all */
    char *fleet;    /* what is shared with others goes through this engine; NULL: nothing is */
    size_t fleet_limit_bytes;
    char **worker_env; /* NULL-ended */
    char **trace_env;  /* the same for the workers that trace */
    unsigned compile_workers;
    uint64_t compile_deadline_ms;
    size_t compile_memory_limit_bytes;
    /* What sweeps in the background (policy `tune`) may take each; evals 0: there are none. And
     * what is a busy GPU: more at work, or more of its memory in use. */
    unsigned background_evals, background_seconds, background_busy_percent,
        background_memory_percent;
    uint64_t idle_exit_ms; /* 0: never; how long without clients and jobs before the daemon ends */
    bool foreground, emulate, check, salvage, debug, is_system, show_help, show_version;
    bool fleet_shares_emulated, show_fleet_schema;
};

/* 0, or -1 with a usage error (TUNE_EINVAL) or another. config_finish releases either way. */
int config_parse(struct config *config, int argc, char **argv, struct tune_error *err);
void config_finish(struct config *config);
extern const char config_help[];

#endif
