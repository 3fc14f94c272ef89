/* Samples in pages, for who reads all of them bit by bit and keeps his place. See tuning_db.h. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A row, copied out: its value follows its key. */
struct copied {
    uint8_t id[TUNING_DB_ID_BYTES];
    size_t value_bytes;
};

struct copies {
    uint8_t *bytes;
    size_t used, room;
    bool is_end;
};

static int add_copy(struct copies *copies, const MDB_val *key, const MDB_val *value)
{
    struct copied row = {.value_bytes = value->mv_size};
    size_t need = copies->used + sizeof row + value->mv_size;
    if (need > copies->room) {
        size_t room = need + need / 2 + 4096;
        uint8_t *bytes = realloc(copies->bytes, room);
        if (bytes == NULL)
            return ENOMEM;
        copies->bytes = bytes;
        copies->room = room;
    }
    memcpy(row.id, key->mv_data, sizeof row.id);
    memcpy(copies->bytes + copies->used, &row, sizeof row);
    memcpy(copies->bytes + copies->used + sizeof row, value->mv_data, value->mv_size);
    copies->used = need;
    return 0;
}

/* To the first row after a key, which need not be there. */
static int position(MDB_cursor *cursor, const uint8_t *after, MDB_val *key, MDB_val *value)
{
    if (after == NULL)
        return mdb_cursor_get(cursor, key, value, MDB_FIRST);
    *key = (MDB_val){TUNING_DB_ID_BYTES, (void *)(uintptr_t)after};
    int rc = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
    if (rc == 0 && key->mv_size == TUNING_DB_ID_BYTES &&
        memcmp(key->mv_data, after, TUNING_DB_ID_BYTES) == 0)
        rc = mdb_cursor_get(cursor, key, value, MDB_NEXT);
    return rc;
}

static int copy_rows(struct tuning_db *db, MDB_txn *txn, const uint8_t *after, size_t limit_bytes,
    struct copies *copies)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    copies->is_end = true;
    if (!db->has_table[TABLE_SAMPLES])
        return 0;
    int rc = mdb_cursor_open(txn, db->tables[TABLE_SAMPLES], &cursor);
    if (rc != 0)
        return rc;
    for (rc = position(cursor, after, &key, &value); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (copies->used >= limit_bytes) {
            copies->is_end = false;
            break;
        }
        if (key.mv_size == TUNING_DB_ID_BYTES && (rc = add_copy(copies, &key, &value)) != 0)
            break;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* In one transaction; a page holds a row at least, unless there is none. */
static int read_rows(struct tuning_db *db, const uint8_t *after, size_t limit_bytes,
    struct copies *copies, struct tune_error *err)
{
    MDB_txn *txn;
    if (db_begin_read(db, &txn, err) != 0)
        return -1;
    int rc = copy_rows(db, txn, after, limit_bytes, copies);
    db_end_read(db, txn);
    return rc == 0 ? 0 : db_fail(db, rc, "cannot list", err);
}

/* 0, or -1 when it is damaged, which is noted. */
static int decode_copy(
    struct tuning_db *db, const struct copied *row, const uint8_t *value, struct sample *sample)
{
    struct tune_error why = {.code = TUNE_OK};
    uint8_t id[TUNING_DB_ID_BYTES];
    if (sample_decode(value, row->value_bytes, sample, &why) == 0) {
        tuning_db_id(sample, id);
        if (memcmp(id, row->id, sizeof id) == 0)
            return 0;
        sample_finish(sample);
    }
    db_note_damage(db, TABLE_SAMPLES, row->id, sizeof row->id, why.code == TUNE_OK ? NULL : &why);
    return -1;
}

int tuning_db_page_samples(struct tuning_db *db, struct tuning_db_place *place, size_t limit_bytes,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err)
{
    struct copies copies = {0};
    int status = read_rows(db, place->is_set ? place->id : NULL, limit_bytes, &copies, err);
    bool is_stopped = false;
    size_t at = 0;
    while (status == 0 && at < copies.used && !is_stopped) {
        struct copied row;
        struct sample sample;
        memcpy(&row, copies.bytes + at, sizeof row);
        const uint8_t *value = copies.bytes + at + sizeof row;
        at += sizeof row + row.value_bytes;
        memcpy(place->id, row.id, sizeof place->id);
        place->is_set = true;
        if (decode_copy(db, &row, value, &sample) != 0)
            continue;
        is_stopped = on_sample(&sample, context) != 0;
        sample_finish(&sample);
    }
    place->is_end = copies.is_end && at == copies.used;
    free(copies.bytes);
    return status;
}

/* The row after the place, which moves there: 0, 1 when it is damaged or there is none, -1. */
static int next_sample(struct tuning_db *db, struct tuning_db_place *place, struct sample *sample,
    struct tune_error *err)
{
    struct copies copies = {0};
    struct copied row;
    int status = read_rows(db, place->is_set ? place->id : NULL, 1, &copies, err);
    place->is_end = status == 0 && copies.used == 0;
    if (status == 0 && !place->is_end) {
        memcpy(&row, copies.bytes, sizeof row);
        memcpy(place->id, row.id, sizeof place->id);
        place->is_set = true;
        status = decode_copy(db, &row, copies.bytes + sizeof row, sample) == 0 ? 0 : 1;
    } else if (status == 0) {
        status = 1;
    }
    free(copies.bytes);
    return status;
}

int tuning_db_next_key(struct tuning_db *db, struct tuning_db_place *place, struct sample *first,
    struct tune_error *err)
{
    int status;
    if (place->is_set) /* past all rows of that key */
        memset(place->id + HASH_BYTES, 0xff, sizeof place->id - HASH_BYTES);
    do
        status = next_sample(db, place, first, err);
    while (status > 0 && !place->is_end);
    return status;
}
