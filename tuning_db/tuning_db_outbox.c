/* Rows that are still to be sent to the fleet, and rows of the fleet that are set aside. See
 * tuning_db.h.
 *
 * Design: both tables change in the transaction that changes the row they speak of, so a crash
 * leaves all or nothing. An entry holds the hash of the line that is to be sent; where that is of
 * an older version of the program, the row itself is asked. Most databases never belong to a fleet,
 * so the tables are made by the first batch that needs them; readers see them from the moment at
 * which no older transaction is open, because in an older one the handle means nothing. */
#include "tuning_db_internal.h"

#include "record_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ORPHANS_LIMIT 1000 /* entries without a row that one walk takes out */

/* --- the tables ------------------------------------------------------------------------------- */

static bool has_table(const struct commit *commit, enum table table)
{
    return commit->db->has_table[table] || commit->has_late[table];
}

static int make_table(struct commit *commit, enum table table)
{
    if (has_table(commit, table))
        return 0;
    MDB_dbi *handle = &commit->db->tables[table]; /* nobody looks at it before has_table */
    int rc = mdb_dbi_open(commit->txn, table_names[table], MDB_CREATE, handle);
    commit->has_late[table] = rc == 0;
    return rc == 0 ? raise_format(commit) : rc;
}

void show_late_tables(const struct commit *commit)
{
    struct tuning_db *db = commit->db;
    if (!commit->has_late[TABLE_OUTBOX] && !commit->has_late[TABLE_ASIDE])
        return;
    pthread_rwlock_wrlock(&db->map_lock);
    for (int i = TABLE_OUTBOX; i < TABLE_COUNT && db->env != NULL; i++)
        db->has_table[i] |= commit->has_late[i];
    pthread_rwlock_unlock(&db->map_lock);
}

/* --- entries ---------------------------------------------------------------------------------- */

static void put_le64(uint64_t value, uint8_t bytes[8])
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

int outbox_hash(const MDB_val *value, uint64_t *hash, struct tune_error *why)
{
    const void *payload;
    size_t count;
    if (blob_decode(value->mv_data, value->mv_size, &payload, &count, why) != 0)
        return -1;
    if (count < sizeof *hash)
        return tune_fail(why, TUNE_EDAMAGED, "the entry is too short for a hash");
    *hash = 0;
    for (size_t i = 0; i < sizeof *hash; i++)
        *hash |= (uint64_t)((const uint8_t *)payload)[i] << (8 * i);
    return 0;
}

static int put_entry(struct commit *commit, struct op *op, uint64_t hash)
{
    uint8_t payload[8];
    size_t length;
    put_le64(hash, payload);
    void *blob = blob_encode(payload, sizeof payload, &length);
    if (blob == NULL)
        return ENOMEM;
    MDB_val key = op_key(op), value = {length, blob};
    int rc = mdb_put(commit->txn, commit->db->tables[TABLE_OUTBOX], &key, &value, 0);
    free(blob);
    return rc;
}

static int delete_entry(struct commit *commit, struct op *op, enum table table)
{
    MDB_val key = op_key(op);
    if (!has_table(commit, table))
        return 0;
    int rc = mdb_del(commit->txn, commit->db->tables[table], &key, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* --- inside a commit -------------------------------------------------------------------------- */

/* 0: the row has no line. */
static uint64_t line_hash(const void *value, size_t value_bytes)
{
    struct sample sample;
    if (sample_decode(value, value_bytes, &sample, NULL) != 0)
        return 0;
    uint64_t hash = record_line_hash(&sample);
    sample_finish(&sample);
    return hash;
}

static int note_unsent(struct commit *commit, struct op *op)
{
    if (op->hash == 0)
        op->hash = line_hash(op->value, op->value_bytes);
    if (op->hash == 0)
        return 0;
    int rc = make_table(commit, TABLE_OUTBOX);
    return rc == 0 ? put_entry(commit, op, op->hash) : rc;
}

/* What came from the fleet need not be sent: it has that very row, or one that stands before the
 * row that was to be sent. */
int settle_outbox(struct commit *commit, struct op *op, bool is_stored)
{
    int rc = 0;
    if (op->kind == OP_REPLICA)
        rc = delete_entry(commit, op, TABLE_OUTBOX);
    else if (is_stored && commit->db->options.has_outbox)
        rc = note_unsent(commit, op);
    return rc == 0 && is_stored ? delete_entry(commit, op, TABLE_ASIDE) : rc;
}

int put_aside(struct commit *commit, struct op *op)
{
    int rc = make_table(commit, TABLE_ASIDE);
    return rc == 0 ? put_op(commit, op) : rc;
}

/* Whether the stored row is another than the one that was sent. */
static int has_changed(struct commit *commit, struct op *op, bool *changed)
{
    struct tuning_db *db = commit->db;
    MDB_val key = op_key(op), value;
    uint64_t hash;
    int rc = mdb_get(commit->txn, db->tables[TABLE_OUTBOX], &key, &value);
    *changed = false;
    if (rc == 0 && outbox_hash(&value, &hash, NULL) == 0 && hash == op->hash)
        return 0;
    if (rc == 0)
        rc = mdb_get(commit->txn, db->tables[TABLE_SAMPLES], &key, &value);
    if (rc == 0)
        *changed = line_hash(value.mv_data, value.mv_size) != op->hash;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int mark_sent(struct commit *commit, struct op *op)
{
    bool changed;
    if (!has_table(commit, TABLE_OUTBOX))
        return 0;
    int rc = has_changed(commit, op, &changed);
    return rc == 0 && !changed ? delete_entry(commit, op, TABLE_OUTBOX) : rc;
}

static int forget_aside(struct commit *commit, struct op *op)
{
    MDB_val key = op_key(op), value;
    uint64_t hash;
    if (!has_table(commit, TABLE_ASIDE))
        return 0;
    int rc = mdb_get(commit->txn, commit->db->tables[TABLE_ASIDE], &key, &value);
    bool is_it = rc == 0 && outbox_hash(&value, &hash, NULL) == 0 && hash == op->hash;
    if (is_it)
        rc = delete_entry(commit, op, TABLE_ASIDE);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int mark_unsent(struct commit *commit, struct op *op)
{
    MDB_val key = op_key(op), value;
    int rc = forget_aside(commit, op);
    if (rc == 0)
        rc = mdb_get(commit->txn, commit->db->tables[TABLE_SAMPLES], &key, &value);
    if (rc != 0)
        return rc == MDB_NOTFOUND ? 0 : rc;
    rc = make_table(commit, TABLE_OUTBOX);
    return rc == 0 ? put_entry(commit, op, op->hash) : rc;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct outbox_walk {
    int (*on_sample)(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context);
    void *context;
    struct tuning_db_batch *orphans;
    int status;
    struct tune_error *err;
};

/* The entry's row as it is now. 0, 1 when there is none that can be sent, -1. */
static int read_row(
    struct tuning_db *db, const struct row *entry, struct sample *sample, struct tune_error *err)
{
    void *bytes;
    size_t count;
    int status =
        db_copy_entry(db, TABLE_SAMPLES, entry->key, entry->key_bytes, &bytes, &count, err);
    if (status != 0)
        return status;
    struct tune_error why = {.code = TUNE_OK};
    struct row row = {entry->key, entry->key_bytes, bytes, count};
    status = decode_sample_row(&row, sample, &why);
    free(bytes);
    if (status != 0)
        db_note_damage(
            db, TABLE_SAMPLES, row.key, row.key_bytes, why.code == TUNE_OK ? NULL : &why);
    return status == 0 ? 0 : 1;
}

static void note_orphan(struct outbox_walk *outbox, const struct row *entry)
{
    if (outbox->orphans != NULL && entry->key_bytes == TUNING_DB_ID_BYTES &&
        tuning_db_batch_count(outbox->orphans) < ORPHANS_LIMIT)
        tuning_db_batch_sent(outbox->orphans, entry->key, 0);
}

static int on_entry(struct walk *walk, const struct row *entry)
{
    struct outbox_walk *outbox = walk->context;
    struct sample sample;
    outbox->status = read_row(walk->db, entry, &sample, outbox->err);
    if (outbox->status < 0)
        return 1;
    if (outbox->status > 0) {
        outbox->status = 0;
        note_orphan(outbox, entry);
        return 0;
    }
    int stop = 0;
    uint64_t hash = record_line_hash(&sample);
    if (hash == 0)
        note_orphan(outbox, entry);
    else
        stop = outbox->on_sample(&sample, entry->key, hash, outbox->context);
    sample_finish(&sample);
    return stop;
}

int tuning_db_walk_outbox(struct tuning_db *db, const uint8_t *after,
    int (*on_sample)(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context),
    void *context, struct tune_error *err)
{
    struct outbox_walk outbox = {.on_sample = on_sample, .context = context, .err = err};
    struct walk walk = {.db = db, .table = TABLE_OUTBOX, .on_row = on_entry, .context = &outbox};
    if (after != NULL) {
        memcpy(walk.last, after, TUNING_DB_ID_BYTES);
        walk.last_bytes = TUNING_DB_ID_BYTES;
    }
    if (!db->options.read_only)
        outbox.orphans = tuning_db_batch_create();
    if (walk_rows(&walk, err) != 0)
        outbox.status = -1;
    /* What cannot be sent would be met for ever; where this fails the next walk tries again. */
    if (outbox.status == 0 && outbox.orphans != NULL)
        tuning_db_commit(db, outbox.orphans, NULL);
    tuning_db_batch_destroy(outbox.orphans);
    return outbox.status;
}

int tuning_db_outbox_count(struct tuning_db *db, size_t *count, struct tune_error *err)
{
    MDB_txn *txn;
    MDB_stat stat = {0};
    *count = 0;
    if (db_begin_read(db, &txn, err) != 0)
        return -1;
    if (db->has_table[TABLE_OUTBOX])
        mdb_stat(txn, db->tables[TABLE_OUTBOX], &stat);
    db_end_read(db, txn);
    *count = stat.ms_entries;
    return 0;
}
