/* See memo.h. */
#include "daemon/memo.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MEMO_PLACES ((size_t)1 << 17)
#define MEMO_GROUP 4 /* places that a question may have */

struct entry {
    uint64_t version;
    size_t question_length, answer_length;
    char bytes[]; /* question, answer */
};

struct place {
    uint64_t hash;
    struct entry *entry; /* NULL: free */
};

struct memo {
    size_t limit_bytes, bytes;
    uint64_t hits;
    size_t hand; /* the place that gives way next */
    struct place places[MEMO_PLACES];
};

struct memo *memo_create(size_t limit_bytes)
{
    struct memo *memo = xcalloc(1, sizeof *memo);
    memo->limit_bytes = limit_bytes;
    return memo;
}

static size_t entry_bytes(size_t question_length, size_t answer_length)
{
    return sizeof(struct entry) + question_length + answer_length;
}

static void drop(struct memo *memo, struct place *place)
{
    if (place->entry == NULL)
        return;
    memo->bytes -= entry_bytes(place->entry->question_length, place->entry->answer_length);
    free(place->entry);
    place->entry = NULL;
}

void memo_destroy(struct memo *memo)
{
    for (size_t i = 0; memo != NULL && memo->bytes > 0; i++)
        drop(memo, &memo->places[i]);
    free(memo);
}

static struct place *group_of(struct memo *memo, uint64_t hash)
{
    return &memo->places[hash % (MEMO_PLACES / MEMO_GROUP) * MEMO_GROUP];
}

/* Its place, or NULL. */
static struct place *find(
    struct memo *memo, uint64_t hash, const char *question, size_t question_length)
{
    struct place *group = group_of(memo, hash);
    for (size_t i = 0; i < MEMO_GROUP; i++) {
        const struct entry *entry = group[i].entry;
        if (entry != NULL && group[i].hash == hash && entry->question_length == question_length &&
            memcmp(entry->bytes, question, question_length) == 0)
            return &group[i];
    }
    return NULL;
}

/* The place to take: a free one, else one of another version, else any. */
static struct place *choose(struct memo *memo, uint64_t hash, uint64_t version)
{
    struct place *group = group_of(memo, hash), *chosen = &group[(hash >> 32) % MEMO_GROUP];
    for (size_t i = 0; i < MEMO_GROUP; i++) {
        if (group[i].entry == NULL)
            return &group[i];
        if (group[i].entry->version != version)
            chosen = &group[i];
    }
    return chosen;
}

const char *memo_get(struct memo *memo, uint64_t version, const char *question,
    size_t question_length, size_t *answer_length)
{
    uint64_t hash = XXH3_64bits(question, question_length);
    const struct place *place = find(memo, hash, question, question_length);
    if (place == NULL || place->entry->version != version)
        return NULL;
    *answer_length = place->entry->answer_length;
    memo->hits++;
    return place->entry->bytes + question_length;
}

static void make_room(struct memo *memo, size_t need)
{
    while (memo->bytes > 0 && memo->bytes + need > memo->limit_bytes) {
        drop(memo, &memo->places[memo->hand]);
        memo->hand = (memo->hand + 1) % MEMO_PLACES;
    }
}

void memo_put(struct memo *memo, uint64_t version, const char *question, size_t question_length,
    const char *answer, size_t answer_length)
{
    size_t need = entry_bytes(question_length, answer_length);
    if (need > memo->limit_bytes)
        return;
    uint64_t hash = XXH3_64bits(question, question_length);
    struct place *place = find(memo, hash, question, question_length);
    if (place == NULL)
        place = choose(memo, hash, version);
    drop(memo, place);
    make_room(memo, need);
    struct entry *entry = xmalloc(need);
    entry->version = version;
    entry->question_length = question_length;
    entry->answer_length = answer_length;
    memcpy(entry->bytes, question, question_length);
    memcpy(entry->bytes + question_length, answer, answer_length);
    memo->bytes += need;
    *place = (struct place){hash, entry};
}

uint64_t memo_hits(const struct memo *memo)
{
    return memo->hits;
}

size_t memo_bytes(const struct memo *memo)
{
    return memo->bytes;
}
