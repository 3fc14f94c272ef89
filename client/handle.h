/* What the parts of a libtune handle share and nobody else sees.
 *
 * Design. tune.c is the way of a question: own table (handle_table.c), published snapshot
 * (handle_view.c), daemon (handle_link.c), default of the manifest (handle_offline.c). Beside it
 * stand code (handle_cubin.c) and news (handle_events.c). No part has a thread of its own: what
 * has to be tried again is tried by the next caller.
 *
 * Freshness. An entry of the table carries the tag under which it was learnt. A tag is the
 * snapshot's sequence, so that one atomic load tells whether anything was published since; or,
 * where nothing is published or no daemon confirms the entry, the half second in which it was
 * learnt; or TAG_ALWAYS for what may not change (sessions). An entry whose tag has passed is asked
 * again, and serves on if nobody answers. */
#ifndef TUNE_HANDLE_H
#define TUNE_HANDLE_H

#include "client_internal.h"
#include "tune.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define QUERY_MAX_DIMS 16
#define LIMIT_UNSET (-2) /* 30 s, and as long as it takes for TUNE_WAIT */

/* --- keys of questions ------------------------------------------------------------------------ */

#define KEY_BYTES 640

/* A question as bytes: equal bytes, equal question. (The same dims in another order are another
 * key, which costs an entry and saves sorting.) length 0: too long to be kept. */
struct handle_key {
    uint64_t hash;
    uint32_t length; /* padded with zeros to a multiple of 8 */
    uint64_t words[KEY_BYTES / 8];
};

/* Checks the query too: TUNE_EINVAL for what no daemon could answer. */
int handle_key_make(const struct tune_query *query, struct handle_key *key, struct tune_error *err);

/* --- the table -------------------------------------------------------------------------------- */

struct handle_table;

struct handle_table *handle_table_create(void); /* new; NULL: no memory */
void handle_table_destroy(struct handle_table *table);
/* False in a forked child: its memory of the table is gone. */
bool handle_table_is_ours(const struct handle_table *table);
/* Whether the key is known; fills answer and the tag of the entry. Takes no lock. */
bool handle_table_get(const struct handle_table *table, const struct handle_key *key,
    struct tune_answer *answer, uint64_t *tag);
/* Keeps it in place of an older entry. Best effort: one that meets another writer is dropped. */
void handle_table_put(struct handle_table *table, const struct handle_key *key,
    const struct tune_answer *answer, uint64_t tag);

/* --- the rest --------------------------------------------------------------------------------- */

struct link;
struct view;
struct snapshot;
struct known_manifest;
struct cubin_store;
struct events;

struct links {
    pthread_mutex_t lock;
    pthread_cond_t end_of_try;
    bool is_tried; /* somebody is trying an absent daemon */
    struct link *idle;
    size_t idle_count;
    long long gone_since_ms; /* 0: a daemon answered when last tried */
    long long retry_at_ms;
    int backoff_ms;
};

struct tune {
    char *asked_path; /* NULL: the usual sockets */
    _Atomic int limit_ms;
    struct handle_table *table;
    _Atomic(struct snapshot *) snapshot; /* of one of the views; NULL: none found yet */
    _Atomic uint64_t looked;             /* half second of the last look for one */
    _Atomic uint64_t epoch;              /* raised when a daemon comes back */
    pthread_mutex_t view_lock;
    struct view *views;
    char served_by[TUNE_SOCKET_PATH_BYTES]; /* the socket that answered last */
    struct links links;
    pthread_mutex_t offline_lock;
    struct known_manifest *manifests;
    pthread_mutex_t cubin_lock;
    struct cubin_store *cubins;
    pthread_mutex_t events_lock;
    struct events *events;
};

#define TAG_ALWAYS UINT64_MAX
#define TAG_TICK (UINT64_C(1) << 63)
#define TICK_MS 500

uint64_t handle_tick(void); /* the tag of this half second */
/* The tag of what is learnt from now on. Not in a forked child: it may take a lock. */
uint64_t handle_tag(struct tune *tune);
bool handle_is_fresh(uint64_t entry_tag, uint64_t now_tag);

/* The moment at which a request that begins now must have ended; -1: never. */
long long handle_deadline(const struct tune *tune, enum tune_policy policy);
int handle_left_ms(long long deadline);
/* Fails in a forked child. */
int handle_check_owner(const struct tune *tune, struct tune_error *err);

/* --- handle_view.c: the published snapshot ---------------------------------------------------- */

/* From here on what the daemon of this socket publishes is read. Failure is silent: the socket
 * serves then. */
void handle_view_of(struct tune *tune, const char *socket_path);
/* Looks for a snapshot where none is open, twice a second at most. */
void handle_view_look(struct tune *tune);
void handle_view_finish(struct tune *tune);
/* 0 found. */
int handle_view_get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer);

/* --- handle_link.c: connections -----------------------------------------------------------------
 */

void handle_links_init(struct links *links);
void handle_links_finish(struct links *links);

/* A new connection to the daemon. `may_wait`: one that was there and went away is waited for.
 * NULL: nobody answers (err says why). */
struct tune_client *handle_connect(
    struct tune *tune, long long deadline, bool may_wait, struct tune_error *err);

/* Notes that a daemon answered: questions need not wait for their next try. */
void handle_note_there(struct tune *tune, const struct tune_client *client);

/* The dims as JSON, new. */
json_t *handle_shape_json(const struct tune_query *query, struct tune_error *err);

enum asked { ASKED_OK = 0, ASKED_REFUSED = -1, ASKED_NOBODY = 1 };
/* Sends `get`; *result is a new reference. REFUSED: err has the daemon's sentence; NOBODY: err says
 * what was tried. Tries again where the connection breaks or the daemon is ending. */
enum asked handle_ask(struct tune *tune, const struct tune_query *query, bool with_cubin,
    bool may_wait, json_t **result, struct tune_error *err);
/* The same for an answer alone. */
enum asked handle_fetch(struct tune *tune, const struct tune_query *query, bool may_wait,
    struct tune_answer *answer, struct tune_error *err);

/* --- handle_offline.c ---------------------------------------------------------------------------
 */

/* The default of the installed manifest; is_offline is set. */
int handle_offline_get(struct tune *tune, const struct tune_query *query,
    struct tune_answer *answer, struct tune_error *err);
void handle_offline_finish(struct tune *tune);

void handle_cubins_finish(struct tune *tune);
void handle_events_finish(struct tune *tune);

#endif
