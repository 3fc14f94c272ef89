/* Commit: one batch, one transaction, replayed whole after whatever can be mended. See tuning_db.h.
 *
 * Design: attempt() applies the batch and either commits or leaves nothing. A full map is first
 * cleared of readers that died holding pages, then grown up to the limit; an environment that LMDB
 * gave up after an I/O error is opened anew. After any LMDB error the transaction is dead (all
 * later calls in it fail), so it is aborted at once, and exactly once. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define GROWTH_STEP_LIMIT_BYTES ((size_t)1 << 30)
#define LARGE_BATCH_BYTES ((size_t)16 << 20)
#define DISK_FULL_BYTES ((uint64_t)1 << 20)

void forget_damage_of(struct commit *commit, struct op *op)
{
    MDB_val key = op_key(op);
    if (!commit->is_trial)
        db_forget_damage(commit->db, op->table, key.mv_data, key.mv_size);
}

int put_op(struct commit *commit, struct op *op)
{
    MDB_val key = op_key(op), value = {op->value_bytes, op->value};
    int rc = mdb_put(commit->txn, commit->db->tables[op->table], &key, &value, 0);
    if (rc == 0)
        forget_damage_of(commit, op);
    return rc;
}

static int delete_op(struct commit *commit, struct op *op)
{
    MDB_val key = op_key(op);
    int rc = mdb_del(commit->txn, commit->db->tables[op->table], &key, NULL);
    forget_damage_of(commit, op);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* --- content-addressed blobs ------------------------------------------------------------------ */

int put_content(struct commit *commit, struct op *op, bool *is_stored, size_t *replaced_bytes)
{
    MDB_val key = op_key(op), stored;
    const void *payload;
    size_t count;
    *is_stored = false;
    *replaced_bytes = 0;
    int rc = mdb_get(commit->txn, commit->db->tables[op->table], &key, &stored);
    if (rc == 0) {
        if (stored.mv_size == op->value_bytes &&
            blob_decode(stored.mv_data, stored.mv_size, &payload, &count, NULL) == 0)
            return 0;
        *replaced_bytes = stored.mv_size;
    } else if (rc != MDB_NOTFOUND) {
        return rc;
    }
    *is_stored = true;
    return put_op(commit, op);
}

static int put_log(struct commit *commit, struct op *op)
{
    bool is_stored;
    size_t replaced_bytes;
    return put_content(commit, op, &is_stored, &replaced_bytes);
}

/* --- the transaction -------------------------------------------------------------------------- */

static int put_value(struct commit *commit, struct op *op)
{
    switch (op->table) {
    case TABLE_CUBIN:
        return put_cubin(commit, op);
    case TABLE_LOGS:
        return put_log(commit, op);
    case TABLE_ASIDE:
        return put_aside(commit, op);
    default:
        return put_op(commit, op);
    }
}

static int apply_op(struct commit *commit, struct op *op)
{
    switch (op->kind) {
    case OP_DELETE:
        return delete_op(commit, op);
    case OP_LOCAL:
    case OP_MERGE:
    case OP_REPLICA:
        return put_sample(commit, op);
    case OP_SENT:
        return mark_sent(commit, op);
    case OP_UNSENT:
        return mark_unsent(commit, op);
    default:
        return put_value(commit, op);
    }
}

static void forget_attempt(struct tuning_db_batch *batch)
{
    batch->duplicates = 0;
    memset(batch->fates, 0, sizeof batch->fates);
    for (size_t i = 0; i < batch->refresh_count; i++)
        batch->refreshes[i].is_touched = batch->refreshes[i].has_new_best = false;
}

static int apply_refreshes(struct commit *commit)
{
    struct tuning_db_batch *batch = commit->batch;
    uint32_t *order = sort_refreshes(batch);
    int rc = order == NULL ? ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < batch->refresh_count; i++) {
        struct refresh *refresh = &batch->refreshes[order[i]];
        if (refresh->is_asked || refresh->is_touched)
            rc = refresh_best(commit, refresh);
    }
    free(order);
    return rc;
}

static int apply(struct commit *commit)
{
    struct tuning_db_batch *batch = commit->batch;
    int rc = 0;
    forget_attempt(batch);
    for (size_t i = 0; rc == 0 && i < batch->op_count; i++)
        rc = apply_op(commit, &batch->ops[i]);
    if (rc == 0)
        rc = apply_refreshes(commit);
    if (rc == 0)
        rc = finish_cubins(commit);
    return rc == 0 ? raise_generation(commit) : rc;
}

static int attempt(struct commit *commit)
{
    struct tuning_db *db = commit->db;
    pthread_rwlock_rdlock(&db->map_lock);
    int rc = db->env == NULL ? MDB_PANIC : mdb_txn_begin(db->env, NULL, 0, &commit->txn);
    if (rc == 0) {
        rc = apply(commit);
        if (rc == 0 && !commit->is_trial)
            rc = mdb_txn_commit(commit->txn); /* frees it in any case */
        else
            mdb_txn_abort(commit->txn);
    }
    pthread_rwlock_unlock(&db->map_lock);
    if (rc != 0 || commit->is_trial)
        return rc;
    show_late_tables(commit);
    if (commit->has_new_best)
        changes_add(db, commit->batch, commit->generation);
    return 0;
}

/* --- making room ------------------------------------------------------------------------------ */

static size_t usual_limit(const struct tuning_db *db)
{
    return db->options.map_limit_bytes - db->reserve_bytes;
}

/* 0 when the batch is worth another attempt, else LMDB's code. */
static int make_room(
    struct tuning_db *db, const struct tuning_db_batch *batch, bool *has_checked_readers)
{
    if (!*has_checked_readers) {
        int dead = 0;
        *has_checked_readers = true;
        pthread_rwlock_rdlock(&db->map_lock);
        if (db->env != NULL)
            mdb_reader_check(db->env, &dead);
        pthread_rwlock_unlock(&db->map_lock);
        if (dead > 0)
            return 0;
    }
    size_t limit = batch->has_puts ? usual_limit(db) : db->options.map_limit_bytes;
    if (db->map_bytes >= limit)
        return MDB_MAP_FULL;
    size_t step = db->map_bytes < GROWTH_STEP_LIMIT_BYTES ? db->map_bytes : GROWTH_STEP_LIMIT_BYTES;
    while (step < 3 * batch->value_bytes) /* a large batch is not replayed time and again */
        step *= 2;
    size_t room = limit - db->map_bytes;
    return db_set_map(db, db->map_bytes + (step < room ? step : room));
}

/* LMDB calls a write that was cut short an I/O error, which on a full disk it is not. */
static bool is_disk_full(const struct tuning_db *db)
{
    struct statvfs fs;
    return statvfs(db->dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < DISK_FULL_BYTES;
}

static int fail_commit(const struct tuning_db *db, int rc, struct tune_error *err)
{
    if (rc == MDB_MAP_FULL)
        return tune_fail(err, TUNE_EFULL,
            "the database %s is full at its limit of %zu MiB; raise the limit, or export it and "
            "start anew",
            db->dir, db->options.map_limit_bytes >> 20);
    if (rc == EIO && is_disk_full(db))
        rc = ENOSPC;
    if (rc == ENOSPC || rc == EDQUOT || rc == EFBIG)
        return tune_fail(err, TUNE_EFULL,
            "no room on the disk for the database %s (%s); free some and try again", db->dir,
            strerror(rc));
    return db_fail(db, rc, "cannot store", err);
}

static int commit_locked(
    struct tuning_db *db, struct tuning_db_batch *batch, bool is_trial, struct tune_error *err)
{
    bool has_checked_readers = false, has_reopened = false;
    sort_ops(batch);
    for (;;) {
        if (db_usable(db, err) != 0)
            return -1;
        struct commit commit = {.db = db, .batch = batch, .is_trial = is_trial};
        int rc = attempt(&commit);
        if (rc == 0)
            break;
        if (rc == MDB_MAP_FULL) {
            rc = make_room(db, batch, &has_checked_readers);
        } else if (rc == MDB_PANIC && !has_reopened) {
            has_reopened = true;
            db_give_up_env(db);
            rc = 0;
        }
        if (rc != 0)
            return fail_commit(db, rc, err);
    }
    if (batch->value_bytes >= LARGE_BATCH_BYTES)
        db_env_trim(db);
    /* Give the reserve back, as far as it is not in use. */
    if (!batch->has_puts && db->map_bytes > usual_limit(db))
        db_set_map(db, usual_limit(db));
    return 0;
}

static int run_batch(
    struct tuning_db *db, struct tuning_db_batch *batch, bool is_trial, struct tune_error *err)
{
    if (tuning_db_batch_count(batch) == 0)
        return 0;
    if (db->options.read_only)
        return tune_fail(err, TUNE_EPERM, "the database %s was opened for reading only", db->dir);
    if (db_usable(db, err) != 0)
        return -1;
    pthread_mutex_lock(&db->write_lock);
    int status = commit_locked(db, batch, is_trial, err);
    pthread_mutex_unlock(&db->write_lock);
    return status;
}

int tuning_db_commit(struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err)
{
    return run_batch(db, batch, false, err);
}

int tuning_db_try(struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err)
{
    return run_batch(db, batch, true, err);
}
