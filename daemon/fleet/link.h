/* The link: the thread that keeps this machine and the engine alike. fleet.c owns it.
 *
 * Design. Two threads, one mutex: fleet.c (loop thread) tells the link messages and hears messages
 * of it; `on_news` is called from the link's thread when there is something to hear. All that the
 * loop thread reads of the link is a copy (link_status). The link reads and commits to the database
 * by itself, so that the loop does no work for rows that arrive.
 *
 * One turn of the thread: what it was told; the outbox; the changes; tasks and leases; then it
 * waits in the engine until something of this may have news. An error of the connection ends the
 * turns (link_serve), and the thread connects anew after a pause. To add a message: the enum below,
 * the switch in link_tasks.c or fleet.c. */
#ifndef TUNE_LINK_H
#define TUNE_LINK_H

#include "daemon/fleet/engine.h"
#include "daemon/intake.h"
#include "tuning_db/tuning_db.h"

struct link;

enum link_word {
    /* To the link. */
    LINK_OFFER,     /* token, target, text: payload */
    LINK_TAKE_BACK, /* token */
    LINK_WITHDRAW,  /* token */
    LINK_LEASE_END, /* token, value: whether it has failed */
    LINK_DEVICES,   /* text: targets of all devices, one per line */
    LINK_FREE,      /* token: of the last lease heard of; text: targets of devices that are free
                       then, one per line */
    LINK_INTAKE,    /* intake; comes back as the one that was replaced, to be destroyed */
    /* From the link. */
    LINK_TASK_END,  /* token, value: enum fleet_task_end */
    LINK_LEASE,     /* token, text: payload */
    LINK_LOST,      /* token */
    LINK_WANT_FREE, /* there may be tasks: say what is free */
    LINK_ENDED,     /* the last one: the thread can be joined */
};

struct link_message {
    struct link_message *next;
    enum link_word word;
    uint64_t token; /* of a task or a lease, given by the side that made it */
    int value;
    char *target, *text;
    struct intake *intake;
};

struct link_message *link_message_new(enum link_word word, uint64_t token, int value);
void link_message_destroy(struct link_message *message); /* not its intake */

/* X(name, word): the states of a link, as the protocol has them. */
#define LINK_STATES(X)                                                                             \
    X(CONNECTING, "connecting")                                                                    \
    X(COMPARING, "comparing") /* catching up, and mending what differs */                          \
    X(FOLLOWING, "following")                                                                      \
    X(FULL, "full")       /* following, but rows of others are not taken: no room */               \
    X(REFUSED, "refused") /* the engine is there and will not have us */                           \
    X(STOPPED, "stopped")

enum link_state {
#define X(name, word) LINK_##name,
    LINK_STATES(X)
#undef X
};

const char *link_state_word(enum link_state state);

struct link_node {
    char node[ENGINE_NODE_BYTES];
    char *host, *targets;
    double age_s; /* when it was listed */
    uint64_t position, listed_ns;
};

/* A copy of what the link knows; link_status_finish. */
struct link_status {
    enum link_state state;
    bool is_connected;
    uint64_t since_ns;   /* in this state, uv_hrtime */
    uint64_t last_ok_ns; /* the engine answered; 0: never */
    uint64_t behind_ns;  /* since when rows of others are missing; 0: none are */
    char error[240];     /* the last reason, "" when there is none */
    char node[ENGINE_NODE_BYTES];
    uint64_t position, head, rows; /* rows: in the engine */
    uint64_t sent, taken, refused; /* rows since the start */
    struct link_node *nodes;
    size_t node_count;
};

struct link_options {
    const struct engine_ops *engine;
    const char *url, *host; /* copied */
    struct tuning_db *db;
    bool shares_emulated;
    size_t limit_bytes;
    void (*on_news)(void *context);
    void *context;
};

/* Takes the intake. New, or NULL. */
struct link *link_start(
    const struct link_options *options, struct intake *intake, struct tune_error *err);
/* Breaks off what the thread does; LINK_ENDED follows. */
void link_ask_stop(struct link *link);
/* After LINK_ENDED. Destroys the intake too. */
void link_destroy(struct link *link);

void link_tell(struct link *link, struct link_message *message); /* takes it */
/* The next message for the loop thread, new; NULL: none. */
struct link_message *link_hear(struct link *link);
/* Wakes the thread: there is something to send. */
void link_kick(struct link *link);
void link_status(struct link *link, struct link_status *status);
void link_status_finish(struct link_status *status);

#endif
