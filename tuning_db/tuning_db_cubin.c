/* Cubins: a cache by content, kept under a size by forgetting the oldest first. See
 * tuning_db_internal.h for the tables; the mark "cubins" in meta holds the next sequence number and
 * the bytes stored. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void order_key(uint64_t sequence, uint8_t key[8])
{
    for (int i = 0; i < 8; i++)
        key[i] = (uint8_t)(sequence >> (56 - 8 * i)); /* big-endian sorts by age */
}

/* The mark was damaged or never written: counts what is there. */
static int recount_cubins(struct commit *commit)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    commit->cubin_bytes = commit->cubin_next = 0;
    int rc = mdb_cursor_open(commit->txn, commit->db->tables[TABLE_CUBIN], &cursor);
    if (rc != 0)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
        commit->cubin_bytes += value.mv_size;
    mdb_cursor_close(cursor);
    if (rc != MDB_NOTFOUND)
        return rc;
    rc = mdb_cursor_open(commit->txn, commit->db->tables[TABLE_CUBIN_ORDER], &cursor);
    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, &key, &value, MDB_LAST);
    if (rc == 0 && key.mv_size == 8) {
        for (int i = 0; i < 8; i++)
            commit->cubin_next = commit->cubin_next << 8 | ((const uint8_t *)key.mv_data)[i];
        commit->cubin_next++;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int load_cubin_mark(struct commit *commit)
{
    uint64_t mark[2];
    if (commit->has_cubins)
        return 0;
    commit->has_cubins = true;
    if (meta_get(commit->db, commit->txn, "cubins", mark, 2) != 0)
        return recount_cubins(commit);
    commit->cubin_next = mark[0];
    commit->cubin_bytes = mark[1];
    return 0;
}

int put_cubin(struct commit *commit, struct op *op)
{
    bool is_stored;
    size_t replaced_bytes, length;
    int rc = load_cubin_mark(commit);
    if (rc == 0)
        rc = put_content(commit, op, &is_stored, &replaced_bytes);
    if (rc != 0 || !is_stored)
        return rc;
    commit->cubin_bytes += op->value_bytes - replaced_bytes;
    uint8_t sequence[8];
    order_key(commit->cubin_next++, sequence);
    void *blob = blob_encode(op_key(op).mv_data, HASH_BYTES, &length);
    if (blob == NULL)
        return ENOMEM;
    MDB_val key = {sizeof sequence, sequence}, value = {length, blob};
    rc = mdb_put(commit->txn, commit->db->tables[TABLE_CUBIN_ORDER], &key, &value, 0);
    free(blob);
    return rc;
}

/* Deletes the cubin that a place in the order names, if it is still there. */
static int delete_cubin(struct commit *commit, const MDB_val *order)
{
    const void *payload;
    size_t count;
    struct record_hash hash;
    if (blob_decode(order->mv_data, order->mv_size, &payload, &count, NULL) != 0 ||
        count != HASH_BYTES)
        return 0;
    memcpy(hash.bytes, payload, HASH_BYTES);
    MDB_val key = {HASH_BYTES, hash.bytes}, value;
    int rc = mdb_get(commit->txn, commit->db->tables[TABLE_CUBIN], &key, &value);
    if (rc != 0)
        return rc == MDB_NOTFOUND ? 0 : rc;
    size_t freed = value.mv_size;
    commit->cubin_bytes -= freed < commit->cubin_bytes ? freed : commit->cubin_bytes;
    return mdb_del(commit->txn, commit->db->tables[TABLE_CUBIN], &key, NULL);
}

/* Deletes the oldest cubins until the rest fits its limit. Cubins that damage has cut off from the
 * order can only go all together. */
static int evict_cubins(struct commit *commit)
{
    MDB_cursor *cursor;
    MDB_val key, order;
    int rc = mdb_cursor_open(commit->txn, commit->db->tables[TABLE_CUBIN_ORDER], &cursor);
    if (rc != 0)
        return rc;
    while (rc == 0 && commit->cubin_bytes > commit->db->options.cubin_limit_bytes) {
        rc = mdb_cursor_get(cursor, &key, &order, MDB_FIRST);
        if (rc == 0)
            rc = delete_cubin(commit, &order);
        if (rc == 0)
            rc = mdb_cursor_get(cursor, &key, &order, MDB_FIRST);
        if (rc == 0)
            rc = mdb_cursor_del(cursor, 0);
    }
    mdb_cursor_close(cursor);
    if (rc != MDB_NOTFOUND)
        return rc;
    commit->cubin_bytes = 0;
    return mdb_drop(commit->txn, commit->db->tables[TABLE_CUBIN], 0);
}

int finish_cubins(struct commit *commit)
{
    if (!commit->has_cubins)
        return 0;
    int rc = evict_cubins(commit);
    if (rc != 0)
        return rc;
    uint64_t mark[2] = {commit->cubin_next, commit->cubin_bytes};
    return meta_put(commit->db, commit->txn, "cubins", mark, 2);
}
