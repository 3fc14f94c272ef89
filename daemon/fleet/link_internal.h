/* What the files of the link share. Everything is the link's thread's alone, but for what stands
 * under the mutex. */
#ifndef TUNE_LINK_INTERNAL_H
#define TUNE_LINK_INTERNAL_H

#include "daemon/fleet/link.h"

#include <uv.h>

#define NS_PER_MS ((uint64_t)1000000)
#define NEVER_NS UINT64_MAX

#define LINK_SEND_ROWS 500 /* in one batch, */
#define LINK_SEND_BYTES ((size_t)4 << 20)
#define LINK_SEND_EVERY_MS 50 /* one batch is one fsync there: rows gather so long */
#define LINK_TAKE_ROWS 1000
#define LINK_BEAT_MS 2000
#define LINK_STATUS_MS 1000 /* the list of nodes, and as much again for each hundred of them, */
#define LINK_STATUS_LAST_MS 10000 /* up to this */
#define LINK_COMPARE_MS (10 * 60 * 1000)
#define LINK_COMPARE_AGAIN_MS (30 * 1000) /* where what it found could not be stored */
#define LINK_STORE_PAUSE_MS 1000          /* after a commit of ours that failed */

/* A batch of candidates that others are asked to measure. */
struct link_asked {
    struct link_asked *next;
    uint64_t token, task; /* task 0: not offered yet */
    char *target, *payload;
    bool is_taken_back, is_withdrawn;
};

/* A batch that we measure for another node. */
struct link_lease {
    struct link_lease *next;
    uint64_t token, task, renew_ns;
    bool is_lost, has_ended, has_failed;
    uint64_t ended_ns;
};

struct link_queue {
    struct link_message *first, **last;
};

struct link {
    struct link_options options; /* url and host are ours */
    uv_thread_t thread;
    int wake_fd, stop_fd;

    uv_mutex_t mutex;
    struct link_queue to_link, to_loop;
    struct link_status status;
    bool is_stopping;

    struct engine *engine;
    struct intake *intake;
    char node[ENGINE_NODE_BYTES];
    char identity[64]; /* of the engine whose positions we know */
    uint64_t position; /* all changes up to here are applied */
    uint64_t head;
    char *targets; /* of our devices, one per line */
    struct link_asked *asked;
    struct link_lease *leases;
    uint64_t last_token;
    char *free_targets; /* of our devices that are free, to be asked a lease for; NULL: not now */
    bool has_news;      /* the engine said that there may be tasks, or ends of them */
    bool is_behind;     /* there are more changes than were taken */
    bool has_unsent;    /* there may be rows to send, and */
    bool has_batch;     /* there is a whole batch of them */
    bool is_full;
    bool must_store;   /* the position, which went back */
    bool cannot_store; /* the last commit of ours failed */
    /* When it was: the last batch sent, tasks looked at; drained_ns: what was in the outbox then is
     * in the engine. When it is due: the others; store_ns: not before. */
    uint64_t sent_ns, looked_ns, drained_ns;
    uint64_t beat_ns, status_ns, compare_ns, tasks_ns, store_ns;
    unsigned failures; /* of one kind in a row, of connecting */
    bool was_refused;  /* the kind */
    /* The comparison in progress. */
    struct {
        unsigned next;                   /* bucket */
        bool has_lapse;                  /* something could not be stored */
        size_t missing, unsent, fetched; /* rows: here, there, mended here */
    } compare;
};

/* --- link.c ----------------------------------------------------------------------------------- */

bool link_is_stopping(struct link *link);
void link_say(struct link *link, enum link_word word, uint64_t token, int value);
void link_say_message(struct link *link, struct link_message *message);
void link_set_state(struct link *link, enum link_state state, const char *why);
/* What must not wait while much is sent or taken: beats and renewals. */
int link_keep_up(struct link *link, struct tune_error *err);
/* Commits a batch (takes it); false: failed, and it is not tried again before link->store_ns. */
bool link_commit(struct link *link, struct tuning_db_batch *batch);

/* --- link_rows.c: one batch each; 0, or -1 when the connection is lost -------------------------
 */

int link_send(struct link *link, struct tune_error *err);
int link_take(struct link *link, struct tune_error *err);
/* Adds a row of the engine to a batch, if it may come in. */
struct link_taking {
    struct link *link;
    struct tuning_db_batch *batch;
    size_t rows, taken, refused; /* rows: all, ours too */
    uint64_t last_seq;
    struct tune_error first_reason;
};
void link_take_row(const struct engine_row *row, void *taking);
/* Commits what was taken with the position that it reaches; false: not stored. */
bool link_store_taken(struct link_taking *taking, uint64_t position);
int link_load_position(struct link *link, struct tune_error *err);

/* --- link_compare.c --------------------------------------------------------------------------- */

/* Goes on comparing for a short while, and mends: fetches what is missing here, marks what is
 * missing there as unsent. After the last bucket compare_ns is set to the next comparison. */
int link_compare(struct link *link, struct tune_error *err);

/* --- link_tasks.c ----------------------------------------------------------------------------- */

void link_tasks_hear(struct link *link, struct link_message *message);
/* Offers, withdraws, completes, looks after what is out. */
int link_tasks_turn(struct link *link, struct tune_error *err);
int link_renew(struct link *link, struct tune_error *err);
void link_tasks_finish(struct link *link);

#endif
