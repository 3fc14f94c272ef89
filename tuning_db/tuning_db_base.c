/* The lower layer: best rows that came with the program. See tuning_db.h.
 *
 * Design: its rows have the keys that they would have in the table `best`, so that a walk can go
 * through both in one order, and a row of the table hides the one under it by its key. */
#include "tuning_db_internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* --- making it -------------------------------------------------------------------------------- */

static int compare_keys(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    struct record_hash a_hash = record_key_hash(&a->key), b_hash = record_key_hash(&b->key);
    return memcmp(&a_hash, &b_hash, sizeof a_hash);
}

static int compare_rows(const void *left, const void *right)
{
    const struct base_row *a = left, *b = right;
    return memcmp(a->key, b->key, sizeof a->key);
}

/* By its encoding, which has all its texts in one piece. */
static int copy_best(const struct best *from, struct best *to)
{
    size_t length;
    void *bytes = best_encode(from, &length);
    int status = bytes == NULL ? -1 : best_decode(bytes, length, to, NULL);
    free(bytes);
    to->is_shipped = true;
    return status;
}

static int add_row(struct base *base, const struct best *best, const char *gpu_name)
{
    struct base_row *row = &base->rows[base->count];
    if (copy_best(best, &row->best) != 0)
        return -1;
    best_db_key(&best->key, gpu_name, best->sms, row->key);
    base->count++;
    return 0;
}

/* The rows of one key; at most one for each sample, and the arch's. */
static int add_key(struct base *base, const struct sample **samples, size_t count)
{
    struct best_rows rows;
    if (best_rows_pick(&rows, samples, count) != 0)
        return -1;
    int status = 0;
    for (size_t i = 0; status == 0 && i < rows.count; i++)
        status = add_row(base, &rows.rows[i], rows.rows[i].gpu_name);
    if (status == 0 && rows.count > 0)
        status = add_row(base, &rows.rows[rows.arch], NULL);
    best_rows_finish(&rows);
    return status;
}

static int add_keys(struct base *base, const struct sample **samples, size_t count)
{
    int status = 0;
    if (count > 0)
        qsort(samples, count, sizeof *samples, compare_keys);
    for (size_t first = 0, end; status == 0 && first < count; first = end) {
        for (end = first + 1; end < count; end++)
            if (!record_key_equal(&samples[first]->key, &samples[end]->key))
                break;
        status = add_key(base, samples + first, end - first);
    }
    if (base->count > 0)
        qsort(base->rows, base->count, sizeof *base->rows, compare_rows);
    return status;
}

static int hash_rows(struct base *base)
{
    for (size_t i = 0; i < base->count; i++) {
        size_t length;
        void *bytes = best_encode(&base->rows[i].best, &length);
        if (bytes == NULL)
            return -1;
        base->hash = XXH3_64bits_withSeed(bytes, length, base->hash);
        free(bytes);
    }
    return 0;
}

void base_destroy(struct base *base)
{
    if (base == NULL)
        return;
    for (size_t i = 0; i < base->count; i++)
        best_finish(&base->rows[i].best);
    free(base->rows);
    free(base);
}

static struct base *base_create(const struct sample *samples, size_t count)
{
    struct base *base = calloc(1, sizeof *base);
    const struct sample **pointers = calloc(count + 1, sizeof *pointers);
    if (base != NULL)
        base->rows = calloc(2 * count + 1, sizeof *base->rows);
    bool is_made = base != NULL && base->rows != NULL && pointers != NULL;
    for (size_t i = 0; is_made && i < count; i++)
        pointers[i] = &samples[i];
    is_made = is_made && add_keys(base, pointers, count) == 0 && hash_rows(base) == 0;
    free(pointers);
    if (is_made)
        return base;
    base_destroy(base);
    return NULL;
}

int tuning_db_set_base(
    struct tuning_db *db, const struct sample *samples, size_t count, struct tune_error *err)
{
    struct base *base = count == 0 ? NULL : base_create(samples, count);
    if (base == NULL && count > 0)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu shipped records", count);
    base_destroy(db->base);
    db->base = base;
    return 0;
}

uint64_t tuning_db_base_hash(const struct tuning_db *db)
{
    return db->base == NULL ? 0 : db->base->hash;
}

/* --- reading it ------------------------------------------------------------------------------- */

size_t base_find(const struct base *base, const void *key, size_t key_bytes)
{
    size_t first = 0, end = base->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (memcmp(base->rows[middle].key, key, key_bytes) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

void base_give(const struct base *base, const struct record_key *key,
    int (*on_best)(const struct best *best, void *context), void *context)
{
    uint8_t prefix[BEST_KEY_BYTES];
    const size_t prefix_bytes = 2 * HASH_BYTES;
    if (base == NULL)
        return;
    best_db_key(key, NULL, 0, prefix);
    for (size_t at = base_find(base, prefix, prefix_bytes);
         at < base->count && memcmp(base->rows[at].key, prefix, prefix_bytes) == 0; at++)
        if (record_key_equal(&base->rows[at].best.key, key) &&
            on_best(&base->rows[at].best, context) != 0)
            return;
}

int base_best(const struct base *base, const struct record_key *key, const char *gpu_name,
    uint32_t sms, struct best *best, struct tune_error *err)
{
    uint8_t wanted[BEST_KEY_BYTES];
    if (base == NULL)
        return 1;
    best_db_key(key, gpu_name, sms, wanted);
    size_t at = base_find(base, wanted, sizeof wanted);
    if (at == base->count || memcmp(base->rows[at].key, wanted, sizeof wanted) != 0 ||
        !record_key_equal(&base->rows[at].best.key, key))
        return 1;
    if (copy_best(&base->rows[at].best, best) != 0)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a shipped record");
    return 0;
}
