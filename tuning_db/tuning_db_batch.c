/* Batches: writes collected and encoded in memory, so that a commit can be replayed whole. */
#include "tuning_db_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tuning_db_batch *tuning_db_batch_create(void)
{
    return calloc(1, sizeof(struct tuning_db_batch));
}

void tuning_db_batch_destroy(struct tuning_db_batch *batch)
{
    if (batch == NULL)
        return;
    for (size_t i = 0; i < batch->op_count; i++)
        free(batch->ops[i].value);
    for (size_t i = 0; i < batch->refresh_count; i++)
        free(batch->refreshes[i].storage);
    free(batch->ops);
    free(batch->refreshes);
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

/* Takes `value`; is_delete tells a deletion from a value for which there was no memory. */
static int add_op(struct tuning_db_batch *batch, enum table table, const void *key,
    size_t key_bytes, void *value, size_t value_bytes, bool is_delete)
{
    assert(key_bytes <= sizeof batch->ops->key);
    if (value == NULL && !is_delete)
        return -1;
    struct op *ops = grow(batch->ops, batch->op_count, &batch->op_room, sizeof *ops);
    if (ops == NULL) {
        free(value);
        return -1;
    }
    batch->ops = ops;
    struct op *op = &ops[batch->op_count++];
    *op = (struct op){
        .table = table, .key_bytes = key_bytes, .value = value, .value_bytes = value_bytes};
    memcpy(op->key, key, key_bytes);
    batch->has_puts |= !is_delete;
    return 0;
}

int tuning_db_batch_sample(struct tuning_db_batch *batch, const struct sample *sample)
{
    uint8_t key[SAMPLE_KEY_BYTES];
    size_t length = 0;
    sample_db_key(sample, key);
    void *value = sample_encode(sample, &length);
    return add_op(batch, TABLE_SAMPLES, key, sizeof key, value, length, false);
}

int tuning_db_batch_cubin(
    struct tuning_db_batch *batch, const struct record_hash *key, const void *bytes, size_t count)
{
    size_t length = 0;
    void *value = blob_encode(bytes, count, &length);
    return add_op(batch, TABLE_CUBIN, key->bytes, HASH_BYTES, value, length, false);
}

int tuning_db_batch_log(
    struct tuning_db_batch *batch, const char *text, size_t length, char id_out[33])
{
    if (length > LOG_LIMIT_BYTES)
        return -1;
    struct record_hash hash = record_bytes_hash(text, length);
    size_t value_bytes = 0;
    void *value = blob_encode(text, length, &value_bytes);
    if (add_op(batch, TABLE_LOGS, hash.bytes, HASH_BYTES, value, value_bytes, false) != 0)
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
    void *value = bytes == NULL ? NULL : blob_encode(bytes, count, &length);
    return add_op(batch, TABLE_JOBS, name, name_bytes, value, length, bytes == NULL);
}

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

int tuning_db_batch_refresh(struct tuning_db_batch *batch, const struct record_key *key)
{
    struct record_hash hash = record_key_hash(key);
    for (size_t i = 0; i < batch->refresh_count; i++) {
        if (memcmp(&batch->refreshes[i].hash, &hash, sizeof hash) == 0)
            return 0;
    }
    struct refresh *refreshes =
        grow(batch->refreshes, batch->refresh_count, &batch->refresh_room, sizeof *refreshes);
    if (refreshes == NULL)
        return -1;
    batch->refreshes = refreshes;
    struct refresh *refresh = &refreshes[batch->refresh_count];
    *refresh = (struct refresh){.hash = hash};
    if (copy_key(refresh, key) != 0)
        return -1;
    batch->refresh_count++;
    batch->has_puts = true;
    return 0;
}
