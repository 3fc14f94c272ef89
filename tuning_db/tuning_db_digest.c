/* Comparing with another set of rows: by buckets first, then the rows of those that differ. See
 * tuning_db.h.
 *
 * Design: both listings are one walk through two tables in the order of ids. A row that is set
 * aside hides a stored one of its id: the other side has the one that is set aside. Rows without a
 * line cannot be elsewhere and do not count. */
#include "tuning_db_internal.h"

#include "record_line.h"

#include <stdlib.h>
#include <string.h>

struct aside {
    uint8_t id[TUNING_DB_ID_BYTES];
    uint64_t hash;
};

struct listing {
    bool with_cpu;
    struct aside *asides; /* of the bucket, sorted */
    size_t count, room, next;
    bool has_no_memory, is_stopped;
    int (*on_row)(const uint8_t *id, uint64_t hash, bool is_aside, void *context);
    void *context;
};

static int on_aside(struct walk *walk, const struct row *row)
{
    struct listing *listing = walk->context;
    struct tune_error why = {.code = TUNE_OK};
    struct aside aside;
    MDB_val value = {row->value_bytes, (void *)(uintptr_t)row->value};
    if (row->key_bytes != sizeof aside.id || outbox_hash(&value, &aside.hash, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    memcpy(aside.id, row->key, sizeof aside.id);
    if (listing->count == listing->room) {
        size_t room = 2 * listing->room + 64;
        struct aside *asides = realloc(listing->asides, room * sizeof *asides);
        listing->has_no_memory = asides == NULL;
        if (asides == NULL)
            return 1;
        listing->asides = asides;
        listing->room = room;
    }
    listing->asides[listing->count++] = aside;
    return 0;
}

static int give(struct listing *listing, const uint8_t *id, uint64_t hash, bool is_aside)
{
    listing->is_stopped = listing->on_row(id, hash, is_aside, listing->context) != 0;
    return listing->is_stopped;
}

/* Those up to an id, or all with NULL. *is_hidden: the id is among them. */
static int give_asides(struct listing *listing, const uint8_t *id, bool *is_hidden)
{
    *is_hidden = false;
    while (listing->next < listing->count) {
        const struct aside *aside = &listing->asides[listing->next];
        int order = id == NULL ? -1 : memcmp(aside->id, id, sizeof aside->id);
        if (order > 0)
            break;
        *is_hidden = order == 0;
        listing->next++;
        if (give(listing, aside->id, aside->hash, true))
            return 1;
    }
    return 0;
}

static int on_sample(struct walk *walk, const struct row *row)
{
    struct listing *listing = walk->context;
    struct tune_error why = {.code = TUNE_OK};
    struct sample sample;
    if (decode_sample_row(row, &sample, &why) != 0) {
        note_row(walk, row, &why);
        return 0;
    }
    bool is_wanted = listing->with_cpu || strcmp(sample.key.arch, "cpu") != 0, is_hidden;
    int status = give_asides(listing, row->key, &is_hidden);
    uint64_t hash = status == 0 && is_wanted && !is_hidden ? record_line_hash(&sample) : 0;
    if (hash != 0)
        status = give(listing, row->key, hash, false);
    sample_finish(&sample);
    return status;
}

static int list_bucket(
    struct tuning_db *db, struct listing *listing, uint8_t bucket, struct tune_error *err)
{
    struct walk asides = {.db = db,
        .table = TABLE_ASIDE,
        .prefix = &bucket,
        .prefix_bytes = 1,
        .on_row = on_aside,
        .context = listing};
    struct walk samples = asides;
    samples.table = TABLE_SAMPLES;
    samples.on_row = on_sample;
    if (walk_rows(&asides, err) != 0)
        return -1;
    if (listing->has_no_memory)
        return tune_fail(err, TUNE_ENOMEM, "no memory to list the rows set aside");
    if (walk_rows(&samples, err) != 0)
        return -1;
    bool is_hidden;
    if (!listing->is_stopped)
        give_asides(listing, NULL, &is_hidden);
    return 0;
}

int tuning_db_walk_bucket(struct tuning_db *db, bool with_cpu, unsigned bucket,
    int (*on_row)(const uint8_t *id, uint64_t hash, bool is_aside, void *context), void *context,
    struct tune_error *err)
{
    if (bucket >= TUNING_DB_BUCKETS)
        return tune_fail(
            err, TUNE_EINVAL, "there is no bucket %u of %d", bucket, TUNING_DB_BUCKETS);
    struct listing listing = {.with_cpu = with_cpu, .on_row = on_row, .context = context};
    int status = list_bucket(db, &listing, (uint8_t)bucket, err);
    free(listing.asides);
    return status;
}

static int add_to_bucket(const uint8_t *id, uint64_t hash, bool is_aside, void *context)
{
    struct tuning_db_bucket *bucket = context;
    (void)id, (void)is_aside;
    bucket->rows++;
    bucket->digest ^= hash;
    return 0;
}

int tuning_db_digest(struct tuning_db *db, bool with_cpu,
    struct tuning_db_bucket buckets[TUNING_DB_BUCKETS], struct tune_error *err)
{
    memset(buckets, 0, TUNING_DB_BUCKETS * sizeof *buckets);
    for (unsigned i = 0; i < TUNING_DB_BUCKETS; i++)
        if (tuning_db_walk_bucket(db, with_cpu, i, add_to_bucket, &buckets[i], err) != 0)
            return -1;
    return 0;
}
