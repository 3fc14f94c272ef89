/* Transactions and the reading of single entries. See tuning_db.h and tuning_db_internal.h.
 *
 * Design: a transaction lives inside one call and under the shared map_lock, so that whoever must
 * move the map (growth, a map grown by another process, opening anew after a failure) waits for the
 * exclusive lock and then knows that no transaction is open. */
#include "tuning_db_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define RESIZE_TRIES 100
#define DAMAGE_LIMIT 65536 /* entries remembered as reported */

/* --- errors ----------------------------------------------------------------------------------- */

int db_fail(const struct tuning_db *db, int rc, const char *what, struct tune_error *err)
{
    enum tune_code code = TUNE_EIO;
    if (rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_INVALID)
        code = TUNE_EDAMAGED;
    else if (rc == MDB_MAP_FULL || rc == ENOSPC || rc == EDQUOT || rc == EFBIG)
        code = TUNE_EFULL;
    else if (rc == MDB_TXN_FULL)
        code = TUNE_ELIMIT;
    else if (rc == MDB_VERSION_MISMATCH)
        code = TUNE_EVERSION;
    else if (rc == MDB_READERS_FULL)
        code = TUNE_EBUSY;
    else if (rc == ENOMEM)
        code = TUNE_ENOMEM;
    return tune_fail(err, code, "database %s: %s: %s", db->dir, what, mdb_strerror(rc));
}

static uint64_t damage_id(enum table table, const void *key, size_t key_bytes)
{
    return XXH3_64bits_withSeed(key, key_bytes, (uint64_t)table + 1);
}

/* True when the entry was not known before. */
static bool remember_damage(struct tuning_db *db, uint64_t id)
{
    for (size_t i = 0; i < db->damage_used; i++) {
        if (db->damage_seen[i] == id)
            return false;
    }
    if (db->damage_used == db->damage_room && db->damage_room < DAMAGE_LIMIT) {
        size_t room = db->damage_room * 2 + 64;
        uint64_t *seen = realloc(db->damage_seen, room * sizeof *seen);
        if (seen == NULL)
            return false;
        db->damage_seen = seen;
        db->damage_room = room;
    }
    if (db->damage_used == db->damage_room)
        return false;
    db->damage_seen[db->damage_used++] = id;
    db->damaged++;
    return true;
}

void db_note_damage(struct tuning_db *db, enum table table, const void *key, size_t key_bytes,
    const struct tune_error *why)
{
    pthread_mutex_lock(&db->damage_lock);
    bool is_new = remember_damage(db, damage_id(table, key, key_bytes));
    pthread_mutex_unlock(&db->damage_lock);
    if (!is_new || db->options.on_damage == NULL)
        return;
    const uint8_t *bytes = key;
    char text[320], name[33] = "";
    bool is_text = table == TABLE_JOBS || table == TABLE_META;
    for (size_t i = 0; !is_text && i < key_bytes && i < 16; i++)
        snprintf(name + 2 * i, 3, "%02x", bytes[i]);
    snprintf(text, sizeof text, "damaged entry %.*s of %s in %s: %s", is_text ? (int)key_bytes : 32,
        is_text ? (const char *)key : name, table_names[table], db->dir,
        why != NULL ? why->text : "it does not belong to its key");
    db->options.on_damage(text, db->options.damage_context);
}

void db_forget_damage(struct tuning_db *db, enum table table, const void *key, size_t key_bytes)
{
    uint64_t id = damage_id(table, key, key_bytes);
    pthread_mutex_lock(&db->damage_lock);
    for (size_t i = 0; i < db->damage_used; i++) {
        if (db->damage_seen[i] == id) {
            db->damage_seen[i] = db->damage_seen[--db->damage_used];
            break;
        }
    }
    pthread_mutex_unlock(&db->damage_lock);
}

/* --- transactions ----------------------------------------------------------------------------- */

int db_usable(struct tuning_db *db, struct tune_error *err)
{
    if (db->owner_pid != getpid())
        return tune_fail(err, TUNE_EINTERNAL,
            "the database %s was opened by another process; open it after the fork", db->dir);
    if (atomic_load(&db->check.has_failed))
        return tune_fail(err, db->check.why.code, "%s", db->check.why.text);
    int status = 0;
    pthread_rwlock_rdlock(&db->map_lock);
    bool is_open = db->env != NULL;
    pthread_rwlock_unlock(&db->map_lock);
    if (is_open)
        return 0;
    pthread_rwlock_wrlock(&db->map_lock);
    if (db->env == NULL)
        status = db_env_open(db, err);
    pthread_rwlock_unlock(&db->map_lock);
    return status;
}

int db_set_map(struct tuning_db *db, size_t bytes)
{
    pthread_rwlock_wrlock(&db->map_lock);
    int rc = db->env == NULL ? 0 : mdb_env_set_mapsize(db->env, bytes);
    MDB_envinfo info;
    if (rc != 0)
        db_env_close(db); /* it has no map now; the next call opens anew */
    else if (db->env != NULL && mdb_env_info(db->env, &info) == 0)
        db->map_bytes = info.me_mapsize;
    pthread_rwlock_unlock(&db->map_lock);
    return rc;
}

void db_give_up_env(struct tuning_db *db)
{
    pthread_rwlock_wrlock(&db->map_lock);
    db_env_close(db);
    pthread_rwlock_unlock(&db->map_lock);
}

int db_begin_read(struct tuning_db *db, MDB_txn **txn, struct tune_error *err)
{
    int rc = 0;
    for (int tries = 0; tries < RESIZE_TRIES; tries++) {
        if (db_usable(db, err) != 0)
            return -1;
        pthread_rwlock_rdlock(&db->map_lock);
        rc = db->env == NULL ? MDB_PANIC : mdb_txn_begin(db->env, NULL, MDB_RDONLY, txn);
        if (rc == 0)
            return 0;
        int dead = 0;
        if (rc == MDB_READERS_FULL)
            mdb_reader_check(db->env, &dead);
        pthread_rwlock_unlock(&db->map_lock);
        if (rc == MDB_MAP_RESIZED)
            rc = db_set_map(db, 0); /* another process has grown it: take up the new size */
        else if (rc == MDB_PANIC)
            db_give_up_env(db);
        else if (dead == 0)
            break;
    }
    return db_fail(db, rc, "cannot begin to read", err);
}

void db_end_read(struct tuning_db *db, MDB_txn *txn)
{
    mdb_txn_abort(txn);
    pthread_rwlock_unlock(&db->map_lock);
}

/* --- keys and marks --------------------------------------------------------------------------- */

static uint8_t *append_hash(uint8_t *at, struct record_hash hash)
{
    memcpy(at, hash.bytes, HASH_BYTES);
    return at + HASH_BYTES;
}

void tuning_db_id(const struct sample *sample, uint8_t key[TUNING_DB_ID_BYTES])
{
    uint8_t *at = append_hash(key, record_key_hash(&sample->key));
    at = append_hash(at, record_text_hash(sample->config));
    at = append_hash(at, record_text_hash(sample->gpu_uuid));
    append_hash(at, record_text_hash(sample->run));
}

static struct record_hash model_hash(const char *gpu_name, uint32_t sms)
{
    char text[256];
    snprintf(text, sizeof text, "%.200s\n%u", gpu_name, sms);
    return record_text_hash(sms == 0 ? gpu_name : text);
}

void best_db_key(
    const struct record_key *key, const char *gpu_name, uint32_t sms, uint8_t out[BEST_KEY_BYTES])
{
    const struct record_hash arch = {{0}};
    uint8_t *at = append_hash(out, record_text_hash(key->kernel));
    at = append_hash(at, record_key_hash(key));
    append_hash(at, gpu_name == NULL ? arch : model_hash(gpu_name, sms));
}

int meta_get(struct tuning_db *db, MDB_txn *txn, const char *name, uint64_t *values, size_t count)
{
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value;
    if (!db->has_table[TABLE_META] || mdb_get(txn, db->tables[TABLE_META], &key, &value) != 0)
        return 1;
    struct tune_error why = {.code = TUNE_OK};
    const void *payload;
    size_t bytes = 0;
    if (blob_decode(value.mv_data, value.mv_size, &payload, &bytes, &why) != 0 ||
        bytes != count * 8) {
        db_note_damage(db, TABLE_META, name, strlen(name), why.code == TUNE_OK ? NULL : &why);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = 0;
        for (size_t byte = 0; byte < 8; byte++)
            values[i] |= (uint64_t)((const uint8_t *)payload)[8 * i + byte] << (8 * byte);
    }
    return 0;
}

int meta_put(
    struct tuning_db *db, MDB_txn *txn, const char *name, const uint64_t *values, size_t count)
{
    uint8_t payload[64];
    for (size_t i = 0; i < 8 * count && i < sizeof payload; i++)
        payload[i] = (uint8_t)(values[i / 8] >> (8 * (i % 8)));
    size_t length;
    void *blob = blob_encode(payload, 8 * count, &length);
    if (blob == NULL)
        return ENOMEM;
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value = {length, blob};
    int rc = mdb_put(txn, db->tables[TABLE_META], &key, &value, 0);
    free(blob);
    db_forget_damage(db, TABLE_META, name, strlen(name));
    return rc;
}

/* --- single entries --------------------------------------------------------------------------- */

int db_copy_entry(struct tuning_db *db, enum table table, const void *key, size_t key_bytes,
    void **bytes, size_t *count, struct tune_error *err)
{
    MDB_txn *txn;
    if (db_begin_read(db, &txn, err) != 0)
        return -1;
    MDB_val wanted = {key_bytes, (void *)(uintptr_t)key}, value;
    int rc = db->has_table[table] ? mdb_get(txn, db->tables[table], &wanted, &value) : MDB_NOTFOUND;
    if (rc == 0) {
        *bytes = malloc(value.mv_size + 1);
        *count = value.mv_size;
        if (*bytes == NULL)
            rc = ENOMEM;
        else
            memcpy(*bytes, value.mv_data, value.mv_size);
    }
    db_end_read(db, txn);
    if (rc == MDB_NOTFOUND)
        return 1;
    return rc == 0 ? 0 : db_fail(db, rc, "cannot read", err);
}

/* The stored row; a damaged one is not there. */
static int stored_best(struct tuning_db *db, const struct record_key *key, const char *gpu_name,
    uint32_t sms, struct best *best, struct tune_error *err)
{
    uint8_t wanted[BEST_KEY_BYTES];
    void *bytes;
    size_t count;
    best_db_key(key, gpu_name, sms, wanted);
    int status = db_copy_entry(db, TABLE_BEST, wanted, sizeof wanted, &bytes, &count, err);
    if (status != 0)
        return status;
    struct tune_error why = {.code = TUNE_OK};
    status = best_decode(bytes, count, best, &why);
    free(bytes);
    if (status == 0 && record_key_equal(&best->key, key) &&
        (gpu_name == NULL || (strcmp(best->gpu_name, gpu_name) == 0 && best->sms == sms)))
        return 0;
    if (status == 0)
        best_finish(best);
    db_note_damage(db, TABLE_BEST, wanted, sizeof wanted, status == 0 ? NULL : &why);
    return 1;
}

int tuning_db_best(struct tuning_db *db, const struct record_key *key, const char *gpu_name,
    uint32_t sms, struct best *best, struct tune_error *err)
{
    int status = stored_best(db, key, gpu_name, sms, best, err);
    return status == 1 ? base_best(db->base, key, gpu_name, sms, best, err) : status;
}

/* A blob's payload, moved to the start of its malloc'ed bytes and ended by NUL. */
static int copy_blob(struct tuning_db *db, enum table table, const void *key, size_t key_bytes,
    void **bytes, size_t *count, struct tune_error *err)
{
    void *stored;
    size_t length;
    int status = db_copy_entry(db, table, key, key_bytes, &stored, &length, err);
    if (status != 0)
        return status;
    struct tune_error why = {.code = TUNE_OK};
    const void *payload;
    if (blob_decode(stored, length, &payload, count, &why) != 0) {
        free(stored);
        db_note_damage(db, table, key, key_bytes, &why);
        return 1;
    }
    memmove(stored, payload, *count);
    ((char *)stored)[*count] = '\0';
    *bytes = stored;
    return 0;
}

int tuning_db_cubin(struct tuning_db *db, const struct record_hash *key, void **bytes,
    size_t *count, struct tune_error *err)
{
    return copy_blob(db, TABLE_CUBIN, key->bytes, HASH_BYTES, bytes, count, err);
}

/* 32 hex digits as a hash. */
static int parse_id(const char *id, struct record_hash *hash)
{
    if (strlen(id) != 2 * HASH_BYTES || strspn(id, "0123456789abcdef") != 2 * HASH_BYTES)
        return -1;
    for (size_t i = 0; i < HASH_BYTES; i++) {
        char digits[3] = {id[2 * i], id[2 * i + 1], '\0'};
        hash->bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return 0;
}

int tuning_db_log(
    struct tuning_db *db, const char *id, char **text, size_t *length, struct tune_error *err)
{
    struct record_hash hash;
    if (parse_id(id, &hash) != 0)
        return 1;
    void *bytes;
    int status = copy_blob(db, TABLE_LOGS, hash.bytes, HASH_BYTES, &bytes, length, err);
    if (status == 0)
        *text = bytes;
    return status;
}

int tuning_db_job(
    struct tuning_db *db, const char *name, void **bytes, size_t *count, struct tune_error *err)
{
    size_t length = strlen(name);
    if (length == 0 || length > JOB_NAME_LIMIT_BYTES)
        return 1;
    return copy_blob(db, TABLE_JOBS, name, length, bytes, count, err);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* One line of mdb_reader_list for each slot in use, after a heading. */
static int count_reader(const char *line, void *context)
{
    line += strspn(line, " ");
    if (line[0] >= '0' && line[0] <= '9')
        ++*(unsigned *)context;
    return 0;
}

static size_t table_entries(struct tuning_db *db, MDB_txn *txn, enum table table)
{
    MDB_stat stat = {0};
    if (db->has_table[table])
        mdb_stat(txn, db->tables[table], &stat);
    return stat.ms_entries;
}

int tuning_db_stats(struct tuning_db *db, struct tuning_db_stats *stats, struct tune_error *err)
{
    MDB_txn *txn;
    if (db_begin_read(db, &txn, err) != 0)
        return -1;
    MDB_envinfo info;
    MDB_stat stat;
    mdb_env_info(db->env, &info);
    mdb_env_stat(db->env, &stat);
    uint64_t cubins[2] = {0, 0}, generation = 0;
    meta_get(db, txn, "cubins", cubins, 2);
    meta_get(db, txn, "generation", &generation, 1);
    *stats = (struct tuning_db_stats){.samples = table_entries(db, txn, TABLE_SAMPLES),
        .best = table_entries(db, txn, TABLE_BEST),
        .cubins = table_entries(db, txn, TABLE_CUBIN),
        .logs = table_entries(db, txn, TABLE_LOGS),
        .jobs = table_entries(db, txn, TABLE_JOBS),
        .cubin_bytes = cubins[1],
        .map_bytes = info.me_mapsize,
        .used_bytes = (info.me_last_pgno + 1) * stat.ms_psize,
        .readers_max = info.me_maxreaders,
        .generation = generation};
    mdb_reader_list(db->env, count_reader, &stats->readers_used);
    if (stats->readers_used > 0)
        stats->readers_used--; /* this call's own */
    db_end_read(db, txn);
    pthread_mutex_lock(&db->damage_lock);
    stats->damaged = db->damaged;
    pthread_mutex_unlock(&db->damage_lock);
    return 0;
}
