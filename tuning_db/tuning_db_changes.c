/* Which best rows have changed lately. See tuning_db.h. */
#include "tuning_db_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char **key_texts(struct record_key *key, size_t i)
{
    const char **texts[] = {
        &key->kernel, &key->fingerprint, &key->shape, &key->dtype, &key->arch, &key->mode};
    return i < sizeof texts / sizeof texts[0] ? texts[i] : NULL;
}

static char *copy_key(const struct record_key *from, struct record_key *to)
{
    size_t bytes = 0;
    const char **text;
    *to = *from;
    for (size_t i = 0; (text = key_texts(to, i)) != NULL; i++)
        bytes += strlen(*text) + 1;
    char *storage = malloc(bytes), *at = storage;
    for (size_t i = 0; storage != NULL && (text = key_texts(to, i)) != NULL; i++) {
        size_t length = strlen(*text) + 1;
        memcpy(at, *text, length);
        *text = at;
        at += length;
    }
    return storage;
}

/* Forgets the oldest. What changed up to then can no longer be told one by one. */
static void forget_one(struct changes *changes)
{
    struct change *oldest = &changes->ring[changes->first % CHANGES_KEPT];
    changes->floor = oldest->generation;
    free(oldest->storage);
    *oldest = (struct change){0};
    changes->first++;
}

static void remember(struct changes *changes, const struct record_key *key, uint64_t generation)
{
    if (changes->end - changes->first == CHANGES_KEPT)
        forget_one(changes);
    struct change *change = &changes->ring[changes->end % CHANGES_KEPT];
    change->storage = copy_key(key, &change->key);
    if (change->storage == NULL) {
        changes->floor = generation;
        return;
    }
    change->generation = generation;
    changes->end++;
}

void changes_add(struct tuning_db *db, const struct tuning_db_batch *batch, uint64_t generation)
{
    pthread_mutex_lock(&db->changes.lock);
    for (size_t i = 0; i < batch->refresh_count; i++)
        if (batch->refreshes[i].has_new_best)
            remember(&db->changes, &batch->refreshes[i].key, generation);
    /* Last, so that whoever sees the number finds the rows stored and the keys listed. */
    atomic_store(&db->generation, generation);
    pthread_mutex_unlock(&db->changes.lock);
}

void changes_finish(struct changes *changes)
{
    while (changes->first < changes->end)
        forget_one(changes);
    pthread_mutex_destroy(&changes->lock);
}

uint64_t tuning_db_generation(const struct tuning_db *db)
{
    return atomic_load(&db->generation);
}

int tuning_db_changes(struct tuning_db *db, uint64_t since,
    void (*on_change)(const struct record_key *key, void *context), void *context, uint64_t *now)
{
    struct changes *changes = &db->changes;
    pthread_mutex_lock(&changes->lock);
    *now = atomic_load(&db->generation);
    int status = since < changes->floor;
    for (size_t at = changes->first; status == 0 && at < changes->end; at++) {
        const struct change *change = &changes->ring[at % CHANGES_KEPT];
        if (change->generation > since)
            on_change(&change->key, context);
    }
    pthread_mutex_unlock(&changes->lock);
    return status;
}
