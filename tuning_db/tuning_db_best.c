/* The rows of `best` inside a commit: read all samples of a key, let best.c choose, store what
 * changed. And the listing of the samples that the choice rests on. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sample_set {
    struct sample *samples;
    size_t count, room;
};

static void sample_set_finish(struct sample_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        sample_finish(&set->samples[i]);
    free(set->samples);
}

/* Room for one more sample, which counts once set->count says so; NULL without memory. */
static struct sample *next_sample(struct sample_set *set)
{
    if (set->count == set->room) {
        size_t room = set->room * 2 + 64;
        struct sample *samples = realloc(set->samples, room * sizeof *samples);
        if (samples == NULL)
            return NULL;
        set->samples = samples;
        set->room = room;
    }
    return &set->samples[set->count];
}

/* New. */
static const struct sample **sample_pointers(const struct sample_set *set)
{
    const struct sample **pointers = calloc(set->count + 1, sizeof *pointers);
    for (size_t i = 0; pointers != NULL && i < set->count; i++)
        pointers[i] = &set->samples[i];
    return pointers;
}

/* Adds a stored row, if it is sound and of this key. */
static int collect_sample(struct commit *commit, const struct record_key *wanted,
    const MDB_val *key, const MDB_val *value, struct sample_set *set)
{
    struct sample *sample = next_sample(set);
    if (sample == NULL)
        return ENOMEM;
    struct tune_error why = {.code = TUNE_OK};
    if (sample_decode(value->mv_data, value->mv_size, sample, &why) == 0) {
        if (record_key_equal(&sample->key, wanted))
            set->count++;
        else
            sample_finish(sample);
    } else if (why.code == TUNE_ENOMEM) {
        return ENOMEM;
    } else {
        db_note_damage(commit->db, TABLE_SAMPLES, key->mv_data, key->mv_size, &why);
    }
    return 0;
}

static int collect_samples(
    struct commit *commit, const struct refresh *refresh, struct sample_set *set)
{
    MDB_cursor *cursor;
    MDB_val key = {HASH_BYTES, (void *)(uintptr_t)refresh->hash.bytes}, value;
    int rc = mdb_cursor_open(commit->txn, commit->db->tables[TABLE_SAMPLES], &cursor);
    if (rc != 0)
        return rc;
    for (rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size < HASH_BYTES || memcmp(key.mv_data, &refresh->hash, HASH_BYTES) != 0)
            break;
        rc = collect_sample(commit, &refresh->key, &key, &value, set);
        if (rc != 0)
            break;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int put_best(struct commit *commit, const struct best *row, const char *gpu_name)
{
    uint8_t bytes[BEST_KEY_BYTES];
    size_t length = 0;
    best_db_key(&row->key, gpu_name, row->sms, bytes);
    void *encoded = best_encode(row, &length);
    if (encoded == NULL)
        return ENOMEM;
    MDB_val key = {sizeof bytes, bytes}, stored, value = {length, encoded};
    int rc = mdb_get(commit->txn, commit->db->tables[TABLE_BEST], &key, &stored);
    if (rc != 0 || stored.mv_size != length || memcmp(stored.mv_data, encoded, length) != 0) {
        commit->has_new_best = true;
        rc = mdb_put(commit->txn, commit->db->tables[TABLE_BEST], &key, &value, 0);
        if (!commit->is_trial)
            db_forget_damage(commit->db, TABLE_BEST, bytes, sizeof bytes);
    }
    free(encoded);
    return rc;
}

static int compare_best_keys(const void *left, const void *right)
{
    return memcmp(left, right, BEST_KEY_BYTES);
}

/* New: the keys of the rows and of the arch's, sorted; *count of them. NULL without memory. */
static uint8_t (*wanted_best(const struct best_rows *rows, size_t *count))[BEST_KEY_BYTES]
{
    uint8_t(*keys)[BEST_KEY_BYTES] = calloc(rows->count + 1, sizeof *keys);
    *count = 0;
    if (keys == NULL || rows->count == 0)
        return keys;
    for (size_t i = 0; i < rows->count; i++)
        best_db_key(&rows->rows[i].key, rows->rows[i].gpu_name, rows->rows[i].sms, keys[i]);
    best_db_key(&rows->rows[rows->arch].key, NULL, 0, keys[rows->count]);
    *count = rows->count + 1;
    qsort(keys, *count, sizeof *keys, compare_best_keys);
    return keys;
}

/* Deletes the key's rows that are not among the wanted ones. A file from elsewhere may hold any
 * number of GPU models, so this takes one way through them. */
static int delete_unwanted(MDB_cursor *cursor, const struct record_key *key,
    uint8_t (*wanted)[BEST_KEY_BYTES], size_t wanted_count, bool *is_any)
{
    uint8_t at[BEST_KEY_BYTES], prefix[BEST_KEY_BYTES];
    const size_t prefix_bytes = 2 * HASH_BYTES;
    best_db_key(key, NULL, 0, prefix);
    MDB_val found = {prefix_bytes, prefix}, value;
    int rc = mdb_cursor_get(cursor, &found, &value, MDB_SET_RANGE);
    while (
        rc == 0 && found.mv_size == sizeof at && memcmp(found.mv_data, prefix, prefix_bytes) == 0) {
        memcpy(at, found.mv_data, sizeof at);
        if (bsearch(at, wanted, wanted_count, sizeof *wanted, compare_best_keys) != NULL) {
            rc = mdb_cursor_get(cursor, &found, &value, MDB_NEXT);
            continue;
        }
        *is_any = true;
        rc = mdb_cursor_del(cursor, 0);
        found = (MDB_val){sizeof at, at}; /* what comes after the deleted one */
        if (rc == 0)
            rc = mdb_cursor_get(cursor, &found, &value, MDB_SET_RANGE);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Takes away rows of GPUs that have no winner any more. */
static int delete_other_best(
    struct commit *commit, const struct record_key *key, const struct best_rows *rows)
{
    size_t count;
    MDB_cursor *cursor;
    uint8_t(*wanted)[BEST_KEY_BYTES] = wanted_best(rows, &count);
    if (wanted == NULL)
        return ENOMEM;
    int rc = mdb_cursor_open(commit->txn, commit->db->tables[TABLE_BEST], &cursor);
    if (rc == 0) {
        rc = delete_unwanted(cursor, key, wanted, count, &commit->has_new_best);
        mdb_cursor_close(cursor);
    }
    free(wanted);
    return rc;
}

static int write_best(struct commit *commit, const struct refresh *refresh,
    const struct sample **pointers, size_t count)
{
    struct best_rows rows;
    if (best_rows_pick(&rows, pointers, count) != 0)
        return ENOMEM;
    int rc = delete_other_best(commit, &refresh->key, &rows);
    if (rc == 0 && rows.count > 0) /* first, as in the table: pages are filled, not split */
        rc = put_best(commit, &rows.rows[rows.arch], NULL);
    for (size_t i = 0; rc == 0 && i < rows.count; i++)
        rc = put_best(commit, &rows.rows[i], rows.rows[i].gpu_name);
    best_rows_finish(&rows);
    return rc;
}

int refresh_best(struct commit *commit, struct refresh *refresh)
{
    bool had_new_best = commit->has_new_best;
    commit->has_new_best = false;
    struct sample_set set = {0};
    const struct sample **pointers = NULL;
    int rc = collect_samples(commit, refresh, &set);
    if (rc == 0) {
        pointers = sample_pointers(&set);
        rc = pointers == NULL ? ENOMEM : 0;
    }
    if (rc == 0)
        rc = write_best(commit, refresh, pointers, set.count);
    free(pointers);
    sample_set_finish(&set);
    refresh->has_new_best = commit->has_new_best;
    commit->has_new_best = commit->has_new_best || had_new_best;
    return rc;
}

/* An older database becomes one of today's format with the first row that is of it: opening writes
 * nothing, so a full one can be read. */
int raise_format(struct commit *commit)
{
    uint64_t format = TUNING_DB_FORMAT_ALONE, stored;
    for (int i = TABLE_OUTBOX; i < TABLE_COUNT; i++)
        if (commit->has_late[i])
            format = TUNING_DB_FORMAT;
    if (meta_get(commit->db, commit->txn, "format", &stored, 1) == 0 && stored >= format)
        return 0;
    return meta_put(commit->db, commit->txn, "format", &format, 1);
}

/* Raises the generation. A damaged one goes on from the clock, which is ahead of any count of
 * commits. */
int raise_generation(struct commit *commit)
{
    if (!commit->has_new_best)
        return 0;
    static const char name[] = "generation";
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value;
    uint64_t generation = 0;
    if (meta_get(commit->db, commit->txn, name, &generation, 1) != 0 &&
        mdb_get(commit->txn, commit->db->tables[TABLE_META], &key, &value) == 0)
        generation = (uint64_t)time(NULL);
    commit->generation = ++generation;
    int rc = meta_put(commit->db, commit->txn, name, &generation, 1);
    return rc == 0 ? raise_format(commit) : rc;
}

/* --- what the best rows rest on --------------------------------------------------------------- */

struct reduction {
    struct sample_set set; /* of one key: in the order of ids they follow each other */
    int (*on_sample)(const struct sample *sample, void *context);
    void *context;
    bool has_no_memory, is_stopped;
};

/* Hands out what the key's best rows rest on, and forgets its samples. */
static int give_reduced(struct reduction *reduction)
{
    struct sample_set *set = &reduction->set;
    const struct sample **pointers = sample_pointers(set);
    size_t count = 0;
    reduction->has_no_memory =
        pointers == NULL || best_rows_reduce(pointers, set->count, &count) != 0;
    for (size_t i = 0; !reduction->has_no_memory && !reduction->is_stopped && i < count; i++)
        reduction->is_stopped = reduction->on_sample(pointers[i], reduction->context) != 0;
    free(pointers);
    sample_set_finish(set);
    *set = (struct sample_set){0};
    return reduction->has_no_memory || reduction->is_stopped;
}

static int on_sample_row(struct walk *walk, const struct row *row)
{
    struct reduction *reduction = walk->context;
    struct sample_set *set = &reduction->set;
    struct tune_error why = {.code = TUNE_OK};
    struct sample sample;
    if (decode_sample_row(row, &sample, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    bool is_unwanted = walk->want != NULL && !record_key_equal(&sample.key, walk->want);
    bool is_next = set->count > 0 && !record_key_equal(&sample.key, &set->samples[0].key);
    struct sample *place = NULL;
    if (!is_unwanted && (!is_next || give_reduced(reduction) == 0)) {
        place = next_sample(set);
        reduction->has_no_memory = place == NULL;
    }
    if (place == NULL) {
        sample_finish(&sample);
        return reduction->has_no_memory || reduction->is_stopped;
    }
    *place = sample;
    set->count++;
    return 0;
}

int tuning_db_walk_best_samples(struct tuning_db *db, const struct record_key *key,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err)
{
    struct record_hash hash;
    struct reduction reduction = {.on_sample = on_sample, .context = context};
    struct walk walk = samples_walk(db, key, &hash);
    walk.on_row = on_sample_row;
    walk.context = &reduction;
    int status = walk_rows(&walk, err);
    if (status == 0 && !reduction.is_stopped && !reduction.has_no_memory)
        give_reduced(&reduction);
    sample_set_finish(&reduction.set);
    if (reduction.has_no_memory)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the samples of a key");
    return status;
}

/* --- the best of some ------------------------------------------------------------------------- */

struct among {
    struct sample_set set;
    bool (*is_valid)(const char *config, void *context);
    int (*on_best)(const struct best *best, void *context);
    void *context;
    bool has_no_memory;
};

static int on_among_row(struct walk *walk, const struct row *row)
{
    struct among *among = walk->context;
    struct tune_error why = {.code = TUNE_OK};
    struct sample *place = next_sample(&among->set);
    among->has_no_memory = place == NULL;
    if (place == NULL)
        return 1;
    if (decode_sample_row(row, place, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    if (record_key_equal(&place->key, walk->want) && among->is_valid(place->config, among->context))
        among->set.count++;
    else
        sample_finish(place);
    return 0;
}

/* True: the callback has stopped it, or there was no memory. */
static bool give_among(struct among *among)
{
    struct best_rows rows = {0};
    const struct sample **pointers = sample_pointers(&among->set);
    among->has_no_memory =
        pointers == NULL || best_rows_pick(&rows, pointers, among->set.count) != 0;
    bool is_stopped = among->has_no_memory;
    if (!is_stopped && rows.count > 0)
        is_stopped = among->on_best(&rows.rows[rows.arch], among->context) != 0;
    for (size_t i = 0; !is_stopped && i < rows.count; i++)
        if (i != rows.arch)
            is_stopped = among->on_best(&rows.rows[i], among->context) != 0;
    best_rows_finish(&rows);
    free(pointers);
    return is_stopped;
}

int tuning_db_walk_best_among(struct tuning_db *db, const struct record_key *key,
    bool (*is_valid)(const char *config, void *context),
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err)
{
    struct record_hash hash;
    struct among among = {.is_valid = is_valid, .on_best = on_best, .context = context};
    struct walk walk = samples_walk(db, key, &hash);
    walk.on_row = on_among_row;
    walk.context = &among;
    int status = walk_rows(&walk, err);
    if (status == 0 && !among.has_no_memory && !give_among(&among))
        base_give(db->base, key, on_best, context);
    sample_set_finish(&among.set);
    if (among.has_no_memory)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the samples of a key");
    return status;
}
