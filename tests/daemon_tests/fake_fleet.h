/* A stand-in for the fleet: the functions of daemon/fleet/fleet.h, with helpers that do as they are
 * told. The rows that they "measure" go into the database as those of another machine would. */
#ifndef DAEMON_FAKE_FLEET_H
#define DAEMON_FAKE_FLEET_H

#include "daemon/fleet/fleet.h"
#include "parts.h"

#define FAKE_TARGET "sm_90|Fake|1" /* of the stand-in worker's devices */

enum fake_habit {
    FAKE_DONE,   /* a row each, then DONE */
    FAKE_HALF,   /* a row for every second one, then DONE */
    FAKE_TWICE,  /* rows of two machines each, then DONE */
    FAKE_CRASH,  /* a first attempt each that took the worker down, then FAILED */
    FAKE_REFUSE, /* FAILED at once */
    FAKE_NOBODY, /* never begins: TAKEN_BACK when it is asked back */
    FAKE_LATE,   /* the same, and then the rows come all the same */
    FAKE_HOLD,   /* begins, lives on and never ends */
};

struct fake_task {
    struct fake_task *next;
    json_t *payload;
    void (*on_end)(struct fleet_task *task, enum fleet_task_end end, void *context);
    void *context;
    bool is_new, is_asked_back;
};

struct fleet {
    enum fake_habit habit;
    size_t helpers;
    bool is_down;   /* offers are not taken */
    double time_ns; /* of all candidates measured elsewhere */
    size_t offered, configs, most_out, withdrawn;
    struct fake_task *tasks;
    uv_async_t turn;
    /* helping */
    struct fleet_helper helper;
    bool has_helper;
    size_t devices_told, leases_ended, leases_failed;
};

extern struct fleet fake;

void fake_fleet_start(void); /* after open_parts; parts.fleet is set */
void fake_fleet_stop(void);  /* before close_parts */

/* Gives the helper a lease; the payload is taken. */
struct fleet_lease *fake_lease(json_t *payload);
void fake_lose(struct fleet_lease *lease);
size_t fake_free_targets(void);

/* Rows of the run "j-test/search", by machine: uuid NULL counts all. */
size_t count_rows(const char *uuid);

#endif
