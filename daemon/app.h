/* The daemon as a whole: what main.c puts together and the commands use. */
#ifndef TUNE_APP_H
#define TUNE_APP_H

#include "daemon/background.h"
#include "daemon/config.h"
#include "daemon/fleet/fleet.h"
#include "daemon/helping.h"
#include "daemon/image.h"
#include "daemon/job.h"
#include "daemon/limits.h"
#include "daemon/publish.h"
#include "daemon/memo.h"
#include "daemon/nearest.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/shipped.h"
#include "daemon/tracer.h"
#include "daemon/writer.h"
#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

struct app {
    uv_loop_t loop;
    struct config config;
    struct registry *registry;
    struct tuning_db *db;
    struct writer *writer;
    struct fleet *fleet; /* NULL: what is measured here is not shared */
    struct sched *sched;
    struct images *images;
    struct jobs *jobs;
    struct helping *helping; /* NULL without a fleet */
    struct publish *publish;
    struct server *server;
    struct background *background;
    struct nearest *nearest;
    struct sessions *sessions;
    struct tracer *tracer;
    struct limits *limits;
    struct shipped shipped;
    struct memo *memo;                 /* answers of `get` that may be given again */
    uint64_t memo_changes;             /* counts what changes answers beside the best rows */
    struct image_source harness;       /* kernels_src/harness.cu */
    struct image_source limits_source; /* kernels_src/limits.cu */
    char harness_content[33], limits_content[33];
    char *harness_text, *limits_text;
    char host[65];
    uint64_t started_ns;
    uint64_t requests; /* answered so far */
    uv_signal_t on_int, on_term, on_hup;
    uv_timer_t idle_timer;
    uint64_t busy_at_ms;
    bool is_stopping;
};

#endif
