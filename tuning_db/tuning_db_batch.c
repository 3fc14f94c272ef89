/* Batches: writes collected and encoded in memory, so that a commit can be replayed whole. */
#include "tuning_db_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_REFRESH UINT32_MAX
#define ASIDE_REASON_LIMIT_BYTES 240

struct tuning_db_batch *tuning_db_batch_create(void)
{
    return calloc(1, sizeof(struct tuning_db_batch));
}

static bool has_long_key(const struct op *op)
{
    return op->key_bytes > sizeof op->key;
}

MDB_val op_key(struct op *op)
{
    return (MDB_val){op->key_bytes, has_long_key(op) ? op->long_key : op->key};
}

static void op_finish(struct op *op)
{
    if (has_long_key(op))
        free(op->long_key);
    free(op->value);
}

void tuning_db_batch_destroy(struct tuning_db_batch *batch)
{
    if (batch == NULL)
        return;
    for (size_t i = 0; i < batch->op_count; i++)
        op_finish(&batch->ops[i]);
    for (size_t i = 0; i < batch->refresh_count; i++)
        free(batch->refreshes[i].storage);
    free(batch->ops);
    free(batch->refreshes);
    free(batch->places);
    free(batch);
}

size_t tuning_db_batch_count(const struct tuning_db_batch *batch)
{
    return batch->op_count + batch->refresh_count;
}

size_t tuning_db_batch_duplicates(const struct tuning_db_batch *batch)
{
    return batch->duplicates;
}

void tuning_db_batch_merged(const struct tuning_db_batch *batch, struct tuning_db_merged *merged)
{
    *merged = (struct tuning_db_merged){.added = batch->fates[FATE_ADDED],
        .equal = batch->fates[FATE_EQUAL],
        .replaced = batch->fates[FATE_REPLACED],
        .kept = batch->fates[FATE_KEPT]};
}

/* --- operations ------------------------------------------------------------------------------- */

/* Room for one more element of an array. */
static void *grow(void *array, size_t count, size_t *room, size_t element_bytes)
{
    if (count < *room)
        return array;
    size_t new_room = *room * 2 + 16;
    void *grown = realloc(array, new_room * element_bytes);
    if (grown != NULL)
        *room = new_room;
    return grown;
}

/* Puts the key into the operation. */
static int set_key(struct op *op, const void *key, size_t key_bytes)
{
    op->key_bytes = key_bytes;
    if (has_long_key(op) && (op->long_key = malloc(key_bytes)) == NULL)
        return -1;
    memcpy(has_long_key(op) ? op->long_key : op->key, key, key_bytes);
    return 0;
}

static bool has_value(enum op_kind kind)
{
    return kind != OP_DELETE && kind != OP_SENT && kind != OP_UNSENT;
}

/* Takes the new operation's value, which is NULL where there was no memory for one. */
static int add_op(
    struct tuning_db_batch *batch, const struct op *new, const void *key, size_t key_bytes)
{
    if (new->value == NULL && has_value(new->kind))
        return -1;
    struct op op = *new, *ops = grow(batch->ops, batch->op_count, &batch->op_room, sizeof *ops);
    if (ops != NULL)
        batch->ops = ops;
    if (ops == NULL || set_key(&op, key, key_bytes) != 0) {
        free(op.value);
        return -1;
    }
    op.number = (uint32_t)batch->op_count;
    ops[batch->op_count++] = op;
    batch->value_bytes += op.value_bytes;
    batch->has_puts |= op.kind != OP_DELETE && op.kind != OP_SENT;
    return 0;
}

static int add_value(struct tuning_db_batch *batch, enum table table, const void *key,
    size_t key_bytes, void *value, size_t value_bytes)
{
    struct op op = {.kind = OP_PUT, .table = table, .value = value, .value_bytes = value_bytes};
    return add_op(batch, &op, key, key_bytes);
}

static int add_sample(
    struct tuning_db_batch *batch, enum op_kind kind, uint32_t refresh, const struct sample *sample)
{
    uint8_t id[TUNING_DB_ID_BYTES];
    struct op op = {.kind = kind, .table = TABLE_SAMPLES, .refresh = refresh};
    tuning_db_id(sample, id);
    op.value = sample_encode(sample, &op.value_bytes);
    return add_op(batch, &op, id, sizeof id);
}

int tuning_db_batch_sample(struct tuning_db_batch *batch, const struct sample *sample)
{
    return add_sample(batch, OP_LOCAL, 0, sample);
}

static struct refresh *add_refresh(struct tuning_db_batch *batch, const struct record_key *key);

/* The key goes in first: without a row that changes it calls for nothing. */
static int add_foreign(
    struct tuning_db_batch *batch, enum op_kind kind, const struct sample *sample)
{
    const struct refresh *refresh = add_refresh(batch, &sample->key);
    if (refresh == NULL)
        return -1;
    return add_sample(batch, kind, (uint32_t)(refresh - batch->refreshes), sample);
}

int tuning_db_batch_merge(struct tuning_db_batch *batch, const struct sample *sample)
{
    return add_foreign(batch, OP_MERGE, sample);
}

int tuning_db_batch_replica(struct tuning_db_batch *batch, const struct sample *sample)
{
    return add_foreign(batch, OP_REPLICA, sample);
}

int tuning_db_batch_sent(
    struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES], uint64_t hash)
{
    struct op op = {.kind = OP_SENT, .table = TABLE_OUTBOX, .hash = hash};
    return add_op(batch, &op, id, TUNING_DB_ID_BYTES);
}

int tuning_db_batch_unsent(
    struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES], uint64_t hash)
{
    struct op op = {.kind = OP_UNSENT, .table = TABLE_OUTBOX, .hash = hash};
    return add_op(batch, &op, id, TUNING_DB_ID_BYTES);
}

int tuning_db_batch_aside(struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES],
    uint64_t hash, const char *reason)
{
    uint8_t payload[8 + ASIDE_REASON_LIMIT_BYTES];
    size_t reason_bytes = strnlen(reason, ASIDE_REASON_LIMIT_BYTES), length = 0;
    for (int i = 0; i < 8; i++)
        payload[i] = (uint8_t)(hash >> (8 * i));
    memcpy(payload + 8, reason, reason_bytes);
    void *value = blob_encode(payload, 8 + reason_bytes, &length);
    return add_value(batch, TABLE_ASIDE, id, TUNING_DB_ID_BYTES, value, length);
}

int tuning_db_batch_cubin(
    struct tuning_db_batch *batch, const struct record_hash *key, const void *bytes, size_t count)
{
    size_t length = 0;
    void *value = blob_encode(bytes, count, &length);
    return add_value(batch, TABLE_CUBIN, key->bytes, HASH_BYTES, value, length);
}

int tuning_db_batch_log(
    struct tuning_db_batch *batch, const char *text, size_t length, char id_out[33])
{
    if (length > LOG_LIMIT_BYTES)
        return -1;
    struct record_hash hash = record_bytes_hash(text, length);
    size_t value_bytes = 0;
    void *value = blob_encode(text, length, &value_bytes);
    if (add_value(batch, TABLE_LOGS, hash.bytes, HASH_BYTES, value, value_bytes) != 0)
        return -1;
    for (size_t i = 0; i < HASH_BYTES; i++)
        snprintf(id_out + 2 * i, 3, "%02x", hash.bytes[i]);
    return 0;
}

int tuning_db_batch_job(
    struct tuning_db_batch *batch, const char *name, const void *bytes, size_t count)
{
    size_t name_bytes = strlen(name), length = 0;
    if (name_bytes == 0 || name_bytes > JOB_NAME_LIMIT_BYTES)
        return -1;
    if (bytes == NULL)
        return add_op(
            batch, &(struct op){.kind = OP_DELETE, .table = TABLE_JOBS}, name, name_bytes);
    void *value = blob_encode(bytes, count, &length);
    return add_value(batch, TABLE_JOBS, name, name_bytes, value, length);
}

/* --- refreshes -------------------------------------------------------------------------------- */

/* Copies a key with its texts into one allocation. */
static int copy_key(struct refresh *refresh, const struct record_key *key)
{
    const char *const from[] = {
        key->kernel, key->fingerprint, key->shape, key->dtype, key->arch, key->mode};
    const char **const to[] = {&refresh->key.kernel, &refresh->key.fingerprint, &refresh->key.shape,
        &refresh->key.dtype, &refresh->key.arch, &refresh->key.mode};
    size_t need = 0;
    for (size_t i = 0; i < 6; i++)
        need += from[i] == NULL ? 1 : strlen(from[i]) + 1;
    char *at = refresh->storage = malloc(need);
    if (at == NULL)
        return -1;
    for (size_t i = 0; i < 6; i++) {
        size_t length = from[i] == NULL ? 0 : strlen(from[i]);
        if (length > 0)
            memcpy(at, from[i], length);
        at[length] = '\0';
        *to[i] = at;
        at += length + 1;
    }
    return 0;
}

/* Where this key's number stands among the places, or is to stand. */
static size_t find_place(const struct tuning_db_batch *batch, const struct record_hash *hash)
{
    size_t mask = batch->place_count - 1, place;
    memcpy(&place, hash->bytes, sizeof place);
    for (place &= mask; batch->places[place] != NO_REFRESH; place = (place + 1) & mask)
        if (memcmp(&batch->refreshes[batch->places[place]].hash, hash, sizeof *hash) == 0)
            break;
    return place;
}

static int grow_places(struct tuning_db_batch *batch)
{
    if (2 * (batch->refresh_count + 1) <= batch->place_count)
        return 0;
    size_t place_count = batch->place_count > 0 ? 2 * batch->place_count : 16;
    uint32_t *places = malloc(place_count * sizeof *places);
    if (places == NULL)
        return -1;
    memset(places, 0xFF, place_count * sizeof *places);
    free(batch->places);
    batch->places = places;
    batch->place_count = place_count;
    for (size_t i = 0; i < batch->refresh_count; i++)
        places[find_place(batch, &batch->refreshes[i].hash)] = (uint32_t)i;
    return 0;
}

/* The key's entry, new or not; borrowed until the next one is added. NULL without memory. */
static struct refresh *add_refresh(struct tuning_db_batch *batch, const struct record_key *key)
{
    if (grow_places(batch) != 0)
        return NULL;
    struct refresh refresh = {.hash = record_key_hash(key)};
    size_t place = find_place(batch, &refresh.hash);
    if (batch->places[place] != NO_REFRESH)
        return &batch->refreshes[batch->places[place]];
    struct refresh *refreshes =
        grow(batch->refreshes, batch->refresh_count, &batch->refresh_room, sizeof *refreshes);
    if (refreshes == NULL)
        return NULL;
    batch->refreshes = refreshes;
    if (copy_key(&refresh, key) != 0)
        return NULL;
    refreshes[batch->refresh_count] = refresh;
    batch->places[place] = (uint32_t)batch->refresh_count;
    return &refreshes[batch->refresh_count++];
}

int tuning_db_batch_refresh(struct tuning_db_batch *batch, const struct record_key *key)
{
    struct refresh *refresh = add_refresh(batch, key);
    if (refresh == NULL)
        return -1;
    refresh->is_asked = true;
    batch->has_puts = true;
    return 0;
}

/* --- the order of a commit -------------------------------------------------------------------- */

static bool is_foreign(const struct op *op)
{
    return op->kind == OP_MERGE || op->kind == OP_REPLICA;
}

/* Rows of one identity stay in the order in which they were added: what became of each is told. */
static int compare_ops(const void *left, const void *right)
{
    const struct op *a = left, *b = right;
    int order = memcmp(a->key, b->key, sizeof a->key);
    return order != 0 ? order : (a->number > b->number) - (a->number < b->number);
}

void sort_ops(struct tuning_db_batch *batch)
{
    for (size_t first = 0, end; first < batch->op_count; first = end) {
        for (end = first; end < batch->op_count && is_foreign(&batch->ops[end]);)
            end++;
        if (end - first > 1)
            qsort(batch->ops + first, end - first, sizeof batch->ops[0], compare_ops);
        end += end == first;
    }
}

static int compare_refreshes(const void *left, const void *right, void *context)
{
    const struct refresh *refreshes = context;
    const struct refresh *a = &refreshes[*(const uint32_t *)left];
    const struct refresh *b = &refreshes[*(const uint32_t *)right];
    return memcmp(&a->hash, &b->hash, sizeof a->hash);
}

uint32_t *sort_refreshes(const struct tuning_db_batch *batch)
{
    uint32_t *order = malloc((batch->refresh_count + 1) * sizeof *order);
    for (size_t i = 0; order != NULL && i < batch->refresh_count; i++)
        order[i] = (uint32_t)i;
    if (order != NULL)
        qsort_r(order, batch->refresh_count, sizeof *order, compare_refreshes, batch->refreshes);
    return order;
}
