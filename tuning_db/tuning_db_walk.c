/* Listings and the full check. See tuning_db.h.
 *
 * Design: a walk copies a page of rows out, ends its transaction and only then calls back, so a
 * callback may take its time, read, or commit; the next page starts after the last key. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A listing that fits is one consistent snapshot; a longer one is read in pieces. */
#define WALK_PAGE_BYTES ((size_t)16 << 20)

/* Rows copied out of one transaction, each as two sizes, key and value. */
struct row_page {
    uint8_t *bytes;
    size_t used, room;
    bool is_last;
};

static int page_add(struct row_page *page, const MDB_val *key, const MDB_val *value)
{
    size_t sizes[2] = {key->mv_size, value->mv_size};
    size_t need = page->used + sizeof sizes + sizes[0] + sizes[1];
    if (need > page->room) {
        size_t room = need + need / 2 + 4096;
        uint8_t *bytes = realloc(page->bytes, room);
        if (bytes == NULL)
            return ENOMEM;
        page->bytes = bytes;
        page->room = room;
    }
    memcpy(page->bytes + page->used, sizes, sizeof sizes);
    memcpy(page->bytes + page->used + sizeof sizes, key->mv_data, sizes[0]);
    memcpy(page->bytes + page->used + sizeof sizes + sizes[0], value->mv_data, sizes[1]);
    page->used = need;
    return 0;
}

static size_t page_row(const struct row_page *page, size_t at, struct row *row)
{
    size_t sizes[2];
    memcpy(sizes, page->bytes + at, sizeof sizes);
    row->key = page->bytes + at + sizeof sizes;
    row->key_bytes = sizes[0];
    row->value = row->key + sizes[0];
    row->value_bytes = sizes[1];
    return at + sizeof sizes + sizes[0] + sizes[1];
}

static int position(const struct walk *walk, MDB_cursor *cursor, MDB_val *key, MDB_val *value)
{
    if (walk->last_bytes == 0 && walk->prefix_bytes == 0)
        return mdb_cursor_get(cursor, key, value, MDB_FIRST);
    const void *from = walk->last_bytes > 0 ? walk->last : walk->prefix;
    size_t from_bytes = walk->last_bytes > 0 ? walk->last_bytes : walk->prefix_bytes;
    *key = (MDB_val){from_bytes, (void *)(uintptr_t)from};
    int rc = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
    if (rc == 0 && walk->last_bytes > 0 && key->mv_size == from_bytes &&
        memcmp(key->mv_data, from, from_bytes) == 0)
        rc = mdb_cursor_get(cursor, key, value, MDB_NEXT);
    return rc;
}

static bool has_prefix(const struct walk *walk, const MDB_val *key)
{
    size_t count = walk->prefix_bytes;
    return count == 0 || (key->mv_size >= count && memcmp(key->mv_data, walk->prefix, count) == 0);
}

static int fill_page(const struct walk *walk, MDB_txn *txn, struct row_page *page)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    page->used = 0;
    page->is_last = true;
    if (!walk->db->has_table[walk->table])
        return 0;
    int rc = mdb_cursor_open(txn, walk->db->tables[walk->table], &cursor);
    if (rc != 0)
        return rc;
    for (rc = position(walk, cursor, &key, &value); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (!has_prefix(walk, &key))
            break;
        if (page->used > WALK_PAGE_BYTES) {
            page->is_last = false;
            break;
        }
        if ((rc = page_add(page, &key, &value)) != 0)
            break;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int walk_rows(struct walk *walk, struct tune_error *err)
{
    struct row_page page = {0};
    int status = 0;
    bool is_stopped = false;
    do {
        MDB_txn *txn;
        status = db_begin_read(walk->db, &txn, err);
        if (status != 0)
            break;
        int rc = fill_page(walk, txn, &page);
        db_end_read(walk->db, txn);
        if (rc != 0) {
            status = db_fail(walk->db, rc, "cannot list", err);
            break;
        }
        struct row row;
        for (size_t at = 0; at < page.used && !is_stopped;) {
            at = page_row(&page, at, &row);
            memcpy(walk->last, row.key, row.key_bytes);
            walk->last_bytes = row.key_bytes;
            is_stopped = walk->on_row(walk, &row) != 0;
        }
    } while (!page.is_last && !is_stopped);
    free(page.bytes);
    return status;
}

void note_row(const struct walk *walk, const struct row *row, const struct tune_error *why)
{
    db_note_damage(
        walk->db, walk->table, row->key, row->key_bytes, why->code == TUNE_OK ? NULL : why);
}

static bool is_arch_row(const uint8_t *key)
{
    static const uint8_t zeros[HASH_BYTES];
    return memcmp(key + 2 * HASH_BYTES, zeros, HASH_BYTES) == 0;
}

/* Decodes a row of best that belongs to its key. */
static int decode_best_row(const struct row *row, struct best *best, struct tune_error *why)
{
    uint8_t key[BEST_KEY_BYTES];
    if (best_decode(row->value, row->value_bytes, best, why) != 0)
        return -1;
    if (row->key_bytes == sizeof key) {
        best_db_key(&best->key, is_arch_row(row->key) ? NULL : best->gpu_name, best->sms, key);
        if (memcmp(key, row->key, sizeof key) == 0)
            return 0;
    }
    best_finish(best);
    return -1;
}

int decode_sample_row(const struct row *row, struct sample *sample, struct tune_error *why)
{
    uint8_t key[SAMPLE_KEY_BYTES];
    if (sample_decode(row->value, row->value_bytes, sample, why) != 0)
        return -1;
    tuning_db_id(sample, key);
    if (row->key_bytes == sizeof key && memcmp(key, row->key, sizeof key) == 0)
        return 0;
    sample_finish(sample);
    return -1;
}

/* Hands out the rows of the lower layer up to a key (NULL: all that are left), but for those that
 * a stored row hides. */
static int give_base(struct walk *walk, const uint8_t *limit)
{
    const struct base *base = walk->db->base;
    int status = 0;
    while (status == 0 && base != NULL && walk->base_at < base->count) {
        const struct base_row *row = &base->rows[walk->base_at];
        int order = limit == NULL ? -1 : memcmp(row->key, limit, sizeof row->key);
        if (order > 0 ||
            (walk->prefix_bytes > 0 && memcmp(row->key, walk->prefix, walk->prefix_bytes) != 0))
            break;
        walk->base_at++;
        if (order < 0 && !is_arch_row(row->key) &&
            (walk->want == NULL || strcmp(row->best.key.kernel, walk->want) == 0))
            status = walk->on_best(&row->best, walk->context);
    }
    return status;
}

static int on_best_row(struct walk *walk, const struct row *row)
{
    struct best best;
    struct tune_error why = {.code = TUNE_OK};
    if (row->key_bytes == BEST_KEY_BYTES && is_arch_row(row->key))
        return 0;
    if (decode_best_row(row, &best, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    int status = give_base(walk, row->key);
    if (status == 0 && (walk->want == NULL || strcmp(best.key.kernel, walk->want) == 0))
        status = walk->on_best(&best, walk->context);
    best_finish(&best);
    walk->is_stopped = status != 0;
    return status;
}

static int walk_best(struct walk *walk, struct tune_error *err)
{
    if (walk->db->base != NULL)
        walk->base_at = base_find(walk->db->base, walk->prefix, walk->prefix_bytes);
    if (walk_rows(walk, err) != 0)
        return -1;
    if (!walk->is_stopped)
        give_base(walk, NULL);
    return 0;
}

int tuning_db_walk_best(struct tuning_db *db, const char *kernel,
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err)
{
    struct record_hash hash = record_text_hash(kernel);
    struct walk walk = {.db = db,
        .table = TABLE_BEST,
        .prefix = hash.bytes,
        .prefix_bytes = kernel == NULL ? 0 : HASH_BYTES,
        .on_row = on_best_row,
        .want = kernel,
        .on_best = on_best,
        .context = context};
    return walk_best(&walk, err);
}

int tuning_db_walk_best_of(struct tuning_db *db, const struct record_key *key,
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err)
{
    uint8_t prefix[BEST_KEY_BYTES];
    best_db_key(key, NULL, 0, prefix);
    struct walk walk = {.db = db,
        .table = TABLE_BEST,
        .prefix = prefix,
        .prefix_bytes = 2 * HASH_BYTES,
        .on_row = on_best_row,
        .want = key->kernel,
        .on_best = on_best,
        .context = context};
    return walk_best(&walk, err);
}

static int on_sample_row(struct walk *walk, const struct row *row)
{
    struct sample sample;
    struct tune_error why = {.code = TUNE_OK};
    if (decode_sample_row(row, &sample, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    int status = 0;
    if (walk->want == NULL || record_key_equal(&sample.key, walk->want))
        status = walk->on_sample(&sample, walk->context);
    sample_finish(&sample);
    return status;
}

struct walk samples_walk(
    struct tuning_db *db, const struct record_key *key, struct record_hash *hash)
{
    if (key != NULL)
        *hash = record_key_hash(key);
    return (struct walk){.db = db,
        .table = TABLE_SAMPLES,
        .prefix = hash->bytes,
        .prefix_bytes = key == NULL ? 0 : HASH_BYTES,
        .want = key};
}

int tuning_db_walk_samples(struct tuning_db *db, const struct record_key *key,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err)
{
    struct record_hash hash;
    struct walk walk = samples_walk(db, key, &hash);
    walk.on_row = on_sample_row;
    walk.on_sample = on_sample;
    walk.context = context;
    return walk_rows(&walk, err);
}

static int on_job_row(struct walk *walk, const struct row *row)
{
    struct tune_error why = {.code = TUNE_OK};
    const void *payload;
    size_t count;
    char name[KEY_LIMIT_BYTES + 1];
    if (blob_decode(row->value, row->value_bytes, &payload, &count, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    memcpy(name, row->key, row->key_bytes);
    name[row->key_bytes] = '\0';
    return walk->on_job(name, payload, count, walk->context);
}

int tuning_db_walk_jobs(struct tuning_db *db, const char *prefix,
    int (*on_job)(const char *name, const void *bytes, size_t count, void *context), void *context,
    struct tune_error *err)
{
    size_t prefix_bytes = prefix == NULL ? 0 : strlen(prefix);
    if (prefix_bytes > JOB_NAME_LIMIT_BYTES)
        return 0;
    struct walk walk = {.db = db,
        .table = TABLE_JOBS,
        .prefix = prefix,
        .prefix_bytes = prefix_bytes,
        .on_row = on_job_row,
        .on_job = on_job,
        .context = context};
    return walk_rows(&walk, err);
}

/* --- the check -------------------------------------------------------------------------------- */

static int on_checked_row(struct walk *walk, const struct row *row)
{
    struct tune_error why = {.code = TUNE_OK};
    struct sample sample;
    struct best best;
    const void *payload;
    size_t count;
    int status;
    if (walk->table == TABLE_SAMPLES && (status = decode_sample_row(row, &sample, &why)) == 0)
        sample_finish(&sample);
    else if (walk->table == TABLE_BEST && (status = decode_best_row(row, &best, &why)) == 0)
        best_finish(&best);
    else if (walk->table != TABLE_SAMPLES && walk->table != TABLE_BEST)
        status = blob_decode(row->value, row->value_bytes, &payload, &count, &why);
    if (status != 0) {
        note_row(walk, row, &why);
        ++*(size_t *)walk->context;
    }
    return 0;
}

int tuning_db_check(struct tuning_db *db, size_t *damaged, struct tune_error *err)
{
    *damaged = 0;
    for (int table = 0; table < TABLE_COUNT; table++) {
        struct walk walk = {
            .db = db, .table = (enum table)table, .on_row = on_checked_row, .context = damaged};
        if (walk_rows(&walk, err) != 0)
            return -1;
    }
    return 0;
}
