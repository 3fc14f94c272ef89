/* Inside of the tuning database, shared by its files:
 *
 *   tuning_db_folder.c everything that must be true before LMDB may touch the folder
 *   tuning_db_open.c   opening and healing the environment
 *   tuning_db.c        transactions, reading of single entries
 *   tuning_db_walk.c   listings, the full check
 *   tuning_db_batch.c  batches: writes collected in memory
 *   tuning_db_commit.c commit, growth of the map
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

#include "tuning_db.h"

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* X(NAME, name): the named databases and what their keys and values are.
 *   samples      hash(key) hash(config) hash(GPU UUID) hash(run), 16 bytes each -> sample
 *   best         hash(kernel) hash(key) hash(GPU model), or zeros for the arch's -> best; a model
 * is a name with its number of multiprocessors, where that is known cubin        content key ->
 * blob cubin_order  sequence number, big-endian -> blob of the content key logs         hash of the
 * text -> blob jobs         name -> blob meta         "format", "generation", "cubins" -> blob of
 * little-endian u64s */
#define TABLES(X)                                                                                  \
    X(SAMPLES, "samples")                                                                          \
    X(BEST, "best")                                                                                \
    X(CUBIN, "cubin")                                                                              \
    X(CUBIN_ORDER, "cubin_order")                                                                  \
    X(LOGS, "logs")                                                                                \
    X(JOBS, "jobs")                                                                                \
    X(META, "meta")

enum table {
#define X(name, text) TABLE_##name,
    TABLES(X)
#undef X
        TABLE_COUNT
};

/* Raise when keys or tables change their meaning; an older program refuses a newer database. */
#define TUNING_DB_FORMAT 2

#define HASH_BYTES sizeof(struct record_hash)
#define SAMPLE_KEY_BYTES (4 * HASH_BYTES)
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

/* --- tuning_db.c ------------------------------------------------------------------------------ */

/* An LMDB error as ours. */
int db_fail(const struct tuning_db *db, int rc, const char *what, struct tune_error *err);

/* A read transaction under the shared map_lock. Every begin that succeeds needs its end. */
int db_begin_read(struct tuning_db *db, MDB_txn **txn, struct tune_error *err);
void db_end_read(struct tuning_db *db, MDB_txn *txn);

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

void sample_db_key(const struct sample *sample, uint8_t key[SAMPLE_KEY_BYTES]);
/* gpu_name NULL: the arch's row. */
void best_db_key(
    const struct record_key *key, const char *gpu_name, uint32_t sms, uint8_t out[BEST_KEY_BYTES]);

/* A blob of `count` u64s from meta. 0, or 1 when absent or damaged (noted). */
int meta_get(struct tuning_db *db, MDB_txn *txn, const char *name, uint64_t *values, size_t count);
int meta_put(struct tuning_db *db, MDB_txn *txn, const char *name, const uint64_t *values,
    size_t count); /* LMDB's code */

/* --- tuning_db_batch.c ------------------------------------------------------------------------ */

struct op {
    enum table table;
    size_t key_bytes;
    uint8_t key[JOB_NAME_LIMIT_BYTES];
    void *value; /* encoded; NULL: delete */
    size_t value_bytes;
};

struct refresh {
    struct record_key key; /* its texts lie in storage */
    struct record_hash hash;
    char *storage;
    bool has_new_best; /* after an attempt to commit */
};

struct tuning_db_batch {
    struct op *ops;
    size_t op_count, op_room;
    struct refresh *refreshes; /* distinct keys */
    size_t refresh_count, refresh_room;
    size_t duplicates; /* rows that the last commit found already there */
    bool has_puts;
};

/* --- tuning_db_commit.c, _cubin.c, _best.c: 0 or LMDB's code, which may be an errno --------------
 */

struct commit {
    struct tuning_db *db;
    struct tuning_db_batch *batch;
    MDB_txn *txn;
    bool has_new_best;
    uint64_t generation; /* after raise_generation, when has_new_best */
    bool has_cubins;
    uint64_t cubin_next, cubin_bytes; /* the mark "cubins" */
};

MDB_val op_key(struct op *op); /* borrowed */
/* Stores unless the same content is there, sound. *replaced_bytes: size of the entry it replaces.
 */
int put_content(struct commit *commit, struct op *op, bool *is_stored, size_t *replaced_bytes);
int put_cubin(struct commit *commit, struct op *op);
int finish_cubins(struct commit *commit);
int refresh_best(struct commit *commit, struct refresh *refresh);
int raise_generation(struct commit *commit);

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

/* --- best.c ----------------------------------------------------------------------------------- */

/* The best rows of one key from its samples: one for each GPU model, and which of them is the
 * arch's. Texts are borrowed from the samples. */
struct best_rows {
    struct best *rows;
    size_t count;
    size_t arch; /* index of the arch's row, when count > 0 */
};

/* Reorders `samples`. 0, or -1 without memory. */
int best_rows_pick(struct best_rows *rows, const struct sample **samples, size_t count);
void best_rows_finish(struct best_rows *rows);

#endif
