/* Opening, healing and closing the environment. See tuning_db.h. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READER_SLOTS 1024
#define MAP_LEAST_BYTES ((size_t)1 << 20)
#define RESERVE_LIMIT_BYTES ((size_t)4 << 20)

const char *const table_names[TABLE_COUNT + 1] = {
#define X(name, text) [TABLE_##name] = text,
    TABLES(X)
#undef X
};

/* --- the environment -------------------------------------------------------------------------- */

/* Refuses a database of a newer program, before anything is written to it. */
static int check_format(struct tuning_db *db, MDB_txn *txn, struct tune_error *err)
{
    uint64_t format = 0;
    if (mdb_dbi_open(txn, table_names[TABLE_META], 0, &db->tables[TABLE_META]) != 0)
        return 0;
    db->has_table[TABLE_META] = true;
    if (meta_get(db, txn, "format", &format, 1) == 0 && format > TUNING_DB_FORMAT)
        return tune_fail(err, TUNE_EVERSION,
            "%s holds a database of format %llu, this program knows format %d; use the newer "
            "program, or export with it and import here",
            db->dir, (unsigned long long)format, TUNING_DB_FORMAT);
    return 0;
}

static int open_tables(struct tuning_db *db, MDB_txn *txn, struct tune_error *err)
{
    for (int i = 0; i < TABLE_COUNT; i++) {
        bool may_lack = db->options.read_only || i == TABLE_OUTBOX || i == TABLE_ASIDE;
        int rc = mdb_dbi_open(txn, table_names[i], may_lack ? 0 : MDB_CREATE, &db->tables[i]);
        db->has_table[i] = rc == 0;
        if (rc != 0 && !(rc == MDB_NOTFOUND && may_lack))
            return db_fail(db, rc, "cannot open its tables", err);
    }
    uint64_t format = TUNING_DB_FORMAT_ALONE, stored;
    if (!db->options.read_only && meta_get(db, txn, "format", &stored, 1) != 0) {
        int rc = meta_put(db, txn, "format", &format, 1);
        if (rc != 0)
            return db_fail(db, rc, "cannot write its format", err);
    }
    return 0;
}

static int in_transaction(struct tuning_db *db, unsigned flags,
    int (*body)(struct tuning_db *, MDB_txn *, struct tune_error *), struct tune_error *err)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(db->env, NULL, flags, &txn);
    if (rc != 0)
        return db_fail(db, rc, "cannot begin", err);
    if (body(db, txn, err) != 0) {
        mdb_txn_abort(txn);
        return -1;
    }
    rc = mdb_txn_commit(txn); /* also makes the handles of the tables lasting */
    return rc == 0 ? 0 : db_fail(db, rc, "cannot commit", err);
}

static int configure(struct tuning_db *db, struct tune_error *err)
{
    int rc = mdb_env_create(&db->env);
    if (rc != 0)
        return db_fail(db, rc, "cannot create the environment", err);
    size_t start = db->map_bytes > 0 ? db->map_bytes : db->options.map_start_bytes;
    if ((rc = mdb_env_set_maxdbs(db->env, TABLE_COUNT + 1)) != 0 ||
        (rc = mdb_env_set_maxreaders(db->env, READER_SLOTS)) != 0 ||
        (rc = mdb_env_set_mapsize(db->env, db->options.read_only ? 0 : start)) != 0)
        return db_fail(db, rc, "cannot configure the environment", err);
    unsigned flags = MDB_NOTLS | (db->options.read_only ? MDB_RDONLY : 0u);
    rc = mdb_env_open(db->env, db->dir, flags, 0600);
    if (rc != 0)
        return db_fail(db, rc, "cannot open", err);
    int fd, dead;
    if (mdb_env_get_fd(db->env, &fd) == 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    mdb_reader_check(db->env, &dead);
    MDB_envinfo info;
    mdb_env_info(db->env, &info);
    db->map_bytes = info.me_mapsize;
    return 0;
}

int db_env_open(struct tuning_db *db, struct tune_error *err)
{
    unsigned flags = db->options.read_only ? MDB_RDONLY : 0;
    if (configure(db, err) == 0 && in_transaction(db, MDB_RDONLY, check_format, err) == 0 &&
        in_transaction(db, flags, open_tables, err) == 0)
        return 0;
    db_env_close(db);
    return -1;
}

void db_env_close(struct tuning_db *db)
{
    db_check_stop(db);
    if (db->env != NULL)
        mdb_env_close(db->env);
    db->env = NULL;
    memset(db->has_table, 0, sizeof db->has_table);
}

void db_env_trim(struct tuning_db *db)
{
    pthread_rwlock_wrlock(&db->map_lock);
    bool is_checking = db->check.is_running && !atomic_load(&db->check.has_ended);
    if (db->env != NULL && !is_checking) {
        db_env_close(db);
        malloc_trim(0);
        db_env_open(db, NULL); /* where that fails the next call tries again, and says so */
    }
    pthread_rwlock_unlock(&db->map_lock);
}

/* --- open and close --------------------------------------------------------------------------- */

/* A database file on descriptor 2 would be overwritten by the first message to standard error. */
static int hold_standard_descriptors(struct tune_error *err)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        if (open("/dev/null", O_RDWR) != fd) /* the lowest free number: this one */
            return tune_fail_errno(err, TUNE_EIO, "cannot open /dev/null for descriptor %d", fd);
    }
    return 0;
}

static size_t page_multiple(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes / page * page;
}

static void set_options(struct tuning_db *db, const struct tuning_db_options *options)
{
    if (options != NULL)
        db->options = *options;
    struct tuning_db_options *own = &db->options;
    if (own->map_limit_bytes == 0)
        own->map_limit_bytes = TUNING_DB_MAP_LIMIT_BYTES;
    if (own->map_start_bytes == 0)
        own->map_start_bytes = TUNING_DB_MAP_START_BYTES;
    if (own->cubin_limit_bytes == 0)
        own->cubin_limit_bytes = TUNING_DB_CUBIN_LIMIT_BYTES;
    if (own->map_limit_bytes < MAP_LEAST_BYTES)
        own->map_limit_bytes = MAP_LEAST_BYTES;
    own->map_limit_bytes = page_multiple(own->map_limit_bytes);
    db->reserve_bytes = page_multiple(own->map_limit_bytes / 16);
    if (db->reserve_bytes > RESERVE_LIMIT_BYTES)
        db->reserve_bytes = RESERVE_LIMIT_BYTES;
    size_t usual_limit = own->map_limit_bytes - db->reserve_bytes;
    if (own->map_start_bytes > usual_limit)
        own->map_start_bytes = usual_limit;
    if (own->map_start_bytes < MAP_LEAST_BYTES / 2)
        own->map_start_bytes = MAP_LEAST_BYTES / 2;
    own->map_start_bytes = page_multiple(own->map_start_bytes);
}

/* A folder named "x/" is x: with the slash, O_NOFOLLOW would follow a link. */
static char *clean_path(const char *dir)
{
    char *path = strdup(dir);
    size_t length = path == NULL ? 0 : strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    return path;
}

static void init_locks(struct tuning_db *db)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* Readers that follow each other without a gap would otherwise put growth off for ever. */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&db->map_lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&db->write_lock, NULL);
    pthread_mutex_init(&db->damage_lock, NULL);
    pthread_mutex_init(&db->changes.lock, NULL);
}

static void destroy(struct tuning_db *db)
{
    pthread_rwlock_destroy(&db->map_lock);
    pthread_mutex_destroy(&db->write_lock);
    pthread_mutex_destroy(&db->damage_lock);
    changes_finish(&db->changes);
    base_destroy(db->base);
    if (db->lock_fd >= 0)
        close(db->lock_fd);
    free(db->damage_seen);
    free(db->dir);
    free(db);
}

static int read_generation(struct tuning_db *db, struct tune_error *err)
{
    MDB_txn *txn;
    uint64_t generation = 0;
    if (db_begin_read(db, &txn, err) != 0)
        return -1;
    meta_get(db, txn, "generation", &generation, 1);
    db_end_read(db, txn);
    db->changes.floor = generation;
    atomic_store(&db->generation, generation);
    return 0;
}

struct tuning_db *tuning_db_open(
    const char *dir, const struct tuning_db_options *options, struct tune_error *err)
{
    if (dir == NULL || dir[0] == '\0') {
        tune_fail(err, TUNE_EINVAL, "no database folder is named; give one with --db");
        return NULL;
    }
    struct tuning_db *db = calloc(1, sizeof *db);
    char *path = clean_path(dir);
    if (db == NULL || path == NULL) {
        free(db);
        free(path);
        tune_fail(err, TUNE_ENOMEM, "no memory to open %s", dir);
        return NULL;
    }
    db->dir = path;
    db->lock_fd = -1;
    db->owner_pid = getpid();
    set_options(db, options);
    init_locks(db);
    if (hold_standard_descriptors(err) != 0 || db_folder_claim(db, err) != 0) {
        destroy(db);
        return NULL;
    }
    if (db_env_open(db, err) != 0 || read_generation(db, err) != 0 ||
        (db->was_clean && db_check_start(db, err) != 0)) {
        db_env_close(db);
        db_folder_release(db);
        destroy(db);
        return NULL;
    }
    return db;
}

void tuning_db_close(struct tuning_db *db)
{
    if (db == NULL)
        return;
    /* A forked child gives its memory back only: the environment is its parent's. */
    if (db->owner_pid == getpid()) {
        bool is_whole = db->env != NULL && !db->options.read_only;
        db_env_close(db);
        if (is_whole && !atomic_load(&db->check.has_failed))
            db_mark_clean(db);
    }
    db_folder_release(db);
    destroy(db);
}
