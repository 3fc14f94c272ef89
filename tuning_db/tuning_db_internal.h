/* Inside of the tuning database, shared by its files:
 *
 *   tuning_db_folder.c everything that must be true before LMDB may touch the folder
 *   tuning_db_open.c   opening and healing the environment
 *   tuning_db.c        transactions, reading of single entries
 *   tuning_db_walk.c   listings, the full check
 *   tuning_db_batch.c  batches: writes collected in memory
 *   tuning_db_commit.c commit, growth of the map
 *   tuning_db_merge.c  samples inside a commit: which of two rows of one identity stands
 *   tuning_db_outbox.c rows that are still to be sent, or set aside
 *   tuning_db_base.c   the lower layer
 *   tuning_db_digest.c comparing with another set of rows
 *   tuning_db_best.c   the best rows inside a commit
 *   tuning_db_cubin.c  cubins and their eviction inside a commit
 *   tuning_db_changes.c which best rows changed lately
 *   tuning_db_clean.c  the mark of a clean end, the check beside the work
 *   best.c             the choice of the best rows; pure
 *   pages.c            the check of the data file before LMDB sees it; pure but for reading it
 *
 * Locks, in the order they are taken: write_lock (one writer), map_lock (shared by each
 * transaction, exclusive for whatever moves the map), damage_lock, changes.lock. Callbacks of walks
 * run under none of them. */
#ifndef TUNE_TUNING_DB_INTERNAL_H
#define TUNE_TUNING_DB_INTERNAL_H

#include "best.h"
#include "tuning_db.h"

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* X(NAME, name): the named databases and what their keys and values are.
 *   samples      hash(key) hash(config) hash(GPU UUID) hash(run), 16 bytes each -> sample
 *   best         hash(kernel) hash(key) hash(GPU model), or zeros for the arch's -> best; a model
 *                (a model is a name with its number of multiprocessors, where that is known)
 *   cubin        content key -> blob
 *   cubin_order  sequence number, big-endian -> blob of the content key
 *   logs         hash of the text -> blob
 *   jobs         name -> blob
 *   meta         "format", "generation", "cubins" -> blob of little-endian u64s
 *   outbox       id of a sample -> blob of the hash (u64) of its line
 *   aside        id of a sample -> blob of the hash (u64) of its line, then the reason as text
 * The last two are made by the first batch that needs them. */
#define TABLES(X)                                                                                  \
    X(SAMPLES, "samples")                                                                          \
    X(BEST, "best")                                                                                \
    X(CUBIN, "cubin")                                                                              \
    X(CUBIN_ORDER, "cubin_order")                                                                  \
    X(LOGS, "logs")                                                                                \
    X(JOBS, "jobs")                                                                                \
    X(META, "meta")                                                                                \
    X(OUTBOX, "outbox")                                                                            \
    X(ASIDE, "aside")

enum table {
#define X(name, text) TABLE_##name,
    TABLES(X)
#undef X
        TABLE_COUNT
};

/* Raise when keys or tables change their meaning; an older program refuses a newer database. One
 * that never belonged to a fleet has neither outbox nor aside, and stays of the format before. */
#define TUNING_DB_FORMAT 3
#define TUNING_DB_FORMAT_ALONE 2

#define HASH_BYTES sizeof(struct record_hash)
#define SAMPLE_KEY_BYTES TUNING_DB_ID_BYTES
#define BEST_KEY_BYTES (3 * HASH_BYTES)
#define KEY_LIMIT_BYTES 511 /* LMDB's */
#define JOB_NAME_LIMIT_BYTES 200
#define LOG_LIMIT_BYTES 65536

#define CHANGES_KEPT 4096

struct change {
    uint64_t generation;
    struct record_key key; /* its texts lie in storage */
    char *storage;
};

/* A ring: entries first..end - 1, each at its number modulo CHANGES_KEPT. */
struct changes {
    pthread_mutex_t lock;
    struct change ring[CHANGES_KEPT];
    size_t first, end;
    uint64_t floor; /* changes up to this generation are not all in the ring */
};

/* The check of all pages beside the work. */
struct check {
    bool is_running; /* or has ended, and is to be joined */
    pthread_t thread;
    int fd;
    char path[4096];
    MDB_txn *txn; /* keeps the pages of the state that is checked */
    struct pages *pages;
    atomic_bool is_canceled;
    atomic_bool has_ended;  /* by itself, whatever it found */
    atomic_bool has_failed; /* then `why` says so, and nothing is served any more */
    struct tune_error why;
};

struct tuning_db {
    char *dir;
    struct tuning_db_options options;
    size_t reserve_bytes; /* of the map's limit, kept back for deleting */
    int lock_fd;          /* -1 when read-only */
    pid_t owner_pid;      /* LMDB's handles mean nothing in a forked child */
    dev_t device;         /* of DIR: a second handle in one process would break the first */
    ino_t inode;
    struct tuning_db *next_open;

    pthread_mutex_t write_lock;
    pthread_rwlock_t map_lock;
    MDB_env *env; /* NULL after a failure that only opening anew can heal */
    MDB_dbi tables[TABLE_COUNT];
    bool has_table[TABLE_COUNT]; /* all, unless read-only and older or empty */
    size_t map_bytes;

    pthread_mutex_t damage_lock;
    uint64_t damaged;      /* distinct entries met since opening */
    uint64_t *damage_seen; /* hashes of the entries reported */
    size_t damage_used, damage_room;

    struct base *base; /* NULL: none */

    _Atomic uint64_t generation; /* of what is stored */
    struct changes changes;
    bool was_clean; /* at opening: the pages are not checked yet */
    struct check check;
};

extern const char *const table_names[TABLE_COUNT + 1]; /* ended by NULL */

/* --- tuning_db_folder.c ----------------------------------------------------------------------- */

/* Makes and checks the folder and its files, takes the lock (unless read-only) and the folder's
 * place among those open in this process. Undone by db_folder_release and closing lock_fd. */
int db_folder_claim(struct tuning_db *db, struct tune_error *err);
void db_folder_release(struct tuning_db *db);

/* --- tuning_db_open.c ------------------------------------------------------------------------- */

/* Opens db->env; map_lock is held exclusively or nobody else knows of db yet. */
int db_env_open(struct tuning_db *db, struct tune_error *err);
void db_env_close(struct tuning_db *db);
/* LMDB keeps the memory of each page that was written; gives it back by opening anew, unless that
 * would cut the check beside the work short. */
void db_env_trim(struct tuning_db *db);

/* --- tuning_db.c ------------------------------------------------------------------------------ */

/* An LMDB error as ours. */
int db_fail(const struct tuning_db *db, int rc, const char *what, struct tune_error *err);

/* A read transaction under the shared map_lock. Every begin that succeeds needs its end. */
int db_begin_read(struct tuning_db *db, MDB_txn **txn, struct tune_error *err);
void db_end_read(struct tuning_db *db, MDB_txn *txn);

/* A malloc'ed copy of the stored bytes of one entry, with room for one more. 0, 1 not there, -1. */
int db_copy_entry(struct tuning_db *db, enum table table, const void *key, size_t key_bytes,
    void **bytes, size_t *count, struct tune_error *err);

/* Fails in a forked child, and opens the environment anew where an earlier failure closed it. */
int db_usable(struct tuning_db *db, struct tune_error *err);

/* Moves the map to a new size (0: the one that another process gave it), when no transaction is
 * open. LMDB's code. */
int db_set_map(struct tuning_db *db, size_t bytes);
/* Closes an environment that LMDB has declared unusable; the next call opens it anew. */
void db_give_up_env(struct tuning_db *db);

/* Reports a damaged entry, once. `why` may be NULL. */
void db_note_damage(struct tuning_db *db, enum table table, const void *key, size_t key_bytes,
    const struct tune_error *why);
/* The entry has been written anew. */
void db_forget_damage(struct tuning_db *db, enum table table, const void *key, size_t key_bytes);

/* gpu_name NULL: the arch's row. */
void best_db_key(
    const struct record_key *key, const char *gpu_name, uint32_t sms, uint8_t out[BEST_KEY_BYTES]);

/* A blob of `count` u64s from meta. 0, or 1 when absent or damaged (noted). */
int meta_get(struct tuning_db *db, MDB_txn *txn, const char *name, uint64_t *values, size_t count);
int meta_put(struct tuning_db *db, MDB_txn *txn, const char *name, const uint64_t *values,
    size_t count); /* LMDB's code */

/* --- tuning_db_walk.c ------------------------------------------------------------------------- */

struct row {
    const uint8_t *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
};

struct walk {
    struct tuning_db *db;
    enum table table;
    const void *prefix;
    size_t prefix_bytes;
    uint8_t last[KEY_LIMIT_BYTES]; /* the last key handed out; the walk starts after it */
    size_t last_bytes;             /* 0: at the start */
    int (*on_row)(struct walk *walk, const struct row *row); /* nonzero: stop */
    const void *want; /* a kernel's name or a key, or NULL: all */
    union {
        int (*on_best)(const struct best *best, void *context);
        int (*on_sample)(const struct sample *sample, void *context);
        int (*on_job)(const char *name, const void *bytes, size_t count, void *context);
    };
    void *context;
    size_t base_at;  /* of best: the next row of the lower layer */
    bool is_stopped; /* of best: by the callback */
};

/* Calls on_row for each row until it says stop. */
int walk_rows(struct walk *walk, struct tune_error *err);
/* Over the samples of a key, or over all with NULL; what is done with a row is to be set. The hash
 * is filled, and borrowed by the walk. */
struct walk samples_walk(
    struct tuning_db *db, const struct record_key *key, struct record_hash *hash);
/* Reports a row that does not decode. */
void note_row(const struct walk *walk, const struct row *row, const struct tune_error *why);
/* 0, or -1 for a damaged row or one that does not belong to its key. */
int decode_sample_row(const struct row *row, struct sample *sample, struct tune_error *why);

/* --- tuning_db_batch.c ------------------------------------------------------------------------ */

enum op_kind {
    OP_PUT,
    OP_DELETE,
    OP_LOCAL,   /* a sample of this machine */
    OP_MERGE,   /* a sample from elsewhere */
    OP_REPLICA, /* the same, from the fleet */
    OP_SENT,
    OP_UNSENT,
};

struct op {
    enum op_kind kind;
    enum table table;
    uint32_t number;  /* in the order in which they were added */
    uint32_t refresh; /* OP_MERGE, OP_REPLICA: the place of its key among the refreshes */
    size_t key_bytes;
    union {
        uint8_t key[SAMPLE_KEY_BYTES];
        uint8_t *long_key; /* when key_bytes says that it is longer */
    };
    void *value; /* encoded; NULL when there is none */
    size_t value_bytes;
    uint64_t hash; /* OP_SENT, OP_UNSENT; of a sample its line's once it was needed, else 0 */
};

struct refresh {
    struct record_key key; /* its texts lie in storage */
    struct record_hash hash;
    char *storage;
    bool is_asked;     /* by tuning_db_batch_refresh; else a row that changes calls for it */
    bool is_touched;   /* in an attempt to commit: a row of it has changed */
    bool has_new_best; /* after an attempt to commit */
};

/* What became of a sample. */
enum fate { FATE_ADDED, FATE_EQUAL, FATE_REPLACED, FATE_KEPT, FATE_COUNT };

struct tuning_db_batch {
    struct op *ops;
    size_t op_count, op_room;
    size_t value_bytes;        /* of all operations */
    struct refresh *refreshes; /* distinct keys */
    size_t refresh_count, refresh_room;
    uint32_t *places; /* of refreshes by hash: open addressing, a power of two, half full at most */
    size_t place_count;
    size_t duplicates;        /* local rows that the last commit found already there */
    size_t fates[FATE_COUNT]; /* of the other rows in the last commit */
    bool has_puts;
};

/* --- tuning_db_commit.c, _cubin.c, _best.c: 0 or LMDB's code, which may be an errno --------------
 */

struct commit {
    struct tuning_db *db;
    struct tuning_db_batch *batch;
    MDB_txn *txn;
    bool is_trial;              /* ends without storing anything */
    bool has_late[TABLE_COUNT]; /* tables made in this transaction */
    bool has_new_best;
    uint64_t generation; /* after raise_generation, when has_new_best */
    bool has_cubins;
    uint64_t cubin_next, cubin_bytes; /* the mark "cubins" */
};

MDB_val op_key(struct op *op); /* borrowed */
/* Brings rows from elsewhere into the order of the table, each stretch of them by itself: a large
 * batch then fills page after page. */
void sort_ops(struct tuning_db_batch *batch);
/* New: the places of the refreshes, in the order of their keys. NULL without memory. */
uint32_t *sort_refreshes(const struct tuning_db_batch *batch);
/* Stores the value as it is. */
int put_op(struct commit *commit, struct op *op);
/* An entry has been written or deleted: it is not damaged any more. */
void forget_damage_of(struct commit *commit, struct op *op);
/* Stores unless the same content is there, sound. *replaced_bytes: size of the entry it replaces.
 */
int put_content(struct commit *commit, struct op *op, bool *is_stored, size_t *replaced_bytes);
int put_cubin(struct commit *commit, struct op *op);
int finish_cubins(struct commit *commit);
int refresh_best(struct commit *commit, struct refresh *refresh);
int raise_generation(struct commit *commit);
/* Writes the format that the tables call for, if what is stored is older. */
int raise_format(struct commit *commit);

/* --- tuning_db_merge.c ------------------------------------------------------------------------ */

int put_sample(struct commit *commit, struct op *op);

/* --- tuning_db_outbox.c ----------------------------------------------------------------------- */

/* A sample has been stored, or (is_stored false) the fleet has it as it is here. */
int settle_outbox(struct commit *commit, struct op *op, bool is_stored);
int put_aside(struct commit *commit, struct op *op);
int mark_sent(struct commit *commit, struct op *op);
int mark_unsent(struct commit *commit, struct op *op);
/* After a commit: readers may use the tables that it made. */
void show_late_tables(const struct commit *commit);
/* The hash in an entry of outbox or aside. 0, or -1 when it is damaged. */
int outbox_hash(const MDB_val *value, uint64_t *hash, struct tune_error *why);

/* --- tuning_db_base.c ------------------------------------------------------------------------- */

struct base_row {
    uint8_t key[BEST_KEY_BYTES];
    struct best best;
};

struct base {
    struct base_row *rows; /* sorted by key, with the arch's */
    size_t count;
    uint64_t hash;
};

/* The place of the first row whose key is not below this one; may be the count. */
size_t base_find(const struct base *base, const void *key, size_t key_bytes);
/* As tuning_db_best, in the lower layer alone. */
int base_best(const struct base *base, const struct record_key *key, const char *gpu_name,
    uint32_t sms, struct best *best, struct tune_error *err);
/* Hands out the rows of a key, the arch's (which repeats one) first, until the callback stops. */
void base_give(const struct base *base, const struct record_key *key,
    int (*on_best)(const struct best *best, void *context), void *context);
void base_destroy(struct base *base);

/* --- tuning_db_clean.c ------------------------------------------------------------------------ */

/* Whether the mark is there and true. */
bool db_is_clean(const struct tuning_db *db, int data_fd, const char *data_path);
/* Takes the mark away: before the file is opened for writing. */
void db_unmark_clean(const struct tuning_db *db);
/* Leaves it: after the environment was closed. Without success there is none. */
void db_mark_clean(const struct tuning_db *db);
/* Begins to check all pages of the state as it is; nobody may have written yet. */
int db_check_start(struct tuning_db *db, struct tune_error *err);
/* Ends that, early perhaps; before the environment is closed. */
void db_check_stop(struct tuning_db *db);

/* --- tuning_db_changes.c ---------------------------------------------------------------------- */

/* The batch has been committed and raised the generation to this. */
void changes_add(struct tuning_db *db, const struct tuning_db_batch *batch, uint64_t generation);
void changes_finish(struct changes *changes);

#endif
