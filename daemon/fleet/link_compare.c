/* Comparing the rows of both sides, bucket by bucket, and mending what differs. Whatever was lost
 * on either side (an engine made anew or taken from a backup, a database folder that was restored),
 * each has what the other acknowledged afterwards. Rows that change meanwhile are met twice, which
 * does nothing.
 *
 * Listing our rows takes 10 us each, seconds for a large database. So that news do not wait for
 * that, a comparison is done in slices, with the feed and the outbox served between them. */
#include "daemon/fleet/link_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_ROWS 500
#define SLICE_MS 50

struct entry {
    uint8_t id[ENGINE_ID_BYTES];
    uint64_t hash;
    bool is_aside;
};

struct entries {
    struct entry *items;
    size_t count, room;
};

/* What a slice of the comparison has found. */
struct mending {
    struct link *link;
    struct entries missing;        /* here */
    struct tuning_db_batch *batch; /* what is missing there */
};

static void add_entry(struct entries *entries, const uint8_t *id, uint64_t hash, bool is_aside)
{
    if (entries->count == entries->room) {
        entries->room = entries->room * 2 + 64;
        entries->items = xrealloc(entries->items, entries->room * sizeof *entries->items);
    }
    struct entry *entry = &entries->items[entries->count++];
    *entry = (struct entry){.hash = hash, .is_aside = is_aside};
    memcpy(entry->id, id, sizeof entry->id);
}

static void on_theirs(const struct engine_row *row, void *context)
{
    add_entry(context, row->id, row->hash, false);
}

static int on_ours(const uint8_t *id, uint64_t hash, bool is_aside, void *context)
{
    add_entry(context, id, hash, is_aside);
    return 0;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(((const struct entry *)a)->id, ((const struct entry *)b)->id, ENGINE_ID_BYTES);
}

static void sort(struct entries *entries)
{
    if (entries->count > 0)
        qsort(entries->items, entries->count, sizeof *entries->items, by_id);
}

/* One that is set aside is not ours to give, but where the other side has it no more it may hide
 * one that is. */
static int send_again(struct mending *mending, const struct entry *entry)
{
    mending->link->compare.unsent += !entry->is_aside;
    return tuning_db_batch_unsent(mending->batch, entry->id, entry->hash);
}

/* Rows of one id that differ go both ways: each side keeps the one that stands. */
static int match(struct mending *mending, const struct entries *ours, const struct entries *theirs)
{
    size_t i = 0, j = 0;
    int status = 0;
    while (status == 0 && (i < ours->count || j < theirs->count)) {
        int order = i == ours->count     ? 1
                    : j == theirs->count ? -1
                                         : by_id(&ours->items[i], &theirs->items[j]);
        const struct entry *our = &ours->items[i], *their = &theirs->items[j];
        if (order < 0 || (order == 0 && our->hash != their->hash))
            status = send_again(mending, our);
        if (order > 0 || (order == 0 && our->hash != their->hash))
            add_entry(&mending->missing, their->id, their->hash, false);
        i += order <= 0;
        j += order >= 0;
    }
    return status == 0 ? 0 : -1;
}

static bool is_equal(const struct entries *ours, const struct engine_bucket *theirs)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < ours->count; i++)
        digest ^= ours->items[i].hash;
    return theirs->rows == ours->count && theirs->digest == digest;
}

static int list_and_match(struct mending *mending, unsigned bucket, struct entries *ours,
    struct entries *theirs, struct tune_error *err)
{
    struct link *link = mending->link;
    if (link->options.engine->list_bucket(link->engine, bucket, on_theirs, theirs, err))
        return -1;
    sort(ours);
    sort(theirs);
    return match(mending, ours, theirs) ? tune_fail(err, TUNE_ENOMEM, "no memory for comparing")
                                        : 0;
}

static int compare_bucket(struct mending *mending, unsigned bucket,
    const struct engine_bucket *digest, struct tune_error *err)
{
    struct link *link = mending->link;
    struct entries ours = {0}, theirs = {0};
    int status = tuning_db_walk_bucket(
        link->options.db, link->options.shares_emulated, bucket, on_ours, &ours, err);
    if (status == 0 && !is_equal(&ours, digest))
        status = list_and_match(mending, bucket, &ours, &theirs, err);
    free(ours.items);
    free(theirs.items);
    return status;
}

/* --- mending ---------------------------------------------------------------------------------- */

/* The position stays: what is fetched here is beside the feed. */
static int fetch_some(struct mending *mending, size_t start, size_t count, struct tune_error *err)
{
    struct link *link = mending->link;
    uint8_t(*ids)[ENGINE_ID_BYTES] = xcalloc(count, sizeof *ids);
    struct link_taking taking = {.link = link, .batch = tuning_db_batch_create()};
    for (size_t i = 0; i < count; i++)
        memcpy(ids[i], mending->missing.items[start + i].id, ENGINE_ID_BYTES);
    int status = link->options.engine->fetch(
        link->engine, (const uint8_t(*)[ENGINE_ID_BYTES])ids, count, link_take_row, &taking, err);
    if (status == 0 && link_store_taken(&taking, link->position))
        link->compare.fetched += taking.taken;
    else
        link->compare.has_lapse = true;
    tuning_db_batch_destroy(taking.batch);
    free(ids);
    return status;
}

static int fetch_missing(struct mending *mending, struct tune_error *err)
{
    struct link *link = mending->link;
    for (size_t i = 0; i < mending->missing.count && !link->is_full; i += FETCH_ROWS) {
        size_t left = mending->missing.count - i;
        if (fetch_some(mending, i, left < FETCH_ROWS ? left : FETCH_ROWS, err) ||
            link_keep_up(link, err))
            return -1;
    }
    return 0;
}

static int mend(struct mending *mending, struct tune_error *err)
{
    struct link *link = mending->link;
    struct tuning_db_batch *batch = mending->batch;
    mending->batch = NULL;
    link->compare.missing += mending->missing.count;
    if (fetch_missing(mending, err)) {
        tuning_db_batch_destroy(batch);
        return -1;
    }
    if (tuning_db_batch_count(batch) == 0)
        tuning_db_batch_destroy(batch);
    else if (link_commit(link, batch))
        link->has_unsent = true;
    else
        link->compare.has_lapse = true;
    return 0;
}

static int compare_some(struct mending *mending, struct tune_error *err)
{
    struct link *link = mending->link;
    struct engine_bucket digests[ENGINE_BUCKETS];
    uint64_t end_ns = uv_hrtime() + SLICE_MS * NS_PER_MS;
    unsigned next = link->compare.next;
    if (link->options.engine->digest(link->engine, digests, err))
        return -1;
    do {
        if (compare_bucket(mending, next, &digests[next], err) || link_keep_up(link, err))
            return -1;
        next++;
    } while (next < ENGINE_BUCKETS && uv_hrtime() < end_ns);
    link->compare.next = next;
    return mend(mending, err);
}

static void end_comparison(struct link *link)
{
    uint64_t pause_ms = link->compare.has_lapse ? LINK_COMPARE_AGAIN_MS : LINK_COMPARE_MS;
    link->compare_ns = uv_hrtime() + pause_ms * NS_PER_MS;
    if (link->compare.missing > 0 || link->compare.unsent > 0)
        log_info("fleet: compared: %zu rows were missing or other here, %zu there; %zu taken",
            link->compare.missing, link->compare.unsent, link->compare.fetched);
    link->compare.next = 0;
}

int link_compare(struct link *link, struct tune_error *err)
{
    struct mending mending = {.link = link, .batch = tuning_db_batch_create()};
    if (link->compare.next == 0)
        memset(&link->compare, 0, sizeof link->compare);
    int status = mending.batch == NULL ? tune_fail(err, TUNE_ENOMEM, "no memory for comparing")
                                       : compare_some(&mending, err);
    tuning_db_batch_destroy(mending.batch);
    free(mending.missing.items);
    if (status == 0 && link->compare.next == ENGINE_BUCKETS)
        end_comparison(link);
    return status;
}
