/* What the fleet needs of an engine: a table of rows with a change feed, a queue of tasks with
 * leases, a list of nodes. PostgreSQL is the one that is built (pg*.c); another one is another
 * `struct engine_ops`, named in engine.c.
 *
 * All calls are made by the one thread of the link (link.c) and return within their deadline,
 * ENGINE_CALL_DEADLINE_MS unless said otherwise, or soon, with TUNE_ECANCELED, when the cancel
 * descriptor becomes readable. -1 with TUNE_EIO, TUNE_ETIMEOUT or TUNE_ECANCELED: the connection is
 * lost and the engine must be destroyed and connected anew; TUNE_EVERSION, TUNE_EPERM, TUNE_EINVAL:
 * it works but will not have us, and the sentence says what the operator has to do. */
#ifndef TUNE_ENGINE_H
#define TUNE_ENGINE_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_ID_BYTES 64   /* of a row: the key that it has in the tuning database */
#define ENGINE_NODE_BYTES 33 /* 32 hex digits and NUL */
#define ENGINE_BUCKETS 256   /* rows by the first byte of their id */
#define ENGINE_CALL_DEADLINE_MS 10000

struct engine;

struct engine_row {
    uint8_t id[ENGINE_ID_BYTES];
    uint64_t rank;    /* of the precedence: see sample_precedence; then the line decides */
    uint64_t hash;    /* of the line */
    const char *line; /* NULL in a change that this node put itself */
    uint64_t seq;     /* of the change; set by the engine */
};

struct engine_bucket {
    uint64_t rows, digest; /* digest: all hashes, exclusive or */
};

/* A batch of candidates of a fleet sweep. */
struct engine_task {
    uint64_t id;
    char asker[ENGINE_NODE_BYTES];
    const char *target;  /* what may take it: "sm_90|NVIDIA H200|132" */
    const char *payload; /* JSON, at most ENGINE_PAYLOAD_LIMIT_BYTES */
    uint64_t done_seq;   /* a finished one: its rows are among the changes up to here */
    unsigned tries;      /* leases given so far */
};
#define ENGINE_PAYLOAD_LIMIT_BYTES ((size_t)256 << 10)

enum engine_task_state {
    ENGINE_TASK_WAITING, /* nobody has it, or the lease of who had it has run out */
    ENGINE_TASK_LEASED,
    ENGINE_TASK_DONE,
    ENGINE_TASK_FAILED, /* the helper could not do it */
    ENGINE_TASK_GONE,
};

struct engine_node {
    char node[ENGINE_NODE_BYTES];
    const char *host, *targets; /* targets: of its idle-or-busy devices, one per line */
    double age_s;               /* since it was last heard of, by the engine's clock */
    uint64_t position;          /* last change that it has applied */
};

struct engine_ops {
    const char *name; /* "PostgreSQL" */
    /* What an operator runs where a daemon may not make the tables by itself. */
    const char *schema;
    /* Whether a URL is one of this engine. */
    bool (*knows)(const char *url);
    /* New: the URL without its secrets, for people. */
    char *(*show)(const char *url);
    /* Connects, makes the tables when they are absent and may be made, checks their version. New,
     * or NULL. deadline_ms bounds the whole. cancel_fd (borrowed for the engine's life) becomes
     * readable, and stays so, when no call is to go on. */
    struct engine *(*connect)(const char *url, const char *node, int cancel_fd,
        unsigned deadline_ms, struct tune_error *err);
    void (*destroy)(struct engine *engine);
    /* What tells the engine's set of rows from that of another one: positions of one mean nothing
     * in another. Borrowed. */
    const char *(*identity)(const struct engine *engine);

    /* Rows: one transaction, durable when it returns. An id at most once in a batch. */
    int (*put_batch)(
        struct engine *engine, const struct engine_row *rows, size_t count, struct tune_error *err);
    /* Changes after seq in the order of commits, at most `limit`; *head: the last there is. */
    int (*changes_since)(struct engine *engine, uint64_t seq, size_t limit,
        void (*on_change)(const struct engine_row *row, void *context), void *context,
        uint64_t *head, struct tune_error *err);
    /* Waits until there may be news (changes, tasks, ends of our tasks): 1; or wake_fd is readable
     * or the time is over: 0. Subscribed since connecting; news are never lost while the connection
     * lives. */
    int (*wait)(struct engine *engine, int wake_fd, unsigned timeout_ms, struct tune_error *err);
    /* The digests of all buckets, and the rows (id, hash, no line) of one. */
    int (*digest)(struct engine *engine, struct engine_bucket buckets[ENGINE_BUCKETS],
        struct tune_error *err);
    int (*list_bucket)(struct engine *engine, unsigned bucket,
        void (*on_row)(const struct engine_row *row, void *context), void *context,
        struct tune_error *err);
    /* The rows of these ids, with their lines; those that are not there are left out. */
    int (*fetch)(struct engine *engine, const uint8_t (*ids)[ENGINE_ID_BYTES], size_t count,
        void (*on_row)(const struct engine_row *row, void *context), void *context,
        struct tune_error *err);

    /* Tasks. */
    int (*offer)(struct engine *engine, const char *target, const char *payload, uint64_t *task,
        struct tune_error *err);
    /* One that fits one of the targets (NULL-ended) and was asked for by another node: 0, 1 when
     * there is none. Texts in *task are new (task_finish). */
    int (*lease)(struct engine *engine, const char *const *targets, unsigned lease_ms,
        struct engine_task *task, struct tune_error *err);
    /* 0, or 1: the lease was lost, somebody else may have it. */
    int (*renew)(struct engine *engine, uint64_t task, unsigned lease_ms, struct tune_error *err);
    int (*complete)(struct engine *engine, uint64_t task, bool has_failed, struct tune_error *err);
    /* The asker takes it back when nobody holds it: 0, or 1 when it is leased or finished. */
    int (*take_back)(struct engine *engine, uint64_t task, struct tune_error *err);
    int (*task_state)(struct engine *engine, uint64_t task, enum engine_task_state *state,
        uint64_t *done_seq, struct tune_error *err);
    /* Removes a task whatever its state: the asker has no use for it any more. */
    int (*withdraw)(struct engine *engine, uint64_t task, struct tune_error *err);

    /* Says "I am here", and what there is. 0, or 1: another process goes by this node's id (its
     * database is a copy of ours, or ours of its), and this one needs a new id. */
    int (*beat)(struct engine *engine, const char *host, const char *targets, uint64_t position,
        struct tune_error *err);
    int (*status)(struct engine *engine,
        void (*on_node)(const struct engine_node *node, void *context), void *context,
        uint64_t *rows, uint64_t *head, struct tune_error *err);
};

/* The engine of this URL; NULL: none that is built in, TUNE_EINVAL. */
const struct engine_ops *engine_find(const char *url, struct tune_error *err);
/* All that are built in, NULL-ended. */
extern const struct engine_ops *const engines[];
extern const struct engine_ops engine_postgres;

void engine_task_finish(struct engine_task *task);

#endif
